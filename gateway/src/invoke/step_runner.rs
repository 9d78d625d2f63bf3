//! Runs single steps: decides whether the plugin is called, calls it, and reads its reply. Nothing here
//! changes during a chain, so that several steps can run at the same time. What follows from a step's result
//! is the business of [`super::chain`].

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use hookgate_proto::plugin::v1 as wire;
use tokio::time::Instant;

use crate::{
    core::{context::CallContext, failure::Failure, step::Reason},
    invoke::{
        AgentCall, Plugins,
        budget::Budget,
        decide::StepEvent,
        precheck::{Before, before},
        reply::{self, ReplyLimits, VerifiedReply},
    },
    routing::{MatchSubject, Step},
    upstream::PluginReply,
};

/// The parts of a chain that all its steps share.
pub(super) struct StepRunner<'a, P: AgentCall, C: Plugins> {
    pub(super) ctx: &'a CallContext,
    pub(super) plugins: &'a C,
    pub(super) limits: &'a ReplyLimits,
    pub(super) budget: Budget,
    /// The caller as plugins see it; built for the first plugin.
    pub(super) caller: OnceLock<wire::CallContext>,
    /// The payload as the agent sent it.
    pub(super) original: Arc<P::Payload>,
}

/// The result of running one step.
pub(super) struct StepRun<P: AgentCall> {
    pub(super) event: StepEvent,
    pub(super) said: Option<VerifiedReply<P>>,
    pub(super) failure: Option<Failure>,
    pub(super) duration: Duration,
    pub(super) queue: Duration,
}

impl<P: AgentCall> StepRun<P> {
    pub(super) fn from_event(event: StepEvent) -> Self {
        StepRun { event, said: None, failure: None, duration: Duration::ZERO, queue: Duration::ZERO }
    }

    pub(super) fn failed(failure: Failure) -> Self {
        StepRun {
            event: StepEvent::Failed(failure.reason),
            failure: Some(failure),
            ..Self::from_event(StepEvent::CallerGone)
        }
    }

    fn from_reply(said: VerifiedReply<P>, takes_results: bool) -> Self {
        let event = match &said.cancel {
            Some(cancel) if takes_results && cancel.result.is_some() => StepEvent::Answered,
            Some(_) => StepEvent::Cancelled,
            None if !said.contributions.is_empty() => StepEvent::Contributed,
            None => StepEvent::Continued { patched: said.payload.is_some() },
        };
        StepRun { said: Some(said), ..Self::from_event(event) }
    }
}

impl<P: AgentCall, C: Plugins> StepRunner<'_, P, C> {
    /// Runs an enforcing or advising step over `payload`.
    pub(super) async fn run(&self, step: &Step, payload: &Arc<P::Payload>) -> StepRun<P> {
        let met = self.is_met(step, payload);
        let (grant, limit, cut) = match before(step, met, || self.budget.allowance(step)) {
            Before::Ask { grant, limit, cut } => (grant, limit, cut),
            Before::Leave(event, failure) => return StepRun { failure, ..StepRun::from_event(event) },
        };
        let started = Instant::now();
        let message = self.message(step, None);
        let answer = self.plugins.call::<P>(step, message, Arc::clone(payload), self.ctx, limit).await;
        let queue = answer.as_ref().map_or(Duration::ZERO, |replied| replied.queue);
        let read = answer.and_then(|PluginReply { bytes, served, .. }| {
            let read = reply::read::<P>(bytes, &self.ctx.site, payload, grant, self.limits);
            served.judge(read.as_ref().err().map(|flaw| flaw.reason));
            read.map_err(|flaw| Failure::new(flaw.reason, flaw.detail))
        });
        let went = match read {
            Ok(said) => StepRun::from_reply(said, self.ctx.takes_results),
            Err(mut failure) => {
                if cut && failure.ran_out {
                    failure.reason = Reason::Budget;
                }
                StepRun::failed(failure)
            }
        };
        StepRun { duration: started.elapsed(), queue, ..went }
    }

    /// Whether the step's conditions hold for `payload`.
    pub(super) fn is_met(&self, step: &Step, payload: &P::Payload) -> bool {
        let (original, current) = (P::subject(&self.original), P::subject(payload));
        step.conditions.is_met(&MatchSubject {
            site: &self.ctx.site,
            tool: original.tool.zip(current.tool).map(<[&str; 2]>::from),
            text: original.text.zip(current.text).map(<[&str; 2]>::from),
            model: current.model.or(self.ctx.request.model.as_deref()),
            agent: self.ctx.request.agent_id.as_deref(),
            agent_path: self.ctx.request.agent_path.as_deref(),
            labels: &self.ctx.request.labels,
        })
    }

    /// What the plugin of `step` is sent beside the payload.
    pub(super) fn message(&self, step: &Step, chain_result: Option<wire::ChainResult>) -> wire::Call {
        wire::Call {
            context: Some(self.caller.get_or_init(|| self.ctx.for_plugins()).clone()),
            config_digest: String::new(), // the plugin's client knows it
            tenant_config: step.tenant_config.clone(),
            tenant_config_digest: step.tenant_config_digest.to_string(),
            chain_result,
            host_token: String::new(),
        }
    }
}
