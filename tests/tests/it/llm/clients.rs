//! Unmodified clients: the SDKs and agent libraries that people have, each in a process of its own.

use std::process::Command;

use hookgate_tests::{
    clients,
    provider::{FakeProvider, ProviderAct, ProviderRequest},
    python, repository,
    token::token,
};
use serde_json::{Value, json};

use super::support::setup;

/// Calls two tools at first, and then says what a tool has told. As strict as a provider: each result has its call, and each call
/// its result.
fn agent_model(request: &ProviderRequest) -> ProviderAct {
    let messages = request.json()["messages"].as_array().cloned().unwrap_or_default();
    let mut open = Vec::new();
    for message in &messages {
        match message["tool_call_id"].as_str() {
            Some(id) if !open.contains(&id) => return ProviderAct::text(400, "a result without its call"),
            Some(id) => open.retain(|open| *open != id),
            None if !open.is_empty() => return ProviderAct::text(400, "a call without its result"),
            None => open.extend(
                message["tool_calls"].as_array().into_iter().flatten().filter_map(|call| call["id"].as_str()),
            ),
        }
    }
    let answer = match messages.last().filter(|last| last["role"] == "tool") {
        Some(result) => {
            ProviderAct::says(&format!("the notes are {}", result["content"].as_str().unwrap_or_default()))
        }
        None => ProviderAct::calls(&[("shell_exec", "{}"), ("fs_read", "{}")]),
    };
    answer.for_request(request)
}

/// What a client behind the gateway prints, `form` being `whole` or `stream`.
async fn run(mut client: Command, form: &str) -> Value {
    let provider = FakeProvider::start(agent_model).await;
    let tools = json!({ "default": "allow", "rules": [{ "name": "no-shell", "tools": ["shell_*"], "action": "deny" }] });
    let words = json!({ "abuse": { "terms": ["bomb"] } });
    let setup = setup(&provider).builtin("tool-policy", &tools).builtin("content-policy", &words);
    let setup = setup.builtin("redact", &json!({ "detectors": ["email"] }));
    let gateway =
        setup.binding("content-policy", 10).binding("redact", 20).binding("tool-policy", 30).start().await;
    gateway.wait_until_ready().await;
    client.arg(form);
    client.env("OPENAI_BASE_URL", format!("http://{}/openai/v1", gateway.data_addr()));
    client.env("OPENAI_API_KEY", token("acme"));
    let output =
        tokio::task::spawn_blocking(move || client.output()).await.expect("no panic").expect("it runs");
    assert!(output.status.success(), "{form}: {}", String::from_utf8_lossy(&output.stderr));
    let requests = provider.requests();
    assert_eq!(requests.len(), 2, "a block is not asked again, and the provider is not asked at all");
    for request in requests {
        let body = String::from_utf8_lossy(&request.body);
        assert!(!body.contains("ada@example.com") && !body.contains("bomb"), "{body}");
    }
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Checks that a client is guarded at all four points, and doesn't repeat a block, which it reports as `blocked`.
async fn assert_guarded(client: fn() -> Command, blocked: &str) -> Value {
    let mut got = Value::Null;
    for form in ["whole", "stream"] {
        got = run(client(), form).await;
        assert_eq!(got["ran"], json!(["fs_read"]), "{form}: {got}");
        assert_eq!(
            (&got["answer"], &got["blocked"]),
            (&json!("the notes are by [EMAIL]"), &json!(blocked)),
            "{form}: {got}"
        );
    }
    got
}

fn of_python(script: &str) -> Command {
    let mut client = Command::new(python::sdk().join(".venv/bin/python"));
    client.arg(repository::root().join("tests/clients").join(script));
    client
}

fn of_node(script: &str) -> Command {
    let mut client = Command::new("node");
    client.arg(clients::folder().join(script));
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn openais_own_client_for_python_is_guarded_at_all_four_points() {
    let got = assert_guarded(|| of_python("openai_python.py"), "BadRequestError 400 CONTENT_BLOCKED").await;
    assert_eq!(got["models"], json!(["fast"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn openais_own_client_for_node_is_guarded_at_all_four_points() {
    let got = assert_guarded(|| of_node("openai_node.mjs"), "BadRequestError 400 CONTENT_BLOCKED").await;
    assert_eq!(got["models"], json!(["fast"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_openais_sdk_for_python_are_guarded_at_all_four_points() {
    assert_guarded(|| of_python("openai_agents_python.py"), "BadRequestError 400 CONTENT_BLOCKED").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_openais_sdk_for_node_are_guarded_at_all_four_points() {
    assert_guarded(|| of_node("openai_agents_node.mjs"), "BadRequestError 400 CONTENT_BLOCKED").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_pydantic_ai_are_guarded_at_all_four_points() {
    assert_guarded(|| of_python("pydantic_ai_python.py"), "ModelRequestRejectedError 400 CONTENT_BLOCKED")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_vercels_ai_sdk_are_guarded_at_all_four_points() {
    assert_guarded(|| of_node("vercel_ai.mjs"), "APICallError 400 CONTENT_BLOCKED").await;
}
