//! Parses configuration from JSON into a plugin's types. Error messages name the field and what is
//! expected, but never the value, which may be a secret.

use std::sync::Arc;

use moka::sync::Cache;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The configuration of a plugin that takes none: an object without members.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

/// How many tenant-level configurations are kept parsed. With more tenants, some are parsed again.
const MAX_TENANT_CONFIGS: u64 = 1024;

/// Parses JSON into `T`. The error is one sentence that names the member.
pub(crate) fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, String> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let text = without_value(&error.inner().to_string());
        if path == "." || path == "?" { text } else { format!("field `{path}`: {text}") }
    })?;
    reader.end().map_err(|_| "text follows the JSON value".to_owned())?;
    Ok(value)
}

/// Like [`parse`], but an absent configuration is an empty object.
pub(crate) fn parse_config<T: DeserializeOwned>(json: &[u8]) -> Result<T, String> {
    let json = if json.is_empty() { b"{}" } else { json };
    // serde would also accept a list of the members in order.
    match json.trim_ascii_start().first() {
        Some(b'{') => parse(json),
        _ => Err("expected a JSON object".to_owned()),
    }
}

/// The JSON Schema of `T`.
pub(crate) fn schema<T: JsonSchema>() -> bytes::Bytes {
    serde_json::to_vec(&schemars::schema_for!(T)).expect("a schema is a JSON value").into()
}

/// Removes from serde's message the quoted value and the position, which means nothing to an author of
/// YAML. The expectation follows the last ", expected", which can't be part of a value.
fn without_value(text: &str) -> String {
    let text = text.rfind(" at line ").map_or(text, |position| &text[..position]);
    let quotes_value =
        ["invalid type", "invalid value", "unknown variant"].iter().any(|p| text.starts_with(p));
    match text.rsplit_once(", expected ") {
        Some((_, expected)) if quotes_value => format!("expected {expected}"),
        _ => text.to_owned(),
    }
}

/// Parsed tenant-level configurations, by digest.
pub(crate) struct TenantConfigs<T>(Cache<String, Arc<T>>);

impl<T: DeserializeOwned + Send + Sync + 'static> TenantConfigs<T> {
    pub(crate) fn new() -> Self {
        TenantConfigs(Cache::new(MAX_TENANT_CONFIGS))
    }

    /// The parsed configuration. The gateway's digest identifies the text; without a digest nothing is
    /// cached.
    pub(crate) fn get(&self, digest: &str, json: &[u8]) -> Result<Arc<T>, String> {
        if let Some(known) = self.0.get(digest) {
            return Ok(known);
        }
        let parsed = Arc::new(parse_config::<T>(json)?);
        if !digest.is_empty() {
            self.0.insert(digest.to_owned(), Arc::clone(&parsed));
        }
        Ok(parsed)
    }
}
