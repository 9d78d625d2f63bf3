//! The names that Chat Completions know, so that other spellings of them are refused.

use super::request::{ChatRequest, Role};
use crate::{
    core::error::Violation,
    json,
    llm::{
        request_view::RequestView as _,
        spelling::{check_name, check_names},
        value::ObjectMembers,
        violation_path::{each, within},
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

/// Refuses names of a request and its tools that some readers take for known ones.
///
/// # Errors
/// The first of them.
pub(super) fn check(request: &ChatRequest) -> Result<(), Violation> {
    request.members().try_for_each(|(name, _)| check_name(name, REQUEST))?;
    for list in ["tools", "functions"] {
        let tools = json::elements(request.member(list).unwrap_or_default());
        within(list, each(tools, |tool| check_object(tool, TOOL, &["function", "custom"], TOOL)))?;
    }
    Ok(())
}

/// The same for the names in a message.
pub(super) fn check_message(role: Role, members: &ObjectMembers<'_>) -> Result<(), Violation> {
    for (name, value) in members.iter() {
        check_name(name, MESSAGE)?;
        let checked = match (name, role) {
            ("content", _) => {
                let inner = ["image_url", "file", "input_audio"];
                each(json::elements(value), |part| check_object(part, PART, &inner, SOURCE))
            }
            ("function_call", Role::Assistant) => check_names(value, CALLED),
            ("tool_calls", Role::Assistant) => {
                each(json::elements(value), |call| check_object(call, CALL, &["function", "custom"], CALLED))
            }
            _ => Ok(()),
        };
        within(name, checked)?;
    }
    Ok(())
}

/// Checks the names in an object, and in those of its members that are `inner`.
fn check_object(
    object: &str,
    known: &[&str],
    inner: &[&str],
    known_inside: &[&str],
) -> Result<(), Violation> {
    for (name, value) in json::members(object) {
        check_name(&name, known)?;
        if inner.contains(&name.as_ref()) {
            within(&name, check_names(value, known_inside))?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "spelling_tests.rs"]
mod tests;
