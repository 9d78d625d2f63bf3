use serde_json::{Value, json};

use super::*;

/// The JSON of the block that begins with this and goes on with these deltas.
fn joined(start: &str, deltas: &[Value]) -> Result<String, AnswerError> {
    let mut account = Account::new(1 << 20);
    let mut block = BlockAssembly::begin(start, true, &mut account)?;
    for delta in deltas {
        block.merge(&delta.to_string(), &mut account)?;
    }
    let mut out = Vec::new();
    block.write(&mut out);
    Ok(String::from_utf8(out).expect("text"))
}

fn block(start: &Value, deltas: &[Value]) -> Value {
    let block = joined(&start.to_string(), deltas).expect("deltas of the block");
    json::scan(block.as_bytes(), MAX_DEPTH).expect("no repeated names");
    serde_json::from_str(&block).expect("JSON")
}

fn text_start() -> Value {
    json!({ "type": "text", "text": "" })
}

fn text(piece: &str) -> Value {
    json!({ "type": "text_delta", "text": piece })
}

fn input(piece: &str) -> Value {
    json!({ "type": "input_json_delta", "partial_json": piece })
}

#[test]
fn texts_go_on_behind_what_their_block_began_with() {
    let thinking = |piece: &str| json!({ "type": "thinking_delta", "thinking": piece });
    for (start, deltas, expected) in [
        (
            json!({ "type": "text", "text": "é\n" }),
            vec![text("\"a"), text("")],
            json!({ "type": "text", "text": "é\n\"a" }),
        ),
        (json!({ "type": "text" }), vec![text("a")], json!({ "type": "text", "text": "a" })),
        (json!({ "type": "text", "text": null }), vec![text("")], json!({ "type": "text", "text": "" })),
        (
            json!({ "type": "thinking", "thinking": "a", "x": [1] }),
            vec![thinking("b"), thinking("c")],
            json!({ "type": "thinking", "thinking": "abc", "x": [1] }),
        ),
    ] {
        assert_eq!(block(&start, &deltas), expected);
    }
}

#[test]
fn the_last_content_of_a_compaction_counts_also_null() {
    let delta = |content: &Value| json!({ "type": "compaction_delta", "content": content });
    let (a, b, null) = (json!("a"), json!("b\n"), Value::Null);
    for (start, contents, expected) in [
        (&null, vec![&a, &b], &b),
        (&a, vec![&b], &b),
        (&null, vec![&a, &null], &null),
        (&a, vec![&null], &null),
        (&a, vec![&null, &b], &b),
        (&a, vec![], &a),
    ] {
        let deltas: Vec<Value> = contents.into_iter().map(delta).collect();
        let start = json!({ "type": "compaction", "content": start });
        assert_eq!(block(&start, &deltas), json!({ "type": "compaction", "content": expected }));
    }
    let deltas = [
        json!({ "type": "compaction_delta", "content": "a", "encrypted_content": "x" }),
        json!({ "type": "compaction_delta", "encrypted_content": "yz" }),
    ];
    let expected = json!({ "type": "compaction", "content": "a", "encrypted_content": "yz" });
    assert_eq!(block(&json!({ "type": "compaction", "content": null }), &deltas), expected);
}

#[test]
fn the_last_signature_counts() {
    let signature = |text: &str| json!({ "type": "signature_delta", "signature": text });
    let start = json!({ "type": "thinking", "thinking": "t", "signature": "old" });
    let expected = |text: &str| json!({ "type": "thinking", "thinking": "t", "signature": text });
    assert_eq!(block(&start, &[signature("a"), signature("bc")]), expected("bc"));
    assert_eq!(block(&start, &[signature("a"), signature("")]), expected(""));
    assert_eq!(block(&start, &[]), expected("old"));
}

