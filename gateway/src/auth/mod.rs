//! Authentication with bearer tokens (JWT, docs/protocol.md section 5), which produces a [`VerifiedToken`].
//! Tenant and operator come from the token and from nowhere else.
//!
//! This module knows the issuers, their keys and claims. It knows nothing of HTTP responses, the tenants' own
//! settings, or what a token is used for.
//!
//! A verified token is cached by its SHA-256 until the issuer's keys change, for at most five minutes. Its
//! times and scopes are checked on every call. Reading the cache takes no lock and never waits. Each port has
//! an audience of its own ([`Port`]), so the cache is separate for each port.

mod claims;
mod inspect;
mod issuer;
mod json;
mod jwks;
mod key;
mod mint;
mod operator;
mod public_key;
mod refusal;
mod token;
mod verified;

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::future::join_all;
use http::{HeaderMap, header::AUTHORIZATION};
use moka::sync::Cache;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

pub(crate) use self::issuer::MAX_KEY_FILE;
pub use self::{
    claims::{Port, is_tenant_id},
    inspect::{KeyDescription, TokenInspection},
    mint::{MintedToken, TokenRequest, mint},
    operator::Operator,
    refusal::{AuthRefusal, RefusalReason},
    verified::{Scopes, VerifiedToken, scope_name, scope_named},
};
use self::{issuer::TrustedIssuer, token::UnverifiedToken};
use crate::{config, core::error::Violation};

const MAX_CACHED_TOKENS: u64 = 10_000;
/// Longest time that a verification is cached.
const TOKEN_CACHE_TTL: Duration = Duration::from_secs(300);

/// The wall clock that token times are checked against.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// Where clients of Anthropic's API have their key.
const API_KEY: &str = "x-api-key";

/// What a verified token is remembered by: the port, and its SHA-256.
type CacheKey = (Port, [u8; 32]);

/// Verifies bearer tokens.
pub struct Authenticator {
    issuers: Vec<TrustedIssuer>,
    remembered: Cache<CacheKey, CachedVerification>,
    clock: Clock,
}

/// A token that verified.
#[derive(Clone)]
struct CachedVerification {
    issuer: usize,
    /// The generation of the key set that verified it.
    generation: u64,
    verified: Arc<VerifiedToken>,
}

impl Authenticator {
    /// Reads the issuers' keys. `Err` lists every mistake, with JSON pointers into the configuration.
    pub fn new(auth: &config::Auth) -> Result<Self, Vec<Violation>> {
        Self::with_clock(auth, Arc::new(SystemTime::now))
    }

    /// Like [`Authenticator::new`], with another clock for tests of `exp` and `nbf`.
    pub fn with_clock(auth: &config::Auth, clock: Clock) -> Result<Self, Vec<Violation>> {
        Ok(Self::from_issuers(issuer::compile(auth, &[])?, clock))
    }

