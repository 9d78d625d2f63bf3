//! Applies rules to a text: what they find, and the text with masks instead.

use std::{borrow::Cow, ops::Range, sync::Arc, thread};

use hookgate_sdk::{
    Deadline,
    window::{AnswerText, SafeCut},
};
use regex::Regex;

use super::{Detector, FoundInWindow, Text, TextKind, TextPattern};

/// What replaces a match if the replacement is too long for the payload; fewer of them for a shorter match.
const SHORT_MASK: &str = "***";

/// The shortest text in which a detector finds anything: an address such as `a@b.cc`.
const MIN_DETECTED_BYTES: usize = 6;

/// From this length on, a search takes long enough to delay other threads.
const LONG_TEXT_BYTES: usize = 64 << 10;

/// What to find, and what replaces it.
#[derive(Debug)]
pub struct Rule {
    name: Cow<'static, str>,
    finder: Finder,
}

#[derive(Debug)]
enum Finder {
    Detector(Detector),
    Pattern { pattern: TextPattern, replacement: String },
}

impl Rule {
    /// A rule from the settings. The replacement is literal.
    pub fn from_pattern(name: String, regex: Regex, replacement: String) -> Self {
        Rule { name: name.into(), finder: Finder::Pattern { pattern: regex.into(), replacement } }
    }

    /// The detector's name, or that from the settings.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn find(&self, text: &str, member: Option<&str>, deadline: Deadline) -> Vec<Range<usize>> {
        match &self.finder {
            Finder::Detector(_) if text.len() < MIN_DETECTED_BYTES => Vec::new(),
            Finder::Detector(detector) => detector.find(text, member),
            Finder::Pattern { pattern, .. } => {
                let ranges = pattern.find_iter(text).map(|found| found.range());
                ranges.take_while(|_| !deadline.has_passed()).filter(|range| !range.is_empty()).collect()
            }
        }
    }

    fn find_in_window(&self, text: &AnswerText<'_>, cut: &mut SafeCut) -> Vec<Range<usize>> {
        match &self.finder {
            Finder::Detector(detector) => detector.find_all(text, None, cut),
            Finder::Pattern { pattern, .. } => pattern.find_all(text, cut),
        }
    }

    fn mask(&self, found: &str, must_fit: bool) -> &str {
        match &self.finder {
            Finder::Detector(detector) => detector.mask(found),
            Finder::Pattern { replacement, .. } if must_fit && length_in_json(replacement) > found.len() => {
                &SHORT_MASK[..found.len().min(SHORT_MASK.len())]
            }
            Finder::Pattern { replacement, .. } => replacement,
        }
    }
}

/// The bytes of a text in JSON. Its escapes have at most six.
fn length_in_json(text: &str) -> usize {
    let is_escaped = |byte: &u8| byte.is_ascii_control() || b"\"\\".contains(byte);
    text.len() + 5 * text.bytes().filter(is_escaped).count()
}

impl From<Detector> for Rule {
    fn from(detector: Detector) -> Self {
        Rule { name: detector.name().into(), finder: Finder::Detector(detector) }
    }
}

/// Rules that are applied together.
///
/// Every rule sees the original text. Matches that overlap become one, so that nothing of either stays visible. It
/// counts for the rule whose match begins first, or else for the earlier rule.
#[derive(Debug, Clone, Default)]
pub struct Redactor {
    rules: Vec<Arc<Rule>>,
    must_fit: bool,
    deadline: Deadline,
}

/// A part of a text that a rule found.
#[derive(Debug, Clone)]
pub struct Match<'r> {
    rule: &'r Rule,
    range: Range<usize>,
}

impl<'r> Match<'r> {
    /// Where it is in the text.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// The name of the rule.
    pub fn name(&self) -> &'r str {
        self.rule.name()
    }

    fn is_of(&self, wanted: Detector) -> bool {
        matches!(self.rule.finder, Finder::Detector(detector) if detector == wanted)
    }
}

/// A text after redaction, and what was found in it.
#[derive(Debug, Clone)]
pub struct Redaction<'t, 'r> {
    /// The text; borrowed if nothing was found.
    pub text: Cow<'t, str>,
    /// What was found, in order.
    pub found: Vec<Match<'r>>,
}

