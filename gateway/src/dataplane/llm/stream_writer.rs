//! [`StreamWriter`]: what the client of a streamed answer gets while the answer is held, and in the end.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::{
    dataplane::llm::client_stream::ClientStream,
    llm::{
        format::{Echoes, Format, FormatHeartbeat as _, FormatTextStream as _, StreamEvents},
        sse::SseEvent,
    },
};

/// Writes the events of one answer.
pub(super) struct StreamWriter<'s, F: Format> {
    stream: &'s ClientStream,
    state: Mutex<StreamState<F>>,
}

enum StreamState<F: Format> {
    /// Nothing of the answer has been sent.
    Held(F::Heartbeat),
    /// A part of its text has been sent.
    Begun(F::TextStream),
}

impl<'s, F: Format> StreamWriter<'s, F> {
    /// The writer of an answer that repeats these members of the request. `is_guarded`: see [`FormatHeartbeat::new`].
    pub(super) fn new(stream: &'s ClientStream, echoes: &Echoes, is_guarded: bool) -> Self {
        let heartbeat = F::Heartbeat::new(echoes, is_guarded);
        StreamWriter { stream, state: Mutex::new(StreamState::Held(heartbeat)) }
    }

    /// Takes an event of the provider that the assembly has taken.
    pub(super) fn push(&self, event: &SseEvent) {
        if let StreamState::Held(heartbeat) = &mut *self.state() {
            heartbeat.push(event);
        }
    }

    /// Sends a heartbeat, unless something else waits to be read.
    pub(super) fn beat(&self) {
        self.stream.send_if_idle(|| match &mut *self.state() {
            StreamState::Held(heartbeat) => heartbeat.beat(),
            StreamState::Begun(text) => text.beat(),
        });
    }

    /// Whether any text has been sent.
    pub(super) fn has_begun(&self) -> bool {
        matches!(&*self.state(), StreamState::Begun(_))
    }

    /// Sends what stands in front of the text of `answer`, which is rendered as far as it came.
    pub(super) async fn begin(&self, answer: &Bytes) {
        let events = {
            let mut state = self.state();
            let StreamState::Held(heartbeat) = &*state else { return };
            let (text, events) = F::TextStream::begin(answer, heartbeat);
            *state = StreamState::Begun(text);
            events
        };
        for event in events {
            self.stream.send(event).await;
        }
    }

    /// Sends the next piece of the text.
    pub(super) async fn text(&self, piece: &str) {
        let event = match &mut *self.state() {
            StreamState::Begun(text) => text.text(piece),
            StreamState::Held(_) => return,
        };
        self.stream.send(event).await;
    }

    /// The text that has been sent.
    pub(super) fn sent_text(&self) -> Option<String> {
        match &*self.state() {
            StreamState::Held(_) => None,
            StreamState::Begun(text) => Some(text.sent().to_owned()),
        }
    }

    /// The events of the whole answer that have not been sent. `None` if its text doesn't begin with what has been.
    pub(super) fn events(&self, answer: &Bytes, shows_usage: bool) -> Option<StreamEvents> {
        match &*self.state() {
            StreamState::Held(heartbeat) => Some(F::stream_events(answer, shows_usage, heartbeat)),
            StreamState::Begun(text) => text.rest(answer, shows_usage),
        }
    }

    fn state(&self) -> MutexGuard<'_, StreamState<F>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
