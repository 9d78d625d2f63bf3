use serde_json::{Value, json};

use super::*;
use crate::core::error::Code;

const NONE: GuardedPoints = GuardedPoints { request: false, calls: false, results: false, answer: false };
const ALL: GuardedPoints = GuardedPoints { request: true, calls: true, results: true, answer: true };
const REQUESTS: GuardedPoints = GuardedPoints { request: true, ..NONE };
const CALLS: GuardedPoints = GuardedPoints { calls: true, ..NONE };
const RESULTS: GuardedPoints = GuardedPoints { results: true, ..NONE };
const ANSWERS: GuardedPoints = GuardedPoints { answer: true, ..NONE };

fn with(member: &str, value: Value) -> MessagesRequest {
    let mut body =
        json!({ "model": "m", "max_tokens": 1, "messages": [{ "role": "user", "content": "hi" }] });
    body[member] = value;
    MessagesRequest::parse(body.to_string().into()).expect("a valid request")
}

fn message(message: Value) -> MessagesRequest {
    with("messages", json!([message]))
}

fn block_of(role: &str, block: Value) -> MessagesRequest {
    message(json!({ "role": role, "content": [block] }))
}

fn user(block: Value) -> MessagesRequest {
    block_of("user", block)
}

fn tool(tool: Value) -> MessagesRequest {
    with("tools", json!([tool]))
}

/// A message whose text the model has answered, so that plugins have it in `messages`.
fn answered(message: Value) -> MessagesRequest {
    let last = json!({ "role": "user", "content": "and?" });
    with("messages", json!([message, { "role": "assistant", "content": "yes" }, last]))
}

fn source(form: &str, member: &str, value: &str) -> Value {
    json!({ "type": form, member: value })
}

fn refused(request: &MessagesRequest, guarded: GuardedPoints) -> Option<String> {
    let error = check_request(request, guarded, &[]).err()?;
    assert_eq!(error.code, Code::Unsupported);
    Some(error.violations.first().expect("a violation").pointer.clone())
}

/// Something that is refused: where, and by which name it is allowed.
struct Case {
    request: MessagesRequest,
    pointer: &'static str,
    name: &'static str,
}

fn case(request: MessagesRequest, pointer: &'static str, name: &'static str) -> Case {
    Case { request, pointer, name }
}

/// Checks that each case is refused where one of `points` alone is guarded, nowhere else, and not when it is allowed.
fn assert_refused_at(points: &[GuardedPoints], cases: Vec<Case>) {
    for Case { request, pointer, name } in cases {
        for guarded in [NONE, REQUESTS, CALLS, RESULTS, ANSWERS] {
            let expected = points.contains(&guarded).then_some(pointer);
            assert_eq!(refused(&request, guarded).as_deref(), expected, "{pointer} at {guarded:?}");
        }
        assert_eq!(refused(&request, ALL).as_deref(), Some(pointer));
        check_request(&request, ALL, &[name.to_owned()]).expect(pointer);
        check_request(&request, ALL, &["other".to_owned()]).expect_err(pointer);
    }
}

