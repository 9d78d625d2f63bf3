//! Collects a body that arrives in pieces. Most bodies are one piece, which isn't copied.

use bytes::{Bytes, BytesMut};

/// The bytes of a body so far.
#[derive(Debug)]
pub enum BodyBuffer {
    /// At most one piece has arrived.
    Whole(Bytes),
    /// Several have, and were copied together.
    Parts(BytesMut),
}

impl BodyBuffer {
    /// Appends a piece.
    pub fn push(&mut self, data: Bytes) {
        match self {
            _ if data.is_empty() => {}
            BodyBuffer::Whole(whole) if whole.is_empty() => *whole = data,
            BodyBuffer::Whole(whole) => {
                let mut parts = BytesMut::from(std::mem::take(whole));
                parts.extend_from_slice(&data);
                *self = BodyBuffer::Parts(parts);
            }
            BodyBuffer::Parts(parts) => parts.extend_from_slice(&data),
        }
    }

    /// What has arrived.
    pub fn so_far(&self) -> &[u8] {
        match self {
            BodyBuffer::Whole(whole) => whole,
            BodyBuffer::Parts(parts) => parts,
        }
    }

    /// The body.
    pub fn finish(self) -> Bytes {
        match self {
            BodyBuffer::Whole(whole) => whole,
            BodyBuffer::Parts(parts) => parts.freeze(),
        }
    }
}

impl Default for BodyBuffer {
    fn default() -> Self {
        BodyBuffer::Whole(Bytes::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_of_one_piece_is_that_piece_and_several_are_joined() {
        let mut buffer = BodyBuffer::default();
        assert!(buffer.so_far().is_empty());
        let piece = Bytes::from(vec![1, 2]);
        buffer.push(Bytes::new());
        buffer.push(piece.clone());
        buffer.push(Bytes::new());
        assert_eq!(buffer.so_far().as_ptr(), piece.as_ptr());
        buffer.push(Bytes::from_static(&[3]));
        buffer.push(Bytes::from_static(&[4]));
        assert_eq!(buffer.so_far(), [1, 2, 3, 4]);
        assert_eq!(buffer.finish()[..], [1, 2, 3, 4]);
        let mut alone = BodyBuffer::default();
        alone.push(piece.clone());
        assert_eq!(alone.finish().as_ptr(), piece.as_ptr());
    }
}
