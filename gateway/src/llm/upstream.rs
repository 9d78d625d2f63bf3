//! One provider of models: the HTTP client of a server, or the demo model.
//!
//! What crosses the client is listed: a few headers of the agent's request, a few of the provider's answer, and one
//! credential, the operator's or the tenant's, which no agent sees. It follows no redirect, uses no proxy from the environment, keeps no cookies and
//! decompresses nothing, since plugins judge the bytes as they are.
//!
//! A request is sent once; `ProviderClient::send` has the exceptions. Agents' SDKs retry what is worth it.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper_util::client::legacy;
use reqwest::Url;
use tokio::time::{Instant, timeout, timeout_at};

use crate::{
    config::{BuiltinModel, DialPolicy, ModelUpstream, ProviderKey},
    core::{
        api_format::ApiFormat,
        error_chain::{causes, error_chain},
    },
    egress,
    llm::{
        demo_model::{self, DemoAnswer, DemoBody},
        error_text,
        provider_client::ProviderClient,
    },
};

/// What providers get of agents that don't name themselves.
const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("hookgate/", env!("CARGO_PKG_VERSION")));
const ACCEPT_ANY: HeaderValue = HeaderValue::from_static("*/*");

/// Headers of agents' requests that providers get.
const FORWARDED: [&str; 8] = [
    "accept",
    "openai-beta",
    "anthropic-beta",
    "anthropic-version",
    "user-agent",
    "traceparent",
    "tracestate",
    "hookgate-depth",
];
/// Headers of providers' answers that agents get.
const PASSED: [&str; 5] =
    ["content-type", "retry-after", "retry-after-ms", "x-should-retry", "openai-processing-ms"];
const PASSED_PREFIXES: [&str; 2] = ["x-ratelimit-", "anthropic-ratelimit-"];
const REQUEST_IDS: [HeaderName; 2] =
    [HeaderName::from_static("x-request-id"), HeaderName::from_static("request-id")];
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// One provider of models. Its connections live as long as it does.
pub struct LlmUpstream {
    config: Arc<ModelUpstream>,
    name: Arc<str>,
    provider: Provider,
}

enum Provider {
    Http(Box<HttpProvider>),
    Demo,
    /// This machine may not reach it, or lacks its key: every request ends with this error.
    Barred(UpstreamError),
}

struct HttpProvider {
    /// The URL of the API, without a slash at its end.
    base: String,
    format: ApiFormat,
    /// The operator's credential.
    credential: Option<HeaderValue>,
    client: ProviderClient,
}

impl fmt::Debug for LlmUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LlmUpstream").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// How long a provider may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// From the start of sending until the answer begins.
    pub first_byte: Duration,
    /// Until the next piece of the body comes.
    pub idle: Duration,
    /// From the start of sending until the answer has ended.
    pub total: Duration,
}

/// Why there is no answer of a provider. No text of it holds a credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// Its key can't be resolved on this machine.
    #[error("its `credential` can't be resolved on this gateway: {0}")]
    NoCredential(String),
    /// It can't be reached, or the connection was lost.
    #[error("the provider is unavailable: {0}")]
    Unavailable(String),
    /// It took too long.
    #[error("{0}")]
    Timeout(UpstreamTimeout),
    /// What it sent is no answer that can be used.
    #[error("the provider's answer can't be used: {0}")]
    BadAnswer(String),
    /// Its answer has more bytes than `llm.limits.answer`.
    #[error("the provider's answer is larger than `llm.limits.answer`")]
    TooLarge,
}

/// What took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamTimeout {
    /// The begin of the answer.
    #[error("the provider has not begun its answer in time")]
    FirstByte,
    /// The next piece of the answer.
    #[error("the provider has sent nothing for too long")]
    Idle,
    /// The whole answer.
    #[error("the provider has not ended its answer in time")]
    Total,
}

