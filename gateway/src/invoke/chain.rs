//! Runs one plan over one payload. It calls each step in order, verifies its reply and applies it, until
//! the plan ends or a step decides. Observers get their calls when the chain is over, even if the caller
//! went away.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use hookgate_proto::{
    plugin::v1 as wire,
    types::v1::{Decision, Notice, NoticeKind},
};
use tokio::time::Instant;

use crate::{
    core::{
        context::CallContext,
        error::{Code, Error, FailedStep},
        failure::Failure,
        step::{Mode, Reason, StepOutcome},
    },
    invoke::{
        Block, ChainDecision, ChainOutcome, ExtensionPoint, PayloadChange, Remark, StepReport,
        budget::Budget,
        decide::{ChainAction, Disposition, StepEvent, decide},
        precheck::{Before, before, observe_event},
        reply::{self, ReplyLimits, VerifiedReply},
    },
    routing::{MatchSubject, Plan, Step},
    upstream::PluginReply,
};

/// The plugins behind a plan's steps. [`super::Invoker`] implements it for the gateway; the tests of the
/// chain have their own.
pub trait Plugins: Send + Sync {
    /// Calls the plugin of `step` and returns its undecoded reply.
    fn call<P: ExtensionPoint>(
        &self,
        step: &Step,
        call: wire::Call,
        payload: Arc<P::Payload>,
        ctx: &CallContext,
        limit: Duration,
    ) -> impl Future<Output = Result<PluginReply, Failure>> + Send;

    /// Enqueues the call for an observing plugin; never waits.
    fn observe<P: ExtensionPoint>(
        &self,
        step: &Step,
        call: wire::Call,
        payload: Arc<P::Payload>,
        ctx: &CallContext,
    );

    /// Whether the gateway has given up its calls in flight.
    fn is_abandoned(&self) -> bool;
}

/// One run of a plan.
pub struct Chain<'a, P: ExtensionPoint, C: Plugins> {
    ctx: &'a CallContext,
    plan: &'a Plan,
    plugins: &'a C,
    limits: &'a ReplyLimits,
    budget: Budget,
    /// The caller as plugins see it; built for the first plugin.
    caller: OnceLock<wire::CallContext>,
    original: Arc<P::Payload>,
    payload: Arc<P::Payload>,
    notices: Vec<Remark>,
    steps: Vec<StepReport>,
    /// The changes of each step, if the caller asked for a trace.
    changes: Vec<PayloadChange<P>>,
    /// The observers so far, each with the payload at its place in the chain.
    observers: Vec<(&'a Step, Arc<P::Payload>)>,
    /// How the chain ended; `None` while it runs.
    end: Option<wire::ChainResult>,
    /// When the current step was called.
    asked: Option<Instant>,
    /// Receives the steps of a run that is dropped before its end.
    broken_off: &'a mut Vec<StepReport>,
}

/// The result of running one step.
struct StepRun<P: ExtensionPoint> {
    event: StepEvent,
    said: Option<VerifiedReply<P>>,
    failure: Option<Failure>,
    duration: Duration,
    queue: Duration,
}

impl<P: ExtensionPoint> StepRun<P> {
    fn from_event(event: StepEvent) -> Self {
        StepRun { event, said: None, failure: None, duration: Duration::ZERO, queue: Duration::ZERO }
    }

    fn failed(failure: Failure) -> Self {
        StepRun {
            event: StepEvent::Failed(failure.reason),
            failure: Some(failure),
            ..Self::from_event(StepEvent::CallerGone)
        }
    }

    fn from_reply(said: VerifiedReply<P>) -> Self {
        let event = match said.cancel {
            Some(_) => StepEvent::Cancelled,
            None => StepEvent::Continued { patched: said.payload.is_some() },
        };
        StepRun { said: Some(said), ..Self::from_event(event) }
    }
}

impl<'a, P: ExtensionPoint, C: Plugins> Chain<'a, P, C> {
    /// A chain that has not started. If it is dropped before its end, its steps go to `broken_off`.
    pub fn new(
        ctx: &'a CallContext,
        plan: &'a Plan,
        plugins: &'a C,
        limits: &'a ReplyLimits,
        budget: Budget,
        payload: P::Payload,
        broken_off: &'a mut Vec<StepReport>,
    ) -> Self {
        let original = Arc::new(payload);
        Chain {
            ctx,
            plan,
            plugins,
            limits,
            budget,
            caller: OnceLock::new(),
            payload: Arc::clone(&original),
            original,
            notices: Vec::new(),
            steps: Vec::with_capacity(plan.steps.len()),
            changes: Vec::new(),
            observers: Vec::new(),
            end: None,
            asked: None,
            broken_off,
        }
    }

