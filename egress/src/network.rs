//! Networks, written as `10.1.0.0/16`.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// A network: an address, `/` and the bits of its prefix, with no bit set behind them; or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    /// At most 32 or 128.
    prefix: u8,
}

impl Network {
    /// `address` must have no bit set behind `prefix`.
    pub(crate) const fn v4(address: Ipv4Addr, prefix: u8) -> Self {
        Network { address: IpAddr::V4(address), prefix }
    }

    /// `address` must have no bit set behind `prefix`.
    pub(crate) const fn v6(address: Ipv6Addr, prefix: u8) -> Self {
        Network { address: IpAddr::V6(address), prefix }
    }

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

impl std::str::FromStr for Network {
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
        if network == bits { Ok(Network { address, prefix }) } else { Err(wrong()) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}
