//! What holds for every streamed answer, however it is cut.

use bytes::Bytes;
use proptest::{prelude::*, sample::Index};
use serde_json::{Map, Value, json};

use super::{assembly::MessageAssembly, events::stream_events};
use crate::{
    json::{MAX_DEPTH, ValueKind, scan},
    llm::{
        format::{AnswerError, FormatAssembly, StreamProgress},
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
        "event: message_stop\r\ndata: {}\r\n\r\n",
    ]);
    prop::collection::vec(token, 0..8).prop_map(|tokens| tokens.concat())
}

/// The arguments of a call: an object, or text that is none.
fn input() -> impl Strategy<Value = Value> {
    let object = (text(), any::<bool>())
        .prop_map(|(text, is_empty)| if is_empty { json!({}) } else { json!({ "a": [text, 1], "é": {} }) });
    let broken = text().prop_map(|text| format!("{{\"a\":{text}"));
    let is_broken = |text: &String| scan(text.as_bytes(), MAX_DEPTH).is_err() && !text.trim().is_empty();
    prop_oneof![3 => object, 1 => broken.prop_filter_map("broken", move |text| is_broken(&text).then(|| text.into()))]
}

fn block() -> impl Strategy<Value = Value> {
    let citations = prop::option::of(prop::collection::vec(text(), 0..3));
    let text_block = (text(), citations).prop_map(|(text, citations)| {
        let mut block = json!({ "type": "text", "text": text });
        if let Some(texts) = citations {
            let cited =
                texts.iter().map(|text| json!({ "type": "char_location", "cited_text": text, "index": 0 }));
            block["citations"] = cited.collect();
        }
        block
    });
    let kind = prop::sample::select(vec!["tool_use", "server_tool_use", "mcp_tool_use"]);
    prop_oneof![
        3 => text_block,
        2 => (text(), text()).prop_map(|(text, signature)| json!({ "type": "thinking", "thinking": text, "signature": signature })),
        1 => text().prop_map(|data| json!({ "type": "redacted_thinking", "data": data })),
        3 => (kind, input()).prop_map(|(kind, input)| json!({ "type": kind, "id": "t", "name": "f", "input": input, "caller": {} })),
        1 => (text(), text()).prop_map(|(text, other)| json!({ "type": "compaction", "content": text, "encrypted_content": other })),
        1 => text().prop_map(|text| json!({ "type": "new", "text": text, "input": {} })),
    ]
}

/// A whole answer, with all members that an assembly adds.
pub(super) fn answer() -> impl Strategy<Value = Value> {
    let end = (prop::sample::select(vec!["end_turn", "tool_use", "refusal"]), prop::option::of(text()));
    (prop::collection::vec(block(), 0..4), end, any::<u16>(), text()).prop_map(
        |(content, (reason, sequence), tokens, other)| {
            let mut answer = json!({
                "id": "msg", "type": "message", "role": "assistant", "model": "m", "content": content, "stop_reason": reason,
                "stop_sequence": sequence.filter(|text| !text.is_empty()),
                "usage": { "input_tokens": 3, "cache_read_input_tokens": tokens, "output_tokens": tokens, "server_tool_use": { "x": 1 } }
            });
            if !other.is_empty() {
                answer["other"] = other.clone().into();
                answer["stop_details"] = json!({ "type": "refusal", "explanation": other });
                answer["context_management"] = json!({ "applied_edits": [1] });
                answer["container"] = json!({ "id": "c" });
                answer["safeguard_results"] = json!([{ "a": other }]);
            }
            answer
        },
    )
}

/// How a block begins, and its deltas.
fn parts(block: &Value, cuts: &mut Cuts<'_>) -> (Value, Vec<Value>) {
    let mut start = block.clone();
    let mut deltas = Vec::new();
    let mut add = |kind: &str, name: &str, pieces: Vec<Value>| {
        deltas.extend(pieces.into_iter().map(|piece| json!({ "type": kind, name: piece, "x": "dropped" })));
    };
    let mut texts = |text: &str| cuts.text(text).into_iter().map(Value::from).collect::<Vec<_>>();
    let said = |name: &str| block[name].as_str().unwrap_or_default();
    match said("type") {
        "text" => {
            let mut pieces = texts(said("text"));
            // The first piece may be in the start.
            start["text"] = pieces.remove(0);
            add("text_delta", "text", pieces);
            if let Some(citations) = block["citations"].as_array().filter(|citations| !citations.is_empty()) {
                start["citations"] = Value::Null;
                add("citations_delta", "citation", citations.clone());
            }
        }
        "thinking" => {
            start = json!({ "type": "thinking", "thinking": "" });
            add("thinking_delta", "thinking", texts(said("thinking")));
            add("signature_delta", "signature", vec!["old".into(), block["signature"].clone()]);
        }
        "compaction" => {
            start["content"] = "old".into();
            add("compaction_delta", "content", vec![Value::Null, "old".into(), block["content"].clone()]);
        }
        kind if kind.ends_with("_use") => {
            start["input"] = json!({});
            let input = &block["input"];
            add(
                "input_json_delta",
                "partial_json",
                texts(&input.as_str().map_or(input.to_string(), str::to_owned)),
            );
        }
        _ => {}
    }
    (start, deltas)
}

