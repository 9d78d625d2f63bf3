//! Tests `hookgate token`: gateways accept what it mints, and what it reports about a token is what a
//! gateway answers.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer},
    gateway::Setup,
    openapi::Port,
    token::{ADMIN_AUDIENCE, ISSUER, SECRET, Token},
};
use jsonwebtoken::{Algorithm, AlgorithmFamily, EncodingKey};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::{
    auth::keys::{Keys, claims, token},
    cli::support::{CommandOutput, Folder, smallest},
    edge::support::{POINT, payload},
};

/// A file with an admin port, all scopes, and a second issuer with other claim names for one tenant.
fn file() -> Value {
    let mut file = smallest();
    file["tenants"]["list"].as_array_mut().unwrap().push(json!({ "id": "other" }));
    let scopes = json!(["hookgate:invoke", "hookgate:read", "hookgate:admin", "hookgate:plugin"]);
    let issuers = file["auth"]["issuers"].as_array_mut().unwrap();
    issuers[0]["admin_audience"] = json!(ADMIN_AUDIENCE);
    issuers[0]["scopes"] = scopes;
    issuers.push(json!({
        "issuer": "nested",
        "audience": "second",
        "keys": [{ "kid": "k-1", "alg": "HS512", "secret": SECRET }],
        "tenants": { "fixed": "acme" },
        "claims": { "tenant": "/org/id", "operator": "/org/who", "scopes": "/org/may" },
    }));
    issuers.push(json!({
        "issuer": "list",
        "audience": "third",
        "keys": [{ "kid": "k-2", "alg": "HS384", "secret": SECRET }],
        "tenants": ["acme", "other"],
        "claims": { "tenant": "/org~1a/id", "operator": "who" },
    }));
    file
}

async fn inspect(folder: &Folder, token: &str) -> (CommandOutput, Value) {
    let args = ["token", "inspect", "--config", "f.yaml", "--output", "json"];
    let ran = folder.run_with(&args, &[], token).await;
    assert!(matches!(ran.code, Some(0 | 1)), "{ran:?}");
    let said = ran.json();
    (ran, said)
}

async fn mint(folder: &Folder, args: &[&str]) -> String {
    let ran = folder.run(&[&["token", "mint", "--config", "f.yaml"], args].concat()).await;
    assert_eq!(
        (ran.code, ran.stderr.as_str(), ran.stdout.lines().count()),
        (Some(0), "", 1),
        "{args:?}: {ran:?}"
    );
    ran.stdout.trim_end().to_owned()
}

#[tokio::test]
async fn a_minted_token_is_accepted_by_a_gateway_with_that_file() {
    let folder = Folder::new();
    folder.write("f.yaml", &file().to_string());
    let gateway = Setup::file(&file().to_string()).start().await;
    for args in [
        &["--tenant", "acme", "--issuer", ISSUER][..],
        &["--tenant", "acme", "--issuer", "nested", "--ttl", "1s"],
        &["--tenant", "acme", "--issuer", "list", "--operator", "ada", "--scope", "hookgate:invoke"],
        &["--tenant", "acme", "--issuer", ISSUER, "--scope", "hookgate:invoke", "--scope", "hookgate:read"],
    ] {
        let token = mint(&folder, args).await;
        let answer = gateway.http(&token).call(POINT, payload()).await;
        assert_eq!(answer.status, 200, "{args:?}: {answer:?}");
        let (ran, said) = inspect(&folder, &token).await;
        assert_eq!(
            (ran.code, &said["data"]["accepted"], &said["tenant"]),
            (Some(0), &json!(true), &json!("acme"))
        );
        assert_eq!(said["operator"], if args.contains(&"ada") { "ada" } else { "hookgate-token-mint" });
    }
    for args in [&["--admin"][..], &["--admin", "--tenant", "acme", "--issuer", ISSUER]] {
        let token = mint(&folder, args).await;
        let answer = gateway.admin(&token).get("/admin/v1/tenants/acme/plan").await.unwrap();
        assert_eq!(answer.status, 200, "{args:?}: {answer:?}");
        let (ran, said) = inspect(&folder, &token).await;
        assert_eq!((ran.code, &said["admin"]["accepted"]), (Some(0), &json!(true)));
        assert_eq!(said["data"]["reason"], "audience", "{said}");
    }
    // Without --issuer, it uses the only issuer that may speak for the tenant.
    folder.write("f.yaml", &file().to_string().replace("\"tenants\":\"*\"", "\"tenants\":[\"gone\"]"));
    let (_, said) = inspect(&folder, &mint(&folder, &["--tenant", "other", "--issuer", "list"]).await).await;
    assert_eq!(
        (&said["issuer"], &said["key"]),
        (&json!("list"), &json!({ "kid": "k-2", "alg": "HS384", "jwks_url": null }))
    );
}

