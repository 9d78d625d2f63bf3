//! Plugins and bindings: what runs, and for whom, where and how (docs/protocol.md, sections 2 and 3). Plain
//! data, with the defaults that depend on other keys; routing builds plans from it. All types are `Eq`, so
//! that comparing two `Arc`s of the same object compares pointers only.

use std::{borrow::Cow, collections::BTreeMap, fmt, path::PathBuf};

use hookgate_proto::Capability;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    consent::Consent,
    model::{JsonObject, span, yes},
    units::Span,
};
use crate::core::{
    object::Owner,
    point::Point,
    step::{Mode, OnError},
};

/// One plugin. Exactly one of `endpoint`, `endpoints`, `builtin`.
#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plugin {
    /// `[A-Za-z][A-Za-z0-9_-]{0,63}`; equals the name in the plugin's manifest.
    pub name: String,
    /// false: not dialled, and no binding of it stands in any plan.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// What operators know it by, for lists and for what `hookgate apply` prunes; no call sees them.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Runs in the gateway's process: `content-policy` or `response-sanitizer`.
    pub builtin: Option<String>,
    /// `unix:///path`, `http://host:port` (plaintext), `https://host:port`, or `dns:///name:port` for every address of a
    /// name, over TLS where `tls` is there.
    pub endpoint: Option<String>,
    /// Several of them, 1 to 64: replicas of one plugin, which calls are spread over.
    #[schemars(length(min = 1, max = 64))]
    pub endpoints: Option<Vec<String>>,
    /// Whom TLS takes for the plugin, and as whom the gateway comes; absent: the machine's CAs vouch for it.
    pub tls: Option<ClientTls>,
    /// Range that the plugin's version must satisfy, such as `>=1.2, <2`.
    #[schemars(with = "Option<String>", extend("format" = "version-range"))]
    pub version: Option<semver::VersionReq>,
    /// Capabilities the plugin may ask for.
    #[serde(default)]
    pub grants: Vec<Capability>,
    /// The manifest that an operator consented to: no other is accepted. Absent: a plugin of the registry's API waits for
    /// approval, one of the file is accepted as it describes itself.
    pub accepted: Option<Consent>,
    /// Plugin-level config; references in it are resolved when it is handed over, to text.
    #[serde(default)]
    pub config: JsonObject,
    /// Whether a start fails without it (of the API: isn't ready without it); absent: true where an enabled binding of the file with `on_error: fail` names it, false of the API.
    pub required: Option<bool>,
    /// Sends a config that holds references over plaintext TCP beyond loopback too.
    #[serde(default)]
    pub allow_plaintext: bool,
    /// Times and numbers of calls.
    #[serde(default)]
    pub limits: PluginLimits,
    /// When an endpoint gets no calls because calls to it failed.
    #[serde(default)]
    pub breaker: Breaker,
    /// How an endpoint is asked whether it is well (`grpc.health.v1`).
    #[serde(default)]
    pub health: Health,
    /// HTTP status (400 to 499) of further block codes of this plugin, by code.
    #[serde(default)]
    #[schemars(extend("additionalProperties" = serde_json::json!({"type": "integer", "minimum": 400, "maximum": 499})))]
    pub block_status: BTreeMap<String, u16>,
    /// Who may write it; not part of what is written.
    #[serde(skip)]
    pub owner: Owner,
}

impl fmt::Debug for Plugin {
    // Written by hand because `config` may contain a secret that someone wrote into the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin")
            .field("name", &self.name)
            .field("enabled", &self.enabled)
            .field("labels", &self.labels)
            .field("builtin", &self.builtin)
            .field("endpoint", &self.endpoint)
            .field("endpoints", &self.endpoints)
            .field("tls", &self.tls)
            .field("version", &self.version)
            .field("grants", &self.grants)
            .field("accepted", &self.accepted)
            .field("config", &format_args!("***"))
            .field("required", &self.required)
            .field("allow_plaintext", &self.allow_plaintext)
            .field("limits", &self.limits)
            .field("breaker", &self.breaker)
            .field("health", &self.health)
            .field("block_status", &self.block_status)
            .field("owner", &self.owner)
            .finish()
    }
}

