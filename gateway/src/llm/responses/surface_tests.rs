use serde_json::{Value, json};

use super::*;
use crate::core::error::Code;

#[path = "surface_tool_tests.rs"]
mod tools;

const NONE: GuardedPoints = GuardedPoints { request: false, calls: false, results: false, answer: false };
const ALL: GuardedPoints = GuardedPoints { request: true, calls: true, results: true, answer: true };
const REQUESTS: GuardedPoints = GuardedPoints { request: true, ..NONE };
const CALLS: GuardedPoints = GuardedPoints { calls: true, ..NONE };
const RESULTS: GuardedPoints = GuardedPoints { results: true, ..NONE };
const ANSWERS: GuardedPoints = GuardedPoints { answer: true, ..NONE };

fn with(member: &str, value: Value) -> ResponsesRequest {
    let mut body = json!({ "model": "m", "input": [{ "role": "user", "content": "hi" }] });
    body[member] = value;
    ResponsesRequest::parse(body.to_string().into()).expect("a valid request")
}

fn item(item: Value) -> ResponsesRequest {
    with("input", json!([item]))
}

fn part_of(role: &str, part: Value) -> ResponsesRequest {
    item(json!({ "type": "message", "role": role, "content": [part] }))
}

fn user(part: Value) -> ResponsesRequest {
    part_of("user", part)
}

fn tool(tool: Value) -> ResponsesRequest {
    with("tools", json!([tool]))
}

fn typed(type_name: &str) -> Value {
    json!({ "type": type_name, "name": "x" })
}

/// The result of a function, with one more member.
fn result(member: &str, value: Value) -> ResponsesRequest {
    let mut result = json!({ "type": "function_call_output", "call_id": "c", "output": "" });
    result[member] = value;
    item(result)
}

/// The call of a function, with one more member.
fn call(member: &str, value: Value) -> ResponsesRequest {
    let mut call = json!({ "type": "function_call", "call_id": "c", "name": "f", "arguments": "" });
    call[member] = value;
    item(call)
}

/// A message that the model has answered, so that plugins have it in `messages`.
fn answered(message: Value) -> ResponsesRequest {
    let last = json!({ "role": "user", "content": "and?" });
    with("input", json!([message, { "role": "assistant", "content": "yes" }, last]))
}

fn refused(request: &ResponsesRequest, guarded: GuardedPoints) -> Option<String> {
    let error = check_request(request, guarded, &[]).err()?;
    assert_eq!(error.code, Code::Unsupported);
    Some(error.violations.first().expect("a violation").pointer.clone())
}

/// Something that is refused: where, and by which name it is allowed.
struct Case {
    request: ResponsesRequest,
    pointer: &'static str,
    name: &'static str,
}

fn case(request: ResponsesRequest, pointer: &'static str, name: &'static str) -> Case {
    Case { request, pointer, name }
}

/// Checks that each case is refused where one of `points` alone is guarded, nowhere else, and not when it is allowed.
fn assert_refused_at(points: &[GuardedPoints], cases: Vec<Case>) {
    for Case { request, pointer, name } in cases {
        for guarded in [NONE, REQUESTS, CALLS, RESULTS, ANSWERS] {
            let expected = points.contains(&guarded).then_some(pointer);
            assert_eq!(refused(&request, guarded).as_deref(), expected, "{pointer} {name} at {guarded:?}");
        }
        assert_eq!(refused(&request, ALL).as_deref(), Some(pointer));
        check_request(&request, ALL, &[name.to_owned()]).expect(pointer);
        check_request(&request, ALL, &["other".to_owned()]).expect_err(pointer);
    }
}

