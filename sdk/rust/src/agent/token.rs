//! The source of an agent's bearer token: a fixed token, or short-lived ones that it signs itself.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::Serialize;
use tokio::time::Instant;
use tonic::metadata::AsciiMetadataValue;

/// The minimum length of an HS256 secret (RFC 7518, section 3.2; docs/protocol.md, section 5).
const MIN_SECRET_BYTES: usize = 32;
const DEFAULT_TTL: Duration = Duration::from_secs(60);

/// The token or the secret can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The secret is too short.
    #[error("the secret has {0} bytes; HS256 wants at least 32")]
    SecretTooShort(usize),
    /// The token holds characters that no HTTP header can carry.
    #[error("the token holds characters that an HTTP header can't carry")]
    NotVisible,
}

/// The source of the bearer token. Its `Debug` output contains no secret.
#[derive(Debug, Clone)]
pub struct Token(Source);

#[derive(Debug, Clone)]
enum Source {
    Fixed(AsciiMetadataValue),
    Signed(Arc<Signer>),
}

impl Token {
    /// Always the same token.
    ///
    /// # Errors
    /// When an HTTP header can't carry it.
    pub fn fixed(token: &str) -> Result<Self, TokenError> {
        bearer(token).map(|header| Token(Source::Fixed(header)))
    }

    pub(super) fn header(&self) -> AsciiMetadataValue {
        match &self.0 {
            Source::Fixed(header) => header.clone(),
            Source::Signed(signer) => bearer(&signer.token()).expect("a JWT is base64url text and dots"),
        }
    }
}

impl From<Signer> for Token {
    fn from(signer: Signer) -> Self {
        Token(Source::Signed(Arc::new(signer)))
    }
}

fn bearer(token: &str) -> Result<AsciiMetadataValue, TokenError> {
    let mut header: AsciiMetadataValue =
        format!("Bearer {token}").parse().map_err(|_| TokenError::NotVisible)?;
    header.set_sensitive(true);
    Ok(header)
}

/// The claims of a token.
#[derive(Debug, Clone)]
pub struct Claims {
    /// `iss`: an issuer that the gateway is configured with.
    pub issuer: String,
    /// `aud`: the gateway's audience.
    pub audience: String,
    /// `tenant_id`: the tenant.
    pub tenant: String,
    /// `sub`: who acts for the tenant.
    pub operator: String,
}

/// Signs short-lived tokens for one tenant, and reuses each until it is about to expire.
pub struct Signer {
    key: EncodingKey,
    header: Header,
    claims: Claims,
    ttl: Duration,
    current: Mutex<Option<(String, Instant)>>,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signer").field("claims", &self.claims).field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

#[derive(Serialize)]
struct TokenBody<'a> {
    iss: &'a str,
    aud: &'a str,
    sub: &'a str,
    tenant_id: &'a str,
    scope: &'static str,
    iat: u64,
    exp: u64,
}

impl Signer {
    /// Signs with HS256. Tokens are valid for 60 s and have the scope `hookgate:invoke`.
    ///
    /// # Errors
    /// When the secret has fewer than 32 bytes.
    pub fn hs256(secret: &[u8], claims: Claims) -> Result<Self, TokenError> {
        if secret.len() < MIN_SECRET_BYTES {
            return Err(TokenError::SecretTooShort(secret.len()));
        }
        let (key, header) = (EncodingKey::from_secret(secret), Header::new(Algorithm::HS256));
        Ok(Signer { key, header, claims, ttl: DEFAULT_TTL, current: Mutex::new(None) })
    }

    /// How long a token is valid, in whole seconds and at least 1 s. Keep it short, because a token can't
    /// be revoked.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Duration::from_secs(ttl.as_secs().max(1));
        self
    }

    /// Names the key, if the gateway knows several.
    #[must_use]
    pub fn with_kid(mut self, kid: impl Into<String>) -> Self {
        self.header.kid = Some(kid.into());
        self
    }

    /// A token with at least a fifth of its lifetime left.
    pub fn token(&self) -> String {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            Some((token, renew)) if Instant::now() < *renew => token.clone(),
            _ => {
                let token = self.sign();
                *current = Some((token.clone(), Instant::now() + self.ttl * 4 / 5));
                token
            }
        }
    }

    fn sign(&self) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let body = TokenBody {
            iss: &self.claims.issuer,
            aud: &self.claims.audience,
            sub: &self.claims.operator,
            tenant_id: &self.claims.tenant,
            scope: "hookgate:invoke",
            iat: now,
            exp: now + self.ttl.as_secs(),
        };
        jsonwebtoken::encode(&self.header, &body, &self.key).expect("text and numbers signed with a secret")
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{DecodingKey, Validation, decode, decode_header};
    use serde_json::Value;

    use super::*;

    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

    fn claims() -> Claims {
        Claims { issuer: "iss".into(), audience: "aud".into(), tenant: "acme".into(), operator: "bot".into() }
    }

    #[test]
    fn a_signed_token_says_who_and_for_how_long() {
        let ttl = Duration::from_secs(120);
        let signer = Signer::hs256(SECRET, claims()).unwrap().with_kid("k1").with_ttl(ttl);
        let token = signer.token();
        assert_eq!(decode_header(&token).unwrap().kid.as_deref(), Some("k1"));
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_audience(&["aud"]);
        validation.set_issuer(&["iss"]);
        let body = decode::<Value>(&token, &DecodingKey::from_secret(SECRET), &validation).unwrap().claims;
        assert_eq!((&body["tenant_id"], &body["sub"]), (&Value::from("acme"), &Value::from("bot")));
        assert_eq!(body["scope"], "hookgate:invoke");
        assert_eq!(body["exp"].as_u64().unwrap() - body["iat"].as_u64().unwrap(), 120);
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_kept_until_a_fifth_of_its_life_is_left() {
        let signer = Signer::hs256(SECRET, claims()).unwrap();
        signer.token();
        let renew = |signer: &Signer| signer.current.lock().unwrap().as_ref().unwrap().1;
        let first = renew(&signer);
        tokio::time::advance(Duration::from_secs(47)).await;
        signer.token();
        assert_eq!(renew(&signer), first);
        tokio::time::advance(Duration::from_secs(1)).await;
        signer.token();
        assert!(renew(&signer) > first);
    }

    #[test]
    fn a_short_secret_is_refused() {
        assert_eq!(Signer::hs256(&SECRET[1..], claims()).unwrap_err(), TokenError::SecretTooShort(31));
    }

    #[test]
    fn no_secret_is_printed() {
        let signer = Signer::hs256(b"CANARYCANARYCANARYCANARYCANARY!!", claims()).unwrap();
        signer.token();
        let signed = signer.token();
        let signer = Token::from(signer);
        let fixed = Token::fixed("CANARY").unwrap();
        for text in [format!("{signer:?}"), format!("{fixed:?}")] {
            assert!(!text.contains("CANARY") && !text.contains(&signed), "{text}");
        }
        assert_eq!(Token::fixed("a\nb").unwrap_err(), TokenError::NotVisible);
    }
}
