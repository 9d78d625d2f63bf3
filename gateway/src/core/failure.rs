//! Why a step has no reply that counts.

use super::step::Reason;

/// Why a call brought no reply.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{reason}: {detail}")]
pub struct Failure {
    /// The step's reason: `timeout` where the call was sent and its limit elapsed.
    pub reason: Reason,
    /// The plugin's own status, for `rpc_error`; `UNAVAILABLE` too where the connection was lost.
    pub status: Option<tonic::Code>,
    /// One sentence for the operator.
    pub detail: String,
    /// Whether the call's own limit elapsed, whatever it was waiting for then. Whether that was the step's
    /// time-out or the budget is known to the invoker.
    pub ran_out: bool,
}

impl Failure {
    /// A failure that no status of the plugin belongs to.
    pub fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Failure { reason, status: None, detail: detail.into(), ran_out: false }
    }

    /// A failure because the call's limit elapsed.
    pub fn ran_out(reason: Reason, detail: impl Into<String>) -> Self {
        Failure { ran_out: true, ..Failure::new(reason, detail) }
    }
}
