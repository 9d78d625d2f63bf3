//! One issuer, compiled from the configuration: its keys, and the meaning of its claims. Reports every
//! mistake at once, with a JSON pointer into the configuration.

use std::{path::Path, sync::Arc, time::Duration};

use jsonwebtoken::Algorithm;

use super::{
    claims::{ClaimRules, is_tenant_id},
    json,
    jwks::PublishedKeys,
    key::{self, KeySelectionError, KeySet, VerificationKey},
    public_key,
    refusal::{AuthRefusal, RefusalReason},
    token::UnverifiedToken,
};
use crate::{
    config::{self, IssuerTenants},
    core::error::Violation,
    fs::read_limited,
};

/// Largest key file, in bytes.
pub(crate) const MAX_KEY_FILE: u64 = 64 << 10;
/// Shortest `jwks_ttl`: keys are fetched this often.
const MIN_TTL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct TrustedIssuer {
    /// The value of `iss`.
    pub(super) name: String,
    pub(super) rules: ClaimRules,
    keys: KeySource,
}

/// Where an issuer's keys come from.
#[derive(Debug)]
enum KeySource {
    Configured(Arc<KeySet>),
    Published(Arc<PublishedKeys>),
}

impl TrustedIssuer {
    /// The current keys, if there are any.
    fn keys(&self) -> Option<Arc<KeySet>> {
        match &self.keys {
            KeySource::Configured(keys) => Some(Arc::clone(keys)),
            KeySource::Published(published) => published.keys(),
        }
    }

    /// The published keys. `None` if the issuer's keys are configured.
    pub(super) fn published(&self) -> Option<&Arc<PublishedKeys>> {
        match &self.keys {
            KeySource::Configured(_) => None,
            KeySource::Published(published) => Some(published),
        }
    }

    /// Whether the issuer uses the keys that `published` fetches.
    pub(super) fn shares(&self, published: &Arc<PublishedKeys>) -> bool {
        self.published().is_some_and(|own| Arc::ptr_eq(own, published))
    }

    /// Whether the key set of `generation` is still current.
    pub(super) fn stands(&self, generation: u64) -> bool {
        self.keys().is_some_and(|keys| keys.generation == generation)
    }

    /// Checks the token's signature. Returns the generation of the key set that verified it.
    pub(super) async fn verify(&self, token: &UnverifiedToken<'_>) -> Result<u64, AuthRefusal> {
        let mut keys = self.keys().ok_or_else(unavailable)?;
        if let (Some(published), Err(KeySelectionError::UnknownKid)) = (self.published(), keys.choose(token))
        {
            published.refetch().await;
            keys = self.keys().ok_or_else(unavailable)?;
        }
        let key = keys.choose(token).map_err(refuse)?;
        if !key.verifies(token) {
            return Err(AuthRefusal::new(RefusalReason::Signature, "The token's signature does not verify"));
        }
        Ok(keys.generation)
    }

    /// The key that would verify the token now.
    pub(super) fn key_for(&self, token: &UnverifiedToken<'_>) -> Option<(Option<String>, Algorithm)> {
        let keys = self.keys()?;
        let key = keys.choose(token).ok()?;
        Some((key.kid.clone(), key.algorithm))
    }

    /// Whether a token could be verified now.
    pub(super) fn ready(&self) -> bool {
        self.keys().is_some_and(|keys| !keys.keys.is_empty())
    }
}

fn unavailable() -> AuthRefusal {
    AuthRefusal::new(
        RefusalReason::KeysUnavailable,
        "The keys of the token's issuer are not available: try again later",
    )
}

fn refuse(misfit: KeySelectionError) -> AuthRefusal {
    match misfit {
        KeySelectionError::UnknownKid => {
            AuthRefusal::new(RefusalReason::Kid, "The token's `kid` is not a key of its issuer")
        }
        KeySelectionError::Algorithm => AuthRefusal::new(
            RefusalReason::Algorithm,
            "The token's `alg` differs from that of its issuer's key",
        ),
        KeySelectionError::Ambiguous => AuthRefusal::new(
            RefusalReason::Kid,
            "Several keys of the token's issuer match: the token needs a `kid`",
        ),
    }
}

/// Compiles all issuers. Fetched keys of an issuer in `known` are reused if it still publishes them at the
/// same place. `Err` lists every mistake.
pub(super) fn compile(
    auth: &config::Auth,
    known: &[&TrustedIssuer],
) -> Result<Vec<TrustedIssuer>, Vec<Violation>> {
    let mut problems = Vec::new();
    let several = auth.issuers.len() > 1;
    let mut issuers = Vec::with_capacity(auth.issuers.len());
    for (index, issuer) in auth.issuers.iter().enumerate() {
        let mut found = ViolationList { base: format!("/auth/issuers/{index}"), list: &mut problems };
        if auth.issuers[..index].iter().any(|earlier| earlier.issuer == issuer.issuer) {
            found.add("/issuer", "this issuer is already listed above");
        }
        let tenants = tenants(issuer, several, &mut found);
        if let Some(keys) = key_source(issuer, known, &mut found) {
            issuers.push(TrustedIssuer {
                name: issuer.issuer.clone(),
                rules: ClaimRules::new(issuer, tenants),
                keys,
            });
        }
    }
    if auth.issuers.is_empty() {
        problems.push(Violation::new("/auth/issuers", "at least one issuer is needed"));
    }
    if problems.is_empty() { Ok(issuers) } else { Err(problems) }
}

