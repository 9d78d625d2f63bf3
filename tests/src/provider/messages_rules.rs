//! What Anthropic refuses of a request, as far as a gateway could cause it.

use std::collections::HashSet;

use serde_json::Value;

use super::{ProviderAct, ProviderRequest, messages};

/// Status, type and message of an error.
type Refusal = (u16, &'static str, String);

/// Members of a request. A `*` marks those that a count of tokens hasn't.
const MEMBERS: [&str; 22] = [
    "model",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "output_format",
    "cache_control",
    "context_management",
    "mcp_servers",
    "*max_tokens",
    "*metadata",
    "*stop_sequences",
    "*stream",
    "*temperature",
    "*top_p",
    "*top_k",
    "*service_tier",
    "*container",
    "*inference_geo",
    "*fallbacks",
];

/// The blocks of users, with their members.
const USER_BLOCKS: [(&str, &[&str]); 6] = [
    ("text", &["text", "citations"]),
    ("image", &["source"]),
    ("document", &["source", "title", "context", "citations"]),
    ("search_result", &["source", "title", "content", "citations"]),
    ("tool_result", &["tool_use_id", "content", "is_error"]),
    ("container_upload", &["file_id"]),
];

/// The blocks of models, with their members.
const MODEL_BLOCKS: [(&str, &[&str]); 4] = [
    ("text", &["text", "citations"]),
    ("thinking", &["thinking", "signature"]),
    ("redacted_thinking", &["data"]),
    ("tool_use", &["id", "name", "input", "caller"]),
];

/// More marks of the prompt cache are refused.
const MOST_CACHE_MARKS: usize = 4;

/// The error for a request that isn't valid, or has another credential.
pub(super) fn refusal(request: &ProviderRequest, credential: &str) -> Option<ProviderAct> {
    let refused = check_headers(request, credential).and_then(|()| check_body(request)).err();
    refused.map(|(status, kind, message)| messages::error(status, kind, &message))
}

fn invalid(message: impl Into<String>) -> Refusal {
    (400, "invalid_request_error", message.into())
}

fn check_headers(request: &ProviderRequest, credential: &str) -> Result<(), Refusal> {
    let headers = &request.headers;
    let keys: Vec<_> = headers.get_all("x-api-key").iter().collect();
    if !messages::is_path(&request.path) {
        return Err((404, "not_found_error", "Not found".to_owned()));
    }
    if keys != [credential] || headers.contains_key("authorization") {
        return Err((401, "authentication_error", "invalid x-api-key".to_owned()));
    }
    // What begins so is a token.
    if headers.values().any(|value| value.to_str().is_ok_and(|value| value.contains("eyJ"))) {
        return Err((401, "authentication_error", "a token of the gateway is in a header".to_owned()));
    }
    if headers.get("content-type").is_none_or(|value| value != "application/json") {
        return Err(invalid("content-type: JSON is required"));
    }
    match headers.contains_key("anthropic-version") {
        true => Ok(()),
        false => Err(invalid("anthropic-version: header is required")),
    }
}

fn check_body(request: &ProviderRequest) -> Result<(), Refusal> {
    let body: Value = serde_json::from_slice(&request.body).map_err(|error| invalid(error.to_string()))?;
    let members = body.as_object().ok_or_else(|| invalid("the body is no object"))?;
    let counts = messages::is_count(&request.path);
    let is_known = |name: &str| {
        MEMBERS.iter().any(|member| match member.strip_prefix('*') {
            Some(member) => member == name && !counts,
            None => *member == name,
        })
    };
    if let Some(name) = members.keys().find(|name| !is_known(name)) {
        return Err(invalid(format!("{name}: Extra inputs are not permitted")));
    }
    if !body["model"].is_string() {
        return Err(invalid("model: Field required"));
    }
    if !counts && body["max_tokens"].as_u64().is_none_or(|tokens| tokens == 0) {
        return Err(invalid("max_tokens: Field required"));
    }
    check_tools(&body)?;
    if cache_marks(&body) > MOST_CACHE_MARKS {
        return Err(invalid("A maximum of 4 blocks with cache_control may be provided"));
    }
    match body["messages"].as_array() {
        Some(messages) if !messages.is_empty() => check_messages(messages),
        _ => Err(invalid("messages: at least one message is required")),
    }
}

fn check_tools(body: &Value) -> Result<(), Refusal> {
    let tools = body["tools"].as_array();
    let mut names = HashSet::new();
    if !tools.into_iter().flatten().all(|tool| names.insert(tool["name"].as_str())) {
        return Err(invalid("tools: Tool names must be unique"));
    }
    match !body["tool_choice"].is_null() && tools.is_none_or(Vec::is_empty) {
        true => Err(invalid("tool_choice: may only be specified while providing tools")),
        false => Ok(()),
    }
}

fn cache_marks(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(cache_marks).sum(),
        // Arguments are no blocks.
        Value::Object(members) => {
            let inner = members.iter().filter(|(name, _)| *name != "input");
            let marked = members.get("cache_control").is_some_and(Value::is_object);
            usize::from(marked) + inner.map(|(_, member)| cache_marks(member)).sum::<usize>()
        }
        _ => 0,
    }
}

