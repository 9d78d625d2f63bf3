//! An answer that goes to the client piece by piece, while the work on it goes on.
//!
//! From then on the work has a task of its own, which ends with the client's connection: it must not stop where the client reads
//! slowly, since plugins have only so much time.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::Frame;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    edge::admission::CallPermits,
    net::{movable::movable, tracked_body},
};

/// How many pieces wait to be written before the work does.
const MAX_WAITING: usize = 8;

/// How often an answer that has a piece is polled before it hands it out, so that others come that the provider has already sent. One
/// write of several pieces costs little more than a write of one. hyper polls twice in a turn.
const GATHERING_POLLS: u8 = 3;

/// How long the last words of an answer wait for a client that doesn't read.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// An answer was broken off: its client learns that it isn't whole.
#[derive(Debug, thiserror::Error)]
#[error("the answer was broken off")]
struct BrokenOff;

/// What the work on a request and its answer share.
#[derive(Default)]
struct AnswerState {
    /// The permits of the request, which are held until its answer is written.
    permits: Mutex<CallPermits>,
    /// Whether the last piece is on its way. Work that panics, or that the runtime drops, doesn't say so.
    has_ended: AtomicBool,
}

/// Where the work on a request writes an answer in pieces.
pub(super) struct ClientStream {
    /// Taken when the answer begins.
    head: Option<oneshot::Sender<StreamHead>>,
    /// Whether the pieces are the gateway's own events, and not the provider's bytes.
    is_own: bool,
    /// Set when the answer begins.
    pieces: Option<mpsc::Sender<Bytes>>,
    state: Arc<AnswerState>,
}

/// The beginning of an answer in pieces.
struct StreamHead {
    headers: HeaderMap,
    pieces: mpsc::Receiver<Bytes>,
    state: Arc<AnswerState>,
}

impl ClientStream {
    /// Begins an answer of events that the gateway writes. It can't become another one after that.
    pub(super) fn begin(&mut self, headers: HeaderMap) {
        self.is_own = true;
        self.begin_with(headers);
    }

    /// Begins an answer of the provider's bytes.
    pub(super) fn pass(&mut self, headers: HeaderMap) {
        self.begin_with(headers);
    }

    fn begin_with(&mut self, headers: HeaderMap) {
        if let Some(head) = self.head.take() {
            let (sender, pieces) = mpsc::channel(MAX_WAITING);
            self.pieces = Some(sender);
            // Who doesn't receive it ends the work, too.
            let _ = head.send(StreamHead { headers, pieces, state: Arc::clone(&self.state) });
        }
    }

    /// Whether the answer has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.head.is_none()
    }

    /// Sends a piece, when there is room for it.
    pub(super) async fn send(&self, piece: Bytes) {
        if let Some(pieces) = &self.pieces {
            // Who doesn't receive it ends the work, too.
            let _ = pieces.send(piece).await;
        }
    }

    /// Makes and sends a piece if nothing else waits to be read.
    pub(super) fn send_if_idle(&self, piece: impl FnOnce() -> Bytes) {
        if let Some(pieces) = self.pieces.as_ref().filter(|pieces| pieces.capacity() == MAX_WAITING) {
            let _ = pieces.try_send(piece());
        }
    }

    /// Ends the answer with the last piece that was sent. One that ends otherwise is broken off.
    pub(super) fn end(&self) {
        self.state.has_ended.store(true, Ordering::Release);
    }

    /// Ends an answer that isn't whole: with this event, or by breaking off what isn't the gateway's own. A client that doesn't read the
    /// event in time finds its answer broken off, too.
    pub(super) async fn fail(&self, event: Bytes) {
        let Some(pieces) = self.pieces.as_ref().filter(|_| self.is_own) else { return };
        if timeout(LAST_WORDS, pieces.send(event)).await.is_ok() {
            self.end();
        }
    }

    /// Keeps the permits of the request until the answer is written.
    pub(super) fn keep(&self, permits: CallPermits) {
        *self.state.permits.lock().unwrap_or_else(PoisonError::into_inner) = permits;
    }
}

