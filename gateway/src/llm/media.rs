//! Images and files of user messages, in all formats.

use std::{borrow::Cow, io};

use base64::{Engine as _, engine::general_purpose::STANDARD, read::DecoderReader};
use hookgate_proto::types::v1::{Media, media::Source};

use super::{
    format::PatchError,
    surface::UnseenMedium,
    value::{object_member, quote, string_member},
};

/// Whether a medium is among the images of a payload, and not among its files.
pub(super) fn is_image(media: &Media) -> bool {
    media.mime_type == "image" || media.mime_type.starts_with("image/")
}

/// Checks that data is base64. Keeps none of it.
pub(super) fn check_base64(data: &str) -> Result<(), UnseenMedium> {
    let mut decoder = DecoderReader::new(data.as_bytes(), &STANDARD);
    let decoded = io::copy(&mut decoder, &mut io::sink());
    decoded.map(|_| ()).map_err(|_| UnseenMedium::NotBase64)
}

/// The source, the type and the name of a medium in OpenAI's formats.
pub(super) struct Description<'a> {
    /// A URL, a `data:` URL or base64.
    pub(super) source: Cow<'a, str>,
    /// The type, unless a `data:` URL names another.
    pub(super) mime_type: Cow<'static, str>,
    pub(super) filename: Option<Cow<'a, str>>,
}

impl<'a> Description<'a> {
    /// That of a content part with audio, which is the same in these formats.
    pub(super) fn of_audio(part: &'a str) -> Option<Self> {
        let audio = object_member(part, "input_audio")?;
        let format = string_member(audio, "format").unwrap_or(Cow::Borrowed("*"));
        let mime_type = format!("audio/{format}").into();
        Some(Description { source: string_member(audio, "data")?, mime_type, filename: None })
    }

    /// The medium, if plugins see it.
    pub(super) fn medium(self) -> Option<Media> {
        let Description { source, mime_type, filename } = self;
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

    /// Whether plugins see the medium. Keeps none of its data.
    ///
    /// # Errors
    /// They don't.
    pub(super) fn check(&self) -> Result<(), UnseenMedium> {
        match form(&self.source)? {
            Form::Url => Ok(()),
            Form::Data(_, data) => check_base64(data),
        }
    }
}

/// The two forms of a source.
enum Form<'a> {
    Url,
    /// The type, empty if none is named, and base64.
    Data(&'a str, &'a str),
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

/// The content part for audio in OpenAI's formats.
pub(super) fn audio_part(format: &str, data: &[u8]) -> String {
    let (data, format) = (quote(&STANDARD.encode(data)), quote(format));
    format!(r#"{{"type":"input_audio","input_audio":{{"data":{data},"format":{format}}}}}"#)
}

/// The URL of a medium, or a `data:` URL with it.
///
/// # Errors
/// It has neither.
pub(super) fn url_of(media: &Media) -> Result<String, PatchError> {
    match &media.source {
        Some(Source::Url(url)) => Ok(url.clone()),
        Some(Source::Data(data)) => Ok(format!("data:{};base64,{}", media.mime_type, STANDARD.encode(data))),
        None => Err(PatchError::new("A medium has neither `data` nor `url`")),
    }
}
