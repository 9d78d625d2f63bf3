//! The body of a request that can be reset instead of ended.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::Frame;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::{Status, body::Body};

/// A body that fails once `reset` is cancelled, so the connection resets the stream. If it ended instead, the gateway
/// would remove the endpoint, perhaps after another replica has registered it again.
pub(super) struct ResettableBody {
    body: Body,
    reset: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl ResettableBody {
    pub(super) fn new(body: Body, reset: CancellationToken) -> Self {
        ResettableBody { body, reset: Box::pin(reset.cancelled_owned()) }
    }
}

impl http_body::Body for ResettableBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.reset.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(Status::cancelled("the stream was given up"))));
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }
}
