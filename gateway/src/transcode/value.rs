//! Converts values of a scanned body into Rust types, and reports those that don't fit.

use std::{borrow::Cow, collections::BTreeMap, fmt::Display, str::FromStr};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;

use crate::{
    json::{
        self, ValueKind,
        pointer::{JsonLocation, cut},
    },
    payload::Findings,
};

/// A JSON value in a request body.
#[derive(Debug, Clone, Copy)]
pub struct Value<'a> {
    /// The value's text without surrounding white space; part of `body`.
    pub(super) text: &'a str,
    /// The whole body.
    pub(super) body: &'a Bytes,
    /// The place of the value in the body.
    pub(super) place: &'a JsonLocation<'a>,
}

impl<'a> Value<'a> {
    pub(super) fn is_null(&self) -> bool {
        self.text == "null"
    }

    /// The contents of a string.
    pub(super) fn string(&self, findings: &mut Findings) -> Option<Cow<'a, str>> {
        self.expect_kind(ValueKind::String, findings).then(|| json::unescape(self.text))
    }

    /// The value as it was written.
    pub(super) fn raw(&self) -> Bytes {
        self.body.slice_ref(self.text.as_bytes())
    }

    fn expect_kind(&self, wanted: ValueKind, findings: &mut Findings) -> bool {
        let right = self.kind() == wanted;
        if !right {
            self.refuse(wanted, findings);
        }
        right
    }

    fn refuse(&self, wanted: impl Display, findings: &mut Findings) {
        let found = match self.kind() {
            ValueKind::Number => cut(self.text),
            other => other.to_string().into(),
        };
        findings.add(self.place, format!("{} must be {wanted}, is {found}", self.place.name()));
    }

    fn kind(&self) -> ValueKind {
        ValueKind::from_text(self.text.as_bytes()).unwrap_or(ValueKind::Null)
    }
}

/// A message read from a JSON object.
pub trait JsonMessage: Default {
    /// The members, in the order of the contract.
    const MEMBERS: &'static [&'static str];

    /// Reads a member's value. Returns false if there is no such member.
    fn read_member(&mut self, name: &str, value: Value<'_>, findings: &mut Findings) -> bool;
}

/// Reads a message, and reports its mistakes. Returns `None` if it isn't an object.
pub(super) fn read_object<M: JsonMessage>(value: Value<'_>, findings: &mut Findings) -> Option<M> {
    if !value.expect_kind(ValueKind::Object, findings) {
        return None;
    }
    let mut message = M::default();
    for (key, text) in json::members(value.text) {
        let place = JsonLocation::Key(value.place, &key);
        if !message.read_member(&key, Value { text, place: &place, ..value }, findings) {
            findings.add(&place, unknown_member(&key, M::MEMBERS));
        }
    }
    Some(message)
}

fn unknown_member(key: &str, members: &[&str]) -> String {
    let plain = |name: &str| name.replace('_', "").to_ascii_lowercase();
    let near = |key: &str| members.iter().find(|member| plain(member) == plain(key));
    match key {
        "tenant" | "tenant_id" | "operator" | "operator_id" => {
            format!("`{key}` comes from the token: omit it")
        }
        "request_id" => {
            "`request_id` is the gateway's own; send your id in the header `x-request-id`".to_owned()
        }
        _ => match near(&cut(key)) {
            Some(member) => format!("Unknown member `{}`; did you mean `{member}`?", cut(key)),
            None => format!("Unknown member `{}`; known here: {}", cut(key), members.join(", ")),
        },
    }
}

/// A type that can be read from one JSON value other than `null`.
pub(super) trait Parse: Sized {
    /// The value. Returns `None` if it was reported.
    fn parse(value: Value<'_>, findings: &mut Findings) -> Option<Self>;
}

impl Parse for String {
    fn parse(value: Value<'_>, findings: &mut Findings) -> Option<Self> {
        value.string(findings).map(Cow::into_owned)
    }
}

impl Parse for bool {
    fn parse(value: Value<'_>, findings: &mut Findings) -> Option<Self> {
        value.expect_kind(ValueKind::Boolean, findings).then_some(value.text == "true")
    }
}

impl Parse for u32 {
    fn parse(value: Value<'_>, findings: &mut Findings) -> Option<Self> {
        parse_integer(value, u32::MAX, findings)
    }
}

impl Parse for u64 {
    fn parse(value: Value<'_>, findings: &mut Findings) -> Option<Self> {
        parse_integer(value, u64::MAX, findings)
    }
}

/// Accepts digits only: `1.0` and `1e3` would pass through a double, and lose digits above 2^53.
fn parse_integer<T: FromStr + Display>(value: Value<'_>, max: T, findings: &mut Findings) -> Option<T> {
    let number = value.text.parse().ok();
    if number.is_none() {
        value.refuse(format_args!("an integer from 0 to {max}"), findings);
    }
    number
}

impl Parse for Bytes {
    /// Bytes that aren't a JSON value: a string in padded standard base64 (RFC 4648, section 4).
    fn parse(value: Value<'_>, findings: &mut Findings) -> Option<Self> {
        let text = value.string(findings)?;
        let Ok(bytes) = STANDARD.decode(text.as_bytes()) else {
            findings.add(
                value.place,
                format!("{} must be padded standard base64 (RFC 4648, section 4)", value.place.name()),
            );
            return None;
        };
        Some(bytes.into())
    }
}

impl<M: JsonMessage> Parse for M {
    fn parse(value: Value<'_>, findings: &mut Findings) -> Option<Self> {
        read_object(value, findings)
    }
}

/// A field that a member is read into. An invalid value leaves it unchanged.
pub(super) trait Field {
    fn read(&mut self, value: Value<'_>, findings: &mut Findings);
}

impl Field for String {
    fn read(&mut self, value: Value<'_>, findings: &mut Findings) {
        *self = String::parse(value, findings).unwrap_or_default();
    }
}

impl Field for bool {
    fn read(&mut self, value: Value<'_>, findings: &mut Findings) {
        *self = bool::parse(value, findings).unwrap_or_default();
    }
}

impl Field for u64 {
    fn read(&mut self, value: Value<'_>, findings: &mut Findings) {
        *self = u64::parse(value, findings).unwrap_or_default();
    }
}

impl Field for Bytes {
    /// A JSON value, kept as it was written.
    fn read(&mut self, value: Value<'_>, _: &mut Findings) {
        *self = value.raw();
    }
}

impl<T: Parse> Field for Option<T> {
    fn read(&mut self, value: Value<'_>, findings: &mut Findings) {
        *self = T::parse(value, findings);
    }
}

impl<T: Parse> Field for Vec<T> {
    fn read(&mut self, value: Value<'_>, findings: &mut Findings) {
        if !value.expect_kind(ValueKind::Array, findings) {
            return;
        }
        for (index, text) in json::elements(value.text).enumerate() {
            let place = JsonLocation::Index(value.place, index);
            self.extend(T::parse(Value { text, place: &place, ..value }, findings));
        }
    }
}

impl Field for BTreeMap<String, String> {
    fn read(&mut self, value: Value<'_>, findings: &mut Findings) {
        if !value.expect_kind(ValueKind::Object, findings) {
            return;
        }
        for (key, text) in json::members(value.text) {
            let place = JsonLocation::Key(value.place, &key);
            let member = Value { text, place: &place, ..value };
            if member.is_null() {
                continue;
            }
            if let Some(label) = String::parse(member, findings) {
                self.insert(key.into_owned(), label);
            }
        }
    }
}
