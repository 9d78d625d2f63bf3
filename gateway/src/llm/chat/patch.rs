//! What plugins changed in the payload of the main call, written back into the request.

use std::{borrow::Cow, collections::HashSet};

use bytes::Bytes;

use super::{
    ChatCompletions,
    draft::{NOT_IN_EXTRA, RequestDraft},
    request::ChatRequest,
    shape::ChatShape,
};
use crate::{
    json,
    llm::{
        edits::edit_object,
        format::{FormatRequest as _, PatchError},
        main_patch::{ExtraChange, MainCallDraft, array, check_message, json_text, tool_list},
        message_content::with_text,
        request_view::RequestView as _,
        unit::Unit,
        value::{member, member_or_null, object_member, quote, string_member},
    },
};

/// Members that only make sense with tools.
const TOOL_OPTIONS: [&str; 2] = ["tool_choice", "parallel_tool_calls"];

impl<'r> MainCallDraft<'r> for RequestDraft<'r> {
    fn request(&self) -> &'r ChatRequest {
        self.request
    }

    fn put(&mut self, unit: &Unit, json: String) {
        self.edited.insert(unit.message(), json);
    }

    /// The first message of the system prompt takes the whole text; the others go.
    fn apply_system_prompt(&mut self, text: &str) {
        let leading = self.request.leading();
        let kept = usize::from(!text.is_empty());
        self.removed.extend(kept..leading);
        match (leading, text) {
            (_, "") => {}
            (0, text) => self.front = Some(format!(r#"{{"role":"system","content":{}}}"#, quote(text))),
            (_, text) => {
                let first = self.message(0);
                let content =
                    with_text::<ChatCompletions>(member(first, "content").unwrap_or_default(), text);
                let first = edit_object(first, |first| first.set("content", content));
                self.edited.insert(0, first);
            }
        }
    }

    /// The message whose text is the payload's goes back to where it was, counted from the end.
    fn apply_messages(&mut self, _before: &Bytes, after: &Bytes) -> Result<(), PatchError> {
        let mut rest = Vec::new();
        for (index, message) in json::elements(array(after, "messages")?).enumerate() {
            check_message::<ChatShape>(index, message)?;
            rest.push(message.to_owned());
        }
        if let Some(main) = self.request.main_unit().map(Unit::message) {
            let following = self.request.message_count() - main - 1;
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
        let tools = tool_list(tools)?;
        if json::elements(tools).next().is_none() {
            // Providers refuse an empty list.
            self.members.insert("tools", None);
            TOOL_OPTIONS.iter().for_each(|name| self.members.insert(name, None));
            return Ok(());
        }
        let left: HashSet<String> = json::elements(tools).filter_map(tool_name).collect();
        if self.chosen_tools().iter().any(|chosen| !left.contains(chosen)) {
            self.members.insert("tool_choice", None);
        }
        self.members.insert("tools", Some(tools.to_owned()));
        Ok(())
    }

    fn apply_extra(&mut self, before: &Bytes, after: &Bytes) -> Result<(), PatchError> {
        let (before, after) = (json_text(before, "extra").unwrap_or_default(), json_text(after, "extra")?);
        if member_or_null(before, "name") != member_or_null(after, "name") {
            return Err(PatchError::new("`extra.name` can't be changed"));
        }
        let change = ExtraChange::read(before, after, &["name"], NOT_IN_EXTRA)?;
        if change.has_changed("n") {
            return Err(PatchError::new("`extra.request.n` can't be changed"));
        }
        change.apply(&mut self.members);
        Ok(())
    }

    fn is_without_messages(&self) -> bool {
        let rest = self.request.message_count() - self.request.leading();
        let leading = self.request.leading().saturating_sub(self.removed.len());
        self.front.is_none() && leading == 0 && self.rest.as_ref().map_or(rest, Vec::len) == 0
    }
}

impl RequestDraft<'_> {
    /// The tools that `tool_choice` names.
    fn chosen_tools(&self) -> Vec<String> {
        let choice = self.members.current(self.request, "tool_choice");
        let choice = choice.unwrap_or_default();
        let allowed = object_member(choice, "allowed_tools").and_then(|allowed| member(allowed, "tools"));
        let chosen = std::iter::once(choice).chain(json::elements(allowed.unwrap_or_default()));
        chosen.filter_map(tool_name).collect()
    }
}

/// The name of a tool, or of the tool that a choice names.
fn tool_name(tool: &str) -> Option<String> {
    let inner = object_member(tool, "function").or_else(|| object_member(tool, "custom"))?;
    string_member(inner, "name").map(Cow::into_owned)
}
