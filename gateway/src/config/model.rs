//! The configuration as plain data: every key of `hookgate.yaml` that this version serves, with its default.
//! `docs/configuration.md` and the JSON Schema are generated from these types; checks that need more than one
//! value are [`super::check`]'s.

use std::{borrow::Cow, collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::SecretString;
use serde::{Deserialize, Deserializer, de::Error as _};

use super::units::{Size, Span};
use crate::{
    point::Point,
    step::{Mode, OnError},
};

/// A JSON object whose members nobody here interprets.
pub type Object = serde_json::Map<String, serde_json::Value>;

const fn span(millis: u64) -> Span {
    Span(Duration::from_millis(millis))
}

/// `hookgate.yaml`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
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
    pub plugins: Vec<Plugin>,
    /// Which plugins run for whom, in which order.
    #[serde(default)]
    pub bindings: Vec<Binding>,
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
    /// HTTP status (400 to 499) of further block codes.
    #[serde(default)]
    pub block_status: BTreeMap<String, u16>,
    /// What an answer tells.
    #[serde(default)]
    pub answer: Answer,
    /// What is logged, and how.
    #[serde(default)]
    pub log: Log,
}

/// Where the gateway listens.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// Agents: HTTP and gRPC on one port.
    #[schemars(with = "String")]
    pub data_addr: SocketAddr,
    /// Operators: /livez, /readyz, /metrics and gRPC health, plaintext and without a token.
    #[schemars(with = "String")]
    pub ops_addr: SocketAddr,
}

impl Default for Server {
    fn default() -> Self {
        Server {
            data_addr: SocketAddr::from(([127, 0, 0, 1], 8080)),
            ops_addr: SocketAddr::from(([127, 0, 0, 1], 9090)),
        }
    }
}

/// Whose tokens are accepted.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// At least one.
    #[schemars(length(min = 1))]
    pub issuers: Vec<Issuer>,
}

/// One issuer of tokens.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// Equals the token's `iss`.
    pub issuer: String,
    /// Is among the token's `aud`.
    pub audience: String,
    /// Where the keys are published (RFC 7517); https, or http on loopback. Excludes `keys`.
    pub jwks_url: Option<String>,
    /// The keys. Excludes `jwks_url`.
    #[serde(default)]
    pub keys: Vec<Key>,
    /// The tenants it may speak for; mandatory with more than one issuer.
    #[serde(default)]
    pub tenants: Option<IssuerTenants>,
    /// The scopes it may grant.
    #[serde(default = "default_scopes")]
    pub scopes: Vec<Scope>,
    /// Where the token says what.
    #[serde(default)]
    pub claims: Claims,
    /// Tolerance on `exp` and `nbf`, 0s to 5m.
    #[serde(default = "default_leeway")]
    pub leeway: Span,
    /// How long fetched keys are fresh.
    #[serde(default = "default_jwks_ttl")]
    pub jwks_ttl: Span,
}

fn default_scopes() -> Vec<Scope> {
    vec![Scope::Invoke]
}

const fn default_leeway() -> Span {
    span(30_000)
}

const fn default_jwks_ttl() -> Span {
    span(300_000)
}

/// The tenants an issuer may speak for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IssuerTenants {
    /// `"*"`: whichever the token names.
    Any,
    /// `[ids]`: one of these.
    List(Vec<String>),
    /// `{fixed: id}`: always this one; the token needs no tenant claim.
    Fixed(String),
}

impl<'de> Deserialize<'de> for IssuerTenants {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde_json::Value;
        let text = |value: Value| match value {
            Value::String(id) => Ok(id),
            other => Err(D::Error::custom(format!("a tenant id is a string, not {other}"))),
        };
        match Value::deserialize(deserializer)? {
            Value::String(star) if star == "*" => Ok(IssuerTenants::Any),
            Value::Array(ids) => {
                Ok(IssuerTenants::List(ids.into_iter().map(text).collect::<Result<_, _>>()?))
            }
            Value::Object(mut map) if map.len() == 1 && map.contains_key("fixed") => {
                Ok(IssuerTenants::Fixed(text(map.remove("fixed").unwrap_or_default())?))
            }
            _ => Err(D::Error::custom("tenants is `*`, a list of ids, or `{fixed: id}`")),
        }
    }
}

impl JsonSchema for IssuerTenants {
    fn schema_name() -> Cow<'static, str> {
        "IssuerTenants".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "oneOf": [
            { "const": "*" },
            { "type": "array", "items": { "type": "string" }, "minItems": 1 },
            { "type": "object", "properties": { "fixed": { "type": "string" } }, "required": ["fixed"], "additionalProperties": false },
        ] })
    }
}

/// What a token may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
pub enum Scope {
    /// Call the extension points.
    #[serde(rename = "hookgate:invoke")]
    Invoke,
    /// Read status.
    #[serde(rename = "hookgate:read")]
    Read,
    /// Change configuration.
    #[serde(rename = "hookgate:admin")]
    Admin,
    /// Use host services as a plugin.
    #[serde(rename = "hookgate:plugin")]
    Plugin,
}

