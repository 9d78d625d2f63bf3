//! A model that is a script, for trying the proxy without a provider and its key. It repeats what it is told, and calls
//! the tools that the user names. It reads a request's bytes and gives an answer as OpenAI's API does; nothing is sent.

use std::{
    collections::VecDeque,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

/// Between two words of a streamed answer.
const PAUSE: Duration = Duration::from_millis(20);
const MAX_CHOICES: usize = 8;
/// Largest request, in bytes. Reading a larger one would take time from others.
const MAX_REQUEST: usize = 256 << 10;
const MAX_TOOLS: usize = 128;

/// What the model answers.
pub(super) struct DemoAnswer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: DemoBody,
}

/// The body of an answer.
#[derive(Debug)]
pub(super) enum DemoBody {
    /// Comes at once.
    Whole(Option<Bytes>),
    /// Comes word by word.
    Streamed(Box<EventStream>),
}

impl DemoBody {
    /// The next piece. If it is dropped before its end, nothing is lost.
    pub(super) async fn piece(&mut self) -> Option<Bytes> {
        match self {
            DemoBody::Whole(body) => body.take(),
            DemoBody::Streamed(stream) => {
                sleep_until(stream.due).await;
                stream.due = Instant::now() + PAUSE;
                stream.next_event()
            }
        }
    }
}

/// The answer to a request to `/chat/completions`.
pub(super) fn answer(request: &[u8]) -> DemoAnswer {
    let id = Uuid::now_v7().simple().to_string();
    let turn = match request.len() {
        0..=MAX_REQUEST => serde_json::from_slice(request)
            .map_err(|error| format!("The request can't be read: {error}"))
            .and_then(|request| Turn::new(request, &id)),
        _ => Err(format!("The demo model takes at most {MAX_REQUEST} bytes")),
    };
    let (status, content_type, body) = match turn {
        Ok(turn) if turn.is_streamed => {
            let stream = DemoBody::Streamed(Box::new(EventStream::new(turn)));
            (StatusCode::OK, "text/event-stream; charset=utf-8", stream)
        }
        Ok(turn) => (StatusCode::OK, "application/json", whole(&turn.completion())),
        Err(message) => (StatusCode::BAD_REQUEST, "application/json", whole(&error(&message))),
    };
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    let id = HeaderValue::from_str(&format!("req_demo_{id}")).expect("letters and digits");
    headers.insert("x-request-id", id);
    DemoAnswer { status, headers, body }
}

fn whole(value: &Value) -> DemoBody {
    DemoBody::Whole(Some(value.to_string().into()))
}

fn error(message: &str) -> Value {
    json!({ "error": { "message": message, "type": "invalid_request_error", "param": null, "code": null } })
}

#[derive(Deserialize)]
struct Request {
    model: String,
    messages: Vec<Message>,
    tools: Option<Vec<Tool>>,
    tool_choice: Option<Value>,
    n: Option<usize>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: Option<Content>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    text: Option<String>,
}

#[derive(Deserialize)]
struct Tool {
    function: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    name: String,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

impl Message {
    /// Its text; several parts one per line.
    fn text(&self) -> String {
        match &self.content {
            None => String::new(),
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => {
                parts.iter().filter_map(|part| part.text.as_deref()).collect::<Vec<_>>().join("\n")
            }
        }
    }
}

/// What the model says.
#[derive(Debug)]
enum Speech {
    Text(String),
    /// A call of the function `name`.
    Call {
        name: String,
        arguments: String,
    },
}

/// All that the user has said, so that people see what is left of a conversation.
fn all_of_user(request: &Request) -> String {
    let texts = request.messages.iter().filter(|message| message.role == "user").map(Message::text);
    texts.collect::<Vec<_>>().join(" | ")
}

impl Speech {
    fn new(request: &Request) -> Result<Self, String> {
        let newest = request.messages.iter().rfind(|message| message.role != "assistant");
        let newest = newest.ok_or("`messages` has no message for the assistant")?;
        if newest.role == "tool" {
            return Ok(Speech::Text(format!("The tool said: {}", newest.text())));
        }
        let user = request.messages.iter().rfind(|message| message.role == "user");
        let text = user.map(Message::text).unwrap_or_default();
        let may_call = request.tool_choice.as_ref().is_none_or(|choice| choice != "none");
        let tools = request.tools.iter().flatten().filter(|_| may_call);
        let named = tools.filter_map(|tool| Some(&tool.function.as_ref()?.name));
        // A name may be a part of another one.
        let named =
            named.filter(|name| !name.is_empty() && text.contains(&**name)).max_by_key(|name| name.len());
        Ok(match named {
            Some(name) => {
                Speech::Call { name: name.clone(), arguments: first_object(&text).unwrap_or("{}").to_owned() }
            }
            None => Speech::Text(format!("You said: {}", all_of_user(request))),
        })
    }

