//! Removes resolved secrets from a plugin's text. Holds secrets, and never prints them.

use std::ops::Range;

use super::codec;

/// Shortest value that is redacted, in bytes. References stand for ports, flags and regions too. Redacting
/// such short values would remove unrelated words, and nothing so short is hard to guess.
const MIN_SECRET_BYTES: usize = 4;

/// How much of a plugin's text is scanned, in bytes. 1 KiB of the result is shown.
const MAX_SCANNED_BYTES: usize = 64 << 10;

/// The texts to redact.
pub struct Redaction(Vec<String>);

impl Redaction {
    /// Redacts each of `secrets` in three forms: verbatim, with spaces for its control characters, and
    /// escaped as in JSON. Plugins return multi-line keys in the latter forms. White space around a secret is
    /// ignored, because the plugin may have trimmed it.
    pub fn new(secrets: Vec<String>) -> Self {
        let forms = secrets.iter().map(|secret| secret.trim()).flat_map(|secret| {
            let json = serde_json::Value::from(secret).to_string();
            [secret.to_owned(), codec::without_controls(secret), json[1..json.len() - 1].to_owned()]
        });
        let mut forms: Vec<_> = forms.filter(|form| form.len() >= MIN_SECRET_BYTES).collect();
        forms.sort_unstable();
        forms.dedup();
        Redaction(forms)
    }

    /// Like [`Self::apply`], for the beginning of a text that may be long. Also removes what may be half a
    /// secret at the cut.
    pub fn apply_to_beginning(&self, text: &str) -> String {
        if text.len() <= MAX_SCANNED_BYTES {
            return self.apply(text);
        }
        self.apply_to_cut(&text[..text.floor_char_boundary(MAX_SCANNED_BYTES)])
    }

    /// Like [`Self::apply`], for a text whose end is missing. Also removes what may be half a secret at its end.
    pub fn apply_to_cut(&self, text: &str) -> String {
        let mut redacted = self.apply(text);
        let longest = self.0.iter().map(String::len).max().unwrap_or_default();
        redacted.truncate(redacted.floor_char_boundary(redacted.len().saturating_sub(longest)));
        redacted
    }

    /// `text` with `***` for each secret. Overlapping secrets are replaced as one, since otherwise part of
    /// the second would remain.
    pub fn apply(&self, text: &str) -> String {
        let mut found: Vec<Range<usize>> = Vec::new();
        for form in &self.0 {
            found.extend(text.match_indices(form.as_str()).map(|(at, form)| at..at + form.len()));
        }
        found.sort_unstable_by_key(|range| range.start);
        let (mut redacted, mut end) = (String::with_capacity(text.len()), 0);
        for range in found {
            if range.start >= end {
                redacted.push_str(&text[end..range.start]);
                redacted.push_str("***");
            }
            end = end.max(range.end);
        }
        redacted.push_str(&text[end..]);
        redacted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_a_secret_shows_wherever_a_long_text_is_cut() {
        let redaction = Redaction::new(vec!["s3cr3t-and-long".into()]);
        for before in 0..40 {
            let text = format!("{}{}", "x".repeat(before), "s3cr3t-and-long".repeat(10_000));
            let shown = redaction.apply_to_beginning(&text);
            assert!(!shown.contains("s3c") && !shown.contains("long"), "{before}: {shown:.60}");
        }
    }

    #[test]
    fn every_form_of_a_secret_goes_and_short_values_stay() {
        let secrets = ["s3cr3t", "user:s3cr3t", "-----BEGIN\nk\"ey\n-----END\n", "443", "t-and-more"];
        let redaction = Redaction::new(secrets.map(str::to_owned).into());
        for (text, expected) in [
            ("no such thing", "no such thing"),
            ("bad s3cr3t, really s3cr3t", "bad ***, really ***"),
            ("dsn user:s3cr3t", "dsn ***"),
            ("s3cr3t-and-more.", "***."),
            ("port 443", "port 443"),
            ("<-----BEGIN\nk\"ey\n-----END>", "<***>"),
            ("<-----BEGIN k\"ey -----END>", "<***>"),
            (r#"{"k":"-----BEGIN\nk\"ey\n-----END\n"}"#, r#"{"k":"***\n"}"#),
        ] {
            assert_eq!(redaction.apply(text), expected);
        }
    }
}
