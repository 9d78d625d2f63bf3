//! Tests the built-in plugins through the gateway: their exact answers (docs/protocol.md, section 8).

use hookgate_proto::types::v1::ExtensionPoint::{self, BeforeLlmRequest, BeforeResponse};
use hookgate_tests::{
    agent::HttpAnswer,
    gateway::{Gateway, Setup},
    token::token,
};
use serde_json::{Value, json};

const KEY: &str = "sk_live_0123456789abcdefghijklmnop"; // 34 characters

fn content_policy(config: &Value) -> Setup {
    Gateway::with().tenant("acme").builtin("content-policy", config).binding("content-policy", 10)
}

fn response_sanitizer(config: &Value) -> Setup {
    let binding = json!({ "mode": "advise" });
    let setup = Gateway::with().tenant("acme").builtin("response-sanitizer", config);
    setup.binding_with("response-sanitizer", 10, &binding)
}

async fn answer(setup: Setup, point: ExtensionPoint, payload: Value) -> HttpAnswer {
    setup.start().await.http(&token("acme")).call(point, payload).await
}

/// The payload and the notices of an answer, without ids and times.
fn said(answer: &HttpAnswer) -> Value {
    let steps = answer.body["steps"].as_array().expect("every answer has steps");
    json!({
        "decision": answer.body["decision"],
        "payload": answer.body["payload"],
        "modified": answer.body["modified"],
        "notices": answer.body["notices"],
        "steps": steps.iter().map(|step| [&step["plugin"], &step["outcome"]]).collect::<Vec<_>>(),
    })
}

#[tokio::test]
async fn content_policy_redacts_addresses_and_keys_and_says_so() {
    let setup = content_policy(&json!({ "redact_emails": true, "redact_api_keys": true }));
    let text = format!("ada@example.com uses {KEY}");
    let answer = answer(setup, BeforeLlmRequest, json!({ "text": text, "extra": { "n": null } })).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let warn = |code: &str, message: &str| json!({ "plugin": "content-policy", "kind": "warn", "code": code, "message": message, "details": { "count": 1 } });
    let golden = json!({
        "decision": "continue",
        "payload": { "text": "[EMAIL] uses [REDACTED]", "extra": { "n": null } },
        "modified": true,
        "notices": [
            warn("EMAIL_REDACTED", "Email addresses redacted from input"),
            warn("API_KEY_REDACTED", "Potential API keys redacted from input"),
        ],
        "steps": [["content-policy", "modified"]],
    });
    assert_eq!(said(&answer), golden, "{answer:?}");
}

#[tokio::test]
async fn content_policy_refuses_one_character_too_many() {
    let setup = content_policy(&json!({ "max_input_chars": 4, "redact_emails": true }));
    let gateway = setup.start().await;
    let agent = gateway.http(&token("acme"));
    let fits = agent.call(BeforeLlmRequest, json!({ "text": "été✓" })).await;
    assert_eq!((fits.status, &fits.body["modified"]), (200, &json!(false)), "{fits:?}");

    let answer = agent.call(BeforeLlmRequest, json!({ "text": "été✓!" })).await;
    assert_eq!((answer.status, &answer.body["code"]), (413, &json!("INPUT_TOO_LONG")), "{answer:?}");
    assert_eq!(
        answer.body["block"],
        json!({
            "plugin": "content-policy",
            "binding": "content-policy",
            "code": "INPUT_TOO_LONG",
            "message": "Input exceeds 4 character limit",
            "scope": "step",
        })
    );
    let golden = json!({
        "decision": "block",
        "payload": { "text": "été✓!" },
        "modified": false,
        "notices": [{
            "plugin": "content-policy",
            "kind": "block",
            "code": "INPUT_TOO_LONG",
            "message": "Input length: 5, limit: 4",
            "details": { "length": 5, "limit": 4 },
        }],
        "steps": [["content-policy", "cancelled"]],
    });
    assert_eq!(said(&answer), golden, "{answer:?}");
}

