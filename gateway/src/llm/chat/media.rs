//! Images and files of user messages: content parts as media, and back.

use hookgate_proto::types::v1::{Media, media::Source};

use crate::llm::{
    edits::{ObjectEdit, edit_object},
    format::PatchError,
    media::{Description, audio_part, is_image, url_of},
    surface::UnseenMedium,
    value::{member, object_member, quote, string, string_member},
};

/// The medium in a content part, if it is an image, a file or audio that plugins see.
pub(super) fn medium_of(part: &str) -> Option<Media> {
    describe(part)?.medium()
}

/// Whether plugins see the medium of an image, a file or audio. Keeps none of its data.
///
/// # Errors
/// They don't.
pub(crate) fn check_medium(part: &str) -> Result<(), UnseenMedium> {
    describe(part).ok_or(UnseenMedium::NoSource)?.check()
}

fn describe(part: &str) -> Option<Description<'_>> {
    Some(match string_member(part, "type")?.as_ref() {
        "image_url" => {
            let image = member(part, "image_url")?;
            let source = string(image).or_else(|| string_member(image, "url"))?;
            Description { source, mime_type: "image/*".into(), filename: None }
        }
        "input_audio" => Description::of_audio(part)?,
        "file" => {
            let file = object_member(part, "file")?;
            let source = string_member(file, "file_url").or_else(|| string_member(file, "file_data"))?;
            let filename = string_member(file, "filename");
            Description { source, mime_type: "application/octet-stream".into(), filename }
        }
        _ => return None,
    })
}

/// The content part for a medium that a plugin added.
pub(super) fn new_part(media: &Media) -> Result<String, PatchError> {
    if is_image(media) {
        return Ok(format!(r#"{{"type":"image_url","image_url":{{"url":{}}}}}"#, quote(&url_of(media)?)));
    }
    let data = data_of(media)?;
    if let Some(format) = media.mime_type.strip_prefix("audio/") {
        return Ok(audio_part(format, data));
    }
    let data = quote(&url_of(media)?);
    let filename = media.filename.as_deref().map(|name| format!(r#","filename":{}"#, quote(name)));
    let filename = filename.unwrap_or_default();
    Ok(format!(r#"{{"type":"file","file":{{"file_data":{data}{filename}}}}}"#))
}

/// A content part with another medium in it. Its other members stay.
pub(super) fn replace_medium(part: &str, media: &Media) -> Result<String, PatchError> {
    let kind = string_member(part, "type").unwrap_or_default();
    match (kind.as_ref(), is_image(media)) {
        ("image_url", true) => {
            let url = quote(&url_of(media)?);
            Ok(match object_member(part, "image_url") {
                Some(image) => {
                    let image = edit_object(image, |image| image.set("url", url));
                    edit_object(part, |part| part.set("image_url", image))
                }
                None => edit_object(part, |part| part.set("image_url", url)),
            })
        }
        ("file", _) => {
            // A file with another name only keeps its source, which may be a URL.
            let is_same =
                |old: Media| (old.source, old.mime_type) == (media.source.clone(), media.mime_type.clone());
            let is_kept = medium_of(part).is_some_and(is_same);
            let new = if is_kept { None } else { Some(data_of(media).and_then(|_| url_of(media))?) };
            edit_inner(part, "file", |file| {
                if let Some(url) = new {
                    file.set("file_data", quote(&url));
                    file.remove("file_url");
                }
                if let Some(name) = &media.filename {
                    file.set("filename", quote(name));
                }
            })
        }
        _ => new_part(media),
    }
}

fn edit_inner(
    part: &str,
    name: &str,
    change: impl FnOnce(&mut ObjectEdit<'_>),
) -> Result<String, PatchError> {
    let inner = object_member(part, name).ok_or_else(|| PatchError::new("A content part has no file"))?;
    let inner = edit_object(inner, change);
    Ok(edit_object(part, |part| part.set(name, inner)))
}

fn data_of(media: &Media) -> Result<&[u8], PatchError> {
    match &media.source {
        Some(Source::Data(data)) => Ok(data),
        Some(Source::Url(_)) | None => {
            Err(PatchError::new("`files` has a file without `data`: Chat Completions take no URLs of files"))
        }
    }
}

#[cfg(test)]
#[path = "media_tests.rs"]
mod tests;
