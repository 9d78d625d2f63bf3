//! What happened lately, and what does: as one document, or as a stream of server-sent events that goes on. Each event is
//! the line of the log with an id beside (docs/status.md).
//!
//! A token that names a tenant is told of the calls of that tenant, and of them what an agent of it may know too.

use std::{
    fmt::Write as _,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, header::AUTHORIZATION, request::Parts};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep};
use tokio_util::sync::CancellationToken;

use self::query::{Asked, Since};
use self::seen::Seen;
use crate::{
    auth::{Operator, Reason},
    error::{Code, Error},
    ingress::{call::Gateway, local::LocalUser},
    telemetry::events::{Events, FOLLOWERS, Follower, Place, micros},
};

mod query;
mod seen;

/// A comment so often where nothing happens, so that nobody on the way takes the connection for dead; the token is
/// looked at again then.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Most events that are written in one piece.
const PIECE: usize = 64;
/// After which a place among those who follow may be free.
const COME_BACK: Duration = Duration::from_secs(5);

/// What answers.
pub(super) enum Told {
    Kept(Bytes),
    Following(Body),
}

/// Answers the question in `head`, of `operator`; a stream goes on until `ended`.
///
/// # Errors
/// PAYLOAD_INVALID, naming the member that is wrong; OVERLOADED where too many follow.
pub(super) fn answer(
    gateway: &Arc<Gateway>,
    head: &Parts,
    operator: &Operator,
    reader: Option<&str>,
    ended: &CancellationToken,
) -> Result<Told, Error> {
    let asked = query::read(head)?;
    let tag = tag(gateway.telemetry.instance());
    let seen = Seen::new(tag, &asked, reader);
    let events = Arc::clone(gateway.telemetry.events());
    if !asked.follow {
        return Ok(Told::Kept(kept(&events, &asked, &seen)));
    }
    // Before the rings are looked at: what comes in between is told then.
    let follower = events.follow().ok_or_else(|| {
        let detail = format!("The events of this process are followed by {FOLLOWERS} already");
        Error::new(Code::Overloaded, detail).retry_after(COME_BACK)
    })?;
    let (place, gap) = begin(&events, &asked, &seen);
    let token = head.headers.get(AUTHORIZATION).cloned();
    let local = head.extensions.get::<LocalUser>().copied();
    let mut beat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let following = Following {
        gateway: Arc::clone(gateway),
        events,
        follower,
        place,
        token: token.into_iter().map(|token| (AUTHORIZATION, token)).collect(),
        local,
        until: operator.until(),
        beat,
        ended: ended.clone(),
        is_over: false,
        // Something at once: else a client may not see before the first event that it was let in.
        first: Some(if gap {
            ": following\n\n".to_owned() + &seen.dropped(None)
        } else {
            ": following\n\n".into()
        }),
        seen,
    };
    let pieces = stream::unfold(Box::new(following), |mut following| async {
        let piece = following.piece().await?;
        Some((Ok::<_, std::convert::Infallible>(piece), following))
    });
    Ok(Told::Following(Body::from_stream(pieces)))
}

/// What this process is called in ids: the part of its instance that is by chance and tells no time.
fn tag(instance: &str) -> String {
    instance.rsplit('-').next().unwrap_or_default().to_owned()
}

/// Where to begin, and whether something that was asked for is gone.
fn begin(events: &Events, asked: &Asked, seen: &Seen) -> (Place, bool) {
    let (since, gap) = match &asked.since {
        Some(Since::Id { process, id }) if *process == seen.tag => events.after(*id),
        // Of another process, or of this one before it was started again: nothing of that is known here.
        Some(Since::Id { .. }) => (events.start(), true),
        Some(Since::Ago(ago)) => {
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

fn kept(events: &Events, asked: &Asked, seen: &Seen) -> Bytes {
    let (mut place, gap) = begin(events, asked, seen);
    let batch = events.read(&mut place, usize::MAX);
    let shown: Vec<_> = batch.events.iter().filter(|event| seen.shows(event)).collect();
    let mut text = String::from("{\"events\":[");
    for (at, event) in shown.iter().skip(shown.len().saturating_sub(query::MOST)).enumerate() {
        text.push_str(if at > 0 { "," } else { "" });
        seen.write(event, &mut text);
    }
    // Writing to a string cannot fail.
    let _ = write!(text, "],\"dropped\":{}}}", gap || batch.missed > 0);
    text.into()
}

/// A stream that goes on.
struct Following {
    gateway: Arc<Gateway>,
    events: Arc<Events>,
    follower: Follower,
    place: Place,
    seen: Seen,
    /// The token, to be looked at again.
    token: HeaderMap,
    /// Who was let in by the admin socket instead.
    local: Option<LocalUser>,
    /// How long that is good; none: as long as it lasts.
    until: Option<SystemTime>,
    beat: Interval,
    ended: CancellationToken,
    is_over: bool,
    first: Option<String>,
}

impl Following {
    /// The next piece of the stream; none: it is over. Asked for only when the one before is written: who reads slowly
    /// keeps nothing but a place.
    async fn piece(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first.into());
        }
        while !self.is_over {
            // Asked first: what happened before is still told.
            let ended = self.ended.is_cancelled();
            let left = |until: SystemTime| until.duration_since(SystemTime::now()).unwrap_or_default();
            let left = self.until.map_or(Duration::MAX, left);
            if left.is_zero() {
                return Some(self.end("token_expired"));
            }
            let batch = self.events.read(&mut self.place, PIECE);
            let mut text = String::new();
            if batch.missed > 0 {
                text += &self.seen.dropped(Some(batch.missed));
            }
            for event in batch.events.iter().filter(|event| self.seen.shows(event)) {
                self.seen.send(event, &mut text);
            }
            if !text.is_empty() {
                return Some(text.into());
            }
            if batch.events.len() == PIECE {
                // None was for this one; others want to go on too.
                tokio::task::yield_now().await;
                continue;
            }
            if ended {
                return Some(self.end("draining"));
            }
            tokio::select! {
                () = self.ended.cancelled() => {}
                () = self.follower.more() => {}
                () = sleep(left) => {}
                _ = self.beat.tick() => return Some(match self.refused().await {
                    Some(why) => self.end(why),
                    None => Bytes::from_static(b": nothing new\n\n"),
                }),
            }
        }
        None
    }

    fn end(&mut self, why: &str) -> Bytes {
        self.is_over = true;
        format!("event: events.ended\ndata: {{\"reason\":\"{why}\"}}\n\n").into()
    }

    /// Why the token isn't good any longer: the configuration may be another by now. Keys that can't be had at the moment
    /// end nothing.
    async fn refused(&self) -> Option<&'static str> {
        let in_force = self.gateway.in_force();
        let operator = super::operator(&in_force, self.local, &self.token).await;
        let reader = operator.and_then(|operator| Ok(operator.reader()?.map(|tenant| tenant.to_string())));
        match reader {
            Ok(reader) if reader.as_deref() == self.seen.reader() => None,
            Err(refusal) if refusal.reason.code().http() >= 500 => None,
            Err(refusal) if refusal.reason == Reason::Expired => Some("token_expired"),
            Ok(_) | Err(_) => Some("token_refused"),
        }
    }
}
