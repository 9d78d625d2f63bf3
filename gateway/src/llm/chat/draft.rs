//! [`RequestDraft`]: a request with the changes that plugins made.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use hookgate_proto::types::v1::{AfterToolResultPayload, BeforeLlmRequestPayload};

use super::{
    ChatCompletions,
    message::{break_lines, with_content},
    request::ChatRequest,
    shape::ChatShape,
};
use crate::{
    core::error::Error,
    json,
    llm::{
        edits::{ArrayEdit, Edits, ObjectEdit, edit_object},
        format::{FormatDraft, FormatRequest as _, PatchError},
        main_patch::{MainCallDraft as _, MemberChanges, shown_members},
        message_content::{text_of, user_payload, with_changes},
        request_shape::FormatShape as _,
        request_view::RequestView as _,
        tool_results::{result_content, result_payload},
        unit::Unit,
        value::{is_same, member, quote, string_member},
    },
};

/// Members that plugins see elsewhere, or that say nothing to them.
pub(super) const NOT_IN_EXTRA: &[&str] = &["model", "messages", "tools", "stream", "stream_options"];

/// A request and its changes. What nobody changes stays byte for byte.
#[derive(Debug)]
pub(crate) struct RequestDraft<'a> {
    pub(super) request: &'a ChatRequest,
    /// Messages with another text.
    pub(super) edited: BTreeMap<usize, String>,
    /// Messages that are left out.
    pub(super) removed: BTreeSet<usize>,
    /// A message in front of all others.
    pub(super) front: Option<String>,
    /// The messages behind the system prompt, if their list was changed.
    pub(super) rest: Option<Vec<String>>,
    /// Members with another value, or without one.
    pub(super) members: MemberChanges,
    /// Another model, as a JSON string.
    model: Option<String>,
    /// Other `stream_options`.
    stream_options: Option<String>,
    /// Whether text parts are kept apart.
    breaks_lines: bool,
}

