//! The LLM proxy: the providers of models, and which model goes to which of them. Plain data; `llm` makes
//! clients and routes from it.

use std::{borrow::Cow, collections::BTreeMap, fmt, sync::Arc};

use http::HeaderValue;
use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use super::{
    egress_policy::{Egress, ReferenceScope, Secrets},
    model::span,
    policy::DialPolicy,
    problem::Problem,
    reference,
    units::{Size, Span},
};
use crate::core::{api_format::ApiFormat, object::Owner};

/// The LLM proxy.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LlmProxy {
    /// The providers of models, at most 64. At least one, unless a `store` may have others.
    #[serde(default)]
    pub upstreams: Vec<Arc<ModelUpstream>>,
    /// Which model goes to which provider, at most 256 rules; at least one, unless a `store` may have others. The first
    /// that matches counts. Rules for providers of another API than the client's are skipped. A model that no rule matches
    /// is unknown.
    #[serde(default)]
    pub models: Vec<Arc<ModelRule>>,
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

impl LlmProxy {
    /// Maximum number of upstreams.
    pub const MAX_UPSTREAMS: usize = 64;
    /// Maximum number of rules for models. A request tries them one by one.
    pub const MAX_RULES: usize = 256;
}

/// A provider of models: a server with OpenAI's or Anthropic's API, or a model in the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelUpstream {
    /// `[A-Za-z][A-Za-z0-9_-]{0,63}`; unique.
    pub name: String,
    /// Labels for operators, for lists and for `hookgate apply --prune`; calls don't see them.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The API of the provider. Only clients of the same API reach it.
    #[serde(default)]
    pub format: ApiFormat,
    /// URL of the API. For `openai` with `/v1` at its end, such as `https://api.openai.com/v1`; for `anthropic` without it,
    /// such as `https://api.anthropic.com`. The gateway adds the rest of the path. Exactly one of `base_url` and `builtin`
    /// is given.
    pub base_url: Option<String>,
    /// A model in the gateway, for trying it without a provider: it repeats what it is told, and calls the tool that the
    /// user names.
    pub builtin: Option<BuiltinModel>,
    /// The provider's key, sent as `authorization: Bearer`, or as `x-api-key` where `format` is `anthropic`. Write it as a
    /// reference; through the API it can be nothing else. Absent: none is sent.
    pub credential: Option<ProviderKey>,
    /// Allows sending credentials over plaintext HTTP beyond loopback.
    #[serde(default)]
    pub allow_plaintext: bool,
    /// Who may write it; not part of what is written.
    #[serde(skip)]
    pub owner: Owner,
    /// Why `credential` could not be resolved on this machine: one sentence without a secret. Then no request is sent.
    #[serde(skip)]
    pub credential_error: Option<String>,
    /// Where an upstream of the API may be. `None` for one of the file, which may be anywhere.
    #[serde(skip)]
    pub egress: Option<Arc<Egress>>,
}

/// A model in the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BuiltinModel {
    /// It repeats what it is told, and calls the tool that the user names.
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

    /// The key that an upstream of the API refers to.
    ///
    /// # Errors
    /// One sentence without the key, if it can't be resolved on this machine, or may not be, or is no key.
    pub(super) fn resolve(&self, secrets: &Secrets) -> Result<Self, String> {
        let key = reference::resolve_within(self.expose(), ReferenceScope::Dir(&secrets.dir))?;
        match key_fault(&key) {
            Some((fault, _)) => Err(format!("the key {fault}")),
            None => Ok(ProviderKey(key.into())),
        }
    }
}

/// What is wrong with a provider's key, and what would be right.
pub(super) fn key_fault(key: &str) -> Option<(&'static str, &'static str)> {
    if key.is_empty() {
        Some(("is empty", "write the provider's key, or leave it out"))
    } else if HeaderValue::from_str(key).is_err() || key.contains(char::is_whitespace) {
        Some((
            "holds characters that no key has, such as a space or a line break",
            "write the provider's key alone, without `Bearer`",
        ))
    } else {
        None
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
    /// `[A-Za-z][A-Za-z0-9_-]{0,63}`, unique. Absent: `MATCH@UPSTREAM`.
    pub name: Option<String>,
    /// Labels for operators, for lists and for `hookgate apply --prune`; calls don't see them.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Position among the rules, ascending; may be negative. Rules with the same priority are in the order of the file, or
    /// of their names. Absent: 10 for the first rule of a file, 20 for the second and so on; 5000 for one of the API.
    pub priority: Option<i64>,
    /// Glob on the model that a request names: `*`, `?` and `[..]`.
    #[serde(rename = "match")]
    pub pattern: String,
    /// Name of the provider in `llm.upstreams`.
    pub upstream: String,
    /// The model's name at the provider. Absent: as the request names it.
    #[serde(rename = "as")]
    pub upstream_model: Option<String>,
}

impl ModelUpstream {
    /// Why `egress` forbids the URL, if that is certain without a lookup.
    pub(crate) fn url_flaw(&self) -> Option<String> {
        DialPolicy::for_upstream(self).flaw(self.base_url.as_deref()?)
    }

    /// What `egress` forbids and what could not be resolved on this machine; pointers begin at the entry. Looks up no
    /// names.
    pub(crate) fn flaws(&self) -> Vec<Problem> {
        let url = self.url_flaw().map(|flaw| Problem::new("/base_url", flaw));
        let key = self.credential_error.as_ref().map(|why| Problem::new("/credential", why.clone()));
        url.into_iter().chain(key).collect()
    }
}

impl ModelRule {
    /// The priority of a rule of the API that doesn't say one: behind all rules of a file.
    pub const API_PRIORITY: i64 = 5000;

    /// The name as written, or else the default. Unique among rules.
    pub fn effective_name(&self) -> Cow<'_, str> {
        match &self.name {
            Some(name) => name.into(),
            None => default_model_name(&self.pattern, &self.upstream).into(),
        }
    }

    /// The position among the rules.
    pub fn effective_priority(&self) -> i64 {
        self.priority.unwrap_or(ModelRule::API_PRIORITY)
    }
}

/// The name of a rule that doesn't say one.
pub fn default_model_name(pattern: &str, upstream: &str) -> String {
    format!("{pattern}@{upstream}")
}

/// The priority of a file's rule that doesn't say one, by its index.
pub(super) fn file_priority(index: usize) -> i64 {
    10 * i64::try_from(index).unwrap_or(i64::MAX / 20).saturating_add(1)
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
