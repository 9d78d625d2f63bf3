//! An answer's bytes with what plugins changed in it, and without what they blocked. [`super::output_plan`] says what becomes of each
//! item.

use bytes::Bytes;
use uuid::Uuid;

use super::{
    answer::{OutputKind, REASONING_LISTS, ResponsesAnswer, is_thought, text_member, thoughts},
    items::{CallForm, ToolCall},
    output_plan::{OutputPlan, PartChange, RenderOptions},
    withhold::{
        TEXT_LISTS, seen_error, type_name, withhold_in_answer, withhold_in_call, withhold_in_lists,
        withhold_in_message, withhold_in_part, withhold_in_reasoning, withhold_in_thought,
        withhold_other_thoughts,
    },
};
use crate::{
    json::ValueKind,
    llm::{
        edits::{ArrayEdit, Edits, ObjectEdit, span_in},
        format::{CallEdit, ChoiceEdit, RenderedAnswer},
        value::{kind, quote, string, string_member},
        withheld::WithheldMembers,
    },
};

/// Longest id of an answer, in bytes, that is a part of the ids of its items. OpenAI takes ids of 64 bytes.
const MAX_ID_PART: usize = 50;

/// The answer with an edit of its only choice; see [`crate::llm::format::FormatAnswer::render`].
pub(super) fn render(answer: &ResponsesAnswer, edit: &ChoiceEdit, options: RenderOptions) -> RenderedAnswer {
    let text = str::from_utf8(answer.body()).unwrap_or_default();
    let whole = ObjectEdit::new(text, text);
    let (edits, withheld) = (Edits::default(), WithheldMembers::of_choice(edit));
    let id_part = id_part(text);
    let mut renderer = Renderer { answer, text, whole, edits, withheld, options, id_part };
    let is_blocked = edit.replacement.is_some();
    match &edit.replacement {
        Some(replacement) => renderer.replace(replacement),
        None => {
            if options.is_guarded {
                renderer.withhold_error();
            }
            renderer.change(edit);
        }
    }
    let Renderer { mut whole, mut edits, mut withheld, .. } = renderer;
    if options.is_guarded || is_blocked {
        withhold_in_answer(&mut whole, is_blocked, &mut withheld);
    }
    whole.finish(&mut edits);
    RenderedAnswer { body: edits.apply(answer.body()), withheld: withheld.into_names() }
}

/// The changes of an answer.
struct Renderer<'a> {
    answer: &'a ResponsesAnswer,
    text: &'a str,
    /// The answer as an object.
    whole: ObjectEdit<'a>,
    /// Changes inside the output.
    edits: Edits,
    withheld: WithheldMembers,
    options: RenderOptions,
    /// What the ids of items that are added have of the answer's own id.
    id_part: String,
}

impl<'a> Renderer<'a> {
    /// Puts a message in place of the whole answer.
    fn replace(&mut self, replacement: &str) {
        let message = message_item(&self.message_id(0), replacement, self.options.expects_json);
        self.whole.set("output", format!("[{message}]"));
        self.whole.set("status", quote("completed"));
        for name in ["incomplete_details", "error"] {
            self.whole.set_existing(name, "null");
        }
    }

    /// Changes the output item by item.
    fn change(&mut self, edit: &ChoiceEdit) {
        let answer = self.answer;
        let mut output = ArrayEdit::new(self.text, self.whole.get("output").unwrap_or_default());
        let items = output.elements().to_vec();
        let plan = OutputPlan::new(answer, &items, edit, self.options);
        let call_edits = edit.calls.iter().chain(std::iter::repeat(&CallEdit::Keep));
        let mut calls = answer.calls.iter().zip(call_edits);
        for (index, (kind, item)) in answer.items.iter().copied().zip(items.iter().copied()).enumerate() {
            let call = if kind == OutputKind::Call { calls.next() } else { None };
            if !plan.is_kept(index) {
                output.remove(index);
                continue;
            }
            match (kind, call) {
                (OutputKind::Message, _) => self.change_message(item, plan.part_changes(index)),
                (OutputKind::Reasoning, _) => {
                    self.change_reasoning(item, plan.part_changes(index), plan.added_thought(index));
                }
                (_, Some((call, CallEdit::Patch { name, args }))) => {
                    match self.changed_form(call, (index, item), name, args) {
                        Some(function) => output.replace(index, function),
                        None => self.change_call(call, item, Some((name, args))),
                    }
                }
                (_, Some((call, _))) => self.change_call(call, item, None),
                (_, None) => {}
            }
        }
        for (number, (place, text)) in plan.added().iter().enumerate() {
            let is_refusal = self.options.expects_json && !plan.is_answer(number);
            let message = message_item(&self.message_id(number), text, is_refusal);
            match items.get(*place) {
                Some(item) => {
                    let start = span_in(self.text, item).start;
                    self.edits.replace(start..start, message + ",");
                }
                None => output.push_back(message),
            }
        }
        output.finish(&mut self.edits);
        if plan.changes_text(&answer.items) {
            self.whole.remove("output_text");
        }
        self.withheld.names.extend(plan.into_withheld());
    }