    /// Runs the chain. Dropping the future means that the caller is gone: the current call is cancelled and
    /// the observers get their calls.
    pub async fn run(mut self, revision: u64) -> ChainOutcome<P> {
        let result = self.advance().await;
        for step in &self.plan.steps[self.steps.len()..] {
            if step.mode == Mode::Observe {
                let went = self.hand_over(step);
                self.report(step, &went);
            }
        }
        self.end = Some(chain_result(&result));
        ChainOutcome {
            result,
            payload: Arc::clone(&self.payload),
            modified: !Arc::ptr_eq(&self.payload, &self.original),
            notices: std::mem::take(&mut self.notices),
            steps: std::mem::take(&mut self.steps),
            changes: std::mem::take(&mut self.changes),
            plan_digest: Arc::clone(&self.plan.digest),
            revision,
        }
    }

    async fn advance(&mut self) -> Result<ChainDecision, Error> {
        let plan = self.plan;
        for step in &plan.steps {
            let went = match step.mode {
                Mode::Observe => self.hand_over(step),
                Mode::Enforce | Mode::Advise => {
                    self.asked = Some(Instant::now());
                    self.ask(step).await
                }
            };
            self.asked = None;
            let ruling = self.report(step, &went);
            let block = went.said.as_ref().and_then(|said| said.cancel.clone());
            match ruling.next {
                ChainAction::Apply => self.absorb(step, went.said),
                ChainAction::Keep => {
                    if ruling.notice {
                        self.notices.push(skip_notice(step, went.failure.as_ref()));
                    }
                }
                ChainAction::Block => {
                    self.absorb(step, went.said);
                    return match block {
                        Some(cancel) => Ok(ChainDecision::Block(Block::new(step, cancel))),
                        None => Err(Error::new(Code::Internal, "a block without a cancel")),
                    };
                }
                ChainAction::Stop => return Err(no_decision::<P>(step, went.failure)),
            }
        }
        Ok(ChainDecision::Continue)
    }

    /// Calls the plugin of `step`.
    async fn ask(&self, step: &Step) -> StepRun<P> {
        let (grant, limit, cut) = match before(step, self.is_met(step), || self.budget.allowance(step)) {
            Before::Ask { grant, limit, cut } => (grant, limit, cut),
            Before::Leave(event, failure) => return StepRun { failure, ..StepRun::from_event(event) },
        };
        let started = Instant::now();
        let call = self.call(step, None);
        let answer = self.plugins.call::<P>(step, call, Arc::clone(&self.payload), self.ctx, limit).await;
        let queue = answer.as_ref().map_or(Duration::ZERO, |replied| replied.queue);
        let read = answer.and_then(|PluginReply { bytes, served, .. }| {
            let read = reply::read::<P>(bytes, &self.payload, grant, self.limits);
            served.judge(read.as_ref().err().map(|flaw| flaw.reason));
            read.map_err(|flaw| Failure::new(flaw.reason, flaw.detail))
        });
        let went = match read {
            Ok(said) => StepRun::from_reply(said),
            Err(mut failure) => {
                if cut && failure.ran_out {
                    failure.reason = Reason::Budget;
                }
                StepRun::failed(failure)
            }
        };
        StepRun { duration: started.elapsed(), queue, ..went }
    }

    /// Remembers an observer's call, which is sent when the chain is over.
    fn hand_over(&mut self, step: &'a Step) -> StepRun<P> {
        let event = observe_event(self.is_met(step));
        if event == StepEvent::HandedOver {
            self.observers.push((step, Arc::clone(&self.payload)));
        }
        StepRun::from_event(event)
    }

    fn is_met(&self, step: &Step) -> bool {
        let (original, current) = (P::subject(&self.original), P::subject(&self.payload));
        step.conditions.is_met(&MatchSubject {
            point: P::POINT,
            tool: original.tool.zip(current.tool).map(<[&str; 2]>::from),
            text: original.text.zip(current.text).map(<[&str; 2]>::from),
            model: current.model.or(self.ctx.request.model.as_deref()),
            agent: self.ctx.request.agent_id.as_deref(),
            labels: &self.ctx.request.labels,
        })
    }

    fn call(&self, step: &Step, chain_result: Option<wire::ChainResult>) -> wire::Call {
        wire::Call {
            context: Some(self.caller.get_or_init(|| self.ctx.for_plugins()).clone()),
            config_digest: String::new(), // the plugin's client knows it
            tenant_config: step.tenant_config.clone(),
            tenant_config_digest: step.tenant_config_digest.to_string(),
            chain_result,
        }
    }

