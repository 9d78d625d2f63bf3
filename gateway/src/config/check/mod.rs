//! The rules of the file that a schema can't express: names, ranges, choices, and dependencies between
//! entries (docs/protocol.md, sections 2 to 5 and 7). Finds all mistakes at once. Rules that depend on an
//! entry that can't be read are skipped. Routing checks the order of plans.

mod bindings;
mod egress;
mod host;
mod issuers;
mod limits;
mod llm;
mod plugins;
mod store;
mod telemetry;
mod tenants;
mod tls;

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
};

use crate::config::{
    partial_config::{PartialConfig, PartialEntry},
    problem::{self, Problem},
};

use plugins::is_loopback;
pub use plugins::{endpoint_flaw, registered_endpoint_flaw, socket_flaw, unverified};

/// Limits how many comparisons are made to find suggestions for misspelled names.
const MAX_COMPARISONS: usize = 200_000;

/// All mistakes in `draft`.
pub(super) fn check(draft: &PartialConfig) -> Vec<Problem> {
    let mut check = ConfigChecker {
        draft,
        plugins: draft.plugins.iter().map(|item| item.id.as_deref()).collect(),
        tenants: draft.tenants.iter().map(|item| item.id.as_deref()).collect(),
        is_whole: true,
        comparisons: Cell::new(0),
        problems: Vec::new(),
    };
    check.limits();
    check.telemetry();
    check.store();
    check.egress();
    check.issuers();
    check.llm();
    check.tenants();
    check.plugins();
    check.server_tls();
    check.bindings();
    check.problems.retain(|problem| !draft.placeholders.contains(&problem.pointer));
    check.problems
}

/// The mistakes in each object of `draft` on its own, without references to other objects.
pub(super) fn check_objects(draft: &PartialConfig) -> Vec<Problem> {
    let mut check = ConfigChecker {
        draft,
        plugins: None,
        tenants: None,
        is_whole: false,
        comparisons: Cell::new(0),
        problems: Vec::new(),
    };
    check.tenants();
    check.plugins();
    check.bindings();
    check.llm_objects();
    check.problems.retain(|problem| !draft.placeholders.contains(&problem.pointer));
    check.problems
}

struct ConfigChecker<'d> {
    draft: &'d PartialConfig,
    /// Names of all plugins, or `None` if one of them can't be read.
    plugins: Option<BTreeSet<&'d str>>,
    /// Ids of all listed tenants, or `None` if one of them can't be read.
    tenants: Option<BTreeSet<&'d str>>,
    /// Whether all objects are present.
    is_whole: bool,
    /// How many comparisons were made for suggestions.
    comparisons: Cell<usize>,
    problems: Vec<Problem>,
}

impl<'d> ConfigChecker<'d> {
    fn report(&mut self, pointer: impl Into<String>, message: impl Into<String>, remedy: impl Into<String>) {
        self.problems.push(Problem::new(pointer, message).remedy(remedy));
    }

    fn report_key(
        &mut self,
        pointer: impl Into<String>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.problems.push(Problem::at_key(pointer, message).remedy(remedy));
    }

    /// A suggestion for a misspelled name of the file, unless too many comparisons were made: each name is
    /// compared to all.
    fn did_you_mean<'k>(&self, word: &str, known: impl ExactSizeIterator<Item = &'k str>) -> Option<String> {
        let comparisons = self.comparisons.get() + known.len();
        (comparisons <= MAX_COMPARISONS).then(|| self.comparisons.set(comparisons))?;
        problem::did_you_mean(word, known)
    }

    /// Reports repeated names. `names` has the pointer and name of each entry.
    fn unique(&mut self, what: &str, names: impl IntoIterator<Item = (String, String)>) {
        let mut first: BTreeMap<String, String> = BTreeMap::new();
        for (pointer, name) in names {
            match first.get(&name) {
                Some(other) => self.report(
                    pointer,
                    format!("{what} `{name}` is already defined, at {other}"),
                    "give one of the two another name, or remove it",
                ),
                None => {
                    first.insert(name, pointer);
                }
            }
        }
    }

    /// Reports an entry that doesn't have exactly one of `choices`.
    fn exactly_one<T>(&mut self, item: &PartialEntry<T>, choices: &[(&str, bool)]) {
        let given: Vec<&str> = choices.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
        let all = choices.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        match given.as_slice() {
            [_] => {}
            [] if item.tainted => {}
            [] => self.report(&item.pointer, format!("none of {all} is given"), "give exactly one of them"),
            _ => {
                let given = given.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" and ");
                self.report(
                    &item.pointer,
                    format!("{given} exclude each other"),
                    format!("give exactly one of {all}"),
                );
            }
        }
    }
}

/// `[A-Za-z][A-Za-z0-9_-]{0,63}`
pub fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// What is wrong with a tenant's id.
fn tenant_id_fault(id: &str) -> Option<&'static str> {
    if id == "*" {
        Some("`*` is not a tenant id")
    } else if !(1..=256).contains(&id.len()) {
        Some("a tenant's id has 1 to 256 bytes")
    } else if id.chars().any(char::is_control) {
        Some("a tenant's id holds no control characters")
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
