//! What a provider with Anthropic's Messages API answers. It is as strict about requests as Anthropic.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use serde_json::{Value, json};

use super::{FakeProvider, ProviderAct, ProviderRequest, StreamEnd, messages_rules};

const MESSAGES: &str = "/v1/messages";
const COUNT_TOKENS: &str = "/v1/messages/count_tokens";

/// Whether requests to it have an answer of this API.
pub(super) fn is_path(path: &str) -> bool {
    path == MESSAGES || is_count(path)
}

/// Whether requests to it count tokens.
pub(super) fn is_count(path: &str) -> bool {
    path == COUNT_TOKENS
}

impl FakeProvider {
    /// A provider with Anthropic's API that follows a script for messages. It refuses what Anthropic refuses, and requests that
    /// don't have exactly this credential. A scripted message is streamed if the request wants a stream.
    pub async fn of_messages(
        credential: &'static str,
        script: impl Fn(&ProviderRequest) -> ProviderAct + Send + Sync + 'static,
    ) -> Self {
        Self::start(move |request| match messages_rules::refusal(request, credential) {
            Some(refusal) => refusal,
            None if is_count(&request.path) => tokens(request),
            None => for_request(script(request), request),
        })
        .await
    }
}

/// As many tokens as the conversation's text has bytes.
fn tokens(request: &ProviderRequest) -> ProviderAct {
    let tokens = request.json()["messages"].to_string().len();
    raw(200, &json!({ "input_tokens": tokens }).to_string())
}

fn for_request(act: ProviderAct, request: &ProviderRequest) -> ProviderAct {
    match &act {
        ProviderAct::Answer(200, _, body) if request.json()["stream"] == true => {
            match serde_json::from_slice::<Value>(body) {
                Ok(message) if message["type"] == "message" => stream(&message),
                _ => act,
            }
        }
        _ => act,
    }
}

/// Status and text of a body.
pub fn raw(status: u16, body: &str) -> ProviderAct {
    let headers = vec![("content-type", "application/json".to_owned()), ("request-id", "req-1".to_owned())];
    ProviderAct::Answer(status, headers, Bytes::copy_from_slice(body.as_bytes()))
}

/// An error, such as `overloaded_error` with status 529.
pub fn error(status: u16, kind: &str, message: &str) -> ProviderAct {
    let error = json!({ "type": kind, "message": message });
    raw(status, &json!({ "type": "error", "error": error, "request_id": "req-1" }).to_string())
}

/// A message with this JSON.
pub fn answer(message: &Value) -> ProviderAct {
    raw(200, &message.to_string())
}

/// A message that says this.
pub fn says(said: &str) -> ProviderAct {
    answer(&message(&json!([text(said)])))
}

/// A message that calls these tools, each a name and its arguments.
pub fn calls(calls: &[(&str, Value)]) -> ProviderAct {
    let calls = calls.iter().enumerate();
    let calls: Vec<_> =
        calls.map(|(at, (name, input))| tool_use(&format!("toolu_{at}"), name, input)).collect();
    answer(&message(&json!(calls)))
}

/// A message with this content.
pub fn message(content: &Value) -> Value {
    let has_calls = content.as_array().into_iter().flatten().any(|block| block["type"] == "tool_use");
    let usage = json!({
        "input_tokens": 5, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 3, "output_tokens": 7,
        "service_tier": "standard",
    });
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-5-20260929", "content": content,
        "stop_reason": if has_calls { "tool_use" } else { "end_turn" }, "stop_sequence": null, "usage": usage,
    })
}

/// A block of text.
pub fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// A block with a tool call.
pub fn tool_use(id: &str, name: &str, input: &Value) -> Value {
    json!({ "type": "tool_use", "id": id, "name": name, "input": input })
}

/// A block with signed thinking.
pub fn thinking(thinking: &str) -> Value {
    json!({ "type": "thinking", "thinking": thinking, "signature": signature(thinking) })
}

/// A block with encrypted thinking.
pub fn redacted_thinking(thinking: &str) -> Value {
    json!({ "type": "redacted_thinking", "data": encrypted(thinking) })
}

const SIGNED: &str = "signed by the provider: ";
const ENCRYPTED: &str = "encrypted by the provider: ";