impl<'a> FormatDraft<'a> for RequestDraft<'a> {
    type Request = ChatRequest;

    fn new(request: &'a ChatRequest) -> Self {
        RequestDraft {
            request,
            edited: BTreeMap::new(),
            removed: BTreeSet::new(),
            front: None,
            rest: None,
            members: MemberChanges::default(),
            model: None,
            stream_options: None,
            breaks_lines: false,
        }
    }

    fn set_model(&mut self, model: &str) {
        self.model = Some(model).filter(|model| *model != self.request.model()).map(quote);
    }

    fn ask_for_usage(&mut self) {
        let options = self.request.member("stream_options").unwrap_or("{}");
        self.stream_options = Some(edit_object(options, |options| options.set("include_usage", "true")));
    }

    fn break_lines(&mut self) {
        self.breaks_lines = true;
    }

    fn replace_unit(&mut self, unit: &Unit, json: &Bytes) {
        self.edited.insert(unit.message(), String::from_utf8_lossy(json).into_owned());
    }

    fn remove_content(&mut self, unit: &Unit, note: &str) {
        let removed = with_content(self.message(unit.message()), note);
        self.edited.insert(unit.message(), removed);
    }

    fn is_changed(&self) -> bool {
        let is_listed = self.edited.is_empty() && self.removed.is_empty() && self.front.is_none();
        !(is_listed && self.rest.is_none() && self.members.is_empty())
    }

    fn main_payload(&self) -> BeforeLlmRequestPayload {
        let main = self.request.main_unit().map(Unit::message);
        let mut payload =
            main.map(|main| user_payload::<ChatCompletions>(self.message(main))).unwrap_or_default();
        let leading = self.request.leading();
        if leading > 0 {
            let texts: Vec<String> = (0..leading).map(|index| text_of(self.message(index))).collect();
            payload.system_prompt = Some(texts.join("\n\n"));
        }
        let others = (leading..self.request.message_count()).filter(|index| Some(*index) != main);
        let others: Vec<&str> = others.map(|index| self.message(index)).collect();
        payload.messages = format!("[{}]", others.join(",")).into();
        payload.tools =
            self.request.member("tools").map(|tools| self.request.share(tools)).unwrap_or_default();
        payload.extra = self.extra().into();
        payload
    }

    fn unit_payload(&self, unit: &Unit) -> BeforeLlmRequestPayload {
        user_payload::<ChatCompletions>(self.message(unit.message()))
    }

    fn result_payload(&self, unit: &Unit) -> Result<AfterToolResultPayload, Error> {
        result_payload(ChatShape::MESSAGES, unit)
    }

    fn patched_unit(
        &self,
        unit: &Unit,
        before: &BeforeLlmRequestPayload,
        after: &BeforeLlmRequestPayload,
    ) -> Result<Bytes, PatchError> {
        with_changes::<ChatCompletions>(self.message(unit.message()), before, after).map(Bytes::from)
    }

    fn patched_result(&self, unit: &Unit, result: &Bytes) -> Bytes {
        let message = self.message(unit.message());
        let result = str::from_utf8(result).unwrap_or_default().trim_ascii();
        if member(message, "content").is_some_and(|old| is_same(old, result)) {
            return message.to_owned().into();
        }
        let content = result_content(result, is_text_parts);
        edit_object(message, |message| message.set("content", content)).into()
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
        let has_own_edits = self.model.is_some() || self.stream_options.is_some() || self.breaks_lines;
        if !has_own_edits && !self.is_changed() {
            return body.as_bytes().clone();
        }
        let text: &str = body;
        let mut edits = Edits::default();
        let mut object = ObjectEdit::new(text, text);
        if let Some(model) = &self.model {
            object.set("model", model.as_str());
        }
        if let Some(options) = &self.stream_options {
            object.set("stream_options", options.as_str());
        }
        self.members.apply(&mut object);
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

impl<'a> RequestDraft<'a> {
    /// A message as it is now.
    pub(super) fn message(&self, index: usize) -> &str {
        self.edited.get(&index).map_or_else(|| self.request.message_text(index), String::as_str)
    }

    fn edit_messages(&self, text: &str, messages: &str, edits: &mut Edits) {
        let mut array = ArrayEdit::new(text, messages);
        for (index, message) in &self.edited {
            array.replace(*index, self.with_line_breaks(message));
        }
        let kept = (0..self.request.message_count()).filter(|index| {
            self.breaks_lines && !self.edited.contains_key(index) && !self.removed.contains(index)
        });
        kept.for_each(|index| break_lines(text, self.request.message_text(index), edits));
        self.removed.iter().for_each(|index| array.remove(*index));
        if let Some(front) = &self.front {
            array.push_front(front.clone());
        }
        array.finish(edits);
    }

    fn all_messages(&self, rest: &[String]) -> String {
        let leading = (0..self.request.leading()).filter(|index| !self.removed.contains(index));
        let leading = self.front.as_deref().into_iter().chain(leading.map(|index| self.message(index)));
        let all = leading.chain(rest.iter().map(String::as_str));
        let all: Vec<String> = all.map(|message| self.with_line_breaks(message)).collect();
        format!("[{}]", all.join(","))
    }

    fn with_line_breaks(&self, message: &str) -> String {
        let mut edits = Edits::default();
        if self.breaks_lines {
            break_lines(message, message, &mut edits);
        }
        edits.apply_to_str(message)
    }

    /// `{"request": {...}, "name": "..."}`: the members that plugins see nowhere else, and the `name` of the message whose
    /// text is the payload's.
    fn extra(&self) -> String {
        let members = shown_members(self.request, NOT_IN_EXTRA);
        let main = self.request.main_unit().map(|main| self.message(main.message()));
        let name = main.and_then(|main| string_member(main, "name"));
        let name = name.map(|name| format!(r#","name":{}"#, quote(&name))).unwrap_or_default();
        format!(r#"{{"request":{members}{name}}}"#)
    }
}

fn is_text_parts(array: &str) -> bool {
    let mut parts = json::elements(array).peekable();
    parts.peek().is_some()
        && parts.all(|part| {
            string_member(part, "type").as_deref() == Some("text") && string_member(part, "text").is_some()
        })
}
