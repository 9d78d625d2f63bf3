use serde_json::{Value, json};

use super::*;
use crate::core::error::Code;

const ALL: GuardedPoints = GuardedPoints { request: true, calls: true, results: true, answer: true };

fn with(member: &str, value: Value) -> ChatRequest {
    let mut body = json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] });
    body[member] = value;
    ChatRequest::parse(body.to_string().into()).expect("a valid request")
}

fn message(message: Value) -> ChatRequest {
    with("messages", json!([message]))
}

fn user(part: Value) -> ChatRequest {
    message(json!({ "role": "user", "content": [part] }))
}

fn refused(request: &ChatRequest, guarded: GuardedPoints) -> Option<String> {
    let error = check_request(request, guarded, &[]).err()?;
    assert_eq!(error.code, Code::Unsupported);
    Some(error.violations.first().expect("a violation").pointer.clone())
}

#[test]
fn what_passes_plugins_by_is_refused_where_one_would_have_asked() {
    let calls = GuardedPoints { calls: true, ..GuardedPoints::default() };
    let results = GuardedPoints { results: true, ..GuardedPoints::default() };
    let answer = GuardedPoints { answer: true, ..GuardedPoints::default() };
    let asks = GuardedPoints { request: true, ..GuardedPoints::default() };
    let long = "x".repeat(65);
    let image = json!({ "url": "https://a.test/", "detail": long });
    let cases = [
        (with("web_search_options", json!({})), calls, "/web_search_options"),
        (with("tools", json!([{ "type": "function" }, { "type": "mcp" }])), results, "/tools/1/type"),
        (with("tools", json!([{}])), calls, "/tools/0"),
        (with("modalities", json!(["text", "audio"])), answer, "/modalities"),
        (with("audio", json!({ "voice": "a" })), answer, "/audio"),
        (with("n", json!(9)), answer, "/n"),
        (with("n", json!(9)), calls, "/n"),
        (with("plugins", json!({})), calls, "/plugins"),
        (with("enable_search", json!(true)), calls, "/enable_search"),
        (with("search_parameters", json!({ "mode": "on" })), results, "/search_parameters"),
        (with("search_parameters", json!({ "mode": long })), asks, "/search_parameters"),
        (with("new_member", json!({ "a": [long] })), asks, "/new_member"),
        (with("new_member", json!([{ long.as_str(): 1 }])), asks, "/new_member"),
        (with("new_member", json!(vec![1; 513])), asks, "/new_member"),
        (with("new_member", json!(long)), asks, "/new_member"),
        (user(json!({ "type": "video_url" })), asks, "/messages/0/content/0"),
        (
            user(json!({ "type": "input_audio", "input_audio": { "data": "" } })),
            asks,
            "/messages/0/content/0",
        ),
        (user(json!({ "type": "image_url", "image_url": { "url": "a b" } })), asks, "/messages/0/content/0"),
        (
            user(json!({ "type": "image_url", "image_url": image })),
            asks,
            "/messages/0/content/0/image_url/detail",
        ),
        (
            user(json!({ "type": "text", "text": "", "image_url": {} })),
            asks,
            "/messages/0/content/0/image_url",
        ),
        (message(json!({ "role": "user", "content": "", "name": long })), asks, "/messages/0/name"),
        (
            message(json!({ "role": "system", "content": [{ "type": "file" }] })),
            asks,
            "/messages/0/content/0",
        ),
        (with("stream_options", json!({ "include_usage": "text" })), asks, "/stream_options"),
    ];
    for (request, guarded, pointer) in cases {
        assert_eq!(refused(&request, guarded).as_deref(), Some(pointer));
        assert_eq!(
            refused(&request, GuardedPoints::default()),
            None,
            "a tenant without plugins gets a plain proxy: {pointer}"
        );
    }
}

