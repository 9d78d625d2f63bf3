use bytes::Bytes;
use serde_json::{Value, json};

use super::request::{ResponsesRequest, Role};
use crate::{
    core::error::{Code, Error},
    llm::{
        format::FormatRequest,
        request_view::RequestView as _,
        unit::{Unit, UnitKind},
    },
};

fn parse(body: &Value) -> ResponsesRequest {
    ResponsesRequest::parse(body.to_string().into()).expect("a valid request")
}

fn conversation(items: &Value) -> ResponsesRequest {
    parse(&json!({ "model": "gpt", "input": items }))
}

fn pointers(error: &Error) -> Vec<&str> {
    error.violations.iter().map(|violation| violation.pointer.as_str()).collect()
}

fn units(request: &ResponsesRequest) -> impl Iterator<Item = &Unit> {
    request.older_units().iter().chain(request.current_units())
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn call(id: &str) -> Value {
    json!({ "type": "function_call", "call_id": id, "name": "f", "arguments": "{}" })
}

fn result(id: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": id, "output": id })
}

#[test]
fn all_that_a_request_may_have_is_read() {
    let items = json!([
        { "role": "developer", "content": "a" },
        { "type": "message", "role": "system", "content": [{ "type": "input_text", "text": "b" }] },
        { "role": "user", "content": [{ "type": "input_image", "image_url": "u" }, { "type": "input_file" }] },
        { "type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [
            { "type": "output_text", "text": "c", "annotations": [] }, { "type": "refusal", "refusal": "d" }] },
        { "type": "reasoning", "id": "r", "summary": [], "encrypted_content": "e", "content": null },
        { "type": "reasoning", "summary": [{ "type": "summary_text", "text": "f" }],
          "content": [{ "type": "reasoning_text", "text": "g" }] },
        call("1"),
        { "type": "custom_tool_call", "call_id": "2", "name": "f", "input": "", "namespace": null },
        { "type": "local_shell_call", "call_id": "3", "action": {} },
        { "type": "shell_call", "call_id": "4", "action": {} },
        { "type": "apply_patch_call", "call_id": "5", "operation": {} },
        { "type": "tool_search_call", "call_id": "6", "execution": "client", "arguments": {} },
        result("1"),
        { "type": "custom_tool_call_output", "call_id": "2", "output": [{ "type": "input_image" }] },
        { "type": "local_shell_call_output", "id": "3", "output": "", "status": null },
        { "type": "shell_call_output", "call_id": "4", "output": [{ "stdout": "", "stderr": "", "outcome": {} }, {}] },
        { "type": "apply_patch_call_output", "call_id": "5", "status": "failed" },
        { "type": "tool_search_output", "call_id": "6", "execution": "client", "tools": [] },
        { "type": "web_search_call" },
        { "type": "tool_search_call", "execution": "server", "arguments": "" },
        { "type": "tool_search_output", "execution": "server" },
        { "id": "msg_1" },
        { "type": null, "id": "msg_1" },
    ]);
    let request = conversation(&items);
    let roles: Vec<_> = (0..30).map_while(|item| request.role(item)).collect();
    let mut expected = vec![Role::Developer, Role::System, Role::User];
    expected.extend([Role::Assistant; 9]);
    expected.extend([Role::Tool; 6]);
    expected.extend([Role::Assistant; 5]);
    assert_eq!((roles, request.leading()), (expected, 2));
    assert!(request.results_have_calls().is_ok());
}

