use bytes::Bytes;
use hookgate_proto::types::v1::TokenUsage;
use serde_json::{Value, json};

use super::ChatAnswer;
use crate::llm::{
    answer_parts::part_payload,
    format::{AnswerError, CallEdit, ChoiceEdit, FormatAnswer as _},
};

pub(super) fn answer(message: &Value) -> ChatAnswer {
    parse(
        &json!({ "choices": [{ "index": 0, "message": message, "finish_reason": "tool_calls", "logprobs": {} }] }),
    )
}

pub(super) fn parse(body: &Value) -> ChatAnswer {
    ChatAnswer::parse(body.to_string().into(), 2).expect("a valid answer")
}

pub(super) fn call(id: &str) -> Value {
    json!({ "id": id, "type": "function", "function": { "name": id, "arguments": "{\"a\":1}" } })
}

fn note(text: &str) -> CallEdit {
    CallEdit::Note(text.to_owned())
}

fn calls(calls: Vec<CallEdit>) -> ChoiceEdit {
    ChoiceEdit { calls, ..ChoiceEdit::default() }
}

pub(super) fn text(text: &str) -> ChoiceEdit {
    ChoiceEdit { texts: vec![Some(text.to_owned())], ..ChoiceEdit::default() }
}

/// The only choice of a rendered answer.
pub(super) fn rendered(answer: &ChatAnswer, edit: ChoiceEdit, expects_json: bool) -> Value {
    let rendered = answer.render(&[edit], expects_json, false);
    let mut body: Value = serde_json::from_slice(&rendered.body).expect("JSON");
    body["choices"][0].take()
}