#[test]
fn state_of_a_provider_and_other_models_are_refused_for_every_tenant() {
    let stored = || json!({ "type": "image", "source": source("file", "file_id", "f") });
    let image = || json!([stored()]);
    let result = json!({ "type": "tool_result", "tool_use_id": "t", "content": image() });
    let document = |content: Value| {
        json!({ "type": "tool_result", "tool_use_id": "t", "content": [
            { "type": "document", "source": { "type": "content", "content": content } }
        ] })
    };
    let upload = || json!({ "type": "container_upload", "file_id": "f" });
    assert_refused_at(
        &[NONE, REQUESTS, CALLS, RESULTS, ANSWERS],
        vec![
            case(with("container", json!("c")), "/container", "container"),
            case(with("container", json!({ "id": "c" })), "/container", "container"),
            case(with("thread", json!({ "id": "t" })), "/thread", "thread"),
            case(with("diagnostics", json!({ "previous_message_id": "m" })), "/diagnostics", "diagnostics"),
            case(with("diagnostics", json!({ "Previous_Message_ID": "m" })), "/diagnostics", "diagnostics"),
            case(with("diagnostics", json!("m")), "/diagnostics", "diagnostics"),
            case(with("fallbacks", json!([{ "model": "other" }])), "/fallbacks", "fallbacks"),
            case(with("models", json!(["other"])), "/models", "models"),
            case(with("previous_response_id", json!("r")), "/previous_response_id", "previous_response_id"),
            case(with("conversation", json!("c")), "/conversation", "conversation"),
            case(with("cached_content", json!("c")), "/cached_content", "cached_content"),
            case(with("extra_body", json!({ "model": "other" })), "/extra_body", "extra_body"),
            case(with("new", json!({ "a": [{ "container": "c" }] })), "/new/a/0/container", "container"),
            case(with("new", json!({ "Fallbacks": ["m"] })), "/new/Fallbacks", "fallbacks"),
            case(user(stored()), "/messages/0/content/0/source/file_id", "file_id"),
            case(user(result), "/messages/0/content/0/content/0/source/file_id", "file_id"),
            case(
                user(document(image())),
                "/messages/0/content/0/content/0/source/content/0/source/file_id",
                "file_id",
            ),
            case(block_of("assistant", stored()), "/messages/0/content/0/source/file_id", "file_id"),
            case(user(upload()), "/messages/0/content/0", "container_upload"),
            case(block_of("assistant", upload()), "/messages/0/content/0", "container_upload"),
            case(
                with("system", json!([{ "type": "text", "text": "", "file_id": "f" }])),
                "/system/0/file_id",
                "file_id",
            ),
        ],
    );
}

#[test]
fn only_the_model_may_name_files_in_results_of_the_provider_and_in_arguments() {
    for type_name in ["tool_use", "mcp_tool_result"] {
        let block = || json!({ "type": type_name, "input": { "file_id": "f" } });
        let pointer = Some("/messages/0/content/0/input/file_id");
        assert_eq!(refused(&user(block()), NONE).as_deref(), pointer, "{type_name}");
        assert_eq!(refused(&block_of("assistant", block()), ALL), None, "{type_name}");
    }
}

#[test]
fn tools_that_the_provider_runs_are_refused_where_tools_are_judged() {
    let hosted = |name: &str| tool(json!({ "type": name, "name": "x", "input_schema": {} }));
    assert_refused_at(
        &[CALLS, RESULTS],
        vec![
            case(hosted("web_search_20250305"), "/tools/0/type", "web_search"),
            case(hosted("web_search_20250305"), "/tools/0/type", "web_search_20250305"),
            case(hosted("web_fetch_20250910"), "/tools/0/type", "web_fetch"),
            case(hosted("code_execution_20250825"), "/tools/0/type", "code_execution"),
            case(hosted("tool_search_tool_regex_20251119"), "/tools/0/type", "tool_search_tool_regex"),
            case(hosted("tool_search_tool_bm25"), "/tools/0/type", "tool_search_tool_bm25"),
            case(hosted("advisor_20260301"), "/tools/0/type", "advisor"),
            case(hosted("mcp_toolset"), "/tools/0/type", "mcp_toolset"),
            case(hosted("bash_code_execution_20250825"), "/tools/0/type", "bash_code_execution"),
            case(hosted("memory"), "/tools/0/type", "memory"),
            case(hosted("bash_2025"), "/tools/0/type", "bash_2025"),
            case(hosted("computer_2025012x"), "/tools/0/type", "computer_2025012x"),
            case(hosted("function"), "/tools/0/type", "function"),
            case(tool(json!({ "name": "f" })), "/tools/0", "tools"),
            case(tool(json!({ "input_schema": {} })), "/tools/0", "tools"),
            case(tool(json!({ "web_search": {} })), "/tools/0", "tools"),
            case(tool(json!("web_search_20250305")), "/tools/0", "tools"),
            case(with("mcp_servers", json!([{ "type": "url" }])), "/mcp_servers", "mcp_servers"),
            case(with("mcp_servers", json!({})), "/mcp_servers", "mcp_servers"),
            case(with("web_search_options", json!({})), "/web_search_options", "web_search_options"),
            case(with("plugins", json!([{ "id": "web" }])), "/plugins", "plugins"),
        ],
    );
    let number = tool(json!({ "type": 1, "name": "f", "input_schema": {} }));
    assert_eq!(refused(&number, CALLS).as_deref(), Some("/tools/0/type"));
}

