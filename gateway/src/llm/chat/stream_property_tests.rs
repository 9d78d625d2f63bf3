//! What holds for every streamed answer, however it is cut.

use bytes::Bytes;
use proptest::{prelude::*, sample::Index};
use serde_json::{Map, Value, json};

use super::{AnswerAssembly, chunks::stream_events};
use crate::{
    json::{MAX_DEPTH, scan},
    llm::{
        format::{FormatAssembly as _, StreamProgress},
        sse::SseDecoder,
        stream_test_support::Cuts,
    },
};

fn text() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec![
        "a",
        "b",
        " ",
        "\"",
        "\\",
        "{",
        "é",
        "€",
        "😀",
        "\n",
        "\u{0}",
        "\u{85}",
        "\u{2028}",
        "data: [DONE]\r\n\r\n",
    ]);
    prop::collection::vec(token, 0..8).prop_map(|tokens| tokens.concat())
}

/// A call of a tool in a message.
fn call() -> impl Strategy<Value = Value> {
    (0_u8..3, prop::sample::select(vec!["f", "get_time"]), text()).prop_map(|(form, name, text)| match form {
        0 => json!({ "id": "", "type": "custom", "custom": { "name": name, "input": text } }),
        1 => json!({ "id": "", "function": { "name": name, "arguments": { "a": text } } }),
        _ => json!({ "id": "", "type": "function", "function": { "name": name, "arguments": text } }),
    })
}

fn message() -> impl Strategy<Value = Value> {
    let content = prop_oneof![
        text().prop_map(Value::from),
        Just(Value::Null),
        text().prop_map(|text| json!([{ "type": "text", "text": text }])),
    ];
    let optional = || prop::option::of(text());
    (content, optional(), optional(), prop::collection::vec(call(), 0..3), optional()).prop_map(
        |(content, refusal, reasoning, mut calls, old_arguments)| {
            let mut message = json!({ "role": "assistant", "content": content });
            refusal.into_iter().for_each(|text| message["refusal"] = text.into());
            reasoning.into_iter().for_each(|text| message["reasoning"] = text.into());
            calls
                .iter_mut()
                .enumerate()
                .for_each(|(index, call)| call["id"] = format!("call-{index}").into());
            if !calls.is_empty() {
                message["tool_calls"] = calls.into();
            }
            if let Some(arguments) = old_arguments {
                message["function_call"] = json!({ "name": "f", "arguments": arguments });
            }
            message
        },
    )
}

