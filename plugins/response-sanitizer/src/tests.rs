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

fn pieces(text: &str, cuts: &[usize]) -> Vec<String> {
    let (mut pieces, mut start) = (Vec::new(), 0);
    for cut in cuts.iter().map(|cut| text.floor_char_boundary(*cut)).chain([text.len()]) {
        pieces.push(text[start..cut.max(start)].to_owned());
        start = cut.max(start);
    }
    pieces
}

async fn out(plugin: &TestPlugin<ResponseSanitizer>, text: &str) -> String {
    let response = BeforeResponsePayload { content: text.to_owned(), ..Default::default() };
    let reply = plugin.before_response(response).await.unwrap();
    reply.changes().and_then(|patch| patch.content.clone()).unwrap_or_else(|| text.to_owned())
}

#[test]
fn an_answer_becomes_the_same_wherever_it_is_cut() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = |limit: Option<usize>| json!({ "redact_emails": true, "redact_api_keys": true, "max_response_length": limit });
    let mut plugins = Vec::new();
    for limit in [None, Some(1), Some(8), Some(20), Some(60)] {
        let plugin = runtime.block_on(TestPlugin::<ResponseSanitizer>::start(&config(limit)));
        plugins.push(plugin.unwrap());
    }
    let piece = "ada@example\\.com|[A-Za-z0-9_-]{30,34}|api_key=[a-z0-9]{12,13}|Bearer [a-z0-9]{14,17}|[a-z@.]{1,6}|[ é日]{1,3}";
    let text = prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat());
    let cuts = prop::collection::vec(0_usize..160, 0..6);
    proptest!(ProptestConfig::with_cases(10_000), |(text in text, mut cuts in cuts, index in 0_usize..5)| {
        cuts.sort_unstable();
        let (plugin, pieces) = (&plugins[index], pieces(&text, &cuts));
        let shown = runtime.block_on(plugin.answer_in_windows(&pieces)).unwrap();
        prop_assert_eq!(shown.text, runtime.block_on(out(plugin, &text)), "{:?}", pieces);
    });
}

#[tokio::test]
async fn a_window_passes_before_the_answer_ends() {
    let config = json!({ "redact_emails": true, "max_response_length": 20 });
    let plugin = TestPlugin::<ResponseSanitizer>::start(&config).await.unwrap();
    let shown = plugin
        .answer_with_reasoning_in_windows(
            &["write to ada@exam", "ple.com or", " to somebody else"],
            Some("a@b.cc"),
        )
        .await
        .unwrap();
    assert_eq!(shown.text, "write to [EMAIL] or \n[Response truncated]");
    assert_eq!(shown.reasoning.as_deref(), Some("[MAIL]"));
    let codes: Vec<_> = shown.notices.iter().map(|notice| notice.code().unwrap()).collect();
    assert_eq!(codes, ["EMAIL_REDACTED", "EMAIL_REDACTED", "RESPONSE_TRUNCATED"]);
    let window = |offset, last| ResponseWindow { offset, last, ..Default::default() };
    let reply = async |content: &str, offset| {
        let response = BeforeResponsePayload { content: content.to_owned(), ..Default::default() };
        plugin.before_response_window(response, window(offset, false)).await.unwrap()
    };
    assert_eq!(reply("write to ada@exam", 0).await, Reply::proceed().consumed(9));
    assert_eq!(reply("or more ", 21).await, Reply::proceed().content(""));
}