#[test]
fn what_is_no_answer_is_refused_with_the_reason() {
    for (body, reason) in [
        ("<html>", "not valid JSON"),
        ("[]", "no array `choices`"),
        (r#"{"choices":{}}"#, "no array `choices`"),
        (r#"{"choices":[{}]}"#, "`choices/0`: it has no object `message`"),
        (r#"{"choices":[{"message":{"content":1}}]}"#, "`content` is a number"),
        (r#"{"choices":[{"message":{"refusal":{}}}]}"#, "`refusal` is an object"),
        (r#"{"choices":[{"message":{"tool_calls":{}}}]}"#, "`tool_calls` is an object"),
        (r#"{"choices":[{"message":{"tool_calls":[{"type":"mcp"}]}}]}"#, "`tool_calls/0`"),
        (r#"{"choices":[{"message":{"function_call":{}}}]}"#, "`function_call`"),
        (r#"{"choices":[{"message":{"function_call":{"name":""}}}]}"#, "0 bytes long"),
        (r#"{"choices":[],"choices":[]}"#, "the key `/choices` twice"),
    ] {
        match ChatAnswer::parse(Bytes::from_static(body.as_bytes()), 1) {
            Err(AnswerError::Invalid(error)) => assert!(error.contains(reason), "{error}"),
            other => panic!("{body}: {other:?}"),
        }
    }
}

#[test]
fn a_choice_that_azure_s_filter_left_without_a_message_gets_an_empty_one() {
    let filtered = r#"{"finish_reason":"content_filter","index":1}"#;
    let body = format!(r#"{{"choices":[{{"message":{{"content":"a"}}}},{filtered}]}}"#);
    let answer = ChatAnswer::parse(body.into(), 2).expect("an answer");
    assert_eq!(part_payload(&answer, 1, 0).content, "");
    assert_eq!(part_payload(&answer, 1, 0).stop_reason.as_deref(), Some("content_filter"));
    let rendered = answer.render(&[ChoiceEdit::default(), text("no")], false, false);
    let body: Value = serde_json::from_slice(&rendered.body).expect("JSON");
    assert_eq!(body["choices"][0], json!({ "message": { "content": "a" } }));
    assert_eq!(body["choices"][1]["message"], json!({ "role": "assistant", "content": "no" }));
    let other = r#"{"choices":[{"finish_reason":"stop"}]}"#;
    assert!(ChatAnswer::parse(Bytes::from_static(other.as_bytes()), 1).is_err());
}

#[test]
fn an_answer_has_at_most_128_tool_calls_and_the_choices_that_were_asked_for() {
    let calls = |calls: usize| {
        let message = json!({ "tool_calls": vec![call("f"); calls] });
        json!({ "choices": [{ "message": message }, { "message": message }] }).to_string()
    };
    ChatAnswer::parse(calls(64).into(), 2).expect("just enough");
    let error = ChatAnswer::parse(calls(65).into(), 2).expect_err("too many calls");
    let sentence = "the answer has 130 tool calls, more than 128";
    assert_eq!(error, AnswerError::TooLarge(sentence.to_owned()));
    assert_eq!(error.to_string(), sentence);
    let error = ChatAnswer::parse(calls(1).into(), 1).expect_err("too many choices");
    assert_eq!(error, AnswerError::Invalid("the answer has 2 choices, and 1 were asked for".to_owned()));
}

#[test]
fn each_text_and_each_thought_is_shown_apart() {
    let answer = parse(&json!({
        "model": "m-2", "usage": { "prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7 },
        "choices": [
            { "finish_reason": "stop", "message": { "content": "a", "refusal": "b", "audio": { "transcript": "c" } } },
            { "finish_reason": null, "message": { "content": [{ "type": "text", "text": "d" }], "reasoning_content": "e",
              "reasoning": null, "reasoning_details": [{ "type": "reasoning.text", "text": "f" }, { "summary": "g" }] } },
        ],
    }));
    assert_eq!(
        (&*answer.parts(0).texts, &*answer.parts(0).thoughts),
        (&["a", "b", "c"].map(String::from)[..], &[][..])
    );
    let first = part_payload(&answer, 0, 0);
    assert_eq!((first.model.as_deref(), first.stop_reason.as_deref()), (Some("m-2"), Some("stop")));
    assert_eq!(first.token_usage, Some(TokenUsage { input: 3, output: 4 }));
    assert_eq!(part_payload(&answer, 0, 1).token_usage, None, "the usage counts once");
    assert_eq!(
        (&*answer.parts(1).texts, &*answer.parts(1).thoughts),
        (&["d".to_owned()][..], &["e", "f", "g"].map(String::from)[..])
    );
    let second = part_payload(&answer, 1, 0);
    assert_eq!((second.stop_reason, second.token_usage), (None, None), "the usage is that of all choices");
}

#[test]
fn calls_of_all_forms_have_a_name_and_arguments() {
    let answer = answer(&json!({
        "tool_calls": [
            call("f"), { "id": "g", "function": { "name": "g", "arguments": "" } },
            { "id": "c", "type": "custom", "custom": { "name": "c", "input": "some \"text\"" } },
            { "id": "o", "type": "function", "function": { "name": "o", "arguments": { "a": 1 } } },
            { "id": "i", "type": "function", "function": { "name": "i", "arguments": "{\"a\":1}{}" } },
            { "id": "d", "type": "function", "function": { "name": "d", "arguments": "{\"a\":1,\"a\":2}" } },
            { "id": "n", "type": "function", "function": { "name": "n", "arguments": 1 } },
        ],
        "function_call": { "name": "old", "arguments": "[1]" },
    }));
    let calls: Vec<_> = (0..answer.calls(0)).map(|call| answer.call_payload(0, call)).collect();
    let read: Vec<_> = calls
        .iter()
        .map(|call| match call {
            Ok(call) => (call.tool_name.as_str(), Some(str::from_utf8(&call.args).expect("UTF-8"))),
            Err(invalid) => (&*invalid.tool_name, None),
        })
        .collect();
    assert_eq!(
        read,
        [
            ("f", Some("{\"a\":1}")),
            ("g", Some("{}")),
            ("c", Some(r#""some \"text\"""#)),
            ("o", Some("{\"a\":1}")),
            ("i", None),
            ("d", None),
            ("n", None),
            ("old", Some("[1]")),
        ]
    );
    let ids: Vec<_> = calls.iter().flatten().map(|call| call.call_id.as_deref()).collect();
    assert_eq!(ids, [Some("f"), Some("g"), Some("c"), Some("o"), None]);
}

#[test]
fn of_several_choices_only_the_changed_ones_change() {
    let body = r#"{"choices" : [ {"message":{"content":"a"}}, {"message": {"content" : "b" , "refusal": null}},
        {"message":{"content":"c"} , "logprobs" : {"content":[]}} ] , "usage":null}"#;
    let answer = ChatAnswer::parse(Bytes::from_static(body.as_bytes()), 3).expect("valid");
    let rendered = answer.render(&[ChoiceEdit::default(), text("B")], false, true);
    assert_eq!(rendered.body, body.replace("\"b\"", "\"B\""));
    let rendered = answer.render(&[text("a"), text("b"), ChoiceEdit::replaced("no".into())], false, true);
    let blocked =
        body.replace("\"c\"", "\"no\"").replace(r#"{"content":[]}}"#, r#"null,"finish_reason":"stop"}"#);
    assert_eq!(rendered.body, blocked);
    let untouched = answer.render(&[text("a")], false, true).body;
    assert_eq!(untouched.as_ptr(), answer.body().as_ptr(), "the same text is no edit");
}

#[test]
fn one_refused_call_of_two_leaves_the_other_and_a_note() {
    for (edits, left) in [(vec![note("refused")], "b"), (vec![CallEdit::Keep, note("refused")], "a")] {
        let answer = answer(&json!({ "content": "text", "tool_calls": [call("a"), call("b")] }));
        let choice = rendered(&answer, calls(edits), false);
        assert_eq!(choice["message"], json!({ "content": "text\nrefused", "tool_calls": [call(left)] }));
        assert_eq!((&choice["finish_reason"], &choice["logprobs"]), (&json!("tool_calls"), &json!(null)));
    }
}

#[test]
fn without_any_call_left_the_answer_is_a_text() {
    let answer = answer(&json!({ "content": null, "refusal": null, "tool_calls": [call("a"), call("b")] }));
    let edit = calls(vec![note("first"), note("second")]);
    assert!(edit.is_block());
    let choice = rendered(&answer, edit, false);
    assert_eq!(choice["message"], json!({ "content": "first\nsecond", "refusal": null }));
    assert_eq!(choice["finish_reason"], "stop");
    let both = ChoiceEdit { calls: vec![note("first"), note("second")], ..text("said") };
    assert_eq!(rendered(&answer, both, false)["message"]["content"], "said\nfirst\nsecond");
}

#[test]
fn a_call_in_the_old_form_is_refused_and_changed_too() {
    let answer = answer(&json!({ "content": "", "function_call": { "name": "f", "arguments": "{}" } }));
    let choice = rendered(&answer, calls(vec![note("refused")]), false);
    assert_eq!(choice["message"], json!({ "content": "refused" }));
    assert_eq!(choice["finish_reason"], "stop");
    let patch = CallEdit::Patch { name: "g".into(), args: Bytes::from_static(b"[1]") };
    let choice = rendered(&answer, calls(vec![patch]), false);
    assert_eq!(choice["message"]["function_call"], json!({ "name": "g", "arguments": "[1]" }));
}

#[test]
fn changed_calls_keep_their_form() {
    let patch =
        |args: &'static str| CallEdit::Patch { name: "f".into(), args: Bytes::from_static(args.as_bytes()) };
    for (given, args, expected) in [
        (
            json!({ "type": "function", "function": { "name": "f", "arguments": "{}" } }),
            "{\"b\": 2}",
            json!({ "type": "function", "function": { "name": "f", "arguments": "{\"b\": 2}" } }),
        ),
        (
            json!({ "function": { "name": "f", "arguments": { "a": 1 } } }),
            "{\"b\":2}",
            json!({ "function": { "name": "f", "arguments": { "b": 2 } } }),
        ),
        (
            json!({ "function": { "name": "f" } }),
            "{\"b\":2}",
            json!({ "function": { "name": "f", "arguments": "{\"b\":2}" } }),
        ),
        (
            json!({ "type": "custom", "custom": { "name": "f", "input": "a" } }),
            "\"b\"",
            json!({ "type": "custom", "custom": { "name": "f", "input": "b" } }),
        ),
        (
            json!({ "type": "custom", "custom": { "name": "f", "input": "a" } }),
            "{}",
            json!({ "type": "custom", "custom": { "name": "f", "input": "{}" } }),
        ),
    ] {
        let answer = answer(&json!({ "content": null, "tool_calls": [given] }));
        let choice = rendered(&answer, calls(vec![patch(args)]), false);
        assert_eq!(choice["message"]["tool_calls"], json!([expected]));
        assert_eq!(choice["message"]["content"], json!(null));
    }
}

#[test]
fn a_block_replaces_everything_the_model_said() {
    let answer = answer(&json!({
        "role": "assistant", "content": "text", "refusal": "no", "reasoning_content": "r", "reasoning": "r",
        "reasoning_details": [], "tool_calls": [call("a")], "function_call": null, "annotations": [], "audio": null,
        "new_member": "x".repeat(65), "new_setting": 1,
    }));
    let choice = rendered(&answer, ChoiceEdit::replaced("blocked".into()), false);
    let message = json!({ "role": "assistant", "content": "blocked", "refusal": null, "new_setting": 1 });
    assert_eq!(choice, json!({ "index": 0, "message": message, "finish_reason": "stop", "logprobs": null }));
}

#[test]
fn where_the_text_is_parsed_a_message_is_a_refusal() {
    let answer = answer(&json!({ "content": "{}", "tool_calls": [call("a")] }));
    let blocked = rendered(&answer, ChoiceEdit::replaced("blocked".into()), true);
    assert_eq!(blocked["message"], json!({ "content": null, "refusal": "blocked" }));
    let refused = rendered(&answer, calls(vec![note("refused")]), true);
    assert_eq!(refused["message"], json!({ "content": "{}", "refusal": "refused" }));
}

#[test]
fn a_note_is_a_part_where_the_content_has_parts() {
    let answer = answer(&json!({ "content": [{ "type": "text", "text": "a" }], "tool_calls": [call("a")] }));
    let choice = rendered(&answer, calls(vec![note("refused")]), false);
    assert_eq!(
        choice["message"]["content"],
        json!([{ "type": "text", "text": "a" }, { "type": "text", "text": "refused" }])
    );
}

#[test]
fn unknown_members_with_text_are_withheld_under_a_guard() {
    let message = json!({ "content": "a", "images": [], "long": "x".repeat(65), "short": "x", "number": 1 });
    let answer =
        parse(&json!({ "choices": [{ "message": message, "token_ids": [1] }, { "message": message }] }));
    let rendered = answer.render(&[], false, true);
    assert_eq!(rendered.withheld, ["images", "long", "token_ids"]);
    let body: Value = serde_json::from_slice(&rendered.body).expect("JSON");
    let left = json!({ "message": { "content": "a", "short": "x", "number": 1 } });
    assert_eq!(body["choices"], json!([left, left]));
    let passed = answer.render(&[], false, false);
    assert_eq!((passed.withheld.len(), passed.body.as_ptr()), (0, answer.body().as_ptr()));
}

#[test]
fn white_space_around_an_answer_stays_when_a_member_goes() {
    let body = format!(
        " \n{{\"new\":[], \"choices\":[{{\"message\":{{\"content\":\"a\"}}}}] , \"long\":\"{}\"}}\r\n",
        "x".repeat(65)
    );
    let answer = ChatAnswer::parse(body.into(), 1).expect("valid");
    let rendered = answer.render(&[], false, true);
    assert_eq!(rendered.body, " \n{ \"choices\":[{\"message\":{\"content\":\"a\"}}]}\r\n");
    assert_eq!(rendered.withheld, ["long", "new"]);
}

/// The only message of a rendered answer, with what was withheld from it.
fn guarded(message: &Value, edit: ChoiceEdit) -> (Value, Vec<String>) {
    let rendered = answer(message).render(&[edit], false, true);
    let mut body: Value = serde_json::from_slice(&rendered.body).expect("JSON");
    (body["choices"][0]["message"].take(), rendered.withheld)
}

#[test]
fn unknown_members_of_tool_calls_are_withheld_under_a_guard() {
    let long = "x".repeat(65);
    let given = json!({ "content": null, "tool_calls": [
        { "a": [], "id": long, "type": "function", "index": 0, "note": long, "extra_content": { "google": { "thought_signature": long } },
          "function": { "name": "f", "b": {}, "arguments": "{}", "short": "x", "input": long }, "custom": { "name": "g", "input": long } },
        { "id": "2", "type": "custom", "function": {}, "custom": { "c": [], "name": "f", "input": "a", "arguments": long } },
        { "extra_content": { "text": "x".repeat(16 << 10) }, "id": "3", "function": { "name": "f" } },
        { "extra_content": long, "id": { "text": long }, "function": { "name": "f" } },
    ], "function_call": { "d": [], "name": "f", "arguments": "{}", "note": long } });
    let calls_left = |first: Value, last: Value| {
        json!({ "content": null, "tool_calls": [
            { "id": long, "type": "function", "index": 0, "extra_content": { "google": { "thought_signature": long } }, "function": first },
            { "id": "2", "type": "custom", "custom": { "name": "f", "input": "a" } },
            { "id": "3", "function": { "name": "f" } },
            { "function": { "name": "f" } },
        ], "function_call": last })
    };
    let names =
        ["a", "arguments", "b", "c", "custom", "d", "extra_content", "function", "id", "input", "note"];
    let (message, withheld) = guarded(&given, ChoiceEdit::default());
    let function = json!({ "name": "f", "arguments": "{}", "short": "x" });
    assert_eq!(message, calls_left(function, json!({ "name": "f", "arguments": "{}" })));
    assert_eq!(withheld, names);
    let patch = || CallEdit::Patch { name: "g".into(), args: Bytes::from_static(b"[1]") };
    let edits = vec![patch(), CallEdit::Keep, CallEdit::Keep, CallEdit::Keep, patch()];
    let (message, withheld) = guarded(&given, calls(edits));
    let function = json!({ "name": "g", "arguments": "[1]", "short": "x" });
    assert_eq!(message, calls_left(function, json!({ "name": "g", "arguments": "[1]" })));
    assert_eq!(withheld, names);
    let (message, _) =
        guarded(&given, calls(vec![note("1"), note("2"), CallEdit::Keep, note("4"), note("5")]));
    assert_eq!(
        message,
        json!({ "content": "1\n2\n4\n5", "tool_calls": [{ "id": "3", "function": { "name": "f" } }] })
    );
    let passed = answer(&given);
    assert_eq!(passed.render(&[], false, false).body.as_ptr(), passed.body().as_ptr());
}

#[test]
fn unknown_parts_of_an_answer_are_withheld_under_a_guard() {
    let text = json!({ "type": "text", "text": "a" });
    let refusal = json!({ "type": "refusal", "refusal": "b" });
    let long = "x".repeat(65);
    let given = json!({ "content": [
        { "type": "image_url", "image_url": { "url": "x" } }, { "type": "text", "text": "a", "more": long }, "c",
        { "type": "text", "text": { "value": "x" } }, 1, refusal, { "type": "new", "new": "x" },
    ], "tool_calls": [call("f")] });
    assert_eq!(answer(&given).parts(0).texts, ["a", "c", "b"], "a refusal is seen");
    let (message, withheld) = guarded(&given, ChoiceEdit::default());
    assert_eq!(message["content"], json!([text, "c", refusal]));
    assert_eq!(withheld, ["content", "image_url", "more", "new", "text"]);
    let (message, _) = guarded(&given, calls(vec![note("no")]));
    assert_eq!(message, json!({ "content": [text, "c", refusal, { "type": "text", "text": "no" }] }));
    let (message, withheld) = guarded(&json!({ "content": [{ "type": "new" }] }), ChoiceEdit::default());
    assert_eq!((message, withheld), (json!({ "content": null }), vec!["new".to_owned()]));
    let (message, _) = guarded(&json!({ "content": [] }), ChoiceEdit::default());
    assert_eq!(message, json!({ "content": [] }));
    let rendered = answer(&given).render(&[calls(vec![note("no")])], true, true);
    let body: Value = serde_json::from_slice(&rendered.body).expect("JSON");
    let expected = json!({ "content": [text, "c", refusal], "refusal": "no" });
    assert_eq!(body["choices"][0]["message"], expected);
}
