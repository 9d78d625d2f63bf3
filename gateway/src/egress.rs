//! Addresses that the gateway never connects to: link-local ones, and those where clouds serve
//! credentials of machines (docs/protocol.md, section 5).
//!
//! The check is on the address that is dialled, not on the name, because the owner of a name can make it
//! resolve to anything. `hookgate-egress` has the list, which the plugin `webhook` also uses; `config` decides where
//! plugins may be beyond that.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

/// The explanation for a denied address.
pub(crate) const DENIED_MESSAGE: &str = "is a link-local or cloud metadata address, to which the gateway never \
                                         connects";

pub(crate) fn allows(address: IpAddr) -> bool {
    !hookgate_egress::is_denied(address)
}

/// Whether `host`, as written in a URL, is an address that must not be dialled. Names are checked when they
/// are resolved.
pub(crate) fn denies_literal(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<IpAddr>().is_ok_and(|address| !allows(address))
}

/// The addresses of `host`, separated into those that may be dialled and those that may not.
///
/// # Errors
/// The system's, when the name can't be resolved.
pub(crate) async fn resolve(host: &str, port: u16) -> io::Result<ResolvedAddresses> {
    let found = tokio::net::lookup_host((host, port)).await?;
    let (allowed, denied) = found.partition(|address| allows(address.ip()));
    Ok(ResolvedAddresses { allowed, denied })
}

/// The addresses of a name.
pub(crate) struct ResolvedAddresses {
    pub(crate) allowed: Vec<SocketAddr>,
    pub(crate) denied: Vec<SocketAddr>,
}

/// Resolves names for an HTTP client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EgressResolver;

impl reqwest::dns::Resolve for EgressResolver {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        Box::pin(async move {
            let ResolvedAddresses { allowed, denied } = resolve(name.as_str(), 0).await?;
            match denied.first() {
                Some(denied) if allowed.is_empty() => {
                    Err(format!("{} ({}) {DENIED_MESSAGE}", name.as_str(), denied.ip()).into())
                }
                _ => Ok(Box::new(allowed.into_iter()) as reqwest::dns::Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_and_metadata_addresses_are_denied_in_every_form() {
        for denied in [
            "169.254.0.0",
            "169.254.169.254",
            "169.254.255.255",
            "100.100.100.200",
            "fe80::1",
            "febf:ffff::1",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
            "64:ff9b:1::a9fe:a9fe",
            "::ffff:169.254.169.254",
            "::ffff:100.100.100.200",
            "64:ff9b::a9fe:a9fe",
        ] {
            assert!(!allows(denied.parse().unwrap()), "{denied}");
            assert!(denies_literal(denied) && denies_literal(&format!("[{denied}]")), "{denied}");
        }
    }

    #[test]
    fn their_neighbours_and_private_networks_are_allowed() {
        for allowed in [
            "169.253.255.255",
            "169.255.0.0",
            "100.100.100.199",
            "127.0.0.1",
            "10.0.0.1",
            "192.168.0.1",
            "::1",
            "fec0::1",
            "fd00:ec3::254",
            "64:ff9b::a00:1",
            "::ffff:10.0.0.1",
        ] {
            assert!(allows(allowed.parse().unwrap()), "{allowed}");
        }
        assert!(!denies_literal("metadata.example.com"));
    }

    #[tokio::test]
    async fn a_name_for_a_denied_address_is_told_apart_from_one_for_none() {
        // The system's resolver parses this number as an address; a name server could return the same
        // address.
        let resolved = resolve("2852039166", 80).await.unwrap();
        assert!(resolved.allowed.is_empty());
        assert_eq!(resolved.denied, ["169.254.169.254:80".parse().unwrap()]);
        let resolved = resolve("localhost", 80).await.unwrap();
        assert!(resolved.denied.is_empty() && !resolved.allowed.is_empty());

        let asked = reqwest::dns::Resolve::resolve(&EgressResolver, "2852039166".parse().unwrap()).await;
        let refused = asked.map(drop).expect_err("denied").to_string();
        assert!(refused.contains("169.254.169.254") && refused.contains("never connects"), "{refused}");
    }
}
