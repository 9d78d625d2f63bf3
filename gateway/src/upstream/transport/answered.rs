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
    /// `stream`, a TLS connection, and what came of the first read.
    pub(super) fn new(stream: S) -> (Self, oneshot::Receiver<Result<(), DialError>>) {
        let (tell, told) = oneshot::channel();
        (Answered { stream, tell: Some(tell) }, told)
    }
}

impl<S: AsyncRead> Answered<S> {
    /// A write that failed ends the connection, but why may stand in what the other end said before it hung up.
    fn written<T>(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let this = self.project();
        if let Poll::Ready(Err(failed)) = &written
            && let Some(tell) = this.tell.take()
        {
            let mut unread = [0; 1];
            let said = match this.stream.poll_read(cx, &mut ReadBuf::new(&mut unread)) {
                Poll::Ready(Err(error)) => DialError::of_tls(&error),
                _ => DialError::new(
                    Cause::Closed,
                    format!("the plugin hung up before it answered anything: {failed}"),
                ),
            };
            let _ = tell.send(Err(said));
        }
        written
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

impl<S: AsyncRead + AsyncWrite> AsyncWrite for Answered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.as_mut().project().stream.poll_write(cx, buf);
        self.written(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.as_mut().project().stream.poll_flush(cx);
        self.written(cx, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.as_mut().project().stream.poll_write_vectored(cx, bufs);
        self.written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use rustls::AlertDescription;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// The other end said why, and hung up.
    struct Gone;

    impl AsyncRead for Gone {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            let alert = rustls::Error::AlertReceived(AlertDescription::CertificateRequired);
            Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, alert)))
        }
    }

    impl AsyncWrite for Gone {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn a_refusal_is_heard_whether_a_read_or_a_write_fails_first() {
        let (mut stream, told) = Answered::new(Gone);
        stream.read_u8().await.expect_err("refused");
        assert_eq!(told.await.expect("told").expect_err("refused").cause, Cause::ClientCertificateRefused);
        let (mut stream, told) = Answered::new(Gone);
        stream.write_u8(0).await.expect_err("gone");
        assert_eq!(told.await.expect("told").expect_err("refused").cause, Cause::ClientCertificateRefused);
        let (mut stream, told) = Answered::new(Gone);
        stream.flush().await.expect_err("gone");
        assert_eq!(told.await.expect("told").expect_err("refused").cause, Cause::ClientCertificateRefused);
    }

    #[tokio::test]
    async fn an_end_without_a_word_is_told_apart_from_an_answer() {
        for (says, cause) in [(&b"x"[..], None), (b"", Some(Cause::Closed))] {
            let (mut stream, told) = Answered::new(tokio::io::join(says, tokio::io::sink()));
            stream.read_to_end(&mut Vec::new()).await.expect("it ends");
            assert_eq!(told.await.expect("told").err().map(|error| error.cause), cause);
        }
    }
}
