//! How much time an invocation and each of its steps have (docs/protocol.md, section 3, Budget). Arithmetic only:
//! what a step does when its time is over is [`super::chain`]'s.

use std::time::Duration;

use tokio::time::Instant;

use crate::{core::step::OnError, routing::Step};

/// A step that may be skipped isn't started with less than this.
const MIN_STEP_TIME: Duration = Duration::from_millis(10);
/// What is kept back of the caller's time, so that our answer still reaches it; at most a tenth.
const ANSWER_MARGIN: Duration = Duration::from_millis(50);

/// The time of one invocation.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// All of it at the start.
    total: Duration,
    /// When it is over.
    end: Instant,
}

/// How long a step may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepAllowance {
    /// Its own time-out.
    Whole(Duration),
    /// Less than its own time-out: running out of it is the budget's doing, not the plugin's.
    Cut(Duration),
    /// Nothing is left, or too little for a step that may be skipped.
    Short,
}

impl Budget {
    /// The budget of a call received at `received` whose caller waits until `deadline`, if it said so.
    pub fn new(limit: Duration, received: Instant, deadline: Option<Instant>) -> Self {
        let total = total(limit, deadline.map(|deadline| deadline.saturating_duration_since(received)));
        Budget { total, end: received + total }
    }

    /// When it is over.
    pub fn end(&self) -> Instant {
        self.end
    }

    /// What is left.
    pub fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// How long `step` may take now.
    pub fn allowance(&self, step: &Step) -> StepAllowance {
        allowance(self.total, self.left(), step)
    }
}

/// The time of an invocation of which the configuration allows `limit`, and whose caller waits for `caller`.
pub(super) fn total(limit: Duration, caller: Option<Duration>) -> Duration {
    caller.map_or(limit, |caller| limit.min(caller - margin(caller)))
}

/// What is kept back of the caller's time.
pub(super) fn margin(caller: Duration) -> Duration {
    ANSWER_MARGIN.min(caller / 10)
}

/// What `step` leaves of an invocation's time to steps behind it: one that may be skipped leaves those that must
/// succeed theirs, at most half of all.
pub(super) fn reserved_time(total: Duration, step: &Step) -> Duration {
    match step.on_error {
        OnError::Fail => Duration::ZERO,
        OnError::Skip => step.reserve.min(total / 2),
    }
}

/// How long `step` may take with `left` of an invocation's time.
pub(super) fn allowance(total: Duration, left: Duration, step: &Step) -> StepAllowance {
    let usable = left.saturating_sub(reserved_time(total, step));
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
