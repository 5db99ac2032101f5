//! The same packets through our views and through those of smoltcp: fields, options, checksums and
//! validity agree, or the disagreement is one of those listed here, each with its reason.

use crate::captures;
use crate::support::{Rng, frame, sound_frame};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, Icmpv4Packet, Icmpv6Packet, IpAddress,
    Ipv4Packet, Ipv6Packet, NdiscRepr, RawHardwareAddress, TcpOption as TheirOption, TcpPacket,
    UdpPacket,
};
use wire::checksum::{TransportChecksum, verify_transport};
use wire::ndp::Message;
use wire::tcp::{Options, TcpOption};
use wire::{DropReason, Layout, LayoutFlags, MacAddr, arp, ip_protocol, ipv4, ipv6, parse, tcp};

const FRAMES: u64 = if cfg!(debug_assertions) {
    60_000
} else {
    1_000_000
};

/// What was compared, so that a test can tell whether it compared enough.
#[derive(Default)]
struct Seen {
    arp: u64,
    ipv4: u64,
    ipv6: u64,
    udp: u64,
    tcp: u64,
    icmp: u64,
    discovery: u64,
}

impl Seen {
    fn frame(&mut self, name: &str, frame: &[u8]) {
        let parsed = parse(frame);
        // smoltcp reads no tags.
        if matches!(
            parsed,
            Ok(Layout { vlan_tags: 1.., .. }) | Err(DropReason::VlanDepth)
        ) {
            return;
        }
        let Ok(theirs) = EthernetFrame::new_checked(frame) else {
            assert_eq!(parsed, Err(DropReason::EthernetTruncated), "{name}");
            return;
        };
        let body = theirs.payload();
        match u16::from(theirs.ethertype()) {
            0x0800 => self.ipv4(name, frame, body, parsed),
            0x86dd => self.ipv6(name, frame, body, parsed),
            0x0806 => self.arp(name, body, parsed),
            _ => {}
        }
    }

    fn arp(&mut self, name: &str, body: &[u8], parsed: Result<Layout, DropReason>) {
        let theirs = ArpPacket::new_checked(body).and_then(|packet| ArpRepr::parse(&packet));
        match (parsed, theirs) {
            (Ok(_), Ok(theirs)) => {
                let ours = arp::Repr::parse(&arp::View::new(body).unwrap());
                let ArpRepr::EthernetIpv4 {
                    operation,
                    source_hardware_addr,
                    source_protocol_addr,
                    target_hardware_addr,
                    target_protocol_addr,
                } = theirs
                else {
                    panic!("{name}: {theirs:?}")
                };
                assert_eq!(u16::from(ours.operation), u16::from(operation), "{name}");
                assert_eq!(ours.sender_mac.0, source_hardware_addr.0, "{name}");
                assert_eq!(ours.sender_ip, source_protocol_addr, "{name}");
                assert_eq!(ours.target_mac.0, target_hardware_addr.0, "{name}");
                assert_eq!(ours.target_ip, target_protocol_addr, "{name}");
                self.arp += 1;
            }
            (Err(DropReason::EthernetSource), _) | (Err(DropReason::ArpMalformed), Err(_)) => {}
            (ours, theirs) => panic!("{name}: {ours:?} {theirs:?}"),
        }
    }

    fn ipv4(&mut self, name: &str, frame: &[u8], body: &[u8], ours: Result<Layout, DropReason>) {
        let theirs = Ipv4Packet::new_checked(body);
        let layout = match (ours, &theirs) {
            (Ok(layout), Ok(_)) => layout,
            (Ok(layout), Err(_)) => panic!("{name}: only smoltcp refuses {layout:?}"),
            (Err(reason), Ok(packet)) => return assert_ipv4_stricter(name, reason, packet),
            (Err(_), Err(_)) => return,
        };
        let packet = theirs.unwrap();
        self.ipv4 += 1;
        let view = ipv4::View::new(body).unwrap();
        assert!(
            view.checksum_is_valid() && packet.verify_checksum(),
            "{name}"
        );
        assert_eq!(
            usize::from(layout.transport),
            14 + usize::from(packet.header_len()),
            "{name}"
        );
        assert_eq!(
            usize::from(layout.end),
            14 + usize::from(packet.total_len()),
            "{name}"
        );
        assert_eq!(view.payload(), packet.payload(), "{name}");
        assert_eq!(
            (view.source(), view.destination()),
            (packet.src_addr(), packet.dst_addr()),
            "{name}"
        );
        assert_eq!(view.ttl(), packet.hop_limit(), "{name}");
        assert_eq!(view.identification(), packet.ident(), "{name}");
        assert_eq!(view.more_fragments(), packet.more_frags(), "{name}");
        assert_eq!(view.fragment_offset_bytes(), packet.frag_offset(), "{name}");
        assert_eq!(view.dont_fragment(), packet.dont_frag(), "{name}");
        assert_eq!(view.tos(), packet.dscp() << 2 | packet.ecn(), "{name}");
        let addresses = (IpAddress::from(packet.src_addr()), packet.dst_addr().into());
        self.transport(name, frame, &layout, addresses);
    }

