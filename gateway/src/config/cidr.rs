//! Networks (`10.1.0.0/16`) as configuration writes them.

use std::{borrow::Cow, fmt, net::IpAddr};

use hookgate_egress::Network;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::units::from_text;

/// A network: an address, `/` and the bits of its prefix, with no bit set behind them; or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr(Network);

impl Cidr {
    /// Whether the network contains `address`. An IPv4 address written as IPv6 (`::ffff:0:0/96`) counts as
    /// IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(address)
    }
}

impl std::str::FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Cidr)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

from_text!(Cidr, "Network", "network", "^[0-9A-Fa-f.:]+(/[0-9]{1,3})?$", "10.1.0.0/16");

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap_or_else(|wrong| panic!("{wrong}"))
    }

    #[test]
    fn networks_hold_their_addresses_and_no_others() {
        for (network, inside, outside) in [
            ("10.1.0.0/16", "10.1.255.255", "10.2.0.0"),
            ("10.1.0.0/16", "::ffff:10.1.2.3", "::ffff:10.2.2.3"),
            ("10.1.2.3", "10.1.2.3", "10.1.2.2"),
            ("10.1.2.2/31", "10.1.2.3", "10.1.2.4"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("0.0.0.0/0", "::ffff:1.2.3.4", "64:ff9b::1.2.3.4"),
            ("fd00::/8", "fdff:ffff::1", "fe00::1"),
            ("fd00::1", "fd00::1", "fd00::2"),
            ("::/0", "2001:db8::1", "::ffff:10.0.0.1"),
            ("::/0", "2001:db8::1", "10.0.0.1"),
        ] {
            assert!(cidr(network).contains(inside.parse().unwrap()), "{network} {inside}");
            assert!(!cidr(network).contains(outside.parse().unwrap()), "{network} {outside}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in [
            "",
            "10.1.0.0/",
            "/8",
            "10.1.0.0/33",
            "::/129",
            "10.1.0.1/16",
            "fd00::1/64",
            "10.1/16",
            "a/8",
            "10.1.0.0/+8",
            "10.1.0.0/8/8",
            "::ffff:10.0.0.0/104",
            " 10.0.0.0/8",
            "10.0.0.0/256",
        ] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
        assert_eq!(cidr("10.1.2.3").to_string(), "10.1.2.3/32");
        assert_eq!(cidr("::/0").to_string(), "::/0");
    }
}
