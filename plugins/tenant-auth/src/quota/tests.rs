use hookgate_sdk::{
    StatusCode, TokenUsage,
    harness::{TestHost, TestPlugin},
};
use serde_json::Value;

use super::*;

async fn start(storage: &TestHost, limits: Value) -> TestPlugin<TenantQuota> {
    let plugin = TestPlugin::<TenantQuota>::start_with_host(&NoConfig {}, storage).await.unwrap();
    plugin.with_tenant_config(&limits).unwrap()
}

async fn request(plugin: &TestPlugin<TenantQuota>) -> Reply<BeforeLlmRequestPatch> {
    plugin.before_llm_request(BeforeLlmRequestPayload::default()).await.unwrap()
}

async fn is_blocked(plugin: &TestPlugin<TenantQuota>) -> bool {
    request(plugin).await.cancelled().is_some()
}

async fn use_tokens(plugin: &TestPlugin<TenantQuota>, input: u64, output: u64) {
    let token_usage = Some(TokenUsage { input, output });
    let response = BeforeResponsePayload { token_usage, ..Default::default() };
    assert!(plugin.before_response(response).await.unwrap().cancelled().is_none());
}

async fn counter(plugin: &TestPlugin<TenantQuota>, key: &str) -> Option<i64> {
    plugin.storage().get(key).await.unwrap().and_then(|entry| entry.counter())
}

