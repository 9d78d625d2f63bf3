use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::UNIX_EPOCH,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::HeaderValue;
use jsonwebtoken::{Algorithm, EncodingKey, crypto};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{config::Scope, core::error::Code};

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const OTHER: &str = "fedcba9876543210fedcba9876543210";

fn base64(value: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(value)
}

/// A token with any header and claims, signed with a shared secret.
fn mint(header: &str, claims: &str, secret: &str, algorithm: Algorithm) -> String {
    let signed = format!("{}.{}", base64(header), base64(claims));
    let signature =
        crypto::sign(signed.as_bytes(), &EncodingKey::from_secret(secret.as_bytes()), algorithm).unwrap();
    format!("{signed}.{signature}")
}

fn claims(tenant: &str) -> Value {
    json!({
        "iss": "https://id", "aud": "hookgate", "exp": 1_000, "sub": "robot", "tenant_id": tenant,
        "scope": "hookgate:invoke",
    })
}

fn token(tenant: &str) -> String {
    mint(r#"{"alg":"HS256"}"#, &claims(tenant).to_string(), SECRET, Algorithm::HS256)
}

fn issuer(name: &str, secret: &str) -> Value {
    json!({ "issuer": name, "audience": "hookgate", "tenants": "*", "keys": [{ "alg": "HS256", "secret": secret }] })
}

fn auth(issuers: Value) -> config::Auth {
    serde_json::from_value(json!({ "issuers": issuers })).unwrap()
}

/// An authenticator whose clock is at second 900, and the clock.
fn authenticator(issuers: Value) -> (Authenticator, Arc<AtomicU64>) {
    let now = Arc::new(AtomicU64::new(900));
    let clock = Arc::clone(&now);
    let read = move || UNIX_EPOCH + Duration::from_secs(clock.load(Ordering::Relaxed));
    (Authenticator::with_clock(&auth(issuers), Arc::new(read)).unwrap(), now)
}

fn ours() -> Authenticator {
    authenticator(json!([issuer("https://id", SECRET)])).0
}

async fn ask(authenticator: &Authenticator, token: &str) -> Result<Arc<VerifiedToken>, AuthRefusal> {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}")).unwrap());
    authenticator.authenticate(&headers).await
}

async fn reason(authenticator: &Authenticator, token: &str) -> RefusalReason {
    ask(authenticator, token).await.expect_err(token).reason
}

#[tokio::test]
async fn a_signed_token_says_who_calls() {
    for (algorithm, name) in
        [(Algorithm::HS256, "HS256"), (Algorithm::HS384, "HS384"), (Algorithm::HS512, "HS512")]
    {
        let mut issuer = issuer("https://id", SECRET);
        issuer["keys"][0]["alg"] = json!(name);
        let (authenticator, _) = authenticator(json!([issuer]));
        let header = json!({ "alg": name, "typ": "JWT", "kid": "any", "x5t": "ignored" }).to_string();
        let token = mint(&header, &claims("acme").to_string(), SECRET, algorithm);
        let verified = ask(&authenticator, &token).await.unwrap();
        assert_eq!(&*verified.invoker().unwrap().tenant, "acme");
        assert!(authenticator.ready());
    }
}

#[tokio::test]
async fn the_bearer_token_is_found_or_asked_for() {
    let authenticator = ours();
    let token = token("acme");
    let try_values = async |values: &[&str]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        authenticator.authenticate(&headers).await.map(drop).map_err(|refusal| refusal.reason)
    };
    for good in [format!("Bearer {token}"), format!("bEARER   {token} ")] {
        assert_eq!(try_values(&[&good]).await, Ok(()));
    }
    for missing in ["", "Bearer", "Bearer ", "Basic YTpi", &token, &format!("Token {token}")] {
        assert_eq!(try_values(&[missing]).await, Err(RefusalReason::Missing), "{missing}");
    }
    assert_eq!(try_values(&[]).await, Err(RefusalReason::Missing));
    let good = format!("Bearer {token}");
    assert_eq!(try_values(&[&good, &good]).await, Err(RefusalReason::Malformed));
    assert_eq!(try_values(&[&format!("Bearer {token} {token}")]).await, Err(RefusalReason::Malformed));
    assert_eq!(try_values(&["Bearer é"]).await, Err(RefusalReason::Malformed));
}

