//! Lists of words, in which each address and each value is looked up.

use std::collections::HashSet;

/// The words of a list, which has spaces between them.
pub(crate) fn words(list: &'static str) -> HashSet<&'static str> {
    list.split_ascii_whitespace().collect()
}
