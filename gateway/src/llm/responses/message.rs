//! One item of a request: its content parts, or what a tool returned, and the item with others.

use hookgate_proto::types::v1::Media;

use super::{
    Responses,
    items::{CallForm, ItemKind},
    marks::MARK,
    media::{medium_of, new_part, replace_medium},
};
use crate::{
    json::{self, ValueKind},
    llm::{
        edits::{Edits, edit_object},
        format::PatchError,
        message_content::{ContentFormat, break_texts, text_part},
        tool_results::result_content,
        value::{kind, member, object_member, quote, string, string_member},
    },
};

impl ContentFormat for Responses {
    const TEXT_PART: &'static str = "input_text";
    const CACHE_MARK: &'static str = MARK;

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

/// Puts a line break between text parts of `item`, a slice of `root`, where none is. Plugins see each part on a line of its own, and
/// some servers put them together without anything. What the model or a tool said stays.
pub(super) fn break_lines(root: &str, item: &str, edits: &mut Edits) {
    let role = string_member(item, "role");
    let is_theirs = role.is_some_and(|role| matches!(role.as_ref(), "user" | "system" | "developer"));
    if is_theirs && ItemKind::of(item) == ItemKind::Message {
        break_texts(root, member(item, "content").unwrap_or_default(), edits);
    }
}

/// An item with a note in place of what somebody or a tool says in it.
pub(super) fn with_note(item: &str, note: &str) -> String {
    let ItemKind::Result(form) = ItemKind::of(item) else { return message_with_note(item, note) };
    edit_object(item, |item| match form {
        CallForm::Function | CallForm::Custom | CallForm::LocalShell => item.set("output", quote(note)),
        CallForm::Shell => item.set("output", shell_output("", note, 1)),
        CallForm::ApplyPatch => {
            item.set("output", quote(note));
            item.set("status", r#""failed""#);
        }
        // It has no place for words.
        CallForm::ToolSearch => {
            item.set("tools", "[]");
            item.set("status", r#""incomplete""#);
        }
    })
}

fn message_with_note(message: &str, note: &str) -> String {
    let is_list = kind(member(message, "content").unwrap_or_default()) == ValueKind::Array;
    let content = if is_list { format!("[{}]", text_part::<Responses>(note)) } else { quote(note) };
    edit_object(message, |message| message.set("content", content))
}

/// What a tool returned, as an item of this form has it.
pub(super) fn output_of(form: CallForm, result: &str) -> String {
    match form {
        CallForm::Function | CallForm::Custom => result_content(result, is_parts),
        CallForm::LocalShell | CallForm::ApplyPatch => result_content(result, |_| false),
        CallForm::Shell if is_shell_output(result) => result.to_owned(),
        // The changed request is checked, so anything but tools is refused there.
        CallForm::ToolSearch => result.to_owned(),
        CallForm::Shell => shell_output(string(result).as_deref().unwrap_or(result), "", 0),
    }
}

/// What one command of a shell wrote.
fn shell_output(stdout: &str, stderr: &str, exit_code: u8) -> String {
    let (stdout, stderr) = (quote(stdout), quote(stderr));
    format!(
        r#"[{{"stdout":{stdout},"stderr":{stderr},"outcome":{{"type":"exit","exit_code":{exit_code}}}}}]"#
    )
}

/// Whether an array is one of the content parts that results of tools have.
fn is_parts(array: &str) -> bool {
    let has = |part: &str, names: &[&str]| names.iter().any(|name| string_member(part, name).is_some());
    let is_part = |part: &str| match string_member(part, "type").as_deref() {
        Some("input_text") => has(part, &["text"]),
        Some("input_image") => has(part, &["image_url", "file_id"]),
        Some("input_file") => has(part, &["file_data", "file_url", "file_id"]),
        _ => false,
    };
    let mut parts = json::elements(array).peekable();
    parts.peek().is_some() && parts.all(is_part)
}

/// Whether a value is a list of what commands of a shell wrote.
fn is_shell_output(value: &str) -> bool {
    let is_text = |output: &str, name: &str| string_member(output, name).is_some();
    kind(value) == ValueKind::Array
        && json::elements(value).all(|output| {
            is_text(output, "stdout")
                && is_text(output, "stderr")
                && object_member(output, "outcome").is_some()
        })
}

/// Whether the provider could not tell what an item stands for, after it kept nothing: thoughts without their text, of which the
/// request has only the name.
pub(super) fn is_forgotten(item: &str) -> bool {
    let has_text = || {
        let content = member(item, "content").unwrap_or_default();
        json::elements(content).next().is_some()
    };
    let is_sealed = || string_member(item, "encrypted_content").is_some_and(|sealed| !sealed.is_empty());
    ItemKind::of(item) == ItemKind::Reasoning && !is_sealed() && !has_text()
}
