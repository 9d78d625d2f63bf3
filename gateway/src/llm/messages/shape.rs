//! What of a request's shape is Messages' own.

use super::request::Role;
use crate::{
    json::{self, MAX_DEPTH, ValueKind, pointer::JsonLocation},
    llm::{
        request_shape::{FormatShape, expected},
        value::{kind, member_or_null, string_member},
    },
    payload::Findings,
};

/// What not all formats have. A body whose tokens are counted has no `max_tokens`.
#[derive(Debug, Default)]
pub(crate) struct MessagesShape {
    pub(super) names: Names,
}

/// What `metadata.user_id` says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    /// The name of the conversation.
    pub(super) session: Option<String>,
    /// Who uses the agent.
    pub(super) user: Option<String>,
}

impl Names {
    /// Agents that know a session write `USER_session_SESSION`, or an object as JSON text.
    fn read(user_id: &str) -> Names {
        let name = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        if json::scan(user_id.as_bytes(), MAX_DEPTH) == Ok(ValueKind::Object) {
            let part = |part: &str| string_member(user_id, part).and_then(|text| name(&text));
            let user = part("account_uuid").or_else(|| part("device_id"));
            return Names { session: part("session_id"), user: user.or_else(|| name(user_id)) };
        }
        match user_id.rsplit_once("_session_") {
            Some((user, session)) => Names { session: name(session), user: name(user) },
            None => Names { session: None, user: name(user_id) },
        }
    }
}

impl FormatShape for MessagesShape {
    type Role = Role;

    fn read_member(&mut self, name: &str, value: &str, place: &JsonLocation<'_>, findings: &mut Findings) {
        match (name, kind(value)) {
            ("system", ValueKind::Null) => {}
            ("system", _) => read_content(value, place, findings),
            ("metadata", ValueKind::Object) => {
                let user_id = string_member(value, "user_id");
                self.names = user_id.map(|user_id| Names::read(&user_id)).unwrap_or_default();
            }
            _ => {}
        }
    }

    fn check_content(_role: Role, content: Option<&str>, place: &JsonLocation<'_>, findings: &mut Findings) {
        match content {
            Some(content) => read_content(content, place, findings),
            None => findings.add(place, "`content` is required"),
        }
    }
}

/// Checks what a message or the system prompt says.
fn read_content(content: &str, place: &JsonLocation<'_>, findings: &mut Findings) {
    read_text_or_blocks(content, place, findings, read_block);
}

fn read_text_or_blocks(
    content: &str,
    place: &JsonLocation<'_>,
    findings: &mut Findings,
    read_block: fn(&str, &JsonLocation<'_>, &mut Findings),
) {
    match kind(content) {
        ValueKind::String => {}
        ValueKind::Array => {
            for (index, block) in json::elements(content).enumerate() {
                read_block(block, &JsonLocation::Index(place, index), findings);
            }
        }
        _ => expected(findings, place, "a string or an array of blocks", content),
    }
}

fn read_block(block: &str, place: &JsonLocation<'_>, findings: &mut Findings) {
    match string_member(block, "type").as_deref() {
        // Text in another form would reach the model unseen.
        Some("text") if string_member(block, "text").is_none() => {
            findings.add(&JsonLocation::Key(place, "text"), "`text` must be a string");
        }
        Some("tool_result") => read_result(block, place, findings),
        Some(_) => {}
        None => findings.add(place, "A content block must be an object with a string `type`"),
    }
}

/// Checks a block in the result of a tool. Results in each other would be read once for each level.
fn read_block_of_result(block: &str, place: &JsonLocation<'_>, findings: &mut Findings) {
    match string_member(block, "type") {
        Some(kind) if kind.ends_with("tool_result") => {
            findings.add(place, "The result of a tool can't have another result in it");
        }
        _ => read_block(block, place, findings),
    }
}

/// Checks a result of a tool.
fn read_result(block: &str, place: &JsonLocation<'_>, findings: &mut Findings) {
    if let Some(content) = member_or_null(block, "content").filter(|content| kind(content) != ValueKind::Null)
    {
        read_text_or_blocks(content, &JsonLocation::Key(place, "content"), findings, read_block_of_result);
    }
    // Plugins are told whether the tool failed.
    if let Some(is_error) = member_or_null(block, "is_error")
        && !matches!(kind(is_error), ValueKind::Boolean | ValueKind::Null)
    {
        expected(findings, &JsonLocation::Key(place, "is_error"), "true or false", is_error);
    }
}
