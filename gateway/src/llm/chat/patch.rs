//! What plugins changed in the payload of the main call, written back into the request.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use bytes::Bytes;
use hookgate_proto::types::v1::BeforeLlmRequestPayload;

use super::{
    draft::{NOT_IN_EXTRA, RequestDraft, json_text},
    message::{PatchError, with_changes, with_text},
    shape::read_message,
    units::Unit,
};
use crate::{
    json::{self, ValueKind, pointer::JsonLocation},
    llm::value::{kind, member, object_member, quote, string_member},
    payload::Findings,
};

/// Members that only make sense with tools.
const TOOL_OPTIONS: [&str; 2] = ["tool_choice", "parallel_tool_calls"];

impl RequestDraft<'_> {
    /// Writes back what differs between the payload of the main call and what plugins left of it.
    ///
    /// # Errors
    /// A change can't be written back. The draft may then hold some of the other changes.
    pub(crate) fn apply_main(
        &mut self,
        before: &BeforeLlmRequestPayload,
        after: &BeforeLlmRequestPayload,
    ) -> Result<(), PatchError> {
        self.apply_user(before, after)?;
        if before.system_prompt != after.system_prompt {
            self.apply_system_prompt(after.system_prompt.as_deref().unwrap_or_default());
        }
        if before.messages != after.messages {
            self.apply_messages(&after.messages)?;
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

    fn apply_user(
        &mut self,
        before: &BeforeLlmRequestPayload,
        after: &BeforeLlmRequestPayload,
    ) -> Result<(), PatchError> {
        if (&before.text, &before.images, &before.files) == (&after.text, &after.images, &after.files) {
            return Ok(());
        }
        let Some(main) = self.request().main_unit().map(Unit::message) else {
            let sentence = "The current turn has no message of the user whose text or media could be changed";
            return Err(PatchError::new(sentence));
        };
        let message = with_changes(self.message(main), before, after)?;
        self.edited.insert(main, message);
        Ok(())
    }

    /// The first message of the system prompt takes the whole text; the others go.
    fn apply_system_prompt(&mut self, text: &str) {
        let leading = self.request().leading();
        let kept = usize::from(!text.is_empty());
        self.removed.extend(kept..leading);
        match (leading, text) {
            (_, "") => {}
            (0, text) => self.front = Some(format!(r#"{{"role":"system","content":{}}}"#, quote(text))),
            (_, text) => {
                let first = with_text(self.message(0), text);
                self.edited.insert(0, first);
            }
        }
    }

    /// The message whose text is the payload's goes back to where it was, counted from the end.
    fn apply_messages(&mut self, messages: &Bytes) -> Result<(), PatchError> {
        let mut rest = Vec::new();
        let messages = array(messages, "messages")?;
        for (index, message) in json::elements(messages).enumerate() {
            check_message(index, message)?;
            rest.push(message.to_owned());
        }
        if let Some(main) = self.request().main_unit().map(Unit::message) {
            let following = self.request().message_count() - main - 1;
            let Some(place) = rest.len().checked_sub(following) else {
                let sentence = format!(
                    "`messages` has {} messages, and {following} must follow the message of `text`",
                    rest.len()
                );
                return Err(PatchError::new(sentence));
            };
            rest.insert(place, self.message(main).to_owned());
        }
        self.rest = Some(rest);
        Ok(())
    }

    fn apply_tools(&mut self, tools: &Bytes) -> Result<(), PatchError> {
        let tools = if tools.is_empty() { "[]" } else { array(tools, "tools")? };
        if let Some(index) = json::elements(tools).position(|tool| kind(tool) != ValueKind::Object) {
            return Err(PatchError::new(format!("Tool {index} of `tools` is not an object")));
        }
        if json::elements(tools).next().is_none() {
            // Providers refuse an empty list.
            self.members.insert("tools".to_owned(), None);
            self.members.extend(TOOL_OPTIONS.map(|name| (name.to_owned(), None)));
            return Ok(());
        }
        let left: HashSet<String> = json::elements(tools).filter_map(tool_name).collect();
        if self.chosen_tools().iter().any(|chosen| !left.contains(chosen)) {
            self.members.insert("tool_choice".to_owned(), None);
        }
        self.members.insert("tools".to_owned(), Some(tools.to_owned()));
        Ok(())
    }

    /// The tools that `tool_choice` names.
    fn chosen_tools(&self) -> Vec<String> {
        let choice = match self.members.get("tool_choice") {
            Some(changed) => changed.as_deref(),
            None => self.request().member("tool_choice"),
        };
        let choice = choice.unwrap_or_default();
        let allowed = object_member(choice, "allowed_tools").and_then(|allowed| member(allowed, "tools"));
        let chosen = std::iter::once(choice).chain(json::elements(allowed.unwrap_or_default()));
        chosen.filter_map(tool_name).collect()
    }

    fn apply_extra(&mut self, before: &Bytes, after: &Bytes) -> Result<(), PatchError> {
        let (before, after) = (json_text(before, "extra").unwrap_or_default(), json_text(after, "extra")?);
        let name = |extra| json::members(extra).find(|(key, _)| key == "name").map(|(_, value)| value);
        if name(before) != name(after) {
            return Err(PatchError::new("`extra.name` can't be changed"));
        }
        if json::members(after).any(|(name, _)| name != "request" && name != "name") {
            return Err(PatchError::new("`extra` may have only the member `request` in a model call"));
        }
        let Some(after) = object_member(after, "request") else {
            return Err(PatchError::new("`extra` must have an object `request`"));
        };
        let before: HashMap<Cow<'_, str>, &str> =
            json::members(object_member(before, "request").unwrap_or_default()).collect();
        let after: HashMap<Cow<'_, str>, &str> = json::members(after).collect();
        if let Some(fixed) = NOT_IN_EXTRA.iter().find(|name| after.contains_key(**name)) {
            return Err(PatchError::new(format!("`extra.request` must not have the member `{fixed}`")));
        }
        if before.get("n") != after.get("n") {
            return Err(PatchError::new("`extra.request.n` can't be changed"));
        }
        for name in before.keys().filter(|name| !after.contains_key(*name)) {
            self.members.insert(name.to_string(), None);
        }
        for (name, value) in after.iter().filter(|(name, value)| before.get(*name) != Some(*value)) {
            self.members.insert(name.to_string(), Some((*value).to_owned()));
        }
        Ok(())
    }

    fn is_without_messages(&self) -> bool {
        let rest = self.request().message_count() - self.request().leading();
        let leading = self.request().leading().saturating_sub(self.removed.len());
        self.front.is_none() && leading == 0 && self.rest.as_ref().map_or(rest, Vec::len) == 0
    }
}

fn check_message(index: usize, message: &str) -> Result<(), PatchError> {
    let mut findings = Findings::default();
    let root = JsonLocation::Root("");
    read_message(message, &JsonLocation::Index(&root, index), &mut findings);
    match findings.into_violations().first() {
        Some(flaw) => Err(PatchError::new(format!("`messages{}`: {}", flaw.pointer, flaw.message))),
        None => Ok(()),
    }
}

fn array<'a>(json: &'a Bytes, name: &str) -> Result<&'a str, PatchError> {
    let text = json_text(json, name)?;
    match kind(text) {
        ValueKind::Array => Ok(text),
        other => Err(PatchError::new(format!("`{name}` must be an array, is {other}"))),
    }
}

/// The name of a tool, or of the tool that a choice names.
fn tool_name(tool: &str) -> Option<String> {
    let inner = object_member(tool, "function").or_else(|| object_member(tool, "custom"))?;
    string_member(inner, "name").map(Cow::into_owned)
}
