//! Recent events of this process: every log line that has the field `event`, whatever `log.level` is. They
//! are kept in three bounded rings that followers read (docs/decisions/0029).
//!
//! Writers never wait for readers: a follower is a position in the rings, and one that is too slow misses
//! events. This module knows nothing of HTTP, or of who may see what.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use tokio::sync::watch;
use tracing::{Level, Metadata, Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{Layer, filter::FilterFn, layer::Context, registry::LookupSpan};

use crate::{
    core::fair_share,
    telemetry::json_fields::{JsonFields, quoted},
};

/// The event that a plugin emitted itself. Its `name` is the plugin's.
pub const EMITTED: &str = "plugin.emitted";
/// Capacity of each ring: for events of single calls, for those that plugins emit, and for all others. They are
/// separate so that neither a tenant whose calls are all blocked nor a plugin that emits much pushes out the event of a
/// lost plugin.
pub const MAX_KEPT_EVENTS: usize = 1000;
/// Capacity of each ring in bytes of text.
const MAX_KEPT_BYTES: usize = 4 << 20;
/// Most concurrent followers.
pub const MAX_FOLLOWERS: usize = 32;

/// A log line that is an event.
#[derive(Debug)]
pub struct Event {
    /// Microseconds since 1970, increased where necessary to be unique and ascending. It orders and
    /// identifies the event. Unlike a sequence number it doesn't reveal how many events its reader may not
    /// see.
    pub id: u64,
    pub level: Level,
    /// The event's name, such as `plugin.connected`.
    pub name: String,
    /// Whose share of the ring it takes: the tenant whose call it is about, or the plugin that emitted it.
    owner: Option<Arc<str>>,
    /// The line's members as JSON, joined by commas.
    text: String,
    /// The members' names, and where each ends in `text`.
    ends: Vec<(&'static str, usize)>,
}

impl Event {
    /// The members of the line, as JSON: `"plugin":"guard"`.
    pub fn members(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let mut from = 0;
        self.ends.iter().map(move |&(name, end)| {
            let member = &self.text[from..end];
            from = end + 1;
            (name, member)
        })
    }

    /// Whether the line has a member `name` with this text as its value.
    pub fn says(&self, name: &str, value: &str) -> bool {
        let member = self.members().find(|(known, _)| *known == name);
        member.is_some_and(|(_, member)| member == format!("{}:{}", quoted(name), quoted(value)))
    }

    /// The index of the ring that keeps it.
    fn ring(&self) -> usize {
        let is_of_a_call = || self.ends.iter().any(|(name, _)| *name == "request_id");
        match &*self.name {
            EMITTED => 1,
            _ if is_of_a_call() => 0,
            _ => 2,
        }
    }

    fn from_log_line(line: &tracing::Event<'_>) -> Option<Self> {
        let (text, ends) = JsonFields::from_event(line).ok()?.into_parts();
        let level = *line.metadata().level();
        let mut event = Event { id: 0, level, name: String::new(), owner: None, text, ends };
        let (_, name) = event.members().find(|(name, _)| *name == "event")?;
        event.name = serde_json::from_str(name.strip_prefix("\"event\":")?).ok()?;
        let owner = if event.name == EMITTED { "plugin" } else { "tenant" };
        let owner = event.members().find(|(name, _)| *name == owner).map(|(_, owner)| Arc::from(owner));
        event.owner = owner;
        Some(event)
    }
}

/// The last events of one kind. A full ring drops the oldest event of the owner with the most, so that a
/// tenant whose calls are all blocked pushes out its own.
#[derive(Debug, Default)]
struct EventRing {
    /// Events with their sequence numbers, counted from the start of the process.
    events: VecDeque<(u64, Arc<Event>)>,
    /// Number and bytes of each owner's events.
    owners: HashMap<Option<Arc<str>>, (usize, usize)>,
    bytes: usize,
    /// The total number of events so far.
    end: u64,
    /// The highest id among the dropped events.
    last_gone: u64,
}

impl EventRing {
    fn push(&mut self, event: Arc<Event>) {
        let bytes = event.text.len();
        let of_owner = self.owners.entry(event.owner.clone()).or_default();
        *of_owner = (of_owner.0 + 1, of_owner.1 + bytes);
        self.bytes += bytes;
        self.events.push_back((self.end, event));
        self.end += 1;
        while self.events.len() > MAX_KEPT_EVENTS || self.bytes > MAX_KEPT_BYTES {
            self.remove_oldest_of_largest();
        }
    }

    fn remove_oldest_of_largest(&mut self) {
        let by_count = self.events.len() > MAX_KEPT_EVENTS;
        let size = |&(count, bytes): &(usize, usize)| if by_count { count } else { bytes };
        let largest = self.owners.iter().max_by_key(|(_, of_owner)| size(of_owner));
        let largest = largest.map(|(owner, _)| owner.clone()).unwrap_or_default();
        let oldest = self.events.iter().position(|(_, event)| event.owner == largest);
        let Some((_, gone)) = self.events.remove(oldest.unwrap_or_default()) else { return };
        self.bytes -= gone.text.len();
        self.last_gone = self.last_gone.max(gone.id);
        if let Some(of_owner) = self.owners.get_mut(&gone.owner) {
            *of_owner = (of_owner.0 - 1, of_owner.1 - gone.text.len());
            if of_owner.0 == 0 {
                self.owners.remove(&gone.owner);
            }
        }
    }

    /// The sequence number of the first event at or after `index`.
    fn number(&self, index: usize) -> u64 {
        self.events.get(index).map_or(self.end, |(number, _)| *number)
    }

    /// The sequence number of the first event after `id`.
    fn after(&self, id: u64) -> u64 {
        self.number(self.events.partition_point(|(_, event)| event.id <= id))
    }

    /// The first event kept with this sequence number or a higher one.
    fn from(&self, number: u64) -> Option<&(u64, Arc<Event>)> {
        self.events.get(self.events.partition_point(|(other, _)| *other < number))
    }
}

#[derive(Debug, Default)]
struct EventBuffer {
    /// Events of single calls, those that plugins emitted, and all others.
    rings: [EventRing; 3],
    last: u64,
}

/// A reader's position in each ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventCursor([u64; 3]);

/// The result of a read.
#[derive(Debug, Default)]
pub struct EventBatch {
    /// In order.
    pub events: Vec<Arc<Event>>,
    /// How many unread events were dropped.
    pub missed: u64,
}

/// The recent events of a process.
#[derive(Debug)]
pub struct Events {
    kept: Mutex<EventBuffer>,
    arrived: watch::Sender<()>,
    followers: Arc<Mutex<FollowerCounts>>,
}

impl Default for Events {
    fn default() -> Self {
        Events { kept: Mutex::default(), arrived: watch::Sender::new(()), followers: Arc::default() }
    }
}

impl Events {
    fn lock_buffer(&self) -> MutexGuard<'_, EventBuffer> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, mut event: Event) {
        let ring = event.ring();
        {
            let mut kept = self.lock_buffer();
            event.id = micros(SystemTime::now()).max(kept.last + 1);
            kept.last = event.id;
            kept.rings[ring].push(Arc::new(event));
        }
        // A reader that subscribes later reads the rings after subscribing, and finds the event there.
        if self.arrived.receiver_count() > 0 {
            self.arrived.send_replace(());
        }
    }

    /// The position of the oldest kept event.
    pub fn start(&self) -> EventCursor {
        EventCursor(self.lock_buffer().rings.each_ref().map(|ring| ring.number(0)))
    }

    /// The position after the newest event.
    pub fn end(&self) -> EventCursor {
        EventCursor(self.lock_buffer().rings.each_ref().map(|ring| ring.end))
    }

    /// The position after the event with this id, and whether any event after it was dropped.
    pub fn after(&self, id: u64) -> (EventCursor, bool) {
        let kept = self.lock_buffer();
        let gone = kept.rings.iter().any(|ring| ring.last_gone > id);
        (EventCursor(kept.rings.each_ref().map(|ring| ring.after(id))), gone)
    }

    /// Reads at most `most` events and advances `place`.
    pub fn read(&self, place: &mut EventCursor, most: usize) -> EventBatch {
        let mut batch = EventBatch::default();
        let kept = self.lock_buffer();
        while batch.events.len() < most {
            let heads = kept.rings.iter().zip(place.0).map(|(ring, next)| ring.from(next));
            let heads = heads.enumerate().filter_map(|(ring, head)| Some((ring, head?)));
            let Some((ring, (number, event))) = heads.min_by_key(|(_, (_, event))| event.id) else { break };
            batch.events.push(Arc::clone(event));
            batch.missed += number - place.0[ring];
            place.0[ring] = number + 1;
        }
        // The rest of this ring was dropped.
        for (next, ring) in place.0.iter_mut().zip(&kept.rings) {
            if ring.from(*next).is_none() {
                batch.missed += ring.end - *next;
                *next = ring.end;
            }
        }
        batch
    }

    /// A follower, which is notified of new events. Returns `None` if there are too many followers, or if the
    /// free slots are reserved for others than `tenant`.
    pub fn follow(&self, tenant: Option<&str>) -> Option<Follower> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner).add(tenant)?;
        let (followers, tenant) = (Arc::clone(&self.followers), tenant.map(str::to_owned));
        Some(Follower { arrived: self.arrived.subscribe(), _seat: FollowerPermit { followers, tenant } })
    }
}

