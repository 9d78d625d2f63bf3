//! What is withheld from an answer while plugins judge answers or tool calls: members that may carry text that no plugin
//! saw.

use super::answer::TEXT_MEMBERS;
use crate::{
    json::{self, ValueKind},
    llm::{
        edits::{ArrayEdit, Edits, ObjectEdit},
        value::{
            has_only_settings, is_settings, kind, may_carry_text, member, object_member, string,
            string_member,
        },
    },
};

/// Members of an answer.
const ANSWER_MEMBERS: &[&str] = &[
    "id",
    "object",
    "created",
    "model",
    "choices",
    "usage",
    "system_fingerprint",
    "service_tier",
    "prompt_filter_results", // Azure's
];

/// Members of a choice.
const CHOICE_MEMBERS: &[&str] = &["index", "message", "finish_reason", "logprobs"];

/// Members of an answer's message that plugins see, or that go with the text.
const MESSAGE_MEMBERS: &[&str] = &[
    "role",
    "content",
    "refusal",
    "tool_calls",
    "function_call",
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "annotations",
    "audio",
];

/// Members of a content part whose text plugins see.
const PART_TEXTS: [&str; 3] = ["text", "refusal", "thinking"];

/// Members of a citation.
const CITATION_MEMBERS: &[&str] = &["url", "title", "start_index", "end_index"];

/// Longest text of a citation, and longest id of reasoning, in bytes.
const MAX_CITATION_TEXT: usize = 2 << 10;

/// Longest value that providers sign or encrypt, and want back, in bytes.
const MAX_SIGNED: usize = 16 << 10;

/// Whether a member of an answer is known.
pub(super) fn is_known_in_answer(name: &str, _: &str) -> bool {
    ANSWER_MEMBERS.contains(&name)
}

/// Whether a member of a choice is known.
pub(super) fn is_known_in_choice(name: &str, value: &str) -> bool {
    match name {
        // Azure's. It has a member for each filter, so it is longer than other settings.
        "content_filter_results" => {
            kind(value) == ValueKind::Object && value.len() <= MAX_SIGNED && has_only_settings(value)
        }
        _ => CHOICE_MEMBERS.contains(&name),
    }
}

/// Whether a member of an answer's message is known.
pub(super) fn is_known_in_message(name: &str, value: &str) -> bool {
    match name {
        "annotations" => kind(value) == ValueKind::Array,
        _ => MESSAGE_MEMBERS.contains(&name),
    }
}

/// Whether plugins see the text of a content part.
pub(super) fn is_seen_part(part: &str) -> bool {
    let has_text = |name: &str| string_member(part, name).is_some();
    match string_member(part, "type").as_deref() {
        Some("text") => has_text("text"),
        Some("refusal") => has_text("refusal"),
        Some("thinking") => member(part, "thinking").is_some(), // Mistral's
        Some(_) => false,
        None => string(part).is_some(),
    }
}

/// Whether a member of a tool call, beside its function, is passed though it may carry text.
pub(super) fn is_passed_with_call(name: &str, value: &str) -> bool {
    match name {
        "id" => string(value).is_some(),
        // Gemini puts the signature of a thought here, and refuses a request that has the call without it. So this much
        // text passes that no plugin saw.
        "extra_content" => kind(value) == ValueKind::Object && value.len() <= MAX_SIGNED,
        _ => false,
    }
}

/// Removes members that may carry text, unless `is_known` by name and value, and adds their names to `withheld`.
pub(super) fn withhold(
    object: &mut ObjectEdit<'_>,
    is_known: impl Fn(&str, &str) -> bool,
    withheld: &mut Vec<String>,
) {
    keep_members(object, |name, value| is_known(name, value) || !may_carry_text(value), withheld);
}

/// Like [`withhold`], but objects of settings pass, such as the times that some servers add. Some clients ignore the case
/// of names, so those of known members don't pass in another case.
pub(super) fn withhold_unknown(
    object: &mut ObjectEdit<'_>,
    is_known: impl Fn(&str, &str) -> bool,
    withheld: &mut Vec<String>,
) {
    let known = [ANSWER_MEMBERS, CHOICE_MEMBERS, MESSAGE_MEMBERS];
    let is_other =
        |name: &str| !known.iter().any(|list| list.iter().any(|one| one.eq_ignore_ascii_case(name)));
    let is_passed =
        |name: &str, value: &str| kind(value) == ValueKind::Object && is_settings(value) && is_other(name);
    withhold(object, |name, value| is_known(name, value) || is_passed(name, value), withheld);
}

