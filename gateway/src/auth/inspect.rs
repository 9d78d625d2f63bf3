//! Explains a token to people: what it says, and which key would verify it.
//! [`Authenticator::authenticate_at`] alone decides whether it is accepted, and is asked here as a caller
//! would ask it.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use serde_json::Value;

use super::{
    Authenticator, Port, VerifiedToken, json,
    refusal::{AuthRefusal, RefusalReason},
    token::UnverifiedToken,
};

/// What is known of a token, valid or not. Doesn't contain its signature.
#[derive(Debug)]
pub struct TokenInspection {
    /// The header. `None` if it isn't a JSON object in base64url.
    pub header: Option<Value>,
    /// The claims. `None` if they aren't a JSON object in base64url.
    pub claims: Option<Value>,
    /// The issuer that the token claims to be from, by its index in `auth.issuers`.
    pub issuer: Option<usize>,
    /// The key that would verify it.
    pub key: Option<KeyDescription>,
    /// The result at the data port, before scope and tenant are checked.
    pub data: Result<Arc<VerifiedToken>, AuthRefusal>,
    /// The result at the admin port.
    pub admin: Result<Arc<VerifiedToken>, AuthRefusal>,
}

/// A key, described for people.
#[derive(Debug, PartialEq, Eq)]
pub struct KeyDescription {
    pub kid: Option<String>,
    /// Such as `HS256`.
    pub algorithm: String,
}

impl Authenticator {
    /// Inspects `token`. If its issuer publishes keys that were not fetched yet, fetches them once, within 5
    /// s.
    pub async fn inspect(&self, token: &str) -> TokenInspection {
        let (header, claims) = says(token);
        let read = UnverifiedToken::parse(token).ok();
        let issuer = claims.as_ref().and_then(|claims| {
            let name = claims.get("iss")?.as_str()?;
            self.issuers.iter().position(|issuer| issuer.name == name)
        });
        if let Some(published) = issuer.and_then(|index| self.issuers[index].published())
            && read.is_some()
            && published.keys().is_none()
        {
            published.refetch().await;
        }
        let data = self.shown_at(Port::Data, token).await;
        let admin = self.shown_at(Port::Admin, token).await;
        let key = issuer.zip(read).and_then(|(index, read)| self.issuers[index].key_for(&read));
        let key = key.map(|(kid, algorithm)| KeyDescription { kid, algorithm: format!("{algorithm:?}") });
        TokenInspection { header, claims, issuer, key, data, admin }
    }

    async fn shown_at(&self, port: Port, token: &str) -> Result<Arc<VerifiedToken>, AuthRefusal> {
        let value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
            AuthRefusal::new(
                RefusalReason::Malformed,
                "A header can't hold this token: it must be ASCII text",
            )
        })?;
        self.authenticate_at(port, &HeaderMap::from_iter([(AUTHORIZATION, value)])).await
    }
}

/// Header and claims of anything that resembles a token.
fn says(token: &str) -> (Option<Value>, Option<Value>) {
    let mut parts = token.split('.');
    let mut object = || json::object(&URL_SAFE_NO_PAD.decode(parts.next()?).ok()?);
    (object(), object())
}
