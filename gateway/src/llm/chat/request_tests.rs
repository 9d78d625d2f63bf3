use bytes::Bytes;
use serde_json::{Value, json};

use super::{ChatRequest, RequestDraft};
use crate::{
    core::error::Code,
    llm::{
        format::{Conversation, FormatDraft as _, FormatRequest as _},
        request_view::RequestView as _,
        unit::{Unit, UnitKind},
    },
};

fn parse(body: &Value) -> ChatRequest {
    ChatRequest::parse(body.to_string().into()).expect("a valid request")
}

fn conversation(messages: &Value) -> ChatRequest {
    parse(&json!({ "model": "gpt", "messages": messages }))
}

/// The pointers of all mistakes.
fn mistakes(body: &str) -> Vec<String> {
    let error = ChatRequest::parse(Bytes::copy_from_slice(body.as_bytes())).expect_err(body);
    error.violations.into_iter().map(|violation| violation.pointer).collect()
}

#[test]
fn each_mistake_is_reported_at_its_member() {
    let user =
        |content: &str| format!(r#"{{"model":"m","messages":[{{"role":"user","content":{content}}}]}}"#);
    let with =
        |member: &str| format!(r#"{{"model":"m","messages":[{{"role":"user","content":""}}],{member}}}"#);
    let cases: &[(String, &[&str])] = &[
        ("[]".into(), &[""]),
        ("{".into(), &[""]),
        ("{}".into(), &["/model", "/messages"]),
        (r#"{"model":"m","model":"m","messages":[]}"#.into(), &["/model"]),
        (r#"{"model":"","messages":[]}"#.into(), &["/model", "/messages"]),
        (r#"{"model":1,"messages":{}}"#.into(), &["/model", "/messages"]),
        (
            r#"{"model":"m","messages":[1,{"role":"root"},{"content":""}]}"#.into(),
            &["/messages/0", "/messages/1/role", "/messages/2/role"],
        ),
        (user("null").replace("user", "system"), &["/messages/0/content"]),
        (r#"{"model":"m","messages":[{"role":"user"}]}"#.into(), &["/messages/0/content"]),
        (user("{}"), &["/messages/0/content"]),
        (
            user(r#"["a",{"type":1},{"type":"text","text":{}}]"#),
            &["/messages/0/content/0", "/messages/0/content/1", "/messages/0/content/2/text"],
        ),
        (r#"{"model":"m","messages":[{"role":"tool","tool_call_id":"1"}]}"#.into(), &["/messages/0/content"]),
        (with(r#""stream":"yes""#), &["/stream"]),
        (with(r#""n":0"#), &["/n"]),
        (with(r#""n":129"#), &["/n"]),
        (with(r#""n":1.0"#), &["/n"]),
        (with(r#""tools":{}"#), &["/tools"]),
    ];
    for (body, pointers) in cases {
        assert_eq!(mistakes(body), *pointers, "{body}");
    }
}

#[test]
fn settings_are_read() {
    let request = parse(&json!({
        "model": "gpt", "stream": true, "n": 3, "user": "ann", "prompt_cache_key": "k",
        "response_format": { "type": "json_schema" },
        "messages": [{ "role": "assistant" }, { "role": "user", "content": "hi" }],
    }));
    assert_eq!((request.model(), request.is_streamed(), request.choices()), ("gpt", true, 3));
    assert!(request.expects_json());
    assert_eq!(request.conversation(), Conversation { session: Some("k"), user: Some("ann") });
    assert_eq!(request.first_user_message(), r#"{"content":"hi","role":"user"}"#);
    let plain =
        parse(&json!({ "model": "gpt", "stream": null, "n": null, "response_format": { "type": "text" },
                               "messages": [{ "role": "user", "content": "" }] }));
    assert_eq!((plain.is_streamed(), plain.choices(), plain.expects_json()), (false, 1, false));
}

fn indices(units: &[Unit]) -> Vec<usize> {
    units.iter().map(Unit::message).collect()
}

#[test]
fn the_current_turn_is_what_follows_the_last_answered_assistant_message() {
    type Case = (&'static [&'static str], &'static [usize], &'static [usize], Option<usize>);
    let cases: &[Case] = &[
        (&["user"], &[], &[0], Some(0)),
        (&["system", "user", "user"], &[], &[1, 2], Some(2)),
        (&["user", "assistant", "user"], &[0], &[2], Some(2)),
        (&["user", "assistant", "function"], &[0], &[2], None),
        (&["user", "assistant", "function", "user"], &[0], &[2, 3], Some(3)),
        // A message at the end that begins the answer makes nothing older.
        (&["user", "assistant"], &[], &[0], Some(0)),
        (&["user", "assistant", "user", "assistant", "assistant"], &[0], &[2], Some(2)),
        (&["assistant"], &[], &[], None),
        (&["system"], &[], &[], None),
        // Behind another message it isn't part of the system prompt.
        (&["system", "user", "system"], &[], &[1, 2], Some(1)),
        (&["user", "developer", "assistant", "developer"], &[0, 1], &[3], None),
    ];
    for (roles, older, current, main) in cases {
        let messages: Vec<Value> = roles.iter().map(|role| json!({ "role": role, "content": "" })).collect();
        let request = conversation(&json!(messages));
        assert_eq!(indices(request.older_units()), *older, "{roles:?}");
        assert_eq!(indices(request.current_units()), *current, "{roles:?}");
        assert_eq!(request.main_unit().map(Unit::message), *main, "{roles:?}");
    }
}

#[test]
fn a_system_message_is_a_unit_if_another_message_or_its_name_keeps_it_out_of_the_prompt() {
    let request = conversation(&json!([
        { "role": "system", "content": "a", "name": null }, { "role": "developer", "content": "b", "name": "x" },
        { "role": "system", "content": "c" }, { "role": "user", "content": "d" },
    ]));
    assert_eq!(request.leading(), 1);
    let units: Vec<_> = request.current_units().iter().map(|unit| (unit.message(), unit.kind())).collect();
    assert_eq!(units, [(1, UnitKind::System), (2, UnitKind::System), (3, UnitKind::User)]);
    let draft = RequestDraft::new(&request);
    let texts: Vec<_> = request.current_units().iter().map(|unit| draft.unit_payload(unit).text).collect();
    assert_eq!(texts, ["b", "c", "d"]);
    let payload = draft.main_payload();
    assert_eq!((payload.text.as_str(), payload.system_prompt.as_deref()), ("d", Some("a")));
    let messages: Value = serde_json::from_slice(&payload.messages).expect("JSON");
    assert_eq!(messages[0], json!({ "role": "developer", "content": "b", "name": "x" }));
}

#[test]
fn results_have_the_name_and_the_arguments_of_the_last_call_with_their_id() {
    let call = |name: &str, arguments: &str| {
        json!({ "role": "assistant", "tool_calls": [
            { "id": "1", "type": "function", "function": { "name": name, "arguments": arguments } },
            { "id": "2", "type": "custom", "custom": { "name": "sh", "input": "ls" } },
        ] })
    };
    let result =
        |id: &str| json!({ "role": "tool", "tool_call_id": id, "content": [{ "type": "text", "text": id }] });
    let request = conversation(&json!([
        call("first", "{\"a\":1}"), result("1"),
        call("second", ""), result("1"), result("2"),
        { "role": "assistant", "function_call": { "name": "old", "arguments": "no JSON" } },
        { "role": "function", "name": "old", "content": "text" },
    ]));
    request.results_have_calls().expect("some providers begin anew with each message");
    let draft = RequestDraft::new(&request);
    let units = request.older_units().iter().chain(request.current_units());
    let results: Vec<_> = units.map(|unit| draft.result_payload(unit).expect("a result")).collect();
    let facts: Vec<_> = results
        .iter()
        .map(|result| (result.tool_name.as_str(), str::from_utf8(&result.args).expect("UTF-8")))
        .collect();
    assert_eq!(facts, [("first", "{\"a\":1}"), ("second", "{}"), ("sh", "\"ls\""), ("old", "\"no JSON\"")]);
    assert_eq!(results[0].result, r#"[{"text":"1","type":"text"}]"#);
    assert_eq!(results[3].result, "\"text\"");
    assert_eq!((results[2].call_id.as_deref(), results[3].call_id.as_deref()), (Some("2"), None));
    assert!(results.iter().all(|result| result.success == Some(true)));
}

#[test]
fn a_message_may_have_null_as_its_content() {
    let request = conversation(&json!([
        { "role": "user", "content": null },
        { "role": "assistant", "function_call": { "name": "f", "arguments": "{}" } },
        { "role": "function", "name": "f", "content": null },
        { "role": "user", "content": null },
    ]));
    let draft = RequestDraft::new(&request);
    assert_eq!(draft.main_payload().text, "");
    let result = request.current_units().first().expect("a result");
    assert_eq!(draft.result_payload(result).expect("its call is known").result, "null");
    assert_eq!(draft.render().as_ptr(), request.body().as_ptr());
}

#[test]
fn a_result_whose_call_comes_later_or_never_is_a_mistake() {
    let request = conversation(&json!([
        { "role": "tool", "tool_call_id": "1", "content": "x" },
        { "role": "assistant", "tool_calls": [
            { "id": "1", "type": "function", "function": { "name": "f", "arguments": "{}" } } ] },
        { "role": "tool", "tool_call_id": "2", "content": "x" },
        { "role": "function", "content": "x" },
        { "role": "function", "name": "g", "content": "x" },
        { "role": "assistant", "function_call": { "name": "g", "arguments": "{}" } },
        { "role": "function", "name": "f", "content": "x" },
        { "role": "function", "name": "g", "content": "x" },
    ]));
    let error = request.results_have_calls().expect_err("no calls");
    let pointers: Vec<_> = error.violations.iter().map(|violation| violation.pointer.as_str()).collect();
    assert_eq!(pointers, ["/messages/0", "/messages/2", "/messages/3", "/messages/4", "/messages/6"]);
    let unit = request.older_units().first().expect("a unit");
    assert_eq!((unit.kind(), unit.call()), (UnitKind::Result, ("", b"".as_slice())));
    RequestDraft::new(&request).result_payload(unit).expect_err("it has no tool");
}

#[test]
fn a_second_result_of_a_call_is_a_mistake() {
    let call = json!({ "role": "assistant",
        "tool_calls": [{ "id": "1", "type": "function", "function": { "name": "f", "arguments": "{}" } }],
        "function_call": { "name": "g", "arguments": "{}" } });
    let result = json!({ "role": "tool", "tool_call_id": "1", "content": "x" });
    let legacy = json!({ "role": "function", "name": "g", "content": "x" });
    let once = conversation(&json!([call, result, legacy, call, result, legacy]));
    once.results_have_calls().expect("each call has one");
    let twice = conversation(&json!([call, result, legacy, result, legacy]));
    let error = twice.results_have_calls().expect_err("each call has two");
    let pointers: Vec<_> = error.violations.iter().map(|violation| violation.pointer.as_str()).collect();
    assert_eq!((error.code, pointers), (Code::PayloadInvalid, vec!["/messages/3", "/messages/4"]));
}

#[test]
fn a_result_is_remembered_by_a_digest_of_its_call() {
    let conversation = |arguments: &str| {
        conversation(&json!([
            { "role": "assistant", "tool_calls": [
                { "id": "1", "type": "function", "function": { "name": "f", "arguments": arguments } } ] },
            { "role": "tool", "tool_call_id": "1", "content": "x" },
        ]))
    };
    let of = |request: &ChatRequest| {
        let unit = request.current_units().first().expect("a result");
        unit.call().1.to_vec()
    };
    let (short, long) = ("{}".to_owned(), format!("\"{}\"", "a".repeat(1000)));
    assert_eq!((of(&conversation(&short)).len(), of(&conversation(&long)).len()), (32, 32));
    assert_ne!(of(&conversation(&short)), of(&conversation(&long)));
}

#[test]
fn an_id_stands_for_one_call_of_a_message_and_for_the_last_one_also_in_an_unknown_form() {
    let known = json!({ "id": "1", "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let request = conversation(&json!([
        { "role": "assistant", "tool_calls": [known, { "id": "2" }, { "id": "2", "type": "mcp" }] },
        { "role": "assistant", "tool_calls": [{ "id": "1", "type": "mcp" }] },
        { "role": "tool", "tool_call_id": "1", "content": "x" },
    ]));
    let error = request.results_have_calls().expect_err("a repeated id, and a result of an unknown call");
    let pointers: Vec<_> = error.violations.iter().map(|violation| violation.pointer.as_str()).collect();
    assert_eq!(pointers, ["/messages/2", "/messages/0/tool_calls/2/id"]);
}

#[test]
fn more_than_ten_thousand_units_are_refused() {
    let message = json!({ "role": "user", "content": "" });
    conversation(&json!(vec![message.clone(); 10_000]));
    let body = json!({ "model": "m", "messages": vec![message; 10_001] });
    assert_eq!(mistakes(&body.to_string()), ["/messages"]);
}
