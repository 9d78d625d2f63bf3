//! [`WindowChain`]: a plan at `before_response` over an answer's text that still grows (docs/protocol.md, section 3, Answers in windows).
//!
//! The chain is a pipe. Each step keeps the text that it isn't done with, and is called again when there is more. What the last step
//! lets pass may go to the client. Observers get the whole answer in the end.

use std::{sync::Arc, time::Duration};

use hookgate_proto::{WindowedText, types::v1::BeforeResponsePayload};
use tokio::time::Instant;

use crate::{
    core::{
        context::CallContext,
        error::{Code, Error},
        step::{Mode, StepOutcome},
    },
    invoke::{
        BeforeResponse, Block, Budget, Chain, ChainDecision, ChainOutcome, Plugins, Remark, ReplyLimits,
        StepReport, chain::chain_result,
    },
    routing::{Plan, Step},
};

/// Text and reasoning of an answer that all steps have let pass.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct PassedText {
    pub text: String,
    /// Present if there was any to judge.
    pub reasoning: Option<String>,
}

/// One run of a plan over a growing answer.
pub struct WindowChain<'a, C: Plugins> {
    ctx: CallContext,
    plan: &'a Plan,
    plugins: &'a C,
    limits: &'a ReplyLimits,
    /// The time for each part of the answer.
    budget: Duration,
    stages: Vec<Stage>,
    notices: Vec<Remark>,
    is_modified: bool,
    /// The latest payload, as the provider sent it.
    payload: BeforeResponsePayload,
    /// The time spent waiting for plugins.
    took: Duration,
    /// The step in which a chain ended that was dropped.
    broken_off: Vec<StepReport>,
    is_ended: bool,
}

/// The place of one step.
struct Stage {
    /// The step alone.
    plan: Plan,
    /// What the step isn't done with; for an observer, all that has reached it.
    text: WindowedText,
    /// For an observer: all that has reached it.
    reasoning: Option<String>,
    /// All its calls as one.
    report: Option<StepReport>,
}

impl Stage {
    fn new(plan: &Plan, step: &Step) -> Self {
        let step = Step { group_len: 1, ..step.clone() };
        Stage {
            plan: Plan { steps: vec![step], tools: None, digest: Arc::clone(&plan.digest) },
            text: WindowedText::default(),
            reasoning: None,
            report: None,
        }
    }

    fn is_observer(&self) -> bool {
        self.plan.steps.iter().all(|step| step.mode == Mode::Observe)
    }

    /// Takes what an observer sees in the end.
    fn note(&mut self, passed: &PassedText) {
        self.text.grow(&passed.text, false);
        if let Some(reasoning) = &passed.reasoning {
            self.reasoning.get_or_insert_default().push_str(reasoning);
        }
    }

    /// Adds the report of a call.
    fn add_reports(&mut self, reports: Vec<StepReport>) {
        for report in reports {
            self.report = Some(match self.report.take() {
                Some(known) => merged(known, report),
                None => report,
            });
        }
    }
}

impl<'a, C: Plugins> WindowChain<'a, C> {
    /// A chain that has judged nothing. Each part of the answer gets the time of `budget`.
    pub fn new(
        ctx: CallContext,
        plan: &'a Plan,
        plugins: &'a C,
        limits: &'a ReplyLimits,
        budget: Duration,
    ) -> Self {
        WindowChain {
            ctx,
            plan,
            plugins,
            limits,
            budget,
            stages: plan.steps.iter().map(|step| Stage::new(plan, step)).collect(),
            notices: Vec::new(),
            is_modified: false,
            payload: BeforeResponsePayload::default(),
            took: Duration::ZERO,
            broken_off: Vec::new(),
            is_ended: false,
        }
    }

    /// The time spent waiting for plugins.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// The reports of the steps so far.
    pub fn reports(&self) -> Vec<StepReport> {
        let known = self.stages.iter().filter_map(|stage| stage.report.clone());
        known.chain(self.broken_off.iter().cloned()).collect()
    }

    /// Judges the next part of the answer: the text and reasoning in `part` are what has come since the last one. `is_last` says that
    /// nothing follows. Returns what has passed all steps, or the block of one.
    ///
    /// # Errors
    /// A step failed, and its failure decides.
    pub async fn judge(
        &mut self,
        part: BeforeResponsePayload,
        is_last: bool,
    ) -> Result<Result<PassedText, Block>, Error> {
        let started = Instant::now();
        let judged = self.run_stages(part, is_last).await;
        self.took += started.elapsed();
        judged
    }

