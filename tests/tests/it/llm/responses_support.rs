//! A gateway between a client of OpenAI's Responses and a scripted provider.

use std::collections::BTreeMap;

use hookgate_tests::{
    gateway::Gateway,
    provider::{FakeProvider, ProviderAct, ProviderRequest, responses::ENCRYPTED_THOUGHTS},
    token::token,
};
use reqwest::RequestBuilder;
use serde_json::{Value, json};

use super::support::{CREDENTIAL, ClientAnswer, send};

impl ClientAnswer {
    /// The items of a response.
    pub(super) fn output(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()["output"].clone()
    }
}

/// A provider that does the same with every valid request.
pub(super) async fn always(act: ProviderAct) -> FakeProvider {
    provider(move |_| act.clone()).await
}

/// A provider that follows a script, and refuses what OpenAI refuses.
pub(super) async fn provider(
    script: impl Fn(&ProviderRequest) -> ProviderAct + Send + Sync + 'static,
) -> FakeProvider {
    FakeProvider::of_responses(CREDENTIAL, script).await
}

/// What a client sends that keeps its conversation itself.
pub(super) fn ask(input: &Value) -> Value {
    json!({ "model": "gpt-5", "store": false, "include": [ENCRYPTED_THOUGHTS], "input": input })
}

/// The result of the call whose ids end with `at`.
pub(super) fn result(at: &str, output: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": format!("call_{at}"), "output": output })
}

/// A request to a path below `/openai/v1`, without a credential.
pub(super) fn request(gateway: &Gateway, path: &str, body: String) -> RequestBuilder {
    let url = format!("http://{}/openai/v1{path}", gateway.data_addr());
    reqwest::Client::new().post(url).header("content-type", "application/json").body(body)
}

pub(super) async fn post(gateway: &Gateway, body: String) -> ClientAnswer {
    send(request(gateway, "/responses", body).bearer_auth(token("acme"))).await
}

/// Asks for a whole response.
pub(super) async fn say(gateway: &Gateway, body: &Value) -> ClientAnswer {
    post(gateway, body.to_string()).await
}

/// What people read of items, without their ids: a text for a message, `{thought}`, `{call, arguments}`. Others are as they are.
pub(super) fn outline(output: &Value) -> Value {
    let texts = |parts: &Value, member: &str| -> String {
        parts.as_array().into_iter().flatten().filter_map(|part| part[member].as_str()).collect()
    };
    let one = |item: &Value| match item["type"].as_str() {
        Some("message") => match texts(&item["content"], "refusal") {
            refusal if refusal.is_empty() => json!(texts(&item["content"], "text")),
            refusal => json!({ "refusal": refusal }),
        },
        Some("reasoning") => {
            json!({ "thought": texts(&item["summary"], "text") + &texts(&item["content"], "text") })
        }
        Some("function_call") => called(&item["name"], &item["arguments"]),
        _ => item.clone(),
    };
    output.as_array().expect("a list of items").iter().map(one).collect()
}

/// The outline of a call.
pub(super) fn called(
    name: &(impl serde::Serialize + ?Sized),
    arguments: &(impl serde::Serialize + ?Sized),
) -> Value {
    json!({ "call": name, "arguments": arguments })
}

/// What a client read of a stream, as strict as OpenAI's SDKs.
#[derive(Debug)]
pub(super) struct ClientEvents {
    pub(super) answer: ClientAnswer,
    /// The events' names.
    pub(super) names: Vec<String>,
    /// What the last event has of the response.
    pub(super) response: Value,
    /// The error at the end.
    pub(super) error: Value,
    /// Whether the stream has its ordinary end.
    pub(super) is_done: bool,
    /// The items.
    items: Vec<Value>,
    /// What the pieces of the open item add up to, by their place, if one is open.
    open: Option<BTreeMap<(&'static str, u64), String>>,
}

impl ClientEvents {
    pub(super) fn read(answer: ClientAnswer) -> Self {
        let text = answer.text.clone();
        let mut read = ClientEvents {
            answer,
            names: Vec::new(),
            response: Value::Null,
            error: Value::Null,
            is_done: false,
            items: Vec::new(),
            open: None,
        };
        assert!(text.ends_with("\n\n"), "the last event is whole: {text}");
        for event in text.split_terminator("\n\n").filter(|event| !event.starts_with(':')) {
            let (name, data) = event
                .strip_prefix("event: ")
                .and_then(|event| event.split_once("\ndata: "))
                .unwrap_or_else(|| panic!("no event of this API: {event}"));
            let data: Value = serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"));
            assert_eq!(data["type"], name, "clients of both members read the same: {text}");
            assert!(!read.is_done && read.error.is_null(), "nothing follows the end: {text}");
            if name != "error" {
                assert_eq!(data["sequence_number"].as_u64(), Some(read.names.len() as u64), "{text}");
                assert_eq!(name == "response.created", read.names.is_empty(), "{text}");
            }
            read.names.push(name.to_owned());
            read.take(name, &data);
        }
        read
    }

