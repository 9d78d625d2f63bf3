//! What came of an invocation: domain types that the edge turns into an answer, a log line and metrics.

use std::{sync::Arc, time::Duration};

use hookgate_proto::types::v1::{CancelScope, Notice};

use super::{ExtensionPoint, reply::PluginCancel};
use crate::{
    core::{
        error::Error,
        step::{Mode, Reason, StepOutcome},
    },
    routing::Step,
};

/// How an invocation ended, with all that is known about it.
pub struct ChainOutcome<P: ExtensionPoint> {
    /// What the chain decided, or why it could not.
    pub result: Result<ChainDecision, Error>,
    /// The payload as the chain left it.
    pub payload: Arc<P::Payload>,
    /// Whether a plugin changed it.
    pub modified: bool,
    /// Remarks, in the order of the chain.
    pub notices: Vec<Remark>,
    /// What happened, in the order of the chain.
    pub steps: Vec<StepReport>,
    /// What the steps changed, in the order of the chain; empty unless the caller asked.
    pub changes: Vec<PayloadChange<P>>,
    /// Digest of the chain that ran.
    pub plan_digest: Arc<str>,
    /// Revision of the routing that was in force.
    pub revision: u64,
}

/// The payload round one step that patched it.
pub struct PayloadChange<P: ExtensionPoint> {
    /// The step, by its place in [`ChainOutcome::steps`].
    pub step: usize,
    /// The payload as it came to the step.
    pub before: Arc<P::Payload>,
    /// The payload as the step left it.
    pub after: Arc<P::Payload>,
}

/// What a chain decided. A block is not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChainDecision {
    /// Go on.
    Continue,
    /// Do not go on.
    Block(Block),
}

/// A block: which plugin, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The plugin that cancelled.
    pub plugin: Arc<str>,
    /// Its binding.
    pub binding: Arc<str>,
    /// Never one of [`crate::core::error::Code`].
    pub code: String,
    /// For the user.
    pub message: String,
    /// When to ask again, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// How far it reaches.
    pub scope: CancelScope,
}

impl Block {
    /// The block that `step` leads to.
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

/// A notice with the plugin it is about.
#[derive(Debug, Clone, PartialEq)]
pub struct Remark {
    /// The plugin.
    pub plugin: Arc<str>,
    /// What is said.
    pub notice: Notice,
    /// Whether the gateway says it about the plugin, for operators, and not the plugin itself.
    pub by_gateway: bool,
}

/// What became of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepReport {
    /// The plugin.
    pub plugin: Arc<str>,
    /// Its binding.
    pub binding: Arc<str>,
    /// What the binding lets the plugin do.
    pub mode: Mode,
    /// How it ended.
    pub outcome: StepOutcome,
    /// Why it failed or was skipped for time.
    pub reason: Option<Reason>,
    /// Time spent in the step; zero for steps that were not called.
    pub duration: Duration,
    /// The part of it spent waiting for a place among the plugin's calls.
    pub queue: Duration,
    /// Names of the payload's fields that its reply changed, honoured or not.
    pub changed: Vec<&'static str>,
    /// What was wrong with the reply and was left out of it.
    pub sanitised: u32,
    /// The code of a cancel that the binding does not honour.
    pub would_block: Option<String>,
    /// Whether a rule that should have been enforced was not.
    pub failed_open: bool,
}
