//! What is withheld from an answer while plugins judge answers or tool calls: blocks and members that may carry text that
//! no plugin saw.

use super::answer::BlockKind;
use crate::{
    json::ValueKind,
    llm::{
        citations::withhold_in_flat_citations,
        edits::{Edits, ObjectEdit, edit_object},
        value::{is_settings, kind, may_carry_text, member, string, string_member},
        withheld::{MAX_MODEL, WithheldMembers, is_other_settings, is_report, keep_known},
    },
};

/// Members of an answer.
const ANSWER_MEMBERS: &[&str] = &[
    "id",
    "type",
    "role",
    "model",
    "content",
    "stop_reason",
    "stop_sequence",
    "stop_details",
    "usage",
    "container",
    "context_management",
    "input_transformations",
    "safeguard_results",
];

/// Members of content blocks.
const BLOCK_MEMBERS: &[&str] = &[
    "type",
    "text",
    "citations",
    "thinking",
    "signature",
    "data",
    "id",
    "name",
    "input",
    "caller",
    "toolset_name",
];

/// Members of a citation, whatever it cites.
pub(super) const CITATION_MEMBERS: &[&str] = &[
    "type",
    "cited_text",
    "document_index",
    "document_title",
    "file_id",
    "start_char_index",
    "end_char_index",
    "start_page_number",
    "end_page_number",
    "start_block_index",
    "end_block_index",
    "search_result_index",
    "source",
    "title",
    "url",
    "encrypted_index",
];

/// Why a whole block is withheld, as the name to record: its type if plugins aren't asked about it, or the name of the
/// member that can't pass. A thought without its signature would be refused when it comes back.
pub(super) fn withheld_block(kind: BlockKind, block: &str) -> Option<String> {
    let unless_string = |name: &str| {
        member(block, name).is_some_and(|value| string(value).is_none()).then(|| name.to_owned())
    };
    match kind {
        BlockKind::Text | BlockKind::ToolUse => None,
        BlockKind::Thinking => unless_string("signature"),
        BlockKind::RedactedThinking => unless_string("data"),
        BlockKind::Other => Some(string_member(block, "type").unwrap_or_default().into_owned()),
    }
}

/// Withholds what no plugin saw in a block that isn't [withheld](withheld_block) as a whole.
pub(super) fn withhold_in_block(
    block: &mut ObjectEdit<'_>,
    block_kind: BlockKind,
    withheld: &mut WithheldMembers,
) {
    let is_known = |name: &str, value: &str| match (block_kind, name) {
        (BlockKind::Text, "text")
        | (BlockKind::Thinking, "thinking" | "signature")
        | (BlockKind::RedactedThinking, "data")
        | (BlockKind::ToolUse, "name" | "input") => true,
        (BlockKind::Text, "citations") => kind(value) == ValueKind::Array,
        (BlockKind::ToolUse, "id" | "toolset_name") => string(value).is_some(),
        (BlockKind::ToolUse, "caller") => is_settings(name, value),
        _ => false,
    };
    keep_known(block, &[BLOCK_MEMBERS], is_known, withheld);
}

/// Withholds what no plugin saw in `citations`, a list and slice of `root`; see [`withhold_in_flat_citations`].
pub(super) fn withhold_in_citations(
    root: &str,
    citations: &str,
    edits: &mut Edits,
    withheld: &mut WithheldMembers,
) {
    withhold_in_flat_citations(root, ("citations", citations), CITATION_MEMBERS, edits, withheld);
}

/// The details of a stop without what may carry text; `None` if that is all there is.
pub(super) fn withhold_in_stop_details(details: &str, withheld: &mut WithheldMembers) -> Option<String> {
    let mut names = Vec::new();
    // The model may have written a short explanation too.
    let is_setting = |name: &str, value: &str| {
        !may_carry_text(name, value) && (name != "explanation" || kind(value) == ValueKind::Null)
    };
    let shown = edit_object(details, |object| names = object.retain(is_setting));
    let is_changed = !names.is_empty();
    withheld.names.append(&mut names);
    is_changed.then_some(shown)
}

/// Withholds members of the answer that no plugin saw. Objects of settings pass, unless the answer is blocked.
pub(super) fn withhold_unknown(
    answer: &mut ObjectEdit<'_>,
    is_blocked: bool,
    withheld: &mut WithheldMembers,
) {
    let is_known = |name: &str, value: &str| match name {
        "content" => true,
        "model" => string(value).is_some_and(|model| model.len() <= MAX_MODEL),
        // The text in them was taken out.
        "stop_details" => kind(value) == ValueKind::Object,
        "usage" | "container" | "context_management" | "input_transformations" | "safeguard_results" => {
            is_report(value)
        }
        _ => !is_blocked && is_other_settings(&[ANSWER_MEMBERS], name, value),
    };
    keep_known(answer, &[ANSWER_MEMBERS], is_known, withheld);
}

/// Withholds members of a count of tokens that may carry text.
pub(super) fn withhold_in_count(count: &mut ObjectEdit<'_>, withheld: &mut WithheldMembers) {
    let known: &[&[&str]] = &[&["input_tokens", "context_management"]];
    let is_known = |name: &str, value: &str| match name {
        "input_tokens" => true,
        "context_management" => is_report(value),
        _ => is_other_settings(known, name, value),
    };
    keep_known(count, known, is_known, withheld);
}
