//! What the steps of a chain have left so far: the payload, notices and reports. Results arrive here in the
//! order of the steps, however their calls overlapped.

use std::{sync::Arc, time::Duration};

use hookgate_proto::types::v1::{Notice, NoticeKind};
use tokio::time::Instant;

use crate::{
    core::{
        call_site::CallSite,
        error::{Code, Error, FailedStep},
        failure::Failure,
        step::{Mode, Reason, StepOutcome},
    },
    invoke::{
        AgentCall, Block, ChainDecision, PayloadChange, PluginContribution, Plugins, Remark, StepReport,
        ToolAnswer, contribution,
        decide::{ChainAction, Disposition, StepEvent, decide},
        precheck::observe_event,
        reply::VerifiedReply,
        step_runner::{StepRun, StepRunner},
    },
    routing::{Plan, Step},
};

pub(super) struct ChainProgress<'a, P: AgentCall> {
    pub(super) payload: Arc<P::Payload>,
    pub(super) contributions: Vec<PluginContribution>,
    pub(super) notices: Vec<Remark>,
    /// The reports of the first steps of the plan, and of the one that runs the tool.
    pub(super) steps: Vec<StepReport>,
    /// The changes of each step, if the caller asked for a trace.
    pub(super) changes: Vec<PayloadChange<P>>,
    /// The observers so far, each with the payload at its place in the chain.
    pub(super) observers: Vec<(&'a Step, Arc<P::Payload>)>,
    /// How many characters of a window's text the only step is done with; `None` means all.
    pub(super) consumed: Option<u32>,
    /// When the step was called whose result is awaited.
    pub(super) asked: Option<Instant>,
    /// The step that runs the tool, once it is called.
    tool_step: Option<Step>,
    /// The longest duration in the current group so far.
    longest: Duration,
    /// How many bytes more all contributions together may have.
    contribution_room: usize,
    trace: bool,
}

impl<'a, P: AgentCall> ChainProgress<'a, P> {
    /// The progress before the first of `steps` steps. All contributions together have at most `contribution_room` bytes.
    pub(super) fn new(payload: Arc<P::Payload>, steps: usize, contribution_room: usize, trace: bool) -> Self {
        ChainProgress {
            payload,
            contribution_room,
            contributions: Vec::new(),
            notices: Vec::new(),
            steps: Vec::with_capacity(steps),
            changes: Vec::new(),
            observers: Vec::new(),
            consumed: None,
            asked: None,
            tool_step: None,
            longest: Duration::ZERO,
            trace,
        }
    }

    /// Called before the steps that run at the same time.
    pub(super) fn begin_group(&mut self) {
        self.longest = Duration::ZERO;
    }

    /// Called before `step`, which comes after those of the plan, runs the tool.
    pub(super) fn begin_tool(&mut self, step: &Step) {
        self.begin_group();
        self.asked = Some(Instant::now());
        self.tool_step = Some(step.clone());
    }

    /// Remembers an observer's call, which is sent when the chain is over.
    pub(super) fn observe<C: Plugins>(&mut self, runner: &StepRunner<'_, P, C>, step: &'a Step) {
        // Observers heard of the part when it was new.
        let event = observe_event(!runner.ctx.is_replay() && runner.is_met(step, &self.payload));
        if event == StepEvent::HandedOver {
            self.observers.push((step, Arc::clone(&self.payload)));
        }
        self.report(step, &StepRun::from_event(event));
    }

    /// Applies what follows from the result of `step`. Returns how the chain ends if it ends here.
    pub(super) fn settle(
        &mut self,
        step: &Step,
        site: &CallSite,
        went: StepRun<P>,
    ) -> Option<Result<ChainDecision, Error>> {
        self.asked = None;
        let went = self.within_room(went);
        let ruling = self.report(step, &went);
        let cancel = went.said.as_ref().and_then(|said| said.cancel.clone());
        match ruling.next {
            ChainAction::Apply => {
                self.absorb(step, went.said);
                None
            }
            ChainAction::Keep => {
                if ruling.notice {
                    self.notices.push(skip_notice(step, went.failure.as_ref()));
                }
                None
            }
            ChainAction::Block => {
                self.absorb(step, went.said);
                Some(match cancel {
                    Some(cancel) => Ok(ChainDecision::Block(Block::new(step, cancel))),
                    None => Err(Error::new(Code::Internal, "a block without a cancel")),
                })
            }
            ChainAction::Answer => {
                self.absorb(step, went.said);
                let plugin = Arc::clone(&step.plugin_name);
                Some(match cancel.and_then(|cancel| cancel.result) {
                    Some(result) => Ok(ChainDecision::Answer(ToolAnswer { plugin, result })),
                    None => Err(Error::new(Code::Internal, "an answer without a result")),
                })
            }
            ChainAction::Stop => Some(Err(no_decision(step, site, went.failure))),
        }
    }

