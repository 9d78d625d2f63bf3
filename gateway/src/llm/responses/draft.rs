//! [`RequestDraft`]: a request with the changes that plugins made.

use std::{collections::BTreeMap, ops::Range};

use bytes::Bytes;
use hookgate_proto::types::v1::{AfterToolResultPayload, BeforeLlmRequestPayload};

use super::{
    Responses,
    items::ItemKind,
    marks::with_marks_of,
    message::{break_lines, is_forgotten, output_of, with_note},
    request::ResponsesRequest,
    shape::ResponsesShape,
};
use crate::{
    core::error::Error,
    json::{self, ValueKind},
    llm::{
        edits::{ArrayEdit, Edits, ObjectEdit, edit_object},
        format::{FormatDraft, FormatRequest as _, PatchError},
        main_patch::{MainCallDraft as _, MemberChanges, shown_members, system_prompt},
        message_content::{user_payload, with_changes},
        request_shape::FormatShape as _,
        request_view::RequestView as _,
        tool_results::result_payload,
        unit::Unit,
        value::{is_same, kind, member, quote, string_member},
    },
};

/// Members that plugins see elsewhere, that say nothing to them, or that the gateway sets.
pub(super) const NOT_IN_EXTRA: &[&str] =
    &["model", "input", "instructions", "tools", "stream", "stream_options", "store"];

/// A request and its changes. What nobody changes stays byte for byte, but for what the provider would keep of it.
#[derive(Debug)]
pub(crate) struct RequestDraft<'r> {
    pub(super) request: &'r ResponsesRequest,
    /// Items with another text, other media or another result.
    pub(super) edited: BTreeMap<usize, String>,
    /// The messages of the system prompt that are left out.
    pub(super) dropped: Range<usize>,
    /// The items behind the system prompt, if their list was changed.
    pub(super) rest: Option<Vec<String>>,
    /// Members with another value, or without one.
    pub(super) members: MemberChanges,
    /// Another model, as a JSON string.
    model: Option<String>,
    /// Whether text parts are kept apart.
    breaks_lines: bool,
}

impl<'r> FormatDraft<'r> for RequestDraft<'r> {
    type Request = ResponsesRequest;

    fn new(request: &'r ResponsesRequest) -> Self {
        RequestDraft {
            request,
            edited: BTreeMap::new(),
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
        let marked = with_marks_of(self.item(unit.message()), &String::from_utf8_lossy(json));
        self.put(unit, marked);
    }

    fn remove_content(&mut self, unit: &Unit, note: &str) {
        let item = self.item(unit.message());
        let removed = with_marks_of(item, &with_note(item, note));
        self.put(unit, removed);
    }

    fn is_changed(&self) -> bool {
        let is_listed = self.edited.is_empty() && self.dropped.is_empty();
        !(is_listed && self.rest.is_none() && self.members.is_empty())
    }

    fn main_payload(&self) -> BeforeLlmRequestPayload {
        let main = self.request.main_unit().map(Unit::message);
        let mut payload = main.map(|main| user_payload::<Responses>(self.item(main))).unwrap_or_default();
        payload.system_prompt = system_prompt(self.request, "instructions");
        let others = self.request.leading()..self.request.message_count();
        let others: Vec<&str> =
            others.filter(|index| Some(*index) != main).map(|index| self.item(index)).collect();
        payload.messages = format!("[{}]", others.join(",")).into();
        payload.tools =
            self.request.member("tools").map(|tools| self.request.share(tools)).unwrap_or_default();
        payload.extra = self.extra().into();
        payload
    }

    fn unit_payload(&self, unit: &Unit) -> BeforeLlmRequestPayload {
        user_payload::<Responses>(self.item(unit.message()))
    }

    fn result_payload(&self, unit: &Unit) -> Result<AfterToolResultPayload, Error> {
        result_payload(ResponsesShape::MESSAGES, unit)
    }

    fn patched_unit(
        &self,
        unit: &Unit,
        before: &BeforeLlmRequestPayload,
        after: &BeforeLlmRequestPayload,
    ) -> Result<Bytes, PatchError> {
        with_changes::<Responses>(self.item(unit.message()), before, after).map(Bytes::from)
    }

    fn patched_result(&self, unit: &Unit, result: &Bytes) -> Bytes {
        let item = self.item(unit.message());
        let result = str::from_utf8(result).unwrap_or_default().trim_ascii();
        let ItemKind::Result(form) = ItemKind::of(item) else { return item.to_owned().into() };
        let name = form.output_member();
        if is_same(member(item, name).unwrap_or("null"), result) {
            return item.to_owned().into();
        }
        edit_object(item, |item| item.set(name, output_of(form, result))).into()
    }

    fn apply_main(
        &mut self,
        before: &BeforeLlmRequestPayload,
        after: &BeforeLlmRequestPayload,
    ) -> Result<(), PatchError> {
        self.apply_changes(before, after)
    }

    /// The body with all changes. The provider must not keep the answer.
    fn render(&self) -> Bytes {
        // Items are read from a copy, where the client wrote a string.
        let is_string = self.request.has_string_input();
        let body = if is_string { self.request.original() } else { self.request.body() };
        let text: &str = body;
        let mut edits = Edits::default();
        let mut object = ObjectEdit::new(text, text);
        if let Some(model) = &self.model {
            object.set("model", model.as_str());
        }
        if !self.request.keeps_nothing() {
            object.set("store", "false");
        }
        self.members.apply(&mut object);
        if let Some(input) = object.get("input") {
            match &self.rest {
                None if !is_string => self.edit_items(text, input, &mut edits),
                rest => {
                    let items = self.all_items(rest.as_deref());
                    let new = text_of_input(&items).filter(|_| is_string).map(str::to_owned);
                    let new = new.unwrap_or_else(|| format!("[{}]", items.join(",")));
                    if new != input {
                        object.set("input", new);
                    }
                }
            }
        }
        object.finish(&mut edits);
        edits.apply(body.as_bytes())
    }
}

