//! What plugins changed in the payload of the main call, written back into the request, in all formats.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use bytes::Bytes;
use hookgate_proto::types::v1::BeforeLlmRequestPayload;

use super::{
    edits::{ObjectEdit, edit_object},
    format::{FormatDraft, FormatRequest as _, PatchError},
    message_content::{ContentFormat, is_user_changed, text_of, texts_of, with_text},
    request_shape::FormatShape,
    request_view::RequestView,
    unit::Unit,
    value::{self, kind, object_member, quote},
};
use crate::{
    json::{self, ValueKind, pointer::JsonLocation},
    payload::Findings,
};

/// A draft that takes the changes of the main call part by part.
pub(super) trait MainCallDraft<'r>: FormatDraft<'r, Request: 'r> {
    /// The request as it came.
    fn request(&self) -> &'r Self::Request;

    /// Puts another JSON in place of a unit.
    fn put(&mut self, unit: &Unit, json: String);

    /// Another system prompt.
    fn apply_system_prompt(&mut self, text: &str);

    /// Other messages beside that of the text.
    fn apply_messages(&mut self, before: &Bytes, after: &Bytes) -> Result<(), PatchError>;

    /// Other members of the request.
    fn apply_extra(&mut self, before: &Bytes, after: &Bytes) -> Result<(), PatchError>;

    /// Other tools.
    fn apply_tools(&mut self, tools: &Bytes) -> Result<(), PatchError>;

    /// Whether nothing is left to ask the model.
    fn is_without_messages(&self) -> bool;

    /// Writes back what differs between the payload of the main call and what plugins left of it.
    ///
    /// # Errors
    /// A change can't be written back. The draft may then hold some of the other changes.
    fn apply_changes(
        &mut self,
        before: &BeforeLlmRequestPayload,
        after: &BeforeLlmRequestPayload,
    ) -> Result<(), PatchError> {
        if is_user_changed(before, after) {
            let Some(main) = self.request().main_unit() else {
                let sentence =
                    "The current turn has no message of the user whose text or media could be changed";
                return Err(PatchError::new(sentence));
            };
            let json = self.patched_unit(main, before, after)?;
            self.put(main, String::from_utf8_lossy(&json).into_owned());
        }
        if before.system_prompt != after.system_prompt {
            self.apply_system_prompt(after.system_prompt.as_deref().unwrap_or_default());
        }
        if before.messages != after.messages {
            self.apply_messages(&before.messages, &after.messages)?;
        }
        if before.extra != after.extra {
            self.apply_extra(&before.extra, &after.extra)?;
        }
        if before.tools != after.tools {
            self.apply_tools(&after.tools)?;
        }
        match self.is_without_messages() {
            true => Err(PatchError::new("No message is left in the request")),
            false => Ok(()),
        }
    }
}

/// Members of a request with another value, or without one.
#[derive(Debug, Default)]
pub(super) struct MemberChanges(BTreeMap<String, Option<String>>);

impl MemberChanges {
    /// Sets a member, or removes it.
    pub(super) fn insert(&mut self, name: &str, value: Option<String>) {
        self.0.insert(name.to_owned(), value);
    }

    /// Whether nothing was changed.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a member as it is now.
    pub(super) fn current<'a>(&'a self, request: &'a impl RequestView, name: &str) -> Option<&'a str> {
        match self.0.get(name) {
            Some(changed) => changed.as_deref(),
            None => request.member(name),
        }
    }

    /// Takes what plugins changed in `extra`, which has `request` alone, and in it none of the members `hidden`.
    pub(super) fn apply_extra(
        &mut self,
        before: &Bytes,
        after: &Bytes,
        hidden: &[&str],
    ) -> Result<(), PatchError> {
        let (before, after) = (json_text(before, "extra").unwrap_or_default(), json_text(after, "extra")?);
        ExtraChange::read(before, after, &[], hidden)?.apply(self);
        Ok(())
    }

    /// Whether a member was set or removed.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Writes the changes.
    pub(super) fn apply(&self, request: &mut ObjectEdit<'_>) {
        for (name, value) in &self.0 {
            match value {
                Some(value) => request.set(name, value.as_str()),
                None => request.remove(name),
            }
        }
    }
}

