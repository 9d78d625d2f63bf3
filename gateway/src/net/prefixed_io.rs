//! A stream whose first bytes were already read: it yields them once more, and then the rest.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes};
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pin_project! {
    /// Reads `start` and then the rest of the stream. Writes to the stream.
    pub(crate) struct PrefixedIo<S> {
        start: Bytes,
        #[pin]
        stream: S,
    }
}

impl<S> PrefixedIo<S> {
    pub(crate) fn new(start: Bytes, stream: S) -> Self {
        PrefixedIo { start, stream }
    }
}

impl<S: AsyncRead> AsyncRead for PrefixedIo<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        if this.start.is_empty() {
            return this.stream.poll_read(cx, buf);
        }
        let taken = this.start.len().min(buf.remaining());
        buf.put_slice(&this.start[..taken]);
        this.start.advance(taken);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite> AsyncWrite for PrefixedIo<S> {
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
