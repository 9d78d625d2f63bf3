//! A server that refuses requests with fields that the contract doesn't have, as a decoder of one's own may.

use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use futures::future::BoxFuture;
use http_body_util::{BodyExt as _, Full};
use prost::encoding::{DecodeContext, decode_key, skip_field};
use tonic::{Status, body::Body};
use tower::Service;

/// No message of the contract has a field with a greater number.
const MAX_FIELD: u32 = 100;
/// What precedes a message in a gRPC body.
const PREFIX_BYTES: usize = 5;

/// The rpcs at which it refuses them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StrictRpcs {
    None,
    Describe,
    /// All others.
    Calls,
}

#[derive(Debug, Clone)]
pub(crate) struct StrictFields<S> {
    inner: S,
    rpcs: StrictRpcs,
}

impl<S> StrictFields<S> {
    pub(crate) fn new(inner: S, rpcs: StrictRpcs) -> Self {
        StrictFields { inner, rpcs }
    }
}

impl<S> Service<http::Request<Body>> for StrictFields<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let is_strict = match self.rpcs {
            StrictRpcs::None => false,
            rpcs => (rpcs == StrictRpcs::Describe) == request.uri().path().ends_with("/Describe"),
        };
        if !is_strict {
            return Box::pin(self.inner.call(request));
        }
        // The clone was never asked whether it is ready.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(async move {
            let (head, body) = request.into_parts();
            // A body that breaks off is one for the service to refuse.
            let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            if has_unknown_field(bytes.clone()) {
                return Ok(Status::invalid_argument("a field is unknown").into_http());
            }
            inner.call(http::Request::from_parts(head, Body::new(Full::new(bytes)))).await
        })
    }
}

/// Whether the message in `body` has such a field, at its top.
fn has_unknown_field(mut body: Bytes) -> bool {
    body.advance(PREFIX_BYTES.min(body.len()));
    while body.has_remaining() {
        let Ok((field, wire_type)) = decode_key(&mut body) else { return false };
        if field > MAX_FIELD {
            return true;
        }
        if skip_field(wire_type, field, &mut body, DecodeContext::default()).is_err() {
            return false;
        }
    }
    false
}
