use serde_json::{Value, json};

use super::*;

fn event(name: &str, data: &str) -> SseEvent {
    SseEvent { name: name.to_owned(), data: data.to_owned() }
}

/// An event of the type that its data has.
fn typed(data: &Value) -> SseEvent {
    event(data["type"].as_str().expect("a type"), &data.to_string())
}

fn begin() -> Value {
    json!({ "type": "message_start", "message": {
        "id": "msg", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": null,
        "stop_sequence": null, "usage": { "input_tokens": 3, "output_tokens": 1 } } })
}

fn block_start(index: usize, block: &Value) -> Value {
    json!({ "type": "content_block_start", "index": index, "content_block": block })
}

fn block_delta(index: usize, delta: &Value) -> Value {
    json!({ "type": "content_block_delta", "index": index, "delta": delta })
}

fn block_stop(index: usize) -> Value {
    json!({ "type": "content_block_stop", "index": index })
}

fn end(reason: &str) -> Value {
    json!({ "type": "message_delta", "delta": { "stop_reason": reason, "stop_sequence": null }, "usage": { "output_tokens": 7 } })
}

fn stop() -> Value {
    json!({ "type": "message_stop" })
}

/// An assembly that has taken a start and these events.
fn assembly(events: &[Value]) -> MessageAssembly {
    let mut assembly = MessageAssembly::new(1 << 20);
    assembly.push(&typed(&begin())).expect("a start");
    for event in events {
        assembly.push(&typed(event)).expect("an event");
    }
    assembly
}

fn value(assembly: MessageAssembly) -> Value {
    let json = assembly.body();
    json::scan(&json, MAX_DEPTH).expect("no repeated names");
    serde_json::from_slice(&json).expect("JSON")
}

/// Why the last of these events is refused after a start.
fn refusal(events: &[Value]) -> String {
    let (last, before) = events.split_last().expect("an event");
    error(&mut assembly(before), &typed(last))
}

fn error(assembly: &mut MessageAssembly, event: &SseEvent) -> String {
    match assembly.push(event) {
        Err(AnswerError::Invalid(reason)) => reason,
        other => panic!("{event:?}: {other:?}"),
    }
}

fn text_start() -> Value {
    json!({ "type": "text", "text": "" })
}

fn call_start() -> Value {
    json!({ "type": "tool_use", "id": "toolu", "name": "f", "input": {} })
}

fn text(piece: &str) -> Value {
    json!({ "type": "text_delta", "text": piece })
}

fn input(piece: &str) -> Value {
    json!({ "type": "input_json_delta", "partial_json": piece })
}

/// The bytes of a stream that the API's documentation shows, about.
const STREAM: [(&str, &str); 14] = [
    (
        "message_start",
        r#"{"type":"message_start","message":{"model":"m","id":"msg","type":"message","role":"assistant","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":25,"cache_read_input_tokens":2,"output_tokens":1,"service_tier":"standard"}}}"#,
    ),
    ("ping", r#"{"type": "ping"}"#),
    (
        "content_block_start",
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
    ),
    (
        "content_block_delta",
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm","estimated_tokens":3}}"#,
    ),
    (
        "content_block_delta",
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQB/+="}}"#,
    ),
    ("content_block_stop", r#"{"type":"content_block_stop","index":0}"#),
    (
        "content_block_start",
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu","name":"f","input":{}}}"#,
    ),
    (
        "content_block_delta",
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":""}}"#,
    ),
    (
        "content_block_delta",
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\": 1.0"}}"#,
    ),
    (
        "content_block_delta",
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":", \"b\":\"\\u00e9\"}"}}"#,
    ),
    ("content_block_stop", r#"{"type":"content_block_stop","index":1}"#),
    (
        "message_delta",
        r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null,"container":{"id":"c"}},"usage":{"output_tokens":89},"context_management":{"applied_edits":[]}}"#,
    ),
    ("new_event", "?"),
    ("message_stop", r#"{"type":"message_stop","amazon-bedrock-invocationMetrics":{}}"#),
];

