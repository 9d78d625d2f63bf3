use hookgate_sdk::{Verdict, harness::TestPlugin};
use serde_json::{Value, json};

use super::*;

async fn ask(config: Value, text: &str) -> Reply<BeforeLlmRequestPatch> {
    let plugin = TestPlugin::<ContentPolicy>::start(&config).await.unwrap();
    let request = BeforeLlmRequestPayload {
        text: text.to_owned(),
        messages: r#"[{"content":"ada@example.com"}]"#.into(),
        ..Default::default()
    };
    plugin.before_llm_request(request).await.unwrap()
}

fn codes<P>(reply: &Reply<P>) -> Vec<&str> {
    reply.notices().iter().filter_map(Notice::code).collect()
}

fn details<P>(reply: &Reply<P>, notice: usize) -> Value {
    serde_json::from_slice(reply.notices()[notice].details_json()).unwrap()
}

#[tokio::test]
async fn nothing_is_on_by_default() {
    let reply = ask(json!({}), "ada@example.com").await;
    assert_eq!(reply, Reply::proceed());
}

#[tokio::test]
async fn a_text_over_the_limit_is_cancelled_with_its_length() {
    let reply = ask(json!({ "max_input_chars": 5 }), "sechs!").await;
    let cancel = reply.cancelled().unwrap();
    assert_eq!((cancel.code(), cancel.message()), ("INPUT_TOO_LONG", "Input exceeds 5 character limit"));
    assert_eq!(codes(&reply), ["INPUT_TOO_LONG"]);
    assert_eq!(reply.notices()[0].message(), "Input length: 6, limit: 5");
    assert_eq!(details(&reply, 0), json!({ "length": 6, "limit": 5 }));
    assert_eq!(reply.changes(), None);
}

#[tokio::test]
async fn characters_are_unicode_scalar_values() {
    let five = "a\u{301}日🦀é"; // 5 scalar values, 14 bytes, 4 graphemes, 6 UTF-16 units
    assert_eq!(ask(json!({ "max_input_chars": 5 }), five).await.verdict(), &Verdict::Continue);
    assert!(ask(json!({ "max_input_chars": 4 }), five).await.cancelled().is_some());
}

#[tokio::test]
async fn addresses_and_keys_are_redacted_from_the_text_alone() {
    let key = "k".repeat(32);
    let config = json!({ "redact_emails": true, "redact_api_keys": true });
    let reply = ask(config, &format!("ada@example.com, {key}")).await;
    let patch = BeforeLlmRequestPatch { text: Some("[EMAIL], [REDACTED]".to_owned()), ..Default::default() };
    assert_eq!(reply.changes(), Some(&patch));
    assert_eq!(codes(&reply), ["EMAIL_REDACTED", "API_KEY_REDACTED"]);
    assert_eq!(reply.notices()[0].message(), "Email addresses redacted from input");
    assert_eq!(reply.notices()[1].message(), "Potential API keys redacted from input");
    assert_eq!((details(&reply, 0), details(&reply, 1)), (json!({ "count": 1 }), json!({ "count": 1 })));
}

#[tokio::test]
async fn a_long_text_is_cut_at_a_character_after_the_redaction() {
    let config = json!({ "max_input_chars": 9, "on_too_long": "cut", "redact_emails": true });
    let reply = ask(config.clone(), "ada@example.com é日🦀").await;
    assert_eq!(reply.changes().unwrap().text.as_deref(), Some("[EMAIL] é"));
    assert_eq!(codes(&reply), ["EMAIL_REDACTED", "INPUT_TRUNCATED"]);
    assert_eq!(reply.notices()[1].message(), "Input truncated to 9 characters");
    assert_eq!(details(&reply, 1), json!({ "length": 19, "limit": 9 }));
    assert_eq!(reply.verdict(), &Verdict::Continue);

    let reply = ask(config, "ada@example.com").await;
    assert_eq!(codes(&reply), ["EMAIL_REDACTED"], "the redacted text fits");
}

