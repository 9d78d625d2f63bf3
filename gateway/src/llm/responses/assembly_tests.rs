use serde_json::{Value, json};

use super::*;

fn event(data: &Value) -> SseEvent {
    SseEvent { name: String::new(), data: data.to_string() }
}

fn created() -> Value {
    json!({ "type": "response.created", "response": { "id": "resp", "status": "queued", "usage": null, "output": [{ "x": 1 }] } })
}

fn completed() -> Value {
    json!({ "type": "response.completed", "response": { "id": "resp", "usage": { "output_tokens": 7 } } })
}

fn item(kind: &str, index: u64, item: &Value) -> Value {
    json!({ "type": format!("response.output_item.{kind}"), "output_index": index, "item": item })
}

fn message(content: &Value) -> Value {
    json!({ "type": "message", "id": "msg", "content": content })
}

fn delta(event: &str, index: u64, place: u64, text: &str) -> Value {
    json!({ "type": format!("response.{event}.delta"), "output_index": index, "content_index": place, "summary_index": place, "delta": text })
}

/// An assembly that has taken a beginning and these events.
fn assembly(events: &[Value]) -> ResponseAssembly {
    let mut assembly = ResponseAssembly::new(1 << 20);
    for data in std::iter::once(&created()).chain(events) {
        assembly.push(&event(data)).expect("an event");
    }
    assembly
}

fn output(events: &[Value]) -> Value {
    let json = assembly(events).body();
    json::scan(&json, MAX_DEPTH).expect("no repeated names");
    serde_json::from_slice::<Value>(&json).expect("JSON")["output"].take()
}

/// Why the last of these events is refused after a beginning.
fn refusal(events: &[Value]) -> String {
    let (last, before) = events.split_last().expect("an event");
    match assembly(before).push(&event(last)) {
        Err(AnswerError::Invalid(reason)) => reason,
        other => panic!("{last}: {other:?}"),
    }
}

