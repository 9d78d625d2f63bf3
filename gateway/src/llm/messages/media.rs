//! Images and documents of user messages: content blocks as media, and back.

use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::STANDARD};
use hookgate_proto::types::v1::{Media, media};

use crate::llm::{
    edits::edit_object,
    format::PatchError,
    media::{check_base64, is_image},
    surface::UnseenMedium,
    value::{object_member, quote, string_member},
};

/// The source, the type and the name of a medium.
struct Description<'a> {
    source: Source<'a>,
    mime_type: Cow<'a, str>,
    filename: Option<Cow<'a, str>>,
}

/// The sources that plugins see.
enum Source<'a> {
    Url(Cow<'a, str>),
    Base64(Cow<'a, str>),
    Text(Cow<'a, str>),
}

/// The medium in a content block, if it is an image or a document that plugins see.
pub(super) fn medium_of(block: &str) -> Option<Media> {
    let Description { source, mime_type, filename } = describe(block)?;
    let source = match source {
        Source::Url(url) => media::Source::Url(url.into_owned()),
        Source::Base64(data) => media::Source::Data(STANDARD.decode(data.as_ref()).ok()?.into()),
        Source::Text(text) => media::Source::Data(text.into_owned().into()),
    };
    let filename = filename.map(Cow::into_owned);
    Some(Media { mime_type: mime_type.into_owned(), filename, source: Some(source) })
}

/// Whether plugins see the medium of an image or a document. Keeps none of its data.
///
/// # Errors
/// They don't.
pub(crate) fn check_medium(block: &str) -> Result<(), UnseenMedium> {
    match describe(block).ok_or(UnseenMedium::NoSource)?.source {
        Source::Url(_) | Source::Text(_) => Ok(()),
        Source::Base64(data) => check_base64(&data),
    }
}

fn describe(block: &str) -> Option<Description<'_>> {
    let (of_url, of_data, filename) = match string_member(block, "type")?.as_ref() {
        "image" => ("image/*", "image/*", None),
        "document" => ("application/pdf", "application/octet-stream", string_member(block, "title")),
        _ => return None,
    };
    let object = object_member(block, "source")?;
    let data = || string_member(object, "data");
    let named = string_member(object, "media_type").filter(|named| !named.is_empty());
    let (source, mime_type) = match string_member(object, "type")?.as_ref() {
        "url" => {
            let url = string_member(object, "url").filter(|url| is_remote(url))?;
            (Source::Url(url), of_url.into())
        }
        "base64" => (Source::Base64(data()?), named.unwrap_or(of_data.into())),
        "text" => (Source::Text(data()?), "text/plain".into()),
        _ => return None,
    };
    Some(Description { source, mime_type, filename })
}

/// Whether plugins could load a URL. What is in a `data:` URL, or in a file of the model's server, they would not see.
fn is_remote(url: &str) -> bool {
    let is_web = |scheme: &str| ["http", "https"].iter().any(|web| scheme.eq_ignore_ascii_case(web));
    url.split_once("://").is_some_and(|(scheme, _)| is_web(scheme))
}

/// The content block for a medium that a plugin added.
pub(super) fn new_block(media: &Media) -> Result<String, PatchError> {
    let source = source_of(media)?;
    if is_image(media) {
        return Ok(format!(r#"{{"type":"image","source":{source}}}"#));
    }
    let title = media.filename.as_deref().map(|name| format!(r#","title":{}"#, quote(name)));
    Ok(format!(r#"{{"type":"document","source":{source}{}}}"#, title.unwrap_or_default()))
}

/// A content block with another medium in it. Its other members stay, but for the title, which is the medium's name.
pub(super) fn replace_medium(block: &str, media: &Media) -> Result<String, PatchError> {
    let source = source_of(media)?;
    let (old, new) = (string_member(block, "title"), media.filename.as_deref());
    let is_renamed = !is_image(media) && old.as_deref() != new;
    Ok(edit_object(block, |block| {
        block.set("source", source);
        match new {
            Some(title) if is_renamed => block.set("title", quote(title)),
            None if is_renamed => block.remove("title"),
            _ => {}
        }
    }))
}

fn source_of(media: &Media) -> Result<String, PatchError> {
    match &media.source {
        Some(media::Source::Url(url)) => Ok(format!(r#"{{"type":"url","url":{}}}"#, quote(url))),
        Some(media::Source::Data(data)) => Ok(match text_of(media, data) {
            Some(text) => {
                format!(r#"{{"type":"text","media_type":"text/plain","data":{}}}"#, quote(text))
            }
            None => {
                let (mime_type, data) = (quote(&media.mime_type), STANDARD.encode(data));
                format!(r#"{{"type":"base64","media_type":{mime_type},"data":"{data}"}}"#)
            }
        }),
        None => Err(PatchError::new("A medium has neither `data` nor `url`")),
    }
}

/// The data of a file that is text. Providers take no such file as base64.
fn text_of<'a>(media: &Media, data: &'a [u8]) -> Option<&'a str> {
    media.mime_type.starts_with("text/").then(|| str::from_utf8(data).ok())?
}

#[cfg(test)]
#[path = "media_tests.rs"]
mod tests;
