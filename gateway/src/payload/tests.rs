//! Tests of the rules for payloads, patches and contexts, on the messages themselves.

use std::collections::BTreeMap;

use hookgate_proto::{
    gateway::v1::{self as gateway, RequestContext},
    types::v1::{self as types, media::Source},
};

use super::*;

fn pointers(message: &impl Validate) -> Vec<String> {
    message.violations("/payload").into_iter().map(|violation| violation.pointer).collect()
}

fn tool_call(args: &'static str) -> types::BeforeToolCallPayload {
    types::BeforeToolCallPayload { tool_name: "t".into(), args: args.into(), ..Default::default() }
}

#[test]
fn json_values_of_a_grpc_message_are_scanned() {
    for (args, pointer, words) in [
        ("{", "/payload/args", "`args` is not valid JSON: expected a key in quotes or `}`, found the end"),
        ("{\"a\":[1,x]}", "/payload/args/a/1", "found `x` at line 1, column 9"),
        ("{\"a\":1,\"a\":2}", "/payload/args/a", "already has this key"),
        ("1 1", "/payload/args", "expected nothing after the value"),
        (" ", "/payload/args", "expected a value"),
        ("", "/payload/args", "`args` is required"),
    ] {
        let violations = tool_call(args).violations("/payload");
        assert_eq!(violations.len(), 1, "{args}");
        assert_eq!(violations[0].pointer, pointer, "{args}");
        assert!(violations[0].message.contains(words), "{args}: {}", violations[0].message);
    }
    for args in ["null", " [1] ", "\"\"", "9007199254740993", "{\"a\":{\"a\":null}}"] {
        assert!(pointers(&tool_call(args)).is_empty(), "{args}");
    }
    let invalid = types::BeforeToolCallPayload { args: b"\"\xff\"".as_slice().into(), ..tool_call("") };
    assert!(invalid.violations("")[0].message.contains("expected UTF-8"));
}

#[test]
fn a_tool_name_has_1_to_256_bytes() {
    for (name, valid) in [
        (String::new(), false),
        ("t".into(), true),
        ("t".repeat(256), true),
        ("t".repeat(257), false),
        ("é".repeat(128), true),
        ("é".repeat(128) + "t", false),
    ] {
        let patch = types::BeforeToolCallPatch { tool_name: Some(name.clone()), ..Default::default() };
        let result = types::AfterToolResultPayload {
            tool_name: name.clone(),
            result: "1".into(),
            success: Some(false),
            ..Default::default()
        };
        let call = types::BeforeToolCallPayload { tool_name: name.clone(), ..tool_call("1") };
        for found in [pointers(&call), pointers(&result), pointers(&patch)] {
            assert_eq!(found.is_empty(), valid, "{} bytes", name.len());
            assert!(valid || found == ["/payload/tool_name"]);
        }
    }
}

#[test]
fn what_a_turn_consists_of_may_be_empty() {
    assert!(pointers(&types::BeforeLlmRequestPayload::default()).is_empty());
    assert!(pointers(&types::BeforeResponsePayload::default()).is_empty());
    for empty in ["\"\"", "null", "{}", "[]"] {
        assert!(pointers(&tool_call(empty)).is_empty(), "{empty}");
        let result = types::AfterToolResultPayload {
            tool_name: "t".into(),
            result: empty.into(),
            success: Some(true),
            ..Default::default()
        };
        assert!(pointers(&result).is_empty(), "{empty}");
    }
}

#[test]
fn restricted_json_values_have_their_kind() {
    let payload = types::BeforeLlmRequestPayload {
        messages: "{}".into(),
        tools: "null".into(),
        extra: "[]".into(),
        ..Default::default()
    };
    assert_eq!(pointers(&payload), ["/payload/messages", "/payload/tools", "/payload/extra"]);
    let response = types::BeforeResponsePayload { extra: "1".into(), ..Default::default() };
    assert_eq!(response.violations("/payload")[0].message, "`extra` must be an object, is a number");
}

#[test]
fn a_tool_result_says_whether_it_succeeded() {
    let result =
        types::AfterToolResultPayload { tool_name: "t".into(), result: "null".into(), ..Default::default() };
    assert_eq!(pointers(&result), ["/payload/success"]);
    let result = types::AfterToolResultPayload { success: Some(false), args: "[1".into(), ..result };
    assert_eq!(pointers(&result), ["/payload/args"]);
}

#[test]
fn only_present_fields_of_a_patch_are_checked() {
    assert!(pointers(&types::BeforeLlmRequestPatch::default()).is_empty());
    assert!(pointers(&types::BeforeToolCallPatch::default()).is_empty());
    assert!(pointers(&types::AfterToolResultPatch::default()).is_empty());
    assert!(pointers(&types::BeforeResponsePatch::default()).is_empty());
    // Empty bytes mean that the patch has no such value, so the payload keeps its own.
    let llm = types::BeforeLlmRequestPatch {
        text: Some(String::new()),
        messages: Some("".into()),
        extra: Some("".into()),
        ..Default::default()
    };
    assert!(pointers(&llm).is_empty());
    let call = types::BeforeToolCallPatch { args: Some("".into()), ..Default::default() };
    assert!(pointers(&call).is_empty());
    let result = types::AfterToolResultPatch { result: Some("".into()), ..Default::default() };
    assert!(pointers(&result).is_empty());
}