#[tokio::test]
async fn an_abusive_text_is_cancelled_with_the_setting_it_matches() {
    let abuse = json!({ "terms": ["idiot"], "patterns": [r"(?i)^ignore\b"] });
    let config = json!({ "abuse": abuse, "redact_emails": true, "max_input_chars": 3 });
    for (text, matched) in [("ada@example.com is an Idiot", "terms[0]"), ("IGNORE this", "patterns[0]")] {
        let reply = ask(config.clone(), text).await;
        let cancel = reply.cancelled().unwrap();
        let expected = ("CONTENT_BLOCKED", "Input violates the content policy");
        assert_eq!((cancel.code(), cancel.message()), expected);
        assert_eq!((codes(&reply), reply.notices()[0].message()), (vec!["CONTENT_BLOCKED"], expected.1));
        assert_eq!(details(&reply, 0), json!({ "matched": matched }));
        assert_eq!(reply.changes(), None);
    }
    let reply = ask(json!({ "abuse": { "terms": ["idiot"] } }), "an idiotic text").await;
    assert_eq!(reply, Reply::proceed());
}

#[tokio::test]
async fn an_abuse_rule_has_its_own_code_and_message() {
    let abuse = json!({ "terms": ["idiot"], "code": "ABUSE", "message": "Please be polite." });
    let reply = ask(json!({ "abuse": abuse }), "idiot").await;
    let cancel = reply.cancelled().unwrap();
    assert_eq!((cancel.code(), cancel.message()), ("ABUSE", "Please be polite."));
}

#[tokio::test]
async fn a_clean_text_gets_no_patch() {
    let reply = ask(json!({ "redact_emails": true, "redact_api_keys": true }), "hello").await;
    assert_eq!(reply, Reply::proceed());
}

#[tokio::test]
async fn a_wrong_configuration_is_refused_by_field() {
    for (config, says) in [
        (json!({ "max_input_chars": 0 }), "field `max_input_chars`: expected a nonzero usize"),
        (json!({ "redact_emails": "s3cret" }), "field `redact_emails`: expected a boolean"),
        (json!({ "redact_email": true }), "unknown field `redact_email`"),
        (json!({ "on_too_long": "cut" }), "`on_too_long`: has no effect without `max_input_chars`"),
        (
            json!({ "max_input_chars": 1, "on_too_long": "s3cret" }),
            "`on_too_long`: expected `block` or `cut`",
        ),
        (json!({ "abuse": {} }), "`abuse`: needs `terms` or `patterns`"),
        (json!({ "abuse": { "terms": ["a", " "] } }), "`abuse.terms[1]`: a term needs"),
        (
            json!({ "abuse": { "terms": ["s3cret", "S3CRET"] } }),
            "`abuse.terms[1]`: the list has this term before",
        ),
        (
            json!({ "abuse": { "patterns": ["(s3cret"] } }),
            "`abuse.patterns[0]`: isn't a valid regular expression",
        ),
        (json!({ "abuse": { "terms": ["a"], "code": "s3cret!" } }), "`abuse.code`: a letter and up to 63"),
    ] {
        let status = TestPlugin::<ContentPolicy>::start(&config).await.err().unwrap();
        assert_eq!(status.code(), hookgate_sdk::StatusCode::InvalidArgument);
        assert!(status.message().contains(says), "{}", status.message());
        assert!(!status.message().contains("s3cret"));
    }
}

#[tokio::test]
async fn tools_and_extra_block_if_that_is_set() {
    let request = |member: &str, text: &str| {
        let (mut tools, mut extra) = (Vec::new(), Vec::new());
        let part = if member == "tools" { &mut tools } else { &mut extra };
        *part = json!({ "description": text }).to_string().into_bytes();
        BeforeLlmRequestPayload { tools: tools.into(), extra: extra.into(), ..Default::default() }
    };
    for (on, code) in [("block", true), ("ignore", false)] {
        let config = json!({ "redact_emails": true, "abuse": { "terms": ["idiot"] }, "tools_and_extra": on });
        let plugin = TestPlugin::<ContentPolicy>::start(&config).await.unwrap();
        for (request, expected) in [
            (request("tools", "write to ada@example.com"), "NOT_REDACTABLE"),
            (request("extra", "an idiot"), "CONTENT_BLOCKED"),
        ] {
            let reply = plugin.before_llm_request(request).await.unwrap();
            assert_eq!(reply.cancelled().map(|cancel| cancel.code()), code.then_some(expected));
        }
    }
}