#[test]
fn state_of_a_provider_and_other_models_are_refused_for_every_tenant() {
    let stored = |part_type: &str| json!({ "type": part_type, "file_id": "f" });
    let nested = json!({ "type": "input_text", "text": "", "file": { "File_Id": "f" } });
    assert_refused_at(
        &[NONE, REQUESTS, CALLS, RESULTS, ANSWERS],
        vec![
            case(with("previous_response_id", json!("r")), "/previous_response_id", "previous_response_id"),
            case(with("conversation", json!("c")), "/conversation", "conversation"),
            case(with("conversation", json!({ "id": "c" })), "/conversation", "conversation"),
            case(with("container", json!("c")), "/container", "container"),
            case(with("thread", json!({ "id": "t" })), "/thread", "thread"),
            case(with("fallbacks", json!([{ "model": "other" }])), "/fallbacks", "fallbacks"),
            case(with("models", json!(["other"])), "/models", "models"),
            case(with("cached_content", json!("c")), "/cached_content", "cached_content"),
            case(with("extra_body", json!({ "model": "other" })), "/extra_body", "extra_body"),
            case(
                with("new", json!({ "a": [{ "conversation": "c" }] })),
                "/new/a/0/conversation",
                "conversation",
            ),
            case(with("new", json!({ "Models": ["m"] })), "/new/Models", "models"),
            case(with("prompt", json!({ "id": "p" })), "/prompt", "prompt"),
            case(
                with("prompt_cache_options", json!({ "comparison_response_id": "r" })),
                "/prompt_cache_options/comparison_response_id",
                "comparison_response_id",
            ),
            case(item(json!({ "type": "item_reference", "id": "msg_1" })), "/input/0", "item_reference"),
            case(item(json!({ "id": "msg_1" })), "/input/0", "item_reference"),
            case(item(json!({ "id": "msg_1", "type": null })), "/input/0", "item_reference"),
            case(user(stored("input_image")), "/input/0/content/0/file_id", "file_id"),
            case(user(stored("input_file")), "/input/0/content/0/file_id", "file_id"),
            case(part_of("assistant", stored("input_file")), "/input/0/content/0/file_id", "file_id"),
            case(result("output", json!([stored("input_file")])), "/input/0/output/0/file_id", "file_id"),
            case(part_of("assistant", nested), "/input/0/content/0/file/File_Id", "file_id"),
        ],
    );
}

#[test]
fn unknown_items_are_refused_where_requests_or_results_are_judged() {
    let long = "x".repeat(65);
    let told = |name: &str| json!({ "type": "program", "caller_id": name });
    assert_refused_at(
        &[REQUESTS, RESULTS],
        vec![
            case(item(typed("new_call")), "/input/0", "new_call"),
            case(item(typed("new_call_output")), "/input/0", "new_call_output"),
            case(item(typed("configuration_update")), "/input/0", "configuration_update"),
            case(item(typed("computers")), "/input/0", "computers"),
            case(call("output", json!("text")), "/input/0/output", "output"),
            case(call("content", json!([])), "/input/0/content", "content"),
            case(call("result", json!({ "a": 1 })), "/input/0/result", "result"),
            case(result("note", json!("short")), "/input/0/note", "note"),
            case(result("content", json!([])), "/input/0/content", "content"),
            case(result("id", json!("two words")), "/input/0/id", "id"),
            case(result("name", json!("two words")), "/input/0/name", "name"),
            case(result("namespace", json!("two words")), "/input/0/namespace", "namespace"),
            case(result("status", json!("two words")), "/input/0/status", "status"),
            case(result("created_by", json!(long)), "/input/0/created_by", "created_by"),
            case(result("caller", told("two words")), "/input/0/caller", "caller"),
            case(result("caller", json!({ "two words": "a" })), "/input/0/caller", "caller"),
            case(result("id", json!(["a"])), "/input/0/id", "id"),
            case(result("caller", json!("direct")), "/input/0/caller", "caller"),
        ],
    );
}

