//! Runs one connection in one task: hyper's state machine, the futures that it starts for streams, and the
//! writes.
//!
//! hyper starts a future for each stream. As tasks of the runtime they would run on any thread, and each call
//! would wake several threads one after another. Here the connection's task polls them itself, as a worker of
//! Envoy or linkerd does. Other connections use the other threads.
//!
//! A turn of the task polls all that is ready. Its writes are collected and leave together at its end
//! ([`WriteFlusher`]).

use std::{
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures::{
    FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered, task::AtomicWaker,
};
use hyper::rt::Executor;
use tokio::io::AsyncWrite;

use crate::net::{
    tracked_body::{Unsent, UnsentMark},
    write_buffer::WriteFlusher,
};

/// How often a turn polls the connection before other tasks get their turn.
const MAX_ROUNDS: usize = 16;

/// Takes the futures that hyper starts for streams, for the [`ConnectionTask`] that polls them.
#[derive(Clone, Default)]
pub(crate) struct StreamExecutor(Arc<Mutex<Vec<BoxFuture<'static, ()>>>>);

impl StreamExecutor {
    fn queue(&self) -> MutexGuard<'_, Vec<BoxFuture<'static, ()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamExecutor {
    /// hyper calls this only while the connection is polled, or before its first poll. A stream that panics
    /// ends alone, as it would as a task of its own.
    fn execute(&self, stream: F) {
        self.queue().push(Box::pin(AssertUnwindSafe(stream).catch_unwind().map(drop)));
    }
}

/// Wakes the task for the connection. Most wakes are for a stream, and polling the connection then would be in vain.
struct ConnectionWaker {
    is_woken: AtomicBool,
    /// A wake either finds this unset and wakes the task, or sets `is_woken` before the task looks at the end of its turn.
    in_turn: AtomicBool,
    task: AtomicWaker,
}

impl Wake for ConnectionWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, SeqCst);
        if !self.in_turn.load(SeqCst) {
            self.task.wake();
        }
    }
}

/// The streams and the writes of one connection.
pub(crate) struct ConnectionTask<S> {
    waker: Arc<ConnectionWaker>,
    executor: StreamExecutor,
    streams: FuturesUnordered<BoxFuture<'static, ()>>,
    writes: WriteFlusher<S>,
    /// Tells who waits for answers to be written that some wait in `writes`.
    unsent: Arc<Unsent>,
    blocked: Option<UnsentMark>,
}

impl<S: AsyncWrite + Unpin> ConnectionTask<S> {
    /// For the connection whose hyper builder got `executor`, and whose stream belongs to `writes`. Counts answers
    /// that the peer does not take as `unsent`.
    pub(crate) fn new(executor: StreamExecutor, writes: WriteFlusher<S>, unsent: Arc<Unsent>) -> Self {
        let waker = Arc::new(ConnectionWaker {
            is_woken: AtomicBool::new(true),
            in_turn: AtomicBool::new(false),
            task: AtomicWaker::new(),
        });
        ConnectionTask { waker, executor, streams: FuturesUnordered::new(), writes, unsent, blocked: None }
    }

    /// Polls the connection and its streams until `connection` ends. It may be dropped and called again.
    pub(crate) async fn run<C: Future>(&mut self, mut connection: Pin<&mut C>) -> C::Output {
        let waker = Waker::from(Arc::clone(&self.waker));
        self.waker.is_woken.store(true, SeqCst);
        std::future::poll_fn(|cx| {
            self.waker.task.register(cx.waker());
            self.waker.in_turn.store(true, SeqCst);
            let ended = self.poll_turn(connection.as_mut(), &waker, cx);
            // What blocks the writes may block the connection.
            self.flush(&mut Context::from_waker(&waker));
            self.waker.in_turn.store(false, SeqCst);
            if self.waker.is_woken.load(SeqCst) {
                cx.waker().wake_by_ref();
            }
            ended
        })
        .await
    }

