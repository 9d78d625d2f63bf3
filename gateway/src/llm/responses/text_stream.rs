//! The events of an answer whose text goes out while the rest still comes.

use bytes::Bytes;

use super::{
    events::{self, OpenMessage},
    heartbeat::{EVENT_INTERVAL, MAX_OPENING, StreamHeartbeat},
};
use crate::llm::{
    format::{FormatTextStream, StreamEvents},
    sse,
};

/// A stream whose first message is open.
#[derive(Debug)]
pub(crate) struct ResponseStream {
    /// The answer as it began. `None` if that is too long to be sent again and again.
    opening: Option<String>,
    message: OpenMessage,
    /// What the client has got of its text.
    sent: String,
    /// The `sequence_number` of the next event.
    number: usize,
    /// How many heartbeats there were.
    beats: usize,
}

impl FormatTextStream for ResponseStream {
    type Heartbeat = StreamHeartbeat;

    fn begin(answer: &Bytes, heartbeat: &StreamHeartbeat) -> (Self, Vec<Bytes>) {
        let answer = str::from_utf8(answer).unwrap_or_default();
        let opening = events::opening(answer);
        let (message, events) = events::events_before_text(answer, &opening, heartbeat.events());
        let stream = ResponseStream {
            opening: Some(opening).filter(|opening| opening.len() <= MAX_OPENING),
            message,
            sent: String::new(),
            number: heartbeat.events() + events.len(),
            beats: 0,
        };
        (stream, events)
    }

    fn text(&mut self, piece: &str) -> Bytes {
        self.sent.push_str(piece);
        let event = events::text_event(&self.message, self.number, piece);
        self.number += 1;
        event
    }

    fn sent(&self) -> &str {
        &self.sent
    }

    fn beat(&mut self) -> Bytes {
        self.beats += 1;
        match &self.opening {
            Some(opening) if self.beats.is_multiple_of(EVENT_INTERVAL) => {
                let event = events::response_event(events::IN_PROGRESS, self.number, opening);
                self.number += 1;
                event
            }
            _ => Bytes::from_static(sse::COMMENT),
        }
    }

    fn rest(&self, answer: &Bytes, _shows_usage: bool) -> Option<StreamEvents> {
        let answer = str::from_utf8(answer).unwrap_or_default();
        events::events_after(answer, &self.message, self.number, &self.sent)
    }
}

#[cfg(test)]
#[path = "text_stream_tests.rs"]
mod tests;
