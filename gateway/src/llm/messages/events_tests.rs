use serde_json::{Value, json};

use super::*;

/// The events as they are written.
fn written(events: &[Bytes]) -> Vec<&str> {
    events.iter().map(|event| str::from_utf8(event).expect("text")).collect()
}

/// The data of events, whose names are the same as their types.
fn data(events: &[Bytes]) -> Vec<Value> {
    let read = |event: &str| {
        let (name, data) =
            event.strip_prefix("event: ").and_then(|rest| rest.split_once('\n')).expect("a name");
        let data = data.strip_prefix("data: ").and_then(|data| data.strip_suffix("\n\n")).expect("data");
        assert!(!data.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']), "{data:?}");
        json::scan(data.as_bytes(), json::MAX_DEPTH).expect("no repeated names");
        let data: Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(data["type"], name);
        data
    };
    written(events).into_iter().map(read).collect()
}

fn events(answer: &Value) -> StreamEvents {
    stream_events(&answer.to_string().into())
}

/// The start of a block and its deltas, each of which has the place of the block, as has its end.
fn block(block: &Value) -> (Value, Vec<Value>) {
    let other = json!({ "type": "other" });
    let mut data = data(&events(&json!({ "content": [other, block] })).answer);
    assert!(data[3..].iter().all(|event| event["index"] == 1));
    assert_eq!(data.pop().expect("an end"), json!({ "type": "content_block_stop", "index": 1 }));
    let deltas = data.split_off(4);
    assert!(deltas.iter().all(|event| event["type"] == "content_block_delta"));
    assert_eq!(data[3]["type"], "content_block_start");
    (data[3]["content_block"].take(), deltas.into_iter().map(|mut delta| delta["delta"].take()).collect())
}

#[test]
fn an_answer_is_written_as_the_sdks_read_it() {
    let answer = concat!(
        r#"{"model":"m","id":"msg","type":"message","role":"assistant","content":["#,
        r#"{"citations":[{"a":1}],"type":"text","text":"é\u2028"},{"type":"tool_use","id":"t","name":"f","input":{"b": 1.0}}],"#,
        r#""stop_reason":"tool_use","stop_sequence":null,"stop_details":{"x":1},"container":{"id":"c"},"new":[2],"#,
        r#""context_management":{"applied_edits":[]},"safeguard_results":[1],"usage":{"input_tokens":3,"cache_creation":{"y":0},"output_tokens":7,"new":4,"#,
        r#""server_tool_use":{"z":1},"output_tokens_details":{},"iterations":[]}}"#
    );
    let StreamEvents { answer, end } = stream_events(&Bytes::from_static(answer.as_bytes()));
    let expected = [
        concat!(
            "event: message_start\ndata: ",
            r#"{"type":"message_start","message":{"id":"msg","type":"message","role":"assistant","model":"m","content":[],"#,
            r#""stop_reason":null,"stop_sequence":null,"new":[2],"#,
            r#""usage":{"input_tokens":3,"cache_creation":{"y":0},"new":4,"output_tokens":0}}}"#,
            "\n\n"
        ),
        concat!(
            "event: content_block_start\ndata: ",
            r#"{"type":"content_block_start","index":0,"content_block":{"citations":[],"type":"text","text":""}}"#,
            "\n\n"
        ),
        concat!(
            "event: content_block_delta\ndata: ",
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"é\u2028"}}"#,
            "\n\n"
        ),
        concat!(
            "event: content_block_delta\ndata: ",
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{"a":1}}}"#,
            "\n\n"
        ),
        "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
        concat!(
            "event: content_block_start\ndata: ",
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}"#,
            "\n\n"
        ),
        concat!(
            "event: content_block_delta\ndata: ",
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"b\": 1.0}"}}"#,
            "\n\n"
        ),
        "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":1}\n\n",
    ];
    assert_eq!(written(&answer), expected);
    let expected = [
        concat!(
            "event: message_delta\ndata: ",
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null,"stop_details":{"x":1},"#,
            r#""container":{"id":"c"},"safeguard_results":[1]},"usage":{"input_tokens":3,"cache_creation":{"y":0},"#,
            r#""output_tokens":7,"new":4,"server_tool_use":{"z":1},"output_tokens_details":{},"iterations":[]},"#,
            r#""context_management":{"applied_edits":[]}}"#,
            "\n\n"
        ),
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    ];
    assert_eq!(written(&end), expected);
}

#[test]
fn what_clients_read_is_always_there() {
    let StreamEvents { answer, end } = events(&json!({}));
    let message = json!({ "type": "message", "role": "assistant", "content": [], "stop_reason": null, "stop_sequence": null,
                          "usage": { "input_tokens": 0, "output_tokens": 0 } });
    assert_eq!(data(&answer), [json!({ "type": "message_start", "message": message })]);
    let delta = json!({ "stop_reason": null, "stop_sequence": null });
    let last = json!({ "type": "message_delta", "delta": delta, "usage": { "input_tokens": 0, "output_tokens": 0 } });
    assert_eq!(data(&end), [last, json!({ "type": "message_stop" })]);
}

