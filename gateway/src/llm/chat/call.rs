//! One tool call of an assistant message, in a request's history or in an answer.

use std::borrow::Cow;

use bytes::Bytes;

use crate::llm::{
    arguments::Arguments,
    value::{member, object_member, string_member},
};

/// A tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ToolCall {
    /// The tool's name.
    pub(super) name: String,
    /// The model's id of the call.
    pub(super) call_id: Option<String>,
    /// What the tool is called with.
    pub(super) arguments: Arguments,
    pub(super) form: CallForm,
}

/// How a call is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallForm {
    /// An element of `tool_calls`: `{id, type: "function", function: {name, arguments}}`.
    Function,
    /// An element of `tool_calls`: `{id, type: "custom", custom: {name, input}}`.
    Custom,
    /// The old member `function_call: {name, arguments}`.
    Legacy,
}

impl ToolCall {
    /// Reads an element of `tool_calls`, a slice of `body`. Returns `None` if it is in no known form.
    pub(super) fn read(body: &Bytes, call: &str) -> Option<ToolCall> {
        let call_id = string_member(call, "id").map(Cow::into_owned);
        match string_member(call, "type").as_deref() {
            Some("function") | None => {
                let read = ToolCall::function(body, object_member(call, "function")?)?;
                Some(ToolCall { call_id, form: CallForm::Function, ..read })
            }
            Some("custom") => {
                let custom = object_member(call, "custom")?;
                let name = string_member(custom, "name")?.into_owned();
                let input = member(custom, "input");
                let input = input.map_or(Bytes::from_static(b"\"\""), |text| body.slice_ref(text.as_bytes()));
                Some(ToolCall { name, call_id, arguments: Arguments::Json(input), form: CallForm::Custom })
            }
            Some(_) => None,
        }
    }

    /// Reads `{name, arguments}`: the old `function_call`, or the function of a call.
    pub(super) fn function(body: &Bytes, function: &str) -> Option<ToolCall> {
        let name = string_member(function, "name")?.into_owned();
        let arguments = Arguments::read(body, member(function, "arguments"));
        Some(ToolCall { name, call_id: None, arguments, form: CallForm::Legacy })
    }
}
