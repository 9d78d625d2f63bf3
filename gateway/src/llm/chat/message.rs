//! One message of a request: its content parts, and the message with others.

use std::iter;

use hookgate_proto::types::v1::Media;

use super::{
    ChatCompletions,
    media::{medium_of, new_part, replace_medium},
    request::Role,
};
use crate::llm::{
    edits::{ArrayEdit, Edits, edit_object},
    format::PatchError,
    message_content::{ContentFormat, break_texts, text_part, text_parts},
    request_shape::MessageRole as _,
    value::{member, quote, string_member},
};

impl ContentFormat for ChatCompletions {
    fn medium_of(part: &str) -> Option<Media> {
        medium_of(part)
    }

    fn new_part(media: &Media) -> Result<String, PatchError> {
        new_part(media)
    }

    fn replace_medium(part: &str, media: &Media) -> Result<String, PatchError> {
        replace_medium(part, media)
    }

    /// The first text part takes the whole text; the others go. A mark for the provider's cache stays.
    fn set_text(parts: &mut ArrayEdit<'_>, text: &str) {
        let texts = text_parts(parts);
        let Some(((first, part), others)) = texts.split_first() else {
            return parts.push_front(text_part::<Self>(text));
        };
        let mark = iter::once(*part).chain(others.iter().map(|(_, part)| *part));
        let mark = mark.filter_map(|part| member(part, "cache_control")).next_back();
        let changed = edit_object(part, |part| {
            part.set("text", quote(text));
            if let Some(mark) = mark.filter(|mark| part.get("cache_control") != Some(*mark)) {
                part.set("cache_control", mark);
            }
        });
        parts.replace(*first, changed);
        others.iter().for_each(|(index, _)| parts.remove(*index));
    }
}

/// Puts a line break between text parts of `message`, a slice of `root`, where none is. Plugins see each part on
/// a line of its own, and some servers put them together without anything. What the model or a tool said stays.
pub(super) fn break_lines(root: &str, message: &str, edits: &mut Edits) {
    let role = string_member(message, "role").and_then(|role| Role::from_name(&role));
    if !role.is_some_and(|role| role == Role::User || role.is_system()) {
        return;
    }
    break_texts(root, member(message, "content").unwrap_or_default(), edits);
}

/// The message with this text and nothing else as its content.
pub(super) fn with_content(message: &str, content: &str) -> String {
    edit_object(message, |message| message.set("content", quote(content)))
}