/// Runs `work`, which returns the answer, or `None` where it has begun one in the stream that it gets.
pub(super) async fn respond<W>(work: impl FnOnce(ClientStream) -> W) -> Response<Body>
where
    W: Future<Output = Option<Response<Body>>> + Send + 'static,
{
    let (head, mut begun) = oneshot::channel();
    let stream = ClientStream { head: Some(head), is_own: false, pieces: None, state: Arc::default() };
    let mut work = Box::pin(work(stream));
    // As long as no answer has begun, the connection waits for the work anyway: a task would cost more than it gives.
    let (head, work) = tokio::select! {
        biased;
        answer = &mut work => match begun.try_recv() {
            Ok(head) => (head, None),
            Err(_) => return answer.unwrap_or_default(),
        },
        Ok(head) = &mut begun => (head, Some(AbortOnDropHandle::new(tokio::spawn(movable(work))))),
    };
    let StreamHead { headers, pieces, state } = head;
    let body = StreamBody { _work: work, pieces, state: Arc::clone(&state), polls: GATHERING_POLLS };
    let mut answer = Response::new(Body::new(body));
    *answer.headers_mut() = headers;
    tracked_body::goes_on(&mut answer);
    tracked_body::hold(&mut answer, state);
    answer
}

/// The body of an answer in pieces. The work ends with it.
struct StreamBody {
    /// `None` if it was over when the answer began.
    _work: Option<AbortOnDropHandle<Option<Response<Body>>>>,
    pieces: mpsc::Receiver<Bytes>,
    state: Arc<AnswerState>,
    /// How often it has been polled since pieces began to gather. The first piece goes out with the head.
    polls: u8,
}

