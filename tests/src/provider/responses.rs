//! What a provider with OpenAI's Responses and embeddings answers. It is as strict about requests as OpenAI.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{
    FakeProvider, ProviderAct, ProviderRequest, StreamEnd,
    messages::{cut, opened},
    responses_rules,
};

const RESPONSES: &str = "/v1/responses";
const EMBEDDINGS: &str = "/v1/embeddings";

/// What a client includes to get encrypted thoughts. Without it the provider keeps them, or they are lost.
pub const ENCRYPTED_THOUGHTS: &str = "reasoning.encrypted_content";

/// Whether requests to it have an answer of these APIs.
pub(super) fn is_path(path: &str) -> bool {
    path == RESPONSES || is_embeddings(path)
}

/// Whether requests to it are for embeddings.
pub(super) fn is_embeddings(path: &str) -> bool {
    path == EMBEDDINGS
}

impl FakeProvider {
    /// A provider with OpenAI's API that follows a script for responses. It refuses what OpenAI refuses, requests that it may keep
    /// the answers of, and those that don't have exactly this credential. A scripted response repeats the request, and is streamed
    /// if the request wants a stream. One that repeats a request already is answered byte for byte.
    pub async fn of_responses(
        credential: &'static str,
        script: impl Fn(&ProviderRequest) -> ProviderAct + Send + Sync + 'static,
    ) -> Self {
        Self::start(move |request| match responses_rules::refusal(request, credential) {
            Some(refusal) => refusal,
            None => for_request(script(request), request),
        })
        .await
    }
}

fn for_request(act: ProviderAct, request: &ProviderRequest) -> ProviderAct {
    let scripted = match &act {
        ProviderAct::Answer(200, _, body) => serde_json::from_slice::<Value>(body).unwrap_or_default(),
        _ => return act,
    };
    let asked = request.json();
    if scripted["object"] != "response" {
        return act;
    }
    let is_exact = repeats(&scripted);
    match asked["stream"] == true {
        true => stream(&repeating(&scripted, &asked)),
        false if is_exact => act,
        false => answer(&repeating(&scripted, &asked)),
    }
}

fn repeats(response: &Value) -> bool {
    response.get("instructions").is_some()
}

