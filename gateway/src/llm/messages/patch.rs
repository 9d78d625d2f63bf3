//! What plugins changed in the payload of the main call, written back into the request.

use std::{borrow::Cow, collections::HashSet};

use bytes::Bytes;

use super::{
    Messages,
    draft::{NOT_IN_EXTRA, RequestDraft},
    message::{only_results, with_others},
    model_message::with_changes_of,
    request::{MessagesRequest, Role},
    shape::MessagesShape,
};
use crate::{
    json,
    llm::{
        format::{FormatRequest as _, PatchError},
        main_patch::{LeadingChange, MainCallDraft, ModelMessages, is_emptied, set_system_prompt, tool_list},
        request_shape::MessageRole as _,
        request_view::RequestView as _,
        same_value::is_same_value,
        unit::Unit,
        value::string_member,
    },
};

const ANSWERS: ModelMessages = ModelMessages { noun: "a message", is_one: is_answer, with_changes_of };

impl<'r> MainCallDraft<'r> for RequestDraft<'r> {
    fn request(&self) -> &'r MessagesRequest {
        self.request
    }

    fn put(&mut self, unit: &Unit, json: String) {
        match unit.block() {
            None => drop(self.edited.insert(unit.message(), json)),
            Some(block) => drop(self.results.entry(unit.message()).or_default().insert(block, json)),
        }
    }

    fn apply_system_prompt(&mut self, text: &str) {
        let LeadingChange { dropped, first } =
            set_system_prompt::<Messages>(self.request, &mut self.members, "system", text);
        self.dropped = dropped;
        self.edited.extend(first.map(|first| (0, first)));
    }

    /// The model's messages stay, with other texts and arguments at most. The message whose text is the payload's goes
    /// back to where it was, counted from the end.
    fn apply_messages(&mut self, before: &Bytes, after: &Bytes) -> Result<(), PatchError> {
        let mut rest = ANSWERS.patched::<MessagesShape>(before, after)?;
        if let Some(main) = self.request.main_unit().map(Unit::message) {
            self.return_main(&mut rest, main)?;
        }
        self.rest = Some(rest);
        Ok(())
    }

    fn apply_tools(&mut self, tools: &Bytes) -> Result<(), PatchError> {
        let tools = tool_list(tools)?;
        let left: HashSet<Cow<'_, str>> = json::elements(tools).filter_map(tool_name).collect();
        let is_empty = json::elements(tools).next().is_none();
        // Providers refuse a choice without tools.
        if is_empty || self.chosen_tool().is_some_and(|chosen| !left.contains(chosen.as_str())) {
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
    /// Puts the message of the payload's text back into the list. Its results are in the list, if it has any.
    fn return_main(&self, rest: &mut Vec<String>, main: usize) -> Result<(), PatchError> {
        let following = self.request.message_count() - main - 1;
        let message = self.message(main);
        let results = only_results(&message);
        let wanted = following + usize::from(results.is_some());
        let Some(place) = rest.len().checked_sub(wanted) else {
            let (has, must) = (rest.len(), "must stand where the message of `text` is or follow it");
            return Err(PatchError::new(format!("`messages` has {has} messages, and {wanted} {must}")));
        };
        // The model answered what came before its messages.
        let is_model = |message: &usize| self.request().role(*message) == Some(Role::Assistant);
        let answers = (main + 1..self.request().message_count()).filter(is_model).count();
        if rest[place..].iter().filter(|message| is_answer(message)).count() != answers {
            let sentence = "`messages` must leave the message of `text` its place among the model's messages";
            return Err(PatchError::new(sentence));
        }
        match results {
            None => rest.insert(place, message.into_owned()),
            Some(results) if is_same_value(&results, &rest[place]) => rest[place] = message.into_owned(),
            Some(_) => {
                let what = "must have the results of the message of `text`, and nothing else";
                let flaw = || PatchError::new(format!("`messages/{place}` {what}"));
                rest[place] = with_others(&rest[place], &message).ok_or_else(flaw)?;
            }
        }
        Ok(())
    }

    /// The tool that `tool_choice` names.
    fn chosen_tool(&self) -> Option<String> {
        let choice = self.members.current(self.request, "tool_choice");
        tool_name(choice?).map(Cow::into_owned)
    }
}

fn is_answer(message: &str) -> bool {
    let role = string_member(message, "role");
    role.and_then(|role| Role::from_name(&role)) == Some(Role::Assistant)
}

/// The name of a tool, or of the tool that a choice names.
fn tool_name(tool: &str) -> Option<Cow<'_, str>> {
    string_member(tool, "name")
}
