//! The accept loop of every listener: HTTP/1.1 and HTTP/2 on one port, with or without TLS, TCP_NODELAY, and
//! a drain that sends GOAWAY and waits.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use bytes::BytesMut;
use http::{HeaderValue, Request, Response, Version, header};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    time::timeout,
};
use tokio_rustls::server::TlsStream;
use tokio_util::{either::Either, sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;

use crate::{
    net::{
        connection_task::{ConnectionTask, StreamExecutor},
        lingering_close::LingeringBody,
        movable::movable,
        prefixed_io::PrefixedIo,
        tracked_body::Unsent,
        unix_listener::{LocalUser, WithPeerCred},
        worker::Workers,
        write_buffer::WriteBuffer,
    },
    tls,
};

/// How long a client may take before its connection is closed.
#[derive(Debug, Clone, Copy)]
struct Timeouts {
    /// For its headers, and before them for the TLS handshake and the first bytes, which tell the HTTP
    /// version.
    headers: Duration,
    /// For receiving an answer that is ready.
    answer: Duration,
}

const TIMEOUTS: Timeouts = Timeouts { headers: Duration::from_secs(10), answer: Duration::from_secs(60) };
/// The connection preface of HTTP/2 (RFC 9113, section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// All headers of a request together, in bytes. A token has at most 8 KiB.
const MAX_HEADER_BYTES: u32 = 32 << 10;
/// Calls in flight on one connection; further ones wait. Admission limits all connections together.
const MAX_STREAMS: u32 = 1024;
/// Pings detect connections whose other end is gone.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// The delay after a failed accept, such as for too many open files.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// How long a connection may take to begin its request after the listener is closed, so that a connection
/// made just before is not closed while its request is on the way.
const FINAL_REQUEST_WINDOW: Duration = Duration::from_millis(300);
/// How long connections are still accepted then.
const FINAL_ACCEPT_WINDOW: Duration = Duration::from_millis(50);
/// The most connections that are accepted then: somewhat more than the system's backlog.
const MAX_FINAL_CONNECTIONS: usize = 4096;

/// The two steps in which a listener ends.
#[derive(Debug, Clone, Default)]
pub struct DrainSignals {
    /// Close HTTP/1.1 connections with their next answer. Otherwise a request could be on its way at
    /// `goaway`, and could only be answered with an error.
    pub soon: CancellationToken,
    /// Accept no more connections; open ones finish their calls.
    pub goaway: CancellationToken,
}

/// Answers requests; never fails.
pub trait RequestHandler: Clone + Send + 'static {
    /// Answers one request.
    fn answer(&self, request: Request<Body>) -> impl Future<Output = Response<Body>> + Send;
}

impl RequestHandler for Router {
    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let Ok(answer) = self.clone().oneshot(request).await;
        answer
    }
}

/// Accepts connections, over TLS if `tls` is set, until `drain`, and then lets each one finish its calls.
/// `connections` tracks them until they are closed.
pub async fn serve(
    listener: TcpListener,
    tls: Option<tls::Server>,
    edge: impl RequestHandler,
    drain: DrainSignals,
    connections: TaskTracker,
) {
    let begin = |stream| {
        connections.spawn(connection(stream, tls.clone(), edge.clone(), drain.clone(), TIMEOUTS));
    };
    accept(|| async { Ok(listener.accept().await?.0) }, begin, &drain).await;
}

/// The same, and the connections run on `workers`.
pub(crate) async fn serve_on(
    workers: Arc<Workers>,
    listener: TcpListener,
    tls: Option<tls::Server>,
    edge: impl RequestHandler,
    drain: DrainSignals,
    connections: TaskTracker,
) {
    // A stream belongs to the runtime that made it, so each worker makes its own of the accepted one.
    let accepted = || async { listener.accept().await?.0.into_std() };
    let begin = |stream| {
        let (tls, edge, drain) = (tls.clone(), edge.clone(), drain.clone());
        workers.spawn(&connections, async move {
            match TcpStream::from_std(stream) {
                Ok(stream) => connection(stream, tls, edge, drain, TIMEOUTS).await,
                Err(error) => tracing::warn!(%error, "a connection could not be served"),
            }
        });
    };
    accept(accepted, begin, &drain).await;
}

/// The same for a Unix socket, without TLS. Each request carries the [`LocalUser`] who sent it.
pub async fn serve_local(
    listener: UnixListener,
    edge: impl RequestHandler + Sync,
    drain: DrainSignals,
    connections: TaskTracker,
) {
    let accepted = || async {
        let (stream, _) = listener.accept().await?;
        let user = LocalUser { uid: stream.peer_cred()?.uid() };
        Ok((stream, user))
    };
    let begin = |(stream, user)| {
        let edge = WithPeerCred { edge: edge.clone(), user };
        let drain = drain.clone();
        connections.spawn(async move { converse(begin_local(stream), edge, drain, TIMEOUTS).await });
    };
    accept(accepted, begin, &drain).await;
}

