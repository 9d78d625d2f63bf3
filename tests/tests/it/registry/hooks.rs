//! What operators see and decide about a plugin at lifecycle hooks: consent, dry runs, plans, explanations and bypasses.

use hookgate_tests::{
    agent::HttpAgent,
    fake::{Act, FakePlugin, HOOKS},
    gateway::Gateway,
    token::token,
};
use http::Method;
use serde_json::{Value, json};

use crate::{
    admin::registry::support::{Stored, apply, ask, get, pointers, stored_as, written},
    edge::support::send,
    registry::consent::{named_plugin_is, reason_is},
};

/// Plugin, bound at `recall` for every tenant through the API.
async fn added(operator: &HttpAgent, plugin: &FakePlugin) {
    let document = json!({
        "plugins": [{ "name": "memory", "endpoint": plugin.endpoint() }],
        "bindings": [{ "plugin": "memory", "tenant": "*", "priority": 10, "hooks": ["recall"] }],
    });
    written(&apply(operator, "", document).await);
}

async fn setup() -> (FakePlugin, Stored) {
    let act = Act::contribute("memory", r#"{"content":"Ada"}"#);
    let plugin =
        FakePlugin::named("memory").only(&[]).hooks(&["recall", "turn_end"]).at(HOOKS, act).start().await;
    let file = Gateway::with().tenant("acme").tenant("globex");
    let stored = stored_as(file.set("/egress", json!({ "cidrs": ["127.0.0.0/8"] })).admin()).await;
    added(&stored.operator, &plugin).await;
    (plugin, stored)
}

/// The contributions that `acme` gets at `recall`, and its plan's digest.
async fn recall(gateway: &Gateway, tenant: &str) -> (usize, Value) {
    let request = gateway.http(&token(tenant)).request(Method::POST, "/v1/hooks/recall");
    let request = request.header("content-type", "application/json").body(r#"{"body":{"message":"hi"}}"#);
    let answer = send(request).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    (answer.body["contributions"].as_array().expect("a list").len(), answer.body["plan_digest"].clone())
}

async fn approved(operator: &HttpAgent) -> Value {
    let plugin =
        named_plugin_is(operator, "memory", |plugin| plugin["pending_manifests"][0].is_object()).await;
    let wants = plugin["pending_manifests"][0].clone();
    let body = json!({ "accepted": wants["accepted"] });
    let path = "plugins/memory/approve";
    let tried = ask(operator, Method::POST, &format!("{path}?dry_run=true"), Some(&body)).await;
    written(&ask(operator, Method::POST, path, Some(&body)).await);
    named_plugin_is(operator, "memory", reason_is("serving")).await;
    json!({ "wants": wants, "effects": tried.body["effects"] })
}

#[tokio::test]
async fn hooks_need_consent_and_a_dry_run_says_what_it_changes() {
    let (plugin, Stored { gateway, operator, folder: _folder }) = setup().await;
    assert_eq!(recall(&gateway, "acme").await.0, 0, "nothing is sent to a plugin without consent");
    assert_eq!(plugin.counts().calls, 0);

    let said = approved(&operator).await;
    let hooks = json!({ "recall": "none", "turn_end": "none" });
    let wants = &said["wants"];
    assert_eq!((&wants["accepted"]["hooks"], &wants["accepted"]["points"]), (&hooks, &json!({})));
    assert_eq!(wants["difference"]["hooks"], json!({ "added": hooks, "removed": {}, "changed": {} }));
    let effect = &said["effects"]["sample"][0];
    assert_eq!(effect["points"], json!({}), "the binding is at hooks alone: {effect:#}");
    let digest = &effect["hooks"]["recall"]["plan_digest"];
    assert_eq!(recall(&gateway, "acme").await, (1, digest.clone()));

    let shown = get(&operator, "plugins/memory").await.body;
    assert_eq!(shown["manifest"]["points"], json!([]));
    let offered = json!({ "hook": "recall", "side_effects": "none" });
    assert_eq!((&shown["manifest"]["hooks"][0], &shown["hooks"]["successes"]), (&offered, &json!(1)));
}

#[tokio::test]
async fn plans_explanations_and_the_token_show_hooks() {
    let (_plugin, Stored { gateway, operator, folder: _folder }) = setup().await;
    approved(&operator).await;
    let (_, digest) = recall(&gateway, "acme").await;
    let plan = get(&operator, "tenants/acme/plan").await.body;
    let step = &plan["hooks"]["recall"]["steps"][0];
    assert_eq!(plan["hooks"]["recall"]["plan_digest"], digest);
    assert_eq!((&step["mode"], &step["on_error"]), (&json!("advise"), &json!("skip")));
    let of_hook = get(&operator, "tenants/acme/plan?hook=recall").await.body;
    assert_eq!((&of_hook["hooks"], &of_hook["points"]), (&plan["hooks"], &json!({})));
    let of_point = get(&operator, "tenants/acme/plan?point=before_response").await.body;
    assert_eq!(of_point.get("hooks"), None);

    let said = get(&operator, "tenants/acme/explain?hook=recall").await.body;
    assert_eq!((&said["hook"], said.get("point")), (&json!("recall"), None));
    assert_eq!((&said["plan_digest"], &said["steps"][0]["outcome"]), (&digest, &json!("called")));
    let elsewhere = get(&operator, "tenants/acme/explain?hook=turn_end").await.body;
    let absent = &elsewhere["absent"][0];
    assert_eq!((&absent["cause"], &absent["hooks"]), (&json!("points"), &json!(["recall"])));

    let me = gateway.http(&token("acme")).get("/v1/whoami").await.expect("an answer").body;
    assert_eq!(me["hooks"]["recall"]["plan_digest"], digest);
}

#[tokio::test]
async fn a_binding_at_a_hook_is_bypassed_for_one_tenant() {
    let (_plugin, Stored { gateway, operator, folder: _folder }) = setup().await;
    approved(&operator).await;
    let path = "bindings/memory/bypass/acme";
    written(&ask(&operator, Method::PUT, &format!("{path}?for=1h&reason=noise"), None).await);
    assert_eq!((recall(&gateway, "acme").await.0, recall(&gateway, "globex").await.0), (0, 1));
    let said = get(&operator, "tenants/acme/explain?hook=recall").await.body;
    assert_eq!(said["absent"][0]["cause"], json!("bypassed"));
    ask(&operator, Method::DELETE, path, None).await;
    assert_eq!(recall(&gateway, "acme").await.0, 1);
}

#[tokio::test]
async fn a_binding_that_a_hook_can_not_have_is_refused_with_its_place() {
    let (_plugin, Stored { gateway: _gateway, operator, folder: _folder }) = setup().await;
    for (members, pointer) in [
        (json!({ "mode": "enforce" }), "/mode"),
        (json!({ "blocking": true }), "/blocking"),
        (json!({ "points": ["before_response"] }), "/points"),
        (json!({ "writable": ["args"] }), "/writable"),
        (json!({ "match": { "tools": ["*"] } }), "/match/tools"),
        (json!({ "match": { "text": { "contains": ["x"] } } }), "/match/text"),
        (json!({ "hooks": [] }), "/hooks"),
        (json!({ "hooks": ["Recall"] }), "/hooks/0"),
        (json!({ "hooks": ["before_response"] }), "/hooks/0"),
    ] {
        let mut binding = json!({ "plugin": "memory", "tenant": "*", "priority": 20, "hooks": ["recall"] });
        binding.as_object_mut().expect("an object").extend(members.as_object().expect("one").clone());
        let answer = ask(&operator, Method::PUT, "bindings/other?expected_version=0", Some(&binding)).await;
        assert_eq!(answer.status, 422, "{members}: {answer:?}");
        assert!(pointers(&answer).iter().any(|at| at.ends_with(pointer)), "{members}: {answer:?}");
    }
}
