//! Asking a gateway's data port as an agent does: where it is, with whose token, what it answers, or why nothing came
//! back. The token is never shown and never an argument, which every user of the machine could see.

use std::{io::Read, path::PathBuf, time::Duration};

use bytes::Bytes;
use clap::Args;
use http::{HeaderValue, Method, header};
use reqwest::{Certificate, Client, Url, redirect::Policy};
use serde_json::Value;

use super::{
    Exit,
    output::{self, Output, printable},
    token,
};
use crate::{config::Span, error::Code};

const ADDR_VARIABLE: &str = "HOOKGATE_ADDR";
const TOKEN_VARIABLE: &str = "HOOKGATE_TOKEN";
/// How much longer than the caller is patient it waits for an answer, which says where the time went.
const GRACE: Duration = Duration::from_secs(1);
const DEFAULT_ADDR: &str = "http://127.0.0.1:8080";
/// Most that is read of a token's or a CA's file, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Reads `--timeout`: as long as an agent may wait.
pub(super) fn patience(text: &str) -> Result<Span, String> {
    let span: Span = text.parse()?;
    let range = Duration::from_millis(1)..=Duration::from_secs(60);
    if range.contains(&span.0) { Ok(span) } else { Err("a caller waits from 1ms to 60s".into()) }
}

/// A gateway, and who asks it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Gateway")]
pub(super) struct Gateway {
    /// Its `server.data_addr` as a URL; absent: the variable `HOOKGATE_ADDR`, else `http://127.0.0.1:8080`.
    #[arg(long, value_name = "URL")]
    addr: Option<String>,
    /// CAs in PEM that may vouch for it at `https://`; absent: the machine's.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Holds the token; absent: the variable `HOOKGATE_TOKEN`. An argument would be seen by all users of the machine.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// A client of one gateway.
pub(super) struct Asker {
    http: Client,
    base: Url,
    token: HeaderValue,
    patience: Span,
}

/// What a gateway answered.
pub(super) struct Answer {
    pub(super) status: u16,
    /// `hookgate-decision`, which decisions alone have.
    pub(super) decision: Option<String>,
    /// The body as it came.
    pub(super) text: String,
    /// The body.
    pub(super) body: Value,
}

impl Gateway {
    /// A client that waits `patience` for each answer, and tells the gateway where it asks for a decision. Goes straight to the gateway: no proxy, no redirect.
    ///
    /// # Errors
    /// What was typed wrongly, in one sentence.
    pub(super) fn asker(&self, patience: Span) -> Result<Asker, String> {
        let base = self.base()?;
        let token = self.token()?;
        let mut client = Client::builder().no_proxy().redirect(Policy::none()).timeout(patience.0 + GRACE);
        if let Some(path) = &self.ca {
            let shown = printable(&path.display().to_string());
            let pem = read(path).map_err(|error| format!("--ca `{shown}` can't be read: {error}"))?;
            let certificates = Certificate::from_pem_bundle(&pem).ok().filter(|all| !all.is_empty());
            let unusable = || format!("--ca `{shown}` holds no certificate in PEM");
            client = client.tls_certs_only(certificates.ok_or_else(unusable)?);
        }
        let http =
            client.build().map_err(|error| format!("no HTTP client could be set up: {}", why(&error)))?;
        Ok(Asker { http, base, token, patience })
    }

    fn base(&self) -> Result<Url, String> {
        let variable = || std::env::var(ADDR_VARIABLE).ok().filter(|text| !text.is_empty());
        let (name, text) = match (&self.addr, variable()) {
            (Some(text), _) => ("--addr", text.clone()),
            (None, Some(text)) => (ADDR_VARIABLE, text),
            (None, None) => ("--addr", DEFAULT_ADDR.to_owned()),
        };
        let url =
            Url::parse(&text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let wrong = |what: &str| format!("{name} {what}: write it as {DEFAULT_ADDR}");
        let url = url.ok_or_else(|| wrong("is no URL of a gateway"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("holds a user or a password, and a gateway takes tokens alone"));
        }
        if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("ends behind the port"));
        }
        Ok(url)
    }

