//! Tests the status of plugins and of the gateway: each state with its reason, and no secrets.

use hookgate_proto::{
    plugin::v1::{Access, SideEffects},
    types::v1::ExtensionPoint,
};
use hookgate_tests::{
    fake::{Act, Builder, FakePlugin},
    gateway::{Gateway, Setup},
    token::{SECRET, Token, token},
};
use serde_json::{Value, json};

use crate::edge::support::{POINT, payload};

async fn get(gateway: &Gateway, path: &str) -> Value {
    let agent = gateway.admin(&Token::for_operators().mint());
    let answer = agent.get(path).await.expect("the admin port answers");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    answer.body
}

fn setup() -> Setup {
    Gateway::with().tenant("acme").tenant_with("off", &json!({ "enabled": false })).admin()
}

/// The totals of a plugin that was never called.
fn no_calls() -> Value {
    let none = json!({ "calls": 0, "successes": 0, "failures": 0, "latency_ms_total": 0.0 });
    json!({
        "before_llm_request": none, "before_tool_call": none, "after_tool_result": none, "before_response": none,
    })
}

/// The status of a plugin with these further members and one endpoint in the same state.
fn status(name: &str, [state, reason, detail]: [&str; 3], address: &str, more: &Value) -> Value {
    let mut status = json!({
        "name": name, "state": state, "reason": reason, "detail": detail,
        "required": false, "in_flight": 0, "capacity": 64, "observers": { "dropped": 0 },
        "endpoints": [
            {
                "address": address, "state": state, "reason": reason, "detail": detail, "version": null,
                "breaker": "closed", "tenant_breakers_open": 0, "in_flight": 0, "connections": 0,
            },
        ],
        "manifest": null, "bindings": [name], "points": no_calls(),
    });
    for (member, value) in more.as_object().expect("members") {
        status[member] = value.clone();
    }
    status
}

/// A plugin whose manifest differs from the default in every member.
fn describing_itself() -> Builder {
    let plugin =
        FakePlugin::named("ready").only(&[POINT, ExtensionPoint::BeforeResponse]).access(Access::Read);
    plugin.config_schema(json!({ "type": "object" })).manifest(|manifest| {
        manifest.version = "1.4.2".into();
        manifest.capabilities = vec!["log".into()];
        manifest.points[1].set_side_effects(SideEffects::Some);
    })
}

/// A plugin's view without the members from its entry.
fn of_process(shown: &Value) -> Value {
    let mut shown = shown.clone();
    for member in ["owner", "version", "spec", "pending_manifests", "rejected"] {
        shown.as_object_mut().expect("an object").remove(member);
    }
    shown
}

#[tokio::test]
async fn a_plugin_that_is_ready_shows_what_it_says_it_is_and_who_uses_it() {
    let (folder, plugin) =
        (tempfile::tempdir().expect("there is room"), describing_itself().start_unix().await);
    let gateway = setup()
        .store(&format!("sqlite:{}", folder.path().join("hookgate.db").display()), folder.path())
        .set("/server/host_addr", "127.0.0.1:0")
        .plugin_with(&plugin, &json!({ "grants": ["log", "emit"], "limits": { "in_flight": 7 } }))
        .binding("ready", 10)
        .binding_with("ready", 11, &json!({ "tenant": "acme" }))
        .binding_with("ready", 12, &json!({ "name": "unused", "enabled": false }))
        .start()
        .await;
    let manifest = json!({
        "name": "ready", "version": "1.4.2", "capabilities": ["log"], "config_schema": true, "tenant_config_schema": false,
        "points": [
            { "point": "before_tool_call", "access": "read", "side_effects": "none" },
            { "point": "before_response", "access": "read", "side_effects": "some" },
        ],
    });
    let endpoint = json!({
        "address": plugin.endpoint(), "state": "ready", "reason": "serving", "detail": "", "version": "1.4.2",
        "breaker": "closed", "tenant_breakers_open": 0, "in_flight": 0, "connections": 1,
    });
    let more = json!({
        "required": true, "capacity": 7, "endpoints": [endpoint], "manifest": manifest, "bindings": ["ready", "ready@acme"],
    });
    let expected = status("ready", ["ready", "serving", ""], &plugin.endpoint(), &more);
    let shown = get(&gateway, "/admin/v1/plugins/ready").await;
    assert_eq!((&shown["owner"], &shown["version"]), (&json!("file"), &json!(1)));
    assert_eq!(shown["pending_manifests"], json!([]), "the file's plugins need no approval");
    assert_eq!(shown["rejected"], Value::Null, "the file's entries are taken or refused as a whole");
    assert_eq!(shown["spec"]["limits"], json!({ "in_flight": 7 }), "as it is written");
    assert_eq!(of_process(&shown), expected);
    assert_eq!(get(&gateway, "/admin/v1/plugins").await["plugins"], json!([shown]));
}

