use bytes::Bytes;
use http::HeaderMap;
use serde_json::json;

use super::{
    super::responses::{custom_call, encrypted, function_call, message, reasoning},
    *,
};

const KEY: &str = "sk-1";

fn request(path: &str, headers: &[(&'static str, &'static str)], body: &Value) -> ProviderRequest {
    let headers: HeaderMap = headers
        .iter()
        .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")))
        .collect();
    ProviderRequest { path: path.into(), headers, body: Bytes::from(body.to_string()) }
}

fn headers() -> Vec<(&'static str, &'static str)> {
    vec![("authorization", "Bearer sk-1"), ("content-type", "application/json")]
}

fn is_body_refused(path: &str, body: &Value) -> bool {
    refusal(&request(path, &headers(), body), KEY).is_some()
}

fn is_refused(input: &Value) -> bool {
    is_body_refused("/v1/responses", &json!({ "model": "m", "store": false, "input": input }))
}

fn user() -> Value {
    json!({ "role": "user", "content": "x" })
}

fn result(id: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": id, "output": "x" })
}

#[test]
fn only_the_operators_credential_is_taken() {
    let body = json!({ "model": "m", "store": false, "input": "x" });
    let is_refused = |headers: &[(&'static str, &'static str)], key| {
        refusal(&request("/v1/responses", headers, &body), key).is_some()
    };
    assert!(!is_refused(&headers(), KEY));
    assert!(is_refused(&headers()[1..], KEY) && is_refused(&headers(), "sk-2"));
    let more: Vec<_> = headers().into_iter().chain([("x-other", "eyJhbGciOi")]).collect();
    assert!(is_refused(&more, KEY));
}

#[test]
fn nothing_is_kept_and_nothing_that_was_kept_is_used() {
    let body = |member: &str, value: Value| {
        let mut body = json!({ "model": "m", "store": false, "input": "x" });
        body[member] = value;
        is_body_refused("/v1/responses", &body)
    };
    assert!(!body("store", json!(false)) && !body("previous_response_id", Value::Null));
    for (member, value) in [
        ("store", json!(true)),
        ("store", Value::Null),
        ("previous_response_id", json!("resp_1")),
        ("conversation", json!("conv_1")),
        ("stream_options", json!({ "include_usage": true })),
        ("messages", json!([])),
    ] {
        assert!(body(member, value.clone()), "{member}: {value}");
    }
    for reference in [json!({ "type": "item_reference", "id": "msg_1" }), json!({ "id": "msg_1" })] {
        assert!(is_refused(&json!([user(), reference])), "{reference}");
    }
}

#[test]
fn calls_and_results_belong_together() {
    let call = function_call("1", "f", "{}");
    assert!(!is_refused(&json!([user(), call, result("call_1")])));
    assert!(!is_refused(&json!([user(), call, user(), result("call_1"), user()])));
    for input in [
        json!([user(), call]),
        json!([user(), call, result("call_2")]),
        json!([user(), call, result("call_1"), result("call_1")]),
        json!([user(), result("call_1"), call]),
        json!([user(), custom_call("1", "f", "x"), result("call_1")]),
    ] {
        assert!(is_refused(&input), "{input}");
    }
}

#[test]
fn thoughts_come_back_encrypted_as_they_were_and_with_what_they_led_to() {
    let thought = reasoning("rs_1", "so \u{e9}");
    let end = message("msg_1", "hi");
    let call = function_call("1", "f", "{}");
    assert!(!is_refused(&json!([user(), thought, end])));
    assert!(!is_refused(&json!([user(), thought, reasoning("rs_2", "and"), call, result("call_1")])));
    assert!(is_refused(&json!([user(), thought])) && is_refused(&json!([user(), thought, user()])));
    for (member, value) in [
        ("encrypted_content", Value::Null),
        ("encrypted_content", json!("c28=")),
        ("encrypted_content", json!(encrypted("rs_2", "so"))),
        ("summary", Value::Null),
    ] {
        let mut changed = thought.clone();
        changed[member] = value;
        assert!(is_refused(&json!([user(), changed, end])), "{changed}");
    }
    let mut redacted = thought;
    redacted["summary"] = json!([]);
    assert!(!is_refused(&json!([user(), redacted, end])), "the summary is for people");
}

#[test]
fn items_and_parts_are_complete() {
    let said = |role: &str, part: Value| json!([{ "role": role, "content": [part] }]);
    let text = |kind: &str, text: &str| json!({ "type": kind, "text": text });
    assert!(!is_refused(&said("developer", text("input_text", "x"))));
    assert!(!is_refused(&said("assistant", text("output_text", "x"))));
    for input in [
        said("user", text("input_text", "")),
        said("user", text("output_text", "x")),
        said("user", json!({ "type": "input_text", "text": "x", "new": 1 })),
        said("assistant", text("input_text", "x")),
        said("assistant", text("output_text", "")),
        said("tool", text("input_text", "x")),
        json!([{ "type": "invented", "text": "x" }]),
        json!([{ "role": "user", "content": [] }]),
        json!([{ "role": "user", "content": "" }]),
        json!([user(), message("1", "x")]),
        json!([user(), message("msg_1", "x"), message("msg_1", "y")]),
        json!([]),
    ] {
        assert!(is_refused(&input), "{input}");
    }
}

#[test]
fn what_is_embedded_is_text_or_tokens() {
    let body = |input: Value| is_body_refused("/v1/embeddings", &json!({ "model": "m", "input": input }));
    assert!(!body(json!("x")) && !body(json!(["x", "y"])) && !body(json!([[1, 2]])));
    for input in [json!(""), json!([]), json!(["x", ""]), json!(["x", [1]]), json!({})] {
        assert!(body(input.clone()), "{input}");
    }
}
