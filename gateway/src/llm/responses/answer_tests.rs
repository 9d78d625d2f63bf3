use bytes::Bytes;
use hookgate_proto::types::v1::TokenUsage;
use serde_json::{Value, json};

use super::ResponsesAnswer;
use crate::{
    json::ValueKind,
    llm::{
        answer_parts::part_payload,
        format::{AnswerError, CallEdit, ChoiceEdit, FormatAnswer},
    },
};

pub(super) fn note(text: &str) -> CallEdit {
    CallEdit::Note(text.to_owned())
}

pub(super) fn patch(name: &str, args: &str) -> CallEdit {
    CallEdit::Patch { name: name.to_owned(), args: Bytes::copy_from_slice(args.as_bytes()) }
}

pub(super) fn call_edits(calls: Vec<CallEdit>) -> ChoiceEdit {
    ChoiceEdit { calls, ..ChoiceEdit::default() }
}

pub(super) fn text(text: &str) -> ChoiceEdit {
    ChoiceEdit { texts: vec![Some(text.to_owned())], ..ChoiceEdit::default() }
}

/// All texts become empty.
pub(super) fn emptied() -> ChoiceEdit {
    ChoiceEdit { texts: vec![Some(String::new()); 1_024], ..ChoiceEdit::default() }
}

fn reasoning(text: &str) -> ChoiceEdit {
    ChoiceEdit { thoughts: vec![Some(text.to_owned())], ..ChoiceEdit::default() }
}

pub(super) fn parse(body: impl Into<Bytes>) -> ResponsesAnswer {
    ResponsesAnswer::parse(body.into(), 1).expect("a valid answer")
}

/// A completed answer with this output.
pub(super) fn answer(output: &str) -> ResponsesAnswer {
    parse(whole(output))
}

pub(super) fn whole(output: &str) -> String {
    format!(r#"{{"id":"resp_1","object":"response","status":"completed","output":{output}}}"#)
}

pub(super) fn rendered(answer: &ResponsesAnswer, edit: ChoiceEdit, expects_json: bool) -> Bytes {
    answer.render(&[edit], expects_json, false).body
}

pub(super) const CALL_A: &str =
    r#"{"type":"function_call","id":"fc_a","call_id":"a","name":"f","arguments":"{\"a\": 1}"}"#;
const CALL_B: &str = r#"{"type":"custom_tool_call","call_id":"b","name":"g","input":"in"}"#;
pub(super) const THOUGHT: &str = r#"{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"t"}],"encrypted_content":"e"}"#;
const SEALED: &str = r#"{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"e"}"#;
const HOSTED: &str = r#"{"type":"web_search_call","id":"ws_1"}"#;
pub(super) const TEXT: &str =
    r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]}"#;

/// A message that the gateway adds.
pub(super) fn added(number: usize, text: &str) -> String {
    format!(
        r#"{{"id":"msg_1_{number}","type":"message","status":"completed","content":[{{"type":"output_text","annotations":[],"logprobs":[],"text":"{text}"}}],"role":"assistant"}}"#
    )
}

/// A refusal that the gateway adds.
pub(super) fn refusal(number: usize, text: &str) -> String {
    format!(
        r#"{{"id":"msg_1_{number}","type":"message","status":"completed","content":[{{"type":"refusal","refusal":"{text}"}}],"role":"assistant"}}"#
    )
}

pub(super) fn list(items: &[&str]) -> String {
    format!("[{}]", items.join(","))
}

#[track_caller]
pub(super) fn assert_left(given: &[&str], edit: ChoiceEdit, expects_json: bool, left: &[&str]) {
    let body = rendered(&answer(&list(given)), edit, expects_json);
    assert_eq!(body, whole(&list(left)));
}