#[test]
fn what_carries_unseen_text_is_refused_where_requests_are_judged() {
    let long = "x".repeat(65);
    let switches = json!({ "include_obfuscation": "no" });
    let image = json!({ "type": "input_image", "image_url": "https://a.test/" });
    assert_refused_at(
        &[REQUESTS],
        vec![
            case(
                with("context_management", json!([{ "type": "compaction" }])),
                "/context_management",
                "context_management",
            ),
            case(with("temperature", json!([long])), "/temperature", "temperature"),
            case(with("truncation", json!(long)), "/truncation", "truncation"),
            case(with("service_tier", json!(long)), "/service_tier", "service_tier"),
            case(with("new_member", json!({ "a": [long] })), "/new_member", "new_member"),
            case(with("messages", json!([{ "role": "user", "content": long }])), "/messages", "messages"),
            case(with("include", json!([{}])), "/include", "include"),
            case(with("include", json!("reasoning.encrypted_content")), "/include", "include"),
            case(with("stream_options", switches), "/stream_options", "stream_options"),
            case(with("stream_options", json!("text")), "/stream_options", "stream_options"),
            case(item(typed("compaction")), "/input/0", "compaction"),
            case(item(typed("compaction_trigger")), "/input/0", "compaction_trigger"),
            case(item(typed("compaction_summary")), "/input/0", "compaction_summary"),
            case(part_of("system", image.clone()), "/input/0/content/0", "input_image"),
            case(part_of("developer", image), "/input/0/content/0", "input_image"),
            case(user(json!({ "type": "refusal", "refusal": "no" })), "/input/0/content/0", "refusal"),
            case(user(json!({ "type": "input_video" })), "/input/0/content/0", "input_video"),
            case(user(json!({ "type": "summary_text", "text": "" })), "/input/0/content/0", "summary_text"),
            case(user(json!({ "type": "image_url", "image_url": "" })), "/input/0/content/0", "image_url"),
            case(
                answered(json!({ "role": "user", "content": [{ "type": "new" }] })),
                "/input/0/content/0",
                "new",
            ),
            case(
                user(json!({ "type": "input_audio", "input_audio": { "data": "aGk=", "format": "mp3" } })),
                "/input/0/content/0",
                "audio",
            ),
        ],
    );
    assert_refused_at(&[ANSWERS], vec![case(with("background", json!(true)), "/background", "background")]);
}

#[test]
fn media_that_plugins_would_not_see_are_refused() {
    for part in [
        json!({ "type": "input_image" }),
        json!({ "type": "input_image", "image_url": "no base64" }),
        json!({ "type": "input_image", "image_url": "data:image/png,no" }),
        json!({ "type": "input_image", "image_url": "file:///a" }),
        json!({ "type": "input_image", "image_url": { "url": "https://a.test/" } }),
        json!({ "type": "input_file" }),
        json!({ "type": "input_file", "file_data": "no base64" }),
        json!({ "type": "input_file", "file_data": ["aGk="] }),
        json!({ "type": "input_file", "file_data": "aGk=", "file_url": "https://a.test/" }),
    ] {
        let pointer = "/input/0/content/0";
        let listed = answered(json!({ "role": "user", "content": [part] }));
        assert_eq!(refused(&user(part.clone()), REQUESTS).as_deref(), Some(pointer), "{part}");
        assert_eq!(refused(&listed, REQUESTS).as_deref(), Some(pointer), "{part}");
        assert_eq!(refused(&user(part.clone()), GuardedPoints { request: false, ..ALL }), None, "{part}");
        let error = check_request(&user(part.clone()), REQUESTS, &[]).expect_err(pointer);
        let name = part["type"].as_str().expect("a type");
        assert!(
            error.detail.ends_with(&format!("`llm.allow: [{name}]` allows it for all tenants")),
            "{}",
            error.detail
        );
    }
    let stored = |more: Value| {
        let mut part = json!({ "type": "input_file", "file_id": "f" });
        part.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        check_request(&user(part), ALL, &["file_id".to_owned()])
            .map_err(|error| error.violations[0].pointer.clone())
    };
    assert_eq!(stored(json!({ "detail": "low", "file_data": null })), Ok(()));
    assert_eq!(stored(json!({ "filename": "short" })), Err("/input/0/content/0/filename".to_owned()));
    for more in ["file_data", "file_url", "image_url"] {
        assert_eq!(stored(json!({ more: "aGk=" })), Err("/input/0/content/0".to_owned()), "{more}");
    }
    let audio =
        json!({ "type": "input_audio", "input_audio": { "data": "aGk=", "format": "mp3", "text": "hi" } });
    let error = check_request(&user(audio), ALL, &["audio".to_owned()]).expect_err("it has a text");
    assert_eq!(error.violations[0].pointer, "/input/0/content/0/input_audio/text");
}

