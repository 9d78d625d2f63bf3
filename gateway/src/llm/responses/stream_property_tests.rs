//! What holds for every streamed answer, however it is cut.

use bytes::Bytes;
use proptest::{prelude::*, sample::Index, test_runner::RngAlgorithm};
use serde_json::{Map, Value, json};

use super::{assembly::ResponseAssembly, events::stream_events, heartbeat::StreamHeartbeat};
use crate::{
    json::{MAX_DEPTH, scan},
    llm::{
        format::{AnswerError, Echoes, FormatAssembly, FormatHeartbeat, StreamProgress},
        sse::{SseDecoder, SseEvent, event},
        stream_test_support::Cuts,
    },
};

pub(super) fn text() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec![
        "a",
        " ",
        "\"",
        "\\",
        "{",
        "}",
        "é",
        "€",
        "😀",
        "\n",
        "\u{0}",
        "\u{85}",
        "\u{2028}",
        "event: response.completed\r\ndata: {}\r\n\r\n",
    ]);
    prop::collection::vec(token, 0..8).prop_map(|tokens| tokens.concat())
}

fn part() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => text().prop_map(|text| json!({ "type": "output_text", "text": text, "annotations": [] })),
        1 => text().prop_map(|text| json!({
            "type": "output_text", "text": text, "annotations": [{ "type": "new", "title": text }, {}], "logprobs": [{ "token": text }] })),
        1 => text().prop_map(|text| json!({ "type": "refusal", "refusal": text })),
        1 => text().prop_map(|text| json!({ "type": "new", "text": text, "annotations": [1] })),
    ]
}

fn reasoning() -> impl Strategy<Value = Value> {
    let texts = || prop::collection::vec(text(), 0..3);
    (texts(), prop::option::of(texts()), prop::option::of(text())).prop_map(
        |(summary, content, encrypted)| {
            let parts = |kind: &str, texts: Vec<String>| -> Vec<Value> {
                texts.into_iter().map(|text| json!({ "type": kind, "text": text })).collect()
            };
            let mut item = json!({ "type": "reasoning", "summary": parts("summary_text", summary) });
            content.into_iter().for_each(|content| item["content"] = parts("reasoning_text", content).into());
            encrypted.into_iter().for_each(|text| item["encrypted_content"] = text.into());
            item
        },
    )
}

fn call() -> impl Strategy<Value = Value> {
    (0_u8..6, text()).prop_map(|(form, text)| match form {
        0 => json!({ "type": "function_call", "call_id": "c", "name": "f", "arguments": text, "status": "completed" }),
        1 => json!({ "type": "custom_tool_call", "call_id": "c", "name": "f", "input": text }),
        2 => json!({ "type": "local_shell_call", "call_id": "c", "action": { "type": "exec", "command": [text] }, "status": "completed" }),
        3 => json!({ "type": "shell_call", "call_id": "c", "action": { "commands": [text] }, "status": "completed" }),
        4 => json!({ "type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": { "goal": text }, "status": "completed" }),
        _ => json!({ "type": "apply_patch_call", "call_id": "c", "operation": { "type": "new", "diff": text }, "status": "completed" }),
    })
}

fn item() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => (prop::collection::vec(part(), 0..3), any::<bool>()).prop_map(|(content, has_phase)| {
            let mut message = json!({ "type": "message", "role": "assistant", "status": "completed", "content": content });
            if has_phase {
                message["phase"] = "final_answer".into();
            }
            message
        }),
        2 => reasoning(),
        3 => call(),
        1 => text().prop_map(|text| json!({ "type": "web_search_call", "status": "completed", "query": text })),
    ]
}

/// A whole answer, with all members that an assembly adds.
pub(super) fn answer() -> impl Strategy<Value = Value> {
    (prop::collection::vec(item(), 0..4), any::<bool>(), text(), any::<u16>()).prop_map(
        |(mut output, is_cut, text, tokens)| {
            for (index, item) in output.iter_mut().enumerate() {
                // Some servers write none.
                if item["type"] != "function_call" || tokens % 5 != 0 {
                    item["id"] = format!("item_{index}").into();
                }
            }
            json!({
                "id": "resp", "object": "response", "created_at": 1, "model": "m", "error": null, "instructions": text,
                "status": if is_cut { "incomplete" } else { "completed" }, "tools": [{ "name": text }], "output": output,
                "incomplete_details": is_cut.then(|| json!({ "reason": "max_output_tokens" })),
                "usage": { "input_tokens": 3, "output_tokens": tokens, "output_tokens_details": { "reasoning_tokens": 1 } }
            })
        },
    )
}

