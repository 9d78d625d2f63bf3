use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    blocks::without_results,
    request::{MessagesRequest, Role},
};
use crate::{
    core::error::{Code, Error},
    llm::{
        format::FormatRequest,
        request_view::RequestView as _,
        unit::{Unit, UnitKind},
    },
};

fn parse(body: &Value) -> MessagesRequest {
    MessagesRequest::parse(body.to_string().into()).expect("a valid request")
}

fn conversation(messages: &Value) -> MessagesRequest {
    parse(&json!({ "model": "claude", "max_tokens": 9, "messages": messages }))
}

fn pointers(error: &Error) -> Vec<&str> {
    error.violations.iter().map(|violation| violation.pointer.as_str()).collect()
}

fn units(request: &MessagesRequest) -> impl Iterator<Item = &Unit> {
    request.older_units().iter().chain(request.current_units())
}

fn call(id: &str, name: &str, input: &Value) -> Value {
    json!({ "type": "tool_use", "id": id, "name": name, "input": input })
}

fn result(id: &str) -> Value {
    json!({ "type": "tool_result", "tool_use_id": id, "content": id })
}

#[test]
fn each_mistake_is_reported_at_its_member() {
    let messages = |messages: &str| format!(r#"{{"model":"m","messages":[{messages}]}}"#);
    let user = |content: &str| messages(&format!(r#"{{"role":"user","content":{content}}}"#));
    let with =
        |member: &str| format!(r#"{{"model":"m","messages":[{{"role":"user","content":""}}],{member}}}"#);
    let (deep, deepest) =
        ("[".repeat(62) + &"]".repeat(62), format!("/messages/0/content{}", "/0".repeat(61)));
    let cases: &[(String, &[&str])] = &[
        ("[]".into(), &[""]),
        ("{".into(), &[""]),
        ("{}".into(), &["/model", "/messages"]),
        (r#"{"model":"m","model":"m","messages":[]}"#.into(), &["/model"]),
        (user(r#"[{"type":"text","text":"a","text":"b"}]"#), &["/messages/0/content/0/text"]),
        (user(&deep), &[&deepest]),
        (r#"{"model":"","messages":[]}"#.into(), &["/model", "/messages"]),
        (r#"{"model":1,"messages":{}}"#.into(), &["/model", "/messages"]),
        (
            format!(r#"{{"model":"{}","messages":[{{"role":"user","content":""}}]}}"#, "m".repeat(257)),
            &["/model"],
        ),
        (
            messages(r#"1,{"role":"tool"},{"content":""},{"role":1}"#),
            &["/messages/0", "/messages/1/role", "/messages/2/role", "/messages/3/role"],
        ),
        (
            messages(r#"{"role":"user"},{"role":"assistant","content":null},{"role":"system","content":1}"#),
            &["/messages/0/content", "/messages/1/content", "/messages/2/content"],
        ),
        (user("{}"), &["/messages/0/content"]),
        (
            user(r#"["a",{"type":1},{"type":"text","text":{}},{"type":"text"}]"#),
            &[
                "/messages/0/content/0",
                "/messages/0/content/1",
                "/messages/0/content/2/text",
                "/messages/0/content/3/text",
            ],
        ),
        (with(r#""system":1"#), &["/system"]),
        (with(r#""system":["a",{"type":"text"}]"#), &["/system/0", "/system/1/text"]),
        (with(r#""stream":"yes""#), &["/stream"]),
        (with(r#""tools":{}"#), &["/tools"]),
    ];
    refused(cases);
}

#[test]
fn each_mistake_of_a_result_is_reported_at_its_member() {
    let user =
        |content: &str| format!(r#"{{"model":"m","messages":[{{"role":"user","content":{content}}}]}}"#);
    refused(&[
        (
            user(
                r#"[{"type":"tool_result","content":{}},{"type":"tool_result","content":[1,{"type":"text"}]},
                    {"type":"tool_result","is_error":"true"},{"type":"tool_result","content":null,"is_error":null}]"#,
            ),
            &[
                "/messages/0/content/0/content",
                "/messages/0/content/1/content/0",
                "/messages/0/content/1/content/1/text",
                "/messages/0/content/2/is_error",
            ],
        ),
        (
            user(
                r#"[{"type":"tool_result","content":[{"type":"tool_result"},{"type":"mcp_tool_result","content":[1]}]}]"#,
            ),
            &["/messages/0/content/0/content/0", "/messages/0/content/0/content/1"],
        ),
    ]);
}

/// Each body has exactly the mistakes at these places.
fn refused(cases: &[(String, &[&str])]) {
    for (body, expected) in cases {
        let error = MessagesRequest::parse(Bytes::copy_from_slice(body.as_bytes())).expect_err(body);
        assert_eq!((error.code, pointers(&error)), (Code::PayloadInvalid, expected.to_vec()), "{body}");
    }
}

#[test]
fn what_a_mistake_is_can_be_read() {
    let body = r#"{"model":"","messages":[{"role":"tool"},{"role":"user"},{"role":"user","content":7}],"stream":[]}"#;
    let error = MessagesRequest::parse(body.into()).expect_err("mistakes");
    let messages: Vec<_> = error.violations.iter().map(|violation| violation.message.as_str()).collect();
    let expected = [
        "`model` must be a string of 1 to 256 bytes, is empty",
        "`role` must be one of user, assistant, system, is `tool`",
        "`content` is required",
        "`content` must be a string or an array of blocks, is 7",
        "`stream` must be true or false, is an array",
    ];
    assert_eq!(messages, expected);
}

#[test]
fn settings_are_read() {
    let request = parse(&json!({
        "model": "claude", "stream": true, "system": [{ "type": "text", "text": "s" }], "tools": [],
        "messages": [{ "role": "system", "content": "a" }, { "role": "assistant", "content": "b" }],
        "top_k": null,
    }));
    assert_eq!((request.model(), request.is_streamed(), request.choices()), ("claude", true, 1));
    assert!(request.shows_usage());
    assert_eq!((request.message_count(), request.leading()), (2, 1));
    let roles = [0, 1, 2].map(|message| request.role(message));
    assert_eq!(roles, [Some(Role::System), Some(Role::Assistant), None]);
    assert_eq!(
        (request.message_text(1), request.message_text(2)),
        (r#"{"content":"b","role":"assistant"}"#, "")
    );
    assert_eq!(
        (request.member("top_k"), request.member("tools"), request.member("x")),
        (None, Some("[]"), None)
    );
    let names: Vec<_> = request.members().map(|(name, _)| name).collect();
    assert_eq!(names, ["messages", "model", "stream", "system", "tools", "top_k"]);
    let whole = parse(&json!({ "model": "m", "stream": null, "system": null, "tools": null,
                               "messages": [{ "role": "user", "content": [] }] }));
    assert!(!whole.is_streamed());
}

#[test]
fn json_is_expected_where_a_format_says_so() {
    let cases = [
        (json!({}), false),
        (json!({ "output_config": { "effort": "low" }, "output_format": null }), false),
        (json!({ "output_config": { "format": { "type": "json_schema", "schema": {} } } }), true),
        (json!({ "output_config": { "format": { "type": "text" } } }), false),
        (json!({ "output_config": { "format": "json_schema" } }), false),
        (json!({ "output_format": { "type": "json_schema" } }), true),
        (json!({ "output_config": {}, "output_format": { "type": "json_object" } }), true),
    ];
    for (mut members, expected) in cases {
        members["model"] = json!("m");
        members["messages"] = json!([{ "role": "user", "content": "" }]);
        assert_eq!(parse(&members).expects_json(), expected, "{members}");
    }
}

#[test]
fn the_session_and_the_user_are_read_from_the_id_of_the_user() {
    let in_json = |members: Value| Value::from(members.to_string());
    let cases = [
        (json!(null), None, None),
        (json!(7), None, None),
        (json!(""), None, None),
        (json!("ann"), None, Some("ann")),
        (json!("user_1f_account__session_9-a"), Some("9-a"), Some("user_1f_account_")),
        (json!("user_1f_account_7_session_9-a"), Some("9-a"), Some("user_1f_account_7")),
        (json!("a_session_b_session_c"), Some("c"), Some("a_session_b")),
        (json!("ann_session_"), None, Some("ann")),
        (json!("_session_9"), Some("9"), None),
        (in_json(json!({ "device_id": "d", "account_uuid": "a", "session_id": "s" })), Some("s"), Some("a")),
        (in_json(json!({ "device_id": "d", "account_uuid": "", "session_id": "s" })), Some("s"), Some("d")),
        (in_json(json!({ "device_id": "d", "session_id": 1 })), None, Some("d")),
        (in_json(json!({ "x": 1 })), None, Some(r#"{"x":1}"#)),
        // Two readers could see two sessions in it.
        (
            json!(r#"{"session_id":"s","session_id":"t"}"#),
            None,
            Some(r#"{"session_id":"s","session_id":"t"}"#),
        ),
        (json!("[1]"), None, Some("[1]")),
    ];
    for (user_id, session, user) in cases {
        let request = parse(&json!({ "model": "m", "metadata": { "user_id": user_id },
                                     "messages": [{ "role": "user", "content": "" }] }));
        let names = (request.conversation().session, request.conversation().user);
        assert_eq!(names, (session, user), "{user_id}");
    }
}

#[test]
fn the_first_user_message_is_the_same_wherever_the_client_puts_its_cache_marks() {
    let first = |content: &str| {
        let messages =
            format!(r#"[{{"role":"assistant","content":"a"}},{{"role":"user","content":{content}}}]"#);
        let body = format!(r#"{{"model":"m","messages":{messages}}}"#);
        let request = MessagesRequest::parse(body.into()).expect("valid");
        request.first_user_message().into_owned()
    };
    let plain = r#"[{"type":"text","text":"h\u0069"}]"#;
    let cases = [
        (r#""h\u0069""#, plain),
        (plain, plain),
        (r#"[{"type":"text","text":"h\u0069","cache_control":{"type":"ephemeral"}}]"#, plain),
        (
            r#"[{"type":"text", "text":"a"} , {"cache_control":{}, "type":"text","text":"b"}]"#,
            r#"[{"type":"text", "text":"a"} , { "type":"text","text":"b"}]"#,
        ),
        ("[]", "[]"),
        (r#""""#, "[]"),
    ];
    for (content, expected) in cases {
        assert_eq!(first(content), expected, "{content}");
    }
    let without = conversation(&json!([{ "role": "assistant", "content": "a" }]));
    assert_eq!(without.first_user_message(), "");
}

#[test]
fn the_current_turn_is_what_follows_the_last_answered_assistant_message() {
    type Case = (&'static [&'static str], &'static [usize], &'static [usize], Option<usize>);
    let cases: &[Case] = &[
        (&["user"], &[], &[0], Some(0)),
        (&["system", "user", "user"], &[], &[1, 2], Some(2)),
        (&["user", "assistant", "user"], &[0], &[2], Some(2)),
        (&["user", "assistant", "result"], &[0], &[2], None),
        (&["user", "assistant", "result", "user"], &[0], &[2, 3], Some(3)),
        (&["user", "assistant", "mixed"], &[0], &[2, 2], Some(2)),
        (&["mixed", "assistant", "mixed", "result"], &[0, 0], &[2, 2, 3], Some(2)),
        // A message at the end that begins the answer makes nothing older.
        (&["user", "assistant"], &[], &[0], Some(0)),
        (&["user", "assistant", "user", "assistant", "assistant"], &[0], &[2], Some(2)),
        (&["assistant"], &[], &[], None),
        (&["system"], &[], &[], None),
        (&["empty"], &[], &[], None),
        // Behind another message it isn't part of the system prompt.
        (&["system", "user", "system"], &[], &[1, 2], Some(1)),
        (&["user", "system", "assistant", "system"], &[0, 1], &[3], None),
    ];
    for (kinds, older, current, main) in cases {
        let message = |kind: &&str| match *kind {
            "result" => json!({ "role": "user", "content": [result("1")] }),
            "mixed" => json!({ "role": "user", "content": [{ "type": "text", "text": "" }, result("1")] }),
            "empty" => json!({ "role": "user", "content": [] }),
            role => json!({ "role": role, "content": "" }),
        };
        let request = conversation(&kinds.iter().map(message).collect());
        let indices = |units: &[Unit]| units.iter().map(Unit::message).collect::<Vec<_>>();
        assert_eq!(indices(request.older_units()), *older, "{kinds:?}");
        assert_eq!(indices(request.current_units()), *current, "{kinds:?}");
        assert_eq!(request.main_unit().map(Unit::message), *main, "{kinds:?}");
        assert!(request.main_unit().is_none_or(|unit| unit.block().is_none()), "{kinds:?}");
    }
}

#[test]
fn a_message_is_its_results_and_what_else_it_says() {
    let message = concat!(
        r#"{ "role":"user", "content":[ {"type":"text","text":"a"} ,{"type":"tool_result","tool_use_id":"1"}, "#,
        r#"{"type":"image","source":{}},{"type":"tool\u005fresult" , "content":"x"} ] }"#
    );
    let body = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"q"}},{message},{{"content":"s","role":"system"}}]}}"#
    );
    let request = MessagesRequest::parse(body.into()).expect("valid");
    let seen: Vec<_> = units(&request)
        .map(|unit| {
            let json = String::from_utf8(request.unit_json(unit).to_vec()).expect("UTF-8");
            (unit.message(), unit.block(), unit.kind(), json)
        })
        .collect();
    let rest = r#"{ "role":"user", "content":[ {"type":"text","text":"a"}, {"type":"image","source":{}} ] }"#;
    let expected = [
        (0, None, UnitKind::User, r#"{"role":"user","content":"q"}"#),
        (1, Some(1), UnitKind::Result, r#"{"type":"tool_result","tool_use_id":"1"}"#),
        (1, Some(3), UnitKind::Result, r#"{"type":"tool\u005fresult" , "content":"x"}"#),
        (1, None, UnitKind::User, rest),
        (2, None, UnitKind::System, r#"{"content":"s","role":"system"}"#),
    ];
    assert_eq!(seen, expected.map(|(message, block, kind, json)| (message, block, kind, json.to_owned())));
    let memory = request.body().as_bytes().as_ptr_range();
    let shared: Vec<_> =
        units(&request).map(|unit| memory.contains(&request.unit_json(unit).as_ptr())).collect();
    assert_eq!(shared, [true, true, true, false, true]);
}

#[test]
fn a_unit_of_another_request_has_no_json() {
    let long = conversation(&json!([{ "role": "user", "content": "a" }, { "role": "user", "content": "b" }]));
    let short = conversation(&json!([{ "role": "user", "content": "a" }]));
    assert_eq!(short.unit_json(&long.current_units()[1]), "");
}

#[test]
fn results_are_cut_out_of_a_message() {
    let result = r#"{"type":"tool_result"}"#;
    let cases = [
        (r#"{"role":"user","content":"a"}"#.to_owned(), r#"{"role":"user","content":"a"}"#),
        (r#"{"role":"user","content":[]}"#.to_owned(), r#"{"role":"user","content":[]}"#),
        (r#"{"role":"user"}"#.to_owned(), r#"{"role":"user"}"#),
        (format!(r#"{{"content":[{result},{result}],"role":"user"}}"#), r#"{"content":[],"role":"user"}"#),
        (format!(r#"{{"content":[{result}, {{"type":"x"}},{result}]}}"#), r#"{"content":[ {"type":"x"}]}"#),
        (
            format!(r#"{{"content":[{{"type":"x","content":[{result}]}}]}}"#),
            r#"{"content":[{"type":"x","content":[{"type":"tool_result"}]}]}"#,
        ),
    ];
    for (message, expected) in cases {
        assert_eq!(without_results(&message), expected, "{message}");
    }
}

#[test]
fn results_have_the_name_and_the_arguments_of_the_last_call_with_their_id() {
    let request = conversation(&json!([
        { "role": "assistant", "content": [
            { "type": "text", "text": "", "id": "2" }, call("1", "first", &json!({ "a": 1 })),
            { "type": "tool_use", "id": "2", "name": "bare" } ] },
        { "role": "user", "content": [result("2"), { "type": "text", "text": "" }, result("1")] },
        { "role": "assistant", "content": [call("1", "second", &json!("no object"))] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "1", "is_error": true }] },
        { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": "3", "content": [{ "type": "image" }], "is_error": false }] },
    ]));
    let results = units(&request).filter_map(Unit::result);
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let facts: Vec<_> = results
        .map(|result| {
            let (name, id) = (result.tool_name.clone(), result.call_id.clone());
            (name, id, text(&result.args), text(&result.result), result.success)
        })
        .collect();
    let expected = [
        (Some("bare"), "2", "{}", r#""2""#, true),
        (Some("first"), "1", r#"{"a":1}"#, r#""1""#, true),
        (Some("second"), "1", r#""no object""#, "null", false),
        (None, "3", "", r#"[{"type":"image"}]"#, true),
    ];
    let expected = expected.map(|(name, id, args, result, success)| {
        (name.map(str::to_owned), Some(id.to_owned()), args.to_owned(), result.to_owned(), success)
    });
    assert_eq!(facts, expected);
}

/// The pointers of what [`FormatRequest::results_have_calls`] reports.
fn mistakes_of_results(messages: &Value) -> Vec<String> {
    let checked = conversation(messages).results_have_calls();
    checked.err().iter().flat_map(pointers).map(str::to_owned).collect()
}

#[test]
fn each_result_needs_one_call_and_a_call_has_one_result() {
    let calls = |calls: &[(&str, &str)]| {
        let block = |(id, kind): &(&str, &str)| json!({ "type": kind, "id": id, "name": "f", "input": {} });
        json!({ "role": "assistant", "content": calls.iter().map(block).collect::<Vec<_>>() })
    };
    let once = calls(&[("1", "tool_use")]);
    let results = |ids: &[&str]| {
        let results: Vec<Value> = ids.iter().copied().map(result).collect();
        json!({ "role": "user", "content": results })
    };
    let long = call("1", &"f".repeat(257), &json!({}));
    let misnamed = json!({ "role": "assistant", "content": [long, call("2", "", &json!({}))] });
    let nameless = json!({ "role": "user", "content": [{ "type": "tool_result" }] });
    let cases: &[(Value, &[&str])] = &[
        (json!([once, results(&["1"]), once, results(&["1"])]), &[]),
        (json!([once, results(&[]), calls(&[("2", "tool_use")]), results(&["1"])]), &[]),
        // The call comes later, or never.
        (
            json!([results(&["1"]), once, results(&["2", "1"])]),
            &["/messages/0/content/0", "/messages/2/content/0"],
        ),
        (json!([once, nameless]), &["/messages/1/content/0"]),
        (
            json!([once, results(&["1", "1"]), results(&["1"])]),
            &["/messages/1/content/1", "/messages/2/content/0"],
        ),
        (json!([misnamed, results(&["1", "2"])]), &["/messages/1/content/0", "/messages/1/content/1"]),
        (
            json!([
                calls(&[("1", "tool_use"), ("2", "server_tool_use"), ("1", "tool_use")]),
                results(&["1"]),
                once
            ]),
            &["/messages/0/content/2/id"],
        ),
        // The nearest call with the id is the provider's own.
        (json!([once, calls(&[("1", "server_tool_use")]), results(&["1"])]), &["/messages/2/content/0"]),
        // An id of what is no call stands for nothing.
        (json!([calls(&[("1", "text2"), ("1", "tool_use"), ("1", "text2")]), results(&["1"])]), &[]),
    ];
    for (messages, expected) in cases {
        assert_eq!(mistakes_of_results(messages), *expected, "{messages}");
    }
    let many: Vec<&str> = vec!["2"; 40];
    assert_eq!(mistakes_of_results(&json!([once, results(&many)])).len(), 32);
}

#[test]
fn more_than_ten_thousand_units_are_refused() {
    let body = |results: usize| {
        let mut content = vec![result("1"); results];
        content.push(json!({ "type": "text", "text": "" }));
        json!({ "model": "m", "messages": [{ "role": "user", "content": content }] })
    };
    let request = parse(&body(9_999));
    let results = request.current_units().iter().filter(|unit| unit.kind() == UnitKind::Result);
    let sizes: usize = results.map(|unit| request.unit_json(unit).len()).sum();
    assert_eq!((request.current_units().len(), sizes), (10_000, 9_999 * result("1").to_string().len()));
    let error = MessagesRequest::parse(body(10_000).to_string().into()).expect_err("too many");
    assert_eq!(pointers(&error), ["/messages"]);
    assert_eq!(error.violations[0].message, "`messages` has 10001 texts and results, more than 10000");
}

#[test]
fn more_than_ten_thousand_tool_calls_are_refused() {
    let body = |calls: usize| {
        let calls: Vec<Value> = (0..calls).map(|id| call(&id.to_string(), "f", &json!({}))).collect();
        json!({ "model": "m", "messages": [{ "role": "assistant", "content": calls }] })
    };
    parse(&body(10_000));
    let error = MessagesRequest::parse(body(10_001).to_string().into()).expect_err("too many");
    assert_eq!(pointers(&error), ["/messages"]);
    assert_eq!(error.violations[0].message, "`messages` has 10001 tool calls, more than 10000");
}
