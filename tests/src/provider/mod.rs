//! A provider of models for tests: a real HTTP server that answers by a script, and records every request byte for byte.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

pub mod messages;
mod messages_rules;
pub mod responses;
mod responses_rules;

/// A request that reached the provider.
#[derive(Debug, Clone)]
pub struct ProviderRequest {
    /// Below the server's root.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl ProviderRequest {
    /// The body as JSON.
    ///
    /// # Panics
    /// It is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a request is JSON")
    }
}

/// What the provider does with a request.
#[derive(Debug, Clone)]
pub enum ProviderAct {
    /// Answers with status, headers and body.
    Answer(u16, Vec<(&'static str, String)>, Bytes),
    /// Streams these bytes with status 200, each after a pause.
    Stream(Vec<(Duration, Bytes)>, StreamEnd),
    /// Never answers.
    Hang,
}

/// What is at the end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// The ordinary end of a body.
    Closed,
    /// The connection is lost.
    Cut,
    /// Nothing more comes.
    Hang,
}

/// The end of every stream of chunks.
pub const DONE: &str = "data: [DONE]\n\n";

impl ProviderAct {
    /// A chat completion with this JSON.
    pub fn json(body: &Value) -> Self {
        Self::text(200, &body.to_string())
    }

    /// Status and JSON text.
    pub fn text(status: u16, body: &str) -> Self {
        let headers =
            vec![("content-type", "application/json".to_owned()), ("x-request-id", "req-1".to_owned())];
        ProviderAct::Answer(status, headers, Bytes::copy_from_slice(body.as_bytes()))
    }

    /// A stream of these chunks and `[DONE]`, one event a piece.
    pub fn stream(chunks: &[Value]) -> Self {
        let events = chunks.iter().map(event).chain([DONE.to_owned()]);
        Self::pieces(events, StreamEnd::Closed)
    }

    /// A stream of these texts.
    pub fn pieces(pieces: impl IntoIterator<Item = String>, end: StreamEnd) -> Self {
        ProviderAct::Stream(
            pieces.into_iter().map(|piece| (Duration::ZERO, Bytes::from(piece))).collect(),
            end,
        )
    }

    /// A stream that says these pieces of a text.
    pub fn streams(pieces: &[&str]) -> Self {
        let said = pieces.iter().map(|piece| chunk(0, &json!({ "content": piece }), None));
        let first = chunk(0, &json!({ "role": "assistant", "content": "" }), None);
        let last = chunk(0, &json!({}), Some("stop"));
        let chunks: Vec<_> = std::iter::once(first).chain(said).chain([last, usage_chunk()]).collect();
        Self::stream(&chunks)
    }

    /// The same stream with this pause before each piece.
    #[must_use]
    pub fn paced(self, pause: Duration) -> Self {
        match self {
            ProviderAct::Stream(pieces, end) => {
                ProviderAct::Stream(pieces.into_iter().map(|(_, piece)| (pause, piece)).collect(), end)
            }
            other => other,
        }
    }

    /// The same stream, which goes on with nothing after so many pieces.
    #[must_use]
    pub fn hangs_after(self, count: usize) -> Self {
        match self {
            ProviderAct::Stream(mut pieces, _) => {
                pieces.truncate(count);
                ProviderAct::Stream(pieces, StreamEnd::Hang)
            }
            other => other,
        }
    }

    /// The same, as a stream if the request wants one.
    pub fn for_request(self, request: &ProviderRequest) -> Self {
        match &self {
            ProviderAct::Answer(200, _, body) if request.json()["stream"] == true => {
                Self::stream(&chunks_of(&serde_json::from_slice(body).expect("a completion is JSON")))
            }
            _ => self,
        }
    }

    /// A chat completion that says this.
    pub fn says(content: &str) -> Self {
        Self::json(&completion(&json!([choice(json!({ "role": "assistant", "content": content }), "stop")])))
    }

    /// A chat completion that calls these tools, each a name and the text of its arguments.
    pub fn calls(calls: &[(&str, &str)]) -> Self {
        let calls = calls.iter().enumerate().map(|(at, (name, arguments))| {
            let function = json!({ "name": name, "arguments": arguments });
            json!({ "id": format!("call_{at}"), "type": "function", "function": function })
        });
        let message =
            json!({ "role": "assistant", "content": null, "tool_calls": calls.collect::<Vec<_>>() });
        Self::json(&completion(&json!([choice(message, "tool_calls")])))
    }
}

/// A chat completion with these choices.
pub fn completion(choices: &Value) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-5-2025-08-07", "choices": choices,
        "usage": { "prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12 },
    })
}

/// A chunk of a stream, with this delta.
pub fn chunk(index: usize, delta: &Value, finish_reason: Option<&str>) -> Value {
    let choice = json!({ "index": index, "delta": delta, "logprobs": null, "finish_reason": finish_reason });
    json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5-2025-08-07", "choices": [choice],
    })
}

/// A chat completion with one choice, in chunks that cut its text and its arguments.
fn chunks_of(completion: &Value) -> Vec<Value> {
    let choice = &completion["choices"][0];
    let pieces = |text: &str| -> Vec<String> {
        text.chars().collect::<Vec<_>>().chunks(3).map(|piece| piece.iter().collect()).collect()
    };
    let mut deltas = vec![json!({ "role": "assistant", "content": null })];
    let text = choice["message"]["content"].as_str().unwrap_or_default();
    deltas.extend(pieces(text).into_iter().map(|piece| json!({ "content": piece })));
    for (index, call) in choice["message"]["tool_calls"].as_array().into_iter().flatten().enumerate() {
        let function = json!({ "name": call["function"]["name"], "arguments": "" });
        let begin = json!({ "index": index, "id": call["id"], "type": "function", "function": function });
        deltas.push(json!({ "tool_calls": [begin] }));
        let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
        deltas.extend(
            pieces(arguments).into_iter().map(
                |piece| json!({ "tool_calls": [{ "index": index, "function": { "arguments": piece } }] }),
            ),
        );
    }
    let deltas = deltas.iter().map(|delta| chunk(0, delta, None));
    let last = chunk(0, &json!({}), choice["finish_reason"].as_str());
    deltas.chain([last, usage_chunk()]).collect()
}

