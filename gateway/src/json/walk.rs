//! Walks JSON text that [`super::scan_all`] has accepted, apart from repeated keys: yields the parts of an
//! object or array as slices. On other text the iterators still end and never panic, but their items are
//! meaningless.

use std::borrow::Cow;

use memchr::memchr2;

use super::word;

/// Words that are looked at before a search by vectors begins: as long as most names.
const NAME_WORDS: usize = 3;

const SPACES: [char; 4] = [' ', '\n', '\t', '\r'];

/// The members of the object in `text`: the unescaped key, and the value's text without surrounding white
/// space.
pub fn members(text: &str) -> Members<'_> {
    Members { rest: inner(text, '{', '}') }
}

/// The elements of the array in `text`, each without surrounding white space.
pub fn elements(text: &str) -> Elements<'_> {
    Elements { rest: inner(text, '[', ']') }
}

/// See [`members`].
#[derive(Debug)]
pub struct Members<'a> {
    rest: &'a str,
}

/// See [`elements`].
#[derive(Debug)]
pub struct Elements<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Members<'a> {
    type Item = (Cow<'a, str>, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let key = take_key(&mut self.rest)?;
        self.rest = trim_start(self.rest).strip_prefix(':')?;
        let value = take_value(&mut self.rest)?;
        self.rest = after_comma(self.rest);
        Some((key, value))
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let value = take_value(&mut self.rest)?;
        self.rest = after_comma(self.rest);
        Some(value)
    }
}

/// The contents of a JSON string that includes its quotes. Borrowed if it has no escapes.
pub fn unescape(string: &str) -> Cow<'_, str> {
    let inner = string.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or_default();
    if inner.contains('\\') {
        Cow::Owned(serde_json::from_str(string).unwrap_or_default())
    } else {
        Cow::Borrowed(inner)
    }
}

fn inner(text: &str, open: char, close: char) -> &str {
    trim(text).strip_prefix(open).and_then(|rest| rest.strip_suffix(close)).unwrap_or_default()
}

fn after_comma(rest: &str) -> &str {
    let rest = trim_start(rest);
    rest.strip_prefix(',').unwrap_or(rest)
}

fn trim(text: &str) -> &str {
    trim_start(text).trim_end_matches(SPACES)
}

fn trim_start(text: &str) -> &str {
    // Most text has no white space between its tokens.
    match text.as_bytes().first() {
        Some(b' ' | b'\n' | b'\t' | b'\r') => text.trim_start_matches(SPACES),
        _ => text,
    }
}

/// Takes the key at the start of `rest`.
fn take_key<'a>(rest: &mut &'a str) -> Option<Cow<'a, str>> {
    // Most keys have no escapes.
    if let Some(inner) = trim_start(rest).strip_prefix('"')
        && let Some(length) = quote_or_escape(inner.as_bytes())
        && let (key, after) = inner.split_at_checked(length)?
        && let Some(after) = after.strip_prefix('"')
    {
        *rest = after;
        return Some(Cow::Borrowed(key));
    }
    take_value(rest).map(unescape)
}

/// Takes the value at the start of `rest`.
fn take_value<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let text = trim_start(rest);
    let bytes = text.as_bytes();
    let length = match bytes.first()? {
        b'"' => string_length(bytes),
        b'{' | b'[' => container_length(bytes),
        _ => bytes
            .iter()
            .position(|byte| matches!(byte, b',' | b'}' | b']' | b':' | b' ' | b'\n' | b'\t' | b'\r'))
            .unwrap_or(bytes.len()),
    };
    if length == 0 {
        return None;
    }
    let (value, after) = text.split_at_checked(length)?;
    *rest = after;
    Some(value)
}

/// Length of the string at the start of `bytes`, including quotes; all of `bytes` if it doesn't end.
fn string_length(bytes: &[u8]) -> usize {
    let mut at = 1;
    while let Some(length) = bytes.get(at..).and_then(quote_or_escape) {
        at += length;
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    bytes.len()
}

/// Where the first quote or backslash is.
fn quote_or_escape(bytes: &[u8]) -> Option<usize> {
    let mut rest = bytes;
    // Most strings are names, which end before a search by vectors has begun.
    for _ in 0..NAME_WORDS {
        let Some((first, others)) = rest.split_first_chunk() else { break };
        let text = u64::from_le_bytes(*first);
        if let Some(place) = word::first(word::equal(text, b'"') | word::equal(text, b'\\')) {
            return Some(bytes.len() - rest.len() + place);
        }
        rest = others;
    }
    memchr2(b'"', b'\\', rest).map(|place| bytes.len() - rest.len() + place)
}

/// Length of the array or object at the start of `bytes`; all of `bytes` if it doesn't end.
fn container_length(bytes: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at += string_length(&bytes[at..]) - 1,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}
