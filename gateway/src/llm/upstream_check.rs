//! Checks of upstreams: each is asked for its models, so that operators learn of a wrong address or key before an agent does.
//!
//! Of a provider's answer a check tells its status and which models are missing, and no text: a provider may repeat the key there.

use std::{borrow::Cow, collections::HashSet, time::Duration};

use futures::{StreamExt as _, stream};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::{
    core::api_format::ApiFormat,
    llm::{
        routes::ModelRoutes,
        upstream::{LlmUpstream, UpstreamError, UpstreamTimeouts},
    },
};

/// For one upstream. Two rounds of them end before the command line gives up.
const CHECK_TIMEOUT: Duration = Duration::from_secs(8);
/// Half of the upstreams that a configuration may have.
const MAX_PARALLEL_CHECKS: usize = 32;
/// A list of thousands of models with their descriptions has about 1 MiB.
const MAX_LIST_BYTES: usize = 2 << 20;
/// Longest detail, in characters: the error of a handshake repeats the names in the provider's certificate.
const MAX_DETAIL_CHARS: usize = 500;

/// What a check finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamCheckResult {
    /// It lists its models, or is the demo model.
    Ok,
    /// It refuses the key, or wants one.
    CredentialRefused,
    /// This process can't resolve its `credential`.
    CredentialMissing,
    /// It can't be reached, or doesn't answer in time.
    Unreachable,
    /// It answers, but not with a list of models.
    NoModelList,
}

/// The check of one upstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UpstreamCheck {
    /// The upstream's name.
    pub name: String,
    /// What the check found.
    pub result: UpstreamCheckResult,
    /// Why it is not `Ok`; empty otherwise.
    pub detail: String,
    /// From the start of connecting to the end of the answer.
    pub duration_us: u64,
    /// How many models the provider lists. `None` without a list, and for the demo model, which answers to any name.
    pub models: Option<u64>,
    /// Models that rules ask for and that the list lacks.
    pub unlisted: Vec<UnlistedModel>,
}

/// A model that a rule asks for and that its provider doesn't list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnlistedModel {
    /// Name of the rule.
    pub rule: String,
    /// The model's name at the provider.
    pub model: String,
}

/// Checks the upstreams of these names, or all if there are no names. Asks each with its own credential, not with a tenant's.
pub async fn check_upstreams(routes: &ModelRoutes, names: &[String]) -> Vec<UpstreamCheck> {
    let is_named = |upstream: &LlmUpstream| names.iter().any(|name| **name == **upstream.name());
    let upstreams = routes.upstreams().iter().filter(|upstream| names.is_empty() || is_named(upstream));
    let checks: Vec<_> = upstreams.map(|upstream| check(routes, upstream, CHECK_TIMEOUT)).collect();
    stream::iter(checks).buffered(MAX_PARALLEL_CHECKS).collect().await
}

async fn check(routes: &ModelRoutes, upstream: &LlmUpstream, limit: Duration) -> UpstreamCheck {
    let began = Instant::now();
    let listed = listed_models(upstream, limit).await;
    let took = began.elapsed();
    let asked_for = routes.models_at(upstream.name());
    let (result, detail, models, unlisted) = match listed {
        Ok(Some(list)) => (
            UpstreamCheckResult::Ok,
            String::new(),
            Some(list.names.len() as u64),
            list.lacks(upstream.format(), &asked_for),
        ),
        Ok(None) => (UpstreamCheckResult::Ok, String::new(), None, Vec::new()),
        Err(failure) => (failure.result, failure.detail, None, Vec::new()),
    };
    UpstreamCheck {
        name: upstream.name().to_string(),
        result,
        detail,
        duration_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        models,
        unlisted,
    }
}

/// Why there is no list of models.
#[derive(Debug, PartialEq, Eq)]
struct CheckFailure {
    result: UpstreamCheckResult,
    detail: String,
}

impl CheckFailure {
    fn new(result: UpstreamCheckResult, detail: &str) -> Self {
        let printable = detail.chars().map(|c| if c.is_control() { ' ' } else { c });
        CheckFailure { result, detail: printable.take(MAX_DETAIL_CHARS).collect() }
    }

