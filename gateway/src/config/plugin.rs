//! Plugins and bindings: what runs, and for whom, where and how (docs/protocol.md, sections 2 and 3). Plain
//! data, with the defaults that depend on other keys; routing builds plans from it. All types are `Eq`, so
//! that comparing two `Arc`s of the same object compares pointers only.

use std::{borrow::Cow, collections::BTreeMap, fmt, path::PathBuf};

use hookgate_proto::{Capability, HookName};
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

/// One plugin. Exactly one of `endpoint`, `endpoints`, `self_registration`, `builtin`.
#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plugin {
    /// `[A-Za-z][A-Za-z0-9_-]{0,63}`; equals the name in the plugin's manifest.
    pub name: String,
    /// If false, the gateway does not connect to it, and its bindings run in no plan.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Labels for operators, for lists and for `hookgate apply --prune`; calls don't see them.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Runs in the gateway's process: `circuit-breaker`, `content-policy`, `loop-detect`, `output-validate`, `rate-limit`,
    /// `redact`, `response-sanitizer`, `secrets` or `tool-policy`.
    pub builtin: Option<String>,
    /// `unix:///path`, `http://host:port` (plaintext), `https://host:port`, or `dns:///name:port` for every address
    /// of a name, with TLS if `tls` is set.
    pub endpoint: Option<String>,
    /// Several endpoints, 1 to 64: replicas of one plugin, between which calls are balanced.
    #[schemars(length(min = 1, max = 64))]
    pub endpoints: Option<Vec<String>>,
    /// If true, the plugin's processes register their endpoints at `server.host_addr` or `server.host_socket`, within
    /// `egress`.
    #[serde(default)]
    pub self_registration: bool,
    /// How TLS verifies the plugin, and the gateway's client certificate. Absent: the system's CAs verify it.
    pub tls: Option<ClientTls>,
    /// Accepted range of the plugin's version, such as `>=1.2, <2`.
    #[schemars(with = "Option<String>", extend("format" = "version-range"))]
    pub version: Option<semver::VersionReq>,
    /// Capabilities that the plugin may request; a built-in plugin may request all. With `storage:read` and
    /// `storage:write` it reads and writes its own data in the gateway's database, with `log` it writes to the gateway's
    /// log, and with `emit` it emits events for operators.
    #[serde(default)]
    pub grants: Vec<Capability>,
    /// The approved manifest: no other is accepted. Absent: a plugin of the API waits for approval, and a plugin of
    /// the file is accepted with any manifest.
    pub accepted: Option<Consent>,
    /// Plugin-level config; references in it are resolved to text when the plugin gets it.
    #[serde(default)]
    pub config: JsonObject,
    /// Whether startup fails without it; for a plugin of the API: whether the gateway is not ready without it.
    /// Absent: true if an enabled binding of the file with `on_error: fail` uses it; false for a plugin of the API. Never
    /// true with `self_registration`: no plugin registers before a gateway is ready.
    pub required: Option<bool>,
    /// Allows sending a config that contains references over plaintext TCP beyond loopback.
    #[serde(default)]
    pub allow_plaintext: bool,
    /// Timeouts and limits of calls.
    #[serde(default)]
    pub limits: PluginLimits,
    /// Circuit breaker: when an endpoint gets no calls because calls to it failed.
    #[serde(default)]
    pub breaker: Breaker,
    /// Health checks of endpoints (`grpc.health.v1`).
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
            .field("self_registration", &self.self_registration)
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
    /// The plugin's addresses: `endpoint`, or all of `endpoints`. Empty for a built-in plugin and for one whose processes
    /// register theirs.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        let several = self.endpoints.iter().flatten();
        self.endpoint.iter().chain(several).map(String::as_str)
    }

    /// The capabilities that the plugin may request: all, if it is built in.
    pub fn granted(&self) -> impl Iterator<Item = Capability> {
        let own: &[Capability] = if self.builtin.is_some() { &Capability::ALL } else { &self.grants };
        own.iter().copied()
    }
}

/// Both ends' certificates towards a plugin. Changed files are taken into use within 10 s, by new connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientTls {
    /// PEM file of CAs to trust for the plugin. Absent: the system's.
    pub ca_file: Option<PathBuf>,
    /// PEM file with the gateway's client certificate, followed by its intermediate certificates; needs `key_file`.
    pub cert_file: Option<PathBuf>,
    /// PEM file with the private key.
    pub key_file: Option<PathBuf>,
    /// Name that the plugin's certificate must have. Absent: the endpoint's host.
    pub server_name: Option<String>,
    /// SPIFFE ID that must be the only URI of the plugin's certificate, such as `spiffe://example.org/guard`. Host
    /// names are then not checked.
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
    /// Timeout of a step, including queueing and connecting; 10ms to 60s.
    pub timeout: Span,
    /// Timeout of connecting, within the step's timeout; 1ms to 60s.
    pub connect: Span,
    /// Timeout of Initialize; 1ms to 120s.
    pub initialize: Span,
    /// Timeout of Shutdown; 1ms to 30s.
    pub shutdown: Span,
    /// Most calls in flight; 1 serialises the plugin.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub in_flight: usize,
    /// Most calls waiting for a permit.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub queue: usize,
    /// Longest wait for a permit, 0s to 60s. Absent: a tenth of the step's timeout.
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

