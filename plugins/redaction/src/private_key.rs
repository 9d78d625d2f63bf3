//! Finds private keys in PEM or OpenPGP armor, from the first line to the last.
//!
//! A key whose last line is missing, such as one in a text that was cut, reaches as far as its lines do. One pattern
//! for the whole block would search for the last line from each first line to the end of the text.

use std::{ops::Range, sync::LazyLock};

use hookgate_sdk::window::{AnswerText, SafeCut};

use super::TextPattern;

static BEGIN_PATTERN: LazyLock<TextPattern> =
    LazyLock::new(|| TextPattern::own("-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"));

static END_PATTERN: LazyLock<TextPattern> =
    LazyLock::new(|| TextPattern::own("-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"));

/// Headers and base64. In a JSON text within a string, a line break is `\n`.
static LINES_PATTERN: LazyLock<TextPattern> =
    LazyLock::new(|| TextPattern::own(r"^(?:(?:\s|\\+[nr])+(?:[A-Za-z-]+: [^\n\\]*|[A-Za-z0-9+/=]{16,}))+"));

/// The last line, which may be short. It is nothing but base64, so that no sentence behind a key is a part of it.
static SHORT_LINE_PATTERN: LazyLock<TextPattern> = LazyLock::new(|| {
    TextPattern::own(
        r#"(?x)
        ^ (?: \r\n? | \\+r(?:\\+n)? | \n | \\+n ) [\x20\t]*
        (?<line> [A-Za-z0-9+/]{1,15} ={0,2} )
        [\x20\t]* (?: [\r\n"'`\\] | $ )"#,
    )
});

/// The length of a key's lines at the beginning of `rest`, if there are any.
fn lines_length(rest: &str) -> Option<usize> {
    let length = LINES_PATTERN.find(rest)?.end();
    let last = SHORT_LINE_PATTERN.captures(&rest[length..]).and_then(|last| last.name("line"));
    Some(length + last.map_or(0, |line| line.end()))
}

/// The keys in a text. In a window, only its last line, the next key or the answer's end says how far a key reaches.
pub(crate) fn find_all(text: &AnswerText<'_>, cut: &mut SafeCut) -> Vec<Range<usize>> {
    let begins = BEGIN_PATTERN.find_all(text, cut);
    let mut found = Vec::new();
    for (index, begin) in begins.iter().enumerate() {
        let next = begins.get(index + 1).map(|next| next.start);
        let rest = &text.text()[begin.end..next.unwrap_or(text.text().len())];
        let length = match END_PATTERN.find(rest) {
            None if next.is_none() && !text.is_last() => {
                cut.hold_from(begin.start);
                continue;
            }
            None => lines_length(rest),
            Some(end) => Some(end.end()),
        };
        found.extend(length.map(|length| begin.start..begin.end + length));
    }
    found.iter().for_each(|key| cut.keep_whole(key.clone()));
    found
}
