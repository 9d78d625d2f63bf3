//! The names that Messages know, so that other spellings of them are refused.

use super::request::MessagesRequest;
use crate::{
    core::error::Violation,
    json,
    llm::{
        request_view::RequestView as _,
        spelling::{check_name, check_names},
        violation_path::{each, within},
    },
};

/// The members of a request that the gateway or a provider reads.
const REQUEST: &[&str] = &[
    "model",
    "messages",
    "system",
    "max_tokens",
    "stream",
    "tools",
    "tool_choice",
    "metadata",
    "stop_sequences",
    "temperature",
    "top_p",
    "top_k",
    "thinking",
    "service_tier",
    "output_config",
    "output_format",
    "container",
    "diagnostics",
    "mcp_servers",
    "context_management",
    "cache_control",
    "inference_geo",
    "speed",
    "prefill",
    "fallbacks",
    "thread",
    "betas",
    "anthropic_beta",
    "anthropic_version",
    "previous_response_id",
    "conversation",
    "models",
    "background",
    "prompt",
    "plugins",
    "provider",
    "route",
    "transforms",
    "web_search_options",
    "cached_content",
    "extra_body",
    "user",
];

const MESSAGE: &[&str] = &["role", "content", "cache_control"];

const BLOCK: &[&str] = &[
    "type",
    "text",
    "source",
    "title",
    "context",
    "citations",
    "cache_control",
    "content",
    "tool_use_id",
    "is_error",
    "file_id",
    "id",
    "name",
    "input",
    "caller",
    "server_name",
    "tool_name",
    "thinking",
    "signature",
    "data",
];

/// The members of where a medium is.
const SOURCE: &[&str] = &["type", "media_type", "data", "url", "file_id", "content"];

const TOOL: &[&str] = &[
    "type",
    "name",
    "description",
    "input_schema",
    "strict",
    "cache_control",
    "allowed_callers",
    "defer_loading",
    "eager_input_streaming",
    "input_examples",
    "mcp_server_name",
];

/// Refuses names that some readers take for known ones.
///
/// # Errors
/// The first of them.
pub(super) fn check(request: &MessagesRequest) -> Result<(), Violation> {
    request.members().try_for_each(|(name, _)| check_name(name, REQUEST))?;
    let tools = json::elements(request.member("tools").unwrap_or_default());
    within("tools", each(tools, |tool| check_names(tool, TOOL)))?;
    within("system", check_blocks(request.member("system").unwrap_or_default()))?;
    let messages = (0..request.message_count()).map(|index| request.message_text(index));
    within("messages", each(messages, check_message))
}

fn check_message(message: &str) -> Result<(), Violation> {
    for (name, value) in json::members(message) {
        check_name(&name, MESSAGE)?;
        if name == "content" {
            within("content", check_blocks(value))?;
        }
    }
    Ok(())
}

/// Checks the names in content blocks, and in blocks inside of them. Depth is bounded by the scan.
fn check_blocks(content: &str) -> Result<(), Violation> {
    each(json::elements(content), |block| check_block(block, BLOCK))
}

/// Checks the names in a block or a source in one walk, as blocks may be deep in each other.
fn check_block(block: &str, known: &[&str]) -> Result<(), Violation> {
    for (name, value) in json::members(block) {
        check_name(&name, known)?;
        match name.as_ref() {
            "source" => within("source", check_block(value, SOURCE))?,
            "content" => within("content", check_blocks(value))?,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "spelling_tests.rs"]
mod tests;