#[test]
fn what_is_no_answer_is_refused_with_the_reason() {
    for (body, reason) in [
        ("<html>", "not valid JSON"),
        ("[]", "no array `output`"),
        (r#"{"output":"a"}"#, "no array `output`"),
        (r#"{"object":"chat.completion","output":[]}"#, "`object` is not `response`"),
        (r#"{"object":1,"output":[]}"#, "`object` is not `response`"),
        (r#"{"output":["a"]}"#, "`output/0`: it is no object with a string `type`"),
        (r#"{"output":[{"role":"assistant"}]}"#, "`output/0`: it is no object with a string `type`"),
        (r#"{"output":[{"type":"x"},{"type":{}}]}"#, "`output/1`: it is no object with a string `type`"),
        (r#"{"output":[{"type":"message","content":"a"}]}"#, "`output/0`: `content` is a string"),
        (
            r#"{"output":[{"type":"message","content":[{"type":"x"},"a"]}]}"#,
            "`output/0`: `content/1`: it is no object with a string `type`",
        ),
        (
            r#"{"output":[{"type":"message","content":[{"type":"output_text","text":["a"]}]}]}"#,
            "`output/0`: `content/0`: it has no string `text`",
        ),
        (
            r#"{"output":[{"type":"message","content":[{"type":"refusal","text":"a"}]}]}"#,
            "`output/0`: `content/0`: it has no string `refusal`",
        ),
        (r#"{"output":[{"type":"function_call"}]}"#, "`output/0`: it is not a call in its form"),
        (
            r#"{"output":[{"type":"custom_tool_call","name":"f","input":{}}]}"#,
            "`output/0`: it is not a call in its form",
        ),
        (r#"{"output":[{"type":"shell_call","action":"ls"}]}"#, "`output/0`: it is not a call in its form"),
        (
            r#"{"output":[{"type":"function_call","name":"f","call_id":"a sentence"}]}"#,
            "`output/0`: its `call_id` is no id",
        ),
        (
            r#"{"output":[{"type":"shell_call","action":{},"call_id":["a"]}]}"#,
            "`output/0`: its `call_id` is no id",
        ),
        (r#"{"output":[{"type":"function_call","name":""}]}"#, "`output/0`: a tool's name is 0 bytes long"),
        (r#"{"output":[],"output":[]}"#, "the key `/output` twice"),
    ] {
        match ResponsesAnswer::parse(Bytes::from_static(body.as_bytes()), 1) {
            Err(AnswerError::Invalid(error)) => assert!(error.contains(reason), "{body}: {error}"),
            other => panic!("{body}: {other:?}"),
        }
    }
}

#[test]
fn a_tools_name_has_at_most_256_bytes_with_its_namespace() {
    let body = |length: usize| {
        let call = json!({ "type": "function_call", "namespace": "n", "name": "n".repeat(length) });
        json!({ "output": [call] }).to_string()
    };
    assert_eq!(parse(body(254)).calls(0), 1);
    let error = ResponsesAnswer::parse(body(255).into(), 1).expect_err("a long name");
    assert_eq!(error, AnswerError::Invalid("`output/0`: a tool's name is 257 bytes long".to_owned()));
}

#[test]
fn an_answer_has_one_choice_and_at_most_128_tool_calls() {
    let body = |calls: usize| whole(&list(&vec![CALL_A; calls]));
    let most = parse(body(128));
    assert_eq!((most.choices(), most.calls(0), most.calls(1)), (1, 128, 0));
    let error = ResponsesAnswer::parse(body(129).into(), 1).expect_err("too many calls");
    assert_eq!(error, AnswerError::TooLarge("the answer has 129 tool calls, more than 128".to_owned()));
}

#[test]
fn items_parts_annotations_and_encrypted_reasoning_of_an_answer_are_limited() {
    let message =
        |part: &Value, parts: usize| json!({ "type": "message", "content": vec![part; parts] }).to_string();
    let (part, thought) = (json!({ "type": "new" }), json!({ "text": "" }));
    let thoughts =
        |count: usize| json!({ "type": "reasoning", "summary": vec![&thought; count] }).to_string();
    let cited =
        |count: usize| json!({ "type": "output_text", "text": "", "annotations": vec![json!({}); count] });
    let sealed =
        |length: usize| json!({ "type": "reasoning", "encrypted_content": "e".repeat(length) }).to_string();
    // What is of another kind doesn't count.
    let other = json!({ "type": "new", "content": [1, 2], "encrypted_content": "e".repeat(100) }).to_string();
    for (most, one_more, sentence) in [
        (vec![HOSTED.to_owned(); 4096], HOSTED.to_owned(), "4097 items, more than 4096"),
        (
            vec![message(&part, 2048), thoughts(2048), other.clone()],
            thoughts(1),
            "4097 content parts, more than 4096",
        ),
        (
            vec![message(&cited(1024), 4), other.clone()],
            message(&cited(1), 1),
            "4097 annotations, more than 4096",
        ),
        (
            vec![sealed(1 << 19), other, sealed(1 << 19)],
            sealed(1),
            "1048577 bytes of encrypted reasoning, more than 1048576",
        ),
    ] {
        let mut items: Vec<&str> = most.iter().map(String::as_str).collect();
        answer(&list(&items));
        items.push(&one_more);
        let error = ResponsesAnswer::parse(whole(&list(&items)).into(), 1).expect_err("too much");
        assert_eq!(error, AnswerError::TooLarge(format!("the answer has {sentence}")));
    }
}

#[test]
fn each_content_part_and_each_thought_is_shown_apart() {
    let summary = json!([{ "type": "summary_text", "text": "a" }, { "type": "new" }, "no"]);
    let answer = parse(
        json!({
            "model": "m-2", "status": "incomplete", "incomplete_details": { "reason": "max_output_tokens" },
            "usage": { "input_tokens": 3, "input_tokens_details": { "cached_tokens": 2 }, "output_tokens": 4 },
            "output": [
                { "type": "reasoning", "content": [{ "type": "reasoning_text", "text": "b" }], "summary": summary },
                { "type": "message", "role": "assistant", "phase": "commentary", "content": [
                    { "type": "output_text", "text": "c" }, { "type": "new", "text": "no" },
                    { "type": "refusal", "refusal": "d" },
                ] },
                { "type": "message", "role": "user", "content": [{ "type": "output_text", "text": "no" }] },
                { "type": "function_call_output", "output": "no" }, { "type": "web_search_call", "text": "no" },
                { "type": "reasoning", "summary": null, "content": [{ "text": "e" }] },
                { "type": "message", "content": [{ "type": "output_text", "text": "\u{e9}" }] },
                { "type": "message", "role": "assistant", "content": null },
            ],
        })
        .to_string(),
    );
    assert_eq!(answer.parts(0).texts, ["c", "d", "\u{e9}"]);
    assert_eq!(answer.parts(0).thoughts, ["a", "b", "e"]);
    for (part, usage) in [(0, Some(TokenUsage { input: 3, output: 4 })), (2, None)] {
        let payload = part_payload(&answer, 0, part);
        assert_eq!(
            (payload.model.as_deref(), payload.stop_reason.as_deref()),
            (Some("m-2"), Some("max_output_tokens"))
        );
        assert_eq!(payload.token_usage, usage, "the usage counts once");
    }
    let empty =
        parse(r#"{"output":[],"usage":{"input_tokens":1},"status":"completed","incomplete_details":null}"#);
    let empty = part_payload(&empty, 0, 0);
    assert_eq!((empty.content.as_str(), empty.reasoning, empty.token_usage), ("", None, None));
    assert_eq!(empty.stop_reason.as_deref(), Some("completed"));
}

#[test]
fn calls_have_a_name_and_arguments_of_their_form() {
    let answer = answer(
        r#"[{"type":"function_call","call_id":"1","namespace":"n","name":"f","arguments":"{\"a\": [1]}"},
        {"type":"function_call","name":"g"},{"type":"message","content":[]},
        {"type":"function_call","name":"h","arguments":"{\"a\":"},
        {"type":"custom_tool_call","id":"2","name":"i","input":"a\"b"},
        {"type":"local_shell_call","call_id":"3","action":{"command": ["ls"]}},
        {"type":"shell_call","action":{"commands":[]}},{"type":"apply_patch_call","operation":{"type":"x"}},
        {"type":"tool_search_call","execution":"client","call_id":"4","arguments":{"goal":"x"}}]"#,
    );
    let calls: Vec<_> = (0..answer.calls(0))
        .map(|call| {
            let kind = answer.args_kind(0, call);
            match answer.call_payload(0, call) {
                Ok(call) => (call.tool_name, Some(call.args), call.call_id, kind),
                Err(invalid) => (invalid.tool_name, None, None, kind),
            }
        })
        .collect();
    let valid = |args: &'static str| Some(Bytes::from_static(args.as_bytes()));
    let (string, object) = (Some(ValueKind::String), Some(ValueKind::Object));
    assert_eq!(
        calls,
        [
            ("n.f".to_owned(), valid(r#"{"a": [1]}"#), Some("1".to_owned()), None),
            ("g".to_owned(), valid("{}"), None, None),
            ("h".to_owned(), None, None, None),
            ("i".to_owned(), valid(r#""a\"b""#), Some("2".to_owned()), string),
            ("local_shell".to_owned(), valid(r#"{"command": ["ls"]}"#), Some("3".to_owned()), object),
            ("shell".to_owned(), valid(r#"{"commands":[]}"#), None, object),
            ("apply_patch".to_owned(), valid(r#"{"type":"x"}"#), None, object),
            ("tool_search".to_owned(), valid(r#"{"goal":"x"}"#), Some("4".to_owned()), object),
        ]
    );
}

#[test]
fn without_changes_an_answer_keeps_its_memory() {
    let answer = answer(&list(&[THOUGHT, TEXT, CALL_A, CALL_B]));
    let same = vec![patch("f", " {\"a\": 1}\n"), patch("g", "\"in\"")];
    let edit = ChoiceEdit { thoughts: vec![Some("t".into())], calls: same, ..text("a") };
    for (edits, is_guarded) in
        [(vec![], false), (vec![], true), (vec![edit.clone()], false), (vec![edit], true)]
    {
        let rendered = answer.render(&edits, false, is_guarded);
        assert_eq!((rendered.body.as_ptr(), rendered.withheld.len()), (answer.body().as_ptr(), 0));
    }
}

#[test]
fn a_changed_text_stands_in_its_own_part() {
    let cited = r#"{"type":"message","role":"assistant","content":[{"type":"new"},{ "annotations" : [{"type":"file_path"}], "type":"output_text", "text" : "a", "logprobs":[{"token":"a"}] },{"type":"refusal","refusal":"b"}]}"#;
    let changed = cited
        .replace(r#"[{"type":"file_path"}]"#, "[]")
        .replace("\"text\" : \"a\"", r#""text" : "n\"w""#)
        .replace(r#"[{"token":"a"}]"#, "[]");
    let plain = TEXT.replace("\"a\"", r#""n\"w""#);
    let second =
        |text: &str| ChoiceEdit { texts: vec![None, Some(text.to_owned())], ..ChoiceEdit::default() };
    for (given, edit, left) in [
        (vec![TEXT], text("n\"w"), vec![plain.as_str()]),
        (vec![cited, TEXT], text("n\"w"), vec![&changed, TEXT]),
        (
            vec![THOUGHT, cited, HOSTED, TEXT, CALL_A],
            text("n\"w"),
            vec![THOUGHT, &changed, HOSTED, TEXT, CALL_A],
        ),
        (vec![TEXT, CALL_A, TEXT], second("n\"w"), vec![TEXT, CALL_A, &plain]),
        (vec![cited], second(""), vec![&cited.replace(r#",{"type":"refusal","refusal":"b"}"#, "")]),
        (vec![TEXT, TEXT, CALL_A], second(""), vec![TEXT, CALL_A]),
    ] {
        assert_left(&given, edit, false, &left);
    }
    let refused = r#"{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"no"}]}"#;
    assert_left(&[refused], text("b"), true, &[&refused.replace("\"no\"", "\"b\"")]);
}

#[test]
fn an_added_text_stands_where_the_model_left_room_for_the_final_answer() {
    let with_phase = |phase: &str, text: &str| {
        format!(
            r#"{{"type":"message","phase":"{phase}","content":[{{"type":"output_text","text":"{text}"}}]}}"#
        )
    };
    let (comment, last) = (with_phase("commentary", ""), with_phase("final_answer", ""));
    let new = with_phase("final_answer", "n");
    assert_left(&[THOUGHT, &comment, SEALED, &last], text("n"), false, &[THOUGHT, &comment, SEALED, &new]);
    assert_left(&[&comment, CALL_A], text("n"), false, &[&with_phase("commentary", "n"), CALL_A]);
}

#[test]
fn an_answer_without_text_gets_a_message_before_its_first_call() {
    let new = added(0, "new");
    for (given, left) in [
        (vec![], vec![new.as_str()]),
        (vec![THOUGHT], vec![THOUGHT, &new]),
        (vec![CALL_A, CALL_B], vec![&new, CALL_A, CALL_B]),
        (vec![THOUGHT, CALL_A, SEALED], vec![THOUGHT, &new, CALL_A, SEALED]),
    ] {
        assert_left(&given, text("new"), false, &left);
    }
    let edit = |calls| ChoiceEdit { calls, ..text("new") };
    let no = added(1, "\\nno");
    assert_left(&[CALL_A], edit(vec![note("no")]), false, &[&new, &no]);
    assert_left(&[CALL_A, CALL_B], edit(vec![note("no")]), false, &[&new, &no, CALL_B]);
    assert_left(
        &[THOUGHT, CALL_A, SEALED, CALL_B],
        edit(vec![note("no")]),
        false,
        &[&new, &no, SEALED, CALL_B],
    );
    assert_left(&[CALL_A, CALL_B], edit(vec![note("no")]), true, &[&new, &refusal(1, "no"), CALL_B]);
}

#[test]
fn an_emptied_text_is_marked_only_where_nothing_but_reasoning_is_left() {
    let removed = TEXT.replace("\"a\"", "\"[removed]\"");
    for (given, left) in [
        (vec![TEXT], vec![removed.as_str()]),
        (vec![THOUGHT, TEXT, TEXT], vec![THOUGHT, &removed]),
        (vec![TEXT, CALL_A], vec![CALL_A]),
        (vec![HOSTED, TEXT], vec![HOSTED]),
        (vec![THOUGHT, TEXT, SEALED, CALL_A], vec![SEALED, CALL_A]),
    ] {
        assert_left(&given, emptied(), false, &left);
    }
    let edit = ChoiceEdit { calls: vec![note("no")], ..text("") };
    assert_left(&[TEXT, CALL_A], edit, false, &[&added(0, "no")]);
    // A client would parse the mark, and an empty text as well.
    let refused =
        TEXT.replace(r#"{"type":"output_text","text":"a"}"#, r#"{"type":"refusal","refusal":"[removed]"}"#);
    assert_left(&[THOUGHT, TEXT, TEXT], emptied(), true, &[THOUGHT, &refused]);
}

#[test]
fn changed_reasoning_stands_in_its_own_text_and_what_is_encrypted_stays() {
    let both = r#"{"type":"reasoning", "content":[{"type":"reasoning_text", "text" : "u"},{"text":"v"}],"summary":[{"type":"new"}]}"#;
    let changed = both.replace("\"u\"", r#""n\"""#);
    let without = both.replace(r#"{"type":"reasoning_text", "text" : "u"},"#, "");
    assert_left(&[SEALED, both, TEXT, THOUGHT], reasoning("n\""), false, &[SEALED, &changed, TEXT, THOUGHT]);
    assert_left(&[both, TEXT, THOUGHT], reasoning(""), false, &[&without, TEXT, THOUGHT]);
    let third = ChoiceEdit { thoughts: vec![None, None, Some("n".to_owned())], ..ChoiceEdit::default() };
    assert_left(&[both, TEXT, THOUGHT], third, false, &[both, TEXT, &THOUGHT.replace("\"t\"", "\"n\"")]);
    let opened = SEALED.replace("[]", r#"[{"type":"summary_text","text":"n"}]"#);
    assert_left(&[SEALED, TEXT], reasoning("n"), false, &[&opened, TEXT]);
    let bare = r#"{"type":"reasoning","summary":null}"#;
    let opened = r#"{"type":"reasoning","summary":[{"type":"summary_text","text":"n"}]}"#;
    assert_left(&[bare], reasoning("n"), false, &[opened]);
    // Nothing was thought here.
    assert_left(&[TEXT], reasoning("n"), false, &[TEXT]);
    // The thought goes with its call.
    let edit = ChoiceEdit { calls: vec![note("no")], ..reasoning("n") };
    assert_left(&[THOUGHT, CALL_A, SEALED, TEXT], edit, false, &[&added(0, "no\\n"), SEALED, TEXT]);
}

#[test]
fn notes_of_a_run_are_one_message_in_front_of_its_other_calls() {
    let no = added(0, "no");
    let both = added(0, "no\\nnever");
    let behind = added(0, "\\nno");
    for (given, edits, left) in [
        (vec![THOUGHT, CALL_A, CALL_B], vec![note("no")], vec![THOUGHT, &no, CALL_B]),
        (vec![THOUGHT, CALL_B, CALL_A], vec![CallEdit::Keep, note("no")], vec![THOUGHT, &no, CALL_B]),
        (vec![CALL_A, CALL_A, CALL_B], vec![note("no"), note("never")], vec![&both, CALL_B]),
        (vec![THOUGHT, TEXT, CALL_A, CALL_B], vec![note("no")], vec![THOUGHT, TEXT, &behind, CALL_B]),
        (vec![THOUGHT, TEXT, CALL_A], vec![note("no")], vec![THOUGHT, TEXT, &behind]),
        (vec![THOUGHT, CALL_A, HOSTED], vec![note("no")], vec![THOUGHT, HOSTED, &no]),
    ] {
        assert_left(&given, call_edits(edits), false, &left);
    }
    let edits = vec![note("no"), CallEdit::Keep, note("never")];
    assert_left(
        &[THOUGHT, CALL_A, CALL_B, SEALED, CALL_A, TEXT],
        call_edits(edits),
        false,
        &[THOUGHT, &added(0, "no\\n"), CALL_B, SEALED, TEXT, &added(1, "\\nnever")],
    );
}

#[test]
fn reasoning_that_led_only_to_refused_calls_goes_as_well() {
    let no = added(0, "no");
    for (given, edits, left) in [
        (vec![THOUGHT, CALL_A], vec![note("no")], vec![no.as_str()]),
        (vec![THOUGHT, SEALED, CALL_A], vec![note("no")], vec![&no]),
        (vec![CALL_B, THOUGHT, CALL_A], vec![CallEdit::Keep, note("no")], vec![CALL_B, &no]),
        (vec![THOUGHT, CALL_A, SEALED, CALL_B], vec![note("no")], vec![&no, SEALED, CALL_B]),
        (vec![THOUGHT, CALL_A, SEALED], vec![note("no")], vec![&no, SEALED]),
    ] {
        assert_left(&given, call_edits(edits), false, &left);
    }
    let both = call_edits(vec![note("no"), note("never")]);
    assert_left(&[THOUGHT, CALL_A, SEALED, CALL_B], both, false, &[&no, &added(1, "\\nnever")]);
}

#[test]
fn where_the_text_is_parsed_notes_and_messages_are_refusals() {
    let edits = || call_edits(vec![note("no"), note("never")]);
    let both = refusal(0, "no\\nnever");
    assert_left(&[TEXT, CALL_A, CALL_B], edits(), true, &[TEXT, &both]);
    assert_left(&[CALL_A, CALL_B, CALL_A], edits(), true, &[&both, CALL_A]);
    let given = answer(&list(&[TEXT, CALL_A]));
    let blocked = rendered(&given, ChoiceEdit::replaced("no\nno".into()), true);
    let message = r#"{"id":"msg_1_0","type":"message","status":"completed","content":[{"type":"refusal","refusal":"no\nno"}],"role":"assistant"}"#;
    assert_eq!(blocked, whole(&list(&[message])));
}

#[test]
fn the_copy_of_the_text_goes_where_the_text_is_changed() {
    let body = |output: &str| format!(r#"{{"output_text":"a","output":{output}}}"#);
    let given = parse(body(&list(&[TEXT, CALL_A])));
    let kept = rendered(&given, call_edits(vec![patch("h", "{\"a\": 1}")]), false);
    assert_eq!(kept, body(&list(&[TEXT, &CALL_A.replace("\"f\"", "\"h\"")])));
    let output = list(&[&TEXT.replace("\"a\"", "\"b\""), CALL_A]);
    assert_eq!(rendered(&given, text("b"), false), format!(r#"{{"output":{output}}}"#));
    let noted = rendered(&given, call_edits(vec![note("no")]), false);
    assert!(!String::from_utf8_lossy(&noted).contains("output_text\":"), "{noted:?}");
}

#[test]
fn a_changed_call_has_its_name_and_arguments_spliced() {
    let spaced = r#"{"type":"function_call", "namespace" : "n", "name":"f"}"#;
    let object = r#"{"type":"function_call","name":"f","arguments":{"a":1}}"#;
    let shell = r#"{"type":"local_shell_call","action":{"command":["ls"]}}"#;
    let search =
        r#"{"type":"tool_search_call","execution":"client","call_id":"c","arguments": {"goal":"x"}}"#;
    for (given, edit, left) in [
        (CALL_A, patch("f", " {\"b\": 2} "), CALL_A.replace(r#"{\"a\": 1}"#, r#"{\"b\": 2}"#)),
        (CALL_A, patch("h\"", "{\"a\": 1}"), CALL_A.replace("\"f\"", r#""h\"""#)),
        (CALL_B, patch("h.i", "\"o\\n\""), CALL_B.replace("\"g\"", "\"h.i\"").replace("in\"}", "o\\n\"}")),
        (CALL_B, patch("g", "[1]"), CALL_B.replace("\"in\"", "\"[1]\"")),
        (spaced, patch("n.g", "{}"), spaced.replace("\"f\"", "\"g\"")),
        (spaced, patch("n.f", "[]"), spaced.replace('}', r#","arguments":"[]"}"#)),
        (spaced, patch("f", "{}"), r#"{"type":"function_call", "name":"f"}"#.to_owned()),
        (spaced, patch("n.", "{}"), r#"{"type":"function_call", "name":"n."}"#.to_owned()),
        (spaced, patch("nn.f", "{}"), r#"{"type":"function_call", "name":"nn.f"}"#.to_owned()),
        (object, patch("f", "{\"b\":2}"), object.replace("\"a\":1", "\"b\":2")),
        (shell, patch("local_shell", "{\"command\":[]}"), shell.replace("\"ls\"", "")),
        (search, patch("tool_search", "{\"goal\":\"y\"}"), search.replace("\"x\"", "\"y\"")),
    ] {
        assert_left(&[TEXT, given], call_edits(vec![edit]), false, &[TEXT, &left]);
    }
}

#[test]
fn a_renamed_call_without_a_name_becomes_a_function_call() {
    let patched = call_edits(vec![patch("run", "{\"a\":\"b\"}")]);
    let shell = r#"{"type":"shell_call","id":"sh_1","call_id":"c","status":"completed","action":{"commands":["secret"]},"environment":null}"#;
    let function = r#"{"type":"function_call","id":"fc_1_1","call_id":"c","name":"run","arguments":"{\"a\":\"b\"}","status":"completed"}"#;
    assert_left(&[TEXT, shell, CALL_A], patched.clone(), false, &[TEXT, function, CALL_A]);
    let bare = r#"{"type":"apply_patch_call","operation":{}}"#;
    let function = r#"{"type":"function_call","id":"fc_1_0","name":"run","arguments":"{\"a\":\"b\"}"}"#;
    assert_left(&[bare], patched, false, &[function]);
}

#[test]
fn thousands_of_items_are_changed_in_one_walk() {
    let items = [vec![HOSTED; 3_072], vec![TEXT; 1_024]].concat();
    assert_left(&items, emptied(), false, &[HOSTED; 3_072]);
}
