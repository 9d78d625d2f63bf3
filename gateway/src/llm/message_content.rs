//! What a message of a request says: its text and media, and the message with others. A content is a string or an array of
//! parts, in all formats; some call these blocks.

use std::borrow::Cow;

use hookgate_proto::types::v1::{BeforeLlmRequestPayload, Media};

use super::{
    edits::{ArrayEdit, Edits, edit_object, span_in},
    format::PatchError,
    media::is_image,
    value::{kind, member, quote, string, string_member},
};
use crate::json::{self, ValueKind};

/// The content parts of a format.
pub(super) trait ContentFormat {
    /// The type of a text part that plugins added.
    const TEXT_PART: &'static str = "text";

    /// The medium in a part, if it is one that plugins see.
    fn medium_of(part: &str) -> Option<Media>;

    /// The part for a medium that a plugin added.
    fn new_part(media: &Media) -> Result<String, PatchError>;

    /// A part with another medium in it.
    fn replace_medium(part: &str, media: &Media) -> Result<String, PatchError>;

    /// The member of a part that marks it for the provider's cache.
    const CACHE_MARK: &'static str = "cache_control";

    /// Puts a text in place of all text parts: the first takes the whole text, and the others go. A mark for the provider's cache
    /// stays.
    fn set_text(parts: &mut ArrayEdit<'_>, text: &str)
    where
        Self: Sized,
    {
        let texts = text_parts(parts);
        let Some(((first, part), others)) = texts.split_first() else {
            return parts.push_front(text_part::<Self>(text));
        };
        let mark = others.iter().rev().find_map(|(_, part)| member(part, Self::CACHE_MARK));
        let changed = edit_object(part, |part| {
            part.set("text", quote(text));
            if let Some(mark) = mark {
                part.set(Self::CACHE_MARK, mark);
            }
        });
        parts.replace(*first, changed);
        others.iter().for_each(|(index, _)| parts.remove(*index));
    }
}

/// The texts of a content: the string that it is, or those of its text parts.
pub(super) fn texts_of(content: &str) -> Vec<Cow<'_, str>> {
    if let Some(text) = string(content) {
        return vec![text];
    }
    let texts = json::elements(content).filter(|part| is_text_part(part));
    texts.map(|part| string_member(part, "text").unwrap_or_default()).collect()
}

/// The text of a message; that of several parts one below the other.
pub(super) fn text_of(message: &str) -> String {
    texts_of(member(message, "content").unwrap_or_default()).join("\n")
}

/// Whether a content part is text, in any format.
pub(super) fn is_text_part(part: &str) -> bool {
    let kind = string_member(part, "type");
    kind.is_some_and(|kind| matches!(kind.as_ref(), "text" | "input_text" | "output_text"))
}

/// The text parts of a content, and their places.
pub(super) fn text_parts<'a>(parts: &ArrayEdit<'a>) -> Vec<(usize, &'a str)> {
    parts.elements().iter().copied().enumerate().filter(|(_, part)| is_text_part(part)).collect()
}

