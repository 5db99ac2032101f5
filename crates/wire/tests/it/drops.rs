//! One small frame for every reason that the validating pass and the option walks give, made by one change
//! to a frame that passes.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::support::mend_ipv4_checksum;
use wire::checksum::{TransportChecksum, verify_transport};
use wire::ndp::Message;
use wire::tcp::{Flags, TcpOption};
use wire::{Addresses, DropReason, LayoutFlags, MacAddr, ether_type, ethernet, icmpv4, icmpv6};
use wire::{ip_protocol, ipv4, ipv6, ndp, parse, tcp, udp};

const V4: Addresses = Addresses::V4 {
    source: Ipv4Addr::new(192, 0, 2, 1),
    destination: Ipv4Addr::new(198, 51, 100, 2),
};
const SOURCE6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const DESTINATION6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
const V6: Addresses = Addresses::V6 {
    source: SOURCE6,
    destination: DESTINATION6,
};

fn ethernet_with(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; ethernet::HEADER_BYTES];
    let (destination, source) = (MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 1]));
    ethernet::Repr {
        destination,
        source,
        ether_type,
    }
    .emit(&mut frame)
    .unwrap();
    frame.extend(payload);
    frame
}

fn ipv4_with(protocol: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let Addresses::V4 {
        source,
        destination,
    } = V4
    else {
        unreachable!()
    };
    let plain = ipv4::Repr::new(source, destination, protocol, payload.len() as u16);
    let repr = ipv4::Repr { options, ..plain };
    let mut packet = vec![0; repr.bytes()];
    repr.emit(&mut packet).unwrap();
    packet.extend(payload);
    ethernet_with(ether_type::IPV4, &packet)
}

/// An IPv4 frame whose fragment word is `field`.
fn fragment_with(protocol: u8, field: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = ipv4_with(protocol, &[], payload);
    frame[20..22].copy_from_slice(&field.to_be_bytes());
    mend_ipv4_checksum(&mut frame);
    frame
}

fn ipv6_with(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let repr = ipv6::Repr {
        hop_limit: 255,
        ..ipv6::Repr::new(SOURCE6, DESTINATION6, next_header, payload.len() as u16)
    };
    let mut packet = vec![0; ipv6::HEADER_BYTES];
    repr.emit(&mut packet).unwrap();
    packet.extend(payload);
    ethernet_with(ether_type::IPV6, &packet)
}

fn udp_with(data: &[u8], addresses: &Addresses) -> Vec<u8> {
    let mut datagram = vec![0; udp::HEADER_BYTES];
    datagram.extend(data);
    udp::Repr {
        source_port: 1111,
        destination_port: 53,
    }
    .emit(&mut datagram, addresses)
    .unwrap();
    datagram
}

