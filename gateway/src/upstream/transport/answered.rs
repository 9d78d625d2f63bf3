//! A stream that tells once whether the other end said anything.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::oneshot,
};

use crate::upstream::cause::{Cause, DialError};

pin_project! {
    /// Reads and writes as the stream within.
    pub(super) struct Answered<S> {
        #[pin]
        stream: S,
        tell: Option<oneshot::Sender<Result<(), DialError>>>,
    }
}

impl<S> Answered<S> {
    /// `stream`, a TLS connection, and what came of the first read; without a result where nothing was read.
    pub(super) fn new(stream: S) -> (Self, oneshot::Receiver<Result<(), DialError>>) {
        let (tell, told) = oneshot::channel();
        (Answered { stream, tell: Some(tell) }, told)
    }
}

impl<S: AsyncRead> AsyncRead for Answered<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        let before = buf.filled().len();
        let read = ready!(this.stream.poll_read(cx, buf));
        if let Some(tell) = this.tell.take() {
            let first = match &read {
                Ok(()) if buf.filled().len() > before => Ok(()),
                Ok(()) => {
                    Err(DialError::new(Cause::Closed, "the plugin hung up before it answered anything"))
                }
                Err(error) => Err(DialError::of_tls(error)),
            };
            // Whoever dialled may have run out of time.
            let _ = tell.send(first);
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite> AsyncWrite for Answered<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.project().stream.poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.project().stream.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
