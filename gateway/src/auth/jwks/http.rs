//! Fetches a JWK set over HTTP within limits: https only (http on loopback), no redirects, no proxy, no
//! address that `egress` denies, at most 256 KiB, and one timeout for everything (docs/protocol.md, section
//! 5).

use std::time::Duration;

use futures::future::BoxFuture;
use http::{StatusCode, header};
use reqwest::{Client, Url, redirect::Policy};

use super::{Fetch, FetchError};
use crate::{
    config::DialPolicy, core::error_chain::error_chain, egress, net::egress_resolver::EgressResolver,
};

const MAX_DOCUMENT_BYTES: usize = 256 << 10;
/// Timeout of one fetch, including dial and body.
pub(super) const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Where one issuer publishes its keys.
#[derive(Debug)]
pub(super) struct Http {
    client: Client,
    url: Url,
}

impl Http {
    /// Checks `url`. `Err` says what would be right.
    pub(super) fn new(url: &str, limit: Duration) -> Result<Self, String> {
        let url = Url::parse(url).map_err(|error| format!("this is not a URL: {error}"))?;
        match url.scheme() {
            "https" => {}
            "http" if is_loopback(&url) => {}
            _ => return Err("keys are fetched over https (over http from loopback only)".to_owned()),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("the URL of keys must not contain a user name or a password".to_owned());
        }
        let client = Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            .dns_resolver(EgressResolver::new(DialPolicy::Any))
            .timeout(limit)
            .user_agent(concat!("hookgate/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| format!("the HTTP client can't be set up: {}", error_chain(&error)))?;
        Ok(Http { client, url })
    }

    async fn get(&self) -> Result<Vec<u8>, FetchError> {
        let transport = |error: reqwest::Error| FetchError::Transport(error_chain(&error.without_url()));
        let accepted = "application/jwk-set+json, application/json";
        let request = self.client.get(self.url.clone()).header(header::ACCEPT, accepted);
        let mut answer = request.send().await.map_err(transport)?;
        if answer.status() != StatusCode::OK {
            return Err(FetchError::Status(answer.status().as_u16()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(transport)? {
            if body.len() + chunk.len() > MAX_DOCUMENT_BYTES {
                return Err(FetchError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

impl Fetch for Http {
    fn fetch(&self) -> BoxFuture<'_, Result<Vec<u8>, FetchError>> {
        Box::pin(self.get())
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    host == "localhost" || egress::literal_address(host).is_some_and(|address| address.is_loopback())
}
