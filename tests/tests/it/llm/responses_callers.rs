//! Who may ask for responses, and what goes wrong on the way.

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::{
    fake::{Act, FakePlugin},
    provider::{
        ProviderAct,
        responses::{error, raw, says},
    },
    token::token,
};
use serde_json::{Value, json};

use super::{
    responses_support::{always, ask, provider, request, say},
    support::{CREDENTIAL, gateway, send, setup, user},
};

const ANSWER: ExtensionPoint = ExtensionPoint::BeforeResponse;

fn question() -> Value {
    ask(&json!([user("x")]))
}

#[tokio::test]
async fn callers_are_known_by_their_token_and_models_by_their_api() {
    let provider = always(says("hi")).await;
    let gateway = setup(&provider).start().await;
    for path in ["/responses", "/embeddings"] {
        let body = json!({ "model": "claude-5", "input": "x" }).to_string();
        let got = send(request(&gateway, path, body.clone())).await;
        got.assert_error(401, "TOKEN_MISSING");
        assert!(got.header("www-authenticate").is_some(), "{got:?}");
        let request = |token: &str| request(&gateway, path, body.clone()).bearer_auth(token);
        send(request("sk-something")).await.assert_error(401, "TOKEN_INVALID");
        send(request(&token("nobody"))).await.assert_error(403, "TENANT_UNKNOWN");
        send(request(&token("acme"))).await.assert_error(404, "model_not_found");
    }
    assert!(provider.requests().is_empty());
}

#[tokio::test]
async fn what_the_provider_would_keep_has_no_paths() {
    let provider = always(says("hi")).await;
    let gateway = setup(&provider).start().await;
    let get = |path: &str| {
        let url = format!("http://{}/openai/v1{path}", gateway.data_addr());
        reqwest::Client::new().get(url).bearer_auth(token("acme"))
    };
    for path in ["/responses/resp_1", "/responses/resp_1/input_items", "/conversations/conv_1", "/files"] {
        send(get(path)).await.assert_error(404, "NOT_FOUND");
    }
    for path in
        ["/responses/compact", "/responses/input_tokens", "/responses/resp_1/cancel", "/conversations"]
    {
        let request = request(&gateway, path, question().to_string()).bearer_auth(token("acme"));
        send(request).await.assert_error(404, "NOT_FOUND");
    }
    for path in ["/responses", "/embeddings"] {
        let got = send(get(path)).await;
        got.assert_error(405, "METHOD_NOT_ALLOWED");
        assert_eq!(got.header("allow"), Some("POST"));
    }
    assert!(provider.requests().is_empty());
}

#[tokio::test]
async fn the_providers_errors_pass_but_for_those_about_the_operators_credential() {
    let cases = [
        (429, "rate_limit_exceeded", 429, "rate_limit_exceeded"),
        (500, "server_error", 500, "server_error"),
        (400, "context_length_exceeded", 400, "context_length_exceeded"),
        (401, "invalid_api_key", 502, "UPSTREAM_CREDENTIAL"),
        (403, "unsupported_country_region_territory", 502, "UPSTREAM_CREDENTIAL"),
    ];
    for (status, code, expected, expected_code) in cases {
        let mut act = error(status, code, "No.");
        if let ProviderAct::Answer(_, headers, _) = &mut act {
            headers.push(("retry-after", "7".into()));
            headers.push(("openai-organization", "org-1".into()));
        }
        let provider = always(act).await;
        let gateway = setup(&provider).start().await;
        for stream in [false, true] {
            let mut body = question();
            body["stream"] = json!(stream);
            let got = say(&gateway, &body).await;
            got.assert_error(expected, expected_code);
            assert_eq!(got.header("openai-organization"), None);
            if expected == status {
                assert_eq!(got.header("retry-after"), Some("7"));
            }
        }
    }
}

#[tokio::test]
async fn what_the_model_said_within_an_error_of_the_provider_is_not_shown() {
    let body = r#"{"error":{"message":"No.","type":"invalid_request_error","param":null,"code":"c","said":"secret"},"output":"secret"}"#;
    let provider = always(raw(400, body)).await;
    let plugin = FakePlugin::named("policy").only(&[ANSWER]).start().await;
    let judged = gateway(&provider, &plugin).await;
    let got = say(&judged, &question()).await;
    got.assert_error(400, "c");
    assert!(!got.text.contains("secret"), "{}", got.text);
    let plain = setup(&provider).start().await;
    assert_eq!(say(&plain, &question()).await.text, body, "a tenant without plugins has a plain proxy");
}

#[tokio::test]
async fn what_is_no_response_is_a_bad_answer() {
    let html = ProviderAct::Answer(200, vec![("content-type", "text/html".into())], "<p>hi".into());
    let plugin = FakePlugin::named("watcher").only(&[ANSWER]).start().await;
    for act in [
        html,
        raw(200, "{}"),
        raw(200, "[]"),
        raw(200, r#"{"object":"response","output":"secret"}"#),
        raw(200, r#"{"object":"chat.completion","output":[],"choices":[]}"#),
    ] {
        let provider = always(act).await;
        let gateway = gateway(&provider, &plugin).await;
        let got = say(&gateway, &question()).await;
        got.assert_error(502, "UPSTREAM_BAD_ANSWER");
        assert!(!got.text.contains("secret"), "{got:?}");
    }
    assert!(plugin.seen().is_empty(), "nothing of it was an answer");
}

#[tokio::test]
async fn no_key_and_no_token_is_shown_anywhere() {
    let provider = provider(|request| match request.json()["input"].as_str() {
        Some("refused") => error(401, "invalid_api_key", &format!("Incorrect API key {CREDENTIAL}")),
        Some("broken") => raw(500, CREDENTIAL),
        _ => says("hi"),
    });
    let provider = provider.await;
    let plugin = FakePlugin::named("watcher").at(ANSWER, Act::pass()).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let token = token("acme");
    for text in ["x", "refused", "broken"] {
        let body = ask(&json!(text)).to_string();
        let got = send(request(&gateway, "/responses", body).bearer_auth(&token)).await;
        let shown = format!("{got:?}");
        assert!(!shown.contains(CREDENTIAL) && !shown.contains(&token), "{shown}");
    }
    for secret in [CREDENTIAL, &token] {
        assert!(!gateway.log().to_string().contains(secret), "{}", gateway.log());
        assert!(!format!("{:?}", plugin.seen()).contains(secret));
    }
    let requests = format!("{:?}", provider.requests());
    assert!(!requests.contains(&token), "{requests}");
}
