use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    ResponsesAnswer,
    answer::OutputKind,
    answer_tests::{note, parse, patch},
};
use crate::llm::{
    answer_parts::edited,
    format::{CallEdit, ChoiceEdit, FormatAnswer},
};

/// A text that stands nowhere in what an edit asks for.
const CANARY: &str = "CANARY";

/// A text with a canary, too long for a setting.
fn canary() -> String {
    format!("{CANARY}{}", "x".repeat(65))
}

fn text_part() -> impl Strategy<Value = Value> {
    let token = |text: &str| json!({ "token": text, "logprob": 0, "top_logprobs": [{ "token": CANARY }] });
    let copies = move |text: &str| {
        json!({
            "type": "output_text", "text": text, "logprobs": [token(text)],
            "annotations": [{ "type": "url_citation", "url": CANARY, "title": text }],
        })
    };
    prop_oneof![
        "[ab]{0,2}".prop_map(move |text| copies(&(text + CANARY))),
        "[ab]{0,2}".prop_map(|text| json!({ "type": "output_text", "text": text + CANARY })),
        "[ab]{0,2}".prop_map(|text| json!({ "type": "refusal", "refusal": text + CANARY, "more": canary() })),
        Just(json!({ "type": "new", "text": CANARY })),
    ]
}

/// An item with few, short texts, so that all kinds meet.
fn item() -> impl Strategy<Value = Value> {
    let thoughts =
        || prop::collection::vec("[cd]{0,2}".prop_map(|text| json!({ "type": "s", "text": text })), 0..3);
    prop_oneof![
        3 => (prop::collection::vec(text_part(), 0..3), prop::sample::select(vec![json!(null), json!("final_answer")]))
            .prop_map(|(content, phase)| json!({ "type": "message", "id": "msg_x", "role": "assistant", "phase": phase,
                                                 "content": content, "more": canary() })),
        3 => (thoughts(), thoughts()).prop_map(|(summary, content)| json!({
            "type": "reasoning", "id": "rs_x", "summary": summary, "content": content, "encrypted_content": "e" })),
        2 => "[fg]".prop_map(|name| json!({ "type": "function_call", "namespace": "n", "name": name, "arguments": "{}" })),
        1 => Just(json!({ "type": "custom_tool_call", "name": "f", "input": "i" })),
        1 => Just(json!({ "type": "shell_call", "id": "sh_1", "action": { "commands": [] } })),
        1 => Just(json!({ "type": "web_search_call", "query": CANARY })),
    ]
}

fn output() -> impl Strategy<Value = Vec<Value>> {
    prop::collection::vec(item(), 0..8)
}

fn call_edit() -> impl Strategy<Value = CallEdit> {
    prop_oneof![Just(CallEdit::Keep), Just(patch("n.h", "{\"b\":1}")), Just(note("no"))]
}

/// Another text, or none, for each of the first parts.
fn edits(text: &'static str) -> impl Strategy<Value = Vec<Option<String>>> {
    prop::collection::vec(prop::option::of(text), 0..6)
}

fn body(output: &[Value], is_pretty: bool) -> String {
    let body = json!({ "id": "resp_1", "object": "response", "status": "incomplete", "output_text": CANARY,
                       "incomplete_details": { "reason": "max_output_tokens" }, "output": output, "more": [CANARY] });
    if is_pretty { serde_json::to_string_pretty(&body).expect("JSON") } else { body.to_string() }
}

fn value(json: &[u8]) -> Value {
    serde_json::from_slice(json).expect("JSON")
}

fn has_canary(json: &[u8]) -> bool {
    String::from_utf8_lossy(json).contains(CANARY)
}

/// The output with the place of each item in its id.
fn with_places(mut output: Vec<Value>) -> Vec<Value> {
    output.iter_mut().enumerate().for_each(|(place, item)| item["id"] = json!(format!("x_{place}")));
    output
}

/// The old place of each item of a rendered answer; `None` for what was added.
fn places(rendered: &[u8]) -> Vec<Option<usize>> {
    let output = value(rendered)["output"].take();
    let place = |item: &Value| {
        let (prefix, place) = item["id"].as_str().expect("an id").split_once('_').expect("a place");
        // A call in another form has a new id with its place.
        let is_new_call = prefix == "fc";
        (if is_new_call { place.strip_prefix("1_").unwrap_or(place) } else { place }).parse().ok()
    };
    output.as_array().expect("a list").iter().map(place).collect()
}