/// One verification key. Exactly one of `secret`, `pem_file`, `jwk_file`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// The token header's `kid` that names this key.
    pub kid: Option<String>,
    /// The algorithm; mandatory for `secret` and `pem_file`. The token's header never chooses it.
    pub alg: Option<String>,
    /// Shared secret of at least 32 bytes, for HS256, HS384, HS512. Write it as a reference.
    #[schemars(with = "Option<String>")]
    pub secret: Option<SecretString>,
    /// Public key in PEM.
    pub pem_file: Option<PathBuf>,
    /// Public key as a JWK.
    pub jwk_file: Option<PathBuf>,
}

/// Names of claims: literal, or JSON pointers when they start with `/`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Claims {
    /// The tenant.
    pub tenant: String,
    /// Who acts for the tenant.
    pub operator: String,
    /// The scopes: a string separated by spaces, or an array.
    pub scopes: String,
    /// The end user; absent: the request says it.
    pub user_id: Option<String>,
    /// Claims handed to plugins as labels `claim.NAME`.
    pub labels: Vec<String>,
}

impl Default for Claims {
    fn default() -> Self {
        Claims {
            tenant: "tenant_id".into(),
            operator: "sub".into(),
            scopes: "scope".into(),
            user_id: None,
            labels: Vec::new(),
        }
    }
}

/// The tenants.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tenants {
    /// What happens to a tenant that is not listed.
    pub unknown: UnknownTenant,
    /// The tenants with settings of their own.
    pub list: Vec<Tenant>,
}

/// What happens to a tenant that is not listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnknownTenant {
    /// Refused as TENANT_UNKNOWN (403).
    #[default]
    Refuse,
    /// Served with the bindings for all tenants.
    Accept,
}

/// One tenant.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    /// Opaque, 1 to 256 bytes, no control characters, never `*`.
    pub id: String,
    /// false: its calls are refused as TENANT_DISABLED (403).
    #[serde(default = "yes")]
    pub enabled: bool,
    /// What selectors of bindings see.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Tenant-level config by plugin name: replaces the top-level keys of the binding's.
    #[serde(default)]
    pub config: BTreeMap<String, Object>,
    /// Names of bindings switched off for this tenant; only overridable ones.
    #[serde(default)]
    pub disable: Vec<String>,
    /// Limits of this tenant.
    #[serde(default)]
    pub limits: TenantLimits,
    /// What an answer tells this tenant; absent members: as `answer` says.
    #[serde(default)]
    pub answer: TenantAnswer,
}

/// Limits of one tenant.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TenantLimits {
    /// Most calls under way; absent: `limits.tenant_in_flight`.
    pub in_flight: Option<usize>,
    /// Most calls per second, minute or hour, such as `100/s`; absent: `limits.tenant_rate`.
    pub rate: Option<String>,
}

/// What an answer tells one tenant.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TenantAnswer {
    /// Absent: as `answer.detail` says.
    pub detail: Option<Detail>,
}

/// One plugin. Exactly one of `endpoint`, `builtin`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plugin {
    /// `[A-Za-z][A-Za-z0-9_-]{0,63}`; equals the name in the plugin's manifest.
    pub name: String,
    /// false: not dialled, and no binding of it stands in any plan.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Runs in the gateway's process.
    pub builtin: Option<String>,
    /// `unix:///path` or `http://host:port`.
    pub endpoint: Option<String>,
    /// Range that the plugin's version must satisfy, such as `>=1.2, <2`.
    #[schemars(with = "Option<String>")]
    pub version: Option<semver::VersionReq>,
    /// Capabilities the plugin may ask for.
    #[serde(default)]
    pub grants: Vec<Capability>,
    /// Plugin-level config; references in it are resolved when it is handed over.
    #[serde(default)]
    pub config: Object,
    /// Whether a start fails without it; absent: true where an enabled binding with `on_error: fail` names it.
    pub required: Option<bool>,
    /// Sends a config that holds references over plaintext TCP beyond loopback too.
    #[serde(default)]
    pub allow_plaintext: bool,
    /// Times and numbers of calls.
    #[serde(default)]
    pub limits: PluginLimits,
    /// HTTP status (400 to 499) of further block codes of this plugin.
    #[serde(default)]
    pub block_status: BTreeMap<String, u16>,
}

/// What a plugin may ask of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, JsonSchema)]
pub enum Capability {
    /// Read the plugin's storage.
    #[serde(rename = "storage:read")]
    StorageRead,
    /// Write the plugin's storage.
    #[serde(rename = "storage:write")]
    StorageWrite,
    /// Write to the gateway's log.
    #[serde(rename = "log")]
    Log,
    /// Emit events.
    #[serde(rename = "emit")]
    Emit,
}

impl Capability {
    /// The name in manifests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Capability::StorageRead => "storage:read",
            Capability::StorageWrite => "storage:write",
            Capability::Log => "log",
            Capability::Emit => "emit",
        }
    }
}

