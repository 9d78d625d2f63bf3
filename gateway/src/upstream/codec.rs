//! A unary gRPC exchange on the wire: the reply, and the status that ends it.
//!
//! This replaces `tonic::client::Grpc` for three reasons. A plugin's own status must be distinct from an
//! error in its reply (tonic reports both as a status with the same codes). An encoded request can be sent
//! again unchanged. And a `grpc-status-details-bin` that isn't base64 must not panic, as it does in tonic
//! 0.14.

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header::CONTENT_TYPE};
use http_body::Body;
use http_body_util::BodyExt as _;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::{
    grpc::framing::{self, FramingError},
    net::body_buffer::BodyBuffer,
};

/// Why an exchange brought no message. Omits the message of a plugin's status. Other text from the plugin is
/// unredacted: show it with [`super::initialize::PreparedConfig::shown_error`].
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    /// The request was never sent and may be retried.
    #[error("the connection ended before the call was sent: {0}")]
    Unsent(String),
    /// The plugin refused the stream before processing it (REFUSED_STREAM, or beyond GOAWAY's last stream),
    /// so the request may be retried.
    #[error("the plugin refused the stream")]
    StreamRefused,
    /// The plugin answered with a status other than OK.
    #[error("the plugin answered with {:?}", .0.code())]
    Status(Box<Status>),
    /// The connection ended before the reply began; the request may or may not have been processed.
    #[error("the connection ended before the reply: {0}")]
    Lost(String),
    /// The reply isn't a valid gRPC reply, was cut short, or doesn't hold exactly one message.
    #[error("{0}")]
    BadReply(String),
    /// The reply is over the limit.
    #[error("{0}")]
    TooLarge(String),
    /// No reply in time.
    #[error("no reply in time")]
    TimedOut,
}

impl ExchangeError {
    /// Whether the connection failed, as opposed to this call.
    pub(super) const fn is_of_connection(&self) -> bool {
        matches!(self, ExchangeError::Unsent(_) | ExchangeError::Lost(_))
    }
}

/// Plugin text as shown to people: at most 1 KiB, without control characters. Redact secrets first: a secret
/// that is cut in two here can no longer be found.
pub(super) fn display_text(text: &str) -> String {
    let end = text.floor_char_boundary(1 << 10);
    without_controls(&text[..end])
}

/// Text with a space for every control character.
pub(super) fn without_controls(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Reads a reply: one message of at most `limit` bytes, followed by status OK.
pub(super) async fn read<B>(response: Response<B>, limit: usize) -> Result<Bytes, ExchangeError>
where
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let (head, body) = response.into_parts();
    check_head(head.status, head.headers)?;
    let mut body = std::pin::pin!(body);
    let mut reply = BodyBuffer::default();
    let framing_error = |error| framing_error(error, limit);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| bad(format!("the reply was cut short: {error}")))?;
        match frame.into_data() {
            Ok(data) => {
                reply.push(data);
                // The announced length is checked before the rest arrives.
                framing::missing(reply.so_far(), limit).map_err(framing_error)?;
            }
            Err(frame) => {
                let trailers = frame.into_trailers().unwrap_or_default();
                return match status(trailers) {
                    Some(status) if status.code() == Code::Ok => {
                        framing::unframe(&reply.finish(), limit).map_err(framing_error)
                    }
                    Some(status) => Err(ExchangeError::Status(Box::new(status))),
                    None => Err(bad("the reply ended without grpc-status")),
                };
            }
        }
    }
    Err(bad("the reply was cut short: it ended without trailers"))
}

fn bad(detail: impl Into<String>) -> ExchangeError {
    ExchangeError::BadReply(detail.into())
}

fn framing_error(error: FramingError, limit: usize) -> ExchangeError {
    bad(match error {
        FramingError::Empty => "the reply has status OK and no message",
        FramingError::PartialPrefix => "the reply was cut short: half a message prefix",
        FramingError::Compressed => "the reply is compressed, or no gRPC message",
        FramingError::CutShort => "the reply was cut short: fewer bytes than announced",
        FramingError::Surplus => "the reply holds more than one message",
        FramingError::TooLarge(length) => {
            let detail = format!("the reply has {length} bytes; the limit is {limit}");
            return ExchangeError::TooLarge(detail);
        }
    })
}

/// Rejects a response that isn't gRPC, and returns the status of one without a body.
fn check_head(http: StatusCode, headers: HeaderMap) -> Result<(), ExchangeError> {
    let is_grpc = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.starts_with("application/grpc"));
    match status(headers) {
        Some(status) if status.code() == Code::Ok => Err(bad("the reply has status OK and no message")),
        Some(status) => Err(ExchangeError::Status(Box::new(status))),
        None if http != StatusCode::OK => Err(ExchangeError::Status(Box::new(status_from_http(http)))),
        None if !is_grpc => Err(bad("the reply's content-type is not application/grpc")),
        None => Ok(()),
    }
}

