//! A provider of models that answers at once, over HTTP/1.1: one completion, or its stream in many pieces.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::{
    body::{Body, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use crate::{BenchError, payload};

/// Pieces of a streamed answer.
pub(crate) const CHUNKS: usize = 500;

/// What a request for a stream has in it.
pub(crate) const STREAM_MEMBER: &[u8] = br#""stream":true"#;

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
    let is_streamed = body.windows(STREAM_MEMBER.len()).any(|part| part == STREAM_MEMBER);
    let (content_type, body) = if is_streamed {
        ("text/event-stream", BoxBody::new(ChunkBody { left: CHUNKS, is_due: true }))
    } else {
        ("application/json", BoxBody::new(Full::new(completion())))
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

/// A streamed answer. It has nothing between two pieces, so that each is written by itself.
struct ChunkBody {
    left: usize,
    is_due: bool,
}

impl Body for ChunkBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if !std::mem::replace(&mut self.is_due, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.is_due = false;
        let piece: &'static [u8] = match self.left {
            0 => return Poll::Ready(None),
            1 => b"data: [DONE]\n\n",
            _ => {
                br#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-5","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}

"#
            }
        };
        self.left -= 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(piece)))))
    }
}
