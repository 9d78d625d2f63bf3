//! Serves events: as one document, or as a stream of server-sent events. Each event is its log line plus an
//! id (docs/status.md).
//!
//! A token that names a tenant sees only the calls of that tenant, and of each event only the members that
//! the tenant's agents may know.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, header::AUTHORIZATION, request::Parts};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep};
use tokio_util::sync::CancellationToken;

use self::query::{EventsQuery, EventsSince};
pub(super) use crate::admin::events::visibility::Visibility;
use crate::{
    auth::{Operator, RefusalReason},
    core::error::{Code, Error},
    dataplane::call::Gateway,
    net::unix_listener::LocalUser,
    telemetry::events::{Event, EventBatch, EventCursor, Events, Follower, MAX_FOLLOWERS, micros},
};

mod encode;
pub(super) mod query;
mod visibility;

/// While nothing happens, a stream sends a comment this often, so that no proxy on the way takes the
/// connection for dead. The token is checked again at the same time.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);
/// The maximum number of events written at once.
const MAX_BATCH_EVENTS: usize = 64;
/// `Retry-After` for a client that was refused because too many others follow.
const FOLLOW_RETRY_AFTER: Duration = Duration::from_secs(5);

/// The answer to a request for events: a document or a stream.
pub(super) enum EventsAnswer {
    Kept(Bytes),
    Following(Body),
}

#[derive(Clone, Copy)]
pub(super) struct EventsRequest<'a> {
    pub(super) gateway: &'a Arc<Gateway>,
    pub(super) head: &'a Parts,
    pub(super) operator: &'a Operator,
    /// The tenant that the caller is confined to.
    pub(super) reader: Option<&'a str>,
    /// Cancelled when streams must end.
    pub(super) ended: &'a CancellationToken,
}

/// The recorded events that match a query.
pub(super) struct EventsPage {
    pub(super) events: Vec<Arc<Event>>,
    /// Whether matching events have already been discarded.
    pub(super) dropped: bool,
    pub(super) seen: Visibility,
}

