//! Removes secrets from sentences. All secrets are searched for at once, since there may be as many secrets
//! as sentences.

use aho_corasick::AhoCorasick;

/// Secrets of at least this length are removed wherever they occur, shorter ones only between backticks.
const MIN_LONG_SECRET: usize = 8;

/// Finds secrets in sentences.
#[derive(Clone)]
pub(super) struct SecretFilter {
    long: AhoCorasick,
    /// Short secrets, including the backticks around them.
    short: AhoCorasick,
}

impl SecretFilter {
    /// A filter for `secrets`; blank ones are ignored.
    pub(super) fn new<'s>(secrets: impl Iterator<Item = &'s str>) -> Self {
        let secrets = secrets.filter(|secret| !secret.trim().is_empty());
        let (long, short): (Vec<_>, Vec<_>) =
            secrets.partition(|secret| secret.chars().count() >= MIN_LONG_SECRET);
        let finds = "what a file and an environment hold is less than an automaton takes";
        let quoted = short.iter().map(|secret| format!("`{secret}`"));
        SecretFilter {
            long: AhoCorasick::new(long).expect(finds),
            short: AhoCorasick::new(quoted).expect(finds),
        }
    }

    /// `text` without long secrets.
    pub(super) fn without_long(&self, text: &str) -> String {
        replace(text, &self.long, "***")
    }

    /// `text` without any secrets. Backticks distinguish a short secret from an ordinary word.
    pub(super) fn without(&self, text: &str) -> String {
        replace(&self.without_long(text), &self.short, "`***`")
    }
}

/// `text` with `by` in place of all matches, including overlapping ones.
fn replace(text: &str, finder: &AhoCorasick, by: &str) -> String {
    let mut found: Vec<_> = finder.find_overlapping_iter(text).map(|found| found.range()).collect();
    found.sort_unstable_by_key(|range| range.start);
    found.dedup_by(|next, range| {
        let overlaps = next.start < range.end;
        if overlaps {
            range.end = range.end.max(next.end);
        }
        overlaps
    });
    let (mut shown, mut from) = (String::new(), 0);
    for range in found {
        shown = shown + &text[from..range.start] + by;
        from = range.end;
    }
    shown + &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without(secrets: &[&str], text: &str) -> String {
        SecretFilter::new(secrets.iter().copied()).without(text)
    }

    #[test]
    fn a_long_secret_is_blotted_out_anywhere_and_a_short_one_between_backticks() {
        let text = "`pw` and pw, `long-secret`, xlong-secretx";
        assert_eq!(without(&["pw", "long-secret"], text), "`***` and pw, `***`, x***x");
        assert_eq!(
            SecretFilter::new(["pw", "long-secret"].into_iter()).without_long("`pw` long-secret"),
            "`pw` ***"
        );
        assert_eq!(without(&[], text), text);
        assert_eq!(without(&["", " "], "`` ` `"), "`` ` `");
    }

    #[test]
    fn of_secrets_that_overlap_nothing_is_left() {
        let (one, other) = ("abcdefghij", "ghijklmnop");
        assert_eq!(without(&[one, other], "<abcdefghijklmnop>"), "<***>");
        assert_eq!(without(&["cdefghij", one], "<abcdefghij>"), "<***>");
        assert_eq!(without(&["abcdefgh"], "<abcdefghabcdefgh>"), "<******>");
    }
}