#[test]
fn events_of_openai_make_its_answer() {
    let call = json!({ "type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "" });
    let done = json!({ "type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}" });
    let mut assembly = assembly(&[
        json!({ "type": "keepalive", "sequence_number": 3 }),
        item("added", 1, &call),
        item("added", 0, &message(&json!([]))),
        delta("output_text", 0, 0, "a"),
        delta("function_call_arguments", 1, 0, "{"),
        delta("output_text", 0, 0, "b"),
        item("done", 1, &done),
    ]);
    assert!(assembly.has_choices() && !assembly.is_complete());
    assert_eq!(assembly.push(&event(&completed())), Ok(StreamProgress::Done));
    assert!(assembly.is_complete());
    let expected = concat!(
        r#"{"id":"resp","object":"response","status":"completed","usage":{"output_tokens":7},"output":["#,
        r#"{"content":[{"type":"output_text","text":"ab","annotations":[]}],"id":"msg","type":"message"},"#,
        r#"{"arguments":"{}","call_id":"c","id":"fc","name":"f","type":"function_call"}]}"#
    );
    let whole: Value = serde_json::from_slice(&assembly.body()).expect("JSON");
    assert_eq!(whole, serde_json::from_str::<Value>(expected).expect("JSON"));
}

#[test]
fn an_item_that_is_done_counts_more_than_its_deltas_and_the_last_one_most() {
    let (first, second) = (message(&json!([{ "text": "first" }])), message(&json!([{ "text": "second" }])));
    let events =
        [item("added", 0, &message(&json!([]))), delta("output_text", 0, 0, "x"), item("done", 0, &first)];
    assert_eq!(output(&events), json!([first]));
    let more = [item("done", 0, &second), delta("output_text", 0, 0, "x")];
    assert_eq!(output(&[events.as_slice(), &more].concat()), json!([second]));
    assert_eq!(output(&[item("done", 0, &first)]), json!([first]));
}

#[test]
fn deltas_go_on_behind_the_start_and_the_end_of_a_text_replaces_it() {
    let start = message(
        &json!([{ "type": "output_text", "text": "a", "x": 1 }, { "type": "refusal", "refusal": "é" }]),
    );
    let events = [
        item("added", 0, &start),
        delta("output_text", 0, 0, "\"b"),
        delta("refusal", 0, 1, "x"),
        json!({ "type": "response.refusal.done", "output_index": 0, "content_index": 1, "refusal": "no" }),
        // Of another type than the part, and of another one than the item.
        delta("refusal", 0, 0, "x"),
        delta("reasoning_text", 0, 0, "x"),
        delta("refusal", 0, 1_000_000_000, "far"),
    ];
    let content = json!([{ "type": "output_text", "text": "a\"b", "x": 1 }, { "type": "refusal", "refusal": "no" }, { "type": "refusal", "refusal": "far" }]);
    assert_eq!(output(&events), json!([message(&content)]));
}

#[test]
fn an_index_may_be_any_number_and_takes_no_memory() {
    let last = u64::MAX;
    let whole =
        assembly(&[item("added", last, &message(&json!([]))), item("done", 1_000_000_000, &json!({}))]);
    assert!(whole.held() < 2_000);
    let events = [
        item("added", last, &message(&json!([]))),
        delta("output_text", last, last, "x"),
        item("done", 1_000_000_000, &json!({})),
    ];
    let part = json!({ "type": "output_text", "text": "x", "annotations": [] });
    assert_eq!(output(&events), json!([{}, message(&json!([part]))]));
}

#[test]
fn what_belongs_to_no_item_and_unknown_events_are_dropped() {
    let events = [
        delta("output_text", 3, 0, "x"),
        json!({ "type": "response.new.delta", "output_index": -1 }),
        json!({ "output_index": 0 }),
        json!({ "type": "response.output_item.added", "output_index": 0, "item": null }),
    ];
    assert_eq!(output(&events), json!([]));
}

/// The last event, with this output.
fn ends(output: &Value) -> Value {
    let mut end = completed();
    end["response"]["output"] = output.clone();
    end
}

#[test]
fn the_output_of_the_last_event_counts_only_for_what_isnt_done() {
    let late = json!([message(&json!(["late"]))]);
    assert_eq!(output(&[ends(&late)]), late);
    assert_eq!(output(&[item("done", 0, &message(&json!([]))), ends(&late)]), json!([message(&json!([]))]));
    let open = [item("added", 0, &message(&json!([]))), delta("output_text", 0, 0, "x")];
    assert_eq!(output(&[&open[..], &[ends(&late)]].concat()), late);
}

#[test]
fn an_open_call_is_the_one_of_the_last_event() {
    let call = |id: &str, call_id: &str, arguments: &str| json!({ "type": "function_call", "id": id, "call_id": call_id, "arguments": arguments });
    let patch = json!({ "type": "apply_patch_call", "operation": { "diff": "x" } });
    let whole = json!([call("a", "c", "{\"a\":1}"), call("new", "d", "{\"b\":2}"), patch]);
    // By its id, by the id of its call, and by its place.
    let events = [
        item("added", 0, &call("b", "d", "")),
        item("added", 1, &call("a", "c", "")),
        item("added", 2, &json!({ "type": "apply_patch_call", "operation": {} })),
        ends(&whole),
    ];
    assert_eq!(output(&events), json!([whole[1], whole[0], whole[2]]));
}

#[test]
fn an_item_whose_id_is_another_in_each_event_comes_once() {
    let rotated = |id: &str| json!({ "type": "message", "id": id, "content": [] });
    assert_eq!(
        output(&[item("added", 0, &rotated("a")), ends(&json!([rotated("b")]))]),
        json!([rotated("b")])
    );
    assert_eq!(
        output(&[item("done", 0, &rotated("a")), ends(&json!([rotated("b")]))]),
        json!([rotated("a")])
    );
}

#[test]
fn what_is_only_in_the_last_event_comes_at_its_place_or_behind_the_rest() {
    let call = |id: &str| json!({ "type": "function_call", "id": id, "call_id": id, "arguments": "{}" });
    let reasoning = json!({ "type": "reasoning", "id": "r", "summary": [] });
    for (place, expected) in [
        (1, json!([reasoning, call("a"), call("b")])),
        (0, json!([call("a"), call("b"), reasoning])),
        // The place of `b` is taken.
        (2, json!([reasoning, call("a"), call("b")])),
        (u64::MAX, json!([reasoning, call("b"), call("a")])),
    ] {
        let end = ends(&json!([reasoning, call("a"), call("b")]));
        assert_eq!(output(&[item("done", place, &call("a")), end]), expected, "{place}");
    }
    // The result of a call has the id of the call, but is no call.
    let result = json!({ "type": "function_call_output", "call_id": "a", "output": "x" });
    assert_eq!(output(&[item("done", 0, &call("a")), ends(&json!([result]))]), json!([call("a"), result]));
}

#[test]
fn two_calls_at_the_same_place_are_two_and_the_open_one_is_dropped_at_the_end() {
    let call = |id: &str| json!({ "type": "function_call", "call_id": id, "arguments": "{}" });
    let open =
        [item("added", 0, &call("a")), item("added", 1, &json!({ "type": "shell_call", "action": {} }))];
    assert_eq!(output(&[&open[..], &[ends(&json!([call("b")]))]].concat()), json!([call("b")]));
    assert_eq!(output(&[&open[..], &[completed()]].concat()), json!([]));
}

#[test]
fn the_output_of_the_last_event_is_charged_for_what_it_adds() {
    let text = "x".repeat(1000);
    let part = |text: &str| json!([{ "type": "output_text", "text": text }]);
    let begun = [item("added", 0, &message(&part(""))), delta("output_text", 0, 0, &text)];
    let before = assembly(&begun).held();
    let end = ends(&json!([message(&part(&text))]));
    let after = assembly(&[&begun[..], &[end]].concat()).held();
    assert!((before..before + 200).contains(&after), "{before} {after}");
}

#[test]
fn the_first_id_that_is_a_text_counts() {
    let mut assembly = ResponseAssembly::new(1 << 20);
    for id in [Value::Null, json!(7), json!("first"), json!("second")] {
        let begun = json!({ "type": "response.in_progress", "response": { "id": id } });
        assembly.push(&event(&begun)).expect("an event");
    }
    let whole: Value = serde_json::from_slice(&assembly.body()).expect("JSON");
    assert_eq!(whole["id"], "first");
}

#[test]
fn the_first_id_and_the_type_of_the_last_event_count() {
    let end = json!({ "type": "response.incomplete", "response": { "id": "other", "status": "completed", "model": "m" } });
    let mut assembly = assembly(&[]);
    assert_eq!(assembly.push(&event(&end)), Ok(StreamProgress::Done));
    assert!(assembly.is_complete());
    let expected =
        r#"{"id":"resp","object":"response","status":"incomplete","usage":null,"model":"m","output":[]}"#;
    assert_eq!(assembly.body(), expected);
}

#[test]
fn errors_fail_in_all_their_forms() {
    let failed = |event: &SseEvent| assembly(&[]).push(event) == Ok(StreamProgress::Failed);
    for data in [
        json!({ "type": "error", "message": "x" }),
        json!({ "type": "response.failed", "response": {} }),
        json!({ "type": "x", "error": { "message": "x" } }),
        json!({ "error": "x" }),
    ] {
        assert!(failed(&event(&data)), "{data}");
    }
    assert!(failed(&SseEvent { name: "error".to_owned(), data: "?".to_owned() }));
    assert!(!failed(&event(&json!({ "type": "x", "error": null }))));
}

#[test]
fn nothing_is_read_behind_the_end() {
    let mut ended = assembly(&[completed()]);
    assert_eq!(ended.push(&event(&json!("?"))), Ok(StreamProgress::Done));
    let mut cut = assembly(&[]);
    let done = SseEvent { name: String::new(), data: "[DONE]".to_owned() };
    assert_eq!(cut.push(&done), Ok(StreamProgress::Done));
    assert_eq!(cut.push(&event(&completed())), Ok(StreamProgress::Done));
    assert!(!cut.is_complete());
}

#[test]
fn calls_that_were_cut_are_dropped_and_texts_stay() {
    let open = |kind: &str| json!({ "type": kind, "id": "x" });
    let mut cut = assembly(&[
        item("added", 0, &message(&json!([]))),
        item("added", 1, &open("function_call")),
        item("added", 2, &open("shell_call")),
        item("done", 3, &open("custom_tool_call")),
        item("added", 4, &open("reasoning")),
    ]);
    cut.drop_open_calls();
    let whole: Value = serde_json::from_slice(&cut.body()).expect("JSON");
    assert_eq!(whole["status"], "queued");
    assert_eq!(whole["output"], json!([message(&json!([])), open("custom_tool_call"), open("reasoning")]));
}

#[test]
fn what_is_no_event_of_an_answer_is_refused() {
    let begun = item("added", 0, &message(&json!([])));
    let mut odd_index = begun.clone();
    odd_index["output_index"] = "0".into();
    let mut odd_delta = delta("output_text", 0, 0, "x");
    odd_delta["delta"] = 1.into();
    let mut odd_place = delta("output_text", 0, 0, "x");
    odd_place["content_index"] = (-1).into();
    for (events, reason) in [
        (vec![json!([])], "an event is an array"),
        (vec![json!({ "type": "response.completed" })], "an event of a response has no `response`"),
        (vec![begun.clone(), begun.clone()], "an item begins with the `output_index` of another"),
        (vec![odd_index], "`output_index` of an event is not an integer from 0"),
        (vec![json!({ "type": "response.output_item.done" })], "an item that is done is missing"),
        (
            vec![json!({ "type": "response.output_item.done", "item": {} })],
            "an event of an item has no `output_index`",
        ),
        (vec![item("done", 0, &json!("x"))], "an item is a string"),
        (vec![begun.clone(), ends(&json!({}))], "the `output` of a response is an object"),
        (vec![begun.clone(), ends(&json!([null]))], "an item is null"),
        (vec![begun.clone(), odd_delta], "`delta` of a `response.output_text` event is a number"),
        (vec![begun.clone(), odd_place], "`content_index` of an event is not an integer from 0"),
    ] {
        assert_eq!(refusal(&events), reason);
    }
    let twice = SseEvent { name: String::new(), data: r#"{"type":"x","type":"y"}"#.to_owned() };
    assert!(matches!(assembly(&[]).push(&twice), Err(AnswerError::Invalid(_))));
}

#[test]
fn copies_are_not_charged_twice_and_the_limit_holds() {
    let text = "x".repeat(1000);
    let mut events = vec![item("added", 0, &message(&json!([])))];
    events.extend((0..10).map(|_| delta("output_text", 0, 0, &text[..100])));
    let before = assembly(&events).held();
    let end =
        json!({ "type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": text });
    let done = item("done", 0, &message(&json!([{ "type": "output_text", "text": text }])));
    for _ in 0..5 {
        events.extend([end.clone(), done.clone()]);
    }
    assert!(assembly(&events).held() < before + 100);
    let mut small = ResponseAssembly::new(1000);
    assert!(matches!(small.push(&event(&done)), Err(AnswerError::TooLarge(_))));
    assert!(small.held() <= 1000);
}
