//! What the runner logs of a call without a reply.

use std::sync::Arc;

use hookgate_proto::plugin::v1::Call;
use tokio::runtime::Handle;
use tonic::Status;

use crate::{instances::Instance, output::StderrTail, plugin_entry::ProcessMode, program::ReplyProgress};

/// What a program has done with a call so far.
#[derive(Default)]
pub(crate) struct CallProgress {
    /// What it wrote to standard output.
    pub(crate) output: Vec<u8>,
    /// `None` before it got the call.
    pub(crate) stderr: Option<StderrTail>,
}

/// One call. Dropping it before [`CallLog::answered`] logs that the gateway gave the call up.
pub(crate) struct CallLog<'a> {
    plugin: &'a Arc<str>,
    call: &'a Call,
    instance: &'a Arc<Instance>,
    process: ProcessMode,
    phase: CallPhase,
    pub(crate) progress: CallProgress,
}

enum CallPhase {
    /// For the start of the program.
    Starting,
    /// For a place in the pool.
    Waiting,
    Replying,
    Answered,
}

impl<'a> CallLog<'a> {
    pub(crate) fn new(
        plugin: &'a Arc<str>,
        call: &'a Call,
        instance: &'a Arc<Instance>,
        process: ProcessMode,
    ) -> Self {
        let (phase, progress) = (CallPhase::Waiting, CallProgress::default());
        CallLog { plugin, call, instance, process, phase, progress }
    }

    /// The call waits until its program has started.
    pub(crate) fn starting(&mut self) {
        self.phase = CallPhase::Starting;
    }

    /// The call waits for a place.
    pub(crate) fn waiting(&mut self) {
        self.phase = CallPhase::Waiting;
    }

    /// The call has a place.
    pub(crate) fn replying(&mut self) {
        self.phase = CallPhase::Replying;
    }

    pub(crate) fn answered(&mut self) {
        self.phase = CallPhase::Answered;
    }

    /// Logs why the call fails. The program has been dropped.
    pub(crate) fn fault(&mut self, status: &Status) {
        let code = status.code();
        // It may quote the reply.
        let error = self.instance.redaction.apply_to_beginning(status.message());
        self.with_stderr(move |CallName { plugin, tenant, request_id }, stderr| {
            tracing::warn!(
                plugin,
                tenant,
                request_id,
                ?code,
                error,
                stderr,
                "the program gave no valid reply"
            );
        });
    }

    /// Logs with the last line that the program wrote to standard error. Nobody waits for that.
    fn with_stderr(&mut self, log: impl FnOnce(CallName<'_>, Option<&str>) + Send + 'static) {
        let (Some(tail), Ok(runtime)) = (self.progress.stderr.take(), Handle::try_current()) else {
            return log(CallName::new(self.plugin, self.call), None);
        };
        let (plugin, instance) = (Arc::clone(self.plugin), Arc::clone(self.instance));
        let (tenant, request_id) = caller(self.call);
        let (tenant, request_id) = (tenant.to_owned(), request_id.to_owned());
        runtime.spawn(async move {
            let stderr = tail.last(&instance.redaction).await;
            log(CallName { plugin: &plugin, tenant: &tenant, request_id: &request_id }, stderr.as_deref());
        });
    }
}

impl Drop for CallLog<'_> {
    fn drop(&mut self) {
        let phase = match self.phase {
            CallPhase::Answered => return,
            CallPhase::Starting => "the program had not started",
            CallPhase::Waiting => "it waited for a place (`parallel`, `programs`)",
            CallPhase::Replying => ReplyProgress::new(&self.progress.output, self.process).when_abandoned(),
        };
        self.with_stderr(move |CallName { plugin, tenant, request_id }, stderr| {
            tracing::warn!(plugin, tenant, request_id, stderr, "the gateway gave the call up: {phase}");
        });
    }
}

/// What names a call in the log.
struct CallName<'a> {
    plugin: &'a str,
    tenant: &'a str,
    request_id: &'a str,
}

impl<'a> CallName<'a> {
    fn new(plugin: &'a str, call: &'a Call) -> Self {
        let (tenant, request_id) = caller(call);
        CallName { plugin, tenant, request_id }
    }
}

/// The tenant and the request id of a call.
pub(crate) fn caller(call: &Call) -> (&str, &str) {
    call.context.as_ref().map_or(("", ""), |context| (&context.tenant, &context.request_id))
}
