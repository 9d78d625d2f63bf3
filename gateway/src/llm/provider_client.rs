//! The HTTP clients of one provider.

use std::sync::OnceLock;

use reqwest::{
    Client,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect::Policy,
};

use crate::{
    config::DialPolicy,
    core::error_chain::error_chain,
    egress::{self, ResolvedAddresses},
    net::worker::WorkerId,
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
        .dns_resolver(ProviderResolver { policy })
        .connect_timeout(super::upstream::CONNECT_TIMEOUT)
        .user_agent(concat!("hookgate/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| format!("the HTTP client can't be set up: {}", error_chain(&error)))
}

/// Resolves the name of a provider to the addresses where it may be.
#[derive(Debug)]
struct ProviderResolver {
    policy: DialPolicy,
}

impl Resolve for ProviderResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.policy.at_host(name.as_str());
        Box::pin(async move {
            let ResolvedAddresses { allowed, denied } = egress::resolve(name.as_str(), 0).await?;
            let (permitted, refused): (Vec<_>, Vec<_>) = allowed
                .into_iter()
                .map(|address| policy.permit(address.ip()).map(|()| address))
                .partition(Result::is_ok);
            if permitted.is_empty() {
                if let Some(Err(why)) = refused.into_iter().next() {
                    return Err(format!("{}: {why}", name.as_str()).into());
                }
                if let Some(address) = denied.first() {
                    let why = format!("{} ({}) {}", name.as_str(), address.ip(), egress::DENIED_MESSAGE);
                    return Err(why.into());
                }
            }
            Ok(Box::new(permitted.into_iter().flatten()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{num::NonZeroUsize, ptr, sync::Arc};

    use tokio::sync::oneshot;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::{config::Egress, net::worker::Workers};

    #[tokio::test]
    async fn a_name_is_resolved_to_permitted_addresses_only() {
        let egress = |cidrs: &[&str], names: &[&str]| {
            let cidrs = cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect();
            let names = names.iter().map(|&name| name.to_owned()).collect();
            DialPolicy::Listed(Arc::new(Egress { cidrs, names, socket_dirs: Vec::new() }))
        };
        let resolve = async |policy: DialPolicy, name: &str| {
            let found = ProviderResolver { policy }.resolve(name.parse().unwrap()).await;
            found.map(Iterator::count).map_err(|error| error.to_string())
        };
        for policy in [DialPolicy::Any, egress(&["127.0.0.0/8"], &[]), egress(&[], &["localhost"])] {
            assert!(resolve(policy.clone(), "localhost").await.is_ok_and(|count| count > 0), "{policy:?}");
        }
        let refused = resolve(egress(&["10.0.0.0/8"], &["other"]), "localhost").await.unwrap_err();
        assert!(refused.contains("is in no network that `egress` permits"), "{refused}");
        // The system's resolver parses this number as an address.
        let denied = resolve(egress(&[], &["2852039166"]), "2852039166").await.unwrap_err();
        assert!(denied.contains("169.254.169.254") && denied.contains("never connects"), "{denied}");
    }

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
