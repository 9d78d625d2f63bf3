//! A tenant's lists of operators and tools, compiled.

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
struct AccessLists {
    /// Globs (`*`, `?`, `[..]`, case-sensitive) of the operators that may act for the tenant; absent: every operator.
    #[serde(default)]
    operators: Option<Vec<String>>,
    /// Globs (`*`, `?`, `[..]`, case-sensitive) of the tools that the tenant may use; `*` is every tool, absent
    /// none.
    #[serde(default)]
    allowed_tools: Vec<String>,
    /// Globs of the tools that the tenant may not use, whatever `allowed_tools` says.
    #[serde(default)]
    blocked_tools: Vec<String>,
}

/// Who may act for a tenant, and with which tools.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(try_from = "AccessLists")]
#[schemars(into = "AccessLists")] // both ways, the schema is that of the lists
pub struct AccessRules {
    operators: Option<RegexSet>,
    allowed: RegexSet,
    blocked: RegexSet,
    shown: Vec<String>,
}

impl AccessRules {
    /// Whether the operator may act for the tenant.
    pub fn admit(&self, operator: &str) -> bool {
        self.operators.as_ref().is_none_or(|operators| operators.is_match(operator))
    }

    /// Whether the tenant may use the tool.
    pub fn allow(&self, tool: &str) -> bool {
        self.allowed.is_match(tool) && !self.blocked.is_match(tool)
    }

    /// The allowed patterns as written, as many as fit in a notice.
    pub fn patterns(&self) -> &[String] {
        &self.shown
    }
}

impl TryFrom<AccessLists> for AccessRules {
    type Error = String;

    fn try_from(lists: AccessLists) -> Result<Self, String> {
        let compile =
            |name, globs: &[String]| hookgate_glob::compile(name, globs).map_err(|error| error.to_string());
        let operators = lists.operators.as_deref().map(|globs| compile("operators", globs)).transpose()?;
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
        Ok(AccessRules { operators, allowed, blocked, shown })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rules(lists: Value) -> AccessRules {
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