#[test]
fn long_names_and_long_numbers_are_refused_where_plugins_see_no_text_of_them() {
    let asks = GuardedPoints { request: true, ..GuardedPoints::default() };
    let (name, number) = ("n".repeat(65), "1".repeat(65));
    let cases = [
        (with(&name, json!(1)), format!("/{name}")),
        (with(&name, json!({})), format!("/{name}")),
        (message(json!({ "role": "user", "content": "", name.as_str(): 1 })), format!("/messages/0/{name}")),
        (
            user(json!({ "type": "text", "text": "", name.as_str(): null })),
            format!("/messages/0/content/0/{name}"),
        ),
    ];
    for (request, pointer) in cases {
        assert_eq!(refused(&request, asks).as_deref(), Some(pointer.as_str()));
        assert_eq!(refused(&request, GuardedPoints::default()), None);
    }
    let body = format!(
        r#"{{"model":"m","seed":0.{number},"messages":[{{"role":"user","content":"hi","n":0.{number}}}]}}"#
    );
    let request = ChatRequest::parse(body.clone().into()).expect("a valid request");
    assert_eq!(refused(&request, asks).as_deref(), Some("/seed"));
    let request = ChatRequest::parse(body.replacen(&number, "1", 1).into()).expect("a valid request");
    assert_eq!(refused(&request, asks).as_deref(), Some("/messages/0/n"));
}

#[test]
fn short_strings_are_refused_where_plugins_see_no_member_of_a_message() {
    let asks = GuardedPoints { request: true, ..GuardedPoints::default() };
    let text = |more: &str| json!({ "type": "text", "text": "", more: "short" });
    let image =
        |more: &str| json!({ "type": "image_url", "image_url": { "url": "https://a.test/", more: "a b" } });
    let file =
        |more: &str| json!({ "type": "file", "file": { "file_data": "aGk=", more: "https://a.test/" } });
    let cases = [
        (message(json!({ "role": "system", "content": "", "note": "short" })), "/messages/0/note"),
        (message(json!({ "role": "system", "content": [text("note")] })), "/messages/0/content/0/note"),
        (message(json!({ "role": "user", "content": "", "note": "short" })), "/messages/0/note"),
        (message(json!({ "role": "user", "content": "", "name": "two words" })), "/messages/0/name"),
        (message(json!({ "role": "user", "content": "", "name": "x".repeat(65) })), "/messages/0/name"),
        (message(json!({ "role": "user", "content": "", "tool_call_id": "1" })), "/messages/0/tool_call_id"),
        (user(text("note")), "/messages/0/content/0/note"),
        (user(image("detail")), "/messages/0/content/0/image_url/detail"),
        (user(image("filename")), "/messages/0/content/0/image_url/filename"),
        (user(file("file_url")), "/messages/0/content/0/file/file_data"),
        (user(file("data")), "/messages/0/content/0/file/data"),
    ];
    for (request, pointer) in cases {
        assert_eq!(refused(&request, asks).as_deref(), Some(pointer));
        assert_eq!(refused(&request, GuardedPoints::default()), None, "{pointer}");
    }
    let listed = with(
        "messages",
        json!([
            { "role": "user", "content": "", "note": "short", "name": "two words" },
            { "role": "system", "content": "", "note": "short", "name": "two words" },
            { "role": "user", "content": "", "name": "Ann-1_b", "number": 1, "on": true },
        ]),
    );
    assert_eq!(refused(&listed, ALL), None, "plugins have the first two as they are");
}

