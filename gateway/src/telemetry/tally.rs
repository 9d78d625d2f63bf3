//! Totals of each plugin at each point since the start, as the admin port shows them. Neither counting nor
//! reading takes a lock.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::{
    config::{Config, Plugin},
    core::{point::Point, step::StepOutcome},
};

/// A tally for each configured plugin and point.
#[derive(Default)]
pub(crate) struct Tallies(HashMap<Arc<str>, Arc<[Tally; 4]>>);

#[derive(Default)]
pub(super) struct Tally {
    successes: AtomicU64,
    failures: AtomicU64,
    /// Time of successes and failures together.
    micros: AtomicU64,
}

/// Totals of one plugin at one point since the start. Each number is exact, but they are read one after the
/// other: a step that ends meanwhile may be in one and not yet in another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Steps whose plugin passed, changed or blocked the payload.
    pub successes: u64,
    /// Steps that failed, whatever the consequence.
    pub failures: u64,
    /// Total time of both, including the wait for a permit. An observer's time starts when it is given the
    /// call.
    pub latency: Duration,
}

impl Tallies {
    /// Tallies for the plugins of `config`. Plugins that were already counted keep their totals.
    pub(super) fn from_config(config: &Config, before: &Self) -> Self {
        let counted = |plugin: &Plugin| before.0.get(&*plugin.name).cloned().unwrap_or_default();
        let plugins = config.plugins.iter();
        Tallies(plugins.map(|plugin| (plugin.name.as_str().into(), counted(plugin))).collect())
    }

    /// Counts a finished step. Steps whose plugin was not called, or whose caller didn't wait, are not
    /// counted: they say nothing about the plugin.
    pub(crate) fn add(&self, plugin: &str, point: Point, outcome: StepOutcome, took: Duration) {
        let Some(tally) = self.0.get(plugin).map(|points| &points[point.index()]) else { return };
        let count = match outcome {
            StepOutcome::Continued
            | StepOutcome::Modified
            | StepOutcome::Cancelled
            | StepOutcome::Answered
            | StepOutcome::WouldBlock
            | StepOutcome::Observed => &tally.successes,
            StepOutcome::Failed | StepOutcome::FailedOpen => &tally.failures,
            StepOutcome::SkippedCondition | StepOutcome::SkippedBudget | StepOutcome::CancelledByCaller => {
                return;
            }
        };
        count.fetch_add(1, Relaxed);
        tally.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    /// All zero for a plugin that isn't configured.
    pub(super) fn totals(&self, plugin: &str, point: Point) -> Totals {
        let Some(tally) = self.0.get(plugin).map(|points| &points[point.index()]) else {
            return Totals::default();
        };
        Totals {
            successes: tally.successes.load(Relaxed),
            failures: tally.failures.load(Relaxed),
            latency: Duration::from_micros(tally.micros.load(Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_is_a_success_a_failure_or_nothing() {
        let tallies = Tallies([("p".into(), Arc::default())].into());
        for outcome in StepOutcome::ALL {
            tallies.add("p", Point::BeforeToolCall, *outcome, Duration::from_millis(2));
            tallies.add("unknown", Point::BeforeToolCall, *outcome, Duration::from_millis(2));
        }
        let expected = Totals { successes: 6, failures: 2, latency: Duration::from_millis(16) };
        assert_eq!(tallies.totals("p", Point::BeforeToolCall), expected);
        assert_eq!(tallies.totals("p", Point::BeforeResponse), Totals::default());
        assert_eq!(tallies.totals("unknown", Point::BeforeToolCall), Totals::default());
    }
}
