use serde_json::{Value, json};

use super::*;
use crate::llm::{
    format::{FormatAssembly, FormatHeartbeat},
    messages::MessageAssembly,
    sse::SseEvent,
};

fn heartbeat() -> PingHeartbeat {
    FormatHeartbeat::new(&crate::llm::format::Echoes::default(), true)
}

/// The stream of an answer with this content, and its first events.
fn begun(content: &Value) -> (MessageStream, Vec<Value>) {
    let (stream, events) = MessageStream::begin(&whole(content), &heartbeat());
    (stream, data(&events))
}

fn whole(content: &Value) -> Bytes {
    json!({ "id": "m", "content": content, "stop_reason": null, "usage": { "input_tokens": 1 } })
        .to_string()
        .into()
}

/// The data of events.
fn data(events: &[Bytes]) -> Vec<Value> {
    let read = |event: &Bytes| {
        let text = str::from_utf8(event).expect("text");
        let (name, data) = text.split_once("\ndata: ").expect("data");
        let data: Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(name, format!("event: {}", data["type"].as_str().expect("a type")));
        data
    };
    events.iter().map(read).collect()
}

fn thought() -> Value {
    json!({ "type": "thinking", "thinking": "t", "signature": "s" })
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn delta(index: usize, text: &str) -> Value {
    json!({ "type": "content_block_delta", "index": index, "delta": { "type": "text_delta", "text": text } })
}

fn stop(index: usize) -> Value {
    json!({ "type": "content_block_stop", "index": index })
}

#[test]
fn the_events_in_front_of_the_text_are_those_of_the_thoughts_and_the_start_of_its_block() {
    let redacted = json!({ "type": "redacted_thinking", "data": "d" });
    let (mut stream, events) = begun(&json!([thought(), redacted, text("ab")]));
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().expect("a type")).collect();
    let expected = [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_stop",
        "content_block_start",
    ];
    assert_eq!(kinds, expected);
    let start = json!({ "type": "content_block_start", "index": 2, "content_block": text("") });
    assert_eq!(events.last(), Some(&start));
    assert_eq!(data(&[stream.text("a\"")]), [delta(2, "a\"")]);
    assert_eq!(data(&[stream.beat()]), [json!({ "type": "ping" })]);
}

#[test]
fn the_rest_goes_on_behind_what_was_sent() {
    let (mut stream, _) = begun(&json!([thought(), text("ab")]));
    stream.text("a");
    let answer = json!({
        "id": "m", "stop_reason": "end_turn", "usage": { "output_tokens": 7 }, "late": 1, "Delta": { "stop_reason": "x" },
        "content": [
            thought(), { "type": "text", "text": "abc", "citations": [{ "x": 1 }] }, { "type": "new" },
        ],
    });
    let rest = stream.rest(&answer.to_string().into(), true).expect("the text goes on");
    let expected = [
        delta(1, "bc"),
        json!({ "type": "content_block_delta", "index": 1, "delta": { "type": "citations_delta", "citation": { "x": 1 } } }),
        stop(1),
        json!({ "type": "content_block_start", "index": 2, "content_block": { "type": "new" } }),
        stop(2),
    ];
    assert_eq!(data(&rest.answer), expected);
    let end = [
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn", "stop_sequence": null },
                "usage": { "output_tokens": 7 }, "late": 1 }),
        json!({ "type": "message_stop" }),
    ];
    assert_eq!(data(&rest.end), end);
}

#[test]
fn a_message_in_place_of_the_answer_goes_on_in_the_open_block() {
    let (mut stream, _) = begun(&json!([thought(), text("ab")]));
    stream.text("ab");
    let rest = stream.rest(&whole(&json!([text("ab\nno")])), true).expect("the text goes on");
    assert_eq!(data(&rest.answer), [delta(1, "\nno"), stop(1)]);
    let rest = stream.rest(&whole(&json!([text("ab")])), true).expect("nothing is left");
    assert_eq!(data(&rest.answer), [stop(1)]);
}

#[test]
fn an_answer_that_does_not_begin_with_what_was_sent_has_no_rest() {
    let (mut stream, _) = begun(&json!([text("ab")]));
    stream.text("ab");
    let call = json!({ "type": "tool_use", "id": "t", "name": "f", "input": {} });
    for content in [
        json!([]),
        json!([thought()]),
        json!([text("a")]),
        json!([text("xab")]),
        json!([text(""), text("ab")]),
        json!([call, text("ab")]),
    ] {
        assert_eq!(stream.rest(&whole(&content), true), None, "{content}");
    }
}

#[test]
fn the_first_text_comes_behind_thoughts_that_are_whole_and_nothing_else() {
    let start = |index: usize, block: Value| json!({ "type": "content_block_start", "index": index, "content_block": block });
    let redacted = json!({ "type": "redacted_thinking", "data": "d" });
    let new = json!({ "type": "new", "text": "a" });
    for (events, first) in [
        (vec![], None),
        (vec![start(0, text(""))], None),
        (vec![start(0, text("a"))], Some("a")),
        (vec![start(0, text("\u{e9}\"")), delta(0, "\n")], Some("\u{e9}\"\n")),
        (vec![start(0, text("")), stop(0), start(1, text("a"))], None),
        (vec![start(0, text("a")), stop(0), start(1, text("b"))], Some("a")),
        (vec![start(0, thought()), start(1, text("a"))], None),
        (vec![start(0, thought()), start(1, text("a")), stop(0)], Some("a")),
        (vec![start(0, redacted), stop(0), start(1, text("a")), start(2, thought())], Some("a")),
        (vec![start(0, new), stop(0), start(1, text("a"))], None),
    ] {
        let mut assembly = MessageAssembly::new(1 << 10);
        let message = json!({ "type": "message_start", "message": {} });
        for data in std::iter::once(&message).chain(&events) {
            let name = data["type"].as_str().expect("a type").to_owned();
            assembly.push(&SseEvent { name, data: data.to_string() }).expect("an event");
        }
        assert_eq!(assembly.first_text().as_deref(), first, "{events:?}");
    }
}