impl Redaction<'_, '_> {
    /// Whether anything was found.
    pub fn is_changed(&self) -> bool {
        !self.found.is_empty()
    }

    /// How many matches count for the detector.
    pub fn count(&self, detector: Detector) -> usize {
        self.found.iter().filter(|found| found.name() == detector.name()).count()
    }
}

impl<R: Into<Rule>> FromIterator<R> for Redactor {
    fn from_iter<I: IntoIterator<Item = R>>(rules: I) -> Self {
        let rules = rules.into_iter().map(|rule| Arc::new(rule.into())).collect();
        Redactor { rules, ..Redactor::default() }
    }
}

impl Redactor {
    /// Adds the rules of `more`, after its own.
    #[must_use]
    pub fn with(&self, more: &Redactor) -> Redactor {
        Redactor { rules: self.rules.iter().chain(&more.rules).cloned().collect(), ..*self }
    }

    /// Never makes a text longer: asterisks stand for a replacement that is longer than its match.
    #[must_use]
    pub fn that_fits(self) -> Redactor {
        Redactor { must_fit: true, ..self }
    }

    /// A search ends at the deadline of the call, whatever is found by then: the SDK sends no answer after it. A search for one match
    /// is linear and isn't ended.
    #[must_use]
    pub fn until(self, deadline: Deadline) -> Redactor {
        Redactor { deadline, ..self }
    }

    /// Whether it has no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// What the rules find, in order and without overlaps. `member` is the name of the JSON member whose value the
    /// text is.
    pub fn find(&self, text: &str, member: Option<&str>) -> Vec<Match<'_>> {
        self.find_by(|_| true, text, member)
    }

    fn find_by(&self, is_applied: fn(&Rule) -> bool, text: &str, member: Option<&str>) -> Vec<Match<'_>> {
        let deadline = self.deadline;
        let rules = self.rules.iter().filter(|rule| is_applied(rule));
        let matches = rules.take_while(|_| !deadline.has_passed()).flat_map(|rule| {
            give_way(text);
            rule.find(text, member, deadline).into_iter().map(move |range| Match { rule, range })
        });
        merged(matches.collect())
    }

    /// What the rules find in a text of a payload. In a number only detectors search: a pattern may be about any digits, and tools need
    /// numbers as they are.
    pub fn find_in(&self, text: &Text<'_>) -> Vec<Match<'_>> {
        let is_applied = match text.kind {
            TextKind::Number => |rule: &Rule| matches!(rule.finder, Finder::Detector(_)),
            TextKind::Value | TextKind::Name => |_: &Rule| true,
        };
        self.find_by(is_applied, text.text, text.label())
    }

    /// Why a plugin that replaces what the rules find blocks a [fixed](Text::is_fixed) text: what they find first.
    pub fn fault_in(&self, text: &Text<'_>) -> Option<String> {
        let found = self.find_in(text);
        let name = found.first()?.name();
        Some(format!("`{}` contains what can't be replaced there: {name}", text.field()))
    }

    /// What the rules find in a window of an answer, up to where the answer may be cut. What they find in all windows is what they
    /// find in the whole answer.
    pub fn find_in_window(&self, text: &AnswerText<'_>) -> FoundInWindow<'_> {
        let (mut cut, mut matches) = (SafeCut::new(text), Vec::new());
        for rule in &self.rules {
            give_way(text.text());
            let found = rule.find_in_window(text, &mut cut);
            matches.extend(found.into_iter().map(|range| Match { rule, range }));
        }
        FoundInWindow::new(merged(matches), cut)
    }

    /// Replaces what the rules find.
    pub fn redact<'t>(&self, text: &'t str, member: Option<&str>) -> Redaction<'t, '_> {
        let found = self.find(text, member);
        let text = if found.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(self.mask(text, &found)) };
        Redaction { text, found }
    }

    /// What replaces a match in the text.
    pub fn mask_of<'r>(&self, text: &str, found: &Match<'r>) -> &'r str {
        found.rule.mask(&text[found.range.clone()], self.must_fit)
    }

    /// Replaces what [`Redactor::find`] found in the text.
    pub fn mask(&self, text: &str, found: &[Match<'_>]) -> String {
        let (mut masked, mut end) = (String::with_capacity(text.len()), 0);
        for found in found {
            masked.push_str(&text[end..found.range.start]);
            masked.push_str(self.mask_of(text, found));
            end = found.range.end;
        }
        masked.push_str(&text[end..]);
        masked
    }
}

