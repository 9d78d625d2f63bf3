//! One connection to a plugin: sends requests, tells which of them provably never left, and knows when it
//! ended.
//!
//! This module covers the wire only. Others decide what to send, and what follows from an answer.

use std::{panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use futures::FutureExt as _;
use http::{
    HeaderMap, HeaderValue, Method, Uri, Version,
    header::{CONTENT_TYPE, TE, USER_AGENT},
    uri::{Authority, PathAndQuery, Scheme},
};
use hyper::client::conn::{TrySendError, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::{
    core::point::Point,
    grpc::timeout::{self, GRPC_TIMEOUT},
    net::{
        connection_task::{ConnectionTask, StreamExecutor},
        read_after_write_error::IgnoreWriteErrors,
        worker::WorkerId,
        write_buffer::WriteBuffer,
    },
    upstream::{
        codec::{self, ExchangeError, SingleFrameBody},
        transport::InProcess,
    },
};

/// Largest header list of a reply. gRPC puts the status message there. Libraries put an exception's text into
/// that message, and the text may quote the whole call: up to 17 MiB, times four for percent-encoding and
/// escapes. Beyond the limit h2 closes the connection with every tenant's calls on it, so the limit must
/// exceed what any honest plugin sends.
const MAX_HEADER_LIST_BYTES: u32 = 4 * (17 << 20);
/// After this much silence with calls in flight, a ping checks that the other end is alive. Never while idle:
/// some gRPC servers close a connection for that.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// A CANCELLED or DEADLINE_EXCEEDED this close to our deadline counts as that deadline, enforced by the
/// plugin's server: both timers expire at the same moment and either may win.
const DEADLINE_TOLERANCE: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rpc {
    Describe,
    Initialize,
    Release,
    Shutdown,
    Health,
    At(Point),
}

impl Rpc {
    pub(super) const fn path(self) -> &'static str {
        match self {
            Rpc::Describe => "/hookgate.plugin.v1.PluginService/Describe",
            Rpc::Initialize => "/hookgate.plugin.v1.PluginService/Initialize",
            Rpc::Release => "/hookgate.plugin.v1.PluginService/Release",
            Rpc::Shutdown => "/hookgate.plugin.v1.PluginService/Shutdown",
            Rpc::Health => "/grpc.health.v1.Health/Check",
            Rpc::At(Point::BeforeLlmRequest) => "/hookgate.plugin.v1.PluginService/BeforeLlmRequest",
            Rpc::At(Point::BeforeToolCall) => "/hookgate.plugin.v1.PluginService/BeforeToolCall",
            Rpc::At(Point::AfterToolResult) => "/hookgate.plugin.v1.PluginService/AfterToolResult",
            Rpc::At(Point::BeforeResponse) => "/hookgate.plugin.v1.PluginService/BeforeResponse",
        }
    }
}

/// One connection, which carries several calls at once.
pub(super) struct Connection {
    sender: RequestSender,
    scheme: Scheme,
    authority: Authority,
    closed: CancellationToken,
    /// The worker that serves the connection; `None` if no worker does.
    worker: Option<WorkerId>,
    /// Whether the connection can't be intercepted: TLS, a Unix socket, loopback, or in process.
    pub(super) private: bool,
}

enum RequestSender {
    Http2(Arc<QueueSender>),
    InProcess(InProcess),
}

/// The sender of hyper's request queue; empty once the connection's driver has ended. A request that is
/// queued at that very moment stays in the queue until the last sender is dropped. So nothing holds a sender
/// for long: a call clones one and drops it as soon as its request is queued.
type QueueSender = ArcSwapOption<http2::SendRequest<SingleFrameBody>>;

impl Connection {
    /// HTTP/2 with prior knowledge over `stream`; `scheme` tells whether `stream` is TLS.
    pub(super) async fn http2<S>(
        stream: S,
        scheme: Scheme,
        authority: Authority,
        private: bool,
    ) -> hyper::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (stream, writes) = WriteBuffer::new(IgnoreWriteErrors::new(stream));
        let streams = StreamExecutor::default();
        let (sender, driver) = http2::Builder::new(streams.clone())
            .timer(TokioTimer::new())
            .max_header_list_size(MAX_HEADER_LIST_BYTES)
            // A bad reply fails its own call only, however many there are.
            .max_local_error_reset_streams(None)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake(TokioIo::new(stream))
            .await?;
        let closed = CancellationToken::new();
        let ended = closed.clone().drop_guard();
        let sender = Arc::new(QueueSender::from_pointee(sender));
        // A weak reference, so that the driver ends when nothing holds the connection.
        let queue = Arc::downgrade(&sender);
        tokio::spawn(async move {
            let mut task = ConnectionTask::new(streams, writes);
            // The calls that it interrupts report how it ended.
            let _ = task.run(pin!(driver)).await;
            drop(ended);
            if let Some(queue) = queue.upgrade() {
                queue.store(None);
            }
            task.finish().await;
        });
        let (sender, worker) = (RequestSender::Http2(sender), WorkerId::current());
        Ok(Connection { sender, scheme, authority, closed, worker, private })
    }

    /// A connection to `service` in this process.
    pub(super) fn in_process(service: InProcess) -> Self {
        Connection {
            sender: RequestSender::InProcess(service),
            scheme: Scheme::HTTP,
            authority: Authority::from_static("in-process"),
            closed: CancellationToken::new(),
            worker: None,
            private: true,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        match &self.sender {
            RequestSender::Http2(queue) => {
                self.closed.is_cancelled() || queue.load().as_ref().is_none_or(|sender| sender.is_closed())
            }
            RequestSender::InProcess(_) => false,
        }
    }

    /// Whether the caller's worker serves it; off the workers, whether none does. Calls then stay in one runtime.
    pub(super) fn is_local(&self) -> bool {
        self.is_in_process() || self.worker == WorkerId::current()
    }

    /// Whether the plugin is built in.
    pub(super) fn is_in_process(&self) -> bool {
        matches!(self.sender, RequestSender::InProcess(_))
    }

    /// A token that is cancelled when the connection ends. Doesn't keep the connection alive.
    pub(super) fn ended(&self) -> CancellationToken {
        self.closed.clone()
    }

    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// One unary call: sends `frame` with `headers` and the remaining time, and reads a reply of at most
    /// `max_reply` bytes. Dropping the future resets the stream, which cancels the call at the plugin.
    pub(super) async fn unary(
        &self,
        rpc: Rpc,
        frame: Bytes,
        headers: HeaderMap,
        deadline: Instant,
        max_reply: usize,
    ) -> Result<Bytes, ExchangeError> {
        if Instant::now() >= deadline {
            return Err(ExchangeError::TimedOut);
        }
        let request = self.request(rpc, frame, headers, deadline);
        match tokio::time::timeout_at(deadline, self.exchange(request, max_reply)).await {
            Err(_) => Err(ExchangeError::TimedOut),
            Ok(Err(ExchangeError::Status(status)))
                if matches!(status.code(), tonic::Code::Cancelled | tonic::Code::DeadlineExceeded)
                    && Instant::now() + DEADLINE_TOLERANCE >= deadline =>
            {
                Err(ExchangeError::TimedOut)
            }
            Ok(result) => result,
        }
    }

    fn request(
        &self,
        rpc: Rpc,
        frame: Bytes,
        headers: HeaderMap,
        deadline: Instant,
    ) -> http::Request<SingleFrameBody> {
        let mut uri = http::uri::Parts::default();
        uri.scheme = Some(self.scheme.clone());
        uri.authority = Some(self.authority.clone());
        uri.path_and_query = Some(PathAndQuery::from_static(rpc.path()));
        let mut request = http::Request::new(SingleFrameBody::new(frame));
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = Uri::from_parts(uri).expect("scheme, authority and path make a URI");
        *request.headers_mut() = headers;
        let headers = request.headers_mut();
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("hookgate/", env!("CARGO_PKG_VERSION"))));
        let left = deadline.saturating_duration_since(Instant::now());
        headers.insert(GRPC_TIMEOUT, timeout::value(left));
        request
    }

    async fn exchange(
        &self,
        request: http::Request<SingleFrameBody>,
        max_reply: usize,
    ) -> Result<Bytes, ExchangeError> {
        match &self.sender {
            RequestSender::Http2(queue) => {
                let response = enqueue(queue, request)?.await.map_err(classify)?;
                codec::read(response, max_reply).await
            }
            RequestSender::InProcess(service) => {
                let answer = async {
                    let response = service.0.clone().oneshot(request.map(tonic::body::Body::new)).await;
                    codec::read(response.map_err(|error| ExchangeError::Lost(error.to_string()))?, max_reply)
                        .await
                };
                // A panic fails the plugin's call only, as it would behind a socket.
                let answer = AssertUnwindSafe(answer).catch_unwind().await;
                answer.unwrap_or_else(|_| Err(ExchangeError::Lost("the built-in panicked".into())))
            }
        }
    }
}