#[test]
fn what_carries_unseen_text_is_refused_where_requests_are_judged() {
    let long = "x".repeat(65);
    let texts = json!({ "edits": [{ "type": "compact_20260112", "instructions": long }] });
    let thinking = json!({ "type": "enabled", "budget_tokens": long });
    assert_refused_at(
        &[REQUESTS],
        vec![
            case(with("context_management", texts), "/context_management", "context_management"),
            case(with("context_management", json!(long)), "/context_management", "context_management"),
            case(with("max_tokens", json!(long)), "/max_tokens", "max_tokens"),
            case(with("temperature", json!([long])), "/temperature", "temperature"),
            case(with("top_p", json!(long)), "/top_p", "top_p"),
            case(with("top_k", json!(long)), "/top_k", "top_k"),
            case(with("thinking", thinking), "/thinking", "thinking"),
            case(with("service_tier", json!(long)), "/service_tier", "service_tier"),
            case(with("inference_geo", json!(long)), "/inference_geo", "inference_geo"),
            case(with("prefill", json!(long)), "/prefill", "prefill"),
            case(with("cache_control", json!({ "type": long })), "/cache_control", "cache_control"),
            case(with("new_member", json!({ "a": [long] })), "/new_member", "new_member"),
            case(with("new_member", json!(vec![1; 513])), "/new_member", "new_member"),
            case(with("prompt", json!({ "id": "p" })), "/prompt", "prompt"),
            case(
                block_of("system", json!({ "type": "image", "source": source("base64", "data", "aGk=") })),
                "/messages/0/content/0",
                "image",
            ),
            case(
                with("system", json!([{ "type": "text", "text": "" }, { "type": "document" }])),
                "/system/1",
                "document",
            ),
            case(
                user(json!({ "type": "search_result", "source": "s", "title": "t", "content": [] })),
                "/messages/0/content/0",
                "search_result",
            ),
            case(
                user(json!({ "type": "mid_conv_system", "content": "" })),
                "/messages/0/content/0",
                "mid_conv_system",
            ),
            case(
                answered(json!({ "role": "user", "content": [{ "type": "search_result" }] })),
                "/messages/0/content/0",
                "search_result",
            ),
        ],
    );
    assert_refused_at(&[ANSWERS], vec![case(with("background", json!(true)), "/background", "background")]);
}

#[test]
fn media_that_plugins_would_not_see_are_refused() {
    let image = |source: Value| json!({ "type": "image", "source": source });
    let document = |source: Value| json!({ "type": "document", "source": source });
    let content = json!({ "type": "content", "content": [{ "type": "text", "text": "x".repeat(65) }] });
    for (block, name) in [
        (image(source("base64", "data", "no base64")), "image"),
        (image(source("base64", "url", "https://a.test/")), "image"),
        (image(source("url", "url", "file:///a")), "image"),
        (image(source("url", "url", "data:image/png;base64,aGk=")), "image"),
        (image(source("url", "url", "aGk=")), "image"),
        (image(source("new", "data", "aGk=")), "image"),
        (image(source("file", "url", "https://a.test/")), "image"),
        (image(json!({ "type": "file" })), "image"),
        (image(json!({ "data": "aGk=" })), "image"),
        (image(json!("aGk=")), "image"),
        (json!({ "type": "image" }), "image"),
        (document(content.clone()), "document"),
        (document(json!({ "type": "text", "data": ["text"] })), "document"),
    ] {
        let pointer = "/messages/0/content/0";
        let listed = answered(json!({ "role": "user", "content": [block] }));
        assert_eq!(refused(&user(block.clone()), REQUESTS).as_deref(), Some(pointer), "{block}");
        assert_eq!(refused(&listed, REQUESTS).as_deref(), Some(pointer), "{block}");
        assert_eq!(refused(&user(block.clone()), GuardedPoints { request: false, ..ALL }), None, "{block}");
        let error = check_request(&user(block), REQUESTS, &[]).expect_err(pointer);
        assert!(
            error.detail.ends_with(&format!("`llm.allow: [{name}]` allows it for all tenants")),
            "{}",
            error.detail
        );
    }
    let allowed = |name: &str| [name.to_owned()];
    check_request(&user(document(content)), ALL, &allowed("document")).expect("it is allowed");
    let stored = image(source("file", "file_id", "f"));
    check_request(&user(stored), ALL, &allowed("file_id")).expect("it is allowed");
    let titled = json!({ "type": "document", "source": source("file", "file_id", "f"), "title": "short" });
    let error = check_request(&user(titled), ALL, &allowed("file_id")).expect_err("nobody sees its title");
    assert_eq!(error.violations[0].pointer, "/messages/0/content/0/title");
    for more in ["data", "url", "content"] {
        let stored = image(json!({ "type": "file", "file_id": "f", more: "x" }));
        let listed = answered(json!({ "role": "user", "content": [stored] }));
        check_request(&listed, ALL, &allowed("file_id")).expect_err("it has a source beside its id");
    }
}

