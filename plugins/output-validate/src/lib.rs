//! Reference plugin: checks tool results against JSON Schemas.
//!
//! The first schema for a tool describes its results. Results of failed tools and of tools without a schema
//! pass. Answers name the place and the rule that it breaks, and never a value of the result.
#![warn(missing_docs)]

mod json_text;
mod references;
mod result_schema;

use std::num::NonZeroUsize;

use hookgate_sdk::{
    AfterToolResultPatch, AfterToolResultPayload, Answer, Cancel, Context, Host, InitError, Limits, NoConfig,
    Notice, Offer, PayloadField, Plugin, Point, Reply,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

pub use result_schema::{OnMismatch, SchemaSpec};

use result_schema::{ResultSchema, Violation};

/// The code of the block, of the notices, and of the error that replaces a result.
const TOOL_OUTPUT_INVALID: &str = "TOOL_OUTPUT_INVALID";

/// The default of `max_result_bytes`. Parsed, a result takes up to 32 times the memory.
const DEFAULT_MAX_RESULT_BYTES: usize = 1 << 20;

/// The maximum number of schemas.
const MAX_SCHEMAS: usize = 256;

/// Plugin-level configuration.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "output-validate")]
pub struct Config {
    /// Schemas, 1 to 256. The first one for a tool is used.
    pub schemas: Vec<SchemaSpec>,
    /// Largest result that is checked, in bytes of JSON text; a larger one doesn't match. Absent: 1 MiB.
    pub max_result_bytes: Option<NonZeroUsize>,
}

/// Checks the results of tools.
pub struct OutputValidate {
    schemas: Vec<ResultSchema>,
    max_result_bytes: usize,
    limits: Limits,
}

impl Plugin for OutputValidate {
    const NAME: &'static str = "output-validate";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Config = Config;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        vec![Point::AfterToolResult.modify().reading_only(&[PayloadField::Result])]
    }

    async fn initialize(config: Config, host: Host) -> Result<Self, InitError> {
        if !(1..=MAX_SCHEMAS).contains(&config.schemas.len()) {
            return Err(InitError::config("schemas", format!("expected 1 to {MAX_SCHEMAS} entries")));
        }
        let numbered = config.schemas.iter().enumerate();
        let schemas = numbered.map(|(index, spec)| ResultSchema::compile(spec, &format!("schemas[{index}]")));
        Ok(OutputValidate {
            schemas: schemas.collect::<Result<_, _>>()?,
            max_result_bytes: config.max_result_bytes.map_or(DEFAULT_MAX_RESULT_BYTES, NonZeroUsize::get),
            limits: *host.limits(),
        })
    }

    async fn after_tool_result(
        &self,
        _: &Context,
        _: &NoConfig,
        payload: AfterToolResultPayload,
    ) -> Answer<AfterToolResultPatch> {
        let schema = self.schemas.iter().find(|schema| schema.is_for(&payload.tool_name));
        let Some(schema) = schema.filter(|_| payload.success != Some(false)) else {
            return Ok(Reply::proceed());
        };
        let violations = schema.violations(&payload.result, self.max_result_bytes)?;
        if violations.is_empty() {
            return Ok(Reply::proceed());
        }
        let tool = payload.tool_name.as_str();
        let message = message(tool, &violations);
        let details = json!({ "tool_name": tool, "violations": violations });
        match schema.on_mismatch {
            OnMismatch::Block => {
                let notice = Notice::block(TOOL_OUTPUT_INVALID, message.as_str()).details(&details)?;
                Ok(Reply::from(Cancel::new(TOOL_OUTPUT_INVALID, message)).notice(notice))
            }
            OnMismatch::Replace => {
                let error = replacement(&payload.result, &message, &violations);
                let notice = Notice::warn(TOOL_OUTPUT_INVALID, message).details(&details)?;
                Ok(Reply::proceed().result(&error)?.notice(notice).fit_notices(&self.limits))
            }
            OnMismatch::Warn => {
                let notice = Notice::warn(TOOL_OUTPUT_INVALID, message).details(&details)?;
                Ok(Reply::proceed().notice(notice).fit_notices(&self.limits))
            }
        }
    }
}

/// One sentence for the user and the model.
fn message(tool: &str, violations: &[Violation]) -> String {
    let places: Vec<String> = violations
        .iter()
        .take(3)
        .map(|Violation { path, keyword }| match path.as_str() {
            "" => format!("`{keyword}`"),
            path => format!("`{keyword}` at `{path}`"),
        })
        .collect();
    let more = if violations.len() > places.len() { ", ..." } else { "" };
    format!("The result of tool '{tool}' breaks its schema: {}{more}.", places.join(", "))
}

/// The error that replaces a result. It stays a text if the result was one, because the agent expects that.
fn replacement(result: &[u8], message: &str, violations: &[Violation]) -> Value {
    let error = json!({ "error": TOOL_OUTPUT_INVALID, "message": message, "violations": violations });
    match result.trim_ascii_start().first() {
        Some(b'"') => Value::String(error.to_string()),
        _ => error,
    }
}

#[cfg(test)]
mod tests;
