//! The LLM proxy: the providers of models, and which model goes to which of them. Plain data; `llm` makes
//! clients and routes from it.

use std::{collections::BTreeMap, fmt, sync::Arc};

use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use super::{
    model::span,
    units::{Size, Span},
};
use crate::core::api_format::ApiFormat;

/// The LLM proxy.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LlmProxy {
    /// The providers of models, 1 to 64.
    #[schemars(length(min = 1))]
    pub upstreams: Vec<Arc<ModelUpstream>>,
    /// Which model goes to which provider, 1 to 256 rules. The first that matches counts. Rules for providers of another API
    /// than the client's are skipped. A model that no rule matches is unknown.
    #[schemars(length(min = 1))]
    pub models: Vec<ModelRule>,
    /// Names of members of requests that are accepted although they are refused by default, at most 64.
    #[serde(default)]
    pub allow: Vec<String>,
    /// Sizes, times and numbers of exchanges with providers.
    #[serde(default)]
    pub limits: LlmLimits,
    /// Tenants' own credentials, by the tenant's id: what the file's tenants have in [`TenantLlm::credentials`]. Kept
    /// here, so that the registry, which has the tenants, never holds a secret.
    #[serde(skip)]
    pub tenant_credentials: BTreeMap<String, TenantCredentials>,
}

/// A provider of models: a server with OpenAI's or Anthropic's API, or a model in the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelUpstream {
    /// `[A-Za-z][A-Za-z0-9_-]{0,63}`; unique.
    pub name: String,
    /// The API of the provider. Only clients of the same API reach it.
    #[serde(default)]
    pub format: ApiFormat,
    /// URL of the API. For `openai` with `/v1` at its end, such as `https://api.openai.com/v1`; for `anthropic` without it,
    /// such as `https://api.anthropic.com`. The gateway adds the rest of the path. Exactly one of `base_url` and `builtin`
    /// is given.
    pub base_url: Option<String>,
    /// A model in the gateway, for trying it without a provider: it repeats what it is told, and calls the tools that the
    /// user names.
    pub builtin: Option<BuiltinModel>,
    /// The provider's key, sent as `authorization: Bearer`, or as `x-api-key` where `format` is `anthropic`. Write it as a reference. Absent: none is sent.
    pub credential: Option<ProviderKey>,
    /// Allows sending credentials over plaintext HTTP beyond loopback.
    #[serde(default)]
    pub allow_plaintext: bool,
}

/// A model in the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BuiltinModel {
    /// It repeats what it is told, and calls the tools that the user names.
    DemoModel,
}

/// A provider's key, without `Bearer`.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ProviderKey(#[schemars(with = "String", extend("writeOnly" = true))] SecretString);

impl ProviderKey {
    /// The key. Never log it.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl From<&str> for ProviderKey {
    fn from(key: &str) -> Self {
        ProviderKey(key.into())
    }
}

impl fmt::Debug for ProviderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProviderKey(***)")
    }
}

impl PartialEq for ProviderKey {
    fn eq(&self, other: &Self) -> bool {
        self.expose() == other.expose()
    }
}

impl Eq for ProviderKey {}

/// A tenant's own credentials, by the upstream's name.
pub type TenantCredentials = BTreeMap<String, ProviderKey>;

/// Where requests for a model go.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelRule {
    /// Glob on the model that a request names: `*`, `?` and `[..]`.
    #[serde(rename = "match")]
    pub pattern: String,
    /// Name of the provider in `llm.upstreams`.
    pub upstream: String,
    /// The model's name at the provider. Absent: as the request names it.
    #[serde(rename = "as")]
    pub upstream_model: Option<String>,
}

/// Sizes, times and numbers of exchanges with providers of models.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LlmLimits {
    /// Largest request, 1B to 64MiB.
    pub request: Size,
    /// Largest answer, 1B to 64MiB.
    pub answer: Size,
    /// Most exchanges in flight.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub exchanges: usize,
    /// Most exchanges in flight for one tenant.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub tenant_exchanges: usize,
    /// How long a provider may take to begin its answer, 1ms to 1h.
    pub first_byte: Span,
    /// How long a provider may be silent within its answer, 1ms to 1h.
    pub idle: Span,
    /// How long a provider may take for the whole answer, 1ms to 1h; at least `first_byte`.
    pub total: Span,
}

impl Default for LlmLimits {
    fn default() -> Self {
        LlmLimits {
            request: Size(32 << 20),
            answer: Size(8 << 20),
            exchanges: 4096,
            tenant_exchanges: 512,
            first_byte: span(10 * 60_000),
            idle: span(5 * 60_000),
            total: span(60 * 60_000),
        }
    }
}

/// What one tenant may use of the LLM proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TenantLlm {
    /// Globs on the models that the tenant may name, at most 64. Absent: all that `llm.models` has; empty: none.
    pub models: Option<Vec<String>>,
    /// Keys of providers for this tenant's requests, by the upstream's name, instead of the upstream's `credential`; at
    /// most 64. Write them as references. Only tenants of the file have them.
    pub credentials: TenantCredentials,
}
