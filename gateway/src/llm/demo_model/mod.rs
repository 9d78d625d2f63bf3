//! A model that is a script, for trying the proxy without a provider and its key. It repeats what it is told, and calls
//! the tool that the user names. It reads a request's bytes and gives an answer as OpenAI's or Anthropic's API does;
//! nothing is sent.

mod chat;
mod embeddings;
mod messages;
mod openai;
mod responses;

use std::{collections::VecDeque, fmt};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use tokio::time::{Duration, Instant, sleep_until};
use uuid::Uuid;

/// Between two words of a streamed answer.
const PAUSE: Duration = Duration::from_millis(20);
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
    Streamed(EventStream),
}

impl DemoBody {
    /// The next piece. If it is dropped before its end, nothing is lost.
    pub(super) async fn piece(&mut self) -> Option<Bytes> {
        match self {
            DemoBody::Whole(body) => body.take(),
            DemoBody::Streamed(stream) => {
                sleep_until(stream.due).await;
                stream.due = Instant::now() + PAUSE;
                stream.next_events()
            }
        }
    }
}

/// The answer to a request to `path`, below the URL of an API.
pub(super) fn answer(path: &str, body: &Bytes) -> DemoAnswer {
    let id = Uuid::now_v7().simple().to_string();
    let request_id = format!("req_demo_{id}");
    let (id_header, mut answer) = match path {
        "chat/completions" => (openai::REQUEST_ID, chat::answer(body, &id)),
        "responses" => (openai::REQUEST_ID, responses::answer(body, &id)),
        "embeddings" => (openai::REQUEST_ID, embeddings::answer(body)),
        "v1/messages" => (messages::REQUEST_ID, messages::answer(body, &id, &request_id)),
        "v1/messages/count_tokens" => (messages::REQUEST_ID, messages::token_count(body, &request_id)),
        _ => (openai::REQUEST_ID, openai::unknown_path(path)),
    };
    answer.headers.insert(id_header, HeaderValue::from_str(&request_id).expect("letters and digits"));
    answer
}

impl DemoAnswer {
    fn json(status: StatusCode, value: &impl Serialize) -> Self {
        let json = serde_json::to_vec(value).expect("texts and numbers are JSON");
        Self::new(status, "application/json", DemoBody::Whole(Some(json.into())))
    }

    fn streamed(reply: impl Reply + 'static) -> Self {
        let stream = EventStream::new(Box::new(reply));
        Self::new(StatusCode::OK, "text/event-stream; charset=utf-8", DemoBody::Streamed(stream))
    }

    fn new(status: StatusCode, content_type: &'static str, body: DemoBody) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        DemoAnswer { status, headers, body }
    }
}

/// Reads a request.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    if body.len() > MAX_REQUEST {
        return Err(format!("The demo model takes at most {MAX_REQUEST} bytes"));
    }
    serde_json::from_slice(body).map_err(|error| format!("The request can't be read: {error}"))
}

fn check_tool_count(count: usize) -> Result<(), String> {
    if count > MAX_TOOLS { Err(format!("`tools` has more than {MAX_TOOLS}")) } else { Ok(()) }
}

/// A text, also one in parts.
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

impl Content {
    /// The text; several parts one per line.
    fn text(&self) -> String {
        match self {
            Content::Text(text) => text.clone(),
            Content::Parts(parts) => lines(parts.iter().filter_map(|part| part.text.as_deref())),
        }
    }
}

fn lines<'t>(texts: impl Iterator<Item = &'t str>) -> String {
    texts.collect::<Vec<_>>().join("\n")
}

/// What the model makes its answer from.
struct Prompt {
    /// What the user has said, one text for each message.
    user_texts: Vec<String>,
    /// The result of a tool, if nobody has said anything since.
    result: Option<String>,
    /// Names of the tools that the model may call.
    tools: Vec<String>,
}

/// What the model says.
#[derive(Debug)]
enum Speech {
    Text(String),
    /// A call of the tool `name`. The arguments are a JSON object.
    Call {
        name: String,
        arguments: String,
    },
}

impl Speech {
    fn new(prompt: &Prompt) -> Self {
        if let Some(result) = &prompt.result {
            return Speech::Text(format!("The tool said: {result}"));
        }
        let text = prompt.user_texts.last().map_or("", String::as_str);
        let named = prompt.tools.iter().filter(|name| !name.is_empty() && text.contains(name.as_str()));
        // A name may be a part of another one.
        match named.max_by_key(|name| name.len()) {
            Some(name) => {
                Speech::Call { name: name.clone(), arguments: first_object(text).unwrap_or("{}").to_owned() }
            }
            // All that the user has said, so that people see what is left of a conversation.
            None => Speech::Text(format!("You said: {}", prompt.user_texts.join(" | "))),
        }
    }

    fn text(&self) -> &str {
        match self {
            Speech::Text(text) => text,
            Speech::Call { arguments, .. } => arguments,
        }
    }

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

/// How many words a text has. The model takes them for tokens.
fn words(text: &str) -> usize {
    text.split_whitespace().count()
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

/// An answer of the model as the events of an API. They are made in their order, since some APIs number them.
trait Reply: fmt::Debug + Send + Sync {
    /// What the model says.
    fn speech(&self) -> &Speech;

    /// The events before the text.
    fn start(&mut self) -> Bytes;

    /// The events with a further piece of the text.
    fn delta(&mut self, piece: &str) -> Bytes;

    /// The events after the text. Each item comes on its own.
    fn end(&mut self) -> VecDeque<Bytes>;
}

/// The events of a streamed answer. They are made as they are read, since they take far more room than the answer.
#[derive(Debug)]
pub(super) struct EventStream {
    reply: Box<dyn Reply>,
    /// When the next events may be read.
    due: Instant,
    /// Where in the text the next piece begins.
    at: usize,
    is_begun: bool,
    /// The end, once the text has ended.
    end: Option<VecDeque<Bytes>>,
}

impl EventStream {
    fn new(reply: Box<dyn Reply>) -> Self {
        EventStream { reply, due: Instant::now(), at: 0, is_begun: false, end: None }
    }

    fn next_events(&mut self) -> Option<Bytes> {
        if !std::mem::replace(&mut self.is_begun, true) {
            return Some(self.reply.start());
        }
        let speech = self.reply.speech();
        let rest = &speech.text()[self.at..];
        if !rest.is_empty() {
            let piece = rest[..speech.piece(rest)].to_owned();
            self.at += piece.len();
            return Some(self.reply.delta(&piece));
        }
        self.end.get_or_insert_with(|| self.reply.end()).pop_front()
    }
}

#[cfg(test)]
mod tests;