#[test]
fn media_that_plugins_would_not_see_are_refused() {
    let asks = GuardedPoints { request: true, ..GuardedPoints::default() };
    for part in [
        json!({ "type": "file", "file": "text" }),
        json!({ "type": "file", "file": { "file": "text" } }),
        json!({ "type": "file", "file": { "filename": "text" } }),
        json!({ "type": "file" }),
        json!({ "type": "image_url", "image_url": { "url": ["text"] } }),
        json!({ "type": "image_url", "image_url": ["https://a.test/"] }),
    ] {
        let request = user(part);
        assert_eq!(refused(&request, asks).as_deref(), Some("/messages/0/content/0"));
        assert_eq!(refused(&request, GuardedPoints::default()), None);
    }
    let audio = user(json!({ "type": "input_audio", "input_audio": { "format": "wav" } }));
    check_request(&audio, asks, &["audio".to_owned()]).expect_err("it has no data");
    let stored = user(json!({ "type": "file", "file": { "file_id": "f" } }));
    check_request(&stored, asks, &["file_id".to_owned()]).expect("it is allowed");
    for part in [
        json!({ "type": "file", "file": { "file_id": "f", "file_data": "no base64" } }),
        json!({ "type": "file", "file": { "file_id": "f", "file_url": "file:///a" } }),
        json!({ "type": "image_url", "file_id": "f", "image_url": { "url": "file:///a" } }),
        json!({ "type": "image_url", "file_id": "f", "image_url": "file:///a" }),
        json!({ "type": "file", "file_id": "f", "file": { "file_data": "no base64" } }),
    ] {
        check_request(&user(part), asks, &["file_id".to_owned()]).expect_err("it has a source beside its id");
    }
}

#[test]
fn unknown_members_of_results_are_refused_where_requests_or_results_are_judged() {
    let results = GuardedPoints { results: true, ..GuardedPoints::default() };
    let asks = GuardedPoints { request: true, ..GuardedPoints::default() };
    for (request, pointer) in [
        (message(json!({ "role": "tool", "content": "", "note": "short" })), "/messages/0/note"),
        (message(json!({ "role": "tool", "content": "", "output": {} })), "/messages/0/output"),
        (message(json!({ "role": "tool", "content": "", "name": "two words" })), "/messages/0/name"),
        (
            message(json!({ "role": "function", "name": "f", "content": "", "tool_call_id": "1" })),
            "/messages/0/tool_call_id",
        ),
    ] {
        assert_eq!(refused(&request, results).as_deref(), Some(pointer));
        assert_eq!(refused(&request, asks).as_deref(), Some(pointer));
        assert_eq!(refused(&request, GuardedPoints { answer: true, ..GuardedPoints::default() }), None);
    }
    let named = message(json!({ "role": "tool", "content": "", "tool_call_id": "1", "name": "weather.get" }));
    assert_eq!(refused(&named, ALL), None);
}

#[test]
fn a_message_without_content_is_refused_where_plugins_judge_it() {
    let null = |role: &str| message(json!({ "role": role, "content": null }));
    let requests = GuardedPoints { request: true, ..GuardedPoints::default() };
    let results = GuardedPoints { results: true, ..GuardedPoints::default() };
    let others = GuardedPoints { calls: true, answer: true, ..GuardedPoints::default() };
    for role in ["user", "tool", "function"] {
        assert_eq!(refused(&null(role), requests).as_deref(), Some("/messages/0/content"), "{role}");
        let of_results = (role != "user").then_some("/messages/0/content");
        assert_eq!(refused(&null(role), results).as_deref(), of_results, "{role}");
        assert_eq!(refused(&null(role), others), None, "{role}");
    }
    assert_eq!(refused(&null("assistant"), ALL), None);
    let error = check_request(&null("user"), ALL, &["content".to_owned()]).expect_err("nothing allows it");
    assert_eq!(error.detail, NO_CONTENT);
}

#[test]
fn state_of_a_provider_is_refused_for_every_tenant() {
    let cases = [
        (with("previous_response_id", json!("r")), "/previous_response_id"),
        (with("conversation", json!({ "id": "c" })), "/conversation"),
        (user(json!({ "type": "file", "file": { "file_id": "f" } })), "/messages/0/content/0"),
        (message(json!({ "role": "assistant", "audio": { "id": "a" } })), "/messages/0/audio"),
    ];
    for (request, pointer) in cases {
        assert_eq!(refused(&request, GuardedPoints::default()).as_deref(), Some(pointer));
    }
}

