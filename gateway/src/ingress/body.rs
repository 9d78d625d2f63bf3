//! Receives a request's body within its size limit, and accounts for it while it is in memory.

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;

use super::admission::Room;
use crate::error::{Code, Error};

/// Receives `body`, at most `limit` bytes of it, into `room`.
///
/// A body that came in one piece isn't copied.
pub(super) async fn receive<B>(body: B, limit: usize, room: &mut Room) -> Result<Bytes, Error>
where
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large(limit));
    }
    let mut body = std::pin::pin!(body);
    let mut only = Bytes::new();
    let mut pieces = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Error::new(Code::PayloadInvalid, format!("The body broke off before its end: {error}"))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if only.len() + pieces.len() + data.len() > limit {
            return Err(too_large(limit));
        }
        room.grow(data.len())?;
        if only.is_empty() && pieces.is_empty() {
            only = data;
        } else {
            pieces.extend_from_slice(&std::mem::take(&mut only));
            pieces.extend_from_slice(&data);
        }
    }
    Ok(if pieces.is_empty() { only } else { pieces.freeze() })
}

/// PAYLOAD_TOO_LARGE, naming the limit in bytes.
pub(super) fn too_large(limit: usize) -> Error {
    Error::new(
        Code::PayloadTooLarge,
        format!("The request is larger than {limit} bytes, the configured limit"),
    )
}