impl Plugin {
    /// The plugin's addresses: `endpoint`, or all of `endpoints`. Empty for a built-in plugin.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        let several = self.endpoints.iter().flatten();
        self.endpoint.iter().chain(several).map(String::as_str)
    }

    /// Whether the plugin runs only with a manifest that an operator consented to. A built-in plugin comes
    /// with the gateway, and the author of the file consents by writing it.
    pub fn needs_consent(&self) -> bool {
        self.accepted.is_some() || (self.owner == Owner::Api && self.builtin.is_none())
    }
}

/// Both ends' certificates towards a plugin. Changed files are taken into use within 10 s, by new connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientTls {
    /// CAs in PEM that may vouch for the plugin; absent: the machine's.
    pub ca_file: Option<PathBuf>,
    /// The gateway's own certificate in PEM, with those between it and the CA after it; with `key_file`.
    pub cert_file: Option<PathBuf>,
    /// Its private key in PEM.
    pub key_file: Option<PathBuf>,
    /// The name that the plugin's certificate must have; absent: the endpoint's host.
    pub server_name: Option<String>,
    /// The plugin's certificate must have this URI, such as `spiffe://example.org/guard`, and no other; names of hosts
    /// are not checked then.
    pub spiffe_id: Option<String>,
}

impl ClientTls {
    /// The files that it names, by their keys.
    pub fn files(&self) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        let all = [("ca_file", &self.ca_file), ("cert_file", &self.cert_file), ("key_file", &self.key_file)];
        all.into_iter().filter_map(|(key, file)| Some((key, file.as_ref()?)))
    }
}

/// Times and numbers of calls of one plugin.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PluginLimits {
    /// Time-out of a step, queue and connect included; 10ms to 60s.
    pub timeout: Span,
    /// Time-out of a dial, inside the step's; 1ms to 60s.
    pub connect: Span,
    /// Time-out of Initialize; 1ms to 120s.
    pub initialize: Span,
    /// Time-out of Shutdown; 1ms to 30s.
    pub shutdown: Span,
    /// Most calls under way; 1 serialises the plugin.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub in_flight: usize,
    /// Most calls waiting for a place.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub queue: usize,
    /// Longest wait for a place, 0s to 60s; absent: a tenth of the step's time-out.
    pub queue_wait: Option<Span>,
}

impl Default for PluginLimits {
    fn default() -> Self {
        PluginLimits {
            timeout: span(5_000),
            connect: span(2_000),
            initialize: span(10_000),
            shutdown: span(5_000),
            in_flight: 64,
            queue: 128,
            queue_wait: None,
        }
    }
}

/// When an endpoint gets no calls because calls to it failed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Breaker {
    /// Failures in a row that open it.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub failures: u32,
    /// How long it is open at first, 1ms to 1h; then one call tries.
    pub open: Span,
    /// How long at most, `open` to 1h: the time doubles whenever the one call fails.
    pub max_open: Span,
}

impl Default for Breaker {
    fn default() -> Self {
        Breaker { failures: 5, open: span(1_000), max_open: span(30_000) }
    }
}

/// How an endpoint is asked whether it is well. One without the health service is judged by its calls alone.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Health {
    /// Time between two checks, 10ms to 1h.
    pub interval: Span,
    /// Time-out of one check, 1ms to 60s.
    pub timeout: Span,
    /// Checks in a row without an answer after which it gets no calls. NOT_SERVING needs no second.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub misses: u32,
    /// Checks in a row that pass after which it gets calls again.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub passes: u32,
}

impl Default for Health {
    fn default() -> Self {
        Health { interval: span(5_000), timeout: span(1_000), misses: 3, passes: 1 }
    }
}

