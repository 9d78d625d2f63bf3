//! Records what reached a scripted plugin, and lets tests wait for it.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use hookgate_proto::{
    plugin::v1::{Call, InitializeRequest},
    types::v1::{
        AfterToolResultPayload, BeforeLlmRequestPayload, BeforeResponsePayload, BeforeToolCallPayload,
        ExtensionPoint, HookPayload,
    },
};
use tokio::{sync::watch, time::timeout};

/// Counts all requests to plugins of this process, to know their order.
static ORDER: AtomicU64 = AtomicU64::new(0);
/// The timeout of [`Record::wait_until`].
const PATIENCE: Duration = Duration::from_secs(35);

/// One call at a point, as it arrived.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Where; [`super::HOOKS`] at a hook.
    pub point: ExtensionPoint,
    /// The caller and the configuration.
    pub call: Call,
    /// The payload as the previous step left it.
    pub payload: Payload,
    /// The ASCII metadata, including `grpc-timeout` and `traceparent`.
    pub metadata: BTreeMap<String, String>,
    /// The sequence number of the call at this plugin, from 1.
    pub number: u64,
}

/// A payload of one of the points or of a hook.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // named after the points
pub enum Payload {
    BeforeLlmRequest(BeforeLlmRequestPayload),
    BeforeToolCall(BeforeToolCallPayload),
    AfterToolResult(AfterToolResultPayload),
    BeforeResponse(BeforeResponsePayload),
    Hook(HookPayload),
}

/// Counts of what happened to a plugin since it was created, including stops and starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted.
    pub connections: u64,
    /// Describe calls.
    pub describes: u64,
    /// Initialize calls.
    pub initializes: u64,
    /// Health checks.
    pub checks: u64,
    /// Release calls.
    pub releases: u64,
    /// Shutdown calls.
    pub shutdowns: u64,
    /// Calls at points, except those rejected as NOT_INITIALIZED.
    pub calls: u64,
    /// Calls rejected as NOT_INITIALIZED.
    pub uninitialized: u64,
    /// Calls whose handler finished.
    pub finished: u64,
    /// Calls whose handler was dropped because the caller went away.
    pub cancelled: u64,
}

#[derive(Default)]
pub(super) struct Record {
    log: Mutex<RecordedCalls>,
    counts: watch::Sender<Counts>,
}

#[derive(Default)]
struct RecordedCalls {
    seen: Vec<Seen>,
    initialized: Vec<InitializeRequest>,
    initialized_at: Vec<u64>,
    shut_down_at: Vec<u64>,
    released: Vec<String>,
}

impl Record {
    fn log(&self) -> MutexGuard<'_, RecordedCalls> {
        self.log.lock().expect("no holder of this lock panics")
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Counts)) {
        self.counts.send_modify(change);
    }

    pub(super) fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.log().seen.clone()
    }

    pub(super) fn initialized(&self) -> Vec<InitializeRequest> {
        self.log().initialized.clone()
    }

    pub(super) fn initialize(&self, request: InitializeRequest) {
        let mut log = self.log();
        log.initialized.push(request);
        log.initialized_at.push(ORDER.fetch_add(1, Ordering::SeqCst));
        drop(log);
        self.count(|counts| counts.initializes += 1);
    }

    pub(super) fn release(&self, digest: String) {
        self.log().released.push(digest);
        self.count(|counts| counts.releases += 1);
    }

    pub(super) fn released(&self) -> Vec<String> {
        self.log().released.clone()
    }

    pub(super) fn shut_down(&self) {
        self.log().shut_down_at.push(ORDER.fetch_add(1, Ordering::SeqCst));
        self.count(|counts| counts.shutdowns += 1);
    }

    pub(super) fn initialized_at(&self) -> Vec<u64> {
        self.log().initialized_at.clone()
    }

    pub(super) fn shut_down_at(&self) -> Vec<u64> {
        self.log().shut_down_at.clone()
    }

    /// Records and numbers a call, and tracks its end.
    pub(super) fn begin(&self, mut seen: Seen) -> (Seen, CallInProgress<'_>) {
        let mut log = self.log();
        seen.number = log.seen.len() as u64 + 1;
        log.seen.push(seen.clone());
        drop(log);
        self.count(|counts| counts.calls += 1);
        (seen, CallInProgress { record: self, finished: false })
    }

    pub(super) async fn wait_until(&self, condition: impl FnMut(&Counts) -> bool) -> Counts {
        let mut counts = self.counts.subscribe();
        let met = timeout(PATIENCE, counts.wait_for(condition)).await;
        match met {
            Ok(counts) => *counts.expect("the record holds the sender"),
            Err(_) => panic!("not within {PATIENCE:?}; the counts are {:?}", self.counts()),
        }
    }
}

/// A call in progress. If it is dropped before it is finished, it counts as cancelled.
pub(super) struct CallInProgress<'a> {
    record: &'a Record,
    finished: bool,
}

impl CallInProgress<'_> {
    pub(super) fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for CallInProgress<'_> {
    fn drop(&mut self) {
        let finished = self.finished;
        self.record.count(|counts| if finished { counts.finished += 1 } else { counts.cancelled += 1 });
    }
}
