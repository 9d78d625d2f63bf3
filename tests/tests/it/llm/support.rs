//! A gateway between a client and a scripted provider.

use hookgate_tests::{
    fake::FakePlugin,
    gateway::{Gateway, Setup},
    provider::FakeProvider,
    token::token,
};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

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
