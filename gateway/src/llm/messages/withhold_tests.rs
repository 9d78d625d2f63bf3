use serde_json::{Value, json};

use super::{
    MessagesAnswer, TokenCount,
    test_edits::{call_edits, note, text},
};
use crate::llm::format::{CallEdit, ChoiceEdit, FormatAnswer};

/// A rendered answer under a guard, and what was withheld from it.
fn rendered(body: &Value, edit: ChoiceEdit) -> (Value, Vec<String>) {
    let answer = MessagesAnswer::parse(body.to_string().into(), 1).expect("a valid answer");
    let rendered = answer.render(&[edit], false, true);
    (serde_json::from_slice(&rendered.body).expect("JSON"), rendered.withheld)
}

/// The content of a rendered answer, and what was withheld from it.
fn guarded(content: &Value, edit: ChoiceEdit) -> (Value, Vec<String>) {
    let (mut body, withheld) = rendered(&json!({ "content": content }), edit);
    (body["content"].take(), withheld)
}

#[track_caller]
fn assert_passes(body: &Value) {
    let answer = MessagesAnswer::parse(body.to_string().into(), 1).expect("a valid answer");
    let rendered = answer.render(&[], false, true);
    assert_eq!(rendered.withheld, [""; 0]);
    assert_eq!(rendered.body.as_ptr(), answer.body().as_ptr(), "it keeps its bytes");
}

fn long() -> String {
    "x".repeat(65)
}

#[test]
fn ordinary_answers_pass() {
    assert_passes(&json!({
        "id": "msg_01XFDUDYJgAACzvnptvVoYEL", "type": "message", "role": "assistant", "model": "m".repeat(256),
        "content": [
            { "type": "thinking", "thinking": "t".repeat(100), "signature": "s".repeat(1000) },
            { "type": "redacted_thinking", "data": "d".repeat(1000) },
            { "type": "text", "text": "a".repeat(100), "citations": null },
            { "type": "tool_use", "id": long(), "name": "f", "input": { "a": long() }, "caller": { "type": "direct" },
              "toolset_name": long() },
            { "type": "tool_use", "id": "toolu_1", "name": "g", "input": long(),
              "caller": { "type": "code_execution_20250825", "tool_id": "srvtoolu_1" } },
        ],
        "stop_reason": "tool_use", "stop_sequence": null, "stop_details": null,
        "usage": { "input_tokens": 1, "output_tokens": 2, "cache_creation": { "ephemeral_5m_input_tokens": 0 },
                   "server_tool_use": { "web_search_requests": 0 }, "service_tier": "standard", "inference_geo": "us" },
        "container": { "id": "container_1", "expires_at": "2026-01-01T00:00:00Z" },
        "context_management": { "applied_edits": [{ "type": "clear_tool_uses_20250919", "cleared_tool_uses": 3 }] },
        "input_transformations": vec![json!({ "type": "t".repeat(60), "tokens": 1 }); 20],
        "safeguard_results": { "a": [{ "b": false }], "c": vec!["x".repeat(60); 20] },
        "new_setting": "x".repeat(64), "new_settings": { "a": 1 },
    }));
    let body = json!({ "content": [], "stop_reason": "refusal",
                       "stop_details": { "type": "refusal", "category": "cyber", "explanation": null } });
    assert_passes(&body);
}

#[test]
fn what_plugins_are_not_asked_about_is_withheld_as_a_whole_block() {
    let shown = [
        json!({ "type": "text", "text": "a" }),
        json!({ "type": "tool_use", "id": "1", "name": "f", "input": {} }),
    ];
    let given = json!([
        { "type": "server_tool_use", "id": "s", "name": "web_search", "input": { "query": "secret" } },
        shown[0],
        { "type": "web_search_tool_result", "tool_use_id": "s", "content": [] },
        { "type": "mcp_tool_use", "id": "m" }, { "type": "compaction", "content": "secret" },
        shown[1],
        { "type": "new" },
    ]);
    let (content, withheld) = guarded(&given, ChoiceEdit::default());
    assert_eq!(content, json!(shown));
    assert_eq!(withheld, ["compaction", "mcp_tool_use", "new", "server_tool_use", "web_search_tool_result"]);
    let (content, _) = guarded(&json!([{ "type": "new" }]), text("a"));
    assert_eq!(content, json!([shown[0]]));
}