/// The texts of an item: the type of their events, where they are, and the member of the last event.
fn texts(item: &Value) -> Vec<(&'static str, Value, &'static str, String)> {
    let said = |value: &Value| value.as_str().expect("a text").to_owned();
    let mut texts = Vec::new();
    for (list, index) in [("summary", "summary_index"), ("content", "content_index")] {
        for (place, part) in item[list].as_array().into_iter().flatten().enumerate() {
            let (event, member) = match part["type"].as_str().expect("a type") {
                "output_text" => ("response.output_text", "text"),
                "refusal" => ("response.refusal", "refusal"),
                "summary_text" => ("response.reasoning_summary_text", "text"),
                "reasoning_text" => ("response.reasoning_text", "text"),
                _ => continue,
            };
            texts.push((event, json!({ index: place }), member, said(&part[member])));
        }
    }
    match item["type"].as_str() {
        Some("function_call") => {
            texts.push((
                "response.function_call_arguments",
                json!({}),
                "arguments",
                said(&item["arguments"]),
            ));
        }
        Some("custom_tool_call") => {
            texts.push(("response.custom_tool_call_input", json!({}), "input", said(&item["input"])));
        }
        _ => {}
    }
    texts
}

/// The events of an item at this place, but the first one.
fn item_events(index: u64, item: &Value, cuts: &mut Cuts<'_>) -> (Value, Vec<Value>) {
    let mut events = Vec::new();
    let mut start = item.clone();
    for list in ["summary", "content"] {
        if let Some(list) = start.get_mut(list).and_then(Value::as_array_mut) {
            list.clear();
        }
    }
    for (event, place, member, text) in texts(item) {
        let mut add = |kind: &str, name: &str, text: &str| {
            let mut data = place.clone();
            data["type"] = format!("{event}.{kind}").into();
            data["output_index"] = index.into();
            data[name] = text.into();
            events.push(data);
        };
        let mut pieces = cuts.text(&text);
        if let Some(start) = start.get_mut(member) {
            // The first piece may be in the start.
            *start = pieces.remove(0).into();
        }
        pieces.iter().for_each(|piece| add("delta", "delta", piece));
        let is_split = pieces.is_empty() || cuts.next(2) == 0;
        if is_split {
            add("done", member, &text);
        }
        events.push(json!({ "type": "response.content_part.done", "part": { "text": "not read" } }));
    }
    // Otherwise the last event says what it is.
    if cuts.next(3) > 0 {
        let done = json!({ "type": "response.output_item.done", "output_index": index, "item": item });
        events.push(done);
    }
    (json!({ "type": "response.output_item.added", "output_index": index, "item": start }), events)
}

/// Events that make an answer. Items begin in order, and what follows goes on in turns.
pub(super) fn random_events(answer: &Value, cuts: &mut Cuts<'_>) -> Vec<Value> {
    let mut response = answer.clone();
    for (name, value) in [
        ("output", json!([])),
        ("usage", Value::Null),
        ("incomplete_details", Value::Null),
        ("status", "queued".into()),
    ] {
        response[name] = value;
    }
    let mut events = vec![
        json!({ "type": "response.created", "response": response }),
        json!({ "type": "response.in_progress", "response": response }),
    ];
    let mut open: Vec<Vec<Value>> = Vec::new();
    let gap = [1, 1_000_000_007][cuts.next(2)];
    let mut items = (0..).zip(answer["output"].as_array().expect("a list"));
    loop {
        let mut rest = items.clone();
        if open.is_empty() || cuts.next(3) == 0 {
            if let Some((index, item)) = rest.next() {
                let (start, mut others) = item_events(index * gap, item, cuts);
                events.push(start);
                others.reverse();
                open.push(others);
                items = rest;
            } else if open.is_empty() {
                break;
            }
        }
        if let Some(at) = open.len().checked_sub(1).map(|last| cuts.next(last + 1)) {
            events.extend(open[at].pop());
        }
        open.retain(|events| !events.is_empty());
    }
    let status = answer["status"].as_str().expect("a status");
    events.push(json!({ "type": format!("response.{status}"), "response": answer }));
    events
}

/// Decodes and assembles the bytes of a stream that come in random pieces.
pub(super) fn assemble(stream: &[u8], cuts: &mut Cuts<'_>) -> ResponseAssembly {
    let mut decoder = SseDecoder::new(1 << 20);
    let mut assembly = ResponseAssembly::new(1 << 20);
    let mut rest = stream;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(cuts.next(rest.len()) / 2 + 1);
        rest = after;
        decoder.push(piece);
        while let Some(event) = decoder.next_event().expect("events") {
            let progress = assembly.push(&event).expect("an event of an answer");
            let is_end = matches!(&*event.name, "response.completed" | "response.incomplete");
            assert_eq!(progress == StreamProgress::Done, is_end);
        }
    }
    assembly
}

