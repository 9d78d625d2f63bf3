//! Tests bindings at points that their plugin doesn't offer: calls there fail, and the log says why before the first call.

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::{
    fake::FakePlugin,
    gateway::{Gateway, Line},
    token::token,
};
use serde_json::{Value, json};

const UNOFFERED: &str = "binding.point_not_offered";

fn event(name: &str) -> impl Fn(&Line) -> bool {
    move |line| line.field("event").is_some_and(|event| event == name)
}

/// The bindings, points and hooks of the lines so far.
fn unoffered(gateway: &Gateway) -> Vec<[Value; 3]> {
    let lines = gateway.log().lines();
    let lines = lines.iter().filter(|line| event(UNOFFERED)(line));
    lines
        .map(|line| ["binding", "point", "hook"].map(|name| line.field(name).cloned().unwrap_or_default()))
        .collect()
}

#[tokio::test]
async fn a_gateway_logs_once_what_a_binding_names_and_its_plugin_does_not_offer() {
    let guard = FakePlugin::named("guard").only(&[ExtensionPoint::BeforeToolCall]).start_unix().await;
    let mut late = FakePlugin::named("late").only(&[ExtensionPoint::BeforeToolCall]).start_unix().await;
    late.stop().await;
    let both = json!({ "points": ["before_tool_call", "before_response"] });
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin(&guard)
        .plugin_with(&late, &json!({ "required": false }))
        .builtin("response-sanitizer", &json!({}))
        .binding_with("guard", 10, &both)
        .binding_with("guard", 20, &json!({ "name": "hooked", "hooks": ["recall"], "mode": "observe" }))
        .binding_with("late", 30, &json!({ "points": ["before_response"], "mode": "observe" }))
        .binding_with("response-sanitizer", 40, &json!({ "points": ["before_tool_call"], "mode": "observe" }))
        .start()
        .await;
    let of = |plugin: &'static str| {
        move |line: &Line| event(UNOFFERED)(line) && line.field("plugin") == Some(&json!(plugin))
    };
    gateway.log().wait_for(of("response-sanitizer")).await;
    let at_point = |line: &Line| of("guard")(line) && line.field("point").is_some();
    let line = gateway.log().wait_for(at_point).await;
    let members = ["plugin", "binding", "point", "remedy"].map(|name| line.field(name).cloned());
    let remedy = "it offers `before_tool_call`: name some of these, or omit `points` for all";
    let expected = ["guard", "guard", "before_response", remedy].map(|text| Some(json!(text)));
    assert_eq!((line.level(), members), (Some("WARN"), expected), "{line:?}");
    let answer = gateway
        .http(&token("acme"))
        .call(ExtensionPoint::BeforeResponse, json!({ "content": "hello" }))
        .await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.body["steps"][0]["reason"], json!("point_not_offered"), "{answer:?}");

    // A plugin that was never reached may offer anything.
    assert!(unoffered(&gateway).iter().all(|[binding, ..]| binding != "late"));
    // Its manifest gives the gateway a new table, and the log only what is new in it.
    late.start().await;
    gateway.log().wait_for(of("late")).await;
    let mut told = unoffered(&gateway);
    told.sort_by_key(|[binding, ..]| binding.to_string());
    let expected = [
        [json!("guard"), json!("before_response"), Value::Null],
        [json!("hooked"), Value::Null, json!("recall")],
        [json!("late"), json!("before_response"), Value::Null],
        [json!("response-sanitizer"), json!("before_tool_call"), Value::Null],
    ];
    assert_eq!(told, expected);
}
