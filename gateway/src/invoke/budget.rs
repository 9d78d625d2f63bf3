//! Computes how much time an invocation and each of its steps get (docs/protocol.md, section 3, Budget).
//! [`super::chain`] decides what a step does when its time is over.

use std::time::Duration;

use tokio::time::Instant;

use crate::{core::step::OnError, routing::Step};

/// A step that may be skipped is not started with less time than this.
const MIN_STEP_TIME: Duration = Duration::from_millis(10);
/// The part of the caller's time that is reserved for sending the answer; at most a tenth.
const ANSWER_MARGIN: Duration = Duration::from_millis(50);

/// The time of one invocation.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// The total at the start.
    total: Duration,
    end: Instant,
    /// What every step that may be skipped leaves to the plugin that runs the tool.
    tool_reserve: Duration,
}

/// How long a step may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepAllowance {
    /// Its own timeout.
    Whole(Duration),
    /// Less than its own timeout. If the step exceeds it, the budget is to blame, not the plugin.
    Cut(Duration),
    /// Nothing, or too little for a step that may be skipped.
    Short,
}

impl Budget {
    /// The budget of a call received at `received` whose caller waits until `deadline`, if it said so.
    pub fn new(limit: Duration, received: Instant, deadline: Option<Instant>) -> Self {
        let total = total(limit, deadline.map(|deadline| deadline.saturating_duration_since(received)));
        Budget { total, end: received + total, tool_reserve: Duration::ZERO }
    }

    /// The same, with `reserve` for the plugin that runs the tool.
    pub(super) fn with_tool_reserve(self, reserve: Duration) -> Self {
        Budget { tool_reserve: reserve, ..self }
    }

    pub fn end(&self) -> Instant {
        self.end
    }

    pub fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// How long `step` may take now.
    pub fn allowance(&self, step: &Step) -> StepAllowance {
        let reserved = reserved_time(self.total, step, self.tool_reserve);
        allowance(reserved, self.left(), step)
    }
}

/// The total time of an invocation, from the configured `limit` and the time that the caller waits.
pub(super) fn total(limit: Duration, caller: Option<Duration>) -> Duration {
    caller.map_or(limit, |caller| limit.min(caller - margin(caller)))
}

/// The part of the caller's time that is reserved for sending the answer.
pub(super) fn margin(caller: Duration) -> Duration {
    ANSWER_MARGIN.min(caller / 10)
}

/// The time that `step` must leave for later steps. A step that may be skipped leaves the later mandatory
/// steps their timeouts and the tool its own, but at most half of the total.
pub(super) fn reserved_time(total: Duration, step: &Step, tool: Duration) -> Duration {
    match step.on_error {
        OnError::Fail => Duration::ZERO,
        OnError::Skip => step.reserve.saturating_add(tool).min(total / 2),
    }
}

/// How long `step` may take if `left` of the invocation's time remains, of which `reserved` is for later steps.
pub(super) fn allowance(reserved: Duration, left: Duration, step: &Step) -> StepAllowance {
    let usable = left.saturating_sub(reserved);
    let least = match step.on_error {
        OnError::Fail => Duration::from_nanos(1),
        OnError::Skip => MIN_STEP_TIME,
    };
    if usable < least {
        StepAllowance::Short
    } else if usable < step.timeout {
        StepAllowance::Cut(usable)
    } else {
        StepAllowance::Whole(step.timeout)
    }
}