    /// Decides the step's disposition and records its report.
    fn report(&mut self, step: &Step, went: &StepRun<P>) -> Disposition {
        let ruling = decide(step.mode, step.on_error, went.event);
        let reason = match went.event {
            StepEvent::Failed(reason) => Some(reason),
            StepEvent::BudgetShort => Some(Reason::Budget),
            StepEvent::ConditionFalse
            | StepEvent::Continued { .. }
            | StepEvent::Cancelled
            | StepEvent::HandedOver
            | StepEvent::CallerGone => None,
        };
        let cancel = went.said.as_ref().and_then(|said| said.cancel.as_ref());
        self.steps.push(StepReport {
            plugin: Arc::clone(&step.plugin_name),
            binding: Arc::clone(&step.binding),
            mode: step.mode,
            outcome: ruling.outcome,
            reason,
            duration: went.duration,
            queue: went.queue,
            changed: went.said.as_ref().map_or_else(Vec::new, |said| said.changed.clone()),
            sanitised: went.said.as_ref().map_or(0, |said| said.sanitised),
            would_block: cancel
                .filter(|_| ruling.outcome == StepOutcome::WouldBlock)
                .map(|cancel| cancel.code.clone()),
            failed_open: ruling.failed_open,
        });
        ruling
    }

    /// Ends the current step because the caller is gone. Later observers see the payload of this moment.
    fn break_off(&mut self) {
        let plan = self.plan;
        let mut left = plan.steps.iter().skip(self.steps.len());
        if let Some(asked) = self.asked.take()
            && let Some(step) = left.next()
        {
            let went = StepRun { duration: asked.elapsed(), ..StepRun::from_event(StepEvent::CallerGone) };
            self.report(step, &went);
        }
        for step in left.filter(|step| step.mode == Mode::Observe) {
            let went = self.hand_over(step);
            self.report(step, &went);
        }
        *self.broken_off = std::mem::take(&mut self.steps);
    }

    /// Takes over a verified reply's payload and notices. The step must have been reported before.
    fn absorb(&mut self, step: &Step, said: Option<VerifiedReply<P>>) {
        let Some(said) = said else { return };
        if let Some(after) = said.payload {
            let before = std::mem::replace(&mut self.payload, Arc::clone(&after));
            if self.ctx.trace {
                self.changes.push(PayloadChange { step: self.steps.len() - 1, before, after });
            }
        }
        let plugin = &step.plugin_name;
        self.notices.extend(said.notices.into_iter().map(|notice| Remark {
            plugin: Arc::clone(plugin),
            notice,
            by_gateway: false,
        }));
    }
}

impl<P: ExtensionPoint, C: Plugins> Drop for Chain<'_, P, C> {
    /// Sends the observers their calls. It happens here so that it also happens when the caller goes away.
    fn drop(&mut self) {
        let end = self.end.take().unwrap_or_else(|| {
            self.break_off();
            let code = match self.plugins.is_abandoned() {
                _ if std::thread::panicking() => Code::Internal,
                true => Code::Draining,
                false => Code::Cancelled,
            };
            wire::ChainResult { code: Some(code.as_str().into()), ..wire::ChainResult::default() }
        });
        for (step, payload) in std::mem::take(&mut self.observers) {
            let call = self.call(step, Some(end.clone()));
            self.plugins.observe::<P>(step, call, payload, self.ctx);
        }
    }
}

fn chain_result(result: &Result<ChainDecision, Error>) -> wire::ChainResult {
    let (decision, plugin, code) = match result {
        Ok(ChainDecision::Continue) => (Decision::Continue, None, None),
        Ok(ChainDecision::Block(block)) => {
            (Decision::Block, Some(block.plugin.to_string()), Some(block.code.clone()))
        }
        Err(error) => {
            let plugin = error.step.as_ref().map(|step| step.plugin.to_string());
            (Decision::Unspecified, plugin, Some(error.code.to_string()))
        }
    };
    wire::ChainResult { decision: decision.into(), plugin, code }
}

/// The error of a chain whose step failed and must not be skipped.
fn no_decision<P: ExtensionPoint>(step: &Step, failure: Option<Failure>) -> Error {
    let failure = failure.unwrap_or_else(|| Failure::new(Reason::ConditionError, "it was never called"));
    let code = Code::for_step(failure.reason, failure.status);
    let detail = format!("Plugin '{}' failed: {}", step.plugin_name, failure.detail);
    let failed = FailedStep {
        plugin: Arc::clone(&step.plugin_name),
        binding: Arc::clone(&step.binding),
        point: P::POINT,
        reason: failure.reason,
    };
    Error { step: Some(Box::new(failed)), ..Error::new(code, detail) }
}

/// The notice about a skipped step for the agent.
fn skip_notice(step: &Step, failure: Option<&Failure>) -> Remark {
    let (code, why) = match failure {
        Some(failure) => (Code::for_step(failure.reason, failure.status), failure.detail.as_str()),
        None => (Code::BudgetExhausted, "too little of the invocation's budget was left for it"),
    };
    let notice = Notice {
        kind: NoticeKind::Warn.into(),
        code: Some(code.to_string()),
        message: format!("Plugin '{}' was skipped: {why}", step.plugin_name),
        details: bytes::Bytes::new(),
    };
    Remark { plugin: Arc::clone(&step.plugin_name), notice, by_gateway: true }
}
