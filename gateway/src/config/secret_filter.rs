//! Texts that stand in no sentence, as they are secret: found all at once, for there may be as many of them as there are
//! sentences.

use aho_corasick::AhoCorasick;

/// From this length on a text is blotted out wherever it occurs, not only between backticks.
const MIN_LONG_SECRET: usize = 8;

/// Finds secrets in sentences.
#[derive(Clone)]
pub(super) struct SecretFilter {
    long: AhoCorasick,
    /// The others, with the backticks around them.
    short: AhoCorasick,
}

impl SecretFilter {
    /// For `secrets`; those that are blank are none.
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

    /// `text` without any of them that is long.
    pub(super) fn without_long(&self, text: &str) -> String {
        replace(text, &self.long, "***")
    }

    /// `text` without any of them; one that is short is told from a word by the backticks around it.
    pub(super) fn without(&self, text: &str) -> String {
        replace(&self.without_long(text), &self.short, "`***`")
    }
}

/// `text` with `by` in the place of all that is found, also where one thing overlaps another.
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
