//! An HTTP client for exporters. Exporters run on threads without a runtime, but the client needs one, so
//! their requests run on the gateway's runtime.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use tokio::runtime::Handle;

use crate::{config::DialPolicy, net::egress_resolver::EgressResolver};

/// Sends an exporter's requests from the runtime in which it was created.
#[derive(Debug, Clone)]
pub(super) struct TokioHttpClient {
    client: Result<reqwest::Client, String>,
    runtime: Handle,
}

impl TokioHttpClient {
    /// A client with the request timeout `limit`, which connects to no address that `egress` denies. Call it within the runtime.
    pub(super) fn new(limit: Duration) -> Self {
        // Addresses in the place of a name are judged when the configuration is read.
        let builder = reqwest::Client::builder()
            .no_proxy()
            .timeout(limit)
            .redirect(reqwest::redirect::Policy::none())
            .dns_resolver(EgressResolver::new(DialPolicy::Any));
        TokioHttpClient {
            client: builder.build().map_err(|error| error.to_string()),
            runtime: Handle::current(),
        }
    }
}

#[async_trait]
impl HttpClient for TokioHttpClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone()?;
        let request = reqwest::Request::try_from(request)?;
        let send = async move {
            let answer = client.execute(request).await?;
            let mut response = Response::builder().status(answer.status());
            if let Some(headers) = response.headers_mut() {
                headers.clone_from(answer.headers());
            }
            Ok::<_, HttpError>(response.body(answer.bytes().await?)?)
        };
        self.runtime.spawn(send).await?
    }
}
