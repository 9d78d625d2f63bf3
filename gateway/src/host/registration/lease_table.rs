//! Which leases are alive, as one process sees it.
//!
//! A lease is renewed by writing it, which gives it another version. It has ended when this process read the same version
//! for the length of a lease. No clock of another machine takes part, and while the leases can't be read, none ends.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::LEASE;

/// Leases must have been read at least this often to be seen ending.
const MAX_READ_GAP: Duration = Duration::from_secs(LEASE.as_secs() / 3);

/// A registered endpoint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LeaseKey {
    pub(super) plugin: String,
    pub(super) endpoint: String,
}

/// A lease as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) key: LeaseKey,
    /// Changes with every renewal.
    pub(super) version: u64,
}

/// What was read of each lease, and when it was read first.
#[derive(Debug, Default)]
pub(super) struct LeaseTable {
    seen: BTreeMap<LeaseKey, (u64, Instant)>,
    read_at: Option<Instant>,
}

impl LeaseTable {
    /// Takes over what was read at `now`, and returns the leases that have ended.
    pub(super) fn observe(&mut self, leases: &[Lease], now: Instant) -> Vec<Lease> {
        let is_fresh = self.read_at.is_some_and(|before| now - before <= MAX_READ_GAP);
        let since = |lease: &Lease| match self.seen.get(&lease.key) {
            Some((version, since)) if is_fresh && *version == lease.version => *since,
            _ => now,
        };
        let seen: BTreeMap<_, _> =
            leases.iter().map(|lease| (lease.key.clone(), (lease.version, since(lease)))).collect();
        (self.seen, self.read_at) = (seen, Some(now));
        leases.iter().filter(|lease| now - self.seen[&lease.key].1 >= LEASE).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lease(endpoint: &str, version: u64) -> Lease {
        let key = LeaseKey { plugin: "quota".into(), endpoint: endpoint.into() };
        Lease { key, version }
    }

    #[test]
    fn a_lease_that_is_not_renewed_ends_after_its_time_and_others_go_on() {
        let (mut table, start) = (LeaseTable::default(), Instant::now());
        for second in 0..30 {
            let now = start + Duration::from_secs(second);
            assert_eq!(table.observe(&[lease("a", 1), lease("b", second)], now), [], "{second}");
        }
        let now = start + LEASE;
        assert_eq!(table.observe(&[lease("a", 1), lease("b", 30)], now), [lease("a", 1)]);
    }

    #[test]
    fn no_lease_ends_because_it_could_not_be_read() {
        let (mut table, start) = (LeaseTable::default(), Instant::now());
        assert_eq!(table.observe(&[lease("a", 1)], start), []);
        let back = start + Duration::from_secs(300);
        assert_eq!(table.observe(&[lease("a", 1)], back), [], "the plugin could not renew it either");
        for second in 1..30 {
            assert_eq!(table.observe(&[lease("a", 1)], back + Duration::from_secs(second)), []);
        }
        assert_eq!(table.observe(&[lease("a", 1)], back + LEASE), [lease("a", 1)]);
    }

    proptest! {
        /// However reads and renewals are spread, a lease renewed in the last 30 s never ends.
        #[test]
        fn a_renewed_lease_never_ends(steps in prop::collection::vec((0_u64..15_000, any::<bool>()), 1..200)) {
            let (mut table, mut now, mut version) = (LeaseTable::default(), Instant::now(), 1);
            let mut renewed = now;
            for (pause, renews) in steps {
                now += Duration::from_millis(pause);
                if renews {
                    (version, renewed) = (version + 1, now);
                }
                let ended = table.observe(&[lease("a", version)], now);
                if now - renewed < LEASE {
                    prop_assert_eq!(ended, []);
                }
            }
        }
    }
}