#[tokio::test]
async fn no_variable_of_a_plugin_and_no_providers_key_is_needed_for_a_token() {
    let mut file = smallest();
    file["llm"] = json!({
        "upstreams": [{ "name": "openai", "base_url": "https://api.openai.com/v1", "credential": "${PROVIDER_KEY}" }],
        "models": [{ "match": "*", "upstream": "openai" }],
    });
    let credentials = json!({ "openai": "${file:/nowhere/key-of-acme}" });
    file["tenants"] = json!({ "list": [{ "id": "acme", "llm": { "credentials": credentials } }] });
    file["plugins"] =
        json!([{ "name": "away", "endpoint": "unix:///nowhere.sock", "config": { "key": "${AWAY_KEY}" } }]);
    file["bindings"] = json!([{ "plugin": "away", "tenant": "*", "priority": 1 }]);
    let folder = Folder::new();
    folder.write("f.yaml", &format!("{file:#}"));
    let token = mint(&folder, &["--tenant", "acme"]).await;
    let (ran, _) = inspect(&folder, &token).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // A start needs it.
    let ran = folder.run(&["config", "check", "f.yaml"]).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    for needed in ["AWAY_KEY is not set", "PROVIDER_KEY is not set", "/nowhere/key-of-acme"] {
        assert!(ran.stderr.contains(needed), "{ran:?}");
    }
    // The secret that signs the token is needed.
    file["auth"]["issuers"][0]["keys"][0]["secret"] = json!("${SIGNING_KEY}");
    folder.write("f.yaml", &format!("{file:#}"));
    let ran = folder.run(&["token", "mint", "--config", "f.yaml", "--tenant", "acme"]).await;
    assert!(ran.code == Some(2) && ran.stderr.contains("SIGNING_KEY is not set"), "{ran:?}");
    assert!(!ran.stderr.contains("AWAY_KEY") && !ran.stderr.contains("PROVIDER_KEY"), "{ran:?}");
}

