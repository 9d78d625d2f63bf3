//! The chunks of an answer whose text goes out while the rest still comes.

use bytes::Bytes;

use super::{CommentHeartbeat, answer_texts::REASONING, chunks};
use crate::llm::{
    format::{FormatTextStream, StreamEvents},
    sse,
    value::string_member,
};

/// What a client has got of a message. Reasoning in lists comes whole in the end: clients join the elements of lists.
#[derive(Debug)]
pub(super) struct SentMessage {
    /// The text.
    pub(super) content: String,
    /// The members of reasoning that are text.
    pub(super) reasoning: Vec<(&'static str, String)>,
}

/// A stream of one choice.
#[derive(Debug)]
pub(crate) struct ChunkStream {
    /// The members of every chunk, as JSON.
    head: String,
    sent: SentMessage,
}

impl FormatTextStream for ChunkStream {
    type Heartbeat = CommentHeartbeat;

    fn begin(answer: &Bytes, _heartbeat: &CommentHeartbeat) -> (Self, Vec<Bytes>) {
        let answer = str::from_utf8(answer).unwrap_or_default();
        let message = chunks::only_message(answer);
        let text = |name: &'static str| Some((name, string_member(message, name)?.into_owned()));
        let reasoning = REASONING.into_iter().filter_map(text).filter(|(_, text)| !text.is_empty());
        let sent = SentMessage { content: String::new(), reasoning: reasoning.collect() };
        let head = chunks::head_json(answer);
        let events = chunks::events_before_text(&head, message, &sent.reasoning);
        (ChunkStream { head, sent }, events)
    }

    fn text(&mut self, piece: &str) -> Bytes {
        self.sent.content.push_str(piece);
        chunks::text_event(&self.head, piece)
    }

    fn sent(&self) -> &str {
        &self.sent.content
    }

    fn beat(&mut self) -> Bytes {
        Bytes::from_static(sse::COMMENT)
    }

    fn rest(&self, answer: &Bytes, shows_usage: bool) -> Option<StreamEvents> {
        let answer = str::from_utf8(answer).unwrap_or_default();
        chunks::events_after(&self.head, answer, &self.sent, shows_usage)
    }
}

#[cfg(test)]
#[path = "text_stream_tests.rs"]
mod tests;
