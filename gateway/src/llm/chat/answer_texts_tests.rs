use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::answer_tests::{answer, call, parse, rendered, text};
use crate::llm::{
    answer_parts::edited,
    format::{ChoiceEdit, FormatAnswer as _},
};

#[test]
fn a_changed_refusal_keeps_its_place_and_copies_of_the_text_go() {
    let answer = answer(&json!({
        "role": "assistant", "content": null, "refusal": "no", "annotations": [{}], "audio": { "data": "x" }
    }));
    let choice = rendered(&answer, text("new"), false);
    assert_eq!(choice["message"], json!({ "role": "assistant", "content": null, "refusal": "new" }));
    assert_eq!((&choice["logprobs"], &choice["finish_reason"]), (&json!(null), &json!("tool_calls")));
}

#[test]
fn an_emptied_refusal_is_none() {
    let answer = answer(&json!({ "content": "a", "refusal": "no" }));
    let edit = ChoiceEdit { texts: vec![None, Some(String::new())], ..ChoiceEdit::default() };
    assert_eq!(rendered(&answer, edit, false)["message"], json!({ "content": "a", "refusal": null }));
}

#[test]
fn where_a_text_is_changed_the_words_of_audio_stand_in_the_content() {
    let texts = |texts: &[Option<&str>]| ChoiceEdit {
        texts: texts.iter().map(|text| text.map(str::to_owned)).collect(),
        ..ChoiceEdit::default()
    };
    let audio = json!({ "id": "a", "data": "x", "transcript": "b" });
    for (content, edit, left) in [
        (json!(null), texts(&[Some("n")]), json!("n")),
        (json!("a"), texts(&[None, Some("n")]), json!("a\nn")),
        (json!("a"), texts(&[Some("n")]), json!("n\nb")),
        (json!("a"), texts(&[None, Some("")]), json!("a")),
        (
            json!([{ "type": "text", "text": "a" }]),
            texts(&[None, Some("")]),
            json!([{ "type": "text", "text": "a" }]),
        ),
        (
            json!([{ "type": "text", "text": "a" }]),
            texts(&[None, Some("n")]),
            json!([{ "type": "text", "text": "a" }, { "type": "text", "text": "n" }]),
        ),
    ] {
        let choice = rendered(&answer(&json!({ "content": content, "audio": audio })), edit, false);
        assert_eq!(choice["message"], json!({ "content": left }));
    }
}

#[test]
fn a_part_of_a_list_takes_its_own_change_and_the_others_stay() {
    let text = |text: &str| json!({ "type": "text", "text": text, "annotations": [{ "type": "x" }] });
    let thought = |text: &str| json!({ "type": "thinking", "thinking": [{ "type": "text", "text": text }] });
    let image = json!({ "type": "image_url", "image_url": { "url": "u" } });
    let given = answer(
        &json!({ "content": [text("a"), thought("t"), "b", image, text("c")], "tool_calls": [call("f")] }),
    );
    assert_eq!(
        (&*given.parts(0).texts, &*given.parts(0).thoughts),
        (&["a", "b", "c"].map(String::from)[..], &["t".to_owned()][..])
    );
    let edit = ChoiceEdit {
        texts: vec![None, Some("B".to_owned()), Some("C".to_owned())],
        thoughts: vec![Some("T".to_owned())],
        ..ChoiceEdit::default()
    };
    let changed = json!({ "type": "text", "text": "C" });
    let choice = rendered(&given, edit, false);
    assert_eq!(choice["message"]["content"], json!([text("a"), thought("T"), "B", image, changed]));
    assert_eq!(choice["message"]["tool_calls"], json!([call("f")]));
}

#[test]
fn texts_that_are_cut_by_a_reference_are_one_text() {
    let part = |text: &str| json!({ "type": "text", "text": text });
    let reference = json!({ "type": "reference", "reference_ids": [1] });
    for (content, texts) in [
        (json!([part("a"), reference, part("b"), part("c")]), vec!["ab", "c"]),
        (json!([part("a"), reference, reference, part("b")]), vec!["ab"]),
        (json!([reference, part("a")]), vec!["a"]),
        (json!([part("a"), { "type": "new" }, reference, part("b")]), vec!["a", "b"]),
        (json!([part("a"), reference, { "type": "refusal", "refusal": "b" }]), vec!["a", "b"]),
        (json!([part("a"), reference, { "type": "text", "text": ["b", "c"] }]), vec!["ab", "c"]),
        (json!([part("a"), reference, { "type": "thinking", "thinking": "t" }, part("b")]), vec!["a", "b"]),
    ] {
        assert_eq!(answer(&json!({ "content": content })).parts(0).texts, texts, "{content}");
    }
    let given = answer(&json!({ "content": [part("a"), reference, part("b")] }));
    let choice = rendered(&given, text("n"), false);
    assert_eq!(choice["message"]["content"], json!([part("n"), reference, part("")]));
}