/// The places of the thoughts that each run of an output begins with, and of what they led to.
fn runs(kinds: &[OutputKind]) -> Vec<(Vec<usize>, Vec<usize>)> {
    let mut runs = vec![(Vec::new(), Vec::new())];
    for (place, kind) in kinds.iter().enumerate() {
        let (thoughts, rest): &mut (Vec<usize>, Vec<usize>) = runs.last_mut().expect("one run");
        match (kind, rest.is_empty()) {
            (OutputKind::Reasoning, true) => thoughts.push(place),
            (OutputKind::Reasoning, false) => runs.push((vec![place], Vec::new())),
            _ => rest.push(place),
        }
    }
    runs
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn without_an_edit_and_a_guard_an_answer_keeps_its_bytes(output in output(), is_pretty: bool, expects_json: bool) {
        let body = body(&output, is_pretty);
        let before = parse(body.clone());
        for edits in [vec![], vec![ChoiceEdit::default()]] {
            let rendered = before.render(&edits, expects_json, false);
            prop_assert_eq!(&rendered.body[..], body.as_bytes());
            prop_assert_eq!(rendered.body.as_ptr(), before.body().as_ptr());
            prop_assert_eq!(rendered.withheld.len(), 0);
        }
    }

    #[test]
    fn an_edited_answer_says_what_the_edit_says(
        output in output(),
        texts in edits("[ab]{0,2}"),
        thoughts in edits("[cd]{0,2}"),
        calls in prop::collection::vec(call_edit(), 0..5),
        is_guarded: bool,
        is_pretty: bool,
        expects_json: bool,
    ) {
        let before = parse(body(&output, is_pretty));
        let edit = ChoiceEdit { texts, thoughts, calls, ..ChoiceEdit::default() };
        let rendered = before.render(std::slice::from_ref(&edit), expects_json, is_guarded).body;
        let after = parse(rendered.clone());
        // Notes and marks have letters and spaces of their own.
        let mut said: Vec<String> = after.parts.texts.clone();
        let is_note = |text: &str| text.trim_matches('\n').split('\n').all(|line| line == "no");
        said.retain(|text| !is_note(text));
        let is_mark = said.iter().any(|text| ["[removed]", "The answer was withheld."].contains(&text.as_str()));
        let expected = edited(&before.parts.texts, &edit.texts);
        prop_assert_eq!(if is_mark { &[] } else { &*said }, &*expected);
        let edits: Vec<CallEdit> =
            (0..before.calls(0)).map(|call| edit.calls.get(call).cloned().unwrap_or(CallEdit::Keep)).collect();
        let notes = edits.iter().filter(|edit| matches!(edit, CallEdit::Note(_))).count();
        prop_assert_eq!(after.parts.texts.concat().matches("no").count(), notes);
        prop_assert!(!is_mark || (said.len() == 1 && notes == 0 && after.calls(0) == 0), "a mark where more is left");
        let mut left = 0;
        for (call, edit) in edits.iter().enumerate() {
            let mut payload = before.call_payload(0, call).expect("JSON");
            match edit {
                CallEdit::Keep => {}
                CallEdit::Patch { name, args } => {
                    let is_text = before.args_kind(0, call) == Some(crate::json::ValueKind::String);
                    (payload.tool_name, payload.args) = (name.clone(), args.clone());
                    if is_text {
                        payload.args = json!("{\"b\":1}").to_string().into();
                    }
                }
                CallEdit::Note(_) => continue,
            }
            let found = after.call_payload(0, left).expect("JSON");
            // The call of a function has another prefix in its id.
            prop_assert_eq!((found.tool_name, found.args), (payload.tool_name, payload.args));
            left += 1;
        }
        prop_assert_eq!(after.calls(0), left);
        let is_left = after.items.contains(&OutputKind::Reasoning);
        let thoughts = edited(&before.parts.thoughts, &edit.thoughts);
        if before.parts.thoughts.is_empty() && is_left {
            prop_assert_eq!(&after.parts.thoughts, &thoughts);
        }
        // Thoughts that led to nothing are left out.
        let mut rest = thoughts.iter();
        prop_assert!(after.parts.thoughts.iter().all(|left| rest.any(|thought| thought == left)));
        let changed = (0..before.parts.texts.len()).all(|place| edit.texts.get(place).is_some_and(Option::is_some));
        if is_guarded && changed {
            prop_assert!(!has_canary(&rendered));
        }
    }

    #[test]
    fn nothing_of_a_replaced_answer_is_left(output in output(), is_guarded: bool, is_pretty: bool, expects_json: bool) {
        let before = parse(body(&output, is_pretty));
        let edit = ChoiceEdit { texts: vec![Some("b".into())], ..ChoiceEdit::replaced("no".into()) };
        let rendered = before.render(&[edit], expects_json, is_guarded).body;
        prop_assert!(!has_canary(&rendered));
        let after = parse(rendered.clone());
        prop_assert_eq!((after.parts.texts.as_slice(), after.calls(0), after.items.as_slice()), (&["no".to_owned()][..], 0, &[OutputKind::Message][..]));
        prop_assert_eq!((after.parts.thoughts.len(), after.stop_reason.as_deref()), (0, Some("completed")));
        let kind = &value(&rendered)["output"][0]["content"][0]["type"];
        prop_assert_eq!(kind, if expects_json { "refusal" } else { "output_text" });
        prop_assert_eq!(&value(&rendered)["output"][0]["id"], "msg_1_0");
    }

    #[test]
    fn reasoning_stays_exactly_where_something_is_left_that_it_led_to(
        output in output(), calls in prop::collection::vec(call_edit(), 0..5), texts in edits("[ab]{0,2}"),
        is_guarded: bool, is_pretty: bool,
    ) {
        let before = parse(body(&with_places(output), is_pretty));
        let edit = ChoiceEdit { calls, texts, ..ChoiceEdit::default() };
        let rendered = before.render(std::slice::from_ref(&edit), false, is_guarded).body;
        let places = places(&rendered);
        let old: Vec<usize> = places.iter().copied().flatten().collect();
        prop_assert!(old.is_sorted(), "what is left keeps its order");
        for (thoughts, rest) in runs(&before.items) {
            let is_left = rest.is_empty() || rest.iter().any(|place| old.contains(place));
            for thought in &thoughts {
                prop_assert_eq!(old.contains(thought), is_left, "{:?} of {:?}", thought, rest);
            }
        }
    }

    #[test]
    fn notes_stand_right_in_front_of_the_first_call_that_is_left_of_their_run(
        output in output(), calls in prop::collection::vec(call_edit(), 0..5), is_pretty: bool,
    ) {
        let before = parse(body(&with_places(output), is_pretty));
        let rendered = before.render(&[ChoiceEdit { calls: calls.clone(), ..ChoiceEdit::default() }], false, true).body;
        let places = places(&rendered);
        let is_call = |place: &&usize| before.items[**place] == OutputKind::Call;
        let mut edits = calls.iter();
        for (_, rest) in runs(&before.items) {
            let calls: Vec<usize> = rest.iter().filter(is_call).copied().collect();
            let refused = calls.iter().filter(|_| matches!(edits.next(), Some(CallEdit::Note(_)))).count();
            let left = calls.iter().find_map(|call| places.iter().position(|place| *place == Some(*call)));
            if let Some(left) = left {
                let is_behind_note = left > 0 && places[left - 1].is_none();
                // The notes of a run of which nothing is left come in front of what is left behind it.
                prop_assert!(is_behind_note || refused == 0);
            }
        }
        let expected = value(&rendered);
        let (mut said, mut is_behind_note) = (String::new(), false);
        for item in expected["output"].as_array().expect("a list") {
            let parts = item["content"].as_array().filter(|_| item["type"] == "message").into_iter().flatten();
            let text: String = parts.filter_map(|part| part["text"].as_str().or(part["refusal"].as_str())).collect();
            let is_note = text.trim_matches('\n').split('\n').all(|line| line == "no");
            if is_note {
                prop_assert_eq!(text.starts_with('\n'), !said.is_empty(), "a note is a line of its own");
            } else if is_behind_note && !text.is_empty() {
                prop_assert!(said.ends_with('\n'), "a text behind a note is a line of its own");
            }
            prop_assert!(!said.ends_with('\n') || !text.starts_with('\n'), "one line break is enough");
            is_behind_note = if text.is_empty() { is_behind_note } else { is_note };
            said.push_str(&text);
        }
    }

    #[test]
    fn any_bytes_are_answered_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), is_guarded: bool) {
        if let Ok(answer) = ResponsesAnswer::parse(bytes.into(), 1) {
            answer.render(&[ChoiceEdit::replaced("no".into())], false, is_guarded);
        }
    }
}
