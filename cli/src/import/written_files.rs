//! The files that an import writes: the gateway's configuration and the runner's. Only the members that are set are
//! written; the gateway's own types read them back.

use hookgate_proto::Capability;
use serde::Serialize;

use hookgate::config::JsonObject;

/// `hookgate.yaml`.
#[derive(Serialize)]
pub(super) struct GatewayFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server: Option<ServerSection>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) store: Option<StoreSection>,
    pub(super) auth: AuthSection,
    pub(super) tenants: TenantSection,
    pub(super) plugins: Vec<PluginEntry>,
    pub(super) bindings: Vec<BindingEntry>,
}

#[derive(Serialize)]
pub(super) struct ServerSection {
    pub(super) host_socket: String,
}

#[derive(Serialize)]
pub(super) struct StoreSection {
    pub(super) url: String,
    pub(super) last_good: String,
}

#[derive(Serialize)]
pub(super) struct AuthSection {
    issuers: [IssuerEntry; 1],
}

#[derive(Serialize)]
struct IssuerEntry {
    issuer: &'static str,
    audience: &'static str,
    keys: [KeyEntry; 1],
}

#[derive(Serialize)]
struct KeyEntry {
    alg: &'static str,
    secret: String,
}

impl AuthSection {
    /// An issuer for development, whose key is in a file.
    pub(super) fn with_key_file(path: &str) -> Self {
        let keys = [KeyEntry { alg: "HS256", secret: format!("${{file:{path}}}") }];
        AuthSection { issuers: [IssuerEntry { issuer: "development", audience: "hookgate", keys }] }
    }
}

/// Dexto has no list of tenants, so without one tenant all are served.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TenantSection {
    Unknown(&'static str),
    List([TenantEntry; 1]),
}

#[derive(Serialize)]
pub(super) struct TenantEntry {
    pub(super) id: String,
}

/// An entry of `plugins`.
#[derive(Serialize, Default)]
pub(super) struct PluginEntry {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) builtin: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) required: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) grants: Vec<Capability>,
    #[serde(skip_serializing_if = "JsonObject::is_empty")]
    pub(super) config: JsonObject,
}

/// An entry of `bindings`.
#[derive(Serialize)]
pub(super) struct BindingEntry {
    pub(super) plugin: String,
    pub(super) tenant: String,
    pub(super) priority: i64,
    /// Always written, because the gateway's default differs from that of Dexto's `responseSanitizer`.
    pub(super) blocking: bool,
}

/// `runner.yaml` of `@hookgate/runner`.
#[derive(Serialize)]
pub(super) struct RunnerFile {
    pub(super) agent_dir: String,
    pub(super) plugins: Vec<RunnerEntry>,
}

#[derive(Serialize)]
pub(super) struct RunnerEntry {
    pub(super) dialect: &'static str,
    pub(super) module: String,
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) enabled: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) capabilities: Vec<Capability>,
}

/// A file's text: comments, and the content as YAML.
pub(super) fn text(comments: &[String], content: &impl Serialize) -> Result<String, String> {
    let body =
        serde_saphyr::to_string(content).map_err(|error| format!("YAML can't hold the import: {error}"))?;
    let comments: String = comments.iter().map(|line| format!("# {line}\n")).collect();
    Ok(format!("{comments}\n{body}"))
}
