//! Tokens for plugins: JSON Web Tokens that this gateway, or another replica, signed. They are no tokens of agents: an
//! issuer's keys sign none of them, and these keys sign nothing else.

use std::time::{SystemTime, UNIX_EPOCH};

use hookgate_proto::Capability;
use http::{HeaderMap, header::AUTHORIZATION};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, errors::ErrorKind};
use serde::{Deserialize, Serialize};

use crate::upstream::CallTokenRequest;

/// Longest token that is read, in bytes.
const MAX_TOKEN_BYTES: usize = 4096;
/// Distinguishes these tokens from others, if a key should ever sign others.
const TOKEN_TYPE: &str = "hookgate-host+jwt";

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenClaims {
    /// The plugin's registered name.
    #[serde(rename = "sub")]
    pub(super) plugin: String,
    /// The tenant of the call. `None`: the plugin's own data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tenant: Option<String>,
    /// The invocation, for the log.
    #[serde(rename = "jti", default, skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    /// Capabilities by name.
    #[serde(rename = "cap")]
    capabilities: Vec<String>,
    /// Seconds since 1970.
    exp: u64,
}

impl TokenClaims {
    pub(super) fn for_plugin(plugin: &str, capabilities: &[String], expires: SystemTime) -> Self {
        TokenClaims {
            plugin: plugin.to_owned(),
            tenant: None,
            request_id: None,
            capabilities: capabilities.to_vec(),
            exp: seconds(expires),
        }
    }

    pub(super) fn for_call(call: &CallTokenRequest<'_>, expires: SystemTime) -> Self {
        TokenClaims {
            plugin: call.plugin.to_owned(),
            tenant: Some(call.tenant.to_owned()),
            request_id: Some(call.request_id.to_owned()),
            capabilities: call.capabilities.to_vec(),
            exp: seconds(expires),
        }
    }

    pub(super) fn grants(&self, capability: Capability) -> bool {
        self.capabilities.iter().any(|name| name == capability.as_str())
    }

    pub(super) fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// The capabilities by name.
    pub(super) fn capabilities(&self) -> &[String] {
        &self.capabilities
    }
}

/// Rounded up, so that no token ends early.
fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs() + u64::from(since.subsec_nanos() > 0)
}

/// Why a token gives no access. A closed set, for the answer, the log and the counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    Missing,
    /// Not one of our tokens, or its signature is wrong, or its key is no longer accepted.
    Invalid,
    Expired,
    /// The token lacks the method's capability.
    Capability,
    /// The plugin isn't registered any more, or isn't granted the capability any more.
    Unregistered,
    /// The keys can't be read from the database, so nothing can be verified.
    KeysUnavailable,
}

impl Refusal {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Refusal::Missing => "missing",
            Refusal::Invalid => "invalid",
            Refusal::Expired => "expired",
            Refusal::Capability => "capability",
            Refusal::Unregistered => "unregistered",
            Refusal::KeysUnavailable => "keys_unavailable",
        }
    }
}

/// The bearer token of a request.
pub(super) fn bearer(headers: &HeaderMap) -> Result<&str, Refusal> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return Err(Refusal::Missing) };
    let token = value.to_str().ok().and_then(|value| value.split_once(' '));
    match token {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() => Ok(token),
        _ => Err(Refusal::Missing),
    }
}

/// Signs `claims` with the key of `generation`.
pub(super) fn sign(claims: &TokenClaims, generation: u64, key: &EncodingKey) -> Option<String> {
    let header = Header {
        typ: Some(TOKEN_TYPE.to_owned()),
        kid: Some(generation.to_string()),
        ..Header::new(Algorithm::HS256)
    };
    jsonwebtoken::encode(&header, claims, key).ok()
}

/// The generation of the key that signed `token`, as it says itself.
pub(super) fn generation(token: &str) -> Result<u64, Refusal> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(Refusal::Invalid);
    }
    let header = jsonwebtoken::decode_header(token).map_err(|_| Refusal::Invalid)?;
    if header.typ.as_deref() != Some(TOKEN_TYPE) {
        return Err(Refusal::Invalid);
    }
    header.kid.and_then(|kid| kid.parse().ok()).ok_or(Refusal::Invalid)
}

/// The claims of `token`, if `key` signed it and it has not expired.
pub(super) fn verify(token: &str, key: &DecodingKey) -> Result<TokenClaims, Refusal> {
    let mut rules = Validation::new(Algorithm::HS256);
    rules.leeway = 0;
    rules.validate_aud = false;
    match jsonwebtoken::decode::<TokenClaims>(token, key, &rules) {
        Ok(token) => Ok(token.claims),
        Err(error) if matches!(error.kind(), ErrorKind::ExpiredSignature) => Err(Refusal::Expired),
        Err(_) => Err(Refusal::Invalid),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECRET: &[u8] = &[7; 32];

    fn claims(expires: SystemTime) -> TokenClaims {
        let capabilities = ["storage:read".to_owned()];
        let call = CallTokenRequest {
            plugin: "p",
            tenant: "acme",
            request_id: "r",
            capabilities: &capabilities,
            left: Duration::ZERO,
        };
        TokenClaims::for_call(&call, expires)
    }

    #[test]
    fn a_token_says_what_was_signed_until_it_expires() {
        let (soon, past) =
            (SystemTime::now() + Duration::from_secs(5), SystemTime::now() - Duration::from_secs(2));
        let key = (EncodingKey::from_secret(SECRET), DecodingKey::from_secret(SECRET));
        let token = sign(&claims(soon), 3, &key.0).expect("it can be signed");
        assert_eq!(generation(&token), Ok(3));
        assert_eq!(verify(&token, &key.1), Ok(claims(soon)));
        let late = sign(&claims(past), 3, &key.0).expect("it can be signed");
        assert_eq!(verify(&late, &key.1), Err(Refusal::Expired));
        assert_eq!(verify(&token, &DecodingKey::from_secret(&[8; 32])), Err(Refusal::Invalid));
    }

    #[test]
    fn a_changed_token_is_invalid_wherever_it_was_changed() {
        let key = DecodingKey::from_secret(SECRET);
        let soon = SystemTime::now() + Duration::from_secs(60);
        let token = sign(&claims(soon), 1, &EncodingKey::from_secret(SECRET)).expect("it can be signed");
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).expect("ASCII");
            if changed != token {
                // The last character of a part has bits that mean nothing; a decoder that ignores them gives the same.
                assert!(verify(&changed, &key).is_err() || at == token.len() - 1, "{at}");
            }
        }
    }

    #[test]
    fn tokens_of_other_kinds_are_invalid() {
        let key = EncodingKey::from_secret(SECRET);
        let agents = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims(SystemTime::now()), &key);
        assert_eq!(generation(&agents.expect("it can be signed")), Err(Refusal::Invalid));
        for text in ["", "a", "a.b.c", &"x".repeat(MAX_TOKEN_BYTES + 1)] {
            assert_eq!(generation(text), Err(Refusal::Invalid));
        }
    }
}
