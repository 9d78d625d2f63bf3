//! Who may use the storage: forged, expired and foreign tokens, and capabilities.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hookgate_proto::host::v1::{
    RenewTokenRequest, RenewTokenResponse, token_service_client::TokenServiceClient,
};
use hookgate_tests::{fake::FakePlugin, metrics::Scrape, token::token};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

use super::support::{self, POINT, add, call_token, dial, endpoint, get, put, setup, storing, with_token};

fn reason(status: &Status) -> (Code, String) {
    (status.code(), status.get_details_error_info().map(|info| info.reason).unwrap_or_default())
}

fn denied(why: &str) -> (Code, String) {
    (Code::PermissionDenied, why.to_owned())
}

/// A token with these claims, signed with `secret`.
fn forged(claims: &Value, secret: &[u8]) -> String {
    let header = Header {
        typ: Some("hookgate-host+jwt".into()),
        kid: Some("1".into()),
        ..Header::new(Algorithm::HS256)
    };
    encode(&header, claims, &EncodingKey::from_secret(secret)).unwrap()
}

#[tokio::test]
async fn tokens_that_the_gateway_did_not_sign_are_refused_and_counted() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), storing("quota").start().await);
    let gateway = setup(&folder, &[&plugin]).start().await;
    let channel = dial(&endpoint(&plugin)).await;
    let own = call_token(&gateway, &plugin, "acme").await;
    let (head, signature) = own.rsplit_once('.').unwrap();
    let changed: String = signature.chars().rev().collect();
    let year = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 31_000_000;
    let claims = json!({ "sub": "quota", "tenant": "acme", "cap": ["storage:read"], "exp": year });
    let forged = [
        forged(&claims, &[0; 32]),
        format!("{head}.{changed}"),
        token("acme"), // an agent's
        "x".to_owned(),
    ];
    for token in &forged {
        let refused = get(&mut with_token(channel.clone(), token), "k").await.unwrap_err();
        assert_eq!(reason(&refused), denied("TOKEN_INVALID"), "{token}");
    }
    let mut without = hookgate_proto::host::v1::storage_service_client::StorageServiceClient::new(channel);
    let refused = without.get(hookgate_proto::host::v1::GetRequest { key: "k".into() }).await.unwrap_err();
    assert_eq!(reason(&refused), denied("TOKEN_MISSING"));
    let metrics = Scrape::of(&gateway).await;
    let counted = |reason| metrics.sum("hookgate_host_refusals_total", &[("hookgate_reason", reason)]);
    assert_eq!((counted("invalid"), counted("missing")), (4.0, 1.0));
    gateway.log().wait_for(|line| line.field("event") == Some(&json!("host.refused"))).await;
}

#[tokio::test]
async fn a_calls_token_ends_5_s_after_the_calls_deadline() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), storing("quota").start().await);
    let gateway = setup(&folder, &[&plugin]).start().await;
    let body = json!({ "payload": { "tool_name": "t", "args": {} } });
    let request = gateway.http(&token("acme")).request(http::Method::POST, "/v1/before-tool-call");
    let answer = request.header("hookgate-timeout-ms", "1000").json(&body).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let token = plugin.seen().pop().unwrap().call.host_token;
    let mut client = with_token(dial(&endpoint(&plugin)).await, &token);
    put(&mut client, "k", "v").await.unwrap();
    let expires = exp(&token);
    let left = expires - SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((3.0..=7.0).contains(&left), "{left}");
    tokio::time::sleep(Duration::from_secs_f64(left.max(0.0) + 1.1)).await;
    assert_eq!(reason(&get(&mut client, "k").await.unwrap_err()), denied("TOKEN_EXPIRED"));
}

/// When `token` expires, in seconds since 1970.
fn exp(token: &str) -> f64 {
    use base64::Engine as _;
    let claims = token.split('.').nth(1).unwrap();
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims).unwrap();
    serde_json::from_slice::<HashMap<String, Value>>(&claims).unwrap()["exp"].as_f64().unwrap()
}

#[tokio::test]
async fn a_plugin_may_do_only_what_it_asked_for() {
    let (folder, reader) = (
        tempfile::tempdir().unwrap(),
        FakePlugin::named("reader").manifest(|manifest| manifest.capabilities = vec!["storage:read".into()]),
    );
    let reader = reader.start().await;
    let gateway = setup(&folder, &[&reader]).start().await;
    let mut client = support::of_tenant(&gateway, &reader, "acme").await;
    assert_eq!(get(&mut client, "k").await.unwrap(), None);
    for refused in [put(&mut client, "k", "v").await.err(), add(&mut client, "k", None).await.err()] {
        assert_eq!(reason(&refused.unwrap()), denied("CAPABILITY_MISSING"));
    }
}

#[tokio::test]
async fn a_plugin_renews_its_own_token_and_loses_it_with_its_registration() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), storing("quota").start().await);
    let built = setup(&folder, &[&plugin]);
    let gateway = built.clone().start().await;
    let channel = dial(&endpoint(&plugin)).await;
    let own = plugin.initialized().pop().unwrap().host_token;
    let renewed = renew(channel.clone(), &own).await.unwrap();
    assert!(renewed.expires_in_ms >= 86_000_000, "{renewed:?}");
    let mut client = with_token(channel.clone(), &renewed.token);
    put(&mut client, "k", "v").await.unwrap();
    // A call's token ends with the call.
    let call = call_token(&gateway, &plugin, "acme").await;
    assert_eq!(reason(&renew(channel.clone(), &call).await.unwrap_err()), denied("CAPABILITY_MISSING"));
    let refusals = Scrape::of(&gateway).await.sum("hookgate_host_refusals_total", &[]);
    assert_eq!(refusals, 1.0, "it is counted");

    let other = FakePlugin::named("other").start().await;
    let without = support::stored_at(&url(&folder), folder.path(), &[])
        .set("/server/host_addr", "127.0.0.1:0")
        .plugin(&other)
        .binding("other", 1);
    gateway.reload(&without);
    gateway.hang_up();
    gateway.wait_for_revision(2).await;
    assert_eq!(reason(&get(&mut client, "k").await.unwrap_err()), denied("PLUGIN_UNREGISTERED"));
    assert_eq!(reason(&renew(channel, &renewed.token).await.unwrap_err()), denied("PLUGIN_UNREGISTERED"));
    let answer = gateway.http(&token("acme")).call(POINT, json!({ "tool_name": "t", "args": {} })).await;
    assert_eq!(answer.status, 200);
}

fn url(folder: &tempfile::TempDir) -> String {
    format!("sqlite:{}", folder.path().join("data.db").display())
}

async fn renew(channel: tonic::transport::Channel, token: &str) -> Result<RenewTokenResponse, Status> {
    let mut request = Request::new(RenewTokenRequest {});
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    TokenServiceClient::new(channel).renew_token(request).await.map(tonic::Response::into_inner)
}
