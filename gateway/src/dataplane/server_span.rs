//! The server span of each request, and the metric of its duration.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::body::Body;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use crate::{
    edge::header::is_grpc,
    telemetry::{InContext, ServerCall, Telemetry},
};

/// Puts a server span around the answers of a service.
#[derive(Clone)]
pub(super) struct ServerSpanLayer {
    telemetry: Telemetry,
}

impl ServerSpanLayer {
    pub(super) fn new(telemetry: Telemetry) -> Self {
        ServerSpanLayer { telemetry }
    }
}

/// A service whose answers have server spans.
#[derive(Clone)]
pub(super) struct ServerSpanService<S> {
    inner: S,
    telemetry: Telemetry,
}

impl<S> Layer<S> for ServerSpanLayer {
    type Service = ServerSpanService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ServerSpanService { inner, telemetry: self.telemetry.clone() }
    }
}

impl<S> Service<Request<Body>> for ServerSpanService<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = ServerSpanFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let call = match is_grpc(request.headers()) {
            true => self.telemetry.grpc_call(&request),
            false => Some(self.telemetry.http_call(&request)),
        };
        let inner = self.inner.call(request);
        match call {
            Some(call) => ServerSpanFuture::Measured { inner: call.wrap(inner), call: Some(call) },
            None => ServerSpanFuture::Unmeasured { inner },
        }
    }
}

pin_project! {
    /// The answer to one request.
    #[project = ServerSpanProjection]
    pub(super) enum ServerSpanFuture<F> {
        // The answer is dropped before its span, so that everything an aborted call still does belongs to the
        // span.
        Measured { #[pin] inner: InContext<F>, call: Option<ServerCall> },
        // Health and reflection.
        Unmeasured { #[pin] inner: F },
    }
}

impl<F: Future<Output = Result<Response<Body>, Infallible>>> Future for ServerSpanFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            ServerSpanProjection::Unmeasured { inner } => inner.poll(cx),
            ServerSpanProjection::Measured { inner, call } => {
                let Ok(answer) = ready!(inner.poll(cx));
                call.take().expect("a request is answered once").answered(&answer);
                Poll::Ready(Ok(answer))
            }
        }
    }
}