/// Circuit breaker: when an endpoint gets no calls because calls to it failed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Breaker {
    /// Consecutive failures that open the breaker.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub failures: u32,
    /// Initial open time, 1ms to 1h; then the breaker is half-open and one call probes.
    pub open: Span,
    /// Maximum open time, `open` to 1h; the open time doubles each time the half-open probe fails.
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
    /// Timeout of one check, 1ms to 60s.
    pub timeout: Span,
    /// Consecutive unanswered checks after which an endpoint gets no calls. A single NOT_SERVING suffices.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub misses: u32,
    /// Consecutive passed checks after which it gets calls again.
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
    /// Labels for operators, for lists and for `hookgate apply --prune`; calls don't see them.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Id of one listed tenant, or `*` for all.
    pub tenant: Option<String>,
    /// Labels that a tenant must all have; at least one.
    pub selector: Option<BTreeMap<String, String>>,
    /// If false, the binding runs in no plan.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Position in the chain, ascending; unique within a tenant's plan; may be negative.
    pub priority: i64,
    /// Extension points, at least one. Absent: all points of the plugin's manifest.
    #[schemars(length(min = 1))]
    pub points: Option<Vec<Point>>,
    /// Lifecycle hooks, 1 to 64, instead of points.
    #[schemars(length(min = 1, max = 64))]
    pub hooks: Option<Vec<HookName>>,
    /// true (the default): `mode: enforce, on_error: fail`; false: `mode: advise, on_error: skip`. Can't be combined
    /// with either.
    pub blocking: Option<bool>,
    /// What the plugin may do. Absent: enforce at points, advise at hooks, where nothing can be enforced.
    pub mode: Option<Mode>,
    /// What happens if the step fails. Absent: fail for enforce, skip for advise. Not allowed for observe.
    pub on_error: Option<OnError>,
    /// Timeout of the step, 10ms to 60s. Absent: the plugin's.
    pub timeout: Option<Span>,
    /// Tenant-level config of the step, for every tenant. References are not allowed.
    #[serde(default)]
    pub config: JsonObject,
    /// Payload fields that the plugin may patch. Absent: all fields that the point allows.
    pub writable: Option<Vec<String>>,
    /// Globs on names of the plugin's tools that the binding doesn't provide.
    #[serde(default)]
    pub deny_tools: Vec<String>,
    /// Conditions of the step. Absent: always runs.
    #[serde(rename = "match", default)]
    pub conditions: Match,
    /// Whether a tenant may disable it.
    #[serde(default)]
    pub overridable: bool,
    /// Who may write it; not part of what is written.
    #[serde(skip)]
    pub owner: Owner,
}

impl Binding {
    /// What the plugin may do: `mode` if set, otherwise by `blocking`, otherwise [`Mode::Enforce`] at points and
    /// [`Mode::Advise`] at hooks.
    pub fn mode(&self) -> Mode {
        match (self.mode, self.blocking) {
            (Some(mode), _) => mode,
            (None, Some(false)) => Mode::Advise,
            (None, None) if self.hooks.is_some() => Mode::Advise,
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
        match &self.name {
            Some(name) => name.into(),
            None => default_binding_name(&self.plugin, self.tenant.as_deref()).into(),
        }
    }

    /// Whether the binding is global (`*` or a selector), so that a tenant can only add to it.
    pub fn is_floor(&self) -> bool {
        matches!(self.tenant.as_deref(), None | Some("*"))
    }
}

/// The name of a binding that doesn't say one.
pub fn default_binding_name(plugin: &str, tenant: Option<&str>) -> String {
    match tenant {
        None | Some("*") => plugin.to_owned(),
        Some(tenant) => format!("{plugin}@{tenant}"),
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
    /// Globs on the context's `agent_path`: the agent with its ancestors, in the agent's own notation.
    #[schemars(length(min = 1))]
    pub agent_paths: Option<Vec<String>>,
    /// Globs on the payload's `model`, else the context's.
    #[schemars(length(min = 1))]
    pub models: Option<Vec<String>>,
    /// Globs on the request's labels, including `claim.*`, by key. Labels other than claims are given by the agent,
    /// and untrusted.
    pub labels: BTreeMap<String, Vec<String>>,
    /// Conditions on `text` or `content`, original or current; refused if `points` contains a tool point.
    pub text: Option<TextMatch>,
}

/// A condition on text: met when any entry of either list matches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TextMatch {
    /// Substrings of the text, case-sensitive.
    pub contains: Vec<String>,
    /// Regular expressions (Rust crate regex) found in the text.
    pub regex: Vec<String>,
}
