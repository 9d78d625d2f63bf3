//! Reference plugins that count in the gateway's storage: built-in ones, and `tenant-quota` as a process.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::{StreamExt as _, stream};
use hookgate_proto::types::v1::ExtensionPoint::{
    self, AfterToolResult, BeforeLlmRequest, BeforeResponse, BeforeToolCall,
};
use hookgate_tests::{
    agent::HttpAnswer,
    gateway::{Gateway, Setup},
    postgres,
    token::{Token, token},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::process::PluginProcess;

/// A gateway with a database in `folder`.
fn with_database(folder: &TempDir) -> Setup {
    let url = format!("sqlite:{}", folder.path().join("data.db").display());
    Gateway::with().tenant("acme").tenant("globex").store(&url, folder.path())
}

/// A gateway with the built-in plugin `name`, and this configuration for all tenants.
async fn with_builtin(folder: &TempDir, name: &str, config: Value) -> Gateway {
    let setup = with_database(folder).builtin(name, &json!({}));
    setup.binding_with(name, 1, &json!({ "config": config })).start().await
}

async fn call(gateway: &Gateway, tenant: &str, point: ExtensionPoint, payload: Value) -> HttpAnswer {
    gateway.http(&token(tenant)).call(point, payload).await
}

fn tool(name: &str) -> Value {
    json!({ "tool_name": name, "args": { "path": "/a" } })
}

fn code(answer: &HttpAnswer) -> &str {
    answer.body["block"]["code"].as_str().unwrap_or_default()
}

/// The seconds of `Retry-After`.
fn retry_after(answer: &HttpAnswer) -> u64 {
    answer.header("retry-after").expect("it says when to come back").parse().unwrap()
}

/// Waits until a test of a daily limit can't run over midnight.
async fn wait_out_the_end_of_a_day() {
    let left = 86_400 - SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() % 86_400;
    if left < 180 {
        tokio::time::sleep(Duration::from_secs(left + 1)).await;
    }
}

#[tokio::test]
async fn rate_limit_blocks_a_tenants_calls_beyond_the_limit_and_says_when_to_come_back() {
    wait_out_the_end_of_a_day().await;
    let folder = tempfile::tempdir().unwrap();
    let config = json!({ "limits": [{ "requests": 2, "per": "day" }] });
    let gateway = with_builtin(&folder, "rate-limit", config).await;
    for _ in 0..2 {
        assert_eq!(call(&gateway, "acme", BeforeToolCall, tool("t")).await.status, 200);
    }
    let refused = call(&gateway, "acme", BeforeToolCall, tool("t")).await;
    assert_eq!((refused.status, code(&refused)), (429, "RATE_LIMITED"));
    assert!((1..=86_400).contains(&retry_after(&refused)), "{refused:?}");
    assert_eq!(call(&gateway, "globex", BeforeToolCall, tool("t")).await.status, 200);
    // It survives a restart.
    drop(gateway);
    let config = json!({ "limits": [{ "requests": 2, "per": "day" }] });
    let gateway = with_builtin(&folder, "rate-limit", config).await;
    assert_eq!(call(&gateway, "acme", BeforeToolCall, tool("t")).await.status, 429);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_2000_calls_to_two_replicas_exactly_the_1000_that_a_limit_allows_pass() {
    let url = postgres::database().await;
    wait_out_the_end_of_a_day().await;
    let mut replicas = Vec::new();
    for _ in 0..2 {
        let folder = tempfile::tempdir().unwrap();
        // A busy machine may delay a call. It must not fail for that.
        let setup = Gateway::with().tenant("acme").store(&url, folder.path()).set("/limits/budget", "60s");
        let config = json!({ "config": { "limits": [{ "requests": 1000, "per": "day" }] } });
        let setup = setup.builtin("rate-limit", &json!({})).binding_with("rate-limit", 1, &config);
        let setup = setup.set("/plugins/0/limits", json!({ "timeout": "60s" }));
        replicas.push((setup.start().await, folder));
    }
    let statuses: Vec<_> = stream::iter(0..2000)
        .map(|number| call(&replicas[number % 2].0, "acme", BeforeToolCall, tool("t")))
        .buffer_unordered(64)
        .map(|answer| answer.status)
        .collect()
        .await;
    let count = |status| statuses.iter().filter(|own| **own == status).count();
    assert_eq!((count(200), count(429)), (1000, 1000));
}

#[tokio::test]
async fn loop_detect_stops_a_run_that_repeats_a_call_and_no_other_run() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = with_builtin(&folder, "loop-detect", json!({ "max_repeats": 2, "window": "1h" })).await;
    let in_run = async |run: &str, args: Value| {
        let body =
            json!({ "context": { "run_id": run }, "payload": { "tool_name": "fs.read", "args": args } });
        gateway.http(&token("acme")).post(BeforeToolCall, &body).await
    };
    for _ in 0..2 {
        assert_eq!(in_run("one", json!({ "a": 1, "b": 2 })).await.status, 200);
        assert_eq!(in_run("two", json!({ "a": 1, "b": 2 })).await.status, 200);
    }
    let refused = in_run("one", json!({ "b": 2, "a": 1 })).await;
    assert_eq!((refused.status, code(&refused)), (403, "LOOP_DETECTED"));
    assert_eq!(in_run("one", json!({ "a": 1, "b": 3 })).await.status, 200);
    assert_eq!(in_run("three", json!({ "a": 1, "b": 2 })).await.status, 200);
}

#[tokio::test]
async fn circuit_breaker_pauses_a_tool_that_keeps_failing() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = with_builtin(&folder, "circuit-breaker", json!({ "failures": 2, "cooldown": "1h" })).await;
    let result = |success: bool| json!({ "tool_name": "db", "result": "x", "success": success });
    for success in [false, true, false, false] {
        assert_eq!(call(&gateway, "acme", BeforeToolCall, tool("db")).await.status, 200);
        assert_eq!(call(&gateway, "acme", AfterToolResult, result(success)).await.status, 200);
    }
    let refused = call(&gateway, "acme", BeforeToolCall, tool("db")).await;
    assert_eq!((refused.status, code(&refused)), (403, "TOOL_UNAVAILABLE"));
    assert!((3500..=3600).contains(&retry_after(&refused)), "{refused:?}");
    assert_eq!(call(&gateway, "acme", BeforeToolCall, tool("web")).await.status, 200);
    assert_eq!(call(&gateway, "globex", BeforeToolCall, tool("db")).await.status, 200);
}

