//! Tests the built-in plugin `redact` through the gateway, at each of its points.

use hookgate_proto::types::v1::ExtensionPoint::{
    AfterToolResult, BeforeLlmRequest, BeforeResponse, BeforeToolCall,
};
use hookgate_tests::{
    gateway::{Gateway, Setup},
    token::token,
};
use serde_json::{Value, json};

fn redact(config: &Value) -> Setup {
    Gateway::with().tenant("acme").builtin("redact", config).binding("redact", 10)
}

#[tokio::test]
async fn redact_replaces_texts_at_every_point_and_keeps_the_rest() {
    let gateway = redact(&json!({})).start().await;
    let agent = gateway.http(&token("acme"));
    for (point, payload, expected) in [
        (
            BeforeLlmRequest,
            r#"{"text":"ada@example.com","system_prompt":"a@b.cc","messages":[{"role":"user","id":"a@b.cc","content":"4111 1111 1111 1111"}],"extra":{"n":"a@b.cc"}}"#,
            r#"{"text":"[EMAIL]","system_prompt":"[MAIL]","messages":[{"role":"user","id":"a@b.cc","content":"[CARD]"}],"extra":{"n":"a@b.cc"}}"#,
        ),
        (
            BeforeToolCall,
            r#"{"tool_name":"pay","args":{"z":9007199254740993, "a@b.cc":["DE89370400440532013000",1.10,null],"password":"correct-horse"}}"#,
            r#"{"tool_name":"pay","args":{"z":9007199254740993, "a@b.cc":["[IBAN]",1.10,null],"password":"[REDACTED]"}}"#,
        ),
        (
            AfterToolResult,
            r#"{"tool_name":"mail","result":{"from":{"address":"ada@example.com"},"n":-0},"success":true,"args":"a@b.cc"}"#,
            r#"{"tool_name":"mail","result":{"from":{"address":"[EMAIL]"},"n":-0},"success":true,"args":"a@b.cc"}"#,
        ),
        (
            BeforeResponse,
            r#"{"content":"Ask ada@example.com.","reasoning":"4111111111111111"}"#,
            r#"{"content":"Ask [EMAIL].","reasoning":"[CARD]"}"#,
        ),
    ] {
        let answer = agent.post_text(point, format!(r#"{{"payload":{payload}}}"#)).await;
        assert_eq!((answer.status, &answer.body["modified"]), (200, &json!(true)), "{answer:?}");
        assert!(answer.text.contains(&format!(r#""payload":{expected}"#)), "{expected}\n{}", answer.text);
        assert_eq!(answer.body["notices"][0]["code"], "REDACTED", "{answer:?}");
    }
}

#[tokio::test]
async fn redact_adds_a_tenants_patterns_and_those_of_a_binding() {
    let pattern = |name: &str, regex: &str| json!([{ "name": name, "regex": regex, "replacement": name }]);
    let gateway = Gateway::with()
        .tenant_with(
            "acme",
            &json!({ "config": { "redact": { "extra_patterns": pattern("CUSTOMER", "C-[0-9]+") } } }),
        )
        .tenant("globex")
        .builtin("redact", &json!({ "detectors": ["email"] }))
        .binding_with("redact", 10, &json!({ "config": { "extra_detectors": ["card"] } }))
        .start()
        .await;
    for (tenant, expected) in [("acme", "[EMAIL] CUSTOMER [CARD]"), ("globex", "[EMAIL] C-1 [CARD]")] {
        let payload = json!({ "content": "ada@example.com C-1 4111111111111111" });
        let answer = gateway.http(&token(tenant)).call(BeforeResponse, payload).await;
        assert_eq!(answer.body["payload"]["content"], expected, "{answer:?}");
    }
}

#[tokio::test]
async fn redact_hides_a_match_even_where_its_replacement_has_no_room() {
    const LIMIT: usize = 1 << 20;
    let config = json!({
        "detectors": [],
        "patterns": [{ "name": "id", "regex": "E[0-9]", "replacement": "[an employee of this company]" }],
    });
    for mode in ["advise", "enforce"] {
        let setup = Gateway::with().tenant("acme").builtin("redact", &config);
        let setup = setup.binding_with("redact", 10, &json!({ "mode": mode }));
        let gateway = setup.set("/limits/request", "1MiB").start().await;
        let content = "E1 ".repeat(LIMIT / 3 - 10);
        let answer = gateway.http(&token("acme")).call(BeforeResponse, json!({ "content": content })).await;
        assert_eq!((answer.status, &answer.body["steps"][0]["outcome"]), (200, &json!("modified")), "{mode}");
        assert!(answer.body["payload"]["content"] == "** ".repeat(LIMIT / 3 - 10), "{mode}");
    }
}

#[tokio::test]
async fn redact_with_a_wrong_pattern_ends_the_start_and_names_it() {
    let config = json!({ "patterns": [{ "name": "id", "regex": "(s3cret" }] });
    let exit = redact(&config).run_to_the_end().await;
    assert_eq!(exit.code, Some(4), "{}", exit.log);
    let log = exit.log.to_string();
    assert!(log.contains("`patterns[0].regex`: isn't a valid regular expression: unclosed group"), "{log}");
    assert!(!log.contains("s3cret"), "{log}");
}
