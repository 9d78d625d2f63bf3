//! A stream that reports the outcome of its first read: whether the other end said anything.

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

use crate::upstream::dial_error::{DialError, DialErrorKind};

pin_project! {
    /// Reads and writes like the inner stream.
    pub(super) struct AnswerProbe<S> {
        #[pin]
        stream: S,
        tell: Option<oneshot::Sender<Result<(), DialError>>>,
        // The error of a write that failed before anything was read.
        failed: Option<io::Error>,
    }
}

impl<S> AnswerProbe<S> {
    /// Wraps `stream`, a TLS connection. The receiver gets the outcome of the first read.
    pub(super) fn new(stream: S) -> (Self, oneshot::Receiver<Result<(), DialError>>) {
        let (tell, told) = oneshot::channel();
        (AnswerProbe { stream, tell: Some(tell), failed: None }, told)
    }
}

impl<S: AsyncRead> AnswerProbe<S> {
    /// Runs `write`. A failed write ends the connection, but the other end may have sent the reason before it
    /// hung up: that is read before the failure is reported.
    fn write<T>(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let mut this = self.project();
        let failed = match this.failed.take() {
            Some(failed) => failed,
            None => match ready!(write(this.stream.as_mut(), cx)) {
                Err(failed) if this.tell.is_some() => failed,
                written => return Poll::Ready(written),
            },
        };
        let mut unread = [0; 1];
        let said = match this.stream.poll_read(cx, &mut ReadBuf::new(&mut unread)) {
            Poll::Pending => {
                *this.failed = Some(failed);
                return Poll::Pending;
            }
            Poll::Ready(Err(error)) => DialError::from_tls(&error),
            Poll::Ready(Ok(())) => DialError::new(
                DialErrorKind::Closed,
                format!("the plugin closed the connection before it answered: {failed}"),
            ),
        };
        if let Some(tell) = this.tell.take() {
            let _ = tell.send(Err(said));
        }
        Poll::Ready(Err(failed))
    }
}

impl<S: AsyncRead> AsyncRead for AnswerProbe<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        let before = buf.filled().len();
        let read = ready!(this.stream.poll_read(cx, buf));
        if let Some(tell) = this.tell.take() {
            let first = match &read {
                Ok(()) if buf.filled().len() > before => Ok(()),
                Ok(()) => Err(DialError::new(
                    DialErrorKind::Closed,
                    "the plugin closed the connection before it answered",
                )),
                Err(error) => Err(DialError::from_tls(error)),
            };
            // The dialler may have timed out.
            let _ = tell.send(first);
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncRead + AsyncWrite> AsyncWrite for AnswerProbe<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.write(cx, |stream, cx| stream.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write(cx, |stream, cx| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, |stream, cx| stream.poll_write_vectored(cx, bufs))
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

    /// The other end sent the reason and hung up. The second poll reports it.
    #[derive(Default)]
    struct Gone {
        asked: bool,
    }

    impl AsyncRead for Gone {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if !std::mem::replace(&mut self.asked, true) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
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
        let (mut stream, told) = AnswerProbe::new(Gone::default());
        stream.read_u8().await.expect_err("refused");
        assert_eq!(
            told.await.expect("told").expect_err("refused").cause,
            DialErrorKind::ClientCertificateRefused
        );
        let (mut stream, told) = AnswerProbe::new(Gone::default());
        stream.write_u8(0).await.expect_err("gone");
        assert_eq!(
            told.await.expect("told").expect_err("refused").cause,
            DialErrorKind::ClientCertificateRefused
        );
        let (mut stream, told) = AnswerProbe::new(Gone::default());
        stream.flush().await.expect_err("gone");
        assert_eq!(
            told.await.expect("told").expect_err("refused").cause,
            DialErrorKind::ClientCertificateRefused
        );
    }

    #[tokio::test]
    async fn an_end_without_a_word_is_told_apart_from_an_answer() {
        for (says, cause) in [(&b"x"[..], None), (b"", Some(DialErrorKind::Closed))] {
            let (mut stream, told) = AnswerProbe::new(tokio::io::join(says, tokio::io::sink()));
            stream.read_to_end(&mut Vec::new()).await.expect("it ends");
            assert_eq!(told.await.expect("told").err().map(|error| error.cause), cause);
        }
    }
}
