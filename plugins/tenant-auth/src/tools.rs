//! A tenant's tool lists, compiled. Knows nothing of calls and replies.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use schemars::JsonSchema;
use serde::Deserialize;

/// Bytes of patterns that a refusal names at most: the details of a notice may have 4 KiB, and a tool's name and
/// JSON's escapes need room too.
const SHOWN_BYTES: usize = 1024;

/// Tenant-level configuration, as written.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "tenant-auth")]
struct ToolLists {
    /// Globs (`*`, `?`, `[..]`, case-sensitive) of the tools that the tenant may use; `*` is every tool, absent
    /// none.
    #[serde(default)]
    allowed_tools: Vec<String>,
    /// Globs of the tools that the tenant may not use, whatever `allowed_tools` says.
    #[serde(default)]
    blocked_tools: Vec<String>,
}

/// The tools that a tenant may use.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(try_from = "ToolLists")]
#[schemars(into = "ToolLists")] // both ways, the schema is that of the lists
pub struct ToolRules {
    allowed: GlobSet,
    blocked: GlobSet,
    shown: Vec<String>,
}

impl ToolRules {
    /// Whether the tenant may use the tool.
    pub fn allow(&self, tool: &str) -> bool {
        self.allowed.is_match(tool) && !self.blocked.is_match(tool)
    }

    /// The allowed patterns as written, as many as fit into a notice.
    pub fn shown(&self) -> &[String] {
        &self.shown
    }
}

impl TryFrom<ToolLists> for ToolRules {
    type Error = String;

    fn try_from(lists: ToolLists) -> Result<Self, String> {
        let allowed = compile("allowed_tools", &lists.allowed_tools)?;
        let blocked = compile("blocked_tools", &lists.blocked_tools)?;
        let mut room = SHOWN_BYTES;
        let mut shown = lists.allowed_tools;
        let fits = shown.iter().take_while(|pattern| {
            let left = room.checked_sub(pattern.len());
            room = left.unwrap_or(0);
            left.is_some()
        });
        let fits = fits.count();
        shown.truncate(fits);
        Ok(ToolRules { allowed, blocked, shown })
    }
}

fn compile(list: &str, patterns: &[String]) -> Result<GlobSet, String> {
    let mut set = GlobSetBuilder::new();
    for (index, pattern) in patterns.iter().enumerate() {
        // Braces and backslashes are ordinary characters in our globs, globset gives them a meaning.
        let plain = pattern.replace('{', "[{]").replace('}', "[}]");
        let glob = GlobBuilder::new(&plain)
            .literal_separator(false)
            .backslash_escape(false)
            .build()
            .map_err(|error| format!("`{list}[{index}]` is no glob: {}", error.kind()))?;
        set.add(glob);
    }
    set.build().map_err(|error| format!("`{list}`: {}", error.kind()))
}