#[test]
fn texts_and_arguments_come_in_pieces_that_end_at_characters() {
    let text = format!("a{}", "é".repeat(20_000));
    for (start, member, delta, piece, value, empty) in [
        ("text", "text", "text_delta", "text", json!(text), json!("")),
        ("thinking", "thinking", "thinking_delta", "thinking", json!(text), json!("")),
        ("tool_use", "input", "input_json_delta", "partial_json", json!({ "a": text }), json!({})),
        ("server_tool_use", "input", "input_json_delta", "partial_json", json!({ "a": text }), json!({})),
    ] {
        let (start, deltas) = block(&json!({ "type": start, member: value, "x": 1 }));
        assert_eq!(start, json!({ "type": start["type"], member: empty, "x": 1 }));
        assert_eq!(deltas.len(), 3);
        assert!(deltas.iter().all(|part| part["type"] == delta));
        let joined: String = deltas.iter().map(|part| part[piece].as_str().expect("a piece")).collect();
        assert_eq!(joined, value.as_str().map_or(value.to_string(), str::to_owned));
    }
}

#[test]
fn a_signature_is_whole_and_follows_what_it_signs() {
    let signature = "s".repeat(60_000);
    let (start, deltas) = block(&json!({ "signature": signature, "thinking": "t", "type": "thinking" }));
    assert_eq!(start, json!({ "type": "thinking", "thinking": "", "signature": "" }));
    let expected = [
        json!({ "type": "thinking_delta", "thinking": "t" }),
        json!({ "type": "signature_delta", "signature": signature }),
    ];
    assert_eq!(deltas, expected);
}

#[test]
fn nothing_comes_for_empty_texts_and_lists() {
    for whole in [
        json!({ "type": "text", "text": "", "citations": [] }),
        json!({ "type": "thinking", "thinking": "", "signature": "" }),
    ] {
        assert_eq!(block(&whole), (whole, vec![]));
    }
    let call = json!({ "type": "tool_use", "input": {} });
    assert_eq!(block(&call), (call, vec![json!({ "type": "input_json_delta", "partial_json": "{}" })]));
}

#[test]
fn what_no_sdk_joins_stays_in_the_start_of_its_block() {
    for whole in [
        json!({ "type": "redacted_thinking", "data": "x" }),
        json!({ "type": "web_search_tool_result", "tool_use_id": "x", "content": [{ "text": "y" }] }),
        json!({ "type": "compaction", "content": null }),
        json!({ "type": "compaction", "content": [], "encrypted_content": "y" }),
        json!({ "type": "new", "text": "x", "input": {} }),
        json!({ "type": "text", "text": null, "citations": null }),
        json!({ "type": "text", "text": ["x"], "citations": ["x"] }),
        // It was judged as no call.
        json!({ "type": "tool_use", "input": "{\"path\":\"/\"}" }),
        json!({ "type": "tool_use", "input": "" }),
        json!({ "type": "tool_use", "input": [1] }),
        json!({ "text": "x" }),
    ] {
        assert_eq!(block(&whole), (whole, vec![]));
    }
}

#[test]
fn arguments_that_were_cut_come_as_the_provider_sends_them() {
    let cut = format!("{{\"path\":\"{}", "é".repeat(20_000));
    let (start, deltas) = block(&json!({ "type": "tool_use", "input": cut }));
    assert_eq!(start, json!({ "type": "tool_use", "input": {} }));
    assert_eq!(deltas.len(), 3);
    assert!(deltas.iter().all(|delta| delta["type"] == "input_json_delta"));
    let joined: String =
        deltas.iter().map(|delta| delta["partial_json"].as_str().expect("a piece")).collect();
    assert_eq!(joined, cut);
}

#[test]
fn a_compaction_is_in_the_start_and_in_one_delta() {
    for members in [
        json!({ "content": "x".repeat(60_000), "encrypted_content": "y" }),
        json!({ "content": "x" }),
        json!({ "content": null, "encrypted_content": "y" }),
    ] {
        let with = |name: &str, other: &Value| {
            let mut object = members.clone();
            object["type"] = name.into();
            object.as_object_mut().expect("an object").extend(other.as_object().expect("an object").clone());
            object
        };
        let whole = with("compaction", &json!({ "new": 1 }));
        assert_eq!(block(&whole), (whole, vec![with("compaction_delta", &json!({}))]));
    }
}

#[test]
fn an_error_is_an_event_of_its_name() {
    let error = error_event(b"{\"type\":\"error\",\n\"error\":{}}");
    assert_eq!(error, "event: error\ndata: {\"type\":\"error\", \"error\":{}}\n\n");
}

#[test]
fn any_text_becomes_events_without_a_panic() {
    for text in [
        "",
        "null",
        "[1]",
        "\u{feff}{",
        "{\"content\":[1,{\"type\":7},[],{\"type\":\"text\",\"text\":7}]}",
        "{\"content\":[{\"type\":\"tool_use\",\"input\":{",
        "{\"content\":{},\"usage\":[]}",
    ] {
        stream_events(&Bytes::from_static(text.as_bytes()));
    }
    stream_events(&Bytes::from_static(b"\xff"));
}
