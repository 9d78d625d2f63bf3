//! [`RequestDraft`]: a request with the changes that plugins made.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use bytes::Bytes;
use hookgate_proto::types::v1::{AfterToolResultPayload, BeforeLlmRequestPayload};

use super::{
    Messages,
    blocks::with_marks_of,
    message::{break_lines, only_results, with_note, with_parts},
    request::MessagesRequest,
    shape::MessagesShape,
};
use crate::{
    core::error::Error,
    json,
    llm::{
        edits::{ArrayEdit, Edits, ObjectEdit, edit_object},
        format::{FormatDraft, FormatRequest as _, PatchError},
        main_patch::{MainCallDraft as _, MemberChanges, shown_members, system_prompt},
        message_content::{break_texts, is_text_part, user_payload, with_changes},
        request_shape::FormatShape as _,
        request_view::RequestView as _,
        tool_results::{result_content, result_payload},
        unit::Unit,
        value::{is_same, member, object_member, quote, string_member},
    },
};

/// Members that plugins see elsewhere, or that say nothing to them.
pub(super) const NOT_IN_EXTRA: &[&str] = &["model", "messages", "system", "tools", "stream"];

/// A request and its changes. What nobody changes stays byte for byte.
#[derive(Debug)]
pub(crate) struct RequestDraft<'r> {
    pub(super) request: &'r MessagesRequest,
    /// Messages with another text or other media, without their results.
    pub(super) edited: BTreeMap<usize, String>,
    /// Results with another value, by message and block.
    pub(super) results: BTreeMap<usize, BTreeMap<usize, String>>,
    /// The messages of the system prompt that are left out.
    pub(super) dropped: Range<usize>,
    /// The messages behind the system prompt, if their list was changed.
    pub(super) rest: Option<Vec<String>>,
    /// Members with another value, or without one.
    pub(super) members: MemberChanges,
    /// Another model, as a JSON string.
    model: Option<String>,
    /// Whether text blocks are kept apart.
    breaks_lines: bool,
}

impl<'r> FormatDraft<'r> for RequestDraft<'r> {
    type Request = MessagesRequest;

    fn new(request: &'r MessagesRequest) -> Self {
        RequestDraft {
            request,
            edited: BTreeMap::new(),
            results: BTreeMap::new(),
            dropped: 0..0,
            rest: None,
            members: MemberChanges::default(),
            model: None,
            breaks_lines: false,
        }
    }

    fn set_model(&mut self, model: &str) {
        self.model = Some(model).filter(|model| *model != self.request.model()).map(quote);
    }

    /// Answers always have it.
    fn ask_for_usage(&mut self) {}

    fn break_lines(&mut self) {
        self.breaks_lines = true;
    }

    /// What was remembered has no marks for the provider's cache: those of the unit count.
    fn replace_unit(&mut self, unit: &Unit, json: &Bytes) {
        let marked = with_marks_of(&self.unit_text(unit), &String::from_utf8_lossy(json));
        self.put(unit, marked);
    }

    fn remove_content(&mut self, unit: &Unit, note: &str) {
        let json = self.unit_text(unit);
        let removed = match unit.block() {
            None => with_marks_of(&json, &with_note(&json, note)),
            Some(_) => edit_object(&json, |block| {
                block.set("content", quote(note));
                block.set("is_error", "true");
            }),
        };
        self.put(unit, removed);
    }

    fn is_changed(&self) -> bool {
        let is_listed = self.edited.is_empty() && self.results.is_empty() && self.dropped.is_empty();
        !(is_listed && self.rest.is_none() && self.members.is_empty())
    }

    fn main_payload(&self) -> BeforeLlmRequestPayload {
        let main = self.request.main_unit().map(Unit::message);
        let mut payload = main.map(|main| user_payload::<Messages>(&self.message(main))).unwrap_or_default();
        payload.system_prompt = system_prompt(self.request, "system");
        let others = (self.request.leading()..self.request.message_count()).filter_map(|index| {
            let message = self.message(index);
            if Some(index) == main { only_results(&message).map(Cow::Owned) } else { Some(message) }
        });
        let others: Vec<Cow<'_, str>> = others.collect();
        payload.messages = format!("[{}]", others.join(",")).into();
        payload.tools =
            self.request.member("tools").map(|tools| self.request.share(tools)).unwrap_or_default();
        payload.extra = self.extra().into();
        payload
    }

    fn unit_payload(&self, unit: &Unit) -> BeforeLlmRequestPayload {
        user_payload::<Messages>(&self.unit_text(unit))
    }

    fn result_payload(&self, unit: &Unit) -> Result<AfterToolResultPayload, Error> {
        result_payload(MessagesShape::MESSAGES, unit)
    }

    fn patched_unit(
        &self,
        unit: &Unit,
        before: &BeforeLlmRequestPayload,
        after: &BeforeLlmRequestPayload,
    ) -> Result<Bytes, PatchError> {
        with_changes::<Messages>(&self.unit_text(unit), before, after).map(Bytes::from)
    }

    /// A string and an array of content blocks become the content; of another value it is the text.
    fn patched_result(&self, unit: &Unit, result: &Bytes) -> Bytes {
        let block = self.unit_text(unit);
        let result = str::from_utf8(result).unwrap_or_default().trim_ascii();
        if is_same(member(&block, "content").unwrap_or("null"), result) {
            return block.into_owned().into();
        }
        let content = result_content(result, is_result_content);
        edit_object(&block, |block| block.set("content", content)).into()
    }

    fn apply_main(
        &mut self,
        before: &BeforeLlmRequestPayload,
        after: &BeforeLlmRequestPayload,
    ) -> Result<(), PatchError> {
        self.apply_changes(before, after)
    }

    fn render(&self) -> Bytes {
        let body = self.request.body();
        let has_own_edits = self.model.is_some() || self.breaks_lines;
        if !has_own_edits && !self.is_changed() {
            return body.as_bytes().clone();
        }
        let text: &str = body;
        let mut edits = Edits::default();
        let mut object = ObjectEdit::new(text, text);
        if let Some(model) = &self.model {
            object.set("model", model.as_str());
        }
        self.members.apply(&mut object);
        if let Some(system) = object.get("system").filter(|_| !self.members.has("system")) {
            self.break_system(text, system, &mut edits);
        }
        if let Some(messages) = object.get("messages") {
            match &self.rest {
                Some(rest) => object.set("messages", self.all_messages(rest)),
                None => self.edit_messages(text, messages, &mut edits),
            }
        }
        object.finish(&mut edits);
        edits.apply(body.as_bytes())
    }
}

