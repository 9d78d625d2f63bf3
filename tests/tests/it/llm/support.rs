//! A gateway between a client and a scripted provider.

use hookgate_tests::{
    fake::FakePlugin,
    gateway::{Gateway, Setup},
    provider::FakeProvider,
    token::token,
};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The credential of the provider, which no client and no plugin may see.
pub(super) const CREDENTIAL: &str = "sk-the-operators-own";

/// What a client got.
#[derive(Debug)]
pub(super) struct ClientAnswer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl ClientAnswer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("it is text"))
    }

    /// The first choice's message.
    pub(super) fn message(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()["choices"][0]["message"].clone()
    }

    /// Checks that it is an error of this status and code, in the form that OpenAI's SDKs read.
    pub(super) fn assert_error(&self, status: u16, code: &str) {
        let error = &self.json()["error"];
        assert_eq!((self.status.as_u16(), &error["code"]), (status, &json!(code)), "{self:?}");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{self:?}");
        assert!(error["type"].is_string() && error.get("param").is_some(), "{self:?}");
    }
}

/// A gateway for the tenant `acme` whose models are all at `provider`.
pub(super) fn setup(provider: &FakeProvider) -> Setup {
    let upstream = json!({ "name": "openai", "base_url": provider.base_url(), "credential": CREDENTIAL });
    let models = json!([{ "match": "gpt-*", "upstream": "openai" }, { "match": "fast", "upstream": "openai", "as": "gpt-5-nano" }]);
    Gateway::with().tenant("acme").set("/llm", json!({ "upstreams": [upstream], "models": models }))
}

/// The same with this plugin at its points.
pub(super) async fn gateway(provider: &FakeProvider, plugin: &FakePlugin) -> Gateway {
    let gateway = setup(provider).plugin(plugin).binding(plugin.name(), 10).start().await;
    gateway.wait_until_ready().await;
    gateway
}

/// The same with `rate-limit`, which lets this many requests of a day pass, and counts in a database in `folder`.
pub(super) async fn limited(setup: Setup, folder: &TempDir, requests: u32) -> Gateway {
    let url = format!("sqlite:{}", folder.path().join("data.db").display());
    let limits = json!({ "limits": [{ "requests": requests, "per": "day" }] });
    let binding = json!({ "points": ["before_llm_request"], "config": limits });
    let setup = setup.store(&url, folder.path()).builtin("rate-limit", &json!({}));
    let gateway = setup.binding_with("rate-limit", 10, &binding).start().await;
    gateway.wait_until_ready().await;
    gateway
}

pub(super) fn ask(messages: &Value) -> Value {
    json!({ "model": "gpt-5", "messages": messages })
}

pub(super) fn user(content: &str) -> Value {
    json!({ "role": "user", "content": content })
}

pub(super) async fn chat(gateway: &Gateway, body: &Value) -> ClientAnswer {
    post(gateway, body.to_string()).await
}

pub(super) async fn post(gateway: &Gateway, body: String) -> ClientAnswer {
    let url = format!("http://{}/openai/v1/chat/completions", gateway.data_addr());
    let request = reqwest::Client::new().post(url).bearer_auth(token("acme"));
    send(request.header("content-type", "application/json").body(body)).await
}

pub(super) async fn send(request: reqwest::RequestBuilder) -> ClientAnswer {
    let answer = request.send().await.expect("the gateway answers");
    let (status, headers) = (answer.status(), answer.headers().clone());
    ClientAnswer { status, headers, text: answer.text().await.expect("a whole body") }
}

/// What a client read of a stream.
#[derive(Debug)]
pub(super) struct ClientChunks {
    pub(super) answer: ClientAnswer,
    /// The events' JSON.
    pub(super) chunks: Vec<Value>,
    /// Whether the stream has its ordinary end.
    pub(super) is_done: bool,
}

impl ClientChunks {
    fn read(answer: ClientAnswer) -> Self {
        let events = answer.text.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
        let chunks: Vec<_> = events
            .clone()
            .filter(|data| *data != "[DONE]")
            .map(|data| serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}")))
            .collect();
        let is_done = events.last() == Some("[DONE]");
        ClientChunks { answer, chunks, is_done }
    }

    /// The choices of all chunks with this index.
    fn choices(&self, index: usize) -> impl Iterator<Item = &Value> {
        let choices = self.chunks.iter().filter_map(|chunk| chunk["choices"].as_array()).flatten();
        choices.filter(move |choice| choice["index"] == index)
    }

    /// The text of a choice.
    pub(super) fn text(&self, index: usize) -> String {
        self.choices(index).filter_map(|choice| choice["delta"]["content"].as_str()).collect()
    }

    /// The tool calls of the first choice: name and arguments.
    pub(super) fn calls(&self) -> Vec<(String, String)> {
        let mut calls: Vec<(String, String)> = Vec::new();
        let pieces = self.choices(0).filter_map(|choice| choice["delta"]["tool_calls"].as_array()).flatten();
        for piece in pieces {
            let index = piece["index"].as_u64().expect("an index") as usize;
            assert!(index <= calls.len(), "indexes have no gaps: {self:?}");
            if index == calls.len() {
                calls.push(<(String, String)>::default());
            }
            calls[index].0 += piece["function"]["name"].as_str().unwrap_or_default();
            calls[index].1 += piece["function"]["arguments"].as_str().unwrap_or_default();
        }
        calls
    }

    /// Why a choice ends.
    pub(super) fn finish_reason(&self, index: usize) -> Value {
        let reasons = self.choices(index).map(|choice| choice["finish_reason"].clone());
        reasons.filter(|reason| !reason.is_null()).last().unwrap_or_default()
    }

    /// The code of the error at the end.
    pub(super) fn error(&self) -> Value {
        self.chunks.last().map(|chunk| chunk["error"]["code"].clone()).unwrap_or_default()
    }
}

/// Asks for a stream, and reads it to its end.
pub(super) async fn stream(gateway: &Gateway, mut body: Value) -> ClientChunks {
    body["stream"] = json!(true);
    let got = chat(gateway, &body).await;
    assert_eq!(
        (got.status.as_u16(), got.header("content-type")),
        (200, Some("text/event-stream")),
        "{got:?}"
    );
    ClientChunks::read(got)
}
