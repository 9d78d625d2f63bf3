//! The echo plugin as Envoy's `ext_proc` filter calls it: a server of
//! `envoy.service.ext_proc.v3.ExternalProcessor`. Like the echo plugin, it lets every call go on unchanged.
//!
//! Envoy opens a stream for each request. It sends the headers and, after the answer to those, the body; each
//! needs an answer of the same kind. The server reads no more of a message than its kind. An answer without
//! changes has always the same bytes, so generated code for Envoy's messages would add nothing.

use std::{
    convert::Infallible,
    task::{Context, Poll},
};

use bytes::{Buf, BufMut as _, Bytes};
use futures::{StreamExt as _, stream::Map};
use tokio::net::TcpListener;
use tonic::{
    Request, Response, Status, Streaming,
    body::Body,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::{BoxFuture, Service, http},
    server::{Grpc, NamedService, StreamingService},
    transport::server::TcpIncoming,
};

use crate::BenchError;

/// The numbers of the fields of `ProcessingRequest` that are sent.
const REQUEST_HEADERS: u64 = 2;
const REQUEST_BODY: u64 = 4;
/// A `ProcessingResponse` with an empty `request_headers`, its field 1: continue, without changes.
const HEADERS_ANSWER: Bytes = Bytes::from_static(&[0x0a, 0]);
/// A `ProcessingResponse` with an empty `request_body`, its field 3.
const BODY_ANSWER: Bytes = Bytes::from_static(&[0x1a, 0]);

/// The wire types of Protocol Buffers that the fields of `ProcessingRequest` have.
const VARINT: u64 = 0;
const LENGTH_DELIMITED: u64 = 2;
/// The most bytes of a number in a message.
const MAX_VARINT_BYTES: usize = 10;

/// The answer to a `ProcessingRequest`.
fn answer(mut request: Bytes) -> Result<Bytes, Status> {
    let malformed = || Status::invalid_argument("not a ProcessingRequest");
    while request.has_remaining() {
        let key = varint(&mut request).ok_or_else(malformed)?;
        match (key >> 3, key & 7) {
            (REQUEST_HEADERS, LENGTH_DELIMITED) => return Ok(HEADERS_ANSWER),
            (REQUEST_BODY, LENGTH_DELIMITED) => return Ok(BODY_ANSWER),
            (_, VARINT) => {
                varint(&mut request).ok_or_else(malformed)?;
            }
            (_, LENGTH_DELIMITED) => {
                let length = varint(&mut request).and_then(|length| usize::try_from(length).ok());
                let length = length.filter(|length| *length <= request.remaining());
                request.advance(length.ok_or_else(malformed)?);
            }
            _ => return Err(malformed()),
        }
    }
    Err(Status::unimplemented("only headers and bodies of requests are processed"))
}

/// The number at the start of `message`, which it takes off.
fn varint(message: &mut Bytes) -> Option<u64> {
    let mut number = 0;
    for place in 0..MAX_VARINT_BYTES {
        let byte = message.try_get_u8().ok()?;
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Passes messages on as bytes.
#[derive(Debug, Clone, Copy, Default)]
struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        BytesCodec
    }

    fn decoder(&mut self) -> Self {
        BytesCodec
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// The method `Process`.
struct ProcessMethod;

type Message = Result<Bytes, Status>;

impl StreamingService<Bytes> for ProcessMethod {
    type Response = Bytes;
    type ResponseStream = Map<Streaming<Bytes>, fn(Message) -> Message>;
    type Future = std::future::Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, requests: Request<Streaming<Bytes>>) -> Self::Future {
        let answers: fn(Message) -> Message = |request| request.and_then(answer);
        std::future::ready(Ok(Response::new(requests.into_inner().map(answers))))
    }
}

/// The service, of which Envoy calls the only method.
#[derive(Clone)]
struct ExternalProcessor;

impl NamedService for ExternalProcessor {
    const NAME: &'static str = "envoy.service.ext_proc.v3.ExternalProcessor";
}

impl Service<http::Request<Body>> for ExternalProcessor {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move { Ok(Grpc::new(BytesCodec).streaming(ProcessMethod, request).await) })
    }
}

/// Serves on a free port. `ready` is called with the address.
pub(crate) async fn serve(ready: impl FnOnce(&str)) -> Result<(), BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    ready(&listener.local_addr()?.to_string());
    let router = tonic::transport::Server::builder().add_service(ExternalProcessor);
    Ok(router.serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true))).await?)
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use tokio::sync::{mpsc, oneshot};
    use tokio_stream::wrappers::ReceiverStream;
    use tonic::{
        Code,
        codegen::http::uri::PathAndQuery,
        transport::{Channel, Endpoint},
    };

    use super::*;

    const PROCESS: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";
    /// What Envoy sends first: `request_headers`, here with one header, and `protocol_config`.
    const HEADERS: &[u8] = b"\x12\x13\x0a\x11\x0a\x0f\x0a\x07:method\x1a\x04POST\x5a\x02\x08\x02";

    /// A body of 200 bytes after fields that the server doesn't need, of each wire type.
    fn body() -> Bytes {
        let body = [&b"\x50\x01\x4a\x02\x0a\x00\x22\xcd\x01\x0a\xc8\x01"[..], &[b'x'; 200], b"\x10\x01"];
        body.concat().into()
    }

    async fn client() -> tonic::client::Grpc<Channel> {
        let (ready, address) = oneshot::channel();
        tokio::spawn(async move { serve(|address| drop(ready.send(format!("http://{address}")))).await });
        let endpoint = Endpoint::from_shared(address.await.expect("it serves")).expect("an address");
        let mut client = tonic::client::Grpc::new(endpoint.connect().await.expect("it listens"));
        client.ready().await.expect("it is connected");
        client
    }

    #[tokio::test]
    async fn headers_and_body_are_answered_in_turn_until_the_client_ends_the_stream() {
        let (messages, sent) = mpsc::channel(1);
        messages.send(Bytes::from_static(HEADERS)).await.expect("the stream is open");
        let request = Request::new(ReceiverStream::new(sent));
        let answers = client()
            .await
            .streaming(request, PathAndQuery::from_static(PROCESS), BytesCodec)
            .await
            .expect("it answers");
        let mut answers = answers.into_inner();
        assert_eq!(answers.message().await.expect("an answer"), Some(HEADERS_ANSWER));
        messages.send(body()).await.expect("the stream is open");
        assert_eq!(answers.message().await.expect("an answer"), Some(BODY_ANSWER));
        drop(messages);
        assert_eq!(answers.message().await.expect("the stream ends with OK"), None);
    }

    #[tokio::test]
    async fn a_message_that_nobody_asked_for_ends_the_stream_with_an_error() {
        let response_headers = Bytes::from_static(b"\x1a\x00");
        let request = Request::new(stream::iter([response_headers]));
        let answers = client()
            .await
            .streaming(request, PathAndQuery::from_static(PROCESS), BytesCodec)
            .await
            .expect("it answers");
        let status = answers.into_inner().message().await.expect_err("there is no answer");
        assert_eq!(status.code(), Code::Unimplemented);
    }

    #[test]
    fn a_truncated_message_is_malformed() {
        for message in [&b"\x5a\x05\x00"[..], b"\x80", b"\x50", b"\x5d\x00\x00\x00\x00"] {
            let status = answer(Bytes::from_static(message)).expect_err("it has no phase");
            assert_eq!(status.code(), Code::InvalidArgument, "{message:?}");
        }
    }
}
