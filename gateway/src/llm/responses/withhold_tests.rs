use serde_json::{Value, json};

use super::{
    answer_tests::{call_edits, note, parse, patch, text},
    echoes::{FILLED_IDS, REPEATED},
    withhold::withhold_opening,
};
use crate::llm::format::{ChoiceEdit, FormatAnswer};

/// A rendered answer under a guard, and what was withheld from it.
fn rendered(body: &Value, edit: ChoiceEdit) -> (Value, Vec<String>) {
    let rendered = parse(body.to_string()).render(&[edit], false, true);
    (serde_json::from_slice(&rendered.body).expect("JSON"), rendered.withheld)
}

/// The output of a rendered answer, and what was withheld from it.
fn guarded(output: &Value, edit: ChoiceEdit) -> (Value, Vec<String>) {
    let (mut body, withheld) = rendered(&json!({ "output": output }), edit);
    (body["output"].take(), withheld)
}

#[track_caller]
fn assert_passes(body: &Value) {
    let answer = parse(body.to_string());
    let rendered = answer.render(&[], false, true);
    assert_eq!(rendered.withheld, [""; 0]);
    assert_eq!(rendered.body.as_ptr(), answer.body().as_ptr(), "it keeps its bytes");
}

fn long() -> String {
    "x".repeat(65)
}

fn message(part: &Value) -> Value {
    json!({ "type": "message", "role": "assistant", "content": [part] })
}

#[test]
fn ordinary_answers_pass() {
    let token =
        |text: &str| json!({ "token": text, "bytes": text.as_bytes(), "logprob": -0.5, "top_logprobs": [] });
    let tool =
        json!({ "type": "function", "name": "f", "description": "short", "parameters": { "a": ["b"] } });
    let output = json!([
            { "id": "rs_1", "type": "reasoning", "summary": [{ "type": "summary_text", "text": long() }],
              "content": [{ "type": "reasoning_text", "text": long() }], "encrypted_content": "e".repeat(1 << 18),
              "status": "completed" },
            { "id": "aZ0_.:=+/|~-".repeat(42), "type": "message", "role": "assistant", "status": "completed",
              "phase": "final_answer", "content": [
                { "type": "output_text", "text": "ab".repeat(40), "annotations": [], "logprobs": [] },
                { "type": "output_text", "text": "ab", "logprobs": [token("a"), token("b")], "annotations": [
                    { "type": "url_citation", "url": "https://a.test/", "title": "t".repeat(2048), "start_index": 0,
                      "end_index": 1 },
                    { "type": "file_citation", "file_id": "f", "filename": "n", "index": 0 },
                    { "type": "container_file_citation", "container_id": "c", "file_id": "f", "filename": "n",
                      "start_index": 0, "end_index": 1 },
                    { "type": "file_path", "file_id": "f", "index": 0 },
                ] },
                { "type": "refusal", "refusal": long() },
            ] },
            { "id": "fc_1", "type": "function_call", "call_id": long(), "name": long(), "namespace": long(),
              "arguments": json!({ "a": long() }).to_string(), "status": "completed", "caller": { "type": "direct" } },
            { "type": "custom_tool_call", "call_id": "c", "name": "g", "input": long() },
            { "type": "local_shell_call", "call_id": "d", "action": { "type": "exec", "command": [long()], "env": {} } },
            { "type": "shell_call", "call_id": "e", "action": { "commands": [long()] }, "environment": { "type": "local" },
              "caller": null, "created_by": "u" },
            { "type": "apply_patch_call", "call_id": "f", "operation": { "type": "update_file", "diff": long() } },
            { "type": "tool_search_call", "id": "g", "call_id": "g", "execution": "client", "arguments": { "goal": long() },
              "status": "completed", "created_by": "u" },
    ]);
    assert_passes(&json!({
        "id": "resp_68af4030592c81938ec0a5fbab4a3e9f05438e46b5f69a3b", "object": "response", "created_at": 1.5,
        "completed_at": 2, "status": "completed", "background": false, "error": null, "incomplete_details": null,
        "instructions": "short", "max_output_tokens": null, "max_tool_calls": null, "model": "m".repeat(256),
        "output": output,
        "parallel_tool_calls": true, "previous_response_id": null, "prompt": null, "prompt_cache_key": "k",
        "reasoning": { "effort": "high", "summary": null }, "safety_identifier": "s", "service_tier": "default",
        "store": false, "temperature": 1, "text": { "format": { "type": "json_schema" } },
        "tool_choice": { "type": "allowed_tools", "tools": [tool] }, "tools": [tool], "top_logprobs": 0, "top_p": 1,
        "truncation": "disabled", "user": "u", "metadata": { "a": "b" },
        "usage": { "input_tokens": 1, "input_tokens_details": { "cached_tokens": 0 }, "output_tokens": 2 },
        "moderation": { "input": [{ "flagged": false, "scores": { "a": 0.5 } }] },
        "content_filters": vec![json!({ "blocked": false, "content_filter_results": { "hate": { "severity": "safe" } } }); 20],
        "new_setting": "x".repeat(64), "new_settings": { "a": 1 },
    }));
    assert_passes(
        &json!({ "output": [], "status": "failed", "error": { "code": "server_error", "message": "short" } }),
    );
    assert_passes(&json!({ "output": [], "incomplete_details": { "reason": "max_output_tokens" } }));
}

