//! Streaming answers: server-sent events, with limits on their size and on silence. `sse-stream` parses them; it has
//! no limits, and does not report comments, which a gateway sends to show that it is still there.

use std::{io, time::Duration};

use bytes::Bytes;
use futures::{
    Stream, StreamExt, TryStreamExt,
    stream::{BoxStream, try_unfold},
};
use http::{HeaderValue, Method, header};
use reqwest::Response;
use serde_json::Value;
use sse_stream::{Sse, SseByteStream};
use tokio::time::timeout;

use crate::client::{Answer, ApiClient, api::why};

/// A gateway sends something every 15 s; after this long silence the connection is considered lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(40);
/// Longest event, in bytes.
const MAX_EVENT_BYTES: usize = 1 << 20;

/// The answer to a request for events.
pub(crate) enum EventsResponse {
    /// A stream of events.
    Events(Events),
    /// An error.
    Refused(Answer),
}

/// A stream of events.
pub(crate) struct Events(SseByteStream<BoxStream<'static, io::Result<Bytes>>>);

impl ApiClient {
    /// Requests the events of `path`, after the event `last` if given.
    ///
    /// # Errors
    /// Why no gateway answered, and what to check.
    pub(crate) async fn events(&self, path: &str, last: Option<&str>) -> Result<EventsResponse, String> {
        let mut request = self.request(Method::GET, path)?.header(header::ACCEPT, "text/event-stream");
        if let Some(last) = last.and_then(|last| HeaderValue::from_str(last).ok()) {
            request = request.header("last-event-id", last);
        }
        let Ok(answer) = timeout(self.patience(), request.send()).await else {
            return Err(self.late());
        };
        let answer = answer.map_err(|error| self.unanswered(&error))?;
        let is_stream = |value: &HeaderValue| value.as_bytes().starts_with(b"text/event-stream");
        if answer.status() == 200 && answer.headers().get(header::CONTENT_TYPE).is_some_and(is_stream) {
            return Ok(EventsResponse::Events(Events::new(chunks(answer))));
        }
        let status = answer.status().as_u16();
        let Ok(text) = timeout(self.patience(), self.text(answer)).await else {
            return Err(self.late());
        };
        let text = text?;
        let body = serde_json::from_str(&text).ok().filter(|body: &Value| body["code"].is_string());
        let body = body.ok_or_else(|| self.strange(status))?;
        Ok(EventsResponse::Refused(Answer { status, decision: None, text, body }))
    }
}

impl Events {
    /// The events in `chunks`, until one is too long or nothing comes for too long.
    fn new(chunks: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        // The state has the length of the event that has begun, and its last byte.
        let limited = try_unfold((chunks.boxed(), 0, 0), async |(mut chunks, mut length, mut last)| {
            let Ok(chunk) = timeout(IDLE_TIMEOUT, chunks.try_next()).await else {
                return Err(io::Error::other(format!("no data for {} s", IDLE_TIMEOUT.as_secs())));
            };
            let Some(chunk) = chunk? else { return Ok(None) };
            for &byte in &chunk {
                length = if (last, byte) == (b'\n', b'\n') { 0 } else { length + 1 };
                last = byte;
            }
            if length > MAX_EVENT_BYTES {
                let most = MAX_EVENT_BYTES >> 20;
                return Err(io::Error::other(format!("an event is longer than {most} MiB")));
            }
            Ok(Some((chunk, (chunks, length, last))))
        });
        Events(SseByteStream::new(limited.boxed()))
    }

    /// The next event that has a name.
    ///
    /// # Errors
    /// Why the stream ended, in a few words.
    pub(crate) async fn next(&mut self) -> Result<Sse, String> {
        loop {
            match self.0.next().await {
                Some(Ok(sent)) if sent.event.as_ref().is_some_and(|name| !name.is_empty()) => {
                    return Ok(sent);
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(why(&error)),
                None => return Err("the connection was closed".into()),
            }
        }
    }
}

/// The chunks of a body.
fn chunks(answer: Response) -> impl Stream<Item = io::Result<Bytes>> {
    try_unfold(answer, async |mut answer| {
        let chunk = answer.chunk().await.map_err(io::Error::other)?;
        Ok(chunk.map(|chunk| (chunk, answer)))
    })
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use tokio::time::sleep;

    use super::*;

    /// Events that arrive in chunks of `size` bytes.
    fn events(text: &str, size: usize) -> Events {
        let chunks: Vec<_> =
            text.as_bytes().chunks(size).map(|part| Ok(Bytes::copy_from_slice(part))).collect();
        Events::new(stream::iter(chunks))
    }

    #[tokio::test]
    async fn events_are_read_however_they_are_split_and_comments_are_none() {
        let text =
            ": nothing new\n\nid: a-1\nevent: plugin.connected\ndata: {\"a\": \"é漢\"}\n\nevent: b\n\n";
        let first = Sse::default().id("a-1").event("plugin.connected").data("{\"a\": \"é漢\"}");
        for size in [1, 2, 3, 100] {
            let mut events = events(text, size);
            assert_eq!(events.next().await, Ok(first.clone()), "{size}");
            assert_eq!(events.next().await, Ok(Sse::default().event("b")), "{size}");
            assert_eq!(events.next().await, Err("the connection was closed".to_owned()), "{size}");
        }
    }

    #[tokio::test]
    async fn an_event_that_does_not_end_does_not_fill_the_memory() {
        for line in ["data: ", "data: a\n", "id: ", ": "] {
            let lines = stream::repeat_with(move || Ok(Bytes::from_static(line.as_bytes())));
            let ended = Events::new(lines.take(MAX_EVENT_BYTES)).next().await;
            assert_eq!(ended, Err("an event is longer than 1 MiB".to_owned()), "{line}");
        }
    }

    #[tokio::test]
    async fn short_events_and_comments_do_not_add_up() {
        let comments = ": nothing new\n\n".repeat(MAX_EVENT_BYTES / 10);
        let mut events = events(&format!("{comments}event: a\n\n"), 1_000);
        assert_eq!(events.next().await, Ok(Sse::default().event("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn comments_keep_a_stream_alive_and_silence_ends_it() {
        let comments = stream::iter(0..10).then(async |_| {
            sleep(IDLE_TIMEOUT - Duration::from_secs(1)).await;
            Ok(Bytes::from_static(b": nothing new\n\n"))
        });
        let event = stream::iter([Ok(Bytes::from_static(b"event: a\n\n"))]);
        let mut events = Events::new(comments.chain(event).chain(stream::pending()));
        assert_eq!(events.next().await, Ok(Sse::default().event("a")));
        assert_eq!(events.next().await, Err("no data for 40 s".to_owned()));
    }
}