impl LlmUpstream {
    /// The client of a provider.
    ///
    /// # Errors
    /// One sentence without the credential, if the checks of the configuration would have refused the entry, or the
    /// machine's certificate authorities can't be read.
    pub fn new(config: Arc<ModelUpstream>) -> Result<Self, String> {
        let provider = match (&config.builtin, &config.base_url) {
            (Some(BuiltinModel::DemoModel), _) => Provider::Demo,
            (None, Some(url)) => match barrier(&config) {
                Some(error) => Provider::Barred(error),
                None => Provider::Http(Box::new(HttpProvider::new(url, &config)?)),
            },
            (None, None) => return Err("none of `base_url`, `builtin` is given".into()),
        };
        Ok(LlmUpstream { name: config.name.as_str().into(), provider, config })
    }

    /// The provider's name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The API that it has.
    pub fn format(&self) -> ApiFormat {
        self.config.format
    }

    /// Whether this is the client of such an entry.
    pub fn is_from(&self, config: &ModelUpstream) -> bool {
        *self.config == *config
    }

    /// Posts `body` to `path` below the URL of the API, such as `chat/completions`, with what [`forwarded`] leaves of
    /// `headers`, and with `credential` instead of the upstream's own, if there is one.
    ///
    /// # Errors
    /// The answer has not begun, or is no answer of an API: see [`UpstreamError`]. A status of 400 or above is an answer.
    pub async fn send(
        &self,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
        credential: Option<&HeaderValue>,
        timeouts: UpstreamTimeouts,
    ) -> Result<UpstreamAnswer, UpstreamError> {
        let until = Instant::now() + timeouts.total;
        match &self.provider {
            Provider::Http(provider) => {
                let response =
                    provider.send(provider.post(path, headers, body, credential)?, timeouts).await?;
                let credential = credential.or(provider.credential.as_ref()).cloned();
                Ok(UpstreamAnswer::new(response, credential, timeouts.idle, until))
            }
            Provider::Demo => {
                let DemoAnswer { status, headers, body } = demo_model::answer(path, &body);
                let body = AnswerBody::Demo(body);
                Ok(UpstreamAnswer { status, headers, credential: None, idle: timeouts.idle, until, body })
            }
            Provider::Barred(error) => Err(error.clone()),
        }
    }

    /// Asks the provider for its models, with the upstream's own credential. `None`: it is the demo model, which answers to any
    /// name.
    ///
    /// # Errors
    /// As [`LlmUpstream::send`].
    pub async fn list_models(
        &self,
        timeouts: UpstreamTimeouts,
    ) -> Result<Option<UpstreamAnswer>, UpstreamError> {
        let provider = match &self.provider {
            Provider::Http(provider) => provider,
            Provider::Demo => return Ok(None),
            Provider::Barred(error) => return Err(error.clone()),
        };
        let until = Instant::now() + timeouts.total;
        let mut headers = HeaderMap::new();
        let path = match self.format() {
            ApiFormat::Openai => "models",
            ApiFormat::Anthropic => {
                headers.insert(ANTHROPIC_VERSION, HeaderValue::from_static("2023-06-01"));
                "v1/models?limit=1000"
            }
        };
        let response = provider.send(provider.get(path, &headers, None)?, timeouts).await?;
        Ok(Some(UpstreamAnswer::new(response, None, timeouts.idle, until)))
    }
}

impl HttpProvider {
    fn new(url: &str, config: &ModelUpstream) -> Result<Self, String> {
        let not_a_url = |error: &dyn fmt::Display| format!("`base_url` is not a URL: {error}");
        let url = Url::parse(url).map_err(|error| not_a_url(&error))?;
        if let Some(host) = url.host_str().filter(|host| egress::denies_literal(host)) {
            return Err(format!("`{host}` {}", egress::DENIED_MESSAGE));
        }
        let base = url.as_str().trim_end_matches('/').to_owned();
        base.parse::<Uri>().map_err(|error| not_a_url(&error))?;
        let client = ProviderClient::new(DialPolicy::for_upstream(config))?;
        let format = config.format;
        let credential = config.credential.as_ref().map(|key| credential_value(format, key)).transpose()?;
        Ok(HttpProvider { base, format, credential, client })
    }

    /// The response to a request, without its body.
    async fn send(
        &self,
        request: Request<Full<Bytes>>,
        timeouts: UpstreamTimeouts,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let UpstreamTimeouts { first_byte, total, .. } = timeouts;
        let late = if first_byte <= total { UpstreamTimeout::FirstByte } else { UpstreamTimeout::Total };
        let response = timeout(first_byte.min(total), self.client.send(request)).await;
        let response = response.map_err(|_| UpstreamError::Timeout(late))??;
        check(&response)?;
        Ok(response)
    }

