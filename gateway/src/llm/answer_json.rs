//! The JSON of answers and of the events of streams, in all formats.

use bytes::Bytes;

use super::format::AnswerError;
use crate::{
    json::{self, JsonErrorKind, MAX_DEPTH, ValueKind},
    payload::{MAX_TOOL_NAME, sentence},
};

/// Most tool calls in one answer.
const MAX_TOOL_CALLS: usize = 128;

/// The mistake of something that is not an answer.
pub(super) fn invalid<T>(reason: impl Into<String>) -> Result<T, AnswerError> {
    Err(AnswerError::Invalid(reason.into()))
}

/// The text of an answer that is JSON.
///
/// # Errors
/// It isn't, or an object has a key twice.
pub(crate) fn json_answer(body: &Bytes) -> Result<&str, AnswerError> {
    scanned(body).map_err(AnswerError::Invalid)
}

/// The text of a body that is JSON without repeated keys.
pub(super) fn scanned(body: &Bytes) -> Result<&str, String> {
    json::scan(body, MAX_DEPTH).map_err(|flaw| match flaw.kind {
        JsonErrorKind::DuplicateKey => format!("an object has the key `{}` twice", flaw.pointer),
        _ => sentence(&flaw, body, "the answer"),
    })?;
    Ok(str::from_utf8(body).unwrap_or_default())
}

/// Checks that the data of an event, called `what`, is an object without repeated keys.
pub(super) fn check_event(data: &str, what: &str, max_depth: usize) -> Result<(), AnswerError> {
    let scanned = json::scan(data.as_bytes(), max_depth).map_err(|flaw| {
        AnswerError::Invalid(match flaw.kind {
            JsonErrorKind::DuplicateKey => {
                format!("an object in {what} has the key `{}` twice", flaw.pointer)
            }
            // The sentence names the greatest depth of any value.
            JsonErrorKind::TooDeep if max_depth < MAX_DEPTH => format!("{what} is {}", flaw.message),
            _ => sentence(&flaw, data.as_bytes(), what),
        })
    })?;
    match scanned {
        ValueKind::Object => Ok(()),
        other => invalid(format!("{what} is {other}")),
    }
}

/// Checks how many tool calls an answer has.
pub(super) fn check_call_count(calls: usize) -> Result<(), AnswerError> {
    check_counts(&[(calls, MAX_TOOL_CALLS, "tool calls")])
}

/// Checks how many things an answer has: the count, the most, and their name.
pub(super) fn check_counts(counts: &[(usize, usize, &str)]) -> Result<(), AnswerError> {
    match counts.iter().find(|(count, most, _)| count > most) {
        Some((count, most, what)) => {
            Err(AnswerError::TooLarge(format!("the answer has {count} {what}, more than {most}")))
        }
        None => Ok(()),
    }
}

/// Checks the length of a called tool's name.
pub(super) fn check_tool_name(name: &str) -> Result<(), String> {
    match name.len() {
        1..=MAX_TOOL_NAME => Ok(()),
        length => Err(format!("a tool's name is {length} bytes long")),
    }
}
