//! Finds and redacts e-mail addresses and API keys for the reference plugins (docs/protocol.md, section 8).
//! Works on plain texts and knows nothing of plugins.
//!
//! A mask is never longer than what it replaces, so a text within a limit stays within it. Otherwise the
//! gateway would reject the redacted text, and the original would be shown.
//!
//! This is a separate crate because `content-policy` and `response-sanitizer` must agree on the patterns.
//! They don't belong in the SDK, where other plugins would get them too, or in one of the two plugins.
#![warn(missing_docs)]

use std::{borrow::Cow, ops::Range, sync::LazyLock};

use regex::Regex;

mod keys;
#[cfg(test)]
mod tests;

static EMAIL_PATTERN: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}"));

/// Ranges in a text, in order.
type Matches<'t> = Box<dyn Iterator<Item = Range<usize>> + 't>;

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is a constant that the tests compile")
}

/// What to redact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Redactor {
    /// E-mail addresses become `[EMAIL]`, those of six characters `[MAIL]`.
    pub emails: bool,
    /// Runs of at least 32 letters, digits, `_` and `-` become `[REDACTED]`. So do values of at least 12
    /// characters that the text labels as keys, such as `api_key=...` and `Bearer ...`.
    pub api_keys: bool,
}

/// A text after redaction, and what was found in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedactedText<'a> {
    /// The text; borrowed if nothing was found.
    pub text: Cow<'a, str>,
    /// An e-mail address was found.
    pub emails: bool,
    /// Something that looks like an API key was found.
    pub api_keys: bool,
}

impl Redactor {
    /// Redacts e-mail addresses first, because the local part of an address may be as long as a key.
    pub fn redact<'a>(&self, text: &'a str) -> RedactedText<'a> {
        let mut text = Cow::Borrowed(text);
        let emails = self.emails && replace(&mut text, emails, email_mask);
        let (mut long_runs, mut labelled) = (false, false);
        if self.api_keys {
            long_runs = replace(&mut text, keys::long_runs, key_mask);
            labelled = replace(&mut text, keys::labelled, key_mask);
        }
        RedactedText { text, emails, api_keys: long_runs || labelled }
    }
}

impl RedactedText<'_> {
    /// Whether anything was found.
    pub fn changed(&self) -> bool {
        self.emails || self.api_keys
    }
}

fn emails(text: &str) -> Matches<'_> {
    Box::new(EMAIL_PATTERN.find_iter(text).map(|found| found.range()))
}

/// The mask of an address. The shortest ones, such as `a@b.cc`, have six characters.
fn email_mask(address: &str) -> &'static str {
    if address.len() < "[EMAIL]".len() { "[MAIL]" } else { "[EMAIL]" }
}

/// The mask of a key, which has at least [`keys::MIN_VALUE_BYTES`] characters.
fn key_mask(_: &str) -> &'static str {
    "[REDACTED]"
}

/// Replaces everything that `find` returns. Returns whether there was anything.
fn replace(text: &mut Cow<'_, str>, find: fn(&str) -> Matches<'_>, mask: fn(&str) -> &'static str) -> bool {
    let mut found = find(text).peekable();
    if found.peek().is_none() {
        return false;
    }
    let (mut replaced, mut end) = (String::with_capacity(text.len()), 0);
    for range in found {
        replaced.push_str(&text[end..range.start]);
        replaced.push_str(mask(&text[range.clone()]));
        end = range.end;
    }
    replaced.push_str(&text[end..]);
    *text = Cow::Owned(replaced);
    true
}
