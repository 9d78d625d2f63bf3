use hookgate_sdk::{Status, StatusCode, harness::TestPlugin};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

async fn start(config: &Value) -> Result<TestPlugin<OutputValidate>, Status> {
    TestPlugin::<OutputValidate>::start(config).await
}

/// A plugin with one schema for `weather.*`, and these members besides.
async fn weather(schema: Value, members: Value) -> TestPlugin<OutputValidate> {
    let mut entry = json!({ "tools": ["weather.*"], "schema": schema });
    entry.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    start(&json!({ "schemas": [entry] })).await.unwrap()
}

fn payload(result: &Value) -> AfterToolResultPayload {
    AfterToolResultPayload {
        tool_name: "weather.today".to_owned(),
        result: result.to_string().into(),
        success: Some(true),
        ..Default::default()
    }
}

async fn check(plugin: &TestPlugin<OutputValidate>, result: &Value) -> Reply<AfterToolResultPatch> {
    plugin.after_tool_result(payload(result)).await.unwrap()
}

fn details(reply: &Reply<AfterToolResultPatch>) -> Value {
    serde_json::from_slice(reply.notices()[0].details_json()).unwrap()
}

/// The violations of a result as `path keyword`.
async fn violations(plugin: &TestPlugin<OutputValidate>, result: &Value) -> Vec<String> {
    let reply = check(plugin, result).await;
    if reply == Reply::proceed() {
        return Vec::new();
    }
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let list = details(&reply)["violations"].as_array().unwrap().clone();
    list.iter().map(|one| format!("{} {}", text(&one["path"]), text(&one["keyword"]))).collect()
}

fn temperature() -> Value {
    json!({
        "type": "object",
        "required": ["celsius"],
        "properties": { "celsius": { "type": "number", "minimum": -90 }, "place": { "type": "string" } },
        "additionalProperties": false,
    })
}

#[tokio::test]
async fn a_result_that_matches_passes_untouched() {
    let plugin = weather(temperature(), json!({})).await;
    for result in [json!({ "celsius": 20.5 }), json!({ "celsius": -90, "place": "Oslo" })] {
        assert_eq!(check(&plugin, &result).await, Reply::proceed(), "{result}");
    }
}

#[tokio::test]
async fn a_mismatch_is_blocked_by_default_with_places_and_no_values() {
    let plugin = weather(temperature(), json!({})).await;
    let reply = check(&plugin, &json!({ "celsius": "s3cret", "place": 7, "s3cret": 1 })).await;
    let cancel = reply.cancelled().unwrap();
    let message = "The result of tool 'weather.today' breaks its schema: `type` at `/celsius`, `type` at \
                   `/place`, `additionalProperties`.";
    assert_eq!((cancel.code(), cancel.message()), ("TOOL_OUTPUT_INVALID", message));
    let expected = json!({ "tool_name": "weather.today", "violations": [
        { "path": "/celsius", "keyword": "type" },
        { "path": "/place", "keyword": "type" },
        { "path": "", "keyword": "additionalProperties" },
    ] });
    assert_eq!(details(&reply), expected);
    assert_eq!((reply.notices()[0].code(), reply.changes()), (Some("TOOL_OUTPUT_INVALID"), None));
    assert!(!format!("{reply:?}").contains("s3cret"), "{reply:?}");
}

#[tokio::test]
async fn a_replaced_result_says_what_is_wrong_in_the_form_of_the_result() {
    let plugin = weather(temperature(), json!({ "on_mismatch": "replace", "parse": true })).await;
    let message = "The result of tool 'weather.today' breaks its schema: `required`.";
    let violations = json!([{ "path": "", "keyword": "required" }]);
    let error = json!({ "error": "TOOL_OUTPUT_INVALID", "message": message, "violations": violations });
    for (result, expected) in [(json!({}), error.clone()), (json!("{}"), json!(error.to_string()))] {
        let reply = check(&plugin, &result).await;
        assert_eq!((reply.cancelled(), reply.notices()[0].message()), (None, message));
        let patch = reply.changes().unwrap();
        assert_eq!(serde_json::from_slice::<Value>(patch.result.as_ref().unwrap()).unwrap(), expected);
        assert_eq!(patch.extra, None);
    }
}

