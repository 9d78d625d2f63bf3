//! [`StreamHeartbeat`]: the first events of an answer, sent before the rest is judged.

use bytes::Bytes;

use super::{echoes::with_echoes, events, withhold::withhold_opening};
use crate::llm::{
    format::{Echoes, FormatHeartbeat},
    sse::{self, SseEvent},
    value::{object_member, string_member},
};

/// Longest beginning of an answer that is sent again and again, in bytes. It repeats the tools and instructions of the request.
pub(super) const MAX_OPENING: usize = 1 << 20;

/// Every so many heartbeats there is an event. Some clients count events only, but give up only after minutes.
pub(super) const EVENT_INTERVAL: usize = 3;

/// The heartbeat of a stream. Before the answer begins it is comments.
#[derive(Debug)]
pub(crate) struct StreamHeartbeat {
    echoes: Echoes,
    is_guarded: bool,
    /// The answer has begun.
    is_begun: bool,
    /// The answer as it begins, without anything that the model says. `None` also if that is too long.
    opening: Option<String>,
    /// How many heartbeats there were since then.
    beats: usize,
    /// How many of them were events.
    events: usize,
}

impl FormatHeartbeat for StreamHeartbeat {
    fn new(echoes: &Echoes, is_guarded: bool) -> Self {
        StreamHeartbeat {
            echoes: echoes.clone(),
            is_guarded,
            is_begun: false,
            opening: None,
            beats: 0,
            events: 0,
        }
    }

    fn push(&mut self, event: &SseEvent) {
        let data = event.data.as_str();
        if self.is_begun || event.name == "error" {
            return;
        }
        if string_member(data, "type").is_none_or(|name| !events::BEGINNINGS.contains(&&*name)) {
            return;
        }
        // The assembly takes the first id, too. What comes later may have another one.
        let Some(response) = object_member(data, "response").filter(|it| string_member(it, "id").is_some())
        else {
            return;
        };
        self.is_begun = true;
        if data.len() <= MAX_OPENING {
            let opening = withhold_opening(&events::opening(response), self.is_guarded);
            self.opening = Some(with_echoes(&opening, &self.echoes).unwrap_or(opening));
        }
    }

    fn beat(&mut self) -> Bytes {
        let Some(opening) = &self.opening else { return Bytes::from_static(sse::COMMENT) };
        let place = self.beats;
        self.beats += 1;
        let name = match place {
            0 => events::CREATED,
            _ if place % EVENT_INTERVAL == 1 => events::IN_PROGRESS,
            _ => return Bytes::from_static(sse::COMMENT),
        };
        let number = self.events;
        self.events += 1;
        events::response_event(name, number, opening)
    }
}

impl StreamHeartbeat {
    /// How many events the client has got: the answer begins, and then is in progress.
    pub(super) fn events(&self) -> usize {
        self.events
    }
}

#[cfg(test)]
#[path = "heartbeat_tests.rs"]
mod tests;