#[test]
fn short_strings_are_refused_where_plugins_see_no_member_of_a_message() {
    let text = |member: &str, value: Value| {
        let mut part = json!({ "type": "input_text", "text": "" });
        part[member] = value;
        part
    };
    let image = |member: &str, value: Value| {
        let mut part = json!({ "type": "input_image", "image_url": "https://a.test/" });
        part[member] = value;
        part
    };
    let message = |role: &str, member: &str, value: Value| {
        let mut message = json!({ "role": role, "content": "" });
        message[member] = value;
        item(message)
    };
    let long_mark = json!({ "mode": "x".repeat(65) });
    assert_refused_at(
        &[REQUESTS],
        vec![
            case(message("user", "note", json!("short")), "/input/0/note", "note"),
            case(message("user", "name", json!("ann")), "/input/0/name", "name"),
            case(message("system", "note", json!("short")), "/input/0/note", "note"),
            case(message("developer", "note", json!("short")), "/input/0/note", "note"),
            case(message("user", "id", json!("two words")), "/input/0/id", "id"),
            case(message("user", "status", json!("two words")), "/input/0/status", "status"),
            case(message("user", "phase", json!(["final"])), "/input/0/phase", "phase"),
            case(user(text("note", json!("short"))), "/input/0/content/0/note", "note"),
            case(part_of("system", text("note", json!("short"))), "/input/0/content/0/note", "note"),
            case(
                user(text("prompt_cache_breakpoint", long_mark)),
                "/input/0/content/0/prompt_cache_breakpoint",
                "prompt_cache_breakpoint",
            ),
            case(
                user(text("prompt_cache_breakpoint", json!("short"))),
                "/input/0/content/0/prompt_cache_breakpoint",
                "prompt_cache_breakpoint",
            ),
            case(user(image("detail", json!("two words"))), "/input/0/content/0/detail", "detail"),
            case(user(image("filename", json!("short"))), "/input/0/content/0/filename", "filename"),
            case(user(image("note", json!("short"))), "/input/0/content/0/note", "note"),
        ],
    );
}

#[test]
fn messages_that_plugins_have_as_they_are_may_have_short_members() {
    let long = "x".repeat(65);
    let with_note = |note: &str| json!({ "role": "user", "content": "", "note": note });
    assert_eq!(refused(&answered(with_note("short")), ALL), None);
    assert_eq!(refused(&answered(with_note(&long)), REQUESTS).as_deref(), Some("/input/0/note"));
    let with_context = |note: &str| {
        answered(json!({ "role": "user", "content": [{ "type": "input_text", "text": "", "note": note }] }))
    };
    assert_eq!(refused(&with_context("short"), ALL), None);
    assert_eq!(refused(&with_context(&long), REQUESTS).as_deref(), Some("/input/0/content/0/note"));
    let later = |note: &str| {
        let system = json!({ "role": "developer", "content": "", "note": note });
        with("input", json!([{ "role": "user", "content": "hi" }, system]))
    };
    assert_eq!(refused(&later("short"), ALL), None);
    assert_eq!(refused(&later(&long), REQUESTS).as_deref(), Some("/input/1/note"));
}