/// The number of followers, in all and by the tenant of their token.
#[derive(Debug, Default)]
struct FollowerCounts {
    all: usize,
    tenants: HashMap<String, usize>,
}

impl FollowerCounts {
    fn add(&mut self, tenant: Option<&str>) -> Option<()> {
        let free = MAX_FOLLOWERS.checked_sub(self.all).filter(|free| *free > 0)?;
        if let Some(tenant) = tenant {
            let held = self.tenants.get(tenant).copied().unwrap_or_default();
            if !fair_share::may_take(held, free) {
                return None;
            }
            self.tenants.insert(tenant.to_owned(), held + 1);
        }
        self.all += 1;
        Some(())
    }

    fn remove(&mut self, tenant: Option<&str>) {
        self.all -= 1;
        if let Some(tenant) = tenant
            && let Some(held) = self.tenants.get_mut(tenant)
        {
            *held -= 1;
            if *held == 0 {
                self.tenants.remove(tenant);
            }
        }
    }
}

/// One follower's slot; given back on drop.
#[derive(Debug)]
struct FollowerPermit {
    followers: Arc<Mutex<FollowerCounts>>,
    tenant: Option<String>,
}

impl Drop for FollowerPermit {
    fn drop(&mut self) {
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        followers.remove(self.tenant.as_deref());
    }
}

/// One of at most [`MAX_FOLLOWERS`].
#[derive(Debug)]
pub struct Follower {
    arrived: watch::Receiver<()>,
    _seat: FollowerPermit,
}

impl Follower {
    /// Resolves when events have arrived since it last resolved, or since the follower was created.
    pub async fn more(&mut self) {
        if self.arrived.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Microseconds since 1970.
pub fn micros(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

struct EventLayer(Arc<Events>);

impl<S: Subscriber> Layer<S> for EventLayer {
    fn on_event(&self, line: &tracing::Event<'_>, _: Context<'_, S>) {
        if let Some(event) = Event::from_log_line(line) {
            self.0.add(event);
        }
    }
}

/// Collects events from log lines. The layer has its own filter, so that the log's level doesn't apply to
/// events.
pub(super) fn layer<S>(events: &Arc<Events>) -> impl Layer<S> + use<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let filter = FilterFn::new(is_event).with_max_level_hint(LevelFilter::INFO);
    EventLayer(Arc::clone(events)).with_filter(filter)
}

fn is_event(line: &Metadata<'_>) -> bool {
    line.is_event()
        && *line.level() <= Level::INFO
        && line.target().starts_with("hookgate")
        && line.fields().field("event").is_some()
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