/// Events that make an answer. Blocks begin in order, and what follows goes on in turns.
pub(super) fn random_events(answer: &Value, cuts: &mut Cuts<'_>) -> Vec<Value> {
    let mut message = answer.clone();
    for name in [
        "stop_reason",
        "stop_sequence",
        "stop_details",
        "container",
        "safeguard_results",
        "context_management",
    ] {
        message.as_object_mut().expect("an object").remove(name);
    }
    message["content"] = json!([]);
    message["usage"] = json!({ "input_tokens": 3, "output_tokens": 1 });
    let mut events = vec![json!({ "type": "message_start", "message": message })];
    let mut open: Vec<Vec<Value>> = Vec::new();
    let mut blocks = answer["content"].as_array().expect("content").iter().enumerate();
    loop {
        let mut rest = blocks.clone();
        if open.is_empty() || cuts.next(3) == 0 {
            if let Some((index, block)) = rest.next() {
                let (start, deltas) = parts(block, cuts);
                events.push(json!({ "type": "content_block_start", "index": index, "content_block": start }));
                let delta = |delta| json!({ "type": "content_block_delta", "index": index, "delta": delta });
                let stop = json!({ "type": "content_block_stop", "index": index });
                open.push(std::iter::once(stop).chain(deltas.into_iter().rev().map(delta)).collect());
                blocks = rest;
            } else if open.is_empty() {
                break;
            }
        }
        if let Some(at) = open.len().checked_sub(1).map(|last| cuts.next(last + 1)) {
            events.extend(open[at].pop());
            open.retain(|events| !events.is_empty());
        }
    }
    let mut delta = json!({ "stop_reason": answer["stop_reason"], "stop_sequence": answer["stop_sequence"] });
    let mut last = json!({ "type": "message_delta", "usage": answer["usage"] });
    for (name, value) in answer.as_object().expect("an object") {
        match &**name {
            "stop_details" | "container" | "safeguard_results" => delta[name] = value.clone(),
            "context_management" => last[name] = value.clone(),
            _ => {}
        }
    }
    last["delta"] = delta;
    events.extend([last, json!({ "type": "message_stop" })]);
    events
}

/// Decodes and assembles the bytes of a stream that come in random pieces.
pub(super) fn assemble(stream: &[u8], cuts: &mut Cuts<'_>) -> MessageAssembly {
    let mut decoder = SseDecoder::new(1 << 20);
    let mut assembly = MessageAssembly::new(1 << 20);
    let mut rest = stream;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(cuts.next(rest.len()) / 2 + 1);
        rest = after;
        decoder.push(piece);
        while let Some(event) = decoder.next_event().expect("events") {
            let progress = assembly.push(&event).expect("an event of an answer");
            assert_eq!(progress == StreamProgress::Done, event.name == "message_stop");
        }
    }
    assembly
}

/// An assembly that has taken these events and holds no more than it may.
fn assembly_within(limit: usize, events: &[SseEvent]) -> Result<MessageAssembly, AnswerError> {
    let mut assembly = MessageAssembly::new(limit);
    for event in events {
        let held = assembly.held();
        let pushed = assembly.push(event);
        assert!((held..=limit).contains(&assembly.held()));
        pushed?;
    }
    Ok(assembly)
}

pub(super) fn value(json: &Bytes) -> Value {
    scan(json, MAX_DEPTH).expect("no repeated names");
    serde_json::from_slice(json).expect("JSON")
}

pub(super) fn stream(answer: &Bytes) -> Vec<u8> {
    let events = stream_events(answer);
    [events.answer, events.end].concat().concat()
}

