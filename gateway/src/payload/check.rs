//! Collects violations up to a limit, and holds the rules that several messages share.

use hookgate_proto::{HookName, types::v1::Media};

use super::{MAX_TOOL_NAME, Validate, known_hooks::KnownHook};
use crate::{
    core::error::Violation,
    json::{
        self, JsonError, ValueKind,
        pointer::{JsonLocation, cut},
    },
};

/// Most violations reported for one request.
pub const MAX_VIOLATIONS: usize = 32;

/// The violations so far: the first one of each member, at most [`MAX_VIOLATIONS`].
#[derive(Debug, Default)]
pub struct Findings {
    list: Vec<Violation>,
}

impl Findings {
    /// Adds a violation, unless one at the same place is known or the list is full.
    pub fn add(&mut self, place: &JsonLocation<'_>, message: impl Into<String>) {
        if self.list.len() >= MAX_VIOLATIONS {
            return;
        }
        let pointer = place.pointer();
        if !self.list.iter().any(|known| known.pointer == pointer) {
            self.list.push(Violation::new(pointer, message));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The violations, in the order found.
    pub fn into_violations(self) -> Vec<Violation> {
        self.list
    }
}

/// Checks one message at a place of the request.
#[derive(Debug)]
pub struct Validator<'a> {
    place: JsonLocation<'a>,
    /// Whether the JSON values were already scanned as parts of an HTTP body.
    scanned: bool,
    findings: &'a mut Findings,
}

impl<'a> Validator<'a> {
    /// Checks a message at the pointer `at`.
    pub fn new(at: &'a str, findings: &'a mut Findings) -> Self {
        Validator { place: JsonLocation::Root(at), scanned: false, findings }
    }

    /// Like [`Validator::new`], for a message whose JSON values are known to be valid.
    pub fn for_scanned(at: &'a str, findings: &'a mut Findings) -> Self {
        Validator { scanned: true, ..Validator::new(at, findings) }
    }

    /// Reports a violation of the message itself.
    pub fn report_here(&mut self, message: impl Into<String>) {
        self.findings.add(&self.place, message);
    }

    /// Reports a violation of a member.
    pub fn report(&mut self, member: &str, message: impl Into<String>) {
        self.findings.add(&JsonLocation::Key(&self.place, member), message);
    }

    /// Checks the message in a member.
    pub fn inside(&mut self, member: &str, check: impl FnOnce(&mut Validator<'_>)) {
        let place = JsonLocation::Key(&self.place, member);
        check(&mut Validator { place, scanned: self.scanned, findings: self.findings });
    }

    pub(super) fn tool_name(&mut self, name: &str) {
        if name.is_empty() || name.len() > MAX_TOOL_NAME {
            self.report(
                "tool_name",
                format!("`tool_name` must be 1 to {MAX_TOOL_NAME} bytes, is {}", name.len()),
            );
        }
    }

    pub(super) fn media_list(&mut self, member: &str, list: &[Media]) {
        let member = JsonLocation::Key(&self.place, member);
        for (index, media) in list.iter().enumerate() {
            let place = JsonLocation::Index(&member, index);
            media.check(&mut Validator { place, scanned: self.scanned, findings: self.findings });
        }
    }

    /// Checks a required JSON value of any type.
    pub(super) fn required_json(&mut self, member: &str, value: &[u8]) {
        if value.is_empty() {
            self.report(member, format!("`{member}` is required: any JSON value, `null` included"));
        } else {
            self.json(member, value);
        }
    }

    /// Checks a JSON value of any type; empty means absent.
    pub(super) fn json(&mut self, member: &str, value: &[u8]) {
        self.kind(member, value);
    }

    /// Checks the members `hook` and `body`.
    pub(super) fn hook(&mut self, hook: &str, body: &[u8]) {
        if let Err(error) = HookName::new(hook) {
            self.report("hook", format!("`{}`: {error}", cut(hook)));
        }
        if body.is_empty() {
            return self.report("body", "`body` is required: a JSON object");
        }
        let is_object = match self.kind("body", body) {
            None => return,
            Some(kind) => kind == ValueKind::Object,
        };
        if !is_object {
            self.object("body", body);
        } else if let (Some(known), Ok(body)) = (KnownHook::named(hook), str::from_utf8(body)) {
            let body_errors = known.body_errors(body.trim_ascii());
            self.inside("body", |check| {
                body_errors.into_iter().for_each(|error| check.report(error.member, error.message));
            });
        }
    }

    /// Checks a JSON array; empty means absent.
    pub(super) fn array(&mut self, member: &str, value: &[u8]) {
        self.expect_kind(member, value, ValueKind::Array);
    }

    /// Checks a JSON object; empty means absent.
    pub(super) fn object(&mut self, member: &str, value: &[u8]) {
        self.expect_kind(member, value, ValueKind::Object);
    }

    fn expect_kind(&mut self, member: &str, value: &[u8], wanted: ValueKind) {
        match self.kind(member, value) {
            Some(kind) if kind != wanted => {
                self.report(member, format!("`{member}` must be {wanted}, is {kind}"));
            }
            Some(_) | None => {}
        }
    }

    /// The type of a JSON value. Returns `None` if it is absent or was reported.
    fn kind(&mut self, member: &str, value: &[u8]) -> Option<ValueKind> {
        if value.is_empty() {
            return None;
        }
        if self.scanned {
            return ValueKind::from_text(value);
        }
        match json::scan(value, json::MAX_DEPTH) {
            Ok(kind) => Some(kind),
            Err(flaw) => {
                let root = JsonLocation::Key(&self.place, member).pointer() + &flaw.pointer;
                self.findings.add(&JsonLocation::Root(&root), sentence(&flaw, value, &format!("`{member}`")));
                None
            }
        }
    }
}

/// Explains a flaw to the caller; `what` names the text, such as "the body".
pub(crate) fn sentence(flaw: &JsonError, text: &[u8], what: &str) -> String {
    let (line, column) = flaw.position(text);
    match flaw.kind {
        json::JsonErrorKind::DuplicateKey => flaw.message.clone(),
        json::JsonErrorKind::TooDeep => {
            format!("Nested deeper than {} levels, counted from the root of a JSON value", json::MAX_DEPTH)
        }
        json::JsonErrorKind::Encoding | json::JsonErrorKind::Syntax => {
            format!("{what} is not valid JSON: {} at line {line}, column {column}", flaw.message)
        }
    }
}