/// Members of the request that an answer repeats, and what it has in place of those that the request hasn't.
fn repeated() -> [(&'static str, Value); 16] {
    [
        ("instructions", Value::Null),
        ("tools", json!([])),
        ("tool_choice", json!("auto")),
        ("metadata", json!({})),
        ("text", json!({ "format": { "type": "text" }, "verbosity": "medium" })),
        ("reasoning", json!({ "effort": "medium", "summary": null })),
        ("user", Value::Null),
        ("safety_identifier", Value::Null),
        ("prompt_cache_key", Value::Null),
        ("temperature", json!(1.0)),
        ("top_p", json!(1.0)),
        ("parallel_tool_calls", json!(true)),
        ("max_output_tokens", Value::Null),
        ("truncation", json!("disabled")),
        ("previous_response_id", Value::Null),
        ("store", json!(true)),
    ]
}

/// This response as the answer to a request: it repeats members of it, and has encrypted thoughts only if the request includes them.
pub fn repeating(response: &Value, asked: &Value) -> Value {
    let mut response = response.clone();
    if repeats(&response) {
        return response;
    }
    for (member, absent) in repeated() {
        response[member] = asked.get(member).filter(|value| !value.is_null()).unwrap_or(&absent).clone();
    }
    let included = asked["include"].as_array().into_iter().flatten();
    if !included.into_iter().any(|name| name == ENCRYPTED_THOUGHTS) {
        for item in response["output"].as_array_mut().into_iter().flatten() {
            item.as_object_mut()
                .into_iter()
                .for_each(|item| item.retain(|name, _| name != "encrypted_content"));
        }
    }
    response
}

/// Status and text of a body.
pub fn raw(status: u16, body: &str) -> ProviderAct {
    ProviderAct::text(status, body)
}

/// An error in OpenAI's form, such as `server_error` with status 500.
pub fn error(status: u16, code: &str, message: &str) -> ProviderAct {
    let kind = match status {
        500.. => "server_error",
        429 => "rate_limit_exceeded",
        _ => "invalid_request_error",
    };
    let error = json!({ "message": message, "type": kind, "param": null, "code": code });
    raw(status, &json!({ "error": error }).to_string())
}

/// A response with this JSON.
pub fn answer(response: &Value) -> ProviderAct {
    raw(200, &response.to_string())
}

/// A response that says this.
pub fn says(said: &str) -> ProviderAct {
    answer(&response(&json!([message("msg_1", said)])))
}

/// A response that calls these tools, each a name and the text of its arguments.
pub fn calls(calls: &[(&str, &str)]) -> ProviderAct {
    let calls = calls.iter().enumerate();
    let items = calls.map(|(at, (name, arguments))| function_call(&at.to_string(), name, arguments));
    answer(&response(&json!(items.collect::<Vec<_>>())))
}

/// A response with these items.
pub fn response(output: &Value) -> Value {
    let usage = json!({
        "input_tokens": 10, "input_tokens_details": { "cached_tokens": 3 },
        "output_tokens": 7, "output_tokens_details": { "reasoning_tokens": 2 }, "total_tokens": 17,
    });
    json!({
        "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "background": false, "error": null,
        "incomplete_details": null, "model": "gpt-5-2025-08-07", "output": output, "service_tier": "default", "usage": usage,
    })
}

/// A message of the model.
pub fn message(id: &str, said: &str) -> Value {
    json!({ "id": id, "type": "message", "status": "completed", "role": "assistant", "content": [output_text(said)] })
}

/// A part of such a message.
pub fn output_text(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

/// A call of the tool, whose ids end with `at`.
pub fn function_call(at: &str, name: &str, arguments: &str) -> Value {
    let (id, call_id) = (format!("fc_{at}"), format!("call_{at}"));
    json!({
        "id": id, "type": "function_call", "status": "completed", "call_id": call_id, "name": name, "arguments": arguments,
    })
}

/// A call of a tool that takes any text, whose ids end with `at`.
pub fn custom_call(at: &str, name: &str, input: &str) -> Value {
    let (id, call_id) = (format!("ctc_{at}"), format!("call_{at}"));
    json!({ "id": id, "type": "custom_tool_call", "status": "completed", "call_id": call_id, "name": name, "input": input })
}

/// Thoughts, encrypted and in a summary.
pub fn reasoning(id: &str, thought: &str) -> Value {
    let summary = json!([{ "type": "summary_text", "text": thought }]);
    json!({ "id": id, "type": "reasoning", "summary": summary, "encrypted_content": encrypted(id, thought) })
}

const ENCRYPTED: &str = "encrypted by the provider: ";

/// Holds the item's id, so that the provider needs no memory. No text that a test looks for is in it.
pub fn encrypted(id: &str, thought: &str) -> String {
    BASE64_STANDARD.encode(format!("{ENCRYPTED}{id} {thought}"))
}

/// Whether this provider has encrypted this for the item.
pub(super) fn is_encrypted(id: &str, sealed: &str) -> bool {
    opened(ENCRYPTED, sealed).is_some_and(|thought| thought.split(' ').next() == Some(id))
}

/// The embeddings for a request: one vector for each text.
pub fn embedded(request: &ProviderRequest) -> ProviderAct {
    let asked = request.json();
    let texts = asked["input"].as_array().map_or(1, Vec::len);
    // Two numbers of four bytes.
    let vector = match asked["encoding_format"] == "base64" {
        true => json!(BASE64_STANDARD.encode([0_u8, 0, 0, 63, 0, 0, 128, 190])),
        false => json!([0.5, -0.25]),
    };
    let data = (0..texts).map(|index| json!({ "object": "embedding", "index": index, "embedding": vector }));
    let usage = json!({ "prompt_tokens": texts, "total_tokens": texts });
    let list = json!({ "object": "list", "data": data.collect::<Vec<_>>(), "model": asked["model"], "usage": usage });
    raw(200, &list.to_string())
}

/// A stream of this response.
pub fn stream(response: &Value) -> ProviderAct {
    stream_of(&events(response), StreamEnd::Closed)
}

/// A stream of these events.
pub fn stream_of(events: &[Value], end: StreamEnd) -> ProviderAct {
    ProviderAct::pieces(events.iter().map(event), end)
}

/// An event with this data.
pub fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().expect("an event has a type"))
}

