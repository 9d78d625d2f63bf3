//! Parses a flag that holds an object: JSON in the argument, or a JSON or YAML file.

use super::payload;
use hookgate::config::JsonObject;

/// Parses a JSON object, or reads a JSON or YAML file whose path may begin with `@`. Without a text returns an empty
/// object. Not a clap parser, because clap's errors show the value, which may be a secret.
pub(super) fn parse(flag: &str, text: Option<&String>) -> Result<JsonObject, String> {
    let Some(text) = text else { return Ok(JsonObject::new()) };
    if text.trim_start().starts_with('{') {
        return object(flag, text);
    }
    let path = text.strip_prefix('@').unwrap_or(text);
    let read = std::fs::File::open(path).and_then(payload::read);
    let read =
        read.map_err(|error| format!("the file of {flag} can't be read: {error}; JSON begins with {{"))?;
    let file = String::from_utf8(read).map_err(|_| format!("the file of {flag} is not UTF-8 text"))?;
    if file.trim_start().starts_with('{') {
        return object(&format!("the file of {flag}"), &file);
    }
    let place = |error: serde_saphyr::Error| {
        let line = error.location().map(|at| format!(" at line {}", at.line())).unwrap_or_default();
        format!("the file of {flag} is not a YAML mapping{line}")
    };
    serde_saphyr::from_str(&file).map_err(place)
}

fn object(name: &str, text: &str) -> Result<JsonObject, String> {
    payload::object(name, text.as_bytes())?;
    serde_json::from_str(text).map_err(|error| format!("{name} is not valid JSON at line {}", error.line()))
}
