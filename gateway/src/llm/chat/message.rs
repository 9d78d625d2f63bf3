//! One message of a request: its content parts, and the message with others.

use hookgate_proto::types::v1::Media;

use super::{
    ChatCompletions,
    media::{medium_of, new_part, replace_medium},
    request::Role,
};
use crate::llm::{
    edits::{Edits, edit_object},
    format::PatchError,
    message_content::{ContentFormat, break_texts},
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
