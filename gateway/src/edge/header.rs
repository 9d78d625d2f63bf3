//! A request's headers, one by one.

use http::{HeaderMap, HeaderValue, header};

use crate::core::error::{Code, Error};

/// The value of a header, which a request may have once at most. A repeated header is rejected, because a
/// proxy in front of the gateway may have used the other value.
///
/// # Errors
/// PAYLOAD_INVALID names the repeated header.
pub(crate) fn single<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h HeaderValue>, Error> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    match values.count() {
        0 => Ok(value),
        more => {
            let detail = format!("Header `{name}` must be sent once, not {} times", more + 1);
            Err(Error::new(Code::PayloadInvalid, detail))
        }
    }
}

/// Whether a request is gRPC. The content type distinguishes it from HTTP on the same port.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}
