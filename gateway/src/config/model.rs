//! The configuration as plain data: every key of `hookgate.yaml` with its default. Issuers are in
//! [`super::auth`], plugins and bindings in [`super::plugin`]. `docs/configuration.md` and the JSON Schema
//! are generated from these types. `check` has the ranges, and the rules that involve several values.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    config::{
        auth::Auth,
        bypass::Bypass,
        egress_policy::{Egress, Secrets, SelfRegistration},
        llm::{LlmProxy, TenantLlm},
        plugin::{Binding, Plugin},
        reference,
        server::Server,
        units::{Rate, Size, Span},
    },
    core::{object::Owner, point::Point, step::OnError},
};

/// A JSON object whose members are not interpreted here.
pub type JsonObject = serde_json::Map<String, serde_json::Value>;

pub(super) const fn span(millis: u64) -> Span {
    Span(Duration::from_millis(millis))
}

/// `hookgate.yaml`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where the gateway listens.
    #[serde(default)]
    pub server: Server,
    /// Whose tokens are accepted.
    pub auth: Auth,
    /// The tenants, and what happens to the others.
    #[serde(default)]
    pub tenants: Tenants,
    /// The plugins, each a gRPC service or built in.
    #[serde(default)]
    pub plugins: Vec<Arc<Plugin>>,
    /// Which plugins run for which tenants, in which order.
    #[serde(default)]
    pub bindings: Vec<Arc<Binding>>,
    /// Sizes, times and numbers of calls.
    #[serde(default)]
    pub limits: Limits,
    /// What happens between SIGTERM and exit.
    #[serde(default)]
    pub drain: Drain,
    /// The queue of each plugin that observes.
    #[serde(default)]
    pub observers: Observers,
    /// What a start waits for.
    #[serde(default)]
    pub startup: Startup,
    /// HTTP status (400 to 499) of further block codes, by code; the protocol's codes have fixed statuses.
    #[serde(default)]
    #[schemars(extend("additionalProperties" = serde_json::json!({"type": "integer", "minimum": 400, "maximum": 499})))]
    pub block_status: BTreeMap<String, u16>,
    /// What an answer tells.
    #[serde(default)]
    pub answer: Answer,
    /// What operators see.
    #[serde(default)]
    pub telemetry: Telemetry,
    /// What is logged, and how.
    #[serde(default)]
    pub log: Log,
    /// The database with plugins, tenants, bindings, upstreams and models; absent: the file alone says what they are.
    pub store: Option<Store>,
    /// Where plugins may be that are written through the admin API or register themselves; nothing listed: nowhere.
    #[serde(default)]
    pub egress: Egress,
    /// What plugins that are written through the admin API may be given.
    #[serde(default)]
    pub secrets: Secrets,
    /// Plugins whose processes register themselves.
    #[serde(default)]
    pub self_registration: SelfRegistration,
    /// The LLM proxy: agents' requests to providers of models, with the plugins' decisions about them. Absent: it is not
    /// served.
    pub llm: Option<LlmProxy>,
    /// Bindings that don't stand for a tenant at this moment; not part of what is written.
    #[serde(skip)]
    pub bypasses: Vec<Arc<Bypass>>,
}

/// The database that several gateways share, and what this one does with it.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Store {
    /// `sqlite:PATH` for one gateway, `postgres://user@host:port/database` for several.
    #[schemars(with = "String")]
    pub url: StoreUrl,
    /// Whether `plugins`, `tenants.list` and `bindings` of the file are written to the store, at startup and when the
    /// file changes.
    pub apply_file: bool,
    /// File for the last active table (mode 0600), used by a start while the database can't be reached.
    pub last_good: PathBuf,
}

/// Where a database is. It may hold a password, which `Debug` doesn't show.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoreUrl(pub String);

impl StoreUrl {
    /// Without user, password and parameters.
    pub fn display(&self) -> String {
        reference::without_credentials(&self.0).unwrap_or_else(|| self.0.clone())
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.display())
    }
}

impl Default for Store {
    fn default() -> Self {
        Store {
            url: StoreUrl("sqlite:hookgate.db".into()),
            apply_file: true,
            last_good: "hookgate.last-good.json".into(),
        }
    }
}