#[tokio::test]
async fn a_warning_lets_the_result_pass_with_a_notice() {
    let plugin = weather(temperature(), json!({ "on_mismatch": "warn" })).await;
    let reply = check(&plugin, &json!({})).await;
    assert_eq!((reply.cancelled(), reply.changes()), (None, None));
    assert_eq!(reply.notices()[0].code(), Some("TOOL_OUTPUT_INVALID"));
    assert_eq!(details(&reply)["violations"], json!([{ "path": "", "keyword": "required" }]));
}

#[tokio::test]
async fn failed_tools_and_tools_without_a_schema_pass() {
    let plugin = weather(json!(false), json!({})).await;
    let failed = AfterToolResultPayload { success: Some(false), ..payload(&json!("it broke")) };
    assert_eq!(plugin.after_tool_result(failed).await.unwrap(), Reply::proceed());
    let other = AfterToolResultPayload { tool_name: "web.get".to_owned(), ..payload(&json!(1)) };
    assert_eq!(plugin.after_tool_result(other).await.unwrap(), Reply::proceed());
    assert_eq!(violations(&plugin, &json!(1)).await, [" false"]);
}

#[tokio::test]
async fn the_first_schema_for_a_tool_is_used() {
    let entry = |tool: &str, kind: &str| json!({ "tools": [tool], "schema": { "type": kind } });
    let config = json!({ "schemas": [entry("weather.today", "string"), entry("*", "object")] });
    let plugin = start(&config).await.unwrap();
    assert!(violations(&plugin, &json!("sunny")).await.is_empty());
    assert_eq!(violations(&plugin, &json!({})).await, [" type"]);
}