#[test]
fn state_and_other_models_are_refused_at_any_depth_of_unknown_members() {
    let cases = [
        (with("cached_content", json!("c")), "/cached_content", "cached_content"),
        (with("cachedContent", json!("c")), "/cachedContent", "cachedContent"),
        (with("CachedContent", json!("c")), "/CachedContent", "cachedContent"),
        (with("extra_body", json!({ "model": "other" })), "/extra_body", "extra_body"),
        (
            with("google", json!({ "a": [{ "cached_content": "c" }] })),
            "/google/a/0/cached_content",
            "cached_content",
        ),
        (with("new", json!({ "fallbacks": ["m"] })), "/new/fallbacks", "fallbacks"),
        (
            with("new", json!({ "Previous_Response_Id": "r" })),
            "/new/Previous_Response_Id",
            "previous_response_id",
        ),
    ];
    for (request, pointer, allowed) in cases {
        assert_eq!(refused(&request, GuardedPoints::default()).as_deref(), Some(pointer));
        check_request(&request, GuardedPoints::default(), &[allowed.to_owned()]).expect("it is allowed");
    }
    let hidden = with("extra_body", json!({ "google": { "thread": "t" } }));
    let error =
        check_request(&hidden, GuardedPoints::default(), &["extra_body".to_owned()]).expect_err("not all is");
    assert_eq!(error.violations[0].pointer, "/extra_body/google/thread");
    let seen = with("metadata", json!({ "thread": "t", "conversation": "c" }));
    assert_eq!(refused(&seen, ALL), None, "providers read it as a member of the request only");
}

#[test]
fn what_plugins_see_and_settings_pass() {
    let passes = [
        with("n", json!(8)),
        with("modalities", json!(["text"])),
        with("audio", json!(null)),
        with("stream_options", json!(null)),
        with("background", json!(false)),
        with("prediction", json!({ "type": "content", "content": "long".repeat(100) })),
        with("new_number", json!(1)),
        with("new_setting", json!("x".repeat(64))),
        with("new_settings", json!({ "on": true, "list": [null, "x".repeat(64)], "deep": { "more": 1.5 } })),
        with("new_settings", json!(vec![1; 511])),
        with("new_settings", json!({})),
        with("stream_options", json!({})),
        with("stream_options", json!({ "include_usage": true })),
        with("audio", json!({})),
        with("conversation", json!({})),
        with("tools", json!([{ "type": "function", "function": {} }, { "type": "custom", "custom": {} }])),
        user(json!({ "type": "image_url", "image_url": { "url": "https://a.test/", "detail": "low" } })),
        user(json!({ "type": "file", "file": { "file_data": "aGk=", "filename": "x".repeat(100) } })),
        user(json!({ "type": "text", "text": "hi", "cache_control": { "type": "ephemeral" } })),
        message(json!({ "role": "assistant", "reasoning_details": [{ "text": "thought" }] })),
        message(json!({ "role": "assistant", "content": [{ "type": "refusal", "refusal": "no" }] })),
        message(json!({ "role": "tool", "content": [{ "type": "image", "data": "x".repeat(100) }] })),
    ];
    for request in passes {
        assert_eq!(refused(&request, ALL), None);
    }
}

#[test]
fn the_sentence_names_what_opens_it_and_that_opens_it() {
    let request = with("tools", json!([{ "type": "web_search" }]));
    let error = check_request(&request, ALL, &[]).expect_err("a hosted tool");
    assert_eq!(
        error.detail,
        "`web_search` is refused: the provider runs it before `before_tool_call` can be asked; \
         `llm.allow: [web_search]` allows it for all tenants"
    );
    check_request(&request, ALL, &["web_search".to_owned()]).expect("it is allowed");
    let audio = message(json!({ "role": "assistant", "audio": { "id": "a" } }));
    check_request(&audio, ALL, &["audio".to_owned()])
        .expect_err("spoken answers are allowed, stored ones are not");
    let file = user(json!({ "type": "file", "file": { "file_id": "f" } }));
    check_request(&file, ALL, &["file_id".to_owned()]).expect("it is allowed");
}
