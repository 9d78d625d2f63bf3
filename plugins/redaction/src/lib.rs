//! What the reference plugins take for an e-mail address or an API key, and how they redact it
//! (docs/protocol.md, section 8). Text in, text out: knows nothing of plugins.
//!
//! What stands in the place of a finding is never longer than it, so that a text which was within a limit stays within
//! it: a redaction that didn't fit would be thrown away, and the text shown as it was.
//!
//! A crate of its own because `content-policy` and `response-sanitizer` must agree on it, and neither an SDK nor
//! the other plugin is the place for two patterns that a third plugin doesn't want.
#![warn(missing_docs)]

use std::{borrow::Cow, ops::Range, sync::LazyLock};

use regex::Regex;

mod keys;
#[cfg(test)]
mod tests;

static EMAIL_PATTERN: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}"));

/// What was found in a text, in order.
type Matches<'t> = Box<dyn Iterator<Item = Range<usize>> + 't>;

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is a constant that the tests compile")
}

/// What to redact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Redactor {
    /// E-mail addresses become `[EMAIL]`, those of six characters `[MAIL]`.
    pub emails: bool,
    /// Runs of 32 and more letters, digits, `_` and `-` become `[REDACTED]`; so do values from 12 characters on that
    /// the text says are keys, such as `api_key=...` and `Bearer ...`.
    pub api_keys: bool,
}

/// A text after redaction, and what was found in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedactedText<'a> {
    /// The text; borrowed when nothing was found.
    pub text: Cow<'a, str>,
    /// An e-mail address was found.
    pub emails: bool,
    /// Something that looks like an API key was found.
    pub api_keys: bool,
}

impl Redactor {
    /// Redacts e-mail addresses first: one whose name is as long as a key is an address.
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

/// What stands in the place of an address. The shortest ones, such as `a@b.cc`, have six characters.
fn email_mask(address: &str) -> &'static str {
    if address.len() < "[EMAIL]".len() { "[MAIL]" } else { "[EMAIL]" }
}

/// What stands in the place of a key, which has [`keys::VALUE`] characters or more.
fn key_mask(_: &str) -> &'static str {
    "[REDACTED]"
}

/// Puts a mask in the place of everything that is found; says whether there was anything.
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