/// One step of a stream.
pub(super) enum StreamItem {
    /// The start, sent at once, so that a client sees that it was accepted before the first event. `gap`:
    /// matching events have already been discarded.
    Begins { gap: bool },
    /// These events, in order. `dropped` says that events were lost before them because the client read too
    /// slowly. The inner value is their number, or `None` if this reader may not know it.
    Events { dropped: Option<Option<u64>>, events: Vec<Arc<Event>> },
    /// Nothing new for [`HEARTBEAT_INTERVAL`].
    Quiet,
    /// The end; always the last step.
    Ends(StreamEnd),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamEnd {
    Draining,
    TokenExpired,
    TokenRefused,
}

/// Answers the request in the query.
///
/// # Errors
/// PAYLOAD_INVALID, naming the member that is wrong. OVERLOADED if too many clients follow.
pub(super) fn answer(asking: EventsRequest<'_>) -> Result<EventsAnswer, Error> {
    let asked = query::read(asking.head)?;
    if !asked.follow {
        return Ok(EventsAnswer::Kept(encode::json(&recorded_page(asking, &asked))));
    }
    Ok(EventsAnswer::Following(encode::events(follow(asking, &asked)?)))
}

/// The recorded events that match `asked`, at most [`query::MAX_EVENTS`] of the latest ones.
pub(super) fn recorded_page(asking: EventsRequest<'_>, asked: &EventsQuery) -> EventsPage {
    let seen = seen(asking, asked);
    let events = asking.gateway.telemetry.events();
    let (mut place, gap) = begin(events, asked, &seen);
    let batch = events.read(&mut place, usize::MAX);
    let mut shown: Vec<_> = batch.events.into_iter().filter(|event| seen.shows(event)).collect();
    shown.drain(..shown.len().saturating_sub(query::MAX_EVENTS));
    EventsPage { events: shown, dropped: gap || batch.missed > 0, seen }
}

/// Streams the recorded events that match `asked`, then new ones until `asking.ended`.
///
/// # Errors
/// OVERLOADED if too many clients follow.
pub(super) fn follow(asking: EventsRequest<'_>, asked: &EventsQuery) -> Result<EventStream, Error> {
    let EventsRequest { gateway, head, operator, ended, .. } = asking;
    let seen = seen(asking, asked);
    let events = Arc::clone(gateway.telemetry.events());
    // Follow before reading the rings, so that no event in between is lost.
    let follower = events.follow(seen.reader()).ok_or_else(|| {
        let detail = format!(
            "Too many clients follow the events of this process: at most {MAX_FOLLOWERS} may, and each tenant only \
             its share"
        );
        Error::new(Code::Overloaded, detail).retry_after(FOLLOW_RETRY_AFTER)
    })?;
    let (place, gap) = begin(&events, asked, &seen);
    let token = head.headers.get(AUTHORIZATION).cloned();
    let local = head.extensions.get::<LocalUser>().copied();
    let mut beat = interval_at(Instant::now() + HEARTBEAT_INTERVAL, HEARTBEAT_INTERVAL);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    Ok(EventStream {
        gateway: Arc::clone(gateway),
        events,
        follower,
        place,
        token: token.into_iter().map(|token| (AUTHORIZATION, token)).collect(),
        local,
        until: operator.until(),
        beat,
        ended: ended.clone(),
        first: Some(StreamItem::Begins { gap }),
        seen,
    })
}

fn seen(asking: EventsRequest<'_>, asked: &EventsQuery) -> Visibility {
    Visibility::new(tag(asking.gateway.telemetry.instance()), asked, asking.reader)
}

/// The process's tag in event ids: the random part of its instance id, without the time.
fn tag(instance: &str) -> String {
    instance.rsplit('-').next().unwrap_or_default().to_owned()
}

/// Returns where to begin, and whether events that were asked for are gone.
fn begin(events: &Events, asked: &EventsQuery, seen: &Visibility) -> (EventCursor, bool) {
    let (since, gap) = match &asked.since {
        Some(EventsSince::Id { process, id }) if *process == seen.tag => events.after(*id),
        // The id is from another process, or from this one before a restart: its events are unknown here.
        Some(EventsSince::Id { .. }) => (events.start(), true),
        Some(EventsSince::Ago(ago)) => {
            let from = SystemTime::now().checked_sub(*ago);
            (events.after(from.map_or(0, micros)).0, false)
        }
        None if asked.follow && asked.limit.is_none() => (events.end(), false),
        None => (events.start(), false),
    };
    let Some(limit) = asked.limit else { return (since, gap) };
    // With a limit, begin at the first of the last `limit` matching events.
    let mut place = since;
    let fitting = events.read(&mut place, usize::MAX).events;
    let mut last = fitting.iter().rev().filter(|event| seen.shows(event)).take(limit);
    let all = last.by_ref().last().map(|event| event.id);
    (all.map_or(place, |first| events.after(first - 1).0), gap)
}

pub(super) struct EventStream {
    gateway: Arc<Gateway>,
    events: Arc<Events>,
    follower: Follower,
    place: EventCursor,
    pub(super) seen: Visibility,
    /// The token, which is checked again on each heartbeat.
    token: HeaderMap,
    /// The caller's identity if the request came over the admin socket.
    local: Option<LocalUser>,
    /// When the token expires, if it does.
    until: Option<SystemTime>,
    beat: Interval,
    ended: CancellationToken,
    first: Option<StreamItem>,
}

impl EventStream {
    /// Waits for the next step. Must not be called again after [`StreamItem::Ends`]. It is called only once
    /// the previous step is written, so a slow reader costs no buffer, only a cursor.
    pub(super) async fn next(&mut self) -> StreamItem {
        if let Some(first) = self.first.take() {
            return first;
        }
        loop {
            // Check this first, so that events from before the end are still sent.
            let ended = self.ended.is_cancelled();
            let left = |until: SystemTime| until.duration_since(SystemTime::now()).unwrap_or_default();
            let left = self.until.map_or(Duration::MAX, left);
            if left.is_zero() {
                return StreamItem::Ends(StreamEnd::TokenExpired);
            }
            let EventBatch { mut events, missed } = self.events.read(&mut self.place, MAX_BATCH_EVENTS);
            let is_full = events.len() == MAX_BATCH_EVENTS;
            events.retain(|event| self.seen.shows(event));
            if missed > 0 || !events.is_empty() {
                let dropped = (missed > 0).then(|| self.seen.missed(missed));
                return StreamItem::Events { dropped, events };
            }
            if is_full {
                // None matched. Let other tasks run before reading on.
                tokio::task::yield_now().await;
                continue;
            }
            if ended {
                return StreamItem::Ends(StreamEnd::Draining);
            }
            tokio::select! {
                () = self.ended.cancelled() => {}
                () = self.follower.more() => {}
                () = sleep(left) => {}
                _ = self.beat.tick() => return self.token_refused().await.map_or(StreamItem::Quiet, StreamItem::Ends),
            }
        }
    }

    /// Returns why the token is no longer valid; the configuration may have changed since the stream began.
    /// If keys can't be fetched right now, the stream goes on.
    async fn token_refused(&self) -> Option<StreamEnd> {
        let snapshot = self.gateway.snapshots.current();
        let operator = super::operator(&snapshot, self.local, &self.token).await;
        let reader = operator.and_then(|operator| Ok(operator.reader()?.map(|tenant| tenant.to_string())));
        match reader {
            Ok(reader) if reader.as_deref() == self.seen.reader() => None,
            Err(refusal) if refusal.reason.code().http() >= 500 => None,
            Err(refusal) if refusal.reason == RefusalReason::Expired => Some(StreamEnd::TokenExpired),
            Ok(_) | Err(_) => Some(StreamEnd::TokenRefused),
        }
    }
}