/// One binding: for whom, where and how a plugin runs. Exactly one of `tenant`, `selector`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Binding {
    /// `[A-Za-z][A-Za-z0-9_-]{0,63}`, unique; absent: the plugin's name, or `<plugin>@<tenant>` for one tenant.
    pub name: Option<String>,
    /// Name of the plugin.
    pub plugin: String,
    /// What operators know it by, for lists and for what `hookgate apply` prunes; no call sees them.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Id of one listed tenant, or `*` for all.
    pub tenant: Option<String>,
    /// Labels that a tenant must have, all of them; at least one.
    pub selector: Option<BTreeMap<String, String>>,
    /// false: stands in no plan.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Ascending order of the chain; unique within a tenant's plan; negative allowed.
    pub priority: i64,
    /// The points, at least one; absent: those of the plugin's manifest.
    #[schemars(length(min = 1))]
    pub points: Option<Vec<Point>>,
    /// true (the default): `mode: enforce, on_error: fail`; false: `mode: advise, on_error: skip`. Excludes both.
    pub blocking: Option<bool>,
    /// What the plugin may do; absent: enforce.
    pub mode: Option<Mode>,
    /// What a failure does; absent: fail for enforce, skip for advise; not for observe.
    pub on_error: Option<OnError>,
    /// Time-out of the step, 10ms to 60s; absent: the plugin's.
    pub timeout: Option<Span>,
    /// Tenant-level config of the step, for every tenant; holds no references.
    #[serde(default)]
    pub config: JsonObject,
    /// The only payload fields the plugin may patch; absent: all that the point allows.
    pub writable: Option<Vec<String>>,
    /// When the step runs; absent: always.
    #[serde(rename = "match", default)]
    pub conditions: Match,
    /// Whether a tenant may switch it off.
    #[serde(default)]
    pub overridable: bool,
    /// Who may write it; not part of what is written.
    #[serde(skip)]
    pub owner: Owner,
}

impl Binding {
    /// What the plugin may do: `mode` if set, otherwise by `blocking`, otherwise [`Mode::Enforce`].
    pub fn mode(&self) -> Mode {
        match (self.mode, self.blocking) {
            (Some(mode), _) => mode,
            (None, Some(false)) => Mode::Advise,
            (None, Some(true) | None) => Mode::Enforce,
        }
    }

    /// What a failure causes: `on_error` if set, otherwise fail for enforce and skip for the others. A step
    /// that observes never fails its chain.
    pub fn on_error(&self) -> OnError {
        match (self.mode(), self.on_error) {
            (Mode::Observe, _) | (Mode::Advise, None) => OnError::Skip,
            (Mode::Enforce | Mode::Advise, Some(on_error)) => on_error,
            (Mode::Enforce, None) => OnError::Fail,
        }
    }

    /// The name as written, or else the plugin's for all tenants and selectors, and `<plugin>@<tenant>` for
    /// one tenant. Unique among bindings.
    pub fn effective_name(&self) -> Cow<'_, str> {
        match (&self.name, self.tenant.as_deref()) {
            (Some(name), _) => name.into(),
            (None, None | Some("*")) => (&self.plugin).into(),
            (None, Some(tenant)) => format!("{}@{tenant}", self.plugin).into(),
        }
    }

    /// Whether the binding is global (`*` or a selector), so that a tenant can only add to it.
    pub fn is_floor(&self) -> bool {
        matches!(self.tenant.as_deref(), None | Some("*"))
    }
}

/// Match conditions: keys are joined by AND, entries of a list by OR; globs know `*`, `?` and `[..]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Match {
    /// Globs on the tool's name, original or current.
    #[schemars(length(min = 1))]
    pub tools: Option<Vec<String>>,
    /// Globs on the context's `agent_id`.
    #[schemars(length(min = 1))]
    pub agents: Option<Vec<String>>,
    /// Globs on the payload's `model`, else the context's.
    #[schemars(length(min = 1))]
    pub models: Option<Vec<String>>,
    /// Globs on the request's labels, `claim.*` included, by key. What is no claim is the agent's word.
    pub labels: BTreeMap<String, Vec<String>>,
    /// On `text` or `content`, original or current; refused where `points` names a tool point.
    pub text: Option<TextMatch>,
}

/// A condition on text: met when any entry of either list matches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TextMatch {
    /// Parts of the text, case-sensitive.
    pub contains: Vec<String>,
    /// Regular expressions (Rust crate regex) found in the text.
    pub regex: Vec<String>,
}