    /// Fails a step whose contributions make the answer too large.
    fn within_room(&mut self, went: StepRun<P>) -> StepRun<P> {
        let Some(said) = went.said.as_ref().filter(|said| !said.contributions.is_empty()) else {
            return went;
        };
        let size = contribution::encoded_len(&said.contributions);
        match self.contribution_room.checked_sub(size) {
            Some(room) => {
                self.contribution_room = room;
                went
            }
            None => {
                let room = self.contribution_room;
                let detail = format!(
                    "its contributions are {size} bytes, and those of the plugins before it leave {room}"
                );
                let failure = Failure::new(Reason::TooLarge, detail);
                StepRun { duration: went.duration, queue: went.queue, ..StepRun::failed(failure) }
            }
        }
    }

    /// Ends the current step because the caller is gone. Later observers see the payload of this moment.
    pub(super) fn break_off<C: Plugins>(&mut self, runner: &StepRunner<'_, P, C>, plan: &'a Plan) {
        let mut left = plan.steps.iter().skip(self.steps.len());
        if let Some(asked) = self.asked.take()
            && let Some(step) = left.next().cloned().or_else(|| self.tool_step.take())
        {
            let went = StepRun { duration: asked.elapsed(), ..StepRun::from_event(StepEvent::CallerGone) };
            self.report(&step, &went);
        }
        for step in left.filter(|step| step.mode == Mode::Observe) {
            self.observe(runner, step);
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
            | StepEvent::Contributed
            | StepEvent::Cancelled
            | StepEvent::Answered
            | StepEvent::HandedOver
            | StepEvent::CallerGone => None,
        };
        let cancel = went.said.as_ref().and_then(|said| said.cancel.as_ref());
        let longest = self.longest.max(went.duration);
        self.steps.push(StepReport {
            plugin: Arc::clone(&step.plugin_name),
            binding: Arc::clone(&step.binding),
            mode: step.mode,
            outcome: ruling.outcome,
            reason,
            duration: went.duration,
            added: longest - self.longest,
            queue: went.queue,
            changed: went.said.as_ref().map_or_else(Vec::new, |said| said.changed.clone()),
            sanitised: went.said.as_ref().map_or(0, |said| said.sanitised),
            would_block: cancel
                .filter(|_| ruling.outcome == StepOutcome::WouldBlock)
                .map(|cancel| cancel.code.clone()),
            failed_open: ruling.failed_open,
        });
        self.longest = longest;
        ruling
    }

    /// Takes over a verified reply's payload, contributions and notices. The step must have been reported before.
    fn absorb(&mut self, step: &Step, said: Option<VerifiedReply<P>>) {
        let Some(said) = said else { return };
        self.consumed = said.consumed;
        if let Some(after) = said.payload {
            let before = std::mem::replace(&mut self.payload, Arc::clone(&after));
            if self.trace {
                self.changes.push(PayloadChange { step: self.steps.len() - 1, before, after });
            }
        }
        let plugin = &step.plugin_name;
        self.contributions.extend(
            said.contributions
                .into_iter()
                .map(|contribution| PluginContribution { plugin: Arc::clone(plugin), contribution }),
        );
        self.notices.extend(said.notices.into_iter().map(|notice| Remark {
            plugin: Arc::clone(plugin),
            notice,
            by_gateway: false,
        }));
    }
}

/// The error of a chain whose step failed and must not be skipped.
fn no_decision(step: &Step, site: &CallSite, failure: Option<Failure>) -> Error {
    let failure = failure.unwrap_or_else(|| Failure::new(Reason::ConditionError, "it was never called"));
    let code = Code::for_step(failure.reason, failure.status);
    let detail = format!("Plugin '{}' failed: {}", step.plugin_name, failure.detail);
    let failed = FailedStep {
        plugin: Arc::clone(&step.plugin_name),
        binding: Arc::clone(&step.binding),
        site: site.clone(),
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
