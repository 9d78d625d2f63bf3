//! JSON pointers (RFC 6901): how their tokens are escaped, built and taken apart.

use std::{borrow::Cow, fmt::Write};

/// Longer tokens are cut, in bytes, so that no request makes its own error message large. No member that
/// Hookgate accepts comes close.
const MAX_TOKEN_BYTES: usize = 128;

/// An object's key as a token.
pub fn escape(key: &str) -> Cow<'_, str> {
    match key.contains(['~', '/']) {
        true => Cow::Owned(key.replace('~', "~0").replace('/', "~1")),
        false => Cow::Borrowed(key),
    }
}

/// The key that a token stands for.
pub fn unescape(token: &str) -> Cow<'_, str> {
    match token.contains('~') {
        true => Cow::Owned(token.replace("~1", "/").replace("~0", "~")),
        false => Cow::Borrowed(token),
    }
}

/// The pointer to the member `key` of the object at `pointer`.
pub fn child(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", escape(key))
}

/// The keys on the way to the value at `pointer`.
pub fn keys(pointer: &str) -> impl Iterator<Item = Cow<'_, str>> {
    pointer.split('/').skip(1).map(unescape)
}

/// Appends a key from a request. A long key is cut, so the pointer is for people to read and not to follow.
pub fn push_key(pointer: &mut String, key: &str) {
    pointer.push('/');
    pointer.push_str(&escape(&cut(key)));
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
    fn a_key_survives_escaping_whatever_it_holds() {
        for key in ["", "a", "~", "/", "~1", "~01", "/~0/", "é~"] {
            assert_eq!(unescape(&escape(key)), key);
            assert_eq!(keys(&child("/a", key)).collect::<Vec<_>>(), ["a", key]);
        }
        assert_eq!(escape("~1/"), "~01~1");
        let long = "k".repeat(2 * MAX_TOKEN_BYTES);
        assert_eq!(child("", &long), format!("/{long}"));
    }

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
