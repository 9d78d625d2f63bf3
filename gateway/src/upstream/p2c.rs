//! Power of two choices (p2c): the load and recent failures of an endpoint, and the choice between endpoints
//! by their score (docs/protocol.md, section 6). Without locks.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::{sync::Notify, time::Instant};

/// After this long a failure counts half, in milliseconds.
const FAILURE_HALF_LIFE_MS: f32 = 2_000.0;
/// How far one failure moves the failing share towards 1, and one success towards 0.
const FAILURE_WEIGHT: f32 = 0.3;
/// An endpoint that always fails is rated this many times as busy. Without the penalty, an endpoint that
/// fails at once would never be busy and would get every call.
const FAILURE_PENALTY: f32 = 40.0;
/// A smaller share of failures counts as none. Otherwise an endpoint that gets no calls would lose every tie for a minute.
const NEGLIGIBLE_SHARE: f32 = 0.001;
/// Set in the count of calls while their end is awaited. The decrement that every call makes anyway then tells the last one
/// to notify.
const LAST_CALL_WANTED: usize = 1 << (usize::BITS - 1);

/// Calls in flight to an endpoint, and the share of recent calls that failed.
pub(super) struct EndpointLoad {
    /// The number of calls, and [`LAST_CALL_WANTED`].
    in_flight: AtomicUsize,
    /// The last call ended.
    idle: Notify,
    /// The share as the bits of an `f32`, and when it was so, in milliseconds since `start`.
    failing: AtomicU64,
    start: Instant,
    /// How many calls the endpoint answered.
    answered: AtomicU64,
}

