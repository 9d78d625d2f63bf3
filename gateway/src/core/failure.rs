//! Why a step has no usable reply.

use super::step::Reason;

#[derive(Debug, Clone, thiserror::Error)]
#[error("{reason}: {detail}")]
pub struct Failure {
    /// The step's reason. `timeout` if the call was sent and its limit elapsed.
    pub reason: Reason,
    /// The plugin's own status for `rpc_error`, or `UNAVAILABLE` if the connection was lost.
    pub status: Option<tonic::Code>,
    /// One sentence for the operator.
    pub detail: String,
    /// Whether the call's own limit elapsed, whatever it was waiting for. Only the invoker knows whether that
    /// limit was the step's timeout or the budget.
    pub ran_out: bool,
}

impl Failure {
    /// A failure without a status from the plugin.
    pub fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Failure { reason, status: None, detail: detail.into(), ran_out: false }
    }

    /// A failure because the call's limit elapsed.
    pub fn ran_out(reason: Reason, detail: impl Into<String>) -> Self {
        Failure { ran_out: true, ..Failure::new(reason, detail) }
    }
}
