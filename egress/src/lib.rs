//! Which network addresses a program of ours connects to. Two questions about an address are answered here: whether
//! it is never dialled ([`is_denied`]), and whether it is public ([`is_public`]).
//!
//! Ask about the address that is dialled, not about the name, because the owner of a name can make it resolve to
//! anything. Knows nothing of configuration, names or HTTP.
#![warn(missing_docs)]

mod network;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use network::Network;

/// The IPv6 network of AWS's services on a machine, including metadata and pod credentials. Over IPv4 these
/// are link-local, as on most clouds.
const AWS_SERVICE_PREFIX: [u16; 2] = [0xfd00, 0xec2];
/// IPv6 metadata services of Google Cloud and Oracle Cloud.
const IPV6_METADATA: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
];
/// Services of machines that aren't link-local: metadata of Alibaba Cloud, `WireServer` of Azure, and metadata of Oracle
/// Cloud's older machines.
const IPV4_METADATA: [Ipv4Addr; 3] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(192, 0, 0, 192)];
/// The first 96 bits of an IPv4 address behind NAT64 (RFC 6052, section 2.1; RFC 8215 for private networks).
const NAT64_PREFIXES: [[u16; 6]; 2] = [[0x64, 0xff9b, 0, 0, 0, 0], [0x64, 0xff9b, 1, 0, 0, 0]];

/// Networks that aren't on the internet, or aren't one host there (IANA's registries of special-purpose addresses, and
/// multicast). Of IPv6 only those within 2000::/3: no other address is public.
const SPECIAL: [Network; 19] = [
    Network::v4(Ipv4Addr::new(0, 0, 0, 0), 8), // this network, unspecified
    Network::v4(Ipv4Addr::new(10, 0, 0, 0), 8), // private
    Network::v4(Ipv4Addr::new(100, 64, 0, 0), 10), // carrier-grade NAT
    Network::v4(Ipv4Addr::new(127, 0, 0, 0), 8), // loopback
    Network::v4(Ipv4Addr::new(169, 254, 0, 0), 16), // link-local
    Network::v4(Ipv4Addr::new(172, 16, 0, 0), 12), // private
    Network::v4(Ipv4Addr::new(192, 0, 0, 0), 24), // protocol assignments
    Network::v4(Ipv4Addr::new(192, 0, 2, 0), 24), // documentation
    Network::v4(Ipv4Addr::new(192, 88, 99, 0), 24), // 6to4 relays
    Network::v4(Ipv4Addr::new(192, 168, 0, 0), 16), // private
    Network::v4(Ipv4Addr::new(198, 18, 0, 0), 15), // benchmarks
    Network::v4(Ipv4Addr::new(198, 51, 100, 0), 24), // documentation
    Network::v4(Ipv4Addr::new(203, 0, 113, 0), 24), // documentation
    Network::v4(Ipv4Addr::new(224, 0, 0, 0), 4), // multicast
    Network::v4(Ipv4Addr::new(240, 0, 0, 0), 4), // reserved, broadcast
    Network::v6(Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // protocol assignments, Teredo
    Network::v6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    Network::v6(Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16), // 6to4: an IPv4 address of somebody's choice
    Network::v6(Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

/// Whether `address` is never dialled: link-local addresses, and those where clouds serve credentials of machines
/// (docs/protocol.md, section 5). An IPv4 address inside an IPv6 one is seen.
pub fn is_denied(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_denied_v4(address),
        IpAddr::V6(address) => {
            let is_metadata =
                IPV6_METADATA.contains(&address) || address.segments().starts_with(&AWS_SERVICE_PREFIX);
            let is_denied_inside = embedded_v4(address).is_some_and(is_denied_v4);
            address.is_unicast_link_local() || is_metadata || is_denied_inside
        }
    }
}

fn is_denied_v4(address: Ipv4Addr) -> bool {
    address.is_link_local() || IPV4_METADATA.contains(&address)
}

/// Whether `address` is one of a host on the internet: not private, loopback, link-local, shared (carrier-grade NAT),
/// unique local, multicast, unspecified, reserved or for documentation. An IPv4 address inside an IPv6 one decides.
pub fn is_public(address: IpAddr) -> bool {
    let is_special = |address: IpAddr| SPECIAL.iter().any(|network| network.contains(address));
    match address.to_canonical() {
        v4 @ IpAddr::V4(_) => !is_special(v4),
        IpAddr::V6(address) => match behind_nat64(address) {
            Some(embedded) => address.segments()[2] == 0 && !is_special(embedded.into()),
            None => address.segments()[0] & 0xe000 == 0x2000 && !is_special(address.into()),
        },
    }
}

/// The address without IPv6 around it, if it is an IPv4 address in one of these forms: mapped (`::ffff:0:0/96`), or
/// behind NAT64 (`64:ff9b::/96`, `64:ff9b:1::/96`). This is the address that answers.
pub fn unwrap_v4(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(wrapped) => behind_nat64(wrapped).map_or(IpAddr::V6(wrapped), IpAddr::V4),
        v4 => v4,
    }
}

/// The IPv4 address in an IPv6 one: behind NAT64, of a 6to4 site (`2002::/16`), or written as `::1.2.3.4`.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.segments() {
        [0x2002, high, low, ..] | [0, 0, 0, 0, 0, 0, high, low] => {
            Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
        }
        _ => behind_nat64(address),
    }
}

fn behind_nat64(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [prefix @ .., high, low] = address.segments();
    let embedded = Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    NAT64_PREFIXES.contains(&prefix).then_some(embedded)
}

#[cfg(test)]
mod tests;
