//! A stream whose small writes are collected and written together.
//!
//! An HTTP/2 answer is three frames, and h2 makes up to two system calls of them; the answers of other calls
//! that are ready at the same time make further ones. Here the frames of one turn of the connection's task
//! become one write. The task ends its turn with [`WriteFlusher::poll_flush`].

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Larger writes go to the stream without a copy.
const MAX_COPIED_BYTES: usize = 4 << 10;
/// What is collected at most, in bytes.
const CAPACITY: usize = 32 << 10;

/// Reads like the inner stream, and collects writes.
pub(crate) struct WriteBuffer<S>(Arc<Mutex<PendingWrites<S>>>);

/// Writes what a [`WriteBuffer`] collected.
pub(crate) struct WriteFlusher<S>(Arc<Mutex<PendingWrites<S>>>);

struct PendingWrites<S> {
    stream: S,
    bytes: BytesMut,
    /// The stream didn't take all bytes of an earlier turn.
    is_blocked: bool,
    /// The flush that failed, for the next write to report.
    error: Option<io::Error>,
}

impl<S> WriteBuffer<S> {
    /// A buffer in front of `stream`, and what empties it.
    pub(crate) fn new(stream: S) -> (Self, WriteFlusher<S>) {
        let pending = PendingWrites { stream, bytes: BytesMut::new(), is_blocked: false, error: None };
        let pending = Arc::new(Mutex::new(pending));
        (WriteBuffer(Arc::clone(&pending)), WriteFlusher(pending))
    }
}

/// Only the connection's task locks it, so nobody waits.
fn lock<S>(pending: &Mutex<PendingWrites<S>>) -> MutexGuard<'_, PendingWrites<S>> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: AsyncWrite + Unpin> PendingWrites<S> {
    /// Writes everything collected so far.
    fn poll_empty(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.error.take() {
            return Poll::Ready(Err(error));
        }
        while !self.bytes.is_empty() {
            self.is_blocked = true;
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.bytes))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.bytes.advance(written);
        }
        self.is_blocked = false;
        Poll::Ready(Ok(()))
    }

    /// Collects a write of `length` bytes, or writes it after what was collected.
    fn poll_write_or(
        &mut self,
        cx: &mut Context<'_>,
        length: usize,
        collect: impl FnOnce(&mut BytesMut),
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let fits = length <= MAX_COPIED_BYTES && self.bytes.len() + length <= CAPACITY;
        if self.is_blocked || self.error.is_some() || !fits {
            ready!(self.poll_empty(cx))?;
        }
        if length > MAX_COPIED_BYTES {
            return write(Pin::new(&mut self.stream), cx);
        }
        collect(&mut self.bytes);
        Poll::Ready(Ok(length))
    }
}

