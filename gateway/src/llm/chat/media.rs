//! Images and files of user messages: content parts as media, and back.

use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::STANDARD};
use hookgate_proto::types::v1::{Media, media::Source};

use crate::llm::{
    edits::{ObjectEdit, edit_object},
    format::PatchError,
    media::{check_base64, is_image},
    surface::UnseenMedium,
    value::{member, object_member, quote, string, string_member},
};

/// The source, the type and the name of a medium.
struct Description<'a> {
    /// A URL, a `data:` URL or base64.
    source: Cow<'a, str>,
    /// The type, unless a `data:` URL names another.
    mime_type: Cow<'static, str>,
    filename: Option<Cow<'a, str>>,
}

/// The two forms of a source.
enum Form<'a> {
    Url,
    /// The type, empty if none is named, and base64.
    Data(&'a str, &'a str),
}

/// The medium in a content part, if it is an image, a file or audio that plugins see.
pub(super) fn medium_of(part: &str) -> Option<Media> {
    let Description { source, mime_type, filename } = describe(part)?;
    let filename = filename.map(Cow::into_owned);
    Some(match form(&source).ok()? {
        Form::Url => {
            let mime_type = mime_type.into_owned();
            Media { mime_type, filename, source: Some(Source::Url(source.into_owned())) }
        }
        Form::Data(named_type, data) => {
            let data = STANDARD.decode(data).ok()?;
            let mime_type = if named_type.is_empty() { &mime_type } else { named_type }.to_owned();
            Media { mime_type, filename, source: Some(Source::Data(data.into())) }
        }
    })
}

/// Whether plugins see the medium of an image, a file or audio. Keeps none of its data.
///
/// # Errors
/// They don't.
pub(crate) fn check_medium(part: &str) -> Result<(), UnseenMedium> {
    let Description { source, .. } = describe(part).ok_or(UnseenMedium::NoSource)?;
    match form(&source)? {
        Form::Url => Ok(()),
        Form::Data(_, data) => check_base64(data),
    }
}

fn describe(part: &str) -> Option<Description<'_>> {
    Some(match string_member(part, "type")?.as_ref() {
        "image_url" => {
            let image = member(part, "image_url")?;
            let source = string(image).or_else(|| string_member(image, "url"))?;
            Description { source, mime_type: "image/*".into(), filename: None }
        }
        "input_audio" => {
            let audio = object_member(part, "input_audio")?;
            let format = string_member(audio, "format").unwrap_or(Cow::Borrowed("*"));
            let mime_type = format!("audio/{format}").into();
            Description { source: string_member(audio, "data")?, mime_type, filename: None }
        }
        "file" => {
            let file = object_member(part, "file")?;
            let source = string_member(file, "file_url").or_else(|| string_member(file, "file_data"))?;
            let filename = string_member(file, "filename");
            Description { source, mime_type: "application/octet-stream".into(), filename }
        }
        _ => return None,
    })
}

/// The form of a source. A `data:` URL is never a URL for plugins: they would not see its data.
fn form(source: &str) -> Result<Form<'_>, UnseenMedium> {
    match split_scheme(source) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("data") => {
            let (named_type, data) = base64_of(rest).ok_or(UnseenMedium::NotBase64)?;
            Ok(Form::Data(named_type, data))
        }
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("file") => Err(UnseenMedium::NoSource),
        Some(_) => Ok(Form::Url),
        None => Ok(Form::Data("", source)),
    }
}

/// The type and the base64 of `TYPE;PARAMETERS;base64,DATA`.
fn base64_of(rest: &str) -> Option<(&str, &str)> {
    let (head, data) = rest.split_once(',')?;
    let (named_type, parameters) = head.split_once(';')?;
    let encoding = parameters.rsplit(';').next()?;
    encoding.eq_ignore_ascii_case("base64").then_some((named_type, data))
}

/// A URL's scheme, and what follows the colon.
fn split_scheme(source: &str) -> Option<(&str, &str)> {
    source.split_once(':').filter(|(scheme, _)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|each| each.is_ascii_alphanumeric() || "+.-".contains(each))
    })
}

/// The content part for a medium that a plugin added.
pub(super) fn new_part(media: &Media) -> Result<String, PatchError> {
    if is_image(media) {
        return Ok(format!(r#"{{"type":"image_url","image_url":{{"url":{}}}}}"#, quote(&url_of(media)?)));
    }
    let data = data_of(media)?;
    if let Some(format) = media.mime_type.strip_prefix("audio/") {
        let (data, format) = (quote(&STANDARD.encode(data)), quote(format));
        return Ok(format!(r#"{{"type":"input_audio","input_audio":{{"data":{data},"format":{format}}}}}"#));
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
            data_of(media)?;
            let url = quote(&url_of(media)?);
            edit_inner(part, "file", |file| {
                file.set("file_data", url);
                file.remove("file_url");
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

fn url_of(media: &Media) -> Result<String, PatchError> {
    match &media.source {
        Some(Source::Url(url)) => Ok(url.clone()),
        Some(Source::Data(data)) => Ok(format!("data:{};base64,{}", media.mime_type, STANDARD.encode(data))),
        None => Err(PatchError::new("A medium has neither `data` nor `url`")),
    }
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
