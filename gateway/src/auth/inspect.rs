//! What a token says and which key would verify it, for people. Decides nothing: whether it is accepted is for
//! [`Authenticator::authenticate_at`] alone, which is asked as a caller would ask it.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use serde_json::Value;

use super::{
    Authenticator, Port, VerifiedToken, json,
    refusal::{AuthRefusal, RefusalReason},
    token::UnverifiedToken,
};

/// What is known of a token, believed or not. Its signature is no part of it.
#[derive(Debug)]
pub struct TokenInspection {
    /// What its header says; none where that is no JSON object in base64url.
    pub header: Option<Value>,
    /// What its claims say; likewise.
    pub claims: Option<Value>,
    /// The issuer that it claims to be from, by its place in `auth.issuers`.
    pub issuer: Option<usize>,
    /// The key that would verify it.
    pub key: Option<KeyDescription>,
    /// What it is at the data port, before scope and tenant are looked at.
    pub data: Result<Arc<VerifiedToken>, AuthRefusal>,
    /// The same at the admin port.
    pub admin: Result<Arc<VerifiedToken>, AuthRefusal>,
}

/// A key as people name it.
#[derive(Debug, PartialEq, Eq)]
pub struct KeyDescription {
    /// Its `kid`, if it has one.
    pub kid: Option<String>,
    /// Such as `HS256`.
    pub algorithm: String,
}

impl Authenticator {
    /// Looks at `token`. Where its issuer publishes keys and they were not fetched yet, they are, once and within 5 s.
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

/// Header and claims, of whatever is shaped a little like a token.
fn says(token: &str) -> (Option<Value>, Option<Value>) {
    let mut parts = token.split('.');
    let mut object = || json::object(&URL_SAFE_NO_PAD.decode(parts.next()?).ok()?);
    (object(), object())
}
