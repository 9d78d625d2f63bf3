use serde_json::{Value, json};

use super::*;

fn assembly(chunks: &[Value]) -> AnswerAssembly {
    let mut assembly = AnswerAssembly::new(1 << 20);
    for chunk in chunks {
        assembly.push_chunk(&chunk.to_string()).expect("a chunk");
    }
    assembly
}

fn assembled(chunks: &[Value]) -> Value {
    value(assembly(chunks))
}

fn value(assembly: AnswerAssembly) -> Value {
    serde_json::from_slice(&assembly.body()).expect("JSON")
}

fn deltas(deltas: &[Value]) -> Vec<Value> {
    deltas.iter().map(|delta| json!({ "choices": [{ "index": 0, "delta": delta }] })).collect()
}

/// The message that these deltas make.
fn message(parts: &[Value]) -> Value {
    assembled(&deltas(parts))["choices"][0]["message"].take()
}

/// The calls that these elements of `tool_calls` make, each in a chunk of its own.
fn calls(parts: &[Value]) -> Value {
    let parts: Vec<Value> = parts.iter().map(|part| json!({ "tool_calls": [part] })).collect();
    message(&parts)["tool_calls"].take()
}

fn error(chunks: &[&str]) -> AnswerError {
    let mut assembly = AnswerAssembly::new(1 << 20);
    let (last, before) = chunks.split_last().expect("a chunk");
    before.iter().for_each(|chunk| assembly.push_chunk(chunk).expect("a chunk"));
    assembly.push_chunk(last).expect_err("no chunk")
}

