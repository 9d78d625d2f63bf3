//! The queue of what a plugin observes: bounded by entries and by bytes, the oldest gives way and is counted,
//! and nobody waits for it (docs/protocol.md, section 3).

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::{sync::Notify, task::JoinHandle, time::sleep};

use super::{
    client::PluginClient,
    request::{Failure, Replied, Request},
};
use crate::step::Reason;

/// Most deliveries under way to one plugin: enough to keep up with a slow one, few beside the places for
/// calls.
const MOST_UNDER_WAY: usize = 8;

/// How often it is looked whether an open breaker lets one through.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Told what came of an entry; told that it was given up when nothing else was.
pub(super) struct Done(Option<Tell>);

type Tell = Box<dyn FnOnce(Result<Replied, Failure>) + Send>;

impl Done {
    pub(super) fn new(done: Tell) -> Self {
        Done(Some(done))
    }

    fn tell(mut self, result: Result<Replied, Failure>) {
        if let Some(done) = self.0.take() {
            done(result);
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(Failure::new(Reason::BulkheadFull, "given up: the observer's queue was full or ended")));
        }
    }
}

struct Entry {
    request: Request,
    size: usize,
    done: Done,
}

#[derive(Default)]
struct Queue {
    entries: VecDeque<Entry>,
    bytes: usize,
    ended: bool,
}

/// The queue and its delivery.
pub(super) struct Observers {
    queue: Mutex<Queue>,
    arrived: Notify,
    most_items: usize,
    most_bytes: usize,
    dropped: AtomicU64,
    delivery: Mutex<Option<JoinHandle<()>>>,
}

impl Observers {
    pub(super) fn new(most_items: usize, most_bytes: usize) -> Self {
        Observers {
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

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an entry and gives up the oldest while there is too much.
    pub(super) fn push(&self, request: Request, done: Done) {
        let size = request.size();
        let mut given_up = Vec::new();
        {
            let mut queue = self.queue();
            queue.bytes += size;
            queue.entries.push_back(Entry { request, size, done });
            while queue.ended || queue.entries.len() > self.most_items || queue.bytes > self.most_bytes {
                let Some(oldest) = queue.entries.pop_front() else { break };
                queue.bytes -= oldest.size;
                given_up.push(oldest);
            }
        }
        self.dropped.fetch_add(given_up.len() as u64, Ordering::Relaxed);
        // Outside the lock: they call back.
        drop(given_up);
        self.arrived.notify_one();
    }

    /// The next entry; none when the queue has ended and is empty. While the plugin's breakers are open the entries stay
    /// where they are: an outage that ends before the queue is full costs none of them. In the end they are tried at once.
    async fn next(&self, client: &PluginClient) -> Option<Entry> {
        loop {
            let arrived = self.arrived.notified();
            let (is_empty, ended) = {
                let queue = self.queue();
                (queue.entries.is_empty(), queue.ended)
            };
            match (is_empty, ended) {
                (true, true) => return None,
                (true, false) => arrived.await,
                (false, false) if client.is_held_back() => sleep(LOOK_AGAIN).await,
                (false, _) => {
                    let mut queue = self.queue();
                    if let Some(entry) = queue.entries.pop_front() {
                        queue.bytes -= entry.size;
                        return Some(entry);
                    }
                }
            }
        }
    }

    /// Starts the delivery: in order of arrival, several under way at once, one with `in_flight: 1`.
    pub(super) fn start(&self, client: Arc<PluginClient>, in_flight: usize) {
        let most = in_flight.clamp(1, MOST_UNDER_WAY);
        let delivery = tokio::spawn(async move { deliver_all(&client, most).await });
        *self.delivery.lock().unwrap_or_else(PoisonError::into_inner) = Some(delivery);
    }

    /// Ends the queue: delivers what is left before `end` resolves, gives up the rest and says how many that were.
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
                    // Waits until what was under way is dropped, and so counted.
                    let _ = delivery.await;
                }
            }
        }
        let left: Vec<_> = self.queue().entries.drain(..).collect();
        self.dropped.fetch_add(left.len() as u64, Ordering::Relaxed);
        self.dropped() - before
    }
}

/// On one task, so that breaking it off drops every delivery under way before `drain` counts.
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

async fn deliver(client: &PluginClient, entry: Entry) {
    let interrupted = Interrupted(Some(&client.observers.dropped));
    let result = client.deliver(entry.request).await;
    interrupted.finished();
    entry.done.tell(result);
}

/// Counts a delivery that was broken off.
struct Interrupted<'a>(Option<&'a AtomicU64>);

impl Interrupted<'_> {
    fn finished(mut self) {
        self.0 = None;
    }
}

impl Drop for Interrupted<'_> {
    fn drop(&mut self) {
        if let Some(dropped) = self.0 {
            dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}
