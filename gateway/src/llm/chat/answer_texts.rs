//! Where an answer's message has texts and thoughts, and the message with others.

use std::borrow::Cow;

use super::{render::lines, withhold::add_cited_texts};
use crate::{
    json::{self, ValueKind},
    llm::{
        answer_parts::{AnswerParts, Piece},
        edits::{ArrayEdit, Edits, ObjectEdit, span_in},
        format::ChoiceEdit,
        merged::TEXT_MEMBERS,
        value::{kind, member, object_member, quote, string, string_member},
    },
};

/// Where providers other than OpenAI put reasoning. Most repeat it in the last one, if they have it.
pub(super) const REASONING: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_details"];

/// Types of content parts with what the model thought. Mistral's are `thinking`.
const THOUGHT_PARTS: [&str; 2] = ["thinking", "reasoning"];

/// The type of Mistral's content parts that cite, and cut a text for that.
const CITING_PART: &str = "reference";

/// The strings of a message that plugins see, in the order of the parts of its answer.
#[derive(Debug, Default)]
pub(super) struct MessageTexts<'a> {
    pub(super) parts: AnswerParts,
    strings: Vec<SeenString<'a>>,
    /// Places of the thoughts that are members of the message.
    members: Vec<usize>,
    /// Whether the next text goes on with the last one, because the parts between only cite.
    is_cut: bool,
}

/// A string that plugins see.
#[derive(Debug)]
struct SeenString<'a> {
    json: &'a str,
    piece: Piece,
    is_thought: bool,
    owner: Owner<'a>,
}