    fn ipv6(&mut self, name: &str, frame: &[u8], body: &[u8], ours: Result<Layout, DropReason>) {
        let theirs = Ipv6Packet::new_checked(body);
        let (Ok(layout), Ok(packet)) = (ours, &theirs) else {
            // They do not check the version, and know nothing of what is in the payload.
            assert!(ours.is_err(), "{name}: only smoltcp refuses");
            return;
        };
        self.ipv6 += 1;
        let view = ipv6::View::new(body).unwrap();
        assert_eq!(usize::from(layout.end), 14 + packet.total_len(), "{name}");
        assert_eq!(view.payload(), packet.payload(), "{name}");
        assert_eq!(
            (view.source(), view.destination()),
            (packet.src_addr(), packet.dst_addr()),
            "{name}"
        );
        assert_eq!(view.hop_limit(), packet.hop_limit(), "{name}");
        assert_eq!(view.traffic_class(), packet.traffic_class(), "{name}");
        assert_eq!(view.flow_label(), packet.flow_label(), "{name}");
        assert_eq!(view.next_header(), u8::from(packet.next_header()), "{name}");
        let addresses = (IpAddress::from(packet.src_addr()), packet.dst_addr().into());
        self.transport(name, frame, &layout, addresses);
    }

    fn transport(
        &mut self,
        name: &str,
        frame: &[u8],
        layout: &Layout,
        (source, destination): (IpAddress, IpAddress),
    ) {
        let needed = LayoutFlags::TRANSPORT;
        if !layout.flags.contains(needed) || layout.flags.contains(LayoutFlags::FRAGMENT) {
            return;
        }
        let segment = &frame[layout.transport.into()..layout.end.into()];
        let payload = layout.payload(frame);
        let ours = verify_transport(layout, frame);
        let valid = match layout.protocol {
            ip_protocol::UDP => {
                let theirs = UdpPacket::new_checked(segment).expect(name);
                assert_eq!(payload, theirs.payload(), "{name}");
                self.udp += 1;
                if theirs.checksum() == 0 {
                    // They take zero over IPv6 too, which RFC 8200 8.1 forbids.
                    let ipv4 = layout.flags.contains(LayoutFlags::IPV4);
                    let expected = if ipv4 {
                        TransportChecksum::Absent
                    } else {
                        TransportChecksum::Bad
                    };
                    assert_eq!(ours, expected, "{name}");
                    return;
                }
                theirs.verify_checksum(&source, &destination)
            }
            ip_protocol::TCP => {
                let theirs = TcpPacket::new_checked(segment).expect(name);
                self.tcp += 1;
                assert_same_tcp(name, segment, &theirs);
                theirs.verify_checksum(&source, &destination)
            }
            ip_protocol::ICMP => {
                self.icmp += 1;
                Icmpv4Packet::new_checked(segment).is_ok_and(|packet| packet.verify_checksum())
            }
            _ => {
                self.icmp += 1;
                let Ok(theirs) = Icmpv6Packet::new_checked(segment) else {
                    return;
                };
                let (IpAddress::Ipv6(source), IpAddress::Ipv6(destination)) = (source, destination)
                else {
                    panic!("{name}")
                };
                self.discovery += u64::from(compare_discovery(name, segment, &theirs));
                theirs.verify_checksum(&source, &destination)
            }
        };
        match ours {
            TransportChecksum::Good => assert!(valid, "{name}: only we call the checksum good"),
            TransportChecksum::Bad => assert!(!valid, "{name}: only we call the checksum bad"),
            // A routing header hides the destination; they do not look for one.
            TransportChecksum::Absent => {
                assert!(
                    layout
                        .flags
                        .contains(LayoutFlags::IPV6 | LayoutFlags::OPTIONS),
                    "{name}"
                );
            }
        }
    }
}

fn assert_ipv4_stricter(name: &str, reason: DropReason, packet: &Ipv4Packet<&[u8]>) {
    let why = match reason {
        // They check the version and the checksum in a later step.
        DropReason::Ipv4Version => packet.version() != 4,
        DropReason::Ipv4Checksum => !packet.verify_checksum(),
        // They do not look at options, MAC addresses, fragments or what is in the payload.
        DropReason::Ipv4Options => packet.header_len() > 20,
        DropReason::EthernetSource => true,
        DropReason::FragmentMalformed | DropReason::FragmentTiny => {
            packet.more_frags() || packet.frag_offset() != 0
        }
        DropReason::TransportTruncated | DropReason::TransportLength => true,
        _ => false,
    };
    assert!(why, "{name}: only we refuse, {reason:?}");
}

