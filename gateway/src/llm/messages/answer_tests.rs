use bytes::Bytes;
use hookgate_proto::types::v1::TokenUsage;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    MessagesAnswer, TokenCount,
    answer::BlockKind,
    test_edits::{call_edits, note, reasoning, text},
};
use crate::llm::{
    answer_parts::{edited, part_payload},
    format::{AnswerError, CallEdit, ChoiceEdit, FormatAnswer},
};

fn parse(body: impl Into<Bytes>) -> MessagesAnswer {
    MessagesAnswer::parse(body.into(), 1).expect("a valid answer")
}

/// An answer that stopped for a tool, with this content.
fn answer(content: &str) -> MessagesAnswer {
    parse(with_end(content, "tool_use", ""))
}

fn with_end(content: &str, stop_reason: &str, details: &str) -> String {
    format!(
        r#"{{"type":"message","content":{content},"stop_reason":"{stop_reason}","stop_sequence":null{details}}}"#
    )
}

fn rendered(answer: &MessagesAnswer, edit: ChoiceEdit, expects_json: bool) -> Bytes {
    answer.render(&[edit], expects_json, false).body
}

const CALL_A: &str = r#"{"type":"tool_use","id":"a","name":"f","input":{"a": 1}}"#;
const CALL_B: &str = r#"{"type":"tool_use","id":"b","name":"g","input":{}}"#;
const THOUGHT: &str = r#"{"type":"thinking","thinking":"t","signature":"s"}"#;
const TEXT: &str = r#"{"type":"text","text":"a"}"#;

/// All texts become empty.
fn emptied() -> ChoiceEdit {
    ChoiceEdit { texts: vec![Some(String::new()); 4_096], ..ChoiceEdit::default() }
}

