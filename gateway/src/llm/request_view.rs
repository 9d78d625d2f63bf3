//! [`RequestView`]: a request's bytes and where its parts are, in all formats.

use std::ops::Range;

use bytes::Bytes;
use bytestring::ByteString;

use super::request_shape::{FormatShape, Message, MessageRole, Shape};
use crate::core::error::{Error, Violation};

/// Most texts of users and results of tools in one request.
pub(super) const MAX_UNITS: usize = 10_000;

/// A request of the right shape.
pub(super) trait RequestView {
    /// What the format has of its own.
    type Own: FormatShape;

    /// The body as it came.
    fn body(&self) -> &ByteString;

    /// Where the parts are in the body.
    fn shape(&self) -> &Shape<Self::Own>;

    /// How many messages at the beginning are part of the system prompt.
    fn leading(&self) -> usize;

    /// The members: name, and text of the value.
    fn members(&self) -> impl Iterator<Item = (&str, &str)> {
        let members = self.shape().members.iter();
        members.map(|member| (member.name.as_str(), text_at(self.body(), &member.value)))
    }

    /// The text of a member's value; `None` also if it is `null`.
    fn member(&self, name: &str) -> Option<&str> {
        let member = self.shape().members.iter().find(|member| member.name == name)?;
        Some(text_at(self.body(), &member.value)).filter(|value| *value != "null")
    }

    /// A part of the body, without a copy.
    fn share(&self, part: &str) -> Bytes {
        self.body().slice_ref(part).into_bytes()
    }

    /// How many messages there are.
    fn message_count(&self) -> usize {
        self.shape().messages.len()
    }

    /// Who a message is from.
    fn role(&self, message: usize) -> Option<<Self::Own as FormatShape>::Role> {
        self.shape().messages.get(message).map(|message| message.role)
    }

    /// The JSON text of a message.
    fn message_text(&self, index: usize) -> &str {
        let message = self.shape().messages.get(index);
        message.map(|message| text_at(self.body(), &message.span)).unwrap_or_default()
    }
}

/// The text in a span of the body.
pub(super) fn text_at<'a>(body: &'a str, span: &Range<usize>) -> &'a str {
    body.get(span.clone()).unwrap_or_default()
}

/// The index of the first message of the current turn: what follows the last assistant message that something else
/// follows. Assistant messages at the end begin the answer, and belong to the current turn.
pub(super) fn current_turn<R: MessageRole>(messages: &[Message<R>]) -> usize {
    let is_assistant = |message: &Message<R>| message.role == R::ASSISTANT;
    let end = messages.iter().rposition(|message| !is_assistant(message)).map_or(0, |last| last + 1);
    messages[..end].iter().rposition(is_assistant).map_or(0, |last| last + 1)
}

/// Checks how many units the list of messages with this name has.
pub(super) fn check_unit_count(list: &str, units: usize) -> Result<(), Error> {
    check_counts(list, &[(units, "texts and results")])
}

/// Checks that the list of messages with this name has at most [`MAX_UNITS`] of each of these things.
pub(super) fn check_counts(list: &str, counts: &[(usize, &str)]) -> Result<(), Error> {
    let too_many = counts.iter().filter(|(count, _)| *count > MAX_UNITS);
    let violations: Vec<Violation> = too_many
        .map(|(count, what)| {
            Violation::new(format!("/{list}"), format!("`{list}` has {count} {what}, more than {MAX_UNITS}"))
        })
        .collect();
    if violations.is_empty() { Ok(()) } else { Err(Error::invalid(violations)) }
}
