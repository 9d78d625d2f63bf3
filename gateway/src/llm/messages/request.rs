//! [`MessagesRequest`]: a view of a request's bytes.

use std::borrow::Cow;

use bytes::Bytes;
use bytestring::ByteString;

use super::{
    blocks::{unmarked, without_cache_marks, without_results},
    shape::MessagesShape,
    units::{self, Units},
};
use crate::{
    core::error::Error,
    llm::{
        format::{Conversation, FormatRequest},
        request_shape::{FormatShape as _, MessageRole, Shape, read, scanned},
        request_view::{RequestView, current_turn, text_at},
        tool_results::check_results,
        unit::{Unit, UnitKind},
        value::{object_member, string_member},
    },
};

/// Who a message is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A person, or an agent in the place of one; also its tools, with their results.
    User,
    /// The model.
    Assistant,
    /// The operator of the model's caller.
    System,
}

impl MessageRole for Role {
    const NAMED: &'static [(&'static str, Role)] =
        &[("user", Role::User), ("assistant", Role::Assistant), ("system", Role::System)];
    const ASSISTANT: Role = Role::Assistant;
}

/// A request of the right shape. Keeps the body and where its parts are.
#[derive(Debug)]
pub(crate) struct MessagesRequest {
    body: ByteString,
    shape: Shape<MessagesShape>,
    /// How many messages at the beginning are part of the system prompt.
    leading: usize,
    units: Units,
    /// The index of the first unit of the current turn.
    first_current: usize,
}

impl RequestView for MessagesRequest {
    type Own = MessagesShape;

    fn body(&self) -> &ByteString {
        &self.body
    }

    fn shape(&self) -> &Shape<MessagesShape> {
        &self.shape
    }

    fn leading(&self) -> usize {
        self.leading
    }
}

impl FormatRequest for MessagesRequest {
    const FORM: &'static str = "messages";

    fn parse(body: Bytes) -> Result<Self, Error> {
        let body = scanned(body).map_err(Error::invalid)?;
        let shape = read(&body).map_err(Error::invalid)?;
        let messages = &shape.messages;
        let leading = messages.iter().take_while(|message| message.role == Role::System).count();
        let units = units::read(&body, messages, leading);
        units.check_size()?;
        let turn = current_turn(messages);
        let first_current = units.list.partition_point(|unit| unit.message() < turn);
        Ok(MessagesRequest { body, shape, leading, units, first_current })
    }

    fn model(&self) -> &str {
        &self.shape.model
    }

    fn is_streamed(&self) -> bool {
        self.shape.is_streamed
    }

    fn shows_usage(&self) -> bool {
        true
    }

    fn choices(&self) -> u32 {
        1
    }

    fn expects_json(&self) -> bool {
        let config = self.member("output_config").and_then(|config| object_member(config, "format"));
        let formats = [config, self.member("output_format")];
        formats.into_iter().flatten().any(|format| {
            let kind = string_member(format, "type");
            kind.is_some_and(|kind| matches!(kind.as_ref(), "json_schema" | "json_object"))
        })
    }

    fn conversation(&self) -> Conversation<'_> {
        Conversation {
            session: self.shape.own.names.session.as_deref(),
            user: self.shape.own.names.user.as_deref(),
        }
    }

    fn first_user_message(&self) -> Cow<'_, str> {
        let first = self.shape.messages.iter().find(|message| message.role == Role::User);
        first.map(|message| without_cache_marks(text_at(&self.body, &message.span))).unwrap_or_default()
    }

    fn older_units(&self) -> &[Unit] {
        &self.units.list[..self.first_current]
    }

    fn current_units(&self) -> &[Unit] {
        &self.units.list[self.first_current..]
    }

    fn main_unit(&self) -> Option<&Unit> {
        self.current_units().iter().rfind(|unit| unit.kind() == UnitKind::User)
    }

    fn unit_json(&self, unit: &Unit) -> Bytes {
        let Some(span) = self.units.span(unit) else { return Bytes::new() };
        if self.units.has_results_beside(unit) {
            return without_results(text_at(&self.body, span)).into();
        }
        self.body.as_bytes().slice(span.clone())
    }

    fn lasting_json(json: Bytes) -> Bytes {
        match unmarked(str::from_utf8(&json).unwrap_or_default()) {
            Cow::Borrowed(_) => json,
            Cow::Owned(unmarked) => unmarked.into(),
        }
    }

    fn results_have_calls(&self) -> Result<(), Error> {
        let pointer = |(message, block): &(usize, usize)| format!("/messages/{message}/content/{block}/id");
        check_results(MessagesShape::MESSAGES, &self.units.list, self.units.repeated_ids.iter().map(pointer))
    }
}