    /// Changes a message: writes other texts into its parts, and withholds what no plugin saw.
    fn change_message(&mut self, item: &str, changes: &[PartChange<'_>]) {
        let root: &str = self.text;
        let mut message = ObjectEdit::new(root, item);
        if let Some(content) = message.get("content").filter(|content| kind(content) == ValueKind::Array) {
            let mut content = ArrayEdit::new(root, content);
            for (index, (part, change)) in content.elements().to_vec().into_iter().zip(changes).enumerate() {
                let Some(name) = text_member(part) else {
                    if self.options.is_guarded {
                        self.withheld.names.push(type_name(part));
                        content.remove(index);
                    }
                    continue;
                };
                match *change {
                    PartChange::Unchanged => self.change_part(part, name, None),
                    PartChange::Text(text) => self.change_part(part, name, Some(text)),
                    PartChange::Refusal(text) => content.replace(index, refusal_part(text)),
                    PartChange::Removed => content.remove(index),
                }
            }
            content.finish(&mut self.edits);
        }
        if self.options.is_guarded {
            withhold_in_message(&mut message, &mut self.withheld);
        }
        message.finish(&mut self.edits);
    }

    /// Changes a content part with text in the member `name`.
    fn change_part(&mut self, part: &str, name: &str, text: Option<&str>) {
        let root: &str = self.text;
        let mut part = ObjectEdit::new(root, part);
        match text {
            Some(text) => {
                part.set(name, quote(text));
                // They quote and point into the old text.
                TEXT_LISTS.iter().for_each(|list| part.set_existing(list, "[]"));
            }
            None if self.options.is_guarded => {
                withhold_in_lists(root, &mut part, name, &mut self.edits, &mut self.withheld);
            }
            None => {}
        }
        if self.options.is_guarded {
            withhold_in_part(&mut part, name, &mut self.withheld);
        }
        part.finish(&mut self.edits);
    }

    /// Changes a reasoning item: writes other thoughts into its lists, and withholds what no plugin saw. What is encrypted stays, as in
    /// the answers of providers that leave the thoughts out.
    fn change_reasoning(&mut self, item: &str, changes: &[PartChange<'_>], mut added: Option<&str>) {
        let root: &str = self.text;
        let mut reasoning = ObjectEdit::new(root, item);
        let lists = REASONING_LISTS
            .map(|name| (name, reasoning.get(name).filter(|list| kind(list) == ValueKind::Array)));
        let has_text = thoughts(item).any(is_thought);
        let mut changes = changes.iter();
        for (name, list) in lists {
            let Some(list) = list else {
                if let Some(thought) = added.filter(|_| !has_text) {
                    reasoning.set(name, format!("[{}]", self::thought(thought)));
                    added = None;
                }
                continue;
            };
            let mut list = ArrayEdit::new(root, list);
            if self.options.is_guarded {
                withhold_other_thoughts(&mut list, name, &mut self.withheld);
            }
            for (index, part) in list.elements().to_vec().into_iter().enumerate() {
                let change = changes.next();
                if !is_thought(part) {
                    continue;
                }
                match (added.take(), change) {
                    // The first thought, which is empty, takes the added one.
                    (Some(thought), _) => self.change_thought(part, Some(thought)),
                    (None, Some(PartChange::Removed)) => list.remove(index),
                    (None, Some(PartChange::Text(text))) => self.change_thought(part, Some(text)),
                    (None, _) => self.change_thought(part, None),
                }
            }
            if let Some(thought) = added.take_if(|_| !has_text) {
                list.push_back(self::thought(thought));
            }
            list.finish(&mut self.edits);
        }
        if self.options.is_guarded {
            withhold_in_reasoning(&mut reasoning, &mut self.withheld);
        }
        reasoning.finish(&mut self.edits);
    }

    /// Changes an element of a reasoning item's list.
    fn change_thought(&mut self, part: &str, text: Option<&str>) {
        let mut part = ObjectEdit::new(self.text, part);
        text.into_iter().for_each(|text| part.set("text", quote(text)));
        if self.options.is_guarded {
            withhold_in_thought(&mut part, &mut self.withheld);
        }
        part.finish(&mut self.edits);
    }

    /// Changes a tool call: writes another name and other arguments into it, if plugins gave them, and withholds what no plugin saw.
    fn change_call(&mut self, call: &ToolCall, item: &str, patch: Option<(&str, &Bytes)>) {
        let mut item = ObjectEdit::new(self.text, item);
        if let Some((name, args)) = patch {
            if name != call.name {
                rename(&mut item, name);
            }
            let args = str::from_utf8(args).unwrap_or_default().trim_ascii();
            if args.as_bytes() != call.arguments.json().trim_ascii() {
                let member = call.form.args_member();
                let is_json = match call.form {
                    // Some servers write the object itself, and not its text.
                    CallForm::Function => item.get(member).is_some_and(|old| kind(old) == ValueKind::Object),
                    CallForm::Custom => kind(args) == ValueKind::String,
                    CallForm::LocalShell | CallForm::Shell | CallForm::ApplyPatch | CallForm::ToolSearch => {
                        true
                    }
                };
                item.set(member, if is_json { args.to_owned() } else { quote(args) });
            }
        }
        if self.options.is_guarded {
            withhold_in_call(&mut item, call.form, &mut self.withheld);
        }
        item.finish(&mut self.edits);
    }

    /// A call that has no name of its own, with a new one: it becomes the call of a function.
    fn changed_form(
        &self,
        call: &ToolCall,
        (index, item): (usize, &str),
        name: &str,
        args: &Bytes,
    ) -> Option<String> {
        if call.form.tool().is_none_or(|tool| tool == name) {
            return None;
        }
        let args = str::from_utf8(args).unwrap_or_default().trim_ascii();
        // The provider refuses a function's call whose id begins with another prefix.
        let id = format!("fc_{}_{index}", self.id_part);
        let members = [
            ("type", Some(quote("function_call"))),
            ("id", Some(quote(&id))),
            ("call_id", call.call_id.as_deref().map(quote)),
            ("name", Some(quote(name))),
            ("arguments", Some(quote(args))),
            ("status", string_member(item, "status").map(|status| quote(&status))),
        ];
        let members =
            members.into_iter().filter_map(|(name, value)| Some(format!("{}:{}", quote(name), value?)));
        Some(format!("{{{}}}", members.collect::<Vec<_>>().join(",")))
    }

    /// Withholds what may carry text of the provider's error.
    fn withhold_error(&mut self) {
        let error = self.whole.get("error");
        let shown = error.and_then(|error| seen_error(error, &mut self.withheld));
        shown.into_iter().for_each(|shown| self.whole.set("error", shown));
    }

    /// The id of an added message.
    fn message_id(&self, number: usize) -> String {
        format!("msg_{}_{number}", self.id_part)
    }
}

/// What the ids of items that are added to an answer have of its own. Clients join what has the same id, so that of an answer without
/// an id of this kind is new.
fn id_part(answer: &str) -> String {
    let id = string_member(answer, "id").unwrap_or_default();
    let part = id.strip_prefix("resp_").unwrap_or(&id);
    let is_in_ids = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    let is_fit = (1..=MAX_ID_PART).contains(&part.len()) && part.bytes().all(is_in_ids);
    if is_fit { part.to_owned() } else { Uuid::now_v7().simple().to_string() }
}

/// Gives a call another name. The name that plugins see has the namespace in front.
fn rename(item: &mut ObjectEdit<'_>, name: &str) {
    let namespace = item.get("namespace").and_then(string).filter(|namespace| !namespace.is_empty());
    let in_namespace =
        namespace.as_deref().and_then(|namespace| name.strip_prefix(namespace)?.strip_prefix('.'));
    match in_namespace.filter(|name| !name.is_empty()) {
        Some(name) => item.set("name", quote(name)),
        None => {
            item.remove("namespace");
            item.set("name", quote(name));
        }
    }
}

/// A message with one part.
fn message_item(id: &str, text: &str, is_refusal: bool) -> String {
    let id = quote(id);
    let part = if is_refusal {
        refusal_part(text)
    } else {
        format!(r#"{{"type":"output_text","annotations":[],"logprobs":[],"text":{}}}"#, quote(text))
    };
    format!(r#"{{"id":{id},"type":"message","status":"completed","content":[{part}],"role":"assistant"}}"#)
}

/// A content part that isn't parsed as the answer.
fn refusal_part(text: &str) -> String {
    format!(r#"{{"type":"refusal","refusal":{}}}"#, quote(text))
}

/// An element of a reasoning item's summary.
fn thought(text: &str) -> String {
    format!(r#"{{"type":"summary_text","text":{}}}"#, quote(text))
}

#[cfg(test)]
#[path = "render_tests.rs"]
mod tests;