#[test]
fn what_plugins_see_and_settings_pass() {
    let long = "x".repeat(100);
    let mark = json!({ "mode": "explicit", "ttl": "30m" });
    let file = json!({ "type": "input_file", "file_data": "aGk=", "filename": long, "detail": "high",
        "file_url": null, "file_id": null, "prompt_cache_breakpoint": mark });
    let image = json!({ "type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto",
        "file_id": null, "prompt_cache_breakpoint": mark });
    let text = json!({ "type": "input_text", "text": long, "prompt_cache_breakpoint": mark });
    let passes = [
        with("input", json!(long)),
        with("instructions", json!(long)),
        with("stream", json!(true)),
        with("store", json!(true)),
        with("stream_options", json!({ "include_obfuscation": false })),
        with("stream_options", json!(null)),
        with("tools", json!([])),
        with("tool_choice", json!({ "type": "function", "name": long })),
        with(
            "text",
            json!({ "format": { "type": "json_schema", "name": "n", "schema": { "title": long } } }),
        ),
        with("reasoning", json!({ "effort": "low", "summary": long })),
        with("include", json!(["reasoning.encrypted_content", "web_search_call.action.sources"])),
        with("include", json!(null)),
        with("metadata", json!({ "note": long, "thread": "t" })),
        with("client_metadata", json!({ "x-codex-turn-metadata": long })),
        with("user", json!(long)),
        with("safety_identifier", json!(long)),
        with("prompt_cache_key", json!(long)),
        with("prompt_cache_options", json!({ "mode": long })),
        with("moderation", json!({ "model": long })),
        with("truncation", json!("auto")),
        with("context_management", json!([])),
        with("conversation", json!(null)),
        with("background", json!(false)),
        with("max_tool_calls", json!(3)),
        with("new_settings", json!({ "on": true, "list": [null, "x".repeat(64)] })),
        user(text.clone()),
        user(file),
        user(image),
        user(json!({ "type": "input_file", "file_url": "https://a.test/a.pdf" })),
        part_of("system", text),
        item(
            json!({ "type": "message", "role": "user", "content": [], "id": "msg_1", "status": "completed" }),
        ),
        item(json!({ "role": "developer", "content": long, "phase": null })),
    ];
    for (index, request) in passes.iter().enumerate() {
        assert_eq!(refused(request, ALL), None, "{index}");
    }
}

#[test]
fn what_codex_notes_about_an_item_passes_while_it_is_made_of_names() {
    let with_notes = |notes: Value| {
        let name = "internal_chat_message_metadata_passthrough";
        let mut message = json!({ "role": "user", "content": "" });
        message[name] = notes.clone();
        let (message, result) = (refused(&item(message), REQUESTS), refused(&result(name, notes), RESULTS));
        assert_eq!(message, result);
        message.is_none()
    };
    let turn = "01a106b9-2aec-7bb3-9c3b-ed97da04c51f";
    let kinds = json!(["user.image", "user.text"]);
    assert!(with_notes(
        json!({ "turn_id": turn, "create_time": 1_791_114_163.013_897, "content_item_kinds": kinds })
    ));
    assert!(with_notes(json!({ "turn_id": null })));
    assert!(!with_notes(json!({ "turn_id": "two words" })));
    assert!(!with_notes(json!({ "two words": 1 })));
    assert!(!with_notes(json!({ "content_item_kinds": ["two words"] })));
    assert!(!with_notes(json!({ "content_item_kinds": vec!["word"; 80] })));
    assert!(!with_notes(json!(["name"])));
    assert!(!with_notes(json!("name")));
}

