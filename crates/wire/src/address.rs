//! Which addresses may send, and which a router may forward between (RFC 1812 5.3.7, RFC 4291, RFC 6890).

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::bytes::{be32, chunk};
use crate::{DropReason, Layout, LayoutFlags, ipv4, ipv6};

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

/// Decides whether a router may forward a packet, by its addresses alone.
///
/// # Errors
/// [`DropReason::Ipv4Source`] and [`DropReason::Ipv6Source`]: the source is martian or unspecified.
/// [`DropReason::LinkLocalForward`]: an address does not leave its link or host (link-local, loopback, 0.0.0.0/8),
/// or the destination is multicast or the limited broadcast, which a unicast router does not forward.
#[inline]
pub fn may_forward(layout: &Layout, frame: &[u8]) -> Result<(), DropReason> {
    let network = usize::from(layout.network);
    if layout.flags.contains(LayoutFlags::IPV4) {
        let Some(header) = chunk::<{ ipv4::HEADER_BYTES }>(frame, network) else {
            return Err(DropReason::Ipv4Truncated);
        };
        return may_forward_ipv4(
            be32!(header, ipv4::SOURCE),
            be32!(header, ipv4::DESTINATION),
        );
    }
    if layout.flags.contains(LayoutFlags::IPV6) {
        let Some(addresses) = chunk::<32>(frame, network + ipv6::SOURCE) else {
            return Err(DropReason::Ipv6Truncated);
        };
        let (source, destination) = addresses.split_at(16);
        let address = |bytes: &[u8]| bytes.first_chunk().map_or(0, |b| u128::from_be_bytes(*b));
        return may_forward_ipv6(address(source), address(destination));
    }
    Ok(())
}

#[inline]
const fn may_forward_ipv4(source: u32, destination: u32) -> Result<(), DropReason> {
    if source == 0 || is_martian_source_ipv4(Ipv4Addr::from_bits(source)) {
        return Err(DropReason::Ipv4Source);
    }
    let stays = matches!(destination >> 24, 0 | 127 | 224..=239) || destination == u32::MAX;
    if stays || source >> 16 == 0xa9fe || destination >> 16 == 0xa9fe {
        return Err(DropReason::LinkLocalForward);
    }
    Ok(())
}

#[inline]
const fn may_forward_ipv6(source: u128, destination: u128) -> Result<(), DropReason> {
    if source == 0 || is_martian_source_ipv6(Ipv6Addr::from_bits(source)) {
        return Err(DropReason::Ipv6Source);
    }
    let stays = destination <= 1 || destination >> 120 == 0xff || destination >> 32 == 0xffff;
    if stays || source >> 118 == 0x3fa || destination >> 118 == 0x3fa {
        return Err(DropReason::LinkLocalForward);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forward4(source: &str, destination: &str) -> Result<(), DropReason> {
        let bits = |text: &str| text.parse::<Ipv4Addr>().unwrap().to_bits();
        may_forward_ipv4(bits(source), bits(destination))
    }

    fn forward6(source: &str, destination: &str) -> Result<(), DropReason> {
        let bits = |text: &str| text.parse::<Ipv6Addr>().unwrap().to_bits();
        may_forward_ipv6(bits(source), bits(destination))
    }

    #[test]
    fn ipv4_sources_that_may_not_send() {
        for source in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "224.0.0.1",
            "239.1.1.1",
            "255.255.255.255",
        ] {
            assert_eq!(
                forward4(source, "192.0.2.1"),
                Err(DropReason::Ipv4Source),
                "{source}"
            );
        }
        for source in [
            "10.0.0.1",
            "126.255.255.255",
            "128.0.0.1",
            "223.255.255.255",
            "240.0.0.1",
        ] {
            assert_eq!(forward4(source, "192.0.2.1"), Ok(()), "{source}");
        }
        assert!(!is_martian_source_ipv4(Ipv4Addr::UNSPECIFIED));
    }

    #[test]
    fn ipv4_destinations_that_stay() {
        for to in [
            "0.0.0.0",
            "127.0.0.1",
            "169.254.0.1",
            "224.0.0.1",
            "255.255.255.255",
        ] {
            assert_eq!(
                forward4("192.0.2.1", to),
                Err(DropReason::LinkLocalForward),
                "{to}"
            );
        }
        assert_eq!(
            forward4("169.254.9.9", "192.0.2.1"),
            Err(DropReason::LinkLocalForward)
        );
        assert_eq!(forward4("192.0.2.1", "169.253.0.1"), Ok(()));
    }

    #[test]
    fn ipv6_addresses() {
        for source in ["::", "::1", "ff02::1", "::ffff:192.0.2.1"] {
            assert_eq!(
                forward6(source, "2001:db8::1"),
                Err(DropReason::Ipv6Source),
                "{source}"
            );
        }
        for to in [
            "::",
            "::1",
            "ff0e::1",
            "fe80::1",
            "febf::1",
            "::ffff:192.0.2.1",
        ] {
            assert_eq!(
                forward6("2001:db8::2", to),
                Err(DropReason::LinkLocalForward),
                "{to}"
            );
        }
        assert_eq!(
            forward6("fe80::1", "2001:db8::1"),
            Err(DropReason::LinkLocalForward)
        );
        assert_eq!(forward6("2001:db8::2", "fec0::1"), Ok(()));
        assert_eq!(forward6("fc00::1", "2001:db8::1"), Ok(()));
        assert!(!is_martian_source_ipv6(Ipv6Addr::UNSPECIFIED));
    }
}
