use hookgate_sdk::{
    StatusCode,
    harness::{TestHost, TestPlugin},
};
use serde_json::Value;

use super::*;

async fn start(storage: &TestHost, config: Value) -> TestPlugin<LoopDetect> {
    let plugin = TestPlugin::<LoopDetect>::start_with_host(&NoConfig {}, storage).await.unwrap();
    plugin.with_tenant_config(&config).unwrap()
}

fn in_run(plugin: &TestPlugin<LoopDetect>, run: &str) -> TestPlugin<LoopDetect> {
    plugin.with_context(|context| context.run_id = Some(run.to_owned()))
}

async fn call(plugin: &TestPlugin<LoopDetect>, tool: &str, args: &str) -> Reply<BeforeToolCallPatch> {
    let args = args.to_owned().into();
    let call = BeforeToolCallPayload { tool_name: tool.to_owned(), args, ..Default::default() };
    plugin.before_tool_call(call).await.unwrap()
}

async fn passes(plugin: &TestPlugin<LoopDetect>, tool: &str, args: &str) -> bool {
    call(plugin, tool, args).await.cancelled().is_none()
}

#[tokio::test(start_paused = true)]
async fn the_same_call_is_made_three_times_in_a_run_by_all_replicas_and_no_more() {
    let storage = TestHost::new();
    let one = in_run(&start(&storage, json!({})).await, "r");
    let two = in_run(&start(&storage, json!({})).await, "r");
    assert!(passes(&one, "t", r#"{"a":1,"b":2}"#).await);
    assert!(passes(&two, "t", r#"{"b":2, "a":1}"#).await);
    assert!(passes(&one, "t", r#"{"a":1.0,"b":2}"#).await);
    let reply = call(&two, "t", r#"{"a":1,"b":2}"#).await;
    let message =
        "Tool 't' was already called 3 times with the same arguments. Change them, or do something else.";
    assert_eq!(reply.cancelled(), Some(&Cancel::new("LOOP_DETECTED", message)));
    let details: Value = serde_json::from_slice(reply.notices()[0].details_json()).unwrap();
    assert_eq!(details, json!({ "tool_name": "t", "repeats": 3, "max_repeats": 3 }));
    assert!(passes(&one, "t", r#"{"a":2,"b":2}"#).await, "other arguments");
    assert!(passes(&one, "u", r#"{"a":1,"b":2}"#).await, "another tool");
    tokio::time::advance(Duration::from_secs(600)).await;
    assert!(passes(&one, "t", r#"{"a":1,"b":2}"#).await, "the next window");
}

#[tokio::test(start_paused = true)]
async fn runs_and_sessions_do_not_trip_each_other() {
    let plugin = start(&TestHost::new(), json!({ "max_repeats": 1 })).await;
    let session = |id: &str| plugin.with_context(|context| context.session_id = Some(id.to_owned()));
    let (one, two) = (session("a"), session("b"));
    for caller in [&one, &two, &in_run(&one, "a"), &in_run(&one, "b"), &one.with_tenant("other")] {
        assert!(passes(caller, "t", "1").await);
    }
    for caller in [&one, &two, &in_run(&two, "a")] {
        assert!(!passes(caller, "t", "1").await, "a run counts whatever its session is");
    }
}

#[tokio::test]
async fn a_call_without_run_and_session_is_not_judged() {
    let storage = TestHost::new();
    storage.set_available(false);
    let plugin = start(&storage, json!({ "max_repeats": 1 })).await;
    for _ in 0..5 {
        assert!(passes(&plugin, "t", "1").await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenant_may_set_repeats_and_window() {
    let plugin = start(&TestHost::new(), json!({ "max_repeats": 1, "window": "30s" })).await;
    let plugin = in_run(&plugin, "r");
    assert!(passes(&plugin, "t", "1").await);
    tokio::time::advance(Duration::from_secs(29)).await;
    let message = call(&plugin, "t", "1").await.cancelled().unwrap().message().to_owned();
    assert!(message.starts_with("Tool 't' was already called once with"), "{message}");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(passes(&plugin, "t", "1").await);
}

#[tokio::test]
async fn a_storage_that_does_not_answer_lets_nothing_pass() {
    let storage = TestHost::new();
    let plugin = in_run(&start(&storage, json!({})).await, "r");
    storage.set_available(false);
    let call = BeforeToolCallPayload { tool_name: "t".to_owned(), ..Default::default() };
    assert_eq!(plugin.before_tool_call(call).await.unwrap_err().code(), StatusCode::Unavailable);
}

#[tokio::test]
async fn a_mistake_in_the_settings_is_named() {
    for (config, expected) in [
        (json!({ "max_repeats": 0 }), "field `max_repeats`"),
        (json!({ "window": "10" }), "field `window`: expected a whole number and `ms`, `s`, `m` or `h`"),
        (json!({ "window": "0s" }), "`window`: expected 1 ms to 366 days"),
        (json!({ "window": "8785h" }), "`window`: expected 1 ms to 366 days"),
    ] {
        let plugin = start(&TestHost::new(), config).await;
        let status = plugin.before_tool_call(BeforeToolCallPayload::default()).await.unwrap_err();
        assert_eq!(status.code(), StatusCode::InvalidArgument);
        assert!(status.message().contains(expected), "{}", status.message());
    }
}