#[test]
fn short_strings_are_refused_where_plugins_see_no_member_of_a_message() {
    let text = json!({ "type": "text", "text": "", "note": "short" });
    let citing = json!({ "type": "text", "text": "", "citations": [{ "cited_text": "short" }] });
    let quoting = json!({ "type": "text", "text": "", "citations": { "enabled": "short" } });
    let medium = |member: &str, value: Value| {
        let mut block = json!({ "type": "document", "source": source("text", "data", "hi") });
        block[member] = value;
        block
    };
    let titled =
        json!({ "type": "image", "source": source("url", "url", "https://a.test/"), "title": "short" });
    let with_both = |form: &str| {
        let both = json!({ "type": form, "data": "aGk=", "url": "https://a.test/" });
        user(json!({ "type": "document", "source": both }))
    };
    assert_refused_at(
        &[REQUESTS],
        vec![
            case(
                message(json!({ "role": "user", "content": "", "note": "short" })),
                "/messages/0/note",
                "note",
            ),
            case(
                message(json!({ "role": "system", "content": "", "name": "ann" })),
                "/messages/0/name",
                "name",
            ),
            case(user(text.clone()), "/messages/0/content/0/note", "note"),
            case(block_of("system", text.clone()), "/messages/0/content/0/note", "note"),
            case(with("system", json!([text])), "/system/0/note", "note"),
            case(with("system", json!([citing])), "/system/0/citations", "citations"),
            case(user(citing), "/messages/0/content/0/citations", "citations"),
            case(user(quoting), "/messages/0/content/0/citations", "citations"),
            case(user(medium("context", json!("short"))), "/messages/0/content/0/context", "context"),
            case(user(medium("title", json!(["a"]))), "/messages/0/content/0/title", "title"),
            case(user(titled), "/messages/0/content/0/title", "title"),
            case(user(medium("citations", json!("a"))), "/messages/0/content/0/citations", "citations"),
        ],
    );
    for (form, pointer) in [
        ("base64", "/messages/0/content/0/source/url"),
        ("url", "/messages/0/content/0/source/data"),
        ("text", "/messages/0/content/0/source/url"),
    ] {
        assert_eq!(refused(&with_both(form), REQUESTS).as_deref(), Some(pointer), "{form}");
    }
    let typed = json!({ "type": "text", "data": "hi", "media_type": "short" });
    assert_eq!(
        refused(&user(medium("source", typed)), REQUESTS).as_deref(),
        Some("/messages/0/content/0/source/media_type"),
    );
}

#[test]
fn messages_that_plugins_have_as_they_are_may_have_short_members() {
    let long = "x".repeat(65);
    let with_note = |note: &str| json!({ "role": "user", "content": "", "note": note });
    assert_eq!(refused(&answered(with_note("short")), ALL), None);
    assert_eq!(refused(&answered(with_note(&long)), REQUESTS).as_deref(), Some("/messages/0/note"));
    let with_context = |context: &str| {
        let document =
            json!({ "type": "document", "source": source("text", "data", "hi"), "context": context });
        answered(json!({ "role": "user", "content": [document] }))
    };
    assert_eq!(refused(&with_context("short"), ALL), None);
    assert_eq!(refused(&with_context(&long), REQUESTS).as_deref(), Some("/messages/0/content/0/context"));
    let later = |note: &str| {
        let system = json!({ "role": "system", "content": "", "note": note });
        with("messages", json!([{ "role": "user", "content": "hi" }, system]))
    };
    assert_eq!(refused(&later("short"), ALL), None);
    assert_eq!(refused(&later(&long), REQUESTS).as_deref(), Some("/messages/1/note"));
}

