//! What operators do with a running process, and not with what is stored: have the configuration read again, a plugin
//! described again, let go of, tried out (docs/decisions/0035-what-is-asked-of-a-process.md). The same for every way in
//! (HTTP, gRPC), which know who asks and how the answer looks.
//!
//! Nothing here passes a chain, or counts as an agent's call.

mod drain;
mod plugin;
mod reload;
pub mod routes;
mod test_call;

use std::sync::Arc;

use tokio::sync::mpsc;
use uuid::Uuid;

pub use crate::{
    admin::process_ops::{
        drain::DrainResult,
        plugin::DescribeOutcome,
        reload::{ReloadReport, ReloadResult},
        test_call::{TestCallOptions, TestCallResult, trial},
    },
    control::reload_requests::{Ask, ReloadReply, Wish},
};
use crate::{dataplane::call::Gateway, registry::operations::Operations};

/// Who wants something of a process, and why.
#[derive(Debug, Clone)]
pub struct OperationReason {
    /// See [`crate::auth::Operator::author`].
    pub author: String,
    /// In his own words; may be empty.
    pub reason: String,
    /// Of his request.
    pub request_id: Uuid,
}

/// A running process, as operators have it.
pub struct Upkeep {
    gateway: Arc<Gateway>,
    operations: Arc<Operations>,
    asks: mpsc::Sender<Ask>,
}

impl Upkeep {
    /// The process of `gateway`; whoever follows the configuration takes `asks`.
    pub fn new(gateway: Arc<Gateway>, operations: Arc<Operations>, asks: mpsc::Sender<Ask>) -> Self {
        Upkeep { gateway, operations, asks }
    }
}

/// Says in the log who wants what. Before it is done: whoever reads what follows knows why.
pub fn log(who: &OperationReason, operation: &'static str, plugin: Option<&str>) {
    let OperationReason { author, reason, request_id } = who;
    tracing::info!(
        event = "process.operation",
        operation,
        plugin,
        author,
        reason,
        %request_id,
        "an operator asks something of this process"
    );
}
