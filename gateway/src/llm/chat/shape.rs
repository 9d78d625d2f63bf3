//! What of a request's shape is Chat Completions' own.

use std::borrow::Cow;

use super::request::Role;
use crate::{
    json::{self, ValueKind, pointer::JsonLocation},
    llm::{
        request_shape::{FormatShape, expected},
        value::{kind, string, string_member},
    },
    payload::Findings,
};

/// Most answers to one request.
const MAX_CHOICES: u32 = 128;

/// What not all formats have.
#[derive(Debug, Default)]
pub(crate) struct ChatShape {
    pub(super) user: Option<String>,
    pub(super) safety_identifier: Option<String>,
    pub(super) prompt_cache_key: Option<String>,
    /// How many answers are asked for, if the request says it.
    pub(super) choices: Option<u32>,
}

impl FormatShape for ChatShape {
    type Role = Role;

    fn read_member(&mut self, name: &str, value: &str, place: &JsonLocation<'_>, findings: &mut Findings) {
        match (name, kind(value)) {
            ("user", _) => self.user = owned(value),
            ("safety_identifier", _) => self.safety_identifier = owned(value),
            ("prompt_cache_key", _) => self.prompt_cache_key = owned(value),
            ("stream_options", ValueKind::Object | ValueKind::Null) => {}
            ("stream_options", _) => expected(findings, place, "an object", value),
            ("n", ValueKind::Null) => {}
            ("n", _) => {
                self.choices = value.parse().ok().filter(|n| (1..=MAX_CHOICES).contains(n));
                if self.choices.is_none() {
                    let wanted = format!("an integer from 1 to {MAX_CHOICES}");
                    expected(findings, place, &wanted, value);
                }
            }
            _ => {}
        }
    }

    fn check_content(role: Role, content: Option<&str>, place: &JsonLocation<'_>, findings: &mut Findings) {
        let is_null = content.is_some_and(|content| kind(content) == ValueKind::Null);
        let content = content.unwrap_or("null");
        match kind(content) {
            ValueKind::String => {}
            ValueKind::Null if role == Role::Assistant => {}
            // Some clients write it for an empty text. Where plugins judge the message, it is refused later.
            ValueKind::Null if is_null && !role.is_system() => {}
            ValueKind::Array => {
                for (index, part) in json::elements(content).enumerate() {
                    read_part(part, &JsonLocation::Index(place, index), findings);
                }
            }
            _ => expected(findings, place, "a string or an array of parts", content),
        }
    }
}

fn read_part(part: &str, place: &JsonLocation<'_>, findings: &mut Findings) {
    match string_member(part, "type").as_deref() {
        // Text in another form would reach the model unseen.
        Some("text") if string_member(part, "text").is_none() => {
            findings.add(&JsonLocation::Key(place, "text"), "`text` must be a string");
        }
        Some(_) => {}
        None => findings.add(place, "A content part must be an object with a string `type`"),
    }
}

fn owned(value: &str) -> Option<String> {
    string(value).map(Cow::into_owned)
}
