//! Tests a plugin with consent that a process has never connected to: its bindings apply at the approved
//! points and nowhere else (docs/decisions/0033-consent.md).

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::{
    agent::HttpAgent,
    fake::FakePlugin,
    gateway::{Gateway, Setup},
    token::token,
};
use serde_json::{Value, json};

use crate::{
    admin::registry::support::{Stored, administrator, apply, get, patch, post, stored_as, written},
    edge::support::POINT,
    registry::support::{SOON, status_is},
};

const POINTS: [(ExtensionPoint, &str); 4] = [
    (ExtensionPoint::BeforeLlmRequest, "before_llm_request"),
    (ExtensionPoint::BeforeToolCall, "before_tool_call"),
    (ExtensionPoint::AfterToolResult, "after_tool_result"),
    (ExtensionPoint::BeforeResponse, "before_response"),
];

fn file() -> Setup {
    Gateway::with().tenant("acme").set("/egress", json!({ "cidrs": ["127.0.0.0/8"] })).admin()
}

/// Offers only [`POINT`].
async fn guard() -> FakePlugin {
    FakePlugin::named("guard").only(&[POINT]).start().await
}

async fn status_at(gateway: &Gateway, point: ExtensionPoint) -> u16 {
    let payload = match point {
        ExtensionPoint::BeforeLlmRequest => json!({ "text": "hello" }),
        ExtensionPoint::AfterToolResult => json!({ "tool_name": "fs.read", "result": "x", "success": true }),
        ExtensionPoint::BeforeResponse => json!({ "content": "hello" }),
        _ => json!({ "tool_name": "fs.read", "args": {} }),
    };
    gateway.http(&token("acme")).call(point, payload).await.status
}

/// Checks calls, plans, explanations and answers while the plugin has never been connected.
async fn assert_unmet(gateway: &Gateway, operator: &HttpAgent) {
    let plan = get(operator, "tenants/acme/plan").await.body;
    let whoami = gateway.http(&token("acme")).get("/v1/whoami").await.expect("the data port is open").body;
    for (point, name) in POINTS {
        let stands = point == POINT;
        assert_eq!(status_at(gateway, point).await, if stands { 503 } else { 200 }, "{name}");
        let steps = plan["points"][name]["steps"].as_array().expect("a plan");
        assert_eq!(steps.len(), usize::from(stands), "{name}: {plan:#}");
        assert!(steps.iter().all(|step| step["version"].is_null()), "{plan:#}");
        let told = get(operator, &format!("tenants/acme/explain?point={name}")).await.body;
        let (asked, absent) = (&told["steps"], &told["absent"]);
        if stands {
            assert_eq!(asked[0]["reason"], "not_ready", "{told:#}");
        } else {
            assert_eq!((asked, &absent[0]["cause"]), (&json!([]), &json!("not_offered")), "{told:#}");
        }
        assert_eq!(whoami["points"][name]["plan_digest"], plan["points"][name]["plan_digest"], "{whoami:#}");
    }
}

fn points(answer: &Value) -> Vec<&str> {
    let points = answer["effects"]["sample"][0]["points"].as_object();
    points.into_iter().flatten().map(|(name, _)| name.as_str()).collect()
}

#[tokio::test]
async fn approved_plugin_that_is_away_at_a_restart_stops_the_calls_that_it_was_approved_of_for_alone() {
    let mut plugin = guard().await;
    let Stored { gateway, operator, folder } = stored_as(file()).await;
    let document = json!({
        "plugins": [{ "name": "guard", "endpoint": plugin.endpoint(), "accepted": plugin.accepted() }],
        "bindings": [{ "plugin": "guard", "tenant": "*", "priority": 10 }],
    });
    written(&apply(&operator, "", document).await);
    for (point, name) in POINTS {
        assert_eq!(status_at(&gateway, point).await, 200, "{name}");
    }
    gateway.stop().await;
    plugin.stop().await;

    let url = format!("sqlite:{}", folder.path().join("hookgate.db").display());
    let gateway = file().store(&url, folder.path()).start().await;
    let operator = gateway.admin(&administrator());
    assert_unmet(&gateway, &operator).await;

    // Previews use the approved points too, even for a disabled plugin, which isn't connected.
    written(&post(&operator, "plugins/guard/disable").await);
    let tried = post(&operator, "plugins/guard/enable?dry_run=true").await.body;
    assert_eq!(points(&tried), ["before_tool_call"], "{tried:#}");
    written(&post(&operator, "plugins/guard/enable").await);

    // Once it is up, it runs at the approved points.
    plugin.start().await;
    status_is(&gateway, |status| status["plugins"]["ready"] == 1).await;
    let end = tokio::time::Instant::now() + SOON;
    while status_at(&gateway, POINT).await != 200 {
        assert!(tokio::time::Instant::now() < end, "{}", gateway.log());
    }
    let version = get(&operator, "plugins/guard").await.body["version"].clone();
    let path = format!("plugins/guard?expected_version={version}&dry_run=true");
    let tried = patch(&operator, &path, json!({ "config": { "level": 1 } })).await.body;
    assert_eq!(points(&tried), ["before_tool_call"], "{tried:#}");
}

#[tokio::test]
async fn plugin_pinned_by_the_file_applies_at_the_pinned_points_before_it_is_met() {
    let mut plugin = guard().await;
    let entry = json!({ "accepted": plugin.accepted(), "required": false });
    let setup = file().plugin_with(&plugin, &entry).binding("guard", 10);
    plugin.stop().await;
    let gateway = setup.start().await;
    assert_unmet(&gateway, &gateway.admin(&administrator())).await;
}
