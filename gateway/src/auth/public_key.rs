//! Public keys from PEM and JWK (RFC 7517). A key is accepted only if its type and size suit its one
//! algorithm, so that a weak or unsuitable key is detected before any token arrives.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, RSAKeyParameters},
};
use serde_json::Value;

use super::key::{self, VerificationKey};

/// Allowed sizes of RSA keys, in bits (docs/protocol.md, section 5). The upper limit is what the library can
/// verify.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2_048..=8_192;

/// A key in PEM (`PUBLIC KEY`, or `RSA PUBLIC KEY`). `Err` says what is wrong with it.
pub(super) fn from_pem(
    kid: Option<String>,
    algorithm: Algorithm,
    pem: &[u8],
) -> Result<VerificationKey, String> {
    let text = str::from_utf8(pem).unwrap_or_default();
    if text.contains("PRIVATE KEY-----") {
        return Err("this is a private key: give the public one".to_owned());
    }
    let public = |label: &str| text.lines().any(|line| line.trim() == label);
    if !public("-----BEGIN PUBLIC KEY-----") && !public("-----BEGIN RSA PUBLIC KEY-----") {
        return Err(
            "there is no `PUBLIC KEY` in this file: give the key in PEM, not a certificate".to_owned()
        );
    }
    let key = match algorithm.family() {
        AlgorithmFamily::Hmac => return Err(format!("{algorithm:?} needs a `secret`, not a PEM file")),
        AlgorithmFamily::Rsa => DecodingKey::from_rsa_pem(pem),
        AlgorithmFamily::Ec => DecodingKey::from_ec_pem(pem),
        AlgorithmFamily::Ed => DecodingKey::from_ed_pem(pem),
    };
    checked(
        kid,
        algorithm,
        key.map_err(|_| {
            format!("this is not a public key for {algorithm:?}: correct `alg`, or give a key of that type")
        })?,
    )
}

/// A key from a JWK. Its algorithm is `algorithm` if the configuration sets it, otherwise the JWK's `alg`,
/// otherwise it follows from the type: RS256 for RSA, ES256 and ES384 by curve, EdDSA for Ed25519.
pub(super) fn from_jwk(
    kid: Option<String>,
    algorithm: Option<Algorithm>,
    jwk: &Value,
) -> Result<VerificationKey, String> {
    let text = |name: &str| jwk.get(name).and_then(Value::as_str);
    if text("kty") == Some("oct") || jwk.get("k").is_some() || jwk.get("d").is_some() {
        return Err("only public keys are accepted, neither shared secrets nor private keys".to_owned());
    }
    if jwk.get("use").is_some_and(|purpose| purpose != "sig") {
        return Err("the key's `use` is not `sig`".to_owned());
    }
    let verifies = |ops: &Value| ops.as_array().is_some_and(|ops| ops.iter().any(|op| op == "verify"));
    if jwk.get("key_ops").is_some_and(|ops| !verifies(ops)) {
        return Err("the key's `key_ops` lack `verify`".to_owned());
    }
    let own = text("alg").map(key::algorithm).transpose()?;
    if let (Some(configured), Some(own)) = (algorithm, own)
        && configured != own
    {
        return Err(format!("the key is for {own:?}, not {configured:?}: omit `alg`, or correct it"));
    }
    let parsed: Jwk = serde_json::from_value(jwk.clone()).map_err(|error| format!("not a JWK: {error}"))?;
    let by_type = match &parsed.algorithm {
        AlgorithmParameters::RSA(_) => Algorithm::RS256,
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => Algorithm::ES256,
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => Algorithm::ES384,
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => Algorithm::EdDSA,
        _ => return Err("a key is RSA, EC on P-256 or P-384, or OKP on Ed25519".to_owned()),
    };
    let key = DecodingKey::from_jwk(&parsed).map_err(|_| "the key's numbers are not base64url".to_owned())?;
    let named = parsed.common.key_id;
    checked(kid.or(named), algorithm.or(own).unwrap_or(by_type), key)
}

fn checked(kid: Option<String>, algorithm: Algorithm, key: DecodingKey) -> Result<VerificationKey, String> {
    let normal =
        Jwk::from_decoding_key(&key, None).map_err(|_| "this is not a valid public key".to_owned())?;
    let curve = match &normal.algorithm {
        AlgorithmParameters::RSA(rsa) if algorithm.family() == AlgorithmFamily::Rsa => {
            check_rsa(rsa)?;
            return Ok(VerificationKey { kid, algorithm, key });
        }
        AlgorithmParameters::EllipticCurve(key) => &key.curve,
        AlgorithmParameters::OctetKeyPair(key) => &key.curve,
        _ => return Err(format!("the key's type is not that of {algorithm:?}")),
    };
    match (algorithm, curve) {
        (Algorithm::ES256, EllipticCurve::P256)
        | (Algorithm::ES384, EllipticCurve::P384)
        | (Algorithm::EdDSA, EllipticCurve::Ed25519) => Ok(VerificationKey { kid, algorithm, key }),
        _ => Err(format!("the key's type is not that of {algorithm:?}")),
    }
}

fn check_rsa(key: &RSAKeyParameters) -> Result<(), String> {
    let number = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
    let bits = |number: &[u8]| {
        let zeros = number.iter().take_while(|byte| **byte == 0).count();
        number.get(zeros).map_or(0, |first| (number.len() - zeros) * 8 - first.leading_zeros() as usize)
    };
    let size = bits(&number(&key.n));
    if !RSA_BITS.contains(&size) {
        return Err(format!("an RSA key has {} to {} bits, not {size}", RSA_BITS.start(), RSA_BITS.end()));
    }
    // With the exponent 1 anyone can sign (RFC 8017, section 3.1: at least 3, and odd).
    let exponent = number(&key.e);
    if bits(&exponent) < 2 || exponent.last().is_none_or(|last| last % 2 == 0) {
        return Err("an RSA key's exponent is odd and at least 3".to_owned());
    }
    Ok(())
}

#[cfg(test)]
#[path = "public_key_tests.rs"]
mod tests;