#[test]
fn settings_are_read() {
    let request = parse(&json!({
        "model": "gpt", "stream": true, "instructions": "s", "tools": [], "top_p": null,
        "input": [{ "role": "system", "content": "a" }, { "role": "assistant", "content": "b" }],
    }));
    assert_eq!((request.model(), request.is_streamed(), request.choices()), ("gpt", true, 1));
    assert!(request.shows_usage());
    assert_eq!((request.message_count(), request.leading()), (2, 1));
    assert_eq!(
        (request.message_text(1), request.message_text(2)),
        (r#"{"content":"b","role":"assistant"}"#, "")
    );
    assert_eq!(
        (request.member("top_p"), request.member("tools"), request.member("x")),
        (None, Some("[]"), None)
    );
    let names: Vec<_> = request.members().map(|(name, _)| name).collect();
    assert_eq!(names, ["input", "instructions", "model", "stream", "tools", "top_p"]);
    let whole = parse(&json!({ "model": "m", "stream": null, "instructions": null, "tools": null,
                               "input": [{ "role": "user", "content": [] }] }));
    assert!(!whole.is_streamed());
}

#[test]
fn a_string_is_read_as_the_message_of_a_user() {
    let body = r#"{ "tools":[],"input" : "h\u0069 \"é" , "model":"m","text":{"input":"x"} }"#;
    let request = ResponsesRequest::parse(body.into()).expect("valid");
    assert_eq!(request.original(), body);
    assert!(request.has_string_input());
    let list = r#"{ "tools":[],"input" : [{"role":"user","content":"h\u0069 \"é"}] , "model":"m","text":{"input":"x"} }"#;
    assert_eq!(request.body(), list);
    assert_eq!(request.member("input"), Some(r#"[{"role":"user","content":"h\u0069 \"é"}]"#));
    assert_eq!((request.message_count(), request.role(0), request.leading()), (1, Some(Role::User), 0));
    let main = request.main_unit().expect("there is one");
    assert_eq!(request.unit_json(main), r#"{"role":"user","content":"h\u0069 \"é"}"#);
    let empty = ResponsesRequest::parse(r#"{"\u0069nput":"","model":"m"}"#.into()).expect("valid");
    assert!(empty.has_string_input());
    assert_eq!(empty.unit_json(empty.main_unit().expect("one")), r#"{"role":"user","content":""}"#);
    let request = ResponsesRequest::parse(list.into()).expect("valid");
    assert!(!request.has_string_input());
    assert_eq!((request.original(), request.body()), (&list.into(), &list.into()));
    assert_eq!(request.original().as_ptr(), request.body().as_ptr());
}

#[test]
fn a_client_says_itself_that_nothing_is_kept() {
    for (store, expected) in
        [("false", true), ("true", false), ("null", false), ("0", false), (r#""false""#, false)]
    {
        let body = format!(r#"{{"model":"m","input":"","store" : {store} }}"#);
        let request = ResponsesRequest::parse(body.into()).expect("valid");
        assert_eq!(request.keeps_nothing(), expected, "{store}");
    }
    assert!(!conversation(&json!("a")).keeps_nothing());
}

#[test]
fn json_is_expected_where_the_format_of_the_text_says_so() {
    let cases = [
        (json!(null), false),
        (json!("json_schema"), false),
        (json!({ "verbosity": "low" }), false),
        (json!({ "format": "json_schema" }), false),
        (json!({ "format": { "type": "text" } }), false),
        (json!({ "format": { "type": "json_schema", "name": "n", "schema": {} } }), true),
        (json!({ "format": { "type": "json_object" } }), true),
    ];
    for (format, expected) in cases {
        let request = parse(&json!({ "model": "m", "input": "", "text": format }));
        assert_eq!(request.expects_json(), expected, "{format}");
    }
}

#[test]
fn the_session_and_the_user_are_named_by_members() {
    let cases = [
        (json!({}), None, None),
        (json!({ "prompt_cache_key": "k", "user": "ann" }), Some("k"), Some("ann")),
        (json!({ "safety_identifier": "s", "user": "ann" }), None, Some("s")),
        (json!({ "prompt_cache_key": 1, "safety_identifier": null, "user": "a\"" }), None, Some("a\"")),
        (json!({ "user": { "id": "ann" }, "metadata": { "user_id": "ann" } }), None, None),
    ];
    for (mut members, session, user) in cases {
        members["model"] = json!("m");
        members["input"] = json!("");
        let request = parse(&members);
        let names = (request.conversation().session, request.conversation().user);
        assert_eq!(names, (session, user), "{members}");
    }
}

#[test]
fn the_first_user_message_is_the_same_in_every_form() {
    let first = |input: &str| {
        let body = format!(r#"{{"model":"m","input":{input}}}"#);
        ResponsesRequest::parse(body.into()).expect("valid").first_user_message().into_owned()
    };
    for input in [
        r#""h\u0069""#,
        r#"[{"role":"developer","content":"x"},{"role":"user","content":"h\u0069"},{"role":"user","content":"y"}]"#,
        r#"[{"type":"message","content":"h\u0069","role":"user"}]"#,
        r#"[{"role":"user","content":[{"type":"input_text","text":"h\u0069"}]}]"#,
        r#"[{"id":"msg_1","role":"user","content":[{"type":"input_text","text":"h\u0069","prompt_cache_breakpoint":{}}]}]"#,
    ] {
        assert_eq!(first(input), r#""h\u0069""#, "{input}");
    }
    assert_eq!(first(r#"[{"role":"user","content":[]}]"#), "[]");
    assert_eq!(first(r#"[{"role":"assistant","content":"a"}]"#), "");
}

#[test]
fn what_names_a_unit_in_memory_is_the_same_in_every_turn() {
    let lasting = |json: &'static str| ResponsesRequest::lasting_json(Bytes::from_static(json.as_bytes()));
    let plain = r#"{"role":"user","content":"a"}"#;
    assert_eq!(lasting(plain).as_ptr(), plain.as_ptr());
    assert_eq!(lasting(r#"{"id":"1","role":"user","content":[{"type":"input_text","text":"a"}]}"#), plain);
}

#[test]
fn the_current_turn_is_what_follows_the_last_answered_item_of_the_model() {
    type Case = (&'static [&'static str], &'static [usize], &'static [usize], Option<usize>);
    let cases: &[Case] = &[
        (&["user"], &[], &[0], Some(0)),
        (&["developer", "user", "user"], &[], &[1, 2], Some(2)),
        (&["user", "assistant", "user"], &[0], &[2], Some(2)),
        (&["user", "reasoning", "call", "result"], &[0], &[3], None),
        (&["user", "call", "call", "result", "result", "user"], &[0], &[3, 4, 5], Some(5)),
        (&["user", "call", "result", "call", "result"], &[0, 2], &[4], None),
        // An item at the end that begins the answer makes nothing older.
        (&["user", "assistant"], &[], &[0], Some(0)),
        (&["user", "assistant", "user", "assistant", "reasoning"], &[0], &[2], Some(2)),
        (&["assistant"], &[], &[], None),
        (&["system", "developer"], &[], &[], None),
        (&["other", "user"], &[], &[1], Some(1)),
        // Behind another item it isn't part of the system prompt.
        (&["system", "user", "developer"], &[], &[1, 2], Some(1)),
        (&["user", "system", "assistant", "system"], &[0, 1], &[3], None),
        (&["reasoning", "system"], &[], &[1], None),
    ];
    for (kinds, older, current, main) in cases {
        let item = |kind: &&str| match *kind {
            "result" => result("1"),
            "call" => call("1"),
            "reasoning" => json!({ "type": "reasoning", "summary": [] }),
            "other" => json!({ "type": "web_search_call" }),
            role => json!({ "role": role, "content": "" }),
        };
        let request = conversation(&kinds.iter().map(item).collect());
        let indices = |units: &[Unit]| units.iter().map(Unit::message).collect::<Vec<_>>();
        assert_eq!(indices(request.older_units()), *older, "{kinds:?}");
        assert_eq!(indices(request.current_units()), *current, "{kinds:?}");
        assert_eq!(request.main_unit().map(Unit::message), *main, "{kinds:?}");
    }
}

#[test]
fn a_unit_is_an_item_byte_for_byte() {
    let items = [
        r#"{"role":"user", "content":"q"}"#,
        r#"{ "type":"function\u005fcall","call_id":"1","name":"f","arguments":"" }"#,
        r#"{ "output" : "x", "type":"function_call\u005foutput","call_id":"1" }"#,
        r#"{"content":"s","role":"system"}"#,
        r#"{"content":[],"role":"user","type":"message"}"#,
    ];
    let body = format!(r#"{{"model":"m","input":[ {} ]}}"#, items.join(" , "));
    let request = ResponsesRequest::parse(body.into()).expect("valid");
    let seen: Vec<_> = units(&request)
        .map(|unit| (unit.message(), unit.block(), unit.kind(), text(&request.unit_json(unit))))
        .collect();
    let expected = [(0, UnitKind::User), (2, UnitKind::Result), (3, UnitKind::System), (4, UnitKind::User)];
    assert_eq!(seen, expected.map(|(index, kind)| (index, None, kind, items[index].to_owned())));
    let memory = request.body().as_bytes().as_ptr_range();
    assert!(units(&request).all(|unit| memory.contains(&request.unit_json(unit).as_ptr())));
}

#[test]
fn a_unit_of_another_request_has_no_json() {
    let long = conversation(&json!([{ "role": "user", "content": "a" }, { "role": "user", "content": "b" }]));
    let short = conversation(&json!([{ "role": "user", "content": "a" }]));
    assert_eq!(short.unit_json(&long.current_units()[1]), "");
}

#[test]
fn results_have_the_name_and_the_arguments_of_the_last_call_with_their_id() {
    let request = conversation(&json!([
        { "type": "function_call", "id": "x", "call_id": "1", "name": "f", "arguments": "{\"a\":1}", "namespace": "n" },
        { "type": "custom_tool_call", "call_id": "2", "name": "custom", "input": "any text" },
        { "type": "local_shell_call", "id": "y", "call_id": "3", "action": { "command": ["ls"] } },
        { "type": "shell_call", "call_id": "4", "action": { "commands": [] } },
        { "type": "apply_patch_call", "call_id": "5", "operation": { "type": "delete_file" } },
        { "type": "tool_search_call", "call_id": "6", "execution": "client", "arguments": { "goal": "g" } },
        // Codex answers its shell in the form of functions.
        { "type": "function_call_output", "call_id": "3", "output": "three" },
        { "type": "function_call_output", "call_id": "1", "output": [], "status": "completed" },
        { "type": "function_call", "call_id": "1", "name": "second", "arguments": "no JSON" },
        { "type": "shell_call_output", "call_id": "4", "output": [{ "stdout": "s" }], "status": "incomplete" },
        { "type": "apply_patch_call_output", "call_id": "5", "status": "failed" },
        { "type": "tool_search_output", "call_id": "6", "execution": "client", "tools": [{ "type": "custom" }], "output": "" },
        { "type": "function_call_output", "id": "1", "output": "one" },
        { "type": "custom_tool_call_output", "call_id": "2", "id": "1", "output": "two", "status": "in_progress" },
        { "type": "function_call_output", "call_id": "x", "output": "" },
    ]));
    let facts: Vec<_> = units(&request)
        .filter_map(Unit::result)
        .map(|result| {
            let (name, id) = (result.tool_name.clone(), result.call_id.clone());
            (name, id, text(&result.args), text(&result.result), result.success)
        })
        .collect();
    let expected = [
        (Some("local_shell"), "3", r#"{"command":["ls"]}"#, r#""three""#, true),
        (Some("n.f"), "1", r#"{"a":1}"#, "[]", true),
        (Some("shell"), "4", r#"{"commands":[]}"#, r#"[{"stdout":"s"}]"#, false),
        (Some("apply_patch"), "5", r#"{"type":"delete_file"}"#, "null", false),
        (Some("tool_search"), "6", r#"{"goal":"g"}"#, r#"[{"type":"custom"}]"#, true),
        (Some("second"), "1", r#""no JSON""#, r#""one""#, true),
        (Some("custom"), "2", r#""any text""#, r#""two""#, true),
        (None, "x", "", r#""""#, true),
    ];
    let expected = expected.map(|(name, id, args, result, success)| {
        (name.map(str::to_owned), Some(id.to_owned()), args.to_owned(), result.to_owned(), success)
    });
    assert_eq!(facts, expected);
}

/// The pointers of what [`FormatRequest::results_have_calls`] reports.
fn mistakes_of_results(items: &Value) -> Vec<String> {
    let checked = conversation(items).results_have_calls();
    checked.err().iter().flat_map(pointers).map(str::to_owned).collect()
}

#[test]
fn each_result_needs_one_call_and_a_call_has_one_result() {
    let named = |name: &str, id: &str| json!({ "type": "custom_tool_call", "call_id": id, "name": name, "input": "" });
    let assistant = json!({ "role": "assistant", "content": "" });
    let user = json!({ "role": "user", "content": "" });
    let reasoning = json!({ "type": "reasoning", "summary": [] });
    let cases: &[(Value, &[&str])] = &[
        (json!([call("1"), result("1"), call("1"), result("1")]), &[]),
        (json!([call("1"), user, call("2"), assistant, result("1")]), &[]),
        (json!([call("1"), call("2"), result("2"), result("1")]), &[]),
        // The call comes later, or never.
        (json!([result("1"), call("1"), result("2"), result("1")]), &["/input/0", "/input/2"]),
        (json!([call("1"), { "type": "function_call_output", "output": "" }]), &["/input/1"]),
        (json!([call("1"), result("1"), result("1"), user, result("1")]), &["/input/2", "/input/4"]),
        (
            json!([named(&"f".repeat(257), "1"), named("", "2"), result("1"), result("2")]),
            &["/input/2", "/input/3"],
        ),
        // All items of the model that nothing else stands between are one answer.
        (
            json!([call("1"), reasoning, named("f", "1"), assistant, call("1"), result("1"), call("1")]),
            &["/input/2/call_id", "/input/4/call_id"],
        ),
        // An id of what is no call stands for nothing.
        (
            json!([{ "type": "web_search_call", "id": "1" }, call("1"), { "type": "x", "call_id": "1" }, result("1")]),
            &[],
        ),
        (json!([{ "type": "web_search_call", "id": "1" }, result("1")]), &["/input/1"]),
    ];
    for (items, expected) in cases {
        assert_eq!(mistakes_of_results(items), *expected, "{items}");
    }
    let many: Vec<Value> = std::iter::once(call("1")).chain(vec![result("2"); 40]).collect();
    assert_eq!(mistakes_of_results(&many.into()).len(), 32);
}

#[test]
fn more_than_ten_thousand_units_are_refused() {
    let body = |results: usize| {
        let mut items = vec![result("1"); results];
        items.push(json!({ "role": "user", "content": "" }));
        json!({ "model": "m", "input": items })
    };
    let request = parse(&body(9_999));
    assert_eq!(request.current_units().len(), 10_000);
    let error = ResponsesRequest::parse(body(10_000).to_string().into()).expect_err("too many");
    assert_eq!(pointers(&error), ["/input"]);
    assert_eq!(error.violations[0].message, "`input` has 10001 texts and results, more than 10000");
}

#[test]
fn more_than_ten_thousand_tool_calls_are_refused() {
    let body = |calls: usize| {
        let calls: Vec<Value> = (0..calls).map(|id| call(&id.to_string())).collect();
        json!({ "model": "m", "input": calls })
    };
    parse(&body(10_000));
    let error = ResponsesRequest::parse(body(10_001).to_string().into()).expect_err("too many");
    assert_eq!(pointers(&error), ["/input"]);
    assert_eq!(error.violations[0].message, "`input` has 10001 tool calls, more than 10000");
}

#[test]
fn a_result_finds_only_calls_of_its_own_form() {
    let shell = |id: &str, command: &str| json!({ "type": "local_shell_call", "id": "x", "call_id": id, "action": { "command": [command] } });
    let request = conversation(&json!([
        call("f"),
        { "type": "custom_tool_call", "call_id": "c", "name": "f", "input": "" },
        { "type": "shell_call", "call_id": "s", "action": {} },
        shell("1", "one"),
        shell("2", "two"),
        // The provider knows the call of this form by `id` alone.
        { "type": "local_shell_call_output", "id": "1", "call_id": "2", "output": "" },
        { "type": "local_shell_call_output", "id": "fresh", "call_id": "2", "output": "" },
        { "type": "local_shell_call_output", "id": "f", "output": "" },
        { "type": "shell_call_output", "call_id": "1", "output": [] },
        { "type": "custom_tool_call_output", "call_id": "f", "output": "" },
        { "type": "function_call_output", "call_id": "c", "output": "" },
        { "type": "function_call_output", "call_id": "s", "output": "" },
        { "type": "apply_patch_call_output", "call_id": "s" },
    ]));
    let facts: Vec<_> = units(&request)
        .filter_map(Unit::result)
        .map(|result| (result.call_id.clone().unwrap_or_default(), text(&result.args)))
        .collect();
    let expected = [
        ("1", r#"{"command":["one"]}"#),
        ("2", r#"{"command":["two"]}"#),
        ("f", ""),
        ("1", ""),
        ("f", ""),
        ("c", ""),
        ("s", ""),
        ("s", ""),
    ];
    assert_eq!(facts, expected.map(|(id, args)| (id.to_owned(), args.to_owned())));
}

#[test]
fn the_arguments_of_a_function_may_be_the_object_itself() {
    let request = conversation(&json!([
        { "type": "function_call", "call_id": "1", "name": "f", "arguments": { "a": 1 } },
        result("1"),
    ]));
    let unit = units(&request).next().and_then(Unit::result).expect("a result");
    assert_eq!((unit.tool_name.as_deref(), &unit.args[..]), (Some("f"), &br#"{"a":1}"#[..]));
}

#[test]
fn more_items_than_any_conversation_needs_are_refused() {
    let body = |count: usize| -> Bytes {
        let items = vec![r#"{"id":"a"}"#; count].join(",");
        format!(r#"{{"model":"m","input":[{items}]}}"#).into()
    };
    ResponsesRequest::parse(body(100_000)).expect("not too many");
    let error = ResponsesRequest::parse(body(100_001)).expect_err("too many");
    assert_eq!(error.code, Code::PayloadInvalid);
    assert_eq!(
        (pointers(&error), error.detail.as_str()),
        (vec!["/input"], "`input` has 100001 items, more than 100000")
    );
}
