//! Sends one request and reads the answer within limits: no redirect, no proxy, no address that `dial` refuses,
//! a bounded body, and one timeout for everything.

use std::{fmt, path::Path, time::Duration};

use hookgate_sdk::{Context, InitError, PluginError};
use reqwest::{
    Certificate, Client, Response, StatusCode, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue},
    redirect::Policy,
};
use tokio::{fs::File, io::AsyncReadExt};

use crate::{delivery::Delivery, settings::Config, signature::SigningKeys};

const MAX_CA_FILE_BYTES: u64 = 1 << 20;
/// How long before the end of the step a request ends. So the error that names the service reaches the gateway, rather
/// than the gateway giving up on the plugin.
const REPLY_MARGIN: Duration = Duration::from_millis(20);

/// The service, and how to reach it.
pub(crate) struct WebhookClient {
    client: Client,
    url: Url,
    keys: SigningKeys,
    headers: HeaderMap,
    timeout: Duration,
    max_response_bytes: usize,
}

/// What a service answered.
#[derive(Debug)]
pub(crate) enum ServiceAnswer {
    /// 204.
    NoContent,
    /// The body of a 200.
    Body(Vec<u8>),
}

/// Why there is no valid answer. Never has a secret, the query of the URL, or text of the answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DeliveryError {
    /// The step has too little time left for a request.
    NoTimeLeft,
    /// There was no whole answer within this time.
    Timeout(Duration),
    /// No connection, or it broke: the causes.
    Transport(String),
    /// A status that is no answer.
    Status(StatusCode),
    /// The answer exceeds this many bytes.
    TooLarge(usize),
    /// The answer is no decision: why.
    NoDecision(String),
}

impl fmt::Display for DeliveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeliveryError::NoTimeLeft => f.write_str("was not asked: the step has no time left"),
            DeliveryError::Timeout(limit) => write!(f, "did not answer within {} ms", limit.as_millis()),
            DeliveryError::Transport(causes) => write!(f, "can't be reached: {causes}"),
            DeliveryError::Status(status) if status.is_redirection() => {
                write!(f, "answered {}, and redirects are not followed", status.as_u16())
            }
            DeliveryError::Status(status) => write!(f, "answered {}", status.as_u16()),
            DeliveryError::TooLarge(limit) => {
                write!(f, "answered with more than {limit} bytes (`max_response_bytes`)")
            }
            DeliveryError::NoDecision(fault) => write!(f, "gave an answer that is no decision: {fault}"),
        }
    }
}

impl WebhookClient {
    pub(crate) async fn new(config: &Config) -> Result<Self, InitError> {
        let (url, policy) = config.target()?;
        let mut builder = Client::builder()
            .redirect(Policy::none())
            // Otherwise reqwest repeats a request that the server didn't process.
            .retry(reqwest::retry::never())
            .no_proxy()
            .referer(false)
            .dns_resolver(policy)
            .user_agent(concat!("hookgate-webhook/", env!("CARGO_PKG_VERSION")));
        if let Some(file) = &config.ca_file {
            builder = builder.tls_certs_merge(read_certificates(file).await?);
        }
        let client = builder.build().map_err(|error| {
            InitError::unavailable(format!("the HTTP client can't be set up: {}", causes(&error)))
        })?;
        Ok(WebhookClient {
            client,
            url,
            keys: config.signing_keys()?,
            headers: config.headers()?,
            timeout: config.timeout()?,
            max_response_bytes: config.max_response_bytes()?,
        })
    }

    /// Sends the request and reads the answer.
    pub(crate) async fn ask(
        &self,
        ctx: &Context,
        delivery: Delivery,
    ) -> Result<ServiceAnswer, DeliveryError> {
        self.in_time(ctx, async {
            let response = self.send(ctx, delivery).await?;
            match response.status() {
                StatusCode::NO_CONTENT => Ok(ServiceAnswer::NoContent),
                StatusCode::OK => self.read(response).await.map(ServiceAnswer::Body),
                other => Err(DeliveryError::Status(other)),
            }
        })
        .await
    }

