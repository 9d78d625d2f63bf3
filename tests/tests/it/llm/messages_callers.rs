//! Who may ask for messages, which models they have, and what goes wrong on the way.

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::{
    fake::{Act, FakePlugin},
    gateway::Gateway,
    provider::{
        ProviderAct,
        messages::{error, raw, says},
    },
    token::{Token, token},
};
use serde_json::{Value, json};

use super::{
    messages_support::{VERSION, always, ask, count, gateway, provider, request, say, setup, user},
    support::{CREDENTIAL, ClientAnswer, send},
};

const ANSWER: ExtensionPoint = ExtensionPoint::BeforeResponse;

fn question() -> Value {
    ask(&json!([user("x")]))
}

/// Asks with these headers only.
async fn ask_with(gateway: &Gateway, headers: &[(&str, &str)]) -> ClientAnswer {
    let mut request = request(gateway, "/messages", question().to_string());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send(request).await
}

#[tokio::test]
async fn a_token_is_taken_from_either_header_and_from_both_if_they_agree() {
    let provider = always(says("hi")).await;
    let gateway = setup(&provider).start().await;
    let (acme, expired) = (token("acme"), Token::for_tenant("acme").expiring_in(-600).mint());
    let other = Token::for_tenant("acme").claim("sub", "another").mint();
    let bearer = |token: &str| format!("Bearer {token}");
    let (bearer_of_acme, bearer_of_other) = (bearer(&acme), bearer(&other));
    let (key, authorization) = (("x-api-key", acme.as_str()), ("authorization", bearer_of_acme.as_str()));
    for headers in [vec![key], vec![authorization], vec![key, authorization]] {
        assert_eq!(ask_with(&gateway, &headers).await.status, 200, "{headers:?}");
    }
    // The provider takes no request with another header than its own.
    let asked = provider.requests().len();
    assert_eq!(asked, 3);
    for (headers, code) in [
        (vec![], "TOKEN_MISSING"),
        (vec![("x-api-key", "sk-ant-something")], "TOKEN_INVALID"),
        (vec![("x-api-key", expired.as_str())], "TOKEN_EXPIRED"),
        (vec![key, ("authorization", bearer_of_other.as_str())], "TOKEN_INVALID"),
        (vec![key, ("x-api-key", other.as_str())], "TOKEN_INVALID"),
    ] {
        let got = ask_with(&gateway, &headers).await;
        got.assert_anthropic_error(401, code);
        assert!(got.header("www-authenticate").is_some(), "{got:?}");
    }
    let nobody = token("nobody");
    ask_with(&gateway, &[("x-api-key", &nobody)]).await.assert_anthropic_error(403, "TENANT_UNKNOWN");
    assert_eq!(provider.requests().len(), asked);
}

async fn get(gateway: &Gateway, path: &str) -> ClientAnswer {
    let url = format!("http://{}/anthropic/v1{path}", gateway.data_addr());
    let request = reqwest::Client::new().get(url).header("anthropic-version", VERSION);
    send(request.header("x-api-key", token("acme"))).await
}

#[tokio::test]
async fn models_are_listed_as_anthropic_does_and_only_those_of_its_api() {
    let provider = always(says("hi")).await;
    let gateway = setup(&provider).start().await;
    let models = get(&gateway, "/models").await.json();
    assert_eq!(
        (&models["has_more"], &models["first_id"], &models["last_id"]),
        (&json!(false), &json!("fast"), &json!("fast"))
    );
    let [model] = models["data"].as_array().expect("a list").as_slice() else { panic!("{models}") };
    assert_eq!((&model["type"], &model["id"]), (&json!("model"), &json!("fast")));
    assert!(model["display_name"].is_string() && model["created_at"].is_string(), "{model}");
    assert_eq!(get(&gateway, "/models/claude-5").await.json()["id"], "claude-5");
    for other in ["gpt-5", "mini", "llama"] {
        get(&gateway, &format!("/models/{other}")).await.assert_anthropic_error(404, "MODEL_UNKNOWN");
        let mut body = question();
        body["model"] = json!(other);
        say(&gateway, &body).await.assert_anthropic_error(404, "MODEL_UNKNOWN");
        count(&gateway, &body).await.assert_anthropic_error(404, "MODEL_UNKNOWN");
    }
    let url = format!("http://{}/openai/v1/models", gateway.data_addr());
    let models = send(reqwest::Client::new().get(url).bearer_auth(token("acme"))).await.json();
    assert_eq!(models["data"][0]["id"], "mini", "{models}");
    assert_eq!(models["data"].as_array().map(Vec::len), Some(1), "{models}");
    assert!(provider.requests().is_empty());
}

#[tokio::test]
async fn a_model_of_anthropics_api_is_unknown_in_openais() {
    let provider = always(says("hi")).await;
    let gateway = setup(&provider).start().await;
    let url = format!("http://{}/openai/v1/chat/completions", gateway.data_addr());
    let body = json!({ "model": "claude-5", "messages": [user("x")] });
    let request = reqwest::Client::new().post(url).bearer_auth(token("acme")).json(&body);
    send(request).await.assert_error(404, "model_not_found");
    assert!(provider.requests().is_empty());
}

