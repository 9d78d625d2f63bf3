//! The names that Responses know, so that other spellings of them are refused.

use super::request::ResponsesRequest;
use crate::{
    core::error::Violation,
    json,
    llm::{
        request_view::RequestView as _,
        spelling::{check_name, check_names},
        value::{member, object_member},
        violation_path::{each, within},
    },
};

/// The members of a request that the gateway or a provider reads.
const REQUEST: &[&str] = &[
    "model",
    "input",
    "instructions",
    "stream",
    "stream_options",
    "store",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_tool_calls",
    "max_output_tokens",
    "max_tokens",
    "text",
    "reasoning",
    "include",
    "metadata",
    "client_metadata",
    "temperature",
    "top_p",
    "top_k",
    "top_logprobs",
    "truncation",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "service_tier",
    "moderation",
    "access_programs",
    "image",
    "previous_response_id",
    "conversation",
    "background",
    "prompt",
    "context_management",
    "messages",
    "system",
    "response_format",
    "modalities",
    "audio",
    "thread",
    "container",
    "mcp_servers",
    "plugins",
    "web_search_options",
    "fallbacks",
    "models",
    "provider",
    "route",
    "transforms",
    "cached_content",
    "extra_body",
];

/// The members of items of all types.
const ITEM: &[&str] = &[
    "type",
    "role",
    "content",
    "id",
    "status",
    "phase",
    "call_id",
    "name",
    "namespace",
    "caller",
    "arguments",
    "input",
    "output",
    "action",
    "operation",
    "environment",
    "max_output_length",
    "summary",
    "encrypted_content",
    "tools",
    "execution",
    "created_by",
    "internal_chat_message_metadata_passthrough",
    "server_label",
    "approval_request_id",
    "approve",
    "reason",
    "result",
    "results",
    "queries",
    "code",
    "outputs",
    "container_id",
    "error",
];

/// The members of what is in an item: a content part, thoughts, or what a command wrote.
const PART: &[&str] = &[
    "type",
    "text",
    "refusal",
    "image_url",
    "detail",
    "file_id",
    "file_data",
    "file_url",
    "filename",
    "input_audio",
    "annotations",
    "logprobs",
    "prompt_cache_breakpoint",
    "stdout",
    "stderr",
    "outcome",
];

const AUDIO: &[&str] = &["data", "format"];

/// The members of what a shell or a patch of files is called with.
const CALLED: &[&str] = &[
    "type",
    "command",
    "commands",
    "env",
    "timeout_ms",
    "max_output_length",
    "user",
    "working_directory",
    "path",
    "diff",
];

const TOOL: &[&str] = &[
    "type",
    "name",
    "description",
    "parameters",
    "output_schema",
    "strict",
    "format",
    "tools",
    "environment",
    "function",
    "custom",
    "allowed_callers",
    "defer_loading",
    "async",
    "container",
    "vector_store_ids",
    "server_label",
    "server_url",
    "connector_id",
    "tunnel_id",
    "execution",
];

const ENVIRONMENT: &[&str] = &["type", "skills", "container_id", "file_ids", "network_policy"];

/// Refuses names that some readers take for known ones.
///
/// # Errors
/// The first of them.
pub(super) fn check(request: &ResponsesRequest) -> Result<(), Violation> {
    for (name, _) in request.members() {
        check_name(name, REQUEST)?;
    }
    within("tools", check_tools(request.member("tools").unwrap_or_default()))?;
    let items = (0..request.message_count()).map(|index| request.message_text(index));
    within("input", each(items, check_item))
}

fn check_item(item: &str) -> Result<(), Violation> {
    check_names(item, ITEM)?;
    ["action", "operation"].into_iter().try_for_each(|name| check_inner(item, name, CALLED))?;
    check_inner(item, "environment", ENVIRONMENT)?;
    for list in ["content", "summary", "output"] {
        let parts = json::elements(member(item, list).unwrap_or_default());
        let checked = each(parts, |part| {
            check_names(part, PART)?;
            check_inner(part, "input_audio", AUDIO)
        });
        within(list, checked)?;
    }
    within("tools", check_tools(member(item, "tools").unwrap_or_default()))
}

/// Checks the names in tools, and in tools inside of them. Depth is bounded by the scan.
fn check_tools(tools: &str) -> Result<(), Violation> {
    each(json::elements(tools), |tool| {
        check_names(tool, TOOL)?;
        check_inner(tool, "environment", ENVIRONMENT)?;
        within("tools", check_tools(member(tool, "tools").unwrap_or_default()))
    })
}

/// Checks the names in the member `name`, if that is an object.
fn check_inner(object: &str, name: &str, known: &[&str]) -> Result<(), Violation> {
    within(name, check_names(object_member(object, name).unwrap_or_default(), known))
}

#[cfg(test)]
#[path = "spelling_tests.rs"]
mod tests;