    /// Sends the request. Any status 2xx will do, and the body isn't read.
    pub(crate) async fn notify(&self, ctx: &Context, delivery: Delivery) -> Result<(), DeliveryError> {
        self.in_time(ctx, async {
            let status = self.send(ctx, delivery).await?.status();
            if status.is_success() { Ok(()) } else { Err(DeliveryError::Status(status)) }
        })
        .await
    }

    /// The error of the step, which names the service.
    pub(crate) fn to_plugin_error(&self, error: DeliveryError) -> PluginError {
        let host = self.url.host_str().unwrap_or_default();
        let text = format!("the webhook service {host} {error}");
        let is_outage = match error {
            DeliveryError::NoTimeLeft | DeliveryError::Timeout(_) | DeliveryError::Transport(_) => true,
            DeliveryError::Status(status) => {
                status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
            }
            DeliveryError::TooLarge(_) | DeliveryError::NoDecision(_) => false,
        };
        if is_outage { PluginError::unavailable(text) } else { PluginError::internal(text) }
    }

    async fn in_time<T>(
        &self,
        ctx: &Context,
        exchange: impl Future<Output = Result<T, DeliveryError>>,
    ) -> Result<T, DeliveryError> {
        let limit = match ctx.time_left() {
            Some(left) => self.timeout.min(left.saturating_sub(REPLY_MARGIN)),
            None => self.timeout,
        };
        if limit.is_zero() {
            return Err(DeliveryError::NoTimeLeft);
        }
        tokio::time::timeout(limit, exchange).await.map_err(|_| DeliveryError::Timeout(limit))?
    }

    async fn send(&self, ctx: &Context, delivery: Delivery) -> Result<Response, DeliveryError> {
        let Delivery { id, timestamp, body } = delivery;
        let signature = self.keys.sign(&id, timestamp, &body);
        let mut request = self
            .client
            .post(self.url.clone())
            .headers(self.headers.clone())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(ACCEPT, HeaderValue::from_static("application/json"))
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", signature);
        for (name, value) in [("traceparent", ctx.traceparent()), ("tracestate", ctx.tracestate())] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        request.body(body).send().await.map_err(transport)
    }

    async fn read(&self, mut response: Response) -> Result<Vec<u8>, DeliveryError> {
        let too_large = || DeliveryError::TooLarge(self.max_response_bytes);
        let max_length = u64::try_from(self.max_response_bytes).unwrap_or(u64::MAX);
        if response.content_length().is_some_and(|length| length > max_length) {
            return Err(too_large());
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(transport)? {
            if body.len() + chunk.len() > self.max_response_bytes {
                return Err(too_large());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

async fn read_certificates(path: &Path) -> Result<Vec<Certificate>, InitError> {
    let wrong = |fault: String| InitError::config("ca_file", format!("a PEM file of certificates: {fault}"));
    let unreadable = |error: std::io::Error| wrong(error.to_string());
    let mut pem = Vec::new();
    // A device or a pipe may have no end.
    let mut file = File::open(path).await.map_err(unreadable)?.take(MAX_CA_FILE_BYTES + 1);
    file.read_to_end(&mut pem).await.map_err(unreadable)?;
    if file.limit() == 0 {
        return Err(wrong("it is larger than 1 MiB".to_owned()));
    }
    let certificates = Certificate::from_pem_bundle(&pem).map_err(|error| wrong(causes(&error)))?;
    if certificates.is_empty() {
        return Err(wrong("it has none".to_owned()));
    }
    Ok(certificates)
}

/// The URL is left out, because its query may contain a token.
fn transport(error: reqwest::Error) -> DeliveryError {
    DeliveryError::Transport(causes(&error.without_url()))
}

/// The error with its causes; reqwest displays only the outermost.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
