//! Tests of the HTTP form in both directions.

use bytes::Bytes;
use hookgate_proto::{gateway::v1 as gateway, types::v1 as types};

use super::*;

mod answers;
mod bad_bodies;
mod round_trip;

fn body(text: impl AsRef<[u8]>) -> Bytes {
    Bytes::copy_from_slice(text.as_ref())
}

#[test]
fn a_full_tool_call_is_read() {
    let text = r#" {"context": {"session_id":"s:1/a","depth":2,"agent_path":"a/b:c","labels":{"team/x":"a:b","":null}},
        "payload": {"tool_name": "fs.read", "args" : { "n": 9007199254740993, "z":null, "a":[1.10, "\u00e9"] } , "extra":null},
        "expect_plan_digest":"ab"} "#;
    let request: gateway::BeforeToolCallRequest = decode(&body(text)).expect("valid");
    let context = request.context.expect("given");
    assert_eq!(context.session_id.as_deref(), Some("s:1/a"));
    assert_eq!((context.depth, context.run_id), (Some(2), None));
    assert_eq!(context.labels["team/x"], "a:b");
    let payload = request.payload.expect("given");
    assert_eq!(payload.tool_name, "fs.read");
    assert_eq!(&payload.args[..], r#"{ "n": 9007199254740993, "z":null, "a":[1.10, "\u00e9"] }"#.as_bytes());
    assert_eq!(payload.extra, Bytes::new());
    assert_eq!(request.expect_plan_digest.as_deref(), Some("ab"));
}

#[test]
fn json_values_share_the_memory_of_the_body() {
    let body = body(r#"{"payload":{"tool_name":"t","args":[1,2]}}"#);
    let request: gateway::BeforeToolCallRequest = decode(&body).expect("valid");
    let args = request.payload.expect("given").args;
    assert!(body.as_ptr_range().contains(&args.as_ptr()));
}

#[test]
fn null_is_absent_except_where_any_json_is_taken() {
    let text = r#"{"context":null,"expect_plan_digest":null,"payload":{"tool_name":"t","result":null,"success":true,
        "args":null,"call_id":null,"duration_ms":null,"extra":null}}"#;
    let request: gateway::AfterToolResultRequest = decode(&body(text)).expect("valid");
    let payload = types::AfterToolResultPayload {
        tool_name: "t".into(),
        result: "null".into(),
        success: Some(true),
        args: "null".into(),
        ..Default::default()
    };
    assert_eq!(request, gateway::AfterToolResultRequest { payload: Some(payload), ..Default::default() });

    let text = r#"{"payload":{"text":"x","images":null,"messages":null,"tools":null,"extra":null}}"#;
    let request: gateway::BeforeLlmRequestRequest = decode(&body(text)).expect("valid");
    let payload = types::BeforeLlmRequestPayload { text: "x".into(), ..Default::default() };
    assert_eq!(request.payload, Some(payload));
}
