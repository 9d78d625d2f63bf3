//! The LLM proxy: the providers of models, and which model goes to which of them. Plain data; `llm` makes
//! clients and routes from it.

use std::sync::Arc;

use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use super::{
    model::span,
    units::{Size, Span},
};

/// The LLM proxy.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LlmProxy {
    /// The providers of models, 1 to 64.
    #[schemars(length(min = 1))]
    pub upstreams: Vec<Arc<ModelUpstream>>,
    /// Which model goes to which provider, 1 to 256 rules: the first that matches. A model that none matches is unknown.
    #[schemars(length(min = 1))]
    pub models: Vec<ModelRule>,
    /// Names of members of requests that are accepted although they are refused by default, at most 64.
    #[serde(default)]
    pub allow: Vec<String>,
    /// Sizes, times and numbers of exchanges with providers.
    #[serde(default)]
    pub limits: LlmLimits,
}

/// A provider of models that serves the OpenAI API.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelUpstream {
    /// `[A-Za-z][A-Za-z0-9_-]{0,63}`; unique.
    pub name: String,
    /// URL of the API, such as `https://api.openai.com/v1`; `/chat/completions` and its like are added to it.
    pub base_url: String,
    /// The provider's key, sent as `authorization: Bearer`. Write it as a reference. Absent: none is sent.
    #[schemars(with = "Option<String>", extend("writeOnly" = true))]
    pub credential: Option<SecretString>,
    /// Allows sending the credential over plaintext HTTP beyond loopback.
    #[serde(default)]
    pub allow_plaintext: bool,
}

impl PartialEq for ModelUpstream {
    fn eq(&self, other: &Self) -> bool {
        // Destructured, so that a new field can't be forgotten.
        let ModelUpstream { name, base_url, credential, allow_plaintext } = self;
        let exposed = |secret: &Option<SecretString>| secret.as_ref().map(|s| s.expose_secret().to_owned());
        *name == other.name
            && *base_url == other.base_url
            && exposed(credential) == exposed(&other.credential)
            && *allow_plaintext == other.allow_plaintext
    }
}

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
}
