//! How long to wait after failures in a row.

use std::time::Duration;

/// The wait after the first failure.
const MIN_WAIT: Duration = Duration::from_millis(100);
/// The longest wait.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Waits that double with every failure, with jitter, so that processes that lost the same gateway don't return at the
/// same moment.
pub(super) struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { next: MIN_WAIT }
    }
}

impl Backoff {
    /// The wait after one more failure.
    pub(super) fn next_wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(MAX_WAIT);
        wait.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// Forgets the failures.
    pub(super) fn reset(&mut self) {
        *self = Backoff::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_ten_seconds_and_begin_again_after_a_reset() {
        let mut backoff = Backoff::default();
        for full in [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000].map(Duration::from_millis) {
            let wait = backoff.next_wait();
            assert!(full / 2 <= wait && wait <= full, "{wait:?} of {full:?}");
        }
        backoff.reset();
        assert!(backoff.next_wait() <= MIN_WAIT);
    }
}