#[tokio::test]
async fn other_paths_are_closed() {
    let provider = always(says("hi")).await;
    let gateway = setup(&provider).start().await;
    for path in ["/messages/batches", "/files", "/complete", "/messages/msg_1", "/models/", "/skills"] {
        get(&gateway, path).await.assert_anthropic_error(404, "NOT_FOUND");
    }
    for path in ["/messages", "/messages/count_tokens"] {
        let got = get(&gateway, path).await;
        got.assert_anthropic_error(405, "METHOD_NOT_ALLOWED");
        assert_eq!(got.header("allow"), Some("POST"));
    }
    assert!(provider.requests().is_empty());
}

#[tokio::test]
async fn the_providers_errors_pass_but_for_those_about_the_operators_credential() {
    let overloaded = json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" }, "request_id": "req-1" });
    let cases = [
        (529, "overloaded_error", 529, "overloaded_error"),
        (429, "rate_limit_error", 429, "rate_limit_error"),
        (400, "invalid_request_error", 400, "invalid_request_error"),
        (401, "authentication_error", 502, "api_error"),
        (402, "billing_error", 502, "api_error"),
        (403, "permission_error", 502, "api_error"),
    ];
    for (status, kind, expected, expected_kind) in cases {
        let mut act = error(status, kind, "Overloaded");
        if let ProviderAct::Answer(_, headers, _) = &mut act {
            headers.push(("retry-after", "7".into()));
            headers.push(("anthropic-ratelimit-requests-remaining", "0".into()));
            headers.push(("anthropic-organization-id", "org-1".into()));
        }
        let provider = always(act).await;
        let gateway = setup(&provider).start().await;
        for stream in [false, true] {
            let mut body = question();
            body["stream"] = json!(stream);
            let got = say(&gateway, &body).await;
            let body = got.json();
            assert_eq!((got.status.as_u16(), &body["error"]["type"]), (expected, &json!(expected_kind)));
            assert_eq!((&body["type"], got.header("anthropic-organization-id")), (&json!("error"), None));
            match expected {
                529 => assert_eq!(body, overloaded),
                502 => got.assert_anthropic_error(502, "UPSTREAM_CREDENTIAL"),
                _ => {}
            }
            if expected == status {
                assert_eq!(got.header("retry-after"), Some("7"));
                assert_eq!(got.header("anthropic-ratelimit-requests-remaining"), Some("0"));
            }
        }
    }
}

#[tokio::test]
async fn what_the_model_said_within_an_error_of_the_provider_is_not_shown() {
    let body = r#"{"type":"error","error":{"type":"invalid_request_error","message":"No.","said":"secret"},"partial":"secret"}"#;
    let provider = always(raw(400, body)).await;
    let plugin = FakePlugin::named("policy").only(&[ANSWER]).start().await;
    let judged = gateway(&provider, &plugin).await;
    let got = say(&judged, &question()).await;
    assert_eq!((got.status.as_u16(), &got.json()["error"]["message"]), (400, &json!("No.")));
    assert!(!got.text.contains("secret"), "{}", got.text);
    let plain = setup(&provider).start().await;
    assert_eq!(say(&plain, &question()).await.text, body, "a tenant without plugins has a plain proxy");
}

#[tokio::test]
async fn what_is_no_message_is_a_bad_answer() {
    let html = ProviderAct::Answer(200, vec![("content-type", "text/html".into())], "<p>hi".into());
    let plugin = FakePlugin::named("watcher").only(&[ANSWER]).start().await;
    for act in [html, raw(200, "{}"), raw(200, "[]"), raw(200, r#"{"type":"message","content":"secret"}"#)] {
        let provider = always(act).await;
        let gateway = gateway(&provider, &plugin).await;
        let got = say(&gateway, &question()).await;
        got.assert_anthropic_error(502, "UPSTREAM_BAD_ANSWER");
        assert!(!got.text.contains("secret"), "{got:?}");
    }
    assert!(plugin.seen().is_empty(), "nothing of it was an answer");
}

#[tokio::test]
async fn no_key_and_no_token_is_shown_anywhere() {
    let provider = provider(|request| match request.json()["messages"][0]["content"].as_str() {
        Some("refused") => error(401, "authentication_error", &format!("invalid x-api-key {CREDENTIAL}")),
        Some("broken") => raw(500, CREDENTIAL),
        _ => says("hi"),
    });
    let provider = provider.await;
    let plugin = FakePlugin::named("watcher").at(ANSWER, Act::pass()).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let token = token("acme");
    for text in ["x", "refused", "broken"] {
        let body = ask(&json!([user(text)])).to_string();
        let got = send(request(&gateway, "/messages", body).header("x-api-key", &token)).await;
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
