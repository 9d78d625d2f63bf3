//! [`ChatRequest`]: a view of a request's bytes.

use std::ops::Range;

use bytes::Bytes;

use super::{
    shape,
    units::{self, Conversation, Unit, UnitKind},
};
use crate::{
    core::error::{Error, Violation},
    llm::value::{member, string_member},
    payload::MAX_VIOLATIONS,
};

/// Most texts of users and results of tools in one request.
const MAX_UNITS: usize = 10_000;

/// Who a message is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The operator of the model's caller.
    System,
    /// The newer name of the same.
    Developer,
    /// A person, or an agent in the place of one.
    User,
    /// The model.
    Assistant,
    /// A tool, with its result.
    Tool,
    /// The old form of the same.
    Function,
}

impl Role {
    /// The names in requests.
    pub(crate) const NAMES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];

    /// The role with this name.
    pub(crate) fn from_name(name: &str) -> Option<Role> {
        Some(match name {
            "system" => Role::System,
            "developer" => Role::Developer,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "tool" => Role::Tool,
            "function" => Role::Function,
            _ => return None,
        })
    }

    /// Whether the message is part of the system prompt.
    pub(crate) fn is_system(self) -> bool {
        matches!(self, Role::System | Role::Developer)
    }
}

/// A member of the request: its unescaped name, and where its value is in the body.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) value: Range<usize>,
}

/// A message of the request.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) role: Role,
    pub(super) span: Range<usize>,
}

/// A request of the right shape. Keeps the body and where its parts are.
#[derive(Debug)]
pub(crate) struct ChatRequest {
    body: Bytes,
    shape: shape::Shape,
    /// How many messages at the beginning are the system prompt.
    leading: usize,
    conversation: Conversation,
    /// The index of the first message of the current turn.
    turn: usize,
}

impl ChatRequest {
    /// Reads and checks a body.
    ///
    /// # Errors
    /// `PAYLOAD_INVALID`, with a violation for each mistake.
    pub(crate) fn parse(body: Bytes) -> Result<ChatRequest, Error> {
        let shape = shape::read(&body).map_err(Error::invalid)?;
        let leading = units::leading(&body, &shape.messages);
        let conversation = units::read(&body, &shape.messages, leading);
        let units = conversation.units.len();
        if units > MAX_UNITS {
            let message = format!("`messages` has {units} texts and results, more than {MAX_UNITS}");
            return Err(Error::invalid(vec![Violation::new("/messages", message)]));
        }
        let turn = units::current_turn(&shape.messages);
        Ok(ChatRequest { body, shape, leading, conversation, turn })
    }

    /// The body as it came.
    pub(crate) fn body(&self) -> &Bytes {
        &self.body
    }

    /// The model that is asked for.
    pub(crate) fn model(&self) -> &str {
        &self.shape.model
    }

    /// Whether the answer is to be a stream.
    pub(crate) fn is_streamed(&self) -> bool {
        self.shape.is_streamed
    }

    /// Whether the stream is to end with the usage.
    pub(crate) fn streams_usage(&self) -> bool {
        let options = self.member("stream_options").unwrap_or_default();
        member(options, "include_usage") == Some("true")
    }

    /// How many answers are asked for.
    pub(crate) fn choices(&self) -> u32 {
        self.shape.choices
    }

    /// Whether the answer's text must be JSON.
    pub(crate) fn expects_json(&self) -> bool {
        let kind = self.member("response_format").and_then(|format| string_member(format, "type"));
        kind.is_some_and(|kind| matches!(kind.as_ref(), "json_object" | "json_schema"))
    }

