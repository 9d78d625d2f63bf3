//! The single pass behind [`super::scan`], with an explicit stack of open containers instead of recursion.
//! Reports flaws with their pointers.

use std::{collections::HashSet, ops::Range};

use super::{JsonError, JsonErrorKind, MAX_ERRORS, ValueKind, pointer, unescape, word};

/// Up to this many keys, comparing all pairs is cheaper than hashing.
const MAX_LINEAR_KEYS: usize = 16;

const CHECKED_UTF8: &str = "checked before the pass, and cut at ASCII characters";

/// An array or object whose end was not reached yet.
struct Container {
    is_object: bool,
    /// Elements before the current one; arrays only.
    index: usize,
    /// Where the container's keys begin in `Scanner::keys`.
    keys: usize,
    /// Where the container's keys begin in `Scanner::unescaped`.
    unescaped: usize,
}

/// A key of an open object.
struct ObjectKey {
    /// Offset of the opening quote.
    quote: usize,
    /// The key's text: a range of `Scanner::unescaped` if it has escapes, otherwise of the input.
    text: Range<usize>,
    escaped: bool,
    /// The text's length, first and last byte. Keys that differ here need no further comparison.
    tag: (usize, u8, u8),
}

/// What a flaw's pointer refers to.
enum ErrorScope {
    /// In the current member or element of the innermost container.
    Value,
    /// Between the members or elements of the innermost container.
    Container,
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    max_depth: usize,
    open: Vec<Container>,
    keys: Vec<ObjectKey>,
    unescaped: String,
    duplicates: Vec<JsonError>,
}

/// The error is in a box, since a result is returned for each token.
type ScanResult<T> = Result<T, Box<JsonError>>;

pub(super) fn run(bytes: &[u8], max_depth: usize) -> Result<ValueKind, Vec<JsonError>> {
    match str::from_utf8(bytes) {
        Ok(_) => finish(bytes, max_depth),
        Err(invalid) => {
            // The text before the bad byte tells where in the document it is. A flaw before it is reported
            // first.
            let good = &bytes[..invalid.valid_up_to()];
            let mut flaws = finish(good, max_depth).err().unwrap_or_default();
            let unfinished =
                flaws.pop_if(|last| last.kind == JsonErrorKind::Syntax && last.offset == good.len());
            if unfinished.is_some() || flaws.iter().all(|flaw| flaw.kind == JsonErrorKind::DuplicateKey) {
                let pointer = unfinished.map(|flaw| flaw.pointer).unwrap_or_default();
                let message = "expected UTF-8, found another byte".to_owned();
                flaws.push(JsonError { offset: good.len(), pointer, kind: JsonErrorKind::Encoding, message });
            }
            Err(flaws)
        }
    }
}

fn finish(bytes: &[u8], max_depth: usize) -> Result<ValueKind, Vec<JsonError>> {
    let mut scanner = Scanner {
        bytes,
        at: 0,
        max_depth,
        open: Vec::new(),
        keys: Vec::new(),
        unescaped: String::new(),
        duplicates: Vec::new(),
    };
    let result = scanner.document();
    let mut flaws = scanner.duplicates;
    flaws.extend(result.err().map(|flaw| *flaw));
    match (ValueKind::from_text(bytes), flaws.is_empty()) {
        (Some(kind), true) => Ok(kind),
        _ => Err(flaws),
    }
}

/// How many bytes of a string, or of the part of it that `rest` begins with, need no further look: up to the
/// first `"`, `\` or control character, or to the end.
fn plain_length(rest: &[u8]) -> usize {
    let mut length = 0;
    while let Some(bytes) = rest[length..].first_chunk() {
        let text = u64::from_le_bytes(*bytes);
        let found = word::below(text, 0x20) | word::equal(text, b'"') | word::equal(text, b'\\');
        if let Some(place) = word::first(found) {
            return length + place;
        }
        length += bytes.len();
    }
    let tail = &rest[length..];
    length + tail.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f)).unwrap_or(tail.len())
}

