//! Which bypasses are in effect at this moment (docs/decisions/0034-break-glass.md). Two clocks are asked, and a bypass has
//! ended as soon as one of them says so: the wall clock, which its writer meant and which may be set, and the time that
//! has passed here since it was seen first. What has ended once never begins again in this process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use time::OffsetDateTime;
use tokio::time::{Duration, Instant};

use crate::{
    config::{Bypass, Until},
    registry::Contents,
};

/// How often the wall clock is asked while a bypass is in effect, at least: somebody may set it.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// Most bypasses that are remembered when there are fewer: some were dry runs.
const MAX_REMEMBERED: usize = 1000;

/// Tells one writing of a bypass from every other.
type BypassKey = (String, u64, Until);

/// When each bypass ends at the latest, by this process's own clock.
#[derive(Debug, Default)]
pub(crate) struct Bypasses(Mutex<HashMap<BypassKey, Instant>>);

/// Those in effect.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ActiveBypasses {
    /// In the order of the registry.
    pub(crate) bypasses: Vec<Arc<Bypass>>,
    /// When it has to be looked again; none: nothing is in effect.
    pub(crate) again: Option<Instant>,
}

impl Bypasses {
    /// Those of `contents` that are in effect now.
    pub(crate) fn active(&self, contents: &Contents) -> ActiveBypasses {
        self.active_at(contents, OffsetDateTime::now_utc(), Instant::now())
    }

    fn active_at(&self, contents: &Contents, wall: OffsetDateTime, now: Instant) -> ActiveBypasses {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut active = ActiveBypasses::default();
        for (bypass, version) in contents.bypasses() {
            let left = Duration::try_from(bypass.until.0 - wall).unwrap_or_default();
            let ends = seen.entry((bypass.name(), version, bypass.until)).or_insert_with(|| now + left);
            // The earlier of the two; both may have come nearer since.
            *ends = (*ends).min(now + left);
            if *ends > now {
                active.bypasses.push(Arc::clone(bypass));
                let look = (*ends).min(now + CLOCK_CHECK_INTERVAL);
                active.again = Some(active.again.map_or(look, |again| again.min(look)));
            }
        }
        if seen.len() > MAX_REMEMBERED.max(2 * contents.bypasses().count()) {
            let there: Vec<_> =
                contents.bypasses().map(|(of, version)| (of.name(), version, of.until)).collect();
            seen.retain(|key, _| there.contains(key));
        }
        active
    }
}

#[cfg(test)]
#[path = "active_bypasses_tests.rs"]
mod tests;
