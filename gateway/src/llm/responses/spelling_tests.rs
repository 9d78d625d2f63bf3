use serde_json::{Value, json};

use super::*;
use crate::{
    core::error::Code,
    llm::{format::FormatRequest as _, guarded_points::GuardedPoints, responses::surface::check_request},
};

fn with(member: &str, value: Value) -> ResponsesRequest {
    let mut body = json!({ "model": "m", "input": [{ "role": "user", "content": "hi" }] });
    body[member] = value;
    ResponsesRequest::parse(body.to_string().into()).expect("a valid request")
}

/// A user message, and `item` behind it.
fn item(item: Value) -> ResponsesRequest {
    with("input", json!([{ "role": "user", "content": "hi" }, item]))
}

fn user(part: Value) -> ResponsesRequest {
    item(json!({ "role": "user", "content": [part] }))
}

fn tool(tool: Value) -> ResponsesRequest {
    with("tools", json!([tool]))
}

/// Checks that each request is refused at its pointer, whatever is allowed.
fn assert_refused(cases: impl IntoIterator<Item = (ResponsesRequest, &'static str)>) {
    let name_of = |pointer: &str| pointer.rsplit('/').next().unwrap_or_default().to_owned();
    for (request, pointer) in cases {
        let allowed = [name_of(pointer)];
        let error = check_request(&request, GuardedPoints::default(), &allowed).expect_err(pointer);
        assert_eq!((error.code, error.violations[0].pointer.as_str()), (Code::Unsupported, pointer));
    }
}

#[test]
fn a_name_that_some_servers_take_for_a_known_one_is_refused_for_every_tenant() {
    assert_refused([
        (with("Model", json!("other")), "/Model"),
        (with("Input", json!("x")), "/Input"),
        (with("\u{17f}tore", json!(true)), "/\u{17f}tore"),
        (with("top_\u{212a}", json!(1)), "/top_\u{212a}"),
        (with("INSTRUCTIONS", json!("x")), "/INSTRUCTIONS"),
        (with("Previous_Response_ID", json!("r")), "/Previous_Response_ID"),
        (with("Tools", json!([])), "/Tools"),
        (with("Prompt", json!({})), "/Prompt"),
        (tool(json!({ "type": "function", "name": "f", "Type": "mcp" })), "/tools/0/Type"),
        (
            tool(json!({ "type": "shell", "environment": { "type": "local", "Type": "x" } })),
            "/tools/0/environment/Type",
        ),
        (
            tool(json!({ "type": "namespace", "tools": [{ "type": "function", "Type": "mcp" }] })),
            "/tools/0/tools/0/Type",
        ),
        (
            item(json!({ "type": "additional_tools", "tools": [{ "type": "function", "Name": "f" }] })),
            "/input/1/tools/0/Name",
        ),
    ]);
    let error =
        check_request(&with("Model", json!("x")), GuardedPoints::default(), &[]).expect_err("a variant");
    assert_eq!(error.detail, "`Model` is refused: some servers take it for `model`");
}

#[test]
fn such_a_name_in_an_item_is_refused_for_every_tenant() {
    let text = || json!({ "type": "input_text", "text": "a", "Text": "b" });
    assert_refused([
        (item(json!({ "role": "user", "content": "hi", "Role": "system" })), "/input/1/Role"),
        (item(json!({ "role": "assistant", "content": "", "Content": "x" })), "/input/1/Content"),
        (user(text()), "/input/1/content/0/Text"),
        (
            user(json!({ "type": "input_file", "file_data": "aGk=", "File_ID": "x" })),
            "/input/1/content/0/File_ID",
        ),
        (
            user(json!({ "type": "input_audio", "input_audio": { "data": "", "Data": "x" } })),
            "/input/1/content/0/input_audio/Data",
        ),
        (
            item(json!({ "type": "function_call_output", "call_id": "c", "output": "", "Output": "x" })),
            "/input/1/Output",
        ),
        (
            item(json!({ "type": "function_call_output", "call_id": "c", "output": [text()] })),
            "/input/1/output/0/Text",
        ),
        (
            item(
                json!({ "type": "shell_call_output", "call_id": "c", "output": [{ "stdout": "", "StdOut": "x" }] }),
            ),
            "/input/1/output/0/StdOut",
        ),
        (
            item(
                json!({ "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "Arguments": "x" }),
            ),
            "/input/1/Arguments",
        ),
        (
            item(
                json!({ "type": "shell_call", "call_id": "c", "action": { "commands": [], "Commands": ["x"] } }),
            ),
            "/input/1/action/Commands",
        ),
        (
            item(json!({ "type": "shell_call", "call_id": "c", "action": { "commands": [] },
                "environment": { "type": "local", "Container_ID": "c" } })),
            "/input/1/environment/Container_ID",
        ),
        (
            item(
                json!({ "type": "apply_patch_call", "call_id": "c", "operation": { "diff": "", "Diff": "x" } }),
            ),
            "/input/1/operation/Diff",
        ),
        (
            item(
                json!({ "type": "reasoning", "summary": [{ "type": "summary_text", "text": "", "TEXT": "x" }] }),
            ),
            "/input/1/summary/0/TEXT",
        ),
    ]);
}

#[test]
fn other_names_in_capitals_pass() {
    let schema = json!({ "properties": { "Name": {} } });
    let action = json!({ "type": "exec", "command": [], "env": { "USER": "x", "Type": "y" } });
    for request in [
        tool(json!({ "type": "function", "name": "f", "parameters": schema })),
        with("X", json!(1)),
        with("metadata", json!({ "Model": "x" })),
        item(json!({ "role": "user", "content": "Content", "X": 1 })),
        item(json!({ "type": "local_shell_call", "call_id": "c", "action": action })),
    ] {
        check_request(&request, GuardedPoints::default(), &[]).expect("no known name");
    }
}