impl Scanner<'_> {
    fn document(&mut self) -> ScanResult<()> {
        loop {
            let opened = self.value()?;
            if !opened && !self.after_value()? {
                return Ok(());
            }
        }
    }

    /// Reads a scalar, an empty container, or the start of a container up to its first value. Returns true in
    /// the last case.
    fn value(&mut self) -> ScanResult<bool> {
        self.skip_space();
        match self.peek() {
            Some(b'{') => return self.open_container(true, b'}'),
            Some(b'[') => return self.open_container(false, b']'),
            Some(b'"') => {
                self.string()?;
            }
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.literal("true")?,
            Some(b'f') => self.literal("false")?,
            Some(b'n') => self.literal("null")?,
            _ => return Err(self.expected("a value")),
        }
        Ok(false)
    }

    fn open_container(&mut self, is_object: bool, end: u8) -> ScanResult<bool> {
        if self.open.len() >= self.max_depth {
            let message = format!("nested deeper than {} levels", self.max_depth);
            return Err(self.flaw(JsonErrorKind::TooDeep, &ErrorScope::Value, message));
        }
        self.open.push(Container {
            is_object,
            index: 0,
            keys: self.keys.len(),
            unescaped: self.unescaped.len(),
        });
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(end) {
            self.at += 1;
            self.open.pop();
            return Ok(false);
        }
        if is_object {
            self.key("a key in quotes or `}`")?;
        }
        Ok(true)
    }

    /// Continues from the end of a value to the start of the next. Returns false at the end of the document.
    fn after_value(&mut self) -> ScanResult<bool> {
        loop {
            self.skip_space();
            let next = self.peek();
            let Some(innermost) = self.open.last_mut() else {
                return match next {
                    None => Ok(false),
                    Some(_) => Err(self.expected("nothing after the value")),
                };
            };
            match (next, innermost.is_object) {
                (Some(b','), false) => {
                    innermost.index += 1;
                    self.at += 1;
                    return Ok(true);
                }
                (Some(b','), true) => {
                    self.at += 1;
                    self.skip_space();
                    self.key("a key in quotes")?;
                    return Ok(true);
                }
                (Some(b']'), false) => {
                    self.at += 1;
                    self.open.pop();
                }
                (Some(b'}'), true) => {
                    self.at += 1;
                    self.close_object();
                }
                (_, true) => return Err(self.expected_between("`,` or `}`")),
                (_, false) => return Err(self.expected_between("`,` or `]`")),
            }
        }
    }

    fn key(&mut self, expected: &str) -> ScanResult<()> {
        let quote = self.at;
        if self.peek() != Some(b'"') {
            return Err(self.expected_between(expected));
        }
        let escaped = self.string()?;
        let text = if escaped {
            let start = self.unescaped.len();
            let key = str::from_utf8(&self.bytes[quote..self.at]).expect(CHECKED_UTF8);
            self.unescaped.push_str(&unescape(key));
            start..self.unescaped.len()
        } else {
            quote + 1..self.at - 1
        };
        let bytes =
            if escaped { &self.unescaped.as_bytes()[text.clone()] } else { &self.bytes[text.clone()] };
        let tag = (bytes.len(), bytes.first().copied().unwrap_or(0), bytes.last().copied().unwrap_or(0));
        self.keys.push(ObjectKey { quote, text, escaped, tag });
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err(self.expected("`:`"));
        }
        self.at += 1;
        Ok(())
    }

    fn close_object(&mut self) {
        let Some(object) = self.open.last() else { return };
        let (first_key, unescaped) = (object.keys, object.unescaped);
        for repeated in self.repeated(first_key) {
            self.duplicates.push(self.duplicate(&self.keys[repeated]));
        }
        self.keys.truncate(first_key);
        self.unescaped.truncate(unescaped);
        self.open.pop();
    }

    /// Positions of the keys from `first` on that repeat an earlier one, limited to how many flaws may still
    /// be listed. One place is reserved for a flaw that ends the pass.
    fn repeated(&self, first: usize) -> Vec<usize> {
        let keys = &self.keys[first..];
        let room = MAX_ERRORS - 1 - self.duplicates.len();
        let positions = first..self.keys.len();
        if keys.len() <= MAX_LINEAR_KEYS {
            let stands_before = |&position: &usize| {
                let key = &self.keys[position];
                let equals = |earlier: &ObjectKey| {
                    earlier.tag == key.tag && self.key_bytes(earlier) == self.key_bytes(key)
                };
                self.keys[first..position].iter().any(equals)
            };
            positions.filter(stands_before).take(room).collect()
        } else {
            let mut seen = HashSet::with_capacity(keys.len());
            positions
                .filter(|&position| !seen.insert(self.key_bytes(&self.keys[position])))
                .take(room)
                .collect()
        }
    }

    /// The flaw for a repeated key of the innermost object.
    fn duplicate(&self, key: &ObjectKey) -> JsonError {
        let mut pointer = self.pointer(&ErrorScope::Container);
        pointer::push_key(&mut pointer, self.key_text(key));
        let message = "The object already has this key; give each key once".to_owned();
        JsonError { offset: key.quote, pointer, kind: JsonErrorKind::DuplicateKey, message }
    }

    /// Reads a string, from its opening to its closing quote. Returns true if it has escapes.
    fn string(&mut self) -> ScanResult<bool> {
        self.at += 1;
        let mut escaped = false;
        loop {
            let rest = &self.bytes[self.at..];
            let length = plain_length(rest);
            self.at += length;
            let Some(&end) = rest.get(length) else {
                return Err(self.expected("the closing `\"` of a string"));
            };
            match end {
                b'"' => {
                    self.at += 1;
                    return Ok(escaped);
                }
                b'\\' => {
                    escaped = true;
                    self.escape()?;
                }
                control => {
                    return Err(self.syntax(format!("expected `\\u{control:04x}` for a control character")));
                }
            }
        }
    }

    /// Reads an escape, beginning at its backslash. Rejects half of a surrogate pair, which isn't a
    /// character.
    fn escape(&mut self) -> ScanResult<()> {
        match self.bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 2;
                Ok(())
            }
            Some(b'u') => match self.code_unit(self.at)? {
                0xdc00..=0xdfff => Err(self.syntax("found half of a surrogate pair".to_owned())),
                0xd800..=0xdbff => {
                    let paired = self.bytes[self.at + 6..].starts_with(b"\\u")
                        && matches!(self.code_unit(self.at + 6)?, 0xdc00..=0xdfff);
                    if !paired {
                        return Err(self.syntax("found half of a surrogate pair".to_owned()));
                    }
                    self.at += 12;
                    Ok(())
                }
                _ => {
                    self.at += 6;
                    Ok(())
                }
            },
            _ => Err(self.syntax("found a `\\` that begins no escape".to_owned())),
        }
    }

    /// The four digits of the `\uXXXX` that begins at `start`.
    fn code_unit(&self, start: usize) -> ScanResult<u32> {
        let digits = self.bytes.get(start + 2..start + 6).unwrap_or_default();
        digits
            .iter()
            .try_fold(0, |unit, &byte| Some(unit * 16 + char::from(byte).to_digit(16)?))
            .filter(|_| digits.len() == 4)
            .ok_or_else(|| self.syntax("expected four hexadecimal digits after `\\u`".to_owned()))
    }

    fn number(&mut self) -> ScanResult<()> {
        let start = self.at;
        self.skip_if(b"-");
        if self.skip_if(b"0") {
            if matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(self.syntax("expected no digit after a leading 0".to_owned()));
            }
        } else {
            self.digits()?;
        }
        if self.skip_if(b".") {
            self.digits()?;
        }
        let has_exponent = self.skip_if(b"eE");
        if has_exponent {
            self.skip_if(b"+-");
            self.digits()?;
        }
        // 10^300 fits a double, so only an exponent or very many digits can exceed it.
        let number = &self.bytes[start..self.at];
        if (has_exponent || number.len() > 300) && serde_json::from_slice::<f64>(number).is_err() {
            self.at = start;
            return Err(self.syntax("expected a number within the range of a double (RFC 7493)".to_owned()));
        }
        Ok(())
    }

    fn digits(&mut self) -> ScanResult<()> {
        let rest = &self.bytes[self.at..];
        match rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len()) {
            0 => Err(self.expected("a digit")),
            length => {
                self.at += length;
                Ok(())
            }
        }
    }

    fn literal(&mut self, word: &str) -> ScanResult<()> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(self.expected("a value"));
        }
        self.at += word.len();
        Ok(())
    }

    #[inline]
    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    fn skip_if(&mut self, any_of: &[u8]) -> bool {
        let found = self.peek().is_some_and(|byte| any_of.contains(&byte));
        self.at += usize::from(found);
        found
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// The bytes of a key, to compare: checking that they are characters costs more than comparing them.
    fn key_bytes(&self, key: &ObjectKey) -> &[u8] {
        let text = if key.escaped { self.unescaped.as_bytes() } else { self.bytes };
        &text[key.text.clone()]
    }

    fn key_text(&self, key: &ObjectKey) -> &str {
        str::from_utf8(self.key_bytes(key)).expect(CHECKED_UTF8)
    }

    fn expected(&self, what: &str) -> Box<JsonError> {
        self.syntax(format!("expected {what}, found {}", self.found()))
    }

    fn expected_between(&self, what: &str) -> Box<JsonError> {
        self.flaw(
            JsonErrorKind::Syntax,
            &ErrorScope::Container,
            format!("expected {what}, found {}", self.found()),
        )
    }

    fn syntax(&self, message: String) -> Box<JsonError> {
        self.flaw(JsonErrorKind::Syntax, &ErrorScope::Value, message)
    }

    fn flaw(&self, kind: JsonErrorKind, inside: &ErrorScope, message: String) -> Box<JsonError> {
        Box::new(JsonError { offset: self.at, pointer: self.pointer(inside), kind, message })
    }

    fn found(&self) -> String {
        // The offset can be inside a character only if the input is ASCII so far.
        match str::from_utf8(&self.bytes[self.at..]).ok().and_then(|rest| rest.chars().next()) {
            None => "the end".to_owned(),
            Some(character) if character.is_ascii_graphic() => format!("`{character}`"),
            Some(character) => format!("U+{:04X}", u32::from(character)),
        }
    }

    fn pointer(&self, inside: &ErrorScope) -> String {
        let mut pointer = String::new();
        for (level, container) in self.open.iter().enumerate() {
            let innermost = level + 1 == self.open.len();
            if innermost && matches!(inside, ErrorScope::Container) {
                break;
            }
            if container.is_object {
                let end = self.open.get(level + 1).map_or(self.keys.len(), |inner| inner.keys);
                if let Some(key) = self.keys[container.keys..end].last() {
                    pointer::push_key(&mut pointer, self.key_text(key));
                }
            } else {
                pointer::push_index(&mut pointer, container.index);
            }
        }
        pointer
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::plain_length;

    proptest! {
        #[test]
        fn plain_bytes_end_at_the_first_special_one(
            bytes in prop::collection::vec(prop_oneof![8 => 0x20..=0xff_u8, 1 => any::<u8>()], 0..40),
        ) {
            let expected = bytes.iter().position(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\');
            prop_assert_eq!(plain_length(&bytes), expected.unwrap_or(bytes.len()));
        }
    }
}