/// A whole answer, with all members that an assembly adds.
pub(super) fn answer() -> impl Strategy<Value = Value> {
    let end = (prop::sample::select(vec!["stop", "tool_calls"]), any::<bool>());
    let choice = (message(), end).prop_map(|(message, (reason, has_logprobs))| {
        let logprobs = if has_logprobs {
            json!({ "content": [{ "token": "a" }, { "token": "b" }] })
        } else {
            Value::Null
        };
        json!({ "message": message, "finish_reason": reason, "logprobs": logprobs })
    });
    let usage = prop::option::of(any::<u16>());
    (prop::collection::vec(choice, 1..3), usage, text()).prop_map(|(mut choices, usage, other)| {
        choices.iter_mut().enumerate().for_each(|(index, choice)| choice["index"] = index.into());
        let mut answer =
            json!({ "id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices });
        usage.into_iter().for_each(|tokens| answer["usage"] = json!({ "prompt_tokens": tokens }));
        if !other.is_empty() {
            answer["other"] = other.into();
        }
        answer
    })
}

/// The deltas of one member of a message.
fn member_deltas(name: &str, value: &Value, cuts: &mut Cuts<'_>) -> Vec<Value> {
    let texts = |value: &Value, cuts: &mut Cuts<'_>| match value {
        Value::String(text) if name != "role" => cuts.text(text).into_iter().map(Value::from).collect(),
        other => vec![other.clone()],
    };
    match (name, value) {
        ("tool_calls", Value::Array(calls)) => {
            let parts = calls.iter().enumerate().flat_map(|(index, call)| {
                let (form, input) =
                    if call["function"].is_null() { ("custom", "input") } else { ("function", "arguments") };
                let mut whole = call.clone();
                whole["index"] = index.into();
                let inputs = texts(&call[form][input], cuts);
                inputs.into_iter().enumerate().map(move |(place, piece)| {
                    let mut part =
                        if place == 0 { whole.clone() } else { json!({ "index": index, form: {} }) };
                    part[form][input] = piece;
                    json!({ "tool_calls": [part] })
                })
            });
            parts.collect()
        }
        ("function_call", call) => {
            let inputs = texts(&call["arguments"], cuts);
            let parts = inputs.into_iter().enumerate().map(|(place, piece)| {
                let name = if place == 0 { &call["name"] } else { &Value::Null };
                json!({ "function_call": { "name": name, "arguments": piece } })
            });
            parts.collect()
        }
        _ => texts(value, cuts).into_iter().map(|piece| json!({ name: piece })).collect(),
    }
}

/// Chunks that make an answer. Those of its choices, and of the members of a message, go on in turns.
pub(super) fn random_chunks(answer: &Value, cuts: &mut Cuts<'_>) -> Vec<Value> {
    let mut queues: Vec<Vec<Value>> = Vec::new();
    for choice in answer["choices"].as_array().expect("choices") {
        let index = &choice["index"];
        for (name, value) in choice["message"].as_object().expect("a message") {
            let deltas = member_deltas(name, value, cuts).into_iter();
            queues.push(
                deltas
                    .map(|delta| json!({ "index": index, "delta": delta, "logprobs": null }))
                    .rev()
                    .collect(),
            );
        }
        let end = json!({ "index": index, "delta": {}, "finish_reason": choice["finish_reason"] });
        let mut logprobs = vec![json!({ "index": index, "logprobs": choice["logprobs"] })];
        if let Some(tokens) = choice["logprobs"]["content"].as_array() {
            logprobs = tokens
                .iter()
                .map(|token| json!({ "index": index, "logprobs": { "content": [token] } }))
                .rev()
                .collect();
        }
        queues.extend([vec![end], logprobs]);
    }
    let mut chunks = Vec::new();
    while !queues.is_empty() {
        let at = cuts.next(queues.len());
        match queues[at].pop() {
            Some(choice) => chunks
                .push(json!({ "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
                                                "choices": [choice], "usage": null, "obfuscation": "x" })),
            None => drop(queues.swap_remove(at)),
        }
    }
    let mut last = answer.clone();
    last["choices"] = json!([]);
    chunks.push(last);
    chunks
}

/// Decodes and assembles the bytes of a stream that come in random pieces.
pub(super) fn assemble(stream: &[u8], cuts: &mut Cuts<'_>) -> AnswerAssembly {
    let mut decoder = SseDecoder::new(1 << 20);
    let mut assembly = AnswerAssembly::new(1 << 20);
    let mut rest = stream;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(cuts.next(rest.len()) / 2 + 1);
        rest = after;
        decoder.push(piece);
        while let Some(event) = decoder.next_event().expect("events") {
            match assembly.push(&event).expect("a chunk") {
                StreamProgress::GoesOn => {}
                StreamProgress::Done => assert!(rest.is_empty()),
                StreamProgress::Failed => panic!("{event:?}"),
            }
        }
    }
    assembly
}

pub(super) fn value(json: &Bytes) -> Value {
    scan(json, MAX_DEPTH).expect("no repeated names");
    serde_json::from_slice(json).expect("JSON")
}

