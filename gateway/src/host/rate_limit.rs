//! How much a plugin may write per second. The limit holds in this process: other replicas have their own.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// A plugin that hasn't exceeded its limit for this long is no longer flooding.
const FLOOD_END: Duration = Duration::from_secs(10);

/// A token bucket for each plugin, as large as what it gets per second.
pub(super) struct RateLimit {
    per_second: u32,
    buckets: Mutex<HashMap<Arc<str>, Bucket>>,
}

struct Bucket {
    /// What the plugin may still write.
    left: f64,
    filled: Instant,
    /// When the plugin last exceeded its limit.
    exceeded: Option<Instant>,
}

/// How many of its records a plugin may write.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Allowance {
    /// The first ones pass.
    pub(super) allowed: usize,
    /// The time until one more may pass, if not all do.
    pub(super) wait: Option<Duration>,
    /// Whether the plugin begins to exceed its limit.
    pub(super) begins_flood: bool,
}

impl RateLimit {
    pub(super) fn new(per_second: u32) -> Self {
        RateLimit { per_second, buckets: Mutex::default() }
    }

    pub(super) fn per_second(&self) -> u32 {
        self.per_second
    }

    /// Takes from the plugin's bucket what its records cost, up to the first one that it can't pay. `now` never goes back.
    pub(super) fn take(&self, plugin: &str, costs: &[u32], now: Instant) -> Allowance {
        let rate = f64::from(self.per_second);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if !buckets.contains_key(plugin) {
            buckets.insert(plugin.into(), Bucket { left: rate, filled: now, exceeded: None });
        }
        let bucket = buckets.get_mut(plugin).expect("it was inserted");
        let gained = now.saturating_duration_since(bucket.filled).as_secs_f64() * rate;
        (bucket.left, bucket.filled) = ((bucket.left + gained).min(rate), now);
        let mut allowed = 0;
        let next = loop {
            match costs.get(allowed).copied().map(f64::from) {
                Some(cost) if cost <= bucket.left => bucket.left -= cost,
                Some(cost) => break cost,
                None => return Allowance { allowed, wait: None, begins_flood: false },
            }
            allowed += 1;
        };
        let before = bucket.exceeded.replace(now);
        let begins_flood = before.is_none_or(|before| now.saturating_duration_since(before) >= FLOOD_END);
        let wait = Duration::from_secs_f64((next - bucket.left) / rate);
        Allowance { allowed, wait: Some(wait), begins_flood }
    }

    /// Forgets the plugins that `keeps` doesn't name.
    pub(super) fn retain(&self, keeps: impl Fn(&str) -> bool) {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.retain(|plugin, _| keeps(plugin));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_flood_is_reported_once_and_again_after_a_pause() {
        let (limit, start) = (RateLimit::new(100), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(
            limit.take("p", &[1; 100], at(0)),
            Allowance { allowed: 100, wait: None, begins_flood: false }
        );
        let full =
            |begins_flood| Allowance { allowed: 0, wait: Some(Duration::from_millis(10)), begins_flood };
        assert_eq!(limit.take("p", &[1], at(0)), full(true));
        assert_eq!(limit.take("p", &[1], at(0)), full(false));
        assert_eq!(limit.take("other", &[1], at(0)).allowed, 1);
        assert_eq!(limit.take("p", &[1; 20], at(100)).allowed, 10);
        assert!(!limit.take("p", &[1; 101], at(9_000)).begins_flood);
        assert!(limit.take("p", &[1; 101], at(19_000)).begins_flood);
    }

    #[test]
    fn a_record_that_costs_more_ends_what_passes_and_waits_longer() {
        let (limit, now) = (RateLimit::new(10), Instant::now());
        let allowance = limit.take("p", &[3, 3, 5, 1], now);
        assert_eq!((allowance.allowed, allowance.wait), (2, Some(Duration::from_millis(100))));
    }

    #[test]
    fn a_plugin_that_is_gone_is_forgotten() {
        let (limit, now) = (RateLimit::new(1), Instant::now());
        assert_eq!((limit.take("p", &[1], now).allowed, limit.take("p", &[1], now).allowed), (1, 0));
        limit.retain(|plugin| plugin != "p");
        assert_eq!(limit.take("p", &[1], now).allowed, 1);
    }

    proptest! {
        #[test]
        fn no_more_pass_than_a_second_allows_plus_what_the_time_brings(
            takes in proptest::collection::vec((0_u64..400, proptest::collection::vec(1_u32..5, 0..20)), 1..100)
        ) {
            let (limit, start) = (RateLimit::new(50), Instant::now());
            let (mut passed, mut at_ms) = (0, 0);
            for (pause_ms, costs) in takes {
                at_ms += pause_ms;
                let allowance = limit.take("p", &costs, start + Duration::from_millis(at_ms));
                passed += costs[..allowance.allowed].iter().copied().map(u64::from).sum::<u64>();
                prop_assert_eq!(allowance.allowed == costs.len(), allowance.wait.is_none());
                prop_assert!(passed * 1000 <= 50 * 1000 + 50 * at_ms + 1);
            }
        }
    }
}
