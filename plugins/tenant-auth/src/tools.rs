//! A tenant's tool lists, compiled.

use regex::RegexSet;
use schemars::JsonSchema;
use serde::Deserialize;

/// The maximum size of the patterns that a block names, in bytes. A notice's details may have 4 KiB, which
/// must also hold the tool's name and JSON escapes.
const MAX_SHOWN_BYTES: usize = 1024;

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
    allowed: RegexSet,
    blocked: RegexSet,
    shown: Vec<String>,
}

impl ToolRules {
    /// Whether the tenant may use the tool.
    pub fn allow(&self, tool: &str) -> bool {
        self.allowed.is_match(tool) && !self.blocked.is_match(tool)
    }

    /// The allowed patterns as written, as many as fit in a notice.
    pub fn patterns(&self) -> &[String] {
        &self.shown
    }
}

impl TryFrom<ToolLists> for ToolRules {
    type Error = String;

    fn try_from(lists: ToolLists) -> Result<Self, String> {
        let compile =
            |name, globs: &[String]| hookgate_glob::compile(name, globs).map_err(|error| error.to_string());
        let allowed = compile("allowed_tools", &lists.allowed_tools)?;
        let blocked = compile("blocked_tools", &lists.blocked_tools)?;
        let mut room = MAX_SHOWN_BYTES;
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rules(lists: Value) -> ToolRules {
        serde_json::from_value(lists).unwrap()
    }

    #[test]
    fn globs_mean_what_they_mean_in_the_gateway() {
        let table: Vec<(String, String, bool)> =
            serde_json::from_str(include_str!("../../../glob/table.json")).unwrap();
        for (glob, tool, expected) in table {
            let allowed = rules(json!({ "allowed_tools": [glob] }));
            assert_eq!(allowed.allow(&tool), expected, "{glob} on {tool}");
            let blocked = rules(json!({ "allowed_tools": ["*"], "blocked_tools": [glob] }));
            assert_eq!(blocked.allow(&tool), !expected, "{glob} on {tool}");
        }
    }
}
