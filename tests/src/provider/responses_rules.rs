//! What OpenAI refuses of a request for a response or for embeddings, as far as a gateway could cause it.

use std::collections::HashSet;

use serde_json::Value;

use super::{ProviderAct, ProviderRequest, responses};

/// Status, code and message of an error.
type Refusal = (u16, &'static str, String);

/// Members of a request for a response.
const MEMBERS: [&str; 27] = [
    "background",
    "conversation",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
];

/// Members of a request for embeddings. Responses have the last one too.
const EMBEDDINGS: [&str; 5] = ["dimensions", "encoding_format", "input", "model", "user"];

/// The items, with their members beside `type`, `id` and `status`.
const ITEMS: [(&str, &[&str]); 14] = [
    ("message", &["role", "content", "phase"]),
    ("reasoning", &["summary", "content", "encrypted_content"]),
    ("function_call", &["call_id", "name", "arguments", "namespace", "caller"]),
    ("function_call_output", &["call_id", "output", "caller"]),
    ("custom_tool_call", &["call_id", "name", "input", "namespace", "caller"]),
    ("custom_tool_call_output", &["call_id", "output", "caller"]),
    ("local_shell_call", &["call_id", "action"]),
    ("local_shell_call_output", &["call_id", "output"]),
    ("shell_call", &["call_id", "action", "environment", "caller", "created_by"]),
    ("shell_call_output", &["call_id", "output", "max_output_length", "caller", "created_by"]),
    ("apply_patch_call", &["call_id", "operation", "caller", "created_by"]),
    ("apply_patch_call_output", &["call_id", "output", "caller", "created_by"]),
    ("tool_search_call", &["call_id", "execution", "arguments", "created_by"]),
    ("tool_search_output", &["call_id", "execution", "tools", "created_by"]),
];

/// The results, each with its call.
const RESULTS: [(&str, &str); 6] = [
    ("function_call_output", "function_call"),
    ("custom_tool_call_output", "custom_tool_call"),
    ("local_shell_call_output", "local_shell_call"),
    ("shell_call_output", "shell_call"),
    ("apply_patch_call_output", "apply_patch_call"),
    ("tool_search_output", "tool_search_call"),
];

/// A mark for the cache of prompts.
const MARK: &str = "prompt_cache_breakpoint";

/// The parts of what users say and tools return, with their members.
const INPUT_PARTS: [(&str, &[&str]); 3] = [
    ("input_text", &["text", MARK]),
    ("input_image", &["image_url", "file_id", "detail", MARK]),
    ("input_file", &["file_data", "file_id", "file_url", "filename", "detail", MARK]),
];

/// The parts of what models say, with their members.
const OUTPUT_PARTS: [(&str, &[&str]); 2] =
    [("output_text", &["text", "annotations", "logprobs"]), ("refusal", &["refusal"])];

/// What ids begin with.
const IDS: [(&str, &str); 4] =
    [("message", "msg_"), ("reasoning", "rs_"), ("function_call", "fc_"), ("custom_tool_call", "ctc_")];

/// The error for a request that isn't valid, or has another credential.
pub(super) fn refusal(request: &ProviderRequest, credential: &str) -> Option<ProviderAct> {
    let refused = check_headers(request, credential).and_then(|()| check_body(request)).err();
    refused.map(|(status, code, message)| responses::error(status, code, &message))
}

fn invalid(message: impl Into<String>) -> Refusal {
    (400, "invalid_value", message.into())
}

fn unknown(name: &str) -> Refusal {
    (400, "unknown_parameter", format!("Unknown parameter: '{name}'."))
}

fn not_found(id: &Value) -> Refusal {
    let message = format!(
        "Item with id {id} not found. Items are not persisted when `store` is set to false. Try again with `store` set to true, \
         or remove this item from your input."
    );
    (404, "not_found", message)
}

fn check_headers(request: &ProviderRequest, credential: &str) -> Result<(), Refusal> {
    let headers = &request.headers;
    let keys: Vec<_> = headers.get_all("authorization").iter().collect();
    if !responses::is_path(&request.path) {
        return Err((404, "not_found", "Invalid URL".to_owned()));
    }
    if keys != [format!("Bearer {credential}").as_str()] {
        return Err((401, "invalid_api_key", "Incorrect API key provided".to_owned()));
    }
    // What begins so is a token.
    if headers.values().any(|value| value.to_str().is_ok_and(|value| value.contains("eyJ"))) {
        return Err((401, "invalid_api_key", "a token of the gateway is in a header".to_owned()));
    }
    match headers.get("content-type").is_some_and(|value| value == "application/json") {
        true => Ok(()),
        false => Err(invalid("Unsupported content type: JSON is required")),
    }
}

fn check_body(request: &ProviderRequest) -> Result<(), Refusal> {
    let body: Value = serde_json::from_slice(&request.body).map_err(|error| invalid(error.to_string()))?;
    let members = body.as_object().ok_or_else(|| invalid("the body is no object"))?;
    let embeds = responses::is_embeddings(&request.path);
    let is_known = |name: &str| match embeds {
        true => EMBEDDINGS.contains(&name),
        false => name == "user" || MEMBERS.contains(&name),
    };
    if let Some(name) = members.keys().find(|name| !is_known(name)) {
        return Err(unknown(name));
    }
    if !body["model"].is_string() {
        return Err(invalid("you must provide a model parameter"));
    }
    if embeds {
        return check_texts(&body["input"]);
    }
    check_settings(&body)?;
    check_tools(&body)?;
    match &body["input"] {
        Value::String(text) if !text.is_empty() => Ok(()),
        Value::Array(items) if !items.is_empty() => check_items(items),
        _ => Err(invalid("One of \"input\" or \"previous_response_id\" must be provided.")),
    }
}

/// What is embedded: texts, or lists of tokens.
fn check_texts(input: &Value) -> Result<(), Refusal> {
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    let is_tokens =
        |value: &Value| value.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(Value::is_u64));
    let is_list = |value: &Value| {
        value
            .as_array()
            .is_some_and(|all| !all.is_empty() && (all.iter().all(is_text) || all.iter().all(is_tokens)))
    };
    match is_text(input) || is_tokens(input) || is_list(input) {
        true => Ok(()),
        false => Err(invalid("'$.input' is invalid.")),
    }
}

