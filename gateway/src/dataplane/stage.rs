//! A layer made from an asynchronous function that turns a request into its next form, or rejects it.
//!
//! This is tower's `AsyncFilter` with the error type of the service below it, where tower's boxes every error. The type of
//! the function's future is a parameter, so nothing is boxed.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower::{Layer, Service, ServiceExt, util::Oneshot};

/// Puts the function `run` in front of a service.
pub(super) fn stage<F>(run: F) -> StageLayer<F> {
    StageLayer { run }
}

/// See [`stage`].
#[derive(Debug, Clone, Copy)]
pub(super) struct StageLayer<F> {
    run: F,
}

/// A service below a stage.
#[derive(Debug, Clone, Copy)]
pub(super) struct StageService<S, F> {
    run: F,
    inner: S,
}

impl<S, F: Clone> Layer<S> for StageLayer<F> {
    type Service = StageService<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        StageService { run: self.run.clone(), inner }
    }
}

impl<Before, After, S, F, Run> Service<Before> for StageService<S, F>
where
    F: Fn(Before) -> Run,
    Run: Future<Output = Result<After, S::Error>>,
    S: Service<After> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = StageFuture<Run, S, After>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // The readiness of the service below is awaited once there is a request for it.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Before) -> Self::Future {
        StageFuture::Running { run: (self.run)(request), inner: Some(self.inner.clone()) }
    }
}

pin_project! {
    /// The stage, then the service below it.
    #[project = StageProjection]
    pub(super) enum StageFuture<Run, S, After>
    where
        S: Service<After>,
    {
        Running { #[pin] run: Run, inner: Option<S> },
        Passed { #[pin] inner: Oneshot<S, After> },
    }
}

impl<Run, S, After> Future for StageFuture<Run, S, After>
where
    Run: Future<Output = Result<After, S::Error>>,
    S: Service<After>,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let inner = match self.as_mut().project() {
                StageProjection::Passed { inner } => return inner.poll(cx),
                StageProjection::Running { run, inner } => {
                    let request = ready!(run.poll(cx))?;
                    inner.take().expect("a stage passes a request on once").oneshot(request)
                }
            };
            self.set(StageFuture::Passed { inner });
        }
    }
}

#[cfg(test)]
mod tests {
    use tower::{ServiceBuilder, service_fn};

    use super::*;

    #[tokio::test]
    async fn a_stage_gives_the_service_below_another_form_of_the_request_or_refuses_it() {
        let parse = async |text: &'static str| text.parse::<u8>().map_err(|_| "not a number");
        let double = async |number: u8| number.checked_mul(2).ok_or("too large");
        let service = ServiceBuilder::new().layer(stage(parse)).service(service_fn(double));
        assert_eq!(service.oneshot("21").await, Ok(42));
        assert_eq!(service.oneshot("200").await, Err("too large"));
        assert_eq!(service.oneshot("many").await, Err("not a number"), "the service below gets no request");
    }
}
