//! Networks (`10.1.0.0/16`) as configuration writes them.

use std::{borrow::Cow, fmt, net::IpAddr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::units::from_text;

/// A network: an address, `/` and the bits of its prefix, with no bit set behind them; or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    /// At most 32 or 128.
    prefix: u8,
}

impl Cidr {
    /// Whether the network contains `address`. An IPv4 address written as IPv6 (`::ffff:0:0/96`) counts as
    /// IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                behind(u128::from(network.to_bits() ^ address.to_bits()), 32 - self.prefix) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                behind(network.to_bits() ^ address.to_bits(), 128 - self.prefix) == 0
            }
            _ => false,
        }
    }
}

/// `bits` without the last `less` ones.
fn behind(bits: u128, less: u8) -> u128 {
    bits.checked_shr(less.into()).unwrap_or_default()
}

impl std::str::FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not a network: write one without bits after its prefix, such as `10.1.0.0/16` or \
                 `fd00::/8`, or one address"
            )
        };
        let (address, prefix) = text.split_once('/').map_or((text, None), |(at, bits)| (at, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        // An IPv4 address written as IPv6 would never match, so it is converted.
        if address.to_canonical() != address {
            return Err(wrong());
        }
        let (bits, most) = match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
            IpAddr::V6(address) => (address.to_bits(), 128),
        };
        let prefix = match prefix {
            None => most,
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse().ok().filter(|prefix| *prefix <= most).ok_or_else(wrong)?
            }
            Some(_) => return Err(wrong()),
        };
        let network = behind(bits, most - prefix).checked_shl((most - prefix).into()).unwrap_or_default();
        if network == bits { Ok(Cidr { address, prefix }) } else { Err(wrong()) }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
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