fn in_delta(delta: &str) -> String {
    format!(r#"{{"choices":[{{"delta":{delta}}}]}}"#)
}

#[test]
fn chunks_of_openai_make_its_answer() {
    let chunk = |delta: Value, finish_reason: Value| {
        json!({ "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "system_fingerprint": null,
                "choices": [{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason }],
                "usage": null, "obfuscation": "xx" })
    };
    let mut chunks = vec![
        chunk(json!({ "role": "assistant", "content": "", "refusal": null }), Value::Null),
        chunk(json!({ "content": "Hé" }), Value::Null),
        chunk(json!({ "content": "llo\n" }), Value::Null),
        chunk(json!({}), json!("stop")),
    ];
    chunks.push(json!({ "id": "c", "choices": [], "usage": { "prompt_tokens": 1, "completion_tokens": 2 } }));
    let expected = concat!(
        r#"{"id":"c","object":"chat.completion","created":1,"model":"m","system_fingerprint":null,"choices":["#,
        r#"{"index":0,"message":{"role":"assistant","content":"Héllo\n","refusal":null},"logprobs":null,"#,
        r#""finish_reason":"stop"}],"usage":{"completion_tokens":2,"prompt_tokens":1}}"#
    );
    let whole = assembly(&chunks);
    assert!(whole.is_complete());
    let whole: Value = value(whole);
    assert_eq!(whole, serde_json::from_str::<Value>(expected).unwrap());
}

#[test]
fn what_is_missing_has_its_default() {
    let mut assembly = AnswerAssembly::new(1 << 10);
    assert!(!assembly.has_choices() && !assembly.is_complete());
    assembly.push_chunk(r#"{"x":1,"choices":[{"delta":{"content":null}}]}"#).unwrap();
    assert!(assembly.has_choices());
    let expected = r#"{"object":"chat.completion","x":1,"choices":[{"index":0,"message":{"role":"assistant","content":null},"finish_reason":null}]}"#;
    assert_eq!(assembly.body(), expected);
    assert_eq!(AnswerAssembly::new(0).body(), r#"{"object":"chat.completion","choices":[]}"#);
}

#[test]
fn choices_are_ordered_and_complete_when_each_has_a_reason() {
    let mut assembly = assembly(&[
        json!({ "choices": [{ "index": 2, "delta": { "content": "b" }, "finish_reason": "stop" }] }),
        json!({ "choices": [{ "index": 0, "delta": { "content": "a" }, "finish_reason": "" }] }),
    ]);
    assert!(!assembly.is_complete());
    assembly
        .push_chunk(r#"{"choices":[{"index":0,"finish_reason":"length","delta":null,"x":"y"}]}"#)
        .unwrap();
    assembly.push_chunk(r#"{"choices":[{"index":0,"finish_reason":null}]}"#).unwrap();
    assert!(assembly.is_complete());
    let whole = value(assembly);
    let said: Vec<&Value> = (0..2).map(|place| &whole["choices"][place]["message"]["content"]).collect();
    assert_eq!(said, ["a", "b"]);
    assert_eq!((&whole["choices"][1]["index"], &whole["choices"][0]["x"]), (&json!(2), &json!("y")));
    assert_eq!(whole["choices"][0]["finish_reason"], "length");
}

#[test]
fn in_a_delta_texts_and_lists_go_on_and_other_values_are_replaced() {
    let parts = [
        json!({ "a": "x", "b": [1], "c": 1, "d": { "e": "x", "id": "1", "f": null }, "g": true, "content": "1" }),
        json!({ "a": "y", "b": [{}], "c": 2, "d": { "e": "y", "id": "2", "f": "z" }, "g": null, "content": null }),
        json!({ "a": "", "b": [], "d": { "id": "" }, "h": "new" }),
    ];
    let expected = json!({ "role": "assistant", "content": "1", "a": "xy", "b": [1, {}], "c": 2, "g": true, "h": "new",
                           "d": { "e": "xy", "id": "2", "f": "z" } });
    assert_eq!(message(&parts), expected);
}

#[test]
fn what_changes_its_kind_is_replaced() {
    let parts = [json!({ "a": "x", "b": [1], "c": { "d": 1 } }), json!({ "a": 1, "b": "y", "c": [2] })];
    let expected = json!({ "role": "assistant", "content": null, "a": 1, "b": "y", "c": [2] });
    assert_eq!(message(&parts), expected);
    assert_eq!(message(&[json!({ "a": 1 }), json!({ "a": "x" }), json!({ "a": "y" })])["a"], "xy");
}

#[test]
fn outside_of_deltas_the_last_value_counts() {
    let chunk = |provider: &str, severity: &str| {
        json!({ "provider": provider, "citations": ["u"], "choices": [{ "index": 0, "delta": { "content": "x" },
                "content_filter_results": { "hate": { "severity": severity } }, "native_finish_reason": provider }] })
    };
    let whole = assembled(&[chunk("p", "safe"), chunk("q", "safe"), chunk("", "low")]);
    assert_eq!((&whole["provider"], &whole["citations"]), (&json!("q"), &json!(["u"])));
    let choice = &whole["choices"][0];
    assert_eq!(choice["content_filter_results"], json!({ "hate": { "severity": "low" } }));
    assert_eq!(
        (&choice["native_finish_reason"], &choice["message"]["content"]),
        (&json!("q"), &json!("xxx"))
    );
}

#[test]
fn elements_with_an_index_are_merged_and_others_appended() {
    let detail = |index: i64, kind: &str, text: &str| json!({ "index": index, "type": kind, "text": text });
    let parts = [
        json!({ "reasoning_details": [detail(0, "t", "a"), detail(1, "t", "b")] }),
        json!({ "reasoning_details": [{ "index": 0, "text": "c" }, { "text": "d" }] }),
        json!({ "reasoning_details": [detail(0, "s", "e"), { "text": "d" }, { "index": "0" }] }),
    ];
    let expected = json!([
        detail(0, "t", "ac"), detail(1, "t", "b"), { "text": "d" }, detail(0, "s", "e"), { "text": "d" }, { "index": "0" }
    ]);
    assert_eq!(message(&parts)["reasoning_details"], expected);
}

#[test]
fn a_text_part_that_a_stream_was_cut_in_goes_on_in_the_next_list() {
    let text = |text: &str| json!({ "type": "text", "text": text });
    let thought = |text: Value| json!({ "type": "thinking", "thinking": text });
    let cited = |text: &str| json!({ "type": "text", "text": text, "annotations": [] });
    let closed = |text: &str| json!({ "type": "thinking", "thinking": text, "closed": true });
    let refusal = |text: &str| json!({ "type": "refusal", "refusal": text });
    let image = json!({ "type": "image_url", "image_url": { "url": "u" } });
    let content = |content: Value| json!({ "content": content });
    for (lists, expected) in [
        (
            vec![json!([text("a")]), json!([text("b"), text("c")]), json!([text("d")])],
            json!([text("ab"), text("cd")]),
        ),
        (
            vec![
                json!([thought(json!([text("a")]))]),
                json!([thought(json!([text("b")]))]),
                json!([text("c")]),
            ],
            json!([thought(json!([text("ab")])), text("c")]),
        ),
        (vec![json!([thought(json!("a"))]), json!([thought(json!("b"))])], json!([thought(json!("ab"))])),
        (vec![json!([cited("a")]), json!([cited("b")])], json!([cited("ab")])),
        (vec![json!(["a"]), json!(["b", "c"])], json!(["ab", "c"])),
        (
            vec![json!([refusal("a")]), json!([refusal("b")]), json!([text("c")])],
            json!([refusal("ab"), text("c")]),
        ),
        (vec![json!([closed("a")]), json!([thought(json!("b"))])], json!([closed("a"), thought(json!("b"))])),
        (vec![json!([image]), json!([image])], json!([image, image])),
        (vec![json!([text("a")]), json!([{ "text": "b" }])], json!([text("ab")])),
    ] {
        let deltas: Vec<Value> = lists.into_iter().map(content).collect();
        assert_eq!(message(&deltas)["content"], expected);
    }
}

#[test]
fn lists_of_probabilities_are_appended() {
    let chunk = |logprobs: Value| json!({ "choices": [{ "delta": {}, "logprobs": logprobs }] });
    let whole = assembled(&[
        chunk(Value::Null),
        chunk(json!({ "content": [{ "token": "a" }], "refusal": null })),
        chunk(json!({ "content": [{ "token": "b" }], "refusal": [] })),
    ]);
    let expected = json!({ "content": [{ "token": "a" }, { "token": "b" }], "refusal": [] });
    assert_eq!(whole["choices"][0]["logprobs"], expected);
}

#[test]
fn padding_is_dropped_and_so_is_a_message_beside_the_deltas() {
    let whole = assembled(&[json!({ "obfuscation": "x", "choices": [{ "obfuscation": "x",
        "delta": { "obfuscation": "x", "content": "a" }, "message": { "content": "b" } }] })]);
    let choice =
        json!({ "index": 0, "message": { "role": "assistant", "content": "a" }, "finish_reason": null });
    assert_eq!(whole, json!({ "object": "chat.completion", "choices": [choice] }));
}

#[test]
fn content_is_a_text_or_a_list() {
    let (text, list) = (r#"{"content":"a"}"#, r#"{"content":[{"type":"text"}]}"#);
    for [first, then] in [[text, list], [list, text]] {
        let error = error(&[&in_delta(first), &in_delta(then)]);
        assert!(error.to_string().contains("`content` is a text"), "{error}");
    }
    let parts = [json!({ "content": "" }), json!({ "content": [1] }), json!({ "content": "" })];
    assert_eq!(message(&parts)["content"], json!([1]));
    assert_eq!(message(&[json!({ "content": "a" }), json!({ "content": [] })])["content"], "a");
}

#[test]
fn parts_of_calls_are_joined_by_their_index() {
    let parts = [
        json!({ "index": 1, "id": "b", "type": "function", "function": { "name": "g", "arguments": "" } }),
        json!({ "index": 0, "id": "a", "type": "function", "function": { "name": "f", "arguments": "{" } }),
        json!({ "index": 1, "function": { "arguments": "[" } }),
        json!({ "index": 0, "id": null, "function": { "name": null, "arguments": "}" } }),
        json!({ "index": 1, "id": "b", "type": "function", "function": { "name": "g", "arguments": "]" } }),
    ];
    let expected = json!([
        { "id": "b", "type": "function", "function": { "name": "g", "arguments": "[]" } },
        { "id": "a", "type": "function", "function": { "name": "f", "arguments": "{}" } },
    ]);
    assert_eq!(calls(&parts), expected);
}

#[test]
fn another_id_begins_another_call() {
    let part = |index: Option<u8>, id: &str, name: &str, arguments: &str| {
        let function = if name.is_empty() { json!({}) } else { json!({ "name": name }) };
        let mut part = json!({ "id": id, "function": function });
        part["function"]["arguments"] = arguments.into();
        index.iter().for_each(|index| part["index"] = (*index).into());
        part
    };
    let call = |id: &str, name: &str, arguments: &str| json!({ "id": id, "function": { "name": name, "arguments": arguments } });
    let same_index = [part(Some(0), "a", "f", "1"), part(Some(0), "b", "g", "2"), part(Some(0), "", "", "3")];
    assert_eq!(calls(&same_index), json!([call("a", "f", "1"), call("b", "g", "23")]));
    let no_index = [
        part(None, "a", "f", "1"),
        part(None, "", "", "2"),
        part(None, "a", "", "3"),
        part(None, "b", "g", "4"),
        part(None, "c", "", "5"),
    ];
    let expected = json!([call("a", "f", "123"), call("b", "g", "4"), call("c", "", "5")]);
    assert_eq!(calls(&no_index), expected);
    let only_names = [json!({ "function": { "name": "f" } }), json!({ "function": { "name": "f" } })];
    let call = json!({ "function": { "name": "f", "arguments": "" } });
    assert_eq!(calls(&only_names), json!([call, call]));
    let late_id = [json!({ "index": 0, "function": { "name": "f" } }), json!({ "index": 0, "id": "a" })];
    assert_eq!(calls(&late_id), json!([{ "id": "a", "function": { "name": "f", "arguments": "" } }]));
}

#[test]
fn a_name_may_come_in_pieces_or_be_repeated() {
    let part = |name: &str| json!({ "index": 0, "function": { "name": name } });
    let name = |parts: &[Value]| calls(parts)[0]["function"]["name"].take();
    assert_eq!(name(&[part("get_"), part("weather"), part("")]), "get_weather");
    assert_eq!(name(&[part("get"), part("get"), part("get")]), "get");
}

#[test]
fn other_forms_of_calls_are_joined_too() {
    let custom = [
        json!({ "index": 0, "id": "a", "type": "custom", "custom": { "name": "f", "input": "x" } }),
        json!({ "index": 0, "custom": { "input": "y" } }),
    ];
    assert_eq!(
        calls(&custom),
        json!([{ "id": "a", "type": "custom", "custom": { "name": "f", "input": "xy" } }])
    );
    let old = [
        json!({ "function_call": { "name": "f", "arguments": "{" } }),
        json!({ "function_call": { "arguments": "}" } }),
    ];
    assert_eq!(message(&old)["function_call"], json!({ "name": "f", "arguments": "{}" }));
    let arguments = |values: &[Value]| {
        let parts: Vec<Value> = values
            .iter()
            .map(|value| json!({ "index": 0, "function": { "name": "f", "arguments": value } }))
            .collect();
        calls(&parts)[0]["function"]["arguments"].take()
    };
    assert_eq!(arguments(&[json!({ "a": 1, "id": "x" }), json!("")]), json!({ "a": 1, "id": "x" }));
    assert_eq!(arguments(&[json!({}), json!({ "a": 1 })]), json!({ "a": 1 }));
    assert_eq!(arguments(&[Value::Null, json!("{"), json!("}")]), "{}");
    assert_eq!(arguments(&[Value::Null]), "");
    let signed = [
        json!({ "index": 0, "extra_content": { "s": "x" } }),
        json!({ "index": 0, "extra_content": { "t": 1 } }),
    ];
    assert_eq!(calls(&signed), json!([{ "extra_content": { "s": "x", "t": 1 } }]));
}

#[test]
fn calls_of_a_cut_stream_can_be_dropped() {
    let delta = json!({ "content": "x", "tool_calls": [{ "id": "a" }], "function_call": { "name": "f" } });
    let mut assembly = assembly(&[
        json!({ "choices": [{ "index": 0, "delta": delta }, { "index": 1, "delta": delta, "finish_reason": "stop" }] }),
    ]);
    assembly.drop_open_calls();
    let whole = value(assembly);
    assert_eq!(whole["choices"][0]["message"], json!({ "role": "assistant", "content": "x" }));
    assert_eq!(whole["choices"][1]["message"]["tool_calls"], json!([{ "id": "a" }]));
}

#[test]
fn what_is_no_chunk_is_refused_with_the_reason() {
    let calls = |call: &str| in_delta(&format!(r#"{{"tool_calls":[{call}]}}"#));
    for (chunk, reason) in [
        ("<html>".to_owned(), "a chunk is not valid JSON"),
        ("[]".to_owned(), "a chunk is an array"),
        (r#"{"a":1,"a":2}"#.to_owned(), "the key `/a` twice"),
        (r#"{"choices":{}}"#.to_owned(), "`choices` of a chunk is an object"),
        (r#"{"choices":[1]}"#.to_owned(), "a choice in a chunk is a number"),
        (r#"{"choices":[{"index":128}]}"#.to_owned(), "from 0 to 127"),
        (r#"{"choices":[{"index":-1}]}"#.to_owned(), "from 0 to 127"),
        (r#"{"choices":[{"index":"0"}]}"#.to_owned(), "from 0 to 127"),
        (in_delta("[]"), "a `delta` is an array"),
        (in_delta(r#"{"tool_calls":{}}"#), "`tool_calls` of a delta is an object"),
        (in_delta(r#"{"function_call":[]}"#), "`function_call` of a delta is an array"),
        (calls("1"), "an element of `tool_calls` is a number"),
        (calls(r#"{"id":1}"#), "the `id` of a tool call is a number"),
        (calls(r#"{"index":"0"}"#), "the `index` of a tool call"),
        (calls(r#"{"function":"f"}"#), "`function` of a tool call is a string"),
        (calls(r#"{"function":{"name":1}}"#), "the `name` of a tool call is a number"),
        (format!("{}1{}", r#"{"a":"#.repeat(65), "}".repeat(65)), "ested deeper than"),
    ] {
        match error(&[&chunk]) {
            AnswerError::Invalid(error) => assert!(error.contains(reason), "{error}"),
            other => panic!("{chunk}: {other:?}"),
        }
    }
}

#[test]
fn events_are_the_end_an_error_or_a_chunk() {
    let read = |name: &str, data: &str| {
        AnswerAssembly::new(1 << 20).push(&SseEvent { name: name.to_owned(), data: data.to_owned() })
    };
    for data in ["[DONE]", " [DONE]\n", "[DONE] and more"] {
        assert_eq!(read("error", data), Ok(StreamProgress::Done));
    }
    for (name, data) in [
        ("error", "x"),
        ("", r#"{"error":{}}"#),
        ("", r#"{"\u0065rror":"x"}"#),
        ("", r#"{"error":-1}"#),
        ("x", r#"{"a":1,"error":true}"#),
    ] {
        assert_eq!(read(name, data), Ok(StreamProgress::Failed));
    }
    for data in ["{}", r#"{"error":null}"#, r#"{"error":false}"#, r#"{"error":-0.0}"#, r#"{"error":""}"#] {
        assert_eq!(read("message", data), Ok(StreamProgress::GoesOn));
    }
    assert_eq!(read("message", r#"{"choices":[{"error":1}]}"#), Ok(StreamProgress::GoesOn));
    for data in ["", "x", r#"[{"error":1}]"#, r#"{"error":1"#] {
        assert!(matches!(read("message", data), Err(AnswerError::Invalid(_))), "{data}");
    }
}

#[test]
fn no_more_than_the_limit_is_held() {
    let text = in_delta(r#"{"content":"0123456789"}"#);
    let mut assembly = AnswerAssembly::new(4 << 10);
    let mut before = 0;
    let error = loop {
        if let Err(error) = assembly.push_chunk(&text) {
            break error;
        }
        assert!(assembly.held() > before && assembly.held() <= 4 << 10);
        before = assembly.held();
    };
    assert_eq!((error, assembly.held() + 10 > 4 << 10), (too_large(), true));
    let many: Vec<String> = (0..100).map(|name| format!(r#""{name}":{{}}"#)).collect();
    let many = format!("{{{}}}", many.join(","));
    assert_eq!(AnswerAssembly::new(4 << 10).push_chunk(&many), Err(too_large()));
    let calls = in_delta(&format!(
        r#"{{"tool_calls":[{}{{}}]}}"#,
        r#"{"id":"a","function":{"name":"f"}},"#.repeat(1024)
    ));
    assert_eq!(AnswerAssembly::new(1 << 20).push_chunk(&calls), Ok(()));
    assert_eq!(
        AnswerAssembly::new(1 << 20).push_chunk(&calls.replace("{}]", r#"{"id":"b"}]"#)),
        Err(too_large())
    );
}

#[test]
fn values_that_are_repeated_are_held_once() {
    let chunk = |id: &str, number: u32| {
        json!({ "id": id, "created": number, "usage": { "tokens": number, "of": [id] },
                "choices": [{ "index": 0, "delta": { "role": "assistant" }, "finish_reason": null }] })
    };
    let mut assembly = assembly(&[chunk("long-id", 1000)]);
    let held = assembly.held();
    for number in 0..1000 {
        assembly
            .push_chunk(&chunk(if number % 2 == 0 { "i" } else { "long-id" }, number).to_string())
            .unwrap();
    }
    assert_eq!(assembly.held(), held);
}

#[test]
fn many_small_chunks_and_many_members_take_linear_time() {
    let mut assembly = AnswerAssembly::new(64 << 20);
    let chunk = in_delta(r#"{"content":"tok","tool_calls":[{"index":0,"function":{"arguments":"a"}}]}"#);
    for _ in 0..100_000 {
        assembly.push_chunk(&chunk).unwrap();
    }
    for name in 0..20_000 {
        assembly.push_chunk(&in_delta(&format!(r#"{{"{name}":1,"l":[{{"index":{name}}}]}}"#))).unwrap();
    }
    assert!(assembly.body().len() > 800_000);
}
