//! Addresses that the gateway never connects to: link-local ones, and those where clouds serve
//! credentials of machines (docs/protocol.md, section 5).
//!
//! The check is on the address that is dialled, not on the name, because the owner of a name can make it
//! resolve to anything. `hookgate-egress` has the list, which the plugin `webhook` also uses; `config` decides where
//! plugins may be beyond that.

use std::net::IpAddr;

/// The explanation for a denied address.
pub(crate) const DENIED_MESSAGE: &str = "is a link-local or cloud metadata address, to which the gateway never \
                                         connects";

pub(crate) fn allows(address: IpAddr) -> bool {
    !hookgate_egress::is_denied(address)
}

/// The address that `host` is, as written in a URL. `None` if it is a name.
pub(crate) fn literal_address(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Whether `host`, as written in a URL, is an address that must not be dialled. Names are checked when they
/// are resolved.
pub(crate) fn denies_literal(host: &str) -> bool {
    literal_address(host).is_some_and(|address| !allows(address))
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
}
