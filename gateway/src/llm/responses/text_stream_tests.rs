use serde_json::{Value, json};

use super::*;
use crate::llm::{
    format::{Echoes, FormatAssembly, FormatHeartbeat},
    responses::ResponseAssembly,
    sse::SseEvent,
};

/// A heartbeat after so many beats.
fn heartbeat(beats: usize) -> StreamHeartbeat {
    let mut heartbeat = StreamHeartbeat::new(&Echoes::default(), false);
    let data = r#"{"type":"response.created","response":{"id":"resp"}}"#;
    heartbeat.push(&SseEvent { name: String::new(), data: data.to_owned() });
    (0..beats).for_each(|_| _ = heartbeat.beat());
    heartbeat
}

fn whole(output: &Value) -> Bytes {
    json!({ "id": "resp", "status": "completed", "output": output }).to_string().into()
}

/// The stream of an answer with this output, and its first events.
fn begun(output: &Value) -> (ResponseStream, Vec<Value>) {
    let (stream, events) = ResponseStream::begin(&whole(output), &heartbeat(0));
    (stream, data(&events))
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

/// The types of events, without what all of them begin with.
fn types(events: &[Value]) -> Vec<&str> {
    let names = events.iter().map(|event| event["type"].as_str().expect("a type"));
    names.map(|name| name.strip_prefix("response.").expect("an event of a response")).collect()
}

fn part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [] })
}

fn message(content: &Value) -> Value {
    json!({ "type": "message", "id": "msg", "role": "assistant", "status": "completed", "content": content })
}

