//! Operations on a running process, as opposed to the stored configuration: reload, describe a plugin
//! again, drain it, make a test call, delete what it stored, check upstreams (docs/decisions/0035-what-is-asked-of-a-process.md).
//! HTTP and gRPC share this code; they authenticate the caller and encode the answer.
//!
//! These operations pass no chain and don't count as agents' calls.

mod drain;
mod plugin;
mod plugin_data;
mod reload;
pub mod routes;
mod test_call;
mod upstream_check;

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc};
use uuid::Uuid;

pub use crate::{
    admin::process_ops::{
        drain::DrainResult,
        plugin::DescribeOutcome,
        reload::{ReloadReport, ReloadResult},
        test_call::{TestCallOptions, TestCallResult, trial},
    },
    control::reload_requests::{ReloadCommand, ReloadReply, ReloadRequest},
};
use crate::{dataplane::call::Gateway, registry::operations::Operations};

/// Who requests an operation, and why.
#[derive(Debug, Clone)]
pub struct OperationReason {
    /// See [`crate::auth::Operator::author`].
    pub author: String,
    /// In the operator's own words; may be empty.
    pub reason: String,
    pub request_id: Uuid,
}

/// Runs operations on this process.
pub struct Upkeep {
    gateway: Arc<Gateway>,
    operations: Arc<Operations>,
    asks: mpsc::Sender<ReloadRequest>,
    /// Held by a check of upstreams: one at a time, since each keeps lists of models in memory.
    upstream_check: Mutex<()>,
}

impl Upkeep {
    /// `asks` is read by the task that reloads the configuration.
    pub fn new(
        gateway: Arc<Gateway>,
        operations: Arc<Operations>,
        asks: mpsc::Sender<ReloadRequest>,
    ) -> Self {
        Upkeep { gateway, operations, asks, upstream_check: Mutex::new(()) }
    }
}

/// Logs an operation before it runs, so that the log lines that follow have their cause before them.
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
