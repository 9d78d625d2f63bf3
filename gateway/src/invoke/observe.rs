//! Hands calls to observers, and reads what they say for the log alone: nothing of it reaches the chain.

use std::sync::Arc;

use hookgate_proto::plugin::v1 as wire;

use super::{
    ExtensionPoint, chain,
    decide::{Event, decide},
    reply::{self, Grant, ReplyLimits},
};
use crate::{
    routing::{Access, Step},
    step::StepOutcome,
    upstream::{CallMeta, Failure, PluginClient, Replied},
};

/// Puts a call into the queue of the plugin of `step`.
pub(super) fn enqueue<P: ExtensionPoint>(
    client: &PluginClient,
    step: &Step,
    call: wire::Call,
    payload: Arc<P::Payload>,
    depth: u32,
    limits: ReplyLimits,
) {
    let (step_mode, on_error) = (step.mode, step.on_error);
    let (plugin, binding) = (Arc::clone(&step.plugin_name), Arc::clone(&step.binding));
    let request_id = call.context.as_ref().map(|context| context.request_id.clone()).unwrap_or_default();
    let asked = Arc::clone(&payload);
    let done = move |answer: Result<Replied, Failure>| {
        let (event, detail) = read::<P>(answer, &asked, &limits);
        let outcome = decide(step_mode, on_error, event).outcome;
        match outcome {
            StepOutcome::WouldBlock => {
                tracing::info!(event = "decision.would_block", %plugin, %binding, request_id, detail, "an observer would block");
            }
            StepOutcome::Failed => {
                tracing::warn!(event = "step.failed", %plugin, %binding, request_id, detail, "an observer failed");
            }
            _ => {}
        }
    };
    // As in a chain: the plugin never sees a config that its schema refuses, or that was not checked yet.
    if let Err(failure) = chain::grant(step) {
        return done(Err(failure));
    }
    let meta = CallMeta { depth, ..CallMeta::default() };
    client.observe(P::POINT, call, payload, meta, step.timeout, Box::new(done));
}

/// What an observer said, as an event of its step, and why.
fn read<P: ExtensionPoint>(
    answer: Result<Replied, Failure>,
    payload: &Arc<P::Payload>,
    limits: &ReplyLimits,
) -> (Event, String) {
    // Patches of observers are not applied, so that one may not be a reason to fail.
    let grant = Grant { access: Access::Modify, writable: None };
    match answer.map(|replied| reply::read::<P>(replied.bytes, payload, grant, limits)) {
        Err(failure) => (Event::Failed(failure.reason), failure.detail),
        Ok(Err(flaw)) => (Event::Failed(flaw.reason), flaw.detail),
        Ok(Ok(said)) => match said.cancel {
            Some(cancel) => (Event::Cancelled, cancel.code),
            None => (Event::Continued { patched: said.payload.is_some() }, String::new()),
        },
    }
}