    fn from_status(status: StatusCode) -> Self {
        let status_code = status.as_u16();
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Self::new(
                UpstreamCheckResult::CredentialRefused,
                &format!("the provider answers with the status {status_code}: check `credential`"),
            ),
            _ => {
                let is_for_now = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
                let remedy = if is_for_now { "try again later" } else { "check `base_url` and `format`" };
                let detail = format!("the provider answers with the status {status_code}: {remedy}");
                Self::new(UpstreamCheckResult::NoModelList, &detail)
            }
        }
    }
}

impl From<UpstreamError> for CheckFailure {
    fn from(error: UpstreamError) -> Self {
        let result = match error {
            UpstreamError::NoCredential(_) => UpstreamCheckResult::CredentialMissing,
            UpstreamError::Unavailable(_) | UpstreamError::Timeout(_) => UpstreamCheckResult::Unreachable,
            UpstreamError::BadAnswer(_) => UpstreamCheckResult::NoModelList,
            UpstreamError::TooLarge => {
                let detail = format!("the provider's answer has more than {} MiB", MAX_LIST_BYTES >> 20);
                return Self::new(UpstreamCheckResult::NoModelList, &detail);
            }
        };
        Self::new(result, &error.to_string())
    }
}

/// The models of a provider. `None`: it is the demo model.
async fn listed_models(upstream: &LlmUpstream, limit: Duration) -> Result<Option<ModelList>, CheckFailure> {
    let timeouts = UpstreamTimeouts { first_byte: limit, idle: limit, total: limit };
    let Some(mut answer) = upstream.list_models(timeouts).await? else { return Ok(None) };
    if !answer.status.is_success() {
        return Err(CheckFailure::from_status(answer.status));
    }
    let mut body = Vec::new();
    while let Some(piece) = answer.piece(body.len(), MAX_LIST_BYTES).await? {
        body.extend_from_slice(&piece);
    }
    let list = ModelList::read(&body);
    let detail = "the provider's answer is not a list of models: check `base_url` and `format`";
    list.map(Some).ok_or_else(|| CheckFailure::new(UpstreamCheckResult::NoModelList, detail))
}

/// The names of a provider's models.
#[derive(Debug, PartialEq, Eq)]
struct ModelList {
    names: HashSet<String>,
    /// Whether there are others, on further pages.
    is_part: bool,
}

impl ModelList {
    /// Reads the list, which has the same members in both APIs.
    fn read(body: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct ModelListPage<'a> {
            #[serde(borrow)]
            data: Vec<ListedModel<'a>>,
            has_more: Option<bool>,
        }
        #[derive(Deserialize)]
        struct ListedModel<'a> {
            #[serde(borrow)]
            id: Cow<'a, str>,
        }
        let page: ModelListPage<'_> = serde_json::from_slice(body).ok()?;
        let names = page.data.into_iter().map(|model| model.id.into_owned()).collect();
        Some(ModelList { names, is_part: page.has_more == Some(true) })
    }

    /// Which of these models of rules it lacks. None if there are other pages: they may have them.
    fn lacks(&self, format: ApiFormat, asked_for: &[(&str, &str)]) -> Vec<UnlistedModel> {
        let is_listed = |model: &str| {
            self.names.contains(model)
                || format == ApiFormat::Anthropic
                    && self.names.iter().any(|name| without_date(name) == Some(model))
        };
        let missing = asked_for.iter().filter(|(_, model)| !self.is_part && !is_listed(model));
        let unlisted =
            |&(rule, model): &(&str, &str)| UnlistedModel { rule: rule.to_owned(), model: model.to_owned() };
        missing.map(unlisted).collect()
    }
}

/// The alias of a model of Anthropic's, whose list has only names with a date: `claude-x-4` of `claude-x-4-20250514`.
fn without_date(name: &str) -> Option<&str> {
    let (alias, date) = name.rsplit_once('-')?;
    (date.len() == 8 && date.bytes().all(|byte| byte.is_ascii_digit())).then_some(alias)
}

#[cfg(test)]
#[path = "upstream_check_tests.rs"]
mod tests;