/// Contains what it signs, so that the provider needs no memory.
pub fn signature(thinking: &str) -> String {
    BASE64_STANDARD.encode(format!("{SIGNED}{thinking}"))
}

/// No text that a test looks for is in it.
pub fn encrypted(thinking: &str) -> String {
    BASE64_STANDARD.encode(format!("{ENCRYPTED}{thinking}"))
}

/// Whether this provider has signed this, or a client left out the text.
pub(super) fn is_signature(signature: &str, thinking: &str) -> bool {
    opened(SIGNED, signature).is_some_and(|signed| thinking.is_empty() || signed == thinking)
}

/// Whether this provider has encrypted this.
pub(super) fn is_encrypted(data: &str) -> bool {
    opened(ENCRYPTED, data).is_some()
}

/// What was sealed so.
pub(super) fn opened(by: &str, sealed: &str) -> Option<String> {
    let text = String::from_utf8(BASE64_STANDARD.decode(sealed).ok()?).ok()?;
    text.strip_prefix(by).map(str::to_owned)
}

/// A stream of this message.
pub fn stream(message: &Value) -> ProviderAct {
    ProviderAct::pieces(events(message), StreamEnd::Closed)
}

/// A stream of these events.
pub fn stream_of(events: &[Value], end: StreamEnd) -> ProviderAct {
    ProviderAct::pieces(events.iter().map(event), end)
}

/// An event with this data.
pub fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().expect("an event has a type"))
}

/// The first event of this message.
pub fn start(message: &Value) -> Value {
    let mut start = message.clone();
    start["content"] = json!([]);
    start["stop_reason"] = Value::Null;
    start["usage"]["output_tokens"] = json!(1);
    json!({ "type": "message_start", "message": start })
}

/// A piece of the block at `index`.
pub fn delta(index: usize, delta: &Value) -> Value {
    json!({ "type": "content_block_delta", "index": index, "delta": delta })
}

/// All events of this message, its texts and arguments cut, with pings between.
pub fn events(message: &Value) -> Vec<String> {
    let ping = json!({ "type": "ping" });
    let mut events = vec![start(message), ping.clone()];
    for (index, block) in message["content"].as_array().into_iter().flatten().enumerate() {
        events.extend(events_of_block(index, block));
        events.push(ping.clone());
    }
    let end = json!({ "stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"] });
    let usage = json!({ "output_tokens": message["usage"]["output_tokens"] });
    events.push(json!({ "type": "message_delta", "delta": end, "usage": usage }));
    events.push(json!({ "type": "message_stop" }));
    events.iter().map(event).collect()
}

/// The events of one block.
pub fn events_of_block(index: usize, block: &Value) -> Vec<Value> {
    let mut empty = block.clone();
    let mut deltas = Vec::new();
    for (member, kind) in
        [("text", "text_delta"), ("thinking", "thinking_delta"), ("signature", "signature_delta")]
    {
        if let Some(text) = block[member].as_str() {
            empty[member] = json!("");
            // A signature is never cut.
            let pieces = if member == "signature" { vec![text.to_owned()] } else { cut(text) };
            deltas.extend(pieces.iter().map(|piece| json!({ "type": kind, member: piece })));
        }
    }
    if let Some(citations) = block["citations"].as_array() {
        empty["citations"] = json!([]);
        deltas.extend(citations.iter().map(|one| json!({ "type": "citations_delta", "citation": one })));
    }
    if block["type"] == "tool_use" {
        empty["input"] = json!({});
        let pieces = cut(&block["input"].to_string());
        let pieces = std::iter::once(String::new()).chain(pieces);
        deltas.extend(pieces.map(|piece| json!({ "type": "input_json_delta", "partial_json": piece })));
    }
    let begin = json!({ "type": "content_block_start", "index": index, "content_block": empty });
    let end = json!({ "type": "content_block_stop", "index": index });
    std::iter::once(begin).chain(deltas.iter().map(|one| delta(index, one))).chain([end]).collect()
}

/// Pieces of a text.
pub(super) fn cut(text: &str) -> Vec<String> {
    text.chars().collect::<Vec<_>>().chunks(3).map(|piece| piece.iter().collect()).collect()
}