#[test]
fn what_a_patch_brings_must_be_valid() {
    let list = |media| Some(types::MediaList { items: vec![media] });
    let llm = types::BeforeLlmRequestPatch {
        images: list(types::Media::default()),
        files: list(types::Media { source: Some(Source::Data("".into())), ..Default::default() }),
        messages: Some("{}".into()),
        tools: Some("[".into()),
        extra: Some("[]".into()),
        ..Default::default()
    };
    assert_eq!(
        pointers(&llm),
        [
            "/payload/images/0",
            "/payload/images/0/mime_type",
            "/payload/files/0/mime_type",
            "/payload/messages",
            "/payload/tools/0",
            "/payload/extra"
        ]
    );
    let call = types::BeforeToolCallPatch {
        tool_name: Some(String::new()),
        args: Some("{\"a\":1,\"a\":1}".into()),
        extra: Some("1".into()),
    };
    assert_eq!(pointers(&call), ["/payload/tool_name", "/payload/args/a", "/payload/extra"]);
    let response = types::BeforeResponsePatch { extra: Some("x".into()), ..Default::default() };
    assert_eq!(pointers(&response), ["/payload/extra"]);
    let deep = "[".repeat(65) + &"]".repeat(65);
    let result = types::AfterToolResultPatch { result: Some(deep.into()), ..Default::default() };
    assert!(result.violations("")[0].message.contains("deeper than 64"));
}

#[test]
fn a_request_needs_a_payload_and_its_context_is_checked_with_it() {
    assert_eq!(gateway::BeforeToolCallRequest::default().violations("")[0].pointer, "/payload");
    let request = gateway::BeforeToolCallRequest {
        context: Some(RequestContext { run_id: Some("a\nb".into()), ..Default::default() }),
        payload: Some(tool_call("[")),
        ..Default::default()
    };
    let found: Vec<_> = request.violations("").into_iter().map(|violation| violation.pointer).collect();
    assert_eq!(found, ["/context/run_id", "/payload/args/0"]);
}

#[test]
fn a_report_lists_32_violations_at_most() {
    let payload =
        types::BeforeLlmRequestPayload { images: vec![types::Media::default(); 100], ..Default::default() };
    assert_eq!(payload.violations("").len(), MAX_VIOLATIONS);
}

fn context_pointers(context: &RequestContext) -> Vec<String> {
    context_violations(context).into_iter().map(|violation| violation.pointer).collect()
}

#[test]
fn context_values_are_bounded_and_hold_no_control_character() {
    type Set = fn(&mut RequestContext) -> &mut Option<String>;
    let members: [(&str, Set); 9] = [
        ("session_id", |context| &mut context.session_id),
        ("run_id", |context| &mut context.run_id),
        ("parent_run_id", |context| &mut context.parent_run_id),
        ("agent_id", |context| &mut context.agent_id),
        ("agent_path", |context| &mut context.agent_path),
        ("project_id", |context| &mut context.project_id),
        ("user_id", |context| &mut context.user_id),
        ("provider", |context| &mut context.provider),
        ("model", |context| &mut context.model),
    ];
    for (member, set) in members {
        for (value, valid) in [
            (String::new(), true),
            ("urn:a/b:c?d#é".into(), true),
            ("x".repeat(256), true),
            ("x".repeat(257), false),
            ("é".repeat(129), false),
            ("a\u{0}".into(), false),
            ("a\nb".into(), false),
            ("\u{7f}".into(), false),
            ("\u{85}".into(), false),
        ] {
            let mut context = RequestContext::default();
            *set(&mut context) = Some(value.clone());
            let expected = if valid { vec![] } else { vec![format!("/context/{member}")] };
            assert_eq!(context_pointers(&context), expected, "{value:?}");
        }
    }
    assert!(context_pointers(&RequestContext::default()).is_empty());
}

#[test]
fn labels_are_bounded_in_number_and_length() {
    let context = |labels: BTreeMap<String, String>| RequestContext { labels, ..Default::default() };
    let many = |count: usize| (0..count).map(|number| (number.to_string(), String::new())).collect();
    assert!(context_pointers(&context(many(32))).is_empty());
    assert_eq!(context_pointers(&context(many(33))), ["/context/labels"]);
    for (key, value, pointer) in [
        ("k".repeat(64), "v".repeat(256), None),
        ("k".repeat(65), String::new(), Some(format!("/context/labels/{}", "k".repeat(65)))),
        ("k".into(), "v".repeat(257), Some("/context/labels/k".into())),
        ("team/a:b".into(), "x:/y".into(), None),
        ("a/b".into(), "\t".into(), Some("/context/labels/a~1b".into())),
        ("a\tb".into(), String::new(), Some("/context/labels/a\tb".into())),
        (String::new(), "v".into(), Some("/context/labels/".into())),
        ("claim.role".into(), "admin".into(), Some("/context/labels/claim.role".into())),
        ("claim.".into(), String::new(), Some("/context/labels/claim.".into())),
        ("claims".into(), String::new(), None),
        ("Claim.x".into(), String::new(), None),
    ] {
        let labels = BTreeMap::from([(key, value)]);
        assert_eq!(context_pointers(&context(labels)), pointer.into_iter().collect::<Vec<String>>());
    }
}