    async fn run_stages(
        &mut self,
        mut part: BeforeResponsePayload,
        is_last: bool,
    ) -> Result<Result<PassedText, Block>, Error> {
        let mut passed =
            PassedText { text: std::mem::take(&mut part.content), reasoning: part.reasoning.take() };
        self.payload = part;
        let budget = Budget::new(self.budget, Instant::now(), None);
        let WindowChain { ctx, plugins, limits, stages, notices, payload, broken_off, .. } = self;
        for stage in stages {
            if stage.is_observer() {
                stage.note(&passed);
                continue;
            }
            stage.text.grow(&passed.text, is_last);
            if passed.text.is_empty() && passed.reasoning.is_none() && !is_last {
                continue;
            }
            let shown = BeforeResponsePayload {
                content: stage.text.content().to_owned(),
                reasoning: passed.reasoning.take(),
                ..payload.clone()
            };
            let chain =
                Chain::<BeforeResponse, C>::new(ctx, &stage.plan, plugins, limits, budget, shown, broken_off);
            let ended = chain.in_window(stage.text.window().clone()).run(0).await;
            let is_replaced = ended.modified && is_text_changed(&ended.steps);
            self.is_modified |= ended.modified;
            notices.extend(ended.notices);
            stage.add_reports(ended.steps);
            match ended.result? {
                ChainDecision::Continue => {}
                ChainDecision::Block(block) => return Ok(Err(block)),
                ChainDecision::Answer(_) => {
                    return Err(Error::new(Code::Internal, "a plugin answered where no result is taken"));
                }
            }
            let consumed = stage.text.consume(ended.consumed);
            let consumed = consumed.map_err(|error| Error::new(Code::Internal, error.to_string()))?;
            let BeforeResponsePayload { content, reasoning, .. } = Arc::unwrap_or_clone(ended.payload);
            passed = PassedText { text: if is_replaced { content } else { consumed }, reasoning };
        }
        Ok(Ok(passed))
    }

    /// Ends the chain with its decision, and hands the answer to the observers.
    pub async fn end(
        mut self,
        result: Result<ChainDecision, Error>,
        revision: u64,
    ) -> ChainOutcome<BeforeResponse> {
        self.is_ended = true;
        let end = chain_result(&result, &self.ctx.site);
        for place in 0..self.stages.len() {
            if self.stages[place].is_observer() {
                let payload = self.seen(place);
                let budget = Budget::new(self.budget, Instant::now(), None);
                let (plan, mut dropped) = (self.stages[place].plan.clone(), Vec::new());
                let chain = Chain::<BeforeResponse, C>::new(
                    &self.ctx,
                    &plan,
                    self.plugins,
                    self.limits,
                    budget,
                    payload,
                    &mut dropped,
                );
                let ended = chain.ending_as(end.clone()).run(revision).await;
                self.stages[place].add_reports(ended.steps);
            }
        }
        ChainOutcome {
            result,
            payload: Arc::new(std::mem::take(&mut self.payload)),
            modified: self.is_modified,
            contributions: Vec::new(),
            notices: std::mem::take(&mut self.notices),
            steps: self.reports(),
            changes: Vec::new(),
            consumed: None,
            plan_digest: Arc::clone(&self.plan.digest),
            revision,
        }
    }

    /// What the observer at `place` sees.
    fn seen(&self, place: usize) -> BeforeResponsePayload {
        let stage = &self.stages[place];
        BeforeResponsePayload {
            content: stage.text.content().to_owned(),
            reasoning: stage.reasoning.clone(),
            ..self.payload.clone()
        }
    }
}

impl<C: Plugins> Drop for WindowChain<'_, C> {
    /// Hands what has come of the answer to the observers when the caller is gone.
    fn drop(&mut self) {
        if self.is_ended {
            return;
        }
        for place in 0..self.stages.len() {
            if self.stages[place].is_observer() {
                let budget = Budget::new(self.budget, Instant::now(), None);
                let (plan, payload) = (self.stages[place].plan.clone(), self.seen(place));
                // A chain that is dropped before it runs tells its observers that it was broken off.
                drop(Chain::<BeforeResponse, C>::new(
                    &self.ctx,
                    &plan,
                    self.plugins,
                    self.limits,
                    budget,
                    payload,
                    &mut Vec::new(),
                ));
            }
        }
    }
}

/// Whether the only step changed the text.
fn is_text_changed(steps: &[StepReport]) -> bool {
    steps.iter().any(|step| step.outcome == StepOutcome::Modified && step.changed.contains(&"content"))
}

/// The reports of two calls of a step as one.
fn merged(first: StepReport, next: StepReport) -> StepReport {
    let mut changed = first.changed;
    changed.extend(next.changed.iter().filter(|name| !changed.contains(name)).copied().collect::<Vec<_>>());
    let is_first_worse = weight(first.outcome) > weight(next.outcome);
    StepReport {
        outcome: if is_first_worse { first.outcome } else { next.outcome },
        reason: if is_first_worse { first.reason } else { next.reason },
        duration: first.duration + next.duration,
        added: first.added + next.added,
        queue: first.queue + next.queue,
        changed,
        sanitised: first.sanitised + next.sanitised,
        would_block: first.would_block.or(next.would_block),
        failed_open: first.failed_open || next.failed_open,
        ..next
    }
}

/// The outcome of several calls is the one that weighs most.
const fn weight(outcome: StepOutcome) -> u8 {
    match outcome {
        StepOutcome::SkippedCondition | StepOutcome::Observed => 0,
        StepOutcome::Continued | StepOutcome::Contributed => 1,
        StepOutcome::Modified => 2,
        StepOutcome::WouldBlock => 3,
        StepOutcome::SkippedBudget => 4,
        StepOutcome::FailedOpen => 5,
        StepOutcome::Cancelled
        | StepOutcome::Answered
        | StepOutcome::Failed
        | StepOutcome::CancelledByCaller => 6,
    }
}

#[cfg(test)]
#[path = "windows_tests.rs"]
mod tests;