#[tokio::test]
async fn a_plugin_that_is_away_refused_or_switched_off_shows_why() {
    let mut away = FakePlugin::named("away").start().await;
    away.stop().await;
    let (refused, off) = (FakePlugin::named("refused").start().await, FakePlugin::named("off").start().await);
    let gateway = setup()
        .plugin_with(&away, &json!({ "required": false }))
        .plugin_with(&refused, &json!({ "required": false, "version": ">=9" }))
        .plugin_with(&off, &json!({ "enabled": false }))
        .binding("away", 20)
        .binding("refused", 30)
        .binding("off", 40)
        .start()
        .await;
    for event in ["plugin.refused", "plugin.health_failed"] {
        gateway.log().wait_for(|line| line.field("event") == Some(&json!(event))).await;
    }
    let all = get(&gateway, "/admin/v1/plugins").await;
    let plugins = all["plugins"].as_array().expect("a list");
    let detail = |name: &str| {
        let plugin = plugins.iter().find(|plugin| plugin["name"] == name).expect("it is there");
        plugin["detail"].as_str().expect("text")
    };
    let shown: Vec<_> = ["away", "refused", "off"]
        .map(|name| plugins.iter().find(|plugin| plugin["name"] == name).expect("it is there"))
        .map(of_process)
        .into();
    let expected = [
        status("away", ["unhealthy", "connection_refused", detail("away")], &away.endpoint(), &json!({})),
        status(
            "refused",
            ["refused", "VERSION_MISMATCH", detail("refused")],
            &refused.endpoint(),
            &json!({}),
        ),
        status("off", ["disabled", "disabled", ""], &off.endpoint(), &json!({})),
    ];
    assert_eq!(shown, expected);
    assert!(detail("away").contains(&away.endpoint()), "it says what was tried: {}", detail("away"));
    assert!(detail("refused").contains(">=9"), "it says what would be right: {}", detail("refused"));
}

#[tokio::test]
async fn the_gateways_own_status_counts_tenants_and_plugins() {
    let (ready, off) = (FakePlugin::named("ready").start().await, FakePlugin::named("off").start().await);
    let setup = setup().plugin(&ready).plugin_with(&off, &json!({ "enabled": false }));
    let gateway = setup.binding("ready", 10).start().await;
    let status = get(&gateway, "/admin/v1/status").await;
    let expected = json!({
        "version": env!("CARGO_PKG_VERSION"), "instance": status["instance"], "uptime_s": status["uptime_s"],
        "ready": true, "waiting_for": null, "revision": 1,
        "tenants": { "listed": 2, "disabled": 1, "accepts_unlisted": false },
        "plugins": {
            "disabled": 1, "pending": 0, "connecting": 0, "ready": 1, "unhealthy": 0, "refused": 0, "draining": 0,
        },
        "configuration": { "age_s": status["configuration"]["age_s"], "rejected": null, "waiting_for": null, "restart_required": [] },
        "store": null,
    });
    assert_eq!(status, expected);
    assert_eq!(status["instance"].as_str(), Some(ready.initialized()[0].gateway_instance_id.as_str()));
    assert!(status["uptime_s"].as_u64().is_some_and(|seconds| seconds < 60), "{status}");
}

