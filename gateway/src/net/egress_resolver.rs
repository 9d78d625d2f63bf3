//! Where an HTTP client may connect: [`EgressResolver`] judges the addresses of a name, and [`EgressConnector`] an address in the place
//! of a name, for which no client asks a resolver.

use std::{
    net::SocketAddr,
    task::{Context, Poll},
};

use futures::{TryFutureExt as _, future::BoxFuture};
use http::Uri;
use hyper_util::client::legacy::connect::dns;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tower::{BoxError, Service};

use crate::{config::DialPolicy, egress};

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

/// A connector that connects to no address that the policy doesn't permit, however the address is written. The connector inside
/// resolves names with an [`EgressResolver`].
#[derive(Debug, Clone)]
pub(crate) struct EgressConnector<C> {
    policy: DialPolicy,
    inner: C,
}

impl<C> EgressConnector<C> {
    pub(crate) fn new(policy: DialPolicy, inner: C) -> Self {
        EgressConnector { policy, inner }
    }
}

impl<C> Service<Uri> for EgressConnector<C>
where
    C: Service<Uri, Error: Into<BoxError> + 'static, Future: Send + 'static, Response: Send + 'static>,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<C::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let address = uri.host().and_then(egress::literal_address);
        let refusal = address.and_then(|address| self.policy.permitted([(address, 0).into()]).err());
        match refusal {
            Some(refusal) => Box::pin(std::future::ready(Err(refusal.into()))),
            None => Box::pin(self.inner.call(uri).map_err(Into::into)),
        }
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

    fn egress(cidrs: &[&str], names: &[&str]) -> DialPolicy {
        let cidrs = cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect();
        let names = names.iter().map(|&name| name.to_owned()).collect();
        DialPolicy::Listed(Arc::new(Egress { cidrs, names, socket_dirs: Vec::new() }))
    }

    #[tokio::test]
    async fn an_address_in_the_place_of_a_name_is_judged_at_the_connection() {
        let dialled = tower::service_fn(async |uri: Uri| Ok::<_, BoxError>(uri));
        let local = || egress(&["127.0.0.1", "::1"], &["localhost"]);
        for (policy, url, expected) in [
            (local(), "http://127.0.0.1:1/", None),
            (local(), "http://[::1]:1/", None),
            (local(), "http://[::ffff:127.0.0.1]:1/", None),
            (local(), "http://a.test/", None), // its addresses are the resolver's
            (local(), "https://127.0.0.2/", Some("127.0.0.2 is in no network that `egress` permits")),
            (local(), "http://[::ffff:127.0.0.2]/", Some("is in no network that `egress` permits")),
            (local(), "http://[::2]/", Some("is in no network that `egress` permits")),
            (DialPolicy::Any, "http://127.0.0.2/", None),
            (DialPolicy::Any, "http://169.254.169.254/", Some("never connects")),
            (DialPolicy::Any, "http://[fd00:ec2::254]/", Some("never connects")),
        ] {
            let connected = EgressConnector::new(policy, dialled).call(Uri::from_static(url)).await;
            match expected {
                None => assert_eq!(connected.unwrap(), url),
                Some(reason) => {
                    let refused = connected.unwrap_err().to_string();
                    assert!(refused.contains(reason), "{url}: {refused}");
                }
            }
        }
    }

    #[tokio::test]
    async fn a_name_is_resolved_to_permitted_addresses_only() {
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