fn check_messages(messages: &[Value]) -> Result<(), Refusal> {
    // The calls of the message before.
    let mut open: HashSet<&str> = HashSet::new();
    for (at, message) in messages.iter().enumerate() {
        let place = format!("messages.{at}");
        if message
            .as_object()
            .is_none_or(|members| members.keys().any(|name| name != "role" && name != "content"))
        {
            return Err(invalid(format!("{place}: a message has a role and a content")));
        }
        let blocks: &[Value] = match &message["content"] {
            Value::String(text) if !text.is_empty() => &[],
            Value::Array(blocks) if !blocks.is_empty() => blocks,
            _ => return Err(invalid(format!("{place}: messages must have non-empty content"))),
        };
        match message["role"].as_str() {
            Some("user") => {
                check_blocks(blocks, &USER_BLOCKS, &place)?;
                check_results(blocks, &mut open, &place)?;
            }
            Some("assistant") => {
                check_blocks(blocks, &MODEL_BLOCKS, &place)?;
                let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
                open.extend(calls.filter_map(|call| call["id"].as_str()));
            }
            _ => return Err(invalid(format!("{place}.role: unexpected role"))),
        }
        let next_is_user = messages.get(at + 1).is_some_and(|next| next["role"] == "user");
        let is_last_chance = message["role"] == "user" || !next_is_user;
        if is_last_chance && !open.is_empty() {
            return Err(invalid(format!("{place}: `tool_use` ids without `tool_result` blocks: {open:?}")));
        }
    }
    Ok(())
}

/// Each result has its call, each call gets its result, and the results are first.
fn check_results(blocks: &[Value], open: &mut HashSet<&str>, place: &str) -> Result<(), Refusal> {
    let is_result = |block: &&Value| block["type"] == "tool_result";
    let results = blocks.iter().take_while(is_result).count();
    if blocks.iter().filter(is_result).count() != results {
        return Err(invalid(format!("{place}: `tool_result` blocks must come first")));
    }
    for block in &blocks[..results] {
        let id = block["tool_use_id"].as_str().unwrap_or_default();
        if !open.remove(id) {
            return Err(invalid(format!("{place}: unexpected `tool_use_id` in `tool_result`: {id}")));
        }
    }
    Ok(())
}

fn check_blocks(blocks: &[Value], kinds: &[(&str, &[&str])], place: &str) -> Result<(), Refusal> {
    for (at, block) in blocks.iter().enumerate() {
        let place = format!("{place}.content.{at}");
        let members = block.as_object().ok_or_else(|| invalid(format!("{place}: not an object")))?;
        let kind = kinds.iter().find(|(kind, _)| block["type"] == *kind);
        let (kind, known) =
            kind.ok_or_else(|| invalid(format!("{place}.type: unexpected {}", block["type"])))?;
        let is_known = |name: &str| ["type", "cache_control"].contains(&name) || known.contains(&name);
        if let Some(name) = members.keys().find(|name| !is_known(name)) {
            return Err(invalid(format!("{place}.{kind}.{name}: Extra inputs are not permitted")));
        }
        check_block(block, &place)?;
    }
    Ok(())
}

fn check_block(block: &Value, place: &str) -> Result<(), Refusal> {
    let text = |member: &str| block[member].as_str();
    let is_valid = match text("type") {
        Some("text") => text("text").is_some_and(|text| !text.is_empty()),
        Some("thinking") => text("signature")
            .zip(text("thinking"))
            .is_some_and(|(signature, thinking)| messages::is_signature(signature, thinking)),
        Some("redacted_thinking") => text("data").is_some_and(messages::is_encrypted),
        Some("tool_use") => {
            block["input"].is_object() && text("name").is_some() && text("id").is_some_and(is_id)
        }
        Some("tool_result") => {
            if let Some(blocks) = block["content"].as_array() {
                check_blocks(blocks, &USER_BLOCKS[..4], place)?;
            }
            let has_content = matches!(block["content"], Value::Null | Value::String(_) | Value::Array(_));
            has_content && matches!(block["is_error"], Value::Null | Value::Bool(_))
        }
        _ => true,
    };
    match is_valid {
        true => Ok(()),
        false => Err(invalid(format!("{place}: invalid `{}` block", text("type").unwrap_or_default()))),
    }
}

