//! What a request's headers say about the call, the same over HTTP and gRPC.

use std::time::Duration;

use http::HeaderMap;
use tokio::time::Instant;
use uuid::Uuid;

use super::header::single;
use crate::{
    core::error::{Code, Error},
    grpc::timeout::{self, GRPC_TIMEOUT},
};

/// How many gateways a call has passed before this one.
pub const DEPTH: &str = "hookgate-depth";
/// The caller's own id in a request, and ours in the answer.
pub const REQUEST_ID: &str = "x-request-id";
/// How long an HTTP caller waits, in milliseconds.
pub const TIMEOUT_MS: &str = "hookgate-timeout-ms";

/// The most gateways that a call passes before this one.
const MAX_GATEWAY_DEPTH: u32 = 3;
/// Longest correlation id, in bytes.
const MAX_CORRELATION_ID_BYTES: usize = 128;

/// A call that has just arrived. Nothing of it is verified yet.
#[derive(Debug, Clone)]
pub struct RequestMeta {
    /// The gateway's own id of the call (UUIDv7).
    pub request_id: Uuid,
    /// When the headers had arrived.
    pub received: Instant,
}

/// The contents of the headers.
#[derive(Debug, Clone)]
pub struct CallHeaders {
    /// The caller's own id.
    pub correlation_id: Option<String>,
    /// When the caller stops waiting.
    pub deadline: Option<Instant>,
    /// The number of gateways before this one, 0 to 3.
    pub depth: u32,
}

impl RequestMeta {
    /// A call that arrives now.
    pub fn now() -> Self {
        RequestMeta { request_id: Uuid::now_v7(), received: Instant::now() }
    }

    /// Reads the headers. PAYLOAD_INVALID names the wrong one; LOOP means that the call went in a circle.
    pub fn read(&self, headers: &HeaderMap) -> Result<CallHeaders, Error> {
        let depth = depth(headers)?;
        if depth > MAX_GATEWAY_DEPTH {
            let detail = format!(
                "The call went through {depth} gateways, but {MAX_GATEWAY_DEPTH} are allowed: a plugin calls the \
                 gateway, or a provider leads back to it"
            );
            return Err(Error::new(Code::Loop, detail));
        }
        Ok(CallHeaders {
            correlation_id: correlation_id(headers)?,
            deadline: timeout(headers)?.map(|timeout| self.received + timeout),
            depth,
        })
    }
}

fn invalid(header: &str, right: &str) -> Error {
    Error::new(Code::PayloadInvalid, format!("Header `{header}` must be {right}"))
}

fn depth(headers: &HeaderMap) -> Result<u32, Error> {
    let Some(value) = single(headers, DEPTH)? else { return Ok(0) };
    let number = value.to_str().ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    number.and_then(|text| text.parse().ok()).ok_or_else(|| invalid(DEPTH, "a whole number"))
}

fn correlation_id(headers: &HeaderMap) -> Result<Option<String>, Error> {
    let Some(value) = single(headers, REQUEST_ID)? else { return Ok(None) };
    let fits =
        |text: &&str| text.len() <= MAX_CORRELATION_ID_BYTES && text.bytes().all(|b| b.is_ascii_graphic());
    match value.to_str().ok().filter(fits) {
        Some("") => Ok(None),
        Some(text) => Ok(Some(text.to_owned())),
        None => Err(invalid(REQUEST_ID, "at most 128 visible ASCII characters")),
    }
}

