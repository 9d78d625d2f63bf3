//! Tests that the API's plugins run only with an operator's consent (docs/decisions/0033-consent.md).

use hookgate::core::error::Code;
use hookgate_proto::{
    plugin::v1::{Access, DescribeResponse},
    types::v1::ExtensionPoint,
};
use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer},
    fake::{Builder, FakePlugin},
    gateway::{Gateway, Setup},
    token::Token,
};
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    admin::registry::support::{
        Stored, administrator, apply, ask, confined, get, patch, post, put, stored_as, written,
    },
    edge::support::assert_http_error,
    registry::support::{SOON, call, serves_by},
};

/// Config that the plugin must not receive before consent.
const CANARY: &str = "canary-4711";

fn file() -> Setup {
    Gateway::with().tenant("acme").set("/egress", json!({ "cidrs": ["127.0.0.0/8"] })).admin()
}

/// For plugins with capabilities.
fn with_host_port() -> Setup {
    file().set("/server/host_addr", "127.0.0.1:0")
}

fn guard() -> Builder {
    FakePlugin::named("guard").only(&[ExtensionPoint::BeforeToolCall]).access(Access::Read)
}

fn wants_log(manifest: &mut DescribeResponse) {
    manifest.version = "2.0.0".into();
    manifest.capabilities = vec!["log".into()];
}

/// Adds `guard` at these endpoints for all tenants.
async fn add(operator: &HttpAgent, endpoints: &[&FakePlugin]) -> u64 {
    let endpoints: Vec<_> = endpoints.iter().map(|plugin| plugin.endpoint()).collect();
    let document = json!({
        "plugins": [{ "name": "guard", "endpoints": endpoints, "config": { "key": CANARY } }],
        "bindings": [{ "plugin": "guard", "tenant": "*", "priority": 10 }],
    });
    written(&apply(operator, "", document).await)
}

/// Waits until `is_so` holds for the plugin, and returns it.
pub(crate) async fn plugin_is(operator: &HttpAgent, is_so: impl Fn(&Value) -> bool) -> Value {
    named_plugin_is(operator, "guard", is_so).await
}

/// Waits until `is_so` holds for the plugin `name`, and returns it.
pub(crate) async fn named_plugin_is(
    operator: &HttpAgent,
    name: &str,
    is_so: impl Fn(&Value) -> bool,
) -> Value {
    let end = Instant::now() + SOON;
    loop {
        let plugin = get(operator, &format!("plugins/{name}")).await.body;
        if is_so(&plugin) {
            return plugin;
        }
        assert!(Instant::now() < end, "the plugin stays {plugin:#}");
        sleep(std::time::Duration::from_millis(20)).await;
    }
}

pub(crate) fn reason_is(reason: &str) -> impl Fn(&Value) -> bool {
    move |plugin| plugin["reason"] == reason
}

/// Waits for the first manifest that needs consent.
pub(crate) async fn wanted(operator: &HttpAgent) -> Value {
    plugin_is(operator, |plugin| plugin["pending_manifests"][0].is_object()).await["pending_manifests"][0]
        .clone()
}

pub(crate) async fn approve(operator: &HttpAgent, query: &str, accepted: &Value) -> HttpAnswer {
    let body = json!({ "accepted": accepted });
    ask(operator, Method::POST, &format!("plugins/guard/approve{query}"), Some(&body)).await
}

fn reasons(plugin: &Value) -> Vec<&str> {
    let endpoints = plugin["endpoints"].as_array().expect("a list");
    endpoints.iter().filter_map(|endpoint| endpoint["reason"].as_str()).collect()
}

/// Checks the answer to a call whose plugin is not ready.
fn assert_not_ready(answer: &HttpAnswer) {
    assert_http_error(answer, Code::PluginUnavailable);
    assert!(answer.body["detail"].to_string().contains("not finished its handshake"), "{answer:?}");
}

/// Checks that a plugin without consent has only been described.
async fn assert_waits_for_approval(gateway: &Gateway) {
    let shown = plugin_is(&gateway.admin(&administrator()), reason_is("approval")).await;
    assert_eq!((&shown["state"], &shown["manifest"]), (&json!("pending"), &Value::Null));
    let read = json!({ "before_tool_call": { "access": "read", "side_effects": "none" } });
    assert_eq!(shown["pending_manifests"][0]["name"], "guard");
    assert_eq!(shown["pending_manifests"][0]["accepted"], json!({ "points": read, "capabilities": [] }));
    assert_eq!(shown["pending_manifests"][0]["difference"]["points"]["added"], read);
    assert_not_ready(&call(gateway, "acme").await);
    gateway.log().wait_for(|line| line.field("event") == Some(&json!("plugin.pending"))).await;
}