#[tokio::test]
async fn content_policy_cuts_a_long_text_after_the_redaction() {
    let setup =
        content_policy(&json!({ "max_input_chars": 10, "on_too_long": "cut", "redact_emails": true }));
    let answer = answer(setup, BeforeLlmRequest, json!({ "text": "ada@example.com, été" })).await;
    assert_eq!((answer.status, &answer.body["payload"]["text"]), (200, &json!("[EMAIL], é")), "{answer:?}");
    let notice = json!({
        "plugin": "content-policy",
        "kind": "warn",
        "code": "INPUT_TRUNCATED",
        "message": "Input truncated to 10 characters",
        "details": { "length": 20, "limit": 10 },
    });
    assert_eq!(answer.body["notices"][1], notice, "{answer:?}");
}

#[tokio::test]
async fn content_policy_blocks_abusive_texts_with_its_code() {
    let setup = content_policy(&json!({ "abuse": { "terms": ["you idiot"], "patterns": ["^/admin"] } }));
    let gateway = setup.start().await;
    let agent = gateway.http(&token("acme"));
    for (text, matched) in [("YOU  Idiot!", "terms[0]"), ("/admin now", "patterns[0]")] {
        let answer = agent.call(BeforeLlmRequest, json!({ "text": text })).await;
        assert_eq!((answer.status, &answer.body["code"]), (422, &json!("CONTENT_BLOCKED")), "{answer:?}");
        let notice = json!({
            "plugin": "content-policy",
            "kind": "block",
            "code": "CONTENT_BLOCKED",
            "message": "Input violates the content policy",
            "details": { "matched": matched },
        });
        assert_eq!(answer.body["notices"], json!([notice]), "{answer:?}");
    }
    let passes = agent.call(BeforeLlmRequest, json!({ "text": "you idiotic machine" })).await;
    assert_eq!((passes.status, &passes.body["modified"]), (200, &json!(false)), "{passes:?}");
}

#[tokio::test]
async fn response_sanitizer_redacts_both_texts_then_truncates_the_content() {
    let config = json!({ "redact_emails": true, "redact_api_keys": true, "max_response_length": 10 });
    let payload = json!({ "content": "Mail ada@example.com or call.", "reasoning": format!("key {KEY}") });
    let answer = answer(response_sanitizer(&config), BeforeResponse, payload).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let warn = |code: &str, message: &str| json!({ "plugin": "response-sanitizer", "kind": "warn", "code": code, "message": message });
    let golden = json!({
        "decision": "continue",
        "payload": { "content": "Mail [EMAI\n[Response truncated]", "reasoning": "key [REDACTED]" },
        "modified": true,
        "notices": [
            warn("EMAIL_REDACTED", "Email addresses redacted from response"),
            warn("API_KEY_REDACTED", "Potential API keys redacted from response"),
            warn("RESPONSE_TRUNCATED", "Response truncated to 10 characters"),
        ],
        "steps": [["response-sanitizer", "modified"]],
    });
    assert_eq!(said(&answer), golden, "{answer:?}");
}

/// A gateway whose `plugin` redacts everything that it can, bound with `mode`.
fn redacting(plugin: &str, mode: &str) -> Setup {
    let config = json!({ "redact_emails": true, "redact_api_keys": true });
    let setup = Gateway::with().tenant("acme").builtin(plugin, &config);
    setup.binding_with(plugin, 10, &json!({ "mode": mode }))
}

const REDACTING: [(&str, ExtensionPoint, &str); 2] =
    [("content-policy", BeforeLlmRequest, "text"), ("response-sanitizer", BeforeResponse, "content")];

