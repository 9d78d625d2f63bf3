//! Patterns of words, such as keys, that may follow an escape directly.
//!
//! Text that holds escaped text, such as JSON in a log line, has `\n` where the inner text has a line break. Then the `n` touches
//! the next word, which has no word boundary. So the start is part of the pattern, and not of what is found.

use std::ops::Range;

use hookgate_sdk::window::{AnswerText, SafeCut};

use super::{Ranges, TextPattern};

/// An escape of JSON, of a programming language or of a URL, or a terminal's colour code.
pub(crate) const ESCAPE: &str =
    r"(?:\\(?:[bfnrt]|u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2})|%[0-9A-Fa-f]{2}|\[[0-9;:]{0,24}[mK])";

/// Where a word may begin. Boundaries are ASCII: with Unicode boundaries, a key after `é` would not match.
pub(crate) fn word_start() -> String {
    format!(r"(?:(?-u:\b)|_|{ESCAPE})")
}

/// A pattern of a word, and what may precede it.
#[derive(Debug)]
pub(crate) struct WordPattern {
    whole: TextPattern,
    /// The word alone. A search for it is many times as fast if it begins with one of a few texts.
    word: TextPattern,
}

impl WordPattern {
    /// Compiles `word` after `start`. Neither has a group with a name.
    pub(crate) fn new(start: &str, word: &str) -> Self {
        WordPattern {
            whole: TextPattern::own(&format!("{start}(?<word>{word})")),
            word: TextPattern::own(word),
        }
    }

    /// The words in a text, in order.
    pub(crate) fn find<'t>(&'t self, text: &'t str) -> Ranges<'t> {
        if !self.word.is_match(text) {
            return Box::new(std::iter::empty());
        }
        Box::new(self.whole.find_iter(text).map(|found| self.word_in(text, found.range())))
    }

    /// The words in a window. None is cut off what precedes it.
    pub(crate) fn find_in_window(&self, text: &AnswerText<'_>, cut: &mut SafeCut) -> Vec<Range<usize>> {
        let found = self.whole.find_in_window(text, cut);
        found.into_iter().map(|range| self.word_in(text.text(), range)).collect()
    }

    /// The word in a match.
    fn word_in(&self, text: &str, found: Range<usize>) -> Range<usize> {
        let captures = self.whole.captures_at(text, found.start);
        let start = captures.and_then(|captures| Some(captures.name("word")?.start()));
        start.unwrap_or(found.start)..found.end
    }
}