    /// The members: name, and text of the value.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&str, &str)> {
        self.shape.members.iter().map(|member| (member.name.as_str(), self.text_at(&member.value)))
    }

    /// The text of a member's value; `None` also if it is `null`.
    pub(crate) fn member(&self, name: &str) -> Option<&str> {
        let member = self.shape.members.iter().find(|member| member.name == name)?;
        Some(self.text_at(&member.value)).filter(|value| *value != "null")
    }

    /// The member `user`.
    pub(crate) fn user(&self) -> Option<&str> {
        self.shape.user.as_deref()
    }

    /// The member `safety_identifier`.
    pub(crate) fn safety_identifier(&self) -> Option<&str> {
        self.shape.safety_identifier.as_deref()
    }

    /// The member `prompt_cache_key`.
    pub(crate) fn prompt_cache_key(&self) -> Option<&str> {
        self.shape.prompt_cache_key.as_deref()
    }

    /// How many messages there are.
    pub(crate) fn message_count(&self) -> usize {
        self.shape.messages.len()
    }

    /// Who a message is from.
    pub(crate) fn role(&self, message: usize) -> Option<Role> {
        self.shape.messages.get(message).map(|message| message.role)
    }

    /// The JSON text of a message.
    pub(crate) fn message_text(&self, index: usize) -> &str {
        self.shape.messages.get(index).map(|message| self.text_at(&message.span)).unwrap_or_default()
    }

    /// The JSON text of a unit's message; shares the body's memory.
    pub(crate) fn message(&self, unit: &Unit) -> Bytes {
        self.body.slice_ref(self.message_text(unit.message()).as_bytes())
    }

    /// The tool that a result is from, and the SHA-256 of the arguments of its call; empty for a user unit, and where the
    /// call isn't in the request.
    pub(crate) fn call_of<'u>(&self, unit: &'u Unit) -> (&'u str, &'u [u8]) {
        let Some(result) = unit.result() else { return ("", b"") };
        (result.tool_name.as_deref().unwrap_or_default(), &result.args_digest)
    }

    /// How many messages at the beginning are the system prompt: system and developer messages without a `name`.
    pub(crate) fn leading(&self) -> usize {
        self.leading
    }

    /// The JSON text of the first user message; empty if there is none.
    pub(crate) fn first_user_message(&self) -> &[u8] {
        let first = self.shape.messages.iter().find(|message| message.role == Role::User);
        first.map(|message| self.text_at(&message.span)).unwrap_or_default().as_bytes()
    }

    /// The units of turns that the model has answered.
    pub(crate) fn older_units(&self) -> impl Iterator<Item = &Unit> {
        self.conversation.units[..self.first_current_unit()].iter()
    }

    /// The units of the current turn, including [`Self::main_unit`].
    pub(crate) fn current_units(&self) -> impl DoubleEndedIterator<Item = &Unit> {
        self.conversation.units[self.first_current_unit()..].iter()
    }

    /// The last user unit of the current turn.
    pub(crate) fn main_unit(&self) -> Option<&Unit> {
        self.current_units().rfind(|unit| unit.kind() == UnitKind::User)
    }

    /// Checks that every result of a tool has exactly one call in the request, and a call at most one result: it is the
    /// tool to judge the result by.
    ///
    /// # Errors
    /// `PAYLOAD_INVALID`, with a violation for each result without its call, for each further result of a call and for
    /// each repeated id of a call.
    pub(crate) fn results_have_calls(&self) -> Result<(), Error> {
        let without = self.conversation.units.iter().filter(|unit| unit.is_without_call());
        let second = self.conversation.units.iter().filter(|unit| unit.is_second_result()).map(|unit| {
            let message = "An earlier result is that of the same tool call";
            Violation::new(format!("/messages/{}", unit.message()), message)
        });
        let repeated = self.conversation.repeated_ids.iter().map(|(message, call)| {
            let pointer = format!("/messages/{message}/tool_calls/{call}/id");
            Violation::new(
                pointer,
                "An earlier tool call of the message has the same id, so a result could be that of either",
            )
        });
        let violations: Vec<Violation> =
            without.map(result_without_call).chain(second).chain(repeated).take(MAX_VIOLATIONS).collect();
        if violations.is_empty() { Ok(()) } else { Err(Error::invalid(violations)) }
    }

    fn first_current_unit(&self) -> usize {
        self.conversation.units.partition_point(|unit| unit.message() < self.turn)
    }

    fn text_at(&self, span: &Range<usize>) -> &str {
        self.body.get(span.clone()).and_then(|text| str::from_utf8(text).ok()).unwrap_or_default()
    }
}

/// The mistake of a result whose call isn't in the request.
pub(super) fn result_without_call(unit: &Unit) -> Violation {
    let message = "No assistant message before this result has its tool call";
    Violation::new(format!("/messages/{}", unit.message()), message)
}
