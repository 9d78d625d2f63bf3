//! Finds long runs of the characters that keys consist of, anywhere: also UUIDs and hashes.

use std::{ops::Range, sync::LazyLock};

use hookgate_sdk::window::{AnswerText, SafeCut};

use super::{TextPattern, without_escape};

/// The minimum length of a run that is a key anywhere.
const MIN_RUN_BYTES: usize = 32;

static RUN_PATTERN: LazyLock<TextPattern> =
    LazyLock::new(|| TextPattern::own(&format!("[A-Za-z0-9_-]{{{MIN_RUN_BYTES},}}")));

/// Runs that are keys by themselves, in order.
pub(crate) fn find_all(text: &AnswerText<'_>, cut: &mut SafeCut) -> Vec<Range<usize>> {
    let runs = RUN_PATTERN.find_all(text, cut).into_iter();
    let is_long = |run: &Range<usize>| run.len() >= MIN_RUN_BYTES;
    let keys = runs.filter_map(|run| {
        let behind_escape = trimmed(text.text(), without_escape(text.text(), run.clone()));
        Some(behind_escape).filter(is_long).or_else(|| Some(trimmed(text.text(), run)).filter(is_long))
    });
    keys.filter(|run| is_dense(&text.text()[run.clone()], MIN_RUN_BYTES)).collect()
}

/// A run without the hyphens around it.
fn trimmed(text: &str, run: Range<usize>) -> Range<usize> {
    let key = text[run.clone()].trim_end_matches('-');
    let end = run.start + key.len();
    end - key.trim_start_matches('-').len()..end
}

/// Whether at least half of `shortest` are letters and digits; a line of hyphens is not a key.
pub(crate) fn is_dense(found: &str, shortest: usize) -> bool {
    found.bytes().filter(u8::is_ascii_alphanumeric).count() >= shortest / 2
}