fn check_settings(body: &Value) -> Result<(), Refusal> {
    if body["store"] != false {
        return Err(invalid("store: this operator has other customers, so that nothing may be kept"));
    }
    for (member, what) in [("previous_response_id", "Previous response"), ("conversation", "Conversation")] {
        if !body[member].is_null() {
            let message = format!("{what} with id {} not found.", body[member]);
            return Err((404, "not_found", message));
        }
    }
    let options = body["stream_options"].as_object().into_iter().flatten();
    match options.map(|(name, _)| name).find(|name| *name != "include_obfuscation") {
        Some(name) => Err(unknown(&format!("stream_options.{name}"))),
        None => Ok(()),
    }
}

fn check_tools(body: &Value) -> Result<(), Refusal> {
    let mut names = HashSet::new();
    for (at, tool) in body["tools"].as_array().into_iter().flatten().enumerate() {
        let is_named = ["function", "custom"].iter().any(|kind| tool["type"] == *kind);
        if !tool["type"].is_string() || (is_named && !tool["name"].is_string()) {
            return Err(invalid(format!("Missing required parameter: 'tools[{at}].name'.")));
        }
        if is_named && !names.insert(tool["name"].as_str()) {
            return Err(invalid(format!("tools[{at}]: Tool names must be unique.")));
        }
    }
    let chosen = body["tool_choice"]["name"].as_str();
    match chosen.is_none_or(|name| names.contains(&Some(name))) {
        true => Ok(()),
        false => Err(invalid("Tool choice not found in 'tools' parameter.")),
    }
}

