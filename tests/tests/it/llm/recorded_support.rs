//! Exchanges that were recorded between real clients and providers, and what an answer says however it is cut into events.

use std::{collections::BTreeMap, fs, time::Duration};

use hookgate_tests::{
    provider::{ProviderAct, StreamEnd},
    repository,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// How many bytes of a stream come at once. No multiple of anything, so that events and characters are cut too.
const PIECE: usize = 701;

/// A request and its answer, as they were on the wire.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exchange {
    pub(super) name: String,
    pub(super) status: u16,
    content_type: String,
    pub(super) request: String,
    pub(super) response: String,
}

impl Exchange {
    pub(super) fn is_streamed(&self) -> bool {
        self.content_type == "text/event-stream"
    }

    /// What the provider does again.
    pub(super) fn act(&self) -> ProviderAct {
        if self.is_streamed() && self.status == 200 {
            let pieces = self.response.as_bytes().chunks(PIECE);
            let pieces = pieces.map(|piece| (Duration::ZERO, piece.to_vec().into())).collect();
            return ProviderAct::Stream(pieces, StreamEnd::Closed);
        }
        ProviderAct::Answer(
            self.status,
            vec![("content-type", self.content_type.clone())],
            self.response.clone().into(),
        )
    }
}

/// An API of a provider, with its recorded exchanges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Api {
    Chat,
    Responses,
    Messages,
    Embeddings,
}

impl Api {
    pub(super) const ALL: [Api; 4] = [Api::Chat, Api::Responses, Api::Messages, Api::Embeddings];

    /// Below `/v1`, at the provider and at the gateway.
    pub(super) fn path(self) -> &'static str {
        match self {
            Api::Chat => "/chat/completions",
            Api::Responses => "/responses",
            Api::Messages => "/messages",
            Api::Embeddings => "/embeddings",
        }
    }

    pub(super) fn exchanges(self) -> Vec<Exchange> {
        let lines = read(match self {
            Api::Chat => "chat.jsonl",
            Api::Responses => "responses.jsonl",
            Api::Messages => "messages.jsonl",
            Api::Embeddings => "embeddings.jsonl",
        });
        lines.lines().map(|line| serde_json::from_str(line).expect("an exchange")).collect()
    }

    /// What a stream says in all.
    pub(super) fn assembled(self, stream: &str) -> Value {
        let events = events(stream);
        without_nulls(&match self {
            Api::Messages => message(&events),
            Api::Responses => response(&events),
            Api::Chat | Api::Embeddings => completion(&events),
        })
    }
}

/// Why an exchange doesn't pass as it is.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Exception {
    /// It is refused for every tenant, unless `llm.allow` has this name.
    RefusedAlways(String),
    /// It is refused while plugins may block or change something, unless `llm.allow` has this name.
    Refused(String),
    /// The provider's error is about the operator's key or account, and becomes the gateway's of this code.
    Error(String),
    /// The first choice of its answer gets this message while plugins judge it.
    MessageAdded(Value),
}

/// The exceptions, by the names of their exchanges.
pub(super) fn exceptions() -> BTreeMap<String, Exception> {
    serde_json::from_str(&read("expected.json")).expect("exceptions")
}