/// Collects mistakes under one JSON pointer.
struct ViolationList<'a> {
    base: String,
    list: &'a mut Vec<Violation>,
}

impl ViolationList<'_> {
    fn add(&mut self, pointer: &str, message: impl Into<String>) {
        self.list.push(Violation::new(format!("{}{pointer}", self.base), message));
    }
}

fn tenants(issuer: &config::Issuer, several: bool, found: &mut ViolationList<'_>) -> IssuerTenants {
    let ids: &[String] = match &issuer.tenants {
        None if several => {
            found.add("/tenants", "with several issuers each says for which tenants it may speak");
            &[]
        }
        None | Some(IssuerTenants::Any) => &[],
        Some(IssuerTenants::List(ids)) => ids,
        Some(IssuerTenants::Fixed(id)) => std::slice::from_ref(id),
    };
    if ids.iter().any(|id| !is_tenant_id(id)) {
        found.add("/tenants", "a tenant id has 1 to 256 bytes, no control characters, and is not `*`");
    }
    issuer.tenants.clone().unwrap_or(IssuerTenants::Any)
}

/// Returns `None` if there are mistakes, which are added to `found`.
fn key_source(
    issuer: &config::Issuer,
    known: &[&TrustedIssuer],
    found: &mut ViolationList<'_>,
) -> Option<KeySource> {
    let Some(url) = &issuer.jwks_url else {
        if issuer.keys.is_empty() {
            found.add("/keys", "an issuer needs `keys` or a `jwks_url`");
        }
        return Some(KeySource::Configured(Arc::new(KeySet { generation: 0, keys: keys(issuer, found) })));
    };
    if !issuer.keys.is_empty() {
        found.add("/keys", "an issuer has `keys` or a `jwks_url`, not both");
    }
    let ttl = issuer.jwks_ttl.0;
    if ttl < MIN_TTL {
        found.add("/jwks_ttl", "keys are fresh for at least 1s");
    }
    let mut published = known.iter().filter_map(|known| known.published());
    if let Some(same) = published.find(|published| published.is_of(&issuer.issuer, url, ttl)) {
        return Some(KeySource::Published(Arc::clone(same)));
    }
    match PublishedKeys::new(&issuer.issuer, url, ttl) {
        Ok(published) => Some(KeySource::Published(published)),
        Err(message) => {
            found.add("/jwks_url", message);
            None
        }
    }
}

fn keys(issuer: &config::Issuer, found: &mut ViolationList<'_>) -> Vec<VerificationKey> {
    let mut keys: Vec<VerificationKey> = Vec::with_capacity(issuer.keys.len());
    for (index, key) in issuer.keys.iter().enumerate() {
        match read_key(key) {
            Ok(key) if keys.iter().any(|other| other.kid == key.kid && other.algorithm == key.algorithm) => {
                found.add(&format!("/keys/{index}/kid"), "two keys of one algorithm need different `kid`s");
            }
            Ok(key) => keys.push(key),
            Err((field, message)) => found.add(&format!("/keys/{index}{field}"), message),
        }
    }
    keys
}

/// `Err` is the key's field, and what is wrong with it.
fn read_key(key: &config::Key) -> Result<VerificationKey, (&'static str, String)> {
    let algorithm =
        key.alg.as_deref().map(key::algorithm).transpose().map_err(|message| ("/alg", message))?;
    let needed = || ("/alg", "a secret or a PEM file needs its algorithm".to_owned());
    match (&key.secret, &key.pem_file, &key.jwk_file) {
        (Some(secret), None, None) => {
            VerificationKey::shared(key.kid.clone(), algorithm.ok_or_else(needed)?, secret)
                .map_err(|message| ("/secret", message))
        }
        (None, Some(path), None) => {
            let algorithm = algorithm.ok_or_else(needed)?;
            read_file(path)
                .and_then(|pem| public_key::from_pem(key.kid.clone(), algorithm, &pem))
                .map_err(|message| ("/pem_file", message))
        }
        (None, None, Some(path)) => read_file(path)
            .and_then(|text| {
                json::object(&text).ok_or_else(|| {
                    "the file does not hold a JSON object: a JWK is one, such as `{\"kty\": \"EC\", ...}`"
                        .to_owned()
                })
            })
            .and_then(|jwk| public_key::from_jwk(key.kid.clone(), algorithm, &jwk))
            .map_err(|message| ("/jwk_file", message)),
        _ => Err(("", "a key has one of `secret`, `pem_file` and `jwk_file`".to_owned())),
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    match read_limited::file(path, MAX_KEY_FILE) {
        Err(error) => Err(config::unreadable(format_args!("`{}`", path.display()), &error)),
        Ok(None) => {
            Err(format!("`{}` is larger than 64 KiB: name the file that holds the one key", path.display()))
        }
        Ok(Some(content)) => Ok(content),
    }
}
