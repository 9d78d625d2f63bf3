//! JSON text as Hookgate takes it: checked in one pass, never turned into a tree.
//!
//! [`scan`] decides whether bytes are one JSON value (RFC 8259) that every reader behind the gateway
//! understands in the same way: no repeated key, bounded depth, no lone surrogate, no number beyond a double.
//! What it accepts is exactly what `serde_json::Value` accepts, less repeated keys and too deep nesting.
//! [`members`] and [`elements`] then walk accepted text without copying it. Nothing here recurses, so no
//! input can exhaust the stack. This module must not know what the JSON means or where it came from.

use std::fmt;

pub mod pointer;
mod scanner;
#[cfg(test)]
mod tests;
mod walk;
mod word;

pub use walk::{Elements, Members, elements, members, unescape};

/// Maximum nesting of a JSON value, counted from its own root (docs/protocol.md, section 1). Arrays and
/// objects count, so `1` has depth 0 and `[[]]` has depth 2.
pub const MAX_DEPTH: usize = 64;

/// How many flaws [`scan_all`] lists at most.
pub const MAX_ERRORS: usize = 32;

/// The type of a JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// `{...}`
    Object,
    /// `[...]`
    Array,
    /// `"..."`
    String,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// `null`
    Null,
}

impl ValueKind {
    /// The type of the value that `text` begins with after white space, judged by its first byte.
    pub fn from_text(text: &[u8]) -> Option<ValueKind> {
        match text.iter().find(|byte| !byte.is_ascii_whitespace())? {
            b'{' => Some(ValueKind::Object),
            b'[' => Some(ValueKind::Array),
            b'"' => Some(ValueKind::String),
            b'-' | b'0'..=b'9' => Some(ValueKind::Number),
            b't' | b'f' => Some(ValueKind::Boolean),
            b'n' => Some(ValueKind::Null),
            _ => None,
        }
    }
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ValueKind::Object => "an object",
            ValueKind::Array => "an array",
            ValueKind::String => "a string",
            ValueKind::Number => "a number",
            ValueKind::Boolean => "a boolean",
            ValueKind::Null => "null",
        })
    }
}

/// Which rule a text breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonErrorKind {
    /// Not UTF-8.
    Encoding,
    /// Not JSON, or more than one value.
    Syntax,
    /// Nested deeper than allowed.
    TooDeep,
    /// An object holds a key twice (compared after unescaping).
    DuplicateKey,
}

/// Why a text is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError {
    /// Byte offset of the flaw.
    pub offset: usize,
    /// JSON pointer (RFC 6901) to the value with the flaw, or to the repeated member.
    pub pointer: String,
    /// The broken rule.
    pub kind: JsonErrorKind,
    /// The flaw without its place, as half a sentence: "expected a value, found `}`".
    pub message: String,
}

impl JsonError {
    /// Line and column (in characters) of the flaw in `text`, both counted from 1.
    pub fn position(&self, text: &[u8]) -> (usize, usize) {
        let before = text.get(..self.offset).unwrap_or(text);
        let line_start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
        let lines = before.iter().filter(|&&byte| byte == b'\n').count();
        // Every byte of a character but its first is 0b10xx_xxxx.
        let characters = before[line_start..].iter().filter(|&&byte| byte & 0xc0 != 0x80).count();
        (lines + 1, characters + 1)
    }
}

/// Checks that `bytes` are one JSON value, at most `max_depth` deep and without repeated keys, and returns
/// the type of the root. One pass; keeps nothing but the keys of the open objects.
///
/// # Errors
/// The first flaw.
pub fn scan(bytes: &[u8], max_depth: usize) -> Result<ValueKind, JsonError> {
    scan_all(bytes, max_depth).map_err(|mut flaws| flaws.swap_remove(0))
}

/// Like [`scan`], but continues after repeated keys.
///
/// # Errors
/// At least one flaw and at most [`MAX_ERRORS`], in the order found. If all of them are
/// [`JsonErrorKind::DuplicateKey`], the text is JSON, and [`members`] and [`elements`] can walk it.
pub fn scan_all(bytes: &[u8], max_depth: usize) -> Result<ValueKind, Vec<JsonError>> {
    scanner::run(bytes, max_depth)
}
