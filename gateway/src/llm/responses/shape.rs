//! What of a request's shape is Responses' own.

use super::{
    items::{CallForm, ItemKind},
    request::Role,
};
use crate::{
    json::{self, ValueKind, pointer::JsonLocation},
    llm::{
        request_shape::{FormatShape, expected, read_role_and_content},
        value::{kind, member, member_or_null, string_member},
    },
    payload::Findings,
};

/// The members that name the conversation.
#[derive(Debug, Default)]
pub(crate) struct ResponsesShape {
    pub(super) prompt_cache_key: Option<String>,
    pub(super) safety_identifier: Option<String>,
    pub(super) user: Option<String>,
}

impl FormatShape for ResponsesShape {
    type Role = Role;

    const MESSAGES: &'static str = "input";

    fn read_member(&mut self, name: &str, value: &str, place: &JsonLocation<'_>, findings: &mut Findings) {
        let text = || json::unescape(value).into_owned();
        match (name, kind(value)) {
            ("instructions", ValueKind::String | ValueKind::Null) => {}
            ("instructions", _) => expected(findings, place, "a string", value),
            ("prompt_cache_key", ValueKind::String) => self.prompt_cache_key = Some(text()),
            ("safety_identifier", ValueKind::String) => self.safety_identifier = Some(text()),
            ("user", ValueKind::String) => self.user = Some(text()),
            _ => {}
        }
    }

    fn check_content(_role: Role, content: Option<&str>, place: &JsonLocation<'_>, findings: &mut Findings) {
        match content {
            Some(content) => read_content(content, place, findings),
            None => findings.add(place, "`content` is required"),
        }
    }

    /// Only messages have a role. The other items of the conversation are the model's, or results of its tools.
    fn read_message(item: &str, place: &JsonLocation<'_>, findings: &mut Findings) -> Option<Role> {
        if kind(item) != ValueKind::Object {
            expected(findings, place, "an object", item);
            return None;
        }
        match ItemKind::of(item) {
            ItemKind::Message => return read_role_and_content::<Self>(item, place, findings),
            ItemKind::Result(form) => {
                read_result(form, item, place, findings);
                return Some(Role::Tool);
            }
            ItemKind::Reasoning => read_reasoning(item, place, findings),
            ItemKind::Call(form) => read_call(form, item, place, findings),
            ItemKind::Other => read_type(item, place, findings),
        }
        Some(Role::Assistant)
    }
}

/// Checks what a message or a tool says.
fn read_content(content: &str, place: &JsonLocation<'_>, findings: &mut Findings) {
    match kind(content) {
        ValueKind::String => {}
        ValueKind::Array => read_parts(content, place, findings),
        _ => expected(findings, place, "a string or an array of parts", content),
    }
}

fn read_parts(parts: &str, place: &JsonLocation<'_>, findings: &mut Findings) {
    for (index, part) in json::elements(parts).enumerate() {
        read_part(part, &JsonLocation::Index(place, index), findings);
    }
}

/// Checks a part. Text in another form would reach the model unseen.
fn read_part(part: &str, place: &JsonLocation<'_>, findings: &mut Findings) {
    let text = match string_member(part, "type").as_deref() {
        Some("input_text" | "output_text" | "text" | "summary_text" | "reasoning_text") => "text",
        Some("refusal") => "refusal",
        Some(_) => return,
        None => return findings.add(place, "A content part must be an object with a string `type`"),
    };
    if string_member(part, text).is_none() {
        findings.add(&JsonLocation::Key(place, text), format!("`{text}` must be a string"));
    }
}

/// Checks what the model thought: its summary, and the text itself.
fn read_reasoning(item: &str, place: &JsonLocation<'_>, findings: &mut Findings) {
    for name in ["summary", "content"] {
        let Some(parts) = member(item, name) else { continue };
        let place = JsonLocation::Key(place, name);
        match kind(parts) {
            ValueKind::Array => read_parts(parts, &place, findings),
            _ => expected(findings, &place, "an array of parts", parts),
        }
    }
}

/// Checks a tool call. Plugins are asked about its result by the tool and the arguments.
fn read_call(form: CallForm, item: &str, place: &JsonLocation<'_>, findings: &mut Findings) {
    read_required(item, "call_id", &[ValueKind::String], place, findings);
    if form.tool().is_none() {
        read_required(item, "name", &[ValueKind::String], place, findings);
        read_optional(item, "namespace", place, findings);
    }
    read_required(item, form.args_member(), form.args_kinds(), place, findings);
}

/// Checks the result of a tool.
fn read_result(form: CallForm, item: &str, place: &JsonLocation<'_>, findings: &mut Findings) {
    match form {
        CallForm::Function | CallForm::Custom => {
            let place = JsonLocation::Key(place, "output");
            match member_or_null(item, "output") {
                Some(output) => read_content(output, &place, findings),
                None => findings.add(&place, "`output` is required"),
            }
        }
        CallForm::LocalShell => read_required(item, "output", &[ValueKind::String], place, findings),
        CallForm::Shell => {
            read_required(item, "output", &[ValueKind::Array], place, findings);
            read_outputs(item, &JsonLocation::Key(place, "output"), findings);
        }
        CallForm::ApplyPatch => read_optional(item, "output", place, findings),
        CallForm::ToolSearch => read_required(item, "tools", &[ValueKind::Array], place, findings),
    }
    // Plugins are told whether the tool failed.
    read_optional(item, "status", place, findings);
}

/// Checks what the commands of a shell wrote.
fn read_outputs(item: &str, place: &JsonLocation<'_>, findings: &mut Findings) {
    for (index, output) in json::elements(member(item, "output").unwrap_or_default()).enumerate() {
        let place = JsonLocation::Index(place, index);
        if kind(output) != ValueKind::Object {
            expected(findings, &place, "an object", output);
            continue;
        }
        ["stdout", "stderr"].into_iter().for_each(|name| read_optional(output, name, &place, findings));
    }
}

/// Checks that an item says what it is. An item that the provider keeps may be named by its `id` alone.
fn read_type(item: &str, place: &JsonLocation<'_>, findings: &mut Findings) {
    let is_reference = || {
        let mut others = json::members(item).filter(|(_, value)| *value != "null");
        string_member(item, "id").is_some() && others.all(|(name, _)| name == "id")
    };
    match member(item, "type") {
        Some(name) if kind(name) == ValueKind::String => {}
        Some(name) => expected(findings, &JsonLocation::Key(place, "type"), "a string", name),
        None if is_reference() => {}
        None => findings.add(place, "An item must have a string `type` or a `role`"),
    }
}

/// Checks a member that must be there, and one of these kinds of value.
fn read_required(
    item: &str,
    name: &str,
    wanted: &[ValueKind],
    place: &JsonLocation<'_>,
    findings: &mut Findings,
) {
    let place = JsonLocation::Key(place, name);
    match member_or_null(item, name) {
        Some(value) if wanted.contains(&kind(value)) => {}
        Some(value) => {
            let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
            expected(findings, &place, &wanted.join(" or "), value);
        }
        None => findings.add(&place, format!("`{name}` is required")),
    }
}

/// Checks a member that is a string if it is there.
fn read_optional(item: &str, name: &str, place: &JsonLocation<'_>, findings: &mut Findings) {
    if let Some(value) = member(item, name).filter(|value| kind(value) != ValueKind::String) {
        expected(findings, &JsonLocation::Key(place, name), "a string", value);
    }
}

#[cfg(test)]
#[path = "shape_tests.rs"]
mod tests;
