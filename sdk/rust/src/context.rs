//! The context of a call: the caller, the deadline and the trace. Immutable.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::time::Instant;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};

use hookgate_proto::plugin::v1::{Call, CallContext, ChainResult, ResponseWindow};

use crate::{
    Event, HostError, Log, Point, Storage,
    host_service::{HostClient, HostLinks, bearer},
};

/// The context of a call: the caller, the deadline and the trace.
///
/// The tenant, the operator and labels named `claim.*` come from the verified token. Everything else is
/// what the agent says about itself.
#[derive(Debug, Clone)]
pub struct Context {
    pub(crate) site: CallSite,
    caller: CallContext,
    chain_result: Option<ChainResult>,
    window: Option<ResponseWindow>,
    deadline: Option<Instant>,
    pub(crate) forwarded: ForwardedMetadata,
    host: HostAccess,
}

/// When the gateway gives up a call; never by default.
#[derive(Debug, Clone, Copy, Default)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// Whether it is over.
    pub fn has_passed(self) -> bool {
        self.0.is_some_and(|deadline| deadline <= Instant::now())
    }
}

impl From<std::time::Instant> for Deadline {
    fn from(deadline: std::time::Instant) -> Self {
        Deadline(Some(deadline.into()))
    }
}

/// Where in an agent's life a plugin is called.
#[derive(Debug, Clone)]
pub(crate) enum CallSite {
    Point(Point),
    /// The hook of this name.
    Hook(String),
}

impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallSite::Point(point) => point.fmt(f),
            CallSite::Hook(name) => f.write_str(name),
        }
    }
}

impl CallSite {
    pub(crate) fn point(&self) -> Option<Point> {
        match self {
            CallSite::Point(point) => Some(*point),
            CallSite::Hook(_) => None,
        }
    }

    pub(crate) fn hook(&self) -> Option<&str> {
        match self {
            CallSite::Point(_) => None,
            CallSite::Hook(name) => Some(name),
        }
    }
}

/// The gateway's services, and what the call may do there.
#[derive(Clone)]
struct HostAccess {
    links: Arc<HostLinks>,
    token: Option<AsciiMetadataValue>,
    /// One for the call and all clones of its context, so that lines keep their order. Made when the first line is written.
    log: Arc<OnceLock<Log>>,
}

impl fmt::Debug for HostAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostAccess").finish_non_exhaustive()
    }
}

impl Context {
    pub(crate) fn new(
        site: CallSite,
        call: &mut Call,
        metadata: &MetadataMap,
        links: Arc<HostLinks>,
    ) -> Self {
        Context {
            host: HostAccess {
                links,
                token: bearer(&std::mem::take(&mut call.host_token)),
                log: Arc::default(),
            },
            site,
            caller: call.context.take().unwrap_or_default(),
            chain_result: call.chain_result.take(),
            window: call.window.take(),
            deadline: grpc_timeout(metadata).and_then(|left| Instant::now().checked_add(left)),
            forwarded: ForwardedMetadata::from_metadata(metadata),
        }
    }

    /// The point at which the plugin is called; `None` at a lifecycle hook.
    pub fn point(&self) -> Option<Point> {
        self.site.point()
    }

    /// The lifecycle hook at which the plugin is called; `None` at a point.
    pub fn hook(&self) -> Option<&str> {
        self.site.hook()
    }

    /// The tenant's id, an opaque string.
    pub fn tenant(&self) -> &str {
        &self.caller.tenant
    }

    /// Who acts for the tenant.
    pub fn operator(&self) -> &str {
        &self.caller.operator
    }

    /// The gateway's id of this invocation (UUIDv7), the same for all plugins of the chain.
    pub fn request_id(&self) -> &str {
        &self.caller.request_id
    }

    /// Everything that is known about the caller.
    pub fn caller(&self) -> &CallContext {
        &self.caller
    }

    /// Whether the gateway has asked about this part of a conversation before, and no longer knows the answer. The
    /// plugin judges it, and counts nothing.
    pub fn is_replay(&self) -> bool {
        self.caller.replay
    }

    /// Whether the call is about one message of a request to a model or one text of its answer, and another call of the same
    /// exchange stands for the request or the answer as a whole. The plugin judges it, and counts no request and no answer. Only
    /// at [`Point::BeforeLlmRequest`] and [`Point::BeforeResponse`].
    pub fn is_part(&self) -> bool {
        self.caller.part
    }