#[test]
fn results_and_what_the_model_said_pass_as_they_are() {
    let long = "x".repeat(100);
    let parts = json!([
        { "type": "input_text", "text": long, "note": long },
        { "type": "input_image", "image_url": "no base64" },
    ]);
    let citation = json!({ "type": "file_citation", "file_id": "f", "filename": long });
    for passing in [
        json!({ "type": "function_call_output", "call_id": long, "output": parts, "id": "fc_1",
            "status": "completed", "name": "a.b", "namespace": "n", "caller": { "type": "direct" } }),
        json!({ "type": "function_call_output", "call_id": "c", "output": long,
            "caller": { "type": "program", "caller_id": "p_1" } }),
        json!({ "type": "custom_tool_call_output", "call_id": "c", "output": long, "caller": null }),
        json!({ "type": "local_shell_call_output", "id": "c", "output": long, "status": null }),
        json!({ "type": "shell_call_output", "call_id": "c", "max_output_length": 5, "output": [
            { "stdout": long, "stderr": long, "outcome": { "type": "exit", "exit_code": 0 } }
        ] }),
        json!({ "type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": long }),
        json!({ "type": "apply_patch_call_output", "call_id": "c", "status": "completed" }),
        json!({ "type": "tool_search_output", "call_id": long, "execution": "client", "status": "completed", "tools": [
            { "type": "function", "name": "f", "description": long, "parameters": { "file_id": long }, "defer_loading": true },
            { "type": "namespace", "name": "n", "tools": [{ "type": "custom", "name": "f" }] }
        ] }),
        json!({ "type": "reasoning", "id": long, "summary": [{ "type": "summary_text", "text": long }],
            "encrypted_content": long, "note": long }),
        json!({ "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "note": long }),
        json!({ "type": "custom_tool_call", "call_id": "c", "name": "f", "input": long, "output": null }),
        json!({ "type": "local_shell_call", "call_id": "c",
            "action": { "type": "exec", "command": [long], "env": { "file_id": "f", "container_id": "c" } } }),
        json!({ "type": "shell_call", "call_id": "c", "action": { "commands": [long] },
            "environment": { "type": "local" } }),
        json!({ "type": "apply_patch_call", "call_id": "c", "operation": { "type": "create_file", "diff": long } }),
        json!({ "type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": { "goal": long } }),
        json!({ "type": "message", "role": "assistant", "id": long, "phase": "final_answer", "note": long,
            "content": [{ "type": "output_text", "text": long, "annotations": [citation], "logprobs": [] }] }),
        json!({ "role": "assistant", "content": [{ "type": "refusal", "refusal": long }] }),
        json!({ "role": "assistant", "content": long, "note": long }),
    ] {
        assert_eq!(refused(&item(passing.clone()), ALL), None, "{passing}");
    }
}

#[test]
fn the_sentence_names_what_opens_it() {
    let detail = |request: &ResponsesRequest| check_request(request, ALL, &[]).expect_err("refused").detail;
    assert_eq!(
        detail(&tool(typed("web_search_preview_2025_03_11"))),
        "`web_search` is refused: the provider runs it before `before_tool_call` can be asked; \
         `llm.allow: [web_search]` allows it for all tenants"
    );
    assert_eq!(
        detail(&item(typed("computer_call"))),
        "`computer` is refused: screens have no text to judge; `llm.allow: [computer]` allows it for all tenants"
    );
    assert_eq!(
        detail(&item(json!({ "id": "rs_1" }))),
        "`item_reference` is refused: it names an item that the provider keeps, which may be another tenant's, so the \
         client must send items whole, as most do with `store: false`; send the whole conversation instead"
    );
    for (member, remedy) in [
        ("previous_response_id", "send the whole conversation instead"),
        ("conversation", "send the whole conversation instead"),
        ("background", "leave it out"),
        ("models", "leave it out"),
    ] {
        let said = detail(&with(member, json!(["x"])));
        assert!(said.ends_with(&format!("; {remedy}")), "{said}");
    }
    let both = with("tools", json!([typed("web_search_preview"), typed("mcp")]));
    let error = check_request(&both, ALL, &["web_search".to_owned()]).expect_err("not all is allowed");
    assert_eq!(error.violations[0].pointer, "/tools/1/type");
    let later = with("input", json!([{ "role": "user", "content": "hi" }, typed("reasoning"), typed("new")]));
    assert_eq!(refused(&later, ALL).as_deref(), Some("/input/2"));
}
