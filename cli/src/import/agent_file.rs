//! The plugins of a Dexto agent's file, as Dexto's own schema describes them. Knows nothing of the gateway.

use schemars::JsonSchema;
use serde::Deserialize;

use hookgate::config::JsonObject;

/// The file. Dexto reads its other sections itself.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct AgentFile {
    #[serde(default)]
    #[schemars(with = "PluginSection")]
    pub(super) plugins: Option<PluginSection>,
    #[serde(flatten)]
    pub(super) others: JsonObject,
}

/// The section `plugins`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct PluginSection {
    #[serde(default)]
    #[schemars(with = "ContentPolicy")]
    pub(super) content_policy: Option<ContentPolicy>,
    #[serde(default)]
    #[schemars(with = "ResponseSanitizer")]
    pub(super) response_sanitizer: Option<ResponseSanitizer>,
    #[serde(default)]
    pub(super) custom: Vec<CustomPlugin>,
    #[serde(default)]
    pub(super) registry: Vec<RegistryPlugin>,
}

impl PluginSection {
    pub(super) fn is_empty(&self) -> bool {
        let has_builtin = self.content_policy.is_some() || self.response_sanitizer.is_some();
        !has_builtin && self.custom.is_empty() && self.registry.is_empty()
    }
}

/// Dexto's built-in plugin for requests to a model.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContentPolicy {
    pub(super) priority: i64,
    /// Absent: true.
    #[serde(default)]
    #[schemars(with = "bool")]
    pub(super) blocking: Option<bool>,
    #[serde(default = "yes")]
    pub(super) enabled: bool,
    /// 0: no limit.
    #[serde(default)]
    pub(super) max_input_chars: u32,
    #[serde(default)]
    pub(super) redact_emails: bool,
    #[serde(default)]
    pub(super) redact_api_keys: bool,
    /// Dexto accepts them and ignores them.
    #[serde(flatten)]
    pub(super) others: JsonObject,
}

/// Dexto's built-in plugin for answers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResponseSanitizer {
    pub(super) priority: i64,
    /// Absent: false.
    #[serde(default)]
    #[schemars(with = "bool")]
    pub(super) blocking: Option<bool>,
    #[serde(default = "yes")]
    pub(super) enabled: bool,
    /// 0: no limit.
    #[serde(default)]
    pub(super) max_response_length: u32,
    #[serde(default)]
    pub(super) redact_emails: bool,
    #[serde(default)]
    pub(super) redact_api_keys: bool,
    /// Dexto accepts them and ignores them.
    #[serde(flatten)]
    pub(super) others: JsonObject,
}

/// A plugin with a module.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CustomPlugin {
    pub(super) name: String,
    pub(super) module: String,
    #[serde(default = "yes")]
    pub(super) enabled: bool,
    pub(super) blocking: bool,
    pub(super) priority: i64,
    #[serde(default)]
    pub(super) config: JsonObject,
}

/// A plugin that the application registers in its code.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RegistryPlugin {
    #[serde(rename = "type")]
    pub(super) provider: String,
    #[serde(default = "yes")]
    pub(super) enabled: bool,
    pub(super) blocking: bool,
    /// This and `config` are read only so that the schema knows them.
    #[serde(rename = "priority")]
    _priority: i64,
    #[serde(default, rename = "config")]
    _config: JsonObject,
}

const fn yes() -> bool {
    true
}
