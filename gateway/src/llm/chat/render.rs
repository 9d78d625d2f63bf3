//! An answer's bytes with what plugins changed in it, and without what they blocked.

use std::borrow::Cow;

use bytes::Bytes;

use super::{
    answer::{ChatAnswer, Choice},
    answer_texts::{MessageTexts, REASONING, content_text},
    call::{CallForm, ToolCall},
    withhold::{
        is_known_in_answer, is_known_in_choice, is_known_in_message, is_passed_with_call, is_seen_part,
        seen_annotations, seen_audio, seen_logprobs, seen_reasoning, withhold_in_part, withhold_unknown,
    },
};
use crate::{
    json::ValueKind,
    llm::{
        edits::{ArrayEdit, Edits, ObjectEdit},
        format::{CallEdit, ChoiceEdit, FormatAnswer as _, RenderedAnswer},
        value::{kind, quote, string, string_member},
        withheld::{WithheldMembers, keep_known},
    },
};

/// See [`FormatAnswer::render`](crate::llm::format::FormatAnswer::render).
pub(super) fn render(
    answer: &ChatAnswer,
    choices: &[ChoiceEdit],
    expects_json: bool,
    is_guarded: bool,
) -> RenderedAnswer {
    let changed = with_texts(answer, choices);
    let answer = changed.as_ref().unwrap_or(answer);
    let text = str::from_utf8(answer.body()).unwrap_or_default();
    let mut edits = Edits::default();
    let mut withheld = WithheldMembers::default();
    let unchanged = ChoiceEdit::default();
    let choices = choices.iter().chain(std::iter::repeat(&unchanged));
    for (choice, edit) in answer.all().iter().zip(choices) {
        let whole = ObjectEdit::new(text, text.get(choice.span.clone()).unwrap_or_default());
        let message = ObjectEdit::new(text, whole.get("message").unwrap_or_default());
        withheld.begin_choice(edit);
        let (edits, withheld) = (&mut edits, &mut withheld);
        let mut renderer =
            Renderer { text, choice, whole, message, edits, withheld, expects_json, is_guarded };
        if is_guarded {
            renderer.withhold_inside();
        }
        match &edit.replacement {
            Some(replacement) => renderer.replace(replacement),
            None => renderer.change(edit),
        }
        if is_guarded || edit.replacement.is_some() {
            renderer.withhold_members(edit.replacement.is_some());
        }
        let Renderer { whole, message, edits, .. } = renderer;
        message.finish(edits);
        whole.finish(edits);
    }
    if is_guarded {
        let mut whole = ObjectEdit::new(text, text);
        withhold_unknown(&mut whole, is_known_in_answer, false, &mut withheld);
        whole.finish(&mut edits);
    }
    RenderedAnswer { body: edits.apply(answer.body()), withheld: withheld.into_names() }
}

/// The answer with the texts and thoughts of the edits; `None` if these change none. What is left is rendered as if the model had said
/// so.
fn with_texts(answer: &ChatAnswer, choices: &[ChoiceEdit]) -> Option<ChatAnswer> {
    let text = str::from_utf8(answer.body()).unwrap_or_default();
    let mut edits = Edits::default();
    let is_changed = |(choice, edit): &(&Choice, &ChoiceEdit)| {
        edit.replacement.is_none() && choice.parts.are_changed_by(edit)
    };
    for (choice, edit) in answer.all().iter().zip(choices).filter(is_changed) {
        let mut whole = ObjectEdit::new(text, text.get(choice.span.clone()).unwrap_or_default());
        let message = whole.get("message").unwrap_or_default();
        MessageTexts::new(message).change(text, message, edit, &mut edits);
        // Some servers give the tokens of reasoning here as well.
        whole.set_existing("logprobs", "null");
        whole.finish(&mut edits);
    }
    if edits.is_empty() {
        return None;
    }
    let choices = answer.all().len().try_into().unwrap_or(u32::MAX);
    Some(ChatAnswer::parse(edits.apply(answer.body()), choices).expect("texts keep the shape of an answer"))
}

/// A text, unless it is empty, and the notes below it.
pub(super) fn lines(text: &str, notes: &[&str]) -> String {
    let text = Some(text).filter(|text| !text.is_empty());
    text.into_iter().chain(notes.iter().copied()).collect::<Vec<_>>().join("\n")
}

