//! What operators see of plugins and of the gateway: each state with its reason, and nothing secret.

use hookgate_proto::{
    plugin::v1::{Access, SideEffects},
    types::v1::ExtensionPoint,
};
use hookgate_tests::{
    fake::{Act, FakePlugin},
    gateway::{Gateway, Setup},
    token::{SECRET, Token, token},
};
use serde_json::{Value, json};

use super::edge_support::{POINT, payload};

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

/// Of a plugin that was never called.
fn no_calls() -> Value {
    let none = json!({ "calls": 0, "successes": 0, "failures": 0, "latency_ms_total": 0.0 });
    json!({
        "before_llm_request": none, "before_tool_call": none, "after_tool_result": none, "before_response": none,
    })
}

/// A plugin's status beside these members, with one endpoint that is as the plugin is.
fn status(name: &str, [state, reason, detail]: [&str; 3], address: &str, more: &Value) -> Value {
    let mut status = json!({
        "name": name, "state": state, "reason": reason, "detail": detail,
        "required": false, "in_flight": 0, "places": 64, "observers": { "dropped": 0 },
        "endpoints": [
            { "address": address, "state": state, "reason": reason, "detail": detail, "version": null },
        ],
        "manifest": null, "bindings": [name], "points": no_calls(),
    });
    for (member, value) in more.as_object().expect("members") {
        status[member] = value.clone();
    }
    status
}

#[tokio::test]
async fn every_state_of_a_plugin_is_there_with_its_reason() {
    let schema = json!({ "type": "object" });
    let ready =
        FakePlugin::named("ready").only(&[POINT, ExtensionPoint::BeforeResponse]).access(Access::Read);
    let ready = ready.config_schema(schema).manifest(|manifest| {
        manifest.version = "1.4.2".into();
        manifest.capabilities = vec!["log".into()];
        manifest.points[1].set_side_effects(SideEffects::Some);
    });
    let ready = ready.start_unix().await;
    let mut away = FakePlugin::named("away").start().await;
    away.stop().await;
    let (refused, off) = (FakePlugin::named("refused").start().await, FakePlugin::named("off").start().await);
    let optional = json!({ "required": false });
    let gateway = setup()
        .plugin_with(&ready, &json!({ "grants": ["log", "emit"], "limits": { "in_flight": 7 } }))
        .plugin_with(&away, &optional)
        .plugin_with(&refused, &json!({ "required": false, "version": ">=9" }))
        .plugin_with(&off, &json!({ "enabled": false }))
        .binding("ready", 10)
        .binding_with("ready", 11, &json!({ "tenant": "acme" }))
        .binding_with("ready", 12, &json!({ "name": "unused", "enabled": false }))
        .binding("away", 20)
        .binding("refused", 30)
        .binding("off", 40)
        .start()
        .await;
    gateway.log().wait_for(|line| line.field("event") == Some(&json!("plugin.refused"))).await;
    gateway.log().wait_for(|line| line.field("event") == Some(&json!("plugin.health_fail"))).await;

    let all = get(&gateway, "/admin/v1/plugins").await;
    let plugins = all["plugins"].as_array().expect("a list");
    for plugin in plugins {
        let name = plugin["name"].as_str().expect("a name");
        let mut alone = get(&gateway, &format!("/admin/v1/plugins/{name}")).await;
        // Only what it is tried again with may have changed.
        for member in ["detail", "endpoints"] {
            alone[member] = plugin[member].clone();
        }
        assert_eq!(alone, *plugin);
    }
    let detail = |index: usize| plugins[index]["detail"].as_str().expect("text");
    let manifest = json!({
        "name": "ready", "version": "1.4.2", "capabilities": ["log"], "config_schema": true, "tenant_config_schema": false,
        "points": [
            { "point": "before_tool_call", "access": "read", "side_effects": "none" },
            { "point": "before_response", "access": "read", "side_effects": "some" },
        ],
    });
    let endpoint = json!({
        "address": ready.endpoint(), "state": "ready", "reason": "serving", "detail": "", "version": "1.4.2",
    });
    let more = json!({
        "required": true, "places": 7, "endpoints": [endpoint], "manifest": manifest, "bindings": ["ready", "ready@acme"],
    });
    assert_eq!(plugins[0], status("ready", ["ready", "serving", ""], &ready.endpoint(), &more));
    let nothing = json!({});
    let [a, r] = [1, 2].map(detail);
    let reason = plugins[1]["reason"].as_str().expect("text");
    assert_eq!(plugins[1], status("away", ["unhealthy", reason, a], &away.endpoint(), &nothing));
    assert!(!reason.is_empty() && !a.is_empty(), "{}", plugins[1]);
    assert_eq!(
        plugins[2],
        status("refused", ["refused", "VERSION_MISMATCH", r], &refused.endpoint(), &nothing)
    );
    assert!(r.contains(">=9"), "it says what would be right: {r}");
    assert_eq!(plugins[3], status("off", ["disabled", "switched_off", ""], &off.endpoint(), &nothing));
    assert_eq!(plugins.len(), 4);

    let whole = get(&gateway, "/admin/v1/status").await;
    let expected = json!({
        "version": env!("CARGO_PKG_VERSION"), "instance": whole["instance"], "uptime_s": whole["uptime_s"],
        "ready": true, "waits_for": null, "revision": 1,
        "tenants": { "listed": 2, "switched_off": 1, "others": false },
        "plugins": {
            "disabled": 1, "pending": 0, "connecting": 0, "ready": 1, "unhealthy": 1, "refused": 1, "draining": 0,
        },
    });
    assert_eq!(whole, expected);
    assert_eq!(whole["instance"].as_str(), Some(ready.initialized()[0].gateway_instance_id.as_str()));
    assert!(whole["uptime_s"].as_u64().is_some_and(|seconds| seconds < 60), "{whole}");
}

#[tokio::test]
async fn status_is_there_before_the_start_is_finished_and_while_it_drains() {
    let mut plugin = FakePlugin::named("needed").start().await;
    plugin.stop().await;
    let setup = setup().plugin(&plugin).binding("needed", 10).set("/drain/grace", "60s");
    let gateway = setup.start_unready().await;
    let ready = async || {
        let status = get(&gateway, "/admin/v1/status").await;
        (status["ready"].clone(), status["waits_for"].clone())
    };
    assert_eq!(ready().await, (json!(false), json!("the start is not finished")));
    assert_eq!(get(&gateway, "/admin/v1/plugins/needed").await["manifest"], json!(null));
    plugin.start().await;
    gateway.wait_until_ready().await;
    assert_eq!(ready().await, (json!(true), json!(null)));
    gateway.terminate();
    gateway.log().wait_for(|line| line.message() == Some("draining")).await;
    assert_eq!(ready().await, (json!(false), json!("draining")));
    assert_eq!(gateway.stop().await.code, Some(0)); // asked a second time, it does not wait
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
    // It puts what it was given into the words of its refusal.
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
    for secret in [REFERENCED, WRITTEN, OF_TENANT, SECRET, "${CANARY}"].into_iter().chain(signatures) {
        assert!(!answers.contains(secret), "{secret} is in an answer: {answers}");
    }
}
