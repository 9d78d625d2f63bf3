//! Patterns of words, such as keys, that may follow an escape directly.
//!
//! Text that holds escaped text, such as JSON in a log line, has `\n` where the inner text has a line break. Then the `n` touches
//! the next word, which has no word boundary. What precedes a word is looked at after the word was found: a search that begins with
//! one of a few texts is many times as fast.

use std::ops::Range;

use hookgate_sdk::window::{AnswerText, SafeCut};
use regex::Regex;

use super::TextPattern;

/// An escape of JSON, of a programming language or of a URL, or a terminal's colour code.
const ESCAPE: &str = r"(?:\\(?:[bfnrt]|u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2})|%[0-9A-Fa-f]{2}|\[[0-9;:]{0,24}[mK])";

/// The most digits of an escape that isn't a colour code.
const MAX_ESCAPE_DIGITS: usize = 4;

/// A pattern of a word that begins with a letter or a digit.
#[derive(Debug)]
pub(crate) struct WordPattern {
    word: TextPattern,
    /// The word behind what may precede it.
    whole: Regex,
}

impl WordPattern {
    /// Compiles the pattern of a word. If it has a group `key`, that is what is found.
    pub(crate) fn new(word: &str) -> Self {
        let whole = format!(r"{}(?<word>{word})", word_start());
        WordPattern {
            word: TextPattern::own(word),
            whole: Regex::new(&whole).expect("the pattern is a constant that the tests compile"),
        }
    }

    /// The words in a text, in order.
    pub(crate) fn find_all(&self, text: &AnswerText<'_>, cut: &mut SafeCut) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        for word in self.word.find_all(text, cut) {
            if is_word_start(text.text(), word.start) {
                found.push(self.key_in(text.text(), word));
            } else {
                self.find_within(text.text(), word, &mut found);
            }
        }
        found
    }

    /// The words within a match that is none itself, because it doesn't begin where a word may. Its first characters may belong to an
    /// escape.
    fn find_within(&self, text: &str, found: Range<usize>, words: &mut Vec<Range<usize>>) {
        let mut at = text.floor_char_boundary(found.start.saturating_sub(MAX_ESCAPE_DIGITS + 2));
        let text = &text[..found.end];
        while let Some(word) = self.whole.captures_at(text, at).and_then(|captures| captures.name("word")) {
            if word.start() > found.start {
                words.push(self.key_in(text, word.range()));
            }
            at = word.end();
        }
    }

    fn key_in(&self, text: &str, word: Range<usize>) -> Range<usize> {
        if self.word.captures_len() == 1 {
            return word;
        }
        let captures = self.word.captures_at(text, word.start);
        captures.and_then(|captures| Some(captures.name("key")?.range())).unwrap_or(word)
    }
}

/// Where a word may begin. Boundaries are ASCII: with Unicode boundaries, a key after `é` would not match.
pub(crate) fn word_start() -> String {
    format!(r"(?:(?-u:\b)|_|{ESCAPE})")
}

/// Whether a word may begin at a letter or a digit. The same as [`word_start`].
pub(crate) fn is_word_start(text: &str, at: usize) -> bool {
    let before = &text.as_bytes()[..at];
    before.last().is_none_or(|byte| !byte.is_ascii_alphanumeric()) || escape_length(before) > 0
}

/// The length of the escape at the end of a text.
pub(crate) fn escape_length(text: &[u8]) -> usize {
    let ends_with_digits = |mark: &[u8], count: usize| {
        text.split_at_checked(text.len().saturating_sub(count)).is_some_and(|(before, digits)| {
            before.ends_with(mark) && digits.iter().all(u8::is_ascii_hexdigit)
        })
    };
    match text {
        [.., b'\\', b'b' | b'f' | b'n' | b'r' | b't'] => 2,
        _ if ends_with_digits(b"\\u", 4) => 6,
        _ if ends_with_digits(b"\\x", 2) => 4,
        _ if ends_with_digits(b"%", 2) => 3,
        [colour @ .., b'm' | b'K'] => {
            let is_part = |byte: &&u8| byte.is_ascii_digit() || b";:".contains(byte);
            let length = colour.iter().rev().take(24).take_while(is_part).count();
            if colour[..colour.len() - length].ends_with(b"[") { length + 2 } else { 0 }
        }
        _ => 0,
    }
}

/// A run of letters and digits without the rest of an escape that it begins with, such as `n` behind a backslash.
pub(crate) fn without_escape(text: &str, run: Range<usize>) -> Range<usize> {
    let bytes = text.as_bytes();
    let is_end = |length: &usize| {
        let end = run.start + length;
        end <= run.end && escape_length(&bytes[..end]) > *length
    };
    // Of a colour code, several digits may be in the run.
    let length = (1..=6).rev().find(is_end).unwrap_or(0);
    run.start + length..run.end
}
