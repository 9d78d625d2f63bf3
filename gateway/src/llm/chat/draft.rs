//! [`RequestDraft`]: a request with the changes that plugins made.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use hookgate_proto::types::v1::{AfterToolResultPayload, BeforeLlmRequestPayload};

use super::{
    message::{PatchError, break_lines, is_text, media_of, text_of, with_changes, with_content},
    request::{ChatRequest, result_without_call},
    units::Unit,
};
use crate::{
    core::error::Error,
    json::{self, ValueKind},
    llm::{
        edits::{ArrayEdit, Edits, ObjectEdit, edit_object},
        value::{kind, member, quote, string, string_member},
    },
};

/// Members that plugins see elsewhere, or that say nothing to them.
pub(super) const NOT_IN_EXTRA: &[&str] = &["model", "messages", "tools", "stream", "stream_options"];

/// A request and its changes. What nobody changes stays byte for byte.
#[derive(Debug)]
pub(crate) struct RequestDraft<'a> {
    request: &'a ChatRequest,
    /// Messages with another text.
    pub(super) edited: BTreeMap<usize, String>,
    /// Messages that are left out.
    pub(super) removed: BTreeSet<usize>,
    /// A message in front of all others.
    pub(super) front: Option<String>,
    /// The messages behind the system prompt, if their list was changed.
    pub(super) rest: Option<Vec<String>>,
    /// Members with another value, or without one.
    pub(super) members: BTreeMap<String, Option<String>>,
    /// Another model, as a JSON string.
    model: Option<String>,
    /// Other `stream_options`.
    stream_options: Option<String>,
    /// Whether text parts are kept apart.
    breaks_lines: bool,
}

impl<'a> RequestDraft<'a> {
    /// A draft without changes.
    pub(crate) fn new(request: &'a ChatRequest) -> Self {
        RequestDraft {
            request,
            edited: BTreeMap::new(),
            removed: BTreeSet::new(),
            front: None,
            rest: None,
            members: BTreeMap::new(),
            model: None,
            stream_options: None,
            breaks_lines: false,
        }
    }

