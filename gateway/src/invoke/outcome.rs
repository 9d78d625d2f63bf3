//! The outcome of an invocation. The edge turns it into an answer, a log line and metrics.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hookgate_proto::types::v1::{CancelScope, Contribution, Notice};

use super::{AgentCall, reply::PluginCancel};
use crate::{
    core::{
        error::Error,
        step::{Mode, Reason, StepOutcome},
    },
    routing::Step,
};

/// The outcome of a chain.
pub struct ChainOutcome<P: AgentCall> {
    /// The decision, or why there is none.
    pub result: Result<ChainDecision, Error>,
    /// The payload as the chain left it.
    pub payload: Arc<P::Payload>,
    /// Whether a plugin changed it.
    pub modified: bool,
    /// In the order of the steps; always empty at points.
    pub contributions: Vec<PluginContribution>,
    /// In the order of the steps.
    pub notices: Vec<Remark>,
    /// In the order of the steps.
    pub steps: Vec<StepReport>,
    /// The changes of the steps in order; empty unless the caller asked for a trace.
    pub changes: Vec<PayloadChange<P>>,
    /// In a window, which has one step: how many characters of its text the step is done with; `None` means all.
    pub consumed: Option<u32>,
    /// The digest of the plan that ran.
    pub plan_digest: Arc<str>,
    /// The revision of the routing table.
    pub revision: u64,
}

/// The payload before and after a step that patched it.
pub struct PayloadChange<P: AgentCall> {
    /// The step's index in [`ChainOutcome::steps`].
    pub step: usize,
    pub before: Arc<P::Payload>,
    pub after: Arc<P::Payload>,
}

/// A chain's decision. A block is not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChainDecision {
    Continue,
    Block(Block),
    Answer(ToolAnswer),
}

/// A tool's result by a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolAnswer {
    pub plugin: Arc<str>,
    /// A JSON value.
    pub result: Bytes,
}

/// A block by a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub plugin: Arc<str>,
    pub binding: Arc<str>,
    /// Never one of [`crate::core::error::Code`].
    pub code: String,
    /// For the user.
    pub message: String,
    /// When to retry, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// How far the block reaches.
    pub scope: CancelScope,
}

impl Block {
    /// The block by `step`.
    pub(super) fn new(step: &Step, cancel: PluginCancel) -> Self {
        Block {
            plugin: Arc::clone(&step.plugin_name),
            binding: Arc::clone(&step.binding),
            code: cancel.code,
            message: cancel.message,
            retry_after_ms: cancel.retry_after_ms,
            scope: cancel.scope,
        }
    }
}

/// A contribution and the plugin that made it.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginContribution {
    pub plugin: Arc<str>,
    pub contribution: Contribution,
}

/// A notice and the plugin that it is about.
#[derive(Debug, Clone, PartialEq)]
pub struct Remark {
    pub plugin: Arc<str>,
    pub notice: Notice,
    /// Whether the notice is from the gateway, not from the plugin itself.
    pub by_gateway: bool,
}

/// The report of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepReport {
    pub plugin: Arc<str>,
    pub binding: Arc<str>,
    pub mode: Mode,
    pub outcome: StepOutcome,
    /// Why it failed, or was skipped for lack of time.
    pub reason: Option<Reason>,
    /// The time spent in the step; zero if its plugin was not called.
    pub duration: Duration,
    /// The part of `duration` in which no earlier step was running too. All of them together are the time that
    /// the chain waited for plugins.
    pub added: Duration,
    /// The part of `duration` that was spent waiting for a permit of the plugin.
    pub queue: Duration,
    /// The names of the payload's fields that its reply changes, whether applied or not.
    pub changed: Vec<&'static str>,
    /// The number of faults that were removed from the reply.
    pub sanitised: u32,
    /// The code of a cancel that the binding's mode doesn't enforce.
    pub would_block: Option<String>,
    /// Whether a rule was not enforced that should have been.
    pub failed_open: bool,
}