/// Lets other threads run before the next rule searches a long text. A gateway's worker may wait for the core.
fn give_way(text: &str) {
    if text.len() >= LONG_TEXT_BYTES {
        thread::yield_now();
    }
}

/// The matches in order. Those that overlap are one.
fn merged(mut matches: Vec<Match<'_>>) -> Vec<Match<'_>> {
    matches.sort_by_key(|found| found.range.start); // stable: the earlier rule stays first
    let mut merged: Vec<Match<'_>> = Vec::with_capacity(matches.len());
    for found in matches {
        match merged.last_mut() {
            // The host of a URL whose password looks like the name of an address stays.
            Some(last)
                if found.range.start < last.range.end
                    && last.is_of(Detector::UrlPassword)
                    && found.is_of(Detector::Email) => {}
            Some(last) if found.range.start < last.range.end => {
                last.range.end = last.range.end.max(found.range.end);
            }
            _ => merged.push(found),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use hookgate_sdk::proto::plugin::v1::ResponseWindow;

    use super::*;
    use crate::compile_pattern;

    fn pattern(name: &str, regex: &str, replacement: &str) -> Rule {
        Rule::from_pattern(name.to_owned(), compile_pattern(regex).unwrap(), replacement.to_owned())
    }

    fn names<'r>(redaction: &Redaction<'_, 'r>) -> Vec<&'r str> {
        redaction.found.iter().map(Match::name).collect()
    }

    #[test]
    fn overlapping_matches_become_one() {
        let rules =
            [pattern("first", "abc", "1"), pattern("second", "bcde", "2"), pattern("third", "ab", "3")];
        let redactor: Redactor = rules.into_iter().collect();
        let redaction = redactor.redact("-abcde-bcde-ab", None);
        assert_eq!(redaction.text, "-1-2-3");
        assert_eq!(names(&redaction), ["first", "second", "third"]);
        assert_eq!(redactor.redact("-", None).text, "-");
    }

    #[test]
    fn a_rule_added_later_sees_the_original_text() {
        let own: Redactor = [pattern("mask", "EMAIL|DACT", "-")].into_iter().collect();
        let redactor = Redactor::from_iter([Detector::Email]).with(&own);
        let redaction = redactor.redact("ada@example.com EMAIL", None);
        assert_eq!((redaction.text.as_ref(), names(&redaction)), ("[EMAIL] -", vec!["email", "mask"]));
    }

    #[test]
    fn a_replacement_is_literal_and_may_be_longer_unless_it_must_fit() {
        let redactor: Redactor = [pattern("id", r"E(\d+)", "[$1 employee]")].into_iter().collect();
        assert_eq!(redactor.redact("E1 E12345678901234", None).text, "[$1 employee] [$1 employee]");
        assert_eq!(redactor.that_fits().redact("E1 E12345678901234", None).text, "** [$1 employee]");
    }

    #[test]
    fn a_search_that_would_take_minutes_ends_at_its_deadline() {
        let redactor: Redactor = [pattern("slow", "a.*z|a", "-")].into_iter().collect();
        let deadline = Deadline::from(Instant::now() + Duration::from_millis(10));
        let text = "a ".repeat(1 << 20);
        assert!(redactor.clone().until(deadline).find(&text, None).len() < 1 << 20);
        let window = ResponseWindow { offset: 0, last: false, ..ResponseWindow::default() };
        let text = AnswerText::windowed(&window, &text).until(deadline);
        let found = redactor.find_in_window(&text);
        assert_eq!((found.found.len(), found.cut), (0, 0));
    }

    #[test]
    fn no_mask_has_more_characters_than_its_match() {
        assert_eq!(Redactor::from_iter([Detector::Email]).redact("ö@a.aé", None).text, "[MAIL]");
    }

    #[test]
    fn empty_matches_are_none() {
        let redactor: Redactor = [pattern("edge", r"\b", "-")].into_iter().collect();
        assert!(!redactor.redact("a b", None).is_changed());
    }
}