    /// The request as it came.
    pub(super) fn request(&self) -> &'a ChatRequest {
        self.request
    }

    /// Asks this model.
    pub(crate) fn set_model(&mut self, model: &str) {
        self.model = Some(model).filter(|model| *model != self.request.model()).map(quote);
    }

    /// Asks for the usage at the end of a stream.
    pub(crate) fn ask_for_usage(&mut self) {
        let options = self.request.member("stream_options").unwrap_or("{}");
        self.stream_options = Some(edit_object(options, |options| options.set("include_usage", "true")));
    }

    /// Keeps text parts apart, as plugins see them. What is sent depends on the messages alone, so that a provider's prompt
    /// cache holds.
    pub(crate) fn break_lines(&mut self) {
        self.breaks_lines = true;
    }

    /// Puts another message, as JSON, in place of a unit's.
    pub(crate) fn replace_message(&mut self, unit: &Unit, message: &Bytes) {
        self.edited.insert(unit.message(), String::from_utf8_lossy(message).into_owned());
    }

    /// Puts a note in place of a unit's content.
    pub(crate) fn remove_content(&mut self, unit: &Unit, note: &str) {
        let removed = with_content(self.message(unit.message()), note);
        self.edited.insert(unit.message(), removed);
    }

    /// Whether anything was changed but the model, the options of streams and line breaks.
    pub(crate) fn is_changed(&self) -> bool {
        let is_listed = self.edited.is_empty() && self.removed.is_empty() && self.front.is_none();
        !(is_listed && self.rest.is_none() && self.members.is_empty())
    }

    /// The payload of the main call: the last text of the user, and all that surrounds it.
    pub(crate) fn main_payload(&self) -> BeforeLlmRequestPayload {
        let main = self.request.main_unit().map(Unit::message);
        let mut payload = main.map(|main| user_payload(self.message(main))).unwrap_or_default();
        let leading = self.request.leading();
        if leading > 0 {
            let texts: Vec<String> = (0..leading).map(|index| text_of(self.message(index))).collect();
            payload.system_prompt = Some(texts.join("\n\n"));
        }
        let others = (leading..self.request.message_count()).filter(|index| Some(*index) != main);
        let others: Vec<&str> = others.map(|index| self.message(index)).collect();
        payload.messages = format!("[{}]", others.join(",")).into();
        payload.tools = self.request.member("tools").map(|tools| self.share(tools)).unwrap_or_default();
        payload.extra = self.extra().into();
        payload
    }

    /// The payload of one user unit without what surrounds it.
    pub(crate) fn unit_payload(&self, unit: &Unit) -> BeforeLlmRequestPayload {
        user_payload(self.message(unit.message()))
    }

    /// The payload of a result.
    ///
    /// # Errors
    /// `PAYLOAD_INVALID` if its call isn't in the request; see [`ChatRequest::results_have_calls`].
    pub(crate) fn result_payload(&self, unit: &Unit) -> Result<AfterToolResultPayload, Error> {
        let named = unit.result().and_then(|result| Some((result.tool_name.clone()?, result)));
        let (tool_name, result) = named.ok_or_else(|| Error::invalid(vec![result_without_call(unit)]))?;
        Ok(AfterToolResultPayload {
            tool_name,
            result: result.result.clone(),
            success: Some(true),
            args: result.args.clone(),
            call_id: result.call_id.clone(),
            duration_ms: None,
            extra: Bytes::new(),
        })
    }

    /// The message of a user unit with the text and media that plugins changed, as JSON. What else they changed counts
    /// in the main call only.
    ///
    /// # Errors
    /// The change can't be written in this format.
    pub(crate) fn patched_unit(
        &self,
        unit: &Unit,
        before: &BeforeLlmRequestPayload,
        after: &BeforeLlmRequestPayload,
    ) -> Result<Bytes, PatchError> {
        with_changes(self.message(unit.message()), before, after).map(Bytes::from)
    }

    /// The message of a result with another result, as JSON. A string and an array of text parts become the content;
    /// of another value it is the text. With the same result the message keeps its bytes.
    pub(crate) fn patched_result(&self, unit: &Unit, result: &Bytes) -> Bytes {
        let message = self.message(unit.message());
        let result = str::from_utf8(result).unwrap_or_default().trim_ascii();
        if member(message, "content").is_some_and(|old| is_same(old, result)) {
            return message.to_owned().into();
        }
        let content = match kind(result) {
            ValueKind::String => result.to_owned(),
            ValueKind::Array if is_text_parts(result) => result.to_owned(),
            _ => quote(result),
        };
        edit_object(message, |message| message.set("content", content)).into()
    }

    /// The body with all changes.
    pub(crate) fn render(&self) -> Bytes {
        let body = self.request.body();
        let text = str::from_utf8(body).unwrap_or_default();
        let mut edits = Edits::default();
        let mut object = ObjectEdit::new(text, text);
        if let Some(model) = &self.model {
            object.set("model", model.as_str());
        }
        if let Some(options) = &self.stream_options {
            object.set("stream_options", options.as_str());
        }
        for (name, value) in &self.members {
            match value {
                Some(value) => object.set(name, value.as_str()),
                None => object.remove(name),
            }
        }
        if let Some(messages) = object.get("messages") {
            match &self.rest {
                Some(rest) => object.set("messages", self.all_messages(rest)),
                None => self.edit_messages(text, messages, &mut edits),
            }
        }
        object.finish(&mut edits);
        edits.apply(body)
    }

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
        let members = self.request.members().filter(|(name, _)| !NOT_IN_EXTRA.contains(name));
        let members: Vec<String> = members.map(|(name, value)| format!("{}:{value}", quote(name))).collect();
        let main = self.request.main_unit().map(|main| self.message(main.message()));
        let name = main.and_then(|main| string_member(main, "name"));
        let name = name.map(|name| format!(r#","name":{}"#, quote(&name))).unwrap_or_default();
        format!(r#"{{"request":{{{}}}{name}}}"#, members.join(","))
    }

    fn share(&self, part: &str) -> Bytes {
        self.request.body().slice_ref(part.as_bytes())
    }
}

fn user_payload(message: &str) -> BeforeLlmRequestPayload {
    let (images, files) = media_of(message);
    BeforeLlmRequestPayload { text: text_of(message), images, files, ..BeforeLlmRequestPayload::default() }
}

/// Whether two JSON values have the same text, or are the same string in other spellings.
fn is_same(one: &str, other: &str) -> bool {
    one == other || string(one).is_some_and(|one| string(other) == Some(one))
}

fn is_text_parts(array: &str) -> bool {
    let mut parts = json::elements(array).peekable();
    parts.peek().is_some() && parts.all(|part| is_text(part) && string_member(part, "text").is_some())
}

/// A JSON value that a plugin left. The chain has checked it.
pub(super) fn json_text<'a>(json: &'a Bytes, name: &str) -> Result<&'a str, PatchError> {
    match str::from_utf8(json) {
        Ok(text) if !text.trim_ascii().is_empty() => Ok(text.trim_ascii()),
        _ => Err(PatchError::new(format!("`{name}` is not JSON"))),
    }
}
