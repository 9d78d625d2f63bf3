//! Registrations that are refused: by their token, their endpoint, or the plugin's entry.

use hookgate_tests::{
    fake::FakePlugin,
    gateway::{Gateway, ProcessExit, Setup},
    metrics::Scrape,
    token::Token,
};
use serde_json::json;
use tempfile::TempDir;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::support::{Registration, event, registering, setup};
use crate::admin::registry::support::{administrator, get};

const ENDPOINT: &str = "http://127.0.0.1:7000";

async fn refused(folder: &TempDir, token: &Token, plugin: &str, endpoint: &str) -> (Code, String, String) {
    let status = Registration::begin(folder, token, plugin, endpoint).await.err().expect("it is refused");
    summary(&status)
}

/// Code, reason, and the field at fault or else the message.
fn summary(status: &Status) -> (Code, String, String) {
    let reason = status.get_details_error_info().map(|info| info.reason).unwrap_or_default();
    let violation = status.get_details_bad_request().and_then(|bad| bad.field_violations.into_iter().next());
    let said = violation.map_or_else(|| status.message().to_owned(), |violation| violation.field);
    (status.code(), reason, said)
}

/// What a gateway that did not start wrote.
fn said(exit: &ProcessExit) -> String {
    exit.log.lines().into_iter().map(|line| line.text + "\n").collect()
}

fn is(code: Code, reason: &str) -> (Code, String) {
    (code, reason.to_owned())
}

#[tokio::test]
async fn tokens_that_may_not_register_the_plugin_are_refused_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = setup(&folder).start().await;
    let good = registering(&["guard"]);
    for (token, expected) in [
        (Token::for_tenant("acme"), is(Code::Unauthenticated, "TOKEN_INVALID")),
        (good.clone().expiring_in(-60), is(Code::Unauthenticated, "TOKEN_EXPIRED")),
        (good.clone().issuer("https://evil.test"), is(Code::Unauthenticated, "TOKEN_INVALID")),
        (good.clone().claim("plugins", json!({ "guard": true })), is(Code::Unauthenticated, "TOKEN_INVALID")),
        (good.clone().scopes("hookgate:admin"), is(Code::PermissionDenied, "SCOPE_MISSING")),
        (good.clone().claim("plugins", json!(["quota"])), is(Code::PermissionDenied, "PLUGIN_NOT_COVERED")),
        (good.clone().claim("plugins", "guard2 guar"), is(Code::PermissionDenied, "PLUGIN_NOT_COVERED")),
        (good.clone().without("plugins"), is(Code::PermissionDenied, "PLUGIN_NOT_COVERED")),
        (good.clone().claim("tenant_id", "acme"), is(Code::Unauthenticated, "TOKEN_INVALID")),
    ] {
        let (code, reason, said) = refused(&folder, &token, "guard", ENDPOINT).await;
        assert_eq!((code, reason), expected, "{said}");
    }
    let failures = Scrape::of(&gateway).await.sum("hookgate_auth_failures_total", &[]);
    assert!((failures - 9.0).abs() < 0.1, "{failures}");
    assert_eq!(event(&gateway, "auth.refused").await["port"], "host");
    assert!(
        Registration::begin(&folder, &good.claim("plugins", "a guard b"), "guard", ENDPOINT).await.is_ok()
    );
}

#[tokio::test]
async fn endpoints_beyond_the_egress_policy_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = setup(&folder).set("/egress/socket_dirs", json!(["/run/plugins"])).start().await;
    let token = registering(&["guard"]);
    for endpoint in ["http://10.0.0.1:7000", "https://192.0.2.1:443", "unix:///etc/guard.sock"] {
        let (code, reason, said) = refused(&folder, &token, "guard", endpoint).await;
        assert_eq!((code, &*reason), (Code::PermissionDenied, "ENDPOINT_NOT_PERMITTED"), "{said}");
        assert!(said.contains("`egress."), "{said}");
    }
    let plugins = get(&gateway.admin(&administrator()), "plugins").await;
    assert_eq!(plugins.body["plugins"], json!([]), "none was added");
    let long = format!("http://{}:80", "a".repeat(400));
    let malformed = [
        "",
        "guard:80",
        "http://a",
        "http://a:1/b",
        "dns:///a:1",
        "ftp://a:1",
        "unix://a.sock",
        "http://169.254.169.254:80",
        &long,
    ];
    for endpoint in malformed {
        let found = refused(&folder, &token, "guard", endpoint).await;
        assert_eq!(found, (Code::InvalidArgument, "FIELD_INVALID".into(), "endpoint".into()), "{endpoint}");
    }
    for plugin in ["", "no name", "@registrations"] {
        let found = refused(&folder, &token, plugin, ENDPOINT).await;
        assert_eq!(found, (Code::InvalidArgument, "FIELD_INVALID".into(), "plugin".into()), "{plugin}");
    }
}