    fn token(&self) -> Result<HeaderValue, String> {
        let (name, text) = match &self.token_file {
            Some(path) => {
                let shown = printable(&path.display().to_string());
                let read =
                    read(path).map_err(|error| format!("--token-file `{shown}` can't be read: {error}"))?;
                (format!("--token-file `{shown}`"), String::from_utf8(read).unwrap_or_default())
            }
            None => (TOKEN_VARIABLE.to_owned(), std::env::var(TOKEN_VARIABLE).unwrap_or_default()),
        };
        let token = token::bare(&text);
        if token.is_empty() {
            return Err(format!(
                "there is no token in {name}: set {TOKEN_VARIABLE}, or give a file by --token-file; \
                 `hookgate token mint` makes one"
            ));
        }
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
            .ok()
            .filter(|_| token.bytes().all(|byte| byte.is_ascii_graphic()))
            .ok_or_else(|| format!("what {name} holds is no token: a token is one word of ASCII letters"))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

fn read(path: &std::path::Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Asker {
    /// Sends one request, with a body that is JSON or none.
    ///
    /// # Errors
    /// Why no gateway answered, and what to look at.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<Answer, String> {
        let mut url = self.base.clone();
        url.set_path(path);
        let mut request = self.http.request(method, url).header(header::AUTHORIZATION, self.token.clone());
        if let Some(body) = body {
            let millis = self.patience.0.as_millis().to_string();
            request = request.header(header::CONTENT_TYPE, "application/json");
            request = request.header("hookgate-timeout-ms", millis).body(body);
        }
        let received = async {
            let answer = request.send().await?;
            let status = answer.status().as_u16();
            let decision = answer.headers().get("hookgate-decision").and_then(|value| value.to_str().ok());
            let decision = decision.map(str::to_owned);
            Ok((status, decision, answer.text().await?))
        };
        let received: Result<_, reqwest::Error> = received.await;
        let (status, decision, text) = received.map_err(|error| self.unanswered(&error))?;
        let body = serde_json::from_str::<Value>(&text).ok();
        let ours = |body: &Value| (200..300).contains(&status) || body["code"].is_string();
        let body = body.filter(ours).ok_or_else(|| {
            format!("{} answered {status}, but not as a gateway does; {}", self.shown(), self.remedy())
        })?;
        Ok(Answer { status, decision, text, body })
    }

    fn unanswered(&self, error: &reqwest::Error) -> String {
        if error.is_timeout() {
            return format!("no answer from {} within {}; {}", self.shown(), self.patience, self.remedy());
        }
        format!("no answer from {}: {}; {}", self.shown(), why(error), self.remedy())
    }

    fn shown(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    fn remedy(&self) -> &'static str {
        match self.base.scheme() {
            "https" => "--addr is the gateway's `server.data_addr`, and --ca the CA of its certificate",
            _ => "--addr is the gateway's `server.data_addr`, at `https://` where it has `server.tls`",
        }
    }
}

/// The innermost reason, which says what happened; those round it say that something did.
fn why(error: &(dyn std::error::Error + 'static)) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    printable(&inner.to_string())
}

impl Answer {
    /// Prints the answer in the form asked for, JSON as it came, and gives back `exit`.
    pub(super) fn print(&self, output: Output, table: impl FnOnce() -> String, exit: Exit) -> Exit {
        match output {
            Output::Json => output::print(&format!("{}\n", self.text.trim_end()), exit),
            Output::Table | Output::Yaml => output::data(output, &self.body, table, exit),
        }
    }

    /// What an error says: its code, who failed, why, and what to do.
    pub(super) fn error(&self) -> String {
        let text = |value: &Value| printable(value.as_str().unwrap_or_default());
        let name = text(&self.body["code"]);
        if name.is_empty() {
            return format!(
                "the answer ({}) holds neither a decision nor an error: it is no gateway's",
                self.status
            );
        }
        let code = Code::ALL.iter().find(|code| code.as_str() == name);
        let who = code.map_or("gateway", |code| code.party().as_str());
        let mut said = format!("{name} (the {who} failed): {}", text(&self.body["detail"]));
        for wrong in self.body["errors"].as_array().into_iter().flatten() {
            said += &format!("\n  {}: {}", text(&wrong["pointer"]), text(&wrong["message"]));
        }
        if let Some(code) = code {
            said += &format!("\n  = {}", code.remedy());
        }
        said
    }
}
