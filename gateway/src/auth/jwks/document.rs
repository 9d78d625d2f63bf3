//! A JWK set (RFC 7517, section 5). Each key is read alone: one that cannot be used, such as one for encryption,
//! takes no other with it.

use serde_json::Value;

use super::super::{key::VerificationKey, public_key};

/// The usable keys of a set, and why the others are not.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) keys: Vec<VerificationKey>,
    pub(super) skipped: Vec<String>,
}

/// Reads a set; Err when it is none. A set without a usable key is a set: its issuer took all keys back.
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
