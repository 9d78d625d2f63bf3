//! Which addresses are dialled. The check is on the address that a name resolves to, in the client's own resolver, so a
//! name can't change its meaning between the check and the dial.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use hookgate_egress::{Network, is_denied, is_public, unwrap_v4};
use hookgate_sdk::InitError;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Which addresses are dialled.
#[derive(Debug, Clone)]
pub(crate) struct DialPolicy {
    /// The networks that may be dialled although they aren't public.
    networks: Arc<[Network]>,
    /// Over http, which anyone on the way can read, only listed networks are dialled.
    is_plain: bool,
}

impl DialPolicy {
    pub(crate) fn new(cidrs: &[String], is_plain: bool) -> Result<Self, InitError> {
        let parse = |(index, text): (usize, &String)| {
            let expected = "a network without bits after its prefix, such as `10.1.0.0/16` or `fd00::/8`, or one address";
            text.parse().map_err(|_: String| InitError::config(&format!("egress.cidrs[{index}]"), expected))
        };
        let networks: Arc<[Network]> = cidrs.iter().enumerate().map(parse).collect::<Result<_, _>>()?;
        if is_plain && networks.is_empty() {
            return Err(InitError::config("egress.cidrs", "the networks to which `http://` may go"));
        }
        Ok(DialPolicy { networks, is_plain })
    }

    /// `Err` says why the address is not dialled, without a subject.
    pub(crate) fn check(&self, address: IpAddr) -> Result<(), &'static str> {
        // What answers is the IPv4 address inside, so that is what has to be listed.
        let inner = unwrap_v4(address);
        let is_listed = self.networks.iter().any(|network| network.contains(inner));
        if is_denied(address) {
            Err("is a link-local or cloud metadata address, which is never dialled")
        } else if is_listed {
            Ok(())
        } else if !is_public(address) {
            Err("is not a public address, and `egress.cidrs` doesn't list it")
        } else if self.is_plain {
            Err("is not listed in `egress.cidrs`, which `http://` requires")
        } else {
            Ok(())
        }
    }
}

/// The address, if a URL's host is one. The client's resolver never sees these.
pub(crate) fn literal_address(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

impl Resolve for DialPolicy {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.clone();
        Box::pin(async move {
            let mut refusal = None;
            let mut allowed: Vec<SocketAddr> = Vec::new();
            for address in tokio::net::lookup_host((name.as_str(), 0)).await? {
                match policy.check(address.ip()) {
                    Ok(()) => allowed.push(address),
                    Err(reason) => refusal = Some(format!("its address {} {reason}", address.ip())),
                }
            }
            match refusal {
                Some(refusal) if allowed.is_empty() => Err(refusal.into()),
                _ => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(cidrs: &[&str], is_plain: bool) -> DialPolicy {
        let cidrs: Vec<String> = cidrs.iter().map(|&text| text.to_owned()).collect();
        DialPolicy::new(&cidrs, is_plain).unwrap()
    }

    fn refusal(policy: &DialPolicy, address: &str) -> Option<&'static str> {
        policy.check(address.parse().unwrap()).err()
    }

    #[test]
    fn without_a_list_only_public_addresses_are_dialled() {
        let policy = policy(&[], false);
        for public in ["1.1.1.1", "2606:4700::1", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1"] {
            assert_eq!(refusal(&policy, public), None, "{public}");
        }
        for private in [
            "127.0.0.1",
            "10.0.0.1",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "::1",
            "::",
            "fd00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::10.0.0.1",
            "2002:a00:1::1",
        ] {
            assert!(refusal(&policy, private).is_some_and(|why| why.contains("`egress.cidrs`")), "{private}");
        }
    }

    #[test]
    fn a_listed_network_is_dialled_in_every_form_of_its_addresses() {
        let policy = policy(&["10.1.0.0/16", "fd00::/8"], false);
        for listed in ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3", "fd12::1", "1.1.1.1"] {
            assert_eq!(refusal(&policy, listed), None, "{listed}");
        }
        for other in ["10.2.0.1", "::ffff:10.2.0.1", "64:ff9b::10.2.0.1", "fc00::1", "127.0.0.1"] {
            assert!(refusal(&policy, other).is_some(), "{other}");
        }
        // A list of all IPv6 addresses is none of IPv4 addresses inside them.
        assert!(refusal(&self::policy(&["::/0"], false), "64:ff9b::10.0.0.1").is_some());
    }

    #[test]
    fn link_local_and_metadata_addresses_are_never_dialled() {
        let policy = policy(&["0.0.0.0/0", "::/0"], false);
        for denied in [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "fe80::1",
            "fd00:ec2::254",
            "100.100.100.200",
        ] {
            assert!(refusal(&policy, denied).is_some_and(|why| why.contains("never dialled")), "{denied}");
        }
    }

    #[test]
    fn http_goes_to_listed_networks_only() {
        let policy = policy(&["10.0.0.0/8"], true);
        assert_eq!(refusal(&policy, "10.0.0.1"), None);
        assert!(refusal(&policy, "1.1.1.1").is_some_and(|why| why.contains("`http://`")));
    }

    #[tokio::test]
    async fn a_name_is_refused_for_its_address() {
        let resolve = async |policy: DialPolicy, name: &str| {
            policy
                .resolve(name.parse().unwrap())
                .await
                .map(Iterator::count)
                .map_err(|error| error.to_string())
        };
        let refused = resolve(policy(&[], false), "localhost").await.unwrap_err();
        assert!(refused.contains("`egress.cidrs`"), "{refused}");
        assert!(resolve(policy(&["127.0.0.0/8", "::1"], false), "localhost").await.unwrap() > 0);
        // The system's resolver parses this number as 169.254.169.254; a name server could return the same.
        let refused = resolve(policy(&["0.0.0.0/0"], false), "2852039166").await.unwrap_err();
        assert!(refused.contains("169.254.169.254") && refused.contains("never dialled"), "{refused}");
    }
}
