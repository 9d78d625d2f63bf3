//! A provider of models that answers at once, over HTTP/1.1: one completion, or a stream.

use std::{convert::Infallible, sync::LazyLock, time::Duration};

use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Body, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use crate::{BenchError, payload};

/// How a streamed answer is written. The model of the request says which one it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum StreamShape {
    /// 500 pieces without a pause.
    Long,
    /// One word without a pause.
    Short,
    /// 80 pieces a second, for a third of a second.
    Slow,
    /// A word, and nothing more.
    Stalled,
    /// A piece of 1 MiB.
    Huge,
}

impl StreamShape {
    const ALL: [StreamShape; 5] =
        [StreamShape::Long, StreamShape::Short, StreamShape::Slow, StreamShape::Stalled, StreamShape::Huge];

    /// The model that answers with it.
    pub(crate) const fn model(self) -> &'static str {
        match self {
            StreamShape::Long => "long",
            StreamShape::Short => "short",
            StreamShape::Slow => "slow",
            StreamShape::Stalled => "stalled",
            StreamShape::Huge => "huge",
        }
    }

    pub(crate) const fn pieces(self) -> usize {
        match self {
            StreamShape::Long => 500,
            StreamShape::Short | StreamShape::Stalled | StreamShape::Huge => 3,
            StreamShape::Slow => 27,
        }
    }

    /// Whether its first text is timed.
    pub(crate) const fn begins_with_a_word(self) -> bool {
        !matches!(self, StreamShape::Long | StreamShape::Huge)
    }

    /// Between two pieces.
    const fn pause(self) -> Duration {
        match self {
            StreamShape::Long | StreamShape::Short | StreamShape::Huge => Duration::ZERO,
            StreamShape::Slow => Duration::from_micros(12_500),
            StreamShape::Stalled => Duration::from_secs(3600),
        }
    }

    /// The shape that this request asks for. `None` for a whole answer.
    fn asked_for(request: &[u8]) -> Option<Self> {
        let has = |member: &str| request.windows(member.len()).any(|part| part == member.as_bytes());
        let is_named = |shape: &StreamShape| has(&format!(r#""model":"{}""#, shape.model()));
        StreamShape::ALL.into_iter().find(is_named)
    }
}

/// Serves on a free port. `ready` is called with the address.
pub(crate) async fn serve(ready: impl FnOnce(&str)) -> Result<(), BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    ready(&format!("http://{}", listener.local_addr()?));
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(serve_connection(stream));
    }
}

async fn serve_connection(stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    // The caller reports how a connection ended.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)).await;
}

async fn answer(request: Request<Incoming>) -> Result<Response<BoxBody<Bytes, Infallible>>, hyper::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    let (content_type, body) = match StreamShape::asked_for(&body) {
        Some(shape) => ("text/event-stream", BoxBody::new(pieces(shape))),
        None => ("application/json", BoxBody::new(Full::new(completion()))),
    };
    let mut answer = Response::new(body);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    Ok(answer)
}

/// An answer of 1 KiB of text that calls a tool as well, so that each point has something to judge.
fn completion() -> Bytes {
    let message = json!({
        "role": "assistant", "content": payload::text(payload::SMALL_BYTES),
        "tool_calls": [{ "id": "call_2", "type": "function", "function": { "name": "fs_read", "arguments": "{\"path\":\"a\"}" } }],
    });
    let answer = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-5",
        "choices": [{ "index": 0, "message": message, "finish_reason": "tool_calls" }],
        "usage": { "prompt_tokens": 250, "completion_tokens": 250, "total_tokens": 500 },
    });
    answer.to_string().into()
}

/// A piece with this delta and reason to finish.
macro_rules! piece {
    ($delta:literal, $reason:literal) => {
        concat!(
            r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-5","choices":[{"index":0,"delta":{"#,
            $delta,
            r#"},"finish_reason":"#,
            $reason,
            "}]}\n\n"
        )
    };
}

const WORD_PIECE: &str = piece!("\"content\":\" word\"", "null");

static HUGE_PIECE: LazyLock<Bytes> =
    LazyLock::new(|| WORD_PIECE.replace(" word", &payload::text(payload::HUGE_BYTES)).into());

/// A streamed answer: a word in each piece, and at last two that end it. Each is written by itself.
fn pieces(shape: StreamShape) -> impl Body<Data = Bytes, Error = Infallible> {
    StreamBody::new(stream::unfold(shape.pieces(), move |left| async move {
        if left < shape.pieces() {
            match shape.pause() {
                // hyper writes what it has when the body has nothing more for now.
                Duration::ZERO => tokio::task::yield_now().await,
                pause => tokio::time::sleep(pause).await,
            }
        }
        let piece = match left {
            0 => return None,
            1 => Bytes::from_static(b"data: [DONE]\n\n"),
            2 => Bytes::from_static(piece!("", "\"stop\"").as_bytes()),
            _ if shape == StreamShape::Huge => HUGE_PIECE.clone(),
            _ => Bytes::from_static(WORD_PIECE.as_bytes()),
        };
        Some((Ok(Frame::data(piece)), left - 1))
    }))
}