/// Queues `request`. The returned future holds no sender; see [`QueueSender`].
fn enqueue(
    queue: &QueueSender,
    request: http::Request<SingleFrameBody>,
) -> Result<impl Future<Output = Sent> + use<>, ExchangeError> {
    let sender = queue.load().as_deref().cloned();
    let mut sender = sender.ok_or_else(|| ExchangeError::Unsent("it had ended".into()))?;
    Ok(sender.try_send_request(request))
}

type Sent = Result<http::Response<hyper::body::Incoming>, TrySendError<http::Request<SingleFrameBody>>>;

/// Classifies a failed send: whether the plugin can have seen the request, and which side aborted it.
fn classify<T>(error: TrySendError<T>) -> ExchangeError {
    let handed_back = error.message().is_some();
    let error = error.into_error();
    let h2 = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<h2::Error>());
    let reset = h2.filter(|h2| h2.is_remote() && h2.is_reset()).and_then(h2::Error::reason);
    // A graceful GOAWAY: only calls beyond the plugin's last accepted stream end this way (RFC 9113, section
    // 6.8).
    let passed_over =
        h2.is_some_and(|h2| h2.is_remote() && h2.is_go_away() && h2.reason() == Some(h2::Reason::NO_ERROR));
    // Detected on our side: the bytes are not HTTP/2, or exceed its limits.
    let broken = h2.is_some_and(h2::Error::is_library);
    match reset {
        _ if handed_back => ExchangeError::Unsent(chain(&error)),
        Some(h2::Reason::REFUSED_STREAM) => ExchangeError::StreamRefused,
        _ if passed_over => ExchangeError::StreamRefused,
        Some(_) => ExchangeError::Status(Box::new(tonic::Status::from_error(Box::new(error)))),
        None if broken => ExchangeError::BadReply(chain(&error)),
        None => ExchangeError::Lost(chain(&error)),
    }
}

