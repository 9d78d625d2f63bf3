//! An answer's bytes with what plugins changed in it, and without what they blocked.

use bytes::Bytes;

use super::{
    answer::{BlockKind, ContentBlock, MessagesAnswer, ToolUse},
    withhold::{
        withheld_block, withhold_in_block, withhold_in_citations, withhold_in_stop_details, withhold_unknown,
    },
};
use crate::{
    json::ValueKind,
    llm::{
        edits::{ArrayEdit, Edits, ObjectEdit, span_in},
        format::{CallEdit, ChoiceEdit, RenderedAnswer},
        value::{kind, quote},
        withheld::{EMPTIED_TEXT, WITHHELD_TEXT, WithheldMembers},
    },
};

/// The answer with an edit of its only choice; see [`crate::llm::format::FormatAnswer::render`].
pub(super) fn render(
    answer: &MessagesAnswer,
    edit: &ChoiceEdit,
    expects_json: bool,
    is_guarded: bool,
) -> RenderedAnswer {
    let text = str::from_utf8(answer.body()).unwrap_or_default();
    let (edits, withheld) = (Edits::default(), WithheldMembers::of_choice(edit));
    let message = ObjectEdit::new(text, text);
    let mut renderer = Renderer { answer, text, message, edits, withheld, expects_json, is_guarded };
    if is_guarded {
        renderer.withhold_stop_details();
    }
    match &edit.replacement {
        Some(replacement) => renderer.replace(replacement),
        None => renderer.change(edit),
    }
    let Renderer { mut message, mut edits, mut withheld, .. } = renderer;
    if is_guarded || edit.replacement.is_some() {
        withhold_unknown(&mut message, edit.replacement.is_some(), &mut withheld);
    }
    message.finish(&mut edits);
    RenderedAnswer { body: edits.apply(answer.body()), withheld: withheld.into_names() }
}

/// The changes of an answer.
struct Renderer<'a> {
    answer: &'a MessagesAnswer,
    text: &'a str,
    /// The answer as an object.
    message: ObjectEdit<'a>,
    /// Changes inside the content.
    edits: Edits,
    withheld: WithheldMembers,
    expects_json: bool,
    is_guarded: bool,
}

/// What is left of the content.
#[derive(Default)]
struct Left<'a> {
    /// Whether a block is left that is no thought.
    has_words: bool,
    /// Whether a block was withheld.
    is_withheld: bool,
    /// The first text block whose new text is empty, and its place.
    emptied: Option<(usize, &'a str)>,
    /// The first tool call that is kept.
    first_call: Option<&'a str>,
}

impl<'a> Renderer<'a> {
    /// Puts a message in place of the whole answer. Where a client parses the text, the end alone has it.
    fn replace(&mut self, replacement: &str) {
        let content = if self.expects_json { String::new() } else { text_block(replacement) };
        self.message.set("content", format!("[{content}]"));
        self.message.set_existing("stop_sequence", "null");
        self.end(replacement);
    }

    /// Changes the content block by block.
    fn change(&mut self, edit: &ChoiceEdit) {
        let answer = self.answer;
        let parts = &answer.parts;
        let mut added = parts.added_text(&edit.texts);
        let call_edits = edit.calls.iter().chain(std::iter::repeat(&CallEdit::Keep));
        let mut calls = answer.calls.iter().zip(call_edits);
        let mut content = ArrayEdit::new(self.text, self.message.get("content").unwrap_or_default());
        let blocks = content.elements().to_vec();
        let (mut left, mut notes) = (Left::default(), Vec::new());
        for (index, (&ContentBlock { kind, piece }, block)) in answer.blocks.iter().zip(blocks).enumerate() {
            if self.is_guarded
                && let Some(name) = withheld_block(kind, block)
            {
                self.withheld.names.push(name);
                content.remove(index);
                left.is_withheld = true;
                continue;
            }
            let changed = match kind {
                // A text that plugins added stands where the model left room for one.
                BlockKind::Text if added.is_some() => added.take(),
                BlockKind::Text => piece.and_then(|piece| piece.changed(&parts.texts, &edit.texts)),
                BlockKind::Thinking => piece.and_then(|piece| piece.changed(&parts.thoughts, &edit.thoughts)),
                BlockKind::ToolUse => {
                    let Some((call, edit)) = calls.next() else { continue };
                    let patch = match edit {
                        CallEdit::Keep => None,
                        CallEdit::Patch { name, args } => Some((name.as_str(), args)),
                        CallEdit::Note(note) => {
                            notes.push(note.as_str());
                            content.remove(index);
                            continue;
                        }
                    };
                    self.change_call(call, block, patch);
                    left.first_call.get_or_insert(block);
                    left.has_words = true;
                    continue;
                }
                BlockKind::RedactedThinking | BlockKind::Other => None,
            };
            if kind == BlockKind::Text && changed == Some("") {
                match left.emptied {
                    None => left.emptied = Some((index, block)),
                    Some(_) => content.remove(index),
                }
                continue;
            }
            left.has_words |= matches!(kind, BlockKind::Text | BlockKind::Other);
            self.change_block(kind, block, changed);
        }
        self.add(content, &left, added, &notes);
        self.end_without_calls(&notes);
    }

