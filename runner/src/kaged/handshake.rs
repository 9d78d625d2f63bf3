//! The first messages of a plugin: `initialize`, `initialized`, and its configuration.

use bytes::Bytes;
use hookgate::json;
use tonic::Status;

use super::{
    KagedPlugin,
    connection::{Connection, ConnectionEnd},
    manifest::API_VERSION,
    message::{METHOD_NOT_FOUND, RpcError, object, text},
    session::SessionOwner,
};

/// Longest text of a plugin that is repeated in a message, in bytes.
const MAX_QUOTE_BYTES: usize = 256;

/// Why a plugin can't be used.
#[derive(Debug)]
pub(super) enum HandshakeFault {
    Disconnected,
    Refused(Status),
}

impl From<ConnectionEnd> for HandshakeFault {
    fn from(_: ConnectionEnd) -> Self {
        HandshakeFault::Disconnected
    }
}

/// Makes the handshake. Returns what an operator should know.
///
/// # Errors
/// If the plugin ends, is another one than the manifest says, or refuses its configuration.
pub(super) async fn run(
    connection: &Connection,
    plugin: &KagedPlugin,
    owner: &SessionOwner,
) -> Result<Vec<String>, HandshakeFault> {
    let params = initialize_params(plugin);
    let refused = |reason: String| HandshakeFault::Refused(Status::internal(reason));
    let result = connection.request("initialize", &params).await?;
    let result = result.map_err(|error| refused(format!("the plugin refuses `initialize`: {error}")))?;
    let mut warnings = Introduction::read(&result).check(plugin).map_err(refused)?;
    connection.notify("initialized", b"{}").await?;
    let config = merged_config(owner);
    if config == b"{}" {
        return Ok(warnings);
    }
    let params = object(|params| params.json("config", &config));
    match connection.request("config.update", &params).await? {
        Ok(_) => {}
        Err(RpcError { code: METHOD_NOT_FOUND, .. }) => {
            warnings.push("the plugin takes no `config.update`, so its configuration has no effect".into());
        }
        Err(error) => {
            let reason = format!("the plugin refuses its configuration: {error}");
            return Err(HandshakeFault::Refused(Status::invalid_argument(reason)));
        }
    }
    Ok(warnings)
}

fn initialize_params(plugin: &KagedPlugin) -> Vec<u8> {
    object(|params| {
        params.member("daemon_version", env!("CARGO_PKG_VERSION"));
        params.member("api_version", &API_VERSION);
        params.member("plugin_name", plugin.name());
        let has_storage = plugin.storage_access().is_some().to_string();
        params.json("storage_available", has_storage.as_bytes());
        params.json("projects", b"[]");
    })
}

/// The configuration of a plugin as one object: that of the tenant, and that of the plugin, which goes before.
fn merged_config(owner: &SessionOwner) -> Vec<u8> {
    let members = |object| json::members(str::from_utf8(object).unwrap_or_default());
    let own: Vec<_> = members(&owner.instance.config).collect();
    object(|config| {
        let of_tenant = members(&owner.tenant_config);
        let of_tenant = of_tenant.filter(|(name, _)| !own.iter().any(|(taken, _)| taken == name));
        of_tenant.chain(own.clone()).for_each(|(name, value)| config.json(&name, value.as_bytes()));
    })
}

/// The beginning of a JSON string.
fn quote(value: &str) -> Option<String> {
    text(value).map(|mut text| {
        text.truncate(text.floor_char_boundary(MAX_QUOTE_BYTES));
        text
    })
}

/// What a plugin says of itself.
#[derive(Default)]
struct Introduction {
    name: Option<String>,
    version: Option<String>,
    api_version: Option<u64>,
    methods: Vec<String>,
    capabilities: Vec<String>,
}

impl Introduction {
    /// Reads an answer to `initialize`.
    fn read(result: &Bytes) -> Self {
        let mut introduction = Introduction::default();
        let result = str::from_utf8(result).ok().filter(|result| result.starts_with('{'));
        let texts = |value: &str| match value.starts_with('[') {
            true => json::elements(value).filter_map(quote).collect(),
            false => Vec::new(),
        };
        for (name, value) in json::members(result.unwrap_or_default()) {
            match &*name {
                "name" => introduction.name = quote(value),
                "version" => introduction.version = quote(value),
                "api_version" => introduction.api_version = value.parse().ok(),
                "methods" => introduction.methods = texts(value),
                "capabilities_used" => introduction.capabilities = texts(value),
                _ => {}
            }
        }
        introduction
    }

    /// Compares it with the manifest. Returns what an operator should know.
    fn check(&self, plugin: &KagedPlugin) -> Result<Vec<String>, String> {
        let said = |said: &Option<String>| said.clone().unwrap_or_else(|| "nothing".into());
        if self.name.as_deref() != Some(plugin.name()) {
            let (name, said) = (plugin.name(), said(&self.name));
            return Err(format!("the plugin says that its name is {said}, and its manifest says {name}"));
        }
        if self.api_version != Some(API_VERSION) {
            return Err(format!("the plugin must answer `initialize` with `api_version`: {API_VERSION}"));
        }
        let is_declared = |used: &&String| plugin.capabilities().contains(used);
        if let Some(excess) = self.capabilities.iter().find(|used| !is_declared(used)) {
            return Err(format!("the plugin uses the capability {excess}, which its manifest doesn't name"));
        }
        let mut warnings = Vec::new();
        if self.version.as_deref() != Some(plugin.version()) {
            let (version, said) = (plugin.version(), said(&self.version));
            warnings
                .push(format!("the plugin says that its version is {said}, and its manifest says {version}"));
        }
        let is_missing = |tool: &&str| !self.methods.iter().any(|method| method == tool);
        let missing: Vec<_> = plugin.tool_names().filter(is_missing).collect();
        if !missing.is_empty() {
            warnings
                .push(format!("the plugin doesn't name these tools in `methods`: {}", missing.join(", ")));
        }
        Ok(warnings)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hookgate::upstream::Redaction;

    use super::*;
    use crate::instances::Instance;

    #[test]
    fn the_plugins_configuration_goes_before_the_tenants() {
        let merged = |tenant_config: &'static str| {
            let config = r#"{"key": 9007199254740993, "a": 1}"#.into();
            let instance = Arc::new(Instance::new(String::new(), config, Redaction::new(Vec::new())));
            let owner = SessionOwner { tenant: "acme".into(), instance, tenant_config: tenant_config.into() };
            String::from_utf8(merged_config(&owner)).expect("it is text")
        };
        assert_eq!(merged(r#"{"a": 2, "b": [1]}"#), r#"{"b":[1],"key":9007199254740993,"a":1}"#);
        assert_eq!(merged(""), r#"{"key":9007199254740993,"a":1}"#);
    }
}
