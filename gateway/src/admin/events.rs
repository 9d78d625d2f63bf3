//! What happened lately, and what does: as one document, or as a stream of server-sent events that goes on. Each event is
//! the line of the log with an id beside (docs/status.md).
//!
//! A token that names a tenant is told of the calls of that tenant, and of them what an agent of it may know too.

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

/// A comment so often where nothing happens, so that nobody on the way takes the connection for dead; the token is
/// looked at again then.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);
/// Most events that are written in one piece.
const MAX_BATCH_EVENTS: usize = 64;
/// After which a place among those who follow may be free.
const FOLLOW_RETRY_AFTER: Duration = Duration::from_secs(5);

/// What answers.
pub(super) enum EventsAnswer {
    Kept(Bytes),
    Following(Body),
}

/// Who asks.
#[derive(Clone, Copy)]
pub(super) struct EventsRequest<'a> {
    pub(super) gateway: &'a Arc<Gateway>,
    pub(super) head: &'a Parts,
    pub(super) operator: &'a Operator,
    /// Whom he is confined to.
    pub(super) reader: Option<&'a str>,
    /// Until when a stream goes on.
    pub(super) ended: &'a CancellationToken,
}

/// What is kept of what was asked for.
pub(super) struct EventsPage {
    pub(super) events: Vec<Arc<Event>>,
    /// Whether some that were asked for are gone.
    pub(super) dropped: bool,
    pub(super) seen: Visibility,
}

/// What a stream goes on with.
pub(super) enum StreamItem {
    /// Its beginning, at once: else a client may not see before the first event that it was let in. `gap`: something that
    /// was asked for is gone.
    Begins { gap: bool },
    /// These, in order, and before them so many that were not read in time (none: nobody may know how many).
    Events { dropped: Option<Option<u64>>, events: Vec<Arc<Event>> },
    /// Nothing new for a while.
    Quiet,
    /// Its end.
    Ends(StreamEnd),
}

/// Why a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamEnd {
    Draining,
    TokenExpired,
    TokenRefused,
}

/// Answers the question in the query.
///
/// # Errors
/// PAYLOAD_INVALID, naming the member that is wrong; OVERLOADED where too many follow.
pub(super) fn answer(asking: EventsRequest<'_>) -> Result<EventsAnswer, Error> {
    let asked = query::read(asking.head)?;
    if !asked.follow {
        return Ok(EventsAnswer::Kept(encode::json(&recorded_page(asking, &asked))));
    }
    Ok(EventsAnswer::Following(encode::events(follow(asking, &asked)?)))
}

/// What is kept of what `asked` wants, the last [`query::MOST`] at most.
pub(super) fn recorded_page(asking: EventsRequest<'_>, asked: &EventsQuery) -> EventsPage {
    let seen = seen(asking, asked);
    let events = asking.gateway.telemetry.events();
    let (mut place, gap) = begin(events, asked, &seen);
    let batch = events.read(&mut place, usize::MAX);
    let mut shown: Vec<_> = batch.events.into_iter().filter(|event| seen.shows(event)).collect();
    shown.drain(..shown.len().saturating_sub(query::MAX_EVENTS));
    EventsPage { events: shown, dropped: gap || batch.missed > 0, seen }
}

/// What `asked` wants, and what happens from now on until `asking.ended`.
///
/// # Errors
/// OVERLOADED: too many follow.
pub(super) fn follow(asking: EventsRequest<'_>, asked: &EventsQuery) -> Result<EventStream, Error> {
    let EventsRequest { gateway, head, operator, ended, .. } = asking;
    let seen = seen(asking, asked);
    let events = Arc::clone(gateway.telemetry.events());
    // Before the rings are looked at: what comes in between is told then.
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

/// What this process is called in ids: the part of its instance that is by chance and tells no time.
fn tag(instance: &str) -> String {
    instance.rsplit('-').next().unwrap_or_default().to_owned()
}

/// Where to begin, and whether something that was asked for is gone.
fn begin(events: &Events, asked: &EventsQuery, seen: &Visibility) -> (EventCursor, bool) {
    let (since, gap) = match &asked.since {
        Some(EventsSince::Id { process, id }) if *process == seen.tag => events.after(*id),
        // Of another process, or of this one before it was started again: nothing of that is known here.
        Some(EventsSince::Id { .. }) => (events.start(), true),
        Some(EventsSince::Ago(ago)) => {
            let from = SystemTime::now().checked_sub(*ago);
            (events.after(from.map_or(0, micros)).0, false)
        }
        None if asked.follow && asked.limit.is_none() => (events.end(), false),
        None => (events.start(), false),
    };
    let Some(limit) = asked.limit else { return (since, gap) };
    // Of those that fit the last ones: from the first of them on.
    let mut place = since;
    let fitting = events.read(&mut place, usize::MAX).events;
    let mut last = fitting.iter().rev().filter(|event| seen.shows(event)).take(limit);
    let all = last.by_ref().last().map(|event| event.id);
    (all.map_or(place, |first| events.after(first - 1).0), gap)
}

/// A stream that goes on.
pub(super) struct EventStream {
    gateway: Arc<Gateway>,
    events: Arc<Events>,
    follower: Follower,
    place: EventCursor,
    pub(super) seen: Visibility,
    /// The token, to be looked at again.
    token: HeaderMap,
    /// Who was let in by the admin socket instead.
    local: Option<LocalUser>,
    /// How long that is good; none: as long as it lasts.
    until: Option<SystemTime>,
    beat: Interval,
    ended: CancellationToken,
    first: Option<StreamItem>,
}

impl EventStream {
    /// What comes next; nothing does after its end. Asked for only when what was before is written: who reads slowly keeps
    /// nothing but a place.
    pub(super) async fn next(&mut self) -> StreamItem {
        if let Some(first) = self.first.take() {
            return first;
        }
        loop {
            // Asked first: what happened before is still told.
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
                // None was for this one; others want to go on too.
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

    /// Why the token isn't good any longer: the configuration may be another by now. Keys that can't be had at the moment
    /// end nothing.
    async fn token_refused(&self) -> Option<StreamEnd> {
        let in_force = self.gateway.snapshots.in_force();
        let operator = super::operator(&in_force, self.local, &self.token).await;
        let reader = operator.and_then(|operator| Ok(operator.reader()?.map(|tenant| tenant.to_string())));
        match reader {
            Ok(reader) if reader.as_deref() == self.seen.reader() => None,
            Err(refusal) if refusal.reason.code().http() >= 500 => None,
            Err(refusal) if refusal.reason == RefusalReason::Expired => Some(StreamEnd::TokenExpired),
            Ok(_) | Err(_) => Some(StreamEnd::TokenRefused),
        }
    }
}
