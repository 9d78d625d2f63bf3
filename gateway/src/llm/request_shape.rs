//! Checks the shape of requests, and notes where their parts are: what all formats have in common.

use std::ops::Range;

use bytes::Bytes;
use bytestring::ByteString;

use super::{
    edits::span_in,
    value::{ObjectMembers, kind, member_or_null, string, string_member},
};
use crate::{
    core::error::Violation,
    json::{
        self, MAX_DEPTH, ValueKind,
        pointer::{JsonLocation, cut},
    },
    payload::{Findings, sentence},
};

/// Longest name of a model, in bytes.
const MAX_MODEL_BYTES: usize = 256;

/// Who a message is from.
pub(super) trait MessageRole: Copy + PartialEq + 'static {
    /// The roles, and their names in requests.
    const NAMED: &'static [(&'static str, Self)];

    /// The model.
    const ASSISTANT: Self;

    /// The role with this name.
    fn from_name(name: &str) -> Option<Self> {
        Self::NAMED.iter().find(|(other, _)| *other == name).map(|(_, role)| *role)
    }
}

/// What the requests of one format have beside what those of all formats have.
pub(super) trait FormatShape: Default {
    /// Who messages are from.
    type Role: MessageRole;

    /// The member with the list of messages.
    const MESSAGES: &'static str = "messages";

    /// Checks a member that not all formats have, and notes what it says.
    fn read_member(&mut self, name: &str, value: &str, place: &JsonLocation<'_>, findings: &mut Findings);

    /// Checks what a message says; `content` is `None` if it has no such member.
    fn check_content(
        role: Self::Role,
        content: Option<&str>,
        place: &JsonLocation<'_>,
        findings: &mut Findings,
    );

    /// Checks one message. Returns `None` if its role was reported.
    fn read_message(message: &str, place: &JsonLocation<'_>, findings: &mut Findings) -> Option<Self::Role> {
        read_role_and_content::<Self>(message, place, findings)
    }
}

/// A member of the request: its unescaped name, and where its value is in the body.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) value: Range<usize>,
}

/// A message of the request.
#[derive(Debug)]
pub(super) struct Message<R> {
    pub(super) role: R,
    pub(super) span: Range<usize>,
}

/// Where the parts of a request are in its body.
#[derive(Debug)]
pub(super) struct Shape<O: FormatShape> {
    pub(super) members: Vec<Member>,
    pub(super) messages: Vec<Message<O::Role>>,
    pub(super) model: String,
    pub(super) is_streamed: bool,
    pub(super) own: O,
}

/// Reads the text of a body that was scanned before.
pub(super) fn read<O: FormatShape>(text: &str) -> Result<Shape<O>, Vec<Violation>> {
    let shape = Shape {
        members: Vec::new(),
        messages: Vec::new(),
        model: String::new(),
        is_streamed: false,
        own: O::default(),
    };
    let mut reader = Reader { text, shape, findings: Findings::default() };
    reader.body();
    if reader.findings.is_empty() { Ok(reader.shape) } else { Err(reader.findings.into_violations()) }
}

/// The text of a body that nobody has checked before: one JSON value.
pub(super) fn scanned(body: Bytes) -> Result<ByteString, Vec<Violation>> {
    let Err(flaws) = json::scan_all(&body, MAX_DEPTH) else {
        // The scan takes UTF-8 only.
        return Ok(ByteString::try_from(body).unwrap_or_default());
    };
    let mut findings = Findings::default();
    for flaw in flaws {
        findings.add(&JsonLocation::Root(&flaw.pointer), sentence(&flaw, &body, "The body"));
    }
    Err(findings.into_violations())
}

/// Reports the members that a body must have and hasn't.
pub(super) fn require_members(members: &ObjectMembers<'_>, names: &[&str], findings: &mut Findings) {
    for required in names {
        if !members.iter().any(|(name, _)| name == *required) {
            let place = JsonLocation::Root("");
            findings.add(&JsonLocation::Key(&place, required), format!("`{required}` is required"));
        }
    }
}