#[tokio::test]
async fn status_is_there_before_the_start_is_finished_and_while_it_drains() {
    let mut plugin = FakePlugin::named("needed").start().await;
    plugin.stop().await;
    let setup = setup().plugin(&plugin).binding("needed", 10).set("/drain/grace", "60s");
    let gateway = setup.start_unready().await;
    let ready = async || {
        let status = get(&gateway, "/admin/v1/status").await;
        (status["ready"].clone(), status["waiting_for"].clone())
    };
    assert_eq!(ready().await, (json!(false), json!("the start is not finished")));
    assert_eq!(get(&gateway, "/admin/v1/plugins/needed").await["manifest"], json!(null));
    plugin.start().await;
    gateway.wait_until_ready().await;
    assert_eq!(ready().await, (json!(true), json!(null)));
    gateway.terminate();
    gateway.log().wait_for(|line| line.message() == Some("draining")).await;
    assert_eq!(ready().await, (json!(false), json!("draining")));
    assert_eq!(gateway.stop().await.code, Some(0)); // the second SIGTERM skips the wait
}

#[tokio::test]
async fn no_secret_config_or_token_is_in_any_answer() {
    const REFERENCED: &str = "canary-referenced-6d41";
    const WRITTEN: &str = "canary-written-b09e";
    const OF_TENANT: &str = "canary-tenant-77c3";
    let key = json!({ "type": "object", "properties": { "key": {}, "other": {} } });
    let mine = json!({ "type": "object", "properties": { "mine": {}, "ours": {} } });
    let plugin = FakePlugin::named("guard").config_schema(key.clone()).tenant_config_schema(mine);
    let plugin = plugin.start().await;
    // Its error message contains its config.
    let refusing = FakePlugin::named("refusing").config_schema(key);
    let told = tonic::Status::failed_precondition(format!("my key is {REFERENCED}"));
    let refusing = refusing.on_initialize(hookgate_tests::fake::Handshake::Fails(told)).start().await;
    let config = json!({ "key": "${CANARY}", "other": WRITTEN });
    let gateway = Gateway::with()
        .tenant_with("acme", &json!({ "config": { "guard": { "mine": OF_TENANT } } }))
        .plugin_with(&plugin, &json!({ "config": config }))
        .plugin_with(&refusing, &json!({ "config": config, "required": false }))
        .binding_with("guard", 10, &json!({ "config": { "ours": WRITTEN } }))
        .binding_with("refusing", 20, &json!({ "mode": "observe" }))
        .environment("CANARY", REFERENCED)
        .admin()
        .start()
        .await;
    gateway.log().wait_for(|line| line.field("event") == Some(&json!("plugin.refused"))).await;
    assert!(
        String::from_utf8_lossy(&plugin.initialized()[0].config).contains(REFERENCED),
        "the plugin got it"
    );
    plugin.set(POINT, Act::status(tonic::Code::Internal, &format!("my key is {REFERENCED}")));
    let invoking = token("acme");
    gateway.http(&invoking).call(POINT, payload()).await;

    let (operator, unscoped) = (Token::for_operators().mint(), Token::for_operators().scopes("none").mint());
    let mut answers = String::new();
    for token in [&operator, &unscoped, &invoking] {
        for path in ["status", "plugins", "plugins/guard", "plugins/refusing", "tenants/acme/plan", "nothing"]
        {
            let answer = gateway.admin(token).get(&format!("/admin/v1/{path}")).await.unwrap();
            answers.push_str(&format!("{:?}{}", answer.headers, answer.text));
        }
    }
    assert!(answers.contains("my key is"), "the plugin's words are there: {answers}");
    let signatures =
        [&operator, &unscoped, &invoking].map(|token| token.rsplit('.').next().expect("three parts"));
    for secret in [REFERENCED, WRITTEN, OF_TENANT, SECRET].into_iter().chain(signatures) {
        assert!(!answers.contains(secret), "{secret} is in an answer: {answers}");
    }
}
