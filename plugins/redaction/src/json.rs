//! Walks JSON text, shows its strings, names and numbers, and replaces strings and numbers. Everything else keeps its bytes:
//! the order of members, white space, and numbers of any size.
//!
//! The walk doesn't recurse, so no nesting can exhaust the stack.

use std::{borrow::Cow, fmt::Write as _};

use serde::de::IgnoredAny;

/// The part of a JSON text that is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextKind {
    /// A string that is a value, or a text outside JSON. Can be replaced.
    Value,
    /// The name of a member.
    Name,
    /// A number. A string can replace it.
    Number,
}

/// A text in a payload, and where it is.
#[derive(Debug)]
pub struct Text<'a> {
    /// The text, without JSON's escapes.
    pub text: &'a str,
    /// The part of the payload that it is.
    pub kind: TextKind,
    field: &'a str,
    open: &'a [Container<'a>],
}

/// An object or array that was begun and not ended yet, and the place in it.
#[derive(Debug, Clone)]
enum Container<'a> {
    /// `name` is the value of a member `name` or `key` that came before.
    Object {
        member: Cow<'a, str>,
        name: Option<Cow<'a, str>>,
    },
    Array {
        index: usize,
    },
}

impl<'a> Text<'a> {
    /// A field of a payload that is a plain text.
    pub(crate) fn from_field(field: &'a str, text: &'a str) -> Self {
        Text { text, kind: TextKind::Value, field, open: &[] }
    }

    /// The field of the payload that it is in.
    pub fn field(&self) -> &str {
        self.field
    }

    /// Whether it is in `tools` or `extra`. A tool with another description is another tool, so nothing is replaced there.
    pub fn is_fixed(&self) -> bool {
        matches!(self.field, "tools" | "extra")
    }

    /// The name of the member whose value it is. The elements of an array belong to the array's member.
    pub fn member(&self) -> Option<&str> {
        if self.kind == TextKind::Name { None } else { self.members().last() }
    }

    /// What names it: its member, or in `{"name": "API_KEY", "value": "..."}` the value of the member before.
    pub(crate) fn label(&self) -> Option<&str> {
        match self.open.last() {
            Some(Container::Object { member, name: Some(name) }) if member.eq_ignore_ascii_case("value") => {
                Some(name)
            }
            _ => self.member(),
        }
    }

    /// The names of the members on the way to it.
    pub(crate) fn members(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.open.iter().filter_map(|container| match container {
            Container::Object { member, .. } => Some(&**member),
            Container::Array { .. } => None,
        })
    }

    /// The JSON pointer (RFC 6901) to it in the payload, or to the object whose member's name it is. `shown` says
    /// how a name is shown.
    pub fn pointer(&self, shown: impl Fn(&str) -> String) -> String {
        let mut pointer = format!("/{}", self.field);
        let depth = self.open.len() - usize::from(self.kind == TextKind::Name);
        for container in &self.open[..depth] {
            match container {
                Container::Object { member, .. } => {
                    pointer.push('/');
                    pointer.push_str(&shown(member).replace('~', "~0").replace('/', "~1"));
                }
                Container::Array { index } => {
                    write!(pointer, "/{index}").expect("a String takes everything");
                }
            }
        }
        pointer
    }
}

