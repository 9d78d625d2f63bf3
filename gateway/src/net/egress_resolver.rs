//! [`EgressResolver`]: the addresses of a name to which an HTTP client may connect.

use std::{
    net::SocketAddr,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::dns;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tower::{BoxError, Service};

use crate::config::DialPolicy;

/// Resolves names for an HTTP client, each time it connects.
#[derive(Debug, Clone)]
pub(crate) struct EgressResolver {
    policy: DialPolicy,
}

impl EgressResolver {
    pub(crate) fn new(policy: DialPolicy) -> Self {
        EgressResolver { policy }
    }
}

impl Service<dns::Name> for EgressResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: dns::Name) -> Self::Future {
        let policy = self.policy.clone();
        Box::pin(async move { permitted(&policy, name.as_str()).await })
    }
}

impl Resolve for EgressResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.policy.clone();
        Box::pin(async move { Ok(Box::new(permitted(&policy, name.as_str()).await?) as Addrs) })
    }
}

/// The addresses of a host that may be dialled.
async fn permitted(policy: &DialPolicy, host: &str) -> Result<std::vec::IntoIter<SocketAddr>, BoxError> {
    let addresses = tokio::net::lookup_host((host, 0)).await?;
    let permitted =
        policy.at_host(host).permitted(addresses).map_err(|refusal| format!("{host}: {refusal}"))?;
    Ok(permitted.into_iter())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::Egress;

    #[tokio::test]
    async fn a_name_is_resolved_to_permitted_addresses_only() {
        let egress = |cidrs: &[&str], names: &[&str]| {
            let cidrs = cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect();
            let names = names.iter().map(|&name| name.to_owned()).collect();
            DialPolicy::Listed(Arc::new(Egress { cidrs, names, socket_dirs: Vec::new() }))
        };
        let resolve = async |policy: DialPolicy, name: &str| {
            let mut resolver = EgressResolver::new(policy);
            let found = resolver.resolve(name.parse().unwrap()).await;
            let found = found.map(Iterator::count).map_err(|error| error.to_string());
            let of_service = resolver.call(name.parse().unwrap()).await;
            assert_eq!(found, of_service.map(Iterator::count).map_err(|error| error.to_string()));
            found
        };
        for policy in [DialPolicy::Any, egress(&["127.0.0.0/8"], &[]), egress(&[], &["localhost"])] {
            assert!(resolve(policy.clone(), "localhost").await.is_ok_and(|count| count > 0), "{policy:?}");
        }
        let refused = resolve(egress(&["10.0.0.0/8"], &["other"]), "localhost").await.unwrap_err();
        assert!(refused.contains("is in no network that `egress` permits"), "{refused}");
        // The system's resolver parses this number as an address; a name server could return the same address.
        for policy in [DialPolicy::Any, egress(&[], &["2852039166"])] {
            let denied = resolve(policy, "2852039166").await.unwrap_err();
            assert!(denied.contains("169.254.169.254") && denied.contains("never connects"), "{denied}");
        }
    }
}