/// The name of the model that is asked for; empty if its mistake was reported.
pub(super) fn read_model(value: &str, place: &JsonLocation<'_>, findings: &mut Findings) -> String {
    match string(value).filter(|model| (1..=MAX_MODEL_BYTES).contains(&model.len())) {
        Some(model) => model.into_owned(),
        None => {
            expected(findings, place, "a string of 1 to 256 bytes", value);
            String::new()
        }
    }
}

struct Reader<'a, O: FormatShape> {
    text: &'a str,
    shape: Shape<O>,
    findings: Findings,
}

impl<O: FormatShape> Reader<'_, O> {
    fn body(&mut self) {
        let root = JsonLocation::Root("");
        if kind(self.text) != ValueKind::Object {
            return expected(&mut self.findings, &root, "an object", self.text);
        }
        let members = ObjectMembers::read(self.text);
        require_members(&members, &["model", O::MESSAGES], &mut self.findings);
        for (name, value) in members.iter() {
            self.member(name, value);
            let value = span_in(self.text, value);
            self.shape.members.push(Member { name: name.to_owned(), value });
        }
    }

    fn member(&mut self, name: &str, value: &str) {
        let root = JsonLocation::Root("");
        let place = JsonLocation::Key(&root, name);
        match (name, kind(value)) {
            ("model", _) => self.shape.model = read_model(value, &place, &mut self.findings),
            (list, ValueKind::Array) if list == O::MESSAGES => self.messages(&place, value),
            (list, _) if list == O::MESSAGES => {
                expected(&mut self.findings, &place, "an array of at least one message", value);
            }
            ("stream", ValueKind::Boolean) => self.shape.is_streamed = value == "true",
            ("stream", ValueKind::Null) | ("tools", ValueKind::Array | ValueKind::Null) => {}
            ("stream", _) => expected(&mut self.findings, &place, "true or false", value),
            ("tools", _) => expected(&mut self.findings, &place, "an array", value),
            _ => self.shape.own.read_member(name, value, &place, &mut self.findings),
        }
    }

    fn messages(&mut self, place: &JsonLocation<'_>, array: &str) {
        let mut messages = json::elements(array).enumerate().peekable();
        if messages.peek().is_none() {
            self.findings.add(place, format!("`{}` must not be empty", O::MESSAGES));
        }
        for (index, message) in messages {
            let place = JsonLocation::Index(place, index);
            if let Some(role) = O::read_message(message, &place, &mut self.findings) {
                self.shape.messages.push(Message { role, span: span_in(self.text, message) });
            }
        }
    }
}

/// Checks a message with a `role` and a `content`. Returns `None` if its role was reported.
pub(super) fn read_role_and_content<O: FormatShape>(
    message: &str,
    place: &JsonLocation<'_>,
    findings: &mut Findings,
) -> Option<O::Role> {
    if kind(message) != ValueKind::Object {
        expected(findings, place, "an object", message);
        return None;
    }
    let name = string_member(message, "role");
    let Some(role) = name.as_deref().and_then(O::Role::from_name) else {
        let found = name.map_or("absent or no string".into(), |name| format!("`{}`", cut(&name)));
        let names: Vec<&str> = O::Role::NAMED.iter().map(|(name, _)| *name).collect();
        let place = JsonLocation::Key(place, "role");
        findings.add(&place, format!("`role` must be one of {}, is {found}", names.join(", ")));
        return None;
    };
    let place = JsonLocation::Key(place, "content");
    O::check_content(role, member_or_null(message, "content"), &place, findings);
    Some(role)
}

/// Reports that a value is another one than it must be.
pub(super) fn expected(findings: &mut Findings, place: &JsonLocation<'_>, wanted: &str, found: &str) {
    let found = match kind(found) {
        ValueKind::Number => cut(found).into_owned(),
        ValueKind::String if found == "\"\"" => "empty".to_owned(),
        other => other.to_string(),
    };
    findings.add(place, format!("{} must be {wanted}, is {found}", place.name()));
}
