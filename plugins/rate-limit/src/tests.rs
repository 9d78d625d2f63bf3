use std::time::Duration;

use hookgate_sdk::{
    StatusCode,
    harness::{TestHost, TestPlugin},
};
use serde_json::Value;

use super::*;

async fn start(storage: &TestHost, limits: Value) -> TestPlugin<RateLimit> {
    let plugin = TestPlugin::<RateLimit>::start_with_host(&NoConfig {}, storage).await.unwrap();
    plugin.with_tenant_config(&json!({ "limits": limits })).unwrap()
}

async fn call(plugin: &TestPlugin<RateLimit>, tool: &str) -> Reply<BeforeToolCallPatch> {
    let call = BeforeToolCallPayload { tool_name: tool.to_owned(), ..Default::default() };
    plugin.before_tool_call(call).await.unwrap()
}

async fn passes(plugin: &TestPlugin<RateLimit>, tool: &str) -> bool {
    call(plugin, tool).await.cancelled().is_none()
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_tenant_are_limited_for_all_replicas_until_the_window_ends() {
    let storage = TestHost::new();
    let limits = json!([{ "requests": 2, "per": "minute" }]);
    let (one, two) = (start(&storage, limits.clone()).await, start(&storage, limits).await);
    tokio::time::advance(Duration::from_millis(58_500)).await;
    assert!(passes(&one, "a").await && passes(&two, "b").await);
    let reply = call(&one, "c").await;
    let message = "Rate limit of 2 per minute and tenant exceeded. Please try again later.";
    let expected = Cancel::new("RATE_LIMITED", message).retry_after(Duration::from_millis(1500));
    assert_eq!(reply.cancelled(), Some(&expected));
    let details: Value = serde_json::from_slice(reply.notices()[0].details_json()).unwrap();
    assert_eq!(details, json!({ "limit": 2, "per": "minute", "by": "tenant", "retry_after_ms": 1500 }));
    assert!(passes(&one.with_tenant("other"), "a").await);
    tokio::time::advance(Duration::from_millis(1500)).await;
    assert!(passes(&two, "a").await);
}

#[tokio::test(start_paused = true)]
async fn every_window_has_its_length() {
    for (per, seconds) in [("second", 1), ("minute", 60), ("hour", 3600), ("day", 86_400)] {
        let plugin = start(&TestHost::new(), json!([{ "requests": 1, "per": per }])).await;
        assert!(passes(&plugin, "a").await);
        tokio::time::advance(Duration::from_millis(seconds * 1000 - 1)).await;
        assert!(!passes(&plugin, "a").await, "{per}");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(passes(&plugin, "a").await, "{per}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_counts_for_no_limit() {
    let limits = json!([
        { "requests": 3, "per": "day" },
        { "requests": 1, "per": "minute", "by": "tool" },
    ]);
    let plugin = start(&TestHost::new(), limits).await;
    assert!(passes(&plugin, "a").await);
    for _ in 0..10 {
        assert!(!passes(&plugin, "a").await);
    }
    assert!(passes(&plugin, "b").await && passes(&plugin, "c").await);
    assert!(!passes(&plugin, "d").await, "the day's limit");
}

#[tokio::test(start_paused = true)]
async fn a_limit_counts_by_operator_user_or_tool() {
    for by in ["operator", "user", "tool"] {
        let plugin = start(&TestHost::new(), json!([{ "requests": 1, "per": "hour", "by": by }])).await;
        let with = |operator: &str, user: Option<&str>| {
            let user_id = user.map(str::to_owned);
            plugin.with_context(|context| {
                operator.clone_into(&mut context.operator);
                context.user_id = user_id;
            })
        };
        assert!(passes(&with("o", Some("u")), "t").await);
        assert!(!passes(&with("o", Some("u")), "t").await, "{by}");
        assert_eq!(passes(&with("p", Some("u")), "t").await, by == "operator");
        assert_eq!(passes(&with("o", Some("v")), "t").await, by == "user");
        assert_eq!(passes(&with("o", Some("u")), "t\n").await, by == "tool");
        // Calls without a user share a counter too.
        assert_eq!(passes(&with("o", None), "t").await, by == "user");
        assert!(!passes(&with("o", None), "t").await, "{by}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_point_has_its_own_counters() {
    let plugin = start(&TestHost::new(), json!([{ "requests": 1, "per": "day", "by": "tool" }])).await;
    for passes in [true, false] {
        let request = plugin.before_llm_request(BeforeLlmRequestPayload::default()).await.unwrap();
        let call = call(&plugin, "t").await;
        let result = AfterToolResultPayload { tool_name: "t".to_owned(), ..Default::default() };
        let result = plugin.after_tool_result(result).await.unwrap();
        let response = plugin.before_response(BeforeResponsePayload::default()).await.unwrap();
        let cancels = [request.cancelled(), call.cancelled(), result.cancelled(), response.cancelled()];
        assert_eq!(cancels.map(|cancel| cancel.is_none()), [passes; 4]);
    }
}

#[tokio::test]
async fn without_limits_the_storage_is_not_asked() {
    let storage = TestHost::new();
    storage.set_available(false);
    let plugin = start(&storage, json!([])).await;
    assert!(passes(&plugin, "a").await);
}

#[tokio::test]
async fn a_storage_that_does_not_answer_lets_nothing_pass() {
    let storage = TestHost::new();
    let plugin = start(&storage, json!([{ "requests": 1, "per": "day" }])).await;
    storage.set_available(false);
    let call = plugin.before_tool_call(BeforeToolCallPayload::default()).await;
    assert_eq!(call.unwrap_err().code(), StatusCode::Unavailable);
}

#[tokio::test]
async fn a_mistake_in_the_limits_is_named() {
    for (limits, expected) in [
        (json!([{ "requests": 0, "per": "day" }]), "field `limits[0].requests`"),
        (json!([{ "requests": 1, "per": "week" }]), "field `limits[0].per`"),
        (json!([{ "requests": 1 }]), "missing field `per`"),
        (
            json!([{ "requests": 1, "per": "day" }, { "requests": 2, "per": "day", "by": "tenant" }]),
            "`limits[1]`: another limit has the same `per` and `by`",
        ),
    ] {
        let plugin = start(&TestHost::new(), limits).await;
        let status = plugin.before_tool_call(BeforeToolCallPayload::default()).await.unwrap_err();
        assert_eq!(status.code(), StatusCode::InvalidArgument);
        assert!(status.message().contains(expected), "{}", status.message());
    }
}

#[tokio::test]
async fn a_replay_is_neither_counted_nor_limited() {
    let plugin = start(&TestHost::new(), json!([{ "requests": 1, "per": "day" }])).await;
    let replay = plugin.with_context(|context| context.replay = true);
    for (plugin, passes) in [(&replay, true), (&plugin, true), (&plugin, false), (&replay, true)] {
        let request = plugin.before_llm_request(BeforeLlmRequestPayload::default()).await.unwrap();
        let result = plugin.after_tool_result(AfterToolResultPayload::default()).await.unwrap();
        let cancels = [request.cancelled(), result.cancelled()];
        assert_eq!(cancels.map(|cancel| cancel.is_none()), [passes; 2]);
    }
}

#[tokio::test]
async fn a_request_of_many_messages_counts_once() {
    let plugin = start(&TestHost::new(), json!([{ "requests": 1, "per": "day" }])).await;
    let part = plugin.with_context(|context| context.part = true);
    for (plugin, passes) in [(&part, true), (&part, true), (&plugin, true), (&plugin, false), (&part, true)] {
        let request = plugin.before_llm_request(BeforeLlmRequestPayload::default()).await.unwrap();
        assert_eq!(request.cancelled().is_none(), passes);
    }
}
