//! Reads and discards the rest of a request's body after its answer. If a TCP connection is closed with
//! unread bytes, it is reset, and a client that is still sending loses the answer that says why it was
//! rejected.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::{runtime::Handle, time::timeout};

/// The most bytes that are discarded of one body: twice the largest request limit.
const MAX_DISCARD_BYTES: usize = 32 << 20;
/// The longest time for discarding.
const MAX_DISCARD_TIME: Duration = Duration::from_secs(5);

/// A body that is read to its end in the background when it is dropped early.
pub(crate) struct LingeringBody<B>(Option<B>)
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Send;

impl<B> LingeringBody<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Send,
{
    pub(crate) fn new(body: B) -> Self {
        LingeringBody(Some(body))
    }
}

impl<B> Body for LingeringBody<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Send,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(body) = &mut self.0 else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.0 = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<B> Drop for LingeringBody<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Send,
{
    fn drop(&mut self) {
        let rest = self.0.take().filter(|body| !body.is_end_stream());
        // Without a runtime the process is ending, and the connection with it.
        if let (Some(rest), Ok(runtime)) = (rest, Handle::try_current()) {
            runtime.spawn(timeout(MAX_DISCARD_TIME, discard(rest)));
        }
    }
}

async fn discard(mut body: impl Body<Data = Bytes> + Unpin) {
    let mut taken = 0;
    while taken < MAX_DISCARD_BYTES {
        match body.frame().await {
            Some(Ok(frame)) => taken += frame.data_ref().map_or(0, Bytes::len),
            Some(Err(_)) | None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::stream;
    use http_body_util::StreamBody;
    use tokio::sync::mpsc;

    use super::*;

    fn frame(size: usize) -> Result<Frame<Bytes>, Infallible> {
        Ok(Frame::data(Bytes::from(vec![0; size])))
    }

    /// A body whose pieces come from a channel.
    fn piecewise() -> (mpsc::Sender<usize>, impl Body<Data = Bytes, Error = Infallible> + Send + Unpin) {
        let (pieces, receiver) = mpsc::channel(1);
        let frames = stream::unfold(receiver, async |mut receiver: mpsc::Receiver<usize>| {
            let size = receiver.recv().await?;
            Some((frame(size), receiver))
        });
        (pieces, StreamBody::new(Box::pin(frames)))
    }

    #[tokio::test]
    async fn the_rest_of_a_dropped_body_is_taken() {
        let (pieces, body) = piecewise();
        drop(LingeringBody::new(body));
        for _ in 0..10 {
            pieces.send(100).await.expect("the receiver takes it");
        }
    }

    #[tokio::test]
    async fn what_is_taken_is_bounded_in_bytes() {
        let (pieces, body) = piecewise();
        drop(LingeringBody::new(body));
        let mut sent = 0;
        while pieces.send(1 << 20).await.is_ok() {
            sent += 1;
            assert!(sent <= 40, "it never stops");
        }
        assert!(sent >= 32, "{sent} MiB");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_taken_is_bounded_in_time() {
        let (pieces, body) = piecewise();
        drop(LingeringBody::new(body));
        let began = tokio::time::Instant::now();
        pieces.closed().await;
        assert_eq!(began.elapsed().as_secs(), MAX_DISCARD_TIME.as_secs());
    }

    #[tokio::test]
    async fn a_body_that_is_read_to_its_end_comes_through_whole() {
        let body = StreamBody::new(stream::iter([frame(3), frame(4)]));
        let whole = LingeringBody::new(body).collect().await.expect("it cannot fail").to_bytes();
        assert_eq!(whole.len(), 7);
    }
}