fn is_id(id: &str) -> bool {
    !id.is_empty() && id.chars().all(|one| one.is_ascii_alphanumeric() || "_-".contains(one))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderMap;
    use serde_json::json;

    use super::*;

    const KEY: &str = "sk-1";

    fn request(headers: &[(&'static str, &'static str)], body: &Value) -> ProviderRequest {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")))
            .collect();
        ProviderRequest { path: "/v1/messages".into(), headers, body: Bytes::from(body.to_string()) }
    }

    fn headers() -> Vec<(&'static str, &'static str)> {
        vec![("x-api-key", KEY), ("anthropic-version", "2023-06-01"), ("content-type", "application/json")]
    }

    fn is_refused(messages: &Value) -> bool {
        let body = json!({ "model": "m", "max_tokens": 1, "messages": messages });
        refusal(&request(&headers(), &body), KEY).is_some()
    }

    #[test]
    fn only_the_operators_credential_is_taken() {
        let body = json!({ "model": "m", "max_tokens": 1, "messages": [{ "role": "user", "content": "x" }] });
        assert!(refusal(&request(&headers(), &body), KEY).is_none());
        assert!(refusal(&request(&headers()[1..], &body), KEY).is_some());
        assert!(refusal(&request(&headers(), &body), "sk-2").is_some());
        for more in [("authorization", "Bearer sk-1"), ("x-other", "eyJhbGciOi")] {
            let headers: Vec<_> = headers().into_iter().chain([more]).collect();
            assert!(refusal(&request(&headers, &body), KEY).is_some(), "{more:?}");
        }
    }

    #[test]
    fn calls_and_results_belong_together() {
        let user = |blocks: Value| json!({ "role": "user", "content": blocks });
        let call =
            json!({ "role": "assistant", "content": [messages::tool_use("toolu_1", "f", &json!({}))] });
        let result = |id: &str| json!({ "type": "tool_result", "tool_use_id": id, "content": "x" });
        let ask = user(json!("x"));
        assert!(!is_refused(&json!([ask, call, user(json!([result("toolu_1")]))])));
        assert!(!is_refused(&json!([ask, call, user(json!([result("toolu_1"), messages::text("and")]))])));
        for messages in [
            json!([ask, call]),
            json!([ask, call, ask]),
            json!([ask, call, call, user(json!([result("toolu_1")]))]),
            json!([ask, call, user(json!([result("toolu_2")]))]),
            json!([ask, call, user(json!([result("toolu_1"), result("toolu_1")]))]),
            json!([ask, call, user(json!([messages::text("and"), result("toolu_1")]))]),
            json!([user(json!([result("toolu_1")]))]),
        ] {
            assert!(is_refused(&messages), "{messages}");
        }
    }

    #[test]
    fn thinking_comes_back_as_it_was_or_without_its_text() {
        let after = |block: &Value| is_refused(&json!([{ "role": "assistant", "content": [block] }]));
        let signed = messages::thinking("so \u{e9}");
        assert!(!after(&signed) && !after(&messages::redacted_thinking("so")));
        for (member, value, refused) in
            [("thinking", "", false), ("thinking", "so", true), ("signature", "c28=", true)]
        {
            let mut block = signed.clone();
            block[member] = json!(value);
            assert_eq!(after(&block), refused, "{block}");
        }
        assert!(after(&json!({ "type": "redacted_thinking", "data": "c28=" })));
    }

    #[test]
    fn blocks_are_complete() {
        for block in [
            messages::text(""),
            json!({ "type": "text" }),
            json!({ "type": "text", "text": "x", "id": "1" }),
            json!({ "type": "invented" }),
        ] {
            assert!(is_refused(&json!([{ "role": "user", "content": [block] }])), "{block}");
        }
        let marked = json!({ "type": "text", "text": "x", "cache_control": { "type": "ephemeral" } });
        assert!(!is_refused(&json!([{ "role": "user", "content": vec![marked.clone(); 4] }])));
        assert!(is_refused(&json!([{ "role": "user", "content": vec![marked; 5] }])));
    }
}
