//! Places for calls under way to one plugin, and the queue before them (docs/protocol.md, section 6). With
//! one place the plugin is serialised.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};

/// Counts the calls under way and those that wait, in the order they came.
pub(super) struct Bulkhead {
    places: Semaphore,
    most: usize,
    waiting: AtomicUsize,
    queue: usize,
}

/// A place; given back on drop.
pub(super) struct Place<'a> {
    _permit: SemaphorePermit<'a>,
    /// How long the call waited for it.
    pub(super) waited: Duration,
}

/// Why there was no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// The queue is full.
    Queue,
    /// The wait was over.
    Wait,
}

impl Bulkhead {
    /// `in_flight` places (at least one) and a queue of `queue`.
    pub(super) fn new(in_flight: usize, queue: usize) -> Self {
        let places = in_flight.clamp(1, Semaphore::MAX_PERMITS);
        Bulkhead { places: Semaphore::new(places), most: places, waiting: AtomicUsize::new(0), queue }
    }

    /// Places taken at this moment.
    pub(super) fn taken(&self) -> usize {
        self.most - self.places.available_permits()
    }

    /// A place, at once or within `wait`.
    pub(super) async fn enter(&self, wait: Duration) -> Result<Place<'_>, Full> {
        if let Ok(permit) = self.places.try_acquire() {
            return Ok(Place { _permit: permit, waited: Duration::ZERO });
        }
        let _queued = Queued::new(&self.waiting, self.queue).ok_or(Full::Queue)?;
        let since = Instant::now();
        tokio::time::timeout(wait, self.place(since)).await.map_err(|_| Full::Wait)
    }

    /// A place, however long it takes and outside the queue: for observers, whose own queue is the bound.
    pub(super) async fn enter_patiently(&self) -> Place<'_> {
        self.place(Instant::now()).await
    }

    async fn place(&self, since: Instant) -> Place<'_> {
        let permit = self.places.acquire().await.expect("the semaphore is never closed");
        Place { _permit: permit, waited: since.elapsed() }
    }
}

/// A place in the queue; given back on drop, also by a caller that went away.
struct Queued<'a>(&'a AtomicUsize);

impl<'a> Queued<'a> {
    fn new(waiting: &'a AtomicUsize, queue: usize) -> Option<Self> {
        waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| (now < queue).then_some(now + 1))
            .ok()
            .map(|_| Queued(waiting))
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn call_beyond_the_queue_is_turned_away_at_once() {
        let bulkhead = Bulkhead::new(1, 1);
        let held = bulkhead.enter(Duration::ZERO).await.ok();
        let queued = bulkhead.enter(Duration::from_secs(1));
        tokio::pin!(queued);
        assert!(futures::poll!(&mut queued).is_pending());
        assert_eq!(bulkhead.enter(Duration::from_secs(1)).await.err(), Some(Full::Queue));
        drop(held);
        assert!(queued.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_a_place_ends() {
        let bulkhead = Bulkhead::new(1, 1);
        let _held = bulkhead.enter(Duration::ZERO).await.ok();
        let since = Instant::now();
        assert_eq!(bulkhead.enter(Duration::from_millis(500)).await.err(), Some(Full::Wait));
        assert_eq!(since.elapsed(), Duration::from_millis(500));
    }

    #[tokio::test(start_paused = true)]
    async fn caller_that_went_away_leaves_the_queue() {
        let bulkhead = Bulkhead::new(1, 1);
        let held = bulkhead.enter(Duration::ZERO).await.ok();
        {
            let queued = bulkhead.enter(Duration::from_secs(1));
            tokio::pin!(queued);
            assert!(futures::poll!(&mut queued).is_pending());
        }
        assert_eq!(bulkhead.waiting.load(Ordering::Relaxed), 0);
        drop(held);
        assert_eq!(bulkhead.enter(Duration::ZERO).await.map(|place| place.waited).ok(), Some(Duration::ZERO));
    }
}
