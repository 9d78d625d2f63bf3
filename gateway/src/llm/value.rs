//! Short reads of scanned JSON text.

use std::borrow::Cow;

use crate::json::{self, ValueKind};

/// Longest name, string and number that are taken for a setting, and not for text, in bytes.
pub(crate) const MAX_SETTING_BYTES: usize = 64;

/// Most bytes that a byte of text takes in a JSON string (`\u0041`).
const ESCAPED_BYTES: usize = 6;

/// Room for the members of most objects.
const FEW_MEMBERS: usize = 8;

/// Longest object or list that is taken for settings, in bytes.
const MAX_SETTINGS_BYTES: usize = 1 << 10;

/// The type of a value.
pub(crate) fn kind(text: &str) -> ValueKind {
    ValueKind::from_text(text.as_bytes()).unwrap_or(ValueKind::Null)
}

/// The value of an object's member; `None` also if `object` is another value, or the member is `null`.
pub(crate) fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    member_or_null(object, name).filter(|value| *value != "null")
}

/// The value of an object's member, also if it is `null`.
pub(crate) fn member_or_null<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    json::members(object).find(|(key, _)| key == name).map(|(_, value)| value)
}

/// The members of an object, which are walked once for several questions.
pub(crate) struct ObjectMembers<'a>(Vec<(Cow<'a, str>, &'a str)>);

impl<'a> ObjectMembers<'a> {
    /// Those of `object`; none if it is another value.
    pub(crate) fn read(object: &'a str) -> Self {
        let mut members = Vec::with_capacity(FEW_MEMBERS);
        members.extend(json::members(object));
        ObjectMembers(members)
    }

    /// As [`member`].
    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| *value).filter(|value| *value != "null")
    }

    /// Their names and values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), *value))
    }
}

/// The contents of a string; `None` for another value.
pub(crate) fn string(text: &str) -> Option<Cow<'_, str>> {
    (kind(text) == ValueKind::String).then(|| json::unescape(text))
}

/// The contents of a member that is a string.
pub(crate) fn string_member<'a>(object: &'a str, name: &str) -> Option<Cow<'a, str>> {
    member(object, name).and_then(string)
}

/// Whether two values have the same text, or are the same string in other spellings.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    one == other || string(one).is_some_and(|one| string(other) == Some(one))
}

/// The text of a member that is an object.
pub(crate) fn object_member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    member(object, name).filter(|value| kind(value) == ValueKind::Object)
}

/// Whether a member is more than a setting: its value is an object, an array, or a long string or number, or its name is
/// long.
pub(crate) fn may_carry_text(name: &str, value: &str) -> bool {
    name.len() > MAX_SETTING_BYTES || is_text(value)
}

/// Whether a member is a setting, or a short object or list of nothing else.
pub(crate) fn is_settings(name: &str, value: &str) -> bool {
    let is_short = name.len() <= MAX_SETTING_BYTES && value.len() <= MAX_SETTINGS_BYTES;
    !may_carry_text(name, value) || (is_short && has_only_settings(value))
}

/// Whether a value is a setting, or an object or list of nothing else. Depth is bounded by the scan.
pub(crate) fn has_only_settings(text: &str) -> bool {
    match kind(text) {
        ValueKind::Object => json::members(text)
            .all(|(name, value)| name.len() <= MAX_SETTING_BYTES && has_only_settings(value)),
        ValueKind::Array => json::elements(text).all(has_only_settings),
        _ => !is_text(text),
    }
}

/// Whether a value is more than a setting. The digits of a number can spell a text.
pub(crate) fn is_text(value: &str) -> bool {
    match kind(value) {
        ValueKind::Object | ValueKind::Array => true,
        ValueKind::String => is_long(value),
        ValueKind::Number => value.len() > MAX_SETTING_BYTES,
        ValueKind::Boolean | ValueKind::Null => false,
    }
}

/// Whether the contents of a string are longer than a setting. Long ones are not unescaped to find out.
fn is_long(string: &str) -> bool {
    const QUOTES: usize = 2;
    let bytes = string.len().saturating_sub(QUOTES);
    bytes > MAX_SETTING_BYTES
        && (bytes > MAX_SETTING_BYTES * ESCAPED_BYTES || json::unescape(string).len() > MAX_SETTING_BYTES)
}

/// A text as a JSON string.
pub(crate) fn quote(text: &str) -> String {
    serde_json::to_string(text).expect("a string is always JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_a_text_from_65_bytes_on_in_every_spelling() {
        for letter in ["a", "\\n", "\\u0041"] {
            let string = |letters: usize| format!("\"{}\"", letter.repeat(letters));
            assert!(!is_text(&string(MAX_SETTING_BYTES)), "{letter}");
            assert!(is_text(&string(MAX_SETTING_BYTES + 1)), "{letter}");
        }
    }
}
