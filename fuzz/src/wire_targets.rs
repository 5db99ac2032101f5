//! What the fuzz targets of `wire` do with their input: call everything, and check what it promises.

use wire::checksum::{TransportChecksum, fill_transport, verify_transport};
use wire::tcp::{Options, TcpOption};
use wire::{FlowKey, FlowSecret, Layout, LayoutFlags, MacAddr, Toeplitz, flow_hash};
use wire::{arp, ethernet, icmpv4, icmpv6, ip_protocol, ipv4, ipv6, ndp, tcp, toeplitz, udp, vlan};

/// What a target does with an input.
pub type Body = fn(&[u8]);

/// All targets by name; the name is also that of the folder of seeds in `fuzz/corpus`.
pub const TARGETS: [(&str, Body); 4] = [
    ("wire_parse", parse),
    ("wire_tcp_options", tcp_options),
    ("wire_ndp", neighbour_discovery),
    ("wire_ipv6", ipv6_packet),
];

/// A frame through the validating pass and all that takes its layout.
pub fn parse(frame: &[u8]) {
    views(frame);
    if let Ok(layout) = wire::parse_l2(frame) {
        assert!(usize::from(layout.network) <= frame.len());
        assert_eq!(usize::from(layout.end), frame.len());
    }
    // A layout of another frame must not hurt either.
    let elsewhere = Layout {
        network: 60_000,
        transport: 65_535,
        payload: 3,
        end: 2,
        ..Layout::default()
    };
    for flags in [
        LayoutFlags::all(),
        LayoutFlags::empty(),
        LayoutFlags::IPV6 | LayoutFlags::TRANSPORT,
    ] {
        with_layout(
            &Layout {
                flags,
                protocol: ip_protocol::UDP,
                ..elsewhere
            },
            frame,
        );
        with_layout(
            &Layout {
                flags,
                network: 14,
                transport: 34,
                end: 60,
                ..elsewhere
            },
            frame,
        );
    }
    let Ok(layout) = wire::parse(frame) else {
        return;
    };
    assert!(layout.network <= layout.transport);
    assert!(layout.transport <= layout.payload);
    assert!(layout.payload <= layout.end);
    assert!(usize::from(layout.end) <= frame.len());
    with_layout(&layout, frame);

    // Padding is not part of the packet.
    let cut = &frame[..usize::from(layout.end)];
    if layout.ether_type > ethernet::LENGTH_MAX && layout.flags.bits() != 0 && layout.protocol != 0
    {
        assert_eq!(wire::parse(cut), Ok(layout));
    }
}

/// Everything that takes a layout, with the promises that hold whether or not it fits the frame.
fn with_layout(layout: &Layout, frame: &[u8]) {
    let secret = FlowSecret::new([0xa5; 64]);
    let _ = (
        layout.packet(frame),
        layout.payload(frame),
        layout.vlan_id(),
    );
    let _ = icmpv4::may_answer(layout, frame);
    let _ = (
        icmpv6::may_answer(layout, frame, false),
        icmpv6::may_answer(layout, frame, true),
    );
    let _ = ndp::Message::validate(layout, frame);
    let _ = ipv6::FragmentHeader::find(layout, frame);
    for header in ipv6::ExtensionHeaders::new(layout, frame) {
        let _ = ipv6::HeaderOptions::new(header.bytes).count();
    }
    for key in [
        FlowKey::from_layout(layout, frame),
        FlowKey::from_icmp_quote(layout, frame),
    ] {
        let Some(key) = key else { continue };
        assert_eq!(key.reversed().reversed(), key);
        assert_eq!(
            flow_hash(&key, &secret),
            flow_hash(&key.reversed(), &secret)
        );
        let symmetric = const { Toeplitz::new(&toeplitz::SYMMETRIC_KEY) };
        assert_eq!(
            symmetric.hash_flow(&key),
            symmetric.hash_flow(&key.reversed())
        );
    }
    rewrites(layout, frame);
}

/// Every change in place leaves checksums right that were right.
fn rewrites(layout: &Layout, frame: &[u8]) {
    let before = verify_transport(layout, frame);
    let mut copy = frame.to_vec();
    let parsed = wire::parse(frame);
    if fill_transport(layout, &mut copy) && parsed == Ok(*layout) {
        assert_eq!(verify_transport(layout, &copy), TransportChecksum::Good);
        assert_eq!(wire::parse(&copy), parsed);
    }
    copy.copy_from_slice(frame);
    let header = copy
        .get_mut(usize::from(layout.network)..)
        .and_then(<[u8]>::first_chunk_mut);
    let forwarded = header.is_some_and(ipv4::decrement_ttl);
    if forwarded && parsed == Ok(*layout) && layout.flags.contains(LayoutFlags::IPV4) {
        assert_eq!(wire::parse(&copy), parsed);
    }
    copy.copy_from_slice(frame);
    if icmpv4::echo_reply_in_place(layout, &mut copy) && parsed == Ok(*layout) {
        assert_eq!(verify_transport(layout, &copy), before);
        let reply = wire::parse(&copy).expect("the reply to a valid request is valid");
        let request = FlowKey::from_layout(layout, frame).expect("it is IPv4");
        assert_eq!(
            FlowKey::from_layout(&reply, &copy),
            Some(request.reversed())
        );
    }
    ethernet::rewrite(&mut copy, MacAddr::BROADCAST, MacAddr::ZERO);
}

