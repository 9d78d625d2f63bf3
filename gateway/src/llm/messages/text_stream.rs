//! The events of an answer whose text goes out while the rest still comes.

use bytes::Bytes;

use super::{PingHeartbeat, events};
use crate::llm::format::{FormatTextStream, StreamEvents};

/// A stream whose first text block is open.
#[derive(Debug)]
pub(crate) struct MessageStream {
    /// The place of the text block.
    index: usize,
    /// What the client has got of its text.
    sent: String,
}

impl FormatTextStream for MessageStream {
    type Heartbeat = PingHeartbeat;

    fn begin(answer: &Bytes, _heartbeat: &PingHeartbeat) -> (Self, Vec<Bytes>) {
        let (index, events) = events::events_before_text(str::from_utf8(answer).unwrap_or_default());
        (MessageStream { index, sent: String::new() }, events)
    }

    fn text(&mut self, piece: &str) -> Bytes {
        self.sent.push_str(piece);
        events::text_event(self.index, piece)
    }

    fn sent(&self) -> &str {
        &self.sent
    }

    fn beat(&mut self) -> Bytes {
        Bytes::from_static(events::PING)
    }

    fn rest(&self, answer: &Bytes, _shows_usage: bool) -> Option<StreamEvents> {
        events::events_after(str::from_utf8(answer).unwrap_or_default(), self.index, &self.sent)
    }
}

#[cfg(test)]
#[path = "text_stream_tests.rs"]
mod tests;
