//! A JWK set (RFC 7517, section 5). Each key is parsed on its own: an unusable one, such as one for
//! encryption, doesn't affect the others.

use serde_json::Value;

use super::super::{key::VerificationKey, public_key};

/// The usable keys of a set, and why the others are unusable.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) keys: Vec<VerificationKey>,
    pub(super) skipped: Vec<String>,
}

/// Parses a set. `Err` if it isn't a JWK set. A set without usable keys is valid: its issuer has withdrawn
/// all keys.
pub(super) fn parse(text: &[u8]) -> Result<Document, String> {
    let set: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let entries = set.get("keys").and_then(Value::as_array).ok_or("it has no array `keys`")?;
    let mut document = Document { keys: Vec::new(), skipped: Vec::new() };
    for entry in entries {
        match public_key::from_jwk(None, None, entry) {
            Ok(key) => document.keys.push(key),
            Err(why) => document.skipped.push(why),
        }
    }
    Ok(document)
}