fn assert_same_tcp(name: &str, segment: &[u8], theirs: &TcpPacket<&[u8]>) {
    let ours = tcp::View::new(segment).unwrap();
    assert_eq!(ours.payload(), theirs.payload(), "{name}");
    assert_eq!(ours.sequence() as i32, theirs.seq_number().0, "{name}");
    assert_eq!(
        ours.acknowledgement() as i32,
        theirs.ack_number().0,
        "{name}"
    );
    assert_eq!(ours.window(), theirs.window_len(), "{name}");
    assert_eq!(ours.urgent(), theirs.urgent_at(), "{name}");
    let flags = [
        theirs.fin(),
        theirs.syn(),
        theirs.rst(),
        theirs.psh(),
        theirs.ack(),
    ];
    for (bit, flag) in flags.into_iter().enumerate() {
        assert_eq!(ours.flags().bits() >> bit & 1 == 1, flag, "{name}");
    }
    assert_same_options(name, ours.options(), theirs.options());
}

fn assert_same_options(name: &str, mut ours: Options<'_>, mut rest: &[u8]) {
    while !rest.is_empty() {
        let Ok((next, theirs)) = TheirOption::parse(rest) else {
            assert!(
                matches!(ours.next(), Some(Err(_))),
                "{name}: only smoltcp refuses"
            );
            return;
        };
        rest = next;
        let expected = match theirs {
            TheirOption::NoOperation => continue,
            TheirOption::EndOfList => break,
            theirs => theirs,
        };
        let ours = ours.next();
        let same = match (ours, expected) {
            (Some(Ok(TcpOption::MaximumSegmentSize(a))), TheirOption::MaxSegmentSize(b)) => a == b,
            (Some(Ok(TcpOption::WindowScale(a))), TheirOption::WindowScale(b)) => a == b,
            (Some(Ok(TcpOption::SackPermitted)), TheirOption::SackPermitted) => true,
            (Some(Ok(TcpOption::Sack(blocks))), TheirOption::SackRange(theirs)) => {
                // They keep three blocks, we four.
                let ours = blocks.as_slice().iter().copied().take(3);
                ours.eq(theirs.into_iter().flatten())
            }
            // They take a SACK option of more than four blocks, which no header can hold...
            (Some(Err(_)), TheirOption::SackRange(_)) => return,
            (
                Some(Ok(TcpOption::Timestamps { value, echo })),
                TheirOption::TimeStamp { tsval, tsecr },
            ) => (value, echo) == (tsval, tsecr),
            // ... and a timestamp, or an option that they do not know, of any length.
            (
                Some(Err(_)),
                TheirOption::Unknown {
                    kind: 8 | 19 | 28 | 29,
                    ..
                },
            ) => return,
            (Some(Ok(TcpOption::Md5(a))), TheirOption::Unknown { kind: 19, data }) => a == data,
            (Some(Ok(TcpOption::UserTimeout(a))), TheirOption::Unknown { kind: 28, data }) => {
                a.to_be_bytes() == data
            }
            (Some(Ok(TcpOption::Authentication(a))), TheirOption::Unknown { kind: 29, data }) => {
                a == data
            }
            (Some(Ok(TcpOption::FastOpen(a))), TheirOption::Unknown { kind: 34, data }) => {
                a == data
            }
            (
                Some(Ok(TcpOption::FastOpenExperimental(a))),
                TheirOption::Unknown { kind: 254, data },
            ) => a == &data[2..],
            (
                Some(Ok(TcpOption::Other { kind, data })),
                TheirOption::Unknown { kind: k, data: d },
            ) => (kind, data) == (k, d),
            // A length byte below two: they read it as an option without data, at the cost of
            // reading its bytes twice; we call it malformed.
            _ => false,
        };
        assert!(same, "{name}: {ours:?} is not {expected:?}");
    }
    assert_eq!(ours.next(), None, "{name}");
}

