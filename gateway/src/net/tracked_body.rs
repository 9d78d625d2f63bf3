//! What an answer holds until it is written, and how long that may take (docs/protocol.md, section 6). Works
//! on any body, and knows nothing of calls.

use std::{
    any::Any,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Body as AnyBody;
use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};

/// Attaches `held` to an answer. It is dropped when the last byte of the answer is written, or when the
/// connection is gone.
pub(crate) fn hold<B>(answer: &mut Response<B>, held: impl Any + Send + Sync) {
    answer.extensions_mut().insert(ResponseGuard(Arc::new(held)));
}

/// Marks an answer as endless: its write deadline applies to each piece.
pub(crate) fn goes_on<B>(answer: &mut Response<B>) {
    answer.extensions_mut().insert(StreamingMarker);
}

#[derive(Clone)]
struct StreamingMarker;

#[derive(Clone)]
struct ResponseGuard(#[expect(dead_code, reason = "it is there to be dropped")] Arc<dyn Any + Send + Sync>);

/// The answers of one connection that are not fully written. Two marks replace a timer per answer: every
/// answer has the mark of the period in which it began.
#[derive(Default)]
pub(crate) struct Unsent {
    young: Mutex<Arc<()>>,
}

impl Unsent {
    /// Wraps an answer's body, so that it is known when it is written.
    pub(crate) fn watch(self: &Arc<Self>, mut answer: Response<AnyBody>) -> Response<TrackedBody> {
        let goes_on = answer.extensions_mut().remove::<StreamingMarker>().map(|_| Arc::clone(self));
        let mark = goes_on.is_none().then(|| self.mark());
        let hold = BodyGuard { mark, _held: answer.extensions_mut().remove() };
        answer.map(|body| TrackedBody { body, hold, goes_on })
    }

    /// The mark of the current period, for bytes that wait to be written.
    pub(crate) fn mark(&self) -> UnsentMark {
        UnsentMark(Arc::clone(&self.young.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Returns when part of an answer has waited to be written for between half of `within` and all of it.
    pub(crate) async fn overdue(&self, within: Duration) {
        let mut old = Arc::default();
        loop {
            tokio::time::sleep(within / 2).await;
            if Arc::strong_count(&old) > 1 {
                return;
            }
            old = std::mem::take(&mut *self.young.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// Part of an answer is not written as long as this lives.
#[derive(Clone)]
pub(crate) struct UnsentMark(#[expect(dead_code, reason = "it is there to be counted")] Arc<()>);

#[derive(Clone)]
struct BodyGuard {
    mark: Option<UnsentMark>,
    _held: Option<ResponseGuard>,
}

/// The body of an answer. Its bytes hold what the answer holds, because the connection polls a body to its
/// end long before all bytes are written.
pub(crate) struct TrackedBody {
    body: AnyBody,
    hold: BodyGuard,
    /// Set for an endless answer, whose pieces get marks one by one.
    goes_on: Option<Arc<Unsent>>,
}

struct TrackedBytes {
    bytes: Bytes,
    _hold: BodyGuard,
}

impl AsRef<[u8]> for TrackedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let (hold, goes_on) = (&self.hold, &self.goes_on);
        let held = |bytes| {
            let mark = goes_on.as_ref().map(|unsent| unsent.mark());
            let hold = BodyGuard { mark: mark.or_else(|| hold.mark.clone()), ..hold.clone() };
            Bytes::from_owner(TrackedBytes { bytes, _hold: hold })
        };
        polled.map_ok(|frame| frame.map_data(held))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tokio::time::Instant;

    use super::*;

    const WITHIN: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn what_an_answer_holds_stays_until_its_bytes_are_gone() {
        let held = Arc::new(());
        let mut answer = Response::new(AnyBody::from("text"));
        hold(&mut answer, Arc::clone(&held));
        let mut body = Arc::new(Unsent::default()).watch(answer).into_body();
        assert_eq!(body.size_hint().exact(), Some(4));
        let bytes = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(body.is_end_stream());
        drop(body);
        assert_eq!(
            (&bytes[..], Arc::strong_count(&held)),
            (&b"text"[..], 2),
            "the body is over, its bytes are there"
        );
        drop(bytes);
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_written_is_overdue_and_those_that_are_never() {
        let unsent = Arc::new(Unsent::default());
        let quick = async {
            for _ in 0..1000 {
                let answer = unsent.watch(Response::new(AnyBody::from("text")));
                tokio::time::sleep(Duration::from_secs(1)).await;
                drop(answer);
            }
        };
        tokio::select! {
            () = quick => {}
            () = unsent.overdue(WITHIN) => panic!("each was written within a second"),
        }
        let began = Instant::now();
        let _slow = unsent.watch(Response::new(AnyBody::from("text")));
        unsent.overdue(WITHIN).await;
        assert!((WITHIN / 2..=WITHIN).contains(&began.elapsed()), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_goes_on_is_overdue_only_while_a_piece_of_it_is_not_written() {
        let unsent = Arc::new(Unsent::default());
        let mut answer = Response::new(AnyBody::from("text"));
        goes_on(&mut answer);
        let mut body = unsent.watch(answer).into_body();
        tokio::select! {
            () = tokio::time::sleep(WITHIN * 10) => {}
            () = unsent.overdue(WITHIN) => panic!("there is nothing to be written"),
        }
        let _piece = body.frame().await.unwrap().unwrap();
        let began = Instant::now();
        unsent.overdue(WITHIN).await;
        assert!((WITHIN / 2..=WITHIN).contains(&began.elapsed()), "{:?}", began.elapsed());
    }
}