impl<S: AsyncWrite + Unpin> WriteFlusher<S> {
    /// Writes everything collected so far. An error is kept for the next write.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let pending = &mut *lock(&self.0);
        if pending.error.is_some() {
            return Poll::Ready(());
        }
        let flushed = match ready!(pending.poll_empty(cx)) {
            Ok(()) => ready!(Pin::new(&mut pending.stream).poll_flush(cx)),
            Err(error) => Err(error),
        };
        if let Err(error) = flushed {
            pending.bytes.clear();
            pending.error = Some(error);
            // The connection learns of it by its next write or flush.
            cx.waker().wake_by_ref();
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteBuffer<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut lock(&self.0).stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteBuffer<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let collect = |bytes: &mut BytesMut| bytes.extend_from_slice(buf);
        lock(&self.0).poll_write_or(cx, buf.len(), collect, |stream, cx| stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = bufs.iter().map(|buf| buf.len()).sum();
        let collect = |bytes: &mut BytesMut| bufs.iter().for_each(|buf| bytes.extend_from_slice(buf));
        lock(&self.0).poll_write_or(cx, length, collect, |stream, cx| stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        lock(&self.0).stream.is_write_vectored()
    }

    /// Leaves the bytes to the end of the turn.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        lock(&self.0).error.take().map_or(Poll::Ready(Ok(())), |error| Poll::Ready(Err(error)))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let pending = &mut *lock(&self.0);
        ready!(pending.poll_empty(cx))?;
        Pin::new(&mut pending.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
pub(in crate::net) mod tests {
    use std::{
        future::poll_fn,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;

    /// Counts the writes that reach the stream.
    pub(in crate::net) struct CountedStream {
        pub(in crate::net) stream: DuplexStream,
        pub(in crate::net) writes: Arc<AtomicUsize>,
    }

    impl AsyncRead for CountedStream {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_read(cx, buf)
        }
    }

    impl AsyncWrite for CountedStream {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            self.writes.fetch_add(1, Ordering::Relaxed);
            Pin::new(&mut self.stream).poll_write(cx, buf)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_shutdown(cx)
        }
    }

    fn buffered(capacity: usize) -> (WriteBuffer<CountedStream>, WriteFlusher<CountedStream>, DuplexStream) {
        let (stream, peer) = tokio::io::duplex(capacity);
        let (buffer, flusher) = WriteBuffer::new(CountedStream { stream, writes: Arc::default() });
        (buffer, flusher, peer)
    }

    #[tokio::test]
    async fn small_writes_of_one_turn_leave_in_one() {
        let (mut buffer, mut flusher, mut peer) = buffered(1 << 16);
        for word in ["one ", "two ", "three"] {
            buffer.write_all(word.as_bytes()).await.unwrap();
            buffer.flush().await.unwrap();
        }
        assert_eq!(lock(&buffer.0).writes(), 0, "they wait for the end of the turn");
        poll_fn(|cx| flusher.poll_flush(cx)).await;
        assert_eq!(lock(&buffer.0).writes(), 1);
        let mut read = [0; 13];
        peer.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"one two three");
    }

    #[tokio::test]
    async fn a_peer_that_takes_nothing_holds_the_next_write_back() {
        let (mut buffer, mut flusher, mut peer) = buffered(4);
        buffer.write_all(b"more than four").await.unwrap();
        assert!(futures::poll!(poll_fn(|cx| flusher.poll_flush(cx))).is_pending());
        assert!(futures::poll!(Box::pin(buffer.write_all(b"!"))).is_pending(), "nothing more is collected");
        let mut read = [0; 14];
        tokio::join!(poll_fn(|cx| flusher.poll_flush(cx)), async {
            peer.read_exact(&mut read).await.unwrap();
        });
        assert_eq!(&read, b"more than four");
    }

    #[tokio::test]
    async fn a_flush_that_fails_fails_the_next_one_of_the_connection() {
        let (mut buffer, mut flusher, peer) = buffered(64);
        drop(peer);
        buffer.write_all(b"in vain").await.unwrap();
        poll_fn(|cx| flusher.poll_flush(cx)).await;
        assert_eq!(buffer.flush().await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn a_shutdown_writes_the_rest_first() {
        let (mut buffer, _flusher, mut peer) = buffered(64);
        buffer.write_all(b"goodbye").await.unwrap();
        buffer.shutdown().await.unwrap();
        let mut read = Vec::new();
        peer.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"goodbye");
    }

    proptest! {
        #[test]
        fn every_byte_arrives_once_and_in_order(
            lengths in prop::collection::vec(prop_oneof![0..9_usize, 4000..5000_usize, Just(40_000)], 0..40),
            capacity in 1..9000_usize,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let total: usize = lengths.iter().sum();
            let sent: Vec<u8> = (0..total).map(|n| n.to_le_bytes()[n % 2]).collect();
            let received = runtime.block_on(async {
                let (mut buffer, mut flusher, mut peer) = buffered(capacity);
                let mut received = Vec::new();
                let write = async {
                    let mut rest = &sent[..];
                    for (turn, &length) in lengths.iter().enumerate() {
                        let (now, later) = rest.split_at(length);
                        buffer.write_all(now).await.unwrap();
                        rest = later;
                        if turn % 3 == 0 {
                            poll_fn(|cx| flusher.poll_flush(cx)).await;
                        }
                    }
                    buffer.shutdown().await.unwrap();
                };
                let (_, read) = tokio::join!(write, peer.read_to_end(&mut received));
                read.unwrap();
                received
            });
            prop_assert_eq!(received, sent);
        }
    }

    impl PendingWrites<CountedStream> {
        fn writes(&self) -> usize {
            self.stream.writes.load(Ordering::Relaxed)
        }
    }
}
