//! Limits concurrent calls to one plugin, with a queue in front (docs/protocol.md, section 6) that is fair
//! between tenants.
//!
//! The fewer permits are free, the fewer one tenant may hold. A freed permit goes to the waiting tenant that
//! holds the fewest, and a full queue rejects the newest call of the tenant with the most waiters. One permit
//! serialises the plugin.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

use crate::core::fair_share;
use crate::fairness::fair_queue::{FairQueue, LaneMeasure, QueueEnd};

/// Who a permit is accounted to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum PermitHolder {
    /// The calls of one tenant.
    Tenant(Arc<str>),
    /// Deliveries to the plugin as an observer, for all tenants. They have a queue of their own, fair in
    /// itself.
    Observers,
}

/// A queued call, and the channel that sends its permit.
struct Waiter {
    number: u64,
    admit: oneshot::Sender<BulkheadPermit>,
}

#[derive(Default)]
struct BulkheadState {
    /// Permits by holder; holders without permits are absent.
    held: HashMap<PermitHolder, usize>,
    taken: usize,
    waiting: FairQueue<PermitHolder, Waiter>,
    /// The number of the newest waiter.
    number: u64,
}

struct BulkheadInner {
    /// Locked for a few instructions, and never across an await.
    state: Mutex<BulkheadState>,
    places: usize,
    queue: usize,
}

/// Counts running and queued calls.
pub(crate) struct Bulkhead(Arc<BulkheadInner>);

/// A permit; returned on drop.
pub(crate) struct BulkheadPermit {
    bulkhead: Arc<BulkheadInner>,
    holder: PermitHolder,
    /// How long the call waited for the permit.
    pub(crate) waited: Duration,
}

/// Why no permit was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// The queue is full.
    Queue,
    /// The wait timed out.
    Wait,
}

/// How many permits `holder` has, if it may take one more while `free` are free. Otherwise `None`.
fn may_enter(held: &HashMap<PermitHolder, usize>, holder: &PermitHolder, free: usize) -> Option<usize> {
    let held = held.get(holder).copied().unwrap_or(0);
    (free > 0 && fair_share::may_take(held, free)).then_some(held)
}

impl BulkheadState {
    /// How many permits `holder` has, if it may take one more. Otherwise `None`.
    fn may_enter(&self, holder: &PermitHolder, places: usize) -> Option<usize> {
        may_enter(&self.held, holder, places - self.taken)
    }

    fn enter(&mut self, holder: &PermitHolder) {
        self.taken += 1;
        match self.held.get_mut(holder) {
            Some(held) => *held += 1,
            None => drop(self.held.insert(holder.clone(), 1)),
        }
    }

    fn leave(&mut self, holder: &PermitHolder) {
        self.taken -= 1;
        if let Some(held) = self.held.get_mut(holder) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(holder);
            }
        }
    }

    /// Removes the next waiter that may enter, and counts its permit as taken.
    fn admit(&mut self, places: usize) -> Option<(PermitHolder, Waiter)> {
        let (held, free) = (&self.held, places - self.taken);
        let (holder, waiter) = self.waiting.pop(|holder| may_enter(held, holder, free))?;
        self.enter(&holder);
        Some((holder, waiter))
    }

    /// Makes room for one more waiter of `holder`: removes the newest waiter of the holder with the most,
    /// unless that is `holder` itself.
    fn make_room(&mut self, holder: &PermitHolder) -> Option<Waiter> {
        let (longest, len) =
            self.waiting.longest(LaneMeasure::Entries, |holder| *holder != PermitHolder::Observers)?;
        if len <= self.waiting.len_of(holder) + 1 {
            return None;
        }
        self.waiting.take(&longest, QueueEnd::Newest)
    }
}

impl BulkheadInner {
    fn state(&self) -> MutexGuard<'_, BulkheadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BulkheadPermit {
    fn new(bulkhead: &Arc<BulkheadInner>, holder: PermitHolder) -> Self {
        BulkheadPermit { bulkhead: Arc::clone(bulkhead), holder, waited: Duration::ZERO }
    }
}

