//! Sends calls to observers and reports their results, which never affect the chain.

use std::{sync::Arc, time::Duration};

use hookgate_proto::plugin::v1 as wire;
use tokio::time::Instant;

use crate::{
    core::{
        call_site::CallSite,
        failure::Failure,
        step::{Reason, StepOutcome},
    },
    invoke::{
        AgentCall, Routes,
        decide::{StepEvent, decide},
        precheck,
        reply::{self, ReplyLimits},
    },
    routing::Step,
    upstream::{CallMeta, PluginReply},
};

/// Receives the results of observers, after the answer was sent.
pub trait ObserverSink: Send + Sync {
    /// Called when an observer has answered or failed, or its call was dropped.
    fn observed(&self, observed: Observation<'_>);
}

/// The result of one observer's call.
#[derive(Debug, Clone, Copy)]
pub struct Observation<'a> {
    pub site: &'a CallSite,
    pub plugin: &'a Arc<str>,
    pub binding: &'a Arc<str>,
    /// The caller's tenant.
    pub tenant: &'a Arc<str>,
    /// The gateway's id of the invocation.
    pub request_id: &'a str,
    /// `observed`, `would_block` or `failed`.
    pub outcome: StepOutcome,
    /// Why it failed.
    pub reason: Option<Reason>,
    /// The time from enqueueing the call to this result.
    pub took: Duration,
    /// The code with which it would block, or how it failed.
    pub detail: &'a str,
}

/// Enqueues a call for the plugin of `step`.
pub(super) fn enqueue<P: AgentCall>(
    routes: &Routes,
    step: &Step,
    site: &CallSite,
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
    let called_at = site.clone();
    let done = move |answer: Result<PluginReply, Failure>| {
        let (event, detail) = heard::<P>(answer, &limits);
        let reason = if let StepEvent::Failed(reason) = event { Some(reason) } else { None };
        sink.observed(Observation {
            site: &called_at,
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
    // As in a chain, a plugin never sees a config that its schema rejects or that has not been checked yet.
    if let Err(failure) = precheck::grant(step) {
        return done(Err(failure));
    }
    routes.clients[step.plugin].observe(site.clone(), call, &*payload, meta, step.timeout, Box::new(done));
}

/// The event for an observer's reply, and its detail.
fn heard<P: AgentCall>(answer: Result<PluginReply, Failure>, limits: &ReplyLimits) -> (StepEvent, String) {
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
