//! A pattern that is searched in whole texts, and in windows of an answer.

use std::{
    ops::{Deref, Range},
    sync::OnceLock,
};

use hookgate_sdk::window::{AnswerText, SafeCut, WindowMatches, WindowPattern};
use regex::Regex;

/// A regular expression; dereferences to the one for whole texts. The one for windows is compiled when it is first needed.
#[derive(Debug)]
pub(crate) struct TextPattern {
    regex: Regex,
    windows: OnceLock<Option<WindowPattern>>,
}

impl TextPattern {
    /// Compiles a pattern of this crate.
    pub(crate) fn own(text: &str) -> Self {
        Regex::new(text).expect("the pattern is a constant that the tests compile").into()
    }

    /// Its matches in the text, none of which may be cut.
    pub(crate) fn find_all(&self, text: &AnswerText<'_>, cut: &mut SafeCut) -> Vec<Range<usize>> {
        if text.is_last() && text.start() == 0 {
            return self.regex.find_iter(text.text()).map(|found| found.range()).collect();
        }
        let pattern = self.windows.get_or_init(|| WindowPattern::new(self.regex.as_str()).ok());
        let nothing = || WindowMatches { ranges: Vec::new(), open: text.start() };
        // A pattern without groups is never larger than the same one with groups, which was within its limit. If it were, nothing
        // would pass before the answer's end.
        let WindowMatches { ranges, open } =
            pattern.as_ref().map_or_else(nothing, |pattern| pattern.find(text));
        cut.hold_from(open);
        ranges.iter().for_each(|range| cut.keep_whole(range.clone()));
        ranges
    }
}

impl From<Regex> for TextPattern {
    fn from(regex: Regex) -> Self {
        TextPattern { regex, windows: OnceLock::new() }
    }
}

impl Deref for TextPattern {
    type Target = Regex;

    fn deref(&self) -> &Regex {
        &self.regex
    }
}
