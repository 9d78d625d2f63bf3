//! Sends one request and reads one answer, within limits of time and size. Ignores proxies and redirects, so that the
//! token reaches only the named gateway.

use std::{error::Error, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, header};
use reqwest::{Certificate, Client, RequestBuilder, Response, redirect::Policy};
use serde_json::Value;

use super::{Answer, Place, Port};
use crate::output::printable;
use hookgate::{config::Span, core::error_chain::causes};

/// Added to the caller's timeout when waiting for a decision, because a late answer says where the time went.
const DECISION_GRACE: Duration = Duration::from_secs(1);
/// Largest answer, in bytes: a trace repeats the payload of up to 16 MiB a few times.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// Appended to errors after a write was sent and no answer came.
const WRITE_UNCONFIRMED: &str = "the write may have happened: check before you repeat it";

/// A client of one port of a gateway.
pub(crate) struct ApiClient {
    http: Client,
    port: Port,
    place: Place,
    token: Option<HeaderValue>,
    patience: Span,
}

/// An HTTP response, not necessarily from a gateway.
pub(crate) struct ApiResponse {
    pub(crate) status: u16,
    decision: Option<String>,
    pub(crate) text: String,
}

impl ApiClient {
    /// A client of the port at `place`; `cas` replace the system's.
    pub(super) fn new(
        port: Port,
        place: Place,
        token: Option<HeaderValue>,
        cas: Option<Vec<Certificate>>,
        patience: Span,
    ) -> Result<Self, String> {
        let agent = concat!("hookgate/", env!("CARGO_PKG_VERSION"));
        let mut client = Client::builder().no_proxy().redirect(Policy::none()).user_agent(agent);
        // Without TLS, don't read the system's CAs: a small container has none.
        let cas = if place.is_tls() { cas } else { Some(Vec::new()) };
        if let Some(cas) = cas {
            client = client.tls_certs_only(cas);
        }
        if let Some(socket) = place.socket() {
            client = client.unix_socket(socket);
        }
        let http = client.build().map_err(|error| {
            format!(
                "the HTTP client can't be set up: {}; give the CA of the gateway's certificate with --ca",
                why(&error)
            )
        })?;
        Ok(ApiClient { http, port, place, token, patience })
    }

    /// Sends one request to `path`, with an optional query and an optional JSON body.
    ///
    /// # Errors
    /// Why no gateway answered, and what to check.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<Answer, String> {
        let ApiResponse { status, decision, text } = self.send(method, path, body).await?;
        let body = serde_json::from_str::<Value>(&text).ok();
        let ours = |body: &Value| (200..300).contains(&status) || body["code"].is_string();
        let body = body.filter(ours).ok_or_else(|| self.strange(status))?;
        Ok(Answer { status, decision, text, body })
    }

    /// Like [`Self::ask`], but returns the answer even if it is an error.
    ///
    /// # Errors
    /// Why there was no answer, and what to check.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<ApiResponse, String> {
        let grace = if body.is_some() { DECISION_GRACE } else { Duration::ZERO };
        let is_patch = method == Method::PATCH;
        let changes_nothing =
            method == Method::GET || path.contains("dry_run=true") || path.contains("/check-upstreams");
        let is_write = self.port == Port::Admin && !changes_nothing;
        let mut request = self.request(method, path)?.timeout(self.patience.0 + grace);
        if let Some(body) = body {
            let millis = self.patience.0.as_millis().to_string();
            let content = if is_patch { "application/merge-patch+json" } else { "application/json" };
            request = request.header(header::CONTENT_TYPE, content);
            request = request.header("hookgate-timeout-ms", millis).body(body);
        }
        let lost = |error: &reqwest::Error| self.lost(is_write, error);
        let answer = request.send().await.map_err(|error| lost(&error))?;
        let status = answer.status().as_u16();
        // Take all of them: a repeated header is not a decision.
        let decisions = answer.headers().get_all("hookgate-decision").iter();
        let decisions: Vec<_> = decisions.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        let decision = (!decisions.is_empty()).then(|| decisions.join(", "));
        let text = self.text(answer).await;
        let text = text.map_err(|why| if is_write { format!("{why}; {WRITE_UNCONFIRMED}") } else { why })?;
        Ok(ApiResponse { status, decision, text })
    }

    /// The error if no answer came to a request that may be a write.
    fn lost(&self, is_write: bool, error: &reqwest::Error) -> String {
        if !is_write || error.is_connect() || error.is_builder() {
            return self.unanswered(error);
        }
        let base = self.base();
        if error.is_timeout() {
            return format!("no answer from {base} within {}; {WRITE_UNCONFIRMED}", self.patience);
        }
        format!("the answer from {base} was lost ({}); {WRITE_UNCONFIRMED}", why(error))
    }

    /// A request with the token, without a time limit.
    pub(super) fn request(&self, method: Method, path: &str) -> Result<RequestBuilder, String> {
        let url = self.place.base().join(path);
        let url = url.map_err(|error| format!("`{}` is not a valid path: {error}", printable(path)))?;
        let request = self.http.request(method, url);
        Ok(match &self.token {
            Some(token) => request.header(header::AUTHORIZATION, token.clone()),
            None => request,
        })
    }

    pub(super) async fn text(&self, mut answer: Response) -> Result<String, String> {
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| self.unanswered(&error))? {
            if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
                let most = MAX_RESPONSE_BYTES >> 20;
                return Err(format!("{} answered with more than {most} MiB; {}", self.base(), self.remedy()));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// The error for an answer that no gateway of this version gives.
    pub(crate) fn strange(&self, status: u16) -> String {
        format!("{} answered {status}, but not like a gateway; {}", self.base(), self.remedy())
    }

    pub(super) fn patience(&self) -> Duration {
        self.patience.0
    }

    /// The error for a timeout.
    pub(super) fn late(&self) -> String {
        format!("no answer from {} within {}; {}", self.base(), self.patience, self.remedy())
    }

    pub(super) fn unanswered(&self, error: &reqwest::Error) -> String {
        if error.is_timeout() {
            return self.late();
        }
        format!("no answer from {}: {}; {}", self.base(), why(error), self.remedy())
    }

    /// The address for display.
    pub(crate) fn base(&self) -> String {
        self.place.display()
    }

    /// What to check if another server answered.
    pub(crate) fn remedy(&self) -> &'static str {
        self.place.remedy(self.port)
    }
}

/// The innermost cause, which is the only specific one.
pub(super) fn why(error: &(dyn Error + 'static)) -> String {
    printable(&causes(error).last().unwrap_or(error).to_string())
}
