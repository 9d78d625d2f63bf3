//! Tests tenant-level config that a plugin's schema rejects (docs/decisions/0007): that tenant's step fails
//! closed, other tenants aren't affected, and the plugin never receives it.

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::{
    fake::{Builder, FakePlugin, Seen},
    gateway::{Gateway, Line, Setup},
    token::token,
};
use serde_json::{Value, json};

const POINT: ExtensionPoint = ExtensionPoint::BeforeToolCall;

fn payload() -> Value {
    json!({ "tool_name": "fs.read", "args": {} })
}

fn plugin(name: &str) -> Builder {
    let schema = json!({ "properties": { "tools": { "type": "array" } }, "additionalProperties": false });
    FakePlugin::named(name).only(&[POINT]).tenant_config_schema(schema)
}

/// acme's config matches the plugin's schema, globex's doesn't.
fn tenants(plugin: &str) -> Setup {
    Gateway::with()
        .tenant_with("acme", &json!({ "config": { plugin: { "tools": [] } } }))
        .tenant_with("globex", &json!({ "config": { plugin: { "tool": "s3cret" } } }))
}

fn tenant_of(seen: &Seen) -> &str {
    seen.call.context.as_ref().map(|context| context.tenant.as_str()).unwrap_or_default()
}

fn event(name: &str) -> impl Fn(&Line) -> bool {
    move |line| line.field("event").is_some_and(|event| event == name)
}

#[tokio::test]
async fn a_config_that_the_schema_refuses_closes_the_step_for_its_tenant_alone() {
    let guard = plugin("guard").start_unix().await;
    let gateway = tenants("guard").plugin(&guard).binding("guard", 10).start().await;
    let globex = gateway.http(&token("globex")).call(POINT, payload()).await;
    assert_eq!((globex.status, &globex.body["code"]), (503, &json!("PLUGIN_UNAVAILABLE")), "{globex:?}");
    assert!(!globex.text.contains("s3cret"), "values are not shown: {globex:?}");
    let acme = gateway.http(&token("acme")).call(POINT, payload()).await;
    assert_eq!(acme.status, 200, "{acme:?}");
    assert_eq!(guard.seen().iter().map(tenant_of).collect::<Vec<_>>(), ["acme"]);

    let line = gateway.log().wait_for(event("plugin.config_refused")).await;
    assert_eq!(line.field("pointer"), Some(&json!("/tenants/list/1/config/guard")), "{line:?}");
    assert!(!line.text.contains("s3cret"), "{line:?}");
}

#[tokio::test]
async fn an_observer_is_not_shown_a_config_that_its_schema_refuses() {
    let witness = plugin("witness").start_unix().await;
    let setup = tenants("witness").plugin(&witness);
    let gateway = setup.binding_with("witness", 10, &json!({ "mode": "observe" })).start().await;
    // A start doesn't wait for an observer's plugin.
    gateway.log().wait_for(event("table.published")).await;
    let globex = gateway.http(&token("globex")).call(POINT, payload()).await;
    assert_eq!((globex.status, &globex.body["steps"][0]["outcome"]), (200, &json!("observed")), "{globex:?}");
    gateway.log().wait_for(event("step.failed")).await;

    gateway.http(&token("acme")).call(POINT, payload()).await;
    witness.wait_until(|counts| counts.calls > 0).await;
    assert_eq!(witness.seen().iter().map(tenant_of).collect::<Vec<_>>(), ["acme"]);
}