/// Pushes an event, after which the assembly holds no more than it may.
fn push_within(
    limit: usize,
    assembly: &mut ResponseAssembly,
    event: &SseEvent,
) -> Result<StreamProgress, AnswerError> {
    let held = assembly.held();
    let pushed = assembly.push(event);
    assert!((held..=limit).contains(&assembly.held()));
    pushed
}

/// An assembly that has taken these events.
fn assembly_within(limit: usize, events: &[SseEvent]) -> Result<ResponseAssembly, AnswerError> {
    let mut assembly = ResponseAssembly::new(limit);
    events.iter().try_for_each(|event| push_within(limit, &mut assembly, event).map(|_| ()))?;
    Ok(assembly)
}

pub(super) fn taken(data: &Value) -> SseEvent {
    SseEvent { name: String::new(), data: data.to_string() }
}

pub(super) fn value(json: &Bytes) -> Value {
    scan(json, MAX_DEPTH).expect("no repeated names");
    serde_json::from_slice(json).expect("JSON")
}

fn heartbeat() -> StreamHeartbeat {
    StreamHeartbeat::new(&Echoes::default(), false)
}

pub(super) fn stream(answer: &Bytes) -> Vec<u8> {
    let events = stream_events(answer, &heartbeat());
    [events.answer, events.end].concat().concat()
}

/// What an answer says, item by item: the texts of messages.
fn said(answer: &Value) -> String {
    let items = answer["output"].as_array().expect("a list").iter().filter(|item| item["type"] == "message");
    items.flat_map(texts).map(|(_, _, _, text)| text).collect()
}

/// Whether an item is what came of another one: all of a call, and the beginnings of texts.
fn is_beginning(item: &Value, whole: &Value) -> bool {
    let is_call = whole["type"].as_str().expect("a type").ends_with("_call");
    // A part that had no text is left out, so that the places of others may differ.
    let begins = |(event, _, _, text): (&str, Value, &str, String)| {
        texts(whole).iter().any(|(known, _, _, all)| *known == event && all.starts_with(&*text))
    };
    item == whole || ((!is_call || whole["type"] == "web_search_call") && texts(item).into_iter().all(begins))
}