/// What a string belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner<'a> {
    /// It is a member of the message.
    Message(&'static str),
    /// It is in an element of a list or in an object.
    Element(&'a str),
    /// It is what the audio says.
    Audio,
}

impl<'a> MessageTexts<'a> {
    pub(super) fn new(message: &'a str) -> Self {
        let mut texts = MessageTexts::default();
        texts.read_content(member(message, "content").unwrap_or_default());
        texts.read_annotations(message);
        if let Some(refusal) = member(message, "refusal") {
            texts.push(refusal, false, Owner::Message("refusal"));
        }
        let audio = object_member(message, "audio");
        if let Some(transcript) = audio.and_then(|audio| member(audio, "transcript")) {
            texts.push(transcript, false, Owner::Audio);
        }
        for name in REASONING {
            let Some(value) = member(message, name) else { continue };
            match kind(value) {
                ValueKind::String => texts.push(value, true, Owner::Message(name)),
                ValueKind::Array => {
                    json::elements(value).for_each(|element| texts.read_element(element, true));
                }
                _ => texts.read_element(value, true),
            }
        }
        texts
    }

    fn read_content(&mut self, content: &'a str) {
        if kind(content) == ValueKind::String {
            return self.push(content, false, Owner::Message("content"));
        }
        let mut has_text = false;
        for part in json::elements(content) {
            let part_type = if kind(part) == ValueKind::Object { string_member(part, "type") } else { None };
            let part_type = part_type.as_deref().unwrap_or_default();
            if part_type == CITING_PART {
                self.is_cut = has_text;
                continue;
            }
            let known = self.strings.len();
            self.is_cut &= part_type == "text";
            self.read_element(part, THOUGHT_PARTS.contains(&part_type));
            has_text = part_type == "text" && self.strings.len() > known;
            self.is_cut = false;
            self.read_annotations(part);
        }
    }

    /// What the annotations of a message or a content part say.
    fn read_annotations(&mut self, owner: &str) {
        add_cited_texts(member(owner, "annotations").unwrap_or_default(), &mut self.parts.cited);
    }

    /// All strings of a content part, or of an element of reasoning.
    fn read_element(&mut self, element: &'a str, is_thought: bool) {
        self.read_strings(element, is_thought, Owner::Element(element));
    }

    /// All strings of a value, in the forms of the known providers. Depth is bounded by the scan.
    fn read_strings(&mut self, value: &'a str, is_thought: bool, owner: Owner<'a>) {
        match kind(value) {
            ValueKind::String => self.push(value, is_thought, owner),
            ValueKind::Array => {
                json::elements(value).for_each(|element| self.read_strings(element, is_thought, owner));
            }
            ValueKind::Object => {
                let inner = TEXT_MEMBERS.iter().filter_map(|name| member(value, name));
                inner.for_each(|inner| self.read_strings(inner, is_thought, owner));
            }
            ValueKind::Number | ValueKind::Boolean | ValueKind::Null => {}
        }
    }

    fn push(&mut self, json: &'a str, is_thought: bool, owner: Owner<'a>) {
        let text = string(json).unwrap_or_default();
        let piece = if is_thought {
            // Providers repeat a thought in another member. Plugins are asked once.
            let copied = self.members.iter().find(|place| self.parts.thoughts[**place] == text);
            copied.map(|place| Piece::copy_of(*place)).or_else(|| {
                let piece = self.parts.push_thought(&text)?;
                let is_member = matches!(owner, Owner::Message(_));
                self.members.extend(is_member.then(|| self.parts.thoughts.len() - 1));
                Some(piece)
            })
        } else {
            self.parts.push_text(&text, std::mem::take(&mut self.is_cut))
        };
        self.strings.extend(piece.map(|piece| SeenString { json, piece, is_thought, owner }));
    }

    /// What an edit makes of a string; `None` if it stays.
    fn changed<'e>(&self, seen: &SeenString<'_>, edit: &'e ChoiceEdit) -> Option<&'e str> {
        let AnswerParts { texts, thoughts, .. } = &self.parts;
        match seen.is_thought {
            true => seen.piece.changed(thoughts, &edit.thoughts),
            false => seen.piece.changed(texts, &edit.texts),
        }
    }

    /// Writes the texts and thoughts of an edit into `message`, a slice of `root`.
    pub(super) fn change(&self, root: &str, message: &str, edit: &ChoiceEdit, edits: &mut Edits) {
        let changed = self.strings.iter().filter_map(|seen| Some((seen, self.changed(seen, edit)?)));
        let changed: Vec<_> = changed.collect();
        let mut object = ObjectEdit::new(root, message);
        let mut content = self.parts.added_text(&edit.texts).map(Cow::Borrowed);
        let is_text_changed = content.is_some() || changed.iter().any(|(seen, _)| !seen.is_thought);
        let mut elements = Vec::new();
        for (seen, text) in &changed {
            match seen.owner {
                Owner::Message("content") => content = Some(Cow::Borrowed(*text)),
                Owner::Message(name) if seen.is_thought && text.is_empty() => object.remove(name),
                // Clients take a refusal that is there for one, also if it is empty.
                Owner::Message("refusal") if text.is_empty() => object.set("refusal", "null"),
                Owner::Message(name) => object.set(name, quote(text)),
                Owner::Element(element) => {
                    edits.replace(span_in(root, seen.json), quote(text));
                    elements.push(element);
                }
                Owner::Audio => {}
            }
        }
        drop_annotations(root, elements, edits);
        if let Some(thought) = self.parts.added_thought(&edit.thoughts) {
            let is_string = |name: &&str| object.get(name).is_some_and(|value| string(value).is_some());
            object.set(REASONING.into_iter().find(is_string).unwrap_or(REASONING[0]), quote(thought));
        }
        if is_text_changed {
            // Audio speaks the old text, so its words, as plugins left them, stand in the content.
            if let Some(seen) = self.strings.iter().find(|seen| seen.owner == Owner::Audio) {
                let transcript = self.changed(seen, edit).map(Cow::Borrowed);
                let transcript = transcript.or_else(|| string(seen.json)).filter(|words| !words.is_empty());
                if let Some(words) = transcript {
                    let known = content.or_else(|| object.get("content").and_then(string));
                    content = Some(lines(&known.unwrap_or_default(), &[&words]).into());
                }
            }
            object.remove("audio");
            object.remove("annotations");
        }
        match (content, object.get("content").filter(|content| kind(content) == ValueKind::Array)) {
            (Some(text), Some(list)) => {
                let mut list = ArrayEdit::new(root, list);
                list.push_back(format!(r#"{{"type":"text","text":{}}}"#, quote(&text)));
                list.finish(edits);
            }
            (Some(text), None) => object.set("content", quote(&text)),
            (None, _) => {}
        }
        object.finish(edits);
    }
}

/// All text of a content that the model says.
pub(super) fn content_text(content: &str) -> String {
    let mut texts = MessageTexts::default();
    texts.read_content(content);
    texts.parts.texts.concat()
}

/// Drops the annotations of changed content parts, which point into the old texts.
fn drop_annotations(root: &str, mut parts: Vec<&str>, edits: &mut Edits) {
    parts.retain(|part| kind(part) == ValueKind::Object);
    parts.dedup_by_key(|part| part.as_ptr());
    for part in parts {
        let mut object = ObjectEdit::new(root, part);
        object.remove("annotations");
        object.finish(edits);
    }
}

#[cfg(test)]
#[path = "answer_texts_tests.rs"]
mod tests;
