//! What is withheld from an answer while plugins judge answers or tool calls: items, content parts and members that may carry text
//! that no plugin saw.

use super::{
    answer::{OutputKind, is_thought},
    echoes::{FILLED_IDS, REPEATED},
    items::CallForm,
};
use crate::{
    json::{self, ValueKind},
    llm::{
        citations::withhold_in_flat_citations,
        edits::{ArrayEdit, Edits, ObjectEdit, edit_object},
        error_text::quotes_model,
        value::{MAX_SETTING_BYTES, is_settings, kind, may_carry_text, quote, string, string_member},
        withheld::{
            MAX_MODEL, WithheldMembers, is_listed, is_other_settings, is_report, keep_known, keep_members,
            spells, withhold_other_tokens,
        },
    },
};

/// Longest id, in bytes.
const MAX_ID: usize = 512;

/// Members with counts, names and ids of the provider.
const REPORTS: &[&str] = &[
    "usage",
    "incomplete_details",
    "conversation",
    "context_management",
    "input_transformations",
    "moderation",
    "tool_usage",
    "content_filters", // Azure's
    "prompt_cache_options",
    "prompt_cache_diagnostics",
    "access_programs",
    "image",
];

/// Other members of an answer.
const ANSWER_MEMBERS: &[&str] = &[
    "id",
    "object",
    "created_at",
    "completed_at",
    "status",
    "background",
    "error",
    "model",
    "output",
    "output_text",
    "previous_response_id",
    "parallel_tool_calls",
    "service_tier",
    "store",
    "temperature",
    "top_p",
    "truncation",
];

/// Members of items.
const ITEM_MEMBERS: &[&str] = &[
    "id",
    "type",
    "role",
    "status",
    "phase",
    "content",
    "summary",
    "encrypted_content",
    "call_id",
    "name",
    "namespace",
    "arguments",
    "input",
    "action",
    "operation",
    "caller",
    "environment",
    "output",
];

/// Members of content parts.
const PART_MEMBERS: &[&str] = &["type", "text", "refusal", "annotations", "logprobs"];

/// Members of items and of their parts. Each passes only where plugins see it, or where it is no text.
const OUTPUT_MEMBERS: &[&[&str]] = &[ITEM_MEMBERS, PART_MEMBERS];

/// The members of a content part that point into its text or repeat it.
pub(super) const TEXT_LISTS: [&str; 2] = ["annotations", "logprobs"];

/// Members of an annotation, whatever it points to.
pub(super) const ANNOTATION_MEMBERS: &[&str] =
    &["type", "url", "title", "file_id", "filename", "container_id", "index", "start_index", "end_index"];

/// What stands in place of a provider's message about its error.
const WITHHELD_MESSAGE: &str = "The provider's message is withheld.";

/// Why a whole item is withheld, as the name to record: its type, if plugins aren't asked about it.
pub(super) fn withheld_item(kind: OutputKind, item: &str) -> Option<String> {
    (kind == OutputKind::Other).then(|| type_name(item))
}

/// The name to record of an item or a part that is withheld: its type.
pub(super) fn type_name(object: &str) -> String {
    string_member(object, "type").unwrap_or_default().into_owned()
}

/// Withholds what no plugin saw of a message, beside its content.
pub(super) fn withhold_in_message(message: &mut ObjectEdit<'_>, withheld: &mut WithheldMembers) {
    let is_own = |name: &str, value: &str| match name {
        "role" | "status" | "phase" => !may_carry_text(name, value),
        "id" => is_id(value),
        // What is of another type is no message.
        "content" => kind(value) == ValueKind::Array,
        _ => false,
    };
    keep_own(message, is_own, withheld);
}

/// Withholds what no plugin saw of a reasoning item, beside its lists.
pub(super) fn withhold_in_reasoning(item: &mut ObjectEdit<'_>, withheld: &mut WithheldMembers) {
    let is_own = |name: &str, value: &str| match name {
        "status" => !may_carry_text(name, value),
        "id" => is_id(value),
        "summary" | "content" => kind(value) == ValueKind::Array,
        "encrypted_content" => string(value).is_some(),
        _ => false,
    };
    keep_own(item, is_own, withheld);
}

