//! Lines in the gateway's log. They are sent in the background, so no call waits for them.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hookgate_proto::host::v1::{self as wire, Severity, log_service_client::LogServiceClient};
use tokio::runtime::Handle;

use crate::{host_service::HostClient, record_rules::check_record};

/// Most lines that wait to be sent. Further ones are dropped.
const MAX_QUEUED: usize = 1000;
/// Most lines of one request.
const MAX_BATCH: usize = 100;
/// The gateway cuts messages and values there.
const MAX_MESSAGE_BYTES: usize = 8 << 10;
const MAX_VALUE_BYTES: usize = 1 << 10;

/// Writes lines to the gateway's log. Each line names the plugin; those of [`Context::log`](crate::Context::log) also
/// name the call's tenant and request id. Cheap to clone.
///
/// The plugin lists `Capability::Log` in its `CAPABILITIES`. Lines are sent in the background, in their order. A line
/// that can't be sent is lost, and a warning says so through `tracing`. Never log secrets or payloads.
///
/// ```
/// use hookgate_sdk::{Context, LogRecord};
///
/// fn note(ctx: &Context) {
///     ctx.log().info("the budget is nearly used");
///     ctx.log().record(LogRecord::warn("the budget is used").attribute("tokens", 1200));
/// }
/// ```
#[derive(Clone)]
pub struct Log(Arc<Sender>);

/// A line for the gateway's log.
#[derive(Debug, Clone)]
pub struct LogRecord(wire::LogRecord);

struct Sender {
    client: HostClient,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    records: VecDeque<wire::LogRecord>,
    /// Lines that found no room.
    dropped: u64,
    /// Whether a task is sending them.
    is_sending: bool,
}

impl LogRecord {
    /// A line for finding a mistake in the plugin. The gateway writes it if its `log.level` is `debug` or `trace`.
    pub fn debug(message: impl Into<String>) -> Self {
        Self::new(Severity::Debug, message)
    }

    /// A line about something normal.
    pub fn info(message: impl Into<String>) -> Self {
        Self::new(Severity::Info, message)
    }

    /// A line about something that somebody should look at.
    pub fn warn(message: impl Into<String>) -> Self {
        Self::new(Severity::Warn, message)
    }

    /// A line about something that the plugin failed to do.
    pub fn error(message: impl Into<String>) -> Self {
        Self::new(Severity::Error, message)
    }

    fn new(severity: Severity, message: impl Into<String>) -> Self {
        let (message, attributes) = (message.into(), std::collections::BTreeMap::new());
        LogRecord(wire::LogRecord { severity: severity.into(), message, attributes })
    }

    /// Adds an attribute, one of at most 32. The name has 1 to 64 letters, digits, `_`, `-` or `.`; the gateway cuts the
    /// value at 1 KiB.
    #[must_use]
    pub fn attribute(mut self, name: impl Into<String>, value: impl fmt::Display) -> Self {
        self.0.attributes.insert(name.into(), value.to_string());
        self
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").finish_non_exhaustive()
    }
}

impl Log {
    pub(crate) fn new(client: &HostClient) -> Self {
        Log(Arc::new(Sender { client: client.without_deadline(), queue: Mutex::default() }))
    }

    /// Writes a line at the level `debug`.
    pub fn debug(&self, message: impl Into<String>) {
        self.record(LogRecord::debug(message));
    }

    /// Writes a line at the level `info`.
    pub fn info(&self, message: impl Into<String>) {
        self.record(LogRecord::info(message));
    }

    /// Writes a line at the level `warn`.
    pub fn warn(&self, message: impl Into<String>) {
        self.record(LogRecord::warn(message));
    }

    /// Writes a line at the level `error`.
    pub fn error(&self, message: impl Into<String>) {
        self.record(LogRecord::error(message));
    }

    /// Writes a line. Does nothing outside of a tokio runtime.
    pub fn record(&self, LogRecord(mut record): LogRecord) {
        let Ok(runtime) = Handle::try_current() else { return };
        // The gateway refuses all lines of a request if one is invalid.
        if let Err(wrong) = check_record(&record) {
            tracing::warn!(
                field = wrong.field,
                right = wrong.range,
                "an invalid line for the gateway's log was dropped"
            );
            return;
        }
        truncate(&mut record.message, MAX_MESSAGE_BYTES);
        record.attributes.values_mut().for_each(|value| truncate(value, MAX_VALUE_BYTES));
        if self.0.push(record) {
            let duty = SendingDuty { sender: Arc::clone(&self.0), is_done: false };
            runtime.spawn(duty.send());
        }
    }
}

/// Without a mark, as the gateway cuts it.
fn truncate(text: &mut String, most: usize) {
    text.truncate(text.floor_char_boundary(most));
}

/// The duty to send. Another task takes it over if this one ends early, with its runtime.
struct SendingDuty {
    sender: Arc<Sender>,
    is_done: bool,
}

impl Drop for SendingDuty {
    fn drop(&mut self) {
        if !self.is_done {
            self.sender.queue().is_sending = false;
        }
    }
}

impl Sender {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the caller has to start sending.
    fn push(&self, record: wire::LogRecord) -> bool {
        let mut queue = self.queue();
        if queue.records.len() >= MAX_QUEUED {
            queue.dropped += 1;
            return false;
        }
        queue.records.push_back(record);
        !std::mem::replace(&mut queue.is_sending, true)
    }

