//! Receives a request's body within its size limit, and accounts for it while it is in memory.

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt;

use crate::{
    core::error::{Code, Error},
    edge::admission::MemoryPermit,
    net::body_buffer::BodyBuffer,
};

/// How large a message may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SizeLimit {
    pub(crate) bytes: usize,
    /// The key of the configuration that sets it, if one does.
    pub(crate) key: Option<&'static str>,
}

impl SizeLimit {
    /// The limit `bytes` that `key` sets.
    pub(crate) const fn with_key(bytes: usize, key: &'static str) -> Self {
        SizeLimit { bytes, key: Some(key) }
    }

    /// A limit that nobody can change.
    pub(crate) const fn without_key(bytes: usize) -> Self {
        SizeLimit { bytes, key: None }
    }
}

/// Receives `body`, a message within `limit` and `framing` bytes around it, into `room`.
///
/// A body that came in one piece isn't copied.
pub(crate) async fn receive<B>(
    body: B,
    limit: SizeLimit,
    framing: usize,
    room: &mut MemoryPermit,
) -> Result<Bytes, Error>
where
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let most = limit.bytes + framing;
    if body.size_hint().lower() > most as u64 {
        return Err(too_large(limit));
    }
    let mut body = std::pin::pin!(body);
    let mut received = BodyBuffer::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Error::new(Code::PayloadInvalid, format!("The body broke off before its end: {error}"))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if received.so_far().len() + data.len() > most {
            return Err(too_large(limit));
        }
        room.grow(data.len())?;
        received.push(data);
    }
    Ok(received.finish())
}

/// PAYLOAD_TOO_LARGE, naming the limit in bytes and the key that sets it.
pub(crate) fn too_large(SizeLimit { bytes, key }: SizeLimit) -> Error {
    let key = key.map(|key| format!(", the limit of `{key}`")).unwrap_or_default();
    Error::new(Code::PayloadTooLarge, format!("The request is larger than {bytes} bytes{key}"))
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;
    use crate::edge::admission::Admission;

    #[tokio::test]
    async fn framing_counts_neither_towards_the_limit_nor_in_what_the_caller_is_told() {
        let mut room = Admission::default().room(100);
        let limit = SizeLimit::with_key(10, "limits.request");
        let body = |length: usize| Full::new(Bytes::from(vec![0; length]));
        assert!(receive(body(15), limit, 5, &mut room).await.is_ok_and(|body| body.len() == 15));
        let refused = receive(body(16), limit, 5, &mut room).await.expect_err("one byte too many");
        assert_eq!(refused.code, Code::PayloadTooLarge);
        assert_eq!(refused.detail, "The request is larger than 10 bytes, the limit of `limits.request`");
    }
}
