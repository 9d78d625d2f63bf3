//! Images and files of user messages, in all formats.

use std::io;

use base64::{engine::general_purpose::STANDARD, read::DecoderReader};
use hookgate_proto::types::v1::Media;

use super::surface::UnseenMedium;

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
