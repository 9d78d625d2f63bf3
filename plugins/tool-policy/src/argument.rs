//! Finds the argument that a condition is about.
//!
//! Programs disagree on what unusual arguments mean. Some take `Path` for `path`, and some take a text where
//! an object is expected. A look-up never guesses: what it can't tell is [`Argument::Unclear`].

use serde_json::Value;

/// The maximum size of a pointer, in bytes, so that it fits into the details of a notice.
const MAX_POINTER_BYTES: usize = 128;

/// A JSON pointer (RFC 6901) into the arguments of a call.
#[derive(Debug, Clone)]
pub(crate) struct Pointer {
    written: String,
    keys: Vec<String>,
}

/// What a pointer finds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Argument<'a> {
    Found(&'a Value),
    Missing,
    /// Another reader could find something else there. The text says why.
    Unclear(&'static str),
}

impl Pointer {
    /// # Errors
    /// A sentence about the pointer.
    pub(crate) fn parse(written: &str) -> Result<Self, String> {
        let is_pointer = written.is_empty() || written.starts_with('/');
        let escapes = written.split('~').skip(1);
        if !is_pointer || !escapes.clone().all(|rest| rest.starts_with(['0', '1'])) {
            return Err(
                "expected a JSON pointer such as `/command`, where `~0` is `~` and `~1` is `/`".into()
            );
        }
        if written.len() > MAX_POINTER_BYTES || written.contains(char::is_control) {
            return Err(format!("at most {MAX_POINTER_BYTES} bytes, without control characters"));
        }
        let keys = written.split('/').skip(1).map(|key| key.replace("~1", "/").replace("~0", "~"));
        Ok(Pointer { written: written.to_owned(), keys: keys.collect() })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.written
    }

    pub(crate) fn find<'a>(&self, arguments: &'a Value) -> Argument<'a> {
        let mut value = arguments;
        for key in &self.keys {
            match member(value, key) {
                Argument::Found(found) => value = found,
                other => return other,
            }
        }
        Argument::Found(value)
    }
}

fn member<'a>(parent: &'a Value, key: &str) -> Argument<'a> {
    match parent {
        Value::Object(members) => {
            let folded = fold(key);
            // Go's readers of JSON, for example, ignore the case of a key, and take the last of several.
            if members.keys().any(|other| other != key && fold(other) == folded) {
                return Argument::Unclear("another argument's name differs only in case");
            }
            members.get(key).map_or(Argument::Missing, Argument::Found)
        }
        Value::Array(items) => match index(key) {
            Some(index) => items.get(index).map_or(Argument::Missing, Argument::Found),
            None => Argument::Unclear("the pointer leads into a list without an index"),
        },
        Value::Null => Argument::Missing,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Argument::Unclear("the pointer leads into a value without members")
        }
    }
}

/// The text without differences of case. Upper case first, because `ſ` is an `S` and `K` (Kelvin) is a `k`.
pub(crate) fn fold(text: &str) -> String {
    text.to_uppercase().to_lowercase()
}

/// An index of RFC 6901: digits without leading zeros.
fn index(key: &str) -> Option<usize> {
    let is_index = key == "0" || (!key.starts_with('0') && key.bytes().all(|byte| byte.is_ascii_digit()));
    is_index.then(|| key.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn find<'a>(pointer: &str, arguments: &'a Value) -> Argument<'a> {
        Pointer::parse(pointer).unwrap().find(arguments)
    }

    #[test]
    fn pointers_find_members_and_entries() {
        let arguments = json!({ "a": { "b/c": [10, { "~": null }] }, "": 7 });
        assert_eq!(find("", &arguments), Argument::Found(&arguments));
        assert_eq!(find("/a/b~1c/0", &arguments), Argument::Found(&json!(10)));
        assert_eq!(find("/a/b~1c/1/~0", &arguments), Argument::Found(&Value::Null));
        assert_eq!(find("/", &arguments), Argument::Found(&json!(7)));
        for missing in ["/x", "/a/x", "/a/b~1c/2", "/a/b~1c/1/~0/x"] {
            assert_eq!(find(missing, &arguments), Argument::Missing, "{missing}");
        }
    }

    #[test]
    fn what_readers_disagree_on_is_unclear() {
        let arguments = json!({ "path": "/a", "options": "force", "list": [1], "ſh": 1, "\u{212a}ey": 1 });
        for pointer in ["/Path", "/PATH", "/options/force", "/list/00", "/list/-", "/list/+0", "/sh", "/key"]
        {
            assert!(matches!(find(pointer, &arguments), Argument::Unclear(_)), "{pointer}");
        }
        let both = json!({ "path": "/a", "Path": "/etc" });
        assert!(matches!(find("/path", &both), Argument::Unclear(_)));
    }

    #[test]
    fn text_that_is_no_pointer_is_refused() {
        for text in ["command", "$.command", "/a~", "/a~2", "/\n", &format!("/{}", "x".repeat(128))] {
            assert!(Pointer::parse(text).is_err(), "{text}");
        }
    }
}