    fn poll_turn<C: Future>(
        &mut self,
        mut connection: Pin<&mut C>,
        waker: &Waker,
        cx: &mut Context<'_>,
    ) -> Poll<C::Output> {
        for _ in 0..MAX_ROUNDS {
            if self.waker.is_woken.swap(false, SeqCst)
                && let Poll::Ready(ended) = connection.as_mut().poll(&mut Context::from_waker(waker))
            {
                return Poll::Ready(ended);
            }
            self.poll_streams(cx);
            if !self.waker.is_woken.load(SeqCst) {
                return Poll::Pending;
            }
            if !tokio::task::coop::has_budget_remaining() {
                break;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Polls the streams that are ready. One that gives the connection something to write wakes it.
    fn poll_streams(&mut self, cx: &mut Context<'_>) {
        self.streams.extend(self.executor.queue().drain(..));
        while let Poll::Ready(Some(())) = self.streams.poll_next_unpin(cx) {}
    }

    fn flush(&mut self, cx: &mut Context<'_>) {
        match self.writes.poll_flush(cx) {
            Poll::Ready(()) => self.blocked = None,
            Poll::Pending if self.blocked.is_none() => self.blocked = Some(self.unsent.mark()),
            Poll::Pending => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        pin::pin,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use axum::body::Body;
    use http::{Request, Response};
    use hyper::{client::conn::http2, service::service_fn};
    use hyper_util::{rt::TokioIo, server::conn::auto};
    use tokio::io::DuplexStream;

    use super::*;
    use crate::net::write_buffer::{WriteBuffer, tests::CountedStream};

    /// A task whose writes are counted.
    fn task(
        stream: DuplexStream,
    ) -> (TokioIo<WriteBuffer<CountedStream>>, ConnectionTask<CountedStream>, Arc<AtomicUsize>) {
        let writes = Arc::new(AtomicUsize::new(0));
        let (stream, flusher) = WriteBuffer::new(CountedStream { stream, writes: Arc::clone(&writes) });
        (
            TokioIo::new(stream),
            ConnectionTask::new(StreamExecutor::default(), flusher, Arc::default()),
            writes,
        )
    }

    /// A client of a server that echoes bodies, and the counts of both sides' writes.
    async fn connected() -> (http2::SendRequest<Body>, [Arc<AtomicUsize>; 2]) {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (stream, mut server, answered) = task(far);
        tokio::spawn(async move {
            let echo = service_fn(|request: Request<hyper::body::Incoming>| async {
                assert!(request.uri().path() != "/panic", "a mistake of ours");
                Ok::<_, Infallible>(Response::new(request.into_body()))
            });
            let builder = auto::Builder::new(server.executor.clone());
            let connection = pin!(builder.serve_connection(stream, echo));
            server.run(connection).await
        });
        let (stream, mut client, sent) = task(near);
        let handshake = http2::handshake(client.executor.clone(), stream);
        let (mut sender, connection) = handshake.await.unwrap();
        tokio::spawn(async move { client.run(pin!(connection)).await });
        sender.ready().await.unwrap();
        // The first call comes with the settings of both sides.
        call(&mut sender, "/").await.unwrap();
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        (sender, [sent, answered])
    }

    fn call(
        sender: &mut http2::SendRequest<Body>,
        path: &str,
    ) -> impl Future<Output = hyper::Result<Response<hyper::body::Incoming>>> + use<> {
        let request = Request::post(format!("http://x{path}"));
        sender.send_request(request.body(Body::from("a".repeat(100))).unwrap())
    }

    #[tokio::test]
    async fn calls_that_arrive_together_are_sent_and_answered_in_one_write_each() {
        let (mut sender, writes) = connected().await;
        let counts = || writes.each_ref().map(|writes| writes.load(Ordering::Relaxed));
        let before = counts();
        let calls: Vec<_> = (0..20).map(|_| call(&mut sender, "/")).collect();
        for answer in futures::future::join_all(calls).await {
            assert_eq!(answer.unwrap().status(), 200);
        }
        let after = counts();
        assert_eq!([after[0] - before[0], after[1] - before[1]], [1, 1]);
    }

    /// Counts its polls, and is never ready.
    struct CountedPolls(Arc<AtomicUsize>, Arc<Mutex<Option<Waker>>>);

    impl Future for CountedPolls {
        type Output = ();

        fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            *self.1.lock().unwrap() = Some(cx.waker().clone());
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn a_wake_for_a_stream_does_not_poll_the_connection() {
        let (stream, _peer) = tokio::io::duplex(64);
        let (_stream, mut task, _) = task(stream);
        let (polls, waker) = (Arc::new(AtomicUsize::new(0)), Arc::default());
        let (go_on, mut going) = tokio::sync::mpsc::unbounded_channel::<()>();
        let received = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&received);
        task.executor.execute(async move {
            while going.recv().await.is_some() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let connection = CountedPolls(Arc::clone(&polls), Arc::clone(&waker));
        tokio::spawn(async move { task.run(pin!(connection)).await });
        let turns = async || {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            (polls.load(Ordering::Relaxed), received.load(Ordering::Relaxed))
        };
        assert_eq!(turns().await, (1, 0));
        go_on.send(()).unwrap();
        assert_eq!(turns().await, (1, 1), "the stream alone");
        waker.lock().unwrap().take().unwrap().wake();
        assert_eq!(turns().await, (2, 1), "the connection alone");
    }

    #[tokio::test]
    async fn a_stream_that_panics_ends_alone() {
        let (mut sender, _) = connected().await;
        let [panics, other] = ["/panic", "/"].map(|path| call(&mut sender, path));
        let (panics, other) = tokio::join!(panics, other);
        assert!(panics.is_err(), "its stream is reset");
        assert_eq!(other.unwrap().status(), 200);
        assert_eq!(call(&mut sender, "/").await.unwrap().status(), 200, "the connection serves on");
    }
}
