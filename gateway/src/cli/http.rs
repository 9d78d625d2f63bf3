//! How commands talk to a gateway over HTTP: one request, one answer, within bounds. No proxy of the environment is used
//! and no redirect followed, so that the token goes where it was meant to.

use std::{fmt::Write, path::Path, time::Duration};

use http::StatusCode;
use reqwest::{Certificate, Client, Url, redirect::Policy};

use super::output::printable;

/// Most of an answer that is read, in bytes.
const MAX_ANSWER: usize = 16 << 20;
/// Longest token, in bytes: the gateway takes 8 KiB.
const MAX_TOKEN: u64 = 64 << 10;
/// Where a token is, when no file is named.
pub(super) const TOKEN: &str = "HOOKGATE_TOKEN";

/// One port of a gateway.
pub(super) struct Http {
    client: Client,
    base: String,
    token: String,
    /// What to look at where nobody answers.
    remedy: &'static str,
}

/// What it answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
}

impl Http {
    /// The port at `base`, asked with `token`, where an answer takes at most `limit`. `ca` is a file with the CAs in PEM
    /// that vouch for it, in place of the machine's; `remedy` says whose address is wanted.
    ///
    /// # Errors
    /// A sentence on what is wrong with the URL or the file.
    pub(super) fn new(
        base: &str,
        ca: Option<&Path>,
        token: String,
        limit: Duration,
        remedy: &'static str,
    ) -> Result<Self, String> {
        let shown = printable(base);
        let url = Url::parse(base).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.filter(|url| url.has_host() && url.query().is_none() && url.fragment().is_none());
        let Some(url) = url else {
            return Err(format!("`{shown}` is no address: write `http://HOST:PORT` or `https://HOST:PORT`"));
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err("an address holds no user name and no password; the token says who asks".to_owned());
        }
        let mut client = Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            .timeout(limit)
            .user_agent(concat!("hookgate/", env!("CARGO_PKG_VERSION")));
        if let Some(file) = ca {
            client = client.tls_certs_only(certificates(file)?);
        }
        let client = client.build().map_err(|error| format!("no HTTP client: {}", chain(&error)))?;
        Ok(Http { client, base: url.as_str().trim_end_matches('/').to_owned(), token, remedy })
    }

    /// Asks for `path`, with its query.
    ///
    /// # Errors
    /// A sentence on why there is no answer, and what to look at.
    pub(super) async fn get(&self, path: &str) -> Result<Answer, String> {
        let asked = async {
            let request = self.client.get(format!("{}{path}", self.base)).bearer_auth(&self.token);
            let mut answer = request.send().await?;
            let (status, mut body) = (answer.status(), Vec::new());
            while let Some(chunk) = answer.chunk().await? {
                if body.len() + chunk.len() > MAX_ANSWER {
                    return Ok(Err(format!("the answer of {} is longer than 16 MiB", self.base)));
                }
                body.extend_from_slice(&chunk);
            }
            Ok(Ok(Answer { status, body }))
        };
        asked.await.unwrap_or_else(|error: reqwest::Error| Err(self.unanswered(&error)))
    }

    /// Where it is.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    fn unanswered(&self, error: &reqwest::Error) -> String {
        let why = printable(&chain(error));
        let mut said = format!("no answer from {}: {why}; {}", self.base, self.remedy);
        if why.contains("certificate") {
            let _ = write!(said, ", and --ca names the file of the CA that vouches for it");
        }
        said
    }
}

/// The token in `file`, else in the environment.
///
/// # Errors
/// A sentence, where there is none or it can't be one.
pub(super) fn token(file: Option<&Path>) -> Result<String, String> {
    let text = match file {
        Some(file) => {
            let wrong = |error| format!("can't read the token in {}: {error}", file.display());
            if std::fs::metadata(file).map_err(wrong)?.len() > MAX_TOKEN {
                return Err(format!("{} is too long for a token", file.display()));
            }
            std::fs::read_to_string(file).map_err(wrong)?
        }
        None => std::env::var(TOKEN).unwrap_or_default(),
    };
    let token = text.trim();
    if token.is_empty() {
        return Err(format!("there is no token: put one into {TOKEN}, or name a file with --token-file"));
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("this is no token: it holds a character that no token has".to_owned());
    }
    Ok(token.to_owned())
}

fn certificates(file: &Path) -> Result<Vec<Certificate>, String> {
    let pem = std::fs::read(file).map_err(|error| format!("can't read {}: {error}", file.display()))?;
    match Certificate::from_pem_bundle(&pem) {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) | Err(_) => Err(format!("{} holds no certificate in PEM", file.display())),
    }
}

/// The error with its causes; reqwest's own text is only the outermost, and names the URL.
fn chain(error: &reqwest::Error) -> String {
    let mut text = if error.is_timeout() { "none in time".to_owned() } else { String::new() };
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    if text.is_empty() { "the exchange broke off".to_owned() } else { text }
}
