//! Searches a regular expression in windows: it finds what a search of the whole text finds, and says from where on a match may
//! still begin or grow.
//!
//! The search runs all ways through the pattern side by side, in the order in which a search prefers them (a Pike VM). The crates
//! `regex` and `regex-automata` have faster ones, but none that says which ways are open where the text ends. So a fast one searches
//! up to where no way can be open: behind the last byte that is in no match, or further from the end than the longest match.

use std::ops::Range;

use regex_automata::{
    Input,
    meta::{self, Regex},
    nfa::thompson::{NFA, State, WhichCaptures},
    util::{primitives::StateID, syntax},
};

use super::AnswerText;

/// The largest compiled pattern, in bytes.
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// A regular expression, in the syntax of the crate `regex`, for answers that come in windows. It has no groups.
#[derive(Debug, Clone)]
pub struct WindowPattern {
    nfa: NFA,
    regex: Regex,
    /// Whether a match may begin with a byte.
    first_bytes: Box<[bool; 256]>,
    /// Whether a byte may be in a match.
    bytes: Box<[bool; 256]>,
    /// The length of the longest match.
    max_len: usize,
}

/// The pattern isn't a regular expression, or is too large.
#[derive(Debug, thiserror::Error)]
#[error("the pattern can't be compiled: {0}")]
pub struct WindowPatternError(#[from] Box<meta::BuildError>);

/// What a search found in an answer's text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WindowMatches {
    /// The matches, in order. More text doesn't change them.
    pub ranges: Vec<Range<usize>>,
    /// From here on, more text may make a match. It is the text's end if no match is open.
    pub open: usize,
}

/// A way through the pattern: the state that it has reached, and where it began.
type Thread = (StateID, usize);

impl WindowPattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// The pattern isn't a regular expression, or has more than 1 MiB when it is compiled.
    pub fn new(pattern: &str) -> Result<Self, WindowPatternError> {
        let config =
            Regex::config().nfa_size_limit(Some(MAX_COMPILED_BYTES)).which_captures(WhichCaptures::Implicit);
        let regex = Regex::builder().configure(config).build(pattern).map_err(Box::new)?;
        let config =
            NFA::config().which_captures(WhichCaptures::None).nfa_size_limit(Some(MAX_COMPILED_BYTES));
        let nfa = NFA::compiler().configure(config).build(pattern).expect("it has just been compiled");
        let (first_bytes, bytes) = (first_bytes(&nfa), bytes_in_matches(&nfa));
        let max_len = syntax::parse(pattern).ok().and_then(|pattern| pattern.properties().maximum_len());
        Ok(WindowPattern { nfa, regex, first_bytes, bytes, max_len: max_len.unwrap_or(usize::MAX) })
    }

    /// All matches in the answer's text that aren't empty, without overlaps. What a search of the whole answer finds is the same,
    /// wherever the answer is cut, if the plugin cuts no match.
    pub fn find(&self, text: &AnswerText<'_>) -> WindowMatches {
        let settled = self.settled(text);
        let search = Input::new(text.text()).range(text.start()..);
        let found = self.regex.find_iter(search).map(|found| found.range());
        let mut found: Vec<_> =
            found.take_while(|range| range.start < settled && !text.deadline.has_passed()).collect();
        let mut start = found.last().map_or(settled, |last| settled.max(last.end));
        found.retain(|range| !range.is_empty());
        while start <= text.text().len() {
            if text.deadline.has_passed() {
                return WindowMatches { ranges: Vec::new(), open: text.start() };
            }
            match self.next(text, start) {
                Search::Found(range) if range.is_empty() => start = range.end + 1,
                Search::Found(range) => {
                    start = range.end;
                    found.push(range);
                }
                Search::Open(open) => return WindowMatches { ranges: found, open },
            }
        }
        WindowMatches { ranges: found, open: text.text().len() }
    }

    /// More text changes no match that begins before this position.
    fn settled(&self, text: &AnswerText<'_>) -> usize {
        let end = text.text().len();
        if text.is_last() {
            return end;
        }
        let last = text.content().bytes().rposition(|byte| byte.is_ascii() && !self.bytes[usize::from(byte)]);
        let behind_last = last.map_or(text.start(), |last| text.start() + last + 1);
        let too_far = text.text().floor_char_boundary(end.saturating_sub(self.max_len).saturating_sub(1));
        behind_last.max(too_far)
    }

    /// The first match from `start` on, which may be empty.
    fn next(&self, text: &AnswerText<'_>, start: usize) -> Search {
        let bytes = text.text().as_bytes();
        let mut walk = Walk::new(&self.nfa, text);
        let (mut threads, mut next, mut found, mut at) = (Vec::new(), Vec::new(), None, start);
        loop {
            if threads.is_empty() {
                if let Some(range) = found {
                    return Search::Found(range);
                }
                let skipped = bytes[at..].iter().take_while(|byte| !self.first_bytes[usize::from(**byte)]);
                at += skipped.count();
                walk.begin();
            }
            if found.is_none() {
                walk.follow(self.nfa.start_anchored(), at, at, &mut threads);
            }
            let Some(&byte) = bytes.get(at) else { break };
            walk.begin();
            for &(state, began) in &threads {
                match self.nfa.state(state) {
                    State::Match { .. } => {
                        found = Some(began..at);
                        break; // the ways behind this one are worse
                    }
                    state => {
                        if let Some(to) = step(state, byte) {
                            walk.follow(to, began, at + 1, &mut next);
                        }
                    }
                }
            }
            threads.clear();
            std::mem::swap(&mut threads, &mut next);
            at += 1;
        }
        let is_match = |thread: &Thread| matches!(self.nfa.state(thread.0), State::Match { .. });
        match (threads.iter().find(|thread| !text.is_last() || is_match(thread)), found) {
            (Some(thread), _) if is_match(thread) => Search::Found(thread.1..at),
            (Some(&(_, began)), _) => Search::Open(began),
            (None, Some(range)) => Search::Found(range),
            (None, None) => Search::Open(at),
        }
    }
}