#[test]
fn events_of_anthropic_make_its_answer() {
    let mut assembly = MessageAssembly::new(1 << 20);
    for (place, (name, data)) in STREAM.iter().enumerate() {
        assert!(!assembly.is_complete());
        let is_last = place + 1 == STREAM.len();
        let expected = if is_last { StreamProgress::Done } else { StreamProgress::GoesOn };
        assert_eq!(assembly.push(&event(name, data)), Ok(expected));
    }
    assert!(assembly.is_complete());
    let expected = concat!(
        r#"{"id":"msg","type":"message","role":"assistant","model":"m","content":["#,
        r#"{"type":"thinking","thinking":"Hm","signature":"EqQB/+="},"#,
        r#"{"type":"tool_use","id":"toolu","name":"f","input":{"a": 1.0, "b":"\u00e9"}}],"#,
        r#""stop_reason":"tool_use","stop_sequence":null,"context_management":{"applied_edits":[]},"container":{"id":"c"},"#,
        r#""usage":{"input_tokens":25,"cache_read_input_tokens":2,"output_tokens":89,"service_tier":"standard"}}"#
    );
    assert_eq!(assembly.body(), expected);
}

#[test]
fn what_is_missing_has_its_default() {
    let mut assembly = MessageAssembly::new(1 << 10);
    assert!(!assembly.has_choices());
    assembly.push(&event("message_start", r#"{"type":"message_start","message":{"content":null}}"#)).unwrap();
    assert!(assembly.has_choices());
    assert_eq!(assembly.body(), r#"{"type":"message","role":"assistant","content":[],"stop_reason":null}"#);
}

#[test]
fn an_answer_is_complete_with_a_reason_and_its_end() {
    let is_complete = |events: &[Value]| assembly(events).is_complete();
    assert!(is_complete(&[end("end_turn"), stop()]));
    assert!(!is_complete(&[end("end_turn")]));
    assert!(!is_complete(&[stop()]));
    assert!(!is_complete(&[end(""), stop()]));
    // A later delta that says nothing takes nothing back.
    let empty = json!({ "type": "message_delta", "delta": { "stop_reason": null }, "usage": null });
    assert!(is_complete(&[end("end_turn"), empty, stop()]));
}

#[test]
fn what_follows_the_end_is_not_read() {
    let mut assembly = assembly(&[end("end_turn"), stop()]);
    for event in [typed(&begin()), event("error", "{}"), event("message_delta", "?")] {
        assert_eq!(assembly.push(&event), Ok(StreamProgress::Done));
    }
}

#[test]
fn an_error_fails_and_other_events_of_no_answer_are_ignored() {
    let mut assembly = MessageAssembly::new(0);
    for data in [r#"{"type":"error","error":{"type":"overloaded_error","message":"x"}}"#, "?"] {
        assert_eq!(assembly.push(&event("error", data)), Ok(StreamProgress::Failed));
    }
    for (name, data) in
        [("ping", "?"), ("", r#"{"type":"message_stop"}"#), ("Message_start", "{}"), ("x", &"?".repeat(9999))]
    {
        assert_eq!(assembly.push(&event(name, data)), Ok(StreamProgress::GoesOn), "{name}");
    }
    assert_eq!((assembly.held(), assembly.has_choices()), (0, false));
}

#[test]
fn data_is_an_object_of_the_type_that_the_name_says() {
    let deep = format!(r#"{{"type":"message_stop","x":{}{}}}"#, "[".repeat(62), "]".repeat(62));
    for (data, reason) in [
        ("", "an event is not valid JSON"),
        ("[]", "an event is an array"),
        (r#"{"type":"message_stop","type":"ping"}"#, "an object in an event has the key `/type` twice"),
        (
            r#"{"type":"message_delta","delta":{},"usage":{}}"#,
            "the `type` of a `message_stop` is another one",
        ),
        ("{}", "the `type` of a `message_stop` is another one"),
        (r#"{"type":["message_stop"]}"#, "the `type` of a `message_stop` is another one"),
        (&deep, "an event is nested deeper than 62 levels"),
    ] {
        let refused = error(&mut assembly(&[]), &event("message_stop", data));
        assert!(refused.starts_with(reason), "{refused}");
    }
}

#[test]
fn an_answer_begins_once_and_before_anything_else() {
    for event in
        [block_start(0, &text_start()), block_delta(0, &text("x")), block_stop(0), end("end_turn"), stop()]
    {
        let refused = error(&mut MessageAssembly::new(1 << 10), &typed(&event));
        assert!(refused.ends_with("comes before `message_start`"), "{refused}");
    }
    assert_eq!(refusal(&[begin()]), "an answer begins inside another");
    for (message, reason) in [
        (Value::Null, "a `message_start` has no `message`"),
        (json!([]), "a `message_start` has no `message`"),
        (json!({ "content": "x" }), "the `content` of a `message_start` is no list"),
        (json!({ "content": ["x"] }), "a content block has no `type`"),
        (json!({ "usage": 1 }), "a `usage` is a number"),
    ] {
        let start = typed(&json!({ "type": "message_start", "message": message }));
        assert_eq!(error(&mut MessageAssembly::new(1 << 10), &start), reason);
    }
}

#[test]
fn blocks_begin_in_order_and_events_belong_to_open_ones() {
    let next = "a block begins with an `index` that is not the next one";
    let odd = "a `content_block_stop` has an `index` that is not an integer from 0";
    let (start, start_1) = (block_start(0, &text_start()), block_start(1, &text_start()));
    let stop_at = |index: Value| json!({ "type": "content_block_stop", "index": index });
    for (events, reason) in [
        (vec![start_1], next),
        (vec![start.clone(), start.clone()], next),
        (vec![start.clone(), block_stop(0), start.clone()], next),
        (vec![block_delta(0, &text("x"))], "a `content_block_delta` belongs to no open block"),
        (
            vec![start.clone(), block_stop(0), block_delta(0, &text("x"))],
            "a `content_block_delta` belongs to no open block",
        ),
        (vec![start.clone(), block_delta(1, &text("x"))], "a `content_block_delta` belongs to no open block"),
        (
            vec![start.clone(), block_stop(0), block_stop(0)],
            "a `content_block_stop` belongs to no open block",
        ),
        (vec![start.clone(), stop_at(json!(-1))], odd),
        (vec![start.clone(), stop_at(json!(0.0))], odd),
        (vec![start.clone(), stop_at(json!("0"))], odd),
        (vec![start.clone(), stop_at(Value::Null)], odd),
        (vec![block_start(0, &Value::Null)], "a `content_block_start` has no `content_block`"),
        (vec![block_start(0, &json!({ "text": "x" }))], "a content block has no `type`"),
        (vec![block_start(0, &json!({ "type": 1 }))], "a content block has no `type`"),
        (vec![start.clone(), block_delta(0, &Value::Null)], "a `content_block_delta` has no `delta`"),
        (vec![json!({ "type": "message_delta", "usage": {} })], "a `message_delta` has no `delta`"),
        (vec![json!({ "type": "message_delta", "delta": {}, "usage": [] })], "a `usage` is an array"),
    ] {
        assert_eq!(refusal(&events), reason);
    }
}

#[test]
fn blocks_of_the_start_are_whole_and_others_go_on_behind_them() {
    let call = |id: &str| json!({ "type": "tool_use", "id": id, "name": "f", "input": { "a": 1 } });
    let start = json!({ "type": "message_start", "message": { "content": [call("a"), call("b")] } });
    let assembly = |events: &[Value]| {
        let mut assembly = MessageAssembly::new(1 << 20);
        std::iter::once(&start).chain(events).for_each(|event| {
            assembly.push(&typed(event)).expect("an event");
        });
        assembly
    };
    let whole = value(assembly(&[block_start(2, &text_start()), block_delta(2, &text("x")), block_stop(2)]));
    assert_eq!(whole["content"], json!([call("a"), call("b"), { "type": "text", "text": "x" }]));
    let mut ended = assembly(&[end("tool_use")]);
    ended.drop_open_calls();
    assert_eq!(value(ended)["content"], json!([call("a"), call("b")]));
    let closed = "a `content_block_delta` belongs to no open block";
    assert_eq!(error(&mut assembly(&[]), &typed(&block_delta(1, &input("{}")))), closed);
    let next = "a block begins with an `index` that is not the next one";
    assert_eq!(error(&mut assembly(&[]), &typed(&block_start(0, &text_start()))), next);
    let many =
        json!({ "type": "message_start", "message": { "content": vec![text_start(); MAX_BLOCKS + 1] } });
    let pushed = MessageAssembly::new(64 << 20).push(&typed(&many));
    assert!(matches!(pushed, Err(AnswerError::TooLarge(_))));
}

#[test]
fn deltas_of_open_blocks_may_take_turns() {
    let whole = value(assembly(&[
        block_start(0, &text_start()),
        block_delta(0, &text("a")),
        block_start(1, &text_start()),
        block_delta(1, &text("b")),
        block_delta(0, &text("c")),
        block_stop(1),
        block_stop(0),
    ]));
    assert_eq!(whole["content"], json!([{ "type": "text", "text": "ac" }, { "type": "text", "text": "b" }]));
}

#[test]
fn the_end_goes_to_the_answer_and_the_last_usage_counts() {
    let usage =
        json!({ "output_tokens": 9, "input_tokens": null, "server_tool_use": { "web_search_requests": 1 } });
    let delta = json!({ "stop_reason": "stop_sequence", "stop_sequence": "x", "stop_details": { "a": 1 }, "new": 1,
                        "safeguard_results": [1], "id": "other", "content": ["x"], "usage": { "input_tokens": 0 } });
    let event = json!({ "type": "message_delta", "delta": delta, "usage": usage, "beside": [2], "content": "x",
                        "stop_reason": "other", "role": "user", "container": "other" });
    let whole = value(assembly(&[end("end_turn"), event]));
    let expected = json!({
        "id": "msg", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": "stop_sequence",
        "stop_sequence": "x", "stop_details": { "a": 1 }, "new": 1, "safeguard_results": [1], "beside": [2],
        "usage": { "input_tokens": 3, "output_tokens": 9, "server_tool_use": { "web_search_requests": 1 } }
    });
    assert_eq!(whole, expected);
}

#[test]
fn objects_of_the_end_are_replaced_as_a_whole() {
    let event = |name: &str| {
        let object = json!({ name: { "x": 1 } });
        json!({ "type": "message_delta", "delta": { "container": object }, "usage": { "cache_creation": object } })
    };
    let whole = value(assembly(&[event("a"), event("b")]));
    let expected = json!({ "b": { "x": 1 } });
    assert_eq!((&whole["container"], &whole["usage"]["cache_creation"]), (&expected, &expected));
}

#[test]
fn calls_of_a_cut_answer_are_dropped_unless_they_and_the_model_are_done() {
    let text = block_start(0, &text_start());
    let server = block_start(1, &json!({ "type": "server_tool_use", "input": {} }));
    let (closed, open) = (block_start(2, &call_start()), block_start(3, &call_start()));
    let events = [text, server, closed, block_stop(2), open];
    let kinds = |end: &[Value]| {
        let mut assembly = assembly(&[&events[..], end].concat());
        assembly.drop_open_calls();
        let blocks = value(assembly)["content"].take();
        blocks.as_array().unwrap().iter().map(|block| block["type"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&[]), ["text", "server_tool_use"]);
    assert_eq!(kinds(&[end("tool_use")]), ["text", "server_tool_use", "tool_use"]);
}

#[test]
fn text_of_a_cut_answer_stays() {
    let whole = value(assembly(&[block_start(0, &text_start()), block_delta(0, &text("so far"))]));
    assert_eq!(whole["content"], json!([{ "type": "text", "text": "so far" }]));
    assert_eq!((&whole["stop_reason"], &whole["usage"]["output_tokens"]), (&Value::Null, &json!(1)));
}

#[test]
fn what_is_held_is_charged_and_limited() {
    let long = "x".repeat(1000);
    let events = [
        block_start(0, &json!({ "type": "text", "text": long })),
        block_delta(0, &text(&long)),
        block_delta(0, &json!({ "type": "citations_delta", "citation": { "a": long } })),
        block_start(1, &json!({ "type": "thinking" })),
        block_delta(1, &json!({ "type": "signature_delta", "signature": long })),
        block_start(2, &call_start()),
        block_delta(2, &input(&long)),
        json!({ "type": "message_delta", "delta": { "new": long } }),
        json!({ "type": "message_delta", "delta": {}, "usage": { "new": long } }),
    ];
    let mut held = assembly(&[]).held();
    for place in 0..events.len() {
        let assembly = assembly(&events[..=place]);
        let added = assembly.held() - held;
        let is_long = events[place].to_string().contains(&long);
        assert!(
            if is_long { (1000..3200).contains(&added) } else { added > 0 },
            "{added} for {}",
            events[place]
        );
        held = assembly.held();
        let mut limited = MessageAssembly::new(held - 1);
        limited.push(&typed(&begin())).unwrap();
        events[..place].iter().for_each(|event| assert!(limited.push(&typed(event)).is_ok()));
        assert!(matches!(limited.push(&typed(&events[place])), Err(AnswerError::TooLarge(_))));
    }
}

#[test]
fn each_citation_is_charged_as_much_as_it_takes() {
    let citation = block_delta(0, &json!({ "type": "citations_delta", "citation": {} }));
    let mut assembly = assembly(&[block_start(0, &text_start()), citation.clone()]);
    let held = assembly.held();
    for _ in 0..10 {
        assembly.push(&typed(&citation)).unwrap();
    }
    assert_eq!(assembly.held() - held, 10 * (NODE_BYTES + "{}".len()));
}

#[test]
fn what_is_repeated_is_charged_once() {
    let signature = block_delta(0, &json!({ "type": "signature_delta", "signature": "x".repeat(1000) }));
    let mut assembly =
        assembly(&[block_start(0, &json!({ "type": "thinking" })), signature.clone(), end("end_turn")]);
    let held = assembly.held();
    for _ in 0..100 {
        assembly.push(&typed(&signature)).unwrap();
        assembly.push(&typed(&end("tool_use"))).unwrap();
    }
    assert_eq!(assembly.held(), held);
}

#[test]
fn an_answer_has_a_limited_number_of_blocks() {
    let mut assembly = MessageAssembly::new(64 << 20);
    assembly.push(&typed(&begin())).unwrap();
    for index in 0..MAX_BLOCKS {
        assembly.push(&typed(&block_start(index, &text_start()))).unwrap();
    }
    let one_more = typed(&block_start(MAX_BLOCKS, &text_start()));
    assert!(matches!(assembly.push(&one_more), Err(AnswerError::TooLarge(_))));
}

#[test]
fn many_small_deltas_and_many_members_take_linear_time() {
    let mut assembly = MessageAssembly::new(64 << 20);
    assembly.push(&typed(&begin())).unwrap();
    let members: String = (0..30_000).map(|name| format!(r#","{name}":1"#)).collect();
    let start = |index: usize, kind: &str| {
        format!(
            r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"{kind}"{members}}}}}"#
        )
    };
    assembly.push(&event("content_block_start", &start(0, "text"))).unwrap();
    assembly.push(&event("content_block_start", &start(1, "tool_use"))).unwrap();
    let deltas = [block_delta(0, &text("tok")), block_delta(1, &input("tok"))].map(|delta| typed(&delta));
    let citation = typed(&block_delta(0, &json!({ "type": "citations_delta", "citation": {} })));
    for _ in 0..30_000 {
        deltas.iter().chain([&citation]).for_each(|delta| {
            assembly.push(delta).unwrap();
        });
    }
    for name in 0..20_000 {
        let end = json!({ "type": "message_delta", "delta": { name.to_string(): 1 }, "usage": { name.to_string(): 1 } });
        assembly.push(&typed(&end)).unwrap();
    }
    assert!(assembly.body().len() > 800_000);
}
