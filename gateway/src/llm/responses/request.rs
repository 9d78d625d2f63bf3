//! [`ResponsesRequest`]: a view of a request's bytes.

use std::borrow::Cow;

use bytes::Bytes;
use bytestring::ByteString;

use super::{
    marks::{unmarked, unmarked_content},
    shape::ResponsesShape,
    units::{self, Units},
};
use crate::{
    core::error::{Error, Violation},
    json::ValueKind,
    llm::{
        edits::{Edits, span_in},
        format::{Conversation, FormatRequest},
        request_shape::{FormatShape as _, MessageRole, Shape, read, scanned},
        request_view::{MAX_UNITS, RequestView, check_counts, current_turn},
        tool_results::check_results,
        unit::{Unit, UnitKind},
        value::{kind, member, object_member, string_member},
    },
};

/// Most items of one request. Not all of them are units, and the smallest item takes ten bytes of a body, but each costs memory and
/// several checks. Ten items for each unit that a request may have are more than any conversation needs.
const MAX_ITEMS: usize = 10 * MAX_UNITS;

/// Who an item is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A person, or an agent in the place of one.
    User,
    /// The model: its messages, and items that are no messages.
    Assistant,
    /// The operator of the model's caller.
    System,
    /// The newer name of the same.
    Developer,
    /// A tool, with its result. Messages can't be from it.
    Tool,
}

impl MessageRole for Role {
    const NAMED: &'static [(&'static str, Role)] = &[
        ("user", Role::User),
        ("assistant", Role::Assistant),
        ("system", Role::System),
        ("developer", Role::Developer),
    ];
    const ASSISTANT: Role = Role::Assistant;
}

impl Role {
    /// Whether the message may be part of the system prompt.
    pub(super) fn is_system(self) -> bool {
        matches!(self, Role::System | Role::Developer)
    }
}

/// A request of the right shape. Keeps the body and where its parts are.
#[derive(Debug)]
pub(crate) struct ResponsesRequest {
    /// As the client sent it.
    original: ByteString,
    /// The same with a list as its `input`.
    body: ByteString,
    shape: Shape<ResponsesShape>,
    /// How many items at the beginning are part of the system prompt.
    leading: usize,
    units: Units,
    /// The index of the first unit of the current turn.
    first_current: usize,
}

impl RequestView for ResponsesRequest {
    type Own = ResponsesShape;

    fn body(&self) -> &ByteString {
        &self.body
    }

    fn shape(&self) -> &Shape<ResponsesShape> {
        &self.shape
    }

    fn leading(&self) -> usize {
        self.leading
    }
}

impl FormatRequest for ResponsesRequest {
    const FORM: &'static str = "responses";

    fn parse(original: Bytes) -> Result<Self, Error> {
        let original = scanned(original).map_err(Error::invalid)?;
        let body = with_list(&original);
        let shape = read::<ResponsesShape>(&body).map_err(Error::invalid)?;
        let items = &shape.messages;
        check_item_count(items.len())?;
        let leading = items.iter().take_while(|item| item.role.is_system()).count();
        let units = units::read(&body, items, leading);
        let counts = [(units.count, "texts and results"), (units.call_count, "tool calls")];
        check_counts(ResponsesShape::MESSAGES, &counts)?;
        let turn = current_turn(items);
        let first_current = units.list.partition_point(|unit| unit.message() < turn);
        Ok(ResponsesRequest { original, body, shape, leading, units, first_current })
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
        let format = self.member("text").and_then(|text| object_member(text, "format"));
        let kind = format.and_then(|format| string_member(format, "type"));
        kind.is_some_and(|kind| matches!(kind.as_ref(), "json_schema" | "json_object"))
    }

    fn conversation(&self) -> Conversation<'_> {
        let own = &self.shape.own;
        Conversation {
            session: own.prompt_cache_key.as_deref(),
            user: own.safety_identifier.as_deref().or(own.user.as_deref()),
        }
    }

    fn first_user_message(&self) -> Cow<'_, str> {
        let first = self.shape.messages.iter().position(|item| item.role == Role::User);
        let content = first.and_then(|first| member(self.message_text(first), "content"));
        unmarked_content(content.unwrap_or_default())
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
        self.share(self.message_text(unit.message()))
    }

    fn lasting_json(json: Bytes) -> Bytes {
        match unmarked(str::from_utf8(&json).unwrap_or_default()) {
            Cow::Borrowed(_) => json,
            Cow::Owned(unmarked) => unmarked.into(),
        }
    }

    fn results_have_calls(&self) -> Result<(), Error> {
        let pointer = |item: &usize| format!("/input/{item}/call_id");
        check_results(ResponsesShape::MESSAGES, &self.units.list, self.units.repeated_ids.iter().map(pointer))
    }
}

impl ResponsesRequest {
    /// The body as the client sent it.
    pub(super) fn original(&self) -> &ByteString {
        &self.original
    }

    /// Whether the client wrote a string as the `input`, and no list.
    pub(super) fn has_string_input(&self) -> bool {
        self.original.len() != self.body.len()
    }

    /// Whether the client itself asked that the provider keeps nothing.
    pub(super) fn keeps_nothing(&self) -> bool {
        self.member("store") == Some("false")
    }
}

/// The body with a list in place of a string as its `input`. It means the same to the model.
fn with_list(body: &ByteString) -> ByteString {
    let input = member(body, ResponsesShape::MESSAGES).filter(|input| kind(input) == ValueKind::String);
    let Some(input) = input else { return body.clone() };
    let mut edits = Edits::default();
    edits.replace(span_in(body, input), format!(r#"[{{"role":"user","content":{input}}}]"#));
    edits.apply_to_str(body).into()
}

/// Checks how many items there are.
fn check_item_count(count: usize) -> Result<(), Error> {
    if count <= MAX_ITEMS {
        return Ok(());
    }
    let message = format!("`input` has {count} items, more than {MAX_ITEMS}");
    Err(Error::invalid(vec![Violation::new("/input", message)]))
}
