//! Maps the code of a block to its HTTP status (docs/protocol.md, section 4).

use std::collections::BTreeMap;

use http::StatusCode;

/// HTTP statuses of block codes: the fixed ones of docs/protocol.md, and those that the configuration adds.
#[derive(Debug, Clone, Default)]
pub struct BlockStatuses {
    /// By code.
    pub of_all: BTreeMap<String, u16>,
    /// By plugin and code; overrides `of_all`.
    pub of_plugin: BTreeMap<String, BTreeMap<String, u16>>,
}

impl BlockStatuses {
    /// The status of a block. 403 for any other code.
    pub fn status(&self, plugin: &str, code: &str) -> StatusCode {
        let configured = || {
            let of_plugin = self.of_plugin.get(plugin).and_then(|codes| codes.get(code));
            of_plugin.or_else(|| self.of_all.get(code)).copied()
        };
        let status = fixed_status(code).or_else(configured).unwrap_or(403);
        // Configured statuses were checked to be within 400 to 499.
        StatusCode::from_u16(status).unwrap_or(StatusCode::FORBIDDEN)
    }
}

/// The code of a block in place of a tool's result that the agent doesn't take.
pub const TOOL_ANSWERED: &str = "TOOL_ANSWERED";

/// Block codes whose status is fixed.
pub const FIXED_BLOCK_STATUSES: &[(&str, u16)] = &[
    ("UNAUTHORIZED", 401),
    ("TOOL_NOT_ALLOWED", 403),
    ("FORBIDDEN", 403),
    ("BLOCKED", 403),
    ("QUOTA_EXCEEDED", 429),
    ("RATE_LIMITED", 429),
    ("PAYMENT_REQUIRED", 402),
    ("INPUT_TOO_LONG", 413),
    ("INVALID_INPUT", 400),
    ("CONTENT_BLOCKED", 422),
    ("TOOL_OUTPUT_INVALID", 422),
    (TOOL_ANSWERED, 403),
];

fn fixed_status(code: &str) -> Option<u16> {
    FIXED_BLOCK_STATUSES.iter().find(|(fixed, _)| *fixed == code).map(|(_, status)| *status)
}
