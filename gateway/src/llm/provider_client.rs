//! The HTTP clients of one provider.

use std::sync::OnceLock;

use reqwest::{Client, redirect::Policy};

use crate::{
    config::DialPolicy,
    core::error_chain::error_chain,
    net::{egress_resolver::EgressResolver, worker::WorkerId},
    tls,
};

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
        let of_others = build(tls.clone(), policy.clone())?;
        Ok(ProviderClient { tls, policy, of_others, of_workers: OnceLock::new() })
    }

    /// The client of this thread.
    pub(super) fn current(&self) -> &Client {
        let Some(worker) = WorkerId::current() else { return &self.of_others };
        let clients = self.of_workers.get_or_init(|| (0..worker.of.get()).map(|_| OnceLock::new()).collect());
        match clients.get(worker.index) {
            // No other worker has this place, so none waits for it.
            Some(client) => {
                let build = || build(self.tls.clone(), self.policy.clone());
                client.get_or_init(|| build().unwrap_or_else(|_| self.of_others.clone()))
            }
            None => &self.of_others,
        }
    }
}

fn build(tls: rustls::ClientConfig, policy: DialPolicy) -> Result<Client, String> {
    Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(Policy::none())
        .no_proxy()
        .referer(false)
        .dns_resolver(EgressResolver::new(policy))
        .connect_timeout(super::upstream::CONNECT_TIMEOUT)
        .user_agent(concat!("hookgate/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| format!("the HTTP client can't be set up: {}", error_chain(&error)))
}

#[cfg(test)]
mod tests {
    use std::{num::NonZeroUsize, ptr, sync::Arc};

    use tokio::sync::oneshot;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::net::worker::Workers;

    #[tokio::test]
    async fn each_worker_keeps_a_client_of_its_own() {
        let client = Arc::new(ProviderClient::new(DialPolicy::Any).unwrap());
        let workers = Workers::start(NonZeroUsize::new(2).unwrap()).unwrap();
        let tracker = TaskTracker::new();
        let (mut used, mut kept) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            let client = Arc::clone(&client);
            let (tell, told) = oneshot::channel();
            let (end, ended) = oneshot::channel::<()>();
            kept.push(end);
            workers.spawn(&tracker, async move {
                let worker = WorkerId::current().expect("it runs on a worker").index;
                let (first, again) = (client.current(), client.current());
                assert!(ptr::eq(first, again));
                tell.send((worker, ptr::from_ref(first).addr())).unwrap();
                let _ = ended.await;
            });
            used.push(told.await.unwrap());
        }
        assert!(used.iter().any(|(worker, _)| *worker == 1), "two workers serve four connections");
        let others = ptr::from_ref(client.current()).addr();
        for (worker, address) in &used {
            assert_ne!(*address, others);
            let same = used.iter().all(|(other, theirs)| (other == worker) == (theirs == address));
            assert!(same, "{used:?}");
        }
    }
}
