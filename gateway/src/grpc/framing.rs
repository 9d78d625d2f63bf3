//! Puts a message into its frame, and takes the one message of a unary body out of its frame ("Length-Prefixed-Message").

use bytes::{BufMut as _, Bytes, BytesMut};

/// Length of the prefix before every message: a flag for compression, and four bytes of length.
pub const PREFIX_BYTES: usize = 5;

/// Why a body is not one uncompressed message within the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FramingError {
    /// There are no bytes.
    Empty,
    /// There are bytes, but no whole prefix.
    PartialPrefix,
    /// The message is compressed, or the bytes are no frame.
    Compressed,
    /// The announced length, which is over the limit.
    TooLarge(usize),
    /// Fewer bytes follow than announced.
    CutShort,
    /// More bytes follow than announced.
    Surplus,
}

/// An uncompressed message in its frame. `write` appends the message, of about `size` bytes.
pub fn frame_with(size: usize, write: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut buffer = BytesMut::with_capacity(PREFIX_BYTES + size);
    buffer.put_bytes(0, PREFIX_BYTES);
    write(&mut buffer);
    let length =
        u32::try_from(buffer.len() - PREFIX_BYTES).expect("the limits keep messages far below 4 GiB");
    buffer[1..PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
    buffer.freeze()
}

/// `message` in its frame.
pub fn frame(message: &impl prost::Message) -> Bytes {
    frame_with(message.encoded_len(), |buffer| message.encode(buffer).expect("a BytesMut grows as needed"))
}

/// Takes the one message, of at most `limit` bytes, out of a complete body. Copies nothing.
///
/// # Errors
/// The first rule that the body breaks.
pub fn unframe(body: &Bytes, limit: usize) -> Result<Bytes, FramingError> {
    match missing(body, limit)? {
        Some(0) => Ok(body.slice(PREFIX_BYTES..)),
        Some(_) => Err(FramingError::CutShort),
        None if body.is_empty() => Err(FramingError::Empty),
        None => Err(FramingError::PartialPrefix),
    }
}

/// How many bytes of the message are missing when `received` has arrived. `None` if its prefix is not complete.
///
/// # Errors
/// A rule that the body breaks whatever follows.
pub fn missing(received: &[u8], limit: usize) -> Result<Option<usize>, FramingError> {
    let Some(([flag, length @ ..], message)) = received.split_first_chunk::<PREFIX_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*length) as usize;
    if *flag != 0 {
        return Err(FramingError::Compressed);
    }
    if length > limit {
        return Err(FramingError::TooLarge(length));
    }
    length.checked_sub(message.len()).map(Some).ok_or(FramingError::Surplus)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_body_that_is_not_one_message_within_the_limit_is_refused() {
        for (body, error) in [
            (&[][..], FramingError::Empty),
            (&[0, 0, 0, 0], FramingError::PartialPrefix),
            (&[1, 0, 0, 0, 0], FramingError::Compressed),
            (&[0, 0xff, 0xff, 0xff, 0xff], FramingError::TooLarge(0xffff_ffff)),
            (&[0, 0, 0, 0, 4, 1, 2, 3, 4], FramingError::TooLarge(4)),
            (&[0, 0, 0, 0, 3, 1, 2], FramingError::CutShort),
            (&[0, 0, 0, 0, 3, 1, 2, 3, 4], FramingError::Surplus),
        ] {
            assert_eq!(unframe(&Bytes::from_static(body), 3), Err(error), "{body:?}");
        }
        assert_eq!(unframe(&Bytes::from_static(&[0, 0, 0, 0, 3, 1, 2, 3]), 3).as_deref(), Ok(&[1, 2, 3][..]));
    }

    #[test]
    fn a_frame_announces_the_bytes_that_were_written_whatever_was_guessed() {
        assert_eq!(frame_with(0, |buffer| buffer.put_slice(b"abc"))[..], *b"\0\0\0\0\x03abc");
        assert_eq!(frame(&"abc".to_owned())[..], *b"\0\0\0\0\x05\x0a\x03abc");
    }

    proptest! {
        #[test]
        fn what_is_missing_shrinks_to_nothing(message in prop::collection::vec(any::<u8>(), 0..100), at in 0usize..105) {
            let whole = frame_with(message.len(), |buffer| buffer.put_slice(&message));
            let received = &whole[..at.min(whole.len())];
            let expected = (received.len() >= PREFIX_BYTES).then(|| whole.len() - received.len());
            prop_assert_eq!(missing(received, 100), Ok(expected));
            prop_assert_eq!(unframe(&whole, 100), Ok(Bytes::from(message)));
        }
    }
}
