use serde_json::{Value, json};

use super::*;
use crate::llm::sse::MAX_PIECE;

/// The data of the events.
fn data(events: &[Bytes]) -> Vec<Value> {
    let read = |event: &Bytes| {
        let event = str::from_utf8(event).expect("text");
        let data =
            event.strip_prefix("data: ").and_then(|event| event.strip_suffix("\n\n")).expect("an event");
        assert!(!data.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']), "{data:?}");
        json::scan(data.as_bytes(), json::MAX_DEPTH).expect("no repeated names");
        serde_json::from_str(data).expect("JSON")
    };
    events.iter().map(read).collect()
}

fn chunks(answer: &Value) -> Vec<Value> {
    data(&stream_events(&answer.to_string().into(), true).answer)
}

/// The first choice of each chunk of a message, without the last one, which only ends it.
fn choices(message: &Value) -> Vec<Value> {
    let mut chunks = chunks(&json!({ "choices": [{ "message": message, "finish_reason": "stop" }] }));
    let end = chunks.pop().expect("an end");
    assert_eq!(end["choices"], json!([{ "index": 0, "delta": {}, "finish_reason": "stop" }]));
    chunks.iter_mut().map(|chunk| chunk["choices"][0].take()).collect()
}

fn deltas(message: &Value) -> Vec<Value> {
    let mut choices = choices(message);
    assert!(
        choices
            .iter()
            .all(|choice| choice["finish_reason"].is_null() && choice.get("finish_reason").is_some())
    );
    choices.iter_mut().map(|choice| choice["delta"].take()).collect()
}

fn long() -> String {
    format!("a{}", "é".repeat(MAX_PIECE))
}

#[test]
fn each_chunk_has_the_head_and_the_last_one_the_usage() {
    let answer = json!({
        "id": "c", "object": "chat.completion", "created": 1, "model": "m", "system_fingerprint": "f", "service_tier": null,
        "provider": "p", "choices": [{ "index": 0, "message": { "role": "assistant", "content": "x" }, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 1 }
    });
    let chunk = |members: Value| {
        let mut chunk = json!({ "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
                                "system_fingerprint": "f", "service_tier": null });
        chunk.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        chunk
    };
    let choice =
        |delta: Value, reason: Value| json!([{ "index": 0, "delta": delta, "finish_reason": reason }]);
    let expected = [
        chunk(json!({ "choices": choice(json!({ "role": "assistant" }), Value::Null) })),
        chunk(json!({ "choices": choice(json!({ "content": "x" }), Value::Null) })),
        chunk(json!({ "choices": choice(json!({}), json!("stop")), "provider": "p" })),
        chunk(json!({ "choices": [], "usage": { "prompt_tokens": 1 } })),
    ];
    assert_eq!(chunks(&answer), expected);
    assert_eq!(data(&stream_events(&answer.to_string().into(), false).answer), expected[..3]);
}

#[test]
fn an_answer_without_choices_has_one_chunk() {
    let expected = json!({ "object": "chat.completion.chunk", "choices": [], "x": [1] });
    assert_eq!(chunks(&json!({ "object": "y", "x": [1], "choices": [], "usage": null })), [expected]);
    assert_eq!(chunks(&json!({})), [json!({ "object": "chat.completion.chunk", "choices": [] })]);
}

#[test]
fn text_comes_in_pieces_that_end_at_characters() {
    for name in ["content", "refusal", "reasoning_content", "reasoning"] {
        let text = long();
        let deltas = deltas(&json!({ "role": "assistant", name: text }));
        assert_eq!(deltas.len(), 4, "{name}");
        let pieces: Vec<&str> =
            deltas[1..].iter().map(|delta| delta[name].as_str().expect("a piece")).collect();
        assert!(pieces.iter().all(|piece| piece.len() <= MAX_PIECE));
        assert_eq!(pieces.concat(), text);
        assert!(deltas[1..].iter().all(|delta| delta.as_object().unwrap().len() == 1));
    }
}

#[test]
fn an_empty_text_has_one_piece_and_no_text_none() {
    assert_eq!(deltas(&json!({ "content": "" })), [json!({ "role": "assistant" }), json!({ "content": "" })]);
    assert_eq!(deltas(&json!({ "content": null, "role": null })), [json!({ "role": "assistant" })]);
}

#[test]
fn the_parts_of_a_message_have_their_order() {
    let message = json!({
        "tool_calls": [{ "id": "a", "type": "function", "function": { "name": "f", "arguments": "{}" } }], "refusal": "r",
        "content": [{ "type": "text", "text": "c" }], "reasoning_details": [{ "text": "d" }], "reasoning_content": "t",
        "annotations": [1], "audio": { "id": "x" }, "new": "n", "role": "tool"
    });
    let expected = [
        json!({ "role": "tool", "annotations": [1], "audio": { "id": "x" }, "new": "n" }),
        json!({ "reasoning_content": "t" }),
        json!({ "reasoning_details": [{ "text": "d" }] }),
        json!({ "content": [{ "type": "text", "text": "c" }] }),
        json!({ "refusal": "r" }),
        json!({ "tool_calls": [{ "index": 0, "id": "a", "type": "function", "function": { "name": "f", "arguments": "{}" } }] }),
    ];
    assert_eq!(deltas(&message), expected);
}

#[test]
fn arguments_come_in_pieces_behind_the_first_of_their_call() {
    for (form, input) in [("function", "arguments"), ("custom", "input")] {
        let text = long();
        let first =
            json!({ "id": "a", "type": form, form: { "name": "f", input: "{}" }, "x": [1], "index": 7 });
        let second = json!({ "id": "b", form: { "name": "g", input: text, "strict": true } });
        let deltas = deltas(&json!({ "tool_calls": [first, second] }));
        let mut calls: Vec<Value> = deltas[1..].iter().map(|delta| delta["tool_calls"][0].clone()).collect();
        let expected =
            json!({ "index": 0, "id": "a", "type": form, form: { "name": "f", input: "{}" }, "x": [1] });
        assert_eq!(calls[0], expected);
        let pieces: Vec<Value> = calls[1..].iter_mut().map(|call| call[form][input].take()).collect();
        assert_eq!(pieces.iter().map(|piece| piece.as_str().expect("a piece")).collect::<String>(), text);
        let expected = json!({ "index": 1, "id": "b", form: { "name": "g", input: null, "strict": true } });
        assert_eq!((calls.len(), &calls[1]), (4, &expected));
        assert_eq!(calls[3], json!({ "index": 1, form: { input: null } }));
    }
}

#[test]
fn arguments_that_are_an_object_or_missing_stay_in_one_piece() {
    let calls =
        json!([{ "function": { "name": "f", "arguments": { "a": 1 } } }, { "function": { "name": "g" } }]);
    let expected = [
        json!([{ "index": 0, "function": { "name": "f", "arguments": { "a": 1 } } }]),
        json!([{ "index": 1, "function": { "name": "g", "arguments": "" } }]),
    ];
    let deltas = deltas(&json!({ "tool_calls": calls }));
    assert_eq!(deltas[1..].iter().map(|delta| delta["tool_calls"].clone()).collect::<Vec<_>>(), expected);
}

#[test]
fn the_old_form_of_a_call_comes_in_pieces_too() {
    let text = long();
    let deltas = deltas(&json!({ "function_call": { "name": "f", "arguments": text } }));
    assert_eq!((deltas.len(), &deltas[1]["function_call"]["name"]), (4, &json!("f")));
    assert!(deltas[2]["function_call"].get("name").is_none());
    let pieces =
        deltas[1..].iter().map(|delta| delta["function_call"]["arguments"].as_str().expect("a piece"));
    assert_eq!(pieces.collect::<String>(), text);
}

#[test]
fn probabilities_go_with_the_first_text_of_their_choice() {
    let chunks = |message: Value| {
        let choice =
            json!({ "index": 3, "message": message, "logprobs": { "content": [1] }, "finish_reason": null });
        let chunks = chunks(&json!({ "choices": [choice] }));
        chunks.iter().map(|chunk| chunk["choices"][0].get("logprobs").is_some()).collect::<Vec<_>>()
    };
    assert_eq!(
        chunks(json!({ "reasoning": "t", "content": long() })),
        [false, false, true, false, false, false]
    );
    assert_eq!(chunks(json!({ "content": null, "refusal": "r" })), [false, true, false]);
    assert_eq!(chunks(json!({ "content": null })), [false, true]);
}

#[test]
fn other_members_go_with_the_end_of_their_choice_and_of_the_answer() {
    let choice = |index: u8| {
        json!({ "index": index, "message": { "content": null }, "finish_reason": "stop", "logprobs": null, "x": index,
                "delta": { "content": "unseen" }, "Delta": {} })
    };
    let chunks = chunks(&json!({ "choices": [choice(1), choice(0)], "x": "y" }));
    let end = |index: u8| json!([{ "index": index, "delta": {}, "finish_reason": "stop", "x": index }]);
    assert_eq!((chunks.len(), &chunks[1]["choices"], chunks[1].get("x")), (4, &end(1), None));
    assert_eq!((&chunks[3]["choices"], &chunks[3]["x"]), (&end(0), &json!("y")));
}

#[test]
fn choices_never_share_an_index() {
    let indices = |claimed: &[Value]| {
        let choices: Vec<Value> =
            claimed.iter().map(|index| json!({ "index": index, "message": { "content": null } })).collect();
        let chunks = chunks(&json!({ "choices": choices }));
        chunks.iter().step_by(2).map(|chunk| chunk["choices"][0]["index"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(indices(&[json!(5), json!(2)]), [5, 2]);
    for claimed in [[json!(0), json!(0)], [json!(1), Value::Null], [json!("1"), json!(0)]] {
        assert_eq!(indices(&claimed), [0, 1]);
    }
}

#[test]
fn an_event_is_one_line_for_clients_that_know_more_line_ends() {
    let answer = "{\r\n \"x\\n\": [\n1],\"choices\":[{\"message\":{\"content\":\"a\u{2028}b\u{2029}c\u{85}d\u{2026}é\\r\"}}]}";
    let chunks = data(&stream_events(&Bytes::from_static(answer.as_bytes()), true).answer);
    assert_eq!(chunks[1]["choices"][0]["delta"]["content"], "a\u{2028}b\u{2029}c\u{85}d\u{2026}é\r");
    assert_eq!(chunks[2]["x\n"], json!([1]));
    assert_eq!(sse::event("", b"{\"error\":\n{}}"), "data: {\"error\": {}}\n\n");
    assert_eq!(sse::event("", b"\xe2\x80"), &b"data: \xe2\x80\n\n"[..]);
}

#[test]
fn any_text_becomes_events_without_a_panic() {
    for text in [
        "",
        "null",
        "[1]",
        "{\"choices\":[1,{\"message\":{\"tool_calls\":[1,{}]}}]}",
        "\u{feff}{",
        "{\"choices\":[{\"message\":{\"tool_calls\":7",
    ] {
        stream_events(&Bytes::from_static(text.as_bytes()), true);
    }
}
