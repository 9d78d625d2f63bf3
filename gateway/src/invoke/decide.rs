//! Decides what follows from a step's result: the table of docs/protocol.md, section 3, as one pure
//! function without a default arm.

use crate::core::step::{Mode, OnError, Reason, StepOutcome};

/// The result of a step, regardless of its binding's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepEvent {
    /// A match condition is known to be false.
    ConditionFalse,
    /// Too little of the budget is left for a step that may be skipped.
    BudgetShort,
    /// The plugin continued.
    Continued {
        /// Whether it changed the payload.
        patched: bool,
    },
    /// The plugin contributed at a hook.
    Contributed,
    /// The plugin cancelled.
    Cancelled,
    /// The plugin gave the tool's result, and the agent takes results.
    Answered,
    /// The step failed.
    Failed(Reason),
    /// The call was enqueued for an observer; its reply comes later.
    HandedOver,
    /// The caller went away.
    CallerGone,
}

/// What the chain does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainAction {
    /// Applies the reply's payload, contributions and notices, and goes on.
    Apply,
    /// Keeps the payload from before the step, and goes on.
    Keep,
    /// Applies the reply's payload and notices, and ends as a block.
    Block,
    /// Applies the reply's payload and notices, and ends with the tool's result.
    Answer,
    /// Ends without a decision.
    Stop,
}

/// The consequences of a step's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disposition {
    /// How the step is reported.
    pub outcome: StepOutcome,
    /// What the chain does next.
    pub next: ChainAction,
    /// Whether the agent gets a notice that the step was skipped.
    pub notice: bool,
    /// Whether a rule was not enforced that should have been.
    pub failed_open: bool,
}

/// Decides the consequences of a step's result. For an observer it is called twice: when the call is
/// enqueued and, for the counters only, when the reply arrives.
pub const fn decide(mode: Mode, on_error: OnError, event: StepEvent) -> Disposition {
    match (mode, event) {
        (Mode::Enforce | Mode::Advise | Mode::Observe, StepEvent::CallerGone) => {
            plain(StepOutcome::CancelledByCaller, ChainAction::Stop)
        }
        (Mode::Enforce | Mode::Advise | Mode::Observe, StepEvent::ConditionFalse) => {
            plain(StepOutcome::SkippedCondition, ChainAction::Keep)
        }

        (Mode::Enforce | Mode::Advise, StepEvent::Continued { patched: false }) => {
            plain(StepOutcome::Continued, ChainAction::Apply)
        }
        (Mode::Enforce | Mode::Advise, StepEvent::Continued { patched: true }) => {
            plain(StepOutcome::Modified, ChainAction::Apply)
        }
        (Mode::Enforce | Mode::Advise, StepEvent::Contributed) => {
            plain(StepOutcome::Contributed, ChainAction::Apply)
        }
        (Mode::Enforce, StepEvent::Cancelled) => plain(StepOutcome::Cancelled, ChainAction::Block),
        (Mode::Enforce, StepEvent::Answered) => plain(StepOutcome::Answered, ChainAction::Answer),
        (Mode::Advise, StepEvent::Cancelled | StepEvent::Answered) => {
            plain(StepOutcome::WouldBlock, ChainAction::Apply)
        }
        (Mode::Enforce, StepEvent::BudgetShort) => skipped(StepOutcome::SkippedBudget, true),
        (Mode::Advise, StepEvent::BudgetShort) => skipped(StepOutcome::SkippedBudget, false),
        (Mode::Enforce | Mode::Advise, StepEvent::Failed(_)) => match on_error {
            OnError::Fail => plain(StepOutcome::Failed, ChainAction::Stop),
            OnError::Skip => skipped(StepOutcome::FailedOpen, true),
        },
        // Only observers are handed over. If an enforcing step ever were, its rule would not have been
        // checked.
        (Mode::Enforce | Mode::Advise, StepEvent::HandedOver) => {
            plain(StepOutcome::Failed, ChainAction::Stop)
        }

        (Mode::Observe, StepEvent::HandedOver | StepEvent::Continued { .. } | StepEvent::Contributed) => {
            plain(StepOutcome::Observed, ChainAction::Keep)
        }
        (Mode::Observe, StepEvent::Cancelled | StepEvent::Answered) => {
            plain(StepOutcome::WouldBlock, ChainAction::Keep)
        }
        (Mode::Observe, StepEvent::Failed(_)) => plain(StepOutcome::Failed, ChainAction::Keep),
        (Mode::Observe, StepEvent::BudgetShort) => plain(StepOutcome::SkippedBudget, ChainAction::Keep),
    }
}

