//! Tests the built-in plugin `output-validate` through the gateway, with the configuration of its page.

use hookgate_proto::types::v1::ExtensionPoint::AfterToolResult;
use hookgate_tests::{
    agent::HttpAnswer,
    fake::{FakePlugin, Payload},
    gateway::{Gateway, Setup},
    token::token,
};
use serde_json::{Value, json};

use super::reference_page::{example, section};

fn documented() -> Setup {
    let file = example("output-validate");
    let setup = Gateway::with().tenant("acme").builtin("output-validate", &file["plugins"][0]["config"]);
    setup.set("/bindings", file["bindings"].clone())
}

async fn call(gateway: &Gateway, tool: &str, result: Value, success: bool) -> HttpAnswer {
    let payload = json!({ "tool_name": tool, "result": result, "success": success });
    gateway.http(&token("acme")).call(AfterToolResult, payload).await
}

#[tokio::test]
async fn a_wrong_result_is_replaced_for_the_next_plugin_and_the_agent() {
    let later = FakePlugin::named("later").start().await;
    let gateway = documented().plugin(&later).binding("later", 600).start().await;
    let answer = call(&gateway, "weather.today", json!({ "celsius": "s3cret" }), true).await;
    assert_eq!((answer.status, &answer.body["modified"]), (200, &json!(true)), "{answer:?}");
    let error = &answer.body["payload"]["result"];
    assert!(section("output-validate").1.contains(error), "docs/reference-plugins.md should show {error:#}");
    assert_eq!(answer.body["payload"]["success"], json!(true), "no plugin can change it");
    let notice = json!({
        "plugin": "output-validate",
        "kind": "warn",
        "code": "TOOL_OUTPUT_INVALID",
        "message": error["message"],
        "details": { "tool_name": "weather.today", "violations": error["violations"] },
    });
    assert_eq!(answer.body["notices"], json!([notice]));
    assert!(!answer.body.to_string().contains("s3cret"), "{answer:?}");
    let Payload::AfterToolResult(seen) = &later.seen()[0].payload else { panic!("another point") };
    assert_eq!(serde_json::from_slice::<Value>(&seen.result).unwrap(), *error);
}

#[tokio::test]
async fn a_wrong_result_is_blocked_with_422() {
    let gateway = documented().start().await;
    let answer = call(&gateway, "orders.list", json!(r#"[{ "id": 1 }, { "ID": "s3cret" }]"#), true).await;
    let message = "The result of tool 'orders.list' breaks its schema: `required` at `/1`.";
    assert_eq!(answer.status, 422, "{answer:?}");
    assert_eq!(
        answer.body["block"],
        json!({
            "plugin": "output-validate",
            "binding": "output-validate",
            "code": "TOOL_OUTPUT_INVALID",
            "message": message,
            "scope": "step",
        })
    );
    let details =
        json!({ "tool_name": "orders.list", "violations": [{ "path": "/1", "keyword": "required" }] });
    assert_eq!(answer.body["notices"][0]["details"], details);
}

#[tokio::test]
async fn a_warning_lets_a_wrong_result_pass() {
    let mut config = example("output-validate")["plugins"][0]["config"].clone();
    config["schemas"][0]["on_mismatch"] = json!("warn");
    let setup =
        Gateway::with().tenant("acme").builtin("output-validate", &config).binding("output-validate", 10);
    let answer = call(&setup.start().await, "weather.today", json!({ "fahrenheit": 4 }), true).await;
    assert_eq!(
        (answer.status, &answer.body["payload"]["result"]),
        (200, &json!({ "fahrenheit": 4 })),
        "{answer:?}"
    );
    let notice = &answer.body["notices"][0];
    assert_eq!(
        (&notice["kind"], &notice["code"]),
        (&json!("warn"), &json!("TOOL_OUTPUT_INVALID")),
        "{answer:?}"
    );
}

#[tokio::test]
async fn right_results_failed_tools_and_other_tools_pass() {
    let gateway = documented().start().await;
    for (tool, result, success) in [
        ("weather.today", json!({ "celsius": -3.5, "place": "Oslo" }), true),
        ("weather.today", json!("no such place"), false),
        ("orders.list", json!(r#"[{ "id": 9007199254740993 }]"#), true),
        ("orders.list", json!([]), true),
        ("web.get", json!("any text"), true),
    ] {
        let answer = call(&gateway, tool, result.clone(), success).await;
        let body = &answer.body;
        assert_eq!((answer.status, &body["payload"]["result"]), (200, &result), "{answer:?}");
        assert_eq!((&body["modified"], &body["notices"]), (&json!(false), &json!([])), "{answer:?}");
    }
}

#[tokio::test]
async fn a_schema_with_a_mistake_ends_the_start_with_its_setting() {
    for schema in [
        json!({ "type": "objct" }),
        json!({ "$ref": "https://example.com/schema.json" }),
        json!({ "pattern": "(?=a)" }),
    ] {
        let config =
            json!({ "schemas": [{ "tools": ["*"], "schema": true }, { "tools": ["*"], "schema": schema }] });
        let setup = Gateway::with().tenant("acme").builtin("output-validate", &config);
        let exit = setup.binding("output-validate", 10).run_to_the_end().await;
        assert_eq!(exit.code, Some(4), "{}", exit.log);
        assert!(exit.log.to_string().contains("`schemas[1].schema`"), "{}", exit.log);
    }
}
