//! Tests forged tokens for every algorithm: none is accepted, and each is rejected for the right reason.
#![allow(clippy::unwrap_used)] // tests, and what only they use

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hookgate::{
    auth::{Authenticator, RefusalReason},
    core::error::Code,
};
use jsonwebtoken::{Algorithm, AlgorithmFamily, EncodingKey};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::auth::keys::{ALGORITHMS, Keys, SECRET, ask, authenticator, claims, keys, token, unsigned};

const ISSUER: &str = "https://id.example.com";

/// A 1024-bit RSA key, which the libraries here can't generate.
const RSA_1024: &str = "-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCy8x1BhAv32YZhVlEsLZHddYl0
Q1Mz8CMSsFdO4GMdQv3IEZRh5zw2crQeALS8SKaOuB0zZFCmOehHe1XNeuSKRBcT
MEvL6w1mkOWPIx319D799Si0rzhiaUsbw92vutt0fNHqHIjpB8y7FyKD1U6Lyh3/
kAG535nGZ9ac72dqFwIDAQAB
-----END PUBLIC KEY-----
";

fn name(algorithm: Algorithm) -> String {
    format!("{algorithm:?}")
}

/// The configuration of a key of `algorithm`; a public key is read from a PEM file in `dir`.
fn configured(dir: &TempDir, algorithm: Algorithm) -> Value {
    let name = name(algorithm);
    if algorithm.family() == AlgorithmFamily::Hmac {
        return json!({ "kid": name, "alg": name, "secret": SECRET });
    }
    let path = dir.path().join(format!("{name}.pem"));
    std::fs::write(&path, keys(algorithm).public_pem).unwrap();
    json!({ "kid": name, "alg": name, "pem_file": path })
}

fn with_keys(keys: Value) -> Authenticator {
    authenticator(&json!([{ "issuer": ISSUER, "audience": "hookgate", "keys": keys }]))
}

/// An authenticator with one key for every algorithm, named after it.
fn with_all_keys() -> Authenticator {
    let dir = TempDir::new().unwrap();
    with_keys(ALGORITHMS.iter().map(|algorithm| configured(&dir, *algorithm)).collect())
}

fn acme() -> Value {
    claims(ISSUER, "acme")
}

async fn tenant(authenticator: &Authenticator, token: &str) -> Result<String, RefusalReason> {
    let verified = ask(authenticator, token).await?;
    Ok(verified.invoker().map_err(|refusal| refusal.reason)?.tenant.to_string())
}

#[tokio::test]
async fn every_algorithm_verifies_with_its_key_from_a_secret_a_pem_or_a_jwk_file() {
    let dir = TempDir::new().unwrap();
    for algorithm in ALGORITHMS {
        let keys = keys(algorithm);
        let header = json!({ "alg": name(algorithm) });
        let good = token(&header, &acme(), &keys.signs, algorithm);
        let alone = with_keys(json!([configured(&dir, algorithm)]));
        assert_eq!(tenant(&alone, &good).await.as_deref(), Ok("acme"), "{algorithm:?}");
        if algorithm.family() == AlgorithmFamily::Hmac {
            continue;
        }
        let mut jwk = keys.jwk(algorithm.family());
        jwk["alg"] = json!(name(algorithm));
        jwk["kid"] = json!("from-the-file");
        let path = dir.path().join("key.jwk");
        std::fs::write(&path, jwk.to_string()).unwrap();
        let alone = with_keys(json!([{ "jwk_file": path }]));
        let named = json!({ "alg": name(algorithm), "kid": "from-the-file" });
        for header in [header, named] {
            let good = token(&header, &acme(), &keys.signs, algorithm);
            assert_eq!(tenant(&alone, &good).await.as_deref(), Ok("acme"), "{algorithm:?}");
        }
    }
}

#[tokio::test]
async fn a_token_passes_only_when_header_key_and_signature_are_of_one_algorithm() {
    let authenticator = with_all_keys();
    let mut passed = 0;
    for key in ALGORITHMS {
        for header in ALGORITHMS {
            for signature in ALGORITHMS {
                let forged = json!({ "alg": name(header), "kid": name(key) });
                let forged = token(&forged, &acme(), &keys(signature).signs, signature);
                let expected = match (header == key, signature == key) {
                    (true, true) => Ok("acme".to_owned()),
                    (true, false) => Err(RefusalReason::Signature),
                    (false, _) => Err(RefusalReason::Algorithm),
                };
                passed += usize::from(expected.is_ok());
                assert_eq!(
                    tenant(&authenticator, &forged).await,
                    expected,
                    "key {key:?}, header {header:?}, signed by {signature:?}"
                );
            }
        }
    }
    assert_eq!(passed, ALGORITHMS.len());
}

