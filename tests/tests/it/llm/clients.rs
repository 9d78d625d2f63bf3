//! Unmodified clients.

use std::process::Command;

use hookgate_tests::{
    provider::{FakeProvider, ProviderAct, ProviderRequest},
    python, repository,
    token::token,
};
use serde_json::{Value, json};

use super::support::setup;

/// Calls two tools at first, and then says what a tool has told.
fn agent_model(request: &ProviderRequest) -> ProviderAct {
    let messages = request.json()["messages"].as_array().cloned().unwrap_or_default();
    match messages.last().filter(|last| last["role"] == "tool") {
        Some(result) => {
            ProviderAct::says(&format!("the notes are {}", result["content"].as_str().unwrap_or_default()))
        }
        None => ProviderAct::calls(&[("shell.exec", r#"{"cmd":"cat"}"#), ("fs.read", r#"{"path":"notes"}"#)]),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn openais_own_client_for_python_is_guarded_at_all_four_points() {
    let provider = FakeProvider::start(agent_model).await;
    let tools = json!({ "default": "allow", "rules": [{ "name": "no-shell", "tools": ["shell.*"], "action": "deny" }] });
    let words = json!({ "abuse": { "terms": ["bomb"] } });
    let setup = setup(&provider).builtin("tool-policy", &tools).builtin("content-policy", &words);
    let setup = setup.builtin("redact", &json!({ "detectors": ["email"] }));
    let gateway =
        setup.binding("content-policy", 10).binding("redact", 20).binding("tool-policy", 30).start().await;
    gateway.wait_until_ready().await;
    let mut agent = Command::new(python::sdk().join(".venv/bin/python"));
    agent.arg(repository::root().join("tests/tests/it/llm/openai_client.py"));
    agent.env("OPENAI_BASE_URL", format!("http://{}/openai/v1", gateway.data_addr()));
    agent.env("OPENAI_API_KEY", token("acme"));
    let output =
        tokio::task::spawn_blocking(move || agent.output()).await.expect("no panic").expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let got: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(got["calls"], json!(["fs.read"]), "{got}");
    assert!(
        got["note"].as_str().is_some_and(|note| note.starts_with("Tool call shell.exec was refused: ")),
        "{got}"
    );
    assert!(got["answer"].as_str().is_some_and(|answer| answer.starts_with("the notes are by [")), "{got}");
    assert_eq!((&got["end"], &got["models"]), (&json!("stop"), &json!(["fast"])));
    assert_eq!((&got["blocked"][0], &got["blocked"][1]), (&json!("BadRequestError"), &json!(400)), "{got}");
    let requests = provider.requests();
    assert_eq!(requests.len(), 2, "a block is not asked again, and the provider is not asked at all");
    for request in requests {
        assert!(!String::from_utf8_lossy(&request.body).contains("ada@example.com"), "{request:?}");
    }
}
