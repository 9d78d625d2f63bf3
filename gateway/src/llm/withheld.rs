//! What is withheld from answers while plugins judge answers or tool calls, in all formats: members that may carry text that no plugin
//! saw.

use std::{borrow::Cow, collections::HashSet};

use super::{
    edits::{Edits, ObjectEdit, span_in},
    format::ChoiceEdit,
    value::{has_only_settings, is_settings, is_text, kind, may_carry_text, member, string_member},
};
use crate::json::{self, ValueKind, pointer::cut};

/// What stands in place of a text that a plugin emptied, if nothing else is left.
pub(super) const EMPTIED_TEXT: &str = "[removed]";

/// What stands in place of parts of an answer that were withheld, if nothing else is left.
pub(super) const WITHHELD_TEXT: &str = "The answer was withheld.";

/// Most bytes of a member that passes although no plugin judges it, such as `usage` or a signature of Chat Completions; also of all
/// citations of an answer together. Signatures of Messages have a limit of their own.
pub(super) const MAX_UNJUDGED_BYTES: usize = 16 << 10;

/// Longest name of a model, in bytes.
pub(super) const MAX_MODEL: usize = 256;

/// Most names of members that were withheld from an answer. The provider can make up any number.
const MAX_NAMES: usize = 32;

/// The members withheld from an answer, and what of its citations passes.
#[derive(Debug, Default)]
pub(super) struct WithheldMembers {
    /// The names of the members.
    pub(super) names: Vec<String>,
    /// See [`ChoiceEdit::cited_texts`].
    cited_texts: Option<HashSet<String>>,
    /// How many bytes of citations were passed that plugins weren't asked about.
    citation_bytes: usize,
}

impl WithheldMembers {
    /// Nothing is withheld yet from a choice with this edit.
    pub(super) fn of_choice(edit: &ChoiceEdit) -> Self {
        let mut withheld = WithheldMembers::default();
        withheld.begin_choice(edit);
        withheld
    }

    /// From here on, citations are those of a choice with this edit.
    pub(super) fn begin_choice(&mut self, edit: &ChoiceEdit) {
        (self.cited_texts, self.citation_bytes) = (edit.cited_texts.clone(), 0);
    }

    /// Lets a citation with these texts, and so many bytes of JSON, pass if plugins let each of its texts pass and there is room.
    pub(super) fn pass_citation<'a>(
        &mut self,
        bytes: usize,
        mut texts: impl Iterator<Item = Cow<'a, str>>,
    ) -> bool {
        let mut unjudged = bytes;
        let is_passed = self.cited_texts.as_ref().is_none_or(|passed| {
            texts.all(|text| {
                unjudged = unjudged.saturating_sub(text.len());
                passed.contains(text.as_ref())
            })
        });
        let passes = is_passed && self.citation_bytes + unjudged <= MAX_UNJUDGED_BYTES;
        if passes {
            self.citation_bytes += unjudged;
        }
        passes
    }

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
pub(super) fn is_listed(lists: &[&[&str]], name: &str) -> bool {
    lists.iter().any(|list| list.iter().any(|member| member.eq_ignore_ascii_case(name)))
}

/// Whether a value has numbers and names alone. It has some for each filter or kind of token, so it is longer than other
/// settings.
pub(super) fn is_report(value: &str) -> bool {
    matches!(kind(value), ValueKind::Object | ValueKind::Array)
        && value.len() <= MAX_UNJUDGED_BYTES
        && has_only_settings(value)
}

/// Whether a list of tokens spells `text` and says nothing else; also if there are no tokens.
pub(super) fn spells(list: &str, text: &str) -> bool {
    if kind(list) != ValueKind::Array {
        return kind(list) == ValueKind::Null;
    }
    let mut rest = text;
    let is_next = |token: &str| {
        let Some(spelled) = string_member(token, "token") else { return false };
        let Some(left) = rest.strip_prefix(spelled.as_ref()) else { return false };
        rest = left;
        json::members(token).all(|(name, value)| match name.as_ref() {
            "token" => true,
            "logprob" => matches!(kind(value), ValueKind::Number | ValueKind::Null) && !is_text(value),
            "bytes" => kind(value) == ValueKind::Null || is_bytes_of(value, &spelled),
            "top_logprobs" => matches!(kind(value), ValueKind::Array | ValueKind::Null),
            _ => false,
        })
    };
    let is_spelled = json::elements(list).all(is_next);
    is_spelled && (rest.is_empty() || rest.len() == text.len())
}

fn is_bytes_of(list: &str, text: &str) -> bool {
    kind(list) == ValueKind::Array
        && json::elements(list).map(|byte| byte.parse().ok()).eq(text.bytes().map(Some))
}

/// Withholds the tokens that the model could have said in place of those in a list of log probabilities, a slice of `root`.
pub(super) fn withhold_other_tokens(
    root: &str,
    tokens: &str,
    edits: &mut Edits,
    withheld: &mut WithheldMembers,
) {
    for others in json::elements(tokens).filter_map(|token| member(token, "top_logprobs")) {
        if json::elements(others).next().is_some() {
            edits.replace(span_in(root, others), "[]");
            withheld.names.push("top_logprobs".to_owned());
        }
    }
}
