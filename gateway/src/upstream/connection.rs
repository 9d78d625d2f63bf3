//! One connection to a plugin: sends requests, tells which of them provably never left, and knows when it
//! ended.
//!
//! This module covers the wire only. Others decide what to send, and what follows from an answer.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{FutureExt as _, future::Either};
use http::{
    HeaderMap, HeaderValue, Method, Uri, Version,
    header::{CONTENT_TYPE, HeaderName, TE, USER_AGENT},
    uri::{Authority, PathAndQuery, Scheme},
};
use http_body_util::Full;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tower::ServiceExt as _;

use crate::{
    core::{call_site::CallSite, point::Point},
    fairness::compute_pool::ComputePool,
    grpc::timeout::{self, GRPC_TIMEOUT},
    net::worker::WorkerId,
    upstream::{
        codec::{self, ExchangeError},
        http2::Http2Client,
        transport::InProcess,
    },
};

/// A CANCELLED or DEADLINE_EXCEEDED this close to our deadline counts as that deadline, enforced by the
/// plugin's server: both timers expire at the same moment and either may win.
const DEADLINE_TOLERANCE: Duration = Duration::from_millis(10);

/// The metadata of every request: the plugin that it is for.
const PLUGIN: HeaderName = HeaderName::from_static("hookgate-plugin");

/// A method of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rpc {
    Describe,
    Initialize,
    Release,
    Shutdown,
    Health,
    At(Point),
    OnHook,
}

impl Rpc {
    /// The method that calls a plugin at `site`.
    pub fn at(site: &CallSite) -> Self {
        match site {
            CallSite::Point(point) => Rpc::At(*point),
            CallSite::Hook(_) => Rpc::OnHook,
        }
    }

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
            Rpc::OnHook => "/hookgate.plugin.v1.PluginService/OnHook",
        }
    }
}

/// One connection, which carries several calls at once.
pub(super) struct Connection {
    sender: RequestSender,
    scheme: Scheme,
    authority: Authority,
    closed: CancellationToken,
    /// The plugin that requests are for. `None` for a plugin of unknown name.
    plugin: Option<HeaderValue>,
    /// The worker that serves the connection; `None` if no worker does.
    worker: Option<WorkerId>,
    /// Whether the connection can't be intercepted: TLS, a Unix socket, loopback, or in process.
    pub(super) private: bool,
}

enum RequestSender {
    Http2(Http2Client),
    InProcess(InProcess, ComputePool),
}

