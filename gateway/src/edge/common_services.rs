//! Health and reflection, which every port offers beside its own services. Their answers may go on for as
//! long as a client listens; here they end with the listener. Doesn't interpret them.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::Bytes;
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use http::{Request, Response};
use http_body::Frame;
use tonic::service::Routes;
use tower::ServiceExt;

use crate::{
    config::Detail,
    core::error::{Code, Error},
    edge::{request_meta::RequestMeta, response},
    net::{server::DrainSignals, tracked_body},
};

/// The services of one listener.
#[derive(Clone)]
pub struct CommonServices {
    router: axum::Router,
    drain: DrainSignals,
}

impl CommonServices {
    /// The services in `routes`, for a listener that ends by `drain`.
    pub fn new(routes: Routes, drain: DrainSignals) -> Self {
        CommonServices { router: routes.prepare().into_axum_router(), drain }
    }

    /// Answers one request. Neither an unfinished request nor an open answer keeps the listener from ending.
    pub async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let drain = self.drain.clone();
        let over = async move { drain.last_start().await }.boxed().shared();
        let until = |body, end| Body::new(DrainableBody { body, over: Some(over.clone()), end });
        let request = request.map(|body| until(body, || None));
        let mut answer = tokio::select! {
            biased;
            () = over.clone() => response::grpc_refusal(&RequestMeta::now(), &draining(), Detail::Full),
            answer = self.router.clone().oneshot(request) => match answer {
                Ok(answer) => answer.map(|body| until(body, || Some(response::grpc_end(&draining())))),
                Err(impossible) => match impossible {},
            },
        };
        tracked_body::goes_on(&mut answer);
        answer
    }
}

/// Whether `path` belongs to one of these services.
pub(crate) fn is_common(path: &str) -> bool {
    path.starts_with("/grpc.health.v1.Health/") || path.starts_with("/grpc.reflection.")
}

fn draining() -> Error {
    Error::new(Code::Draining, "The gateway is shutting down")
}

/// A body that ends after `over` resolves, once everything available is sent; `end`, if set, is its last
/// frame. A request body must end as well, because its stream stays open while the service waits for more of
/// it.
struct DrainableBody {
    body: Body,
    /// `None` after the end.
    over: Option<Shared<BoxFuture<'static, ()>>>,
    end: fn() -> Option<Frame<Bytes>>,
}

impl http_body::Body for DrainableBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(mut over) = self.over.take() else { return Poll::Ready(None) };
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        // If the body ends by itself after `over`, the reason is that its request was ended.
        let goes_on = matches!(&polled, Poll::Ready(Some(Ok(frame))) if frame.is_data());
        if !goes_on && over.poll_unpin(cx).is_ready() {
            return Poll::Ready((self.end)().map(Ok));
        }
        self.over = Some(over);
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.over.is_none() || self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use http_body_util::BodyExt;
    use tokio::time::timeout;
    use tonic_health::server::HealthReporter;

    use super::*;

    /// How long a client may take to receive an answer.
    const PATIENCE: Duration = Duration::from_secs(60);

    async fn watched() -> (HealthReporter, DrainSignals, Response<Body>) {
        let (health, service) = tonic_health::server::health_reporter();
        let drain = DrainSignals::default();
        let services = CommonServices::new(Routes::new(service), drain.clone());
        // An empty message: the health of the whole server.
        let request =
            Request::post("/grpc.health.v1.Health/Watch").header("content-type", "application/grpc");
        let request = request.body(Body::from(vec![0; 5])).expect("it is one");
        (health, drain, services.answer(request).await)
    }

    #[tokio::test(start_paused = true)]
    async fn connection_of_a_watch_is_not_taken_for_one_whose_client_takes_no_answer() {
        let (_health, _drain, answer) = watched().await;
        let unsent = Arc::new(tracked_body::Unsent::default());
        let mut answer = unsent.watch(answer);
        let first = answer.body_mut().frame().await;
        drop(first.expect("it says how things are").expect("it is no error"));
        let overdue = timeout(10 * PATIENCE, unsent.overdue(PATIENCE)).await;
        assert!(overdue.is_err(), "it is hung up on, with all other calls of the connection");
    }

    #[tokio::test(start_paused = true)]
    async fn watch_hears_the_last_of_it_and_ends_with_the_listener() {
        let (health, drain, answer) = watched().await;
        let mut body = answer.into_body();
        let mut next = async || timeout(PATIENCE, body.frame()).await.expect("in time").transpose();
        assert!(next().await.expect("it is no error").expect("it says how things are").is_data());
        health.set_service_status("", tonic_health::ServingStatus::NotServing).await;
        drain.goaway.cancel();
        let last = next().await.expect("it is no error").expect("it says that they are otherwise");
        assert_eq!(last.into_data().expect("a message").last(), Some(&2), "NOT_SERVING");
        let end = next().await.expect("it is no error").expect("it has an end");
        let end = end.into_trailers().expect("a status");
        assert_eq!(end["grpc-status"], "14", "UNAVAILABLE");
        assert!(next().await.expect("it is no error").is_none());
    }
}