/// JSON with the names that mean something.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-1_i64..4).prop_map(Value::from),
        prop::sample::select(vec!["", "a", "{}", "{\"a\":", "text", "tool_use", "thinking", "text_delta"])
            .prop_map(Value::from),
    ];
    let name = prop::sample::select(vec![
        "type",
        "index",
        "content",
        "text",
        "citations",
        "thinking",
        "signature",
        "input",
        "usage",
        "stop_reason",
        "id",
        "output_tokens",
        "delta",
        "message",
        "container",
        "context_management",
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
    let name = prop::sample::select(vec![
        "type",
        "text",
        "citations",
        "input",
        "signature",
        "thinking",
        "index",
        "x",
    ]);
    (value, prop::option::weighted(0.3, (name, any_json()))).prop_map(|(mut value, odd)| {
        if let (Some(members), Some((name, odd))) = (value.as_object_mut(), odd) {
            members.insert(name.to_owned(), odd);
        }
        value
    })
}

fn delta() -> impl Strategy<Value = Value> {
    let known = prop::sample::select(vec![
        ("text_delta", "text"),
        ("input_json_delta", "partial_json"),
        ("thinking_delta", "thinking"),
        ("signature_delta", "signature"),
        ("compaction_delta", "content"),
    ]);
    prop_oneof![
        6 => (known, text()).prop_map(|((kind, name), text)| json!({ "type": kind, name: text })),
        2 => any_json().prop_map(|citation| json!({ "type": "citations_delta", "citation": { "x": citation } })),
        1 => any_json(),
    ]
}

/// An event, or what looks like one.
fn odd_event() -> impl Strategy<Value = Value> {
    let index = || 0_usize..3;
    prop_oneof![
        1 => any_json(),
        4 => (index(), with_odd_member(block()))
            .prop_map(|(index, block)| json!({ "type": "content_block_start", "index": index, "content_block": block })),
        9 => (index(), with_odd_member(delta()))
            .prop_map(|(index, delta)| json!({ "type": "content_block_delta", "index": index, "delta": delta })),
        1 => index().prop_map(|index| json!({ "type": "content_block_stop", "index": index })),
        2 => (any_json(), any_json(), any_json()).prop_map(|(delta, usage, other)| {
            json!({ "type": "message_delta", "delta": { "stop_reason": delta, "x": other }, "usage": { "x": usage }, "y": other })
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn an_answer_is_the_same_however_it_was_cut(
        answer in answer(), cuts in prop::collection::vec(any::<Index>(), 1..16),
    ) {
        let mut cuts = Cuts::new(&cuts);
        let mut stream = Vec::new();
        for data in random_events(&answer, &mut cuts) {
            if cuts.next(2) == 0 {
                stream.extend_from_slice(b": x\r\n\r\nevent: ping\r\ndata: {\"type\": \"ping\"}\r\n\r\n");
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
    fn odd_events_are_refused_or_make_an_answer_within_the_limit(
        events in prop::collection::vec((odd_event(), 0_u8..16), 0..10), limit in 0_usize..10_000,
        cuts in prop::collection::vec(any::<Index>(), 1..16),
    ) {
        let start = json!({ "type": "message_start", "message": { "usage": { "x": 1 } } });
        let mut taken: Vec<SseEvent> = Vec::new();
        for (mut data, oddity) in std::iter::once((start, 9)).chain(events) {
            let blocks = taken.iter().filter(|event| event.name == "content_block_start").count();
            match data["type"].as_str() {
                Some("content_block_start") if oddity > 0 => data["index"] = blocks.into(),
                Some("content_block_delta") if oddity > 4 => data["index"] = blocks.saturating_sub(1).into(),
                _ => {}
            }
            let name = data["type"].as_str().filter(|_| oddity != 1).unwrap_or("content_block_stop").to_owned();
            taken.push(SseEvent { name, data: data.to_string() });
            if assembly_within(limit, &taken).is_err() {
                taken.pop();
            }
        }
        let whole = assembly_within(limit, &taken).expect("taken before").body();
        // What was judged is what the client reads.
        let again = assemble(&stream(&whole), &mut Cuts::new(&cuts));
        prop_assert_eq!(&value(&again.body())["content"], &value(&whole)["content"]);
    }

    #[test]
    fn arguments_are_always_an_object_or_a_string(
        pieces in prop::collection::vec(text(), 0..4), cuts in prop::collection::vec(any::<Index>(), 1..16),
    ) {
        let start = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","input":{}}}"#;
        let mut stream = event("message_start", br#"{"type":"message_start","message":{}}"#).to_vec();
        stream.extend_from_slice(&event("content_block_start", start.as_bytes()));
        for piece in &pieces {
            let delta = json!({ "type": "input_json_delta", "partial_json": piece });
            let data = json!({ "type": "content_block_delta", "index": 0, "delta": delta }).to_string();
            stream.extend_from_slice(&event("content_block_delta", data.as_bytes()));
        }
        let whole = value(&assemble(&stream, &mut Cuts::new(&cuts)).body());
        let text = pieces.concat();
        let is_object = text.is_empty() || scan(text.as_bytes(), MAX_DEPTH) == Ok(ValueKind::Object);
        let input = &whole["content"][0]["input"];
        prop_assert_eq!((input.is_object(), input.is_string()), (is_object, !is_object));
    }
}