impl EndpointLoad {
    pub(super) fn new(now: Instant) -> Self {
        let (failing, answered) = (AtomicU64::new(0), AtomicU64::new(0));
        let (in_flight, idle) = (AtomicUsize::new(0), Notify::new());
        EndpointLoad { in_flight, idle, failing, start: now, answered }
    }

    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed) & !LAST_CALL_WANTED
    }

    pub(super) fn began(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn ended(&self) {
        if self.in_flight.fetch_sub(1, Ordering::Relaxed) == LAST_CALL_WANTED | 1 {
            self.idle.notify_one();
        }
    }

    /// Resolves when no call is in flight. For a single waiter, at an endpoint that is no longer picked.
    pub(super) async fn idle(&self) {
        if self.in_flight.fetch_or(LAST_CALL_WANTED, Ordering::Relaxed) & !LAST_CALL_WANTED > 0 {
            self.idle.notified().await;
        }
    }

    /// Records whether a call failed.
    pub(super) fn note(&self, failed: bool, now: Instant) {
        if !failed {
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
        let before = self.failing.load(Ordering::Relaxed);
        // Usually nothing fails, and then nothing more is written.
        if before == 0 && !failed {
            return;
        }
        let aim = if failed { 1.0 } else { 0.0 };
        // A concurrent update may be lost: this is an estimate.
        let share = self.share(before, now);
        self.failing.store(self.packed(share + (aim - share) * FAILURE_WEIGHT, now), Ordering::Relaxed);
    }

    /// The endpoint with the lower score gets the call.
    pub(super) fn score(&self, now: Instant) -> f32 {
        let share = self.share(self.failing.load(Ordering::Relaxed), now);
        (self.in_flight() + 1) as f32 * (1.0 + FAILURE_PENALTY * share)
    }

    /// Wraps around every 49 days: only differences are used.
    fn millis(&self, now: Instant) -> u32 {
        now.saturating_duration_since(self.start).as_millis() as u32
    }

    fn packed(&self, share: f32, now: Instant) -> u64 {
        if share < NEGLIGIBLE_SHARE {
            return 0;
        }
        u64::from(share.to_bits()) << 32 | u64::from(self.millis(now))
    }

    fn share(&self, packed: u64, now: Instant) -> f32 {
        let (bits, millis) = ((packed >> 32) as u32, packed as u32);
        let age = self.millis(now).wrapping_sub(millis);
        let share = f32::from_bits(bits) * (-(age as f32) / FAILURE_HALF_LIFE_MS).exp2();
        if share < NEGLIGIBLE_SHARE { 0.0 } else { share }
    }
}

/// The better of two randomly chosen `candidates`. If every call chose the best, all of them would go there
/// at once.
pub(super) fn pick<T>(candidates: impl Iterator<Item = T>, score: impl Fn(&T) -> f32) -> Option<T> {
    let (mut first, mut second) = (None, None);
    for (before, candidate) in candidates.enumerate() {
        // Reservoir sampling: each candidate has the same chance, in one pass.
        match fastrand::usize(..=before) {
            _ if before == 0 => first = Some(candidate),
            0 if before == 1 => second = first.replace(candidate),
            _ if before == 1 => second = Some(candidate),
            0 => first = Some(candidate),
            1 => second = Some(candidate),
            _ => {}
        }
    }
    match (first, second) {
        (Some(first), Some(second)) if score(&second) < score(&first) => Some(second),
        (first, _) => first,
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, task::Poll, time::Duration};

    use futures::poll;
    use tokio::time::timeout;

    use super::*;

    /// How `calls` are distributed, one each millisecond. `takes` is each endpoint's latency and `fails`
    /// whether it fails.
    fn shares(calls: u64, takes: [u64; 3], fails: [bool; 3]) -> [usize; 3] {
        let start = Instant::now();
        let loads = takes.map(|_| EndpointLoad::new(start));
        let (mut counts, mut under_way) = ([0; 3], Vec::new());
        for millis in 0..calls {
            let now = start + Duration::from_millis(millis);
            under_way.retain(|&(index, ends): &(usize, u64)| {
                if ends <= millis {
                    loads[index].ended();
                    loads[index].note(fails[index], now);
                }
                ends > millis
            });
            let index = pick(0..3, |&index: &usize| loads[index].score(now)).expect("there are three");
            loads[index].began();
            under_way.push((index, millis + takes[index]));
            // The first second is warm-up.
            counts[index] += usize::from(millis >= 1_000);
        }
        counts
    }

    #[test]
    fn endpoint_that_fails_at_once_gets_few_calls() {
        let counts = shares(11_000, [20, 20, 0], [false, false, true]);
        assert!(counts[2] < 500, "{counts:?}");
        assert!(counts[0].abs_diff(counts[1]) < 1_000, "{counts:?}");
    }

    #[test]
    fn slow_endpoint_gets_fewer_calls_than_quick_ones() {
        let counts = shares(11_000, [10, 10, 100], [false; 3]);
        assert!(counts[2] * 3 < counts[0] && counts[2] * 3 < counts[1] && counts[2] > 0, "{counts:?}");
    }

    #[test]
    fn endpoint_that_failed_is_forgiven_in_time() {
        let start = Instant::now();
        let load = EndpointLoad::new(start);
        for _ in 0..20 {
            load.note(true, start);
        }
        assert!(load.score(start) > 30.0);
        assert_eq!(load.score(start + Duration::from_secs(20)), 1.0, "as if it had never failed");
        load.note(false, start + Duration::from_secs(60));
        assert_eq!(load.failing.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn endpoint_is_forgiven_after_months_too() {
        let start = Instant::now();
        let load = EndpointLoad::new(start);
        // 32 bits of milliseconds are 49.7 days.
        for days in [48, 49, 50, 150] {
            let now = start + Duration::from_secs(days * 86_400 + 60_000);
            for _ in 0..20 {
                load.note(true, now);
            }
            assert!(load.score(now) > 30.0, "{days}");
            assert!(load.score(now + Duration::from_secs(60)) < 1.1, "{days}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_last_call_wakes_its_waiters() {
        let load = EndpointLoad::new(Instant::now());
        load.idle().await;
        load.began();
        load.began();
        let mut idle = pin!(load.idle());
        assert_eq!(poll!(&mut idle), Poll::Pending);
        assert_eq!(load.in_flight(), 2, "the waiter is not counted as a call");
        load.ended();
        assert_eq!(poll!(&mut idle), Poll::Pending, "one call is left");
        let start = Instant::now();
        let (woken, ()) = tokio::join!(timeout(Duration::from_secs(1), idle), async { load.ended() });
        assert_eq!((woken, start.elapsed()), (Ok(()), Duration::ZERO), "nothing polls");
    }

    #[test]
    fn of_none_none_is_picked_and_of_one_that_one() {
        assert_eq!(pick(std::iter::empty::<u8>(), |_| 1.0), None);
        assert_eq!(pick([7].into_iter(), |_| 1.0), Some(7));
    }

    #[test]
    fn equals_are_drawn_alike() {
        let mut counts = [0; 5];
        for _ in 0..10_000 {
            counts[pick(0..5, |_: &usize| 1.0).expect("there are five")] += 1;
        }
        assert!(counts.iter().all(|count| (1_700..2_300).contains(count)), "{counts:?}");
    }

    #[test]
    fn the_worst_of_many_is_never_picked() {
        assert!((0..1_000).all(|_| pick(0..5, |index: &usize| *index as f32) != Some(4)));
    }
}
