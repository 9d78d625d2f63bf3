//! Reads request bodies: JSON, limited in size, depth and receive time, without duplicate keys.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, header};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;
use tokio::time::timeout;

use crate::{
    core::error::{Code, Error, Violation},
    edge::{
        admission::MemoryPermit,
        body::{self, SizeLimit},
        header::single,
    },
    json::{
        self, ValueKind,
        pointer::{push_index, push_key},
    },
};

const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// What a path accepts as its body.
#[derive(Debug, Clone, Copy)]
pub(in crate::admin) struct BodySpec {
    /// The media type.
    media_type: &'static str,
    /// Whether the content type may be omitted, as `curl -T` does.
    is_usual: bool,
    /// The maximum size in bytes.
    most: usize,
    /// The maximum depth.
    depth: usize,
}

impl BodySpec {
    pub(super) const OBJECT: BodySpec = BodySpec {
        media_type: "application/json",
        is_usual: true,
        most: MAX_OBJECT_BYTES,
        depth: json::MAX_DEPTH,
    };
    /// A merge patch (RFC 7396).
    pub(super) const PATCH: BodySpec =
        BodySpec { media_type: "application/merge-patch+json", is_usual: false, ..BodySpec::OBJECT };
    /// A document with many objects.
    pub(super) const DOCUMENT: BodySpec = BodySpec { most: MAX_DOCUMENT_BYTES, ..BodySpec::OBJECT };

    /// A test call of at most `most` bytes. It may be deeper, because it contains the payload.
    pub(in crate::admin) const fn call(most: usize) -> Self {
        BodySpec { most, depth: json::MAX_DEPTH + 2, ..BodySpec::OBJECT }
    }
}

pub(in crate::admin) const MAX_OBJECT_BYTES: usize = 1 << 20;
pub(in crate::admin) const MAX_DOCUMENT_BYTES: usize = 16 << 20;

/// Receives a JSON object.
///
/// # Errors
/// As [`text`].
pub(super) async fn receive(
    headers: &HeaderMap,
    body: Body,
    taken: BodySpec,
    room: &mut MemoryPermit,
) -> Result<Value, Error> {
    parsed("The body", &text(headers, body, taken, room).await?)
}

/// Receives a JSON object as its bytes.
///
/// # Errors
/// CONTENT_TYPE, PAYLOAD_TOO_LARGE, OVERLOADED, or PAYLOAD_INVALID with the places of the errors.
pub(in crate::admin) async fn text(
    headers: &HeaderMap,
    body: Body,
    taken: BodySpec,
    room: &mut MemoryPermit,
) -> Result<Bytes, Error> {
    check_content(headers, taken)?;
    let bytes = receive_bytes(body, taken.most, 0, room).await?;
    scan("The body", &bytes, taken.depth)?;
    Ok(bytes)
}

/// Receives `body` of at most `most` bytes, not counting `framing`, within [`BODY_TIMEOUT`].
///
/// # Errors
/// PAYLOAD_TOO_LARGE, OVERLOADED, or PAYLOAD_INVALID.
pub(in crate::admin) async fn receive_bytes(
    body: Body,
    most: usize,
    framing: usize,
    room: &mut MemoryPermit,
) -> Result<Bytes, Error> {
    match timeout(BODY_TIMEOUT, body::receive(body, SizeLimit::without_key(most), framing, room)).await {
        Ok(received) => received.map_err(|error| match error.code {
            Code::PayloadTooLarge => {
                Error { detail: format!("The body is larger than {most} bytes"), ..error }
            }
            _ => error,
        }),
        Err(_) => {
            let detail = format!("The body was not received within {} s", BODY_TIMEOUT.as_secs());
            Err(Error::new(Code::PayloadInvalid, detail))
        }
    }
}

/// Parses the object in `text`. Errors call it `name`.
///
/// # Errors
/// PAYLOAD_INVALID with the places of the errors.
pub(in crate::admin) fn read(name: &str, text: &[u8]) -> Result<Value, Error> {
    scan(name, text, json::MAX_DEPTH)?;
    parsed(name, text)
}