fn details(reply: &Reply<BeforeLlmRequestPatch>) -> Value {
    serde_json::from_slice(reply.notices()[0].details_json()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn tokens_of_a_day_are_limited_for_all_replicas_until_the_next_day() {
    let storage = TestHost::new();
    let limits = json!({ "daily_tokens": 1000 });
    let (one, two) = (start(&storage, limits.clone()).await, start(&storage, limits).await);
    use_tokens(&one, 400, 599).await;
    assert!(!is_blocked(&two).await, "999 are less than the limit");
    use_tokens(&two, 1, 10).await;
    tokio::time::advance(Duration::from_secs(60 * 60)).await;
    let reply = request(&one).await;
    let cancel = reply.cancelled().unwrap().clone();
    let message = "Daily token limit exceeded. Please upgrade your plan or try again tomorrow.";
    let until_midnight = Duration::from_secs(23 * 60 * 60);
    assert_eq!(cancel, Cancel::new("QUOTA_EXCEEDED", message).retry_after(until_midnight));
    assert_eq!(details(&reply), json!({ "used": 1010, "limit": 1000 }));
    assert_eq!(reply.notices()[0].code(), Some("QUOTA_EXCEEDED"));
    assert!(!is_blocked(&one.with_tenant("other")).await);
    tokio::time::advance(until_midnight).await;
    assert!(!is_blocked(&one).await);
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_minute_are_limited_until_the_next_minute() {
    let storage = TestHost::new();
    let limits = json!({ "requests_per_minute": 2 });
    let (one, two) = (start(&storage, limits.clone()).await, start(&storage, limits).await);
    tokio::time::advance(Duration::from_secs(20)).await;
    assert!(!is_blocked(&one).await && !is_blocked(&two).await);
    let reply = request(&one).await;
    let message = "Request limit of 2 per minute exceeded. Please try again in a minute.";
    let expected = Cancel::new("QUOTA_EXCEEDED", message).retry_after(Duration::from_secs(40));
    assert_eq!(reply.cancelled(), Some(&expected));
    assert_eq!(details(&reply), json!({ "used": 2, "limit": 2 }));
    tokio::time::advance(Duration::from_secs(40)).await;
    assert!(!is_blocked(&two).await);
}

#[tokio::test]
async fn a_request_that_the_tokens_block_does_not_count_as_a_request() {
    let plugin = start(&TestHost::new(), json!({ "daily_tokens": 10, "requests_per_minute": 1 })).await;
    use_tokens(&plugin, 10, 0).await;
    assert_eq!(details(&request(&plugin).await), json!({ "used": 10, "limit": 10 }));
    assert_eq!(counter(&plugin, "requests").await, None);
}

#[tokio::test]
async fn without_limits_nothing_is_blocked_and_usage_is_recorded() {
    let plugin = start(&TestHost::new(), json!({})).await;
    for _ in 0..100 {
        assert!(!is_blocked(&plugin).await);
    }
    let bob = plugin.with_context(|context| "bob".clone_into(&mut context.operator));
    use_tokens(&plugin, 3, 4).await;
    use_tokens(&bob, 0, 5).await;
    use_tokens(&plugin, 0, 0).await;
    let result = AfterToolResultPayload { success: Some(false), ..Default::default() };
    plugin.after_tool_result(result.clone()).await.unwrap();
    bob.after_tool_result(result).await.unwrap();
    let answer = BeforeResponsePayload::default();
    assert!(bob.before_response(answer).await.is_ok(), "an answer without usage");
    for (key, expected) in [
        ("tokens", 12),
        ("tokens/operator/test-operator", 7),
        ("tokens/operator/bob", 5),
        ("tool_calls", 2),
        ("tool_calls/operator/test-operator", 1),
        ("tool_calls/operator/bob", 1),
    ] {
        assert_eq!(counter(&plugin, key).await, Some(expected), "{key}");
    }
    assert_eq!(counter(&plugin, "requests").await, None);
}

#[tokio::test]
async fn a_limit_of_zero_blocks_everything_and_a_huge_usage_breaks_nothing() {
    let plugin = start(&TestHost::new(), json!({ "daily_tokens": 0 })).await;
    assert!(is_blocked(&plugin).await);
    let plugin = start(&TestHost::new(), json!({ "daily_tokens": u64::MAX })).await;
    use_tokens(&plugin, u64::MAX, u64::MAX).await;
    use_tokens(&plugin, 1, 1).await;
    assert_eq!(counter(&plugin, "tokens").await, Some(1 << 53));
    assert!(!is_blocked(&plugin).await);
}

#[tokio::test]
async fn a_huge_usage_uses_up_what_is_left_of_a_quota() {
    let plugin = start(&TestHost::new(), json!({ "daily_tokens": 100 })).await;
    let bob = plugin.with_context(|context| "bob".clone_into(&mut context.operator));
    use_tokens(&plugin, 60, 0).await;
    assert!(!is_blocked(&plugin).await);
    use_tokens(&bob, 1 << 53, 1 << 53).await;
    assert!(is_blocked(&plugin).await);
    for (key, expected) in
        [("tokens", 1 << 53), ("tokens/operator/test-operator", 60), ("tokens/operator/bob", (1 << 53) - 60)]
    {
        assert_eq!(counter(&plugin, key).await, Some(expected), "{key}");
    }
}

#[tokio::test]
async fn a_storage_that_does_not_answer_lets_nothing_pass() {
    let storage = TestHost::new();
    let plugin = start(&storage, json!({ "daily_tokens": 1000, "requests_per_minute": 60 })).await;
    storage.set_available(false);
    let request = plugin.before_llm_request(BeforeLlmRequestPayload::default()).await.err();
    let result = plugin.after_tool_result(AfterToolResultPayload::default()).await.err();
    let token_usage = Some(TokenUsage { input: 1, output: 1 });
    let response = BeforeResponsePayload { token_usage, ..Default::default() };
    let response = plugin.before_response(response).await.err();
    for status in [request, result, response] {
        assert_eq!(status.map(|status| status.code()), Some(StatusCode::Unavailable));
    }
}

#[tokio::test]
async fn a_replay_is_neither_counted_nor_limited() {
    let plugin = start(&TestHost::new(), json!({ "daily_tokens": 10, "requests_per_minute": 1 })).await;
    let replay = plugin.with_context(|context| context.replay = true);
    assert!(!is_blocked(&replay).await && !is_blocked(&plugin).await);
    replay.after_tool_result(AfterToolResultPayload::default()).await.unwrap();
    assert_eq!(counter(&plugin, "tool_calls").await, None);
    assert!(is_blocked(&plugin).await, "the minute's limit");
    use_tokens(&plugin, 10, 0).await;
    assert!(!is_blocked(&replay).await);
}

#[tokio::test]
async fn a_request_of_many_messages_counts_once() {
    let plugin = start(&TestHost::new(), json!({ "daily_tokens": 10, "requests_per_minute": 1 })).await;
    let part = plugin.with_context(|context| context.part = true);
    for _ in 0..4 {
        assert!(!is_blocked(&part).await);
    }
    assert!(!is_blocked(&plugin).await, "the request as a whole is the first that counts");
    assert!(is_blocked(&plugin).await, "the minute's limit");
    use_tokens(&plugin, 10, 0).await;
    assert!(!is_blocked(&part).await);
}
