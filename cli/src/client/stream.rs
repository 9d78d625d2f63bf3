//! Streaming answers: the subset of server-sent events (WHATWG HTML, section 9.2) that a gateway uses.

use std::time::Duration;

use http::{HeaderValue, Method, header};
use reqwest::Response;
use serde_json::Value;
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

/// One event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerSentEvent {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) data: String,
}

/// A stream of events.
pub(crate) struct Events {
    answer: Response,
    buffer: Vec<u8>,
}

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
            return Ok(EventsResponse::Events(Events { answer, buffer: Vec::new() }));
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
    /// The next event; comments are skipped.
    ///
    /// # Errors
    /// Why the stream ended, in a few words.
    pub(crate) async fn next(&mut self) -> Result<ServerSentEvent, String> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|two| two == b"\n\n") {
                let frame: Vec<u8> = self.buffer.drain(..end + 2).collect();
                let sent = read(&String::from_utf8_lossy(&frame));
                if !sent.name.is_empty() {
                    return Ok(sent);
                }
                continue;
            }
            if self.buffer.len() > MAX_EVENT_BYTES {
                return Err(format!("an event is longer than {} MiB", MAX_EVENT_BYTES >> 20));
            }
            match timeout(IDLE_TIMEOUT, self.answer.chunk()).await {
                Ok(Ok(Some(chunk))) => self.buffer.extend_from_slice(&chunk),
                Ok(Ok(None)) => return Err("the connection was closed".into()),
                Ok(Err(error)) => return Err(why(&error)),
                Err(_) => return Err(format!("no data for {} s", IDLE_TIMEOUT.as_secs())),
            }
        }
    }
}

fn read(frame: &str) -> ServerSentEvent {
    let mut sent = ServerSentEvent::default();
    for line in frame.lines() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => sent.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut sent.name),
            "data" => value.clone_into(&mut sent.data),
            _ => {}
        }
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_read_and_a_comment_is_none() {
        let sent = ServerSentEvent {
            id: Some("a-1".into()),
            name: "plugin.connected".into(),
            data: "{\"a\": 1}".into(),
        };
        assert_eq!(read("id: a-1\nevent: plugin.connected\ndata: {\"a\": 1}\n\n"), sent);
        assert_eq!(read(": nothing new\n\n"), ServerSentEvent::default());
    }
}
