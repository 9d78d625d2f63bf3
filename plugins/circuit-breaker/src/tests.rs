use hookgate_sdk::{
    StatusCode,
    harness::{TestHost, TestPlugin},
};
use serde_json::Value;

use super::*;

async fn start(storage: &TestHost, config: Value) -> TestPlugin<CircuitBreaker> {
    let plugin = TestPlugin::<CircuitBreaker>::start_with_host(&NoConfig {}, storage).await.unwrap();
    plugin.with_tenant_config(&config).unwrap()
}

async fn call(plugin: &TestPlugin<CircuitBreaker>, tool: &str) -> Reply<BeforeToolCallPatch> {
    let call = BeforeToolCallPayload { tool_name: tool.to_owned(), ..Default::default() };
    plugin.before_tool_call(call).await.unwrap()
}

async fn passes(plugin: &TestPlugin<CircuitBreaker>, tool: &str) -> bool {
    call(plugin, tool).await.cancelled().is_none()
}

async fn report(plugin: &TestPlugin<CircuitBreaker>, tool: &str, success: bool, result: &str) {
    let result = AfterToolResultPayload {
        tool_name: tool.to_owned(),
        success: Some(success),
        result: result.to_owned().into(),
        ..Default::default()
    };
    assert!(plugin.after_tool_result(result).await.unwrap().cancelled().is_none());
}

async fn fail(plugin: &TestPlugin<CircuitBreaker>, tool: &str, times: u32) {
    for _ in 0..times {
        report(plugin, tool, false, "null").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_paused_after_five_failures_in_a_row_for_all_replicas() {
    let storage = TestHost::new();
    let (one, two) = (start(&storage, json!({})).await, start(&storage, json!({})).await);
    fail(&one, "t", 4).await;
    assert!(passes(&two, "t").await);
    fail(&two, "t", 1).await;
    tokio::time::advance(Duration::from_secs(10)).await;
    let reply = call(&one, "t").await;
    let message = "Tool 't' failed several times in a row and is paused. Please try again later.";
    let expected = Cancel::new("TOOL_UNAVAILABLE", message).retry_after(Duration::from_secs(20));
    assert_eq!(reply.cancelled(), Some(&expected));
    let details: Value = serde_json::from_slice(reply.notices()[0].details_json()).unwrap();
    assert_eq!(details, json!({ "tool_name": "t", "retry_after_ms": 20_000 }));
    assert!(passes(&one, "u").await && passes(&one.with_tenant("other"), "t").await);
    // Of a call that began before the pause.
    fail(&one, "t", 1).await;
    tokio::time::advance(Duration::from_secs(20)).await;
    assert!(passes(&one, "t").await, "a late failure doesn't prolong the pause");
}

#[tokio::test(start_paused = true)]
async fn after_the_pause_one_failure_pauses_again_and_one_success_closes() {
    let plugin = start(&TestHost::new(), json!({ "failures": 2, "cooldown": "5s" })).await;
    fail(&plugin, "t", 2).await;
    tokio::time::advance(Duration::from_secs(5)).await;
    assert!(passes(&plugin, "t").await);
    fail(&plugin, "t", 1).await;
    assert!(!passes(&plugin, "t").await);
    report(&plugin, "t", true, "1").await;
    assert!(passes(&plugin, "t").await, "also during the pause");
    fail(&plugin, "t", 1).await;
    assert!(passes(&plugin, "t").await);
    assert_eq!(plugin.storage().list("", 10).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn failures_of_another_day_do_not_count() {
    let plugin = start(&TestHost::new(), json!({ "failures": 2 })).await;
    fail(&plugin, "t", 1).await;
    tokio::time::advance(DAY).await;
    fail(&plugin, "t", 1).await;
    assert!(passes(&plugin, "t").await);
}

#[tokio::test]
async fn a_result_that_says_it_is_an_error_is_a_failure() {
    for (result, is_failure) in [
        (r#"{"isError":true,"content":[]}"#, true),
        (r#" {"content":[{"type":"text"}],"isError":true}"#, true),
        (r#"{"isError":false}"#, false),
        (r#"{"content":[{"isError":true}]}"#, false),
        (r#"{"isError":"true"}"#, false),
        ("[true]", false),
        (r#""isError""#, false),
        ("null", false),
        ("", false),
    ] {
        let plugin = start(&TestHost::new(), json!({ "failures": 1 })).await;
        report(&plugin, "t\n", true, result).await;
        assert_eq!(passes(&plugin, "t\n").await, !is_failure, "{result}");
    }
}

#[tokio::test]
async fn a_storage_that_does_not_answer_lets_nothing_pass() {
    let storage = TestHost::new();
    let plugin = start(&storage, json!({})).await;
    storage.set_available(false);
    let call = plugin.before_tool_call(BeforeToolCallPayload::default()).await.err();
    let success = AfterToolResultPayload { success: Some(true), ..Default::default() };
    let failure = AfterToolResultPayload { success: Some(false), ..Default::default() };
    let success = plugin.after_tool_result(success).await.err();
    let failure = plugin.after_tool_result(failure).await.err();
    for status in [call, success, failure] {
        assert_eq!(status.map(|status| status.code()), Some(StatusCode::Unavailable));
    }
}

#[tokio::test]
async fn a_mistake_in_the_settings_is_named() {
    for (config, expected) in [
        (json!({ "failures": 0 }), "field `failures`"),
        (json!({ "cooldown": "0ms" }), "`cooldown`: expected 1 ms to 366 days"),
        (json!({ "cooldown": 30 }), "field `cooldown`"),
    ] {
        let plugin = start(&TestHost::new(), config).await;
        let status = plugin.before_tool_call(BeforeToolCallPayload::default()).await.unwrap_err();
        assert_eq!(status.code(), StatusCode::InvalidArgument);
        assert!(status.message().contains(expected), "{}", status.message());
    }
}

#[tokio::test]
async fn a_replayed_result_neither_pauses_a_tool_nor_ends_a_pause() {
    let plugin = start(&TestHost::new(), json!({ "failures": 1 })).await;
    let replay = plugin.with_context(|context| context.replay = true);
    fail(&replay, "t", 2).await;
    assert!(passes(&plugin, "t").await);
    fail(&plugin, "t", 1).await;
    report(&replay, "t", true, "1").await;
    assert!(!passes(&plugin, "t").await);
}
