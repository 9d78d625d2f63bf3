//! What is withheld from answers while plugins judge answers or tool calls, in all formats: members that may carry text that no plugin
//! saw.

use super::{
    edits::ObjectEdit,
    value::{has_only_settings, is_settings, kind, may_carry_text},
};
use crate::json::{ValueKind, pointer::cut};

/// Longest text of a citation, and longest id of reasoning, in bytes.
pub(super) const MAX_CITATION_TEXT: usize = 2 << 10;

/// Most bytes of a member that passes although no plugin judges it, such as `usage` or a signature of Chat Completions; also of all
/// citations of an answer together. Signatures of Messages have a limit of their own.
pub(super) const MAX_UNJUDGED_BYTES: usize = 16 << 10;

/// Longest name of a model, in bytes.
pub(super) const MAX_MODEL: usize = 256;

/// Most names of members that were withheld from an answer. The provider can make up any number.
const MAX_NAMES: usize = 32;

/// The members withheld from an answer, and the bytes of citations that passed.
#[derive(Debug, Default)]
pub(super) struct WithheldMembers {
    /// The names of the members.
    pub(super) names: Vec<String>,
    /// How many bytes of citations were passed.
    pub(super) citations: usize,
}

impl WithheldMembers {
    /// The names of the members, each once, cut to a length that a log takes. Of more than 32 names, the first in their
    /// order count.
    pub(super) fn into_names(self) -> Vec<String> {
        let mut names = self.names;
        names.sort_unstable();
        names.dedup();
        names.truncate(MAX_NAMES);
        names.iter_mut().for_each(|name| *name = cut(name).into_owned());
        // Names that differ behind the cut are the same now.
        names.dedup();
        names
    }
}

/// Removes all other members than those to keep, and adds their names to `withheld`.
pub(super) fn keep_members(
    object: &mut ObjectEdit<'_>,
    is_kept: impl Fn(&str, &str) -> bool,
    withheld: &mut WithheldMembers,
) {
    withheld.names.extend(object.retain(is_kept));
}

/// Keeps members that `is_known` takes by name and value, and those that carry no text. Some clients ignore the case of
/// names, so those in the lists `known` don't pass in another case.
pub(super) fn keep_known(
    object: &mut ObjectEdit<'_>,
    known: &[&[&str]],
    is_known: impl Fn(&str, &str) -> bool,
    withheld: &mut WithheldMembers,
) {
    let is_in_another_case =
        |name: &str| !known.iter().any(|list| list.contains(&name)) && is_listed(known, name);
    let is_kept = |name: &str, value: &str| {
        is_known(name, value) || (!may_carry_text(name, value) && !is_in_another_case(name))
    };
    keep_members(object, is_kept, withheld);
}

/// Whether a member that is not in the lists `known`, in any case, is an object of settings, such as the times that some
/// servers add.
pub(super) fn is_other_settings(known: &[&[&str]], name: &str, value: &str) -> bool {
    kind(value) == ValueKind::Object && is_settings(name, value) && !is_listed(known, name)
}

/// Whether one of the lists has this name in any case.
fn is_listed(lists: &[&[&str]], name: &str) -> bool {
    lists.iter().any(|list| list.iter().any(|member| member.eq_ignore_ascii_case(name)))
}

/// Whether a value has numbers and names alone. It has some for each filter or kind of token, so it is longer than other
/// settings.
pub(super) fn is_report(value: &str) -> bool {
    matches!(kind(value), ValueKind::Object | ValueKind::Array)
        && value.len() <= MAX_UNJUDGED_BYTES
        && has_only_settings(value)
}