#[test]
fn citations_are_appended_each_as_it_is() {
    let delta = |citation: &Value| json!({ "type": "citations_delta", "citation": citation });
    let (a, b) = (json!({ "index": 0, "cited_text": "a" }), json!({ "index": 0, "cited_text": "b" }));
    for start in [Value::Null, json!([]), json!([a])] {
        let mut expected = start.as_array().cloned().unwrap_or_default();
        expected.extend([a.clone(), b.clone()]);
        let start = json!({ "type": "text", "text": "x", "citations": start });
        assert_eq!(block(&start, &[delta(&a), delta(&b)])["citations"], json!(expected));
    }
}

#[test]
fn arguments_are_one_object_byte_for_byte_or_a_string() {
    let written = |start: &str, pieces: &[&str]| {
        let start = format!(r#"{{"type":"tool_use","input":{start},"name":"f"}}"#);
        let deltas: Vec<Value> = pieces.iter().map(|piece| input(piece)).collect();
        let whole = joined(&start, &deltas).expect("deltas");
        let (_, after) = whole.split_once(r#""input":"#).unwrap();
        after.split_once(r#","name""#).unwrap().0.to_owned()
    };
    let deep = |levels: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(levels - 1), "]".repeat(levels - 1));
    assert_eq!(written("{ }", &[]), "{ }");
    assert_eq!(written("{ }", &["", ""]), "{ }");
    assert_eq!(written(r#"{"old":1}"#, &["{\"a\"", ": 1.50e1 ", "}"]), r#"{"a": 1.50e1 }"#);
    for (pieces, expected) in [
        (&["{\"a\":1", ",\"a\":2}"][..], r#""{\"a\":1,\"a\":2}""#),
        (&["{\"a\":"], r#""{\"a\":""#),
        (&["{}", "{}"], r#""{}{}""#),
        (&["[1]"], r#""[1]""#),
        (&["null"], r#""null""#),
        (&[" "], r#"" ""#),
    ] {
        assert_eq!(written("{}", pieces), expected);
    }
    // The answer may be 64 levels deep, and arguments begin below the third.
    assert_eq!(written("{}", &[&deep(61)]), deep(61));
    assert_eq!(written("{}", &[&deep(62)]), quote(&deep(62)));
}

#[test]
fn tools_of_servers_have_arguments_too() {
    for kind in ["server_tool_use", "mcp_tool_use"] {
        let start = json!({ "type": kind, "id": "x", "input": {} });
        assert_eq!(block(&start, &[input("{\"a\":"), input("1}")])["input"], json!({ "a": 1 }));
    }
}

#[test]
fn a_delta_that_does_not_fit_its_block_is_refused() {
    for (start, delta, reason) in [
        (
            json!({ "type": "tool_use", "input": {} }),
            text("x"),
            "a `text_delta` belongs to a block of another type",
        ),
        (text_start(), input("{}"), "a `input_json_delta` belongs to a block of another type"),
        (json!({ "type": "new" }), text("x"), "a `text_delta` belongs to a block of another type"),
        (text_start(), json!({ "type": "text_delta", "text": 1 }), "`text` of a `text_delta` is a number"),
        (
            text_start(),
            json!({ "type": "citations_delta", "citation": "x" }),
            "`citation` of a `citations_delta` is a string",
        ),
        (json!({ "type": "text", "text": {} }), text("x"), "`text` of a content block is an object"),
    ] {
        assert_eq!(joined(&start.to_string(), &[delta]), invalid(reason));
    }
}

#[test]
fn a_delta_of_an_unknown_type_or_without_its_member_is_dropped() {
    let deltas = [
        json!({ "type": "new_delta", "text": "x", "new": ["x"] }),
        json!({ "text": "x" }),
        json!({ "type": "text_delta" }),
        json!({ "type": "text_delta", "text": null }),
    ];
    assert_eq!(block(&text_start(), &deltas), text_start());
    let unknown = json!({ "type": "new", "text": "y" });
    assert_eq!(block(&unknown, &deltas[..2]), unknown);
}