/// The last chunk, if the request asks for the usage.
pub fn usage_chunk() -> Value {
    let mut chunk = completion(&json!([]));
    chunk["object"] = json!("chat.completion.chunk");
    chunk
}

/// A chunk as an event.
pub fn event(chunk: &Value) -> String {
    format!("data: {chunk}\n\n")
}

fn choice(message: Value, finish_reason: &str) -> Value {
    json!({ "index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason })
}

type Script = Arc<dyn Fn(&ProviderRequest) -> ProviderAct + Send + Sync>;

/// A running provider. It stops on drop.
pub struct FakeProvider {
    address: SocketAddr,
    seen: Arc<ProviderRecord>,
    serving: JoinHandle<()>,
}

#[derive(Default)]
struct ProviderRecord {
    requests: Mutex<Vec<ProviderRequest>>,
    /// Answers under way.
    answers: AtomicUsize,
}

/// Counts an answer under way.
struct AnswerCount(Arc<ProviderRecord>);

impl AnswerCount {
    fn new(seen: &Arc<ProviderRecord>) -> Self {
        seen.answers.fetch_add(1, Ordering::SeqCst);
        AnswerCount(Arc::clone(seen))
    }
}

impl Drop for AnswerCount {
    fn drop(&mut self) {
        self.0.answers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl FakeProvider {
    /// A provider that does the same with every request.
    pub async fn always(act: ProviderAct) -> Self {
        Self::start(move |_| act.clone()).await
    }

    /// A provider that follows a script.
    pub async fn start(script: impl Fn(&ProviderRequest) -> ProviderAct + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::<ProviderRecord>::default();
        let (seen, script): (_, Script) = (Arc::clone(&shared), Arc::new(script));
        let serving = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (seen, script) = (Arc::clone(&seen), Arc::clone(&script));
                let service =
                    service_fn(move |request| answer(request, Arc::clone(&seen), Arc::clone(&script)));
                tokio::spawn(async move {
                    let server = auto::Builder::new(TokioExecutor::new());
                    // A client that goes away is part of some tests.
                    let _ = server.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        FakeProvider { address, seen: shared, serving }
    }

    /// For `base_url` of an upstream with OpenAI's API.
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.root_url())
    }

    /// For `base_url` of an upstream with Anthropic's API.
    pub fn root_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far, in the order of their arrival.
    pub fn requests(&self) -> Vec<ProviderRequest> {
        self.seen.requests.lock().expect("no holder of this lock panics").clone()
    }

    /// How many answers are under way. One whose client goes away isn't.
    pub fn answers(&self) -> usize {
        self.seen.answers.load(Ordering::SeqCst)
    }

    /// Waits until no answer is under way.
    ///
    /// # Panics
    /// One still is after 2 s.
    pub async fn wait_until_idle(&self) {
        for _ in 0..100 {
            if self.answers() == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the provider still answers");
    }

    /// The only request.
    ///
    /// # Panics
    /// There is none, or another one.
    pub fn request(&self) -> ProviderRequest {
        let [request] = <[ProviderRequest; 1]>::try_from(self.requests()).expect("one request");
        request
    }
}

impl Drop for FakeProvider {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

type ProviderBody = UnsyncBoxBody<Bytes, std::io::Error>;

fn whole(body: Bytes) -> ProviderBody {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

async fn answer(
    request: Request<Incoming>,
    seen: Arc<ProviderRecord>,
    script: Script,
) -> Result<Response<ProviderBody>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let request = ProviderRequest { path: head.uri.path().to_owned(), headers: head.headers, body };
    seen.requests.lock().expect("no holder of this lock panics").push(request.clone());
    let count = AnswerCount::new(&seen);
    match script(&request) {
        ProviderAct::Answer(status, headers, body) => {
            let mut answer = Response::new(whole(body));
            *answer.status_mut() = StatusCode::from_u16(status).expect("a status");
            for (name, value) in headers {
                answer.headers_mut().insert(name, value.parse().expect("a header's value"));
            }
            Ok(answer)
        }
        ProviderAct::Stream(pieces, end) => {
            let mut answer = Response::new(streamed(pieces, end, count));
            let headers = answer.headers_mut();
            headers.insert("content-type", "text/event-stream".parse().expect("a header's value"));
            let request_id = if messages::is_path(&request.path) { "request-id" } else { "x-request-id" };
            headers.insert(request_id, "req-1".parse().expect("a header's value"));
            Ok(answer)
        }
        ProviderAct::Hang => {
            tokio::time::sleep(Duration::from_secs(600)).await;
            Ok(Response::new(whole(Bytes::new())))
        }
    }
}

fn streamed(pieces: Vec<(Duration, Bytes)>, end: StreamEnd, count: AnswerCount) -> ProviderBody {
    let pieces = stream::iter(pieces).then(|(pause, piece)| async move {
        tokio::time::sleep(pause).await;
        Ok(Frame::data(piece))
    });
    let last = stream::once(async move {
        let _count = count;
        if end == StreamEnd::Hang {
            tokio::time::sleep(Duration::from_secs(600)).await;
        }
        Err(std::io::Error::other("the script ends here"))
    });
    let last = last.filter(move |_| std::future::ready(end != StreamEnd::Closed));
    StreamBody::new(pieces.chain(last)).boxed_unsync()
}