#[test]
fn what_plugins_are_not_asked_about_is_withheld_as_a_whole_item() {
    let shown = [
        message(&json!({ "type": "output_text", "text": "a" })),
        json!({ "type": "function_call", "name": "f" }),
    ];
    let given = json!([
        { "type": "web_search_call", "id": "w", "action": { "query": "secret" } }, shown[0],
        { "type": "function_call_output", "output": "secret" }, { "type": "mcp_call", "id": "m" },
        { "type": "message", "role": "user", "content": [] }, shown[1], { "type": "new" },
        { "type": "tool_search_call", "call_id": "c", "execution": "server", "arguments": {} },
        { "type": "tool_search_call", "call_id": null, "execution": "client", "arguments": {} },
        { "type": "tool_search_output", "call_id": "c", "execution": "client", "tools": [] },
    ]);
    let (output, withheld) = guarded(&given, ChoiceEdit::default());
    assert_eq!(output, json!(shown));
    let hosted = ["tool_search_call", "tool_search_output", "web_search_call"];
    assert_eq!(withheld, [&["function_call_output", "mcp_call", "message", "new"][..], &hosted].concat());
}

#[test]
fn an_answer_of_which_nothing_else_is_left_says_that_it_was_withheld() {
    let sentence = |kind: &str, name: &str| json!([{ "type": kind, name: "The answer was withheld." }]);
    let thought = json!({ "type": "reasoning", "summary": [{ "type": "summary_text", "text": "t" }] });
    let (unknown, call) = (json!({ "type": "new" }), json!({ "type": "function_call", "name": "f" }));
    let hollow = message(&json!({ "type": "new", "text": "secret" }));
    for (given, names) in [
        (json!([unknown, unknown]), ["new"]),
        (json!([hollow]), ["new"]),
        // Providers refuse a history in which nothing follows a thought.
        (json!([thought, unknown]), ["new"]),
    ] {
        let answer = parse(json!({ "output": given }).to_string());
        let left = answer.render(&[], false, true);
        let body: Value = serde_json::from_slice(&left.body).expect("JSON");
        let mut said = sentence("output_text", "text");
        said[0]["annotations"] = json!([]);
        said[0]["logprobs"] = json!([]);
        assert_eq!(
            (&body["output"][0]["content"], body["output"].as_array().map(Vec::len)),
            (&said, Some(1))
        );
        assert_eq!(left.withheld, names, "{given}");
        let body: Value = serde_json::from_slice(&answer.render(&[], true, true).body).expect("JSON");
        assert_eq!(body["output"][0]["content"], sentence("refusal", "refusal"), "the text would be parsed");
    }
    for (given, left) in [
        (json!([unknown, call]), json!([call])),
        (json!([thought]), json!([thought])),
        (json!([thought, unknown, call]), json!([thought, call])),
        (json!([]), json!([])),
    ] {
        assert_eq!(guarded(&given, ChoiceEdit::default()).0, left, "{given}");
    }
    let (output, _) = guarded(&json!([unknown, call]), call_edits(vec![note("no")]));
    assert_eq!((&output[0]["content"][0]["text"], output.as_array().map(Vec::len)), (&json!("no"), Some(1)));
}

