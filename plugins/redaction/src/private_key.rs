//! Finds private keys in PEM or OpenPGP armor, from the first line to the last.
//!
//! A key whose last line is missing, such as one in a text that was cut, reaches as far as its lines do. One pattern
//! for the whole block would search for the last line from each first line to the end of the text.

use std::{ops::Range, sync::LazyLock};

use hookgate_sdk::window::{AnswerText, SafeCut};

use super::{Ranges, TextPattern};

static BEGIN_PATTERN: LazyLock<TextPattern> =
    LazyLock::new(|| TextPattern::own("-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"));

static END_PATTERN: LazyLock<TextPattern> =
    LazyLock::new(|| TextPattern::own("-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"));

/// Headers and base64. In a JSON text within a string, a line break is `\n`.
static LINES_PATTERN: LazyLock<TextPattern> =
    LazyLock::new(|| TextPattern::own(r"^(?:(?:\s|\\+[nr])+(?:[A-Za-z-]+: [^\n\\]*|[A-Za-z0-9+/=]{16,}))+"));

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

/// The keys in a window. Only its last line, the next key or the answer's end says how far a key reaches.
pub(crate) fn find_in_window(text: &AnswerText<'_>, cut: &mut SafeCut) -> Vec<Range<usize>> {
    let begins = BEGIN_PATTERN.find_in_window(text, cut);
    let mut found = Vec::new();
    for (index, begin) in begins.iter().enumerate() {
        let next = begins.get(index + 1).map(|next| next.start);
        let rest = &text.text()[begin.end..next.unwrap_or(text.text().len())];
        let body = match END_PATTERN.find(rest) {
            None if next.is_none() && !text.is_last() => {
                cut.hold_from(begin.start);
                continue;
            }
            None => LINES_PATTERN.find(rest),
            end => end,
        };
        found.extend(body.map(|body| begin.start..begin.end + body.end()));
    }
    found.iter().for_each(|key| cut.keep_whole(key.clone()));
    found
}
