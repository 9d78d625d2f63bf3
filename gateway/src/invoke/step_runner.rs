//! Runs single steps: decides whether the plugin is called, calls it, and reads its reply. Nothing here
//! changes during a chain, so that several steps can run at the same time. What follows from a step's result
//! is the business of [`super::chain`].

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use hookgate_proto::{plugin::v1 as wire, types::v1::CancelScope};
use tokio::time::Instant;

use crate::{
    core::{block_status::TOOL_ANSWERED, context::CallContext, failure::Failure, step::Reason},
    invoke::{
        AgentCall, Plugins,
        budget::Budget,
        decide::StepEvent,
        precheck::{Before, before},
        reply::{self, PluginCancel, ReplyLimits, VerifiedReply},
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
    /// The part of an answer that the payload's text is. In a box, because few calls have one.
    pub(super) window: Option<Box<wire::ResponseWindow>>,
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

    /// A cancel by the gateway in the name of the step.
    fn cancelled(code: &str, message: String) -> Self {
        let cancel = PluginCancel {
            code: code.to_owned(),
            message,
            retry_after_ms: None,
            scope: CancelScope::Step,
            result: None,
            lost_result: false,
        };
        let said = VerifiedReply {
            cancel: Some(cancel),
            payload: None,
            changed: Vec::new(),
            notices: Vec::new(),
            contributions: Vec::new(),
            sanitised: 0,
            consumed: None,
        };
        StepRun { said: Some(said), ..Self::from_event(StepEvent::Cancelled) }
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
        self.call(step, payload, met, false).await
    }

    /// Has the plugin of `step` run its `tool`. Without a call, the step cancels where the result could not be used.
    pub(super) async fn run_tool(&self, step: &Step, payload: &Arc<P::Payload>, tool: &str) -> StepRun<P> {
        let (plugin, binding) = (&step.plugin_name, &step.binding);
        if !self.is_met(step, payload) {
            let message =
                format!("The conditions of binding '{binding}' exclude this call of the tool '{tool}'");
            return StepRun::cancelled("TOOL_NOT_ALLOWED", message);
        }
        if !self.ctx.takes_results {
            let message = format!("Plugin '{plugin}' runs the tool '{tool}', and the agent takes no results");
            return StepRun::cancelled(TOOL_ANSWERED, message);
        }
        self.call(step, payload, true, true).await
    }

    /// Calls the plugin of `step`, if its conditions are `met` and nothing else prevents it. With `run_tool`, the plugin is to
    /// run its tool.
    async fn call(&self, step: &Step, payload: &Arc<P::Payload>, met: bool, run_tool: bool) -> StepRun<P> {
        let (grant, limit, cut) = match before(step, met, || self.budget.allowance(step)) {
            Before::Ask { grant, limit, cut } => (grant, limit, cut),
            Before::Leave(event, failure) => return StepRun { failure, ..StepRun::from_event(event) },
        };
        let started = Instant::now();
        let message = wire::Call { run_tool, ..self.message(step, None) };
        let answer = self.plugins.call::<P>(step, message, Arc::clone(payload), self.ctx, limit).await;
        let queue = answer.as_ref().map_or(Duration::ZERO, |replied| replied.queue);
        let read = answer.and_then(|PluginReply { bytes, served, .. }| {
            let read = reply::read::<P>(bytes, &self.ctx.site, payload, grant, self.limits)
                .and_then(|said| if run_tool { reply::of_tool(said) } else { Ok(said) })
                .and_then(|said| {
                    // A whole answer is its own last window.
                    let is_last = self.window.as_ref().is_none_or(|window| window.last);
                    reply::of_window(said, P::subject(payload).text.unwrap_or_default(), is_last)
                });
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
            run_tool: false,
            window: self.window.as_deref().cloned(),
        }
    }
}
