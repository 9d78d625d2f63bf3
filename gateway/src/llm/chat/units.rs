//! Units: what people and tools said in a request, each of which is judged on its own.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use aws_lc_rs::digest::{self, SHA256};
use bytes::Bytes;

use super::{
    call::ToolCall,
    request::{Message, Role},
};
use crate::{
    json,
    llm::value::{member, object_member, string_member},
    payload::MAX_TOOL_NAME,
};

/// A part of a request that is judged on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unit {
    message: usize,
    kind: UnitKind,
    /// Of a result.
    result: Option<ToolResult>,
}

/// What a unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnitKind {
    /// Text, images and files of one user message.
    User,
    /// The text of a system or developer message that isn't part of the system prompt.
    System,
    /// The result of one tool call.
    Result,
}

/// The units of a request, and the mistakes in its tool calls.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) units: Vec<Unit>,
    /// The tool calls whose id an earlier one of their message has too: the message, and the index of the call in it.
    pub(super) repeated_ids: Vec<(usize, usize)>,
}

impl Unit {
    /// The index of its message.
    pub(crate) fn message(&self) -> usize {
        self.message
    }

    /// What it is.
    pub(crate) fn kind(&self) -> UnitKind {
        self.kind
    }

    pub(super) fn result(&self) -> Option<&ToolResult> {
        self.result.as_ref()
    }

    /// Whether it is a result whose tool call isn't in the request before it.
    pub(crate) fn is_without_call(&self) -> bool {
        self.result.as_ref().is_some_and(|result| result.tool_name.is_none())
    }

    /// Whether it is a result whose tool call has an earlier one.
    pub(crate) fn is_second_result(&self) -> bool {
        self.result.as_ref().is_some_and(|result| result.is_second)
    }
}

/// The result of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ToolResult {
    /// The tool; `None` if its call isn't in the request.
    pub(super) tool_name: Option<String>,
    /// The model's id of the call.
    pub(super) call_id: Option<String>,
    /// The call's arguments as JSON; empty if they are unknown.
    pub(super) args: Bytes,
    /// The SHA-256 of `args`; empty if they are unknown.
    pub(super) args_digest: Bytes,
    /// Whether an earlier result is that of the same call.
    pub(super) is_second: bool,
    /// A JSON value: a string, an array of content parts, or `null`.
    pub(super) result: Bytes,
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

/// A tool call that results may name.
struct KnownCall {
    call: ToolCall,
    /// Many results may name the call, so its arguments are hashed once.
    args_digest: Bytes,
    has_result: bool,
}

impl From<ToolCall> for KnownCall {
    fn from(call: ToolCall) -> Self {
        let digest = digest::digest(&SHA256, call.arguments.json());
        KnownCall { call, args_digest: Bytes::copy_from_slice(digest.as_ref()), has_result: false }
    }
}

/// The units of `messages`, in their order. The first `leading` messages are the system prompt, and no units.
pub(super) fn read(body: &Bytes, messages: &[Message], leading: usize) -> Conversation {
    let mut calls = Calls::default();
    let mut units = Vec::new();
    for (index, message) in messages.iter().enumerate().skip(leading) {
        let text = text_of(body, message);
        let (kind, result) = match message.role {
            Role::User => (UnitKind::User, None),
            Role::System | Role::Developer => (UnitKind::System, None),
            Role::Tool | Role::Function => (UnitKind::Result, Some(calls.result(body, message.role, text))),
            Role::Assistant => {
                calls.add(body, index, text);
                continue;
            }
        };
        units.push(Unit { message: index, kind, result });
    }
    Conversation { units, repeated_ids: calls.repeated_ids }
}

/// How many messages at the beginning are the system prompt. Plugins see no names there, so a message with a `name` ends
/// it.
pub(super) fn leading(body: &Bytes, messages: &[Message]) -> usize {
    let is_prompt =
        |message: &&Message| message.role.is_system() && member(text_of(body, message), "name").is_none();
    messages.iter().take_while(is_prompt).count()
}

fn text_of<'a>(body: &'a Bytes, message: &Message) -> &'a str {
    body.get(message.span.clone()).and_then(|text| str::from_utf8(text).ok()).unwrap_or_default()
}

/// The index of the first message of the current turn: what follows the last assistant message that something else
/// follows. Assistant messages at the end begin the answer, and belong to the current turn.
pub(super) fn current_turn(messages: &[Message]) -> usize {
    let is_assistant = |message: &Message| message.role == Role::Assistant;
    let end = messages.iter().rposition(|message| !is_assistant(message)).map_or(0, |last| last + 1);
    messages[..end].iter().rposition(is_assistant).map_or(0, |last| last + 1)
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
        let without_call = ToolResult {
            tool_name: None,
            call_id,
            args: Bytes::new(),
            args_digest: Bytes::new(),
            is_second: false,
            result,
        };
        let Some(KnownCall { call, args_digest, has_result }) = call else { return without_call };
        let is_second = std::mem::replace(has_result, true);
        let tool_name = Some(&call.name).filter(|name| (1..=MAX_TOOL_NAME).contains(&name.len())).cloned();
        let (args, args_digest) = (call.arguments.json().clone(), args_digest.clone());
        ToolResult { tool_name, args, args_digest, is_second, ..without_call }
    }
}
