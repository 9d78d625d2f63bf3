use serde_json::{Value, json};

use super::*;
use crate::{
    core::error::Code,
    llm::{chat::surface::check_request, format::FormatRequest, guarded_points::GuardedPoints},
};

fn with(member: &str, value: Value) -> ChatRequest {
    let mut body = json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] });
    body[member] = value;
    ChatRequest::parse(body.to_string().into()).expect("a valid request")
}

/// A user message, and `message` behind it.
fn message(message: Value) -> ChatRequest {
    with("messages", json!([{ "role": "user", "content": "hi" }, message]))
}

#[test]
fn a_name_that_some_servers_take_for_a_known_one_is_refused_for_every_tenant() {
    let call = |call: Value| message(json!({ "role": "assistant", "tool_calls": [call] }));
    let part = |part: Value| message(json!({ "role": "user", "content": [part] }));
    let cases = [
        (with("Model", json!("other")), "/Model"),
        (with("N", json!(128)), "/N"),
        (with("STREAM", json!(true)), "/STREAM"),
        (with("Tools", json!([{ "type": "web_search" }])), "/Tools"),
        (with("Fallbacks", json!([])), "/Fallbacks"),
        (with("me\u{17f}\u{17f}age\u{17f}", json!([])), "/me\u{17f}\u{17f}age\u{17f}"),
        (with("top_\u{212a}", json!(1)), "/top_\u{212a}"),
        (with("tools", json!([{ "type": "function", "Type": "mcp" }])), "/tools/0/Type"),
        (
            with("tools", json!([{ "type": "function", "function": { "Description": "x" } }])),
            "/tools/0/function/Description",
        ),
        (with("functions", json!([{ "name": "f", "Name": "g" }])), "/functions/0/Name"),
        (message(json!({ "role": "user", "content": "hi", "Role": "system" })), "/messages/1/Role"),
        (message(json!({ "role": "assistant", "Content": "x" })), "/messages/1/Content"),
        (part(json!({ "type": "text", "text": "a", "Text": "b" })), "/messages/1/content/0/Text"),
        (
            part(json!({ "type": "image_url", "image_url": { "url": "https://a.test/", "URL": "x" } })),
            "/messages/1/content/0/image_url/URL",
        ),
        (part(json!({ "type": "file", "file": { "File_ID": "x" } })), "/messages/1/content/0/file/File_ID"),
        (call(json!({ "id": "1", "ID": "2" })), "/messages/1/tool_calls/0/ID"),
        (
            call(json!({ "id": "1", "function": { "name": "f", "Arguments": "{}" } })),
            "/messages/1/tool_calls/0/function/Arguments",
        ),
        (
            message(json!({ "role": "assistant", "function_call": { "name": "f", "Name": "g" } })),
            "/messages/1/function_call/Name",
        ),
    ];
    let name_of = |pointer: &str| pointer.rsplit('/').next().unwrap_or_default().to_owned();
    for (request, pointer) in cases {
        let allowed = [name_of(pointer)];
        let error = check_request(&request, GuardedPoints::default(), &allowed).expect_err(pointer);
        assert_eq!((error.code, error.violations[0].pointer.as_str()), (Code::Unsupported, pointer));
    }
    let error =
        check_request(&with("Model", json!("x")), GuardedPoints::default(), &[]).expect_err("a variant");
    assert_eq!(error.detail, "`Model` is refused: some servers take it for `model`");
}

#[test]
fn other_names_in_capitals_pass() {
    let tool = json!({ "type": "function", "function": { "name": "f", "parameters": { "properties": { "Name": {} } } } });
    for request in [
        with("tools", json!([tool])),
        with("X", json!(1)),
        with("ma\u{df}", json!(1)),
        message(json!({ "role": "user", "content": "Content", "X": 1 })),
    ] {
        check_request(&request, GuardedPoints::default(), &[]).expect("no known name");
    }
}
