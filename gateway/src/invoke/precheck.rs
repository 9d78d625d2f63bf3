//! Decides whether a step's plugin is called: checks the conditions, then the grant, then the time. Pure,
//! so that explanations can share it with calls.

use std::time::Duration;

use super::{budget::StepAllowance, decide::StepEvent, reply::Grant};
use crate::{
    core::{
        failure::Failure,
        step::{OnError, Reason},
    },
    routing::Step,
};

/// The result of the checks before a step.
pub(super) enum Before<'s> {
    /// The plugin is called.
    Ask {
        /// What the plugin may do.
        grant: Grant<'s>,
        /// The time limit.
        limit: Duration,
        /// Whether the limit is less than the step's own timeout.
        cut: bool,
    },
    /// The plugin is not called; the failure says why, if it is one.
    Leave(StepEvent, Option<Failure>),
}

/// Checks an enforcing or advising step. `met` says whether its conditions hold; `allowance` is evaluated
/// last.
pub(super) fn before(step: &Step, met: bool, allowance: impl FnOnce() -> StepAllowance) -> Before<'_> {
    let failed = |failure: Failure| Before::Leave(StepEvent::Failed(failure.reason), Some(failure));
    if !met {
        return Before::Leave(StepEvent::ConditionFalse, None);
    }
    let grant = match grant(step) {
        Ok(grant) => grant,
        Err(failure) => return failed(failure),
    };
    match (allowance(), step.on_error) {
        (StepAllowance::Whole(limit), _) => Before::Ask { grant, limit, cut: false },
        (StepAllowance::Cut(limit), _) => Before::Ask { grant, limit, cut: true },
        (StepAllowance::Short, OnError::Skip) => Before::Leave(StepEvent::BudgetShort, None),
        (StepAllowance::Short, OnError::Fail) => {
            failed(Failure::new(Reason::Budget, "nothing of the invocation's budget was left for it"))
        }
    }
}

/// The event of an observing step, whose plugin is called after the answer.
pub(super) fn observe_event(met: bool) -> StepEvent {
    if met { StepEvent::HandedOver } else { StepEvent::ConditionFalse }
}

/// The grant of `step`, or why its plugin can't be called.
pub(super) fn grant(step: &Step) -> Result<Grant<'_>, Failure> {
    if let Some(flaw) = step.flaw() {
        return Err(flaw);
    }
    match step.offer {
        Some(offer) => Ok(Grant { access: offer.access, writable: step.writable.as_deref() }),
        None => Err(Failure::new(Reason::NotReady, "it has not finished its handshake yet")),
    }
}