    /// Like [`Authenticator::new`]. Reuses the fetched keys of issuers in `before` that still publish them at
    /// the same place.
    ///
    /// # Errors
    /// As [`Authenticator::new`].
    pub fn after<'a>(
        before: impl Iterator<Item = &'a Authenticator>,
        auth: &config::Auth,
    ) -> Result<Self, Vec<Violation>> {
        let known: Vec<_> = before.flat_map(|before| &before.issuers).collect();
        Ok(Self::from_issuers(issuer::compile(auth, &known)?, Arc::new(SystemTime::now)))
    }

    fn from_issuers(issuers: Vec<TrustedIssuer>, clock: Clock) -> Self {
        let remembered =
            Cache::builder().max_capacity(MAX_CACHED_TOKENS).time_to_live(TOKEN_CACHE_TTL).build();
        Authenticator { issuers, remembered, clock }
    }

    /// Verifies the bearer token for the data port. `headers` are HTTP headers, or those of tonic's metadata
    /// for gRPC.
    pub async fn authenticate(&self, headers: &HeaderMap) -> Result<Arc<VerifiedToken>, AuthRefusal> {
        self.authenticate_at(Port::Data, headers).await
    }

    /// Like [`Authenticator::authenticate`], for the audience of `port`.
    pub fn authenticate_at<'a>(
        &'a self,
        port: Port,
        headers: &'a HeaderMap,
    ) -> impl Future<Output = Result<Arc<VerifiedToken>, AuthRefusal>> + 'a {
        self.check(port, headers, bearer)
    }

    /// Like [`Authenticator::authenticate`], for clients of an API that has its key in `x-api-key`: the token is there, in
    /// `authorization`, or in both.
    pub fn authenticate_api_key<'a>(
        &'a self,
        headers: &'a HeaderMap,
    ) -> impl Future<Output = Result<Arc<VerifiedToken>, AuthRefusal>> + 'a {
        self.check(Port::Data, headers, api_key)
    }

    async fn check(
        &self,
        port: Port,
        headers: &HeaderMap,
        token_of: fn(&HeaderMap) -> Result<&str, AuthRefusal>,
    ) -> Result<Arc<VerifiedToken>, AuthRefusal> {
        let token = token_of(headers)?;
        let key = cache_key(port, token)?;
        if let Some(verified) = self.recall(&key)? {
            return Ok(verified);
        }
        self.verify(token, key).await
    }

    /// Whether every issuer has keys (for /readyz).
    pub fn ready(&self) -> bool {
        self.issuers.iter().all(TrustedIssuer::ready)
    }

    /// Whether every issuer has keys, or shares its fetch with `before`, so that waiting for the keys makes
    /// nothing more ready.
    pub fn ready_after(&self, before: &Self) -> bool {
        let is_shared = |issuer: &TrustedIssuer| {
            let shares = |published| before.issuers.iter().any(|old| old.shares(published));
            issuer.published().is_some_and(shares)
        };
        self.issuers.iter().all(|issuer| issuer.ready() || is_shared(issuer))
    }

    /// Fetches published keys, at once and whenever they are no longer fresh, until `stop`. Nothing else
    /// does, so run this as a task. Returns at once if all keys are configured.
    pub async fn refresh(&self, stop: CancellationToken) {
        let published = self.issuers.iter().filter_map(TrustedIssuer::published);
        join_all(published.map(|keys| keys.keep_fresh(&stop))).await;
    }

    /// For each issuer that publishes its keys: its `iss`, the time since they were fetched (`None` if
    /// never), and the time until they are no longer used.
    pub fn key_ages(&self) -> impl Iterator<Item = (&str, Option<Duration>, Duration)> {
        self.issuers.iter().filter_map(|issuer| {
            let published = issuer.published()?;
            let age = published.age();
            let left = age.map_or(Duration::ZERO, |age| published.left(age));
            Some((issuer.name.as_str(), age, left))
        })
    }

    fn recall(&self, key: &CacheKey) -> Result<Option<Arc<VerifiedToken>>, AuthRefusal> {
        let known = self.remembered.get(key);
        let Some(known) = known.filter(|known| self.issuers[known.issuer].stands(known.generation)) else {
            return Ok(None);
        };
        known.verified.validity.check((self.clock)())?;
        Ok(Some(known.verified))
    }

    async fn verify(&self, token: &str, key: CacheKey) -> Result<Arc<VerifiedToken>, AuthRefusal> {
        let token = UnverifiedToken::parse(token)?;
        let index = self.issuer_of(&token)?;
        let issuer = &self.issuers[index];
        let generation = issuer.verify(&token).await?;
        let verified = Arc::new(issuer.rules.read(&token.claims, key.0)?);
        verified.validity.check((self.clock)())?;
        let known = CachedVerification { issuer: index, generation, verified: Arc::clone(&verified) };
        self.remembered.insert(key, known);
        Ok(verified)
    }

    /// The issuer that the token claims to be from; only its keys may verify the token.
    fn issuer_of(&self, token: &UnverifiedToken<'_>) -> Result<usize, AuthRefusal> {
        let name = token.claims.get("iss").and_then(serde_json::Value::as_str);
        let name = name.ok_or_else(|| AuthRefusal::claim("iss", "a string"))?;
        self.issuers.iter().position(|issuer| issuer.name == name).ok_or_else(|| {
            AuthRefusal::new(RefusalReason::Issuer, "The token's `iss` is not an accepted issuer")
        })
    }
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").field("issuers", &self.issuers).finish_non_exhaustive()
    }
}

/// The key of a token that isn't too long.
fn cache_key(port: Port, token: &str) -> Result<CacheKey, AuthRefusal> {
    if token.len() > token::MAX_TOKEN_BYTES {
        return Err(AuthRefusal::new(RefusalReason::TooLarge, "The token is longer than 8 KiB"));
    }
    Ok((port, Sha256::digest(token.as_bytes()).into()))
}

/// The token in `Authorization: Bearer TOKEN` (RFC 6750, section 2.1).
fn bearer(headers: &HeaderMap) -> Result<&str, AuthRefusal> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let missing = || AuthRefusal::new(RefusalReason::Missing, "Send `Authorization: Bearer` and a token");
    let value = values.next().ok_or_else(missing)?;
    if values.next().is_some() {
        return Err(AuthRefusal::new(
            RefusalReason::Malformed,
            "Send one `Authorization` header, not several",
        ));
    }
    let malformed =
        || AuthRefusal::new(RefusalReason::Malformed, "The `Authorization` header must be ASCII text");
    let value = value.to_str().map_err(|_| malformed())?;
    match value.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() => {
            Ok(token.trim_matches(' '))
        }
        _ => Err(missing()),
    }
}

/// The token in `x-api-key`, or else that of [`bearer`]. Two that differ could be two callers.
fn api_key(headers: &HeaderMap) -> Result<&str, AuthRefusal> {
    let malformed = |detail| AuthRefusal::new(RefusalReason::Malformed, detail);
    let mut values = headers.get_all(API_KEY).iter();
    let key = values.next().map(|value| value.to_str().map(|key| key.trim_matches(' ')));
    if values.next().is_some() {
        return Err(malformed("Send one `x-api-key` header, not several"));
    }
    let key = key.transpose().map_err(|_| malformed("The `x-api-key` header must be ASCII text"))?;
    match key.filter(|key| !key.is_empty()) {
        Some(key) if !headers.contains_key(AUTHORIZATION) || bearer(headers).ok() == Some(key) => Ok(key),
        Some(_) => Err(malformed("`authorization` must have the token of `x-api-key`, or be absent")),
        None => bearer(headers).map_err(|refusal| match refusal.reason {
            RefusalReason::Missing => AuthRefusal::new(
                RefusalReason::Missing,
                "Send a token in `x-api-key`, or `Authorization: Bearer` and a token",
            ),
            _ => refusal,
        }),
    }
}

#[cfg(test)]
mod tests;