/// The object `request` of a payload's `extra`: all members but those with the names `hidden`.
pub(super) fn shown_members(request: &impl RequestView, hidden: &[&str]) -> String {
    shown(request.members(), hidden)
}

/// An object of all `members` but those with the names `hidden`.
pub(super) fn shown<'a>(members: impl Iterator<Item = (&'a str, &'a str)>, hidden: &[&str]) -> String {
    let members = members.filter(|(name, _)| !hidden.contains(name));
    let members: Vec<String> = members.map(|(name, value)| format!("{}:{value}", quote(name))).collect();
    format!("{{{}}}", members.join(","))
}

/// The object `request` of `extra`, before and after plugins changed it.
pub(super) struct ExtraChange<'a> {
    before: HashMap<Cow<'a, str>, &'a str>,
    after: HashMap<Cow<'a, str>, &'a str>,
}

impl<'a> ExtraChange<'a> {
    /// Reads two texts of `extra`. Beside `request` it may have the members `others`, and `request` none of `hidden`.
    pub(super) fn read(
        before: &'a str,
        after: &'a str,
        others: &[&str],
        hidden: &[&str],
    ) -> Result<Self, PatchError> {
        if json::members(after).any(|(name, _)| name != "request" && !others.contains(&name.as_ref())) {
            let names: String = others.iter().map(|name| format!(", `{name}`")).collect();
            let sentence = format!("`extra` may have only these members in a model call: `request`{names}");
            return Err(PatchError::new(sentence));
        }
        let Some(after) = object_member(after, "request") else {
            return Err(PatchError::new("`extra` must have an object `request`"));
        };
        let before = json::members(object_member(before, "request").unwrap_or_default()).collect();
        let after: HashMap<Cow<'_, str>, &str> = json::members(after).collect();
        if let Some(fixed) = hidden.iter().find(|name| after.contains_key(**name)) {
            return Err(PatchError::new(format!("`extra.request` must not have the member `{fixed}`")));
        }
        Ok(ExtraChange { before, after })
    }

    /// Whether a member is another one.
    pub(super) fn has_changed(&self, name: &str) -> bool {
        self.before.get(name) != self.after.get(name)
    }

    /// Adds what was changed.
    pub(super) fn apply(&self, members: &mut MemberChanges) {
        for name in self.before.keys().filter(|name| !self.after.contains_key(*name)) {
            members.insert(name, None);
        }
        for (name, value) in self.after.iter().filter(|(name, _)| self.has_changed(name)) {
            members.insert(name, Some((*value).to_owned()));
        }
    }
}