/// The digest of a tenant's plan after an approval, from its dry run. The plugin is at all points until its
/// manifest is known, and then only at the offered ones.
fn digest_in_dry_run(acme: &Value) -> Value {
    let points = acme["points"].as_object().map(|points| points.len());
    assert_eq!((&acme["tenant"], points), (&json!("acme"), Some(4)), "{acme:#}");
    assert_eq!(acme["points"]["before_tool_call"]["changed"], json!(["guard"]), "{acme:#}");
    assert_eq!(acme["points"]["before_response"]["removed"], json!(["guard"]), "{acme:#}");
    acme["points"]["before_tool_call"]["plan_digest"].clone()
}

#[tokio::test]
async fn plugin_is_described_and_told_nothing_until_it_is_approved_of_for_every_gateway_and_over_restarts() {
    let plugin = guard().start().await;
    let Stored { gateway, operator, folder } = stored_as(with_host_port()).await;
    let url = format!("sqlite:{}", folder.path().join("hookgate.db").display());
    let elsewhere = tempfile::tempdir().expect("there is room");
    let other = file().store(&url, elsewhere.path()).start().await;
    let added = add(&operator, &[&plugin]).await;
    serves_by(&other, added).await;

    for gateway in [&gateway, &other] {
        assert_waits_for_approval(gateway).await;
    }
    let counts = plugin.counts();
    assert_eq!((counts.describes, counts.initializes, counts.calls), (2, 0, 0), "{counts:?}");

    let accepted = wanted(&operator).await["accepted"].clone();
    let tried = approve(&operator, "?dry_run=true", &accepted).await;
    assert_eq!((tried.status, &tried.body["revision"]), (200, &Value::Null), "{tried:?}");
    assert_eq!(tried.body["changes"][0]["after"]["spec"]["accepted"], accepted);
    let digest = digest_in_dry_run(&tried.body["effects"]["sample"][0]);
    let version = format!("?expected_version={added}&reason=looked%20at");
    let done = approve(&operator, &version, &accepted).await;
    for member in ["effects", "changes", "unvalidated"] {
        assert_eq!(done.body[member], tried.body[member], "{member}");
    }
    let approved = written(&done);
    let plan = get(&operator, "tenants/acme/plan").await.body;
    assert_eq!(plan["points"]["before_tool_call"]["plan_digest"], digest, "as in the dry run");
    serves_by(&other, approved).await;
    for gateway in [&gateway, &other] {
        assert_eq!(call(gateway, "acme").await.status, 200);
        let shown = plugin_is(&gateway.admin(&administrator()), reason_is("serving")).await;
        assert_eq!(shown["pending_manifests"], json!([]));
    }
    let told = plugin.initialized();
    assert_eq!(told.len(), 2);
    assert!(told.iter().all(|told| String::from_utf8_lossy(&told.config).contains(CANARY)), "{told:?}");
    assert_eq!(plugin.counts().calls, 2);

    // Consent survives a restart, and a write of the whole entry that doesn't mention it.
    gateway.stop().await;
    let gateway = file().store(&url, folder.path()).start().await;
    let operator = gateway.admin(&administrator());
    plugin_is(&operator, reason_is("serving")).await;
    let path = format!("plugins/guard?expected_version={approved}");
    let again = put(&operator, &path, json!({ "endpoint": plugin.endpoint() })).await;
    assert_eq!(again.body["changes"][0]["after"]["spec"]["accepted"], accepted, "{again:?}");
    let last = written(&again);
    assert_eq!(call(&gateway, "acme").await.status, 200);

    // A rollback to an earlier revision removes the consent.
    let back = written(&post(&operator, &format!("revisions/{added}/rollback")).await);
    plugin_is(&operator, reason_is("approval")).await;
    serves_by(&other, back).await;
    let calls = plugin.counts().calls;
    for gateway in [&gateway, &other] {
        assert_not_ready(&call(gateway, "acme").await);
    }
    written(&post(&operator, &format!("revisions/{last}/rollback")).await);
    assert_eq!(call(&gateway, "acme").await.status, 200);
    let taken_back = json!({ "accepted": null });
    written(&patch(&operator, &format!("plugins/guard?expected_version={}", last + 2), taken_back).await);
    assert_not_ready(&call(&gateway, "acme").await);
    assert_eq!(plugin.counts().calls, calls + 1);
}