impl<'r> RequestDraft<'r> {
    /// A message as it is now.
    pub(super) fn message(&self, index: usize) -> Cow<'_, str> {
        let message = self.request.message_text(index);
        let (edited, results) = (self.edited.get(&index), self.results.get(&index));
        if edited.is_none() && results.is_none() {
            return message.into();
        }
        with_parts(message, edited.map(String::as_str), results).into()
    }

    /// The JSON of a unit as it is now.
    pub(super) fn unit_text(&self, unit: &Unit) -> Cow<'_, str> {
        let changed = match unit.block() {
            None => self.edited.get(&unit.message()),
            Some(block) => self.results.get(&unit.message()).and_then(|results| results.get(&block)),
        };
        let unchanged = || String::from_utf8_lossy(&self.request.unit_json(unit)).into_owned();
        changed.map_or_else(|| unchanged().into(), Cow::from)
    }

    fn edit_messages(&self, text: &str, messages: &str, edits: &mut Edits) {
        let mut array = ArrayEdit::new(text, messages);
        let changed: BTreeSet<usize> = self.edited.keys().chain(self.results.keys()).copied().collect();
        for index in &changed {
            array.replace(*index, self.with_line_breaks(&self.message(*index)));
        }
        self.dropped.clone().for_each(|index| array.remove(index));
        if self.breaks_lines {
            let kept = (0..self.request.message_count())
                .filter(|index| !changed.contains(index) && !self.dropped.contains(index));
            kept.for_each(|index| break_lines(text, self.request.message_text(index), edits));
        }
        array.finish(edits);
    }

    fn all_messages(&self, rest: &[String]) -> String {
        let leading = (0..self.request.leading()).filter(|index| !self.dropped.contains(index));
        let leading = leading.map(|index| self.message(index));
        let all = leading.chain(rest.iter().map(|message| message.as_str().into()));
        let all: Vec<String> = all.map(|message| self.with_line_breaks(&message)).collect();
        format!("[{}]", all.join(","))
    }

    fn break_system(&self, text: &str, system: &str, edits: &mut Edits) {
        if self.breaks_lines {
            break_texts(text, system, edits);
        }
    }

    fn with_line_breaks(&self, message: &str) -> String {
        let mut edits = Edits::default();
        if self.breaks_lines {
            break_lines(message, message, &mut edits);
        }
        edits.apply_to_str(message)
    }

    /// `{"request": {...}}`: the members that plugins see nowhere else.
    fn extra(&self) -> String {
        format!(r#"{{"request":{}}}"#, shown_members(self.request, NOT_IN_EXTRA))
    }
}

/// Whether an array is one of the blocks that results of tools have.
fn is_result_content(array: &str) -> bool {
    let is_block = |block: &str| match string_member(block, "type").as_deref() {
        Some("text") => is_text_part(block) && string_member(block, "text").is_some(),
        Some("image" | "document") => object_member(block, "source").is_some(),
        Some("search_result") => member(block, "content").is_some(),
        Some("tool_reference") => string_member(block, "tool_name").is_some(),
        _ => false,
    };
    let mut blocks = json::elements(array).peekable();
    blocks.peek().is_some() && blocks.all(is_block)
}
