use serde_json::{Value, json};

use super::super::answer_tests::{
    CALL_A, TEXT, THOUGHT, added, answer, assert_left, call_edits, emptied, list, note, parse, patch,
    refusal, rendered, text,
};
use crate::llm::format::{CallEdit, ChoiceEdit, FormatAnswer as _};

fn message(content: &str) -> String {
    format!(r#"{{"type":"message","role":"assistant","content":{content}}}"#)
}

fn blocked(body: &str, is_guarded: bool) -> (Value, Vec<String>) {
    let rendered = parse(body.to_owned()).render(&[ChoiceEdit::replaced("no".into())], false, is_guarded);
    (serde_json::from_slice(&rendered.body).expect("JSON"), rendered.withheld)
}

/// The ids of the items that an edit leaves of an answer.
fn ids(body: &Value, edit: ChoiceEdit) -> Vec<String> {
    let left: Value = serde_json::from_slice(&rendered(&parse(body.to_string()), edit, false)).expect("JSON");
    let ids = left["output"].as_array().expect("a list").iter().map(|item| item["id"].as_str());
    ids.map(|id| id.expect("an id").to_owned()).collect()
}

#[test]
fn a_block_replaces_everything_the_model_said() {
    let long = "x".repeat(65);
    let body = json!({
        "id": "resp_1", "object": "response", "created_at": 1.5, "completed_at": null, "model": "m",
        "status": "incomplete", "incomplete_details": { "reason": "max_output_tokens" },
        "error": { "code": "c", "message": "secret" }, "output_text": "secret", "new": { "a": "short" }, "long": long,
        "setting": "short", "temperature": 1, "service_tier": "secret", "parallel_tool_calls": false,
        "usage": { "output_tokens": 1, "note": "secret", "details": { "a": 1, "b": null }, "more": { "a": ["b"] } },
        "instructions": long, "tools": [], "text": { "format": { "type": "text" } }, "prompt": { "id": "p" },
        "output": [
            { "type": "message", "id": "msg_1_9", "content": [{ "type": "output_text", "text": "secret" }] },
            { "type": "function_call", "id": "fc_1", "name": "f", "arguments": "{}" },
        ],
    });
    for is_guarded in [true, false] {
        let (left, withheld) = blocked(&body.to_string(), is_guarded);
        let part = json!({ "type": "output_text", "annotations": [], "logprobs": [], "text": "no" });
        let expected = json!({
            "id": "resp_1", "object": "response", "created_at": 1.5, "completed_at": null, "model": "m",
            "status": "completed", "incomplete_details": null, "error": null, "parallel_tool_calls": false,
            "temperature": 1, "usage": { "output_tokens": 1, "details": { "a": 1, "b": null } },
            "instructions": null, "tools": [], "text": { "format": { "type": "text" } },
            "output": [{ "id": "msg_1_0", "type": "message", "status": "completed", "content": [part],
                         "role": "assistant" }],
        });
        assert_eq!(left, expected);
        let names = ["long", "more", "new", "note", "output_text", "prompt", "service_tier", "setting"];
        assert_eq!(withheld, names);
    }
}

#[test]
fn what_a_blocked_answer_keeps_is_of_its_kind() {
    let body = json!({
        "id": "a secret", "created_at": "secret", "completed_at": { "a": 1 },
        "model": ["secret"], "parallel_tool_calls": "secret", "usage": ["secret"], "output": [],
    });
    let (mut left, _) = blocked(&body.to_string(), true);
    let body = parse(r#"{"output":[],"object":"response"}"#);
    assert!(body.render(&[ChoiceEdit::replaced("no".into())], false, true).withheld.is_empty());
    left["output"].take();
    assert_eq!(left, json!({ "output": null, "status": "completed" }));
    let numbers: String = (0..2000).map(|index| format!(r#""count-{index}":1,"#)).collect();
    let (left, _) = blocked(&format!(r#"{{"output":[],"usage":{{{numbers}"a":"b"}}}}"#), true);
    assert_eq!(left["usage"], json!(null));
}

#[test]
fn what_is_added_has_an_id_that_no_other_answer_has() {
    let call: Value = serde_json::from_str(CALL_A).expect("JSON");
    let shell = json!({ "type": "shell_call", "id": "sh_1", "action": {} });
    let body = |id: &str| json!({ "id": id, "output": [call, shell] });
    let edits = || call_edits(vec![note("no"), patch("run", "{}")]);
    let longest = "x".repeat(50);
    for (id, part) in [("resp_1-a", "1-a"), ("b_2", "b_2"), (&format!("resp_{longest}"), &longest)] {
        assert_eq!(ids(&body(id), edits()), [format!("msg_{part}_0"), format!("fc_{part}_1")]);
    }
    for id in [String::new(), "resp_".to_owned(), "resp_two words".to_owned(), format!("resp_{longest}y")] {
        let made = [ids(&body(&id), edits()), ids(&body(&id), edits())].concat();
        assert!(made.iter().all(|made| made.len() > 32 && made.len() < 64), "{made:?}");
        assert!(
            id.is_empty() || !made.iter().any(|made| made.contains("two") || made.contains("xx")),
            "{made:?}"
        );
        assert_eq!(made[0].split('_').nth(1), made[1].split('_').nth(1), "one for the answer");
        assert_ne!(made[0], made[2]);
    }
}

#[test]
fn a_replacement_has_another_id_than_what_it_replaces() {
    let message = json!({ "type": "message", "id": "msg_1", "content": [] });
    let body = json!({ "id": "resp_1", "output": [message] });
    assert_eq!(ids(&body, ChoiceEdit::replaced("no".into())), ["msg_1_0"]);
}

#[test]
fn a_changed_refusal_stays_a_refusal_and_the_mark_of_an_emptied_text_becomes_one() {
    let (refused, said) = (r#"{"type":"refusal","refusal":"a"}"#, r#"{"type":"output_text","text":"b"}"#);
    let new = refused.replace("\"a\"", "\"n\"");
    assert_left(&[&message(&list(&[refused, said]))], text("n"), false, &[&message(&list(&[&new, said]))]);
    let marked = r#"[{"type":"refusal","refusal":"[removed]"}]"#;
    assert_left(&[&message(&list(&[refused, said]))], emptied(), true, &[&message(marked)]);
}

#[test]
fn an_emptied_text_is_never_an_empty_text_where_it_is_parsed() {
    let given = answer(&list(&[TEXT]));
    for expects_json in [false, true] {
        let after = parse(rendered(&given, text(""), expects_json));
        assert_eq!(after.parts.texts, ["[removed]"]);
    }
}

#[test]
fn notes_are_lines_of_their_own_before_and_behind_texts() {
    let edits = |notes: usize| call_edits(vec![note("no"); notes]);
    let empty = message(r#"[{"type":"output_text","text":""}]"#);
    let no = |number, text| added(number, text);
    for (given, notes, left) in [
        (vec![CALL_A, TEXT], 1, vec![TEXT.to_owned(), no(0, "\\nno")]),
        (vec![CALL_A, THOUGHT, TEXT], 1, vec![no(0, "no\\n"), THOUGHT.to_owned(), TEXT.to_owned()]),
        (vec![CALL_A, THOUGHT, &empty], 1, vec![no(0, "no"), THOUGHT.to_owned(), empty.clone()]),
        // One line break is enough between two notes.
        (
            vec![CALL_A, THOUGHT, CALL_A, THOUGHT, TEXT],
            2,
            vec![no(0, "no"), no(1, "\\nno\\n"), THOUGHT.to_owned(), TEXT.to_owned()],
        ),
        (
            vec![TEXT, CALL_A, THOUGHT, TEXT],
            1,
            vec![TEXT.to_owned(), no(0, "\\nno\\n"), THOUGHT.to_owned(), TEXT.to_owned()],
        ),
    ] {
        let left: Vec<&str> = left.iter().map(String::as_str).collect();
        assert_left(&given, edits(notes), false, &left);
    }
    assert_left(&[CALL_A, THOUGHT, TEXT], edits(1), true, &[&refusal(0, "no"), THOUGHT, TEXT]);
    let kept = call_edits(vec![note("no"), CallEdit::Keep]);
    let given = [CALL_A, CALL_A, THOUGHT, TEXT];
    assert_left(&given, kept, false, &[&no(0, "no\\n"), CALL_A, THOUGHT, TEXT]);
}
