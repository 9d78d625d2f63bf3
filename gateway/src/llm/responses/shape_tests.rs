use bytes::Bytes;

use crate::{
    core::error::Code,
    llm::{format::FormatRequest as _, responses::request::ResponsesRequest},
};

/// Each body has exactly the mistakes at these places.
fn refused(cases: &[(String, &[&str])]) {
    for (body, expected) in cases {
        let error = ResponsesRequest::parse(Bytes::copy_from_slice(body.as_bytes())).expect_err(body);
        let pointers: Vec<_> = error.violations.iter().map(|violation| violation.pointer.as_str()).collect();
        assert_eq!((error.code, pointers), (Code::PayloadInvalid, expected.to_vec()), "{body}");
    }
}

fn with_items(items: &str) -> String {
    format!(r#"{{"model":"m","input":[{items}]}}"#)
}

#[test]
fn each_mistake_is_reported_at_its_member() {
    let with = |member: &str| format!(r#"{{"model":"m","input":"",{member}}}"#);
    let user = |content: &str| with_items(&format!(r#"{{"role":"user","content":{content}}}"#));
    let (deep, deepest) = ("[".repeat(62) + &"]".repeat(62), format!("/input/0/content{}", "/0".repeat(61)));
    refused(&[
        ("[]".into(), &[""]),
        ("{".into(), &[""]),
        (r#""input""#.into(), &[""]),
        ("{}".into(), &["/model", "/input"]),
        (r#"{"model":"m","model":"m","input":"a"}"#.into(), &["/model"]),
        (r#"{"model":"m","input":"a","input":[]}"#.into(), &["/input"]),
        (r#"{"model":"","input":[]}"#.into(), &["/model", "/input"]),
        (r#"{"model":1,"input":{}}"#.into(), &["/model", "/input"]),
        (r#"{"model":1,"input":"a"}"#.into(), &["/model"]),
        (r#"{"model":"m","input":null}"#.into(), &["/input"]),
        (format!(r#"{{"model":"{}","input":"a"}}"#, "m".repeat(257)), &["/model"]),
        (with(r#""stream":"yes""#), &["/stream"]),
        (with(r#""tools":{}"#), &["/tools"]),
        (with(r#""instructions":1"#), &["/instructions"]),
        (with(r#""instructions":[{"role":"system","content":"a"}]"#), &["/instructions"]),
        (user(r#"[{"type":"input_text","text":"a","text":"b"}]"#), &["/input/0/content/0/text"]),
        (user(&deep), &[&deepest]),
        (user("{}"), &["/input/0/content"]),
        (
            user(r#"["a",{"type":1},{"type":"input_text","text":{}},{"type":"text"},{"text":"a"}]"#),
            &[
                "/input/0/content/0",
                "/input/0/content/1",
                "/input/0/content/2/text",
                "/input/0/content/3/text",
                "/input/0/content/4",
            ],
        ),
    ]);
}

#[test]
fn each_mistake_of_an_item_is_reported_at_its_member() {
    refused(&[
        (with_items(r#"1,"a""#), &["/input/0", "/input/1"]),
        (
            with_items(r#"{"role":"tool","content":""},{"role":1},{"type":"message","content":""}"#),
            &["/input/0/role", "/input/1/role", "/input/2/role"],
        ),
        (
            with_items(
                r#"{"role":"user"},{"role":"assistant","content":null},{"role":"system","content":1},
                {"role":"assistant","content":[{"type":"output_text"},{"type":"refusal","text":""}]}"#,
            ),
            &[
                "/input/0/content",
                "/input/1/content",
                "/input/2/content",
                "/input/3/content/0/text",
                "/input/3/content/1/refusal",
            ],
        ),
        (
            with_items(
                r#"{"type":1},{"content":"a"},{},{"id":1},{"id":"a","content":"b"},{"type":[],"role":"user"}"#,
            ),
            &["/input/0/type", "/input/1", "/input/2", "/input/3", "/input/4", "/input/5/type"],
        ),
        (
            with_items(
                r#"{"type":"reasoning","summary":"a"},{"type":"reasoning","summary":[{"type":"summary_text"},1],
                "content":[{"type":"reasoning_text","text":1}]}"#,
            ),
            &["/input/0/summary", "/input/1/summary/0/text", "/input/1/summary/1", "/input/1/content/0/text"],
        ),
    ]);
}

#[test]
fn each_mistake_of_a_call_is_reported_at_its_member() {
    refused(&[
        (
            with_items(r#"{"type":"function_call"}"#),
            &["/input/0/call_id", "/input/0/name", "/input/0/arguments"],
        ),
        (
            with_items(
                r#"{"type":"function_call","call_id":1,"name":null,"arguments":[],"namespace":[]},
                {"type":"custom_tool_call","id":"c","name":"f","input":null}"#,
            ),
            &[
                "/input/0/call_id",
                "/input/0/name",
                "/input/0/namespace",
                "/input/0/arguments",
                "/input/1/call_id",
                "/input/1/input",
            ],
        ),
        (
            with_items(
                r#"{"type":"local_shell_call","call_id":"c","action":"ls"},{"type":"shell_call","call_id":"c"},
                {"type":"apply_patch_call","call_id":"c","operation":[]},
                {"type":"tool_search_call","call_id":"c","execution":"client","arguments":"{}"}"#,
            ),
            &["/input/0/action", "/input/1/action", "/input/2/operation", "/input/3/arguments"],
        ),
    ]);
}

#[test]
fn each_mistake_of_a_result_is_reported_at_its_member() {
    refused(&[
        (
            with_items(
                r#"{"type":"function_call_output","call_id":"1"},{"type":"function_call_output","output":{}},
                {"type":"custom_tool_call_output","output":null},
                {"type":"custom_tool_call_output","output":[1,{"type":"input_text"}]},
                {"type":"function_call_output","output":"","status":false}"#,
            ),
            &[
                "/input/0/output",
                "/input/1/output",
                "/input/2/output",
                "/input/3/output/0",
                "/input/3/output/1/text",
                "/input/4/status",
            ],
        ),
        (
            with_items(
                r#"{"type":"local_shell_call_output","output":[]},{"type":"shell_call_output","output":"a"},
                {"type":"shell_call_output","output":["a",{"stdout":[],"stderr":1}]},{"type":"shell_call_output"},
                {"type":"apply_patch_call_output","output":{}},
                {"type":"tool_search_output","call_id":"c","execution":"client","output":""}"#,
            ),
            &[
                "/input/0/output",
                "/input/1/output",
                "/input/2/output/0",
                "/input/2/output/1/stdout",
                "/input/2/output/1/stderr",
                "/input/3/output",
                "/input/4/output",
                "/input/5/tools",
            ],
        ),
    ]);
}

#[test]
fn what_a_mistake_is_can_be_read() {
    let body = with_items(
        r#"{"role":"tool"},{"role":"user"},{"role":"user","content":7},7,{},{"type":7},{"type":"function_call","call_id":"c",
        "arguments":[],"name":""},{"type":"shell_call_output","output":{}},{"role":"user","content":[{}]},
        {"type":"reasoning","summary":[{"type":"summary_text"}],"content":{}}"#,
    )
    .replace(r#""m""#, r#""","stream":[],"instructions":[]"#);
    let error = ResponsesRequest::parse(body.into()).expect_err("mistakes");
    let messages: Vec<_> = error.violations.iter().map(|violation| violation.message.as_str()).collect();
    let expected = [
        "`model` must be a string of 1 to 256 bytes, is empty",
        "`stream` must be true or false, is an array",
        "`instructions` must be a string, is an array",
        "`role` must be one of user, assistant, system, developer, is `tool`",
        "`content` is required",
        "`content` must be a string or an array of parts, is 7",
        "An entry must be an object, is 7",
        "An item must have a string `type` or a `role`",
        "`type` must be a string, is 7",
        "`arguments` must be a string or an object, is an array",
        "`output` must be an array, is an object",
        "A content part must be an object with a string `type`",
        "`text` must be a string",
        "`content` must be an array of parts, is an object",
    ];
    assert_eq!(messages, expected);
}