impl http_body::Body for StreamBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let is_gathering = (1..MAX_WAITING).contains(&self.pieces.len()) && !self.pieces.is_closed();
        if is_gathering && self.polls < GATHERING_POLLS {
            self.polls += 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let piece = self.pieces.poll_recv(cx);
        // What has gathered is handed out to its end.
        self.polls = if piece.is_pending() { 0 } else { GATHERING_POLLS };
        piece.map(|piece| match piece {
            Some(piece) => Some(Ok(Frame::data(piece))),
            // The client must not take what it got for the whole answer.
            None => (!self.state.has_ended.load(Ordering::Acquire)).then_some(Err(BrokenOff)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::FutureExt as _;
    use http_body_util::BodyExt as _;

    use super::*;

    fn whole(answer: &'static str) -> Option<Response<Body>> {
        Some(Response::new(Body::from(answer)))
    }

    async fn bytes(answer: Response<Body>) -> Result<Bytes, axum::Error> {
        answer.into_body().collect().await.map(http_body_util::Collected::to_bytes)
    }

    #[tokio::test]
    async fn an_answer_that_does_not_begin_in_pieces_is_what_the_work_returns() {
        assert_eq!(bytes(respond(|_| async { whole("whole") }).await).await.unwrap(), "whole");
        let answer = respond(|stream| async {
            drop(stream);
            tokio::task::yield_now().await;
            whole("later")
        });
        assert_eq!(bytes(answer.await).await.unwrap(), "later");
    }

    #[tokio::test]
    async fn a_stream_that_is_over_at_once_is_a_stream() {
        let work = |mut stream: ClientStream| async move {
            stream.begin(HeaderMap::new());
            stream.send(Bytes::from("all")).await;
            stream.end();
            None
        };
        assert_eq!(bytes(respond(work).await).await.unwrap(), "all");
    }

    #[tokio::test(start_paused = true)]
    async fn pieces_go_out_while_the_work_goes_on() {
        let work = |mut stream: ClientStream| async move {
            stream.begin(HeaderMap::new());
            for piece in ["one ", "two ", "three"] {
                stream.send(Bytes::from(piece)).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            stream.end();
            None
        };
        let mut body = respond(work).await.into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "one ");
        assert_eq!(body.collect().await.unwrap().to_bytes(), "two three");
    }

    #[tokio::test]
    async fn pieces_that_come_one_after_another_can_be_read_at_once() {
        let work = |mut stream: ClientStream| async move {
            stream.begin(HeaderMap::new());
            stream.send(Bytes::from("first")).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
            for _ in 0..4 {
                stream.send(Bytes::from("x")).await;
                tokio::task::yield_now().await;
            }
            std::future::pending().await
        };
        let mut body = respond(work).await.into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
        body.frame().await.unwrap().unwrap();
        let others = pieces_at_once(&mut body);
        assert!(others >= 2, "{others} others");
    }

    #[tokio::test]
    async fn what_has_gathered_is_handed_out_to_its_end() {
        let work = |mut stream: ClientStream| async move {
            stream.begin(HeaderMap::new());
            for _ in 0..MAX_WAITING {
                stream.send(Bytes::from("x")).await;
            }
            std::future::pending().await
        };
        let mut body = respond(work).await.into_body();
        assert_eq!(pieces_at_once(&mut body), MAX_WAITING);
    }

    /// How many pieces a body hands out without a wait.
    fn pieces_at_once(body: &mut Body) -> usize {
        std::iter::from_fn(|| body.frame().now_or_never().flatten()).take_while(Result::is_ok).count()
    }

    #[tokio::test(start_paused = true)]
    async fn more_pieces_than_have_room_all_arrive() {
        let work = |mut stream: ClientStream| async move {
            stream.begin(HeaderMap::new());
            for _ in 0..100 {
                stream.send(Bytes::from("x")).await;
            }
            stream.end();
            None
        };
        assert_eq!(bytes(respond(work).await).await.unwrap().len(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn the_work_goes_on_while_the_client_does_not_read() {
        let (done, is_done) = oneshot::channel();
        let work = |mut stream: ClientStream| async move {
            stream.begin(HeaderMap::new());
            for _ in 0..100 {
                stream.send_if_idle(|| Bytes::from("x"));
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let _ = done.send(());
            stream.end();
            None
        };
        let answer = respond(work).await;
        is_done.await.unwrap();
        assert_eq!(bytes(answer).await.unwrap(), "x", "one waits, and the others were not needed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_an_event_of_its_own_stream_and_breaks_off_the_providers() {
        let own = |mut stream: ClientStream| async move {
            stream.begin(HeaderMap::new());
            stream.fail(Bytes::from("error")).await;
            None
        };
        assert_eq!(bytes(respond(own).await).await.unwrap(), "error");
        let passed = |mut stream: ClientStream| async move {
            stream.pass(HeaderMap::new());
            stream.fail(Bytes::from("error")).await;
            None
        };
        assert!(bytes(respond(passed).await).await.is_err());
    }

    #[tokio::test]
    async fn an_answer_whose_work_panics_is_broken_off() {
        let work = |mut stream: ClientStream| async move {
            stream.begin(HeaderMap::new());
            stream.send(Bytes::from("half")).await;
            tokio::task::yield_now().await;
            panic!("a mistake of ours");
        };
        let mut body = respond(work).await.into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
        assert!(body.frame().await.unwrap().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_broken_off_if_its_client_does_not_read_its_last_words() {
        let (done, is_done) = oneshot::channel();
        let work = |mut stream: ClientStream| async move {
            stream.begin(HeaderMap::new());
            for _ in 0..MAX_WAITING {
                stream.send(Bytes::from("x")).await;
            }
            stream.fail(Bytes::from("error")).await;
            let _ = done.send(());
            None
        };
        let answer = respond(work).await;
        is_done.await.unwrap();
        assert!(bytes(answer).await.is_err());
    }

    #[tokio::test]
    async fn a_client_that_goes_away_before_the_answer_ends_the_work() {
        let (held, gone) = oneshot::channel::<Infallible>();
        let work = |stream: ClientStream| async move {
            let (_held, _stream) = (held, stream);
            std::future::pending().await
        };
        assert!(respond(work).now_or_never().is_none());
        assert!(gone.await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_goes_away_ends_the_work() {
        let (held, gone) = oneshot::channel::<Infallible>();
        let work = |mut stream: ClientStream| async move {
            let _held = held;
            stream.begin(HeaderMap::new());
            std::future::pending::<()>().await;
            None
        };
        drop(respond(work).await);
        assert!(gone.await.is_err());
    }
}