/// The end of a search.
enum Search {
    Found(Range<usize>),
    /// No match so far; from here on, more text may make one.
    Open(usize),
}

/// Follows the steps of a pattern that take no byte.
struct Walk<'w> {
    nfa: &'w NFA,
    text: &'w AnswerText<'w>,
    /// The round in which each state was reached: a way to a state that a better one has reached is left out.
    reached: Vec<usize>,
    round: usize,
    stack: Vec<StateID>,
}

impl<'w> Walk<'w> {
    fn new(nfa: &'w NFA, text: &'w AnswerText<'w>) -> Self {
        Walk { nfa, text, reached: vec![0; nfa.states().len()], round: 1, stack: Vec::new() }
    }

    /// Begins a list of threads.
    fn begin(&mut self) {
        self.round += 1;
    }

    /// Adds the threads that are `at` the state `from`, or come from there without a byte.
    fn follow(&mut self, from: StateID, began: usize, at: usize, threads: &mut Vec<Thread>) {
        self.stack.push(from);
        while let Some(id) = self.stack.pop() {
            if std::mem::replace(&mut self.reached[id], self.round) == self.round {
                continue;
            }
            match self.nfa.state(id) {
                // What comes after the text decides.
                State::Look { .. } if at == self.text.text().len() && !self.text.is_last() => {
                    threads.push((id, began));
                }
                State::Look { look, next } => {
                    if self.nfa.look_matcher().matches(*look, self.text.text().as_bytes(), at) {
                        self.stack.push(*next);
                    }
                }
                State::Union { alternates } => self.stack.extend(alternates.iter().rev()),
                State::BinaryUnion { alt1, alt2 } => self.stack.extend([*alt2, *alt1]),
                State::Capture { next, .. } => self.stack.push(*next),
                State::Fail => {}
                _ => threads.push((id, began)),
            }
        }
    }
}

/// The state after `byte`.
fn step(state: &State, byte: u8) -> Option<StateID> {
    match state {
        State::ByteRange { trans } => trans.matches_byte(byte).then_some(trans.next),
        State::Sparse(transitions) => transitions.matches_byte(byte),
        State::Dense(transitions) => transitions.matches_byte(byte),
        _ => None,
    }
}

/// The bytes with which a match may begin, whatever stands before it.
fn first_bytes(nfa: &NFA) -> Box<[bool; 256]> {
    reachable_bytes(nfa, |_| None)
}

/// The bytes that may be in a match.
fn bytes_in_matches(nfa: &NFA) -> Box<[bool; 256]> {
    reachable_bytes(nfa, Some)
}