fn compare_discovery(name: &str, segment: &[u8], theirs: &Icmpv6Packet<&[u8]>) -> bool {
    let (Some(ours), Ok(theirs)) = (Message::parse(segment), NdiscRepr::parse(theirs)) else {
        return false;
    };
    // They ignore what we call malformed only if it has a length.
    assert!(ours.options().all(|option| option.is_ok()), "{name}");
    let same_mac = |ours: Option<MacAddr>, theirs: Option<RawHardwareAddress>| {
        let theirs = theirs.map(|mac| EthernetAddress::from_bytes(mac.as_bytes()));
        // They keep the last option of a kind, we the first.
        assert!(
            ours.is_some() == theirs.is_some(),
            "{name}: {ours:?} {theirs:?}"
        );
    };
    match (ours, theirs) {
        (Message::RouterSolicitation { options }, NdiscRepr::RouterSolicit { lladdr }) => {
            same_mac(options.source_link_layer(), lladdr);
        }
        (
            Message::RouterAdvertisement {
                hop_limit,
                lifetime_s,
                reachable_ms,
                options,
                ..
            },
            NdiscRepr::RouterAdvert {
                hop_limit: limit,
                router_lifetime,
                reachable_time,
                lladdr,
                ..
            },
        ) => {
            assert_eq!(hop_limit, limit, "{name}");
            assert_eq!(u64::from(lifetime_s), router_lifetime.secs(), "{name}");
            assert_eq!(
                u64::from(reachable_ms),
                reachable_time.total_millis(),
                "{name}"
            );
            same_mac(options.source_link_layer(), lladdr);
        }
        (
            Message::NeighbourSolicitation { target, options },
            NdiscRepr::NeighborSolicit {
                target_addr,
                lladdr,
            },
        ) => {
            assert_eq!(target, target_addr, "{name}");
            same_mac(options.source_link_layer(), lladdr);
        }
        (
            Message::NeighbourAdvertisement {
                router,
                solicited,
                overrides,
                target,
                options,
            },
            NdiscRepr::NeighborAdvert {
                flags,
                target_addr,
                lladdr,
            },
        ) => {
            assert_eq!(target, target_addr, "{name}");
            let ours = u8::from(router) << 7 | u8::from(solicited) << 6 | u8::from(overrides) << 5;
            assert_eq!(ours, flags.bits(), "{name}");
            same_mac(options.target_link_layer(), lladdr);
        }
        (
            Message::Redirect {
                target,
                destination,
                options,
            },
            NdiscRepr::Redirect {
                target_addr,
                dest_addr,
                lladdr,
                ..
            },
        ) => {
            assert_eq!((target, destination), (target_addr, dest_addr), "{name}");
            same_mac(options.target_link_layer(), lladdr);
        }
        (ours, theirs) => panic!("{name}: {ours:?} is not {theirs:?}"),
    }
    true
}

#[test]
fn random_frames() {
    let mut seen = Seen::default();
    for seed in 0..FRAMES {
        let frame = frame(&mut Rng::new(seed));
        seen.frame(&format!("seed {seed}: {frame:02x?}"), &frame);
    }
    // The generator must make enough of each, or the comparison means nothing.
    for (what, count) in [
        ("arp", seen.arp),
        ("ipv4", seen.ipv4),
        ("ipv6", seen.ipv6),
        ("udp", seen.udp),
        ("tcp", seen.tcp),
        ("icmp", seen.icmp),
        ("discovery", seen.discovery),
    ] {
        assert!(count > FRAMES / 200, "only {count} of {what} in {FRAMES}");
    }
}

#[test]
fn captures() {
    let Some(packets) = captures::all("oracle_smoltcp::captures") else {
        return;
    };
    let mut seen = Seen::default();
    for packet in &packets {
        seen.frame(&packet.name, &packet.data);
    }
    assert!(
        seen.ipv4 > 4000 && seen.tcp > 3000,
        "{} {}",
        seen.ipv4,
        seen.tcp
    );
}

/// What we build, smoltcp takes: header checksums and transport checksums of sound frames are right.
#[test]
fn sound_frames_have_good_checksums() {
    let capabilities = ChecksumCapabilities::default();
    let mut good = 0;
    for seed in 0..FRAMES / 10 {
        let frame = sound_frame(&mut Rng::new(seed));
        let Ok(layout) = parse(&frame) else { continue };
        let name = format!("seed {seed}: {frame:02x?}");
        assert_ne!(
            verify_transport(&layout, &frame),
            TransportChecksum::Bad,
            "{name}"
        );
        good += u64::from(verify_transport(&layout, &frame) == TransportChecksum::Good);
        let body = &frame[layout.network.into()..];
        // As configured here, their repr takes no fragment.
        if layout.flags & (LayoutFlags::IPV4 | LayoutFlags::FRAGMENT) == LayoutFlags::IPV4 {
            let packet = Ipv4Packet::new_checked(body).unwrap();
            smoltcp::wire::Ipv4Repr::parse(&packet, &capabilities).expect(&name);
        }
    }
    assert!(good > FRAMES / 10 / 3, "only {good}");
}