fn read(file: &str) -> String {
    let path = repository::root().join("tests/recorded").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The JSON of each event of a stream.
fn events(stream: &str) -> Vec<Value> {
    let stream = stream.replace("\r\n", "\n");
    let lines = stream.lines().filter_map(|line| line.strip_prefix("data:").map(str::trim_start));
    let lines = lines.filter(|data| *data != "[DONE]");
    lines.map(|data| serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"))).collect()
}

/// A chat completion: deltas are merged by the index of their choice.
fn completion(chunks: &[Value]) -> Value {
    let (mut whole, mut choices) = (Value::Null, BTreeMap::<u64, Value>::new());
    for chunk in chunks {
        let mut chunk = chunk.clone();
        // Padding, which is left out.
        remove(&mut chunk, "obfuscation");
        for choice in chunk["choices"].take().as_array().into_iter().flatten() {
            let index = choice["index"].as_u64().unwrap_or_default();
            // Some providers don't say whose answer it is.
            let whole = choices.entry(index).or_insert_with(|| json!({ "delta": { "role": "assistant" } }));
            merge(whole, choice);
        }
        merge(&mut whole, &chunk);
    }
    json!({ "whole": whole, "choices": choices.into_values().collect::<Vec<_>>() })
}

/// Texts of which a delta brings another piece.
const TEXTS: [&str; 6] = ["content", "refusal", "reasoning", "reasoning_content", "arguments", "input"];

/// Adds a delta to what came before.
fn merge(whole: &mut Value, delta: &Value) {
    match (&mut *whole, delta) {
        (Value::Object(whole), Value::Object(delta)) => {
            for (name, delta) in delta {
                match whole.get_mut(name) {
                    Some(Value::String(text)) if TEXTS.contains(&name.as_str()) => {
                        *text += delta.as_str().unwrap_or_default();
                    }
                    Some(member) => merge(member, delta),
                    None => drop(whole.insert(name.clone(), delta.clone())),
                }
            }
        }
        (Value::Array(whole), Value::Array(delta)) => {
            for item in delta {
                let same = |other: &&mut Value| item["index"].is_u64() && other["index"] == item["index"];
                match whole.iter_mut().find(same) {
                    Some(other) => merge(other, item),
                    None => whole.push(item.clone()),
                }
            }
        }
        (_, Value::Null) => {}
        _ => *whole = delta.clone(),
    }
}

/// A message with its blocks.
fn message(events: &[Value]) -> Value {
    let (mut message, mut blocks) = (Value::Null, BTreeMap::<u64, Value>::new());
    for event in events {
        let index = event["index"].as_u64().unwrap_or_default();
        match event["type"].as_str() {
            Some("message_start") => message = event["message"].clone(),
            Some("content_block_start") => drop(blocks.insert(index, event["content_block"].clone())),
            Some("content_block_delta") => {
                add_to_block(blocks.get_mut(&index).expect("an open block"), &event["delta"]);
            }
            Some("message_delta") => {
                let mut delta = event.clone();
                remove(&mut delta, "type");
                merge(&mut message, &delta["delta"].take());
                merge(&mut message, &delta);
            }
            _ => {}
        }
    }
    message["content"] = blocks.into_values().collect();
    message
}

fn add_to_block(block: &mut Value, delta: &Value) {
    let kind = delta["type"].as_str().expect("a type");
    let (member, piece) = match kind {
        "text_delta" => ("text", &delta["text"]),
        "thinking_delta" => ("thinking", &delta["thinking"]),
        "signature_delta" => ("signature", &delta["signature"]),
        "input_json_delta" => ("input_json", &delta["partial_json"]),
        "citations_delta" => {
            let mut citations = block["citations"].as_array().cloned().unwrap_or_default();
            citations.push(delta["citation"].clone());
            block["citations"] = citations.into();
            return;
        }
        _ => (kind, &delta["content"]),
    };
    let before = block[member].as_str().unwrap_or_default();
    block[member] = format!("{before}{}", piece.as_str().unwrap_or_default()).into();
}

/// The changes of a file are held with their call, and come only with the whole of it.
const HELD_DELTA: &str = "response.apply_patch_call_operation_diff.delta";

/// What the last event has of the response, and what the deltas add up to by event and place.
fn response(events: &[Value]) -> Value {
    let mut deltas = Map::new();
    for event in events {
        let Some(delta) = event["delta"].as_str().filter(|_| event["type"] != HELD_DELTA) else { continue };
        let place = format!(
            "{} {} {} {}",
            event["type"], event["output_index"], event["content_index"], event["summary_index"]
        );
        let text = deltas.entry(place).or_insert_with(|| json!(""));
        *text = format!("{}{delta}", text.as_str().unwrap_or_default()).into();
    }
    let last = events.iter().rev().find(|event| event["response"].is_object());
    let response = last.map(|event| event["response"].clone()).unwrap_or_default();
    json!({ "response": response, "deltas": deltas })
}

/// Removes a member of an object.
pub(super) fn remove(value: &mut Value, name: &str) {
    if let Some(members) = value.as_object_mut() {
        members.remove(name);
    }
}

/// The same without members that are `null`: whether an event has them says nothing.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.iter().filter(|(_, value)| !value.is_null());
            Value::Object(members.map(|(name, value)| (name.clone(), without_nulls(value))).collect())
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}
