//! Encodes events as gRPC messages: recorded ones, or a stream that ends with a status.

use std::{convert::Infallible, sync::Arc};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures::stream;
use hookgate_proto::admin::v1::{self as wire, stream_events_response::What};
use http::Method;
use http_body::Frame;
use http_body_util::StreamBody;

use crate::{
    admin::{
        AdminRoute, ReadRoute,
        events::{self, EventStream, EventsAnswer, EventsPage, StreamEnd, StreamItem, Visibility},
        grpc::{AdminRpc, from_proto},
    },
    core::error::{Code, Error},
    edge::response,
    grpc::framing,
    telemetry::events::Event,
};

impl AdminRpc<'_> {
    pub(super) fn stream_events(&self, asked: wire::StreamEventsRequest) -> Result<EventsAnswer, Error> {
        self.check(Some(AdminRoute::Shown(ReadRoute::Events)), &Method::GET)?;
        let asked = from_proto::events(asked)?;
        let asking = self.admin.follows(self.head, &self.operator, self.reader.as_deref());
        if asked.follow {
            return Ok(EventsAnswer::Following(body(events::follow(asking, &asked)?)));
        }
        let EventsPage { events, dropped, seen } = events::recorded_page(asking, &asked);
        Ok(EventsAnswer::Kept(framed(to_response(&seen, dropped.then_some(None), &events))))
    }
}

/// The frames of a stream: messages, then the trailers.
fn body(following: EventStream) -> Body {
    let frames = stream::unfold(Some(Box::new(following)), |following| async {
        let mut following = following?;
        let step = following.next().await;
        let is_over = matches!(step, StreamItem::Ends(_));
        let frame = frame(&following.seen, step);
        Some((Ok::<_, Infallible>(frame), (!is_over).then_some(following)))
    });
    Body::new(StreamBody::new(frames))
}

fn frame(seen: &Visibility, step: StreamItem) -> Frame<Bytes> {
    Frame::data(match step {
        StreamItem::Begins { gap } => {
            framed(std::iter::once(EMPTY_RESPONSE).chain(to_response(seen, gap.then_some(None), &[])))
        }
        StreamItem::Events { dropped, events } => framed(to_response(seen, dropped, &events)),
        StreamItem::Quiet => framing::frame(&EMPTY_RESPONSE),
        StreamItem::Ends(why) => return response::grpc_end(&error(why)),
    })
}

/// Sent as a heartbeat.
const EMPTY_RESPONSE: wire::StreamEventsResponse = wire::StreamEventsResponse { what: None };

/// The messages for these events, preceded by one that says how many were lost, if any.
fn to_response<'a>(
    seen: &'a Visibility,
    dropped: Option<Option<u64>>,
    events: &'a [Arc<Event>],
) -> impl Iterator<Item = wire::StreamEventsResponse> + 'a {
    let dropped = dropped.map(|count| What::Dropped(wire::EventsDropped { count }));
    let event = |event: &'a Arc<Event>| {
        let mut text = String::new();
        seen.write(event, &mut text);
        What::Event(wire::Event { id: seen.id(event), name: event.name.clone(), event_json: text.into() })
    };
    let all = dropped.into_iter().chain(events.iter().map(event));
    all.map(|what| wire::StreamEventsResponse { what: Some(what) })
}

fn framed(messages: impl Iterator<Item = wire::StreamEventsResponse>) -> Bytes {
    let mut frames = BytesMut::new();
    messages.for_each(|message| frames.extend_from_slice(&framing::frame(&message)));
    frames.freeze()
}

/// The status that a stream ends with.
fn error(end: StreamEnd) -> Error {
    match end {
        StreamEnd::Draining => Error::new(Code::Draining, "The gateway is shutting down"),
        StreamEnd::TokenExpired => Error::new(Code::TokenExpired, "The token has expired"),
        StreamEnd::TokenRefused => {
            Error::new(Code::TokenInvalid, "The current configuration no longer accepts the token for this")
        }
    }
}