#[test]
fn items_have_what_plugins_see_and_what_the_provider_wants_back() {
    let given = json!([
        { "type": "reasoning", "id": "x".repeat(2049), "summary": ["secret", { "text": "t", "type": "s", "more": long() }],
          "content": { "text": "secret" }, "encrypted_content": ["secret"], "text": long() },
        { "new": [], "type": "message", "Content": "secret", "id": ["secret"], "phase": long(), "short": "x",
          "content": [{ "type": "new", "text": "secret" }, { "type": "output_text", "text": "a", "refusal": long(),
                      "Text": "secret", "short": 1 }, { "type": "refusal", "refusal": "b", "text": long() }] },
        { "type": "function_call", "id": { "a": 1 }, "name": "f", "arguments": "{}", "namespace": ["secret"],
          "caller": { "type": long() }, "input": long(), "output": long() },
        { "type": "shell_call", "action": {}, "name": long(), "environment": { "skills": [{ "description": long() }] } },
    ]);
    let left = json!([
        { "type": "reasoning", "summary": [{ "text": "t", "type": "s" }] },
        { "type": "message", "short": "x", "content": [{ "type": "output_text", "text": "a", "short": 1 },
                                                        { "type": "refusal", "refusal": "b" }] },
        { "type": "function_call", "name": "f", "arguments": "{}" },
        { "type": "shell_call", "action": {} },
    ]);
    let (output, withheld) = guarded(&given, ChoiceEdit::default());
    assert_eq!(output, left);
    let names = [
        "Content",
        "Text",
        "caller",
        "content",
        "encrypted_content",
        "environment",
        "id",
        "input",
        "more",
        "name",
        "namespace",
        "new",
        "output",
        "phase",
        "refusal",
        "summary",
        "text",
    ];
    assert_eq!(withheld, names);
    let calls = vec![patch("g", "{\"b\":1}"), patch("shell", "{\"commands\":[]}")];
    let edit = ChoiceEdit { thoughts: vec![Some("u".into())], calls, ..text("c") };
    let (output, _) = guarded(&given, edit);
    let left = json!([
        { "type": "reasoning", "summary": [{ "text": "u", "type": "s" }] },
        { "type": "message", "short": "x", "content": [{ "type": "output_text", "text": "c", "short": 1 },
                                                        { "type": "refusal", "refusal": "b" }] },
        { "type": "function_call", "name": "g", "arguments": "{\"b\":1}" },
        { "type": "shell_call", "action": { "commands": [] } },
    ]);
    assert_eq!(output, left);
}

#[test]
fn a_member_passes_only_on_the_kind_of_item_or_part_that_has_it() {
    let call = |kind: &str| json!({ "type": kind, "name": "f", "call_id": "c" });
    let (reasoning, said) =
        (json!({ "type": "reasoning" }), message(&json!({ "type": "output_text", "text": "a" })));
    let shell = json!({ "type": "shell_call", "action": {} });
    for (item, name) in [
        (&said, "summary"),
        (&said, "arguments"),
        (&said, "text"),
        (&said, "call_id"),
        (&reasoning, "content"),
        (&reasoning, "Summary"),
        (&reasoning, "phase"),
        (&reasoning, "refusal"),
        (&reasoning, "text"),
        (&call("function_call"), "input"),
        (&call("function_call"), "content"),
        (&call("function_call"), "Arguments"),
        (&call("custom_tool_call"), "arguments"),
        (&shell, "name"),
        (&shell, "output"),
        (&shell, "role"),
    ] {
        let mut given = item.clone();
        given[name] = json!("short");
        let (output, withheld) = guarded(&json!([given]), ChoiceEdit::default());
        assert_eq!((&output, withheld), (&json!([item]), vec![name.to_owned()]), "{item}");
        // Some servers write each member that there is.
        given[name] = json!(null);
        assert_passes(&json!({ "output": [given] }));
    }
    for (part, name) in [
        (json!({ "type": "output_text", "text": "a" }), "refusal"),
        (json!({ "type": "output_text", "text": "a" }), "input"),
        (json!({ "type": "refusal", "refusal": "a" }), "text"),
    ] {
        let mut given = part.clone();
        given[name] = json!("short");
        let (output, withheld) = guarded(&json!([message(&given)]), ChoiceEdit::default());
        assert_eq!((output, withheld), (json!([message(&part)]), vec![name.to_owned()]));
        let thought = |part: &Value| json!({ "type": "reasoning", "summary": [part] });
        let (part, mut given) = (json!({ "type": "summary_text", "text": "a" }), given);
        (given["type"], given["text"]) = (json!("summary_text"), json!("a"));
        let (output, _) = guarded(&json!([thought(&given)]), ChoiceEdit::default());
        assert!(name == "text" || output == json!([thought(&part)]), "{output}");
    }
}