/// All events of this response, its texts and arguments cut.
pub fn events(response: &Value) -> Vec<Value> {
    let items = response["output"].as_array().into_iter().flatten().enumerate();
    let items = items.flat_map(|(index, item)| events_of_item(index, item));
    numbered(begin(response).into_iter().chain(items).chain([end(response)]))
}

/// These events in their order, with what hides the length of texts on their way.
pub fn numbered(events: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let number = |(number, mut event): (usize, Value)| {
        event["sequence_number"] = json!(number);
        if event["delta"].is_string() {
            event["obfuscation"] = json!("aB3dE5");
        }
        event
    };
    events.into_iter().enumerate().map(number).collect()
}

/// The first events of this response.
pub fn begin(response: &Value) -> [Value; 2] {
    let mut open = response.clone();
    for (member, value) in [
        ("status", json!("in_progress")),
        ("output", json!([])),
        ("usage", Value::Null),
        ("incomplete_details", Value::Null),
    ] {
        open[member] = value;
    }
    ["response.created", "response.in_progress"].map(|kind| json!({ "type": kind, "response": open }))
}

/// The last event of this response.
pub fn end(response: &Value) -> Value {
    let status = response["status"].as_str().expect("a response has a status");
    json!({ "type": format!("response.{status}"), "response": response })
}

/// The events of one item.
pub fn events_of_item(index: usize, item: &Value) -> Vec<Value> {
    let place = json!({ "item_id": item["id"], "output_index": index });
    let mut empty = item.clone();
    if !item["status"].is_null() {
        empty["status"] = json!("in_progress");
    }
    let mut inner = Vec::new();
    for list in ["summary", "content"] {
        if let Some(parts) = item[list].as_array() {
            empty[list] = json!([]);
            let parts = parts.iter().enumerate();
            inner.extend(parts.flat_map(|(at, part)| events_of_part(&place, list, at, part)));
        }
    }
    for (member, kind) in [("arguments", "function_call_arguments"), ("input", "custom_tool_call_input")] {
        if let Some(text) = item[member].as_str() {
            empty[member] = json!("");
            inner.extend(events_of_text(&place, kind, member, text));
        }
    }
    let around = |event: &str, item: &Value| json!({ "type": format!("response.output_item.{event}"), "output_index": index, "item": item });
    std::iter::once(around("added", &empty)).chain(inner).chain([around("done", item)]).collect()
}

fn events_of_part(place: &Value, list: &str, at: usize, part: &Value) -> Vec<Value> {
    let (frame, index) = match list {
        "summary" => ("reasoning_summary_part", "summary_index"),
        _ => ("content_part", "content_index"),
    };
    let (kind, member) = match part["type"].as_str() {
        Some("summary_text") => ("reasoning_summary_text", "text"),
        Some("reasoning_text") => ("reasoning_text", "text"),
        Some("refusal") => ("refusal", "refusal"),
        _ => ("output_text", "text"),
    };
    let mut place = place.clone();
    place[index] = json!(at);
    let with = |kind: String, member: &str, value: &Value| {
        let mut data = place.clone();
        data["type"] = json!(kind);
        data[member] = value.clone();
        data
    };
    let mut empty = part.clone();
    empty[member] = json!("");
    let mut annotations = Vec::new();
    if let Some(all) = part["annotations"].as_array() {
        empty["annotations"] = json!([]);
        annotations.extend(all.iter().enumerate().map(|(at, one)| {
            let mut data = with("response.output_text.annotation.added".to_owned(), "annotation", one);
            data["annotation_index"] = json!(at);
            data
        }));
    }
    let mut texts = events_of_text(&place, kind, member, part[member].as_str().unwrap_or_default());
    let done = texts.pop();
    std::iter::once(with(format!("response.{frame}.added"), "part", &empty))
        .chain(texts)
        .chain(annotations)
        .chain(done)
        .chain([with(format!("response.{frame}.done"), "part", part)])
        .collect()
}

/// The pieces of a text, and at last all of it.
fn events_of_text(place: &Value, kind: &str, member: &str, text: &str) -> Vec<Value> {
    let with = |event: &str, member: &str, text: &str| {
        let mut data = place.clone();
        data["type"] = json!(format!("response.{kind}.{event}"));
        data[member] = json!(text);
        if kind == "output_text" {
            data["logprobs"] = json!([]);
        }
        data
    };
    let pieces = cut(text);
    pieces.iter().map(|piece| with("delta", "delta", piece)).chain([with("done", member, text)]).collect()
}
