//! Totals of each plugin at each point, and at all hooks together, since the start, as the admin port shows them. Neither counting nor
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
    core::{call_site::CallSite, step::StepOutcome},
};

/// The tallies of each configured plugin, by [`CallSite::kind`].
#[derive(Default)]
pub(crate) struct Tallies(HashMap<Arc<str>, Arc<[Tally; CallSite::KINDS]>>);

#[derive(Default)]
pub(super) struct Tally {
    successes: AtomicU64,
    failures: AtomicU64,
    /// Time of successes and failures together.
    micros: AtomicU64,
}

/// Totals of one plugin at one point, or at all hooks, since the start. Each number is exact, but they are read one after the
/// other: a step that ends meanwhile may be in one and not yet in another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Steps whose plugin answered.
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
    pub(crate) fn add(&self, plugin: &str, site: &CallSite, outcome: StepOutcome, took: Duration) {
        let Some(tally) = self.0.get(plugin).map(|kinds| &kinds[site.kind()]) else { return };
        let count = match outcome {
            StepOutcome::Continued
            | StepOutcome::Modified
            | StepOutcome::Cancelled
            | StepOutcome::Answered
            | StepOutcome::Contributed
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

    /// The totals of this [`CallSite::kind`]; all zero for a plugin that isn't configured.
    pub(super) fn totals(&self, plugin: &str, kind: usize) -> Totals {
        let Some(tally) = self.0.get(plugin).map(|kinds| &kinds[kind]) else {
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
    use crate::core::point::Point;

    #[test]
    fn every_outcome_is_a_success_a_failure_or_nothing() {
        let tallies = Tallies([("p".into(), Arc::default())].into());
        let (tool_call, hook) =
            (Point::BeforeToolCall.into(), CallSite::Hook("recall".to_owned().try_into().expect("valid")));
        for outcome in StepOutcome::ALL {
            tallies.add("p", &tool_call, *outcome, Duration::from_millis(2));
            tallies.add("unknown", &hook, *outcome, Duration::from_millis(2));
        }
        let expected = Totals { successes: 7, failures: 2, latency: Duration::from_millis(18) };
        assert_eq!(tallies.totals("p", tool_call.kind()), expected);
        assert_eq!(tallies.totals("p", hook.kind()), Totals::default());
        assert_eq!(tallies.totals("unknown", hook.kind()), Totals::default());
    }
}
