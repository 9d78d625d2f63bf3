//! Tests the built-in plugin `secrets` through the gateway, at each of its points.

use hookgate_proto::types::v1::ExtensionPoint::{
    AfterToolResult, BeforeLlmRequest, BeforeResponse, BeforeToolCall,
};
use hookgate_tests::{
    gateway::{Gateway, Setup},
    token::token,
};
use serde_json::{Value, json};

/// A token of GitHub that is nobody's; in two parts, so that no scanner of sources finds it.
fn secret() -> String {
    format!("ghp_{}", "q8Zt3VbN7xKp2LmRw9YcD4sHf6GjTa1EuV5o")
}

fn secrets(config: &Value) -> Setup {
    Gateway::with().tenant("acme").builtin("secrets", config).binding("secrets", 10)
}

#[tokio::test]
async fn secrets_blocks_at_every_point_and_says_where() {
    let gateway = secrets(&json!({})).start().await;
    let agent = gateway.http(&token("acme"));
    for (point, payload, pointer) in [
        (BeforeLlmRequest, json!({ "text": format!("use {}", secret()) }), "/text"),
        (BeforeLlmRequest, json!({ "messages": [{ "content": secret() }] }), "/messages/0/content"),
        (BeforeToolCall, json!({ "tool_name": "x", "args": { "a": [secret()] } }), "/args/a/0"),
        (AfterToolResult, json!({ "tool_name": "x", "result": secret(), "success": true }), "/result"),
        (BeforeResponse, json!({ "content": "", "reasoning": secret() }), "/reasoning"),
    ] {
        let answer = agent.call(point, payload).await;
        let code = &answer.body["block"]["code"];
        assert_eq!((answer.status, code), (403, &json!("SECRET_FOUND")), "{answer:?}");
        let notice = &answer.body["notices"][0];
        let findings = json!([{ "detector": "github_token", "pointer": pointer }]);
        assert_eq!(notice["details"], json!({ "findings": findings }), "{answer:?}");
        assert!(!answer.body["block"].to_string().contains(&secret()), "{answer:?}");
        assert!(!notice.to_string().contains(&secret()), "{answer:?}");
    }
    let exit = gateway.stop().await;
    assert!(!exit.log.to_string().contains(&secret()), "{}", exit.log);
}

#[tokio::test]
async fn secrets_redacts_at_every_point_if_told_to() {
    let gateway = secrets(&json!({ "action": "redact" })).start().await;
    let agent = gateway.http(&token("acme"));
    for (point, payload, pointer) in [
        (
            BeforeLlmRequest,
            json!({ "text": "", "messages": [{ "content": secret() }] }),
            "/messages/0/content",
        ),
        (BeforeToolCall, json!({ "tool_name": "x", "args": { "a": [secret(), 1] } }), "/args/a/0"),
        (AfterToolResult, json!({ "tool_name": "x", "result": [secret()], "success": false }), "/result/0"),
        (BeforeResponse, json!({ "content": secret() }), "/content"),
    ] {
        let answer = agent.call(point, payload.clone()).await;
        assert_eq!((answer.status, &answer.body["decision"]), (200, &json!("continue")), "{answer:?}");
        let mut expected = payload;
        *expected.pointer_mut(pointer).expect("the pointer leads into the payload") = json!("[REDACTED]");
        assert_eq!(answer.body["payload"], expected, "{answer:?}");
        assert_eq!(answer.body["notices"][0]["code"], "SECRET_REDACTED", "{answer:?}");
    }
}

#[tokio::test]
async fn secrets_blocks_what_no_patch_can_hide() {
    let gateway = secrets(&json!({ "action": "redact" })).start().await;
    let agent = gateway.http(&token("acme"));
    for (point, payload) in [
        (BeforeToolCall, json!({ "tool_name": "x", "args": { secret(): 1 } })),
        (BeforeLlmRequest, json!({ "text": "", "tools": [{ "name": "x", "description": secret() }] })),
        (BeforeLlmRequest, json!({ "text": "", "extra": { "request": { "prediction": secret() } } })),
    ] {
        let answer = agent.call(point, payload).await;
        assert_eq!((answer.status, &answer.body["code"]), (403, &json!("SECRET_FOUND")), "{answer:?}");
        assert!(!answer.body["notices"].to_string().contains(&secret()), "{answer:?}");
    }
}

#[tokio::test]
async fn secrets_lets_ordinary_payloads_pass_as_they_are() {
    let gateway = secrets(&json!({})).start().await;
    let agent = gateway.http(&token("acme"));
    let args = r#"{"id":"550e8400-e29b-41d4-a716-446655440000","commit":"da39a3ee5e6b4b0d3255bfef95601890afd80709", "n":9007199254740993,"api_key":"${OPENAI_API_KEY}"}"#;
    let body = format!(r#"{{"payload":{{"tool_name":"git","args":{args}}}}}"#);
    let answer = agent.post_text(BeforeToolCall, body).await;
    assert_eq!((answer.status, &answer.body["modified"]), (200, &json!(false)), "{answer:?}");
    assert!(answer.text.contains(args), "{}", answer.text);
}