/// Shows a plain text that is the `member` of an element of a list, which is a field of the payload.
pub(crate) fn with_element<T>(
    field: &str,
    index: usize,
    member: &str,
    text: &str,
    show: impl FnOnce(&Text<'_>) -> T,
) -> T {
    let open = [Container::Array { index }, Container::Object { member: Cow::Borrowed(member), name: None }];
    show(&Text { text, kind: TextKind::Value, field, open: &open })
}

/// Shows every string, name and number of `json`, a field of the payload, and puts a string in the place of each string and number
/// for which there is a replacement. `None` if there is none.
///
/// # Errors
/// If the text isn't JSON.
pub(crate) fn replace_texts(
    field: &str,
    json: &[u8],
    replace: &mut dyn FnMut(&Text<'_>) -> Option<String>,
) -> Result<Option<String>, serde_json::Error> {
    serde_json::from_slice::<IgnoredAny>(json)?;
    let json: &str = str::from_utf8(json).map_err(serde::de::Error::custom)?;
    walk(field, Vec::new(), json, replace)
}

/// The same for a text that is a JSON object or array, such as the arguments of a tool call in a conversation.
/// `None` if it is another text.
pub(crate) fn replace_texts_within(
    text: &Text<'_>,
    replace: &mut dyn FnMut(&Text<'_>) -> Option<String>,
) -> Option<Option<String>> {
    if text.kind != TextKind::Value || !text.text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    serde_json::from_str::<IgnoredAny>(text.text).ok()?;
    walk(text.field, text.open.to_vec(), text.text, replace).ok()
}

/// Walks `json`, which is within `open`.
fn walk<'a>(
    field: &'a str,
    mut open: Vec<Container<'a>>,
    json: &'a str,
    replace: &mut dyn FnMut(&Text<'_>) -> Option<String>,
) -> Result<Option<String>, serde_json::Error> {
    let (mut replaced, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(byte) = json.as_bytes().get(at) {
        let token = &json[at..at + token_length(&json.as_bytes()[at..])];
        match byte {
            b'{' => open.push(Container::Object { member: Cow::Borrowed(""), name: None }),
            b'[' => open.push(Container::Array { index: 0 }),
            b'}' | b']' => drop(open.pop()),
            b',' => next_element(&mut open),
            b'-' | b'0'..=b'9' => {
                let number = Text { text: token, kind: TextKind::Number, field, open: &open };
                if let Some(new) = replace(&number) {
                    replaced.push_str(&json[copied..at]);
                    replaced.push_str(&serde_json::to_string(&new)?);
                    copied = at + token.len();
                }
            }
            b'"' => {
                let text = unescape(token)?;
                if is_name(&json[at + token.len()..]) {
                    replace(&Text { text: &text, kind: TextKind::Name, field, open: &open });
                    enter_member(&mut open, text);
                } else {
                    if let Some(new) =
                        replace(&Text { text: &text, kind: TextKind::Value, field, open: &open })
                    {
                        replaced.push_str(&json[copied..at]);
                        replaced.push_str(&serde_json::to_string(&new)?);
                        copied = at + token.len();
                    }
                    keep_name(&mut open, text);
                }
            }
            _ => {}
        }
        at += token.len();
    }
    Ok((copied > 0).then(|| replaced + &json[copied..]))
}

fn next_element(open: &mut [Container<'_>]) {
    if let Some(Container::Array { index }) = open.last_mut() {
        *index += 1;
    }
}

fn enter_member<'a>(open: &mut [Container<'a>], name: Cow<'a, str>) {
    if let Some(Container::Object { member, .. }) = open.last_mut() {
        *member = name;
    }
}

/// Remembers a text that names another member's value.
fn keep_name<'a>(open: &mut [Container<'a>], text: Cow<'a, str>) {
    if let Some(Container::Object { member, name }) = open.last_mut()
        && ["name", "key"].iter().any(|other| member.eq_ignore_ascii_case(other))
    {
        *name = Some(text);
    }
}

/// The length of a string or number, or else of one byte. The text is known to be JSON.
fn token_length(bytes: &[u8]) -> usize {
    match bytes[0] {
        b'"' => {
            let mut at = 1;
            while bytes[at] != b'"' {
                at += if bytes[at] == b'\\' { 2 } else { 1 };
            }
            at + 1
        }
        b'-' | b'0'..=b'9' => {
            let is_part = |byte: &&u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
            bytes.iter().take_while(is_part).count()
        }
        _ => 1,
    }
}

/// Whether a string before `rest` is a member's name.
fn is_name(rest: &str) -> bool {
    rest.trim_start_matches([' ', '\n', '\t', '\r']).starts_with(':')
}

/// The text of a JSON string. Fails for lone surrogates.
fn unescape(string: &str) -> Result<Cow<'_, str>, serde_json::Error> {
    match string.contains('\\') {
        true => serde_json::from_str(string).map(Cow::Owned),
        false => Ok(Cow::Borrowed(&string[1..string.len() - 1])),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// Replaces each `x` in a value by `-`.
    fn without_x(json: &str) -> Option<String> {
        let mut replace = |text: &Text<'_>| {
            (text.kind == TextKind::Value && text.text.contains('x')).then(|| text.text.replace('x', "-"))
        };
        replace_texts("args", json.as_bytes(), &mut replace).unwrap()
    }

    #[test]
    fn only_strings_change_and_everything_else_keeps_its_bytes() {
        let json = "{ \"x\" : [9007199254740993, 1.10E+2,\t-0, null, true,\"é\\u00e9x\\n\"], \"b\":{\"x\":\"\"}, \
                    \"a\": \"y\\/\" }";
        let expected = "{ \"x\" : [9007199254740993, 1.10E+2,\t-0, null, true,\"éé-\\n\"], \"b\":{\"x\":\"\"}, \
                        \"a\": \"y\\/\" }";
        assert_eq!(without_x(json).as_deref(), Some(expected));
        assert_eq!(without_x(r#" "x" "#).as_deref(), Some(r#" "-" "#));
        for unchanged in ["{}", "[]", "null", "1", r#"{"x":"y","s":"\\\""}"#, r#"["a",{"x":1}]"#] {
            assert_eq!(without_x(unchanged), None, "{unchanged}");
        }
    }

    #[test]
    fn every_text_is_shown_with_its_pointer_and_its_member() {
        let json = r#"{"a/b":["v",{"~c":"w"},[7]],"d":[]}"#;
        let mut seen = Vec::new();
        let mut look = |text: &Text<'_>| {
            let member = text.member().unwrap_or("").to_owned();
            seen.push((text.kind, text.text.to_owned(), text.pointer(str::to_owned), member));
            None
        };
        replace_texts("args", json.as_bytes(), &mut look).unwrap();
        let values: Vec<_> = seen.iter().filter(|(kind, ..)| *kind != TextKind::Name).collect();
        let expected = [
            (TextKind::Value, "v", "/args/a~1b/0", "a/b"),
            (TextKind::Value, "w", "/args/a~1b/1/~0c", "~c"),
            (TextKind::Number, "7", "/args/a~1b/2/0", "a/b"),
        ];
        let expected = expected.map(|(kind, text, at, member)| (kind, text.into(), at.into(), member.into()));
        assert_eq!(values, expected.iter().collect::<Vec<_>>());
        let names: Vec<_> = seen.iter().filter(|(kind, ..)| *kind == TextKind::Name).collect();
        assert_eq!(
            names.iter().map(|(_, name, at, _)| (&**name, &**at)).collect::<Vec<_>>(),
            [("a/b", "/args"), ("~c", "/args/a~1b/1"), ("d", "/args")]
        );
    }

    #[test]
    fn a_member_name_or_key_labels_the_value_behind_it() {
        let json = r#"[{"Name":"A","n":"x","value":"x"},{"value":"x","key":"B"},{"key":"C","value":["x",{"value":"x"}]}]"#;
        let mut labels = Vec::new();
        let mut look = |text: &Text<'_>| {
            labels.extend(Some(text.label().unwrap_or("-").to_owned()).filter(|_| text.text == "x"));
            None
        };
        replace_texts("args", json.as_bytes(), &mut look).unwrap();
        assert_eq!(labels, ["n", "A", "value", "value", "value"]);
    }

    #[test]
    fn what_is_not_json_is_an_error() {
        for json in ["", "{", r#"{"a" "b"}"#, "\"x", r#"["\ud800"]"#, "1 2", "\"\u{1}\""] {
            assert!(replace_texts("args", json.as_bytes(), &mut |_| None).is_err(), "{json}");
        }
        assert!(replace_texts("args", b"\"\xff\"", &mut |_| None).is_err());
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,6}|x{0,3}|[\"\\\\\n\u{7f}x]{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec(("[a-zx/~\"\\\\é]{0,4}", inner), 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn without_x_in_tree(value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(text.replace('x', "-")),
            Value::Array(elements) => elements.into_iter().map(without_x_in_tree).collect(),
            Value::Object(members) => {
                members.into_iter().map(|(name, value)| (name, without_x_in_tree(value))).collect()
            }
            other => other,
        }
    }

    proptest! {
        #[test]
        fn strings_are_replaced_as_in_a_tree_and_keys_and_order_stay(value in values(), pretty: bool) {
            let json = if pretty { format!("{value:#}") } else { value.to_string() };
            let replaced = without_x(&json).unwrap_or_else(|| json.clone());
            prop_assert!(replaced.len() <= json.len());
            prop_assert_eq!(serde_json::from_str::<Value>(&replaced).unwrap(), without_x_in_tree(value));
        }

        #[test]
        fn a_pointer_leads_to_its_text(value in values()) {
            let document = json!({ "args": value });
            let mut look = |text: &Text<'_>| {
                if text.kind == TextKind::Value {
                    let found = document.pointer(&text.pointer(str::to_owned));
                    assert_eq!(found, Some(&json!(text.text)));
                }
                None
            };
            replace_texts("args", document["args"].to_string().as_bytes(), &mut look).unwrap();
        }
    }
}
