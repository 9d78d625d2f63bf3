//! One request, one answer, within bounds: its time and its size. Straight to the gateway, by no proxy of the
//! environment and after no redirect, so that the token goes where it was meant to.

use std::{error::Error, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, header};
use reqwest::{Certificate, Client, RequestBuilder, Response, redirect::Policy};
use serde_json::Value;

use super::{Answer, Place, Port};
use crate::output::printable;
use hookgate::config::Span;

/// How much longer than a caller is patient it waits for a decision, which says where the time went.
const DECISION_GRACE: Duration = Duration::from_secs(1);
/// Most of an answer that is read, in bytes: a trace repeats the payload, which has 16 MiB at most, a few times.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// What holds where a write was sent and no answer came.
const WRITE_UNCONFIRMED: &str = "it is not known whether it was written: look before you do it again";

/// A client of one port of a gateway.
pub(crate) struct ApiClient {
    http: Client,
    port: Port,
    place: Place,
    token: Option<HeaderValue>,
    patience: Span,
}

/// What came back, whoever answered.
pub(crate) struct ApiResponse {
    pub(crate) status: u16,
    decision: Option<String>,
    pub(crate) text: String,
}

impl ApiClient {
    /// A client of the port at `place`, which `cas` may vouch for instead of the machine's.
    pub(super) fn new(
        port: Port,
        place: Place,
        token: Option<HeaderValue>,
        cas: Option<Vec<Certificate>>,
        patience: Span,
    ) -> Result<Self, String> {
        let agent = concat!("hookgate/", env!("CARGO_PKG_VERSION"));
        let mut client = Client::builder().no_proxy().redirect(Policy::none()).user_agent(agent);
        // Where nobody has to be vouched for, the machine's CAs aren't even read: a small container has none.
        let cas = if place.is_tls() { cas } else { Some(Vec::new()) };
        if let Some(cas) = cas {
            client = client.tls_certs_only(cas);
        }
        if let Some(socket) = place.socket() {
            client = client.unix_socket(socket);
        }
        let http = client.build().map_err(|error| {
            format!(
                "no HTTP client could be set up: {}; --ca names the CA of a gateway's certificate",
                why(&error)
            )
        })?;
        Ok(ApiClient { http, port, place, token, patience })
    }

    /// Sends one request, with a body that is JSON or none, to `path`, which may have a query.
    ///
    /// # Errors
    /// Why no gateway answered, and what to look at.
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

    /// As [`Self::ask`], whatever the answer is.
    ///
    /// # Errors
    /// Why nobody answered, and what to look at.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<ApiResponse, String> {
        let grace = if body.is_some() { DECISION_GRACE } else { Duration::ZERO };
        let is_patch = method == Method::PATCH;
        let is_write = self.port == Port::Admin && method != Method::GET && !path.contains("dry_run=true");
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
        // All of them: a header that is there twice decides nothing.
        let decisions = answer.headers().get_all("hookgate-decision").iter();
        let decisions: Vec<_> = decisions.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        let decision = (!decisions.is_empty()).then(|| decisions.join(", "));
        let text = self.text(answer).await;
        let text = text.map_err(|why| if is_write { format!("{why}; {WRITE_UNCONFIRMED}") } else { why })?;
        Ok(ApiResponse { status, decision, text })
    }

    /// What to say where no answer came to what may have been a write.
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

    /// A request with the token, and without a limit to its time.
    pub(super) fn request(&self, method: Method, path: &str) -> Result<RequestBuilder, String> {
        let url = self.place.base().join(path);
        let url = url.map_err(|error| format!("`{}` is no path: {error}", printable(path)))?;
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

    /// What to say of an answer that no gateway of this version gives.
    pub(crate) fn strange(&self, status: u16) -> String {
        format!("{} answered {status}, but not as a gateway does; {}", self.base(), self.remedy())
    }

    /// How long it waits.
    pub(super) fn patience(&self) -> Duration {
        self.patience.0
    }

    /// What to say where no answer came in that time.
    pub(super) fn late(&self) -> String {
        format!("no answer from {} within {}; {}", self.base(), self.patience, self.remedy())
    }

    pub(super) fn unanswered(&self, error: &reqwest::Error) -> String {
        if error.is_timeout() {
            return self.late();
        }
        format!("no answer from {}: {}; {}", self.base(), why(error), self.remedy())
    }

    /// Where it is, as it is shown.
    pub(crate) fn base(&self) -> String {
        self.place.display()
    }

    /// What to look at where another answered.
    pub(crate) fn remedy(&self) -> &'static str {
        self.place.remedy(self.port)
    }
}

/// The innermost reason, which says what happened; those round it say that something did.
pub(super) fn why(error: &(dyn Error + 'static)) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    printable(&inner.to_string())
}
