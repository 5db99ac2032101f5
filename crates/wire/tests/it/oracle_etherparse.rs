//! The same frames through our validating pass and through etherparse: both agree on what is where, or
//! the disagreement is one of those listed here, each with its reason.

use crate::captures;
use crate::support::{Rng, frame, naive_checksum};
use etherparse::{LinkExtSlice, NetSlice, SlicedPacket, TransportSlice};
use wire::{DropReason, Layout, LayoutFlags, ip_protocol, parse};

const FRAMES: u64 = if cfg!(debug_assertions) {
    60_000
} else {
    1_000_000
};

/// Panics if the two disagree in a way that is not listed; returns whether both took the frame.
fn compare(name: &str, frame: &[u8]) -> bool {
    let context = || format!("{name}: {frame:02x?}");
    match (parse(frame), SlicedPacket::from_ethernet(frame)) {
        (Ok(layout), Ok(theirs)) => {
            assert_same(&layout, frame, &theirs, &context);
            true
        }
        (Err(reason), Ok(theirs)) => {
            assert!(
                is_stricter(reason, frame, &theirs),
                "only we refuse, {reason:?}: {}",
                context()
            );
            false
        }
        (Ok(layout), Err(error)) => {
            assert!(
                is_looser(&layout, frame),
                "only they refuse, {error:?}: {}",
                context()
            );
            false
        }
        (Err(_), Err(_)) => false,
    }
}

/// Returns the offset of `part` in `whole`.
fn offset(whole: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr() - whole.as_ptr().addr()
}

fn assert_same(
    layout: &Layout,
    frame: &[u8],
    theirs: &SlicedPacket<'_>,
    context: &dyn Fn() -> String,
) {
    let tags: Vec<u16> = theirs.link_exts.iter().filter_map(vlan_tci).collect();
    let ours = [layout.outer_tci, layout.inner_tci];
    assert_eq!(tags, ours[..layout.vlan_tags.into()], "{}", context());
    match &theirs.net {
        Some(NetSlice::Ipv4(ip)) => {
            assert!(layout.flags.contains(LayoutFlags::IPV4), "{}", context());
            let header = ip.header();
            assert_eq!(
                usize::from(layout.network),
                offset(frame, header.slice()),
                "{}",
                context()
            );
            assert_eq!(
                usize::from(layout.transport - layout.network),
                header.slice().len(),
                "{}",
                context()
            );
            let end = usize::from(layout.network) + usize::from(header.total_len());
            assert_eq!(usize::from(layout.end), end, "{}", context());
            assert_eq!(layout.protocol, header.protocol().0, "{}", context());
            assert_eq!(
                layout.flags.contains(LayoutFlags::FRAGMENT),
                header.is_fragmenting_payload(),
                "{}",
                context()
            );
        }
        Some(NetSlice::Ipv6(ip)) => {
            assert!(layout.flags.contains(LayoutFlags::IPV6), "{}", context());
            let header = ip.header();
            assert_eq!(
                usize::from(layout.network),
                offset(frame, header.slice()),
                "{}",
                context()
            );
            // They treat a payload length of zero as that of a jumbogram and take the whole frame.
            let length = usize::from(header.payload_length());
            assert_eq!(
                usize::from(layout.end),
                usize::from(layout.network) + 40 + length
            );
            let is_fragment = ip.payload().fragmented;
            assert_eq!(
                layout.flags.contains(LayoutFlags::FRAGMENT),
                is_fragment,
                "{}",
                context()
            );
            // They walk on in the data of a later fragment, where no header can be.
            let walked = offset(frame, ip.payload().payload);
            if layout.flags.contains(LayoutFlags::LATER_FRAGMENT) {
                assert!(usize::from(layout.transport) <= walked, "{}", context());
            } else {
                assert_eq!(usize::from(layout.transport), walked, "{}", context());
                assert_eq!(layout.protocol, ip.payload().ip_number.0, "{}", context());
            }
        }
        Some(NetSlice::Arp(arp)) => {
            assert!(layout.flags.contains(LayoutFlags::ARP), "{}", context());
            assert_eq!(
                usize::from(layout.network),
                offset(frame, arp.slice()),
                "{}",
                context()
            );
            assert_eq!(usize::from(layout.end - layout.network), arp.slice().len());
        }
        None => {
            let network = LayoutFlags::IPV4 | LayoutFlags::IPV6 | LayoutFlags::ARP;
            assert!(!layout.flags.intersects(network), "{}", context());
        }
    }
    assert_same_transport(layout, frame, theirs, context);
}