fn check_items(items: &[Value]) -> Result<(), Refusal> {
    let mut ids = HashSet::new();
    // The calls that have no result yet: their types and ids.
    let mut open: Vec<(&str, &str)> = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let place = format!("input[{at}]");
        let kind = kind_of(item).ok_or_else(|| invalid(format!("{place}: no item has this type: {item}")))?;
        if kind == "item_reference" {
            return Err(not_found(&item["id"]));
        }
        let row = ITEMS.iter().find(|(name, _)| *name == kind);
        let (_, known) = row.ok_or_else(|| invalid(format!("Invalid value: '{kind}' in '{place}.type'.")))?;
        check_members(item, &[&["type", "id", "status"], known], &place)?;
        check_id(kind, item, &mut ids, &place)?;
        match kind {
            "message" => check_message(item, &place)?,
            "reasoning" => check_reasoning(item, &items[at + 1..], &place)?,
            _ => check_call_or_result(kind, item, &mut open, &place)?,
        }
    }
    match open.first() {
        Some((_, id)) => Err(invalid(format!("No tool output found for function call {id}."))),
        None => Ok(()),
    }
}

/// The type of an item. A message need not say it.
fn kind_of(item: &Value) -> Option<&str> {
    match item.get("type") {
        Some(kind) => kind.as_str(),
        None if item["role"].is_string() => Some("message"),
        None => item["id"].as_str().map(|_| "item_reference"),
    }
}

fn check_members(object: &Value, known: &[&[&str]], place: &str) -> Result<(), Refusal> {
    let members = object.as_object().ok_or_else(|| invalid(format!("{place}: not an object")))?;
    match members.keys().find(|name| !known.iter().any(|known| known.contains(&name.as_str()))) {
        Some(name) => Err(unknown(&format!("{place}.{name}"))),
        None => Ok(()),
    }
}

/// Ids have their form, and no item is there twice.
fn check_id<'r>(kind: &str, item: &'r Value, ids: &mut HashSet<&'r str>, place: &str) -> Result<(), Refusal> {
    // The result of a shell may have its call's id.
    let Some(id) = item["id"].as_str().filter(|_| !kind.ends_with("_output")) else { return Ok(()) };
    if let Some((_, begin)) = IDS.iter().find(|(name, begin)| *name == kind && !id.starts_with(begin)) {
        return Err(invalid(format!(
            "Invalid '{place}.id': '{id}'. Expected an ID that begins with '{begin}'."
        )));
    }
    match ids.insert(id) {
        true => Ok(()),
        false => Err(invalid(format!("Duplicate item found with id {id}."))),
    }
}

fn check_message(item: &Value, place: &str) -> Result<(), Refusal> {
    let parts: &[(&str, &[&str])] = match item["role"].as_str() {
        Some("user" | "system" | "developer") => &INPUT_PARTS,
        Some("assistant") => &OUTPUT_PARTS,
        _ => return Err(invalid(format!("Invalid value: {} in '{place}.role'.", item["role"]))),
    };
    match &item["content"] {
        Value::String(text) if !text.is_empty() => Ok(()),
        Value::Array(content) if !content.is_empty() => check_parts(content, parts, place),
        _ => Err(invalid(format!("{place}.content: a message is not empty"))),
    }
}

fn check_parts(content: &[Value], kinds: &[(&str, &[&str])], place: &str) -> Result<(), Refusal> {
    for (at, part) in content.iter().enumerate() {
        let place = format!("{place}.content[{at}]");
        let row = kinds.iter().find(|(kind, _)| part["type"] == *kind);
        let (_, known) =
            row.ok_or_else(|| invalid(format!("Invalid value: {} in '{place}'.", part["type"])))?;
        check_members(part, &[&["type"], known], &place)?;
        let mut needed =
            known.iter().filter(|name| !["detail", "filename", "annotations", "logprobs"].contains(name));
        if !needed.any(|name| part[*name].as_str().is_some_and(|text| !text.is_empty())) {
            return Err(invalid(format!("{place}: a part is not empty")));
        }
    }
    Ok(())
}

