//! Answers in windows in each format: a provider that speaks slowly, a client, and a plugin that redacts.

use std::time::Duration;

use hookgate_proto::types::v1::{BeforeResponsePatch, ExtensionPoint};
use hookgate_tests::{
    fake::{Act, Builder, FakePlugin, Payload, Seen},
    gateway::{Gateway, Setup},
    provider::{self, FakeProvider, ProviderAct},
    token::token,
};
use serde_json::{Value, json};

use super::{messages_support, support};

pub(super) const ANSWER: ExtensionPoint = ExtensionPoint::BeforeResponse;

/// Between two pieces of an answer, so that its text is judged in several windows.
pub(super) const PAUSE: Duration = Duration::from_millis(70);

#[derive(Debug, Clone, Copy)]
pub(super) enum Api {
    Chat,
    Messages,
    Responses,
}

pub(super) const APIS: [Api; 3] = [Api::Chat, Api::Messages, Api::Responses];

/// What a client read.
#[derive(Debug)]
pub(super) struct Got {
    pub(super) text: String,
    /// The last event's error code.
    pub(super) error: Value,
    pub(super) all: String,
    pub(super) id: String,
}

impl Api {
    /// A provider's stream that says this in pieces of some characters.
    pub(super) fn says(self, text: &str) -> ProviderAct {
        match self {
            Api::Chat => {
                let characters: Vec<_> = text.chars().collect();
                let pieces: Vec<String> = characters.chunks(3).map(|piece| piece.iter().collect()).collect();
                ProviderAct::streams(&pieces.iter().map(String::as_str).collect::<Vec<_>>())
            }
            Api::Messages => {
                let content = [provider::messages::thinking("hm"), provider::messages::text(text)];
                provider::messages::stream(&provider::messages::message(&json!(content)))
            }
            Api::Responses => {
                let output = [
                    provider::responses::reasoning("rs_1", "hm"),
                    provider::responses::message("msg_1", text),
                ];
                provider::responses::stream(&provider::responses::response(&json!(output)))
            }
        }
    }

    pub(super) fn setup(self, provider: &FakeProvider) -> Setup {
        match self {
            Api::Messages => messages_support::setup(provider),
            Api::Chat | Api::Responses => support::setup(provider),
        }
    }

    /// A request for a stream.
    pub(super) fn request(self, gateway: &Gateway) -> reqwest::RequestBuilder {
        self.request_with(gateway, true)
    }

    /// A request for a whole answer.
    pub(super) fn request_whole(self, gateway: &Gateway) -> reqwest::RequestBuilder {
        self.request_with(gateway, false)
    }

    fn request_with(self, gateway: &Gateway, is_streamed: bool) -> reqwest::RequestBuilder {
        let (path, body) = match self {
            Api::Chat => ("/openai/v1/chat/completions", support::ask(&json!([support::user("x")]))),
            Api::Messages => {
                let messages = json!([{ "role": "user", "content": "x" }]);
                (
                    "/anthropic/v1/messages",
                    json!({ "model": "claude-x", "max_tokens": 9, "messages": messages }),
                )
            }
            Api::Responses => ("/openai/v1/responses", json!({ "model": "gpt-5", "input": "x" })),
        };
        let mut body = body;
        body["stream"] = json!(is_streamed);
        let url = format!("http://{}{path}", gateway.data_addr());
        reqwest::Client::new().post(url).bearer_auth(token("acme")).json(&body)
    }

    pub(super) async fn got(self, gateway: &Gateway) -> Got {
        let answer = support::send(self.request(gateway)).await;
        let id = answer.header("x-request-id").expect("the id of the request").to_owned();
        let datas = answer.text.split("\n\n").filter_map(|event| {
            let data = event.lines().find_map(|line| line.strip_prefix("data: "))?;
            serde_json::from_str::<Value>(data).ok()
        });
        let events: Vec<Value> = datas.collect();
        let text = |event: &Value| match self {
            Api::Chat => event["choices"][0]["delta"]["content"].as_str().map(str::to_owned),
            Api::Messages => event["delta"]["text"].as_str().map(str::to_owned),
            Api::Responses => (event["type"] == "response.output_text.delta")
                .then(|| event["delta"].as_str().unwrap_or_default().to_owned()),
        };
        let last = events.last().cloned().unwrap_or_default();
        Got {
            text: events.iter().filter_map(text).collect(),
            error: last["error"]["code"].clone(),
            all: answer.text,
            id,
        }
    }

    /// Reads until this text is there, and returns what was read.
    pub(super) async fn read_until(self, gateway: &Gateway, wanted: &str) -> (String, reqwest::Response) {
        let mut answer = self.request(gateway).send().await.expect("it begins");
        let mut read = String::new();
        while !read.contains(wanted) {
            let piece = answer.chunk().await.expect("a piece").expect("not the end");
            read.push_str(str::from_utf8(&piece).expect("text"));
        }
        (read, answer)
    }
}

/// Redacts one phone number, and consumes whole words.
pub(super) fn redact(seen: &Seen) -> Act {
    let Payload::BeforeResponse(answer) = &seen.payload else { return Act::pass() };
    let is_last = seen.call.window.as_ref().is_none_or(|window| window.last);
    let end = if is_last { answer.content.len() } else { answer.content.rfind(' ').map_or(0, |at| at + 1) };
    let consumed = &answer.content[..end];
    Act::patch(BeforeResponsePatch {
        content: Some(consumed.replace("555-0100", "[PHONE]")),
        ..BeforeResponsePatch::default()
    })
    .consuming(consumed.chars().count())
}

pub(super) fn redactor() -> Builder {
    FakePlugin::named("redactor").only(&[ANSWER]).in_windows().at_with(ANSWER, redact)
}

pub(super) async fn gateway(api: Api, provider: &FakeProvider, plugin: &FakePlugin) -> Gateway {
    let gateway = api.setup(provider).plugin(plugin).binding(plugin.name(), 10).start().await;
    gateway.wait_until_ready().await;
    gateway
}
