//! Endless response headers: hand-written HTTP/2 frames after those of a well-behaved server.
//!
//! No HTTP/2 library sends them, so a relay sits between the server and the socket and passes every frame
//! on unchanged. After the DATA frame that it is armed for, it writes a HEADERS frame without END_HEADERS
//! (RFC 9113, section 6.2), and then CONTINUATION frames as long as the other side accepts them.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, sink};

const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const CONTINUATION: u8 = 0x9;
const END_STREAM: u8 = 0x1;

/// The length of the DATA frame after which the flood begins; 0 for none.
#[derive(Debug, Clone, Default)]
pub(super) struct Trigger(Arc<AtomicUsize>);

impl Trigger {
    pub(super) fn arm(&self, frame_length: usize) {
        self.0.store(frame_length, Ordering::SeqCst);
    }

    fn is_armed_for(&self, frame_length: usize) -> bool {
        frame_length > 0 && self.0.load(Ordering::SeqCst) == frame_length
    }
}

/// Puts the relay in front of a socket. The server uses the returned stream.
pub(super) fn relay<I>(socket: I, trigger: Trigger) -> DuplexStream
where
    I: AsyncRead + AsyncWrite + Send + 'static,
{
    let (server_side, relay_side) = tokio::io::duplex(64 * 1024);
    tokio::spawn(async move {
        let (mut from_peer, to_peer) = tokio::io::split(socket);
        let (from_server, mut to_server) = tokio::io::split(relay_side);
        // The end of either direction ends the connection; the peer deals with errors.
        tokio::select! {
            _ = tokio::io::copy(&mut from_peer, &mut to_server) => {}
            _ = pass_on(from_server, to_peer, &trigger) => {}
        }
    });
    server_side
}

async fn pass_on(
    mut server: impl AsyncRead + Unpin,
    mut peer: impl AsyncWrite + Unpin,
    trigger: &Trigger,
) -> io::Result<()> {
    let mut head = [0; 9];
    loop {
        server.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut body = vec![0; length];
        server.read_exact(&mut body).await?;
        peer.write_all(&head).await?;
        peer.write_all(&body).await?;
        peer.flush().await?;
        if head[3] == DATA && trigger.is_armed_for(length) {
            // The server's output is ignored from here on, but its end stops the flood.
            let mut ignored = sink();
            return tokio::select! {
                written = write_endless_headers(&mut peer, stream) => written,
                closed = tokio::io::copy(&mut server, &mut ignored) => closed.map(drop),
            };
        }
    }
}

async fn write_endless_headers(peer: &mut (impl AsyncWrite + Unpin), stream: u32) -> io::Result<()> {
    let fields = header_fields();
    peer.write_all(&frame(HEADERS, END_STREAM, stream, &fields)).await?;
    let more = frame(CONTINUATION, 0, stream, &fields);
    loop {
        peer.write_all(&more).await?;
        peer.flush().await?;
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(9 + payload.len());
    frame.put_uint(payload.len() as u64, 3);
    frame.put_u8(kind);
    frame.put_u8(flags);
    frame.put_u32(stream);
    frame.put_slice(payload);
    frame.freeze()
}

/// About 15 KiB of literal fields without indexing (RFC 7541, section 6.2.2), within the default frame size.
fn header_fields() -> Bytes {
    let (name, value) = (b"x-endless", [b'a'; 120]);
    let mut fields = BytesMut::new();
    for _ in 0..115 {
        fields.put_u8(0);
        fields.put_u8(9);
        fields.put_slice(name);
        fields.put_u8(120);
        fields.put_slice(&value);
    }
    fields.freeze()
}