/// A value without members that are null: not all of them survive.
pub(super) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let set = members.into_iter().filter(|(_, value)| !value.is_null());
            set.map(|(name, value)| (name, without_nulls(value))).collect::<Map<_, _>>().into()
        }
        Value::Array(elements) => elements.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// JSON with the names that mean something.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-1_i64..4).prop_map(Value::from),
        "[a-c]{0,3}".prop_map(Value::from),
    ];
    let name = prop::sample::select(vec![
        "choices",
        "delta",
        "index",
        "content",
        "tool_calls",
        "function",
        "name",
        "arguments",
        "id",
        "type",
        "logprobs",
        "usage",
        "finish_reason",
        "message",
        "function_call",
        "custom",
        "input",
        "x",
        "",
    ]);
    leaf.prop_recursive(4, 12, 3, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(name.clone().prop_map(str::to_owned), inner, 0..5)
                .prop_map(|members| Value::from(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// An object without members that no chunk may have; another value becomes the content of one.
fn fitting(value: Value) -> Value {
    let Value::Object(members) = value else { return json!({ "content": value }) };
    let fits = |name: &str, value: &Value| match name {
        "function" | "custom" | "function_call" => value.is_object(),
        "id" | "name" => value.is_string(),
        "index" => value.as_u64().is_some(),
        "tool_calls" => false,
        _ => true,
    };
    let kept = members.into_iter().filter(|(name, value)| fits(name, value)).map(|(name, value)| {
        let is_called = matches!(&*name, "function" | "custom" | "function_call");
        (name, if is_called { fitting(value) } else { value })
    });
    Value::Object(kept.collect())
}

/// A chunk, or what looks like one.
fn odd_chunk() -> impl Strategy<Value = Value> {
    let call = (any_json(), any_json()).prop_map(|(call, function)| {
        let mut call = fitting(call);
        call["function"] = fitting(function);
        call
    });
    let delta = (any_json(), prop::collection::vec(call, 0..3)).prop_map(|(delta, calls)| {
        let mut delta = fitting(delta);
        delta["tool_calls"] = calls.into();
        delta
    });
    let choice =
        (delta, any_json()).prop_map(|(delta, other)| json!({ "delta": delta, "x": other, "index": 0 }));
    prop_oneof![
        1 => any_json(),
        1 => any_json().prop_map(|delta| json!({ "choices": [{ "delta": delta }] })),
        8 => (choice, any_json()).prop_map(|(choice, other)| json!({ "choices": [choice], "x": other })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn an_answer_is_the_same_however_it_was_cut(
        answer in answer(), cuts in prop::collection::vec(any::<Index>(), 1..16),
    ) {
        let mut cuts = Cuts::new(&cuts);
        let chunks = random_chunks(&answer, &mut cuts);
        let events: String = chunks.iter().map(|chunk| format!(": x\r\n\r\ndata: {chunk}\r\n\r\n")).collect();
        let assembly = assemble(format!("{events}data: [DONE]\n\n").as_bytes(), &mut cuts);
        prop_assert!(assembly.is_complete());
        prop_assert_eq!(without_nulls(value(&assembly.body())), without_nulls(answer));
    }

    #[test]
    fn the_events_of_an_answer_make_it_again(
        answer in answer(), cuts in prop::collection::vec(any::<Index>(), 1..16),
    ) {
        let events = stream_events(&answer.to_string().into(), true);
        let events = [events.answer.concat(), events.end.concat()].concat();
        let assembly = assemble(&events, &mut Cuts::new(&cuts));
        prop_assert_eq!(without_nulls(value(&assembly.body())), without_nulls(answer));
    }

    #[test]
    fn odd_chunks_are_refused_or_make_an_answer_within_the_limit(
        chunks in prop::collection::vec(odd_chunk(), 0..4), limit in 0_usize..10_000,
    ) {
        let mut assembly = AnswerAssembly::new(limit);
        let mut held = 0;
        for chunk in &chunks {
            let pushed = assembly.push_chunk(&chunk.to_string());
            prop_assert!((held..=limit).contains(&assembly.held()));
            held = assembly.held();
            if pushed.is_err() {
                return Ok(());
            }
        }
        let whole = assembly.body();
        let events = stream_events(&whole, true).answer;
        let mut again = AnswerAssembly::new(1 << 20);
        for event in &events {
            let data = event.strip_prefix(b"data: ").expect("an event").to_vec();
            again.push_chunk(str::from_utf8(&data).expect("text")).expect("a chunk");
        }
        // The text that was judged is the text that the client reads.
        let texts = |answer: Value| {
            let choices = answer["choices"].as_array().expect("choices").iter();
            choices.map(|choice| without_nulls(choice["message"].clone())).collect::<Vec<_>>()
        };
        prop_assert_eq!(texts(value(&again.body())), texts(value(&whole)));
    }
}