/// JSON with the names that mean something.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-1_i64..4).prop_map(Value::from),
        Just(json!(1_000_000_000_u64)),
        Just(json!(u64::MAX)),
        prop::sample::select(vec!["", "a", "{}", "message", "output_text", "reasoning", "reasoning_text"])
            .prop_map(Value::from),
    ];
    let name = prop::sample::select(vec![
        "type",
        "id",
        "content",
        "text",
        "summary",
        "refusal",
        "arguments",
        "input",
        "status",
        "annotations",
        "logprobs",
        "response",
        "output",
        "item",
        "delta",
        "usage",
        "x",
        "",
    ]);
    leaf.prop_recursive(3, 10, 3, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(name.clone().prop_map(str::to_owned), inner, 0..5)
                .prop_map(|members| Value::from(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Another value in place of one member, sometimes.
fn with_odd_member(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let names =
        vec!["type", "id", "content", "summary", "arguments", "input", "status", "delta", "text", "x"];
    let odd = prop::option::weighted(0.3, (prop::sample::select(names), any_json()));
    (value, odd).prop_map(|(mut value, odd)| {
        if let (Some(members), Some((name, odd))) = (value.as_object_mut(), odd) {
            members.insert(name.to_owned(), odd);
        }
        value
    })
}

/// An event, or what looks like one.
fn odd_event() -> impl Strategy<Value = Value> {
    let index = || {
        prop_oneof![
            9 => (0_u64..3).prop_map(Value::from),
            1 => prop::sample::select(vec![json!(1_000_000_000_u64), json!(u64::MAX), json!(-1), json!("0"), Value::Null]),
        ]
    };
    let kind = prop::sample::select(vec![
        ("response.output_text", "text", "content_index"),
        ("response.refusal", "refusal", "content_index"),
        ("response.reasoning_text", "text", "content_index"),
        ("response.reasoning_summary_text", "text", "summary_index"),
        ("response.function_call_arguments", "arguments", "x"),
        ("response.custom_tool_call_input", "input", "x"),
    ]);
    let end = prop::sample::select(vec!["added", "done"]);
    prop_oneof![
        1 => any_json(),
        5 => (index(), with_odd_member(item()), end)
            .prop_map(|(index, item, kind)| json!({ "type": format!("response.output_item.{kind}"), "output_index": index, "item": item })),
        9 => (index(), index(), kind, text(), any::<bool>()).prop_map(|(index, place, (event, member, name), text, is_end)| {
            let (kind, member) = if is_end { ("done", member) } else { ("delta", "delta") };
            json!({ "type": format!("{event}.{kind}"), "output_index": index, name: place, member: text })
        }),
        1 => (any_json(), any_json()).prop_map(|(usage, other)| {
            json!({ "type": "response.in_progress", "response": { "usage": usage, "x": other } })
        }),
    ]
}

/// The default generator takes a fifth of the time without optimization.
pub(super) fn many_cases() -> ProptestConfig {
    ProptestConfig { rng_algorithm: RngAlgorithm::XorShift, ..ProptestConfig::with_cases(10_000) }
}

proptest! {
    #![proptest_config(many_cases())]

    #[test]
    fn an_answer_is_the_same_however_it_was_cut(
        answer in answer(), cuts in prop::collection::vec(any::<Index>(), 1..16),
    ) {
        let mut cuts = Cuts::new(&cuts);
        let mut stream = Vec::new();
        for data in random_events(&answer, &mut cuts) {
            if cuts.next(2) == 0 {
                stream.extend_from_slice(b": x\r\n\r\nevent: keepalive\r\ndata: {\"type\": \"keepalive\"}\r\n\r\n");
            }
            let name = data["type"].as_str().expect("a type");
            stream.extend_from_slice(&event(name, data.to_string().as_bytes()));
        }
        let assembly = assemble(&stream, &mut cuts);
        prop_assert!(assembly.is_complete());
        prop_assert_eq!(value(&assembly.body()), answer);
    }

    #[test]
    fn the_events_of_an_answer_make_it_again(
        answer in answer(), cuts in prop::collection::vec(any::<Index>(), 1..16),
    ) {
        let mut cuts = Cuts::new(&cuts);
        let once = assemble(&stream(&answer.to_string().into()), &mut cuts).body();
        prop_assert_eq!(value(&once), answer);
        // The order of members is then one that stays.
        prop_assert_eq!(assemble(&stream(&once), &mut cuts).body(), once);
    }

    #[test]
    fn an_answer_that_is_cut_has_the_beginnings_of_texts_and_whole_calls(
        answer in answer(), cuts in prop::collection::vec(any::<Index>(), 1..16), end in any::<Index>(), is_own in any::<bool>(),
    ) {
        let mut cuts = Cuts::new(&cuts);
        let mut decoder = SseDecoder::new(1 << 20);
        let mut events: Vec<SseEvent> = Vec::new();
        if is_own {
            decoder.push(&stream(&answer.to_string().into()));
            while let Some(event) = decoder.next_event().expect("events") {
                events.push(event);
            }
        } else {
            events.extend(random_events(&answer, &mut cuts).iter().map(taken));
        }
        events.truncate(1 + end.index(events.len() - 1));
        let mut assembly = assembly_within(1 << 20, &events).expect("events of an answer");
        prop_assert!(assembly.has_choices() && !assembly.is_complete());
        assembly.drop_open_calls();
        let cut = value(&assembly.body());
        if is_own {
            prop_assert!(said(&answer).starts_with(&said(&cut)));
        }
        let mut wholes = answer["output"].as_array().expect("a list").iter();
        for item in cut["output"].as_array().expect("a list") {
            // Only calls are left out.
            prop_assert!(wholes.any(|whole| item["type"] == whole["type"] && is_beginning(item, whole)), "{item}");
        }
    }

    #[test]
    fn odd_events_are_refused_or_make_an_answer_within_the_limit(
        events in prop::collection::vec(odd_event(), 0..12), limit in 0_usize..10_000,
        cuts in prop::collection::vec(any::<Index>(), 1..16),
    ) {
        let start = json!({ "type": "response.created", "response": { "usage": { "x": 1 } } });
        let mut known: Vec<SseEvent> = Vec::new();
        let mut assembly = ResponseAssembly::new(limit);
        for event in std::iter::once(start).chain(events).map(|data| taken(&data)) {
            if push_within(limit, &mut assembly, &event).is_ok() {
                known.push(event);
            } else {
                assembly = assembly_within(limit, &known).expect("taken before");
            }
        }
        let whole = assembly.body();
        // What was judged is what the client reads.
        let again = assemble(&stream(&whole), &mut Cuts::new(&cuts));
        prop_assert_eq!(&value(&again.body())["output"], &value(&whole)["output"]);
    }
}