impl<'r> RequestDraft<'r> {
    /// An item as it is now.
    pub(super) fn item(&self, index: usize) -> &str {
        self.edited.get(&index).map_or_else(|| self.request.message_text(index), String::as_str)
    }

    fn edit_items(&self, text: &str, items: &str, edits: &mut Edits) {
        let mut array = ArrayEdit::new(text, items);
        for (index, item) in &self.edited {
            array.replace(*index, self.with_line_breaks(item));
        }
        for index in 0..self.request.message_count() {
            let item = self.request.message_text(index);
            if self.is_left_out(index, item) {
                array.remove(index);
            } else if self.breaks_lines && !self.edited.contains_key(&index) {
                break_lines(text, item, edits);
            }
        }
        array.finish(edits);
    }

    /// All items as they are sent; `rest` are those behind the system prompt.
    fn all_items(&self, rest: Option<&[String]>) -> Vec<String> {
        let leading = self.request.leading();
        let end = if rest.is_some() { leading } else { self.request.message_count() };
        let unchanged = (0..end).map(|index| (index, self.item(index)));
        let rest = rest.into_iter().flatten().map(|item| (leading, item.as_str()));
        let sent = unchanged.chain(rest).filter(|(index, item)| !self.is_left_out(*index, item));
        sent.map(|(_, item)| self.with_line_breaks(item)).collect()
    }

    /// Whether an item isn't sent: a part of the system prompt that stands elsewhere, or thoughts that the provider would have to have
    /// kept.
    fn is_left_out(&self, index: usize, item: &str) -> bool {
        self.dropped.contains(&index) || is_forgotten(item)
    }

    fn with_line_breaks(&self, item: &str) -> String {
        let mut edits = Edits::default();
        if self.breaks_lines {
            break_lines(item, item, &mut edits);
        }
        edits.apply_to_str(item)
    }

    /// `{"request": {...}}`: the members that plugins see nowhere else.
    fn extra(&self) -> String {
        format!(r#"{{"request":{}}}"#, shown_members(self.request, NOT_IN_EXTRA))
    }
}

/// The JSON string that stands for a list of items, if one does.
fn text_of_input(items: &[String]) -> Option<&str> {
    let [item] = items else { return None };
    let content = member(item, "content").filter(|content| kind(content) == ValueKind::String)?;
    let is_user = string_member(item, "role").is_some_and(|role| role == "user");
    (is_user && json::members(item).count() == 2).then_some(content)
}