#[tokio::test]
async fn text_is_parsed_only_if_the_settings_say_so() {
    let parsed = weather(temperature(), json!({ "parse": true })).await;
    let plain = weather(temperature(), json!({})).await;
    for (result, of_parsed, of_plain) in [
        (json!(r#"{ "celsius": 1 }"#), vec![], vec![" type"]),
        (json!({ "celsius": 1 }), vec![], vec![]),
        (json!(r#"{ "celsius": "1" }"#), vec!["/celsius type"], vec![" type"]),
        (json!("It is 1 degree."), vec![" parse"], vec![" type"]),
        (json!(r#"{ "celsius": "x", "celsius": 1 }"#), vec![" parse"], vec![" type"]),
    ] {
        assert_eq!(violations(&parsed, &result).await, of_parsed, "{result}");
        assert_eq!(violations(&plain, &result).await, of_plain, "{result}");
    }
}

#[tokio::test]
async fn a_result_over_the_limit_does_not_match() {
    let config =
        |max: Value| json!({ "schemas": [{ "tools": ["*"], "schema": true }], "max_result_bytes": max });
    for (max, limit) in [(json!(null), 1 << 20), (json!(10), 10)] {
        let plugin = start(&config(max)).await.unwrap();
        assert!(violations(&plugin, &json!("x".repeat(limit - 2))).await.is_empty());
        assert_eq!(violations(&plugin, &json!("x".repeat(limit - 1))).await, [" max_result_bytes"]);
    }
}

#[tokio::test]
async fn a_large_result_has_one_violation_listed_and_others_up_to_eight() {
    let plugin = weather(json!({ "items": { "type": "string" } }), json!({})).await;
    assert_eq!(violations(&plugin, &json!(vec![0; 100])).await.len(), 8);
    assert_eq!(violations(&plugin, &json!(vec![0; 200_000])).await, ["/0 type"]);
}

#[tokio::test]
async fn details_fit_into_a_notice_whatever_the_keys_are() {
    let plugin = weather(json!({ "additionalProperties": { "type": "string" } }), json!({})).await;
    for key in ["\u{1}", "\"", "é", "x"] {
        let members: serde_json::Map<_, _> =
            (0..20).map(|index| (format!("{}{index}", key.repeat(400)), json!(1))).collect();
        let call = AfterToolResultPayload {
            tool_name: format!("weather.{}", "\"".repeat(248)),
            ..payload(&json!(members))
        };
        let reply = plugin.after_tool_result(call).await.unwrap();
        assert!(reply.notices()[0].details_json().len() <= 4096);
        let listed = details(&reply)["violations"].as_array().unwrap().clone();
        assert!(!listed.is_empty() && listed[0]["path"].as_str().unwrap().ends_with('…'), "{listed:?}");
    }
}

#[tokio::test]
async fn formats_are_checked() {
    let plugin = weather(json!({ "format": "date" }), json!({})).await;
    assert!(violations(&plugin, &json!("2026-11-24")).await.is_empty());
    assert_eq!(violations(&plugin, &json!("today")).await, [" format"]);
}

#[tokio::test]
async fn a_mistake_in_the_settings_is_refused_by_field() {
    let schema = |schema: Value| json!({ "schemas": [{ "tools": ["*"], "schema": schema }] });
    for (config, says) in [
        (json!({}), "missing field `schemas`"),
        (json!({ "schemas": [] }), "`schemas`: expected 1 to 256 entries"),
        (
            json!({ "schemas": [{ "tools": [], "schema": true }] }),
            "`schemas[0].tools`: expected at least one entry",
        ),
        (
            json!({ "schemas": [{ "tools": ["["], "schema": true }] }),
            "`schemas[0].tools[0]`: isn't a valid glob",
        ),
        (json!({ "schemas": [{ "tools": ["*"] }] }), "missing field `schema`"),
        (
            json!({ "schemas": [{ "tools": ["*"], "schema": true, "on_mismatch": "ignore" }] }),
            "`schemas[0].on_mismatch`: expected",
        ),
        (
            json!({ "schemas": [{ "tools": ["*"], "schema": true }], "max_result_bytes": 0 }),
            "`max_result_bytes`: expected",
        ),
        (schema(json!({ "type": "objct" })), "`schemas[0].schema`: not a usable JSON Schema at `/type`"),
        (schema(json!("object")), "`schemas[0].schema`"),
        (schema(json!({ "pattern": "(?=a)" })), "`schemas[0].schema`"),
        (schema(json!({ "pattern": r"(\p{L}{999}){99}" })), "`schemas[0].schema`"),
        (schema(json!({ "format": "dtae" })), "`schemas[0].schema`"),
        (schema(json!({ "$ref": "#/$defs/none" })), "`schemas[0].schema`: `#/$defs/none` leads to no part"),
        (schema(json!({ "items": { "$ref": "#" } })), "`schemas[0].schema`: `#` leads back to itself"),
    ] {
        let status = start(&config).await.err().unwrap_or_else(|| panic!("{config}"));
        assert_eq!(status.code(), StatusCode::InvalidArgument, "{status}");
        assert!(status.message().contains(says), "{says}: {}", status.message());
    }
}

#[tokio::test]
async fn a_reference_to_another_document_is_never_fetched() {
    let folder = std::env::temp_dir();
    for reference in [
        "http://127.0.0.1:1/schema.json",
        "https://example.com/schema.json",
        &format!("file://{}/x.json", folder.display()),
    ] {
        let config = json!({ "schemas": [{ "tools": ["*"], "schema": { "$ref": reference } }] });
        let status = start(&config).await.err().unwrap();
        assert!(status.message().contains("leads out of the schema"), "{status}");
    }
}

proptest! {
    /// Where the schema says what a result is, only such results pass.
    #[test]
    fn only_what_the_schema_describes_passes(
        name in prop::sample::select(vec!["n", "m"]),
        value in prop_oneof![
            any::<i32>().prop_map(Value::from),
            "[a-z]{0,3}".prop_map(Value::from),
            Just(Value::Null),
        ],
        as_text in any::<bool>(),
    ) {
        let spec = json!({
            "tools": ["*"],
            "parse": true,
            "schema": { "required": ["n"], "properties": { "n": { "type": "integer", "minimum": 0 } } },
        });
        let schema = ResultSchema::compile(&serde_json::from_value(spec).unwrap(), "schemas[0]").unwrap();
        let result = json!({ name: value });
        let result = if as_text { json!(result.to_string()) } else { result };
        let found = schema.violations(result.to_string().as_bytes(), 1 << 20).unwrap();
        let matches = name == "n" && value.as_i64().is_some_and(|number| number >= 0);
        prop_assert_eq!(found.is_empty(), matches, "{}", result);
    }
}
