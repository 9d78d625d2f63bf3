//! Reads recorded events and streams from the admin port.

use std::time::Duration;

use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer},
    openapi::{DOCUMENT, validate},
};
use http::Method;
use serde_json::Value;
use tokio::time::timeout;

/// Longer than anything here takes, and shorter than the agent's timeout.
const PATIENCE: Duration = Duration::from_secs(25);

/// The recorded events.
pub(crate) async fn events(agent: &HttpAgent, query: &str) -> Vec<Value> {
    let answer: HttpAnswer = agent.get(&format!("/admin/v1/events?{query}")).await.expect("it answers");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body["events"].as_array().expect("a list").clone()
}

/// Polls until there are `count`: a call's line is written after its answer.
pub(crate) async fn wait_for(agent: &HttpAgent, query: &str, count: usize) {
    let there = async { while events(agent, query).await.len() < count {} };
    timeout(PATIENCE, there).await.expect("they are kept");
}

pub(crate) fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().expect("a name")).collect()
}

/// One event of a stream.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) data: Value,
}

/// A stream of events.
pub(crate) struct Stream {
    answer: reqwest::Response,
    buffer: String,
}

impl Stream {
    pub(crate) async fn open(agent: &HttpAgent, query: &str) -> Self {
        Stream::try_open(agent, query).await.expect("there is a place")
    }

    /// Returns `None` if too many clients follow.
    pub(crate) async fn try_open(agent: &HttpAgent, query: &str) -> Option<Self> {
        Stream::of(agent.request(Method::GET, &format!("/admin/v1/events?follow=true&{query}"))).await
    }

    /// Follows after the event with this id.
    pub(crate) async fn after(agent: &HttpAgent, query: &str, id: &str) -> Self {
        let request = agent.request(Method::GET, &format!("/admin/v1/events?follow=true&{query}"));
        Stream::of(request.header("last-event-id", id)).await.expect("there is a place")
    }

    async fn of(request: reqwest::RequestBuilder) -> Option<Self> {
        // The stream must outlive the agent's timeout.
        let request = request.timeout(Duration::from_secs(600));
        let answer = timeout(PATIENCE, request.send()).await.expect("it answers").expect("it answers");
        if answer.status() == 503 {
            return None;
        }
        assert_eq!(answer.status(), 200, "{answer:?}");
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        assert_eq!(answer.headers()["cache-control"], "no-store");
        let mut stream = Stream { answer, buffer: String::new() };
        // From here on, it receives all events.
        let first = stream.frame().await;
        assert_eq!(first.as_deref(), Some(": following"), "it says at once that it follows");
        Some(stream)
    }

    async fn frame(&mut self) -> Option<String> {
        loop {
            if let Some((frame, rest)) = self.buffer.split_once("\n\n") {
                let (frame, rest) = (frame.to_owned(), rest.to_owned());
                self.buffer = rest;
                return Some(frame);
            }
            let chunk = timeout(PATIENCE, self.answer.chunk()).await.expect("it goes on, or ends");
            let chunk = chunk.expect("it ends cleanly")?;
            self.buffer.push_str(std::str::from_utf8(&chunk).expect("UTF-8"));
        }
    }

    async fn maybe_next(&mut self) -> Option<Sent> {
        loop {
            let frame = self.frame().await?;
            let line = |name: &str| {
                frame.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::to_owned)
            };
            let Some(name) = line("event") else { continue };
            let data: Value = serde_json::from_str(&line("data").expect("data")).expect("JSON");
            if !name.starts_with("events.") {
                validate(&DOCUMENT["components"]["schemas"]["Event"], &data).expect("as openapi.json has it");
                assert_eq!(data["event"], name);
            }
            return Some(Sent { id: line("id"), name, data });
        }
    }

    /// The next event.
    pub(crate) async fn next(&mut self) -> Sent {
        self.maybe_next().await.expect("it goes on")
    }

    /// The next event with this name.
    pub(crate) async fn next_named(&mut self, name: &str) -> Sent {
        loop {
            let sent = self.next().await;
            if sent.name == name {
                return sent;
            }
        }
    }

    /// All remaining events until the end of the stream.
    pub(crate) async fn rest(&mut self) -> Vec<Sent> {
        let mut all = Vec::new();
        while let Some(sent) = self.maybe_next().await {
            all.push(sent);
        }
        all
    }

    pub(crate) async fn is_over(&mut self) -> bool {
        self.maybe_next().await.is_none()
    }
}