    /// The lines to send next, and how many were dropped before; `None` if there are none.
    fn next(&self) -> Option<(Vec<wire::LogRecord>, u64)> {
        let mut queue = self.queue();
        let count = queue.records.len().min(MAX_BATCH);
        queue.is_sending = count > 0;
        let records = queue.records.drain(..count).collect();
        (count > 0).then(|| (records, std::mem::take(&mut queue.dropped)))
    }
}

impl SendingDuty {
    /// Sends lines until none are left.
    async fn send(mut self) {
        while let Some((records, dropped)) = self.sender.next() {
            if dropped > 0 {
                tracing::warn!(lines = dropped, "lines for the gateway's log were dropped: too many wait");
            }
            let (lines, request) = (records.len(), wire::WriteLogRequest { records });
            let sent = self.sender.client.call(request, |service, request| async move {
                LogServiceClient::new(service).write_log(request).await
            });
            match sent.await {
                Ok(wire::WriteLogResponse { dropped: 0 }) => {}
                Ok(wire::WriteLogResponse { dropped: lines }) => {
                    tracing::warn!(lines, "the gateway dropped lines for its log: too many in a second");
                }
                Err(error) => tracing::warn!(lines, %error, "lines for the gateway's log were lost"),
            }
        }
        self.is_done = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Capability, HostError,
        context::ForwardedMetadata,
        harness::TestHost,
        host_service::{HostLinks, HostServices, bearer},
    };

    fn client(host: &TestHost, capabilities: &[Capability]) -> HostClient {
        host.client_of("p", Some("acme"), capabilities)
    }

    #[tokio::test]
    async fn lines_arrive_in_their_order_with_what_they_say() {
        let host = TestHost::new();
        let log = Log::new(&client(&host, &[Capability::Log]));
        for number in 0..250 {
            log.record(LogRecord::warn(format!("line {number}")).attribute("number", number));
        }
        let lines = host.log_lines(250).await;
        for (number, line) in lines.iter().enumerate() {
            assert_eq!((line.plugin.as_str(), line.tenant.as_deref()), ("p", Some("acme")));
            assert_eq!((line.severity, &line.message), (Severity::Warn, &format!("line {number}")));
            assert_eq!(line.attributes["number"], number.to_string());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn lines_beyond_those_that_may_wait_are_dropped_and_later_ones_arrive() {
        let host = TestHost::new();
        let log = Log::new(&client(&host, &[Capability::Log]));
        // The test doesn't yield before the loop ends, so nothing is sent meanwhile.
        for number in 0..MAX_QUEUED + 5 {
            log.info(number.to_string());
        }
        assert_eq!(host.log_lines(MAX_QUEUED).await.len(), MAX_QUEUED);
        log.info("last");
        assert_eq!(host.log_lines(MAX_QUEUED + 1).await.last().unwrap().message, "last");
    }

    #[tokio::test]
    async fn an_invalid_line_is_dropped_alone_and_a_long_one_is_cut() {
        let host = TestHost::new();
        let log = Log::new(&client(&host, &[Capability::Log]));
        log.info("one");
        log.info("");
        log.record(LogRecord::info("two").attribute("with space", 1));
        log.record(LogRecord::info("ü".repeat(MAX_MESSAGE_BYTES)).attribute("long", "x".repeat(5000)));
        let lines = host.log_lines(2).await;
        assert_eq!((lines.len(), &*lines[0].message), (2, "one"));
        assert_eq!(
            (lines[1].message.len(), lines[1].attributes["long"].len()),
            (MAX_MESSAGE_BYTES, MAX_VALUE_BYTES)
        );
    }

    #[test]
    fn a_sender_whose_runtime_ends_leaves_the_log_usable() {
        let host = TestHost::new();
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let log = Log::new(&client(&host, &[Capability::Log]));
        runtime().block_on(async { log.info("not sent") });
        let lines = runtime().block_on(async {
            log.info("sent");
            host.log_lines(2).await
        });
        assert_eq!(lines.iter().map(|line| &*line.message).collect::<Vec<_>>(), ["not sent", "sent"]);
    }

    #[tokio::test]
    async fn a_plugin_without_the_capability_writes_nothing() {
        let host = TestHost::new();
        let client = client(&host, &[Capability::Emit]);
        let request = wire::WriteLogRequest { records: vec![LogRecord::info("x").0] };
        let written = client.call(request, |service, request| async move {
            LogServiceClient::new(service).write_log(request).await
        });
        assert!(matches!(written.await, Err(HostError::Denied(_))));
    }

    #[tokio::test]
    async fn without_host_services_lines_are_lost_and_nothing_else() {
        let links = Arc::new(HostLinks::default());
        links.add(Arc::new(
            HostServices::default().link(&hookgate_proto::plugin::v1::InitializeRequest::default()),
        ));
        let client = HostClient::for_call(links, bearer("t"), None, ForwardedMetadata::default());
        let log = Log::new(&client);
        log.error("lost");
        tokio::time::timeout(std::time::Duration::from_secs(5), async {
            while log.0.queue().is_sending {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
    }
}
