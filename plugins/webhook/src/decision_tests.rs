use hookgate_sdk::{BeforeToolCallPatch, Verdict, proto::types::v1::NoticeKind};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn reply(body: &Value) -> Reply<BeforeToolCallPatch> {
    let decision =
        ServiceDecision::parse(body.to_string().as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    decision.into_reply().unwrap()
}

fn fault(body: &str) -> String {
    match ServiceDecision::parse(body.as_bytes()) {
        Err(error @ DeliveryError::NoDecision(_)) => error.to_string(),
        other => panic!("{body}: {other:?}"),
    }
}

#[test]
fn continue_is_a_reply_without_objection() {
    let reply = reply(&json!({ "decision": "continue" }));
    assert_eq!((reply.verdict(), reply.notices().len()), (&Verdict::Continue, 0));
}

#[test]
fn a_cancel_keeps_its_members_and_has_a_notice_with_the_details() {
    let reply = reply(&json!({
        "decision": "cancel", "code": "NOT_NOW", "message": "Come back later.", "retry_after_ms": 1500, "scope": "run",
        "details": { "z": 1, "a": 12345678901234567890_u64 },
        "notices": [{ "kind": "info", "code": "SEEN", "message": "I looked." }, { "kind": "warn", "message": "Hm." }],
    }));
    let expected =
        Cancel::new("NOT_NOW", "Come back later.").retry_after(Duration::from_millis(1500)).whole_run();
    assert_eq!(reply.cancelled(), Some(&expected));
    let notices: Vec<_> =
        reply.notices().iter().map(|notice| (notice.kind(), notice.code(), notice.message())).collect();
    assert_eq!(
        notices,
        [
            (NoticeKind::Block, Some("NOT_NOW"), "Come back later."),
            (NoticeKind::Info, Some("SEEN"), "I looked."),
            (NoticeKind::Warn, None, "Hm."),
        ]
    );
    let details: Value = serde_json::from_slice(reply.notices()[0].details_json()).unwrap();
    assert_eq!(details, json!({ "z": 1, "a": 12345678901234567890_u64 }));
}

#[test]
fn a_cancel_without_a_code_or_a_message_is_still_a_cancel() {
    for body in [json!({ "decision": "cancel" }), json!({ "decision": "cancel", "code": "", "message": "" })]
    {
        let expected = Cancel::new("BLOCKED", "The webhook service blocked this.");
        assert_eq!(reply(&body).cancelled(), Some(&expected), "{body}");
    }
}

#[test]
fn details_keep_their_bytes() {
    let body = br#"{"decision":"cancel","details":{"z":1.10,"a":1e2}}"#;
    let reply: Reply<BeforeToolCallPatch> = ServiceDecision::parse(body).unwrap().into_reply().unwrap();
    assert_eq!(reply.notices()[0].details_json(), br#"{"z":1.10,"a":1e2}"#);
}

#[test]
fn anything_else_is_no_decision_and_its_text_is_not_shown() {
    for body in [
        "",
        "SECRET",
        "<html>SECRET</html>",
        "null",
        "[\"continue\"]",
        "{}",
        r#"{"decision":"SECRET"}"#,
        r#"{"decision":"Continue"}"#,
        r#"{"decision":"continue","SECRET":1}"#,
        r#"{"decision":"continue","payload":{}}"#,
        r#"{"decision":"continue","decision":"cancel"}"#,
        r#"{"decision":"continue"} SECRET"#,
        r#"{"decision":"continue""#,
        r#"{"decision":"continue","code":"SECRET"}"#,
        r#"{"decision":"cancel","code":1}"#,
        r#"{"decision":"cancel","details":"SECRET"}"#,
        r#"{"decision":"cancel","retry_after_ms":-1}"#,
        r#"{"decision":"cancel","scope":"SECRET"}"#,
        r#"{"decision":"cancel","notices":[{"kind":"SECRET","message":""}]}"#,
        r#"{"decision":"cancel","notices":[{"kind":"info"}]}"#,
    ] {
        let fault = fault(body);
        assert!(fault.starts_with("gave an answer that is no decision: "), "{fault}");
        assert!(!fault.contains("SECRET"), "{fault}");
    }
    let placed = fault(r#"{"decision":"continue","x":1}"#);
    assert!(placed.ends_with("(line 1, column 26)"), "{placed}");
}

proptest! {
    #[test]
    fn only_a_cancel_cancels(body in "\\PC{0,60}", code in "[A-Z]{1,8}") {
        if let Ok(ServiceDecision::Cancel { .. }) = ServiceDecision::parse(body.as_bytes()) {
            prop_assert!(body.contains("cancel"));
        }
        let cancel = reply(&json!({ "decision": "cancel", "code": code }));
        prop_assert_eq!(cancel.cancelled().map(Cancel::code), Some(code.as_str()));
    }
}
