//! Ends the remaining calls with DRAINING when the gateway gives them up, at the end of a drain.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio_util::sync::WaitForCancellationFuture;
use tower::{Layer, Service};

use crate::{
    core::error::{Code, Error},
    dataplane::call::ArrivedCall,
};

/// Puts the end by [`super::call::Gateway::abort`] around a service.
#[derive(Debug, Clone, Copy)]
pub(super) struct AbortLayer;

/// A service whose calls can be given up.
#[derive(Debug, Clone, Copy)]
pub(super) struct AbortService<S> {
    inner: S,
}

impl<S> Layer<S> for AbortLayer {
    type Service = AbortService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        AbortService { inner }
    }
}

impl<'a, S: Service<ArrivedCall<'a>, Error = Error>> Service<ArrivedCall<'a>> for AbortService<S> {
    type Response = S::Response;
    type Error = Error;
    type Future = AbortFuture<'a, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: ArrivedCall<'a>) -> Self::Future {
        let aborted = call.scope.gateway.abort.cancelled();
        AbortFuture { aborted, inner: self.inner.call(call) }
    }
}

pin_project! {
    /// A call, until it is given up.
    pub(super) struct AbortFuture<'a, F> {
        #[pin]
        aborted: WaitForCancellationFuture<'a>,
        #[pin]
        inner: F,
    }
}

impl<T, F: Future<Output = Result<T, Error>>> Future for AbortFuture<'_, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if this.aborted.poll(cx).is_ready() {
            return Poll::Ready(Err(draining()));
        }
        this.inner.poll(cx)
    }
}

fn draining() -> Error {
    Error::new(Code::Draining, "The gateway is shutting down").retry_after(Duration::from_secs(1))
}