#[tokio::test]
async fn an_api_key_is_the_token_and_agrees_with_the_bearer_token() {
    let authenticator = ours();
    let (other, token) = (token("globex"), token("acme"));
    let try_values = async |values: &[(&str, &str)]| {
        let mut headers = HeaderMap::new();
        for (name, value) in values {
            let name: http::HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        authenticator.authenticate_api_key(&headers).await.map(drop).map_err(|refusal| refusal.reason)
    };
    let bearer = format!("Bearer {token}");
    for good in [
        &[("x-api-key", token.as_str())][..],
        &[("authorization", &bearer)],
        &[("x-api-key", &token), ("authorization", &bearer)],
        &[("x-api-key", ""), ("authorization", &bearer)],
    ] {
        assert_eq!(try_values(good).await, Ok(()), "{good:?}");
    }
    for malformed in [
        &[("x-api-key", other.as_str()), ("authorization", bearer.as_str())][..],
        &[("x-api-key", &token), ("x-api-key", &token)],
        &[("x-api-key", "é")],
        &[("x-api-key", &token), ("authorization", "Basic YTpi")],
    ] {
        assert_eq!(try_values(malformed).await, Err(RefusalReason::Malformed), "{malformed:?}");
    }
    for missing in [&[][..], &[("x-api-key", "")]] {
        assert_eq!(try_values(missing).await, Err(RefusalReason::Missing), "{missing:?}");
    }
}

#[tokio::test]
async fn a_token_has_at_most_8_kib() {
    let sized = |padding: usize| {
        let mut claims = claims("acme");
        claims["pad"] = json!("x".repeat(padding));
        mint(r#"{"alg":"HS256"}"#, &claims.to_string(), SECRET, Algorithm::HS256)
    };
    let authenticator = ours();
    let longest =
        (5_000..7_000).map(sized).take_while(|token| token.len() <= token::MAX_TOKEN_BYTES).last().unwrap();
    assert!(longest.len() > token::MAX_TOKEN_BYTES - 4);
    assert!(ask(&authenticator, &longest).await.is_ok());
    assert_eq!(reason(&authenticator, &format!("{longest}AAAA")).await, RefusalReason::TooLarge);
    assert_eq!(reason(&authenticator, &sized(20_000)).await, RefusalReason::TooLarge);
}

#[tokio::test]
async fn headers_that_bring_a_key_or_an_extension_are_refused() {
    let authenticator = ours();
    let extras = [
        (r#""jwk":{"kty":"oct","k":"AAAA"}"#, RefusalReason::Header),
        (r#""jwk":null"#, RefusalReason::Header),
        (r#""jku":"https://evil/jwks.json""#, RefusalReason::Header),
        (r#""x5u":"https://evil/cert.pem""#, RefusalReason::Header),
        (r#""x5c":["AAAA"]"#, RefusalReason::Header),
        (r#""crit":["b64"],"b64":false"#, RefusalReason::Header),
        (r#""crit":[]"#, RefusalReason::Header),
        (r#""kid":7"#, RefusalReason::Header),
        (r#""kid":null"#, RefusalReason::Header),
        (r#""alg":"HS256""#, RefusalReason::Malformed),
    ];
    for (extra, expected) in extras {
        let header = format!(r#"{{"alg":"HS256",{extra}}}"#);
        let token = mint(&header, &claims("acme").to_string(), SECRET, Algorithm::HS256);
        assert_eq!(reason(&authenticator, &token).await, expected, "{extra}");
    }
}

#[tokio::test]
async fn none_is_rejected_as_an_algorithm_in_every_spelling() {
    let authenticator = ours();
    let spellings =
        ["none", "None", "NONE", "nOnE", "none ", "", "null", "hs256", "HS-256", "HS1", "ES512", "dir"];
    for spelling in spellings {
        let header = json!({ "alg": spelling }).to_string();
        let signed = mint(&header, &claims("acme").to_string(), SECRET, Algorithm::HS256);
        let unsigned = format!("{}.", signed.rsplit_once('.').unwrap().0);
        assert_eq!(reason(&authenticator, &signed).await, RefusalReason::Algorithm, "{spelling}");
        assert_eq!(reason(&authenticator, &unsigned).await, RefusalReason::Algorithm, "{spelling}");
    }
    for header in [r#"{}"#, r#"{"alg":null}"#, r#"{"alg":["HS256"]}"#, r#"{"ALG":"HS256"}"#] {
        let token = mint(header, &claims("acme").to_string(), SECRET, Algorithm::HS256);
        assert_eq!(reason(&authenticator, &token).await, RefusalReason::Algorithm, "{header}");
    }
    let header = r#"{"alg":"HS512"}"#;
    let token = mint(header, &claims("acme").to_string(), SECRET, Algorithm::HS512);
    assert_eq!(reason(&authenticator, &token).await, RefusalReason::Algorithm);
}

#[tokio::test]
async fn what_is_not_three_parts_of_canonical_base64url_json_is_refused() {
    let authenticator = ours();
    let good = token("acme");
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let (header, payload) = signed.split_once('.').unwrap();
    let texts = [
        ".".to_owned(),
        "..".to_owned(),
        "a.b.c".to_owned(),
        signed.to_owned(),
        format!("{good}."),
        format!("{good}.AAAA"),
        format!(".{payload}.{signature}"),
        format!("{header}..{signature}"),
        format!("{header}=.{payload}.{signature}"),
        format!("{header}.{payload}=.{signature}"),
        format!("{header}.{}.{signature}", base64("[]")),
        format!("{header}.{}.{signature}", base64("{} {}")),
        format!("{header}.{}.{signature}", base64(b"{\"a\":\"\xff\"}")),
    ];
    for text in &texts {
        assert_eq!(reason(&authenticator, text).await, RefusalReason::Malformed, "{text}");
    }
    let mut twice = claims("acme").to_string();
    twice.insert_str(1, r#""tenant_id":"globex","#);
    let token = mint(r#"{"alg":"HS256"}"#, &twice, SECRET, Algorithm::HS256);
    assert_eq!(reason(&authenticator, &token).await, RefusalReason::Malformed);
    // The last of 43 base64 characters has two unused bits: only zeros there are canonical.
    let last = signature.chars().last().unwrap();
    let index = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".find(last).unwrap();
    let sloppy =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".as_bytes()[index | 1] as char;
    for text in [format!("{signature}="), format!("{signature}A"), format!("{}{sloppy}", &signature[..42])] {
        assert_eq!(
            reason(&authenticator, &format!("{signed}.{text}")).await,
            RefusalReason::Signature,
            "{text}"
        );
    }
    assert_eq!(reason(&authenticator, &format!("{signed}.")).await, RefusalReason::Signature);
}

#[tokio::test]
async fn only_the_named_issuers_own_keys_verify_a_token() {
    let issuers = json!([issuer("https://id", SECRET), issuer("https://other", OTHER)]);
    let (authenticator, _) = authenticator(issuers);
    let minted = |iss: Value, secret| {
        let mut claims = claims("acme");
        claims["iss"] = iss;
        mint(r#"{"alg":"HS256"}"#, &claims.to_string(), secret, Algorithm::HS256)
    };
    assert!(ask(&authenticator, &minted(json!("https://other"), OTHER)).await.is_ok());
    assert_eq!(
        reason(&authenticator, &minted(json!("https://other"), SECRET)).await,
        RefusalReason::Signature
    );
    assert_eq!(reason(&authenticator, &minted(json!("https://id"), OTHER)).await, RefusalReason::Signature);
    assert_eq!(reason(&authenticator, &minted(json!("https://id/"), SECRET)).await, RefusalReason::Issuer);
    for wrong in [json!(null), json!(["https://id"]), json!(1)] {
        assert_eq!(reason(&authenticator, &minted(wrong, SECRET)).await, RefusalReason::Claims);
    }
}

#[tokio::test]
async fn a_key_is_chosen_by_kid_and_else_only_when_no_other_fits() {
    let keys = json!([
        { "kid": "a", "alg": "HS256", "secret": SECRET }, { "kid": "b", "alg": "HS256", "secret": OTHER },
        { "kid": "c", "alg": "HS384", "secret": SECRET },
    ]);
    let mut issuer = issuer("https://id", SECRET);
    issuer["keys"] = keys;
    let (authenticator, _) = authenticator(json!([issuer]));
    let minted =
        |header: &str, secret, algorithm| mint(header, &claims("acme").to_string(), secret, algorithm);
    assert!(
        ask(&authenticator, &minted(r#"{"alg":"HS256","kid":"b"}"#, OTHER, Algorithm::HS256)).await.is_ok()
    );
    assert!(ask(&authenticator, &minted(r#"{"alg":"HS384"}"#, SECRET, Algorithm::HS384)).await.is_ok());
    let refused = [
        (r#"{"alg":"HS256","kid":"a"}"#, OTHER, Algorithm::HS256, RefusalReason::Signature),
        (r#"{"alg":"HS256"}"#, SECRET, Algorithm::HS256, RefusalReason::Kid),
        (r#"{"alg":"HS256","kid":""}"#, SECRET, Algorithm::HS256, RefusalReason::Kid),
        (r#"{"alg":"HS256","kid":"../../dev/null"}"#, SECRET, Algorithm::HS256, RefusalReason::Kid),
        (r#"{"alg":"HS256","kid":"a' OR '1'='1"}"#, SECRET, Algorithm::HS256, RefusalReason::Kid),
        (r#"{"alg":"HS384","kid":"a"}"#, SECRET, Algorithm::HS384, RefusalReason::Algorithm),
        (r#"{"alg":"RS256","kid":"a"}"#, SECRET, Algorithm::HS256, RefusalReason::Algorithm),
    ];
    for (header, secret, algorithm, expected) in refused {
        assert_eq!(reason(&authenticator, &minted(header, secret, algorithm)).await, expected, "{header}");
    }
}

#[tokio::test]
async fn a_remembered_token_still_expires_to_the_second() {
    let (authenticator, now) = authenticator(json!([issuer("https://id", SECRET)]));
    let token = token("acme");
    assert!(ask(&authenticator, &token).await.is_ok());
    now.store(1_029, Ordering::Relaxed);
    let first = ask(&authenticator, &token).await.unwrap();
    assert!(Arc::ptr_eq(&first, &ask(&authenticator, &token).await.unwrap()), "the second is remembered");
    now.store(1_030, Ordering::Relaxed);
    let refusal = ask(&authenticator, &token).await.unwrap_err();
    assert_eq!((refusal.reason, refusal.reason.code()), (RefusalReason::Expired, Code::TokenExpired));
    assert_eq!(
        reason(&ours_at(1_030), &token).await,
        RefusalReason::Expired,
        "and so it is when it was never seen"
    );
}

fn ours_at(second: u64) -> Authenticator {
    let (authenticator, now) = authenticator(json!([issuer("https://id", SECRET)]));
    now.store(second, Ordering::Relaxed);
    authenticator
}

#[tokio::test]
async fn the_configured_leeway_applies_at_both_ends() {
    let mut issuer = issuer("https://id", SECRET);
    issuer["leeway"] = json!("0s");
    let (authenticator, now) = authenticator(json!([issuer]));
    let mut claims = claims("acme");
    claims["nbf"] = json!(950);
    let token = mint(r#"{"alg":"HS256"}"#, &claims.to_string(), SECRET, Algorithm::HS256);
    for (second, expected) in [
        (949, Some(RefusalReason::NotYetValid)),
        (950, None),
        (999, None),
        (1_000, Some(RefusalReason::Expired)),
    ] {
        now.store(second, Ordering::Relaxed);
        assert_eq!(ask(&authenticator, &token).await.err().map(|r| r.reason), expected, "{second}");
    }
}

#[tokio::test]
async fn tokens_of_two_tenants_never_share_an_identity() {
    let authenticator = Arc::new(ours());
    let tenants: Vec<String> = (0..50).map(|n| format!("tenant-{n}")).collect();
    let tokens: Vec<String> = tenants.iter().map(|tenant| token(tenant)).collect();
    let mut calls = tokio::task::JoinSet::new();
    for round in 0..40 {
        for (tenant, token) in tenants.iter().zip(&tokens) {
            let (authenticator, tenant, token) = (Arc::clone(&authenticator), tenant.clone(), token.clone());
            calls.spawn(async move {
                let verified = ask(&authenticator, &token).await.unwrap();
                assert_eq!(*verified.invoker().unwrap().tenant, *tenant, "round {round}");
            });
        }
    }
    let answered = calls.join_all().await;
    assert_eq!(answered.len(), 2_000);
}

#[tokio::test]
async fn scopes_are_checked_on_every_call_of_a_remembered_token() {
    let authenticator = ours();
    let token = token("acme");
    for _ in 0..2 {
        let verified = ask(&authenticator, &token).await.unwrap();
        assert!(verified.invoker().is_ok());
        assert_eq!(verified.require(Scope::Admin).unwrap_err().reason, RefusalReason::Scope);
    }
}

#[tokio::test]
async fn no_answer_or_debug_output_shows_a_secret_or_a_part_of_the_token() {
    let authenticator = ours();
    let debug = format!("{authenticator:?}");
    assert!(!debug.contains(SECRET) && !debug.contains(&format!("{:?}", SECRET.as_bytes())), "{debug}");
    let mut claims = claims("canary-tenant\n");
    claims["aud"] = json!("canary-audience");
    for header in
        [r#"{"alg":"canary"}"#, r#"{"alg":"HS256","kid":"canary"}"#, r#"{"alg":"HS256","crit":["canary"]}"#]
    {
        for secret in [SECRET, OTHER] {
            let token = mint(header, &claims.to_string(), secret, Algorithm::HS256);
            let refusal = ask(&authenticator, &token).await.unwrap_err();
            let error = crate::core::error::Error::from(refusal.clone());
            assert!(!format!("{refusal} {refusal:?} {error:?}").contains("canary"));
        }
    }
}

#[test]
fn reasons_have_distinct_names_and_a_code_each() {
    let names: std::collections::BTreeSet<_> =
        RefusalReason::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(names.len(), RefusalReason::ALL.len());
    for reason in RefusalReason::ALL {
        let expected = match reason {
            RefusalReason::Missing => Code::TokenMissing,
            RefusalReason::Expired => Code::TokenExpired,
            RefusalReason::Tenant => Code::TenantUnknown,
            RefusalReason::Scope => Code::ScopeMissing,
            RefusalReason::KeysUnavailable => Code::Internal,
            _ => Code::TokenInvalid,
        };
        assert_eq!(reason.code(), expected, "{reason:?}");
    }
}

#[test]
fn every_mistake_in_the_issuers_is_reported_with_its_place() {
    let issuers = json!([
        { "issuer": "a", "audience": "x", "tenants": ["ok", "*"], "keys": [
            { "alg": "HS256", "secret": "short" }, { "secret": SECRET }, { "alg": "none", "secret": SECRET },
            { "alg": "RS256", "secret": SECRET }, { "alg": "HS256", "secret": SECRET },
            { "alg": "HS256", "secret": OTHER }, { "alg": "HS256" },
        ] },
        { "issuer": "a", "audience": "x", "keys": [] },
    ]);
    let problems = Authenticator::new(&auth(issuers)).unwrap_err();
    let pointers: Vec<_> = problems.iter().map(|problem| problem.pointer.as_str()).collect();
    assert_eq!(
        pointers,
        [
            "/auth/issuers/0/tenants",
            "/auth/issuers/0/keys/0/secret",
            "/auth/issuers/0/keys/1/alg",
            "/auth/issuers/0/keys/2/alg",
            "/auth/issuers/0/keys/3/secret",
            "/auth/issuers/0/keys/5/kid",
            "/auth/issuers/0/keys/6",
            "/auth/issuers/1/issuer",
            "/auth/issuers/1/tenants",
            "/auth/issuers/1/keys",
        ]
    );
    assert!(!format!("{problems:?}").contains(SECRET));
    assert_eq!(Authenticator::new(&auth(json!([]))).unwrap_err()[0].pointer, "/auth/issuers");
}

proptest! {
    #[test]
    fn a_token_changed_in_any_way_never_authenticates(
        position in any::<prop::sample::Index>(), byte in 0x21u8..0x7f, kind in 0u8..4, length in 1usize..20,
    ) {
        let good = token("acme");
        let mut bytes = good.clone().into_bytes();
        let at = position.index(bytes.len());
        match kind {
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            2 => { bytes.drain(at..(at + length).min(good.len())); }
            _ => bytes[at..].reverse(),
        }
        let changed = String::from_utf8(bytes).unwrap();
        prop_assume!(changed != good);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let authenticator = ours();
        prop_assert!(runtime.block_on(ask(&authenticator, &good)).is_ok());
        let refusal = runtime.block_on(ask(&authenticator, &changed)).unwrap_err();
        prop_assert!(matches!(refusal.reason.code(), Code::TokenInvalid), "{refusal}");
    }
}

#[tokio::test]
async fn what_is_remembered_for_one_port_says_nothing_about_the_other() {
    let mut issuer = issuer("https://id", SECRET);
    issuer["admin_audience"] = json!("operators");
    issuer["scopes"] = json!(["hookgate:invoke", "hookgate:read"]);
    let (authenticator, _) = authenticator(json!([issuer]));
    let ask = async |port, token: &str| {
        let headers = HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {token}").parse().unwrap())]);
        authenticator.authenticate_at(port, &headers).await.map(drop).map_err(|refusal| refusal.reason)
    };
    for (audience, good, bad) in
        [("hookgate", Port::Data, Port::Admin), ("operators", Port::Admin, Port::Data)]
    {
        let mut claims = claims("acme");
        claims["aud"] = json!(audience);
        let token = mint(r#"{"alg":"HS256"}"#, &claims.to_string(), SECRET, Algorithm::HS256);
        assert_eq!(ask(good, &token).await, Ok(()), "{audience}");
        for _ in 0..2 {
            assert_eq!(ask(bad, &token).await, Err(RefusalReason::Audience), "{audience}");
        }
        assert_eq!(ask(good, &token).await, Ok(()), "{audience}");
    }
}
