use hookgate_sdk::harness::TestPlugin;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

async fn ask(config: Value, content: &str, reasoning: Option<&str>) -> Reply<BeforeResponsePatch> {
    let plugin = TestPlugin::<ResponseSanitizer>::start(&config).await.unwrap();
    let response = BeforeResponsePayload {
        content: content.to_owned(),
        reasoning: reasoning.map(str::to_owned),
        ..Default::default()
    };
    plugin.before_response(response).await.unwrap()
}

fn remarks<P>(reply: &Reply<P>) -> Vec<(&str, &str)> {
    reply.notices().iter().map(|notice| (notice.code().unwrap(), notice.message())).collect()
}

#[tokio::test]
async fn nothing_is_on_by_default() {
    assert_eq!(ask(json!({}), "ada@example.com", Some("ada@example.com")).await, Reply::proceed());
}

#[tokio::test]
async fn content_and_reasoning_are_redacted_with_one_remark_each_kind() {
    let key = "k".repeat(32);
    let config = json!({ "redact_emails": true, "redact_api_keys": true });
    let reply = ask(config, "to ada@example.com", Some(&format!("ada@example.com has {key}"))).await;
    let patch = BeforeResponsePatch {
        content: Some("to [EMAIL]".to_owned()),
        reasoning: Some("[EMAIL] has [REDACTED]".to_owned()),
        ..Default::default()
    };
    assert_eq!(reply.changes(), Some(&patch));
    assert_eq!(
        remarks(&reply),
        [
            ("EMAIL_REDACTED", "Email addresses redacted from response"),
            ("API_KEY_REDACTED", "Potential API keys redacted from response"),
        ]
    );
}

#[tokio::test]
async fn what_is_clean_is_not_patched() {
    let config = json!({ "redact_emails": true, "max_response_length": 5 });
    let reply = ask(config.clone(), "clean", Some("ada@example.com")).await;
    let patch = BeforeResponsePatch { reasoning: Some("[EMAIL]".to_owned()), ..Default::default() };
    assert_eq!(reply.changes(), Some(&patch));
    assert_eq!(ask(config, "clean", Some("a reasoning has no limit")).await, Reply::proceed());
}

#[tokio::test]
async fn a_long_content_is_cut_at_a_character() {
    let reply = ask(json!({ "max_response_length": 3 }), "日🦀é!", None).await;
    assert_eq!(reply.changes().unwrap().content.as_deref(), Some("日🦀é\n[Response truncated]"));
    assert_eq!(remarks(&reply), [("RESPONSE_TRUNCATED", "Response truncated to 3 characters")]);
}

#[tokio::test]
async fn redaction_comes_before_the_cut() {
    let reply =
        ask(json!({ "redact_emails": true, "max_response_length": 8 }), "ada@example.com", None).await;
    assert_eq!(reply.changes().unwrap().content.as_deref(), Some("[EMAIL]"));
    assert_eq!(remarks(&reply), [("EMAIL_REDACTED", "Email addresses redacted from response")]);
}

#[tokio::test]
async fn the_mark_of_a_cut_is_left_out_where_the_payload_has_no_room_for_it() {
    const MAX_PAYLOAD: usize = (4 << 20) - 8192; // of the harness
    let config = json!({ "redact_emails": true, "max_response_length": 3 });
    for (room, cut) in [(MAX_MARK_BYTES, "fou\n[Response truncated]"), (MAX_MARK_BYTES - 1, "fou")] {
        // "four" and its 2 bytes, the reasoning's tag and 4 bytes for its length.
        let reasoning = format!("a@b.cc, {}", "x".repeat(MAX_PAYLOAD - room - 6 - 5 - 8));
        let reply = ask(config.clone(), "four", Some(&reasoning)).await;
        let patch = reply.changes().unwrap();
        assert_eq!(patch.content.as_deref(), Some(cut));
        assert!(patch.reasoning.as_ref().unwrap().starts_with("[MAIL], x"));
    }
}

proptest! {
    #[test]
    fn cutting_twice_cuts_once(text in any::<String>(), limit in 1_usize..40) {
        if let Some(cut) = truncated(&text, limit) {
            prop_assert!(cut.chars().count() == limit);
            let marked = format!("{cut}{TRUNCATION_MARK}");
            prop_assert_eq!(truncated(&marked, limit), Some(cut));
        } else {
            prop_assert!(text.chars().count() <= limit);
        }
    }
}
