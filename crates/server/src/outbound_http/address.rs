//! Decides which addresses are public: a query may reach only these by default.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether `address` belongs to the public internet.
///
/// The addresses of this machine, private networks, link-local and multicast addresses and those for tests and
/// documentation do not, nor do IPv6 addresses that embed one of these. Source: the special-purpose registries of IANA
/// (RFC 6890 and its successors).
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        // "This" network, reserved, broadcast.
        || a == 0
        || a >= 240
        // Carrier-grade NAT, between a provider and its customers.
        || (a == 100 && (64..128).contains(&b))
        // Protocol assignments, 6to4 relays, benchmarks.
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19));
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(inside) = embedded(address) {
        return is_public_v4(inside);
    }
    let [first, second, ..] = address.segments();
    // Global unicast is only this eighth (RFC 4291), without Teredo and its neighbours (2001::/23) and documentation
    // (2001:db8::/32, 3fff::/20).
    let unicast = first & 0xe000 == 0x2000;
    let special = (first == 0x2001 && (second < 0x0200 || second == 0x0db8))
        || (first == 0x3fff && second & 0xf000 == 0);
    unicast && !special
}

/// The IPv4 address embedded in an IPv6 address.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let pair = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match (a, b) {
        // ::ffff:0:0/96 and the old ::/96.
        (0, 0) if [c, d, e] == [0; 3] && (f == 0xffff || f == 0) => Some(pair(g, h)),
        // NAT64.
        (0x64, 0xff9b) if [c, d, e, f] == [0; 4] => Some(pair(g, h)),
        // 6to4.
        (0x2002, high) => Some(pair(high, c)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(addresses: &[&str], expected: bool) {
        for text in addresses {
            let address: IpAddr = text.parse().expect(text);
            assert_eq!(is_public(address), expected, "{text}");
        }
    }

    #[test]
    fn reserved_addresses_are_not_public() {
        check(
            &[
                "127.0.0.1",
                "127.255.255.254",
                "0.0.0.0",
                "0.1.2.3",
                "10.0.0.1",
                "172.16.0.1",
                "172.31.255.255",
                "192.168.1.1",
                "169.254.169.254",
                "100.64.0.1",
                "100.127.255.255",
                "192.0.0.8",
                "192.0.2.1",
                "198.18.0.1",
                "198.19.255.255",
                "198.51.100.1",
                "203.0.113.1",
                "224.0.0.1",
                "240.0.0.1",
                "255.255.255.255",
                "192.88.99.1",
            ],
            false,
        );
        check(
            &[
                "::",
                "::1",
                "fe80::1",
                "fec0::1",
                "fc00::1",
                "fd12:3456::1",
                "ff02::1",
                "2001:db8::1",
                "2001::1",
                "3fff::1",
                "100::1",
                "::ffff:127.0.0.1",
                "::ffff:10.0.0.1",
                "::127.0.0.1",
                "64:ff9b::10.0.0.1",
                "64:ff9b:1::1",
                "2002:7f00:1::",
                "2002:c0a8:101::1",
                "5f00::1",
            ],
            false,
        );
    }

    #[test]
    fn the_internet_is_public() {
        check(
            &[
                "1.1.1.1",
                "8.8.8.8",
                "100.63.0.1",
                "100.128.0.1",
                "172.15.0.1",
                "172.32.0.1",
                "192.0.1.1",
                "198.17.0.1",
                "223.255.255.254",
                "2606:4700::1111",
                "2a00:1450::1",
                "2001:4860:4860::8888",
                "::ffff:8.8.8.8",
                "64:ff9b::8.8.8.8",
                "2002:808:808::1",
            ],
            true,
        );
    }
}
