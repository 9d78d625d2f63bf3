//! The units of a request.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use bytes::Bytes;
use bytestring::ByteString;

use super::{call::ToolCall, request::Role};
use crate::{
    json,
    llm::{
        request_shape::Message,
        request_view::text_at,
        unit::{KnownCall, ToolResult, Unit, UnitKind},
        value::{member, object_member, string_member},
    },
};

/// The units of a request, and the mistakes in its tool calls.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) units: Vec<Unit>,
    /// The tool calls whose id an earlier one of their message has too: the message, and the index of the call in it.
    pub(super) repeated_ids: Vec<(usize, usize)>,
}

/// The tool calls of the messages so far.
#[derive(Default)]
struct Calls {
    by_id: HashMap<String, KnownCall>,
    /// The message and the place of each call whose id an earlier call of the message has.
    repeated_ids: Vec<(usize, usize)>,
    /// The last call of each function in the old form, which has no ids.
    legacy: HashMap<String, KnownCall>,
}

impl From<ToolCall> for KnownCall {
    fn from(call: ToolCall) -> Self {
        KnownCall::new(call.name, call.arguments.json().clone())
    }
}

/// The units of `messages`, in their order. The first `leading` messages are the system prompt, and no units.
pub(super) fn read(body: &ByteString, messages: &[Message<Role>], leading: usize) -> Conversation {
    let mut calls = Calls::default();
    let mut units = Vec::new();
    for (index, message) in messages.iter().enumerate().skip(leading) {
        let text = text_at(body, &message.span);
        units.push(match message.role {
            Role::User => Unit::of_message(index, UnitKind::User),
            Role::System | Role::Developer => Unit::of_message(index, UnitKind::System),
            Role::Tool | Role::Function => {
                Unit::of_result(index, None, calls.result(body.as_bytes(), message.role, text))
            }
            Role::Assistant => {
                calls.add(body.as_bytes(), index, text);
                continue;
            }
        });
    }
    Conversation { units, repeated_ids: calls.repeated_ids }
}

/// How many units [`read`] finds.
pub(super) fn count(messages: &[Message<Role>], leading: usize) -> usize {
    messages.iter().skip(leading).filter(|message| message.role != Role::Assistant).count()
}

/// How many messages at the beginning are the system prompt. Plugins see no names there, so a message with a `name` ends
/// it.
pub(super) fn leading(body: &str, messages: &[Message<Role>]) -> usize {
    let is_prompt = |message: &&Message<Role>| {
        message.role.is_system() && member(text_at(body, &message.span), "name").is_none()
    };
    messages.iter().take_while(is_prompt).count()
}

impl Calls {
    /// Adds the calls of a message, the one at `index`.
    fn add(&mut self, body: &Bytes, index: usize, message: &str) {
        let calls = json::elements(member(message, "tool_calls").unwrap_or_default());
        // Some providers begin anew with each message. A result is that of the nearest call before it.
        let mut ids = HashSet::new();
        for (place, call) in calls.enumerate() {
            if let Some(id) = string_member(call, "id") {
                self.by_id.remove(id.as_ref());
                if !ids.insert(id) {
                    self.repeated_ids.push((index, place));
                }
            }
            if let Some(call) = ToolCall::read(body, call)
                && let Some(id) = call.call_id.clone()
            {
                self.by_id.insert(id, call.into());
            }
        }
        if let Some(call) =
            object_member(message, "function_call").and_then(|call| ToolCall::function(body, call))
        {
            self.legacy.insert(call.name.clone(), call.into());
        }
    }

    fn result(&mut self, body: &Bytes, role: Role, message: &str) -> ToolResult {
        let result = member(message, "content").map(|content| body.slice_ref(content.as_bytes()));
        let result = result.unwrap_or(Bytes::from_static(b"null"));
        let (call_id, call) = match role {
            Role::Function => {
                let name = string_member(message, "name");
                (None, name.and_then(|name| self.legacy.get_mut(name.as_ref())))
            }
            _ => {
                let id = string_member(message, "tool_call_id").map(Cow::into_owned);
                let call = id.as_ref().and_then(|id| self.by_id.get_mut(id));
                (id, call)
            }
        };
        ToolResult::new(call, call_id, result, true)
    }
}