/// Accepts connections, and begins each one, until `drain`.
async fn accept<S, A>(accepted: impl Fn() -> A, begin: impl Fn(S), drain: &DrainSignals)
where
    A: Future<Output = io::Result<S>>,
{
    let last = async {
        drain.goaway.cancelled().await;
        // Connections that the system has already accepted would be reset with the listener.
        tokio::time::sleep(FINAL_ACCEPT_WINDOW).await;
    };
    let mut last = std::pin::pin!(last);
    let mut left = MAX_FINAL_CONNECTIONS;
    loop {
        let accepted = tokio::select! {
            biased;
            // First, because this task may have been delayed: a connection that waits here arrived before the
            // end.
            accepted = accepted() => accepted,
            () = &mut last => return,
        };
        if drain.goaway.is_cancelled() {
            left -= 1;
            if left == 0 {
                return;
            }
        }
        match accepted {
            Ok(stream) => begin(stream),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

async fn connection(
    stream: TcpStream,
    tls: Option<tls::Server>,
    edge: impl RequestHandler,
    drain: DrainSignals,
    patience: Timeouts,
) {
    // Otherwise small answers wait up to 40 ms for the peer's delayed acknowledgement.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "the connection is already gone");
        return;
    }
    converse(begin(stream, tls), edge, drain, patience).await;
}

/// Serves the connection that `begin` makes from an accepted one.
async fn converse<S>(
    begin: impl Future<Output = io::Result<PrefixedIo<S>>>,
    edge: impl RequestHandler,
    drain: DrainSignals,
    patience: Timeouts,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let begun = tokio::select! {
        biased;
        begun = timeout(patience.headers, begin) => begun,
        () = drain.last_start() => return,
    };
    let stream = match begun {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, "a connection ended before its first request");
            return;
        }
        Err(_) => {
            tracing::debug!("a connection sent nothing that begins a request");
            return;
        }
    };

    let (stream, writes) = WriteBuffer::new(stream);
    let (unsent, streams) = (Arc::new(Unsent::default()), StreamExecutor::default());
    let mut task = ConnectionTask::new(streams.clone(), writes, Arc::clone(&unsent));
    let answers = Arc::clone(&unsent);
    let soon = drain.soon.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (edge, answers, soon) = (edge.clone(), Arc::clone(&answers), soon.clone());
        movable(Box::pin(async move {
            let closes = request.version() < Version::HTTP_2;
            let mut answer = edge.answer(with_body(request)).await;
            if closes && soon.is_cancelled() {
                answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(answers.watch(answer))
        }))
    });
    let builder = builder(streams, patience);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let served = async {
        tokio::select! {
            biased;
            // First: a connection that is told to shut down before its first bytes are read just ends.
            ended = task.run(connection.as_mut()) => return ended,
            () = drain.goaway.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        task.run(connection).await
    };
    tokio::select! {
        ended = served => if let Err(error) = ended {
            tracing::debug!(error = %error, "a connection broke off");
        },
        () = unsent.overdue(patience.answer) => tracing::debug!("a client did not take its answer"),
    }
}

impl DrainSignals {
    /// Resolves when every request that arrived before the end has begun.
    pub(crate) async fn last_start(&self) {
        self.goaway.cancelled().await;
        tokio::time::sleep(FINAL_REQUEST_WINDOW).await;
    }
}

/// A caller's connection, decrypted.
type CallerStream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// The TLS handshake, if there is one, and as many first bytes as tell HTTP/2 from HTTP/1. Without this, the
/// builder would wait for those bytes without a limit.
async fn begin(stream: TcpStream, tls: Option<tls::Server>) -> io::Result<PrefixedIo<CallerStream>> {
    let mut stream = match tls {
        None => Either::Left(stream),
        Some(tls) => Either::Right(Box::new(tls.accept(stream).await?)),
    };
    let start = start(&mut stream).await?;
    Ok(PrefixedIo::new(start.freeze(), stream))
}

async fn begin_local(mut stream: UnixStream) -> io::Result<PrefixedIo<UnixStream>> {
    let start = start(&mut stream).await?;
    Ok(PrefixedIo::new(start.freeze(), stream))
}

async fn start(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<BytesMut> {
    let mut start = BytesMut::with_capacity(HTTP2_PREFACE.len());
    while start.len() < HTTP2_PREFACE.len() && HTTP2_PREFACE.starts_with(&start) {
        if stream.read_buf(&mut start).await? == 0 {
            break;
        }
    }
    Ok(start)
}

fn builder(streams: StreamExecutor, patience: Timeouts) -> auto::Builder<StreamExecutor> {
    let mut builder = auto::Builder::new(streams);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(patience.headers)
        // A request's head must fit into the buffer, so this limits it. Bodies pass through in pieces.
        .max_buf_size(MAX_HEADER_BYTES as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEADER_BYTES)
        .max_concurrent_streams(MAX_STREAMS)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

/// HTTP/2 can end one request and keep the connection. HTTP/1.1 has to read what the client still sends.
fn with_body(request: Request<Incoming>) -> Request<Body> {
    // A client that waits for `100 Continue` sends nothing unless asked.
    let lingers = request.version() < Version::HTTP_2 && !request.headers().contains_key(header::EXPECT);
    request.map(|body| if lingers { Body::new(LingeringBody::new(body)) } else { Body::new(body) })
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