fn note_block(note: &str) -> String {
    format!(r#"{{"type":"text","text":"{note}"}}"#)
}

fn list(blocks: &[&str]) -> String {
    format!("[{}]", blocks.join(","))
}

#[test]
fn what_is_no_answer_is_refused_with_the_reason() {
    for (body, reason) in [
        ("<html>", "not valid JSON"),
        ("[]", "no array `content`"),
        (r#"{"content":"a"}"#, "no array `content`"),
        (r#"{"type":"error","content":[]}"#, "`type` is not `message`"),
        (r#"{"type":1,"content":[]}"#, "`type` is not `message`"),
        (r#"{"content":["a"]}"#, "`content/0`: it is no object with a string `type`"),
        (r#"{"content":[{"text":"a"}]}"#, "`content/0`: it is no object with a string `type`"),
        (r#"{"content":[{"type":"x"},{"type":{}}]}"#, "`content/1`: it is no object with a string `type`"),
        (r#"{"content":[{"type":"text","text":["a"]}]}"#, "`content/0`: it has no string `text`"),
        (r#"{"content":[{"type":"thinking"}]}"#, "`content/0`: it has no string `thinking`"),
        (r#"{"content":[{"type":"tool_use","input":{}}]}"#, "`content/0`: it has no string `name`"),
        (r#"{"content":[{"type":"tool_use","name":""}]}"#, "`content/0`: a tool's name is 0 bytes long"),
        (r#"{"content":[],"content":[]}"#, "the key `/content` twice"),
    ] {
        match MessagesAnswer::parse(Bytes::from_static(body.as_bytes()), 1) {
            Err(AnswerError::Invalid(error)) => assert!(error.contains(reason), "{body}: {error}"),
            other => panic!("{body}: {other:?}"),
        }
    }
}

#[test]
fn a_tools_name_has_at_most_256_bytes() {
    let body = |length: usize| {
        json!({ "content": [{ "type": "tool_use", "name": "n".repeat(length) }] }).to_string()
    };
    assert_eq!(parse(body(256)).calls(0), 1);
    let error = MessagesAnswer::parse(body(257).into(), 1).expect_err("a long name");
    assert_eq!(error, AnswerError::Invalid("`content/0`: a tool's name is 257 bytes long".to_owned()));
}

#[test]
fn an_answer_has_one_choice_and_at_most_128_tool_calls() {
    let body = |calls: usize| format!(r#"{{"content":{}}}"#, list(&vec![CALL_A; calls]));
    let most = parse(body(128));
    assert_eq!((most.choices(), most.calls(0), most.calls(1)), (1, 128, 0));
    let error = MessagesAnswer::parse(body(129).into(), 1).expect_err("too many calls");
    let sentence = "the answer has 129 tool calls, more than 128";
    assert_eq!(error, AnswerError::TooLarge(sentence.to_owned()));
}

#[test]
fn blocks_citations_and_signatures_of_an_answer_are_limited() {
    let content =
        |blocks: &[&str], count: usize| format!(r#"{{"content":{}}}"#, list(&vec![blocks; count].concat()));
    let cited = format!(r#"{{"type":"text","text":"","citations":{}}}"#, list(&vec!["{}"; 1024]));
    let signed = json!({ "type": "thinking", "thinking": "", "signature": "s".repeat(1 << 18) }).to_string();
    let redacted = json!({ "type": "redacted_thinking", "data": "d".repeat(1 << 18) }).to_string();
    // What is of another kind doesn't count.
    let other =
        json!({ "type": "new", "data": "d".repeat(1 << 18), "citations": [1], "signature": "s" }).to_string();
    let (one_citation, one_byte) =
        (r#"{"type":"text","text":"","citations":[1]}"#, r#"{"type":"redacted_thinking","data":"d"}"#);
    for (most, one_more, sentence) in [
        (content(&[r#"{"type":"new"}"#], 4096), r#"{"type":"new"}"#, "4097 content blocks, more than 4096"),
        (content(&[&cited, &other], 4), one_citation, "4097 citations, more than 4096"),
        (
            content(&[&signed, &redacted, &other], 2),
            one_byte,
            "1048577 bytes of signatures, more than 1048576",
        ),
    ] {
        parse(most.clone());
        let body = most.replacen('[', &format!("[{one_more},"), 1);
        let error = MessagesAnswer::parse(body.into(), 1).expect_err("too much");
        assert_eq!(error, AnswerError::TooLarge(format!("the answer has {sentence}")));
    }
}

#[test]
fn a_call_has_the_name_of_its_toolset_as_extra() {
    let given = r#"[{"type":"tool_use","name":"f","toolset_name":"a\"b"},{"type":"tool_use","name":"f","toolset_name":null}]"#;
    let answer = answer(given);
    let extra = |call| answer.call_payload(0, call).expect("a call").extra;
    assert_eq!([extra(0), extra(1)], [&br#"{"toolset_name":"a\"b"}"#[..], b""]);
}

#[test]
fn each_text_is_shown_with_a_thought() {
    let answer = parse(
        json!({
            "model": "m-2", "stop_reason": "max_tokens",
            "usage": { "input_tokens": 3, "output_tokens": 4, "cache_creation_input_tokens": 5,
                       "cache_read_input_tokens": 6, "cache_creation": { "ephemeral_5m_input_tokens": 5 } },
            "content": [
                { "type": "thinking", "thinking": "a", "signature": "s" }, { "type": "text", "text": "b" },
                { "type": "redacted_thinking", "data": "d" }, { "type": "new", "text": "no" },
                { "type": "thinking", "thinking": "c", "signature": "s" }, { "type": "text", "text": "\u{e9}" },
            ],
        })
        .to_string(),
    );
    let shown = |part| part_payload(&answer, 0, part);
    let texts: Vec<_> = (0..2).map(|part| (shown(part).content, shown(part).reasoning)).collect();
    assert_eq!(texts, [("b".into(), Some("a".into())), ("\u{e9}".into(), Some("c".into()))]);
    for (part, usage) in [(0, Some(TokenUsage { input: 14, output: 4 })), (1, None)] {
        assert_eq!(
            (shown(part).model.as_deref(), shown(part).stop_reason.as_deref()),
            (Some("m-2"), Some("max_tokens"))
        );
        assert_eq!(shown(part).token_usage, usage, "the usage counts once");
    }
    let empty = part_payload(&parse(r#"{"content":[],"usage":{"input_tokens":1},"stop_reason":null}"#), 0, 0);
    assert_eq!((empty.content.as_str(), empty.reasoning, empty.stop_reason), ("", None, None));
    assert_eq!(empty.token_usage, None);
}

#[test]
fn token_usage_takes_any_numbers() {
    for (usage, expected) in [
        (r#"{"input_tokens":1,"output_tokens":2,"cache_read_input_tokens":null}"#, Some((1, 2))),
        (
            r#"{"input_tokens":1,"output_tokens":2,"cache_read_input_tokens":18446744073709551615}"#,
            Some((u64::MAX, 2)),
        ),
        (r#"{"input_tokens":-1,"output_tokens":2}"#, None),
        (r#"{"output_tokens":2}"#, None),
    ] {
        let answer = parse(format!(r#"{{"content":[],"usage":{usage}}}"#));
        let expected = expected.map(|(input, output)| TokenUsage { input, output });
        assert_eq!(part_payload(&answer, 0, 0).token_usage, expected, "{usage}");
    }
}

#[test]
fn calls_have_a_name_and_an_object_of_arguments() {
    let answer = answer(
        r#"[{"type":"tool_use","id":"1","name":"f","input":{"a": [1]}},{"type":"tool_use","name":"g"},
        {"type":"text","text":""},{"type":"tool_use","id":2,"name":"h","input":"{\"a\":"},
        {"type":"tool_use","id":"4","name":"i","input":[{}]}]"#,
    );
    let calls: Vec<_> = (0..answer.calls(0))
        .map(|call| match answer.call_payload(0, call) {
            Ok(call) => (call.tool_name, Some(call.args), call.call_id),
            Err(invalid) => (invalid.tool_name, None, None),
        })
        .collect();
    let valid = |args: &'static str| Some(Bytes::from_static(args.as_bytes()));
    assert_eq!(
        calls,
        [
            ("f".to_owned(), valid(r#"{"a": [1]}"#), Some("1".to_owned())),
            ("g".to_owned(), valid("{}"), None),
            ("h".to_owned(), None, None),
            ("i".to_owned(), None, None),
        ]
    );
}

#[test]
fn without_changes_an_answer_keeps_its_memory() {
    let answer = answer(&list(&[THOUGHT, TEXT, CALL_A, CALL_B]));
    let same = CallEdit::Patch { name: "f".into(), args: Bytes::from_static(b" {\"a\": 1}\n") };
    let edit = ChoiceEdit { thoughts: vec![Some("t".into())], calls: vec![same], ..text("a") };
    for (edits, is_guarded) in
        [(vec![], false), (vec![], true), (vec![edit.clone()], false), (vec![edit], true)]
    {
        let rendered = answer.render(&edits, false, is_guarded);
        assert_eq!((rendered.body.as_ptr(), rendered.withheld.len()), (answer.body().as_ptr(), 0));
    }
}

#[test]
fn a_changed_text_stands_in_its_own_block_without_citations() {
    let cited = r#"{ "citations" : [{"type":"char_location"}], "type":"text", "text" : "a", "new":1 }"#;
    let changed = r#"{ "type":"text", "text" : "n\"w", "new":1 }"#;
    let unknown = r#"{"type":"new"}"#;
    let second = || ChoiceEdit { texts: vec![None, Some("n\"w".to_owned())], ..ChoiceEdit::default() };
    for (given, edit, left) in [
        (vec![cited], text("n\"w"), vec![changed]),
        (
            vec![THOUGHT, cited, unknown, TEXT, CALL_A],
            text("n\"w"),
            vec![THOUGHT, changed, unknown, TEXT, CALL_A],
        ),
        (vec![TEXT, CALL_A, cited], second(), vec![TEXT, CALL_A, changed]),
        (vec![TEXT, TEXT, TEXT], second(), vec![TEXT, r#"{"type":"text","text":"n\"w"}"#, TEXT]),
    ] {
        let body = rendered(&answer(&list(&given)), edit, false);
        assert_eq!(body, with_end(&list(&left), "tool_use", ""));
    }
}

#[test]
fn blocks_that_the_provider_cut_for_a_citation_are_one_text() {
    let cited = r#"{"type":"text","text":"b","citations":[{"type":"char_location"}]}"#;
    let empty = r#"{"type":"text","text":"","citations":[]}"#;
    for (given, texts) in [
        (vec![TEXT, cited, TEXT], vec!["aba"]),
        (vec![TEXT, empty, cited, TEXT, TEXT], vec!["aba", "a"]),
        (vec![TEXT, CALL_A, cited], vec!["a", "b"]),
        (vec![cited, THOUGHT, cited, cited], vec!["b", "bb"]),
        (vec![TEXT, TEXT], vec!["a", "a"]),
    ] {
        assert_eq!(answer(&list(&given)).parts(0).texts, texts, "{given:?}");
    }
    let body = rendered(&answer(&list(&[TEXT, cited, TEXT, CALL_A, TEXT])), text("n"), false);
    assert_eq!(body, with_end(&list(&[&note_block("n"), CALL_A, TEXT]), "tool_use", ""));
}

#[test]
fn an_answer_without_text_gets_a_text_block_before_its_first_call() {
    let new = note_block("new");
    for (given, left) in [
        (vec![], vec![new.as_str()]),
        (vec![THOUGHT], vec![THOUGHT, &new]),
        (vec![CALL_A, CALL_B], vec![&new, CALL_A, CALL_B]),
        (vec![THOUGHT, CALL_A, THOUGHT], vec![THOUGHT, &new, CALL_A, THOUGHT]),
    ] {
        let body = rendered(&answer(&list(&given)), text("new"), false);
        assert_eq!(body, with_end(&list(&left), "tool_use", ""));
    }
    let edit = ChoiceEdit { calls: vec![note("no")], ..text("new") };
    let body = rendered(&answer(&list(&[CALL_A])), edit, false);
    assert_eq!(body, with_end(&list(&[&new, &note_block("no")]), "end_turn", ""));
    let edit = ChoiceEdit { calls: vec![note("no")], ..text("new") };
    let body = rendered(&answer(&list(&[CALL_A, THOUGHT, CALL_B])), edit, false);
    assert_eq!(body, with_end(&list(&[THOUGHT, &new, &note_block("no"), CALL_B]), "tool_use", ""));
}

#[test]
fn an_emptied_text_is_marked_only_where_nothing_but_thoughts_is_left() {
    let removed = note_block("[removed]");
    let unknown = r#"{"type":"new"}"#;
    for (given, left) in [
        (vec![TEXT], vec![removed.as_str()]),
        (vec![THOUGHT, TEXT, TEXT], vec![THOUGHT, &removed]),
        (vec![TEXT, THOUGHT, TEXT], vec![&removed, THOUGHT]),
        (vec![TEXT, CALL_A], vec![CALL_A]),
        (vec![unknown, TEXT], vec![unknown]),
        (vec![THOUGHT, TEXT, CALL_A, TEXT], vec![THOUGHT, CALL_A]),
    ] {
        let body = rendered(&answer(&list(&given)), emptied(), false);
        assert_eq!(body, with_end(&list(&left), "tool_use", ""));
    }
    let edit = ChoiceEdit { calls: vec![note("no")], ..text("") };
    let body = rendered(&answer(&list(&[TEXT, CALL_A])), edit, false);
    assert_eq!(body, with_end(&list(&[&note_block("no")]), "end_turn", ""));
    let body = rendered(&answer(&list(&[TEXT])), text(""), true);
    assert_eq!(body, with_end("[]", "tool_use", ""), "a client would parse the mark");
}

#[test]
fn changed_thoughts_keep_their_signatures() {
    let second = r#"{"type":"thinking", "thinking" : "u", "signature":"r"}"#;
    let redacted = r#"{"type":"redacted_thinking","data":"d"}"#;
    for (new, first_left) in [("n", r#""thinking":"n""#), ("", r#""thinking":"""#)] {
        let given = list(&[redacted, THOUGHT, TEXT, second]);
        let body = rendered(&answer(&given), reasoning(new), false);
        let first = THOUGHT.replace(r#""thinking":"t""#, first_left);
        let left = list(&[redacted, &first, TEXT, second]);
        assert_eq!(body, with_end(&left, "tool_use", ""));
    }
    let without = answer(&list(&[redacted, TEXT]));
    let body = rendered(&without, reasoning("n"), false);
    assert_eq!(body.as_ptr(), without.body().as_ptr(), "no thought can be signed here");
}

#[test]
fn a_refused_call_is_a_text_in_front_of_the_others() {
    let given = list(&[THOUGHT, CALL_A, CALL_B, TEXT]);
    let (no, never) = (note_block("no"), note_block("never"));
    for (edits, left, stop_reason) in [
        (vec![note("no")], [THOUGHT, &no, CALL_B, TEXT], "tool_use"),
        (vec![CallEdit::Keep, note("no")], [THOUGHT, &no, CALL_A, TEXT], "tool_use"),
        (vec![note("no"), note("never")], [THOUGHT, TEXT, &no, &never], "end_turn"),
    ] {
        let body = rendered(&answer(&given), call_edits(edits), false);
        assert_eq!(body, with_end(&list(&left), stop_reason, ""));
    }
    let patch = CallEdit::Patch { name: "f".into(), args: Bytes::from_static(b"{}") };
    let edits = call_edits(vec![note("no"), patch, note("never")]);
    let body = rendered(&answer(&list(&[CALL_B, CALL_A, CALL_B])), edits, false);
    let left = CALL_A.replace(r#"{"a": 1}"#, "{}");
    assert_eq!(body, with_end(&list(&[&no, &never, &left]), "tool_use", ""));
    let cut = parse(with_end(&list(&[CALL_A]), "max_tokens", ""));
    let body = rendered(&cut, call_edits(vec![note("no")]), false);
    assert_eq!(body, with_end(&list(&[&no]), "max_tokens", ""), "it did not stop for the call");
}

#[test]
fn a_changed_call_has_its_name_and_input_spliced() {
    let patch = |name: &str, args: &'static str| {
        call_edits(vec![CallEdit::Patch { name: name.into(), args: Bytes::from_static(args.as_bytes()) }])
    };
    for (given, edit, left) in [
        (CALL_A, patch("f", " {\"b\": 2} "), CALL_A.replace(r#"{"a": 1}"#, r#"{"b": 2}"#)),
        (CALL_A, patch("h\"", "{\"a\": 1}"), CALL_A.replace("\"f\"", r#""h\"""#)),
        (
            r#"{"type":"tool_use", "name":"f"}"#,
            patch("f", r#"{"b":2}"#),
            r#"{"type":"tool_use", "name":"f","input":{"b":2}}"#.to_owned(),
        ),
        (
            r#"{"type":"tool_use","name":"f","input":"{\"a"}"#,
            patch("f", "{}"),
            r#"{"type":"tool_use","name":"f","input":{}}"#.to_owned(),
        ),
    ] {
        let body = rendered(&answer(&list(&[given])), edit, false);
        assert_eq!(body, with_end(&list(&[&left]), "tool_use", ""));
    }
}

#[test]
fn a_block_replaces_everything_the_model_said() {
    let content = list(&[THOUGHT, TEXT, CALL_A, r#"{"type":"new","new":"secret"}"#]);
    let long = "x".repeat(65);
    let body = format!(
        r#"{{"id":"1","content":{content},"new":{{"a":"short"}},"long":"{long}","stop_sequence":"s","stop_reason":"refusal","stop_details":{{"type":"refusal","explanation":"secret"}},"usage":{{"output_tokens":1}}}}"#
    );
    let rendered = parse(body).render(&[ChoiceEdit::replaced("no".into())], false, false);
    let left = r#"{"id":"1","content":[{"type":"text","text":"no"}],"stop_sequence":null,"stop_reason":"end_turn","stop_details":null,"usage":{"output_tokens":1}}"#;
    assert_eq!(rendered.body, left);
    assert_eq!(rendered.withheld, ["long", "new"]);
}

#[test]
fn where_the_text_is_parsed_a_message_is_a_refusal() {
    let refusal = r#","stop_details":{"type":"refusal","category":null,"explanation":"no\nno"}"#;
    let given = answer(&list(&[r#"{"type":"text","text":"{}"}"#, CALL_A, CALL_B]));
    let blocked = rendered(&given, ChoiceEdit::replaced("no\nno".into()), true);
    assert_eq!(blocked, with_end("[]", "refusal", refusal));
    let left = list(&[r#"{"type":"text","text":"{}"}"#]);
    for stop_reason in ["tool_use", "max_tokens"] {
        let given =
            parse(with_end(&list(&[r#"{"type":"text","text":"{}"}"#, CALL_A, CALL_B]), stop_reason, ""));
        let refused = rendered(&given, call_edits(vec![note("no"), note("no")]), true);
        assert_eq!(refused, with_end(&left, "refusal", refusal));
    }
    let one_left = rendered(&given, call_edits(vec![note("no")]), true);
    let left = list(&[r#"{"type":"text","text":"{}"}"#, CALL_B]);
    assert_eq!(one_left, with_end(&left, "tool_use", ""), "the client runs the other call first");
}

#[test]
fn a_count_of_tokens_has_no_choice() {
    let body = Bytes::from_static(b" {\"input_tokens\" : 14}\n");
    let count = TokenCount::parse(body.clone(), 0).expect("a count");
    assert_eq!((count.choices(), count.calls(0)), (0, 0));
    let edit = ChoiceEdit::replaced("no".into());
    assert_eq!(count.render(&[edit], false, true).body.as_ptr(), body.as_ptr());
    for body in [
        "",
        "[]",
        "[{\"input_tokens\":14}]",
        "{}",
        "14",
        r#"{"input_tokens":"14"}"#,
        r#"{"input_tokens":1.5}"#,
        "{\"input_tokens\":-1}",
    ] {
        let error = TokenCount::parse(Bytes::from_static(body.as_bytes()), 0).expect_err(body);
        assert!(matches!(error, AnswerError::Invalid(_)), "{body}: {error:?}");
    }
}

#[test]
fn thousands_of_blocks_are_changed_in_one_walk() {
    let other = r#"{"type":"new"}"#;
    let blocks = [vec![other; 3_072], vec![TEXT; 1_024]].concat();
    let body = rendered(&answer(&list(&blocks)), emptied(), false);
    assert_eq!(body, with_end(&list(&vec![other; 3_072]), "tool_use", ""));
}

/// A block with few, short texts, so that all kinds meet.
fn block() -> impl Strategy<Value = Value> {
    prop_oneof![
        "[ab]{0,2}".prop_map(|text| json!({ "type": "text", "text": text, "citations": [] })),
        "[ab]{0,2}".prop_map(|text| json!({ "type": "thinking", "thinking": text, "signature": "s" })),
        Just(json!({ "type": "redacted_thinking", "data": "d" })),
        "[fg]".prop_map(|name| json!({ "type": "tool_use", "id": "i", "name": name, "input": {} })),
        Just(json!({ "type": "server_tool_use", "name": "f", "input": {} })),
    ]
}

fn call_edit() -> impl Strategy<Value = CallEdit> {
    prop_oneof![
        Just(CallEdit::Keep),
        Just(CallEdit::Patch { name: "h".into(), args: Bytes::from_static(b"{\"b\":1}") }),
        Just(note("no")),
    ]
}

proptest! {
    #[test]
    fn an_edited_answer_says_what_the_edit_says(
        blocks in prop::collection::vec(block(), 0..8),
        texts in prop::collection::vec(prop::option::of("[ab]{0,2}"), 0..4),
        new_thoughts in prop::collection::vec(prop::option::of("[ab]{0,2}"), 0..4),
        calls in prop::collection::vec(call_edit(), 0..4),
        is_guarded: bool,
        is_pretty: bool,
    ) {
        let body = json!({ "type": "message", "content": blocks, "stop_reason": "tool_use" });
        let body = if is_pretty { serde_json::to_string_pretty(&body).expect("JSON") } else { body.to_string() };
        let before = parse(body);
        let edit = ChoiceEdit { texts, thoughts: new_thoughts, calls, ..ChoiceEdit::default() };
        let after = parse(before.render(std::slice::from_ref(&edit), false, is_guarded).body);
        let edits: Vec<&CallEdit> = edit.calls.iter().take(before.calls(0)).collect();
        let notes = edits.iter().filter(|edit| matches!(edit, CallEdit::Note(_))).count();
        prop_assert_eq!(after.calls(0), before.calls(0) - notes);
        // Notes have letters of their own.
        let mut said = after.parts.texts.clone();
        said.retain(|text| text != "no");
        let is_mark = said.iter().any(|text| ["[removed]", "The answer was withheld."].contains(&text.as_str()));
        prop_assert_eq!(if is_mark { Vec::new() } else { said.clone() }, edited(&before.parts.texts, &edit.texts));
        prop_assert!(!is_mark || (said.len() == 1 && notes == 0 && after.calls(0) == 0), "a mark where more is left");
        // What comes back has no text behind a call that wasn't there before.
        let first = |answer: &MessagesAnswer, kind| answer.blocks.iter().position(|found| found.kind == kind);
        if let (Some(text), Some(call)) = (first(&after, BlockKind::Text), first(&after, BlockKind::ToolUse)) {
            let has_text = before.blocks.iter().any(|block| block.kind == BlockKind::Text);
            prop_assert!(text < call || (notes == 0 && has_text));
        }
        let left = |answer: &MessagesAnswer, kind| answer.blocks.iter().filter(|found| found.kind == kind).count();
        let thoughts = left(&before, BlockKind::Thinking);
        // Nobody can sign a thought that plugins add.
        let known = &before.parts.thoughts;
        let expected = if known.is_empty() { Vec::new() } else { edited(known, &edit.thoughts) };
        prop_assert_eq!(&after.parts.thoughts, &expected);
        prop_assert_eq!(left(&after, BlockKind::Thinking), thoughts);
        let others = if is_guarded { 0 } else { left(&before, BlockKind::Other) };
        prop_assert_eq!(left(&after, BlockKind::Other), others);
        let patched = edits.iter().filter(|edit| matches!(edit, CallEdit::Patch { .. })).count();
        prop_assert_eq!(after.calls.iter().filter(|call| call.name == "h").count(), patched);
        let is_ended = notes > 0 && notes == before.calls(0);
        prop_assert_eq!(after.stop_reason.as_deref(), Some(if is_ended { "end_turn" } else { "tool_use" }));
    }
}
