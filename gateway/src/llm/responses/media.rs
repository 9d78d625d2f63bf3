//! Images and files of user messages: content parts as media, and back.

use hookgate_proto::types::v1::{Media, media::Source};

use crate::llm::{
    edits::edit_object,
    format::PatchError,
    media::{Description, audio_part, is_image, url_of},
    surface::UnseenMedium,
    value::{member, quote, string, string_member},
};

/// The member with the source of an image.
const IMAGE_SOURCE: &str = "image_url";

/// The members with the source of a file.
const FILE_SOURCES: [&str; 2] = ["file_data", "file_url"];

/// The members with the source of a medium, for parts of this type.
pub(super) fn sources(part_type: &str) -> &'static [&'static str] {
    match part_type {
        "input_image" => &[IMAGE_SOURCE],
        "input_file" => &FILE_SOURCES,
        _ => &[],
    }
}

/// Whether a part has a source of a medium, also one that is none of its type.
pub(super) fn has_source(part: &str) -> bool {
    FILE_SOURCES.iter().chain([&IMAGE_SOURCE]).any(|name| member(part, name).is_some())
}

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

/// A part with two sources has none: the model may get the one that plugins would not see.
fn describe(part: &str) -> Option<Description<'_>> {
    let only = |names: &[&str]| {
        let mut sources =
            names.iter().chain(&["file_id"]).filter_map(|name| Some((*name, member(part, name)?)));
        let (name, source) = sources.next()?;
        string(source).filter(|_| name != "file_id" && sources.next().is_none())
    };
    Some(match string_member(part, "type")?.as_ref() {
        "input_image" => {
            Description { source: only(&[IMAGE_SOURCE])?, mime_type: "image/*".into(), filename: None }
        }
        "input_file" => {
            let filename = string_member(part, "filename");
            let mime_type = "application/octet-stream".into();
            Description { source: only(&FILE_SOURCES)?, mime_type, filename }
        }
        "input_audio" => Description::of_audio(part)?,
        _ => return None,
    })
}

/// The content part for a medium that a plugin added.
pub(super) fn new_part(media: &Media) -> Result<String, PatchError> {
    let url = quote(&url_of(media)?);
    if is_image(media) {
        return Ok(format!(r#"{{"type":"input_image","image_url":{url},"detail":"auto"}}"#));
    }
    if let (Some(format), Some(Source::Data(data))) =
        (media.mime_type.strip_prefix("audio/"), media.source.as_ref())
    {
        return Ok(audio_part(format, data));
    }
    let source = file_source(media);
    let filename = media.filename.as_deref().map(|name| format!(r#","filename":{}"#, quote(name)));
    Ok(format!(r#"{{"type":"input_file","{source}":{url}{}}}"#, filename.unwrap_or_default()))
}

/// A content part with another medium in it. Its other members stay.
pub(super) fn replace_medium(part: &str, media: &Media) -> Result<String, PatchError> {
    let kind = string_member(part, "type").unwrap_or_default();
    match (kind.as_ref(), is_image(media)) {
        ("input_image", true) => {
            let url = quote(&url_of(media)?);
            Ok(edit_object(part, |part| part.set(IMAGE_SOURCE, url)))
        }
        ("input_file", _) => replace_file(part, media),
        _ => new_part(media),
    }
}

fn replace_file(part: &str, media: &Media) -> Result<String, PatchError> {
    let url = quote(&url_of(media)?);
    let source = file_source(media);
    let is_renamed = string_member(part, "filename").as_deref() != media.filename.as_deref();
    Ok(edit_object(part, |part| {
        FILE_SOURCES.iter().filter(|name| **name != source).for_each(|name| part.remove(name));
        part.set(source, url);
        match &media.filename {
            Some(name) if is_renamed => part.set("filename", quote(name)),
            None if is_renamed => part.remove("filename"),
            _ => {}
        }
    }))
}

/// The member for the source of a file.
fn file_source(media: &Media) -> &'static str {
    let [data, url] = FILE_SOURCES;
    if matches!(media.source, Some(Source::Url(_))) { url } else { data }
}

#[cfg(test)]
#[path = "media_tests.rs"]
mod tests;
