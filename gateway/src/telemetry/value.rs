//! Limits the length of values in log lines and escapes their characters, for standard error, events and
//! OTLP. Log lines contain text from plugins and agents, which has no limits of its own.

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
};

/// Longest value of a field, in bytes. The rest is cut, and a mark says so.
pub(super) const MAX_VALUE_BYTES: usize = 8 << 10;
/// Longest line, in bytes.
pub(super) const MAX_LINE_BYTES: usize = 64 << 10;

/// The longest prefix of `text` with at most `most` bytes.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// `text`, limited to the length of a value.
pub(super) fn bounded(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_VALUE_BYTES { text.into() } else { displayed(&text).into() }
}

/// `value` as displayed, limited to the length of a value. Never keeps more than that in memory.
pub(super) fn displayed(value: &dyn fmt::Display) -> String {
    let mut prefix = TruncatedText::default();
    // If displaying fails, the value ends at that point.
    let _ = write!(prefix, "{value}");
    prefix.marked()
}

/// The beginning of a text, and its total length.
#[derive(Default)]
struct TruncatedText {
    text: String,
    bytes: usize,
}

impl TruncatedText {
    fn marked(mut self) -> String {
        if self.bytes > self.text.len() {
            self.text += &mark(self.bytes);
        }
        self.text
    }
}

impl fmt::Write for TruncatedText {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.bytes == self.text.len() {
            self.text += cut(part, MAX_VALUE_BYTES - self.text.len());
        }
        self.bytes += part.len();
        Ok(())
    }
}

/// The mark at the end of a text that was cut. `bytes` is the length of the whole text.
fn mark(bytes: usize) -> String {
    format!("… (cut: {bytes} bytes)")
}

/// A line that is too long, cut, with the mark and a newline.
pub(super) fn cut_line(line: &[u8]) -> Vec<u8> {
    let end = format!("{}\n", mark(line.len()));
    let text = String::from_utf8_lossy(&line[..MAX_LINE_BYTES - end.len()]);
    [text.as_bytes(), end.as_bytes()].concat()
}

/// Whether a terminal could interpret `c` as a command, or show the surrounding text in another order or on
/// another line.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Equivalent JSON without such characters, which occur only within its strings.
pub(super) fn escaped_json(json: &str) -> Cow<'_, str> {
    escaped(json, |c| format!("\\u{:04x}", u32::from(c)))
}

/// `text` for a line that people read.
pub(super) fn escaped_text(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c.escape_default().to_string())
}

fn escaped(text: &str, escape: impl Fn(char) -> String) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_control(c) {
            escaped += &escape(c);
        } else {
            escaped.push(c);
        }
    }
    escaped.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_value_within_the_bound_stays_and_a_longer_one_says_that_it_was_cut() {
        let fits = "x".repeat(MAX_VALUE_BYTES);
        assert_eq!(bounded(&fits), fits);
        assert_eq!(displayed(&fits), fits);
        let long = "ü".repeat(MAX_VALUE_BYTES);
        let expected = format!("{}… (cut: {} bytes)", "ü".repeat(MAX_VALUE_BYTES / 2), 2 * MAX_VALUE_BYTES);
        assert_eq!(bounded(&long), expected);
        assert_eq!(displayed(&format_args!("{}{}", "ü".repeat(MAX_VALUE_BYTES - 1), "ü")), expected);
    }

    #[test]
    fn nothing_behind_a_cut_is_taken_even_where_it_would_fit() {
        let parts = format!("{}ü", "x".repeat(MAX_VALUE_BYTES - 1));
        let value = displayed(&format_args!("{parts}{}", 'z'));
        assert!(value.starts_with(&"x".repeat(MAX_VALUE_BYTES - 1)) && !value.contains('z'));
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_to_the_bound_with_the_mark_and_its_end() {
        let line = format!("{}\n", "x".repeat(MAX_LINE_BYTES));
        let cut = String::from_utf8(cut_line(line.as_bytes())).expect("UTF-8");
        assert_eq!(cut.len(), MAX_LINE_BYTES);
        assert!(cut.ends_with("x… (cut: 65537 bytes)\n"), "{}", &cut[MAX_LINE_BYTES - 64..]);
    }

    #[test]
    fn what_people_read_has_no_control_characters() {
        let text = "a\u{1b}[31m\nb\u{9b}c\u{202e}d";
        assert_eq!(escaped_text(text), "a\\u{1b}[31m\\nb\\u{9b}c\\u{202e}d");
    }

    proptest! {
        #[test]
        fn escaped_json_says_the_same_without_control_characters(
            text in "[a-z\"\\\\\u{0}-\u{1f}\u{7f}-\u{9f}ü\u{2028}-\u{202e}\u{2066}-\u{2069}\u{200e}\u{61c}\u{1f600}]*"
        ) {
            let json = serde_json::Value::from(text.as_str()).to_string();
            let escaped = escaped_json(&json);
            prop_assert!(!escaped.contains(is_control), "{escaped}");
            prop_assert_eq!(serde_json::from_str::<String>(&escaped).expect("JSON"), text);
        }
    }
}
