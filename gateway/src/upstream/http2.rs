//! The client end of one HTTP/2 connection.
//!
//! It uses h2 without hyper's client, which passes each request to the connection's task through a channel and
//! starts a future there that passes the response back. Here the task of the call does both itself, and the
//! connection's task only reads and writes.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use h2::{
    RecvStream,
    client::{Builder, SendRequest},
};
use http::{Request, Response};
use http_body::{Body, Frame};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};

use crate::{
    net::{read_after_write_error::IgnoreWriteErrors, write_buffer::WriteBuffer},
    upstream::keep_alive::{CallActivity, CallGuard, until_dead},
};

/// Largest header list of a reply. gRPC puts the status message there. Libraries put an exception's text into
/// that message, and the text may quote the whole call: up to 17 MiB, times four for percent-encoding and
/// escapes. Beyond the limit h2 closes the connection with every tenant's calls on it, so the limit must
/// exceed what any honest plugin sends.
const MAX_HEADER_LIST_BYTES: u32 = 4 * (17 << 20);
/// What a plugin may send before it is read, in bytes: of one reply, and of all. As in hyper.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 5 << 20;
/// Streams before the plugin's SETTINGS say how many it takes (RFC 9113, section 6.5.2).
const INITIAL_MAX_STREAMS: usize = 100;

/// Sends requests over a connection. The connection ends when this is dropped and the last call has ended.
pub(super) struct Http2Client {
    requests: SendRequest<Bytes>,
    activity: Arc<CallActivity>,
    closed: CancellationToken,
    _dropped: DropGuard,
}

impl Http2Client {
    /// Starts HTTP/2 with prior knowledge over `stream`, and the task that serves the connection.
    pub(super) async fn connect<S>(stream: S) -> Result<Self, h2::Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (stream, mut writes) = WriteBuffer::new(IgnoreWriteErrors::new(stream));
        let (requests, mut connection) = Builder::new()
            .initial_max_send_streams(INITIAL_MAX_STREAMS)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(MAX_HEADER_LIST_BYTES)
            // A bad reply fails its own call only, however many there are.
            .max_local_error_reset_streams(None)
            .enable_push(false)
            .handshake::<_, Bytes>(stream)
            .await?;
        let (activity, closed, dropped) =
            (CallActivity::new(), CancellationToken::new(), CancellationToken::new());
        let pings = connection.ping_pong().expect("it is taken once");
        let mut driver = ConnectionDriver {
            connection,
            requests: Some(requests.clone()),
            client_dropped: Box::pin(dropped.clone().cancelled_owned()),
            dead: Box::pin(until_dead(pings, Arc::clone(&activity))),
            closed: closed.clone(),
            _ended: closed.clone().drop_guard(),
        };
        tokio::spawn(async move {
            poll_fn(|cx| {
                let ended = driver.poll(cx);
                // An error shows at the next write.
                let _ = writes.poll_flush(cx);
                ended
            })
            .await;
        });
        Ok(Http2Client { requests, activity, closed, _dropped: dropped.drop_guard() })
    }

    /// Is cancelled when the connection takes no more requests. Doesn't keep the connection alive.
    pub(super) fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    /// Queues a request with `frame` as its body. Dropping the future, or the reply's body, cancels the call at
    /// the plugin.
    ///
    /// # Errors
    /// The connection takes no more requests, so the plugin does not see this one.
    pub(super) fn send(
        &self,
        request: Request<()>,
        frame: Bytes,
    ) -> Result<impl Future<Output = Result<Response<ReplyBody>, h2::Error>> + use<>, h2::Error> {
        // Each handle has one request at most that waits for the plugin to take more streams.
        let sent = self.requests.clone().send_request(request, false);
        // Calls see the end before the connection's task does. A retry must not find this connection again.
        let (response, mut body) = sent.inspect_err(|_| self.closed.cancel())?;
        let mut call = self.activity.begin_call();
        // If it fails, the response tells why: the connection may end, or go away, between the two.
        let _ = body.send_data(frame, true);
        Ok(async move {
            let response = response.await?;
            call.note_reply();
            Ok(response.map(|stream| ReplyBody { stream, _call: call }))
        })
    }
}

/// Serves a connection: reads, writes, and pings.
struct ConnectionDriver<S: AsyncRead + AsyncWrite + Unpin> {
    connection: h2::client::Connection<WriteBuffer<IgnoreWriteErrors<S>>, Bytes>,
    /// Keeps the connection open, and tells whether it takes requests; `None` if it takes no more.
    requests: Option<SendRequest<Bytes>>,
    client_dropped: Pin<Box<WaitForCancellationFutureOwned>>,
    /// See [`until_dead`].
    dead: BoxFuture<'static, ()>,
    closed: CancellationToken,
    _ended: DropGuard,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionDriver<S> {
    /// Ready when the connection has ended. The calls that this interrupts report why.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.requests.is_some() && self.client_dropped.as_mut().poll(cx).is_ready() {
            self.requests = None;
        }
        if Pin::new(&mut self.connection).poll(cx).is_ready() {
            return Poll::Ready(());
        }
        // After a GOAWAY the connection only ends the calls that it has.
        if self
            .requests
            .as_mut()
            .is_some_and(|requests| matches!(requests.poll_ready(cx), Poll::Ready(Err(_))))
        {
            self.requests = None;
            self.closed.cancel();
        }
        self.dead.as_mut().poll(cx)
    }
}

/// The body of a reply.
pub(super) struct ReplyBody {
    stream: RecvStream,
    /// The call is in flight until its reply is read.
    _call: CallGuard,
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        match ready!(self.stream.poll_data(cx)) {
            Some(Ok(data)) => {
                // It fails only for bytes that were not received.
                let _ = self.stream.flow_control().release_capacity(data.len());
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => {
                let trailers = ready!(self.stream.poll_trailers(cx))?;
                Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
            }
        }
    }
}