    fn take(&mut self, name: &str, data: &Value) {
        match name {
            "response.created" | "response.in_progress" => {
                self.same_response(data);
                let response = &data["response"];
                assert_eq!((&response["status"], &response["output"]), (&json!("in_progress"), &json!([])));
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                self.same_response(data);
                assert!(self.open.is_none(), "an item is open at the end: {data}");
                assert_eq!(data["response"]["output"], json!(self.items), "the copies are the same");
                self.is_done = true;
            }
            "response.output_item.added" => {
                assert_eq!(data["output_index"].as_u64(), Some(self.items.len() as u64), "{data}");
                assert!(self.open.is_none(), "one item at a time: {data}");
                self.items.push(data["item"].clone());
                self.open = Some(BTreeMap::new());
            }
            "response.output_item.done" => {
                let texts = self.open.take().expect("an open item");
                let (item, index) = (&data["item"], data["output_index"].as_u64());
                assert_eq!(index, Some(self.items.len() as u64 - 1), "{data}");
                assert_eq!(texts_of(item), texts, "the copies are the same: {data}");
                let open = self.items.last_mut().expect("an item");
                assert_eq!((&open["id"], &open["type"]), (&item["id"], &item["type"]), "{data}");
                *open = item.clone();
            }
            "error" => {
                self.error = data["error"].clone();
                let both = [&self.error["code"], &self.error["message"]];
                assert_eq!([&data["code"], &data["message"]], both, "both forms say the same: {data}");
            }
            _ => self.take_piece(name, data),
        }
    }

    /// An event about the response as a whole.
    fn same_response(&mut self, data: &Value) {
        let response = &data["response"];
        let is_same = self.response.is_null() || self.response["id"] == response["id"];
        assert!(is_same && response["object"] == "response", "{data}");
        self.response = response.clone();
    }

    /// An event about a part of the open item.
    fn take_piece(&mut self, name: &str, data: &Value) {
        let (kind, event) = name.rsplit_once('.').expect("two names");
        let (list, index, member) = match kind.trim_start_matches("response.") {
            "output_text" | "reasoning_text" | "content_part" => ("content", "content_index", "text"),
            "refusal" => ("content", "content_index", "refusal"),
            "reasoning_summary_text" | "reasoning_summary_part" => ("summary", "summary_index", "text"),
            "function_call_arguments" => ("arguments", "", "arguments"),
            "custom_tool_call_input" => ("input", "", "input"),
            "output_text.annotation" => return,
            _ => panic!("SDKs don't know {name}"),
        };
        let item = self.items.last().expect("an item");
        assert_eq!(
            (&data["item_id"], data["output_index"].as_u64()),
            (&item["id"], Some(self.items.len() as u64 - 1))
        );
        let texts = self.open.as_mut().expect("an open item");
        let place = (list, data[index].as_u64().unwrap_or_default());
        let known = texts.get(&place).cloned().unwrap_or_default();
        match event {
            "delta" => {
                texts.insert(place, known + data["delta"].as_str().expect("a text"));
            }
            "done" if data["part"].is_object() => {
                let part = data["part"]["text"].as_str().or_else(|| data["part"]["refusal"].as_str());
                assert_eq!(part, Some(known.as_str()), "the copies are the same: {data}");
            }
            "done" => assert_eq!(data[member], known, "the copies are the same: {data}"),
            "added" => assert!(known.is_empty(), "{data}"),
            _ => panic!("SDKs don't know {name}"),
        }
    }

    /// The items.
    pub(super) fn output(&self) -> Value {
        json!(self.items)
    }
}

/// The texts of an item that come in pieces, by their place.
fn texts_of(item: &Value) -> BTreeMap<(&'static str, u64), String> {
    let mut texts = BTreeMap::new();
    for list in ["content", "summary"] {
        for (at, part) in item[list].as_array().into_iter().flatten().enumerate() {
            let text = part["text"].as_str().or_else(|| part["refusal"].as_str()).unwrap_or_default();
            texts.insert((list, at as u64), text.to_owned());
        }
    }
    for member in ["arguments", "input"] {
        texts.insert((member, 0), item[member].as_str().unwrap_or_default().to_owned());
    }
    texts.retain(|_, text| !text.is_empty());
    texts
}

/// Asks for a stream, and reads it to its end.
pub(super) async fn stream(gateway: &Gateway, mut body: Value) -> ClientEvents {
    body["stream"] = json!(true);
    let got = say(gateway, &body).await;
    let kind = got.header("content-type");
    assert_eq!((got.status.as_u16(), kind), (200, Some("text/event-stream")), "{got:?}");
    ClientEvents::read(got)
}