fn check_reasoning(item: &Value, next: &[Value], place: &str) -> Result<(), Refusal> {
    let Some(id) = item["id"].as_str() else {
        return Err(invalid(format!("Missing required parameter: '{place}.id'.")));
    };
    if !item["summary"].is_array() {
        return Err(invalid(format!("Missing required parameter: '{place}.summary'.")));
    }
    let Some(sealed) = item["encrypted_content"].as_str() else { return Err(not_found(&item["id"])) };
    if !responses::is_encrypted(id, sealed) {
        let message = format!("The encrypted content for item {id} could not be verified.");
        return Err((400, "invalid_encrypted_content", message));
    }
    let next = next.iter().find(|item| kind_of(item) != Some("reasoning"));
    let is_of_model = next.is_some_and(|item| match kind_of(item) {
        Some("message") => item["role"] == "assistant",
        kind => RESULTS.iter().any(|(_, call)| Some(*call) == kind),
    });
    match is_of_model {
        true => Ok(()),
        false => Err(invalid(format!(
            "Item '{id}' of type 'reasoning' was provided without its required following item."
        ))),
    }
}

/// Each result has its call, and comes behind it.
fn check_call_or_result<'r>(
    kind: &'r str,
    item: &'r Value,
    open: &mut Vec<(&'r str, &'r str)>,
    place: &str,
) -> Result<(), Refusal> {
    let id = item["call_id"].as_str().or_else(|| item["id"].as_str());
    let id = id.ok_or_else(|| invalid(format!("Missing required parameter: '{place}.call_id'.")))?;
    if !has_its_members(kind, item, place)? {
        return Err(invalid(format!("{place}: invalid `{kind}`")));
    }
    let Some((_, call)) = RESULTS.iter().find(|(result, _)| *result == kind) else {
        open.push((kind, id));
        return Ok(());
    };
    let before = open.len();
    open.retain(|one| *one != (*call, id));
    match open.len() < before {
        true => Ok(()),
        false => Err(invalid(format!("No tool call found for function call output with call_id {id}."))),
    }
}

fn has_its_members(kind: &str, item: &Value, place: &str) -> Result<bool, Refusal> {
    let is_text = |member: &str| item[member].is_string();
    Ok(match kind {
        "function_call" => is_text("name") && is_text("arguments"),
        "custom_tool_call" => is_text("name") && is_text("input"),
        "local_shell_call" | "shell_call" => item["action"].is_object(),
        "apply_patch_call" => item["operation"].is_object(),
        "tool_search_call" => item["execution"] == "client" && item["arguments"].is_object(),
        "tool_search_output" => {
            let is_known =
                item["status"].as_str().is_none_or(|status| ["completed", "incomplete"].contains(&status));
            is_known && item["execution"] == "client" && item["tools"].is_array()
        }
        "local_shell_call_output" => is_text("output"),
        "apply_patch_call_output" => {
            let is_ended = ["completed", "failed"].iter().any(|status| item["status"] == *status);
            is_ended && (is_text("output") || item["output"].is_null())
        }
        "shell_call_output" => item["output"].as_array().is_some_and(|outputs| {
            let is_whole = |output: &Value| {
                output["stdout"].is_string() && output["stderr"].is_string() && output["outcome"].is_object()
            };
            outputs.iter().all(is_whole)
        }),
        _ => {
            if let Some(parts) = item["output"].as_array() {
                check_parts(parts, &INPUT_PARTS, place)?;
            }
            is_text("output") || item["output"].is_array()
        }
    })
}

#[cfg(test)]
#[path = "responses_rules_tests.rs"]
mod tests;