#[tokio::test]
async fn a_builtin_that_stores_data_is_refused_without_a_database() {
    let setup = Gateway::with().tenant("acme").builtin("rate-limit", &json!({})).binding("rate-limit", 1);
    let exit = setup.run_to_the_end().await;
    assert_eq!(exit.code, Some(4));
    assert!(exit.log.to_string().contains("set `store`"), "{}", exit.log);
}

#[tokio::test]
async fn tenant_quota_and_tenant_auth_enforce_a_plan() {
    let folder = tempfile::tempdir().unwrap();
    let socket = |name: &str| format!("unix://{}", folder.path().join(format!("{name}.sock")).display());
    let mut setup = with_database(&folder)
        .set("/server/host_socket", folder.path().join("host.sock").display().to_string());
    let mut processes = Vec::new();
    let mut plugins = Vec::new();
    for (name, grants) in
        [("tenant-auth", json!([])), ("tenant-quota", json!(["storage:read", "storage:write"]))]
    {
        processes.push(PluginProcess::reference(name, &socket(name), &[]).await);
        plugins.push(json!({ "name": name, "endpoint": socket(name), "grants": grants }));
    }
    setup = setup.set("/plugins", plugins).binding("tenant-auth", 1).binding("tenant-quota", 2);
    let plan = json!({
        "tenant-auth": { "allowed_tools": ["fs.*"], "operators": ["agent@*"] },
        "tenant-quota": { "daily_tokens": 100, "requests_per_minute": 1000 },
    });
    let gateway = setup.set("/tenants/list/0/config", plan).start().await;
    let agent = Token::for_tenant("acme").claim("sub", "agent@acme").mint();
    let stranger = Token::for_tenant("acme").claim("sub", "stranger").mint();
    let ask = json!({ "text": "hi" });
    let answer = |tokens: u64| json!({ "content": "ho", "token_usage": { "input": tokens, "output": 1 } });

    let refused = gateway.http(&stranger).call(BeforeLlmRequest, ask.clone()).await;
    assert_eq!((refused.status, code(&refused)), (401, "UNAUTHORIZED"));
    let refused = gateway.http(&agent).call(BeforeToolCall, tool("shell.exec")).await;
    assert_eq!((refused.status, code(&refused)), (403, "TOOL_NOT_ALLOWED"));
    assert_eq!(gateway.http(&agent).call(BeforeToolCall, tool("fs.read")).await.status, 200);

    assert_eq!(gateway.http(&agent).call(BeforeLlmRequest, ask.clone()).await.status, 200);
    assert_eq!(gateway.http(&agent).call(BeforeResponse, answer(98)).await.status, 200);
    assert_eq!(gateway.http(&agent).call(BeforeLlmRequest, ask.clone()).await.status, 200);
    assert_eq!(gateway.http(&agent).call(BeforeResponse, answer(5)).await.status, 200);
    let refused = gateway.http(&agent).call(BeforeLlmRequest, ask).await;
    assert_eq!((refused.status, code(&refused)), (429, "QUOTA_EXCEEDED"));
    assert_eq!(
        refused.body["block"]["message"],
        "Daily token limit exceeded. Please upgrade your plan or try again tomorrow."
    );
    assert!((1..=86_400).contains(&retry_after(&refused)), "{refused:?}");
    let details = &refused.body["notices"][0]["details"];
    assert_eq!(details, &json!({ "used": 105, "limit": 100 }));
}