/// Checks one object of a test call and returns its text unchanged. Errors call it `name`, and their
/// pointers begin with `member`, as in the HTTP body.
///
/// # Errors
/// PAYLOAD_INVALID with the places of the errors.
pub(in crate::admin) fn part<'t>(member: &str, name: &str, text: &'t [u8]) -> Result<&'t str, Error> {
    scan(name, text, json::MAX_DEPTH + 1).map_err(|mut error| {
        for violation in &mut error.violations {
            violation.pointer = format!("/{member}{}", violation.pointer);
        }
        error
    })?;
    std::str::from_utf8(text).map_err(|_| Error::new(Code::PayloadInvalid, format!("{name} is not UTF-8")))
}

fn scan(name: &str, text: &[u8], depth: usize) -> Result<(), Error> {
    let kind = json::scan_all(text, depth).map_err(|flaws| {
        let violation = |flaw: json::JsonError| {
            let (line, column) = flaw.position(text);
            Violation::new(flaw.pointer, format!("Line {line}, column {column}: {}", flaw.message))
        };
        Error::invalid(flaws.into_iter().map(violation).collect())
    })?;
    if kind != ValueKind::Object {
        return Err(Error::invalid(vec![Violation::new("", format!("{name} is {kind}, not an object"))]));
    }
    Ok(())
}

/// Deserializes `value`. The error names the member that doesn't fit.
pub(super) fn deserialize<T: DeserializeOwned>(value: Value) -> Result<T, Violation> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let mut pointer = String::new();
        for segment in error.path() {
            match segment {
                Segment::Map { key } => push_key(&mut pointer, key),
                Segment::Seq { index } => push_index(&mut pointer, *index),
                Segment::Enum { .. } | Segment::Unknown => {}
            }
        }
        Violation::new(pointer, error.inner().to_string())
    })
}

fn parsed(name: &str, text: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice(text).map_err(|error| {
        // Cannot fail: the scanner accepts only what this parser accepts.
        Error::new(Code::PayloadInvalid, format!("{name} can't be read: {error}"))
    })
}

fn check_content(headers: &HeaderMap, taken: BodySpec) -> Result<(), Error> {
    let BodySpec { media_type, is_usual, .. } = taken;
    let is_it = match single(headers, header::CONTENT_TYPE.as_str())? {
        None => is_usual,
        Some(value) => {
            let text = value.to_str().ok().and_then(|text| text.split(';').next());
            text.is_some_and(|text| text.trim().eq_ignore_ascii_case(media_type))
        }
    };
    if !is_it {
        return Err(Error::new(Code::ContentType, format!("Header `content-type` must be {media_type}")));
    }
    match single(headers, header::CONTENT_ENCODING.as_str())?.map(|value| value.as_bytes()) {
        None | Some(b"" | b"identity") => Ok(()),
        Some(_) => Err(Error::new(
            Code::ContentType,
            "Compressed requests are not supported: omit `content-encoding`",
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::deserialize;
    use crate::registry::document::ApplyDocument;

    #[test]
    fn a_member_that_can_not_be_so_is_named_by_its_pointer() {
        for (sent, pointer) in [
            (json!({ "prune": { "labels": { "a/b": 3 } } }), "/prune/labels/a~1b"),
            (json!({ "prune": true }), "/prune"),
            (json!({ "remove": [{ "kind": "plugin", "name": "a" }, { "kind": "plugin" }] }), "/remove/1"),
            (json!({ "plugins": {} }), "/plugins"),
        ] {
            let wrong = deserialize::<ApplyDocument>(sent.clone()).expect_err("it can't be so");
            assert_eq!(wrong.pointer, pointer, "{sent}: {}", wrong.message);
            assert!(!wrong.message.contains("struct"), "{}", wrong.message);
        }
    }
}