/// With a registry, the file alone doesn't list the served tenants.
#[tokio::test]
async fn a_tenant_that_the_registry_may_have_gets_a_token_with_a_word_on_that() {
    let folder = Folder::new();
    let mut file = file();
    file["store"] = json!({ "url": "sqlite:/nowhere/hookgate.db" });
    file["tenants"]["list"].as_array_mut().unwrap().last_mut().unwrap()["enabled"] = json!(false);
    folder.write("f.yaml", &file.to_string());
    let minted =
        folder.run(&["token", "mint", "--config", "f.yaml", "--tenant", "nova", "--issuer", ISSUER]).await;
    let said = "hookgate: the file doesn't list tenant `nova`, and the registry at sqlite:";
    for ran in [&minted, &folder.run(&["token", "inspect", "--config", "f.yaml", minted.stdout.trim()]).await]
    {
        assert!(ran.code == Some(0) && ran.stderr.starts_with(said), "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    }
    // Tenants in the file are the file's, so the registry can't differ.
    mint(&folder, &["--tenant", "acme", "--issuer", ISSUER]).await;
    let off =
        folder.run(&["token", "mint", "--config", "f.yaml", "--tenant", "other", "--issuer", ISSUER]).await;
    assert!(off.code == Some(1) && off.stderr.contains("The tenant is disabled"), "{off:?}");
    let explained = ["explain", "--config", "f.yaml", "--tenant", "nova", "--point", "before_response"];
    let explained = folder.run(&explained).await;
    let unread = "hookgate: the registry at sqlite:";
    assert!(explained.code == Some(0) && explained.stderr.starts_with(unread), "{explained:?}");
    assert!(explained.stderr.contains("--addr"), "{explained:?}");
}

/// Texts that aren't tokens, and tokens with a wrong header or signature.
fn misshapen() -> Vec<String> {
    let minted = Token::for_tenant("acme").mint();
    let (signed, signature) = minted.rsplit_once('.').unwrap();
    let (_, claims) = signed.split_once('.').unwrap();
    let with_header =
        |header: Value| format!("{}.{claims}.{signature}", URL_SAFE_NO_PAD.encode(header.to_string()));
    vec![
        "nonsense".into(),
        "a.b.c".into(),
        "...".into(),
        format!("{minted}.more"),
        format!("{minted} {minted}"),
        format!("{signed}."),
        format!("{signed}.AAAA"),
        with_header(json!({ "alg": "none" })),
        with_header(json!({ "alg": "HS256", "jwk": {} })),
        with_header(json!({ "alg": "HS256", "crit": ["x"] })),
        with_header(json!({ "alg": "HS256", "kid": 1 })),
        with_header(json!({ "alg": "RS256" })),
        with_header(json!([])),
        "x".repeat(9_000),
    ]
}

/// Tokens with one wrong claim each, and some that are valid at one port or at both.
fn signed() -> Vec<Token> {
    let good = Token::for_tenant("acme");
    let operators = Token::for_operators();
    let by = |issuer: &str, algorithm| {
        let key = EncodingKey::from_secret(SECRET.as_bytes());
        good.clone().issuer(issuer).audience("third").claim("who", "ada").signed_with(algorithm, key)
    };
    vec![
        good.clone(),
        good.clone().kid("any"),
        good.clone().issuer("https://else"),
        good.clone().issuer("nested"),
        by("list", Algorithm::HS384),
        by("list", Algorithm::HS384).kid("k-1"),
        by("list", Algorithm::HS384).claim("org/a", json!({ "id": "acme" })),
        by("list", Algorithm::HS384).claim("org/a", json!({ "id": "gone" })),
        by(ISSUER, Algorithm::HS384),
        good.clone().signed_with(Algorithm::HS256, EncodingKey::from_secret(&[7; 32])),
        good.clone().without("iss"),
        good.clone().claim("iss", 1),
        good.clone().audience("else"),
        good.clone().claim("aud", json!(["else", "hookgate"])),
        good.clone().claim("aud", json!(["else", ADMIN_AUDIENCE])),
        good.clone()
            .claim("aud", json!(["hookgate", ADMIN_AUDIENCE]))
            .scopes("hookgate:invoke hookgate:read"),
        good.clone().without("aud"),
        good.clone().expiring_in(-120),
        good.clone().expiring_in(-2),
        good.clone().without("exp"),
        good.clone().claim("exp", "soon"),
        good.clone().valid_in(120),
        good.clone().without("sub"),
        good.clone().claim("sub", ""),
        good.clone().without("scope"),
        good.clone().scopes("hookgate:read"),
        good.clone().scopes("other:invoke"),
        good.clone().claim("scope", 7),
        good.clone().without("tenant_id"),
        good.clone().claim("tenant_id", "*"),
        good.clone().claim("tenant_id", "nobody"),
        good.clone().claim("tenant_id", "gone"),
        operators.clone(),
        operators.clone().scopes("hookgate:admin"),
        operators.clone().scopes("hookgate:invoke"),
        operators.clone().expiring_in(-3_600),
        operators.claim("tenant_id", "acme"),
    ]
}

/// The code and the sentence of an error; `None` if the token was accepted.
fn answered(answer: &HttpAnswer) -> Option<(Value, Value)> {
    (answer.status != 200).then(|| (answer.body["code"].clone(), answer.body["detail"].clone()))
}

fn said_at(said: &Value, port: &str) -> Option<(Value, Value)> {
    let port = &said[port];
    (port["accepted"] != true).then(|| (port["code"].clone(), port["detail"].clone()))
}

#[tokio::test]
async fn what_is_said_of_a_token_is_what_the_gateway_answers_on_both_ports() {
    let folder = Folder::new();
    folder.write("f.yaml", &file().to_string());
    let gateway = Setup::file(&file().to_string()).start().await;
    let mut reasons = std::collections::BTreeSet::new();
    for token in misshapen().into_iter().chain(signed().iter().map(Token::mint)) {
        let data = answered(&gateway.http(&token).call(POINT, payload()).await);
        let admin = HttpAgent::new(gateway.admin_addr().unwrap()).of(Port::Admin).with_token(&token);
        let admin = answered(&admin.get("/admin/v1/tenants/acme/plan").await.unwrap());
        let (ran, said) = inspect(&folder, &token).await;
        assert_eq!(said_at(&said, "data"), data, "{token}: {said:#}");
        assert_eq!(said_at(&said, "admin"), admin, "{token}: {said:#}");
        let accepted = data.is_none() || admin.is_none();
        assert_eq!((ran.code, &said["accepted"]), (Some(i32::from(!accepted)), &json!(accepted)), "{said:#}");
        let signature = token.rsplit_once('.').map(|(_, signature)| signature).filter(|text| text.len() > 20);
        let all = format!("{}{}", ran.stdout, ran.stderr);
        assert!(signature.is_none_or(|signature| !all.contains(signature)), "{all}");
        assert!(!all.contains(SECRET), "{all}");
        let named = said["claims"]["iss"].as_str().filter(|name| [ISSUER, "nested", "list"].contains(name));
        assert_eq!(said["issuer"].as_str(), named, "{said:#}");
        reasons.extend(["data", "admin"].map(|port| said[port]["reason"].as_str().unwrap_or("").to_owned()));
    }
    for reason in [
        "malformed",
        "header",
        "algorithm",
        "issuer",
        "kid",
        "signature",
        "audience",
        "claims",
        "expired",
        "not_yet_valid",
        "tenant",
        "scope",
        "too_large",
    ] {
        assert!(reasons.contains(reason), "{reason} is not among {reasons:?}");
    }
}

/// An issuer that publishes this set and counts requests.
async fn issuer(set: Value) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/jwks.json", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let body = set.to_string();
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let _ = stream.write_all((head + &body).as_bytes()).await;
        }
    });
    (url, asked)
}

