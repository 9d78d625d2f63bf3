//! Marks for the provider's cache, and what else agents change about their items from turn to turn.

use std::borrow::Cow;

use super::items::{CallForm, ItemKind};
use crate::{
    json::{self, ValueKind},
    llm::{
        edits::{ArrayEdit, Edits, edit_object},
        message_content::finished,
        value::{kind, member, member_or_null, string_member},
    },
};

/// The member of a part that ends what the provider's cache may keep.
pub(super) const MARK: &str = "prompt_cache_breakpoint";

/// A message or a result without marks for the provider's cache. Some agents move these along with the end of the conversation, and
/// turn a string into a part to put one there, so what they sent once looks different later. Some give a message an `id` and a
/// `status` once they have stored it.
pub(super) fn unmarked(item: &str) -> Cow<'_, str> {
    let Some(name) = content_member(item) else { return item.into() };
    let content = member(item, name).unwrap_or_default();
    let lasting = unmarked_content(content);
    let is_stored = |name: &str| matches!(name, "id" | "status") && ItemKind::of(item) == ItemKind::Message;
    if lasting == content && !json::members(item).any(|(name, _)| is_stored(&name)) {
        return item.into();
    }
    let lasting = edit_object(item, |item| {
        item.retain(|name, _| !is_stored(name));
        item.set_existing(name, lasting);
    });
    lasting.into()
}

/// A content without marks for the provider's cache. In place of one part of text it is the string.
pub(super) fn unmarked_content(content: &str) -> Cow<'_, str> {
    let mut parts = ArrayEdit::new(content, content);
    if let [only] = parts.elements()
        && let Some(text) = only_text(only)
    {
        return text.into();
    }
    for (index, part) in json::elements(content).enumerate() {
        if member_or_null(part, MARK).is_some() {
            parts.replace(index, edit_object(part, |part| part.remove(MARK)));
        }
    }
    let mut edits = Edits::default();
    parts.finish(&mut edits);
    if edits.is_empty() { content.into() } else { edits.apply_to_str(content).into() }
}

/// `item`, with the last mark for the provider's cache that `marked` has; unless it has one itself. Both are a message, or the result
/// of a tool.
pub(super) fn with_marks_of(marked: &str, item: &str) -> String {
    let mark = parts(marked).filter_map(|part| member(part, MARK)).last();
    let (Some(mark), Some(name)) = (mark, content_member(item)) else { return item.to_owned() };
    if parts(item).any(|part| member(part, MARK).is_some()) {
        return item.to_owned();
    }
    let content = member(item, name).unwrap_or_default();
    let changed = match kind(content) {
        // The provider refuses a part without text.
        ValueKind::String if content != "\"\"" => {
            format!(r#"[{{"type":"input_text","text":{content},"{MARK}":{mark}}}]"#)
        }
        ValueKind::Array => {
            let mut list = ArrayEdit::new(content, content);
            let last = list.elements().iter().copied().enumerate().next_back();
            let Some((last, part)) = last.filter(|(_, part)| kind(part) == ValueKind::Object) else {
                return item.to_owned();
            };
            list.replace(last, edit_object(part, |part| part.set(MARK, mark)));
            finished(content, list)
        }
        _ => return item.to_owned(),
    };
    edit_object(item, |item| item.set(name, changed))
}

/// The text of a part that has nothing but that, as JSON.
fn only_text(part: &str) -> Option<&str> {
    let is_text = string_member(part, "type").is_some_and(|kind| kind == "input_text");
    let mut others = json::members(part).filter(|(name, _)| !matches!(name.as_ref(), "type" | "text" | MARK));
    member(part, "text").filter(|text| is_text && kind(text) == ValueKind::String && others.next().is_none())
}

fn parts(item: &str) -> impl Iterator<Item = &str> {
    let content = content_member(item).and_then(|name| member(item, name));
    json::elements(content.unwrap_or_default())
}

/// The member with what a message or a tool says, where that may be a list of parts.
fn content_member(item: &str) -> Option<&'static str> {
    match ItemKind::of(item) {
        ItemKind::Message => Some("content"),
        ItemKind::Result(CallForm::Function | CallForm::Custom) => Some("output"),
        _ => None,
    }
}

#[cfg(test)]
#[path = "marks_tests.rs"]
mod tests;
