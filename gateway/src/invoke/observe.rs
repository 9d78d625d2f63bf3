//! Hands calls to observers, and says what they made of them: nothing of it reaches the chain.

use std::{sync::Arc, time::Duration};

use hookgate_proto::plugin::v1 as wire;
use tokio::time::Instant;

use crate::{
    core::{
        failure::Failure,
        point::Point,
        step::{Reason, StepOutcome},
    },
    invoke::{
        ExtensionPoint, Routes,
        decide::{StepEvent, decide},
        precheck,
        reply::{self, ReplyLimits},
    },
    routing::Step,
    upstream::{CallMeta, PluginReply},
};

/// Is told what observers made of their calls, after the answer.
pub trait ObserverSink: Send + Sync {
    /// An observer has answered, failed, or never got its call.
    fn observed(&self, observed: Observation<'_>);
}

/// What an observer made of one call.
#[derive(Debug, Clone, Copy)]
pub struct Observation<'a> {
    /// Where.
    pub point: Point,
    /// The observer.
    pub plugin: &'a Arc<str>,
    /// Its binding.
    pub binding: &'a Arc<str>,
    /// Whose call it was.
    pub tenant: &'a Arc<str>,
    /// Our id of the invocation.
    pub request_id: &'a str,
    /// `observed`, `would_block` or `failed`.
    pub outcome: StepOutcome,
    /// Why it failed.
    pub reason: Option<Reason>,
    /// From when the chain handed the call over until this was known.
    pub took: Duration,
    /// The code it would block with, or how it failed.
    pub detail: &'a str,
}

/// Puts a call into the queue of the plugin of `step`.
pub(super) fn enqueue<P: ExtensionPoint>(
    routes: &Routes,
    step: &Step,
    call: wire::Call,
    payload: Arc<P::Payload>,
    meta: CallMeta,
) {
    let (sink, limits) = (Arc::clone(&routes.observed), routes.replies);
    let (mode, on_error) = (step.mode, step.on_error);
    let (plugin, binding) = (Arc::clone(&step.plugin_name), Arc::clone(&step.binding));
    let caller = call.context.as_ref();
    let request_id = caller.map(|caller| caller.request_id.clone()).unwrap_or_default();
    let tenant = Arc::clone(&meta.tenant);
    let handed_over = Instant::now();
    let done = move |answer: Result<PluginReply, Failure>| {
        let (event, detail) = heard::<P>(answer, &limits);
        let reason = if let StepEvent::Failed(reason) = event { Some(reason) } else { None };
        sink.observed(Observation {
            point: P::POINT,
            plugin: &plugin,
            binding: &binding,
            tenant: &tenant,
            request_id: &request_id,
            outcome: decide(mode, on_error, event).outcome,
            reason,
            took: handed_over.elapsed(),
            detail: &detail,
        });
    };
    // As in a chain: the plugin never sees a config that its schema refuses, or that was not checked yet.
    if let Err(failure) = precheck::grant(step) {
        return done(Err(failure));
    }
    routes.clients[step.plugin].observe(P::POINT, call, &*payload, meta, step.timeout, Box::new(done));
}

/// What an observer said, as an event of its step, and why.
fn heard<P: ExtensionPoint>(
    answer: Result<PluginReply, Failure>,
    limits: &ReplyLimits,
) -> (StepEvent, String) {
    let heard = answer.map(|PluginReply { bytes, served, .. }| {
        let heard = reply::heard::<P>(bytes, limits);
        served.judge(heard.as_ref().err().map(|flaw| flaw.reason));
        heard
    });
    match heard {
        Err(failure) => (StepEvent::Failed(failure.reason), failure.detail),
        Ok(Err(flaw)) => (StepEvent::Failed(flaw.reason), flaw.detail),
        Ok(Ok(Some(cancel))) => (StepEvent::Cancelled, cancel.code),
        Ok(Ok(None)) => (StepEvent::Continued { patched: false }, String::new()),
    }
}