const fn plain(outcome: StepOutcome, next: ChainAction) -> Disposition {
    Disposition { outcome, next, notice: false, failed_open: false }
}

const fn skipped(outcome: StepOutcome, failed_open: bool) -> Disposition {
    Disposition { outcome, next: ChainAction::Keep, notice: true, failed_open }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [Mode; 3] = [Mode::Enforce, Mode::Advise, Mode::Observe];
    const ON_ERROR: [OnError; 2] = [OnError::Fail, OnError::Skip];

    fn events() -> Vec<StepEvent> {
        let failures = Reason::ALL.iter().map(|reason| StepEvent::Failed(*reason));
        let others = [
            StepEvent::ConditionFalse,
            StepEvent::BudgetShort,
            StepEvent::Continued { patched: false },
            StepEvent::Continued { patched: true },
            StepEvent::Contributed,
            StepEvent::Cancelled,
            StepEvent::Answered,
            StepEvent::HandedOver,
            StepEvent::CallerGone,
        ];
        others.into_iter().chain(failures).collect()
    }

    fn cells() -> impl Iterator<Item = (Mode, OnError, StepEvent)> {
        MODES.into_iter().flat_map(|mode| {
            ON_ERROR
                .into_iter()
                .flat_map(move |on_error| events().into_iter().map(move |event| (mode, on_error, event)))
        })
    }

    #[test]
    fn a_failure_stops_the_chain_exactly_where_on_error_is_fail() {
        for (mode, on_error, event) in cells() {
            let StepEvent::Failed(_) = event else { continue };
            let next = decide(mode, on_error, event).next;
            let stops = mode != Mode::Observe && on_error == OnError::Fail;
            assert_eq!(
                next,
                if stops { ChainAction::Stop } else { ChainAction::Keep },
                "{mode:?} {on_error:?} {event:?}"
            );
        }
    }

    #[test]
    fn only_a_cancel_in_enforce_blocks() {
        for (mode, on_error, event) in cells() {
            let blocks = decide(mode, on_error, event).next == ChainAction::Block;
            assert_eq!(
                blocks,
                mode == Mode::Enforce && event == StepEvent::Cancelled,
                "{mode:?} {on_error:?} {event:?}"
            );
        }
    }

    #[test]
    fn only_an_answer_in_enforce_ends_with_a_result() {
        for (mode, on_error, event) in cells() {
            let answers = decide(mode, on_error, event).next == ChainAction::Answer;
            let expected = mode == Mode::Enforce && event == StepEvent::Answered;
            assert_eq!(answers, expected, "{mode:?} {on_error:?} {event:?}");
        }
    }

    #[test]
    fn a_payload_is_taken_over_only_from_a_reply_that_arrived() {
        for (mode, on_error, event) in cells() {
            let applies = matches!(
                decide(mode, on_error, event).next,
                ChainAction::Apply | ChainAction::Block | ChainAction::Answer
            );
            let replied = matches!(
                event,
                StepEvent::Continued { .. }
                    | StepEvent::Contributed
                    | StepEvent::Cancelled
                    | StepEvent::Answered
            );
            assert_eq!(applies, replied && mode != Mode::Observe, "{mode:?} {on_error:?} {event:?}");
        }
    }

    #[test]
    fn a_rule_that_was_not_enforced_counts_as_failed_open() {
        for (mode, on_error, event) in cells() {
            let open = decide(mode, on_error, event).failed_open;
            let expected = match (mode, event) {
                (Mode::Enforce | Mode::Advise, StepEvent::Failed(_)) => on_error == OnError::Skip,
                (Mode::Enforce, StepEvent::BudgetShort) => true,
                _ => false,
            };
            assert_eq!(open, expected, "{mode:?} {on_error:?} {event:?}");
        }
    }
}