    fn text(&self) -> &str {
        match self {
            Speech::Text(text) => text,
            Speech::Call { arguments, .. } => arguments,
        }
    }

    fn finish_reason(&self) -> &'static str {
        match self {
            Speech::Text(_) => "stop",
            Speech::Call { .. } => "tool_calls",
        }
    }
}

/// The first JSON object in `text`.
fn first_object(text: &str) -> Option<&str> {
    text.match_indices('{').find_map(|(at, _)| {
        let rest = &text[at..];
        let mut objects = serde_json::Deserializer::from_str(rest).into_iter::<Map<String, Value>>();
        objects.next()?.ok()?;
        Some(&rest[..objects.byte_offset()])
    })
}

/// One answer of the model.
#[derive(Debug)]
struct Turn {
    id: String,
    created: u64,
    model: String,
    choices: usize,
    speech: Speech,
    usage: Value,
    is_streamed: bool,
    includes_usage: bool,
}

impl Turn {
    fn new(request: Request, id: &str) -> Result<Self, String> {
        let choices = request.n.unwrap_or(1);
        if !(1..=MAX_CHOICES).contains(&choices) {
            return Err(format!("`n` must be from 1 to {MAX_CHOICES}"));
        }
        if request.tools.as_ref().is_some_and(|tools| tools.len() > MAX_TOOLS) {
            return Err(format!("`tools` has more than {MAX_TOOLS}"));
        }
        let speech = Speech::new(&request)?;
        let words = |text: &str| text.split_whitespace().count();
        let prompt: usize = request.messages.iter().map(|message| words(&message.text())).sum();
        let completion = words(speech.text()) * choices;
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Turn {
            id: id.to_owned(),
            created: since_epoch.as_secs(),
            choices,
            speech,
            usage: json!({
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
            }),
            is_streamed: request.stream == Some(true),
            includes_usage: request.stream_options.and_then(|options| options.include_usage) == Some(true),
            model: request.model,
        })
    }

    fn completion(&self) -> Value {
        let choice = |index| {
            let mut message = json!({ "role": "assistant", "content": null, "refusal": null });
            match &self.speech {
                Speech::Text(text) => message["content"] = text.as_str().into(),
                Speech::Call { name, arguments } => {
                    let function = json!({ "name": name, "arguments": arguments });
                    message["tool_calls"] =
                        json!([{ "id": self.call_id(index), "type": "function", "function": function }]);
                }
            }
            let finish_reason = self.speech.finish_reason();
            json!({ "index": index, "message": message, "logprobs": null, "finish_reason": finish_reason })
        };
        let choices: Vec<_> = (0..self.choices).map(choice).collect();
        let mut completion = self.head("chat.completion");
        completion["choices"] = choices.into();
        completion["usage"] = self.usage.clone();
        completion
    }

    fn head(&self, object: &str) -> Value {
        let id = format!("chatcmpl-demo-{}", self.id);
        json!({ "id": id, "object": object, "created": self.created, "model": self.model })
    }

    fn call_id(&self, choice: usize) -> String {
        format!("call_demo_{}_{choice}", self.id)
    }
}

