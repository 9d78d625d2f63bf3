//! What rules find in a window of an answer, and answers that may turn out to be JSON.

use hookgate_sdk::window::{AnswerText, SafeCut};
use serde::de::IgnoredAny;

use super::Match;

/// What rules find in a window of an answer.
#[derive(Debug, Clone)]
pub struct FoundInWindow<'r> {
    /// What was found before the cut, in order and without overlaps.
    pub found: Vec<Match<'r>>,
    /// Where the answer may be cut, in the window's [`text`](hookgate_sdk::window::AnswerText::text).
    pub cut: usize,
    safe: SafeCut,
}

impl<'r> FoundInWindow<'r> {
    /// Nothing of the window may pass yet.
    pub fn hold(text: &AnswerText<'_>) -> Self {
        let mut safe = SafeCut::new(text);
        safe.hold_from(text.start());
        FoundInWindow::new(Vec::new(), safe)
    }

    /// `found` is in order and without overlaps.
    pub(crate) fn new(mut found: Vec<Match<'r>>, safe: SafeCut) -> Self {
        let cut = safe.clone().position();
        found.retain(|found| found.range().end <= cut);
        FoundInWindow { found, cut, safe }
    }

    /// Only what is before the first match. What makes it a match, such as a label, stays with it.
    #[must_use]
    pub fn before_matches(mut self) -> Self {
        if let Some(first) = self.found.first() {
            self.safe.hold_from(first.range().start);
        }
        FoundInWindow::new(Vec::new(), self.safe)
    }
}

/// Whether a text with this beginning may be a JSON object or array, in which a string's name may say what the string is.
pub fn may_become_json(beginning: &str) -> bool {
    match beginning.trim_start().chars().next() {
        None => return true,
        Some('{' | '[') => {}
        Some(_) => return false,
    }
    // Half a number is a mistake, and not an early end.
    let is_of_number = |char: char| char.is_ascii_digit() || "+-.eE".contains(char);
    match serde_json::from_str::<IgnoredAny>(beginning.trim_end_matches(is_of_number)) {
        Ok(IgnoredAny) => true,
        Err(error) => error.is_eof(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_beginning_of_json_may_become_json() {
        for json in [
            "\n {\"a\": [1, -2.5e-3, 1E+2, 0.1, true, null, \"é\\u00e9\\n\\\"\"], \"b\": {}} \n",
            "[[], [[]], {\"x\": false}]",
        ] {
            for (at, _) in json.char_indices() {
                assert!(may_become_json(&json[..at]), "{}", &json[..at]);
            }
        }
        for text in ["a", "[link](x)", "{x", "[1] a", "{}x", "\u{a0}[1]", "\"a\"", "[1,]"] {
            assert!(!may_become_json(text), "{text}");
        }
    }
}
