//! The gRPC side of the data port: the extension points, health and reflection.
//!
//! Messages of the extension points are unframed here and not by tonic's server, so that an undecodable, too
//! large or compressed message gets an answer of ours with its code and not a bare status.

use std::sync::Arc;

use axum::body::Body;
use bytes::{Buf, Bytes};
use http::{Method, Request, Response, header, request::Parts};
use prost::Message;

use crate::{
    core::error::{Code, Error},
    dataplane::call::{Gateway, RequestDecoder},
    edge::{
        body::too_large,
        common_services::{CommonServices, is_common},
        header::single,
        request_meta::RequestMeta,
        response,
    },
    invoke::{AfterToolResult, BeforeLlmRequest, BeforeResponse, BeforeToolCall, ExtensionPoint},
    payload::Validate,
    transcode,
};

/// Length of a message's prefix: a flag and four bytes of length (gRPC over HTTP/2, "Length-Prefixed-Message").
pub(crate) const MESSAGE_PREFIX_BYTES: usize = 5;

/// Everything that speaks gRPC on the data port.
#[derive(Clone)]
pub struct GrpcService {
    gateway: Arc<Gateway>,
    /// They take no token and pass no chain.
    services: CommonServices,
}

impl GrpcService {
    /// Puts the extension points beside `services`.
    pub fn new(gateway: Arc<Gateway>, services: CommonServices) -> Self {
        GrpcService { gateway, services }
    }

    /// Answers one request.
    pub async fn call(&self, request: Request<Body>) -> Response<Body> {
        let Some(method) = request.uri().path().strip_prefix("/hookgate.gateway.v1.ExtensionPointService/")
        else {
            return self.service(request).await;
        };
        match method {
            "BeforeLlmRequest" => self.unary::<BeforeLlmRequest>(request).await,
            "BeforeToolCall" => self.unary::<BeforeToolCall>(request).await,
            "AfterToolResult" => self.unary::<AfterToolResult>(request).await,
            "BeforeResponse" => self.unary::<BeforeResponse>(request).await,
            _ => self.refuse(&Error::new(Code::NotFound, "No such method")),
        }
    }

    async fn unary<P: ExtensionPoint>(&self, request: Request<Body>) -> Response<Body>
    where
        P::Payload: transcode::Changes,
    {
        let (head, body) = request.into_parts();
        if let Err(error) = check(&head) {
            return self.refuse(&error);
        }
        let codec = RequestDecoder { framing: MESSAGE_PREFIX_BYTES, decode: decode::<P> };
        response::grpc(self.gateway.serve::<P, Body>(&head.headers, body, codec).await)
    }

    async fn service(&self, request: Request<Body>) -> Response<Body> {
        if !is_common(request.uri().path()) {
            return self.refuse(&Error::new(Code::NotFound, "No such service"));
        }
        self.services.answer(request).await
    }

    fn refuse(&self, error: &Error) -> Response<Body> {
        response::grpc_refusal(&RequestMeta::now(), error, self.gateway.snapshots.in_force().limits.detail)
    }
}

/// Whether a request is made as a unary one of ours has to be.
///
/// # Errors
/// METHOD_NOT_ALLOWED, CONTENT_TYPE, PAYLOAD_INVALID.
pub(crate) fn check(head: &Parts) -> Result<(), Error> {
    if head.method != Method::POST {
        return Err(Error::new(Code::MethodNotAllowed, "This path takes POST"));
    }
    let content_type = single(&head.headers, header::CONTENT_TYPE.as_str())?.map(|value| value.as_bytes());
    if !matches!(content_type, Some(b"application/grpc" | b"application/grpc+proto")) {
        return Err(Error::new(Code::ContentType, "Messages are protobuf: application/grpc"));
    }
    Ok(())
}

fn decode<P: ExtensionPoint>(body: Bytes, limit: usize) -> Result<P::Request, Error> {
    let request: P::Request = message(body, limit)?;
    let violations = request.violations("");
    if violations.is_empty() { Ok(request) } else { Err(Error::invalid(violations)) }
}

/// Takes the one message, of at most `limit` bytes, out of a unary request's body.
///
/// # Errors
/// PAYLOAD_INVALID, PAYLOAD_TOO_LARGE, and CONTENT_TYPE for one that is compressed.
pub(crate) fn message<M: Message + Default>(mut body: Bytes, limit: usize) -> Result<M, Error> {
    let invalid = |detail: &str| Error::new(Code::PayloadInvalid, detail);
    if body.len() < MESSAGE_PREFIX_BYTES {
        return Err(invalid("The request holds no message"));
    }
    let compressed = body.get_u8() != 0;
    let length = body.get_u32() as usize;
    if compressed {
        return Err(Error::new(Code::ContentType, "Compressed messages are not supported"));
    }
    if length > limit {
        return Err(too_large(limit));
    }
    if body.len() != length {
        return Err(invalid("The request holds no single whole message"));
    }
    M::decode(body).map_err(|error| invalid(&format!("The message cannot be decoded: {error}")))
}