/// The gRPC status for an HTTP response without one (gRPC's http-grpc-status-mapping).
fn status_from_http(http: StatusCode) -> Status {
    let code = match http.as_u16() {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502..=504 => Code::Unavailable,
        _ => Code::Unknown,
    };
    Status::new(code, format!("answered with HTTP status {http} and no grpc-status"))
}

/// As tonic decodes it: with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The status in headers or trailers. Details that are not base64 are dropped: tonic panics on them.
fn status(mut headers: HeaderMap) -> Option<Status> {
    const STATUS_DETAILS_HEADER: &str = "grpc-status-details-bin";
    if headers.get(STATUS_DETAILS_HEADER).is_some_and(|details| BASE64.decode(details).is_err()) {
        headers.remove(STATUS_DETAILS_HEADER);
    }
    Status::from_header_map(&headers)
}

/// Whether a status says that the plugin doesn't know the configuration: FAILED_PRECONDITION with trailing
/// metadata, or with an `ErrorInfo` for this reason (docs/protocol.md, section 2).
pub(super) fn says_not_initialized(status: &Status) -> bool {
    const NOT_INITIALIZED: &str = "NOT_INITIALIZED";
    status.code() == Code::FailedPrecondition
        && (status.metadata().get("hookgate-reason").is_some_and(|reason| reason == NOT_INITIALIZED)
            || status.get_details_error_info().is_some_and(|info| info.reason == NOT_INITIALIZED))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::BufMut as _;
    use futures::{FutureExt as _, stream};
    use http::HeaderValue;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use proptest::prelude::*;

    use super::*;

    fn trailers(entries: &[(&'static str, &'static str)]) -> Frame<Bytes> {
        let headers = entries
            .iter()
            .map(|&(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)));
        Frame::trailers(headers.collect())
    }

    fn read_now(frames: Vec<Frame<Bytes>>, limit: usize) -> Result<Bytes, ExchangeError> {
        let body = StreamBody::new(stream::iter(frames.into_iter().map(Ok::<_, Infallible>)));
        let response = Response::builder().header(CONTENT_TYPE, "application/grpc").body(body);
        read(response.expect("valid response"), limit).now_or_never().expect("everything is there")
    }

    fn message(payload: &[u8]) -> Bytes {
        framing::frame_with(payload.len(), |buffer| buffer.put_slice(payload))
    }

    #[test]
    fn details_that_are_not_base64_are_dropped() {
        let ended = trailers(&[("grpc-status", "7"), ("grpc-status-details-bin", "!!!")]);
        match read_now(vec![ended], 9) {
            Err(ExchangeError::Status(status)) => {
                assert_eq!((status.code(), status.details()), (Code::PermissionDenied, &b""[..]));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn reply_followed_by_another_status_was_never_received() {
        let ended = trailers(&[("grpc-status", "13")]);
        let reply = read_now(vec![Frame::data(message(b"cancel")), ended], 9);
        assert!(matches!(reply, Err(ExchangeError::Status(status)) if status.code() == Code::Internal));
    }

    #[test]
    fn announced_length_over_the_limit_is_too_large_before_it_arrives() {
        let reply = read_now(vec![Frame::data(Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff]))], 9);
        assert!(matches!(reply, Err(ExchangeError::TooLarge(_))), "{reply:?}");
    }

    #[test]
    fn replies_that_break_the_framing_are_bad() {
        let ok = || trailers(&[("grpc-status", "0")]);
        let two = [message(b"a"), message(b"b")].concat();
        for frames in [
            vec![ok()],
            vec![Frame::data(message(b"whole"))],
            vec![Frame::data(message(b"whole")), trailers(&[])],
            vec![Frame::data(message(b"whole").slice(..8)), ok()],
            vec![Frame::data(Bytes::from_static(&[0, 0])), ok()],
            vec![Frame::data(Bytes::from(two)), ok()],
            vec![Frame::data(Bytes::from_static(&[1, 0, 0, 0, 0])), ok()],
        ] {
            let shown = format!("{frames:?}");
            assert!(matches!(read_now(frames, 99), Err(ExchangeError::BadReply(_))), "{shown}");
        }
    }

    proptest! {
        #[test]
        fn message_survives_any_cut_into_frames(
            payload in prop::collection::vec(any::<u8>(), 0..200),
            cuts in prop::collection::vec(0usize..210, 0..5),
        ) {
            let whole = message(&payload);
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(whole.len())).collect();
            cuts.extend([0, whole.len()]);
            cuts.sort_unstable();
            let parts = cuts.windows(2).map(|ends| Frame::data(whole.slice(ends[0]..ends[1])));
            let frames = parts.chain([trailers(&[("grpc-status", "0")])]).collect();
            let reply = read_now(frames, 200);
            prop_assert_eq!(reply.expect("a whole message"), payload);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = read_now(vec![Frame::data(bytes.into()), trailers(&[("grpc-status", "0")])], 32);
        }
    }
}
