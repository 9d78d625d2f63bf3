//! The lifetime of a published snapshot. Calls own the snapshot that they took. When its last holder drops
//! it, the tasks that wait for those calls are notified, and the snapshot is freed on a blocking thread.

use std::{collections::BTreeSet, ops::Deref};

use tokio::sync::watch;

use crate::{snapshot::ConfigSnapshot, task::drop_off_thread::DropOffThread};

/// A snapshot that is current, or is still held by a call.
pub struct PublishedSnapshot {
    snapshot: DropOffThread<ConfigSnapshot>,
    held: HeldSnapshot,
}

impl PublishedSnapshot {
    /// The position of this snapshot in the order of publication.
    pub(super) fn number(&self) -> u64 {
        self.held.number
    }
}

impl Deref for PublishedSnapshot {
    type Target = ConfigSnapshot;

    fn deref(&self) -> &ConfigSnapshot {
        &self.snapshot
    }
}

/// The published snapshots that are still held, by number.
pub(super) struct HeldSnapshots(watch::Sender<BTreeSet<u64>>);

impl HeldSnapshots {
    /// No snapshots.
    pub(super) fn new() -> Self {
        HeldSnapshots(watch::Sender::new(BTreeSet::new()))
    }

    /// Registers `snapshot` as number `number` until it is dropped.
    pub(super) fn publish(&self, number: u64, snapshot: ConfigSnapshot) -> PublishedSnapshot {
        PublishedSnapshot { snapshot: DropOffThread::new(snapshot), held: self.hold(number) }
    }

    fn hold(&self, number: u64) -> HeldSnapshot {
        self.0.send_modify(|held| {
            held.insert(number);
        });
        HeldSnapshot { number, held: self.0.clone() }
    }

    /// Resolves when nothing holds a snapshot with a number below `number`.
    pub(super) fn released_below(&self, number: u64) -> impl Future<Output = ()> + Send + use<> {
        let mut held = self.0.subscribe();
        async move {
            // An error means that the cell and all its snapshots are dropped.
            let _ = held.wait_for(|held| held.first().is_none_or(|first| *first >= number)).await;
        }
    }
}

/// Its drop marks the end of the last call that used the snapshot.
struct HeldSnapshot {
    number: u64,
    held: watch::Sender<BTreeSet<u64>>,
}

impl Drop for HeldSnapshot {
    fn drop(&mut self) {
        self.held.send_modify(|held| {
            held.remove(&self.number);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, task::Poll, time::Duration};

    use futures::poll;
    use tokio::time::{Instant, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_drop_of_the_last_earlier_snapshot_wakes_its_waiters() {
        let held = HeldSnapshots::new();
        let [first, second, _third] = [1, 2, 3].map(|number| held.hold(number));
        let mut released = pin!(held.released_below(3));
        assert_eq!(poll!(&mut released), Poll::Pending);
        drop(second);
        assert_eq!(poll!(&mut released), Poll::Pending, "the first one is still held");
        let start = Instant::now();
        let (woken, ()) = tokio::join!(timeout(Duration::from_secs(1), released), async { drop(first) });
        assert_eq!((woken, start.elapsed()), (Ok(()), Duration::ZERO), "nothing polls");
    }

    #[tokio::test(start_paused = true)]
    async fn a_snapshot_that_was_published_later_is_not_waited_for() {
        let held = HeldSnapshots::new();
        let first = held.hold(1);
        let released = held.released_below(2);
        let _second = held.hold(2);
        drop(first);
        timeout(Duration::from_secs(1), released).await.expect("the first one alone is waited for");
    }
}
