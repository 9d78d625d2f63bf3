//! Runs one plan over one payload: each step in order, its reply checked and folded, until the plan ends or a
//! step decides. Observers are handed their copy when the chain is over, however it ended, the caller's going
//! away included.

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

/// The plugins behind a plan's steps. The gateway's are [`super::Invoker`]'s; tests of the chain bring their own.
pub trait Plugins: Send + Sync {
    /// Calls the plugin of `step` and gives back its undecoded reply.
    fn call<P: ExtensionPoint>(
        &self,
        step: &Step,
        call: wire::Call,
        payload: Arc<P::Payload>,
        ctx: &CallContext,
        limit: Duration,
    ) -> impl Future<Output = Result<PluginReply, Failure>> + Send;

    /// Hands the call to the queue of a plugin that observes; never waits.
    fn observe<P: ExtensionPoint>(
        &self,
        step: &Step,
        call: wire::Call,
        payload: Arc<P::Payload>,
        ctx: &CallContext,
    );

    /// Whether the gateway gives up the calls under way.
    fn is_abandoned(&self) -> bool;
}

/// One run of a plan.
pub struct Chain<'a, P: ExtensionPoint, C: Plugins> {
    ctx: &'a CallContext,
    plan: &'a Plan,
    plugins: &'a C,
    limits: &'a ReplyLimits,
    budget: Budget,
    /// What plugins are told of the caller; made for the first of them.
    caller: OnceLock<wire::CallContext>,
    original: Arc<P::Payload>,
    payload: Arc<P::Payload>,
    notices: Vec<Remark>,
    steps: Vec<StepReport>,
    /// What the steps changed, where the caller asked.
    changes: Vec<PayloadChange<P>>,
    /// Observers met so far, with the payload as it stood at their place.
    observers: Vec<(&'a Step, Arc<P::Payload>)>,
    /// How the chain ended; none while it runs.
    end: Option<wire::ChainResult>,
    /// Since when the step under way is asked.
    asked: Option<Instant>,
    /// Takes the steps of a run that is dropped.
    broken_off: &'a mut Vec<StepReport>,
}

/// How one step went.
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
    /// A chain that has not started. Dropped before its end, it leaves its steps in `broken_off`.
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

    /// Runs it to its end. Dropped before that, the caller is gone: the call under way is cancelled with it, and
    /// the observers are told.
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

    /// Asks the plugin of `step`.
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

    /// Remembers what an observer is to see; it is sent when the chain is over.
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

    /// Decides what becomes of the step, and reports it.
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

    /// The caller is gone: the step under way ends with it. The observers behind it see the payload as it stood
    /// there.
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

    /// Takes over what a plugin said, once its step is reported: its payload and its notices.
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
    /// Hands the observers their calls: here, so that they are told when the caller went away as well.
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

/// Why the chain can't decide: the step failed and must not be skipped.
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

/// What the agent is told about a step that was skipped.
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
