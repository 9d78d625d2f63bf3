//! Which bypasses are in effect now (docs/decisions/0034-break-glass.md). A bypass ends by whichever of two
//! clocks is earlier: the wall clock, in which its end is written and which somebody may set, and the time
//! that has passed in this process since the bypass was first seen. A bypass that has ended never becomes
//! active again in this process.

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

/// The longest time between two looks at the wall clock while a bypass is in effect. Somebody may set the
/// clock.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// Bypasses that are remembered even if the registry has fewer: some were only seen in dry runs.
const MAX_REMEMBERED: usize = 1000;

/// Identifies one version of a bypass.
type BypassKey = (String, u64, Until);

/// The latest end of each bypass, by this process's own clock.
#[derive(Debug, Default)]
pub(crate) struct Bypasses(Mutex<HashMap<BypassKey, Instant>>);

/// The bypasses that are in effect.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ActiveBypasses {
    /// In the registry's order.
    pub(crate) bypasses: Vec<Arc<Bypass>>,
    /// When to check again. `None` if no bypass is in effect.
    pub(crate) again: Option<Instant>,
}

impl Bypasses {
    /// The bypasses of `contents` that are in effect now.
    pub(crate) fn active(&self, contents: &Contents) -> ActiveBypasses {
        self.active_at(contents, OffsetDateTime::now_utc(), Instant::now())
    }

    fn active_at(&self, contents: &Contents, wall: OffsetDateTime, now: Instant) -> ActiveBypasses {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut active = ActiveBypasses::default();
        for (bypass, version) in contents.bypasses() {
            let left = Duration::try_from(bypass.until.0 - wall).unwrap_or_default();
            let ends = seen.entry((bypass.name(), version, bypass.until)).or_insert_with(|| now + left);
            // The wall clock may have been set forward, so the earlier end wins.
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
