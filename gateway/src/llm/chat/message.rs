//! One message of a request: its text and media, and the message with others.

use std::iter;

use hookgate_proto::types::v1::{BeforeLlmRequestPayload, Media};

use super::{
    media::{is_image, medium_of, new_part, replace_medium},
    request::Role,
};
use crate::{
    json::{self, ValueKind},
    llm::{
        edits::{ArrayEdit, Edits, edit_object, span_in},
        value::{kind, member, quote, string, string_member},
    },
};

/// Why a plugin's change can't be written back into the request: one sentence without a full stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct PatchError(String);

impl PatchError {
    pub(super) fn new(sentence: impl Into<String>) -> Self {
        PatchError(sentence.into())
    }
}

/// The text of a message; that of several parts one below the other.
pub(super) fn text_of(message: &str) -> String {
    let content = member(message, "content").unwrap_or_default();
    if let Some(text) = string(content) {
        return text.into_owned();
    }
    let texts = json::elements(content).filter(|part| is_text(part));
    texts.map(|part| string_member(part, "text").unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Whether a content part is text.
pub(super) fn is_text(part: &str) -> bool {
    string_member(part, "type").is_some_and(|kind| kind == "text")
}

/// The images and the files of a message.
pub(super) fn media_of(message: &str) -> (Vec<Media>, Vec<Media>) {
    let content = member(message, "content").unwrap_or_default();
    slots(json::elements(content)).map(|slot| slot.media).partition(is_image)
}

/// Puts a line break between text parts of `message`, a slice of `root`, where none is. Plugins see each part on
/// a line of its own, and some servers put them together without anything. What the model or a tool said stays.
pub(super) fn break_lines(root: &str, message: &str, edits: &mut Edits) {
    let role = string_member(message, "role").and_then(|role| Role::from_name(&role));
    if !role.is_some_and(|role| role == Role::User || role.is_system()) {
        return;
    }
    let parts = json::elements(member(message, "content").unwrap_or_default()).filter(|part| is_text(part));
    let texts: Vec<&str> = parts.filter_map(|part| member(part, "text")).collect();
    let is_joined = |text: &str, next: &str| {
        let (text, next) = (string(text).unwrap_or_default(), string(next).unwrap_or_default());
        !text.ends_with('\n') && !next.starts_with('\n')
    };
    for (text, next) in texts.iter().zip(texts.iter().skip(1)) {
        if is_joined(text, next) {
            let closing_quote = span_in(root, text).end - 1;
            edits.replace(closing_quote..closing_quote, r"\n");
        }
    }
}

/// The message with this text and without parts of other texts.
pub(super) fn with_text(message: &str, text: &str) -> String {
    let mut content = Content::new(message);
    content.set_text(text);
    content.finish()
}

/// The message with this text and nothing else as its content.
pub(super) fn with_content(message: &str, content: &str) -> String {
    edit_object(message, |message| message.set("content", quote(content)))
}

/// A user message with the text and media that plugins changed.
pub(super) fn with_changes(
    message: &str,
    before: &BeforeLlmRequestPayload,
    after: &BeforeLlmRequestPayload,
) -> Result<String, PatchError> {
    if (&before.text, &before.images, &before.files) == (&after.text, &after.images, &after.files) {
        return Ok(message.to_owned());
    }
    let mut content = Content::new(message);
    if before.text != after.text {
        content.set_text(&after.text);
    }
    if before.images != after.images {
        content.set_media(&after.images, true)?;
    }
    if before.files != after.files {
        content.set_media(&after.files, false)?;
    }
    Ok(content.finish())
}

/// A medium and the content part it is in.
struct Slot {
    part: usize,
    media: Media,
}

fn slots<'a>(parts: impl Iterator<Item = &'a str>) -> impl Iterator<Item = Slot> {
    parts.enumerate().filter_map(|(part, text)| medium_of(text).map(|media| Slot { part, media }))
}

/// The content of a message while it is changed.
struct Content<'a> {
    message: &'a str,
    form: Form<'a>,
}

