//! Finds private keys in PEM or OpenPGP armor, from the first line to the last.
//!
//! A key whose last line is missing, such as one in a text that was cut, reaches as far as its lines do. One pattern
//! for the whole block would search for the last line from each first line to the end of the text.

use std::sync::LazyLock;

use regex::Regex;

use super::Ranges;

static BEGIN_PATTERN: LazyLock<Regex> =
    LazyLock::new(|| super::own_pattern("-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"));

static END_PATTERN: LazyLock<Regex> =
    LazyLock::new(|| super::own_pattern("-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"));

/// Headers and base64. In a JSON text within a string, a line break is `\n`.
static LINES_PATTERN: LazyLock<Regex> = LazyLock::new(|| {
    super::own_pattern(r"^(?:(?:\s|\\+[nr])+(?:[A-Za-z-]+: [^\n\\]*|[A-Za-z0-9+/=]{16,}))+")
});

pub(crate) fn find(text: &str) -> Ranges<'_> {
    let mut begins = BEGIN_PATTERN.find_iter(text).peekable();
    let blocks = std::iter::from_fn(move || {
        let begin = begins.next()?;
        let limit = begins.peek().map_or(text.len(), |next| next.start());
        let rest = &text[begin.end()..limit];
        let body = END_PATTERN.find(rest).or_else(|| LINES_PATTERN.find(rest));
        Some(body.map(|body| begin.start()..begin.end() + body.end()))
    });
    Box::new(blocks.flatten())
}
