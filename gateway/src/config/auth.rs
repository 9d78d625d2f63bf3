//! The accepted issuers, their keys and what they may grant (docs/protocol.md, section 5). Plain data; the
//! auth layer reads the keys.

use std::{borrow::Cow, path::PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use super::{model::span, units::Span};

/// Whose tokens are accepted: tenant and operator of a call come from its token alone.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// Issuers of accepted tokens: at least one, with unique `issuer`s.
    #[schemars(length(min = 1))]
    pub issuers: Vec<Issuer>,
}

/// One issuer of tokens.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// The token's `iss`; unique.
    #[schemars(length(min = 1))]
    pub issuer: String,
    /// Required in the token's `aud`.
    #[schemars(length(min = 1))]
    pub audience: String,
    /// Required in the `aud` of tokens for the admin port, and of those with which plugins register themselves; must
    /// differ from `audience`. Absent: the issuer's tokens are not accepted for either.
    #[schemars(length(min = 1))]
    pub admin_audience: Option<String>,
    /// URL of the published keys (RFC 7517); https, or http on loopback. Can't be combined with `keys`.
    pub jwks_url: Option<String>,
    /// The keys. Can't be combined with `jwks_url`.
    #[serde(default)]
    pub keys: Vec<Key>,
    /// Tenants that the issuer may issue tokens for; mandatory with more than one issuer. Absent: any.
    #[serde(default)]
    pub tenants: Option<IssuerTenants>,
    /// Scopes that the issuer may grant.
    #[serde(default = "default_scopes")]
    pub scopes: Vec<Scope>,
    /// Names of the claims to read.
    #[serde(default)]
    pub claims: Claims,
    /// Tolerance on `exp` and `nbf`, 0s to 5m.
    #[serde(default = "default_leeway")]
    pub leeway: Span,
    /// How long fetched keys stay fresh, 1s to 1h.
    #[serde(default = "default_jwks_ttl")]
    pub jwks_ttl: Span,
}

fn default_scopes() -> Vec<Scope> {
    vec![Scope::Invoke]
}

const fn default_leeway() -> Span {
    span(30_000)
}

const fn default_jwks_ttl() -> Span {
    span(300_000)
}

/// The tenants an issuer may speak for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IssuerTenants {
    /// `"*"`: whichever the token names.
    Any,
    /// `[ids]`: one of these.
    List(Vec<String>),
    /// `{fixed: id}`: always this one; the token needs no tenant claim.
    Fixed(String),
}

impl<'de> Deserialize<'de> for IssuerTenants {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde_json::Value;
        let text = |value: Value| match value {
            Value::String(id) => Ok(id),
            _ => Err(D::Error::custom("a tenant id is text")),
        };
        match Value::deserialize(deserializer)? {
            Value::String(star) if star == "*" => Ok(IssuerTenants::Any),
            Value::Array(ids) => {
                Ok(IssuerTenants::List(ids.into_iter().map(text).collect::<Result<_, _>>()?))
            }
            Value::Object(mut map) if map.len() == 1 && map.contains_key("fixed") => {
                Ok(IssuerTenants::Fixed(text(map.remove("fixed").unwrap_or_default())?))
            }
            _ => Err(D::Error::custom("tenants is `*`, a list of ids, or `{fixed: id}`")),
        }
    }
}

impl JsonSchema for IssuerTenants {
    fn schema_name() -> Cow<'static, str> {
        "IssuerTenants".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "title": "`\"*\"`, a list of ids, or `{fixed: id}`", "oneOf": [
            { "const": "*" },
            { "type": "array", "items": { "type": "string" }, "minItems": 1 },
            { "type": "object", "properties": { "fixed": { "type": "string" } }, "required": ["fixed"], "additionalProperties": false },
        ] })
    }
}

/// What a token may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Scope {
    /// Call the extension points.
    #[serde(rename = "hookgate:invoke")]
    Invoke,
    /// Read status.
    #[serde(rename = "hookgate:read")]
    Read,
    /// Change configuration.
    #[serde(rename = "hookgate:admin")]
    Admin,
    /// Register plugins.
    #[serde(rename = "hookgate:plugin")]
    Plugin,
}

/// One verification key. Exactly one of `secret`, `pem_file`, `jwk_file`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// `kid` of this key in token headers.
    pub kid: Option<String>,
    /// The algorithm: `HS256`, `HS384`, `HS512` for `secret`, else `RS256` to `RS512`, `PS256` to `PS512`, `ES256`,
    /// `ES384`, `EdDSA`. Mandatory for `secret` and `pem_file`; the token's header never chooses it.
    pub alg: Option<String>,
    /// Shared secret of at least 32 bytes, for HS256, HS384, HS512. Write it as a reference.
    #[schemars(with = "Option<String>", extend("writeOnly" = true))]
    pub secret: Option<SecretString>,
    /// File with a public key in PEM.
    pub pem_file: Option<PathBuf>,
    /// File with a public key as a JWK.
    pub jwk_file: Option<PathBuf>,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        let parts = |key: &Self| {
            // Destructured, so that a new field can't be forgotten.
            let Key { kid, alg, secret, pem_file, jwk_file } = key.clone();
            (kid, alg, secret.map(|secret| secret.expose_secret().to_owned()), pem_file, jwk_file)
        };
        parts(self) == parts(other)
    }
}

/// Names of claims: literal, or JSON pointers when they start with `/`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Claims {
    /// The tenant.
    pub tenant: String,
    /// Claim with the operator who acts for the tenant.
    pub operator: String,
    /// Claim with the scopes: a string separated by spaces, or an array.
    pub scopes: String,
    /// Claim with the end user. Absent: the request gives the end user.
    pub user_id: Option<String>,
    /// Claim with the names of the plugins that the token's owner may register: a string separated by spaces, or an
    /// array.
    pub plugins: String,
    /// Claims that plugins get as labels `claim.NAME`.
    pub labels: Vec<String>,
}

impl Default for Claims {
    fn default() -> Self {
        Claims {
            tenant: "tenant_id".into(),
            operator: "sub".into(),
            scopes: "scope".into(),
            user_id: None,
            plugins: "plugins".into(),
            labels: Vec::new(),
        }
    }
}
