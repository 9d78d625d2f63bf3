//! Finds e-mail addresses and API keys: long runs of the characters that keys consist of,
//! anywhere, and shorter values that the text or the name of a JSON member labels as keys.
//!
//! Prose and code often mention tokens without containing one: `the token: something`, `token:
//! CancellationToken`, `api_key=os.environ["KEY"]`. If a label is less certain than `api_key=`, a value
//! counts as a key only with a digit.

use std::{ops::Range, sync::LazyLock};

use hookgate_sdk::window::{AnswerText, SafeCut};

use super::{ESCAPE, Ranges, TextPattern, WordPattern, word_start};

/// The minimum length of a run that is a key anywhere.
const MIN_RUN_BYTES: usize = 32;
/// The minimum length of a labelled key. No mask may be longer.
const MIN_VALUE_BYTES: usize = 12;
/// The minimum length of a value without a digit after a bare `Bearer`; longer than `authentication`.
const MIN_BEARER_BYTES: usize = 16;

static EMAIL_PATTERN: LazyLock<TextPattern> =
    LazyLock::new(|| TextPattern::own(r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}"));

/// `_` is in a run, so it doesn't come before one.
static LONG_RUN_PATTERN: LazyLock<WordPattern> = LazyLock::new(|| {
    let run = format!(r"[A-Za-z0-9_-]{{{MIN_RUN_BYTES},}}(?-u:\b)");
    WordPattern::new(&format!(r"(?:{ESCAPE}|(?-u:\b))"), &run)
});

/// Matches up to where the value begins. `name` can't be a word of prose, unlike `token`.
static LABEL_PATTERN: LazyLock<TextPattern> = LazyLock::new(|| {
    TextPattern::own(&format!(
        r#"(?xi-u)
        (?:
            (?: (?<name> (?:api|app|access|auth|client|id|private|refresh|secret|session) [_-]? (?:key|token|secret) )
              | api\x20key | token | secret | password | passwd | pwd | authorization )
            \\* ["'`]? \]? [\x20\t]*
            (?: (?<equals> ={{1,3}} >? | := ) | : ) [\x20\t]*
            (?<quote> \\* ["'`] )?
            (?<scheme> (?: bearer | basic | token ) [\x20\t]+ )?
        )
        | {start} (?<bearer> bearer ) [\x20\t]+"#,
        start = word_start(),
    ))
});

/// Names of JSON members whose value is a key. `token` alone isn't one: it may be the token of a page.
static MEMBER_PATTERN: LazyLock<TextPattern> = LazyLock::new(|| {
    TextPattern::own(
        r"(?xi-u)
        (?: (?:api|app|access|auth|bearer|client|private|refresh|secret|session) [_-]? (?:key|token|secret)
          | secret | password | passwd | pwd | authorization ) $",
    )
});

static SCHEME_PATTERN: LazyLock<TextPattern> =
    LazyLock::new(|| TextPattern::own(r"^(?i-u:bearer|basic|token)[\x20\t]+"));

pub(crate) fn email_addresses(text: &str) -> Ranges<'_> {
    Box::new(EMAIL_PATTERN.find_iter(text).map(|found| found.range()))
}

/// Runs that are keys by themselves, in order.
pub(crate) fn long_runs(text: &str) -> Ranges<'_> {
    Box::new(LONG_RUN_PATTERN.find(text).filter(|run| is_dense(&text[run.clone()], MIN_RUN_BYTES)))
}

/// Values that are keys because of the label before them, or because of the name of the JSON member that holds the
/// text. A label within a value counts too, so that nothing can hide behind another label.
pub(crate) fn labelled<'t>(text: &'t str, member: Option<&str>) -> Ranges<'t> {
    let labelled_as_a_whole = member.and_then(|name| labelled_by_member(name, text));
    let labels = LABEL_PATTERN.find_iter(text);
    Box::new(labelled_as_a_whole.into_iter().chain(labels.filter_map(|label| key_after(text, label.range()))))
}

/// The value after a label, if it is a key.
fn key_after(text: &str, label: Range<usize>) -> Option<Range<usize>> {
    let start = label.end;
    // Strip the end of a sentence.
    let value = text[start..start + value_length(&text[start..])].trim_end_matches('.');
    let end = start + value.len();
    is_key(value, &text[label], text[end..].bytes().next()).then_some(start..end)
}

pub(crate) fn email_addresses_in_window(text: &AnswerText<'_>, cut: &mut SafeCut) -> Vec<Range<usize>> {
    EMAIL_PATTERN.find_in_window(text, cut)
}

pub(crate) fn long_runs_in_window(text: &AnswerText<'_>, cut: &mut SafeCut) -> Vec<Range<usize>> {
    let mut runs = LONG_RUN_PATTERN.find_in_window(text, cut);
    runs.retain(|run| is_dense(&text.text()[run.clone()], MIN_RUN_BYTES));
    runs
}

/// Labelled values in a window. A value that reaches to its end may go on, and so may what comes after it say what it is.
pub(crate) fn labelled_in_window(text: &AnswerText<'_>, cut: &mut SafeCut) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for label in LABEL_PATTERN.find_in_window(text, cut) {
        let end = label.end + value_length(&text.text()[label.end..]);
        if end == text.text().len() && !text.is_last() {
            cut.hold_from(label.start);
        } else {
            cut.keep_whole(label.start..end);
            found.extend(key_after(text.text(), label));
        }
    }
    found
}

/// The text without its scheme, if it is a key: one word, and no reference such as `${API_KEY}`.
fn labelled_by_member(name: &str, text: &str) -> Option<Range<usize>> {
    let start = SCHEME_PATTERN.find(text).map_or(0, |scheme| scheme.end());
    let value = &text[start..];
    let is_key = value.len() >= MIN_VALUE_BYTES
        && is_dense(value, MIN_VALUE_BYTES)
        && !value.starts_with(['$', '<', '{'])
        && !value.contains(char::is_whitespace)
        && MEMBER_PATTERN.is_match(name);
    is_key.then_some(start..text.len())
}

/// The length of the value at the beginning of `text`. It contains no separator, so each value is checked once, after its
/// own label.
fn value_length(text: &str) -> usize {
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.~+/%!@#$^*?-".contains(byte);
    let inner = text.bytes().take_while(|byte| is_inner(byte)).count();
    inner + text[inner..].bytes().take_while(|byte| *byte == b'=').count()
}

/// Whether a value after `label` is a key. `next` is the byte after the value.
fn is_key(value: &str, label: &str, next: Option<u8>) -> bool {
    if value.len() < MIN_VALUE_BYTES || !is_dense(value, MIN_VALUE_BYTES) {
        return false;
    }
    if value.bytes().any(|byte| byte.is_ascii_digit()) {
        return true;
    }
    let Some(label) = LABEL_PATTERN.captures(label) else { return false };
    let has = |group| label.name(group).is_some();
    if value.starts_with('$') || !has("quote") && (value.contains('.') || matches!(next, Some(b'(' | b'['))) {
        return false; // code that names where the key is
    }
    let is_sure = ["name", "equals", "quote", "scheme"].into_iter().any(has);
    is_sure || has("bearer") && value.len() >= MIN_BEARER_BYTES
}

/// Whether at least half of `shortest` are letters and digits; a line of hyphens is not a key.
fn is_dense(found: &str, shortest: usize) -> bool {
    found.bytes().filter(u8::is_ascii_alphanumeric).count() >= shortest / 2
}
