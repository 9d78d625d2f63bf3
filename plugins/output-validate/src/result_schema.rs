//! A tool's schema, compiled, and the check of a result against it.

use jsonschema::{PatternOptions, Validator, error::ValidationErrorKind};
use regex::RegexSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use hookgate_sdk::{InitError, PluginError};

use crate::{json_text, references};

/// The maximum size of a compiled pattern of a schema, in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// The maximum number of violations that are listed.
const MAX_VIOLATIONS: usize = 8;

/// Results above this size have one violation listed. To list several, the validator first collects all.
const MAX_LISTED_RESULT_BYTES: usize = 64 << 10;

/// The maximum length of a path in a violation, in bytes. Its keys come from the tool.
const MAX_PATH_BYTES: usize = 256;

/// The maximum size of all violations as JSON text, so that a notice has room for them and the tool's name.
const MAX_VIOLATIONS_BYTES: usize = 2048;

/// What happens to a result that doesn't match its schema.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnMismatch {
    /// The result is blocked.
    #[default]
    Block,
    /// An error for the model replaces the result.
    Replace,
    /// The result passes, with a notice.
    Warn,
}

/// A schema for the results of some tools, as written.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SchemaSpec {
    /// Globs (`*`, `?`, `[..]`, case-sensitive) of the tools whose results the schema describes.
    tools: Vec<String>,
    /// JSON Schema, of the draft that its `$schema` names, or else 2020-12. `$ref` leads to the schema itself.
    schema: Value,
    /// What happens to a result that doesn't match: `block`, `replace` or `warn`; absent: `block`.
    #[serde(default)]
    on_mismatch: OnMismatch,
    /// Parses a result that is a string as JSON before it is checked.
    #[serde(default)]
    parse: bool,
}

/// A compiled schema for the results of some tools.
#[derive(Debug)]
pub(crate) struct ResultSchema {
    pub(crate) on_mismatch: OnMismatch,
    tools: RegexSet,
    validator: Validator,
    parse: bool,
}

/// A rule that a result breaks. It names the place and the rule, and never has the value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Violation {
    /// JSON pointer into the result.
    pub(crate) path: String,
    /// The schema's keyword, or else the setting of this plugin.
    pub(crate) keyword: String,
}

impl ResultSchema {
    /// Compiles the entry at `field` of the settings.
    ///
    /// # Errors
    /// Names the invalid setting.
    pub(crate) fn compile(spec: &SchemaSpec, field: &str) -> Result<Self, InitError> {
        let tools_field = format!("{field}.tools");
        if spec.tools.is_empty() {
            return Err(InitError::config(&tools_field, "expected at least one entry"));
        }
        let tools = hookgate_glob::compile(&tools_field, &spec.tools);
        let tools = tools.map_err(|invalid| InitError::config(&invalid.field, invalid.fault))?;
        let validator = compile_schema(&spec.schema);
        let validator = validator.map_err(|fault| InitError::config(&format!("{field}.schema"), fault))?;
        Ok(ResultSchema { on_mismatch: spec.on_mismatch, tools, validator, parse: spec.parse })
    }

    pub(crate) fn is_for(&self, tool: &str) -> bool {
        self.tools.is_match(tool)
    }

    /// Lists how a result breaks the schema; empty if it matches.
    ///
    /// # Errors
    /// If the result isn't JSON, which a gateway doesn't send.
    pub(crate) fn violations(&self, json: &[u8], max_bytes: usize) -> Result<Vec<Violation>, PluginError> {
        if json.len() > max_bytes {
            return Ok(vec![Violation::of_setting("max_result_bytes")]);
        }
        let mut result: Value = hookgate_sdk::json::parse(json)?;
        if self.parse
            && let Value::String(text) = &result
        {
            match json_text::parse(text) {
                Some(parsed) => result = parsed,
                None => return Ok(vec![Violation::of_setting("parse")]),
            }
        }
        let Err(first) = self.validator.validate(&result) else { return Ok(Vec::new()) };
        if json.len() > MAX_LISTED_RESULT_BYTES {
            return Ok(vec![Violation::from(&first)]);
        }
        let all = self.validator.iter_errors(&result).take(MAX_VIOLATIONS);
        Ok(fitting(all.map(|error| Violation::from(&error)).collect()))
    }
}

impl Violation {
    fn of_setting(name: &str) -> Self {
        Violation { path: String::new(), keyword: name.to_owned() }
    }
}

impl From<&jsonschema::ValidationError<'_>> for Violation {
    fn from(error: &jsonschema::ValidationError<'_>) -> Self {
        let path = error.instance_path().as_str();
        let mut shown = path[..path.floor_char_boundary(MAX_PATH_BYTES)].to_owned();
        if shown.len() < path.len() {
            shown.push('…');
        }
        let keyword = match error.kind() {
            // The library's name for a schema that is `false`, which has no keyword.
            ValidationErrorKind::FalseSchema => "false",
            kind => kind.keyword(),
        };
        Violation { path: shown, keyword: keyword.to_owned() }
    }
}

/// Keeps as many violations as fit into a notice. The first always does.
fn fitting(mut violations: Vec<Violation>) -> Vec<Violation> {
    let mut left = MAX_VIOLATIONS_BYTES;
    let fits = violations.iter().take_while(|violation| {
        let size = serde_json::to_string(violation).map_or(usize::MAX, |text| text.len());
        let fits = size <= left;
        left = left.saturating_sub(size);
        fits
    });
    let count = fits.count();
    violations.truncate(count);
    violations
}

/// Compiles a schema that needs nothing else: no network, no files. Its patterns take linear time.
fn compile_schema(schema: &Value) -> Result<Validator, String> {
    references::check(schema)?;
    let options = jsonschema::options()
        .offline()
        .with_pattern_options(PatternOptions::regex().size_limit(MAX_PATTERN_BYTES))
        .should_validate_formats(true)
        .should_ignore_unknown_formats(false);
    options.build(schema).map_err(|error| {
        let path = error.instance_path().as_str();
        let at = if path.is_empty() { String::new() } else { format!(" at `{path}`") };
        format!("not a usable JSON Schema{at}: {}", error.masked())
    })
}
