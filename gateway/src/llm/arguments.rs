//! The arguments of a function in OpenAI's formats: text that should be JSON.

use std::borrow::Cow;

use bytes::Bytes;

use super::value::{kind, string};
use crate::json::{self, MAX_DEPTH, ValueKind};

/// Arguments that stand for no text at all.
const NO_ARGUMENTS: &[u8] = b"{}";

/// The arguments of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Arguments {
    /// One JSON value.
    Json(Bytes),
    /// Text that isn't exactly one JSON value: two parsers could see two calls in it. Here as a JSON string.
    Invalid(Bytes),
}

impl Arguments {
    /// A JSON value: the arguments, or the invalid text as a string.
    pub(super) fn json(&self) -> &Bytes {
        match self {
            Arguments::Json(json) | Arguments::Invalid(json) => json,
        }
    }

    /// Reads the arguments of a function, whose JSON `text` is a slice of `body`.
    pub(super) fn read(body: &Bytes, text: Option<&str>) -> Arguments {
        let Some(text) = text else { return Arguments::Json(Bytes::from_static(NO_ARGUMENTS)) };
        match (kind(text), string(text)) {
            (_, Some(arguments)) if arguments.is_empty() => Arguments::Json(Bytes::from_static(NO_ARGUMENTS)),
            (_, Some(arguments)) if json::scan(arguments.as_bytes(), MAX_DEPTH).is_ok() => {
                Arguments::Json(match arguments {
                    Cow::Borrowed(arguments) => body.slice_ref(arguments.as_bytes()),
                    Cow::Owned(arguments) => arguments.into(),
                })
            }
            // Some servers write the object itself, and not its text.
            (ValueKind::Object, None) => Arguments::Json(body.slice_ref(text.as_bytes())),
            _ => Arguments::Invalid(body.slice_ref(text.as_bytes())),
        }
    }
}