/// Withholds what no plugin saw of a tool call.
pub(super) fn withhold_in_call(item: &mut ObjectEdit<'_>, form: CallForm, withheld: &mut WithheldMembers) {
    let has_name = form.tool().is_none();
    let is_own = |name: &str, value: &str| match name {
        "status" => !may_carry_text(name, value),
        "id" | "call_id" => is_id(value),
        "name" | "namespace" => has_name && string(value).is_some(),
        "caller" | "environment" => is_settings(name, value),
        _ => name == form.args_member(),
    };
    keep_own(item, is_own, withheld);
}

/// Withholds what no plugin saw of a content part with text in the member `text_member`, beside its lists.
pub(super) fn withhold_in_part(part: &mut ObjectEdit<'_>, text_member: &str, withheld: &mut WithheldMembers) {
    keep_own(part, |name, _| name == text_member || TEXT_LISTS.contains(&name), withheld);
}

/// Keeps the members of an item or a part that `is_own` takes by name and value, its type, and those that carry no text and that
/// no kind of items and parts has.
fn keep_own(
    object: &mut ObjectEdit<'_>,
    is_own: impl Fn(&str, &str) -> bool,
    withheld: &mut WithheldMembers,
) {
    let is_kept = |name: &str, value: &str| {
        let is_setting = !may_carry_text(name, value);
        is_own(name, value)
            || (is_setting && (name == "type" || value == "null" || !is_listed(OUTPUT_MEMBERS, name)))
    };
    keep_members(object, is_kept, withheld);
}

/// Withholds what may carry text in the lists of a content part, a slice of `root`. What points into the text or repeats it passes
/// where it says nothing else. Clients that check answers want the lists even if they are empty.
pub(super) fn withhold_in_lists(
    root: &str,
    part: &mut ObjectEdit<'_>,
    text_member: &str,
    edits: &mut Edits,
    withheld: &mut WithheldMembers,
) {
    let text = part.get(text_member).and_then(string).unwrap_or_default();
    for name in TEXT_LISTS {
        let list = part.get(name).unwrap_or("null");
        let is_list = text_member == "text" && kind(list) == ValueKind::Array;
        match name {
            _ if kind(list) == ValueKind::Null => {}
            "annotations" if is_list => {
                withhold_in_flat_citations(root, (name, list), ANNOTATION_MEMBERS, edits, withheld);
            }
            "logprobs" if is_list && spells(list, &text) => {
                withhold_other_tokens(root, list, edits, withheld);
            }
            _ => {
                part.set(name, "[]");
                withheld.names.push(name.to_owned());
            }
        }
    }
}

/// Withholds what no plugin saw of an element of a reasoning item's list.
pub(super) fn withhold_in_thought(part: &mut ObjectEdit<'_>, withheld: &mut WithheldMembers) {
    keep_own(part, |name, _| name == "text", withheld);
}

/// Withholds the elements without text of a reasoning item's list called `name`.
pub(super) fn withhold_other_thoughts(list: &mut ArrayEdit<'_>, name: &str, withheld: &mut WithheldMembers) {
    for index in 0..list.elements().len() {
        if !is_thought(list.elements()[index]) {
            list.remove(index);
            withheld.names.push(name.to_owned());
        }
    }
}

/// Withholds members of the answer that no plugin saw. Objects of settings pass, unless the answer is blocked: then nothing passes
/// but what every answer has. What it repeats of the request is left out where it may carry text: the client's words are put back.
pub(super) fn withhold_in_answer(
    answer: &mut ObjectEdit<'_>,
    is_blocked: bool,
    withheld: &mut WithheldMembers,
) {
    for name in REPEATED {
        let is_no_id = |value: &str| FILLED_IDS.contains(name) && value != "null" && !is_id(value);
        if answer.get(name).is_some_and(|value| !is_settings(name, value) || is_no_id(value)) {
            answer.set(name, "null");
        }
    }
    if is_blocked {
        return keep_bare(answer, withheld);
    }
    for name in ["output_text", "id", "previous_response_id"] {
        // A short text is no id either.
        let passes = |value: &str| name != "output_text" && (value == "null" || is_id(value));
        if answer.get(name).is_some_and(|value| !passes(value)) {
            answer.remove(name);
            withheld.names.push(name.to_owned());
        }
    }
    let known = [ANSWER_MEMBERS, REPEATED, REPORTS];
    let is_known = |name: &str, value: &str| match name {
        // What may carry text in an error was taken out.
        "output" | "error" => true,
        "id" | "previous_response_id" => is_id(value),
        "model" => is_model(value),
        _ if REPORTS.contains(&name) => is_report(value),
        // What of them is no settings was left out.
        _ => REPEATED.contains(&name) || is_other_settings(&known, name, value),
    };
    keep_known(answer, &known, is_known, withheld);
}

