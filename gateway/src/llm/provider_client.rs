//! The HTTP clients of one provider.

use std::sync::OnceLock;

use reqwest::{Client, redirect::Policy};

use crate::{core::error_chain::error_chain, egress::EgressResolver, net::worker::WorkerId, tls};

/// The HTTP client of a provider: one for each worker, and one for all other threads.
///
/// The runtime that makes a connection also drives it. So an exchange stays on its worker's thread: waking another thread
/// costs more than the gateway's own work on an exchange.
#[derive(Debug)]
pub(super) struct ProviderClient {
    /// Clients share it, and with it the machine's CAs.
    tls: rustls::ClientConfig,
    of_others: Client,
    of_workers: OnceLock<Box<[OnceLock<Client>]>>,
}

impl ProviderClient {
    /// # Errors
    /// One sentence, if the machine trusts no CA.
    pub(super) fn new() -> Result<Self, String> {
        let tls = tls::http_client_config()?;
        let of_others = build(tls.clone())?;
        Ok(ProviderClient { tls, of_others, of_workers: OnceLock::new() })
    }

    /// The client of this thread.
    pub(super) fn current(&self) -> &Client {
        let Some(worker) = WorkerId::current() else { return &self.of_others };
        let clients = self.of_workers.get_or_init(|| (0..worker.of.get()).map(|_| OnceLock::new()).collect());
        match clients.get(worker.index) {
            // No other worker has this place, so none waits for it.
            Some(client) => {
                client.get_or_init(|| build(self.tls.clone()).unwrap_or_else(|_| self.of_others.clone()))
            }
            None => &self.of_others,
        }
    }
}

fn build(tls: rustls::ClientConfig) -> Result<Client, String> {
    Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(Policy::none())
        .no_proxy()
        .referer(false)
        .dns_resolver(EgressResolver)
        .connect_timeout(super::upstream::CONNECT_TIMEOUT)
        .user_agent(concat!("hookgate/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| format!("the HTTP client can't be set up: {}", error_chain(&error)))
}