/// The events of a streamed answer. They are made as they are read, since they take far more room than the answer.
#[derive(Debug)]
pub(super) struct EventStream {
    turn: Turn,
    /// When the next event may be read.
    due: Instant,
    /// Where in the text the next piece begins.
    at: usize,
    is_begun: bool,
    /// The end, once the text has ended.
    end: Option<VecDeque<String>>,
}

impl EventStream {
    fn new(turn: Turn) -> Self {
        EventStream { turn, due: Instant::now(), at: 0, is_begun: false, end: None }
    }

    /// The next events: one for each choice, or one of the end.
    fn next_event(&mut self) -> Option<Bytes> {
        if !std::mem::replace(&mut self.is_begun, true) {
            return Some(self.chunks(|turn, choice| (turn.first_delta(choice), None)));
        }
        let rest = &self.turn.speech.text()[self.at..];
        if !rest.is_empty() {
            let length = self.turn.speech.piece(rest);
            let piece = rest[..length].to_owned();
            self.at += length;
            return Some(self.chunks(|turn, _| (turn.delta(&piece), None)));
        }
        let end = self.end.get_or_insert_with(|| self.turn.end());
        end.pop_front().map(Bytes::from)
    }

    fn chunks(&self, delta: impl Fn(&Turn, usize) -> (Value, Option<&'static str>)) -> Bytes {
        self.turn.chunks(delta).into()
    }
}

impl Speech {
    /// The length of the first piece of `rest`: a word with the space behind it, or half of the arguments.
    fn piece(&self, rest: &str) -> usize {
        match self {
            Speech::Text(_) => rest.find(char::is_whitespace).map_or(rest.len(), |space| {
                let behind = &rest[space..];
                rest.len() - behind.trim_start().len()
            }),
            Speech::Call { arguments, .. } if rest.len() == arguments.len() => {
                rest.ceil_char_boundary(rest.len().div_ceil(2))
            }
            Speech::Call { .. } => rest.len(),
        }
    }
}

impl Turn {
    /// The first part of a choice's message.
    fn first_delta(&self, choice: usize) -> Value {
        match &self.speech {
            Speech::Text(_) => json!({ "role": "assistant", "content": "" }),
            Speech::Call { name, .. } => {
                let function = json!({ "name": name, "arguments": "" });
                let call = json!({ "index": 0, "id": self.call_id(choice), "type": "function", "function": function });
                json!({ "role": "assistant", "content": null, "tool_calls": [call] })
            }
        }
    }

    /// A further part of each choice's message.
    fn delta(&self, piece: &str) -> Value {
        match &self.speech {
            Speech::Text(_) => json!({ "content": piece }),
            Speech::Call { .. } => {
                json!({ "tool_calls": [{ "index": 0, "function": { "arguments": piece } }] })
            }
        }
    }

    /// The events after the text.
    fn end(&self) -> VecDeque<String> {
        let mut end = VecDeque::from([self.chunks(|turn, _| (json!({}), Some(turn.speech.finish_reason())))]);
        if self.includes_usage {
            let mut chunk = self.chunk();
            chunk["usage"] = self.usage.clone();
            end.push_back(event(&chunk));
        }
        end.push_back("data: [DONE]\n\n".to_owned());
        end
    }

    /// One event for each choice.
    fn chunks(&self, delta: impl Fn(&Turn, usize) -> (Value, Option<&'static str>)) -> String {
        let of_choice = |index| {
            let (delta, finish_reason) = delta(self, index);
            let mut chunk = self.chunk();
            chunk["choices"] =
                json!([{ "index": index, "delta": delta, "logprobs": null, "finish_reason": finish_reason }]);
            event(&chunk)
        };
        (0..self.choices).map(of_choice).collect()
    }

    fn chunk(&self) -> Value {
        let mut chunk = self.head("chat.completion.chunk");
        chunk["choices"] = json!([]);
        if self.includes_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }
}

fn event(chunk: &Value) -> String {
    format!("data: {chunk}\n\n")
}

#[cfg(test)]
#[path = "demo_model_tests.rs"]
mod tests;