/// Keeps of an answer what clients need if it says nothing of its own.
fn keep_bare(answer: &mut ObjectEdit<'_>, withheld: &mut WithheldMembers) {
    if let Some(usage) = answer.get("usage").filter(|usage| kind(usage) == ValueKind::Object) {
        let mut names = Vec::new();
        let counts = edit_object(usage, |usage| names = usage.retain(is_count));
        if !names.is_empty() {
            withheld.names.append(&mut names);
            answer.set("usage", if is_report(&counts) { counts } else { "null".to_owned() });
        }
    }
    let is_kept = |name: &str, value: &str| match name {
        "output" => true,
        "id" => is_id(value),
        "model" => is_model(value),
        "object" | "status" => !may_carry_text(name, value),
        "created_at" | "completed_at" => is_count(name, value) && kind(value) != ValueKind::Object,
        // It has nothing but counts.
        "usage" => kind(value) == ValueKind::Null || (kind(value) == ValueKind::Object && is_report(value)),
        "error" | "incomplete_details" => kind(value) == ValueKind::Null,
        _ => REPEATED.contains(&name) || (ANSWER_MEMBERS.contains(&name) && is_bare(name, value)),
    };
    keep_members(answer, is_kept, withheld);
}

/// Whether a member is a number or a switch.
fn is_bare(name: &str, value: &str) -> bool {
    matches!(kind(value), ValueKind::Number | ValueKind::Boolean | ValueKind::Null)
        && !may_carry_text(name, value)
}

/// Whether a member is a number, or an object of nothing else.
fn is_count(name: &str, value: &str) -> bool {
    let is_number = match kind(value) {
        ValueKind::Object => json::members(value).all(|(name, value)| is_count(&name, value)),
        ValueKind::Number | ValueKind::Null => !may_carry_text(name, value),
        _ => false,
    };
    is_number && name.len() <= MAX_SETTING_BYTES
}

fn is_model(value: &str) -> bool {
    string(value).is_some_and(|model| model.len() <= MAX_MODEL)
}

/// An answer's `error` without what may carry text; `None` if that is all there is. What the model said may stand in the message,
/// as the server failed while it spoke.
pub(super) fn seen_error(error: &str, withheld: &mut WithheldMembers) -> Option<String> {
    match kind(error) {
        ValueKind::Null => return None,
        ValueKind::Object => {}
        _ => {
            withheld.names.push("error".to_owned());
            return Some("null".to_owned());
        }
    }
    let mut names = Vec::new();
    let shown = edit_object(error, |error| {
        let message = error.get("message");
        let is_shown = |message: &str| {
            string(message).is_some_and(|text| text.len() <= MAX_SETTING_BYTES && !quotes_model(&text))
        };
        if message.is_some_and(|message| !is_shown(message)) {
            error.set("message", quote(WITHHELD_MESSAGE));
            names.push("message".to_owned());
        }
        names.extend(error.retain(|name, value| match name {
            "message" => true,
            "code" => !may_carry_text(name, value),
            _ => false,
        }));
    });
    let is_changed = !names.is_empty();
    withheld.names.append(&mut names);
    is_changed.then_some(shown)
}

/// The answer with which a stream begins, without output. With `is_guarded`, without what may carry text that no plugin saw;
/// otherwise as it came.
pub(super) fn withhold_opening(response: &str, is_guarded: bool) -> String {
    if !is_guarded {
        return response.to_owned();
    }
    if kind(response) != ValueKind::Object {
        return "{}".to_owned();
    }
    edit_object(response, |answer| {
        for (name, value) in [("output", "[]"), ("error", "null"), ("incomplete_details", "null")] {
            answer.set_existing(name, value);
        }
        withhold_in_answer(answer, true, &mut WithheldMembers::default());
    })
}

/// Whether a value is an id. Some servers write whole tokens there, but nobody writes sentences.
pub(super) fn is_id(value: &str) -> bool {
    let is_in_ids = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:=+/|~-".contains(&byte);
    string(value).is_some_and(|id| id.len() <= MAX_ID && id.bytes().all(is_in_ids))
}