/// Withholds what no plugin saw in `part`, a content part and slice of `root`.
pub(super) fn withhold_in_part(root: &str, part: &str, edits: &mut Edits, withheld: &mut Vec<String>) {
    let mut whole = ObjectEdit::new(root, part);
    let is_known = |name: &str, value: &str| match name {
        "type" => true,
        "annotations" => kind(value) == ValueKind::Array,
        _ => PART_TEXTS.contains(&name),
    };
    withhold(&mut whole, is_known, withheld);
    for text in PART_TEXTS.iter().filter_map(|name| whole.get(name)) {
        keep_seen(root, text, false, edits, withheld);
    }
    let annotations = whole.get("annotations").and_then(|value| seen_annotations(value, withheld));
    annotations.into_iter().for_each(|shown| whole.set("annotations", shown));
    whole.finish(edits);
}

/// Annotations of a text with nothing but short citations of web pages; `None` if that is all there is.
pub(super) fn seen_annotations(annotations: &str, withheld: &mut Vec<String>) -> Option<String> {
    let mut edits = Edits::default();
    let array = Some(annotations).filter(|value| kind(value) == ValueKind::Array)?;
    let mut list = ArrayEdit::new(annotations, array);
    for (index, annotation) in list.elements().to_vec().into_iter().enumerate() {
        if kind(annotation) != ValueKind::Object {
            list.remove(index);
            withheld.push("annotations".to_owned());
            continue;
        }
        let mut whole = ObjectEdit::new(annotations, annotation);
        let is_kept = |name: &str, value: &str| match name {
            "type" => !may_carry_text(value),
            "url_citation" => kind(value) == ValueKind::Object,
            _ => false,
        };
        keep_members(&mut whole, is_kept, withheld);
        if let Some(citation) = object_member(annotation, "url_citation") {
            let mut citation = ObjectEdit::new(annotations, citation);
            keep_members(&mut citation, is_of_citation, withheld);
            citation.finish(&mut edits);
        }
        whole.finish(&mut edits);
    }
    list.finish(&mut edits);
    (!edits.is_empty()).then(|| edits.apply_to_str(annotations))
}

fn is_of_citation(name: &str, value: &str) -> bool {
    let is_short = match kind(value) {
        ValueKind::Object | ValueKind::Array => false,
        _ => string(value).is_none_or(|text| text.len() <= MAX_CITATION_TEXT),
    };
    is_short && CITATION_MEMBERS.contains(&name)
}

/// A member with reasoning without what no plugin saw in it; `None` if plugins saw all of it.
pub(super) fn seen_reasoning(name: &str, reasoning: &str, withheld: &mut Vec<String>) -> Option<String> {
    let mut edits = Edits::default();
    keep_seen(reasoning, reasoning, name == "reasoning_details", &mut edits, withheld);
    (!edits.is_empty()).then(|| edits.apply_to_str(reasoning))
}

/// Keeps the texts that plugins see in `value`, a slice of `root`; of details of reasoning (`has_signatures`) also what
/// the provider wants back. Depth is bounded by the scan.
fn keep_seen(root: &str, value: &str, has_signatures: bool, edits: &mut Edits, withheld: &mut Vec<String>) {
    match kind(value) {
        ValueKind::Array => {
            for element in json::elements(value) {
                keep_seen(root, element, has_signatures, edits, withheld);
            }
        }
        ValueKind::Object => {
            let mut object = ObjectEdit::new(root, value);
            let is_kept = |name: &str, value: &str| {
                TEXT_MEMBERS.contains(&name)
                    || is_passed_with_reasoning(name, value)
                    || (has_signatures && is_signature(name, value))
            };
            keep_members(&mut object, is_kept, withheld);
            for text in TEXT_MEMBERS.iter().filter_map(|name| object.get(name)) {
                keep_seen(root, text, has_signatures, edits, withheld);
            }
            object.finish(edits);
        }
        ValueKind::String | ValueKind::Number | ValueKind::Boolean | ValueKind::Null => {}
    }
}

fn is_passed_with_reasoning(name: &str, value: &str) -> bool {
    match kind(value) {
        ValueKind::Number | ValueKind::Boolean | ValueKind::Null => true,
        ValueKind::String => matches!(name, "type" | "format") && !may_carry_text(value),
        ValueKind::Object | ValueKind::Array => false,
    }
}

fn is_signature(name: &str, value: &str) -> bool {
    let longest = match name {
        "id" => MAX_CITATION_TEXT,
        "data" | "signature" => MAX_SIGNED,
        _ => 0,
    };
    string(value).is_some_and(|text| text.len() <= longest)
}

/// Removes all other members than those to keep, and adds their names to `withheld`.
fn keep_members(
    object: &mut ObjectEdit<'_>,
    is_kept: impl Fn(&str, &str) -> bool,
    withheld: &mut Vec<String>,
) {
    let is_dropped = |name: &str| object.get(name).is_some_and(|value| !is_kept(name, value));
    let dropped = object.keys().iter().filter(|name| is_dropped(name));
    let names: Vec<String> = dropped.map(|name| name.clone().into_owned()).collect();
    names.iter().for_each(|name| object.remove(name));
    withheld.extend(names);
}
