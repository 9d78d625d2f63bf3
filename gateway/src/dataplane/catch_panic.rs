//! Answers a call that panics with INTERNAL: a fault of ours must neither let a call through nor close its
//! connection.

use std::{
    panic::AssertUnwindSafe,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::{FutureExt, future::CatchUnwind};
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use crate::core::error::{Code, Error};

/// Catches the panics of a service's calls.
#[derive(Debug, Clone, Copy)]
pub(super) struct CatchPanicLayer;

/// A service whose calls never panic.
#[derive(Debug, Clone, Copy)]
pub(super) struct CatchPanicService<S> {
    inner: S,
}

impl<S> Layer<S> for CatchPanicLayer {
    type Service = CatchPanicService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        CatchPanicService { inner }
    }
}

impl<Request, S: Service<Request, Error = Error>> Service<Request> for CatchPanicService<S> {
    type Response = S::Response;
    type Error = Error;
    type Future = CatchPanicFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        // Below are stages, which do nothing before they are polled.
        CatchPanicFuture { inner: AssertUnwindSafe(self.inner.call(request)).catch_unwind() }
    }
}

pin_project! {
    /// A call, or INTERNAL where it panics.
    pub(super) struct CatchPanicFuture<F> {
        #[pin]
        inner: CatchUnwind<AssertUnwindSafe<F>>,
    }
}

impl<T, F: Future<Output = Result<T, Error>>> Future for CatchPanicFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(self.project().inner.poll(cx));
        Poll::Ready(result.unwrap_or_else(|_| Err(Error::new(Code::Internal, Code::Internal.meaning()))))
    }
}

#[cfg(test)]
mod tests {
    use tower::{ServiceBuilder, ServiceExt, service_fn};

    use super::*;

    #[tokio::test]
    async fn a_call_that_panics_is_an_internal_error() {
        let run = async |panics: bool| {
            assert!(!panics, "a mistake of ours");
            Ok::<_, Error>(())
        };
        let service = ServiceBuilder::new().layer(CatchPanicLayer).service(service_fn(run));
        assert!(service.oneshot(false).await.is_ok());
        let error = service.oneshot(true).await.expect_err("it panicked");
        assert_eq!(error.code, Code::Internal);
    }
}