/// Times and numbers of calls of one plugin.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PluginLimits {
    /// Time-out of a step, queue and connect included; 10ms to 60s.
    pub timeout: Span,
    /// Time-out of a dial, inside the step's; at most 60s.
    pub connect: Span,
    /// Time-out of Initialize; at most 120s.
    pub initialize: Span,
    /// Time-out of Shutdown; at most 30s.
    pub shutdown: Span,
    /// Most calls under way; 1 serialises the plugin.
    pub in_flight: usize,
    /// Most calls waiting for a place.
    pub queue: usize,
    /// Longest wait for a place; absent: a tenth of the step's time-out.
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
            queue: 64,
            queue_wait: None,
        }
    }
}

/// One binding: for whom, where and how a plugin runs. Exactly one of `tenant`, `selector`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Binding {
    /// Absent: the plugin's name, or `<plugin>@<tenant>` for one tenant.
    pub name: Option<String>,
    /// Name of the plugin.
    pub plugin: String,
    /// One tenant's id, or `*` for all.
    pub tenant: Option<String>,
    /// Labels that a tenant must have, all of them.
    pub selector: Option<BTreeMap<String, String>>,
    /// false: stands in no plan.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Ascending order of the chain; unique within a tenant's plan; negative allowed.
    pub priority: i64,
    /// The points; absent: those of the plugin's manifest.
    pub points: Option<Vec<Point>>,
    /// true (the default): `mode: enforce, on_error: fail`; false: `mode: advise, on_error: skip`. Excludes both.
    pub blocking: Option<bool>,
    /// What the plugin may do.
    pub mode: Option<Mode>,
    /// What a failure does; absent: fail for enforce, skip for advise; not for observe.
    pub on_error: Option<OnError>,
    /// Time-out of the step, 10ms to 60s; absent: the plugin's.
    pub timeout: Option<Span>,
    /// Tenant-level config of the step, for every tenant.
    #[serde(default)]
    pub config: Object,
    /// The only payload fields the plugin may patch; absent: all that the point allows.
    pub writable: Option<Vec<String>>,
    /// When the step runs; absent: always.
    #[serde(rename = "match", default)]
    pub conditions: Match,
    /// Whether a tenant may switch it off.
    #[serde(default)]
    pub overridable: bool,
}

/// Match conditions: keys are joined by AND, entries of a list by OR; globs know `*`, `?` and `[..]`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Match {
    /// Globs on the tool's name, original or current.
    pub tools: Option<Vec<String>>,
    /// Globs on the context's `agent_id`.
    pub agents: Option<Vec<String>>,
    /// Globs on the payload's `model`, else the context's.
    pub models: Option<Vec<String>>,
    /// Globs on the request's labels, `claim.*` included, by key.
    pub labels: BTreeMap<String, Vec<String>>,
    /// On `text` or `content`, original or current; not at the tool points.
    pub text: Option<TextMatch>,
}

/// A condition on text: met when any entry of either list matches.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TextMatch {
    /// Parts of the text, case-sensitive.
    pub contains: Vec<String>,
    /// Regular expressions found in the text.
    pub regex: Vec<String>,
}

/// Sizes, times and numbers of calls of the gateway process.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Largest request, at most 16MiB.
    pub request: Size,
    /// Payload bytes of all calls under way.
    pub bytes_in_flight: Size,
    /// Most calls under way.
    pub in_flight: usize,
    /// Most calls under way for one tenant.
    pub tenant_in_flight: usize,
    /// Most calls of one tenant, such as `100/s`; absent: no limit.
    pub tenant_rate: Option<String>,
    /// Longest invocation, 10ms to 60s.
    pub budget: Span,
    /// Most notices of one reply.
    pub notices: usize,
    /// All notices of one reply together.
    pub notice_bytes: Size,
    /// Details of one notice.
    pub details_bytes: Size,
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
        }
    }
}

/// What happens between SIGTERM and exit.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Drain {
    /// Readiness is off but calls are still taken.
    pub grace: Span,
    /// After that, how long calls under way may go on.
    pub finish: Span,
}

impl Default for Drain {
    fn default() -> Self {
        Drain { grace: span(5_000), finish: span(20_000) }
    }
}

/// The queue of each plugin that observes; the oldest entry gives way.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Observers {
    /// Most entries.
    pub items: usize,
    /// Most bytes.
    pub bytes: Size,
}

impl Default for Observers {
    fn default() -> Self {
        Observers { items: 1024, bytes: Size(16 << 20) }
    }
}

/// What a start waits for.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Startup {
    /// How long an unreachable required plugin is waited for.
    pub wait: Span,
}

impl Default for Startup {
    fn default() -> Self {
        Startup { wait: span(30_000) }
    }
}

/// What an answer tells.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Answer {
    /// How much.
    pub detail: Detail,
}

/// How much an answer tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Detail {
    /// Plugins, steps and why a plugin failed.
    #[default]
    Full,
    /// No plugin names, no steps, no operator details.
    Minimal,
}

/// What is logged, and how.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// Absent: pretty on a terminal, json elsewhere.
    pub format: Option<LogFormat>,
    /// The least weighty level that is logged.
    pub level: LogLevel,
}

/// Form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    Pretty,
    /// One JSON object a line.
    Json,
}

/// Level of a log line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
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

const fn yes() -> bool {
    true
}
