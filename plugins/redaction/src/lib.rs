//! What the reference plugins take for an e-mail address or an API key, and how they redact it
//! (docs/protocol.md, section 8). Text in, text out: knows nothing of plugins.
//!
//! What stands in the place of a finding is never longer than it, so that a text which was within a limit stays within
//! it: a redaction that didn't fit would be thrown away, and the text shown as it was.
//!
//! A crate of its own because `content-policy` and `response-sanitizer` must agree on it, and neither an SDK nor
//! the other plugin is the place for two patterns that a third plugin doesn't want.
#![warn(missing_docs)]

use std::{borrow::Cow, sync::LazyLock};

use regex::{Captures, Regex};

static EMAIL: LazyLock<Regex> = LazyLock::new(|| pattern(r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}"));

/// The boundaries are those between ASCII words: with Unicode's, a key that follows a letter such as `é` would
/// pass.
static API_KEY: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?-u:\b)[A-Za-z0-9_-]{32,}(?-u:\b)"));

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is a constant that the tests compile")
}

/// What to redact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Redactor {
    /// E-mail addresses become `[EMAIL]`, those of six characters `[MAIL]`.
    pub emails: bool,
    /// Runs of 32 and more letters, digits, `_` and `-` become `[REDACTED]`.
    pub api_keys: bool,
}

/// A text after redaction, and what was found in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redacted<'a> {
    /// The text; borrowed when nothing was found.
    pub text: Cow<'a, str>,
    /// An e-mail address was found.
    pub emails: bool,
    /// Something that looks like an API key was found.
    pub api_keys: bool,
}

impl Redactor {
    /// Redacts e-mail addresses first: one whose name is as long as a key is an address.
    pub fn redact<'a>(&self, text: &'a str) -> Redacted<'a> {
        let mut redacted = Redacted { text: Cow::Borrowed(text), emails: false, api_keys: false };
        if self.emails {
            redacted.emails = replace(&EMAIL, email_mask, &mut redacted.text);
        }
        if self.api_keys {
            redacted.api_keys = replace(&API_KEY, |_| "[REDACTED]", &mut redacted.text);
        }
        redacted
    }
}

impl Redacted<'_> {
    /// Whether anything was found.
    pub fn changed(&self) -> bool {
        self.emails || self.api_keys
    }
}

/// What stands in the place of an address. The shortest ones, such as `a@b.cc`, have six characters.
fn email_mask(address: &str) -> &'static str {
    if address.len() < "[EMAIL]".len() { "[MAIL]" } else { "[EMAIL]" }
}

/// Replaces every match by its mask; says whether there was one.
fn replace(pattern: &Regex, mask: impl Fn(&str) -> &'static str, text: &mut Cow<'_, str>) -> bool {
    let Cow::Owned(replaced) = pattern.replace_all(text, |found: &Captures<'_>| mask(&found[0])) else {
        return false;
    };
    *text = Cow::Owned(replaced);
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOTH: Redactor = Redactor { emails: true, api_keys: true };
    const KEY: &str = "sk_live-0123456789abcdefABCDEF01"; // 32 characters

    fn redact(text: &str) -> String {
        BOTH.redact(text).text.into_owned()
    }

    #[test]
    fn email_addresses_are_redacted() {
        for (text, expected) in [
            ("write to ada.l+x@mail.example.com.", "write to [EMAIL]."),
            ("a@b.co,c@d.org", "[MAIL],[EMAIL]"),
            ("a@b.c", "a@b.c"),
            ("@example.com", "@example.com"),
            ("ada@localhost", "ada@localhost"),
            ("été ada@exämple.com", "été ada@exämple.com"),
            ("日本ada@example.com語", "日本[EMAIL]語"),
        ] {
            assert_eq!(redact(text), expected, "{text}");
        }
    }

    #[test]
    fn long_runs_of_key_characters_are_redacted() {
        assert_eq!(KEY.len(), 32);
        assert_eq!(redact(KEY), "[REDACTED]");
        assert_eq!(redact(&KEY[1..]), &KEY[1..]);
        assert_eq!(redact(&format!("({KEY}{KEY})")), "([REDACTED])");
        assert_eq!(redact(&format!("é{KEY}é")), "é[REDACTED]é");
        assert_eq!(redact(&"-".repeat(40)), "-".repeat(40));
    }

    #[test]
    fn what_is_off_is_left_alone() {
        let text = format!("ada@example.com {KEY}");
        assert_eq!(Redactor::default().redact(&text).text, text);
        let emails = Redactor { emails: true, api_keys: false }.redact(&text);
        assert_eq!(
            (emails.text.as_ref(), emails.emails, emails.api_keys),
            (&*format!("[EMAIL] {KEY}"), true, false)
        );
        let keys = Redactor { emails: false, api_keys: true }.redact(&text);
        assert_eq!(
            (keys.text.as_ref(), keys.emails, keys.api_keys),
            ("ada@example.com [REDACTED]", false, true)
        );
    }

    proptest! {
        #[test]
        fn redaction_is_idempotent(
            text in "([a-z0-9@._é -]{0,12}|ada@example\\.com|[A-Za-z0-9_-]{30,70}|-{30,40}|@|\\.|[^a]){0,12}",
            emails: bool,
            api_keys: bool,
        ) {
            let redactor = Redactor { emails, api_keys };
            let once = redactor.redact(&text);
            let twice = redactor.redact(&once.text);
            prop_assert!(!twice.changed(), "{:?} -> {:?} -> {:?}", text, once.text, twice.text);
        }

        #[test]
        fn no_text_grows(
            text in "(a@b\\.cc|[a-z]{1,2}@[a-z]\\.[a-z]{2,3}|[A-Za-z0-9_-]{30,34}|[@. é=:]){0,12}",
            emails: bool,
            api_keys: bool,
        ) {
            let redacted = Redactor { emails, api_keys }.redact(&text).text.into_owned();
            prop_assert!(redacted.len() <= text.len(), "{:?} -> {:?}", text, redacted);
        }

        #[test]
        fn a_text_without_at_signs_and_long_words_is_untouched(text in "([^@]{0,1}[a-z]{0,20} ){0,10}") {
            let redacted = BOTH.redact(&text);
            prop_assert!(!redacted.changed());
            prop_assert_eq!(&*redacted.text, text.as_str());
        }
    }
}