/// An error with its causes, which hyper doesn't show by itself.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::grpc::framing::frame;

    /// The type of the frame that begins a call.
    const HEADERS: u8 = 1;

    /// The outcome of a call on stream 1 when the connection ends with this GOAWAY.
    async fn told_to_go(last_taken: u8, error: u8) -> ExchangeError {
        let (ours, mut theirs) = tokio::io::duplex(1 << 16);
        let authority = Authority::from_static("plugin");
        let connection = Connection::http2(ours, Scheme::HTTP, authority, true).await.expect("connected");
        let plugin = tokio::spawn(async move {
            theirs.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.expect("SETTINGS");
            let mut head = [0; 9];
            theirs.read_exact(&mut [0; 24]).await.expect("the preface");
            while head[3] != HEADERS {
                theirs.read_exact(&mut head).await.expect("a frame");
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                theirs.read_exact(&mut vec![0; length]).await.expect("the whole of it");
            }
            let go_away = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, last_taken, 0, 0, 0, error];
            theirs.write_all(&go_away).await.expect("GOAWAY");
        });
        let deadline = Instant::now() + Duration::from_secs(60);
        let ended = connection.unary(Rpc::Describe, frame(&()), HeaderMap::new(), deadline, 1).await;
        plugin.await.expect("it does not panic");
        ended.expect_err("there is no reply")
    }

    /// A plugin that disconnects before it reads anything.
    async fn go_at_once(mut plugin: impl AsyncWrite + Unpin, after: u32) {
        let go_away = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for _ in 0..after {
            tokio::task::yield_now().await;
        }
        plugin.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.expect("SETTINGS");
        plugin.write_all(&go_away).await.expect("GOAWAY");
    }

    /// Some of these calls are queued at the very moment when nothing reads the queue any more.
    #[tokio::test(flavor = "multi_thread", worker_threads = 8)]
    async fn a_call_that_is_queued_as_the_connection_ends_is_told_at_once() {
        for round in 0..2000 {
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            let authority = Authority::from_static("plugin");
            let connection = Connection::http2(ours, Scheme::HTTP, authority, true).await.expect("connected");
            let connection = Arc::new(connection);
            let begin = Arc::new(tokio::sync::Barrier::new(9));
            let calls = (0..8).map(|_| {
                let (connection, begin) = (Arc::clone(&connection), Arc::clone(&begin));
                tokio::spawn(async move {
                    begin.wait().await;
                    for _ in 0..20 {
                        let deadline = Instant::now() + Duration::from_secs(60);
                        let call = frame(&());
                        let ended =
                            connection.unary(Rpc::Describe, call, HeaderMap::new(), deadline, 1).await;
                        assert!(!matches!(ended, Err(ExchangeError::TimedOut)), "the call was lost");
                    }
                })
            });
            let calls: Vec<_> = calls.collect();
            begin.wait().await;
            go_at_once(theirs, round % 7).await;
            for call in calls {
                call.await.expect("every call ends");
            }
        }
    }

    #[tokio::test]
    async fn a_call_that_a_plugin_passed_over_as_it_went_was_not_processed() {
        assert!(matches!(told_to_go(0, 0).await, ExchangeError::StreamRefused), "beyond the last taken");
        assert!(matches!(told_to_go(1, 0).await, ExchangeError::Lost(_)), "taken");
        assert!(matches!(told_to_go(0, 2).await, ExchangeError::Lost(_)), "the plugin is broken");
    }
}