fn tcp_with(options: &[TcpOption<'_>]) -> Vec<u8> {
    let repr = tcp::Repr {
        source_port: 1111,
        destination_port: 80,
        sequence: 1,
        acknowledgement: 0,
        flags: Flags::SYN,
        window: 1000,
        urgent: 0,
        options,
    };
    let mut segment = vec![0; repr.bytes()];
    repr.emit(&mut segment, &V4).unwrap();
    segment
}

fn udp4() -> Vec<u8> {
    ipv4_with(ip_protocol::UDP, &[], &udp_with(&[1, 2, 3], &V4))
}

/// Returns the frame with `bytes` written at `at` and, for untagged IPv4, the header checksum mended.
fn with(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    mend_ipv4_checksum(&mut frame);
    frame
}

fn cut(mut frame: Vec<u8>, length: usize) -> Vec<u8> {
    frame.truncate(length);
    frame
}

#[track_caller]
fn assert_dropped(reason: DropReason, frame: &[u8]) {
    assert_eq!(parse(frame), Err(reason), "{frame:02x?}");
}

#[test]
fn link_layer() {
    use DropReason::*;
    assert!(parse(&udp4()).is_ok());
    assert_dropped(EthernetTruncated, &[]);
    assert_dropped(EthernetTruncated, &cut(udp4(), 13));
    // An IEEE 802.3 length beyond the frame; one that fits cuts the padding off.
    assert_dropped(EthernetTruncated, &ethernet_with(47, &[0; 46]));
    assert_eq!(parse(&ethernet_with(3, &[0; 46])).unwrap().end, 17);
    assert_dropped(EthernetSource, &with(udp4(), 6, &[3]));
    assert_dropped(FrameTooLong, &vec![2; 65_536]);

    let tags = |count: usize| {
        let inner = [[0, 5, 0x81, 0].repeat(count - 1), vec![0, 7, 8, 0]].concat();
        ethernet_with(0x88a8, &[&inner, &udp4()[14..]].concat())
    };
    let layout = parse(&tags(2)).unwrap();
    assert_eq!(
        (layout.vlan_tags, layout.outer_tci, layout.inner_tci),
        (2, 5, 7)
    );
    assert_eq!((layout.network, layout.vlan_id()), (22, Some(5)));
    assert_dropped(VlanDepth, &tags(3));
    assert_dropped(VlanTruncated, &cut(tags(1), 17));
    assert_dropped(VlanTruncated, &cut(tags(2), 21));
}

#[test]
fn arp() {
    let mut packet = [0; 28];
    packet[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
    let frame = ethernet_with(ether_type::ARP, &packet);
    assert_eq!(parse(&frame).unwrap().flags, LayoutFlags::ARP);
    assert_dropped(DropReason::ArpMalformed, &cut(frame.clone(), 41));
    assert_dropped(DropReason::ArpMalformed, &with(frame.clone(), 15, &[6]));
    assert_dropped(DropReason::ArpMalformed, &with(frame, 18, &[8]));
}

#[test]
fn ipv4_header() {
    use DropReason::*;
    assert_dropped(Ipv4Truncated, &cut(udp4(), 33));
    assert_dropped(Ipv4Version, &with(udp4(), 14, &[0x65]));
    assert_dropped(Ipv4HeaderLength, &with(udp4(), 14, &[0x44]));
    assert_dropped(Ipv4HeaderLength, &with(udp4(), 14, &[0x4f]));
    assert_dropped(Ipv4TotalLength, &with(udp4(), 16, &[0, 19]));
    assert_dropped(Ipv4TotalLength, &cut(udp4(), 44));
    let mut frame = udp4();
    frame[22] ^= 1;
    assert_dropped(Ipv4Checksum, &frame);
    assert!(parse(&ipv4_with(17, &[1, 148, 4, 0, 0], &udp_with(&[], &V4))).is_ok());
    for malformed in [&[7, 1][..], &[7, 9, 4], &[1, 1, 1, 7]] {
        assert_dropped(Ipv4Options, &ipv4_with(17, malformed, &udp_with(&[], &V4)));
    }
    let mut frame = ipv4_with(17, &[1], &udp_with(&[], &V4));
    frame[34] = 0x94;
    assert_dropped(Ipv4Checksum, &frame);
}

#[test]
fn ipv4_fragments() {
    use DropReason::*;
    let data = [0x55; 32];
    let first = parse(&fragment_with(17, 0x2000, &udp_with(&data, &V4))).unwrap();
    assert!(
        first
            .flags
            .contains(LayoutFlags::FRAGMENT | LayoutFlags::TRANSPORT)
    );
    let later = parse(&fragment_with(17, 0x0004, &data)).unwrap();
    assert!(
        later
            .flags
            .contains(LayoutFlags::FRAGMENT | LayoutFlags::LATER_FRAGMENT)
    );
    assert!(!later.flags.contains(LayoutFlags::TRANSPORT));
    // No data; not a multiple of eight; past the end of any datagram.
    assert_dropped(FragmentMalformed, &fragment_with(17, 0x2000, &[]));
    assert_dropped(FragmentMalformed, &fragment_with(17, 0x0004, &[]));
    assert_dropped(FragmentMalformed, &fragment_with(17, 0x2004, &data[..31]));
    assert!(parse(&fragment_with(17, 0x0004, &data[..31])).is_ok());
    assert_dropped(FragmentMalformed, &fragment_with(17, 0x1fff, &data));
    // RFC 1858: half a TCP header, and one that overwrites its second half.
    assert_dropped(
        FragmentTiny,
        &fragment_with(6, 0x2000, &tcp_with(&[])[..16]),
    );
    assert_dropped(FragmentTiny, &fragment_with(6, 0x0001, &data));
    assert_dropped(
        FragmentTiny,
        &fragment_with(6, 0x2000, &{
            tcp_with(&[TcpOption::SackPermitted; 2])[..16].to_vec()
        }),
    );
    assert!(parse(&fragment_with(17, 0x0001, &data)).is_ok());
}

#[test]
fn ipv6_header_and_extension_headers() {
    use DropReason::*;
    let udp = udp_with(&[1, 2, 3], &V6);
    let plain = ipv6_with(17, &udp);
    assert!(parse(&plain).is_ok());
    assert_dropped(Ipv6Truncated, &cut(plain.clone(), 53));
    assert_dropped(Ipv6Truncated, &cut(plain.clone(), 64));
    assert_dropped(Ipv6Version, &with(plain, 14, &[0x40]));

    let chain = |count: usize, next: u8| {
        let mut payload = Vec::new();
        for left in (0..count).rev() {
            payload.extend([if left == 0 { next } else { 60 }, 0, 1, 4, 0, 0, 0, 0]);
        }
        [payload, udp.clone()].concat()
    };
    let layout = parse(&ipv6_with(60, &chain(8, 17))).unwrap();
    assert_eq!((layout.transport, layout.protocol), (14 + 40 + 64, 17));
    assert_dropped(Ipv6ExtensionHeader, &ipv6_with(60, &chain(9, 17)));
    assert_dropped(Ipv6ExtensionHeader, &ipv6_with(60, &chain(1, 60)[..9]));
    assert_dropped(
        Ipv6ExtensionHeader,
        &ipv6_with(60, &[17, 1, 1, 4, 0, 0, 0, 0]),
    );
    assert_dropped(Ipv6ExtensionHeader, &ipv6_with(43, &[17]));
    // Hop-by-hop options after another header.
    assert_dropped(
        Ipv6ExtensionHeader,
        &ipv6_with(60, &[&[0; 8], &chain(1, 17)[..]].concat()),
    );
    // An authentication header of eight bytes; twelve are the least.
    assert_dropped(
        Ipv6ExtensionHeader,
        &ipv6_with(51, &[&[17, 0][..], &[0; 6], &udp].concat()),
    );
    assert!(parse(&ipv6_with(51, &[&[17, 1][..], &[0; 10], &udp].concat())).is_ok());
    // Two fragment headers.
    let fragment = |next, field: u16| {
        let [high, low] = field.to_be_bytes();
        vec![next, 0, high, low, 0, 0, 0, 1]
    };
    let twice = [fragment(44, 1), fragment(17, 1), vec![0; 16]].concat();
    assert_dropped(Ipv6ExtensionHeader, &ipv6_with(44, &twice));

    // A first fragment whose chain, or whose transport header, ends too early (RFC 7112).
    let padding = [60, 2, 1, 4, 0, 0, 0, 0];
    assert_dropped(
        FragmentTiny,
        &ipv6_with(44, &[&fragment(60, 1)[..], &padding].concat()),
    );
    assert_dropped(
        FragmentTiny,
        &ipv6_with(44, &[&fragment(6, 1)[..], &[0; 16]].concat()),
    );
    assert_dropped(
        FragmentMalformed,
        &ipv6_with(44, &[&fragment(17, 1)[..], &udp].concat()),
    );
    assert_dropped(FragmentMalformed, &ipv6_with(44, &fragment(17, 8)));
    assert_dropped(
        FragmentMalformed,
        &ipv6_with(44, &[&fragment(17, 0xfff8)[..], &udp].concat()),
    );
    // An atomic fragment is a whole packet (RFC 6946).
    let atomic = parse(&ipv6_with(44, &[&fragment(17, 0)[..], &udp].concat())).unwrap();
    assert!(!atomic.flags.contains(LayoutFlags::FRAGMENT));
    assert!(
        atomic
            .flags
            .contains(LayoutFlags::TRANSPORT | LayoutFlags::OPTIONS)
    );
}

#[test]
fn transport_headers() {
    use DropReason::*;
    assert_dropped(TransportTruncated, &ipv4_with(17, &[], &[0; 7]));
    assert_dropped(TransportTruncated, &ipv4_with(6, &[], &[0; 19]));
    assert_dropped(TransportTruncated, &ipv4_with(1, &[], &[8; 7]));
    assert_dropped(TransportTruncated, &ipv6_with(58, &[128; 7]));
    assert_dropped(TransportLength, &with(udp4(), 38, &[0, 7]));
    assert_dropped(TransportLength, &with(udp4(), 38, &[0, 12]));
    // Shorter is legal: UDP options (RFC 9868).
    let shorter = with(udp4(), 38, &[0, 10]);
    assert_eq!(parse(&shorter).unwrap().payload(&shorter), [1, 2]);
    let tcp = ipv4_with(6, &[], &tcp_with(&[]));
    assert!(parse(&tcp).is_ok());
    assert_dropped(TransportLength, &with(tcp.clone(), 46, &[0x40]));
    assert_dropped(TransportTruncated, &with(tcp, 46, &[0x60]));
    // ICMP of the other family, and any other protocol, is opaque.
    for (frame, protocol) in [(ipv4_with(58, &[], &[1]), 58), (ipv6_with(1, &[1]), 1)] {
        let layout = parse(&frame).unwrap();
        assert_eq!(
            (layout.protocol, layout.transport),
            (protocol, layout.payload)
        );
        assert!(!layout.flags.contains(LayoutFlags::TRANSPORT));
    }
}

#[test]
fn transport_checksums() {
    let check = |frame: &[u8]| verify_transport(&parse(frame).unwrap(), frame);
    assert_eq!(check(&udp4()), TransportChecksum::Good);
    assert_eq!(check(&with(udp4(), 43, &[9])), TransportChecksum::Bad);
    assert_eq!(check(&with(udp4(), 40, &[0, 0])), TransportChecksum::Absent);
    let udp6 = ipv6_with(17, &udp_with(&[1], &V6));
    assert_eq!(check(&udp6), TransportChecksum::Good);
    assert_eq!(
        check(&with(udp6.clone(), 60, &[0, 0])),
        TransportChecksum::Bad
    );
    // The destination behind a routing header is not known; with no segments left it is.
    for (left, expected) in [(1, TransportChecksum::Absent), (0, TransportChecksum::Good)] {
        let routed = [&[17, 0, 4, left, 0, 0, 0, 0][..], &udp6[54..]].concat();
        assert_eq!(check(&ipv6_with(43, &routed)), expected);
    }
    // All zeros are no checksum of zeros: an ICMP message of zeros has 0xffff.
    let mut zeros = [0; 8];
    icmpv4::Repr::EchoReply {
        identifier: 0,
        sequence: 0,
    }
    .emit(&mut zeros)
    .unwrap();
    assert_eq!(zeros[2..4], [0xff, 0xff]);
    assert_eq!(check(&ipv4_with(1, &[], &zeros)), TransportChecksum::Good);
}

#[test]
fn tcp_options_of_impossible_length() {
    for malformed in [
        &[2, 4, 5][..],
        &[2, 3, 5],
        &[3, 0],
        &[4, 1],
        &[5, 2],
        &[5, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[8, 9, 0, 0, 0, 0, 0, 0, 0],
        &[19, 4, 0, 0],
        &[29, 3, 0],
        &[1, 1, 77],
    ] {
        let walked: Vec<_> = tcp::Options::new(malformed).collect();
        assert_eq!(walked, [Err(DropReason::TcpOptions)], "{malformed:?}");
    }
    let unknown = TcpOption::Other {
        kind: 77,
        data: &[],
    };
    let walked: Vec<_> = tcp::Options::new(&[1, 77, 2, 0, 2, 0]).collect();
    assert_eq!(walked, [Ok(unknown)]);
}

/// A frame with a neighbour solicitation from `source` to `destination`.
fn solicitation(source: Ipv6Addr, destination: Ipv6Addr, mac: Option<MacAddr>) -> Vec<u8> {
    let repr = ndp::Repr::NeighbourSolicitation {
        target: DESTINATION6,
        source_mac: mac,
    };
    let mut message = vec![0; repr.bytes()];
    repr.emit(&mut message, source, destination).unwrap();
    let mut frame = ipv6_with(58, &message);
    frame[22..38].copy_from_slice(&source.octets());
    frame[38..54].copy_from_slice(&destination.octets());
    frame
}

#[test]
fn neighbour_discovery() {
    let mac = Some(MacAddr([2, 0, 0, 0, 0, 1]));
    let check = |frame: &[u8]| {
        Message::validate(&parse(frame).unwrap(), frame)
            .unwrap()
            .err()
    };
    let invalid = Some(DropReason::NeighbourDiscovery);
    let good = solicitation(SOURCE6, DESTINATION6, mac);
    assert_eq!(
        verify_transport(&parse(&good).unwrap(), &good),
        TransportChecksum::Good
    );
    assert_eq!(check(&good), None);
    // Forwarded by a router; another code; a target that is a group; an option of length zero.
    assert_eq!(check(&with(good.clone(), 21, &[254])), invalid);
    assert_eq!(check(&with(good.clone(), 55, &[1])), invalid);
    assert_eq!(check(&with(good.clone(), 62, &[0xff])), invalid);
    assert_eq!(check(&with(good.clone(), 79, &[0])), invalid);
    // Duplicate address detection: from nobody, to the solicited-node group, without a MAC address.
    let nobody = Ipv6Addr::UNSPECIFIED;
    let group = ndp::solicited_node(DESTINATION6);
    assert_eq!(check(&solicitation(nobody, group, None)), None);
    assert_eq!(check(&solicitation(nobody, group, mac)), invalid);
    assert_eq!(check(&solicitation(nobody, DESTINATION6, None)), invalid);
    // An option of another length than on Ethernet is ignored, not an error.
    let options = ndp::Options::new(&[1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert!(options.map(|option| option.is_ok()).eq([true]));
    assert_eq!(options.source_link_layer(), None);
    // What is no neighbour discovery is none of its business.
    let udp = ipv6_with(17, &udp_with(&[], &V6));
    assert!(Message::validate(&parse(&udp).unwrap(), &udp).is_none());
}

#[test]
fn who_may_be_answered_by_an_icmp_error() {
    let may4 = |frame: &[u8]| icmpv4::may_answer(&parse(frame).unwrap(), frame);
    assert!(may4(&udp4()));
    // A group address of either layer, and sources that name no host.
    assert!(!may4(&with(udp4(), 0, &[0xff; 6])));
    assert!(!may4(&with(udp4(), 30, &[224, 0, 0, 1])));
    assert!(!may4(&with(udp4(), 26, &[0, 0, 0, 0])));
    assert!(!may4(&with(udp4(), 26, &[127, 0, 0, 1])));
    assert!(!may4(&fragment_with(17, 4, &[0; 8])));
    let mut message = [0; 36];
    icmpv4::Repr::TimeExceeded { code: 0 }
        .emit(&mut message)
        .unwrap();
    assert!(!may4(&ipv4_with(1, &[], &message)));
    icmpv4::Repr::EchoRequest {
        identifier: 1,
        sequence: 1,
    }
    .emit(&mut message)
    .unwrap();
    assert!(may4(&ipv4_with(1, &[], &message)));

    let may6 = |frame: &[u8], too| icmpv6::may_answer(&parse(frame).unwrap(), frame, too);
    let udp6 = ipv6_with(17, &udp_with(&[], &V6));
    assert!(may6(&udp6, false));
    let to_group = with(udp6, 38, &[0xff, 2]);
    assert!(!may6(&to_group, false) && may6(&to_group, true));
    assert!(!may6(
        &solicitation(Ipv6Addr::UNSPECIFIED, DESTINATION6, None),
        true
    ));
    icmpv6::Repr::PacketTooBig { mtu: 1280 }
        .emit(&mut message, SOURCE6, DESTINATION6)
        .unwrap();
    assert!(!may6(&ipv6_with(58, &message), true));
}