#[test]
fn an_answer_of_which_nothing_else_is_left_says_that_it_was_withheld() {
    let sentence = json!({ "type": "text", "text": "The answer was withheld." });
    let thought = json!({ "type": "thinking", "thinking": "t", "signature": "s" });
    let (unknown, call) = (json!({ "type": "new" }), json!({ "type": "tool_use", "name": "f" }));
    let no = json!({ "type": "text", "text": "no" });
    for (given, edit, left) in [
        (json!([unknown, unknown]), ChoiceEdit::default(), json!([sentence])),
        // A history must not end with a thought.
        (json!([thought, unknown]), ChoiceEdit::default(), json!([thought, sentence])),
        (json!([unknown, call]), ChoiceEdit::default(), json!([call])),
        (json!([unknown, call]), call_edits(vec![note("no")]), json!([no])),
        (json!([unknown, no]), ChoiceEdit::default(), json!([no])),
        (json!([unknown, no]), text(""), json!([{ "type": "text", "text": "[removed]" }])),
        (json!([thought]), ChoiceEdit::default(), json!([thought])),
        (json!([]), ChoiceEdit::default(), json!([])),
    ] {
        assert_eq!(guarded(&given, edit).0, left, "{given}");
    }
    let answer = MessagesAnswer::parse(r#"{"content":[{"type":"new"}]}"#.into(), 1).expect("an answer");
    assert_eq!(answer.render(&[], true, true).body, r#"{"content":[]}"#, "a client would parse the sentence");
}

#[test]
fn blocks_have_what_plugins_see_and_what_the_provider_wants_back() {
    let given = json!([
        { "new": [], "type": "text", "text": "a", "long": long(), "short": "x", "data": {}, "Text": "secret" },
        { "type": "thinking", "thinking": "t", "signature": "s", "text": long(), "summary": ["secret"] },
        { "type": "redacted_thinking", "data": "d", "thinking": long() },
        { "type": "tool_use", "id": { "a": 1 }, "name": "f", "input": {}, "caller": { "type": long() }, "text": long(),
          "toolset_name": [] },
    ]);
    let (content, withheld) = guarded(&given, ChoiceEdit::default());
    let left = json!([
        { "type": "text", "text": "a", "short": "x" },
        { "type": "thinking", "thinking": "t", "signature": "s" },
        { "type": "redacted_thinking", "data": "d" },
        { "type": "tool_use", "name": "f", "input": {} },
    ]);
    assert_eq!(content, left);
    let names =
        ["Text", "caller", "data", "id", "long", "new", "summary", "text", "thinking", "toolset_name"];
    assert_eq!(withheld, names);
    let patch = CallEdit::Patch { name: "g".into(), args: "{\"b\":1}".into() };
    let edit = ChoiceEdit { thoughts: vec![Some("u".into())], calls: vec![patch], ..text("b") };
    let (content, withheld) = guarded(&given, edit);
    let left = json!([
        { "type": "text", "text": "b", "short": "x" },
        { "type": "thinking", "thinking": "u", "signature": "s" },
        { "type": "redacted_thinking", "data": "d" },
        { "type": "tool_use", "name": "g", "input": { "b": 1 } },
    ]);
    assert_eq!((content, withheld.as_slice()), (left, names.map(str::to_owned).as_slice()));
}

#[test]
fn a_thought_whose_signature_is_no_text_is_withheld() {
    let signed = "s".repeat(400 << 10);
    let thought = |signature: Value| json!({ "type": "thinking", "thinking": "t", "signature": signature });
    let redacted = |data: Value| json!({ "type": "redacted_thinking", "data": data });
    assert_passes(
        &json!({ "content": [thought(json!(signed)), redacted(json!(signed)), thought(Value::Null)] }),
    );
    let given = json!([thought(json!(["secret"])), redacted(json!(1)), thought(json!("s"))]);
    let (content, withheld) =
        guarded(&given, ChoiceEdit { thoughts: vec![None, Some("new".into())], ..ChoiceEdit::default() });
    let left = json!([
        { "type": "thinking", "thinking": "new", "signature": "s" },
        { "type": "text", "text": "The answer was withheld." },
    ]);
    assert_eq!((content, withheld), (left, vec!["data".to_owned(), "signature".to_owned()]));
}

#[test]
fn citations_are_short_and_whole() {
    let char_location = json!({ "type": "char_location", "cited_text": "c".repeat(2048), "document_index": 0,
        "document_title": null, "start_char_index": 0, "end_char_index": 9, "file_id": null });
    let web = json!({ "type": "web_search_result_location", "url": "https://a.test/", "title": "t",
        "encrypted_index": "e".repeat(200), "cited_text": "c" });
    let search = json!({ "type": "search_result_location", "source": "s", "title": null, "cited_text": "c",
        "search_result_index": 0, "start_block_index": 0, "end_block_index": 1 });
    let page = json!({ "type": "page_location", "cited_text": "c", "document_index": 0, "document_title": "t",
        "start_page_number": 1, "end_page_number": 2 });
    let block = |citations: &Value| json!([{ "type": "text", "text": "a", "citations": citations }]);
    let known = json!([char_location, web, search, page]);
    assert_passes(&json!({ "content": block(&known) }));
    let with = |member: &str, value: Value| {
        let mut changed = web.clone();
        changed[member] = value;
        changed
    };
    let given = json!([
        with("title", json!("x".repeat(2049))),
        with("new", json!("short")),
        with("more", json!({ "text": "secret" })),
        with("type", json!(["secret"])),
        "secret",
        page,
        with("cited_text", json!({ "text": "secret" })),
    ]);
    let (content, withheld) = guarded(&block(&given), ChoiceEdit::default());
    assert_eq!(content, block(&json!([web, web, page])));
    assert_eq!(withheld, ["citations", "more", "new"]);
    let (content, _) = guarded(&block(&given), text("b"));
    assert_eq!(content, json!([{ "type": "text", "text": "b" }]), "they go with the old text");
    let (content, withheld) = guarded(&block(&json!(long())), ChoiceEdit::default());
    assert_eq!((content, withheld), (json!([{ "type": "text", "text": "a" }]), vec!["citations".to_owned()]));
}

#[test]
fn all_citations_of_an_answer_have_at_most_sixteen_kibibytes() {
    let citation = json!({ "type": "char_location", "cited_text": "c".repeat(1000) });
    let block =
        |citations: usize| json!({ "type": "text", "text": "a", "citations": vec![&citation; citations] });
    let (content, withheld) = guarded(&json!([block(5), block(5), block(10)]), ChoiceEdit::default());
    let count: usize = content
        .as_array()
        .expect("blocks")
        .iter()
        .map(|block| block["citations"].as_array().map_or(0, Vec::len))
        .sum();
    assert_eq!((count, withheld), ((16 << 10) / citation.to_string().len(), vec!["citations".to_owned()]));
}

#[test]
fn known_members_of_another_shape_or_case_are_withheld() {
    let body = json!({
        "id": long(), "role": [1], "model": "m".repeat(257), "usage": { "note": long() },
        "container": { "id": long() }, "context_management": long(), "input_transformations": [long()],
        "safeguard_results": { "a": long() }, "Input_Transformations": 1, "stop_reason": { "a": 1 },
        "stop_sequence": long(), "stop_details": "x".repeat(65), "Content": "secret", "STOP_DETAILS": {},
        "content": [], "list": [1], "keys": { long(): 1 }, long(): 0,
    });
    let (left, withheld) = rendered(&body, ChoiceEdit::default());
    assert_eq!(left, json!({ "content": [] }));
    let mut names: Vec<String> =
        body.as_object().expect("an object").keys().filter(|name| *name != "content").cloned().collect();
    names.sort_unstable();
    assert_eq!(withheld, names);
}

#[test]
fn the_explanation_of_a_refusal_is_withheld() {
    for explanation in [long(), "short".to_owned(), String::new()] {
        let details =
            json!({ "type": "refusal", "category": "cyber", "explanation": explanation, "new": ["secret"] });
        let body = json!({ "content": [], "stop_details": details });
        let (left, withheld) = rendered(&body, ChoiceEdit::default());
        assert_eq!(
            left,
            json!({ "content": [], "stop_details": { "type": "refusal", "category": "cyber" } })
        );
        assert_eq!(withheld, ["explanation", "new"]);
    }
}

#[test]
fn a_blocked_answer_keeps_no_unknown_object() {
    let body = json!({ "content": [{ "type": "new" }], "new": { "a": "x" }, "setting": 1, "stop_reason": { "a": 1 },
                       "stop_details": { "explanation": long() }, "container": { "id": "c" } });
    let (left, withheld) = rendered(&body, ChoiceEdit::replaced("no".to_owned()));
    let content = json!([{ "type": "text", "text": "no" }]);
    assert_eq!(
        left,
        json!({ "content": content, "setting": 1, "stop_reason": "end_turn", "stop_details": null,
                "container": { "id": "c" } })
    );
    assert_eq!(withheld, ["explanation", "new"]);
}

#[test]
fn withheld_blocks_and_changes_do_not_meet() {
    let given = json!([
        { "type": "new" }, { "type": "tool_use", "name": "f", "input": {}, "more": [] }, { "type": "new" },
        { "type": "tool_use", "more": [], "name": "g" },
    ]);
    let edit = ChoiceEdit { calls: vec![CallEdit::Keep, note("no")], ..text("a") };
    let (content, withheld) = guarded(&given, edit);
    let left = json!([
        { "type": "text", "text": "a" }, { "type": "text", "text": "no" },
        { "type": "tool_use", "name": "f", "input": {} },
    ]);
    assert_eq!((content, withheld), (left, vec!["more".to_owned(), "new".to_owned()]));
    let (content, _) = guarded(&given, call_edits(vec![note("1"), note("2")]));
    assert_eq!(content, json!([{ "type": "text", "text": "1" }, { "type": "text", "text": "2" }]));
}

#[test]
fn a_count_of_tokens_has_numbers_and_settings() {
    let render = |body: &Value| {
        let rendered =
            TokenCount::parse(body.to_string().into(), 0).expect("a count").render(&[], false, true);
        (serde_json::from_slice::<Value>(&rendered.body).expect("JSON"), rendered.withheld)
    };
    let plain = json!({ "context_management": { "original_input_tokens": 9 }, "input_tokens": 1,
                        "new": { "a": 1 }, "short": "x" });
    assert_eq!(render(&plain), (plain.clone(), vec![]));
    let body = json!({ "context_management": { "text": long() }, "input_tokens": 1, "long": long(), "list": [],
                       "Input_Tokens": 2, "CONTEXT_management": { "a": 1 } });
    let names = ["CONTEXT_management", "Input_Tokens", "context_management", "list", "long"];
    assert_eq!(render(&body), (json!({ "input_tokens": 1 }), names.map(str::to_owned).to_vec()));
    let count = TokenCount::parse(body.to_string().into(), 0).expect("a count");
    let rendered = count.render(&[], false, false);
    assert_eq!((rendered.body, rendered.withheld.len()), (body.to_string().into(), 0), "without a guard");
}

#[test]
fn names_of_what_is_withheld_are_cut_and_each_is_there_once() {
    let long = "n".repeat(128);
    let body = json!({ "content": [], format!("{long}a"): [], format!("{long}b"): [], "short": [] });
    let (_, withheld) = rendered(&body, ChoiceEdit::default());
    assert_eq!(withheld, [format!("{long}…"), "short".to_owned()]);
}

#[test]
fn tens_of_thousands_of_members_are_judged_in_one_walk() {
    let many = || (0..30_000).map(|index| (format!("member-{index}"), json!([]))).collect::<Value>();
    let (mut body, mut block) = (many(), many());
    block["type"] = json!("text");
    block["text"] = json!("a");
    body["content"] = json!([block]);
    let (left, withheld) = rendered(&body, ChoiceEdit::default());
    assert_eq!(left, json!({ "content": [{ "type": "text", "text": "a" }] }));
    assert_eq!((withheld.len(), withheld[31].as_str()), (32, "member-10024"));
}
