//! Tests of rejected bodies: the pointer and message of each violation.

use super::*;
use crate::{
    core::error::Violation,
    json::MAX_DEPTH,
    payload::{MAX_VIOLATIONS, Validate},
};

type Refusal = fn(&str) -> Vec<Violation>;

const LLM: Refusal = refused::<gateway::BeforeLlmRequestRequest>;
const TOOL: Refusal = refused::<gateway::BeforeToolCallRequest>;
const RESULT: Refusal = refused::<gateway::AfterToolResultRequest>;
const RESPONSE: Refusal = refused::<gateway::BeforeResponseRequest>;

fn refused<R: HttpRequestMessage + std::fmt::Debug>(text: &str) -> Vec<Violation> {
    decode::<R>(&body(text)).expect_err(text)
}

/// Asserts that each body causes one violation, with this pointer and these words.
fn assert_refused(cases: &[(Refusal, &str, &str, &str)]) {
    for (refused, text, pointer, words) in cases {
        let violations = refused(text);
        let [violation] = violations.as_slice() else { panic!("{text}: {violations:?}") };
        assert_eq!(violation.pointer, *pointer, "{text}: {}", violation.message);
        assert!(violation.message.contains(words), "{text}: {}", violation.message);
    }
}

#[test]
fn what_is_not_one_json_object_is_refused() {
    assert_refused(&[
        (TOOL, "", "", "The body is not valid JSON: expected a value, found the end at line 1, column 1"),
        (TOOL, "  \n ", "", "found the end at line 2, column 2"),
        (TOOL, "tool_name=t", "", "expected a value, found `t` at line 1, column 1"),
        (
            TOOL,
            "{\"payload\":\n {,}}",
            "/payload",
            "expected a key in quotes or `}`, found `,` at line 2, column 3",
        ),
        (
            TOOL,
            r#"{"payload":{"tool_name":"t","args":[1,}}"#,
            "/payload/args/1",
            "expected a value, found `}`",
        ),
        (TOOL, r#"{"payload":{"tool_name":"t","args":{}}} {}"#, "", "expected nothing after the value"),
        (TOOL, r#"{"payload":{"tool_name":"\ud800","args":{}}}"#, "/payload/tool_name", "surrogate"),
        (TOOL, r#"{"payload":{"tool_name":"t","args":NaN}}"#, "/payload/args", "expected a value, found `N`"),
        (TOOL, "[]", "", "The body must be an object, is an array"),
        (TOOL, "null", "", "The body must be an object, is null"),
        (TOOL, "\"{}\"", "", "The body must be an object, is a string"),
        (TOOL, "17", "", "The body must be an object, is 17"),
    ]);
}

#[test]
fn a_body_in_another_encoding_is_refused() {
    let violations =
        decode::<gateway::BeforeToolCallRequest>(&body(b"{\"payload\":{\"tool_name\":\"\xe9\"}}"))
            .expect_err("Latin-1");
    assert_eq!(violations[0].pointer, "/payload/tool_name");
    assert!(violations[0].message.contains("expected UTF-8"), "{}", violations[0].message);
}

#[test]
fn a_payload_that_is_no_object_is_refused() {
    assert_refused(&[
        (TOOL, "{}", "/payload", "`payload` is required"),
        (TOOL, r#"{"payload":null}"#, "/payload", "`payload` is required"),
        (TOOL, r#"{"payload":[]}"#, "/payload", "`payload` must be an object, is an array"),
        (RESPONSE, r#"{"payload":"hello"}"#, "/payload", "`payload` must be an object, is a string"),
        (RESPONSE, r#"{"payload":true}"#, "/payload", "must be an object, is a boolean"),
        (LLM, r#"{"payload":0}"#, "/payload", "must be an object, is 0"),
    ]);
}

#[test]
fn unknown_members_are_refused_with_the_known_ones() {
    assert_refused(&[
        (
            RESPONSE,
            r#"{"payload":{},"payloads":{}}"#,
            "/payloads",
            "known here: context, payload, expect_plan_digest",
        ),
        (RESPONSE, r#"{"payload":{},"x/y~z":1}"#, "/x~1y~0z", "Unknown member `x/y~z`"),
        (RESPONSE, r#"{"payload":{"content":"x","contents":""}}"#, "/payload/contents", "Unknown member"),
        (
            TOOL,
            r#"{"payload":{"tool_name":"t","args":1,"toolName":"t"}}"#,
            "/payload/toolName",
            "did you mean `tool_name`?",
        ),
        (
            RESPONSE,
            r#"{"context":{"sessionId":"s"},"payload":{}}"#,
            "/context/sessionId",
            "did you mean `session_id`?",
        ),
        (
            RESPONSE,
            r#"{"payload":{"token_usage":{"total":3}}}"#,
            "/payload/token_usage/total",
            "known here: input, output",
        ),
        (
            LLM,
            r#"{"payload":{"images":[{"url":"u","mime_type":"a/b","alt":""}]}}"#,
            "/payload/images/0/alt",
            "Unknown member",
        ),
    ]);
}

#[test]
fn who_calls_is_never_taken_from_the_body() {
    for name in ["tenant", "tenant_id", "operator", "operator_id"] {
        for (text, pointer) in [
            (format!(r#"{{"{name}":"acme","payload":{{}}}}"#), format!("/{name}")),
            (format!(r#"{{"context":{{"{name}":"acme"}},"payload":{{}}}}"#), format!("/context/{name}")),
            (format!(r#"{{"context":{{"{name}":null}},"payload":{{}}}}"#), format!("/context/{name}")),
        ] {
            assert_refused(&[(RESPONSE, &text, &pointer, "comes from the token: omit it")]);
        }
    }
    assert_refused(&[
        (RESPONSE, r#"{"context":{"request_id":"r"},"payload":{}}"#, "/context/request_id", "`x-request-id`"),
        (
            RESPONSE,
            r#"{"context":{"labels":{"claim.role":"a"}},"payload":{}}"#,
            "/context/labels/claim.role",
            "`claim.`",
        ),
    ]);
}

#[test]
fn repeated_keys_are_refused_at_every_level() {
    assert_refused(&[
        (RESPONSE, r#"{"payload":{},"payload":{}}"#, "/payload", "already has this key"),
        (
            RESPONSE,
            r#"{"payload":{"content":"a","content":"b"}}"#,
            "/payload/content",
            "already has this key",
        ),
        (
            RESPONSE,
            r#"{"payload":{"extra":{"a":[{"b":1,"b":1}]}}}"#,
            "/payload/extra/a/0/b",
            "already has this key",
        ),
        (
            TOOL,
            r#"{"payload":{"tool_name":"t","args":{"path":"/tmp","p\u0061th":"/etc"}}}"#,
            "/payload/args/path",
            "already has this key",
        ),
    ]);
    let violations =
        RESPONSE(r#"{"context":{"labels":{"a":"1","a":"1"}},"payload":{"extra":[{"b":1,"b":1}],"x":1}}"#);
    let pointers: Vec<_> = violations.iter().map(|violation| violation.pointer.as_str()).collect();
    assert_eq!(pointers, ["/context/labels/a", "/payload/extra/0/b", "/payload/x", "/payload/extra"]);
}

#[test]
fn wrong_types_in_a_payload_are_refused_with_what_would_be_right() {
    assert_refused(&[
        (
            TOOL,
            r#"{"payload":{"tool_name":7,"args":1}}"#,
            "/payload/tool_name",
            "`tool_name` must be a string, is 7",
        ),
        (
            TOOL,
            r#"{"payload":{"tool_name":"t","args":1,"call_id":[]}}"#,
            "/payload/call_id",
            "must be a string, is an array",
        ),
        (
            TOOL,
            r#"{"payload":{"tool_name":"t","args":1,"extra":[]}}"#,
            "/payload/extra",
            "`extra` must be an object, is an array",
        ),
        (
            TOOL,
            r#"{"payload":{"tool_name":"t","args":1},"expect_plan_digest":1}"#,
            "/expect_plan_digest",
            "must be a string",
        ),
        (
            RESULT,
            r#"{"payload":{"tool_name":"t","result":1,"success":"true"}}"#,
            "/payload/success",
            "must be a boolean, is a string",
        ),
        (
            RESULT,
            r#"{"payload":{"tool_name":"t","result":1,"success":1}}"#,
            "/payload/success",
            "must be a boolean, is 1",
        ),
        (
            LLM,
            r#"{"payload":{"text":"x","messages":{}}}"#,
            "/payload/messages",
            "must be an array, is an object",
        ),
        (LLM, r#"{"payload":{"text":"x","tools":"[]"}}"#, "/payload/tools", "must be an array, is a string"),
        (LLM, r#"{"payload":{"text":"x","images":{}}}"#, "/payload/images", "must be an array, is an object"),
        (
            LLM,
            r#"{"payload":{"text":"x","files":[null]}}"#,
            "/payload/files/0",
            "An entry must be an object, is null",
        ),
        (LLM, r#"{"payload":{"text":{}}}"#, "/payload/text", "must be a string, is an object"),
        (RESPONSE, r#"{"payload":{"content":["x"]}}"#, "/payload/content", "must be a string, is an array"),
        (RESPONSE, r#"{"payload":{"token_usage":3}}"#, "/payload/token_usage", "must be an object, is 3"),
    ]);
}

#[test]
fn wrong_types_in_the_context_are_refused_with_what_would_be_right() {
    assert_refused(&[
        (RESPONSE, r#"{"context":"c","payload":{}}"#, "/context", "must be an object, is a string"),
        (RESPONSE, r#"{"context":{"model":1},"payload":{}}"#, "/context/model", "must be a string, is 1"),
        (
            RESPONSE,
            r#"{"context":{"labels":["a"]},"payload":{}}"#,
            "/context/labels",
            "must be an object, is an array",
        ),
        (
            RESPONSE,
            r#"{"context":{"labels":{"a/b":1}},"payload":{}}"#,
            "/context/labels/a~1b",
            "`a/b` must be a string, is 1",
        ),
    ]);
}

#[test]
fn integers_are_digits_alone_and_within_their_range() {
    for wrong in ["-1", "-0", "1.0", "1e3", "\"5\"", "true", "18446744073709551616"] {
        let result =
            format!(r#"{{"payload":{{"tool_name":"t","result":1,"success":true,"duration_ms":{wrong}}}}}"#);
        let usage = format!(r#"{{"payload":{{"token_usage":{{"output":{wrong}}}}}}}"#);
        let right = "must be an integer from 0 to 18446744073709551615";
        assert_refused(&[
            (RESULT, &result, "/payload/duration_ms", right),
            (RESPONSE, &usage, "/payload/token_usage/output", right),
        ]);
    }
    for wrong in ["-1", "0.5", "4294967296", "\"1\""] {
        let text = format!(r#"{{"context":{{"depth":{wrong}}},"payload":{{}}}}"#);
        assert_refused(&[(
            RESPONSE,
            &text,
            "/context/depth",
            "must be an integer from 0 to 4294967295, is ",
        )]);
    }
    let text = r#"{"context":{"depth":4294967295},"payload":{"token_usage":{"input":18446744073709551615}}}"#;
    let request: gateway::BeforeResponseRequest = decode(&body(text)).expect("the largest");
    assert_eq!(request.context.and_then(|context| context.depth), Some(u32::MAX));
    assert_eq!(
        request.payload.and_then(|payload| payload.token_usage).map(|usage| usage.input),
        Some(u64::MAX)
    );
}

#[test]
fn missing_and_empty_members_are_refused() {
    assert_refused(&[
        (TOOL, r#"{"payload":{"args":{}}}"#, "/payload/tool_name", "must be 1 to 256 bytes, is 0"),
        (
            TOOL,
            r#"{"payload":{"tool_name":"","args":{}}}"#,
            "/payload/tool_name",
            "must be 1 to 256 bytes, is 0",
        ),
        (
            TOOL,
            r#"{"payload":{"tool_name":"t"}}"#,
            "/payload/args",
            "`args` is required: any JSON value, `null` included",
        ),
        (
            RESULT,
            r#"{"payload":{"tool_name":"t","success":false}}"#,
            "/payload/result",
            "`result` is required",
        ),
        (
            RESULT,
            r#"{"payload":{"tool_name":"t","result":null}}"#,
            "/payload/success",
            "`success` is required",
        ),
        (
            RESULT,
            r#"{"payload":{"tool_name":"t","result":1,"success":null}}"#,
            "/payload/success",
            "required: true or false",
        ),
    ]);
}

#[test]
fn media_need_one_source_and_a_type() {
    let media =
        |media: &str| format!(r#"{{"payload":{{"images":[{{"url":"u","mime_type":"a/b"}},{media}]}}}}"#);
    for (wrong, member, words) in [
        (r#"{"mime_type":"a/b"}"#, "", "One of `data` and `url` is required"),
        (r#"{"mime_type":"a/b","data":null,"url":null}"#, "", "One of `data` and `url` is required"),
        (r#"{"mime_type":"a/b","data":"","url":"u"}"#, "/url", "Only one of `data` and `url`"),
        (r#"{"mime_type":"a/b","url":"u","data":"AA=="}"#, "/data", "Only one of `data` and `url`"),
        (r#"{"mime_type":"a/b","url":""}"#, "/url", "must not be empty"),
        (r#"{"url":"u"}"#, "/mime_type", "`mime_type` is required"),
        (r#"{"url":"u","mime_type":7}"#, "/mime_type", "must be a string"),
        (r#"{"mime_type":"a/b","data":[0]}"#, "/data", "must be a string, is an array"),
    ] {
        let text = media(wrong);
        let violations = LLM(&text);
        assert_eq!(violations[0].pointer, format!("/payload/images/1{member}"), "{text}");
        assert!(violations[0].message.contains(words), "{text}: {violations:?}");
    }
    for not_padded_standard in ["AA", "AA=", "-_8=", "A A=", "=", "AB=="] {
        let violations = LLM(&media(&format!(r#"{{"mime_type":"a/b","data":"{not_padded_standard}"}}"#)));
        assert!(violations[0].message.contains("padded standard base64"), "{violations:?}");
    }
}

#[test]
fn all_mistakes_are_reported_together_and_one_for_each_member() {
    let violations = RESULT(
        r#"{"tenant":"acme","context":{"depth":-1,"labels":{"claim.x":"","ok":"1"},"user_id":"a\u0000b"},
        "payload":{"toolName":"t","tool_name":null,"result":{"a":1,"a":2},"success":"yes","duration_ms":1.5,"extra":[]},
        "expect_plan_digest":[]}"#,
    );
    let pointers: Vec<_> = violations.iter().map(|violation| violation.pointer.as_str()).collect();
    assert_eq!(
        pointers,
        [
            "/payload/result/a",
            "/tenant",
            "/context/depth",
            "/payload/toolName",
            "/payload/success",
            "/payload/duration_ms",
            "/expect_plan_digest",
            "/context/user_id",
            "/context/labels/claim.x",
            "/payload/tool_name",
            "/payload/extra",
        ]
    );
}

#[test]
fn a_report_is_bounded_whatever_the_body_holds() {
    let unknown: Vec<_> = (0..10_000).map(|number| format!("\"{number}\":0")).collect();
    let violations = RESPONSE(&format!(r#"{{"payload":{{{}}}}}"#, unknown.join(",")));
    assert_eq!(violations.len(), MAX_VIOLATIONS);
    let long = "k".repeat(1 << 20);
    for text in [
        format!(r#"{{"payload":{{"{long}":1}}}}"#),
        format!(r#"{{"payload":{{}},"context":{{"labels":{{"{long}":"v","b":"{long}"}}}}}}"#),
        format!(r#"{{"payload":{{"token_usage":{{"input":{}}}}}}}"#, "9".repeat(300)),
    ] {
        for violation in RESPONSE(&text) {
            assert!(violation.pointer.len() + violation.message.len() < 600, "{violation:?}");
        }
    }
}

#[test]
fn a_json_value_may_nest_64_levels_from_its_own_root_over_http_and_grpc() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let in_object = |depth: usize| format!(r#"{{"a":{}}}"#, nested(depth - 1));
    for (depth, passes) in [(MAX_DEPTH, true), (MAX_DEPTH + 1, false), (10_000, false), (1_000_000, false)] {
        let text = format!(r#"{{"payload":{{"tool_name":"t","args":{},"extra":{{}}}}}}"#, nested(depth));
        let http = decode::<gateway::BeforeToolCallRequest>(&body(&text));
        let payload = types::BeforeToolCallPayload {
            tool_name: "t".into(),
            args: nested(depth).into(),
            ..Default::default()
        };
        let grpc = payload.violations("/payload");
        let extra = format!(r#"{{"payload":{{"extra":{}}}}}"#, in_object(depth));
        let extra = decode::<gateway::BeforeResponseRequest>(&body(&extra));
        assert_eq!((http.is_ok(), grpc.is_empty(), extra.is_ok()), (passes, passes, passes), "{depth}");
        if let Err(violations) = http {
            assert!(violations[0].pointer.starts_with("/payload/args/0/0"));
            assert!(violations[0].message.contains("Nested deeper than 64 levels"));
            assert_eq!(grpc, violations);
        }
    }
}