#[tokio::test]
async fn a_public_key_is_never_a_shared_secret() {
    let authenticator = with_all_keys();
    let hmac = [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512];
    for key in ALGORITHMS.into_iter().filter(|algorithm| algorithm.family() != AlgorithmFamily::Hmac) {
        let public = keys(key);
        let jwk = public.jwk(key.family());
        let number = jwk.get("n").or(jwk.get("x")).and_then(Value::as_str).unwrap();
        let secrets = [
            public.public_pem.as_bytes().to_vec(),
            public.public_pem.trim().as_bytes().to_vec(),
            public.public_der.clone(),
            jwk.to_string().into_bytes(),
            URL_SAFE_NO_PAD.decode(number).unwrap(),
            Vec::new(),
        ];
        for secret in &secrets {
            for algorithm in hmac {
                let secret = EncodingKey::from_secret(secret);
                let as_hmac = json!({ "alg": name(algorithm), "kid": name(key) });
                let as_own = json!({ "alg": name(key), "kid": name(key) });
                let forged = |header| token(&header, &acme(), &secret, algorithm);
                assert_eq!(
                    tenant(&authenticator, &forged(as_hmac)).await,
                    Err(RefusalReason::Algorithm),
                    "{key:?}"
                );
                assert_eq!(
                    tenant(&authenticator, &forged(as_own)).await,
                    Err(RefusalReason::Signature),
                    "{key:?}"
                );
                // The only HMAC key is chosen by the algorithm, so the signature is simply wrong.
                let unnamed = json!({ "alg": name(algorithm) });
                assert_eq!(
                    tenant(&authenticator, &forged(unnamed)).await,
                    Err(RefusalReason::Signature),
                    "{key:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn no_signature_but_the_whole_and_only_one_verifies() {
    let authenticator = with_all_keys();
    for algorithm in ALGORITHMS {
        let header = json!({ "alg": name(algorithm), "kid": name(algorithm) });
        let good = token(&header, &acme(), &keys(algorithm).signs, algorithm);
        assert!(tenant(&authenticator, &good).await.is_ok());
        let signature = URL_SAFE_NO_PAD.decode(good.rsplit_once('.').unwrap().1).unwrap();
        let length = signature.len();
        let mut flipped = signature.clone();
        flipped[length / 2] ^= 1;
        let longer: Vec<u8> = signature.iter().copied().chain([0]).collect();
        let wrong = [
            Vec::new(),
            signature[..length - 1].to_vec(),
            signature[..length / 2].to_vec(),
            longer,
            flipped,
            vec![0; length],
            vec![0xff; length],
            // An ECDSA signature of two zeros in DER.
            vec![0x30, 6, 2, 1, 0, 2, 1, 0],
        ];
        for forged in wrong {
            let forged = format!("{}.{}", unsigned(&header, &acme()), URL_SAFE_NO_PAD.encode(&forged));
            assert_eq!(tenant(&authenticator, &forged).await, Err(RefusalReason::Signature), "{algorithm:?}");
        }
        // A valid signature for other claims.
        let (_, signature) = good.rsplit_once('.').unwrap();
        let forged = format!("{}.{signature}", unsigned(&header, &claims(ISSUER, "globex")));
        assert_eq!(tenant(&authenticator, &forged).await, Err(RefusalReason::Signature), "{algorithm:?}");
    }
}

#[tokio::test]
async fn a_key_that_the_token_brings_along_is_not_used() {
    let authenticator = with_all_keys();
    let attacker = Keys::ed25519();
    let jwk = attacker.jwk(AlgorithmFamily::Ed);
    for kid in [json!("EdDSA"), json!("unknown")] {
        let mut header = json!({ "alg": "EdDSA", "kid": kid });
        let plain = token(&header, &acme(), &attacker.signs, Algorithm::EdDSA);
        let reason = tenant(&authenticator, &plain).await.unwrap_err();
        assert!(matches!(reason, RefusalReason::Signature | RefusalReason::Kid), "{reason:?}");
        header["jwk"] = jwk.clone();
        let forged = token(&header, &acme(), &attacker.signs, Algorithm::EdDSA);
        assert_eq!(tenant(&authenticator, &forged).await, Err(RefusalReason::Header));
    }
}

#[tokio::test]
async fn an_rsa_jwk_without_alg_verifies_rs256_alone() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("rsa.jwk");
    std::fs::write(&path, keys(Algorithm::RS256).jwk(AlgorithmFamily::Rsa).to_string()).unwrap();
    let authenticator = with_keys(json!([{ "jwk_file": path }]));
    for algorithm in ALGORITHMS {
        let token = token(&json!({ "alg": name(algorithm) }), &acme(), &keys(algorithm).signs, algorithm);
        let expected =
            if algorithm == Algorithm::RS256 { Ok("acme".into()) } else { Err(RefusalReason::Algorithm) };
        assert_eq!(tenant(&authenticator, &token).await, expected, "{algorithm:?}");
    }
}

#[test]
fn a_key_file_that_cannot_be_used_is_refused_at_start_with_its_place() {
    let dir = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let ec = keys(Algorithm::ES256);
    let certificate = ec.public_pem.replace("PUBLIC KEY", "CERTIFICATE");
    let broken = ec.public_pem.replace('A', "*");
    let secret = json!({ "kty": "oct", "alg": "HS256", "k": "A".repeat(86) }).to_string();
    let problems = [
        (json!({ "alg": "ES256", "pem_file": file("private", &ec.private_pem) }), "/pem_file", "private"),
        (json!({ "alg": "ES256", "pem_file": file("certificate", &certificate) }), "/pem_file", "PUBLIC KEY"),
        (json!({ "alg": "ES256", "pem_file": file("broken", &broken) }), "/pem_file", "ES256"),
        (json!({ "alg": "RS256", "pem_file": file("ec", &ec.public_pem) }), "/pem_file", "RS256"),
        (json!({ "alg": "EdDSA", "pem_file": file("ec", &ec.public_pem) }), "/pem_file", "EdDSA"),
        (json!({ "alg": "ES384", "pem_file": file("ec", &ec.public_pem) }), "/pem_file", "ES384"),
        (json!({ "alg": "HS256", "pem_file": file("ec", &ec.public_pem) }), "/pem_file", "secret"),
        (json!({ "alg": "RS256", "pem_file": file("small", RSA_1024) }), "/pem_file", "2048"),
        (json!({ "pem_file": file("ec", &ec.public_pem) }), "/alg", "algorithm"),
        (json!({ "alg": "ES256", "pem_file": dir.path().join("absent") }), "/pem_file", "can't be read"),
        (json!({ "alg": "ES256", "pem_file": file("huge", &"x".repeat(70_000)) }), "/pem_file", "64 KiB"),
        (json!({ "jwk_file": file("oct", &secret) }), "/jwk_file", "public"),
        (json!({ "jwk_file": file("text", "key") }), "/jwk_file", "JSON"),
        (json!({ "jwk_file": file("set", r#"{"keys":[]}"#) }), "/jwk_file", "RSA, EC"),
    ];
    let (keys, expected): (Vec<_>, Vec<_>) =
        problems.into_iter().map(|(key, field, text)| (key, (field, text))).unzip();
    let issuers = json!([{ "issuer": ISSUER, "audience": "hookgate", "keys": keys }]);
    let auth = serde_json::from_value(json!({ "issuers": issuers })).unwrap();
    let found = Authenticator::new(&auth).unwrap_err();
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (index, (problem, (field, text))) in found.iter().zip(expected).enumerate() {
        assert_eq!(problem.pointer, format!("/auth/issuers/0/keys/{index}{field}"), "{problem:?}");
        assert!(problem.message.contains(text), "{problem:?}");
    }
}

#[tokio::test]
async fn every_refused_forgery_is_a_401_and_never_an_expiry() {
    let authenticator = with_all_keys();
    let header = json!({ "alg": "none" });
    let reason = tenant(&authenticator, &format!("{}.", unsigned(&header, &acme()))).await.unwrap_err();
    assert_eq!((reason.code(), reason.code().http()), (Code::TokenInvalid, 401));
    let mut expired = acme();
    expired["exp"] = json!(1);
    let header = json!({ "alg": "ES256" });
    let signed = token(&header, &expired, &keys(Algorithm::ES256).signs, Algorithm::ES256);
    assert_eq!(tenant(&authenticator, &signed).await, Err(RefusalReason::Expired));
    // A forger doesn't learn that the token has expired.
    let forged = token(&header, &expired, &keys(Algorithm::ES384).signs, Algorithm::ES384);
    assert_eq!(tenant(&authenticator, &forged).await, Err(RefusalReason::Signature));
}