#[test]
fn ids_have_no_room_for_sentences() {
    let item = |id: Value| json!({ "type": "function_call", "id": id, "name": "f" });
    for id in
        ["x".repeat(513), "two words".to_owned(), "caf\u{e9}".to_owned(), "a\n".to_owned(), "a,b".to_owned()]
    {
        let body = json!({ "id": id, "previous_response_id": id, "output": [item(json!(id))] });
        let (left, withheld) = rendered(&body, ChoiceEdit::default());
        assert_eq!(left, json!({ "output": [{ "type": "function_call", "name": "f" }] }));
        assert_eq!(withheld, ["id", "previous_response_id"]);
    }
    let longest = json!("x".repeat(512));
    assert_passes(
        &json!({ "id": longest, "previous_response_id": longest, "output": [item(longest.clone())] }),
    );
}

#[test]
fn what_an_answer_repeats_of_the_request_is_left_to_the_clients_own_words() {
    for name in REPEATED {
        let is_id = FILLED_IDS.contains(name);
        let short = if is_id { json!("an-id") } else { json!({ "a": ["short"] }) };
        assert_passes(&json!({ "output": [], *name: short }));
        let words = is_id.then(|| json!("ada@example.com"));
        for secret in
            [json!(long()), json!([{ "a": long() }]), json!(vec!["x"; 1000])].into_iter().chain(words)
        {
            let body = json!({ "output": [], *name: secret });
            let (left, withheld) = rendered(&body, ChoiceEdit::default());
            assert_eq!((left, withheld.len()), (json!({ "output": [], *name: null }), 0), "{name}");
        }
    }
}

