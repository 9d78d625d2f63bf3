//! Encodes events for HTTP: one document, or server-sent events.

use std::{convert::Infallible, fmt::Write as _};

use axum::body::Body;
use bytes::Bytes;
use futures::stream;

use super::{EventStream, EventsPage, StreamEnd, StreamItem, Visibility};
use crate::telemetry::events::Event;

/// Recorded events as a JSON object.
pub(super) fn json(EventsPage { events, dropped, seen }: &EventsPage) -> Bytes {
    let mut text = String::from("{\"events\":[");
    for (at, event) in events.iter().enumerate() {
        text.push_str(if at > 0 { "," } else { "" });
        seen.write(event, &mut text);
    }
    // Writing to a string cannot fail.
    let _ = write!(text, "],\"dropped\":{dropped}}}");
    text.into()
}

/// A stream as server-sent events.
pub(super) fn events(following: EventStream) -> Body {
    let pieces = stream::unfold(Some(Box::new(following)), |following| async {
        let mut following = following?;
        let step = following.next().await;
        let is_over = matches!(step, StreamItem::Ends(_));
        let piece = Bytes::from(text(&following.seen, step));
        Some((Ok::<_, Infallible>(piece), (!is_over).then_some(following)))
    });
    Body::from_stream(pieces)
}

fn text(seen: &Visibility, step: StreamItem) -> String {
    match step {
        StreamItem::Begins { gap: false } => ": following\n\n".to_owned(),
        StreamItem::Begins { gap: true } => ": following\n\n".to_owned() + &dropped(None),
        StreamItem::Events { dropped: missed, events } => {
            let mut text = missed.map(dropped).unwrap_or_default();
            events.iter().for_each(|event| put(seen, event, &mut text));
            text
        }
        StreamItem::Quiet => ": nothing new\n\n".to_owned(),
        StreamItem::Ends(why) => format!("event: events.ended\ndata: {{\"reason\":\"{}\"}}\n\n", reason(why)),
    }
}

fn put(seen: &Visibility, event: &Event, text: &mut String) {
    let _ = write!(text, "id: {}\nevent: {}\ndata: ", seen.id(event), event.name);
    seen.write(event, text);
    text.push_str("\n\n");
}

/// Tells the client that it missed events, and how many if that is known.
fn dropped(count: Option<u64>) -> String {
    let count = count.map_or(String::new(), |count| format!("\"count\":{count}"));
    format!("event: events.dropped\ndata: {{{count}}}\n\n")
}

const fn reason(end: StreamEnd) -> &'static str {
    match end {
        StreamEnd::Draining => "draining",
        StreamEnd::TokenExpired => "token_expired",
        StreamEnd::TokenRefused => "token_refused",
    }
}
