//! Tests replies that are faulty, forbidden or too large.

use std::sync::Arc;

use bytes::Bytes;
use hookgate_proto::{
    plugin::v1::{BeforeToolCallResponse, Cancel, Continue, before_tool_call_response::Verdict},
    types::v1::{BeforeToolCallPatch, BeforeToolCallPayload, CancelScope, Notice, NoticeKind},
};
use proptest::{collection::vec, option, prelude::*};
use prost::Message;

use super::{
    AgentCall, BeforeToolCall,
    reply::{Grant, ReplyError, ReplyLimits, VerifiedReply, read},
    scripted::SITE,
};
use crate::core::{error::Code, manifest::Access, step::Reason};

const LIMITS: ReplyLimits = ReplyLimits { request: 4096, notices: 3, notice_bytes: 512, details_bytes: 128 };
const MODIFY: Grant<'_> = Grant { access: Access::Modify, writable: None };

fn payload() -> Arc<BeforeToolCallPayload> {
    Arc::new(BeforeToolCallPayload {
        tool_name: "fs.read".into(),
        args: Bytes::from_static(br#"{"path":"/etc/hosts"}"#),
        call_id: Some("c1".into()),
        extra: Bytes::new(),
    })
}

fn reads(
    reply: &BeforeToolCallResponse,
    grant: Grant<'_>,
) -> Result<VerifiedReply<BeforeToolCall>, ReplyError> {
    read::<BeforeToolCall>(reply.encode_to_vec().into(), &SITE, &payload(), grant, &LIMITS)
}

fn going_on() -> BeforeToolCallResponse {
    BeforeToolCallResponse { verdict: Some(Verdict::Continue(Continue {})), ..Default::default() }
}

fn cancelling(code: &str) -> BeforeToolCallResponse {
    let cancel = Cancel { code: code.into(), ..Default::default() };
    BeforeToolCallResponse { verdict: Some(Verdict::Cancel(cancel)), ..Default::default() }
}

fn args(json: &'static [u8]) -> Option<BeforeToolCallPatch> {
    Some(BeforeToolCallPatch { args: Some(Bytes::from_static(json)), ..Default::default() })
}

fn notice(code: Option<&str>) -> Notice {
    Notice {
        kind: NoticeKind::Block.into(),
        code: code.map(Into::into),
        message: "m".into(),
        details: Bytes::new(),
    }
}

fn reason(result: Result<VerifiedReply<BeforeToolCall>, ReplyError>) -> Option<Reason> {
    result.err().map(|flaw| flaw.reason)
}

#[test]
fn a_reply_without_a_verdict_is_never_a_pass() {
    let reply = BeforeToolCallResponse { modify: args(b"{}"), ..Default::default() };
    assert_eq!(reason(reads(&reply, MODIFY)), Some(Reason::BadReply));
    assert_eq!(
        reason(read::<BeforeToolCall>(Bytes::new(), &SITE, &payload(), MODIFY, &LIMITS)),
        Some(Reason::BadReply)
    );
}

#[test]
fn a_patch_replaces_whole_top_level_values_and_nothing_else() {
    let reply = BeforeToolCallResponse { modify: args(br#"{"a":1}"#), ..going_on() };
    let folded = reads(&reply, MODIFY).ok().and_then(|said| said.payload).expect("a patch");
    assert_eq!(&folded.args[..], br#"{"a":1}"#, "nothing is merged into the old value");
    assert_eq!((&*folded.tool_name, folded.call_id.as_deref()), ("fs.read", Some("c1")));
}

#[test]
fn an_empty_patch_changes_nothing_and_needs_no_grant() {
    let empty = BeforeToolCallPatch { args: Some(Bytes::new()), ..Default::default() };
    let reply = BeforeToolCallResponse { modify: Some(empty), ..going_on() };
    let said = reads(&reply, Grant { access: Access::Read, writable: None }).expect("no patch");
    assert!(said.payload.is_none());
}

#[test]
fn access_read_forbids_any_patch() {
    let reply = BeforeToolCallResponse { modify: args(b"{}"), ..going_on() };
    let grant = Grant { access: Access::Read, writable: None };
    assert_eq!(reason(reads(&reply, grant)), Some(Reason::ForbiddenPatch));
}

#[test]
fn what_a_patch_holds_is_checked() {
    for bad in [&b"{"[..], b"{\"a\":1,\"a\":2}", b"\xff"] {
        let reply = BeforeToolCallResponse { modify: args(bad), ..going_on() };
        assert_eq!(reason(reads(&reply, MODIFY)), Some(Reason::BadReply), "{bad:?}");
    }
    let nameless = BeforeToolCallPatch { tool_name: Some(String::new()), ..Default::default() };
    let reply = BeforeToolCallResponse { modify: Some(nameless), ..going_on() };
    assert_eq!(reason(reads(&reply, MODIFY)), Some(Reason::BadReply));
}

#[test]
fn a_payload_may_grow_64_kib_over_the_request_limit_and_no_further() {
    let sized = |bytes: usize| {
        let args = format!("\"{}\"", "x".repeat(bytes - 2));
        let patch = BeforeToolCallPatch { args: Some(args.into()), ..Default::default() };
        BeforeToolCallResponse { modify: Some(patch), ..going_on() }
    };
    let rest = Message::encoded_len(&BeforeToolCallPayload { args: Bytes::new(), ..(*payload()).clone() });
    let prefix = 4; // field key, and a length of three bytes
    let fits = 4096 + (64 << 10) - rest - prefix;
    assert!(reads(&sized(fits), MODIFY).is_ok());
    assert_eq!(reason(reads(&sized(fits + 1), MODIFY)), Some(Reason::TooLarge));
}

#[test]
fn surplus_and_invalid_notices_beside_continue_are_a_bad_reply() {
    let details = |json: &'static [u8]| Notice { details: Bytes::from_static(json), ..notice(None) };
    let bad = [
        vec![notice(None); 4],
        vec![Notice { kind: 0, ..notice(None) }],
        vec![Notice { kind: 99, ..notice(None) }],
        vec![notice(Some("1st"))],
        vec![notice(Some(""))],
        vec![details(b"[]")],
        vec![details(b"{")],
        vec![Notice { message: "x".repeat(600), ..notice(None) }],
    ];
    for notices in bad {
        let reply = BeforeToolCallResponse { notices: notices.clone(), ..going_on() };
        assert_eq!(reason(reads(&reply, MODIFY)), Some(Reason::BadReply), "{notices:?}");
    }
    let reply =
        BeforeToolCallResponse { notices: vec![notice(Some("A.b:c-d_9")), details(b"{}")], ..going_on() };
    assert_eq!(reads(&reply, MODIFY).map(|said| said.notices.len()).ok(), Some(2));
}

#[test]
fn the_code_of_a_block_is_the_cancels_then_the_first_block_notices() {
    let code = |cancel: &str, notices: Vec<Notice>| {
        let reply = BeforeToolCallResponse { notices, ..cancelling(cancel) };
        let said = reads(&reply, MODIFY).expect("a cancel");
        (said.cancel.expect("a cancel").code, said.sanitised)
    };
    assert_eq!(code("QUOTA_EXCEEDED", vec![notice(Some("OTHER"))]), ("QUOTA_EXCEEDED".into(), 0));
    assert_eq!(code("", vec![notice(Some("FIRST")), notice(Some("SECOND"))]), ("FIRST".into(), 0));
    let info = Notice { kind: NoticeKind::Info.into(), ..notice(Some("INFO")) };
    assert_eq!(code("", vec![info, notice(Some("BLOCK"))]), ("BLOCK".into(), 0));
    assert_eq!(code("", vec![]), ("BLOCKED".into(), 0));
    assert_eq!(code("", vec![notice(Some("PLUGIN_TIMEOUT"))]), ("BLOCKED".into(), 0));
    assert_eq!(code("not a code", vec![]), ("BLOCKED".into(), 1));
    for reserved in Code::ALL {
        assert_eq!(code(reserved.as_str(), vec![]), ("BLOCKED".into(), 1), "{reserved}");
    }
}

#[test]
fn the_message_of_a_cancel_is_cut_at_1_kib_between_characters() {
    let cancel = Cancel { message: "ä".repeat(600), ..Default::default() };
    let reply = BeforeToolCallResponse { verdict: Some(Verdict::Cancel(cancel)), ..Default::default() };
    let said = reads(&reply, MODIFY).expect("a cancel");
    assert_eq!(said.cancel.map(|cancel| cancel.message), Some("ä".repeat(512)));
    assert_eq!(said.sanitised, 1);
    let silent = reads(&cancelling("NO"), MODIFY).expect("a cancel").cancel.expect("a cancel");
    assert_eq!(silent.message, "Operation blocked by plugin");
    assert_eq!(silent.scope, CancelScope::Step);
}

fn any_json() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        Just(Bytes::from_static(b"{}")),
        Just(Bytes::from_static(b"null")),
        Just(Bytes::from_static(b"{\"a\":{\"a\":1}}")),
        Just(Bytes::from_static(b"{\"a\":1,\"a\":2}")),
        vec(any::<u8>(), 0..20).prop_map(Bytes::from),
    ]
}

fn any_patch() -> impl Strategy<Value = BeforeToolCallPatch> {
    (option::of("[a-z.]{0,8}"), option::of(any_json()), option::of(any_json()))
        .prop_map(|(tool_name, args, extra)| BeforeToolCallPatch { tool_name, args, extra })
}

fn any_notice() -> impl Strategy<Value = Notice> {
    (-1..6i32, option::of(".{0,70}"), ".{0,300}", any_json())
        .prop_map(|(kind, code, message, details)| Notice { kind, code, message, details })
}

proptest! {
    #[test]
    fn no_patch_changes_a_field_outside_the_grant(
        patch in any_patch(),
        access in prop_oneof![Just(Access::Read), Just(Access::Modify)],
        writable in option::of(proptest::sample::subsequence(vec!["tool_name", "args", "extra"], 0..3)),
        cancels in any::<bool>(),
    ) {
        let names: Option<Vec<String>> = writable.map(|names| names.into_iter().map(String::from).collect());
        let reply = BeforeToolCallResponse { modify: Some(patch), ..if cancels { cancelling("NO") } else { going_on() } };
        let grant = Grant { access, writable: names.as_deref() };
        let Ok(VerifiedReply { payload: Some(folded), .. }) = reads(&reply, grant) else { return Ok(()) };
        prop_assert_eq!(access, Access::Modify);
        let may = |field: &str| names.as_ref().is_none_or(|names| names.iter().any(|name| name == field));
        let before = payload();
        prop_assert!(folded.tool_name == before.tool_name || may("tool_name"));
        prop_assert!(folded.args == before.args || may("args"));
        prop_assert!(folded.extra == before.extra || may("extra"));
        prop_assert_eq!(&folded.call_id, &before.call_id);
    }

    #[test]
    fn a_cancel_that_can_be_decoded_is_a_cancel_whatever_else_is_wrong(
        patch in option::of(any_patch()),
        notices in vec(any_notice(), 0..8),
        code in ".{0,80}",
        message in ".{0,2000}",
        scope in -1..9i32,
        read_only in any::<bool>(),
        result in prop_oneof![vec(any::<u8>(), 0..20), "[\\[\\]{}0-9a\", :]{0,12}".prop_map(String::into_bytes)],
    ) {
        let is_result = serde_json::from_slice::<serde_json::Value>(&result).is_ok();
        let cancel = Cancel { code, message, scope, result: result.clone().into(), ..Default::default() };
        let reply = BeforeToolCallResponse { verdict: Some(Verdict::Cancel(cancel)), modify: patch, notices };
        let access = if read_only { Access::Read } else { Access::Modify };
        let said = reads(&reply, Grant { access, writable: None });
        let said = said.map_err(|flaw| TestCaseError::fail(flaw.detail))?;
        let cancel = said.cancel.expect("a cancel stays a cancel");
        prop_assert!(super::reply::is_code(&cancel.code) && !Code::is_reserved(&cancel.code));
        prop_assert!(!cancel.message.is_empty() && cancel.message.len() <= 1024);
        let is_result = is_result && !read_only;
        prop_assert_eq!(cancel.result.as_deref(), is_result.then_some(&*result));
        if is_result {
            prop_assert_eq!((&*cancel.code, cancel.scope), ("TOOL_ANSWERED", CancelScope::Step));
        }
        prop_assert!(said.notices.len() <= LIMITS.notices);
    }

    #[test]
    fn no_bytes_make_reading_a_reply_panic(bytes in vec(any::<u8>(), 0..200)) {
        let said = read::<BeforeToolCall>(bytes.into(), &SITE, &payload(), MODIFY, &LIMITS);
        if let Ok(VerifiedReply { payload: Some(folded), .. }) = said {
            prop_assert!(crate::payload::Validate::violations(&*folded, "").is_empty());
        }
    }
}

#[test]
fn the_fields_of_a_patch_are_those_it_holds() {
    let patch = BeforeToolCallPatch { tool_name: Some("t".into()), args: Some(Bytes::new()), extra: None };
    assert_eq!(BeforeToolCall::fields(&patch), ["tool_name"]);
}
