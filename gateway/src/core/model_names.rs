//! Sets of models' names, as a configuration lists them.

use std::collections::BTreeSet;

use hookgate_glob::InvalidGlob;
use regex::RegexSet;

/// A set of models' names: names without a wildcard, and globs.
#[derive(Debug, Clone, Default)]
pub struct ModelNames {
    /// Apart from the globs, because most lists have no other entries, and a compiled glob takes some KiB.
    literals: BTreeSet<String>,
    globs: RegexSet,
}

impl ModelNames {
    /// Most entries of a list. As many of the longest globs still compile.
    pub const MAX_ENTRIES: usize = 64;
    /// Longest entry, in bytes.
    pub const MAX_BYTES: usize = 128;

    /// The names that any of `entries` matches; `list` names them in the error.
    ///
    /// # Errors
    /// A glob is broken, or all of them together are too large.
    pub fn new(list: &str, entries: &[String]) -> Result<Self, InvalidGlob> {
        let (globs, literals): (Vec<_>, Vec<_>) =
            entries.iter().cloned().partition(|entry| entry.contains(['*', '?', '[']));
        Ok(ModelNames {
            literals: literals.into_iter().collect(),
            globs: hookgate_glob::compile(list, &globs)?,
        })
    }

    /// Whether an entry matches `name`.
    pub fn contains(&self, name: &str) -> bool {
        self.literals.contains(name) || self.globs.is_match(name)
    }

    /// Whether any entry has a wildcard.
    pub fn has_globs(&self) -> bool {
        !self.globs.is_empty()
    }

    /// The entries without a wildcard, sorted.
    pub fn literals(&self) -> impl Iterator<Item = &str> {
        self.literals.iter().map(String::as_str)
    }
}

/// Lists of the same entries are equal; the order of globs counts.
impl PartialEq for ModelNames {
    fn eq(&self, other: &Self) -> bool {
        self.literals == other.literals && self.globs.patterns() == other.globs.patterns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(entries: &[&str]) -> ModelNames {
        let entries: Vec<_> = entries.iter().map(|&entry| entry.to_owned()).collect();
        ModelNames::new("models", &entries).unwrap()
    }

    #[test]
    fn literals_and_globs_match_whole_names() {
        let set = names(&["fast", "gpt-5*", "o[13]"]);
        for name in ["fast", "gpt-5", "gpt-5-mini", "o1"] {
            assert!(set.contains(name), "{name}");
        }
        for name in ["faster", "fas", "Fast", "gpt-4", "my-gpt-5", "o2", ""] {
            assert!(!set.contains(name), "{name}");
        }
        assert_eq!(set.literals().collect::<Vec<_>>(), ["fast"]);
        assert!(set.has_globs() && !names(&["fast"]).has_globs());
    }

    #[test]
    fn an_empty_list_has_no_name() {
        let set = names(&[]);
        assert!(!set.contains("") && !set.contains("fast"));
        assert_eq!(set.literals().count(), 0);
    }

    #[test]
    fn the_longest_list_of_the_longest_globs_compiles() {
        for unit in ["?", "*", "[^a]", "[!а-я]"] {
            let glob = unit.repeat(ModelNames::MAX_BYTES / unit.len());
            ModelNames::new("models", &vec![glob; ModelNames::MAX_ENTRIES]).unwrap();
        }
    }

    #[test]
    fn a_broken_glob_is_an_error() {
        assert!(ModelNames::new("models", &["[a".to_owned()]).is_err());
    }
}
