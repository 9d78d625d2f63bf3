//! [`EgressResolver`]: the addresses of a name to which an HTTP client may connect.

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::config::DialPolicy;

/// Resolves names for an HTTP client, each time it connects.
#[derive(Debug)]
pub(crate) struct EgressResolver {
    policy: DialPolicy,
}

impl EgressResolver {
    pub(crate) fn new(policy: DialPolicy) -> Self {
        EgressResolver { policy }
    }
}

impl Resolve for EgressResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.policy.at_host(name.as_str());
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let permitted = policy.permitted(addresses);
            let permitted = permitted.map_err(|refusal| format!("{}: {refusal}", name.as_str()))?;
            Ok(Box::new(permitted.into_iter()) as Addrs)
        })
    }
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
            let found = EgressResolver::new(policy).resolve(name.parse().unwrap()).await;
            found.map(Iterator::count).map_err(|error| error.to_string())
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
