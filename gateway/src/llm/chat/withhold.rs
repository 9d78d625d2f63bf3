//! What is withheld from an answer while plugins judge answers or tool calls: members that may carry text that no plugin
//! saw.

use std::borrow::Cow;

use super::answer_texts::REASONING;
use crate::{
    json::{self, ValueKind},
    llm::{
        citations::{CitedTexts, MAX_CITATION_TEXT, cited_texts},
        edits::{ArrayEdit, Edits, ObjectEdit},
        merged::TEXT_MEMBERS,
        value::{is_text, kind, may_carry_text, member, object_member, string, string_member},
        withheld::{
            MAX_MODEL, MAX_UNJUDGED_BYTES, WithheldMembers, is_other_settings, is_report, keep_known,
            keep_members, spells, withhold_other_tokens,
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

/// Whether a member of an answer passes though it is more than a setting.
pub(super) fn is_known_in_answer(name: &str, value: &str) -> bool {
    match name {
        "choices" => true,
        "model" => string(value).is_some_and(|model| model.len() <= MAX_MODEL),
        "usage" | "prompt_filter_results" => is_report(value),
        _ => false,
    }
}

/// Whether a member of a choice passes though it is more than a setting.
pub(super) fn is_known_in_choice(name: &str, value: &str) -> bool {
    match name {
        "message" | "logprobs" => true,
        "content_filter_results" => is_report(value), // Azure's
        _ => false,
    }
}

/// Whether a member of an answer's message passes though it is more than a setting. What plugins read is of the right
/// type.
pub(super) fn is_known_in_message(name: &str, value: &str) -> bool {
    match name {
        "content" | "refusal" | "tool_calls" | "function_call" => true,
        "annotations" => kind(value) == ValueKind::Array,
        "audio" => kind(value) == ValueKind::Object,
        _ => REASONING.contains(&name) && may_hold_text(value),
    }
}

/// Whether plugins read the texts in a value of this type.
fn may_hold_text(value: &str) -> bool {
    matches!(kind(value), ValueKind::String | ValueKind::Array | ValueKind::Object)
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
        "extra_content" => kind(value) == ValueKind::Object && value.len() <= MAX_UNJUDGED_BYTES,
        _ => false,
    }
}

/// Withholds members that no plugin saw of the answer, a choice or its message. Objects of settings pass, unless the answer is
/// blocked.
pub(super) fn withhold_unknown(
    object: &mut ObjectEdit<'_>,
    is_known: impl Fn(&str, &str) -> bool,
    is_blocked: bool,
    withheld: &mut WithheldMembers,
) {
    let known = [ANSWER_MEMBERS, CHOICE_MEMBERS, MESSAGE_MEMBERS];
    let is_known = |name: &str, value: &str| {
        is_known(name, value) || (!is_blocked && is_other_settings(&known, name, value))
    };
    keep_known(object, &known, is_known, withheld);
}

/// Withholds what no plugin saw in `part`, a content part and slice of `root`.
pub(super) fn withhold_in_part(root: &str, part: &str, edits: &mut Edits, withheld: &mut WithheldMembers) {
    let mut whole = ObjectEdit::new(root, part);
    let is_known = |name: &str, value: &str| match name {
        "type" => true,
        "annotations" => kind(value) == ValueKind::Array,
        _ => PART_TEXTS.contains(&name) && may_hold_text(value),
    };
    keep_known(&mut whole, &[], is_known, withheld);
    for text in PART_TEXTS.iter().filter_map(|name| whole.get(name)) {
        keep_seen(root, text, false, edits, withheld);
    }
    let annotations = whole.get("annotations").and_then(|value| seen_annotations(value, withheld));
    annotations.into_iter().for_each(|shown| whole.set("annotations", shown));
    whole.finish(edits);
}

/// Annotations of a text with nothing but short citations of web pages; `None` if that is all there is.
pub(super) fn seen_annotations(annotations: &str, withheld: &mut WithheldMembers) -> Option<String> {
    let array = Some(annotations).filter(|value| kind(value) == ValueKind::Array)?;
    let mut list = ArrayEdit::new(annotations, array);
    for (index, annotation) in list.elements().to_vec().into_iter().enumerate() {
        let is_object = kind(annotation) == ValueKind::Object;
        let shown =
            Some(annotation).filter(|_| is_object).and_then(|object| seen_annotation(object, withheld));
        let left = shown.as_deref().unwrap_or(annotation);
        let texts = cited_texts(url_citation(left), CITATION_MEMBERS);
        if !is_object || !withheld.pass_citation(left.len(), texts) {
            list.remove(index);
            withheld.names.push("annotations".to_owned());
            continue;
        }
        shown.into_iter().for_each(|shown| list.replace(index, shown));
    }
    let mut edits = Edits::default();
    list.finish(&mut edits);
    (!edits.is_empty()).then(|| edits.apply_to_str(annotations))
}

/// Adds the texts of annotations to those that plugins are asked about.
pub(super) fn add_cited_texts(annotations: &str, texts: &mut CitedTexts) {
    json::elements(annotations).for_each(|annotation| texts.add(url_citation(annotation), CITATION_MEMBERS));
}

/// The citation of a web page in an annotation; empty if there is none.
fn url_citation(annotation: &str) -> &str {
    object_member(annotation, "url_citation").unwrap_or_default()
}

fn seen_annotation(annotation: &str, withheld: &mut WithheldMembers) -> Option<String> {
    let mut edits = Edits::default();
    let mut whole = ObjectEdit::new(annotation, annotation);
    let is_kept = |name: &str, value: &str| match name {
        "type" => !may_carry_text(name, value),
        "url_citation" => kind(value) == ValueKind::Object,
        _ => false,
    };
    keep_members(&mut whole, is_kept, withheld);
    if let Some(citation) = object_member(annotation, "url_citation") {
        let mut citation = ObjectEdit::new(annotation, citation);
        keep_members(&mut citation, is_of_citation, withheld);
        citation.finish(&mut edits);
    }
    whole.finish(&mut edits);
    (!edits.is_empty()).then(|| edits.apply_to_str(annotation))
}

fn is_of_citation(name: &str, value: &str) -> bool {
    let is_short = string(value).map_or(!is_text(value), |text| text.len() <= MAX_CITATION_TEXT);
    is_short && CITATION_MEMBERS.contains(&name)
}

/// Spoken audio with nothing but what is known; `None` if that is all there is. Plugins see its transcript.
pub(super) fn seen_audio(audio: &str, withheld: &mut WithheldMembers) -> Option<String> {
    let audio = Some(audio).filter(|audio| kind(audio) == ValueKind::Object)?;
    let mut edits = Edits::default();
    let mut object = ObjectEdit::new(audio, audio);
    let is_kept = |name: &str, value: &str| match name {
        "data" | "transcript" => matches!(kind(value), ValueKind::String | ValueKind::Null),
        "id" | "expires_at" => !is_text(value),
        _ => false,
    };
    keep_members(&mut object, is_kept, withheld);
    object.finish(&mut edits);
    (!edits.is_empty()).then(|| edits.apply_to_str(audio))
}

/// Log probabilities without tokens that the model could have said in place of its own; `None` if that is all there is.
/// If its own don't spell `content` and `refusal`, they may be those of thoughts, and it is `null`.
pub(super) fn seen_logprobs(
    logprobs: &str,
    (content, refusal): (&str, &str),
    withheld: &mut WithheldMembers,
) -> Option<String> {
    if kind(logprobs) == ValueKind::Null {
        return None;
    }
    let is_seen = |(name, list): (Cow<'_, str>, &str)| match name.as_ref() {
        "content" => spells(list, content),
        "refusal" => spells(list, refusal),
        _ => false,
    };
    if kind(logprobs) != ValueKind::Object || !json::members(logprobs).all(is_seen) {
        withheld.names.push("logprobs".to_owned());
        return Some("null".to_owned());
    }
    let mut edits = Edits::default();
    for (_, tokens) in json::members(logprobs) {
        withhold_other_tokens(logprobs, tokens, &mut edits, withheld);
    }
    (!edits.is_empty()).then(|| edits.apply_to_str(logprobs))
}

/// A member with reasoning without what no plugin saw in it; `None` if plugins saw all of it.
pub(super) fn seen_reasoning(name: &str, reasoning: &str, withheld: &mut WithheldMembers) -> Option<String> {
    let mut edits = Edits::default();
    keep_seen(reasoning, reasoning, name == "reasoning_details", &mut edits, withheld);
    (!edits.is_empty()).then(|| edits.apply_to_str(reasoning))
}

/// Keeps the texts that plugins see in `value`, a slice of `root`; of details of reasoning (`has_signatures`) also what
/// the provider wants back. Depth is bounded by the scan.
fn keep_seen(
    root: &str,
    value: &str,
    has_signatures: bool,
    edits: &mut Edits,
    withheld: &mut WithheldMembers,
) {
    match kind(value) {
        ValueKind::Array => {
            let mut list = ArrayEdit::new(root, value);
            for (index, element) in json::elements(value).enumerate() {
                if kind(element) == ValueKind::Number && is_text(element) {
                    list.remove(index);
                    withheld.names.push("reasoning".to_owned());
                }
                keep_seen(root, element, has_signatures, edits, withheld);
            }
            list.finish(edits);
        }
        ValueKind::Object => {
            let mut object = ObjectEdit::new(root, value);
            let is_kept = |name: &str, value: &str| {
                (TEXT_MEMBERS.contains(&name) && may_hold_text(value))
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
        ValueKind::Number | ValueKind::Boolean | ValueKind::Null => !may_carry_text(name, value),
        ValueKind::String => matches!(name, "type" | "format") && !may_carry_text(name, value),
        ValueKind::Object | ValueKind::Array => false,
    }
}

fn is_signature(name: &str, value: &str) -> bool {
    let longest = match name {
        "id" => MAX_CITATION_TEXT,
        "data" | "signature" => MAX_UNJUDGED_BYTES,
        _ => 0,
    };
    string(value).is_some_and(|text| text.len() <= longest)
}