/// The caller's timeout: `grpc-timeout` or `Hookgate-Timeout-Ms`.
fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, Error> {
    let of_grpc = single(headers, GRPC_TIMEOUT)?.map(|value| {
        let timeout = value.to_str().ok().and_then(timeout::parse);
        timeout.ok_or_else(|| invalid(GRPC_TIMEOUT, "up to 8 digits and one of H, M, S, m, u, n"))
    });
    let of_http = single(headers, TIMEOUT_MS)?.map(|value| {
        let millis = value.to_str().ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
        let millis = millis.and_then(|text| text.parse().ok()).filter(|millis| (1..=60_000).contains(millis));
        let timeout = millis.map(Duration::from_millis);
        timeout.ok_or_else(|| invalid("Hookgate-Timeout-Ms", "a whole number from 1 to 60000"))
    });
    let (of_grpc, of_http) = (of_grpc.transpose()?, of_http.transpose()?);
    Ok(of_grpc.or(of_http))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn read(name: &'static str, value: &str) -> Result<CallHeaders, Error> {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).expect("a header value"));
        RequestMeta::now().read(&headers)
    }

    #[tokio::test(start_paused = true)]
    async fn both_timeout_headers_set_the_callers_deadline() {
        let in_ms = |read: CallHeaders| read.deadline.map(|deadline| (deadline - Instant::now()).as_millis());
        assert_eq!(read(TIMEOUT_MS, "250").map(in_ms).ok(), Some(Some(250)));
        assert_eq!(read(GRPC_TIMEOUT, "2S").map(in_ms).ok(), Some(Some(2000)));
        assert_eq!(read(GRPC_TIMEOUT, "99999999u").map(in_ms).ok(), Some(Some(99_999)));
    }

    #[test]
    fn a_header_that_cannot_be_read_is_refused_by_name() {
        let bad = [
            (TIMEOUT_MS, "0"),
            (TIMEOUT_MS, "60001"),
            (TIMEOUT_MS, "+5"),
            (TIMEOUT_MS, "1.5"),
            (GRPC_TIMEOUT, "5"),
            (GRPC_TIMEOUT, "123456789S"),
            (GRPC_TIMEOUT, "S"),
            (GRPC_TIMEOUT, "5s"),
            (DEPTH, "-1"),
            (DEPTH, "two"),
            (DEPTH, "99999999999"),
            (REQUEST_ID, "with space"),
        ];
        for (name, value) in bad {
            let error = read(name, value).expect_err(value);
            assert_eq!(error.code, Code::PayloadInvalid, "{name}: {value}");
            assert!(error.detail.to_lowercase().contains(name), "{}", error.detail);
        }
    }

    #[test]
    fn a_header_that_is_there_twice_is_refused_by_name_whatever_it_says() {
        for (name, values) in [
            (DEPTH, ["0", "9"]),
            (DEPTH, ["9", "0"]),
            (DEPTH, ["0", "0"]),
            (TIMEOUT_MS, ["250", "251"]),
            (GRPC_TIMEOUT, ["1S", "2S"]),
            (REQUEST_ID, ["a", "b"]),
            (REQUEST_ID, ["", ""]),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(name, HeaderValue::from_static(value));
            }
            // The other header must be valid even though this one overrides it.
            let other = if name == TIMEOUT_MS { GRPC_TIMEOUT } else { "x" };
            headers.insert(other, HeaderValue::from_static("1S"));
            let error = RequestMeta::now().read(&headers).expect_err(name);
            let expected = format!("Header `{name}` must be sent once, not 2 times");
            assert_eq!((error.code, error.detail), (Code::PayloadInvalid, expected));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_timeouts_that_of_grpc_counts_and_the_other_one_must_be_readable() {
        let headers =
            |millis| {
                HeaderMap::from_iter([(GRPC_TIMEOUT, "1S"), (TIMEOUT_MS, millis)].map(|(name, value)| {
                    (http::HeaderName::from_static(name), HeaderValue::from_static(value))
                }))
            };
        let read = RequestMeta::now().read(&headers("250")).expect("both can be read");
        assert_eq!(read.deadline.map(|deadline| deadline - Instant::now()), Some(Duration::from_secs(1)));
        assert_eq!(RequestMeta::now().read(&headers("0")).expect_err("0").code, Code::PayloadInvalid);
    }

    #[test]
    fn a_call_that_went_through_more_than_three_gateways_is_a_loop() {
        assert_eq!(read(DEPTH, "3").map(|read| read.depth).ok(), Some(3));
        assert_eq!(read(DEPTH, "4").expect_err("4 is too deep").code, Code::Loop);
    }
}
