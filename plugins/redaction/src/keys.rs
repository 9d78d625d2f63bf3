//! What looks like an API key: a long run of the characters that keys are made of, wherever it stands, and a shorter
//! value where the text itself says that it is one. Says where they are; what becomes of them is the caller's.
//!
//! Prose and code speak of tokens without showing one: `the token: something`, `token: CancellationToken`,
//! `api_key=os.environ["KEY"]`. Where the text is less sure than `api_key=`, a digit tells a key from a word.

use std::sync::LazyLock;

use regex::Regex;

use super::Matches;

/// Shortest run that is a key wherever it stands.
const MIN_RUN_BYTES: usize = 32;
/// Shortest value that is a key where a label says so. No mask may be longer.
pub(crate) const MIN_VALUE_BYTES: usize = 12;
/// Shortest value without a digit behind a bare `Bearer`: longer than `authentication`.
const MIN_BEARER_BYTES: usize = 16;

/// The boundaries are those between ASCII words: with Unicode's, a key that follows a letter such as `é` would pass.
static LONG_RUN_PATTERN: LazyLock<Regex> =
    LazyLock::new(|| super::pattern(&format!(r"(?-u:\b)[A-Za-z0-9_-]{{{MIN_RUN_BYTES},}}(?-u:\b)")));

/// Ends where the value begins. `name` is no word of prose, as `token` is.
static LABEL_PATTERN: LazyLock<Regex> = LazyLock::new(|| {
    super::pattern(
        r#"(?xi-u)
        (?:
            (?: (?<name> (?:api|app|access|auth|client|id|private|refresh|secret|session) [_-]? (?:key|token|secret) )
              | api\x20key | token | secret | password | passwd | pwd | authorization )
            \\* ["'`]? \]? [\x20\t]*
            (?: (?<equals> ={1,3} >? | := ) | : ) [\x20\t]*
            (?<quote> \\* ["'`] )?
            (?<scheme> (?: bearer | basic | token ) [\x20\t]+ )?
        )
        | \b (?<bearer> bearer ) [\x20\t]+"#,
    )
});

/// Runs that are keys by themselves, in order.
pub(crate) fn long_runs(text: &str) -> Matches<'_> {
    Box::new(
        LONG_RUN_PATTERN
            .find_iter(text)
            .filter(|found| is_dense(found.as_str(), MIN_RUN_BYTES))
            .map(|found| found.range()),
    )
}

/// Values that a label before them makes keys, in order. A label that is itself in a value counts too, so that nothing
/// hides behind another.
pub(crate) fn labelled(text: &str) -> Matches<'_> {
    Box::new(LABEL_PATTERN.find_iter(text).filter_map(|label| {
        let start = label.end();
        let value = value(&text[start..]);
        let end = start + value.len();
        is_key(value, label.as_str(), text[end..].bytes().next()).then_some(start..end)
    }))
}

/// The value that `text` begins with. No separator is in it, so that every value is looked at once, behind its label.
fn value(text: &str) -> &str {
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.~+/%!@#$^*?-".contains(byte);
    let inner = text.bytes().take_while(|byte| is_inner(byte)).count();
    let padding = text[inner..].bytes().take_while(|byte| *byte == b'=').count();
    // The end of a sentence.
    text[..inner + padding].trim_end_matches('.')
}

/// Whether a value behind `label` is a key, `next` being the byte behind it.
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

/// Whether half of the shortest length are letters and digits; a line of hyphens is no key.
fn is_dense(found: &str, shortest: usize) -> bool {
    found.bytes().filter(u8::is_ascii_alphanumeric).count() >= shortest / 2
}
