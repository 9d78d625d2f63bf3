//! JSON pointers (RFC 6901), built token by token.

use std::{borrow::Cow, fmt::Write};

/// Longer tokens are cut, in bytes, so that no request makes its own error message large. No member that
/// Hookgate accepts comes close.
const MAX_TOKEN_BYTES: usize = 128;

/// Appends the reference token of an object's key.
pub fn push_key(pointer: &mut String, key: &str) {
    pointer.push('/');
    for character in cut(key).chars() {
        match character {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            other => pointer.push(other),
        }
    }
}

/// The part of a caller's text that a message may show: the first 128 bytes.
pub fn cut(text: &str) -> Cow<'_, str> {
    match text.floor_char_boundary(MAX_TOKEN_BYTES) {
        end if end < text.len() => Cow::Owned(format!("{}…", &text[..end])),
        _ => Cow::Borrowed(text),
    }
}

/// Appends the reference token of an array's element, counted from 0.
pub fn push_index(pointer: &mut String, index: usize) {
    write!(pointer, "/{index}").expect("a String takes everything");
}

/// A place inside a document. Kept on the stack, and written out only to report a flaw.
#[derive(Debug, Clone, Copy)]
pub enum JsonLocation<'a> {
    /// The root, or the place of a given pointer.
    Root(&'a str),
    /// A member of an object.
    Key(&'a JsonLocation<'a>, &'a str),
    /// An element of an array.
    Index(&'a JsonLocation<'a>, usize),
}

impl JsonLocation<'_> {
    /// The pointer to this place.
    pub fn pointer(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    /// How a message refers to this place.
    pub fn name(&self) -> String {
        match self {
            JsonLocation::Root(_) => "The body".to_owned(),
            JsonLocation::Key(_, key) => format!("`{}`", cut(key)),
            JsonLocation::Index(_, _) => "An entry".to_owned(),
        }
    }

    fn write(&self, text: &mut String) {
        match self {
            JsonLocation::Root(prefix) => text.push_str(prefix),
            JsonLocation::Key(parent, key) => {
                parent.write(text);
                push_key(text, key);
            }
            JsonLocation::Index(parent, index) => {
                parent.write(text);
                push_index(text, *index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_escaped_and_long_ones_cut() {
        let root = JsonLocation::Root("/context");
        let labels = JsonLocation::Key(&root, "labels");
        assert_eq!(JsonLocation::Key(&labels, "a/b~c").pointer(), "/context/labels/a~1b~0c");
        assert_eq!(JsonLocation::Index(&labels, 7).pointer(), "/context/labels/7");
        let long = "é".repeat(1000);
        assert_eq!(
            JsonLocation::Key(&JsonLocation::Root(""), &long).pointer(),
            format!("/{}…", "é".repeat(64))
        );
    }
}