fn assert_same_transport(
    layout: &Layout,
    frame: &[u8],
    theirs: &SlicedPacket<'_>,
    context: &dyn Fn() -> String,
) {
    let has = layout.flags.contains(LayoutFlags::TRANSPORT);
    // They walk over an authentication header behind IPv4 too, which ends the packet for us.
    if layout.flags.contains(LayoutFlags::IPV4) && layout.protocol == ip_protocol::AUTHENTICATION {
        assert!(!has, "{}", context());
        return;
    }
    let payload = match &theirs.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            assert!(has && layout.protocol == ip_protocol::TCP, "{}", context());
            tcp.payload()
        }
        Some(TransportSlice::Udp(udp)) => {
            assert!(has && layout.protocol == ip_protocol::UDP, "{}", context());
            assert_eq!(layout.payload(frame), udp.payload(), "{}", context());
            udp.payload()
        }
        // They count what some ICMP messages hold as header, and read ICMP over the wrong IP version.
        Some(TransportSlice::Icmpv4(_)) => {
            let ours = layout.flags.contains(LayoutFlags::IPV4);
            assert_eq!(has, ours, "{}", context());
            return;
        }
        Some(TransportSlice::Icmpv6(_)) => {
            let ours = layout.flags.contains(LayoutFlags::IPV6);
            assert_eq!(has, ours, "{}", context());
            return;
        }
        // IGMP is a protocol "by address" for us; so is a transport that they have not looked into.
        Some(TransportSlice::Igmp(_)) | None => {
            let fragment = layout.flags.contains(LayoutFlags::FRAGMENT);
            assert!(!has || fragment, "{}", context());
            return;
        }
    };
    assert_eq!(
        usize::from(layout.payload),
        offset(frame, payload),
        "{}",
        context()
    );
}

fn vlan_tci(extension: &LinkExtSlice<'_>) -> Option<u16> {
    match extension {
        LinkExtSlice::Vlan(vlan) => {
            let [high, low, ..] = vlan.header_slice()[..] else {
                return None;
            };
            Some(u16::from_be_bytes([high, low]))
        }
        LinkExtSlice::Macsec(_) => None,
    }
}

/// Says why we refuse what they take.
fn is_stricter(reason: DropReason, frame: &[u8], theirs: &SlicedPacket<'_>) -> bool {
    let net = theirs.net.as_ref();
    let ipv4 = net.and_then(NetSlice::ipv4_ref);
    let ipv6 = net.and_then(NetSlice::ipv6_ref);
    let is_fragment = theirs.is_ip_payload_fragmented();
    match reason {
        // No station may send from a group address.
        DropReason::EthernetSource => frame[6] & 1 != 0,
        // They read three tags, we two.
        DropReason::VlanDepth => theirs.link_exts.len() == 3,
        // They do not look at IEEE 802.3 lengths.
        DropReason::EthernetTruncated => net.is_none(),
        // They read ARP for any hardware and protocol.
        DropReason::ArpMalformed => net.is_some_and(NetSlice::is_arp),
        // They do not check the checksum, nor the options.
        DropReason::Ipv4Checksum => ipv4.is_some_and(|ip| naive_checksum(ip.header().slice()) != 0),
        DropReason::Ipv4Options => ipv4.is_some_and(|ip| !ip.header().options().is_empty()),
        // They do not ask whether a fragment can be part of a datagram, and do not look into it.
        DropReason::FragmentMalformed | DropReason::FragmentTiny => is_fragment,
        DropReason::TransportLength => {
            // They take a UDP length of zero as "not said".
            is_fragment || matches!(theirs.transport, Some(TransportSlice::Udp(_)))
        }
        // They take an IPv6 payload length of zero as "not said".
        DropReason::TransportTruncated => ipv6.is_some_and(|ip| ip.header().payload_length() == 0),
        // We bound the chain and want one fragment header; an IPv6 payload length of zero as above.
        DropReason::Ipv6ExtensionHeader => ipv6.is_some_and(|ip| {
            let headers = ip.extensions().clone().into_iter().count();
            headers > wire::parse::EXTENSION_HEADERS_MAX
                || is_fragment
                || ip.header().payload_length() == 0
        }),
        _ => false,
    }
}

/// Says why we take what they refuse.
fn is_looser(layout: &Layout, frame: &[u8]) -> bool {
    let ipv4 = layout.flags.contains(LayoutFlags::IPV4);
    match layout.protocol {
        // They walk on in the data of a later IPv6 fragment, where no header can be.
        _ if layout.flags.contains(LayoutFlags::LATER_FRAGMENT) && !ipv4 => true,
        // They want twenty bytes of a timestamp message; ICMP of the other family is opaque to us.
        ip_protocol::ICMP => {
            !ipv4 || matches!(frame.get(usize::from(layout.transport)), Some(13 | 14))
        }
        ip_protocol::ICMPV6 => ipv4,
        // They read IGMP, which is opaque to us.
        ip_protocol::IGMP => true,
        // They read an authentication header behind IPv4.
        ip_protocol::AUTHENTICATION => ipv4,
        // They read mobility, HIP and Shim6 headers, which end our chain.
        135 | 139 | 140 => !ipv4,
        // They read MACsec (IEEE 802.1AE), which is opaque to us.
        _ => layout.ether_type == 0x88e5,
    }
}

#[test]
fn random_frames() {
    let mut both = 0;
    for seed in 0..FRAMES {
        let frame = frame(&mut Rng::new(seed));
        both += u64::from(compare(&format!("seed {seed}"), &frame));
    }
    // The generator must make enough frames that both take, or the comparison means nothing.
    assert!(both > FRAMES / 3, "only {both} of {FRAMES}");
}

#[test]
fn captures() {
    let Some(packets) = captures::all("oracle_etherparse::captures") else {
        return;
    };
    let mut both = 0;
    for packet in &packets {
        both += usize::from(compare(&packet.name, &packet.data));
    }
    assert!(
        both > packets.len() * 9 / 10,
        "only {both} of {}",
        packets.len()
    );
}