#[test]
fn what_plugins_see_nothing_of_in_results_is_refused_where_requests_or_results_are_judged() {
    let result = |member: &str, value: Value| {
        let mut block = json!({ "type": "tool_result", "tool_use_id": "t", "content": "" });
        block[member] = value;
        block
    };
    assert_refused_at(
        &[REQUESTS, RESULTS],
        vec![
            case(user(result("note", json!("short"))), "/messages/0/content/0/note", "note"),
            case(user(result("output", json!({}))), "/messages/0/content/0/output", "output"),
            case(
                user(result("tool_use_id", json!(["t"]))),
                "/messages/0/content/0/tool_use_id",
                "tool_use_id",
            ),
            case(block_of("assistant", result("a", json!(1))), "/messages/0/content/0", "tool_result"),
            case(block_of("system", result("a", json!(1))), "/messages/0/content/0", "tool_result"),
            case(with("system", json!([result("a", json!(1))])), "/system/0", "tool_result"),
            case(user(json!({ "type": "mcp_tool_result" })), "/messages/0/content/0", "mcp_tool_result"),
        ],
    );
}

#[test]
fn what_plugins_see_and_settings_pass() {
    let long = "x".repeat(100);
    let mark = json!({ "type": "ephemeral", "ttl": "1h" });
    let edits = json!({ "edits": [{ "type": "clear_tool_uses_20250919", "keep": { "type": "tool_uses", "value": 3 },
        "exclude_tools": ["read", "write"] }, { "type": "clear_thinking_20251015", "keep": "all" }] });
    let document = |source: Value| {
        user(json!({ "type": "document", "source": source, "title": long, "citations": { "enabled": true },
            "cache_control": mark }))
    };
    let format = json!({ "effort": "low", "format": { "type": "json_schema", "schema": { "title": long } } });
    let passes = [
        with("system", json!(long)),
        with("system", json!([{ "type": "text", "text": long, "cache_control": mark, "citations": null }])),
        with("stream", json!(true)),
        with("tools", json!(null)),
        with("tool_choice", json!({ "type": "tool", "name": long })),
        with("metadata", json!({ "user_id": long })),
        with("stop_sequences", json!([long])),
        with("temperature", json!(0.5)),
        with("thinking", json!({ "type": "enabled", "budget_tokens": 1024, "display": "omitted" })),
        with("service_tier", json!("auto")),
        with("output_config", format),
        with("output_format", json!({ "type": "json_schema", "schema": { "title": long } })),
        with("inference_geo", json!("us")),
        with("cache_control", mark.clone()),
        with("context_management", edits),
        with("container", json!(null)),
        with("diagnostics", json!({ "previous_message_id": null })),
        with("diagnostics", json!({ "level": "short" })),
        with("fallbacks", json!([])),
        with("mcp_servers", json!([])),
        with("new_settings", json!({ "on": true, "list": [null, "x".repeat(64)] })),
        with("metadata", json!({ "thread": "t" })),
        user(json!({ "type": "text", "text": long, "cache_control": mark, "citations": [] })),
        user(
            json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "aGk=" } }),
        ),
        user(json!({ "type": "image", "source": source("url", "url", "HTTPS://a.test/") })),
        document(json!({ "type": "base64", "media_type": "application/pdf", "data": "aGk=" })),
        document(json!({ "type": "text", "media_type": "text/plain", "data": long })),
        document(source("url", "url", "https://a.test/")),
        message(json!({ "role": "user", "content": [] })),
    ];
    for (index, request) in passes.iter().enumerate() {
        assert_eq!(refused(request, ALL), None, "{index}");
    }
}