/// The tenants.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tenants {
    /// How unlisted tenants are treated.
    pub unknown: UnknownTenant,
    /// Points at which no tenant's call passes without a step, in addition to those of the tenant. Where the
    /// tenant's plan has no step in mode enforce or advise, its calls are refused with STEPS_REQUIRED (503).
    pub require_steps: Vec<Point>,
    /// The listed tenants.
    pub list: Vec<Arc<Tenant>>,
}

/// How unlisted tenants are treated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnknownTenant {
    /// Refused as TENANT_UNKNOWN (403).
    #[default]
    Refuse,
    /// Served with the bindings for all tenants.
    Accept,
}

/// One tenant.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    /// Opaque, 1 to 256 bytes, no control characters, never `*`; unique.
    pub id: String,
    /// If false, the tenant's calls are refused with TENANT_DISABLED (403).
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Labels for selectors of bindings, and for operators.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Tenant-level config by plugin name: overrides top-level keys of the binding's config. References are not
    /// allowed.
    #[serde(default)]
    pub config: BTreeMap<String, JsonObject>,
    /// Names of global bindings that are disabled for this tenant; only overridable ones.
    #[serde(default)]
    pub disable: Vec<String>,
    /// Points at which this tenant's calls don't pass without a step, in addition to `tenants.require_steps`.
    #[serde(default)]
    pub require_steps: Vec<Point>,
    /// Limits of this tenant.
    #[serde(default)]
    pub limits: TenantLimits,
    /// Answer settings of this tenant; absent members are inherited from `answer`.
    #[serde(default)]
    pub answer: TenantAnswer,
    /// What this tenant may use of the LLM proxy.
    #[serde(default)]
    pub llm: TenantLlm,
}

/// Limits of one tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TenantLimits {
    /// Most calls in flight. Absent: `limits.tenant_in_flight`.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub in_flight: Option<usize>,
    /// Most calls per second, minute or hour, such as `100/s`. Absent: `limits.tenant_rate`.
    pub rate: Option<Rate>,
}

/// What an answer tells one tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TenantAnswer {
    /// Answer detail. Absent: `answer.detail`.
    pub detail: Option<Detail>,
}

/// Sizes, times and numbers of calls of the gateway process.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Largest request, 1B to 16MiB.
    pub request: Size,
    /// Most payload bytes of all calls in flight; at least `request`.
    pub bytes_in_flight: Size,
    /// Most calls in flight.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub in_flight: usize,
    /// Most calls in flight for one tenant.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub tenant_in_flight: usize,
    /// Largest rate of calls of one tenant, such as `100/s`. Absent: no limit.
    pub tenant_rate: Option<Rate>,
    /// Time budget of an invocation, 10ms to 60s.
    pub budget: Span,
    /// Most notices of one reply.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub notices: usize,
    /// Largest total size of a reply's notices; at most 16MiB.
    pub notice_bytes: Size,
    /// Largest details of one notice; at most 16MiB.
    pub details_bytes: Size,
    /// Most entries that a plugin may store for one tenant.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub storage_entries: usize,
    /// Most bytes of keys and values that a plugin may store for one tenant.
    pub storage_bytes: Size,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            request: Size(4 << 20),
            bytes_in_flight: Size(512 << 20),
            in_flight: 1024,
            tenant_in_flight: 128,
            tenant_rate: None,
            budget: span(15_000),
            notices: 16,
            notice_bytes: Size(8 << 10),
            details_bytes: Size(4 << 10),
            storage_entries: 100_000,
            storage_bytes: Size(64 << 20),
        }
    }
}

/// What happens between SIGTERM and exit.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Drain {
    /// Grace period, in which the gateway is not ready but still accepts calls; 0s to 1h.
    pub grace: Span,
    /// How long calls in flight may continue after the grace period; 0s to 1h.
    pub finish: Span,
}

impl Default for Drain {
    fn default() -> Self {
        Drain { grace: span(5_000), finish: span(20_000) }
    }
}

/// The queue of each plugin that observes; when it is full, the tenant with the most entries loses its oldest.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Observers {
    /// Most queued calls.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub items: usize,
    /// Most queued bytes.
    pub bytes: Size,
}