#[test]
fn changed_reasoning_stands_in_its_own_place() {
    let edit =
        |reasoning: &str| ChoiceEdit { thoughts: vec![Some(reasoning.to_owned())], ..ChoiceEdit::default() };
    let details = |text: &str| json!([{ "text": text }, { "text": "other" }]);
    for (given, reasoning, expected) in [
        // Plugins are asked once about a thought that the provider repeats.
        (
            json!({ "content": "a", "reasoning": "old", "reasoning_details": details("old") }),
            "new",
            json!({ "content": "a", "reasoning": "new", "reasoning_details": details("new") }),
        ),
        (
            json!({ "content": "a", "reasoning_details": details("old") }),
            "new",
            json!({ "content": "a", "reasoning_details": details("new") }),
        ),
        (
            json!({ "content": "a", "reasoning_content": "old", "reasoning_details": details("old") }),
            "",
            json!({ "content": "a", "reasoning_details": details("") }),
        ),
        (json!({ "content": "a" }), "new", json!({ "content": "a", "reasoning_content": "new" })),
        (json!({ "content": "a", "reasoning": "" }), "new", json!({ "content": "a", "reasoning": "new" })),
    ] {
        let choice = rendered(&answer(&given), edit(reasoning), false);
        assert_eq!((&choice["message"], &choice["logprobs"]), (&expected, &json!(null)));
    }
}

/// A part of a content with few, short texts, so that all kinds meet.
fn content_part() -> impl Strategy<Value = Value> {
    prop_oneof![
        "[ab]{0,2}"
            .prop_map(|text| json!({ "type": "text", "text": text, "annotations": [{ "type": "x" }] })),
        "[ab]{0,2}".prop_map(|text| json!({ "type": "text", "text": [text, "c"] })),
        "[ab]{0,2}".prop_map(|text| json!({ "type": "refusal", "refusal": text })),
        "[ab]{0,2}"
            .prop_map(|text| json!({ "type": "thinking", "thinking": [{ "type": "text", "text": text }] })),
        "[ab]{0,2}".prop_map(|text| json!(text)),
        Just(json!({ "type": "reference", "reference_ids": [1] })),
        Just(json!({ "type": "new" })),
    ]
}

fn message() -> impl Strategy<Value = Value> {
    let content = prop_oneof![
        prop::collection::vec(content_part(), 0..6).prop_map(|parts| json!(parts)),
        "[ab]{0,2}".prop_map(|text| json!(text)),
        Just(Value::Null),
    ];
    let text = || prop::option::of("[ab]{0,2}");
    let details = prop::collection::vec("[ab]{0,2}".prop_map(|text| json!({ "text": text })), 0..3);
    (content, text(), text(), text(), details).prop_map(|(content, refusal, transcript, reasoning, details)| {
        json!({ "content": content, "refusal": refusal, "audio": { "data": "x", "transcript": transcript },
                "reasoning": reasoning, "reasoning_details": details, "annotations": [] })
    })
}

fn part_edits() -> impl Strategy<Value = Vec<Option<String>>> {
    prop::collection::vec(prop::option::of("[ab]{0,2}"), 0..8)
}

proptest! {
    #[test]
    fn an_edited_answer_says_what_the_edit_says(message in message(), texts in part_edits(), thoughts in part_edits()) {
        let before = answer(&message);
        let edit = ChoiceEdit { texts, thoughts, ..ChoiceEdit::default() };
        let after = parse(&serde_json::from_slice(&before.render(std::slice::from_ref(&edit), false, false).body).expect("JSON"));
        let expected = edited(&before.parts(0).texts, &edit.texts);
        // Emptied and added texts, and the words of audio, may stand elsewhere.
        let (mut said, mut meant) = (after.parts(0).texts.concat(), expected.concat());
        if message["audio"]["transcript"].is_string() {
            said = said.replace('\n', "").chars().rev().collect();
            let sorted = |text: &str| { let mut all: Vec<char> = text.chars().collect(); all.sort_unstable(); all };
            prop_assert_eq!(sorted(&said), sorted(&meant));
            (said, meant) = (String::new(), String::new());
        }
        prop_assert_eq!(said, meant);
        // What became the same is one thought.
        let all = |thoughts: &[String]| thoughts.iter().cloned().collect::<std::collections::BTreeSet<_>>();
        let thoughts = edited(&before.parts(0).thoughts, &edit.thoughts);
        prop_assert_eq!(all(&after.parts(0).thoughts), all(&thoughts));
    }
}
