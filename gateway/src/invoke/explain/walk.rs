//! Walks a plan as [`super::super::chain`] would, but calls no plugin.

use std::time::Duration;

use super::{ExpectedOutcome, StepForecast};
use crate::{
    core::{
        failure::Failure,
        step::{Mode, Reason, StepOutcome},
    },
    invoke::{
        budget::{allowance, reserved_time},
        decide::{ChainAction, StepEvent, decide},
        precheck::{Before, before, grant, observe_event},
    },
    routing::{Step, groups},
};

/// How long plugins take before they continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    AllItGets,
}

/// The forecast of one step and its time.
#[derive(Debug)]
pub(super) struct TimedForecast {
    pub(super) comes: StepForecast,
    /// The maximum time; zero if it would get too little, `None` if time doesn't matter.
    pub(super) limit: Option<Duration>,
    /// Whether that is less than its own timeout.
    pub(super) cut: bool,
}

/// Walks `steps` with `total` time, of which those that may be skipped leave `tool_reserve` to the tool. `met` says for
/// each step whether its conditions hold.
pub(super) fn walk(
    steps: &[Step],
    met: &[bool],
    total: Duration,
    tool_reserve: Duration,
    takes: Takes,
) -> Vec<TimedForecast> {
    let mut ended = false;
    // The steps of a group start together, with the time that is left `at_start`.
    let mut one = |step: &Step, met: bool, at_start: Duration, left: &mut Duration| {
        if ended && step.mode != Mode::Observe {
            let comes = StepForecast { outcome: ExpectedOutcome::NotReached, reason: None, detail: None };
            return TimedForecast { comes, limit: None, cut: false };
        }
        let mut limit = None;
        let (event, failure, cut) = match step.mode {
            // An observer's reply or failure comes after the answer, so the step stays `observed`.
            Mode::Observe => (observe_event(met), grant(step).err().filter(|_| met), false),
            Mode::Enforce | Mode::Advise => {
                let allowance = || {
                    limit = Some(Duration::ZERO);
                    allowance(reserved_time(total, step, tool_reserve), at_start, step)
                };
                match before(step, met, allowance) {
                    Before::Ask { limit: gets, cut, .. } => {
                        limit = Some(gets);
                        if takes == Takes::AllItGets {
                            *left = (*left).min(at_start.saturating_sub(gets));
                        }
                        (StepEvent::Continued { patched: false }, None, cut)
                    }
                    Before::Leave(event, failure) => (event, failure, limit.is_some()),
                }
            }
        };
        let ruling = decide(step.mode, step.on_error, event);
        ended |= ruling.next == ChainAction::Stop;
        TimedForecast { comes: comes(ruling.outcome, event, failure), limit, cut }
    };
    let (mut left, mut walked) = (total, Vec::with_capacity(steps.len()));
    for group in groups(steps) {
        let at_start = left;
        for step in group {
            let met = met[walked.len()];
            walked.push(one(step, met, at_start, &mut left));
        }
    }
    walked
}

fn comes(outcome: StepOutcome, event: StepEvent, failure: Option<Failure>) -> StepForecast {
    let reason = match event {
        StepEvent::BudgetShort => Some(Reason::Budget),
        _ => failure.as_ref().map(|failure| failure.reason),
    };
    let outcome = match outcome {
        StepOutcome::Observed => ExpectedOutcome::Observed,
        StepOutcome::SkippedCondition => ExpectedOutcome::SkippedCondition,
        StepOutcome::SkippedBudget => ExpectedOutcome::SkippedBudget,
        StepOutcome::Failed => ExpectedOutcome::Failed,
        StepOutcome::FailedOpen => ExpectedOutcome::FailedOpen,
        // The rest depends on the plugin's reply.
        StepOutcome::Continued
        | StepOutcome::Modified
        | StepOutcome::Cancelled
        | StepOutcome::Answered
        | StepOutcome::Contributed
        | StepOutcome::WouldBlock
        | StepOutcome::CancelledByCaller => ExpectedOutcome::Called,
    };
    let detail = failure.map(|failure| failure.detail);
    StepForecast { outcome, reason: reason.map(|reason| reason.as_str().to_owned()), detail }
}
