//! A circuit breaker: consecutive failures open it, and after a while one trial call may pass
//! (docs/protocol.md, section 6).
//!
//! This is a state machine without IO. [`super::breakers`] decides which breakers an endpoint has, and the
//! client decides what counts as a failure. Reading takes no lock, and a call to a healthy endpoint writes
//! nothing.

use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::Instant;

use crate::config;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// Calls pass.
    Closed,
    /// Calls fail at once.
    Open,
    /// One trial call may pass, or is in flight.
    HalfOpen,
}

impl BreakerState {
    /// The name used in status.
    pub const fn as_str(self) -> &'static str {
        match self {
            BreakerState::Closed => "closed",
            BreakerState::Open => "open",
            BreakerState::HalfOpen => "half_open",
        }
    }
}

/// What a call's outcome says about its endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BreakerVerdict {
    /// The endpoint works, whatever the call returned.
    Good,
    /// The endpoint does not work.
    Bad,
    /// Nothing: the call never reached the endpoint, or its caller went away.
    Nothing,
}

/// Permission for one call. Records the breaker position it was granted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BreakerPermit {
    era: u32,
}

impl BreakerPermit {
    /// The permit of a call that came before the breaker existed.
    pub(super) const fn first() -> Self {
        BreakerPermit { era: 0 }
    }
}

/// A transition caused by a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BreakerTransition {
    /// Calls fail at once for this long.
    Opened(Duration),
    /// Calls pass again.
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BreakerPhase {
    Closed {
        /// Consecutive failures.
        failures: u32,
    },
    Open {
        until: Instant,
        /// How often the breaker has opened in a row, at least 1.
        times: u32,
    },
    Probing {
        times: u32,
    },
}

/// A phase and its number. Verdicts on calls that entered in an earlier phase are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BreakerPosition {
    phase: BreakerPhase,
    era: u32,
}

impl BreakerPosition {
    fn next(self, phase: BreakerPhase) -> Self {
        BreakerPosition { phase, era: self.era.wrapping_add(1) }
    }

    /// The position after a call arrives, and the call's permit if it may pass.
    fn entered(self, now: Instant) -> (Self, Option<BreakerPermit>) {
        match self.phase {
            BreakerPhase::Closed { .. } => (self, Some(BreakerPermit { era: self.era })),
            BreakerPhase::Open { until, times } if now >= until => {
                let probing = self.next(BreakerPhase::Probing { times });
                (probing, Some(BreakerPermit { era: probing.era }))
            }
            BreakerPhase::Open { .. } | BreakerPhase::Probing { .. } => (self, None),
        }
    }

    /// The position after a verdict. `jitter` is between 0 and 1.
    fn judged(
        self,
        pass: BreakerPermit,
        judgement: BreakerVerdict,
        now: Instant,
        jitter: f64,
        settings: &config::Breaker,
    ) -> (Self, Option<BreakerTransition>) {
        if pass.era != self.era {
            return (self, None);
        }
        let open = |times: u32| {
            let length = length(settings, times, jitter);
            let until = now + length;
            (self.next(BreakerPhase::Open { until, times }), Some(BreakerTransition::Opened(length)))
        };
        match (self.phase, judgement) {
            (BreakerPhase::Closed { failures }, BreakerVerdict::Bad) if failures + 1 >= settings.failures => {
                open(1)
            }
            (BreakerPhase::Closed { failures }, BreakerVerdict::Bad) => {
                (BreakerPosition { phase: BreakerPhase::Closed { failures: failures + 1 }, ..self }, None)
            }
            (BreakerPhase::Closed { .. }, BreakerVerdict::Good) => {
                (BreakerPosition { phase: BreakerPhase::Closed { failures: 0 }, ..self }, None)
            }
            (BreakerPhase::Probing { .. }, BreakerVerdict::Good) => {
                (self.next(BreakerPhase::Closed { failures: 0 }), Some(BreakerTransition::Closed))
            }
            (BreakerPhase::Probing { times }, BreakerVerdict::Bad) => open(times.saturating_add(1)),
            // The next call may try.
            (BreakerPhase::Probing { times }, BreakerVerdict::Nothing) => {
                (self.next(BreakerPhase::Open { until: now, times }), None)
            }
            (BreakerPhase::Closed { .. }, BreakerVerdict::Nothing) | (BreakerPhase::Open { .. }, _) => {
                (self, None)
            }
        }
    }

