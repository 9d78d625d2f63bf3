use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap_or_else(|_| panic!("{text} is an address"))
}

#[test]
fn link_local_and_metadata_addresses_are_denied_and_their_neighbours_are_not() {
    for denied in [
        "169.254.0.0",
        "169.254.169.254",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "2002:a9fe:a9fe::",
        "::169.254.169.254",
        "fe80::1",
        "fd00:ec2::254",
        "fd20:ce::254",
    ] {
        assert!(is_denied(address(denied)), "{denied}");
    }
    for allowed in
        ["169.253.255.255", "100.100.100.199", "10.0.0.1", "::1", "fd00:ec3::254", "64:ff9b::a00:1"]
    {
        assert!(!is_denied(address(allowed)), "{allowed}");
    }
}

#[test]
fn addresses_of_the_internet_are_public() {
    for public in [
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "192.167.255.255",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2606:4700:4700::1111",
        "2001:200::1",
        "3ffe::1",
        "::ffff:1.1.1.1",
        "64:ff9b::1.1.1.1",
    ] {
        assert!(is_public(address(public)), "{public}");
    }
}

#[test]
fn private_and_special_addresses_are_not_public() {
    for special in [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.255",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.1",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::1.1.1.1",
        "100::1",
        "fc00::1",
        "fd12:3456::1",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "2001:db8::1",
        "2001::1",
        "2002:101:101::1",
        "3fff::1",
        "4000::1",
    ] {
        assert!(!is_public(address(special)), "{special}");
    }
}

#[test]
fn a_private_address_inside_an_ipv6_address_is_seen() {
    for wrapped in ["::ffff:10.0.0.1", "::ffff:127.0.0.1", "64:ff9b::192.168.0.1", "64:ff9b::127.0.0.1"] {
        assert!(!is_public(address(wrapped)), "{wrapped}");
    }
    // A network of its own translates this prefix, so even a public address in it isn't dialled as such.
    assert!(!is_public(address("64:ff9b:1::1.1.1.1")));
    assert_eq!(unwrap_v4(address("64:ff9b::10.0.0.1")), address("10.0.0.1"));
    assert_eq!(unwrap_v4(address("64:ff9b:1::10.0.0.1")), address("10.0.0.1"));
    assert_eq!(unwrap_v4(address("::ffff:10.0.0.1")), address("10.0.0.1"));
    assert_eq!(unwrap_v4(address("fd00::1")), address("fd00::1"));
}

proptest! {
    #[test]
    fn every_form_of_an_ipv4_address_is_judged_alike(bits in any::<u32>()) {
        let v4 = Ipv4Addr::from_bits(bits);
        let nat64 = Ipv6Addr::from_bits(0x64_ff9b << 96 | u128::from(bits));
        for form in [v4.to_ipv6_mapped(), nat64] {
            prop_assert_eq!(is_public(v4.into()), is_public(form.into()), "{}", form);
            prop_assert_eq!(is_denied(v4.into()), is_denied(form.into()), "{}", form);
            prop_assert_eq!(unwrap_v4(form.into()), IpAddr::V4(v4));
        }
    }

    #[test]
    fn a_denied_address_is_never_public(v4 in any::<u32>(), v6 in any::<u128>()) {
        let link_local = 0xfe80 << 112 | v6 >> 10;
        for address in [Ipv4Addr::from_bits(v4).into(), Ipv6Addr::from_bits(v6).into(),
            IpAddr::from(Ipv6Addr::from_bits(link_local))] {
            prop_assert!(!(is_denied(address) && is_public(address)), "{}", address);
        }
    }
}
