//! Tokens as an identity provider issues them, valid and invalid.

use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Map, Value, json};

/// The `iss` that every gateway of the tests accepts.
pub const ISSUER: &str = "https://id.example.com";
/// The `aud` for the data port.
pub const AUDIENCE: &str = "hookgate";
/// The `aud` for the admin port, if a gateway opens it.
pub const ADMIN_AUDIENCE: &str = "hookgate-admin";
/// The issuer's shared secret for HS256.
pub const SECRET: &str = "a secret of the tests, 32 bytes or more";

/// A valid token for a tenant. Its operator is `operator-of-TENANT`, it may invoke, and it expires in 5
/// minutes.
pub fn token(tenant: &str) -> String {
    Token::for_tenant(tenant).mint()
}

/// A token under construction.
#[derive(Clone)]
#[must_use = "a token is minted by `mint`"]
pub struct Token {
    header: Header,
    claims: Map<String, Value>,
    key: EncodingKey,
}

impl Token {
    /// What [`token`] mints.
    pub fn for_tenant(tenant: &str) -> Self {
        let claims = json!({
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": format!("operator-of-{tenant}"),
            "tenant_id": tenant,
            "scope": "hookgate:invoke",
        });
        let Value::Object(claims) = claims else { unreachable!("the literal above is an object") };
        let token = Token {
            header: Header::new(Algorithm::HS256),
            claims,
            key: EncodingKey::from_secret(SECRET.as_bytes()),
        };
        token.expiring_in(300)
    }

    /// A valid token for the admin port that names no tenant and may read.
    pub fn for_operators() -> Self {
        Token::for_tenant("")
            .without("tenant_id")
            .claim("sub", "operator")
            .audience(ADMIN_AUDIENCE)
            .scopes("hookgate:read")
    }

    /// With `exp` this many seconds from now, or ago if negative.
    pub fn expiring_in(self, seconds: i64) -> Self {
        self.claim("exp", now() + seconds)
    }

    /// With `nbf` this many seconds from now, or ago if negative.
    pub fn valid_in(self, seconds: i64) -> Self {
        self.claim("nbf", now() + seconds)
    }

    /// From this issuer.
    pub fn issuer(self, issuer: &str) -> Self {
        self.claim("iss", issuer)
    }

    /// For this audience.
    pub fn audience(self, audience: &str) -> Self {
        self.claim("aud", audience)
    }

    /// With these scopes, separated by spaces.
    pub fn scopes(self, scopes: &str) -> Self {
        self.claim("scope", scopes)
    }

    /// With this claim, which replaces one of the same name.
    pub fn claim(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.claims.insert(name.into(), value.into());
        self
    }

    /// Without this claim.
    pub fn without(mut self, name: &str) -> Self {
        self.claims.remove(name);
        self
    }

    /// Naming this key in the header.
    pub fn kid(mut self, kid: &str) -> Self {
        self.header.kid = Some(kid.into());
        self
    }

    /// Signed with another key.
    pub fn signed_with(mut self, algorithm: Algorithm, key: EncodingKey) -> Self {
        self.header.alg = algorithm;
        self.key = key;
        self
    }

    /// The compact form.
    pub fn mint(&self) -> String {
        encode(&self.header, &self.claims, &self.key).expect("the key fits the algorithm")
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    i64::try_from(since.as_secs()).expect("the clock is not that far")
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{DecodingKey, Validation, decode, errors::ErrorKind};

    use super::*;

    fn verify(token: &str) -> Result<Value, ErrorKind> {
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_audience(&[AUDIENCE]);
        validation.set_issuer(&[ISSUER]);
        validation.validate_nbf = true;
        let key = DecodingKey::from_secret(SECRET.as_bytes());
        decode(token, &key, &validation).map(|token| token.claims).map_err(|error| error.into_kind())
    }

    #[test]
    fn good_tokens_verify_and_name_their_tenant() {
        let claims = verify(&token("acme")).expect("it is good");
        assert_eq!((&claims["tenant_id"], &claims["sub"]), (&json!("acme"), &json!("operator-of-acme")));
    }

    #[test]
    fn tokens_are_wrong_where_they_are_asked_to_be() {
        let good = Token::for_tenant("acme");
        let cases = [
            (good.clone().expiring_in(-120), ErrorKind::ExpiredSignature),
            (good.clone().valid_in(120), ErrorKind::ImmatureSignature),
            (good.clone().issuer("https://else.example.com"), ErrorKind::InvalidIssuer),
            (good.clone().audience("else"), ErrorKind::InvalidAudience),
            (good.clone().without("exp"), ErrorKind::MissingRequiredClaim("exp".into())),
            (
                good.signed_with(Algorithm::HS256, EncodingKey::from_secret(&[0; 32])),
                ErrorKind::InvalidSignature,
            ),
        ];
        for (token, expected) in cases {
            assert_eq!(verify(&token.mint()), Err(expected));
        }
    }
}