/// The bytes that lead on from the states that a match may be in at its start. `next` says from which state to go on behind a byte.
fn reachable_bytes(nfa: &NFA, next: impl Fn(StateID) -> Option<StateID>) -> Box<[bool; 256]> {
    let mut bytes = Box::new([false; 256]);
    // The states before the anchored start would skip any byte.
    let (mut reached, mut stack) = (vec![false; nfa.states().len()], vec![nfa.start_anchored()]);
    while let Some(id) = stack.pop() {
        if std::mem::replace(&mut reached[id], true) {
            continue;
        }
        let state = nfa.state(id);
        stack.extend(steps_without_byte(state));
        for byte in 0..=u8::MAX {
            if let Some(to) = step(state, byte) {
                bytes[usize::from(byte)] = true;
                stack.extend(next(to));
            }
        }
    }
    bytes
}

/// The states that follow without a byte.
fn steps_without_byte(state: &State) -> Vec<StateID> {
    match state {
        State::Look { next, .. } | State::Capture { next, .. } => vec![*next],
        State::Union { alternates } => alternates.to_vec(),
        State::BinaryUnion { alt1, alt2 } => vec![*alt1, *alt2],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;
    use crate::ResponseWindow;

    const PATTERNS: [&str; 24] = [
        r"abc",
        r"a+",
        r"a+?",
        r"ab|abab|b",
        r"a.*b",
        r"a.*?b",
        r"(?s)a.*b",
        r"\bab\b",
        r"\Bab",
        r"(?-u:\b)é?a(?-u:\b)",
        r"^ab",
        r"(?m)^a.?$",
        r"(?mR)^b$",
        r"b$",
        r"b\z",
        r"\w{3,}",
        r"é+日?",
        r"[^ ]+@[a-b]+\.[a-b]{2,}",
        r"\b|ab",
        r"a*",
        r"(?:a|ab)(?:c|bcd)?",
        r"\b{start}a\w*\b{end}",
        r"(?:ab)*\s",
        r"[[:word:]]+ {0,2}b",
    ];

    fn matches(pattern: &WindowPattern, text: &str, cuts: &[usize]) -> Vec<Range<usize>> {
        let (mut found, mut consumed, mut shown) = (Vec::new(), 0, 0);
        for (at, cut) in cuts.iter().map(|cut| text.floor_char_boundary(*cut)).chain([text.len()]).enumerate()
        {
            shown = cut.max(shown);
            let before: String = {
                let kept = text[..consumed].chars().rev().take(4).collect::<Vec<_>>();
                kept.into_iter().rev().collect()
            };
            let shift = consumed - before.len();
            let window = ResponseWindow {
                before,
                offset: text[..consumed].chars().count() as u64,
                last: at == cuts.len(),
                ..Default::default()
            };
            let answer = AnswerText::windowed(&window, &text[consumed..shown]);
            let WindowMatches { ranges, open } = pattern.find(&answer);
            found.extend(ranges.into_iter().map(|range| range.start + shift..range.end + shift));
            consumed = open + shift;
        }
        assert_eq!(consumed, text.len(), "of the last window, nothing is open");
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]
        #[test]
        fn windows_have_the_matches_of_the_whole_text(
            text in "[abcd é日@. \r\n]{0,24}",
            mut cuts in prop::collection::vec(0_usize..40, 0..8),
            index in 0..PATTERNS.len(),
        ) {
            cuts.sort_unstable();
            let whole = Regex::new(PATTERNS[index]).unwrap();
            let expected: Vec<_> =
                whole.find_iter(&text).map(|found| found.range()).filter(|range| !range.is_empty()).collect();
            let pattern = WindowPattern::new(PATTERNS[index]).unwrap();
            prop_assert_eq!(matches(&pattern, &text, &cuts), expected, "{} in {:?}", PATTERNS[index], text);
        }
    }

    #[test]
    fn only_what_may_become_a_match_is_kept_back() {
        let open = |pattern: &str, content: &str| {
            let answer = AnswerText::windowed(&ResponseWindow::default(), content);
            content[WindowPattern::new(pattern).unwrap().find(&answer).open..].to_owned()
        };
        assert_eq!(open(r"\bsk-[a-z]{20,}", "say task"), "");
        assert_eq!(open(r"\bsk-[a-z]{20,}", "say sk-s"), "sk-s");
        assert_eq!(open(r"[a-z.]+@[a-z]+\.de\b", "write to ada@ex"), "ada@ex");
        assert_eq!(open(r"\d{4}\b", "in 2026"), "2026");
        assert_eq!(open(r"\d{4}", "in 2026"), "");
    }

    #[test]
    fn a_pattern_with_a_mistake_or_too_large_is_refused() {
        for pattern in ["(a", r"\w{1000}{1000}"] {
            let error = WindowPattern::new(pattern).unwrap_err().to_string();
            assert!(error.starts_with("the pattern can't be compiled: "), "{error}");
        }
    }
}
