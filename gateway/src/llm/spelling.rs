//! Names of members that only some servers take for known ones. Those written in Go ignore case, and the last of several
//! members counts. Here names are compared as they are, so a `Model` beside the `model` would reach the provider
//! unseen. Each format has its own lists of names.

use super::surface::{AllowSwitch, Rule, When};
use crate::{
    core::error::Violation,
    json::{
        self,
        pointer::{child, cut},
    },
};

/// What this module refuses.
pub(super) const SPELLING: Rule = Rule {
    what: "a name that differs from a known one in case only",
    when: When::Always,
    why: "some servers take it for the known one",
    opened_by: AllowSwitch::Nothing,
};

/// Checks the names of an object's members. Those in `known` have small letters only.
///
/// # Errors
/// The first that some readers take for a known one.
pub(super) fn check_names(object: &str, known: &[&str]) -> Result<(), Violation> {
    json::members(object).try_for_each(|(name, _)| check_name(&name, known))
}

/// Checks the name of an object's member.
///
/// # Errors
/// Some readers take it for a known one.
pub(super) fn check_name(name: &str, known: &[&str]) -> Result<(), Violation> {
    match known_spelling(name, known) {
        Some(known) => {
            let name = cut(name);
            let message = format!("`{name}` is refused: some servers take it for `{known}`");
            Err(Violation::new(child("", &name), message))
        }
        None => Ok(()),
    }
}

/// The known name, all of whose letters are small, that `name` is another spelling of.
fn known_spelling<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    if name.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return None;
    }
    let folded: String = name.chars().map(fold).collect();
    known.iter().copied().find(|known| *known == folded)
}

/// The simple case folding of Unicode, as far as it leads to ASCII.
fn fold(letter: char) -> char {
    match letter {
        '\u{17f}' => 's',  // long s
        '\u{212a}' => 'k', // the sign of kelvin
        other => other.to_ascii_lowercase(),
    }
}