#[tokio::test]
async fn every_address_of_the_largest_request_is_hidden() {
    const REQUEST: usize = 1 << 20;
    for (plugin, point, field) in REDACTING {
        for mode in ["advise", "enforce"] {
            let gateway = redacting(plugin, mode).set("/limits/request", "1MiB").start().await;
            let around = json!({ "payload": { field: "" } }).to_string().len();
            // The shortest possible address.
            let text = "a@b.cc ".repeat((REQUEST - around) / 7);
            let text = format!("{text}{}", "x".repeat(REQUEST - around - text.len()));
            let body = json!({ "payload": { field: text } }).to_string();
            assert_eq!(body.len(), REQUEST);
            let answer = gateway.http(&token("acme")).post_text(point, body).await;
            let seen = (answer.status, &answer.body["steps"][0]["outcome"]);
            assert_eq!(seen, (200, &json!("modified")), "{plugin}, {mode}: {}", answer.body["steps"]);
            let shown = answer.body["payload"][field].as_str().expect("a text");
            assert!(!shown.contains('@') && shown.len() <= text.len(), "{plugin}, {mode}");
        }
    }
}

#[tokio::test]
async fn what_is_found_is_hidden_where_there_is_no_room_for_notices() {
    for (limit, value, notices) in [("notices", json!(1), 1), ("notice_bytes", json!("1B"), 0)] {
        for (plugin, point, field) in REDACTING {
            for mode in ["advise", "enforce"] {
                let setup = redacting(plugin, mode).set(&format!("/limits/{limit}"), value.clone());
                let answer =
                    answer(setup, point, json!({ field: format!("ada@example.com uses {KEY}") })).await;
                let shown = &answer.body["payload"][field];
                assert_eq!(shown, "[EMAIL] uses [REDACTED]", "{plugin}, {mode}, {limit}: {answer:?}");
                assert_eq!(answer.body["notices"].as_array().map(Vec::len), Some(notices), "{answer:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_short_value_that_the_text_calls_a_key_is_hidden() {
    for (plugin, point, field) in REDACTING {
        let text = r#"curl -H "Authorization: Bearer abc.1234-xyz" '/?api_key=abcdef123456&n=1' # the token: something"#;
        let answer = answer(redacting(plugin, "enforce"), point, json!({ field: text })).await;
        let shown =
            r#"curl -H "Authorization: Bearer [REDACTED]" '/?api_key=[REDACTED]&n=1' # the token: something"#;
        assert_eq!(answer.body["payload"][field], shown, "{answer:?}");
        assert_eq!(answer.body["notices"][0]["code"], "API_KEY_REDACTED", "{answer:?}");
    }
}

#[tokio::test]
async fn what_no_built_in_rule_touches_passes_as_it_is() {
    let config = json!({ "redact_emails": true, "redact_api_keys": true });
    let setup = content_policy(&config).builtin("response-sanitizer", &config);
    let gateway = setup.binding("response-sanitizer", 20).start().await;
    let agent = gateway.http(&token("acme"));
    for (point, payload) in [
        (BeforeLlmRequest, json!({ "text": "ada at example.com" })),
        (BeforeResponse, json!({ "content": "ada at example.com", "reasoning": "none" })),
        (
            BeforeResponse,
            json!({ "content": format!("a{}b", "-".repeat(35)), "reasoning": "the token: something" }),
        ),
        (ExtensionPoint::BeforeToolCall, json!({ "tool_name": "mail", "args": { "to": "ada@example.com" } })),
    ] {
        let answer = agent.call(point, payload.clone()).await;
        let (status, body) = (answer.status, &answer.body);
        assert_eq!(
            (status, &body["payload"], &body["modified"]),
            (200, &payload, &json!(false)),
            "{answer:?}"
        );
        assert_eq!(body["notices"], json!([]), "{answer:?}");
    }
}

#[tokio::test]
async fn a_built_in_that_does_not_exist_or_an_unknown_member_of_its_config_ends_the_start() {
    let unknown = Gateway::with().builtin("content-police", &json!({})).run_to_the_end().await;
    assert_eq!(unknown.code, Some(2), "{}", unknown.log);
    assert!(unknown.log.to_string().contains("content-police"), "{}", unknown.log);

    let typo = content_policy(&json!({ "redact_email": true })).run_to_the_end().await;
    assert_ne!(typo.code, Some(0), "{}", typo.log);
    assert!(typo.log.to_string().contains("redact_email"), "{}", typo.log);
}