/// The changes of one choice.
struct Renderer<'a, 'e> {
    text: &'a str,
    choice: &'a Choice,
    /// The choice.
    whole: ObjectEdit<'a>,
    /// Its message.
    message: ObjectEdit<'a>,
    /// Changes inside `tool_calls`, `function_call` and content parts.
    edits: &'e mut Edits,
    withheld: &'e mut WithheldMembers,
    expects_json: bool,
    is_guarded: bool,
}

impl Renderer<'_, '_> {
    /// Puts a message in place of the whole answer.
    fn replace(&mut self, replacement: &str) {
        if self.expects_json {
            self.message.set("content", "null");
            self.message.set("refusal", quote(replacement));
        } else {
            self.message.set("content", quote(replacement));
            self.message.set_existing("refusal", "null");
        }
        for name in REASONING.into_iter().chain(["tool_calls", "function_call"]) {
            self.message.remove(name);
        }
        self.drop_copies_of_text();
        self.whole.set("finish_reason", quote("stop"));
    }

    fn change(&mut self, edit: &ChoiceEdit) {
        let notes = self.change_calls(&edit.calls);
        self.add_notes(&notes);
        if !notes.is_empty() {
            self.drop_copies_of_text();
        }
        // Some servers give the tokens of tool calls here as well.
        if edit.calls.iter().any(|call| *call != CallEdit::Keep) {
            self.whole.set_existing("logprobs", "null");
        }
    }

    /// Appends what stands in place of tool calls to the content. Where a client parses the content, to the refusal.
    fn add_notes(&mut self, notes: &[&str]) {
        let content = self.message.get("content").unwrap_or("null");
        let is_list = kind(content) == ValueKind::Array;
        if is_list {
            self.change_parts(content, notes);
        }
        if notes.is_empty() {
            return;
        }
        if self.expects_json {
            let refusal = self.message.get("refusal").and_then(string).unwrap_or_default();
            self.message.set("refusal", quote(&lines(&refusal, notes)));
        } else if !is_list {
            let old = string(content).unwrap_or_default();
            self.message.set("content", quote(&lines(&old, notes)));
        }
    }

    /// Appends the notes to content in parts, unless the refusal has them, and withholds parts that no plugin saw.
    fn change_parts(&mut self, content: &str, notes: &[&str]) {
        let root: &str = self.text;
        let mut parts = ArrayEdit::new(root, content);
        if self.is_guarded {
            for (index, part) in parts.elements().to_vec().into_iter().enumerate() {
                if !is_seen_part(part) {
                    parts.remove(index);
                    let name = string_member(part, "type").map_or("content".into(), Cow::into_owned);
                    self.withheld.names.push(name);
                } else if kind(part) == ValueKind::Object {
                    withhold_in_part(root, part, self.edits, self.withheld);
                }
            }
        }
        if !notes.is_empty() && !self.expects_json {
            parts.push_back(format!(r#"{{"type":"text","text":{}}}"#, quote(&notes.join("\n"))));
        }
        if parts.is_emptied() && !parts.elements().is_empty() {
            self.message.set("content", "null");
        } else {
            parts.finish(self.edits);
        }
    }

    /// Changes the tool calls, and returns the notes about those that are taken out.
    fn change_calls<'n>(&mut self, calls: &'n [CallEdit]) -> Vec<&'n str> {
        let list = self.message.get("tool_calls").filter(|list| kind(list) == ValueKind::Array);
        let mut list = ArrayEdit::new(self.text, list.unwrap_or_default());
        let mut notes = Vec::new();
        for (index, call) in self.choice.calls.iter().enumerate() {
            let whole = match call.form {
                CallForm::Legacy => self.message.get("function_call"),
                CallForm::Function | CallForm::Custom => list.elements().get(index).copied(),
            };
            let whole = whole.unwrap_or_default();
            match calls.get(index).unwrap_or(&CallEdit::Keep) {
                CallEdit::Keep => self.change_call(call, whole, None),
                CallEdit::Patch { name, args } => self.change_call(call, whole, Some((name, args))),
                CallEdit::Note(note) => {
                    notes.push(note.as_str());
                    match call.form {
                        CallForm::Legacy => self.message.remove("function_call"),
                        CallForm::Function | CallForm::Custom => list.remove(index),
                    }
                }
            }
        }
        if notes.is_empty() {
            return notes;
        }
        if list.is_emptied() {
            self.message.remove("tool_calls");
        } else {
            list.finish(self.edits);
        }
        if notes.len() == self.choice.calls.len() {
            self.whole.set("finish_reason", quote("stop"));
        }
        notes
    }