/// The system prompt of a request with the member `name` for it: what that says, and then the messages at the beginning.
pub(super) fn system_prompt(request: &impl RequestView, name: &str) -> Option<String> {
    let of_member = request.member(name).map(|text| texts_of(text).join("\n\n"));
    let leading = (0..request.leading()).map(|index| text_of(request.message_text(index)));
    let texts: Vec<String> = of_member.into_iter().chain(leading).collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

/// What another system prompt does to the messages at the beginning of a request.
pub(super) struct LeadingChange {
    /// Those that go.
    pub(super) dropped: Range<usize>,
    /// The first, if it takes the text.
    pub(super) first: Option<String>,
}

/// Writes another system prompt, in formats with the member `name` for it. The member takes the whole text, and the messages at the
/// beginning go. Providers refuse a request without messages: if these are all there is, the first takes the text in place of the
/// member, whose text plugins saw as a part of the old one.
pub(super) fn set_system_prompt<F: ContentFormat>(
    request: &impl RequestView,
    members: &mut MemberChanges,
    name: &str,
    text: &str,
) -> LeadingChange {
    let (leading, member) = (request.leading(), request.member(name));
    let is_all = leading > 0 && leading == request.message_count() && !text.is_empty();
    let changed = (!is_all && !text.is_empty()).then(|| with_text::<F>(member.unwrap_or_default(), text));
    if member.is_some() || changed.is_some() {
        members.insert(name, changed);
    }
    let first = is_all.then(|| {
        let first = request.message_text(0);
        let content = with_text::<F>(value::member(first, "content").unwrap_or_default(), text);
        edit_object(first, |first| first.set("content", content))
    });
    LeadingChange { dropped: usize::from(is_all)..leading, first }
}

/// The model's own messages in a request, in formats in which these stay.
pub(super) struct ModelMessages {
    /// One of them, with its article.
    pub(super) noun: &'static str,
    /// Whether a message is one of them.
    pub(super) is_one: fn(&str) -> bool,
    /// A message with the texts and arguments of another; `None` if that differs in something else.
    pub(super) with_changes_of: fn(&str, &str) -> Option<String>,
}

impl ModelMessages {
    /// The messages that a plugin left. Those of the model stay, with other texts and arguments at most.
    pub(super) fn patched<O: FormatShape>(
        &self,
        before: &Bytes,
        after: &Bytes,
    ) -> Result<Vec<String>, PatchError> {
        let mut rest = Vec::new();
        let before = json::elements(json_text(before, "messages")?);
        let mut answers = before.filter(|message| (self.is_one)(message));
        for (index, message) in json::elements(array(after, "messages")?).enumerate() {
            check_message::<O>(index, message)?;
            if !(self.is_one)(message) {
                rest.push(message.to_owned());
                continue;
            }
            let changed = answers.next().and_then(|answer| (self.with_changes_of)(answer, message));
            let flaw = || {
                PatchError::new(format!(
                    "`messages/{index}` is the model's, of which only texts and arguments of tool calls can be changed"
                ))
            };
            rest.push(changed.ok_or_else(flaw)?);
        }
        if answers.next().is_some() {
            let noun = self.noun;
            let sentence = format!("`messages` lacks {noun} of the model, and none of these can be removed");
            return Err(PatchError::new(sentence));
        }
        Ok(rest)
    }
}

/// Whether nothing is left of a list of messages: `rest` are those behind the system prompt, if they were changed, and `dropped` those
/// of it that go.
pub(super) fn is_emptied(
    request: &impl RequestView,
    rest: Option<&Vec<String>>,
    dropped: &Range<usize>,
) -> bool {
    let leading = request.leading();
    let rest = rest.map_or(request.message_count() - leading, Vec::len);
    rest == 0 && dropped.len() == leading
}

/// Checks the shape of a message that a plugin left in `messages`.
pub(super) fn check_message<O: FormatShape>(index: usize, message: &str) -> Result<(), PatchError> {
    let mut findings = Findings::default();
    let root = JsonLocation::Root("");
    O::read_message(message, &JsonLocation::Index(&root, index), &mut findings);
    match findings.into_violations().first() {
        Some(flaw) => Err(PatchError::new(format!("`messages{}`: {}", flaw.pointer, flaw.message))),
        None => Ok(()),
    }
}

/// A list of tools that a plugin left.
pub(super) fn tool_list(tools: &Bytes) -> Result<&str, PatchError> {
    let tools = if tools.is_empty() { "[]" } else { array(tools, "tools")? };
    match json::elements(tools).position(|tool| kind(tool) != ValueKind::Object) {
        Some(index) => Err(PatchError::new(format!("Tool {index} of `tools` is not an object"))),
        None => Ok(tools),
    }
}

/// A JSON array that a plugin left.
pub(super) fn array<'a>(json: &'a Bytes, name: &str) -> Result<&'a str, PatchError> {
    let text = json_text(json, name)?;
    match kind(text) {
        ValueKind::Array => Ok(text),
        other => Err(PatchError::new(format!("`{name}` must be an array, is {other}"))),
    }
}

/// A JSON value that a plugin left. The chain has checked it.
pub(super) fn json_text<'a>(json: &'a Bytes, name: &str) -> Result<&'a str, PatchError> {
    match str::from_utf8(json) {
        Ok(text) if !text.trim_ascii().is_empty() => Ok(text.trim_ascii()),
        _ => Err(PatchError::new(format!("`{name}` is not JSON"))),
    }
}