    fn post(
        &self,
        path: &str,
        of_agent: &HeaderMap,
        body: Bytes,
        credential: Option<&HeaderValue>,
    ) -> Result<Request<Full<Bytes>>, UpstreamError> {
        let mut request = self.get(path, of_agent, credential)?;
        *request.method_mut() = Method::POST;
        *request.body_mut() = Full::new(body);
        // Without parameters: the body is read as UTF-8, as plugins were shown it.
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(request)
    }

    fn get(
        &self,
        path: &str,
        of_agent: &HeaderMap,
        credential: Option<&HeaderValue>,
    ) -> Result<Request<Full<Bytes>>, UpstreamError> {
        let uri = format!("{}/{path}", self.base).parse::<Uri>();
        let mut request = Request::new(Full::default());
        *request.uri_mut() = uri.map_err(|error| UpstreamError::Unavailable(error.to_string()))?;
        *request.headers_mut() = self.headers(of_agent, credential);
        Ok(request)
    }

    /// The headers of a request.
    fn headers(&self, of_agent: &HeaderMap, credential: Option<&HeaderValue>) -> HeaderMap {
        let mut headers = forwarded(of_agent);
        headers.entry(header::USER_AGENT).or_insert(USER_AGENT);
        headers.entry(header::ACCEPT).or_insert(ACCEPT_ANY);
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(value) = credential.or(self.credential.as_ref()) {
            let name = match self.format {
                ApiFormat::Openai => header::AUTHORIZATION,
                ApiFormat::Anthropic => API_KEY,
            };
            headers.insert(name, value.clone());
        }
        headers
    }
}

/// Why no request can be sent to an upstream of the API from this machine. It stops this upstream, not the revision.
fn barrier(config: &ModelUpstream) -> Option<UpstreamError> {
    let url = config.url_flaw().map(UpstreamError::Unavailable);
    url.or_else(|| config.credential_error.clone().map(UpstreamError::NoCredential))
}

/// Shorter credentials are no secrets.
const MIN_KEY_BYTES: usize = 8;

/// The scheme of OpenAI's credentials.
const BEARER: &str = "Bearer ";