fn reasoning() -> Value {
    json!({ "type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "e" })
}

fn call() -> Value {
    json!({ "type": "shell_call", "id": "sh", "call_id": "c", "action": {} })
}

#[test]
fn the_events_in_front_of_the_text_begin_its_message() {
    let cited = json!({ "type": "output_text", "text": "ab", "annotations": [{}], "logprobs": [{}] });
    let (mut stream, events) = begun(&json!([reasoning(), message(&json!([cited]))]));
    let expected = [
        "created",
        "in_progress",
        "output_item.added",
        "output_item.done",
        "output_item.added",
        "content_part.added",
    ];
    assert_eq!(types(&events), expected);
    assert!(events.iter().zip(0..).all(|(event, number)| event["sequence_number"] == number));
    let mut begun = message(&json!([]));
    begun["status"] = "in_progress".into();
    assert_eq!((&events[4]["output_index"], &events[4]["item"]), (&json!(1), &begun));
    let empty = json!({ "type": "output_text", "text": "", "annotations": [], "logprobs": [] });
    assert_eq!(
        (&events[5]["item_id"], &events[5]["content_index"], &events[5]["part"]),
        (&json!("msg"), &json!(0), &empty)
    );
    let deltas = data(&[stream.text("a"), stream.text("\"")]);
    let delta = |number: usize, text: &str| json!({ "type": "response.output_text.delta", "sequence_number": number, "item_id": "msg", "output_index": 1, "content_index": 0, "delta": text, "logprobs": [] });
    assert_eq!(deltas, [delta(6, "a"), delta(7, "\"")]);
}

#[test]
fn the_stream_goes_on_behind_the_events_of_the_heartbeat() {
    for (beats, expected) in [
        (0, &["created", "in_progress", "output_item.added", "content_part.added"][..]),
        (1, &["in_progress", "output_item.added", "content_part.added"]),
        (5, &["output_item.added", "content_part.added"]),
    ] {
        let heartbeat = heartbeat(beats);
        let answer = whole(&json!([message(&json!([part("a")]))]));
        let (mut stream, events) = ResponseStream::begin(&answer, &heartbeat);
        let events = data(&events);
        assert_eq!(types(&events), expected);
        assert_eq!(events[0]["sequence_number"], heartbeat.events());
        let next = heartbeat.events() + events.len();
        let beats: Vec<Bytes> = (0..6).map(|_| stream.beat()).collect();
        let in_progress = |number: usize| {
            json!({ "type": "response.in_progress", "sequence_number": number,
            "response": { "id": "resp", "status": "in_progress", "output": [] } })
        };
        for (place, beat) in beats.iter().enumerate() {
            match place {
                2 | 5 => assert_eq!(data(std::slice::from_ref(beat)), [in_progress(next + place / 3)]),
                _ => assert_eq!(beat, sse::COMMENT),
            }
        }
        assert_eq!(data(&[stream.text("a")])[0]["sequence_number"], next + 2);
    }
}

#[test]
fn an_answer_that_begins_with_too_much_is_not_sent_again_and_again() {
    let answer = json!({ "instructions": "x".repeat(MAX_OPENING), "output": [message(&json!([part("a")]))] });
    let (mut stream, _) = ResponseStream::begin(&answer.to_string().into(), &heartbeat(0));
    assert!((0..6).all(|_| stream.beat() == sse::COMMENT));
}

#[test]
fn the_rest_goes_on_behind_what_was_sent() {
    let (mut stream, begin) = begun(&json!([reasoning(), message(&json!([part("ab")]))]));
    stream.text("a");
    let said = json!({ "type": "output_text", "text": "abc", "annotations": [{ "x": 1 }], "logprobs": [{ "token": "t" }] });
    let refusal = json!({ "type": "refusal", "refusal": "no" });
    let output = json!([reasoning(), message(&json!([said, refusal])), call()]);
    let rest = stream.rest(&whole(&output), true).expect("the text goes on");
    let events = data(&[rest.answer, rest.end].concat());
    let expected = [
        "output_text.delta",
        "output_text.annotation.added",
        "output_text.done",
        "content_part.done",
        "content_part.added",
        "refusal.delta",
        "refusal.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "output_item.done",
        "completed",
    ];
    assert_eq!(types(&events), expected);
    assert!(events.iter().zip(begin.len() + 1..).all(|(event, number)| event["sequence_number"] == number));
    assert_eq!((&events[0]["delta"], &events[0]["logprobs"]), (&json!("bc"), &json!([{ "token": "t" }])));
    assert_eq!((&events[2]["text"], &events[3]["part"]), (&json!("abc"), &said));
    assert_eq!((&events[8]["item"], &events[8]["output_index"]), (&output[1], &json!(1)));
    assert_eq!((&events[9]["item"], &events[9]["output_index"]), (&call(), &json!(2)));
    assert_eq!(events[11]["response"]["output"], output);
}

#[test]
fn a_message_in_place_of_the_answer_keeps_the_place_and_the_id_of_the_open_one() {
    let (mut stream, _) = begun(&json!([reasoning(), message(&json!([part("ab")]))]));
    stream.text("ab");
    let mut other = message(&json!([part("ab\nno")]));
    for id in [json!("other"), Value::Null] {
        other["id"] = id;
        let rest = stream.rest(&whole(&json!([other])), true).expect("the text goes on");
        let events = data(&[rest.answer, rest.end].concat());
        let expected =
            ["output_text.delta", "output_text.done", "content_part.done", "output_item.done", "completed"];
        assert_eq!(types(&events), expected);
        assert_eq!((&events[0]["delta"], &events[0]["item_id"]), (&json!("\nno"), &json!("msg")));
        let same = message(&json!([part("ab\nno")]));
        assert_eq!((&events[3]["item"], &events[3]["output_index"]), (&same, &json!(1)));
        // It repeats what was sent, also in front of the message.
        assert_eq!(events[4]["response"]["output"], json!([reasoning(), same]));
    }
}

#[test]
fn a_message_without_an_id_gets_one() {
    let mut nameless = message(&json!([part("ab")]));
    nameless["id"] = "".into();
    let (mut stream, begin) = begun(&json!([nameless]));
    let id = begin[2]["item"]["id"].clone();
    assert!(id.as_str().is_some_and(|id| id.starts_with("msg_") && id.len() > 30), "{id}");
    assert_eq!(data(&[stream.text("ab")])[0]["item_id"], id);
    let rest = stream.rest(&whole(&json!([nameless])), true).expect("nothing is left");
    let events = data(&[rest.answer, rest.end].concat());
    assert_eq!(types(&events), ["output_text.done", "content_part.done", "output_item.done", "completed"]);
    assert_eq!((&events[2]["item"]["id"], &events[3]["response"]["output"][0]["id"]), (&id, &id));
}

#[test]
fn there_is_no_first_text_before_the_answer_has_an_id() {
    let item = json!({ "type": "response.output_item.done", "output_index": 0, "item": message(&json!([part("a")])) });
    let mut assembly = ResponseAssembly::new(1 << 12);
    for (data, first) in [
        (json!({ "type": "response.created", "response": { "id": null } }), None),
        (item, None),
        (json!({ "type": "response.in_progress", "response": { "id": "resp" } }), Some("a")),
    ] {
        assembly.push(&SseEvent { name: String::new(), data: data.to_string() }).expect("an event");
        assert_eq!(assembly.first_text().as_deref(), first);
    }
}

#[test]
fn the_message_begins_with_a_list_for_annotations() {
    let (_, begin) =
        begun(&json!([message(&json!([{ "type": "output_text", "text": "a", "annotations": null }]))]));
    assert_eq!(begin[3]["part"], part(""));
}

#[test]
fn two_messages_never_get_one_id() {
    let (mut stream, _) = begun(&json!([message(&json!([part("ab")]))]));
    stream.text("ab");
    let mut last = message(&json!([part("abc")]));
    last["id"] = "last".into();
    let left = message(&json!([{ "type": "new" }]));
    assert_eq!(stream.rest(&whole(&json!([left, last])), true), None);
}

#[test]
fn what_stands_behind_a_part_that_sdks_skip_comes_with_the_end_of_the_message() {
    let content = json!([part("ab"), { "type": "reasoning_text", "text": "t" }, part("c")]);
    let (mut stream, _) = begun(&json!([message(&content)]));
    stream.text("ab");
    let rest = stream.rest(&whole(&json!([message(&content)])), true).expect("nothing is left");
    let events = data(&rest.answer);
    assert_eq!(types(&events), ["output_text.done", "content_part.done", "output_item.done"]);
    assert_eq!(events[2]["item"], message(&content));
}

#[test]
fn an_answer_that_does_not_begin_with_what_was_sent_has_no_rest() {
    let (mut stream, _) = begun(&json!([message(&json!([part("ab")]))]));
    stream.text("ab");
    let refusal = json!({ "type": "refusal", "refusal": "ab" });
    let mut users = message(&json!([part("ab")]));
    users["role"] = "user".into();
    for output in [
        json!([]),
        json!([reasoning(), call()]),
        json!([message(&json!([]))]),
        json!([message(&json!([part("a")]))]),
        json!([message(&json!([part("xab")])), message(&json!([part("ab")]))]),
        json!([message(&json!([refusal]))]),
        json!([users]),
    ] {
        assert_eq!(stream.rest(&whole(&output), true), None, "{output}");
    }
}

#[test]
fn the_first_text_comes_behind_reasoning_that_is_done_and_nothing_else() {
    let item = |kind: &str, index: usize, item: Value| json!({ "type": format!("response.output_item.{kind}"), "output_index": index, "item": item });
    let added = |index: usize, value: Value| item("added", index, value);
    let done = |index: usize, value: Value| item("done", index, value);
    let text = |index: usize, place: usize, text: &str| json!({ "type": "response.output_text.delta", "output_index": index, "content_index": place, "delta": text });
    let refusal =
        json!({ "type": "response.refusal.delta", "output_index": 0, "content_index": 0, "delta": "a" });
    let created = json!({ "type": "response.created", "response": { "id": "resp" } });
    let empty = || message(&json!([]));
    let said = |text: &str| message(&json!([part(text)]));
    let mut users = empty();
    users["role"] = "user".into();
    for (events, first) in [
        (vec![], None),
        (vec![added(0, empty())], None),
        (vec![added(0, empty()), text(0, 0, "")], None),
        (vec![added(0, empty()), text(0, 0, "\u{e9}\""), text(0, 0, "b")], Some("\u{e9}\"b")),
        (vec![added(0, empty()), text(0, 1, "a")], None),
        (vec![added(0, empty()), refusal, text(0, 1, "a")], None),
        (vec![added(0, users.clone()), text(0, 0, "a")], None),
        (vec![done(0, users)], None),
        (vec![added(0, said("a")), text(0, 0, "b")], None),
        (vec![added(0, said("a")), text(0, 0, "b"), done(0, said("ab\n"))], Some("ab\n")),
        (vec![added(0, said("")), text(0, 0, "b")], Some("b")),
        (vec![done(0, said("a")), added(1, empty()), text(1, 0, "b")], Some("a")),
        (vec![done(0, empty()), added(1, empty()), text(1, 0, "b")], None),
        (vec![added(0, reasoning()), added(1, empty()), text(1, 0, "a")], None),
        (vec![added(0, reasoning()), added(1, empty()), text(1, 0, "a"), done(0, reasoning())], Some("a")),
        (vec![done(0, call()), added(1, empty()), text(1, 0, "a")], None),
        (vec![added(0, empty()), added(1, call()), text(0, 0, "a")], Some("a")),
    ] {
        let mut assembly = ResponseAssembly::new(1 << 12);
        for data in std::iter::once(&created).chain(&events) {
            assembly.push(&SseEvent { name: String::new(), data: data.to_string() }).expect("an event");
        }
        assert_eq!(assembly.first_text().as_deref(), first, "{events:?}");
    }
}
