//! A stream that can still be read to its end after a write failed.
//!
//! A plugin that shuts down sends a GOAWAY, which says which calls it will not process, and closes. A write
//! to the closed connection fails at once. If that counted as the end of the connection, the GOAWAY would
//! stay unread, and calls that were never processed would be lost (docs/protocol.md, section 2). So a failed
//! write is ignored, and reading reaches the end by itself.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Reads like the inner stream. Discards whatever the inner stream doesn't accept any more.
pub(crate) struct IgnoreWriteErrors<S> {
    stream: S,
    /// A write has failed.
    takes_nothing: bool,
}

impl<S: Unpin> IgnoreWriteErrors<S> {
    pub(crate) fn new(stream: S) -> Self {
        IgnoreWriteErrors { stream, takes_nothing: false }
    }

    /// Calls `write`, or returns `done` if an earlier write failed.
    fn unless_in_vain<T>(
        mut self: Pin<&mut Self>,
        done: T,
        write: impl FnOnce(Pin<&mut S>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if !self.takes_nothing {
            match write(Pin::new(&mut self.stream)) {
                Poll::Ready(Err(_)) => self.takes_nothing = true,
                written => return written,
            }
        }
        Poll::Ready(Ok(done))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for IgnoreWriteErrors<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for IgnoreWriteErrors<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.unless_in_vain(buf.len(), |stream| stream.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.unless_in_vain((), |stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.unless_in_vain((), |stream| stream.poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = bufs.iter().map(|buf| buf.len()).sum();
        self.unless_in_vain(length, |stream| stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream, UnixStream},
        time::timeout,
    };

    use super::*;

    async fn says_goodbye(ours: impl AsyncRead + AsyncWrite + Unpin, theirs: impl AsyncWrite + Unpin) {
        let (mut ours, mut theirs) = (IgnoreWriteErrors::new(ours), theirs);
        ours.write_all(b"never read").await.expect("there is room");
        theirs.write_all(b"goodbye").await.expect("there is room");
        drop(theirs);
        // Over TCP the first write goes out, and only the peer's answer to it fails the next one.
        let in_vain = async {
            while !ours.takes_nothing {
                ours.write_all(b"in vain").await.expect("it is kept quiet");
                ours.flush().await.expect("it is kept quiet");
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(5), in_vain).await.expect("the other end is closed");
        let mut heard = [0; 7];
        ours.read_exact(&mut heard).await.expect("it was said before");
        assert_eq!(&heard, b"goodbye");
        // The end, or a reset after it.
        assert!(matches!(ours.read(&mut heard).await, Ok(0) | Err(_)));
    }

    #[tokio::test]
    async fn what_was_said_before_the_close_is_heard_over_tcp_and_a_unix_socket() {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        says_goodbye(ours, theirs).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("bound");
        let (ours, theirs) = tokio::join!(TcpStream::connect(address), listener.accept());
        says_goodbye(ours.expect("it listens"), theirs.expect("it comes").0).await;
    }
}
