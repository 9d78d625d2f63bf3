use serde_json::{Value, json};

use super::*;
use crate::llm::{
    format::{Echoes, FormatHeartbeat},
    sse::SseEvent,
};

/// A heartbeat after so many events.
fn heartbeat(events: usize) -> StreamHeartbeat {
    let mut heartbeat = StreamHeartbeat::new(&Echoes::default(), false);
    let data = r#"{"type":"response.created","response":{"id":"resp"}}"#;
    heartbeat.push(&SseEvent { name: String::new(), data: data.to_owned() });
    while heartbeat.events() < events {
        heartbeat.beat();
    }
    heartbeat
}

/// The data of events, each of which has one name, and no line end that some clients see.
fn data(events: &[Bytes]) -> Vec<Value> {
    let read = |event: &Bytes| {
        let text = str::from_utf8(event).expect("text");
        let (name, data) =
            text.strip_prefix("event: ").and_then(|text| text.split_once('\n')).expect("a name");
        let data = data.strip_prefix("data: ").and_then(|data| data.strip_suffix("\n\n")).expect("data");
        assert!(!data.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']), "{data:?}");
        json::scan(data.as_bytes(), json::MAX_DEPTH).expect("no repeated names");
        let data: Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(data["type"], name);
        data
    };
    events.iter().map(read).collect()
}

fn all(answer: &Value, sent: usize) -> Vec<Value> {
    let events = stream_events(&answer.to_string().into(), &heartbeat(sent));
    data(&[events.answer, events.end].concat())
}

/// The events of an item, without their numbers.
fn item(item: &Value) -> Vec<Value> {
    let mut events = all(&json!({ "output": [item] }), 2);
    events.pop();
    for event in &mut events {
        assert_eq!(event["output_index"], 0);
        let members = event.as_object_mut().expect("an object");
        members.retain(|name, _| name != "sequence_number" && name != "output_index");
    }
    events
}

/// An item that comes whole in its first event.
fn comes_whole(whole: &Value) -> bool {
    item(whole)
        == [
            json!({ "type": "response.output_item.added", "item": whole }),
            json!({ "type": "response.output_item.done", "item": whole }),
        ]
}

#[test]
fn an_answer_begins_without_what_is_known_only_in_the_end() {
    let answer = json!({ "id": "resp", "model": "m", "status": "incomplete", "usage": { "x": 1 }, "incomplete_details": { "reason": "y" },
                         "output_text": "z", "output": [] });
    let events = all(&answer, 0);
    let begins = json!({ "id": "resp", "model": "m", "status": "in_progress", "usage": null, "incomplete_details": null, "output": [] });
    let expected = [
        json!({ "type": "response.created", "sequence_number": 0, "response": begins }),
        json!({ "type": "response.in_progress", "sequence_number": 1, "response": begins }),
        json!({ "type": "response.incomplete", "sequence_number": 2, "response": answer }),
    ];
    assert_eq!(events, expected);
}

#[test]
fn the_status_names_the_last_event() {
    for (status, name, last) in [
        (json!("completed"), "response.completed", "completed"),
        (json!("incomplete"), "response.incomplete", "incomplete"),
        (json!("failed"), "response.failed", "failed"),
        (json!("cancelled"), "response.failed", "cancelled"),
        (json!("in_progress"), "response.incomplete", "incomplete"),
        (json!("queued"), "response.incomplete", "incomplete"),
        (json!(7), "response.incomplete", "incomplete"),
        (Value::Null, "response.completed", "completed"),
    ] {
        let end = &all(&json!({ "id": "x", "status": status }), 2)[0];
        assert_eq!(end["type"], name, "{status}");
        assert_eq!(end["response"], json!({ "id": "x", "status": last }));
    }
    assert_eq!(all(&json!({ "id": "x" }), 2)[0]["response"], json!({ "id": "x", "status": "completed" }));
}

#[test]
fn events_go_on_behind_the_heartbeat() {
    let answer = json!({ "output": [{ "type": "message", "id": "m", "content": [] }] });
    for (sent, first) in [
        (0, "response.created"),
        (1, "response.in_progress"),
        (2, "response.output_item.added"),
        (5, "response.output_item.added"),
    ] {
        let events = all(&answer, sent);
        assert_eq!(events[0]["type"], first);
        assert!(events.iter().zip(sent..).all(|(event, number)| event["sequence_number"] == number));
    }
}

#[test]
fn a_message_comes_as_the_sdks_read_it() {
    let part = json!({ "type": "output_text", "text": "é\u{2028}", "annotations": [{ "a": 1 }], "logprobs": [{ "b": 2 }] });
    let message = json!({ "type": "message", "id": "m", "status": "completed", "content": [part, { "type": "refusal", "refusal": "" }] });
    let expected = json!([
        { "type": "response.output_item.added", "item": { "type": "message", "id": "m", "status": "in_progress", "content": [] } },
        { "type": "response.content_part.added", "item_id": "m", "content_index": 0,
          "part": { "type": "output_text", "text": "", "annotations": [], "logprobs": [] } },
        { "type": "response.output_text.delta", "item_id": "m", "content_index": 0, "delta": "é\u{2028}", "logprobs": [{ "b": 2 }] },
        { "type": "response.output_text.annotation.added", "item_id": "m", "content_index": 0, "annotation_index": 0, "annotation": { "a": 1 } },
        { "type": "response.output_text.done", "item_id": "m", "content_index": 0, "text": "é\u{2028}", "logprobs": [{ "b": 2 }] },
        { "type": "response.content_part.done", "item_id": "m", "content_index": 0, "part": part },
        { "type": "response.content_part.added", "item_id": "m", "content_index": 1, "part": { "type": "refusal", "refusal": "" } },
        { "type": "response.refusal.done", "item_id": "m", "content_index": 1, "refusal": "" },
        { "type": "response.content_part.done", "item_id": "m", "content_index": 1, "part": { "type": "refusal", "refusal": "" } },
        { "type": "response.output_item.done", "item": message },
    ]);
    assert_eq!(Value::from(item(&message)), expected);
}

#[test]
fn reasoning_comes_with_its_summary_first() {
    let reasoning = json!({ "type": "reasoning", "id": "r", "content": [{ "type": "reasoning_text", "text": "deep" }],
                            "summary": [{ "type": "summary_text", "text": "short" }], "encrypted_content": "e" });
    let events = item(&reasoning);
    let names: Vec<_> = events.iter().map(|event| event["type"].as_str().expect("a type")).collect();
    let expected = [
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.content_part.added",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.content_part.done",
        "response.output_item.done",
    ];
    assert_eq!(names, expected);
    assert_eq!((&events[2]["summary_index"], &events[6]["content_index"]), (&json!(0), &json!(0)));
    assert_eq!(
        events[0]["item"],
        json!({ "type": "reasoning", "id": "r", "content": [], "summary": [], "encrypted_content": "e" })
    );
}

#[test]
fn arguments_come_in_pieces_that_end_at_characters() {
    let text = format!("a{}", "é".repeat(20_000));
    for (kind, member, event) in [
        ("function_call", "arguments", "response.function_call_arguments"),
        ("custom_tool_call", "input", "response.custom_tool_call_input"),
    ] {
        let call = json!({ "type": kind, "id": "c", "name": "f", member: text });
        let events = item(&call);
        assert_eq!(events[0]["item"], json!({ "type": kind, "id": "c", "name": "f", member: "" }));
        let deltas = &events[1..4];
        assert!(
            deltas.iter().all(|delta| delta["type"] == format!("{event}.delta") && delta["item_id"] == "c")
        );
        let joined: String = deltas.iter().map(|delta| delta["delta"].as_str().expect("a piece")).collect();
        assert_eq!(joined, text);
        assert_eq!((&events[4]["type"], &events[4][member]), (&json!(format!("{event}.done")), &json!(text)));
        assert_eq!(events[5]["item"], call);
    }
}

#[test]
fn what_the_sdks_cant_join_comes_whole() {
    for whole in [
        json!({ "type": "shell_call", "id": "s", "action": { "commands": ["ls"] } }),
        json!({ "type": "apply_patch_call", "id": "a", "operation": { "diff": "x" } }),
        json!({ "type": "new", "id": "n", "content": [{ "type": "output_text", "text": "x" }] }),
        json!({ "type": "function_call", "id": "f", "arguments": { "a": 1 } }),
        json!({ "type": "function_call", "arguments": "{}" }),
        json!({ "type": "message", "id": "", "content": [] }),
        json!({ "type": "message", "id": "m", "content": "x" }),
        json!({ "type": "message", "id": "m", "content": [{ "type": "reasoning_text", "text": "x" }] }),
        json!({ "type": "reasoning", "id": "r", "summary": ["x"] }),
        json!({ "type": "reasoning", "id": "r", "content": [{ "type": "output_text", "text": "x" }] }),
        json!("x"),
    ] {
        assert!(comes_whole(&whole), "{whole}");
    }
}

#[test]
fn an_error_has_both_forms_that_clients_read() {
    let error = error_event(
        b"{\"error\":{\"message\":\"m\",\"type\":\"t\",\n\"param\":null,\"code\":\"c\",\"hookgate\":{}}}",
    );
    let expected = json!({ "type": "error", "code": "c", "message": "m", "param": null, "sequence_number": 0,
                           "error": { "message": "m", "type": "t", "param": null, "code": "c", "hookgate": {} } });
    assert_eq!(data(&[error]), [expected]);
}

#[test]
fn any_text_becomes_events_without_a_panic() {
    for text in [
        "",
        "null",
        "[1]",
        "\u{feff}{",
        "{\"output\":[1,{\"type\":7},[],{\"type\":\"message\",\"id\":\"m\",\"content\":[7]}]}",
        "{\"output\":{",
    ] {
        stream_events(&Bytes::from_static(text.as_bytes()), &heartbeat(0));
        error_event(text.as_bytes());
    }
    stream_events(&Bytes::from_static(b"\xff"), &heartbeat(0));
}