#[test]
fn results_and_what_the_model_said_pass_as_they_are() {
    let long = "x".repeat(100);
    let content = json!([
        { "type": "text", "text": long, "note": long },
        { "type": "image", "source": source("base64", "data", "no base64") },
        { "type": "search_result", "source": long, "title": long, "content": [] },
        { "type": "tool_reference", "tool_name": long },
    ]);
    let mark = json!({ "type": "ephemeral" });
    for result in [
        json!({ "type": "tool_result", "tool_use_id": long, "content": content, "is_error": true }),
        json!({ "type": "tool_result", "tool_use_id": "t", "content": null, "cache_control": mark }),
        json!({ "type": "tool_result", "tool_use_id": "t" }),
    ] {
        assert_eq!(refused(&user(result), ALL), None);
    }
    for block in [
        json!({ "type": "thinking", "thinking": long, "signature": long }),
        json!({ "type": "redacted_thinking", "data": long }),
        json!({ "type": "tool_use", "id": "t", "name": "f", "input": { "file_id": "f", "thread": long } }),
        json!({ "type": "server_tool_use", "id": "t", "name": "f", "input": { "file_id": "f" } }),
        json!({ "type": "mcp_tool_use", "id": "t", "name": "f", "input": { "query": long } }),
        json!({ "type": "web_search_tool_result", "tool_use_id": "t", "content": [{ "title": long }] }),
        json!({ "type": "code_execution_tool_result", "content": { "content": [{ "file_id": "f" }] } }),
        json!({ "type": "text", "text": "", "citations": [{ "cited_text": long }] }),
        json!({ "type": "compaction", "content": long }),
    ] {
        assert_eq!(refused(&block_of("assistant", block.clone()), ALL), None, "{block}");
    }
    let noted = message(json!({ "role": "assistant", "content": "", "note": long }));
    assert_eq!(refused(&noted, ALL), None);
}

#[test]
fn tools_of_the_agent_pass() {
    for type_name in
        ["bash_20250124", "text_editor_20250728", "memory_20250818", "computer_20251124", "custom"]
    {
        let request = tool(json!({ "type": type_name, "name": "x", "display_width_px": 1024 }));
        assert_eq!(refused(&request, ALL), None, "{type_name}");
    }
    let schema = json!({ "type": "object", "properties": { "Name": { "type": "string" } } });
    let described = json!({ "name": "f", "description": "x".repeat(100), "input_schema": schema });
    assert_eq!(refused(&tool(described.clone()), ALL), None);
    let mut typed = described;
    typed["type"] = json!(null);
    assert_eq!(refused(&tool(typed), ALL), None);
}

#[test]
fn the_sentence_names_what_opens_it() {
    let request = tool(json!({ "type": "web_search_20250305", "name": "web_search" }));
    let error = check_request(&request, ALL, &[]).expect_err("a hosted tool");
    assert_eq!(
        error.detail,
        "`web_search` is refused: the provider runs it before `before_tool_call` can be asked; \
         `llm.allow: [web_search]` allows it for all tenants"
    );
    let both = with(
        "tools",
        json!([{ "type": "web_search_20250305" }, { "type": "web_fetch_20250910", "name": "web_fetch" }]),
    );
    let error = check_request(&both, ALL, &["web_search".to_owned()]).expect_err("not all is allowed");
    assert_eq!(error.violations[0].pointer, "/tools/1/type");
}

#[test]
fn a_message_beside_its_results_is_judged_like_any_other() {
    let result = json!({ "type": "tool_result", "tool_use_id": "t", "content": "" });
    let beside = |block: Value| {
        let call = json!({ "type": "tool_use", "id": "t", "name": "f", "input": {} });
        with(
            "messages",
            json!([
                { "role": "user", "content": "hi" },
                { "role": "assistant", "content": [call] },
                { "role": "user", "content": [result, block] },
            ]),
        )
    };
    assert_eq!(refused(&beside(json!({ "type": "text", "text": "" })), ALL), None);
    let noted = beside(json!({ "type": "text", "text": "", "note": "short" }));
    assert_eq!(refused(&noted, REQUESTS).as_deref(), Some("/messages/2/content/1/note"));
    assert_eq!(refused(&noted, RESULTS), None);
}
