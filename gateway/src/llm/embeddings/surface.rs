//! What of a request for embeddings is refused because it would pass plugins by.

use super::request::EmbeddingsRequest;
use crate::{
    core::error::{Error, Violation},
    llm::{
        guarded_points::GuardedPoints,
        spelling::check_name,
        surface::{
            AllowSwitch, Row, Rule, Surface, SurfaceTable,
            Treatment::{Seen, Settings},
            When, unsupported,
        },
        violation_path::within,
    },
};

/// The members of a request that not all formats have.
const MEMBERS: &[Row] = &[
    ("model", Seen),
    ("input", Seen),
    ("user", Seen),
    ("metadata", Seen),
    ("dimensions", Settings),
    ("encoding_format", Settings),
];

/// What it refuses.
pub(super) const TABLE: SurfaceTable = SurfaceTable { members: MEMBERS, inner: &[], rules: &[&[TOKENS]] };

const TOKENS: Rule = Rule {
    what: "lists of numbers in place of texts",
    when: When::Request,
    why: "plugins can't read tokens; send texts (in LangChain: check_embedding_ctx_length=False)",
    opened_by: AllowSwitch::Entry("tokens"),
};

/// The members of a request that the gateway or a provider reads.
const NAMES: &[&str] = &[
    "model",
    "input",
    "user",
    "metadata",
    "dimensions",
    "encoding_format",
    "stream",
    "messages",
    "prompt",
    "content",
    "documents",
    "input_type",
    "instruction",
    "truncate",
    "options",
    "provider",
    "route",
    "plugins",
    "mcp_servers",
    "web_search_options",
    "background",
    "fallbacks",
    "models",
    "previous_response_id",
    "conversation",
    "thread",
    "cached_content",
    "extra_body",
];

/// Refuses what would pass plugins by, unless it is in `allowed` (`llm.allow`). Tenants without plugins are only kept
/// apart. Nothing allows a name that some servers take for another.
///
/// # Errors
/// `UNSUPPORTED`, with a violation for the first thing that is refused.
pub(super) fn check_request(
    request: &EmbeddingsRequest,
    guarded: GuardedPoints,
    allowed: &[String],
) -> Result<(), Error> {
    check(request, Surface { guarded, allowed, table: &TABLE }).map_err(unsupported)
}

fn check(request: &EmbeddingsRequest, surface: Surface<'_>) -> Result<(), Violation> {
    request.members().try_for_each(|(name, _)| check_name(name, NAMES))?;
    surface.members(request.members())?;
    match request.has_tokens() {
        true => within("input", surface.refuse(&TOKENS)),
        false => Ok(()),
    }
}
