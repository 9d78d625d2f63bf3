//! A gateway between a client of Anthropic's API and a scripted provider.

use hookgate_tests::{
    fake::FakePlugin,
    gateway::{Gateway, Setup},
    provider::{FakeProvider, ProviderAct, ProviderRequest},
    token::token,
};
use reqwest::RequestBuilder;
use serde_json::{Value, json};

use super::support::{CREDENTIAL, ClientAnswer, send};

pub(super) const VERSION: &str = "2023-06-01";

impl ClientAnswer {
    /// The blocks of a message.
    pub(super) fn content(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()["content"].clone()
    }

    /// Checks that it is an error of this status and code, in the form that Anthropic's SDKs read.
    pub(super) fn assert_anthropic_error(&self, status: u16, code: &str) {
        let (body, id) = (self.json(), self.header("request-id"));
        assert_eq!((self.status.as_u16(), &body["error"]["code"]), (status, &json!(code)), "{self:?}");
        assert_eq!((&body["type"], body["request_id"].as_str()), (&json!("error"), id), "{self:?}");
        assert!(id.is_some() && id == self.header("x-request-id"), "{self:?}");
        assert_eq!(body["error"]["type"], kind_of(status), "{self:?}");
        assert!(body["error"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{self:?}");
    }
}

/// The type of the gateway's errors with this status.
fn kind_of(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

/// A provider that does the same with every valid request.
pub(super) async fn always(act: ProviderAct) -> FakeProvider {
    provider(move |_| act.clone()).await
}

/// A provider that follows a script, and refuses what Anthropic refuses.
pub(super) async fn provider(
    script: impl Fn(&ProviderRequest) -> ProviderAct + Send + Sync + 'static,
) -> FakeProvider {
    FakeProvider::of_messages(CREDENTIAL, script).await
}

/// A gateway for the tenant `acme` whose models are all at `provider`, those named `gpt-*` and `mini` behind another API.
pub(super) fn setup(provider: &FakeProvider) -> Setup {
    let anthropic = json!({
        "name": "anthropic", "format": "anthropic", "base_url": provider.root_url(), "credential": CREDENTIAL,
    });
    let openai = json!({ "name": "openai", "base_url": provider.base_url(), "credential": CREDENTIAL });
    let models = json!([
        { "match": "claude-*", "upstream": "anthropic" },
        { "match": "fast", "upstream": "anthropic", "as": "claude-haiku-5" },
        { "match": "gpt-*", "upstream": "openai" },
        { "match": "mini", "upstream": "openai", "as": "gpt-5-mini" },
    ]);
    Gateway::with().tenant("acme").set("/llm", json!({ "upstreams": [anthropic, openai], "models": models }))
}

/// The same with this plugin at its points.
pub(super) async fn gateway(provider: &FakeProvider, plugin: &FakePlugin) -> Gateway {
    setup(provider).plugin(plugin).binding(plugin.name(), 10).start().await
}

pub(super) fn ask(messages: &Value) -> Value {
    json!({ "model": "claude-5", "max_tokens": 1000, "messages": messages })
}

pub(super) fn user(content: &str) -> Value {
    json!({ "role": "user", "content": content })
}

pub(super) fn assistant(blocks: &Value) -> Value {
    json!({ "role": "assistant", "content": blocks })
}

/// The user's message with these results of calls, each a call's id and a content.
pub(super) fn results(results: &[(&str, &str)]) -> Value {
    let results = results.iter();
    let block = |(id, content): &(&str, &str)| json!({ "type": "tool_result", "tool_use_id": id, "content": content });
    json!({ "role": "user", "content": results.map(block).collect::<Vec<_>>() })
}

/// A request to a path below `/anthropic/v1`, without a credential.
pub(super) fn request(gateway: &Gateway, path: &str, body: String) -> RequestBuilder {
    let url = format!("http://{}/anthropic/v1{path}", gateway.data_addr());
    let request = reqwest::Client::new().post(url).header("anthropic-version", VERSION);
    request.header("content-type", "application/json").body(body)
}

pub(super) async fn post(gateway: &Gateway, body: String) -> ClientAnswer {
    send(request(gateway, "/messages", body).header("x-api-key", token("acme"))).await
}

/// Asks for a whole message.
pub(super) async fn say(gateway: &Gateway, body: &Value) -> ClientAnswer {
    post(gateway, body.to_string()).await
}

/// Counts the tokens of a request that asks for a message.
pub(super) async fn count(gateway: &Gateway, body: &Value) -> ClientAnswer {
    let mut body = body.clone();
    body.as_object_mut().expect("a request").retain(|name, _| name != "max_tokens");
    let request = request(gateway, "/messages/count_tokens", body.to_string());
    send(request.header("x-api-key", token("acme"))).await
}

/// What a client read of a stream, as strict as Anthropic's SDKs.
#[derive(Debug)]
pub(super) struct ClientEvents {
    pub(super) answer: ClientAnswer,
    /// The events' names.
    pub(super) names: Vec<String>,
    /// What the events add up to.
    pub(super) message: Value,
    /// The error at the end.
    pub(super) error: Value,
    /// Whether the stream has its ordinary end.
    pub(super) is_done: bool,
    /// The arguments of the open block, if one is open.
    open: Option<String>,
}

impl ClientEvents {
    pub(super) fn read(answer: ClientAnswer) -> Self {
        let text = answer.text.clone();
        let (message, error) = (Value::Null, Value::Null);
        let mut read = ClientEvents { answer, names: Vec::new(), message, error, is_done: false, open: None };
        assert!(text.ends_with("\n\n"), "the last event is whole: {text}");
        for event in text.split_terminator("\n\n") {
            let (name, data) = event
                .strip_prefix("event: ")
                .and_then(|event| event.split_once("\ndata: "))
                .unwrap_or_else(|| panic!("no event of this API: {event}"));
            let data: Value = serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"));
            assert_eq!(data["type"], name, "clients of both members read the same: {text}");
            assert!(!read.is_done && read.error.is_null(), "nothing follows the end: {text}");
            read.names.push(name.to_owned());
            read.take(name, &data);
        }
        read
    }

    fn take(&mut self, name: &str, data: &Value) {
        assert!(!self.message.is_null() || ["message_start", "ping", "error"].contains(&name), "{data}");
        match name {
            "message_start" => {
                assert!(self.message.is_null(), "a second start: {data}");
                self.message = data["message"].clone();
                assert_eq!(self.message["content"], json!([]), "{data}");
            }
            "content_block_start" => {
                let index = self.blocks().len() as u64;
                assert_eq!((data["index"].as_u64(), self.open.take()), (Some(index), None), "{data}");
                self.blocks().push(data["content_block"].clone());
                self.open = Some(String::new());
            }
            "content_block_delta" => self.add(data),
            "content_block_stop" => {
                let arguments = self.open.take().expect("an open block");
                let block = self.last(data);
                if !arguments.is_empty() {
                    block["input"] = serde_json::from_str(&arguments).expect("arguments are JSON");
                }
            }
            "message_delta" => {
                for (member, value) in data["delta"].as_object().expect("an object") {
                    self.message[member.as_str()] = value.clone();
                }
                for (member, value) in data["usage"].as_object().expect("an object") {
                    self.message["usage"][member.as_str()] = value.clone();
                }
            }
            "message_stop" => {
                assert!(self.open.is_none(), "a block is open at the end");
                self.is_done = true;
            }
            "error" => self.error = data["error"].clone(),
            "ping" => {}
            other => panic!("SDKs don't know {other}"),
        }
    }

    fn add(&mut self, data: &Value) {
        let delta = &data["delta"];
        let member = match delta["type"].as_str() {
            Some("text_delta") => "text",
            Some("thinking_delta") => "thinking",
            Some("signature_delta") => "signature",
            Some("citations_delta") => {
                let citations = &mut self.last(data)["citations"];
                let mut all = citations.as_array().cloned().unwrap_or_default();
                all.push(delta["citation"].clone());
                *citations = Value::Array(all);
                return;
            }
            Some("input_json_delta") => {
                let open = self.open.as_mut().expect("an open block");
                *open += delta["partial_json"].as_str().expect("a text");
                return;
            }
            _ => panic!("SDKs don't know {delta}"),
        };
        assert!(self.open.is_some(), "no block is open: {data}");
        let block = self.last(data);
        let before = block[member].as_str().unwrap_or_default().to_owned();
        block[member] = json!(before + delta[member].as_str().expect("a text"));
    }

    fn blocks(&mut self) -> &mut Vec<Value> {
        self.message["content"].as_array_mut().expect("a list")
    }

    /// The last block, which must be the one that an event is about.
    fn last(&mut self, data: &Value) -> &mut Value {
        assert_eq!(data["index"].as_u64().map(|index| index + 1), Some(self.blocks().len() as u64), "{data}");
        self.blocks().last_mut().expect("a block")
    }

    /// The blocks.
    pub(super) fn content(&self) -> &Value {
        &self.message["content"]
    }

    /// The text of all blocks.
    pub(super) fn text(&self) -> String {
        self.content().as_array().into_iter().flatten().filter_map(|block| block["text"].as_str()).collect()
    }
}

/// Asks for a stream, and reads it to its end.
pub(super) async fn stream(gateway: &Gateway, mut body: Value) -> ClientEvents {
    body["stream"] = json!(true);
    let got = say(gateway, &body).await;
    let kind = got.header("content-type");
    assert_eq!((got.status.as_u16(), kind), (200, Some("text/event-stream")), "{got:?}");
    ClientEvents::read(got)
}
