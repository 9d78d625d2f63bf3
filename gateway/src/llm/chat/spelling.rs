//! The names that Chat Completions know, so that other spellings of them are refused.

use super::request::{ChatRequest, Role};
use crate::{
    core::error::Violation,
    json,
    llm::{
        request_view::RequestView as _,
        spelling::{check_inner, check_name, check_names},
        value::member,
    },
};

/// The members of a request that the gateway or a provider reads.
const REQUEST: &[&str] = &[
    "model",
    "messages",
    "stream",
    "stream_options",
    "n",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "functions",
    "function_call",
    "response_format",
    "prediction",
    "modalities",
    "audio",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "max_tokens",
    "max_completion_tokens",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "seed",
    "stop",
    "best_of",
    "echo",
    "suffix",
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "moderation",
    "verbosity",
    "reasoning",
    "reasoning_effort",
    "thinking",
    "web_search_options",
    "plugins",
    "mcp_servers",
    "container",
    "previous_response_id",
    "conversation",
    "thread",
    "background",
    "include",
    "prompt",
    "system",
    "instructions",
    "input",
    "fallbacks",
    "models",
    "provider",
    "route",
    "transforms",
    "options",
    "format",
    "template",
    "chat_template",
    "chat_template_kwargs",
    "documents",
    "extra_body",
    "cached_content",
];

/// The members of messages of all roles.
const MESSAGE: &[&str] = &[
    "role",
    "content",
    "name",
    "refusal",
    "tool_call_id",
    "tool_calls",
    "function_call",
    "audio",
    "images",
    "annotations",
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "thinking",
    "cache_control",
];

const PART: &[&str] =
    &["type", "text", "refusal", "image_url", "file", "input_audio", "file_id", "cache_control"];

/// The members of what is in a part: an image, a file or audio.
const SOURCE: &[&str] = &["url", "detail", "file_data", "file_url", "file_id", "filename", "data", "format"];

const TOOL: &[&str] = &[
    "type",
    "function",
    "custom",
    "name",
    "description",
    "parameters",
    "input_schema",
    "strict",
    "format",
    "cache_control",
];

const CALL: &[&str] = &["id", "type", "index", "function", "custom", "extra_content"];

/// The members of a called function or custom tool.
const CALLED: &[&str] = &["name", "arguments", "input"];

/// Refuses names that some readers take for known ones.
///
/// # Errors
/// The first of them.
pub(super) fn check(request: &ChatRequest) -> Result<(), Violation> {
    for (name, _) in request.members() {
        check_name(name, REQUEST, "")?;
    }
    for list in ["tools", "functions"] {
        for (index, tool) in json::elements(request.member(list).unwrap_or_default()).enumerate() {
            let pointer = format!("/{list}/{index}");
            check_names(tool, TOOL, &pointer)?;
            check_inner(tool, &["function", "custom"], TOOL, &pointer)?;
        }
    }
    for index in 0..request.message_count() {
        let message = request.message_text(index);
        let pointer = format!("/messages/{index}");
        check_names(message, MESSAGE, &pointer)?;
        for (index, part) in json::elements(member(message, "content").unwrap_or_default()).enumerate() {
            let pointer = format!("{pointer}/content/{index}");
            check_names(part, PART, &pointer)?;
            check_inner(part, &["image_url", "file", "input_audio"], SOURCE, &pointer)?;
        }
        if request.role(index) == Some(Role::Assistant) {
            check_calls(message, &pointer)?;
        }
    }
    Ok(())
}

fn check_calls(message: &str, pointer: &str) -> Result<(), Violation> {
    check_inner(message, &["function_call"], CALLED, pointer)?;
    for (index, call) in json::elements(member(message, "tool_calls").unwrap_or_default()).enumerate() {
        let pointer = format!("{pointer}/tool_calls/{index}");
        check_names(call, CALL, &pointer)?;
        check_inner(call, &["function", "custom"], CALLED, &pointer)?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "spelling_tests.rs"]
mod tests;
