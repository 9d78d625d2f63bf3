use serde_json::json;

use super::*;

fn number(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// An RSA key whose modulus has `bits` bits. Never used for signing.
fn rsa(bits: usize, exponent: &[u8]) -> Value {
    let mut modulus = vec![0xff; bits.div_ceil(8)];
    modulus[0] = 0xff >> (modulus.len() * 8 - bits);
    json!({ "kty": "RSA", "kid": "r", "n": number(modulus), "e": number(exponent) })
}

fn ec(curve: &str, bytes: usize) -> Value {
    json!({ "kty": "EC", "crv": curve, "x": number(vec![1; bytes]), "y": number(vec![2; bytes]) })
}

fn ed25519() -> Value {
    json!({ "kty": "OKP", "crv": "Ed25519", "x": number([3; 32]) })
}

fn with(mut jwk: Value, name: &str, value: Value) -> Value {
    jwk[name] = value;
    jwk
}

fn taken(jwk: &Value) -> Option<Algorithm> {
    from_jwk(None, None, jwk).ok().map(|key| key.algorithm)
}

const F4: &[u8] = &[1, 0, 1];

#[test]
fn a_jwk_without_alg_is_of_its_types_algorithm() {
    assert_eq!(taken(&rsa(2_048, F4)), Some(Algorithm::RS256));
    assert_eq!(taken(&ec("P-256", 32)), Some(Algorithm::ES256));
    assert_eq!(taken(&ec("P-384", 48)), Some(Algorithm::ES384));
    assert_eq!(taken(&ed25519()), Some(Algorithm::EdDSA));
    assert_eq!(taken(&with(rsa(2_048, F4), "alg", json!("PS512"))), Some(Algorithm::PS512));
}

#[test]
fn a_jwk_whose_alg_is_not_of_its_type_is_refused() {
    let algorithms = ["HS256", "RS256", "PS384", "ES256", "ES384", "EdDSA", "none", "RSA-OAEP", "ECDH-ES"];
    let fits = |jwk: &Value, algorithm: &str| taken(&with(jwk.clone(), "alg", json!(algorithm))).is_some();
    for (jwk, fitting) in [
        (rsa(2_048, F4), &["RS256", "PS384"][..]),
        (ec("P-256", 32), &["ES256"]),
        (ec("P-384", 48), &["ES384"]),
        (ed25519(), &["EdDSA"]),
    ] {
        let accepted: Vec<_> = algorithms.into_iter().filter(|algorithm| fits(&jwk, algorithm)).collect();
        assert_eq!(accepted, fitting, "{jwk}");
        assert_eq!(taken(&with(jwk.clone(), "alg", json!(["RS256"]))), None);
    }
}

#[test]
fn an_rsa_key_has_2048_to_8192_bits_and_an_odd_exponent_of_3_or_more() {
    for (bits, fits) in [(1_024, false), (2_047, false), (2_048, true), (8_192, true), (8_193, false)] {
        assert_eq!(taken(&rsa(bits, F4)).is_some(), fits, "{bits} bits");
    }
    let mut padded = vec![0; 200];
    padded.extend([0xff; 128]);
    assert_eq!(taken(&with(rsa(2_048, F4), "n", json!(number(padded)))), None, "zeros in front don't count");
    for (exponent, fits) in [
        (&[3][..], true),
        (&[0, 3], true),
        (&[1], false),
        (&[0, 0, 1], false),
        (&[0], false),
        (&[4], false),
        (&[], false),
    ] {
        assert_eq!(taken(&rsa(2_048, exponent)).is_some(), fits, "{exponent:?}");
    }
}

#[test]
fn keys_for_anything_but_verifying_are_refused() {
    let good = ed25519();
    for (name, value) in [
        ("use", json!("enc")),
        ("use", json!("SIG")),
        ("use", json!(1)),
        ("key_ops", json!(["sign"])),
        ("key_ops", json!([])),
        ("key_ops", json!("verify")),
        ("d", json!("AAAA")),
        ("k", json!("AAAA")),
    ] {
        assert_eq!(taken(&with(good.clone(), name, value.clone())), None, "{name}: {value}");
    }
    for (name, value) in [("use", json!("sig")), ("key_ops", json!(["sign", "verify"])), ("x-own", json!({}))]
    {
        assert_eq!(taken(&with(good.clone(), name, value)), Some(Algorithm::EdDSA), "{name}");
    }
    let secret = json!({ "kty": "oct", "alg": "HS256", "k": number([7; 64]) });
    assert_eq!(taken(&secret), None);
}

#[test]
fn malformed_and_unknown_keys_are_refused() {
    let wrong = [
        json!(null),
        json!("key"),
        json!({}),
        json!({ "kty": "RSA" }),
        json!({ "kty": "AKP", "pub": "AAAA" }),
        with(ed25519(), "crv", json!("X25519")),
        with(ed25519(), "crv", json!("Ed448")),
        with(ed25519(), "x", json!(number([3; 31]))),
        with(ed25519(), "x", json!("not base64!")),
        ec("P-521", 66),
        ec("secp256k1", 32),
        ec("P-256", 31),
        ec("P-256", 48),
        ec("P-384", 32),
        ec("Ed25519", 32),
        with(rsa(2_048, F4), "n", json!(7)),
        with(rsa(2_048, F4), "kid", json!(7)),
    ];
    for jwk in wrong {
        assert_eq!(taken(&jwk), None, "{jwk}");
    }
}

#[test]
fn the_configuration_may_name_key_and_algorithm_but_not_contradict_the_jwk() {
    let jwk = rsa(2_048, F4);
    let key = from_jwk(Some("mine".into()), Some(Algorithm::PS256), &jwk).unwrap();
    assert_eq!((key.kid.as_deref(), key.algorithm), (Some("mine"), Algorithm::PS256));
    assert_eq!(from_jwk(None, None, &jwk).unwrap().kid.as_deref(), Some("r"));
    assert!(from_jwk(None, Some(Algorithm::RS256), &with(jwk.clone(), "alg", json!("PS256"))).is_err());
    assert!(from_jwk(None, Some(Algorithm::EdDSA), &jwk).is_err());
    assert!(from_jwk(None, Some(Algorithm::HS256), &jwk).is_err());
}
