//! [`ChatRequest`]: a view of a request's bytes.

use std::{borrow::Cow, sync::OnceLock};

use bytes::Bytes;
use bytestring::ByteString;

use super::{shape::ChatShape, units};
use crate::{
    core::error::Error,
    llm::{
        format::{Conversation, FormatRequest},
        request_shape::{FormatShape as _, MessageRole, Shape, read, scanned},
        request_view::{RequestView, check_unit_count, current_turn, text_at},
        tool_results::check_results,
        unit::Unit,
        value::{member, string_member},
    },
};

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

impl MessageRole for Role {
    const NAMED: &'static [(&'static str, Role)] = &[
        ("system", Role::System),
        ("developer", Role::Developer),
        ("user", Role::User),
        ("assistant", Role::Assistant),
        ("tool", Role::Tool),
        ("function", Role::Function),
    ];
    const ASSISTANT: Role = Role::Assistant;
}

impl Role {
    /// Whether the message is part of the system prompt.
    pub(crate) fn is_system(self) -> bool {
        matches!(self, Role::System | Role::Developer)
    }
}

/// A request of the right shape. Keeps the body and where its parts are.
#[derive(Debug)]
pub(crate) struct ChatRequest {
    body: ByteString,
    shape: Shape<ChatShape>,
    /// How many messages at the beginning are the system prompt.
    leading: usize,
    /// Read on first use: only plugins need it.
    conversation: OnceLock<units::Conversation>,
    /// The index of the first message of the current turn.
    turn: usize,
}

impl FormatRequest for ChatRequest {
    const FORM: &'static str = "chat_completions";

    fn parse(body: Bytes) -> Result<Self, Error> {
        let body = scanned(body).map_err(Error::invalid)?;
        let shape = read(&body).map_err(Error::invalid)?;
        let leading = units::leading(&body, &shape.messages);
        check_unit_count(ChatShape::MESSAGES, units::count(&shape.messages, leading))?;
        let turn = current_turn(&shape.messages);
        Ok(ChatRequest { body, shape, leading, conversation: OnceLock::new(), turn })
    }

    fn model(&self) -> &str {
        &self.shape.model
    }

    fn is_streamed(&self) -> bool {
        self.shape.is_streamed
    }

    fn shows_usage(&self) -> bool {
        if !self.is_streamed() {
            return true;
        }
        let options = self.member("stream_options").unwrap_or_default();
        member(options, "include_usage") == Some("true")
    }

    fn choices(&self) -> u32 {
        self.shape.own.choices.unwrap_or(1)
    }

    fn expects_json(&self) -> bool {
        let kind = self.member("response_format").and_then(|format| string_member(format, "type"));
        kind.is_some_and(|kind| matches!(kind.as_ref(), "json_object" | "json_schema"))
    }

    fn conversation(&self) -> Conversation<'_> {
        let own = &self.shape.own;
        Conversation {
            session: own.prompt_cache_key.as_deref(),
            user: own.safety_identifier.as_deref().or(own.user.as_deref()),
        }
    }

    fn first_user_message(&self) -> Cow<'_, str> {
        let first = self.shape.messages.iter().find(|message| message.role == Role::User);
        first.map(|message| text_at(&self.body, &message.span)).unwrap_or_default().into()
    }

    fn older_units(&self) -> &[Unit] {
        &self.units()[..self.first_current_unit()]
    }

    fn current_units(&self) -> &[Unit] {
        &self.units()[self.first_current_unit()..]
    }

    fn main_unit(&self) -> Option<&Unit> {
        let main = self.main_message()?;
        self.current_units().iter().find(|unit| unit.message() == main)
    }

    fn unit_json(&self, unit: &Unit) -> Bytes {
        self.share(self.message_text(unit.message()))
    }

    fn results_have_calls(&self) -> Result<(), Error> {
        let pointer = |(message, call): &(usize, usize)| format!("/messages/{message}/tool_calls/{call}/id");
        let repeated = self.conversation_units().repeated_ids.iter().map(pointer);
        check_results(ChatShape::MESSAGES, self.units(), repeated)
    }
}

impl RequestView for ChatRequest {
    type Own = ChatShape;

    fn body(&self) -> &ByteString {
        &self.body
    }

    fn shape(&self) -> &Shape<ChatShape> {
        &self.shape
    }

    /// System and developer messages without a `name`.
    fn leading(&self) -> usize {
        self.leading
    }
}

impl ChatRequest {
    /// The index of the message that is the main unit.
    pub(super) fn main_message(&self) -> Option<usize> {
        let first = self.turn.max(self.leading);
        let messages = self.shape.messages.get(first..)?;
        messages.iter().rposition(|message| message.role == Role::User).map(|place| first + place)
    }

    fn units(&self) -> &[Unit] {
        &self.conversation_units().units
    }

    fn conversation_units(&self) -> &units::Conversation {
        self.conversation.get_or_init(|| units::read(&self.body, &self.shape.messages, self.leading))
    }

    fn first_current_unit(&self) -> usize {
        self.units().partition_point(|unit| unit.message() < self.turn)
    }
}
