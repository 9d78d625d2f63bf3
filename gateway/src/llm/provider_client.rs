//! The HTTP clients of one provider.

use std::{sync::OnceLock, time::Duration};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use tokio::net::TcpStream;
use tower::{BoxError, timeout::Timeout, util::BoxCloneSyncService};

use crate::{
    config::DialPolicy,
    net::{
        egress_resolver::{EgressConnector, EgressResolver},
        worker::WorkerId,
    },
    tls,
};

/// For the connection, with TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection waits for its next request.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Between probes of a silent connection. Three unanswered ones end it.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 3;
/// How long what was sent may stay unacknowledged.
#[cfg(target_os = "linux")]
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(30);

type Client = legacy::Client<Connector, Full<Bytes>>;
type Connector = BoxCloneSyncService<Uri, MaybeHttpsStream<TokioIo<TcpStream>>, BoxError>;

/// The HTTP client of a provider: one for each worker, and one for all other threads.
///
/// The runtime that makes a connection also drives it. So an exchange stays on its worker's thread: waking another thread
/// costs more than the gateway's own work on an exchange.
#[derive(Debug)]
pub(super) struct ProviderClient {
    /// Clients share it, and with it the machine's CAs.
    tls: rustls::ClientConfig,
    policy: DialPolicy,
    of_others: Client,
    of_workers: OnceLock<Box<[OnceLock<Client>]>>,
}

impl ProviderClient {
    /// # Errors
    /// One sentence, if the machine trusts no CA.
    pub(super) fn new(policy: DialPolicy) -> Result<Self, String> {
        let tls = tls::http_client_config()?;
        Ok(Self::with_tls(tls, policy))
    }

    fn with_tls(mut tls: rustls::ClientConfig, policy: DialPolicy) -> Self {
        // The connector adds its own.
        tls.alpn_protocols.clear();
        let of_others = build(tls.clone(), policy.clone());
        ProviderClient { tls, policy, of_others, of_workers: OnceLock::new() }
    }

    /// Sends a request. The client sends it again only where the connection was closed while it was idle, before anything
    /// was written.
    ///
    /// # Errors
    /// There is no answer.
    pub(super) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, legacy::Error> {
        self.current().request(request).await
    }

    /// The client of this thread.
    fn current(&self) -> &Client {
        let Some(worker) = WorkerId::current() else { return &self.of_others };
        let clients = self.of_workers.get_or_init(|| (0..worker.of.get()).map(|_| OnceLock::new()).collect());
        match clients.get(worker.index) {
            // No other worker has this place, so none waits for it.
            Some(client) => client.get_or_init(|| build(self.tls.clone(), self.policy.clone())),
            None => &self.of_others,
        }
    }
}

fn build(tls: rustls::ClientConfig, policy: DialPolicy) -> Client {
    let mut http = HttpConnector::new_with_resolver(EgressResolver::new(policy.clone()));
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT_TIMEOUT));
    http.set_keepalive(Some(KEEPALIVE));
    http.set_keepalive_interval(Some(KEEPALIVE));
    http.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    #[cfg(target_os = "linux")]
    http.set_tcp_user_timeout(Some(TCP_USER_TIMEOUT));
    // HTTP/1.1 only: an exchange has its connection to itself, so no tenant waits for another that doesn't read, or that uses
    // up a connection's streams (docs/decisions/0084-http-1-1-towards-providers.md).
    let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
    legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .build(Connector::new(Timeout::new(
            https.wrap_connector(EgressConnector::new(policy, http)),
            CONNECT_TIMEOUT,
        )))
}

#[cfg(test)]
#[path = "provider_client_tests.rs"]
mod tests;
