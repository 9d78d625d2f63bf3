//! What plugins changed in the payload of the main call, written back into the request.

use std::{borrow::Cow, collections::HashSet};

use bytes::Bytes;

use super::{
    Responses,
    draft::{NOT_IN_EXTRA, RequestDraft},
    model_item::{is_model_item, with_changes_of},
    request::ResponsesRequest,
    shape::ResponsesShape,
};
use crate::{
    json,
    llm::{
        format::{FormatRequest as _, PatchError},
        main_patch::{LeadingChange, MainCallDraft, ModelMessages, is_emptied, set_system_prompt, tool_list},
        request_view::RequestView as _,
        unit::Unit,
        value::{member, string_member},
    },
};

const ANSWERS: ModelMessages = ModelMessages { noun: "an item", is_one: is_model_item, with_changes_of };

impl<'r> MainCallDraft<'r> for RequestDraft<'r> {
    fn request(&self) -> &'r ResponsesRequest {
        self.request
    }

    fn put(&mut self, unit: &Unit, json: String) {
        self.edited.insert(unit.message(), json);
    }

    fn apply_system_prompt(&mut self, text: &str) {
        let LeadingChange { dropped, first } =
            set_system_prompt::<Responses>(self.request, &mut self.members, "instructions", text);
        self.dropped = dropped;
        self.edited.extend(first.map(|first| (0, first)));
    }

    /// The model's items stay, with other texts and arguments at most. The message whose text is the payload's goes back to where it
    /// was, counted from the end.
    fn apply_messages(&mut self, before: &Bytes, after: &Bytes) -> Result<(), PatchError> {
        let mut rest = ANSWERS.patched::<ResponsesShape>(before, after)?;
        if let Some(main) = self.request.main_unit().map(Unit::message) {
            self.return_main(&mut rest, main)?;
        }
        self.rest = Some(rest);
        Ok(())
    }

    fn apply_tools(&mut self, tools: &Bytes) -> Result<(), PatchError> {
        let tools = tool_list(tools)?;
        let is_empty = json::elements(tools).next().is_none();
        // Providers refuse a choice without tools.
        if is_empty || self.lacks_chosen_tool(tools) {
            self.members.insert("tool_choice", None);
        }
        self.members.insert("tools", (!is_empty).then(|| tools.to_owned()));
        Ok(())
    }

    fn apply_extra(&mut self, before: &Bytes, after: &Bytes) -> Result<(), PatchError> {
        self.members.apply_extra(before, after, NOT_IN_EXTRA)
    }

    fn is_without_messages(&self) -> bool {
        is_emptied(self.request, self.rest.as_ref(), &self.dropped)
    }
}

impl RequestDraft<'_> {
    /// Puts the message of the payload's text back into the list.
    fn return_main(&self, rest: &mut Vec<String>, main: usize) -> Result<(), PatchError> {
        let following = self.request.message_count() - main - 1;
        let Some(place) = rest.len().checked_sub(following) else {
            let (has, must) = (rest.len(), "must follow the message of `text`");
            return Err(PatchError::new(format!("`messages` has {has} items, and {following} {must}")));
        };
        // The model answered what came before its items.
        let is_models = |index: &usize| is_model_item(self.request.message_text(*index));
        let answers = (main + 1..self.request.message_count()).filter(is_models).count();
        if rest[place..].iter().filter(|item| is_model_item(item)).count() != answers {
            let sentence = "`messages` must leave the message of `text` its place among the model's items";
            return Err(PatchError::new(sentence));
        }
        rest.insert(place, self.item(main).to_owned());
        Ok(())
    }

    /// Whether `tool_choice` names a tool that isn't among `left` any more.
    fn lacks_chosen_tool(&self, left: &str) -> bool {
        let Some(choice) = self.members.current(self.request, "tool_choice") else { return false };
        let left: HashSet<Cow<'_, str>> = tool_keys(left).collect();
        let removed = tool_keys(self.request.member("tools").unwrap_or_default());
        let removed: HashSet<Cow<'_, str>> = removed.filter(|key| !left.contains(key)).collect();
        let allowed = string_member(choice, "type").is_some_and(|kind| kind == "allowed_tools");
        let allowed = json::elements(member(choice, "tools").filter(|_| allowed).unwrap_or_default());
        let mut chosen = allowed.chain([choice]).filter_map(tool_key);
        chosen.any(|key| removed.contains(&key))
    }
}

/// What choices name the tools of a list by; those within a namespace have names of their own.
fn tool_keys(tools: &str) -> impl Iterator<Item = Cow<'_, str>> {
    json::elements(tools).flat_map(|tool| {
        let inner = member(tool, "tools").map(json::elements).into_iter().flatten();
        std::iter::once(tool).chain(inner).filter_map(tool_key)
    })
}

/// What a choice names a tool by, or the name in it: the type, and the name if there is one.
fn tool_key(tool: &str) -> Option<Cow<'_, str>> {
    let kind = string_member(tool, "type")?;
    match string_member(tool, "server_label").or_else(|| string_member(tool, "name")) {
        Some(name) => Some(format!("{kind} {name}").into()),
        None => Some(kind),
    }
}