impl Default for Observers {
    fn default() -> Self {
        Observers { items: 1024, bytes: Size(16 << 20) }
    }
}

/// What a start waits for.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Startup {
    /// How long to wait for an unreachable required plugin; 0s to 1h.
    pub wait: Span,
}

impl Default for Startup {
    fn default() -> Self {
        Startup { wait: span(30_000) }
    }
}

/// What an answer tells.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Answer {
    /// Level of detail in answers.
    pub detail: Detail,
}

/// How much an answer tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Detail {
    /// Plugins, steps and why a plugin failed.
    #[default]
    Full,
    /// No plugin names, no steps, no operator details.
    Minimal,
}

/// What operators see beside the log and `/metrics`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Telemetry {
    /// Collector for metrics, traces and log lines over OTLP, such as `http://127.0.0.1:4317`. Absent: none.
    pub otlp_endpoint: Option<String>,
    /// Protocol of the collector.
    pub otlp_protocol: OtlpProtocol,
    /// Tenants that metrics name. Other tenants are not named.
    pub tenant_labels: Vec<String>,
    /// Invocations that take longer are logged as warnings, with their steps.
    pub slow_invocation: Span,
}

impl Default for Telemetry {
    fn default() -> Self {
        Telemetry {
            otlp_endpoint: None,
            otlp_protocol: OtlpProtocol::default(),
            tenant_labels: Vec::new(),
            slow_invocation: span(1_000),
        }
    }
}

/// How a collector is talked to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OtlpProtocol {
    /// gRPC, usually on port 4317.
    #[default]
    Grpc,
    /// Protobuf over HTTP, usually on port 4318; `/v1/traces` and its like are added to the endpoint.
    Http,
}

/// What is logged, and how.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// Log format. Absent: pretty on a terminal, else json. Pretty lines are coloured only on a terminal, unless
    /// `NO_COLOR` is set or `TERM` is `dumb`.
    pub format: Option<LogFormat>,
    /// Minimum level of log lines.
    pub level: LogLevel,
}

/// Form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    Pretty,
    /// One JSON object a line.
    Json,
}

/// Level of a log line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Only what needs a person.
    Error,
    /// And what may need one soon.
    Warn,
    /// And what happened.
    #[default]
    Info,
    /// And how.
    Debug,
    /// And everything else.
    Trace,
}

pub(super) const fn yes() -> bool {
    true
}

impl Config {
    /// The admin port's address. Returns `None` if no issuer grants tokens for the port, since nobody could
    /// use it.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        let grants = self.auth.issuers.iter().any(|issuer| issuer.admin_audience.is_some());
        grants.then_some(self.server.admin_addr)
    }

    /// The plugins that are required at startup: those that say so, and by default those of the file whose
    /// enabled bindings in the file fail closed. Disabled plugins are never required. Neither are plugins of
    /// the API by default, so that nobody can use the API to keep gateways from starting (docs/protocol.md,
    /// section 2), and plugins that register themselves.
    pub fn required(&self) -> BTreeSet<&str> {
        let fail_closed = self.fail_closed();
        let required = self.plugins.iter().filter(|plugin| requires(plugin, &fail_closed));
        required.map(|plugin| plugin.name.as_str()).collect()
    }

    /// Whether a start would fail without `plugin`, which need not be part of this configuration.
    pub fn requires(&self, plugin: &Plugin) -> bool {
        requires(plugin, &self.fail_closed())
    }

    /// The plugins of enabled bindings in the file that fail closed.
    fn fail_closed(&self) -> BTreeSet<&str> {
        let of_file = self.bindings.iter().filter(|binding| binding.owner == Owner::File && binding.enabled);
        let fail_closed = of_file.filter(|binding| binding.on_error() == OnError::Fail);
        fail_closed.map(|binding| binding.plugin.as_str()).collect()
    }
}

fn requires(plugin: &Plugin, fail_closed: &BTreeSet<&str>) -> bool {
    let by_itself = plugin.owner == Owner::File && fail_closed.contains(plugin.name.as_str());
    // A gateway that isn't ready gets no registrations, so nothing may wait for one.
    plugin.enabled && !plugin.self_registration && plugin.required.unwrap_or(by_itself)
}
