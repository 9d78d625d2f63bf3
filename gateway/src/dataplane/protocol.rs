//! The differences between HTTP and gRPC for a call: the form of the request, the body's encoding, and the
//! answer.

use std::{
    convert::Infallible,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response, request::Parts};
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use crate::{
    config::Detail,
    core::error::Error,
    dataplane::call::{Gateway, PointRequest},
    edge::{request_meta::RequestMeta, response::InvocationResult},
    invoke::AgentCall,
};

/// A protocol in which agents make calls of the kind `P`.
pub(super) trait Protocol<P: AgentCall>: 'static {
    /// Bytes around a message in its body, which don't count towards the message's size.
    const FRAMING_BYTES: usize;

    /// Checks that a request has the form of a call.
    ///
    /// # Errors
    /// METHOD_NOT_ALLOWED, CONTENT_TYPE, PAYLOAD_INVALID.
    fn check(head: &Parts) -> Result<(), Error>;

    /// Decodes and checks the whole body, whose message has at most `limit` bytes. `hook` is the hook that the path names.
    ///
    /// # Errors
    /// PAYLOAD_INVALID, PAYLOAD_TOO_LARGE, CONTENT_TYPE.
    fn decode(body: Bytes, limit: usize, hook: Option<&str>) -> Result<P::Request, Error>;

    /// The answer to a call.
    fn respond(result: InvocationResult<P>) -> Response<Body>;

    /// The answer to a request that isn't a call.
    fn refuse(meta: &RequestMeta, error: &Error, detail: Detail) -> Response<Body>;
}

/// The hook that a request's path names: an extension of the request, set by its route.
#[derive(Debug, Clone)]
pub(super) struct HookInPath(pub(super) Box<str>);

/// Wraps a service of calls of the kind `P` in the protocol `C`.
pub(super) struct ProtocolLayer<P, C> {
    gateway: Arc<Gateway>,
    protocol: PhantomData<fn() -> (P, C)>,
}

impl<P, C> ProtocolLayer<P, C> {
    pub(super) fn new(gateway: Arc<Gateway>) -> Self {
        ProtocolLayer { gateway, protocol: PhantomData }
    }
}

impl<S, P, C> Layer<S> for ProtocolLayer<P, C> {
    type Service = ProtocolService<S, P, C>;

    fn layer(&self, inner: S) -> Self::Service {
        ProtocolService { inner, gateway: Arc::clone(&self.gateway), protocol: PhantomData }
    }
}

/// Answers requests for one kind of call in one protocol.
pub(super) struct ProtocolService<S, P, C> {
    inner: S,
    gateway: Arc<Gateway>,
    protocol: PhantomData<fn() -> (P, C)>,
}

impl<S: Clone, P, C> Clone for ProtocolService<S, P, C> {
    fn clone(&self) -> Self {
        ProtocolService {
            inner: self.inner.clone(),
            gateway: Arc::clone(&self.gateway),
            protocol: PhantomData,
        }
    }
}

impl<S, P, C> Service<Request<Body>> for ProtocolService<S, P, C>
where
    S: Service<PointRequest, Response = InvocationResult<P>, Error = Infallible>,
    P: AgentCall,
    C: Protocol<P>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = ProtocolFuture<S::Future, P, C>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (head, body) = request.into_parts();
        if let Err(error) = C::check(&head) {
            let detail = self.gateway.snapshots.current().limits.detail;
            let answer = C::refuse(&RequestMeta::now(), &error, detail);
            return ProtocolFuture::Refused { answer: Some(answer) };
        }
        let gateway = Arc::clone(&self.gateway);
        let hook = head.extensions.get::<HookInPath>().map(|HookInPath(hook)| hook.clone());
        let inner = self.inner.call(PointRequest { gateway, headers: head.headers, hook, body });
        ProtocolFuture::Called { inner, protocol: PhantomData }
    }
}

pin_project! {
    /// The answer to one request.
    #[project = ProtocolProjection]
    pub(super) enum ProtocolFuture<F, P, C> {
        Refused { answer: Option<Response<Body>> },
        Called { #[pin] inner: F, protocol: PhantomData<fn() -> (P, C)> },
    }
}

impl<F, P, C> Future for ProtocolFuture<F, P, C>
where
    F: Future<Output = Result<InvocationResult<P>, Infallible>>,
    P: AgentCall,
    C: Protocol<P>,
{
    type Output = Result<Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            ProtocolProjection::Refused { answer } => {
                Poll::Ready(Ok(answer.take().expect("an answer is taken once")))
            }
            ProtocolProjection::Called { inner, .. } => {
                let result = ready!(inner.poll(cx));
                Poll::Ready(result.map(C::respond))
            }
        }
    }
}
