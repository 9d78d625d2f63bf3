use serde_json::{Value, json};

use super::*;
use crate::{
    core::error::Code,
    llm::{format::FormatRequest, guarded_points::GuardedPoints, messages::surface::check_request},
};

fn with(member: &str, value: Value) -> MessagesRequest {
    let mut body = json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] });
    body[member] = value;
    MessagesRequest::parse(body.to_string().into()).expect("a valid request")
}

/// A user message, and `message` behind it.
fn message(message: Value) -> MessagesRequest {
    with("messages", json!([{ "role": "user", "content": "hi" }, message]))
}

fn user(block: Value) -> MessagesRequest {
    message(json!({ "role": "user", "content": [block] }))
}

fn assistant(block: Value) -> MessagesRequest {
    message(json!({ "role": "assistant", "content": [block] }))
}

#[test]
fn a_name_that_some_servers_take_for_a_known_one_is_refused_for_every_tenant() {
    let image = |source: Value| json!({ "type": "image", "source": source });
    let result = |block: Value| json!({ "type": "tool_result", "tool_use_id": "t", "content": [block] });
    let document =
        |block: Value| json!({ "type": "document", "source": { "type": "content", "content": [block] } });
    let text = || json!({ "type": "text", "text": "a", "Text": "b" });
    let cases = [
        (with("Model", json!("other")), "/Model"),
        (with("SYSTEM", json!("x")), "/SYSTEM"),
        (with("\u{17f}ystem", json!("x")), "/\u{17f}ystem"),
        (with("top_\u{212a}", json!(1)), "/top_\u{212a}"),
        (with("STREAM", json!(true)), "/STREAM"),
        (with("Fallbacks", json!([])), "/Fallbacks"),
        (with("Diagnostics", json!({})), "/Diagnostics"),
        (with("Mcp_Servers", json!([])), "/Mcp_Servers"),
        (with("tools", json!([{ "name": "f", "input_schema": {}, "Type": "web_search" }])), "/tools/0/Type"),
        (with("system", json!([text()])), "/system/0/Text"),
        (message(json!({ "role": "user", "content": "hi", "Role": "system" })), "/messages/1/Role"),
        (message(json!({ "role": "assistant", "content": "", "Content": "x" })), "/messages/1/Content"),
        (user(text()), "/messages/1/content/0/Text"),
        (user(json!({ "type": "text", "text": "", "File_ID": "x" })), "/messages/1/content/0/File_ID"),
        (
            user(image(json!({ "type": "base64", "data": "", "Data": "x" }))),
            "/messages/1/content/0/source/Data",
        ),
        (user(document(text())), "/messages/1/content/0/source/content/0/Text"),
        (
            user(json!({ "type": "tool_result", "tool_use_id": "t", "Content": "x" })),
            "/messages/1/content/0/Content",
        ),
        (user(result(text())), "/messages/1/content/0/content/0/Text"),
        (
            user(result(image(json!({ "type": "url", "URL": "x" })))),
            "/messages/1/content/0/content/0/source/URL",
        ),
        (
            assistant(
                json!({ "type": "tool_use", "id": "1", "name": "f", "input": {}, "Input": { "a": 1 } }),
            ),
            "/messages/1/content/0/Input",
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
    let schema = json!({ "properties": { "Name": {} } });
    let call = json!({ "type": "tool_use", "id": "1", "name": "f", "input": { "Type": "x", "Text": "y" } });
    for request in [
        with("tools", json!([{ "name": "f", "input_schema": schema }])),
        with("X", json!(1)),
        message(json!({ "role": "user", "content": "Content", "X": 1 })),
        assistant(call),
    ] {
        check_request(&request, GuardedPoints::default(), &[]).expect("no known name");
    }
}