    /// Adds a text, and the notes about refused calls, each as a block. They stand in front of the calls: providers refuse
    /// a history with a text between a call and its result.
    ///
    /// Where a client parses the text, no note stands there. If no call is left, the end of the answer has the notes;
    /// otherwise they are dropped, and the model sees a history without these calls.
    fn add(&mut self, mut content: ArrayEdit<'a>, left: &Left<'a>, text: Option<&str>, notes: &[&str]) {
        let notes = if self.expects_json { &[] } else { notes };
        let mut added: Vec<String> = text.into_iter().chain(notes.iter().copied()).map(text_block).collect();
        // Many clients read a text without looking whether there is one, and providers refuse a history in which a message
        // is empty, has an empty text or ends with a thought.
        let needs_text = !left.has_words && added.is_empty() && !self.expects_json;
        match left.emptied {
            Some((_, block)) if needs_text => self.change_block(BlockKind::Text, block, Some(EMPTIED_TEXT)),
            Some((index, _)) => content.remove(index),
            None if needs_text && left.is_withheld => added.push(text_block(WITHHELD_TEXT)),
            None => {}
        }
        match left.first_call {
            Some(_) if added.is_empty() => {}
            Some(call) => {
                let start = span_in(self.text, call).start;
                self.edits.replace(start..start, added.join(",") + ",");
            }
            None => added.into_iter().for_each(|block| content.push_back(block)),
        }
        content.finish(&mut self.edits);
    }

    /// Changes a block with text or thoughts: writes another text into it, if plugins gave one, and withholds what no
    /// plugin saw.
    fn change_block(&mut self, kind: BlockKind, block: &str, text: Option<&str>) {
        let root: &str = self.text;
        let mut block = ObjectEdit::new(root, block);
        match (kind, text) {
            (BlockKind::Text, None) if self.is_guarded => {
                let citations = block.get("citations").unwrap_or_default();
                withhold_in_citations(root, citations, &mut self.edits, &mut self.withheld);
            }
            (BlockKind::Text, Some(text)) => {
                block.set("text", quote(text));
                // They quote and point into the old text. Some clients take no `null` here.
                block.remove("citations");
            }
            // The signature stays, as in the answers of providers that leave the thoughts out.
            (BlockKind::Thinking, Some(text)) => block.set("thinking", quote(text)),
            _ => {}
        }
        if self.is_guarded {
            withhold_in_block(&mut block, kind, &mut self.withheld);
        }
        block.finish(&mut self.edits);
    }
}

impl Renderer<'_> {
    /// Changes a tool call: writes another name and other arguments into it, if plugins gave them, and withholds what no
    /// plugin saw.
    fn change_call(&mut self, call: &ToolUse, block: &str, patch: Option<(&str, &Bytes)>) {
        let mut block = ObjectEdit::new(self.text, block);
        if let Some((name, args)) = patch {
            let args = str::from_utf8(args).unwrap_or_default().trim_ascii();
            if name != call.name {
                block.set("name", quote(name));
            }
            if args.as_bytes() != call.input.trim_ascii() {
                block.set("input", args);
            }
        }
        if self.is_guarded {
            withhold_in_block(&mut block, BlockKind::ToolUse, &mut self.withheld);
        }
        block.finish(&mut self.edits);
    }

    /// Ends the answer in another way if all of its calls are taken out and it stopped for them. Where a client parses the
    /// text, the end has the notes, so it is another one however the answer stopped.
    fn end_without_calls(&mut self, notes: &[&str]) {
        let is_stopped_for_calls = self.answer.stop_reason.as_deref() == Some("tool_use");
        let has_call = notes.len() < self.answer.calls.len();
        if !notes.is_empty() && !has_call && (is_stopped_for_calls || self.expects_json) {
            self.end(&notes.join("\n"));
        }
    }

    /// Ends the answer as if the model had said this. Where a client parses the text, the end says that it can't.
    fn end(&mut self, message: &str) {
        if self.expects_json {
            let message = quote(message);
            let details = format!(r#"{{"type":"refusal","category":null,"explanation":{message}}}"#);
            self.message.set("stop_reason", quote("refusal"));
            self.message.set("stop_details", details);
        } else {
            self.message.set("stop_reason", quote("end_turn"));
            self.message.set_existing("stop_details", "null");
        }
    }

    /// Withholds the explanation of a refusal. What changes the details comes later, and counts.
    fn withhold_stop_details(&mut self) {
        let details = self.message.get("stop_details").filter(|details| kind(details) == ValueKind::Object);
        let shown = details.and_then(|details| withhold_in_stop_details(details, &mut self.withheld));
        shown.into_iter().for_each(|shown| self.message.set("stop_details", shown));
    }
}

/// A block that says `text`.
fn text_block(text: &str) -> String {
    format!(r#"{{"type":"text","text":{}}}"#, quote(text))
}
