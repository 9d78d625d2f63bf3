//! Tests a plugin that the registry requires: a start without it serves but isn't ready, never aborts, and
//! one write fixes it (docs/decisions/0037-what-the-registry-requires.md; G23, K16).

use hookgate_tests::{
    agent::HttpAgent,
    fake::{FakePlugin, Handshake},
    gateway::{Gateway, Setup},
};
use serde_json::{Value, json};
use tonic::Status;

use crate::{
    admin::registry::support::{Stored, administrator, get, patch, put, stored_as, written},
    registry::support::{call, file_with, status, status_is},
};

/// A gateway with the tenants `acme` and `globex`, whose registry requires `guard`, which is bound for
/// `acme` only.
async fn requiring(plugin: &FakePlugin) -> Stored {
    let stored = stored_as(file()).await;
    let entry = json!({ "endpoint": plugin.endpoint(), "accepted": plugin.accepted(), "required": true });
    written(&put(&stored.operator, "plugins/guard?expected_version=0", entry).await);
    let binding = json!({ "plugin": "guard", "tenant": "acme", "priority": 20 });
    written(&put(&stored.operator, "bindings/guard?expected_version=0", binding).await);
    assert_eq!(call(&stored.gateway, "acme").await.status, 200);
    stored
}

fn file() -> Setup {
    file_with("acme").tenant("globex")
}

/// Another process with the same registry.
async fn another(stored: &Stored) -> Gateway {
    over(stored).start_unready().await
}

fn over(stored: &Stored) -> Setup {
    let url = format!("sqlite:{}", stored.folder.path().join("hookgate.db").display());
    let sockets = std::env::temp_dir().display().to_string();
    let egress = json!({ "cidrs": ["127.0.0.0/8"], "socket_dirs": [sockets] });
    // An unreachable plugin of the file would abort the start after this time.
    file().set("/startup/wait", "1s").store(&url, stored.folder.path()).set("/egress", egress)
}

/// Waits until it serves and isn't ready because of `guard`, with these words in what the status says.
async fn waits(gateway: &Gateway, words: &[&str]) {
    let said = |status: &Value| status["waiting_for"].to_string();
    status_is(gateway, |status| {
        said(status).contains("guard") && words.iter().all(|word| said(status).contains(word))
    })
    .await;
    let ready = gateway.ops().get("/readyz").await.expect("the process is up");
    assert_eq!(ready.status, 503);
    assert_eq!(ready.text, "not ready: a plugin that the registry requires is missing\n");
}

/// Writes through the gateway of `operator`, with the version that this gateway shows.
async fn set(operator: &HttpAgent, members: Value) {
    let version = get(operator, "plugins/guard").await.body["version"].clone();
    written(&patch(operator, &format!("plugins/guard?expected_version={version}"), members).await);
}

#[tokio::test]
async fn a_start_without_what_the_registry_requires_serves_unready_and_recovers_by_itself() {
    let mut plugin = FakePlugin::named("guard").start_unix().await;
    let stored = requiring(&plugin).await;
    plugin.stop().await;
    let gateway = another(&stored).await;
    waits(&gateway, &["unhealthy"]).await;
    let closed = call(&gateway, "acme").await;
    assert_eq!((closed.status, &closed.body["code"]), (503, &json!("PLUGIN_UNAVAILABLE")), "{closed:?}");
    assert_eq!(call(&gateway, "globex").await.status, 200, "no other gateway needs it");
    assert_eq!(gateway.ops().get("/livez").await.expect("it is up").status, 200);

    // It follows the registry meanwhile, and gateways that serve go on.
    let other = json!({ "labels": { "plan": "pro" } });
    let next = written(&put(&stored.operator, "tenants/later?expected_version=0", other).await);
    status_is(&gateway, |status| status["revision"] == next).await;
    assert_eq!(call(&gateway, "later").await.status, 200);
    assert_eq!(status(&stored.gateway).await["ready"], true);
    assert_eq!(status(&gateway).await["ready"], false);

    plugin.start().await;
    gateway.wait_until_ready().await;
    assert_eq!(call(&gateway, "acme").await.status, 200);

    // Once ready, it stays ready.
    plugin.stop().await;
    status_is(&gateway, |status| status["plugins"]["unhealthy"] == 1).await;
    assert_eq!(status(&gateway).await["ready"], true);
    assert_eq!(gateway.stop().await.code, Some(0));
}

#[tokio::test]
async fn a_refused_plugin_that_the_registry_requires_is_mended_through_the_gateway_that_waits_for_it() {
    for mend in [json!({ "required": false }), json!({ "enabled": false })] {
        let plugin = FakePlugin::named("guard").start().await;
        let stored = requiring(&plugin).await;
        plugin.set_initialize(Handshake::Fails(Status::invalid_argument("no such level")));
        let gateway = another(&stored).await;
        waits(&gateway, &["refused", "CONFIG_REFUSED"]).await;
        // Another invalid entry doesn't hold up a table either.
        let operator = gateway.admin(&administrator());
        set(&operator, json!({ "config": { "level": 2 }, "required": true })).await;
        waits(&gateway, &[]).await;
        set(&operator, mend).await;
        gateway.wait_until_ready().await;
        assert_eq!(gateway.stop().await.code, Some(0));
    }
}

/// A process that doesn't apply its file can't fix the file of another process.
#[tokio::test]
async fn what_another_processs_file_requires_ends_no_start_of_one_that_applies_none() {
    let mut plugin = FakePlugin::named("guard").start_unix().await;
    let setup = file().plugin(&plugin).binding_with("guard", 20, &json!({ "tenant": "acme" }));
    let stored = stored_as(setup).await;
    assert_eq!(call(&stored.gateway, "acme").await.status, 200);
    plugin.stop().await;
    let gateway = over(&stored).set("/store/apply_file", false).start_unready().await;
    waits(&gateway, &["unhealthy"]).await;
    assert_eq!(call(&gateway, "acme").await.status, 503);
    assert_eq!(call(&gateway, "globex").await.status, 200);
    plugin.start().await;
    gateway.wait_until_ready().await;
    assert_eq!(call(&gateway, "acme").await.status, 200);
    assert_eq!(gateway.stop().await.code, Some(0));
}

#[tokio::test]
async fn a_plugin_without_approval_does_not_delay_readiness() {
    let plugin = FakePlugin::named("guard").start().await;
    let stored = requiring(&plugin).await;
    set(&stored.operator, json!({ "accepted": null })).await;
    let gateway = another(&stored).await;
    gateway.wait_until_ready().await;
    assert_eq!(call(&gateway, "acme").await.status, 503);
}
