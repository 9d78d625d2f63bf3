//! Endless response headers: hand-written HTTP/2 frames after those of a well-behaved server.
//!
//! No HTTP/2 library sends them, so a relay sits between the server and the socket and passes every frame
//! on unchanged, except a DATA frame with [`SIGNAL`]. In its place, and on its stream, the relay writes a
//! HEADERS frame without END_HEADERS (RFC 9113, section 6.2), and then CONTINUATION frames as long as the
//! other side accepts them. The signal travels with the answer that it follows, so that no other answer on
//! the connection can begin the flood.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, sink};

const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const CONTINUATION: u8 = 0x9;
const END_STREAM: u8 = 0x1;

/// The payload of the DATA frame in whose place the flood begins. No gRPC message begins with these bytes:
/// the first one says whether it is compressed, and is 0 or 1.
pub(super) const SIGNAL: &[u8] = b"endless headers from here";

/// Puts the relay in front of a socket. The server uses the returned stream.
pub(super) fn relay<I>(socket: I) -> DuplexStream
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
            _ = pass_on(from_server, to_peer) => {}
        }
    });
    server_side
}

async fn pass_on(mut server: impl AsyncRead + Unpin, mut peer: impl AsyncWrite + Unpin) -> io::Result<()> {
    let mut head = [0; 9];
    loop {
        server.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut body = vec![0; length];
        server.read_exact(&mut body).await?;
        if head[3] == DATA && body == SIGNAL {
            // The server's output is ignored from here on, but its end stops the flood.
            let mut ignored = sink();
            return tokio::select! {
                written = write_endless_headers(&mut peer, stream) => written,
                closed = tokio::io::copy(&mut server, &mut ignored) => closed.map(drop),
            };
        }
        peer.write_all(&head).await?;
        peer.write_all(&body).await?;
        peer.flush().await?;
    }
}

async fn write_endless_headers(peer: &mut (impl AsyncWrite + Unpin), stream: u32) -> io::Result<()> {
    let field = header_field();
    peer.write_all(&frame(HEADERS, END_STREAM, stream, &field)).await?;
    let more = frame(CONTINUATION, 0, stream, &field);
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

/// One literal field without indexing (RFC 7541, section 6.2.2). A small frame suffices: an HTTP/2 library ends
/// the flood after so many frames, whatever their size, and a debug build would decode 80 MiB of fields before
/// that.
fn header_field() -> Bytes {
    let (name, value) = (b"x-endless", [b'a'; 120]);
    let mut field = BytesMut::new();
    field.put_u8(0);
    field.put_u8(9);
    field.put_slice(name);
    field.put_u8(120);
    field.put_slice(&value);
    field.freeze()
}