impl Connection {
    /// HTTP/2 with prior knowledge over `stream`; `scheme` tells whether `stream` is TLS.
    pub(super) async fn http2<S>(
        stream: S,
        scheme: Scheme,
        authority: Authority,
        private: bool,
    ) -> Result<Self, h2::Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let client = Http2Client::connect(stream).await?;
        let closed = client.closed().clone();
        let (sender, worker) = (RequestSender::Http2(client), WorkerId::current());
        Ok(Connection { sender, scheme, authority, closed, plugin: None, worker, private })
    }

    /// A connection to `service` in this process.
    pub(super) fn in_process(service: InProcess, compute: ComputePool) -> Self {
        Connection {
            sender: RequestSender::InProcess(service, compute),
            scheme: Scheme::HTTP,
            authority: Authority::from_static("in-process"),
            closed: CancellationToken::new(),
            plugin: None,
            worker: None,
            private: true,
        }
    }

    /// Names `plugin` in every request, because an endpoint may serve several. An empty name names none.
    pub(super) fn naming(self, plugin: &str) -> Self {
        Connection { plugin: HeaderValue::from_str(plugin).ok().filter(|name| !name.is_empty()), ..self }
    }

    /// Whether it takes no more calls. Those that it took may still be answered.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Whether the caller's worker serves it; off the workers, whether none does. Calls then stay in one runtime.
    pub(super) fn is_local(&self) -> bool {
        self.is_in_process() || self.worker == WorkerId::current()
    }

    /// Whether the plugin is built in.
    pub(super) fn is_in_process(&self) -> bool {
        matches!(self.sender, RequestSender::InProcess(..))
    }

    /// A token that is cancelled when the connection takes no more calls. Doesn't keep the connection alive.
    pub(super) fn ended(&self) -> CancellationToken {
        self.closed.clone()
    }

    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// One unary call: sends `frame` with `headers` and the remaining time, and reads a reply of at most
    /// `max_reply` bytes. Dropping the future resets the stream, which cancels the call at the plugin. `tenant` has the call of a
    /// built-in run apart from the caller's thread if it is large; the gateway's own calls have none.
    pub(super) async fn unary(
        &self,
        rpc: Rpc,
        frame: Bytes,
        headers: &HeaderMap,
        deadline: Instant,
        max_reply: usize,
        tenant: Option<&Arc<str>>,
    ) -> Result<Bytes, ExchangeError> {
        if Instant::now() >= deadline {
            return Err(ExchangeError::TimedOut);
        }
        let request = self.request(rpc, headers, deadline);
        match tokio::time::timeout_at(deadline, self.exchange(request, frame, max_reply, tenant)).await {
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

    fn request(&self, rpc: Rpc, headers: &HeaderMap, deadline: Instant) -> http::Request<()> {
        let mut uri = http::uri::Parts::default();
        uri.scheme = Some(self.scheme.clone());
        uri.authority = Some(self.authority.clone());
        uri.path_and_query = Some(PathAndQuery::from_static(rpc.path()));
        let mut request = http::Request::new(());
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = Uri::from_parts(uri).expect("scheme, authority and path make a URI");
        let all = request.headers_mut();
        all.reserve(5 + headers.len());
        all.insert(TE, HeaderValue::from_static("trailers"));
        all.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        all.insert(USER_AGENT, HeaderValue::from_static(concat!("hookgate/", env!("CARGO_PKG_VERSION"))));
        let left = deadline.saturating_duration_since(Instant::now());
        all.insert(GRPC_TIMEOUT, timeout::value(left));
        all.extend(self.plugin.iter().map(|plugin| (PLUGIN, plugin.clone())));
        all.extend(headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        request
    }

    async fn exchange(
        &self,
        request: http::Request<()>,
        frame: Bytes,
        max_reply: usize,
        tenant: Option<&Arc<str>>,
    ) -> Result<Bytes, ExchangeError> {
        match &self.sender {
            RequestSender::Http2(client) => {
                let sent = client.send(request, frame);
                let response = sent.map_err(|error| ExchangeError::Unsent(error.to_string()))?.await;
                codec::read(response.map_err(classify)?, max_reply).await
            }
            RequestSender::InProcess(InProcess(service), compute) => {
                let tenant = tenant.filter(|_| ComputePool::takes(frame.len()));
                let (service, request) = (service.clone(), request.map(|()| Body::new(Full::new(frame))));
                let answer = async move {
                    let response = service.oneshot(request).await;
                    codec::read(response.map_err(|error| ExchangeError::Lost(error.to_string()))?, max_reply)
                        .await
                };
                let answer = match tenant {
                    // In a box, so that every call's future has no room for it.
                    Some(tenant) => Either::Left(Box::pin(compute.run(tenant, answer))),
                    None => Either::Right(answer),
                };
                // A panic fails the plugin's call only, as it would behind a socket.
                let answer = AssertUnwindSafe(answer).catch_unwind().await;
                answer.unwrap_or_else(|_| Err(ExchangeError::Lost("the built-in panicked".into())))
            }
        }
    }
}

/// Classifies the failure of a request that was sent: whether the plugin can have processed it, and which side
/// aborted it.
fn classify(error: h2::Error) -> ExchangeError {
    match error.reason() {
        _ if is_stream_refused(&error) => ExchangeError::StreamRefused,
        Some(_) if error.is_remote() && error.is_reset() => {
            ExchangeError::Status(Box::new(tonic::Status::from_error(Box::new(error))))
        }
        // Detected on our side: the bytes are not HTTP/2, or exceed its limits.
        _ if error.is_library() => ExchangeError::BadReply(error.to_string()),
        _ => ExchangeError::Lost(error.to_string()),
    }
}

/// Whether the other side has not looked at the request that ended with this error (RFC 9113, section 8.7): it refused the
/// stream, or sent a graceful GOAWAY. Only requests beyond its last accepted stream end with the latter (section 6.8).
fn is_stream_refused(error: &h2::Error) -> bool {
    let is_refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
    let is_goaway = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
    error.is_remote() && (is_refused || is_goaway)
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
        let ended = connection.unary(Rpc::Describe, frame(&()), &HeaderMap::new(), deadline, 1, None).await;
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

    /// Some of these calls are sent at the very moment at which the connection ends.
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
                            connection.unary(Rpc::Describe, call, &HeaderMap::new(), deadline, 1, None).await;
                        assert!(!matches!(ended, Err(ExchangeError::TimedOut)), "the call was lost");
                        let unsent = matches!(ended, Err(ExchangeError::Unsent(_)));
                        assert!(!unsent || connection.is_closed(), "the retry would be sent here again");
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