/// The value of the header that sends `key` to a server with this API.
///
/// # Errors
/// One sentence without the key, if no header can carry it.
pub fn credential_value(format: ApiFormat, key: &ProviderKey) -> Result<HeaderValue, String> {
    let scheme = match format {
        ApiFormat::Openai => BEARER,
        ApiFormat::Anthropic => "",
    };
    let mut value = HeaderValue::from_str(&format!("{scheme}{}", key.expose()))
        .map_err(|_| "a credential holds characters that a header can't carry".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

/// A provider's answer, whose body has not been read.
#[derive(Debug)]
pub struct UpstreamAnswer {
    /// Its status: 200 to 299, or 400 to 599.
    pub status: StatusCode,
    /// All its headers.
    pub headers: HeaderMap,
    /// What the request was sent with.
    credential: Option<HeaderValue>,
    idle: Duration,
    until: Instant,
    body: AnswerBody,
}

#[derive(Debug)]
enum AnswerBody {
    Http(Incoming),
    Demo(DemoBody),
}

impl AnswerBody {
    /// The length, if the provider says it.
    fn length(&self) -> Option<u64> {
        match self {
            AnswerBody::Http(body) => body.size_hint().exact(),
            AnswerBody::Demo(_) => None,
        }
    }

    async fn piece(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        match self {
            AnswerBody::Http(body) => {
                while let Some(frame) = body.frame().await {
                    // Trailers are none of an API's answer.
                    if let Ok(piece) = frame?.into_data() {
                        return Ok(Some(piece));
                    }
                }
                Ok(None)
            }
            AnswerBody::Demo(body) => Ok(body.piece().await),
        }
    }
}

impl UpstreamAnswer {
    fn new(
        response: Response<Incoming>,
        credential: Option<HeaderValue>,
        idle: Duration,
        until: Instant,
    ) -> Self {
        let (head, body) = response.into_parts();
        UpstreamAnswer {
            status: head.status,
            headers: head.headers,
            credential,
            idle,
            until,
            body: AnswerBody::Http(body),
        }
    }

    /// The headers that agents get.
    pub fn passed_headers(&self) -> HeaderMap {
        only(&self.headers, |name| {
            PASSED.contains(&name) || PASSED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        })
    }

    /// The provider's id of the request, for `hookgate-upstream-request-id`.
    pub fn request_id(&self) -> Option<HeaderValue> {
        REQUEST_IDS.iter().find_map(|name| self.headers.get(name)).cloned()
    }

    /// Its body without the credential of the request: some providers repeat it in an error. A word such as `none`, which
    /// stands for no key, stays.
    pub fn without_credential(&self, body: &Bytes) -> Bytes {
        let value = self.credential.as_ref().map(HeaderValue::as_bytes).unwrap_or_default();
        let key = value.strip_prefix(BEARER.as_bytes()).unwrap_or(value);
        if key.len() < MIN_KEY_BYTES { body.clone() } else { error_text::without(key, body) }
    }

    /// The next piece of the body. A body of more than `limit` bytes in all, of which `received` came before, is refused.
    ///
    /// # Errors
    /// The body is longer, or has not ended in time, or the provider is silent, or the connection was lost before its end.
    pub async fn piece(&mut self, received: usize, limit: usize) -> Result<Option<Bytes>, UpstreamError> {
        if self.body.length().is_some_and(|length| length > limit as u64) {
            return Err(UpstreamError::TooLarge);
        }
        let idle_end = Instant::now() + self.idle;
        let late = if idle_end < self.until { UpstreamTimeout::Idle } else { UpstreamTimeout::Total };
        let piece = timeout_at(idle_end.min(self.until), self.body.piece()).await;
        let piece = piece.map_err(|_| UpstreamError::Timeout(late))??;
        match piece {
            Some(piece) if piece.len() > limit.saturating_sub(received) => Err(UpstreamError::TooLarge),
            piece => Ok(piece),
        }
    }
}

impl From<legacy::Error> for UpstreamError {
    fn from(error: legacy::Error) -> Self {
        UpstreamError::of_client(&error)
    }
}

impl From<hyper::Error> for UpstreamError {
    fn from(error: hyper::Error) -> Self {
        UpstreamError::of_client(&error)
    }
}

impl UpstreamError {
    fn of_client(error: &(dyn std::error::Error + 'static)) -> Self {
        let text = error_chain(error);
        if is_malformed(error) { UpstreamError::BadAnswer(text) } else { UpstreamError::Unavailable(text) }
    }
}

/// Whether the other side doesn't speak HTTP.
fn is_malformed(error: &(dyn std::error::Error + 'static)) -> bool {
    causes(error).any(|error| error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse))
}

/// Refuses an answer that is none of an API.
fn check(response: &Response<Incoming>) -> Result<(), UpstreamError> {
    let status = response.status();
    if status.is_informational() || status.is_redirection() {
        let why = format!(
            "it has the status {}, and redirects are not followed: check `base_url`",
            status.as_u16()
        );
        return Err(UpstreamError::BadAnswer(why));
    }
    let is_identity = |encoding: &HeaderValue| encoding.as_bytes().eq_ignore_ascii_case(b"identity");
    if !response.headers().get_all(header::CONTENT_ENCODING).iter().all(is_identity) {
        return Err(UpstreamError::BadAnswer(
            "it is compressed, although it was asked for uncompressed".into(),
        ));
    }
    Ok(())
}

/// The headers of an agent's request that providers get.
pub fn forwarded(headers: &HeaderMap) -> HeaderMap {
    only(headers, |name| FORWARDED.contains(&name))
}

fn only(headers: &HeaderMap, is_listed: impl Fn(&str) -> bool) -> HeaderMap {
    let listed = headers.iter().filter(|(name, _)| is_listed(name.as_str()));
    // Collecting would keep the last of several values.
    let mut kept = HeaderMap::new();
    for (name, value) in listed {
        kept.append(name, value.clone());
    }
    kept
}

#[cfg(test)]
#[path = "upstream_tests.rs"]
mod tests;