impl Drop for BulkheadPermit {
    fn drop(&mut self) {
        // In the same critical section, so that no newcomer takes the freed permit before a waiter.
        let mut next = {
            let mut state = self.bulkhead.state();
            state.leave(&self.holder);
            state.admit(self.bulkhead.places)
        };
        // Outside the lock: if the waiter went away, its permit is dropped here, which locks again.
        while let Some((holder, waiter)) = next {
            let _ = waiter.admit.send(BulkheadPermit::new(&self.bulkhead, holder));
            next = self.bulkhead.state().admit(self.bulkhead.places);
        }
    }
}

impl Bulkhead {
    /// A bulkhead with `in_flight` permits (at least one) and room for `queue` waiters.
    pub(crate) fn new(in_flight: usize, queue: usize) -> Self {
        Bulkhead(Arc::new(BulkheadInner { state: Mutex::default(), places: in_flight.max(1), queue }))
    }

    pub(crate) fn taken(&self) -> usize {
        self.0.state().taken
    }

    /// A permit for a call of `tenant`, at once or within `wait`.
    pub(crate) async fn enter(&self, tenant: &Arc<str>, wait: Duration) -> Result<BulkheadPermit, Full> {
        match self.queue_up(PermitHolder::Tenant(Arc::clone(tenant)), self.0.queue)? {
            PermitRequest::Now(place) => Ok(place),
            PermitRequest::Later(queued) => timeout(wait, queued.place()).await.map_err(|_| Full::Wait)?,
        }
    }

    /// A permit for a delivery to an observer. It waits without a limit and outside the queue: the observers'
    /// own queue is the bound.
    pub(crate) async fn enter_observer(&self) -> BulkheadPermit {
        let turn = self.queue_up(PermitHolder::Observers, usize::MAX);
        let place = match turn.expect("no queue is so long") {
            PermitRequest::Now(place) => Ok(place),
            PermitRequest::Later(queued) => queued.place().await,
        };
        place.expect("only calls are turned away from the queue")
    }

    /// A permit, or a position in the queue if fewer than `most` wait.
    fn queue_up(&self, holder: PermitHolder, most: usize) -> Result<PermitRequest, Full> {
        let mut state = self.0.state();
        if state.may_enter(&holder, self.0.places).is_some() {
            state.enter(&holder);
            return Ok(PermitRequest::Now(BulkheadPermit::new(&self.0, holder)));
        }
        let waiting = state.waiting.len() - state.waiting.len_of(&PermitHolder::Observers);
        // Dropping its sender at the end of this function tells the waiter.
        let _turned_away = match waiting >= most {
            true => Some(state.make_room(&holder).ok_or(Full::Queue)?),
            false => None,
        };
        state.number += 1;
        let (number, (admit, admitted)) = (state.number, oneshot::channel());
        state.waiting.push(holder.clone(), Waiter { number, admit }, 1);
        let bulkhead = Arc::clone(&self.0);
        Ok(PermitRequest::Later(QueueEntry { bulkhead, holder, number, admitted, since: Instant::now() }))
    }
}

/// What a call gets when it arrives.
enum PermitRequest {
    Now(BulkheadPermit),
    Later(QueueEntry),
}

/// A position in the queue; given up on drop, also when the caller goes away.
struct QueueEntry {
    bulkhead: Arc<BulkheadInner>,
    holder: PermitHolder,
    number: u64,
    admitted: oneshot::Receiver<BulkheadPermit>,
    since: Instant,
}

impl QueueEntry {
    async fn place(mut self) -> Result<BulkheadPermit, Full> {
        // The sender is dropped when the position went to another tenant.
        let mut place = (&mut self.admitted).await.map_err(|_| Full::Queue)?;
        place.waited = self.since.elapsed();
        Ok(place)
    }
}

impl Drop for QueueEntry {
    fn drop(&mut self) {
        let left = self.bulkhead.state().waiting.remove(&self.holder, |waiter| waiter.number == self.number);
        drop(left);
    }
}

#[cfg(test)]
#[path = "bulkhead_tests.rs"]
mod tests;
