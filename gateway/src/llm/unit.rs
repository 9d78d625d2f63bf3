//! Units: what people and tools said in a request, each of which is judged on its own.

use aws_lc_rs::digest::{self, SHA256};
use bytes::Bytes;

use crate::payload::MAX_TOOL_NAME;

/// A part of a request that is judged on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unit {
    message: usize,
    /// The index of its content block, where it isn't the message as a whole.
    block: Option<usize>,
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

impl Unit {
    /// What a message says, as far as it is no tool's result.
    pub(super) fn of_message(message: usize, kind: UnitKind) -> Self {
        Unit { message, block: None, kind, result: None }
    }

    /// The result of a tool, which is the message, or one block of it.
    pub(super) fn of_result(message: usize, block: Option<usize>, result: ToolResult) -> Self {
        Unit { message, block, kind: UnitKind::Result, result: Some(result) }
    }

    /// The index of its message.
    pub(crate) fn message(&self) -> usize {
        self.message
    }

    /// The index of its content block, where it isn't the message as a whole.
    pub(crate) fn block(&self) -> Option<usize> {
        self.block
    }

    /// Whether it is this part of the same request.
    pub(crate) fn is_at(&self, other: &Unit) -> bool {
        (self.message, self.block) == (other.message, other.block)
    }

    /// What it is.
    pub(crate) fn kind(&self) -> UnitKind {
        self.kind
    }

    pub(super) fn result(&self) -> Option<&ToolResult> {
        self.result.as_ref()
    }

    /// The tool that a result is from, and the SHA-256 of the arguments of its call; empty for another unit, and where the
    /// call isn't in the request.
    pub(crate) fn call(&self) -> (&str, &[u8]) {
        let Some(result) = self.result() else { return ("", b"") };
        (result.tool_name.as_deref().unwrap_or_default(), &result.args_digest)
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
    /// Whether the tool did what it was asked to. Not all formats say so.
    pub(super) success: bool,
    /// A JSON value: a string, an array of content parts, or `null`.
    pub(super) result: Bytes,
}

/// A tool call that results may name.
pub(super) struct KnownCall {
    name: String,
    args: Bytes,
    /// Many results may name the call, so its arguments are hashed once.
    args_digest: Bytes,
    has_result: bool,
}

impl KnownCall {
    /// A call of a tool with arguments, which are JSON.
    pub(super) fn new(name: String, args: Bytes) -> Self {
        let digest = digest::digest(&SHA256, &args);
        KnownCall { name, args, args_digest: Bytes::copy_from_slice(digest.as_ref()), has_result: false }
    }
}

impl ToolResult {
    /// The result of `call`, which is `None` if the request doesn't have it.
    pub(super) fn new(
        call: Option<&mut KnownCall>,
        call_id: Option<String>,
        result: Bytes,
        success: bool,
    ) -> Self {
        let without_call = ToolResult {
            tool_name: None,
            call_id,
            args: Bytes::new(),
            args_digest: Bytes::new(),
            is_second: false,
            success,
            result,
        };
        let Some(KnownCall { name, args, args_digest, has_result }) = call else { return without_call };
        let is_second = std::mem::replace(has_result, true);
        let tool_name = Some(&*name).filter(|name| (1..=MAX_TOOL_NAME).contains(&name.len())).cloned();
        ToolResult {
            tool_name,
            args: args.clone(),
            args_digest: args_digest.clone(),
            is_second,
            ..without_call
        }
    }
}