#[tokio::test]
async fn keys_are_fetched_once_and_only_of_the_token_s_own_issuer() {
    let keys = Keys::ed25519();
    let mut jwk = keys.jwk(AlgorithmFamily::Ed);
    jwk["kid"] = json!("ed-1");
    let (url, asked) = issuer(json!({ "keys": [jwk] })).await;
    let mut file = file();
    let publishes = json!({ "issuer": "published", "audience": "hookgate", "jwks_url": url, "tenants": "*" });
    file["auth"]["issuers"].as_array_mut().unwrap().push(publishes);
    let folder = Folder::new();
    folder.write("f.yaml", &file.to_string());
    let signed = |kid: &str| {
        token(
            &json!({ "alg": "EdDSA", "kid": kid }),
            &claims("published", "acme"),
            &keys.signs,
            Algorithm::EdDSA,
        )
    };

    inspect(&folder, &Token::for_tenant("acme").mint()).await;
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    let (ran, said) = inspect(&folder, &signed("ed-1")).await;
    assert_eq!((ran.code, asked.swap(0, Ordering::SeqCst)), (Some(0), 1), "{said:#}");
    assert_eq!(said["key"], json!({ "kid": "ed-1", "alg": "EdDSA", "jwks_url": url }));
    // A missing key doesn't cause a second request.
    let (ran, said) = inspect(&folder, &signed("ed-2")).await;
    assert_eq!((ran.code, asked.load(Ordering::SeqCst)), (Some(1), 1), "{said:#}");
    assert_eq!((&said["data"]["reason"], &said["key"]), (&json!("kid"), &json!(null)));

    let ran = folder
        .run(&["token", "mint", "--config", "f.yaml", "--tenant", "acme", "--issuer", "published"])
        .await;
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("public keys only"), "{ran:?}");

    let nowhere = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    folder.write("f.yaml", &file.to_string().replace(&url, &format!("http://{nowhere}/")));
    let (ran, said) = inspect(&folder, &signed("ed-1")).await;
    assert_eq!((ran.code, &said["data"]["reason"]), (Some(1), &json!("keys_unavailable")), "{said:#}");
}
