//! Which addresses may not be the source of a packet (RFC 1812 5.3.7, RFC 4291, RFC 6890).

use core::net::{Ipv4Addr, Ipv6Addr};

/// Says whether an IPv4 address must not be the source of a packet on a link: network 0 (except
/// 0.0.0.0 itself, which a host without an address uses), loopback, multicast, limited broadcast.
///
/// Class E (240.0.0.0/4) passes, as in Linux: it is in use as unicast space.
#[inline]
pub const fn is_martian_source_ipv4(source: Ipv4Addr) -> bool {
    let bits = source.to_bits();
    match bits >> 24 {
        0 => bits != 0,
        127 => true,
        224..=239 => true,
        _ => bits == u32::MAX,
    }
}

/// Says whether an IPv6 address must not be the source of a packet on a link: loopback, multicast, or
/// IPv4-mapped (RFC 4291 2.5.3, 2.7; RFC 4942 2.2). The unspecified address may: for duplicate address detection.
#[inline]
pub const fn is_martian_source_ipv6(source: Ipv6Addr) -> bool {
    let bits = source.to_bits();
    bits == 1 || bits >> 120 == 0xff || bits >> 32 == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_sources_that_may_not_send() {
        let is_martian = |text: &str| is_martian_source_ipv4(text.parse().unwrap());
        for source in [
            "0.1.2.3",
            "127.0.0.1",
            "224.0.0.1",
            "239.1.1.1",
            "255.255.255.255",
        ] {
            assert!(is_martian(source), "{source}");
        }
        for source in [
            "0.0.0.0",
            "10.0.0.1",
            "126.255.255.255",
            "128.0.0.1",
            "223.255.255.255",
            "240.0.0.1",
        ] {
            assert!(!is_martian(source), "{source}");
        }
    }

    #[test]
    fn ipv6_sources_that_may_not_send() {
        let is_martian = |text: &str| is_martian_source_ipv6(text.parse().unwrap());
        for source in ["::1", "ff02::1", "::ffff:192.0.2.1"] {
            assert!(is_martian(source), "{source}");
        }
        for source in ["::", "::2", "fe80::1", "2001:db8::1", "fc00::1"] {
            assert!(!is_martian(source), "{source}");
        }
    }
}