    /// The position after the endpoint was reached again: its next call is the trial call.
    fn due(self, now: Instant) -> Self {
        match self.phase {
            BreakerPhase::Open { until, times } if until > now => {
                BreakerPosition { phase: BreakerPhase::Open { until: now, times }, ..self }
            }
            BreakerPhase::Open { .. } | BreakerPhase::Closed { .. } | BreakerPhase::Probing { .. } => self,
        }
    }
}

/// How long the breaker stays open when it opens for the n-th time in a row. The time doubles each time, and
/// varies by a tenth so that gateways don't retry in step.
fn length(settings: &config::Breaker, times: u32, jitter: f64) -> Duration {
    let doubled = settings.open.0.saturating_mul(1u32.checked_shl(times - 1).unwrap_or(u32::MAX));
    doubled.min(settings.max_open.0).mul_f64(0.9 + jitter.clamp(0.0, 1.0) / 5.0)
}

pub(super) struct CircuitBreaker {
    settings: config::Breaker,
    position: ArcSwap<BreakerPosition>,
}

impl CircuitBreaker {
    pub(super) fn new(settings: config::Breaker) -> Self {
        let position = BreakerPosition { phase: BreakerPhase::Closed { failures: 0 }, era: 0 };
        CircuitBreaker { settings, position: ArcSwap::from_pointee(position) }
    }

    /// Whether a call would pass now.
    pub(super) fn lets_through(&self, now: Instant) -> bool {
        match self.position.load().phase {
            BreakerPhase::Closed { .. } => true,
            BreakerPhase::Open { until, .. } => now >= until,
            BreakerPhase::Probing { .. } => false,
        }
    }

    /// A permit for one call, which must be judged afterwards. Returns `None` if the call must fail at once.
    pub(super) fn enter(&self, now: Instant) -> Option<BreakerPermit> {
        let position = self.position.load();
        if matches!(position.phase, BreakerPhase::Closed { .. }) {
            return Some(BreakerPermit { era: position.era });
        }
        drop(position);
        let mut pass = None;
        self.position.rcu(|position| {
            let (next, given) = position.entered(now);
            pass = given;
            next
        });
        pass
    }

    /// Records the verdict on a call that passed.
    pub(super) fn judge(
        &self,
        pass: BreakerPermit,
        judgement: BreakerVerdict,
        now: Instant,
    ) -> Option<BreakerTransition> {
        let position = **self.position.load();
        let jitter = fastrand::f64();
        if position.judged(pass, judgement, now, jitter, &self.settings).0 == position {
            return None;
        }
        let mut change = None;
        self.position.rcu(|position| {
            let (next, changed) = position.judged(pass, judgement, now, jitter, &self.settings);
            change = changed;
            next
        });
        change
    }

    /// Records that the endpoint was reached again: an open breaker lets the next call try.
    pub(super) fn note_reached(&self, now: Instant) {
        if !matches!(self.position.load().phase, BreakerPhase::Closed { .. }) {
            self.position.rcu(|position| position.due(now));
        }
    }

    pub(super) fn state(&self, now: Instant) -> BreakerState {
        match self.position.load().phase {
            BreakerPhase::Closed { .. } => BreakerState::Closed,
            BreakerPhase::Open { until, .. } if now < until => BreakerState::Open,
            BreakerPhase::Open { .. } | BreakerPhase::Probing { .. } => BreakerState::HalfOpen,
        }
    }
}

#[cfg(test)]
#[path = "breaker_tests.rs"]
mod tests;
