//! A request's headers, one by one.

use http::{HeaderMap, HeaderValue, header};

use crate::core::error::{Code, Error};

/// The value of a header that a request has once, if at all. A header that is there twice has no value: what stands before the
/// gateway may have looked at the other one.
///
/// # Errors
/// PAYLOAD_INVALID names a header that is there more often.
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

/// Whether a request speaks gRPC: its content type tells it from HTTP on the same port.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}
