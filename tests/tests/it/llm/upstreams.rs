//! Where requests go, and with which key.

use hookgate_tests::{
    gateway::Gateway,
    provider::{FakeProvider, ProviderAct},
    token::token,
};
use serde_json::{Value, json};

use super::{
    messages_support,
    support::{CREDENTIAL, ask, chat, send, stream, user},
};

const OWN: &str = "sk-of-acme";

#[tokio::test]
async fn a_tenants_own_key_takes_the_place_of_the_upstreams() {
    let provider = FakeProvider::always(ProviderAct::says("hi")).await;
    let upstream = json!({ "name": "openai", "base_url": provider.base_url(), "credential": CREDENTIAL });
    let models = json!([{ "match": "*", "upstream": "openai" }]);
    let setup = Gateway::with().set("/llm", json!({ "upstreams": [upstream], "models": models }));
    let setup = setup.tenant_with("acme", &json!({ "llm": { "credentials": { "openai": OWN } } }));
    let gateway = setup.tenant("globex").start().await;
    let url = format!("http://{}/openai/v1/chat/completions", gateway.data_addr());
    for tenant in ["acme", "globex"] {
        let request = reqwest::Client::new().post(&url).bearer_auth(token(tenant));
        send(request.json(&ask(&json!([user("x")])))).await.message();
    }
    let keys: Vec<_> =
        provider.requests().iter().map(|request| request.headers["authorization"].clone()).collect();
    assert_eq!(keys, [format!("Bearer {OWN}"), format!("Bearer {CREDENTIAL}")]);
    assert!(!gateway.log().to_string().contains(OWN), "{}", gateway.log());
}

/// A gateway with the demo model for clients of both APIs, and two plugins.
async fn demo() -> Gateway {
    let upstreams = json!([
        { "name": "demo", "builtin": "demo-model" },
        { "name": "demo-messages", "builtin": "demo-model", "format": "anthropic" },
    ]);
    let models = json!([{ "match": "*", "upstream": "demo" }, { "match": "*", "upstream": "demo-messages" }]);
    let llm = json!({ "upstreams": upstreams, "models": models });
    let setup = Gateway::with().tenant("acme").set("/llm", llm);
    let setup = setup.builtin("redact", &json!({ "detectors": ["email"] })).binding("redact", 10);
    let rule = json!({ "name": "read", "tools": ["fs.*", "fs_*"], "action": "allow" });
    let tools = json!({ "default": "deny", "rules": [rule] });
    let gateway = setup.builtin("tool-policy", &tools).binding("tool-policy", 20).start().await;
    gateway.wait_until_ready().await;
    gateway
}

#[tokio::test]
async fn the_demo_model_needs_no_provider_and_is_guarded_like_any_other() {
    let gateway = demo().await;
    let question = |text: &str| -> Value {
        let tool = |name: &str| json!({ "type": "function", "function": { "name": name } });
        let mut body = ask(&json!([user(text)]));
        body["tools"] = json!([tool("fs.read"), tool("shell.exec")]);
        body
    };
    let told = "You said: I am [EMAIL]";
    assert_eq!(chat(&gateway, &question("I am ada@example.com")).await.message()["content"], told);
    let got = stream(&gateway, question("I am ada@example.com")).await;
    assert_eq!((got.text(0).as_str(), got.is_done), (told, true));
    let got = stream(&gateway, question(r#"Use fs.read with {"path": "/a"}"#)).await;
    assert_eq!(got.calls(), [("fs.read".to_owned(), r#"{"path": "/a"}"#.to_owned())]);
    let got = stream(&gateway, question("Use shell.exec")).await;
    assert!(got.text(0).starts_with("Tool call shell.exec was refused: "), "{got:?}");
}

#[tokio::test]
async fn the_demo_model_speaks_messages_too() {
    let gateway = demo().await;
    let question = |text: &str| -> Value {
        let tool = |name: &str| json!({ "name": name, "input_schema": { "type": "object" } });
        let mut body = messages_support::ask(&json!([user(text)]));
        body["tools"] = json!([tool("fs_read"), tool("shell_exec")]);
        body
    };
    let told = json!([{ "type": "text", "text": "You said: I am [EMAIL]" }]);
    let got = messages_support::say(&gateway, &question("I am ada@example.com")).await;
    assert_eq!(got.content(), told);
    let got = messages_support::stream(&gateway, question("I am ada@example.com")).await;
    assert_eq!((got.content(), got.is_done), (&told, true));
    let got = messages_support::stream(&gateway, question(r#"Use fs_read with {"path": "/a"}"#)).await;
    let call = &got.content()[0];
    assert_eq!((&call["name"], &call["input"]), (&json!("fs_read"), &json!({ "path": "/a" })));
    let got = messages_support::stream(&gateway, question("Use shell_exec")).await;
    assert!(got.text().starts_with("Tool call shell_exec was refused: "), "{got:?}");
    let got = messages_support::count(&gateway, &question("one two three")).await.json();
    assert_eq!(got, json!({ "input_tokens": 3 }));
}