#[tokio::test]
async fn version_that_wants_more_waits_beside_the_old_one_until_it_is_approved_of() {
    let old = guard().start().await;
    let new = guard().manifest(wants_log).start().await;
    let Stored { gateway, operator, folder: _folder } = stored_as(with_host_port()).await;
    add(&operator, &[&old]).await;
    let first = wanted(&operator).await["accepted"].clone();
    written(&approve(&operator, "", &first).await);
    let version = get(&operator, "plugins/guard").await.body["version"].to_string();
    let both = json!({ "endpoints": [old.endpoint(), new.endpoint()] });
    written(&patch(&operator, &format!("plugins/guard?expected_version={version}"), both).await);

    let waits = |plugin: &Value| reasons(plugin) == ["serving", "upgrade_pending"];
    let shown = plugin_is(&operator, waits).await;
    assert_eq!(
        shown["endpoints"][1]["detail"],
        "version 2.0.0 exceeds the accepted manifest, and is waiting for approval: it asks for log"
    );
    let wants = &shown["pending_manifests"][0];
    assert_eq!((&wants["version"], &wants["accepted"]["capabilities"]), (&json!("2.0.0"), &json!(["log"])));
    assert_eq!(wants["difference"]["capabilities"], json!({ "added": ["log"], "removed": [] }));
    assert_eq!(wants["difference"]["points"], json!({ "added": {}, "removed": {}, "changed": {} }));
    for _ in 0..10 {
        assert_eq!(call(&gateway, "acme").await.status, 200);
    }
    assert_eq!((new.counts().initializes, new.counts().calls, old.counts().calls), (0, 0, 10));

    let approved = approve(&operator, "", &wants["accepted"]).await;
    written(&approved);
    assert_eq!(approved.body["changes"][0]["after"]["spec"]["grants"], json!(["log"]));
    let turned = |plugin: &Value| reasons(plugin) == ["manifest_mismatch", "serving"];
    let shown = plugin_is(&operator, turned).await;
    assert_eq!(
        shown["pending_manifests"][0]["difference"]["capabilities"],
        json!({ "added": [], "removed": ["log"] })
    );
    for _ in 0..10 {
        assert_eq!(call(&gateway, "acme").await.status, 200);
    }
    assert_eq!((new.counts().calls, old.counts().calls), (10, 10));
    assert_eq!(new.initialized()[0].capabilities, ["log"]);

    // Other differences are approved in the same way; here, the old manifest again.
    written(&approve(&operator, "", &first).await);
    plugin_is(&operator, |plugin| reasons(plugin) == ["serving", "upgrade_pending"]).await;
    assert_eq!(call(&gateway, "acme").await.status, 200);
    assert_eq!(old.counts().calls, 11);
}

/// The preview uses the pending manifest including its schemas.
#[tokio::test]
async fn approval_of_a_build_that_rejects_the_active_config_is_refused_and_both_are_written_together() {
    let only =
        |name: &str| json!({ "type": "object", "properties": { name: {} }, "additionalProperties": false });
    let old = guard().tenant_config_schema(only("old")).start().await;
    let new = guard().tenant_config_schema(only("new")).start().await;
    let Stored { gateway, operator, folder: _folder } = stored_as(with_host_port()).await;
    let bind =
        |key: &str| json!([{ "plugin": "guard", "tenant": "*", "priority": 10, "config": { key: 1 } }]);
    let both = [old.endpoint(), new.endpoint()];
    let entry = json!({ "name": "guard", "endpoints": both, "accepted": old.accepted() });
    written(&apply(&operator, "", json!({ "plugins": [entry], "bindings": bind("old") })).await);
    let waits = |plugin: &Value| reasons(plugin) == ["serving", "manifest_mismatch"];
    let wants = plugin_is(&operator, waits).await["pending_manifests"][0]["accepted"].clone();
    for query in ["?dry_run=true", ""] {
        let refused = approve(&operator, query, &wants).await;
        assert_http_error(&refused, Code::ConfigInvalid);
        assert_eq!(refused.body["errors"][0]["pointer"], "/bindings/guard/config", "{refused:?}");
    }
    // Config that only the pending manifest accepts is rejected before the approval.
    assert_http_error(&apply(&operator, "", json!({ "bindings": bind("new") })).await, Code::ConfigInvalid);
    let mut entry = get(&operator, "plugins/guard").await.body["spec"].clone();
    entry["accepted"] = wants;
    written(&apply(&operator, "", json!({ "plugins": [entry], "bindings": bind("new") })).await);
    plugin_is(&operator, |plugin| reasons(plugin) == ["manifest_mismatch", "serving"]).await;
    assert_eq!(call(&gateway, "acme").await.status, 200);
}

