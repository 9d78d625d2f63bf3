//! The delivery queue of a plugin that observes, bounded by entries and by bytes and fair between tenants.
//! Tenants take turns. A full queue drops and counts the oldest entry of the tenant with the most. No call
//! waits for delivery (docs/protocol.md, section 6).

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::{sync::Notify, task::JoinHandle, time::sleep};

use crate::{
    core::{failure::Failure, step::Reason},
    fairness::fair_queue::{FairQueue, LaneMeasure, QueueEnd},
    upstream::{
        client::PluginClient,
        request::{PluginReply, PluginRequest},
    },
};

/// Most concurrent deliveries to one plugin: enough to keep up with a slow one, and few compared to the
/// permits for calls.
const MAX_DELIVERIES: usize = 8;

/// How often an open breaker is polled.
const BREAKER_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Called with the outcome of an entry. If it is dropped without an outcome, it reports that the entry was
/// dropped.
pub(super) struct DeliveryCallback(Option<DeliveryFn>);

type DeliveryFn = Box<dyn FnOnce(Result<PluginReply, Failure>) + Send>;

impl DeliveryCallback {
    pub(super) fn new(done: DeliveryFn) -> Self {
        DeliveryCallback(Some(done))
    }

    fn tell(mut self, result: Result<PluginReply, Failure>) {
        if let Some(done) = self.0.take() {
            done(result);
        }
    }
}

impl Drop for DeliveryCallback {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(Failure::new(Reason::BulkheadFull, "dropped: the observer's queue was full or ended")));
        }
    }
}

struct ObserverEntry {
    request: PluginRequest,
    done: DeliveryCallback,
}

#[derive(Default)]
struct ObserverQueue {
    entries: FairQueue<Arc<str>, ObserverEntry>,
    ended: bool,
}

pub(super) struct ObserverDelivery {
    queue: Mutex<ObserverQueue>,
    arrived: Notify,
    most_items: usize,
    most_bytes: usize,
    dropped: AtomicU64,
    delivery: Mutex<Option<JoinHandle<()>>>,
}

impl ObserverDelivery {
    pub(super) fn new(most_items: usize, most_bytes: usize) -> Self {
        ObserverDelivery {
            queue: Mutex::default(),
            arrived: Notify::new(),
            most_items,
            most_bytes,
            dropped: AtomicU64::new(0),
            delivery: Mutex::default(),
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(super) fn add_dropped(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    fn queue(&self) -> MutexGuard<'_, ObserverQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an entry. While the queue is over its bounds, the tenant with the most loses its oldest.
    pub(super) fn push(&self, request: PluginRequest, done: DeliveryCallback) {
        let (tenant, size) = (Arc::clone(&request.meta.tenant), request.size());
        let mut given_up = Vec::new();
        {
            let mut queue = self.queue();
            queue.entries.push(tenant, ObserverEntry { request, done }, size);
            let (ended, entries) = (queue.ended, &mut queue.entries);
            while ended || entries.len() > self.most_items || entries.size() > self.most_bytes {
                let over =
                    if entries.len() > self.most_items { LaneMeasure::Entries } else { LaneMeasure::Size };
                let Some((longest, _)) = entries.longest(over, |_| true) else { break };
                given_up.extend(entries.take(&longest, QueueEnd::Oldest));
            }
        }
        self.dropped.fetch_add(given_up.len() as u64, Ordering::Relaxed);
        // Outside the lock: dropping the entries runs their callbacks.
        drop(given_up);
        self.arrived.notify_one();
    }

    /// The next entry. Returns `None` when the queue has ended and is empty. While the plugin's breakers are
    /// open, for all or for a tenant, the entries stay queued: an outage that ends before the queue is full
    /// loses none. Once the queue is ending they are tried at once.
    async fn next(&self, client: &PluginClient) -> Option<ObserverEntry> {
        loop {
            let arrived = self.arrived.notified();
            let is_empty = {
                let mut queue = self.queue();
                let ended = queue.ended;
                // The check per tenant runs only if some tenant has a breaker of its own.
                let (waits, of_tenants) = (client.is_held_back(None), client.has_tenant_breakers());
                let is_held = |tenant: &Arc<str>| waits || of_tenants && client.is_held_back(Some(tenant));
                if let Some((_, entry)) =
                    queue.entries.pop(|tenant| (ended || !is_held(tenant)).then_some(()))
                {
                    return Some(entry);
                }
                if ended {
                    return None;
                }
                queue.entries.len() == 0
            };
            if is_empty {
                arrived.await;
            } else {
                tokio::select! {
                    () = arrived => {}
                    () = sleep(BREAKER_POLL_INTERVAL) => {}
                }
            }
        }
    }

    /// Starts the delivery, in order of arrival for each tenant. Several deliveries run concurrently, or one
    /// with `in_flight: 1`.
    pub(super) fn start(&self, client: Arc<PluginClient>, in_flight: usize) {
        let most = in_flight.clamp(1, MAX_DELIVERIES);
        let delivery = tokio::spawn(async move { deliver_all(&client, most).await });
        *self.delivery.lock().unwrap_or_else(PoisonError::into_inner) = Some(delivery);
    }

    /// Ends the queue: delivers the rest until `end` resolves, drops what is left, and returns how many
    /// entries were dropped.
    pub(super) async fn drain(&self, end: impl Future<Output = ()>) -> u64 {
        let before = self.dropped();
        self.queue().ended = true;
        self.arrived.notify_one();
        let delivery = self.delivery.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut delivery) = delivery {
            tokio::select! {
                biased;
                _ = &mut delivery => {}
                () = end => {
                    delivery.abort();
                    // Returns once the interrupted deliveries are dropped, and so counted.
                    let _ = delivery.await;
                }
            }
        }
        let left = self.queue().entries.drain();
        self.dropped.fetch_add(left.len() as u64, Ordering::Relaxed);
        self.dropped() - before
    }
}

/// Runs on one task, so that aborting it drops every running delivery before `drain` counts.
async fn deliver_all(client: &PluginClient, most: usize) {
    let mut under_way = FuturesUnordered::new();
    let mut ended = false;
    loop {
        tokio::select! {
            entry = client.observers.next(client), if !ended && under_way.len() < most => match entry {
                Some(entry) => under_way.push(deliver(client, entry)),
                None => ended = true,
            },
            Some(()) = under_way.next() => {}
            else => return,
        }
    }
}

async fn deliver(client: &PluginClient, entry: ObserverEntry) {
    let interrupted = InterruptionCounter(Some(&client.observers.dropped));
    let result = client.deliver(entry.request).await;
    interrupted.finished();
    entry.done.tell(result);
}

/// Counts an interrupted delivery.
struct InterruptionCounter<'a>(Option<&'a AtomicU64>);

impl InterruptionCounter<'_> {
    fn finished(mut self) {
        self.0 = None;
    }
}

impl Drop for InterruptionCounter<'_> {
    fn drop(&mut self) {
        if let Some(dropped) = self.0 {
            dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}
