//! Tests the effective plan of a tenant: steps, order, sources, and the digest that answers contain.

use hookgate::core::error::Code;
use hookgate_tests::{
    agent::HttpAgent,
    fake::FakePlugin,
    gateway::Gateway,
    token::{Token, token},
};
use serde_json::{Value, json};

use crate::edge::support::{POINT, assert_http_error, payload};

async fn plan(agent: &HttpAgent, tenant: &str) -> Value {
    let answer = agent.get(&format!("/admin/v1/tenants/{tenant}/plan")).await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body
}

/// The bindings of a plan at a point.
fn bindings(plan: &Value, point: &str) -> Vec<String> {
    let steps = plan["points"][point]["steps"].as_array().expect("a list");
    steps.iter().map(|step| step["binding"].as_str().expect("a name").to_owned()).collect()
}

/// Removes the digests of a step, which are texts but not configuration.
fn without_digests(mut step: Value) -> Value {
    for member in ["config_digest", "tenant_config_digest"] {
        let digest = step[member].take();
        assert!(digest.as_str().is_some_and(|text| text.len() == 64), "{member}: {digest}");
    }
    step
}

#[tokio::test]
async fn a_plan_says_of_each_step_what_its_binding_says() {
    let guard =
        FakePlugin::named("guard").manifest(|manifest| manifest.version = "1.2.3".into()).start().await;
    let mut away = FakePlugin::named("away").start().await;
    away.stop().await;
    let conditions = json!({ "tools": ["fs.*"], "labels": { "claim.role": ["intern"] } });
    let gateway = Gateway::with()
        .tenant_with("acme", &json!({ "labels": { "plan": "pro" } }))
        .plugin_with(&guard, &json!({ "limits": { "timeout": "2s" } }))
        .plugin_with(&away, &json!({ "required": false }))
        .binding_with(
            "guard",
            -5,
            &json!({ "name": "floor", "points": ["before_tool_call"], "match": conditions, "writable": ["args"] }),
        )
        .binding_with("away", 7, &json!({ "selector": { "plan": "pro" }, "mode": "observe" }))
        .binding_with("guard", 9, &json!({ "tenant": "acme", "blocking": false, "timeout": "300ms" }))
        .admin()
        .start()
        .await;
    let operator = gateway.admin(&Token::for_operators().mint());
    let acme = plan(&operator, "acme").await;
    assert_eq!((&acme["tenant"], &acme["revision"]), (&json!("acme"), &json!(1)));
    let steps = acme["points"]["before_tool_call"]["steps"].as_array().expect("a list").clone();
    let tenant_config_digest = steps[0]["tenant_config_digest"].clone();
    let steps: Vec<_> = steps.into_iter().map(without_digests).collect();
    let expected = json!([
        {
            "binding": "floor", "plugin": "guard", "version": "1.2.3", "priority": -5, "mode": "enforce",
            "on_error": "fail", "timeout_ms": 2000, "source": "global", "match": conditions, "writable": ["args"],
            "config_digest": null, "tenant_config_digest": null,
        },
        {
            "binding": "away", "plugin": "away", "version": null, "priority": 7, "mode": "observe",
            "on_error": "skip", "timeout_ms": 5000, "source": "global", "match": null, "writable": null,
            "config_digest": null, "tenant_config_digest": null,
        },
        {
            "binding": "guard@acme", "plugin": "guard", "version": "1.2.3", "priority": 9, "mode": "advise",
            "on_error": "skip", "timeout_ms": 300, "source": "tenant", "match": null, "writable": null,
            "config_digest": null, "tenant_config_digest": null,
        },
    ]);
    assert_eq!(Value::Array(steps), expected);
    assert_eq!(bindings(&acme, "before_response"), ["away", "guard@acme"], "a plan for each point");

    // Answers contain the digest of this plan.
    let answer = gateway.http(&token("acme")).call(POINT, payload()).await;
    assert_eq!(answer.body["plan_digest"], acme["points"]["before_tool_call"]["plan_digest"]);
    assert_eq!(tenant_config_digest, json!(guard.seen()[0].call.tenant_config_digest));
    let one = operator.get("/admin/v1/tenants/acme/plan?point=before_response").await.unwrap().body;
    let mut expected = acme.clone();
    expected["points"] = json!({ "before_response": acme["points"]["before_response"] });
    assert_eq!(one, expected);
}

#[tokio::test]
async fn a_tenant_is_named_percent_encoded_and_one_without_a_plan_is_not_there() {
    let plugin = FakePlugin::named("guard").start().await;
    let gateway = Gateway::with()
        .tenant("a/b ü")
        .tenant_with("off", &json!({ "enabled": false }))
        .plugin(&plugin)
        .binding("guard", 10)
        .admin()
        .start()
        .await;
    let operator = gateway.admin(&Token::for_operators().mint());
    let odd = plan(&operator, "a%2Fb%20%C3%BC").await;
    assert_eq!(
        (&odd["tenant"], bindings(&odd, "before_tool_call")),
        (&json!("a/b ü"), vec!["guard".to_owned()])
    );
    for gone in ["off", "nobody", "a/b"] {
        let answer = operator.get(&format!("/admin/v1/tenants/{gone}/plan")).await.unwrap();
        assert_http_error(&answer, Code::NotFound);
    }
}

#[tokio::test]
async fn an_unlisted_tenant_has_the_plan_for_all_where_such_tenants_are_served() {
    let plugin = FakePlugin::named("guard").start().await;
    let gateway = Gateway::with()
        .tenant("acme")
        .set("/tenants/unknown", "accept")
        .plugin(&plugin)
        .binding("guard", 10)
        .binding_with("guard", 20, &json!({ "tenant": "acme" }))
        .admin()
        .start()
        .await;
    let operator = gateway.admin(&Token::for_operators().mint());
    assert_eq!(bindings(&plan(&operator, "acme").await, "before_response"), ["guard", "guard@acme"]);
    assert_eq!(bindings(&plan(&operator, "stranger").await, "before_response"), ["guard"]);
    let own = gateway.admin(&Token::for_operators().claim("tenant_id", "stranger").mint());
    assert_eq!(bindings(&plan(&own, "stranger").await, "before_response"), ["guard"]);
    assert_eq!(operator.get("/admin/v1/tenants/%2A/plan").await.unwrap().status, 404, "`*` isn't a tenant");
}

#[tokio::test]
async fn a_plan_changes_with_a_manifest_as_the_table_does() {
    let mut plugin = FakePlugin::named("guard").only(&[POINT]).start().await;
    plugin.stop().await;
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin_with(&plugin, &json!({ "required": false }))
        .binding("guard", 10)
        .admin()
        .start()
        .await;
    let operator = gateway.admin(&Token::for_operators().mint());
    let before = plan(&operator, "acme").await;
    assert_eq!(bindings(&before, "before_response"), ["guard"], "unresolved is never skipped");
    plugin.start().await;
    gateway.log().wait_for(|line| line.field("event") == Some(&json!("table.published"))).await;
    let after = plan(&operator, "acme").await;
    assert_eq!(bindings(&after, "before_response"), [""; 0]);
    assert_ne!(after["points"]["before_tool_call"], before["points"]["before_tool_call"]);
    assert_eq!(after["revision"], before["revision"]);
}
