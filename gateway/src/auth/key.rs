//! Verification keys, and how one is chosen. A key carries its algorithm; a token's header only narrows the
//! choice (docs/protocol.md, section 5).

use std::str::FromStr;

use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, crypto};
use secrecy::{ExposeSecret, SecretString};

use super::token::UnverifiedToken;

/// Shortest shared secret, in bytes: the size of the smallest hash (RFC 7518, section 3.2).
const MIN_SECRET_BYTES: usize = 32;

/// A key with its only algorithm. Its `Debug` shows no key material.
#[derive(Debug)]
pub(super) struct VerificationKey {
    pub(super) kid: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

impl VerificationKey {
    /// A shared secret. `Err` says what is wrong with it.
    pub(super) fn shared(
        kid: Option<String>,
        algorithm: Algorithm,
        secret: &SecretString,
    ) -> Result<Self, String> {
        let secret = secret.expose_secret().as_bytes();
        if algorithm.family() != AlgorithmFamily::Hmac {
            return Err(format!("a secret is for HS256, HS384 or HS512, not {algorithm:?}"));
        }
        if secret.len() < MIN_SECRET_BYTES {
            return Err(format!(
                "a secret needs at least {MIN_SECRET_BYTES} bytes, this one has {}",
                secret.len()
            ));
        }
        Ok(VerificationKey { kid, algorithm, key: DecodingKey::from_secret(secret) })
    }

    /// Whether this key verifies the token's signature, by the key's own algorithm.
    pub(super) fn verifies(&self, token: &UnverifiedToken<'_>) -> bool {
        crypto::verify(token.signature, token.signed, &self.key, self.algorithm).unwrap_or(false)
    }
}

/// Parses the name of an algorithm in the configuration.
pub(super) fn algorithm(name: &str) -> Result<Algorithm, String> {
    Algorithm::from_str(name).map_err(|_| {
        format!(
            "`{name}` is not an algorithm: use HS256, HS384, HS512, RS256, RS384, RS512, PS256, PS384, PS512, \
             ES256, ES384 or EdDSA"
        )
    })
}

/// Why no key was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeySelectionError {
    /// The token names an unknown key; a newer set may have it.
    UnknownKid,
    /// The named keys exist, but all are for other algorithms.
    Algorithm,
    /// The token names no key, and none fits or several do.
    Ambiguous,
}

/// The keys of one issuer at one time.
#[derive(Debug)]
pub(super) struct KeySet {
    /// Differs between two sets of the same issuer whose keys differ.
    pub(super) generation: u64,
    pub(super) keys: Vec<VerificationKey>,
}

impl KeySet {
    /// The only key that fits: by `kid` if the token has one, otherwise the only one with its algorithm. A
    /// key without a name fits any name that no other key has.
    pub(super) fn choose(&self, token: &UnverifiedToken<'_>) -> Result<&VerificationKey, KeySelectionError> {
        let unnamed = |key: &&VerificationKey| key.kid.is_none();
        let candidates: Vec<_> = match &token.kid {
            None => self.keys.iter().collect(),
            Some(kid) => {
                let named: Vec<_> = self.keys.iter().filter(|key| key.kid.as_ref() == Some(kid)).collect();
                if named.is_empty() { self.keys.iter().filter(unnamed).collect() } else { named }
            }
        };
        if candidates.is_empty() && token.kid.is_some() {
            return Err(KeySelectionError::UnknownKid);
        }
        let mut fitting = candidates.into_iter().filter(|key| key.algorithm == token.algorithm);
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => Ok(key),
            (None, _) => Err(KeySelectionError::Algorithm),
            (Some(_), Some(_)) => Err(KeySelectionError::Ambiguous),
        }
    }
}
