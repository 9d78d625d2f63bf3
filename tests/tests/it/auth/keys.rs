//! Keys of every algorithm, generated once per process, and tokens signed with them in any way.
#![allow(clippy::unwrap_used)] // tests, and what only they use

use std::sync::{Arc, LazyLock};

use aws_lc_rs::{
    encoding::AsDer,
    rand::SystemRandom,
    rsa::{KeyPair as RsaKeys, KeySize},
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
        EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair,
    },
};
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use hookgate::auth::{Authenticator, RefusalReason, VerifiedToken};
use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, EncodingKey, crypto, jwk::Jwk};
use serde_json::{Value, json};

/// Every supported algorithm.
pub(crate) const ALGORITHMS: [Algorithm; 12] = [
    Algorithm::HS256,
    Algorithm::HS384,
    Algorithm::HS512,
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// The shared secret of the HMAC algorithms.
pub(crate) const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A private key and its public half in several forms; for a shared secret, the secret.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) signs: EncodingKey,
    pub(crate) private_pem: String,
    pub(crate) public_pem: String,
    pub(crate) public_der: Vec<u8>,
}

fn pem(label: &str, der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    let lines: Vec<&str> = body.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

impl Keys {
    fn new(private_der: &[u8], public_der: &[u8], signs: impl Fn(&[u8]) -> EncodingKey) -> Self {
        let private_pem = pem("PRIVATE KEY", private_der);
        let signs = signs(private_pem.as_bytes());
        Keys {
            signs,
            private_pem,
            public_pem: pem("PUBLIC KEY", public_der),
            public_der: public_der.to_vec(),
        }
    }

    /// A new Ed25519 key, which is cheap to generate.
    pub(crate) fn ed25519() -> Self {
        let key = Ed25519KeyPair::generate().unwrap();
        let public = key.public_key().as_der().unwrap();
        let private = key.to_pkcs8v1().unwrap();
        Keys::new(private.as_ref(), public.as_ref(), |pem| EncodingKey::from_ed_pem(pem).unwrap())
    }

    fn rsa() -> Self {
        let key = RsaKeys::generate(KeySize::Rsa2048).unwrap();
        let public = key.public_key().as_der().unwrap();
        let private = key.as_der().unwrap();
        Keys::new(private.as_ref(), public.as_ref(), |pem| EncodingKey::from_rsa_pem(pem).unwrap())
    }

    fn ec(algorithm: &'static EcdsaSigningAlgorithm) -> Self {
        let private = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(algorithm, private.as_ref()).unwrap();
        let public = key.public_key().as_der().unwrap();
        Keys::new(private.as_ref(), public.as_ref(), |pem| EncodingKey::from_ec_pem(pem).unwrap())
    }

    /// The public key as a JWK without `alg` and `kid`.
    pub(crate) fn jwk(&self, family: AlgorithmFamily) -> Value {
        let public = self.public_pem.as_bytes();
        let key = match family {
            AlgorithmFamily::Hmac => DecodingKey::from_secret(SECRET.as_bytes()),
            AlgorithmFamily::Rsa => DecodingKey::from_rsa_pem(public).unwrap(),
            AlgorithmFamily::Ec => DecodingKey::from_ec_pem(public).unwrap(),
            AlgorithmFamily::Ed => DecodingKey::from_ed_pem(public).unwrap(),
        };
        serde_json::to_value(Jwk::from_decoding_key(&key, None).unwrap()).unwrap()
    }
}

/// The keys of `algorithm`, the same for the whole process.
pub(crate) fn keys(algorithm: Algorithm) -> Keys {
    static RSA: LazyLock<Keys> = LazyLock::new(Keys::rsa);
    static P256: LazyLock<Keys> = LazyLock::new(|| Keys::ec(&ECDSA_P256_SHA256_FIXED_SIGNING));
    static P384: LazyLock<Keys> = LazyLock::new(|| Keys::ec(&ECDSA_P384_SHA384_FIXED_SIGNING));
    static ED: LazyLock<Keys> = LazyLock::new(Keys::ed25519);
    match (algorithm.family(), algorithm) {
        (AlgorithmFamily::Hmac, _) => Keys {
            signs: EncodingKey::from_secret(SECRET.as_bytes()),
            private_pem: SECRET.to_owned(),
            public_pem: SECRET.to_owned(),
            public_der: SECRET.as_bytes().to_vec(),
        },
        (AlgorithmFamily::Rsa, _) => RSA.clone(),
        (AlgorithmFamily::Ec, Algorithm::ES256) => P256.clone(),
        (AlgorithmFamily::Ec, _) => P384.clone(),
        (AlgorithmFamily::Ed, _) => ED.clone(),
    }
}

/// Claims of `issuer` for `tenant` that are valid until the year 9999.
pub(crate) fn claims(issuer: &str, tenant: &str) -> Value {
    json!({
        "iss": issuer, "aud": "hookgate", "exp": 253_402_300_799_u64, "sub": "robot", "tenant_id": tenant,
        "scope": "hookgate:invoke",
    })
}

/// The first two parts of a token.
pub(crate) fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims.to_string()))
}

/// A token with any header, signed with `key` by `algorithm`, whatever the header says.
pub(crate) fn token(header: &Value, claims: &Value, key: &EncodingKey, algorithm: Algorithm) -> String {
    let signed = unsigned(header, claims);
    let signature = crypto::sign(signed.as_bytes(), key, algorithm).unwrap();
    format!("{signed}.{signature}")
}

/// An authenticator for `issuers`, each a member of `auth.issuers`.
pub(crate) fn authenticator(issuers: &Value) -> Authenticator {
    let auth = serde_json::from_value(json!({ "issuers": issuers })).unwrap();
    Authenticator::new(&auth).unwrap()
}

/// The authenticator's result for `token`.
pub(crate) async fn ask(
    authenticator: &Authenticator,
    token: &str,
) -> Result<Arc<VerifiedToken>, RefusalReason> {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}")).unwrap());
    authenticator.authenticate(&headers).await.map_err(|refusal| refusal.reason)
}