    /// How the chain ended. Set for observers, which are called after the answer.
    pub fn chain_result(&self) -> Option<&ChainResult> {
        self.chain_result.as_ref()
    }

    /// The window of an answer that the payload's `content` is. `None` if it is a whole answer. Set only at
    /// [`Point::BeforeResponse`], for a plugin that [offers windows](crate::Offer::in_windows).
    pub fn window(&self) -> Option<&ResponseWindow> {
        self.window.as_ref()
    }

    /// Time until the gateway gives up the call; `None` if there is no limit. Zero once it has passed.
    pub fn time_left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// When the gateway gives up the call. A plugin may end its work then, with whatever answer: no answer is sent after it.
    pub fn deadline(&self) -> Deadline {
        Deadline(self.deadline)
    }

    /// The plugin's data for the call's tenant. It can be used until 5 s after the call's deadline; for work that goes
    /// on longer, use [`Host::storage`](crate::Host::storage).
    pub fn storage(&self) -> Storage {
        Storage::new(self.host_client())
    }

    /// Writes to the gateway's log, with the call's tenant and request id. It can be used until 5 s after the call's
    /// deadline; for work that goes on longer, use [`Host::log`](crate::Host::log).
    pub fn log(&self) -> &Log {
        self.host.log.get_or_init(|| Log::new(&self.host_client()))
    }

    /// Emits an event for the gateway's operators, with the call's tenant and request id. The plugin lists
    /// `Capability::Emit` in its `CAPABILITIES`.
    ///
    /// # Errors
    /// See [`HostError`]; [`HostError::RateLimited`] if the plugin emits more than 100 events per second.
    pub async fn emit(&self, event: Event) -> Result<(), HostError> {
        event.emit(&self.host_client()).await
    }

    fn host_client(&self) -> HostClient {
        let HostAccess { links, token, .. } = self.host.clone();
        HostClient::for_call(links, token, self.deadline, self.forwarded.clone())
    }

    /// W3C trace context of the call, as received.
    pub fn traceparent(&self) -> Option<&str> {
        self.forwarded.text("traceparent")
    }

    /// W3C trace state of the call, as received.
    pub fn tracestate(&self) -> Option<&str> {
        self.forwarded.text("tracestate")
    }

    /// The number of gateways that the call has passed, including this one. Gateways use it to detect
    /// loops.
    pub fn depth(&self) -> u32 {
        self.forwarded.text("hookgate-depth").and_then(|depth| depth.parse().ok()).unwrap_or(0)
    }
}

/// Metadata that a plugin forwards when it calls a gateway or an agent itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct ForwardedMetadata(Vec<(&'static str, AsciiMetadataValue)>);

impl ForwardedMetadata {
    const METADATA_KEYS: [&'static str; 3] = ["traceparent", "tracestate", "hookgate-depth"];

    fn from_metadata(metadata: &MetadataMap) -> Self {
        ForwardedMetadata(
            Self::METADATA_KEYS.iter().filter_map(|key| Some((*key, metadata.get(*key)?.clone()))).collect(),
        )
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| *name == key).and_then(|(_, value)| value.to_str().ok())
    }

    pub(crate) fn add_to(&self, metadata: &mut MetadataMap) {
        for (key, value) in &self.0 {
            metadata.insert(*key, value.clone());
        }
    }
}

/// Parses a gRPC timeout: at most eight digits and a unit.
fn grpc_timeout(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(amount * 3600)),
        "M" => Some(Duration::from_secs(amount * 60)),
        "S" => Some(Duration::from_secs(amount)),
        "m" => Some(Duration::from_millis(amount)),
        "u" => Some(Duration::from_micros(amount)),
        "n" => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_read_in_every_unit_of_grpc() {
        for (text, expected) in [
            ("2H", Some(Duration::from_secs(7200))),
            ("2M", Some(Duration::from_secs(120))),
            ("2S", Some(Duration::from_secs(2))),
            ("99999999m", Some(Duration::from_millis(99_999_999))),
            ("2u", Some(Duration::from_micros(2))),
            ("2n", Some(Duration::from_nanos(2))),
            ("100000000m", None),
            ("", None),
            ("S", None),
            ("-1S", None),
            ("+1S", None),
            ("2s", None),
        ] {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", text.parse().unwrap());
            assert_eq!(grpc_timeout(&metadata), expected, "{text}");
        }
        assert_eq!(grpc_timeout(&MetadataMap::new()), None);
    }
}