#[tokio::test]
async fn an_approval_covers_only_the_manifest_that_was_shown() {
    let mut plugin = guard().start().await;
    let Stored { gateway, operator, folder: _folder } =
        stored_as(with_host_port().builtin("content-policy", &json!({}))).await;
    add(&operator, &[&plugin]).await;
    let shown = wanted(&operator).await["accepted"].clone();
    // The plugin is replaced by another build before the operator answers.
    plugin.stop().await;
    plugin.change_manifest(wants_log);
    plugin.start().await;
    plugin_is(&operator, |plugin| plugin["pending_manifests"][0]["version"] == "2.0.0").await;
    let refused = approve(&operator, "", &shown).await;
    assert_http_error(&refused, Code::Conflict);
    let detail = refused.body["detail"].as_str().unwrap_or_default();
    assert!(detail.ends_with("compared with what was sent, version 2.0.0 asks for log"), "{refused:?}");
    assert_eq!(refused.body["errors"][0]["pointer"], "/accepted");

    let now = wanted(&operator).await["accepted"].clone();
    let stale = approve(&operator, "?expected_version=1", &now).await;
    assert_http_error(&stale, Code::Conflict);
    for (body, code) in [
        (json!({}), Code::PayloadInvalid),
        (json!({ "accepted": { "points": {}, "capabilities": ["fly"] } }), Code::PayloadInvalid),
        (json!({ "accepted": now, "more": 1 }), Code::PayloadInvalid),
    ] {
        assert_http_error(&ask(&operator, Method::POST, "plugins/guard/approve", Some(&body)).await, code);
    }
    let body = json!({ "accepted": now });
    for (path, code) in
        [("plugins/nobody/approve", Code::NotFound), ("plugins/content-policy/approve", Code::Conflict)]
    {
        assert_http_error(&ask(&operator, Method::POST, path, Some(&body)).await, code);
    }
    let reader = gateway.admin(&Token::for_operators().scopes("hookgate:read").mint());
    assert_http_error(&approve(&reader, "", &now).await, Code::ScopeMissing);
    let tenant = gateway.admin(&confined("acme"));
    assert_http_error(&approve(&tenant, "", &now).await, Code::NotFound);
    assert_eq!((plugin.counts().initializes, plugin.counts().calls), (0, 0));

    written(&approve(&operator, "", &now).await);
    assert_eq!(call(&gateway, "acme").await.status, 200);
    // Approving again does no harm; approving something that it doesn't ask for is an error.
    let again = approve(&operator, "", &now).await;
    assert_eq!((again.status, &again.body["revision"]), (200, &Value::Null), "{again:?}");
    assert_http_error(&approve(&operator, "", &shown).await, Code::Conflict);
    // A manifest can't be approved after its grants were removed.
    let version = get(&operator, "plugins/guard").await.body["version"].to_string();
    let path = format!("plugins/guard?expected_version={version}");
    let wrong = patch(&operator, &path, json!({ "grants": [] })).await;
    assert_http_error(&wrong, Code::ConfigInvalid);
    assert_eq!(wrong.body["errors"][0]["pointer"], "/accepted/capabilities");
}

#[tokio::test]
async fn file_that_says_what_is_accepted_takes_nothing_else() {
    let plugin = guard().start().await;
    let with = |access: &str| {
        let points = json!({ "before_tool_call": { "access": access, "side_effects": "none" } });
        file()
            .plugin_with(&plugin, &json!({ "accepted": { "points": points }, "required": false }))
            .binding("guard", 10)
    };
    let gateway = with("modify").start().await;
    let operator = gateway.admin(&administrator());
    let shown = plugin_is(&operator, reason_is("manifest_mismatch")).await;
    assert_eq!(
        shown["detail"],
        "version 1.0.0 differs from the accepted manifest, and is waiting for approval: it has before_tool_call as (read, side effects: \
         none) instead of (modify, side effects: none)"
    );
    assert_not_ready(&call(&gateway, "acme").await);
    assert_http_error(
        &approve(&operator, "", &shown["pending_manifests"][0]["accepted"]).await,
        Code::Conflict,
    );
    assert_eq!((plugin.counts().initializes, plugin.counts().calls), (0, 0));
    gateway.reload(&with("read"));
    gateway.wait_for_revision(2).await;
    assert_eq!(call(&gateway, "acme").await.status, 200);
}
