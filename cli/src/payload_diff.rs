//! Renders a payload's members, and a step's changes to them as removed and added lines.

use super::output::{GREEN, RED, columns, indented, printable};
use hookgate::json;

/// The members of a payload in order, each value as JSON text.
pub(super) struct Members(Vec<(String, String)>);

impl Members {
    /// Parses the JSON object `text`.
    pub(super) fn parse(text: &str) -> Self {
        Members(json::members(text).map(|(name, value)| (name.into_owned(), value.to_owned())).collect())
    }

    /// One line per member.
    pub(super) fn lines(&self) -> String {
        let rows = self.0.iter().map(|(name, value)| [name.clone(), value.clone()]);
        indented(2, &columns(&rows.collect::<Vec<_>>()))
    }

    /// Applies the members of the JSON object `changes`, and returns the difference.
    pub(super) fn change(&mut self, changes: &str) -> String {
        let mut shown = String::new();
        for (name, value) in Members::parse(changes).0 {
            let line = |sign: char, value: &str| printable(&format!("{sign} {name}  {value}"));
            let held = self.0.iter_mut().find(|(held, _)| *held == name);
            if let Some((_, held)) = &held {
                shown += &format!("      {RED}{}{RED:#}\n", line('-', held));
            }
            shown += &format!("      {GREEN}{}{GREEN:#}\n", line('+', &value));
            match held {
                Some((_, held)) => *held = value,
                None => self.0.push((name, value)),
            }
        }
        shown
    }
}