/// The bytes as every header that there is.
fn views(bytes: &[u8]) {
    if let Ok(view) = ethernet::View::new(bytes) {
        let mut out = [0; ethernet::HEADER_BYTES];
        ethernet::Repr::parse(&view)
            .emit(&mut out)
            .expect("it fits");
        assert_eq!(out, bytes[..ethernet::HEADER_BYTES]);
    }
    if let Ok(view) = vlan::View::new(bytes) {
        let mut out = [0; vlan::TAG_BYTES];
        vlan::Repr::parse(&view).emit(&mut out).expect("it fits");
        assert_eq!(out, bytes[..vlan::TAG_BYTES]);
    }
    if let Ok(view) = arp::View::new(bytes) {
        let mut out = [0; arp::PACKET_BYTES];
        arp::Repr::parse(&view).emit(&mut out).expect("it fits");
        assert_eq!(out, bytes[..arp::PACKET_BYTES]);
    }
    if let Ok(view) = ipv4::View::new(bytes) {
        let _ = (view.options().count(), view.checksum_is_valid());
        let repr = ipv4::Repr::parse(&view);
        let mut out = vec![0; repr.bytes()];
        repr.emit(&mut out).expect("it fits");
        assert_eq!(
            ipv4::Repr {
                payload_bytes: 0,
                ..repr
            },
            {
                let again = ipv4::Repr {
                    payload_bytes: 0,
                    ..repr
                };
                again.emit(&mut out).expect("it fits");
                ipv4::Repr::parse(&ipv4::View::new(&out).expect("it was just made"))
            }
        );
    }
    if let Ok(view) = ipv6::View::new(bytes) {
        let mut out = [0; ipv6::HEADER_BYTES];
        ipv6::Repr::parse(&view).emit(&mut out).expect("it fits");
        assert_eq!(out, bytes[..ipv6::HEADER_BYTES]);
    }
    if let Ok(view) = udp::View::new(bytes) {
        let _ = (udp::Repr::parse(&view), view.payload(), view.checksum());
    }
    if let Ok(view) = tcp::View::new(bytes) {
        let _ = (view.options().count(), view.payload(), view.flags());
    }
    if let Ok(view) = icmpv4::View::new(bytes) {
        let _ = (icmpv4::Repr::parse(&view), view.checksum_is_valid());
    }
    if let Ok(view) = icmpv6::View::new(bytes) {
        let any = core::net::Ipv6Addr::LOCALHOST;
        let _ = (
            icmpv6::Repr::parse(&view),
            view.checksum_is_valid_between(any, any),
        );
    }
}

/// The bytes as the options of a TCP header: what can be read can be written and read again.
pub fn tcp_options(bytes: &[u8]) {
    let read: Vec<TcpOption<'_>> = Options::new(bytes).map_while(Result::ok).collect();
    let length: usize = read.iter().map(TcpOption::bytes).sum();
    assert!(length <= bytes.len());
    let repr = tcp::Repr {
        source_port: 1,
        destination_port: 2,
        sequence: 3,
        acknowledgement: 4,
        flags: tcp::Flags::SYN,
        window: 5,
        urgent: 0,
        options: &read,
    };
    let addresses = wire::Addresses::V4 {
        source: core::net::Ipv4Addr::LOCALHOST,
        destination: core::net::Ipv4Addr::LOCALHOST,
    };
    let mut segment = vec![0; repr.bytes()];
    let emitted = repr.emit(&mut segment, &addresses);
    assert_eq!(
        emitted.is_ok(),
        repr.bytes() <= tcp::HEADER_BYTES + tcp::OPTIONS_BYTES_MAX
    );
    if emitted.is_ok() {
        let view = tcp::View::new(&segment).expect("it was just made");
        assert!(view.options().eq(read.iter().map(|option| Ok(*option))));
    }
}

/// The bytes as an ICMPv6 message between two neighbours.
pub fn neighbour_discovery(message: &[u8]) {
    if let Some(message) = ndp::Message::parse(message) {
        let options = message.options();
        let _ = (
            options.count(),
            options.source_link_layer(),
            options.target_link_layer(),
        );
    }
    ipv6_with(ip_protocol::ICMPV6, message);
}

/// The first byte as the next header, the rest as the payload of an IPv6 packet.
pub fn ipv6_packet(bytes: &[u8]) {
    if let [next, payload @ ..] = bytes {
        ipv6_with(*next, payload);
    }
}

fn ipv6_with(next_header: u8, payload: &[u8]) {
    let Ok(payload_bytes) = u16::try_from(payload.len()) else {
        return;
    };
    let link_local = |last| core::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last);
    let header = ipv6::Repr {
        hop_limit: ndp::HOP_LIMIT,
        ..ipv6::Repr::new(link_local(1), link_local(2), next_header, payload_bytes)
    };
    let ethernet = ethernet::Repr {
        destination: MacAddr([2, 0, 0, 0, 0, 2]),
        source: MacAddr([2, 0, 0, 0, 0, 1]),
        ether_type: wire::ether_type::IPV6,
    };
    let mut frame = vec![0; ethernet::HEADER_BYTES + ipv6::HEADER_BYTES];
    ethernet.emit(&mut frame).expect("it fits");
    header
        .emit(&mut frame[ethernet::HEADER_BYTES..])
        .expect("it fits");
    frame.extend_from_slice(payload);
    parse(&frame);
}
