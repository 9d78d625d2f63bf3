//! The compact form of a signed JWT (RFC 7515, section 7.1), parsed but not yet verified.

use std::str::FromStr;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::Algorithm;
use serde_json::Value;

use super::{
    json,
    refusal::{AuthRefusal, RefusalReason},
};

/// Longest token, in bytes (docs/protocol.md, section 5).
pub(super) const MAX_TOKEN_BYTES: usize = 8 << 10;

/// Header members that embed or link to a key of the token's own.
const EMBEDDED_KEY_HEADERS: [&str; 4] = ["jwk", "jku", "x5u", "x5c"];

/// A token whose signature was not checked.
#[derive(Debug)]
pub(super) struct UnverifiedToken<'a> {
    /// The signed bytes: the first two parts.
    pub(super) signed: &'a [u8],
    /// The third part, in base64url.
    pub(super) signature: &'a str,
    /// From the header. Narrows the choice of key, and never decides how to verify.
    pub(super) algorithm: Algorithm,
    /// The key that the header names.
    pub(super) kid: Option<String>,
    /// A JSON object.
    pub(super) claims: Value,
}

impl<'a> UnverifiedToken<'a> {
    pub(super) fn parse(token: &'a str) -> Result<Self, AuthRefusal> {
        let malformed = || {
            AuthRefusal::new(
                RefusalReason::Malformed,
                "The token is not a signed JWT of three base64url parts",
            )
        };
        let mut parts = token.split('.');
        let (Some(header), Some(claims), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed());
        };
        let object = |part: &str| json::object(&URL_SAFE_NO_PAD.decode(part).ok()?);
        let signed = &token.as_bytes()[..header.len() + 1 + claims.len()];
        let header = object(header).ok_or_else(malformed)?;
        let (algorithm, kid) = read_header(&header)?;
        let claims = object(claims).ok_or_else(malformed)?;
        Ok(UnverifiedToken { signed, signature, algorithm, kid, claims })
    }
}

fn read_header(header: &Value) -> Result<(Algorithm, Option<String>), AuthRefusal> {
    if let Some(name) = EMBEDDED_KEY_HEADERS.iter().find(|name| header.get(**name).is_some()) {
        let detail = format!("The token's header must not contain a key in `{name}`");
        return Err(AuthRefusal::new(RefusalReason::Header, detail));
    }
    // No extension is supported, so every `crit` names an unknown one (RFC 7515, section 4.1.11).
    if header.get("crit").is_some() {
        let detail = "The token's header has `crit`, and no extension is supported";
        return Err(AuthRefusal::new(RefusalReason::Header, detail));
    }
    let algorithm = header
        .get("alg")
        .and_then(Value::as_str)
        .and_then(|name| Algorithm::from_str(name).ok())
        .ok_or_else(|| {
            AuthRefusal::new(RefusalReason::Algorithm, "The token's `alg` is missing or not supported")
        })?;
    let kid = match header.get("kid") {
        None => None,
        Some(Value::String(kid)) => Some(kid.clone()),
        Some(_) => return Err(AuthRefusal::new(RefusalReason::Header, "The token's `kid` must be a string")),
    };
    Ok((algorithm, kid))
}