    /// Changes the text `whole` of a call: writes another name and other arguments into it, if plugins gave them, and
    /// withholds what no plugin saw.
    fn change_call(&mut self, call: &ToolCall, whole: &str, patch: Option<(&str, &Bytes)>) {
        let (inner, arguments) = match call.form {
            CallForm::Function => ("function", "arguments"),
            CallForm::Custom => ("custom", "input"),
            CallForm::Legacy => ("", "arguments"),
        };
        let mut function = whole;
        if call.form != CallForm::Legacy {
            let mut whole = ObjectEdit::new(self.text, whole);
            function = whole.get(inner).unwrap_or_default();
            if self.is_guarded {
                keep_known(
                    &mut whole,
                    &[],
                    |name, value| name == inner || is_passed_with_call(name, value),
                    self.withheld,
                );
                whole.finish(self.edits);
            }
        }
        let mut function = ObjectEdit::new(self.text, function);
        if let Some((name, args)) = patch {
            change_function(&mut function, call, arguments, (name, args));
        }
        if self.is_guarded {
            keep_known(&mut function, &[], |name, _| name == "name" || name == arguments, self.withheld);
        }
        function.finish(self.edits);
    }

    /// Drops what repeats the old text or points into it.
    fn drop_copies_of_text(&mut self) {
        self.whole.set_existing("logprobs", "null");
        self.message.remove("annotations");
        self.message.remove("audio");
    }

    /// Withholds what no plugin saw inside the reasoning, the annotations, audio and log probabilities. What changes these
    /// members comes later, and counts.
    fn withhold_inside(&mut self) {
        if let Some(logprobs) = self.whole.get("logprobs") {
            let content = self.message.get("content").map(content_text).unwrap_or_default();
            let refusal = self.message.get("refusal").and_then(string).unwrap_or_default();
            let shown = seen_logprobs(logprobs, (&content, &refusal), self.withheld);
            shown.into_iter().for_each(|shown| self.whole.set("logprobs", shown));
        }
        let audio = self.message.get("audio").and_then(|value| seen_audio(value, self.withheld));
        audio.into_iter().for_each(|shown| self.message.set("audio", shown));
        for name in REASONING {
            let shown = self.message.get(name).and_then(|value| seen_reasoning(name, value, self.withheld));
            shown.into_iter().for_each(|shown| self.message.set(name, shown));
        }
        let annotations = self.message.get("annotations");
        let shown = annotations.and_then(|value| seen_annotations(value, self.withheld));
        shown.into_iter().for_each(|shown| self.message.set("annotations", shown));
    }

    /// Withholds unknown members of the message and the choice; in place of a blocked answer (`is_blocked`) also objects
    /// of settings.
    fn withhold_members(&mut self, is_blocked: bool) {
        withhold_unknown(&mut self.message, is_known_in_message, is_blocked, self.withheld);
        withhold_unknown(&mut self.whole, is_known_in_choice, is_blocked, self.withheld);
    }
}

/// Gives a called function another name and other arguments, which are the member `arguments`.
fn change_function(
    function: &mut ObjectEdit<'_>,
    call: &ToolCall,
    arguments: &str,
    (name, args): (&str, &Bytes),
) {
    let args = str::from_utf8(args).unwrap_or_default().trim_ascii();
    if name != call.name {
        function.set("name", quote(name));
    }
    if args.as_bytes() != call.arguments.json().trim_ascii() {
        let is_object = function.get(arguments).is_some_and(|old| kind(old) == ValueKind::Object);
        let is_text = call.form == CallForm::Custom && kind(args) == ValueKind::String;
        let args = if is_object || is_text { args.to_owned() } else { quote(args) };
        function.set(arguments, args);
    }
}
