//! Checks the shape of a request, and notes where its parts are.

use std::borrow::Cow;

use bytes::Bytes;

use super::request::{Member, Message, Role};
use crate::{
    core::error::Violation,
    json::{
        self, MAX_DEPTH, ValueKind,
        pointer::{JsonLocation, cut},
    },
    llm::{
        edits::span_in,
        value::{kind, string, string_member},
    },
    payload::{Findings, sentence},
};

/// Longest name of a model, in bytes.
const MAX_MODEL_BYTES: usize = 256;

/// Most answers to one request.
const MAX_CHOICES: u32 = 128;

/// Where the parts of a request are in its body.
#[derive(Debug, Default)]
pub(super) struct Shape {
    pub(super) members: Vec<Member>,
    pub(super) messages: Vec<Message>,
    pub(super) model: String,
    pub(super) user: Option<String>,
    pub(super) safety_identifier: Option<String>,
    pub(super) prompt_cache_key: Option<String>,
    pub(super) is_streamed: bool,
    pub(super) choices: u32,
}

/// Reads a body that nobody has checked before.
pub(super) fn read(body: &Bytes) -> Result<Shape, Vec<Violation>> {
    let mut findings = Findings::default();
    if let Err(flaws) = json::scan_all(body, MAX_DEPTH) {
        for flaw in flaws {
            findings.add(&JsonLocation::Root(&flaw.pointer), sentence(&flaw, body, "The body"));
        }
        return Err(findings.into_violations());
    }
    let text = str::from_utf8(body).unwrap_or_default();
    let mut reader = Reader { text, shape: Shape { choices: 1, ..Shape::default() }, findings };
    reader.body();
    if reader.findings.is_empty() { Ok(reader.shape) } else { Err(reader.findings.into_violations()) }
}

struct Reader<'a> {
    text: &'a str,
    shape: Shape,
    findings: Findings,
}

impl Reader<'_> {
    fn body(&mut self) {
        let root = JsonLocation::Root("");
        if kind(self.text) != ValueKind::Object {
            return expected(&mut self.findings, &root, "an object", self.text);
        }
        for required in ["model", "messages"] {
            if !json::members(self.text).any(|(name, _)| name == required) {
                let place = JsonLocation::Key(&root, required);
                self.findings.add(&place, format!("`{required}` is required"));
            }
        }
        for (name, value) in json::members(self.text) {
            self.member(&name, value);
            let value = span_in(self.text, value);
            self.shape.members.push(Member { name: name.into_owned(), value });
        }
    }

    fn member(&mut self, name: &str, value: &str) {
        let root = JsonLocation::Root("");
        let place = JsonLocation::Key(&root, name);
        match (name, kind(value)) {
            ("model", _) => {
                match string(value).filter(|model| (1..=MAX_MODEL_BYTES).contains(&model.len())) {
                    Some(model) => self.shape.model = model.into_owned(),
                    None => expected(&mut self.findings, &place, "a string of 1 to 256 bytes", value),
                }
            }
            ("messages", ValueKind::Array) => self.messages(&place, value),
            ("messages", _) => {
                expected(&mut self.findings, &place, "an array of at least one message", value);
            }
            ("user", _) => self.shape.user = owned(value),
            ("safety_identifier", _) => self.shape.safety_identifier = owned(value),
            ("prompt_cache_key", _) => self.shape.prompt_cache_key = owned(value),
            ("stream", ValueKind::Boolean) => self.shape.is_streamed = value == "true",
            ("stream", ValueKind::Null) | ("tools", ValueKind::Array | ValueKind::Null) => {}
            ("stream", _) => expected(&mut self.findings, &place, "true or false", value),
            ("stream_options", ValueKind::Object | ValueKind::Null) => {}
            ("stream_options", _) => expected(&mut self.findings, &place, "an object", value),
            ("tools", _) => expected(&mut self.findings, &place, "an array", value),
            ("n", ValueKind::Null) => {}
            ("n", _) => match value.parse().ok().filter(|n| (1..=MAX_CHOICES).contains(n)) {
                Some(choices) => self.shape.choices = choices,
                None => {
                    let wanted = format!("an integer from 1 to {MAX_CHOICES}");
                    expected(&mut self.findings, &place, &wanted, value);
                }
            },
            _ => {}
        }
    }

    fn messages(&mut self, place: &JsonLocation<'_>, array: &str) {
        for (index, message) in json::elements(array).enumerate() {
            let place = JsonLocation::Index(place, index);
            if let Some(role) = read_message(message, &place, &mut self.findings) {
                self.shape.messages.push(Message { role, span: span_in(self.text, message) });
            }
        }
        if json::elements(array).next().is_none() {
            self.findings.add(place, "`messages` must not be empty");
        }
    }
}

/// Checks one message. Returns `None` if its role was reported.
pub(super) fn read_message(message: &str, place: &JsonLocation<'_>, findings: &mut Findings) -> Option<Role> {
    if kind(message) != ValueKind::Object {
        expected(findings, place, "an object", message);
        return None;
    }
    let name = string_member(message, "role");
    let Some(role) = name.as_deref().and_then(Role::from_name) else {
        let found = name.map_or("absent or no string".into(), |name| format!("`{}`", cut(&name)));
        let place = JsonLocation::Key(place, "role");
        findings.add(&place, format!("`role` must be one of {}, is {found}", Role::NAMES.join(", ")));
        return None;
    };
    let content = json::members(message).find(|(name, _)| name == "content").map(|(_, value)| value);
    let is_null = content.is_some_and(|content| kind(content) == ValueKind::Null);
    let content = content.unwrap_or("null");
    let place = JsonLocation::Key(place, "content");
    match kind(content) {
        ValueKind::String => {}
        ValueKind::Null if role == Role::Assistant => {}
        // Some clients write it for an empty text. Where plugins judge the message, it is refused later.
        ValueKind::Null if is_null && !role.is_system() => {}
        ValueKind::Array => {
            for (index, part) in json::elements(content).enumerate() {
                read_part(part, &JsonLocation::Index(&place, index), findings);
            }
        }
        _ => expected(findings, &place, "a string or an array of parts", content),
    }
    Some(role)
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

fn expected(findings: &mut Findings, place: &JsonLocation<'_>, wanted: &str, found: &str) {
    let found = match kind(found) {
        ValueKind::Number => cut(found).into_owned(),
        ValueKind::String if found == "\"\"" => "empty".to_owned(),
        other => other.to_string(),
    };
    findings.add(place, format!("{} must be {wanted}, is {found}", place.name()));
}