enum Form<'a> {
    Text { text: String, added: Vec<String> },
    Parts { array: &'a str, parts: ArrayEdit<'a> },
}

impl<'a> Content<'a> {
    fn new(message: &'a str) -> Self {
        let content = member(message, "content").unwrap_or_default();
        let form = match kind(content) {
            ValueKind::Array => Form::Parts { array: content, parts: ArrayEdit::new(content, content) },
            _ => {
                let text = string(content).unwrap_or_default().into_owned();
                Form::Text { text, added: Vec::new() }
            }
        };
        Content { message, form }
    }

    fn set_text(&mut self, new: &str) {
        match &mut self.form {
            Form::Text { text, .. } => new.clone_into(text),
            Form::Parts { parts, .. } => set_text_part(parts, new),
        }
    }

    /// Puts a list of images or files in place of that of the message, part by part.
    fn set_media(&mut self, after: &[Media], images: bool) -> Result<(), PatchError> {
        if let Some(misplaced) = after.iter().find(|media| is_image(media) != images) {
            let (list, kind) = (if images { "images" } else { "files" }, &misplaced.mime_type);
            return Err(PatchError::new(format!("`{list}` has a medium of the type `{kind}`")));
        }
        match &mut self.form {
            Form::Text { added, .. } => {
                for media in after {
                    added.push(new_part(media)?);
                }
                Ok(())
            }
            Form::Parts { parts, .. } => set_media_parts(parts, after, images),
        }
    }

    fn finish(self) -> String {
        let content = match self.form {
            Form::Text { text, added } if added.is_empty() => quote(&text),
            Form::Text { text, added } => {
                let first = (!text.is_empty()).then(|| text_part(&text));
                let parts: Vec<String> = first.into_iter().chain(added).collect();
                format!("[{}]", parts.join(","))
            }
            // Providers refuse an empty list.
            Form::Parts { parts, .. } if parts.is_emptied() => quote(""),
            Form::Parts { array, parts } => {
                let mut edits = Edits::default();
                parts.finish(&mut edits);
                edits.apply_to_str(array)
            }
        };
        edit_object(self.message, |message| message.set("content", content))
    }
}

fn text_part(text: &str) -> String {
    format!(r#"{{"type":"text","text":{}}}"#, quote(text))
}

/// The first text part takes the whole text; the others go. A mark for the provider's cache stays.
fn set_text_part(parts: &mut ArrayEdit<'_>, text: &str) {
    let texts: Vec<(usize, &str)> =
        parts.elements().iter().copied().enumerate().filter(|(_, part)| is_text(part)).collect();
    let Some(((first, part), others)) = texts.split_first() else {
        return parts.push_front(text_part(text));
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

fn set_media_parts(parts: &mut ArrayEdit<'_>, after: &[Media], images: bool) -> Result<(), PatchError> {
    let slots: Vec<Slot> =
        slots(parts.elements().iter().copied()).filter(|slot| is_image(&slot.media) == images).collect();
    if let Some(kept) = only_removed(&slots, after) {
        let removed = slots.iter().zip(kept).filter(|(_, kept)| !kept);
        removed.for_each(|(slot, _)| parts.remove(slot.part));
        return Ok(());
    }
    for (slot, media) in slots.iter().zip(after) {
        if slot.media != *media {
            let changed = replace_medium(parts.elements()[slot.part], media)?;
            parts.replace(slot.part, changed);
        }
    }
    slots.iter().skip(after.len()).for_each(|slot| parts.remove(slot.part));
    for media in after.iter().skip(slots.len()) {
        parts.push_back(new_part(media)?);
    }
    Ok(())
}

/// Which slots are kept, if `after` is what is left of them.
fn only_removed(slots: &[Slot], after: &[Media]) -> Option<Vec<bool>> {
    let mut rest = after;
    let kept = slots
        .iter()
        .map(|slot| match rest.split_first() {
            Some((next, others)) if *next == slot.media => {
                rest = others;
                true
            }
            _ => false,
        })
        .collect();
    rest.is_empty().then_some(kept)
}