#[tokio::test]
async fn a_plugin_with_configured_endpoints_does_not_register() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), FakePlugin::named("guard").start().await);
    let _gateway = setup(&folder).plugin(&plugin).start().await;
    let (code, reason, said) = refused(&folder, &registering(&["guard"]), "guard", ENDPOINT).await;
    assert_eq!((code, &*reason), (Code::FailedPrecondition, "ENDPOINTS_CONFIGURED"), "{said}");
}

#[tokio::test]
async fn a_plugin_that_must_be_verified_registers_no_plaintext_endpoint() {
    let folder = tempfile::tempdir().unwrap();
    let entry = json!([{ "name": "guard", "self_registration": true, "tls": { "server_name": "guard" } }]);
    let _gateway = setup(&folder).set("/plugins", entry).start().await;
    let token = registering(&["guard"]);
    let (code, reason, said) = refused(&folder, &token, "guard", ENDPOINT).await;
    assert_eq!((code, &*reason), (Code::PermissionDenied, "ENDPOINT_NOT_PERMITTED"), "{said}");
    assert!(Registration::begin(&folder, &token, "guard", "https://127.0.0.1:7000").await.is_ok());
}

#[tokio::test]
async fn a_stream_that_says_nothing_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let _gateway = setup(&folder).start().await;
    let silent = Registration::open(&folder, &registering(&["guard"])).await.unwrap().answer().await;
    assert_eq!(silent.unwrap_err().code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn one_stream_registers_one_endpoint() {
    let folder = tempfile::tempdir().unwrap();
    let _gateway = setup(&folder).start().await;
    let token = registering(&["guard"]);
    for (plugin, endpoint, field) in
        [("other", ENDPOINT, "plugin"), ("guard", "http://127.0.0.1:7001", "endpoint")]
    {
        let (mut registration, _) = Registration::begin(&folder, &token, "guard", ENDPOINT).await.unwrap();
        let other =
            hookgate_proto::host::v1::RegisterRequest { plugin: plugin.into(), endpoint: endpoint.into() };
        registration.messages.send(other).unwrap();
        let found = summary(&registration.answer().await.unwrap_err());
        assert_eq!((found.0, &*found.2), (Code::InvalidArgument, field));
    }
}

#[tokio::test]
async fn a_plugin_has_at_most_64_endpoints() {
    let folder = tempfile::tempdir().unwrap();
    let _gateway = setup(&folder).start().await;
    let token = registering(&["guard"]);
    let mut held = Vec::new();
    for port in 1..=64 {
        held.push(
            Registration::begin(&folder, &token, "guard", &format!("http://127.0.0.1:{port}")).await.unwrap(),
        );
    }
    let (code, reason, _) = refused(&folder, &token, "guard", "http://127.0.0.1:65").await;
    assert_eq!((code, &*reason), (Code::ResourceExhausted, "TOO_MANY_ENDPOINTS"));
    assert!(
        Registration::begin(&folder, &token, "guard", "http://127.0.0.1:64").await.is_ok(),
        "it is one of them"
    );
}

#[tokio::test]
async fn a_plugin_cannot_register_itself_where_nobody_takes_registrations() {
    let entry = json!({ "name": "guard", "self_registration": true });
    let folder = tempfile::tempdir().unwrap();
    let without_listener = |setup: Setup| setup.set("/plugins", json!([entry]));
    let exit = without_listener(Gateway::with().tenant("acme")).run_to_the_end().await;
    assert!(said(&exit).contains("plugins have nowhere to register"), "{exit:?}");
    let url = format!("sqlite:{}", folder.path().join("data.db").display());
    let stored = Gateway::with().tenant("acme").store(&url, folder.path());
    let exit = without_listener(stored).run_to_the_end().await;
    assert!(said(&exit).contains("`server.host_addr` or `server.host_socket`"), "{exit:?}");
    let required = json!([{ "name": "guard", "self_registration": true, "required": true }]);
    let exit = setup(&folder).set("/plugins", required).run_to_the_end().await;
    assert!(said(&exit).contains("no gateway can wait for a plugin that registers itself"), "{exit:?}");
}
