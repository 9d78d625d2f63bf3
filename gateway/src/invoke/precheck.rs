//! What is decided of a step before its plugin is asked: conditions, then what the plugin may do, then the time. Pure,
//! so that an explanation decides as a call does.

use std::time::Duration;

use super::{budget::StepAllowance, decide::StepEvent, reply::Grant};
use crate::{
    core::{
        failure::Failure,
        step::{OnError, Reason},
    },
    routing::Step,
};

/// What comes of a step so far.
pub(super) enum Before<'s> {
    /// Its plugin is asked.
    Ask {
        /// What the plugin may do.
        grant: Grant<'s>,
        /// How long it may take.
        limit: Duration,
        /// Whether that is less than its own time-out.
        cut: bool,
    },
    /// It isn't, and why where that is a failure.
    Leave(StepEvent, Option<Failure>),
}

/// Decides whether the plugin of an enforce or advise step is asked. `met` is what its conditions come to; `allowance`
/// is asked for last.
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

/// What comes of an observing step, whose plugin is told after the answer.
pub(super) fn observe_event(met: bool) -> StepEvent {
    if met { StepEvent::HandedOver } else { StepEvent::ConditionFalse }
}

/// What the plugin of `step` may do, or why it can't be called.
pub(super) fn grant(step: &Step) -> Result<Grant<'_>, Failure> {
    if let Some(flaw) = step.flaw() {
        return Err(flaw);
    }
    match step.offer {
        Some(offer) => Ok(Grant { access: offer.access, writable: step.writable.as_deref() }),
        None => Err(Failure::new(Reason::NotReady, "it has not finished its handshake yet")),
    }
}
