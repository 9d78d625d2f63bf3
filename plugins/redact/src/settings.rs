//! The settings of both levels, compiled to rules.

use std::collections::BTreeSet;

use hookgate_redaction::{Detector, Redactor, Rule, ToolsAndExtra, compile_pattern};
use hookgate_sdk::InitError;
use schemars::JsonSchema;
use serde::Deserialize;

const MAX_PATTERNS: usize = 100;
const MAX_NAME_BYTES: usize = 64;
const MAX_REPLACEMENT_BYTES: usize = 256;

const NAME_RULE: &str = "a letter and up to 63 letters, digits, `_` and `-`";

/// Plugin-level configuration.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "redact")]
pub struct Config {
    /// What to look for; absent for all detectors but `high_entropy` and `api_key`.
    pub detectors: Option<Vec<Detector>>,
    /// Detectors of these to leave out.
    #[serde(default)]
    pub except: Vec<Detector>,
    /// Own patterns.
    #[serde(default)]
    pub patterns: Vec<Pattern>,
    /// What happens to a request with a match in `tools` or `extra`, which isn't replaced there.
    #[serde(default)]
    pub tools_and_extra: ToolsAndExtra,
}

/// Tenant-level configuration, as written.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "redact")]
struct TenantConfig {
    /// Detectors besides those of the plugin.
    #[serde(default)]
    extra_detectors: Vec<Detector>,
    /// Patterns besides those of the plugin.
    #[serde(default)]
    extra_patterns: Vec<Pattern>,
}

/// A pattern, and what replaces its matches.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pattern {
    /// Name in notices: a letter and up to 63 letters, digits, `_` and `-`.
    name: String,
    /// Regular expression in the syntax of the Rust crate `regex`.
    regex: String,
    /// What replaces a match, literally; at most 256 bytes.
    #[serde(default = "default_replacement")]
    replacement: String,
}

fn default_replacement() -> String {
    "[REDACTED]".to_owned()
}

/// A tenant's rules, besides those of the plugin.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(try_from = "TenantConfig")]
#[schemars(into = "TenantConfig")] // both ways, the schema is that of the settings
pub struct TenantRules {
    pub(crate) redactor: Redactor,
}

impl Config {
    /// The plugin's rules. Own patterns come first, so a match at the same place gets their replacement.
    pub(crate) fn redactor(&self) -> Result<Redactor, InitError> {
        let detectors = Detector::select(self.detectors.as_deref(), &self.except, &Detector::BROAD)?;
        let patterns = rules("patterns", &self.patterns)
            .map_err(|PatternError { field, expected }| InitError::config(&field, expected))?;
        let redactor: Redactor = patterns.into_iter().chain(detectors.into_iter().map(Rule::from)).collect();
        match redactor.is_empty() {
            // It would let everything pass, and nobody would notice.
            true => Err(Detector::none_selected(&self.except, Some("a pattern in `patterns`"))),
            false => Ok(redactor),
        }
    }
}

impl TryFrom<TenantConfig> for TenantRules {
    type Error = String;

    fn try_from(config: TenantConfig) -> Result<Self, String> {
        let patterns = rules("extra_patterns", &config.extra_patterns)
            .map_err(|PatternError { field, expected }| format!("`{field}`: {expected}"))?;
        let detectors = config.extra_detectors.into_iter().map(Rule::from);
        Ok(TenantRules { redactor: patterns.into_iter().chain(detectors).collect() })
    }
}

/// The setting with a mistake, and what is right. Never has the value.
struct PatternError {
    field: String,
    expected: String,
}

fn rules(list: &str, patterns: &[Pattern]) -> Result<Vec<Rule>, PatternError> {
    let wrong = |field: String, expected: String| Err(PatternError { field, expected });
    if patterns.len() > MAX_PATTERNS {
        return wrong(list.to_owned(), format!("at most {MAX_PATTERNS} patterns"));
    }
    let mut names: BTreeSet<&str> = Detector::ALL.map(Detector::name).into();
    let mut rules = Vec::with_capacity(patterns.len());
    for (index, pattern) in patterns.iter().enumerate() {
        let field = |name: &str| format!("{list}[{index}].{name}");
        if !is_name(&pattern.name) {
            return wrong(field("name"), NAME_RULE.to_owned());
        }
        if !names.insert(&pattern.name) {
            return wrong(field("name"), "another pattern or a detector has this name".to_owned());
        }
        if pattern.replacement.len() > MAX_REPLACEMENT_BYTES {
            return wrong(field("replacement"), format!("at most {MAX_REPLACEMENT_BYTES} bytes"));
        }
        match compile_pattern(&pattern.regex) {
            Ok(regex) => {
                rules.push(Rule::from_pattern(pattern.name.clone(), regex, pattern.replacement.clone()));
            }
            Err(fault) => return wrong(field("regex"), fault),
        }
    }
    Ok(rules)
}

fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}