/// A content part that is text.
pub(super) fn text_part<F: ContentFormat>(text: &str) -> String {
    format!(r#"{{"type":"{}","text":{}}}"#, F::TEXT_PART, quote(text))
}

/// The payload of a user message without what surrounds it.
pub(super) fn user_payload<F: ContentFormat>(message: &str) -> BeforeLlmRequestPayload {
    let parts = json::elements(member(message, "content").unwrap_or_default());
    let (images, files) = slots::<F>(parts).map(|slot| slot.media).partition(is_image);
    BeforeLlmRequestPayload { text: text_of(message), images, files, ..BeforeLlmRequestPayload::default() }
}

/// Puts a line break between the text parts of `content`, a slice of `root`, where none is. Plugins see each part on a
/// line of its own, and some servers put them together without anything.
pub(super) fn break_texts(root: &str, content: &str, edits: &mut Edits) {
    let texts = json::elements(content).filter(|part| is_text_part(part));
    let texts: Vec<&str> = texts.filter_map(|part| member(part, "text")).collect();
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

/// The content with this text and without parts of other texts.
pub(super) fn with_text<F: ContentFormat>(content: &str, text: &str) -> String {
    let mut content = Content::new(content);
    content.set_text::<F>(text);
    content.finish::<F>()
}

/// Whether plugins changed the text or the media of a user message.
pub(super) fn is_user_changed(before: &BeforeLlmRequestPayload, after: &BeforeLlmRequestPayload) -> bool {
    (&before.text, &before.images, &before.files) != (&after.text, &after.images, &after.files)
}

/// A user message with the text and media that plugins changed.
pub(super) fn with_changes<F: ContentFormat>(
    message: &str,
    before: &BeforeLlmRequestPayload,
    after: &BeforeLlmRequestPayload,
) -> Result<String, PatchError> {
    if !is_user_changed(before, after) {
        return Ok(message.to_owned());
    }
    let mut content = Content::new(member(message, "content").unwrap_or_default());
    if before.text != after.text {
        content.set_text::<F>(&after.text);
    }
    if before.images != after.images {
        content.set_media::<F>(&after.images, true)?;
    }
    if before.files != after.files {
        content.set_media::<F>(&after.files, false)?;
    }
    Ok(edit_object(message, |message| message.set("content", content.finish::<F>())))
}

/// An array with its changes.
pub(super) fn finished(array: &str, changes: ArrayEdit<'_>) -> String {
    let mut edits = Edits::default();
    changes.finish(&mut edits);
    edits.apply_to_str(array)
}

/// A medium and the content part it is in.
struct Slot {
    part: usize,
    media: Media,
}

fn slots<'a, F: ContentFormat>(parts: impl Iterator<Item = &'a str>) -> impl Iterator<Item = Slot> {
    parts.enumerate().filter_map(|(part, text)| F::medium_of(text).map(|media| Slot { part, media }))
}

/// The content of a message while it is changed.
enum Content<'a> {
    Text { text: String, added: Vec<String> },
    Parts { array: &'a str, parts: ArrayEdit<'a> },
}

impl<'a> Content<'a> {
    fn new(content: &'a str) -> Self {
        match kind(content) {
            ValueKind::Array => Content::Parts { array: content, parts: ArrayEdit::new(content, content) },
            _ => {
                let text = string(content).unwrap_or_default().into_owned();
                Content::Text { text, added: Vec::new() }
            }
        }
    }

    fn set_text<F: ContentFormat>(&mut self, new: &str) {
        match self {
            Content::Text { text, .. } => new.clone_into(text),
            Content::Parts { parts, .. } => F::set_text(parts, new),
        }
    }

    /// Puts a list of images or files in place of that of the message, part by part.
    fn set_media<F: ContentFormat>(&mut self, after: &[Media], images: bool) -> Result<(), PatchError> {
        if let Some(misplaced) = after.iter().find(|media| is_image(media) != images) {
            let (list, kind) = (if images { "images" } else { "files" }, &misplaced.mime_type);
            return Err(PatchError::new(format!("`{list}` has a medium of the type `{kind}`")));
        }
        match self {
            Content::Text { added, .. } => {
                for media in after {
                    added.push(F::new_part(media)?);
                }
                Ok(())
            }
            Content::Parts { parts, .. } => set_media_parts::<F>(parts, after, images),
        }
    }

    fn finish<F: ContentFormat>(self) -> String {
        match self {
            Content::Text { text, added } if added.is_empty() => quote(&text),
            Content::Text { text, added } => {
                let first = (!text.is_empty()).then(|| text_part::<F>(&text));
                let parts: Vec<String> = first.into_iter().chain(added).collect();
                format!("[{}]", parts.join(","))
            }
            // Providers refuse an empty list. Beside results of tools nothing stands for it.
            Content::Parts { parts, .. } if parts.is_emptied() => quote(""),
            Content::Parts { array, parts } => finished(array, parts),
        }
    }
}

fn set_media_parts<F: ContentFormat>(
    parts: &mut ArrayEdit<'_>,
    after: &[Media],
    images: bool,
) -> Result<(), PatchError> {
    let slots: Vec<Slot> =
        slots::<F>(parts.elements().iter().copied()).filter(|slot| is_image(&slot.media) == images).collect();
    if let Some(kept) = only_removed(&slots, after) {
        let removed = slots.iter().zip(kept).filter(|(_, kept)| !kept);
        removed.for_each(|(slot, _)| parts.remove(slot.part));
        return Ok(());
    }
    for (slot, media) in slots.iter().zip(after) {
        if slot.media != *media {
            let changed = F::replace_medium(parts.elements()[slot.part], media)?;
            parts.replace(slot.part, changed);
        }
    }
    slots.iter().skip(after.len()).for_each(|slot| parts.remove(slot.part));
    for media in after.iter().skip(slots.len()) {
        parts.push_back(F::new_part(media)?);
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