#[test]
fn annotations_are_short_and_whole() {
    let part = |annotations: Value| {
        message(&json!({ "type": "output_text", "text": "a", "annotations": annotations }))
    };
    let web = json!({ "type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1 });
    let with = |member: &str, value: Value| {
        let mut changed = web.clone();
        changed[member] = value;
        changed
    };
    let given = part(json!([
        with("title", json!("x".repeat(2049))),
        with("new", json!("short")),
        with("type", json!(["secret"])),
        "secret",
        web,
    ]));
    let (output, withheld) = guarded(&json!([given]), ChoiceEdit::default());
    assert_eq!(output, json!([part(json!([web, web]))]));
    assert_eq!(withheld, ["annotations", "new"]);
    let (output, _) = guarded(&json!([given]), text("b"));
    assert_eq!(output[0]["content"], json!([{ "type": "output_text", "text": "b", "annotations": [] }]));
    let (output, _) = guarded(&json!([part(json!({ "a": "secret" }))]), ChoiceEdit::default());
    assert_eq!(output, json!([part(json!([]))]));
    let refusal = message(&json!({ "type": "refusal", "refusal": "a", "annotations": [web] }));
    let (output, _) = guarded(&json!([refusal]), ChoiceEdit::default());
    assert_eq!(output[0]["content"][0]["annotations"], json!([]));
    let long = with("title", json!("t".repeat(1000)));
    let (output, _) =
        guarded(&json!([part(json!(vec![&long; 10])), part(json!(vec![&long; 10]))]), ChoiceEdit::default());
    let count = |index: usize| output[index]["content"][0]["annotations"].as_array().expect("a list").len();
    assert_eq!(count(0) + count(1), (16 << 10) / long.to_string().len());
}

#[test]
fn log_probabilities_pass_where_they_spell_the_text() {
    let part =
        |logprobs: Value| message(&json!({ "type": "output_text", "text": "ab", "logprobs": logprobs }));
    let token = |text: &str, others: Value| json!({ "token": text, "logprob": 0, "top_logprobs": others });
    let none = || json!([]);
    for (given, left, names) in [
        (json!([token("a", none()), token("b", none())]), None, vec![]),
        (
            json!([token("a", json!([{ "token": "secret" }])), token("b", none())]),
            Some(json!([token("a", none()), token("b", none())])),
            vec!["top_logprobs"],
        ),
        (json!([token("a", none())]), Some(none()), vec!["logprobs"]),
        (json!([token("a", none()), token("secret", none())]), Some(none()), vec!["logprobs"]),
        (json!({ "a": "secret" }), Some(none()), vec!["logprobs"]),
        (json!(null), None, vec![]),
    ] {
        let (output, withheld) = guarded(&json!([part(given.clone())]), ChoiceEdit::default());
        assert_eq!(
            (output, withheld),
            (json!([part(left.unwrap_or(given))]), names.into_iter().map(str::to_owned).collect())
        );
    }
}

#[test]
fn known_members_of_another_shape_or_case_are_withheld() {
    let body = json!({
        "id": "x".repeat(2049), "object": "response", "model": "m".repeat(257), "usage": { "note": long() },
        "moderation": { "a": long() }, "conversation": { "id": long() }, "status": long(), "Metadata": "secret",
        "Text": long(), "prompt": { "id": long() }, "incomplete_details": { "reason": long() }, "Output": "secret",
        "OUTPUT_TEXT": "secret", "output_text": "secret", "previous_response_id": [1], "service_tier": long(),
        "output": [], "list": [1], "keys": { long(): 1 }, long(): 0, "output_messages": [{ "content": "secret" }],
    });
    let (left, withheld) = rendered(&body, ChoiceEdit::default());
    assert_eq!(left, json!({ "object": "response", "output": [] }));
    let members = body.as_object().expect("an object").keys();
    let mut names: Vec<String> =
        members.filter(|name| !["object", "output"].contains(&name.as_str())).cloned().collect();
    names.sort_unstable();
    assert_eq!(withheld, names);
}

#[test]
fn what_the_model_said_is_left_out_of_an_error() {
    let shown = json!("The provider's message is withheld.");
    for (error, left, names) in [
        (
            json!({ "code": "c", "message": long() }),
            json!({ "code": "c", "message": shown }),
            vec!["message"],
        ),
        (
            json!({ "code": 1, "message": "Failed to parse x" }),
            json!({ "code": 1, "message": shown }),
            vec!["message"],
        ),
        (
            json!({ "code": [1], "message": ["a"], "raw": "x" }),
            json!({ "message": shown }),
            vec!["code", "message", "raw"],
        ),
        (json!("secret"), json!(null), vec!["error"]),
    ] {
        let (body, withheld) = rendered(&json!({ "output": [], "error": error }), ChoiceEdit::default());
        assert_eq!(
            (&body["error"], withheld),
            (&left, names.into_iter().map(str::to_owned).collect()),
            "{error}"
        );
    }
}

#[test]
fn a_blocked_answer_keeps_no_unknown_object() {
    let body = json!({ "output": [{ "type": "new" }], "new": { "a": "x" }, "setting": 1, "error": { "message": long() },
                       "tools": [{ "name": long() }] });
    let (mut left, withheld) = rendered(&body, ChoiceEdit::replaced("no".to_owned()));
    assert_eq!(left["output"].take()[0]["content"][0]["text"], "no");
    assert_eq!(left, json!({ "output": null, "error": null, "status": "completed", "tools": null }));
    assert_eq!(withheld, ["new", "setting"]);
}

#[test]
fn the_answer_that_a_stream_begins_with_has_nothing_that_no_plugin_saw() {
    let body = json!({
        "id": "resp_1", "object": "response", "status": "in_progress", "model": "m", "output": [{ "type": "message" }],
        "output_text": "secret", "instructions": long(), "tools": [{ "name": long() }], "usage": null, "new": { "a": 1 },
        "long": long(), "setting": "secret", "text": { "format": { "type": "text" } },
        "error": { "code": "c", "message": "short" }, "incomplete_details": { "reason": "short" },
    });
    let opening = withhold_opening(&body.to_string(), true);
    assert_eq!(
        serde_json::from_str::<Value>(&opening).expect("JSON"),
        json!({ "id": "resp_1", "object": "response", "status": "in_progress", "model": "m", "output": [], "usage": null,
                "instructions": null, "tools": null, "text": { "format": { "type": "text" } }, "error": null,
                "incomplete_details": null })
    );
    let spaced = " {\"id\" : 1, \"new\": [\"a\"]} ";
    assert_eq!(withhold_opening(spaced, false), spaced);
    assert_eq!(withhold_opening("[\"secret\"]", true), "{}");
}

#[test]
fn tens_of_thousands_of_members_are_judged_in_one_walk() {
    let many = || (0..30_000).map(|index| (format!("member-{index}"), json!([]))).collect::<Value>();
    let (mut body, mut item) = (many(), many());
    item["type"] = json!("message");
    item["content"] = json!([]);
    body["output"] = json!([item]);
    let (left, withheld) = rendered(&body, ChoiceEdit::default());
    assert_eq!(left, json!({ "output": [{ "type": "message", "content": [] }] }));
    assert_eq!(withheld.len(), 32);
}
