//! IPv6 hosts that reach IPv4 servers through the translator and the engine (RFC 6146, RFC 7915).

use alloc::vec;
use core::net::Ipv6Addr;

use wire::checksum::{TransportChecksum, verify_transport};
use wire::tcp::Flags;
use wire::{LayoutFlags, icmpv6, ipv6};

use super::*;
use crate::nat::nat64::{Nat64, Nat64Worker, Pool};
use crate::nat::siit::Prefix;
use crate::testing::{TcpFrame, framed};

const PREFIX: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);
const CLIENT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 1);
const OTHER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 2);

struct Translator {
    nat64: Nat64,
    worker: Nat64Worker,
    rig: Rig,
}

fn translator(filtering: Filtering) -> Translator {
    let nat64 = Nat64::new(
        Prefix::new(PREFIX),
        Pool::new(Ipv4Addr::new(10, 64, 0, 0), 16),
        1,
    );
    Translator {
        worker: nat64.join().unwrap(),
        nat64,
        rig: Rig::filtering(filtering),
    }
}

fn under(address: Ipv4Addr) -> Ipv6Addr {
    Prefix::new(PREFIX).v6_of(address)
}

fn v6(source: Ipv6Addr, destination: Ipv6Addr) -> Addresses {
    Addresses::V6 {
        source,
        destination,
    }
}

fn checked(frame: Vec<u8>) -> Vec<u8> {
    let layout = parse(&frame).unwrap();
    let expected = if layout.flags.contains(LayoutFlags::FRAGMENT) {
        TransportChecksum::Absent
    } else {
        TransportChecksum::Good
    };
    assert_eq!(verify_transport(&layout, &frame), expected);
    frame
}

impl Translator {
    fn outward(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let layout = parse(frame).unwrap();
        assert!(self.nat64.server(&layout, frame).is_some());
        let mut to = vec![0; 4096];
        let worker = &mut self.worker;
        let len = self
            .nat64
            .outward(worker, frame, &layout, &mut to, None, self.rig.now)?;
        Some(checked(to[..len].to_vec()))
    }

    fn inward(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let layout = parse(frame).unwrap();
        assert!(self.nat64.is_inward(&layout, frame));
        let mut to = vec![0; 4096];
        let len = self.nat64.inward(frame, &layout, &mut to)?;
        Some(checked(to[..len].to_vec()))
    }

    /// A packet from an IPv6 host, as it leaves the node on the outside.
    fn out(&mut self, frame: &[u8]) -> Result<Vec<u8>, Fate> {
        let inner = self.outward(frame).unwrap();
        self.rig.send(INSIDE, inner)
    }

    /// A packet from outside, as an IPv6 host sees it.
    fn back(&mut self, frame: Vec<u8>) -> Result<Vec<u8>, Fate> {
        let inner = self.rig.send(OUTSIDE, frame)?;
        Ok(self.inward(&inner).unwrap())
    }
}

fn payload(frame: &[u8]) -> &[u8] {
    let layout = parse(frame).unwrap();
    &frame[layout.payload.into()..layout.end.into()]
}

#[test]
fn row_55_tcp_udp_and_pings_reach_ipv4_and_come_back() {
    let mut nat = translator(Filtering::AddressAndPort);
    let sent = nat
        .out(&udp_frame(v6(CLIENT, under(PEER)), (4000, 53), b"question"))
        .unwrap();
    let (address, port) = source_of(&sent);
    assert_eq!(
        (address, destination_of(&sent), payload(&sent)),
        (OUTER, (PEER, 53), &b"question"[..])
    );
    let back = nat
        .back(udp_frame(v4(PEER, OUTER), (53, port), b"answer"))
        .unwrap();
    let key = key_of(&back);
    assert_eq!(
        (Ipv6Addr::from(key.source), key.source_port),
        (under(PEER), 53)
    );
    assert_eq!(
        (Ipv6Addr::from(key.destination), key.destination_port),
        (CLIENT, 4000)
    );
    // The binding does not depend on the destination (RFC 6146 3.5.1.1), another host has its own.
    let more = nat
        .out(&udp_frame(v6(CLIENT, under(OTHER_PEER)), (4000, 99), b"q"))
        .unwrap();
    assert_eq!(source_of(&more), (OUTER, port));
    let other = nat
        .out(&udp_frame(v6(OTHER, under(PEER)), (4000, 53), b"q"))
        .unwrap();
    assert_ne!(source_of(&other), (OUTER, port));
    assert_eq!(nat.nat64.hosts(), 2);

    let syn = TcpFrame::new(v6(CLIENT, under(PEER)), (4001, 80), Flags::SYN).frame();
    let (_, port) = source_of(&nat.out(&syn).unwrap());
    let mut answer = TcpFrame::new(v4(PEER, OUTER), (80, port), Flags::SYN | Flags::ACK);
    answer.acknowledgement = 1;
    let answer = nat.back(answer.frame()).unwrap();
    assert_eq!(Ipv6Addr::from(key_of(&answer).destination), CLIENT);

    let ping = nat
        .out(&echo_frame(v6(CLIENT, under(PEER)), 77, b"ping"))
        .unwrap();
    assert_eq!(payload(&ping), b"ping");
    let (_, id) = source_of(&ping);
    let mut reply = echo_frame(v4(PEER, OUTER), id, b"ping");
    let layout = parse(&reply).unwrap();
    reply[usize::from(layout.transport)] = 0;
    wire::checksum::fill_transport(&layout, &mut reply);
    let reply = nat.back(reply).unwrap();
    let layout = parse(&reply).unwrap();
    assert_eq!(
        (
            reply[usize::from(layout.transport)],
            key_of(&reply).source_port
        ),
        (129, 77)
    );
}

#[test]
fn row_56_bindings_live_as_long_as_the_rfc_asks() {
    let mut nat = translator(Filtering::AddressAndPort);
    let ask = udp_frame(v6(CLIENT, under(PEER)), (4000, 53), b"q");
    let (_, port) = source_of(&nat.out(&ask).unwrap());
    nat.rig.wait(Duration::from_secs(110));
    nat.back(udp_frame(v4(PEER, OUTER), (53, port), b"a"))
        .unwrap();
    // Answered: five minutes (RFC 6146 4).
    nat.rig.wait(Duration::from_secs(280));
    nat.back(udp_frame(v4(PEER, OUTER), (53, port), b"a"))
        .unwrap();
    nat.rig.wait(Duration::from_secs(320));
    let late = nat
        .rig
        .send(OUTSIDE, udp_frame(v4(PEER, OUTER), (53, port), b"a"));
    assert_eq!(late, Err(Fate::Drop(DropReason::FirewallRule)));
    // The host itself is known for longer than any of its connections lives, then forgotten.
    nat.nat64
        .maintain(&mut nat.worker, usize::MAX / 2, nat.rig.now);
    assert_eq!(nat.nat64.hosts(), 1);
    nat.rig.wait(Duration::from_secs(3 * 3600));
    for _ in 0..2 {
        nat.nat64
            .maintain(&mut nat.worker, usize::MAX / 2, nat.rig.now);
    }
    assert_eq!(nat.nat64.hosts(), 0);
}

/// An ICMPv6 error about a packet, from a router.
fn error6(from: Ipv6Addr, to: Ipv6Addr, kind: u8, code: u8, word: u32, quote: &[u8]) -> Vec<u8> {
    let layout = parse(quote).unwrap();
    let quote = layout.packet(quote);
    let mut frame = framed(v6(from, to), 58, 8 + quote.len(), |bytes| {
        bytes[0] = kind;
        bytes[1] = code;
        bytes[4..8].copy_from_slice(&word.to_be_bytes());
        bytes[8..].copy_from_slice(quote);
    });
    let layout = parse(&frame).unwrap();
    wire::checksum::fill_transport(&layout, &mut frame);
    frame
}

fn error4(from: Ipv4Addr, to: Ipv4Addr, kind: u8, code: u8, word: u32, quote: &[u8]) -> Vec<u8> {
    let layout = parse(quote).unwrap();
    let quote = layout.packet(quote);
    let mut frame = framed(v4(from, to), 1, 8 + quote.len(), |bytes| {
        bytes[0] = kind;
        bytes[1] = code;
        bytes[4..8].copy_from_slice(&word.to_be_bytes());
        bytes[8..].copy_from_slice(quote);
    });
    let layout = parse(&frame).unwrap();
    wire::checksum::fill_transport(&layout, &mut frame);
    frame
}

#[test]
fn row_57_errors_are_translated_with_their_quotes_both_ways() {
    let mut nat = translator(Filtering::AddressAndPort);
    let ask = udp_frame(v6(CLIENT, under(PEER)), (4000, 53), b"question");
    let sent = nat.out(&ask).unwrap();
    let (_, port) = source_of(&sent);
    let router = Ipv4Addr::new(198, 51, 100, 200);
    for (kind, code, word, wanted) in [
        (3, 4, 1400, (2, 0, 1420)),
        (3, 4, 0, (2, 0, 1280)),
        (3, 3, 0, (1, 4, 0)),
        (3, 13, 0, (1, 1, 0)),
        (3, 1, 0, (1, 0, 0)),
        (11, 0, 0, (3, 0, 0)),
    ] {
        let error = nat
            .back(error4(router, OUTER, kind, code, word, &sent))
            .unwrap();
        let layout = parse(&error).unwrap();
        let message = &error[layout.transport.into()..layout.end.into()];
        let word = u32::from_be_bytes([message[4], message[5], message[6], message[7]]);
        assert_eq!((message[0], message[1], word), wanted);
        let (source, destination) = layout.ipv6_addresses(&error).unwrap();
        assert_eq!((source, destination), (under(router), CLIENT));
        // What is quoted is what the host sent, checksum and all.
        let asked = parse(&ask).unwrap();
        assert_eq!(&message[8 + 8..], &asked.packet(&ask)[8..]);
    }
    // And to the server: the host's network takes less.
    let answer = nat
        .back(udp_frame(v4(PEER, OUTER), (53, port), b"answer"))
        .unwrap();
    let error = nat
        .out(&error6(OTHER, under(PEER), 2, 0, 1400, &answer))
        .unwrap();
    let layout = parse(&error).unwrap();
    let message = &error[layout.transport.into()..layout.end.into()];
    assert_eq!(message[..8], [3, 4, message[2], message[3], 0, 0, 5, 100]);
    assert_eq!(
        (source_of(&error).0, destination_of(&error).0),
        (OUTER, PEER)
    );
    let quoted = FlowKey::from_icmp_quote(&layout, &error).unwrap();
    assert_eq!(
        (unmapped(quoted.destination), quoted.destination_port),
        (OUTER.to_bits(), port)
    );
}

#[test]
fn row_57_headers_and_fragments_follow_rfc_7915() {
    let mut nat = translator(Filtering::AddressAndPort);
    let mut frame = udp_frame(v6(CLIENT, under(PEER)), (4000, 53), b"question");
    frame[14] = 0x6b;
    frame[15] = 0x80;
    frame[14 + ipv6::HOP_LIMIT] = 9;
    let sent = nat.outward(&frame).unwrap();
    let view = wire::ipv4::View::new(&sent[14..]).unwrap();
    assert_eq!(
        (view.tos(), view.ttl(), view.dont_fragment()),
        (0xb8, 9, false)
    );
    assert!(view.checksum_is_valid());
    let large = udp_frame(v6(CLIENT, under(PEER)), (4000, 53), &[7; 1300]);
    let large = nat.outward(&large).unwrap();
    assert!(wire::ipv4::View::new(&large[14..]).unwrap().dont_fragment());
    // A fragment keeps place and identification, there and back.
    let whole = udp_frame(v6(CLIENT, under(PEER)), (4000, 53), &[1; 24]);
    let mut part = whole[..54].to_vec();
    part[14 + ipv6::NEXT_HEADER] = 44;
    part[14 + ipv6::PAYLOAD_LENGTH + 1] = 8 + 16;
    part.extend_from_slice(&[17, 0, 0, 9, 0, 1, 2, 3]);
    part.extend_from_slice(&[5; 16]);
    let sent = nat.outward(&part).unwrap();
    let view = wire::ipv4::View::new(&sent[14..]).unwrap();
    assert_eq!(
        (view.fragment_offset_bytes(), view.more_fragments()),
        (8, true)
    );
    assert_eq!(
        (view.identification(), view.dont_fragment()),
        (0x0203, false)
    );
    let host = Ipv4Addr::from_bits(unmapped(key_address(&sent)));
    let mut back = sent.clone();
    back[26..30].copy_from_slice(&PEER.octets());
    back[30..34].copy_from_slice(&host.octets());
    let mut header: [u8; 20] = *back[14..].first_chunk().unwrap();
    header[10..12].fill(0);
    let sum = wire::checksum::checksum(&header);
    back[24..26].copy_from_slice(&sum.to_be_bytes());
    let back = nat.inward(&back).unwrap();
    assert_eq!(back[14 + ipv6::NEXT_HEADER], 44);
    assert_eq!(
        back[54..],
        [&[17, 0, 0, 9, 0, 0, 2, 3][..], &[5; 16]].concat()
    );
    // A datagram without a checksum gets one (RFC 7915 4.5).
    let mut bare = udp_frame(v4(PEER, host), (53, 4000), b"bare");
    let layout = parse(&bare).unwrap();
    let at = usize::from(layout.transport) + wire::udp::CHECKSUM;
    bare[at..at + 2].fill(0);
    nat.inward(&bare).unwrap();
    // Neighbour discovery and unknown messages stay where they are.
    let odd = framed(v6(CLIENT, under(PEER)), 58, 8, |bytes| bytes[0] = 200);
    assert_eq!(nat.outward(&odd), None);
    assert!(icmpv6::is_error(1));
}

/// The source of an IPv4 frame, as keys hold it.
fn key_address(frame: &[u8]) -> [u8; 16] {
    let layout = parse(frame).unwrap();
    mapped(layout.ipv4_addresses(frame).unwrap().0.to_bits())
}

#[test]
fn row_58_hairpin_and_filtering() {
    let mut nat = translator(Filtering::EndpointIndependent);
    let (_, port) = source_of(
        &nat.out(&udp_frame(v6(CLIENT, under(PEER)), (4000, 53), b"q"))
            .unwrap(),
    );
    // Anyone may answer, if that is wanted.
    let stranger = nat
        .back(udp_frame(v4(OTHER_PEER, OUTER), (9, port), b"a"))
        .unwrap();
    assert_eq!(Ipv6Addr::from(key_of(&stranger).destination), CLIENT);
    // Another IPv6 host reaches it by its outer endpoint, and is seen by one itself (RFC 6146 3.8).
    let hairpin = nat
        .out(&udp_frame(v6(OTHER, under(OUTER)), (5000, port), b"h"))
        .unwrap();
    let hairpin = nat.inward(&hairpin).unwrap();
    let key = key_of(&hairpin);
    assert_eq!(
        (Ipv6Addr::from(key.destination), key.destination_port),
        (CLIENT, 4000)
    );
    assert_eq!(Ipv6Addr::from(key.source), under(OUTER));
    let mut nat = translator(Filtering::Address);
    let (_, port) = source_of(
        &nat.out(&udp_frame(v6(CLIENT, under(PEER)), (4000, 53), b"q"))
            .unwrap(),
    );
    assert!(
        nat.back(udp_frame(v4(PEER, OUTER), (9, port), b"a"))
            .is_ok()
    );
    let stranger = nat
        .rig
        .send(OUTSIDE, udp_frame(v4(OTHER_PEER, OUTER), (9, port), b"a"));
    assert_eq!(stranger, Err(Fate::Drop(DropReason::FirewallRule)));
}

#[test]
fn the_well_known_prefix_holds_global_addresses_only() {
    let well_known = Prefix::WELL_KNOWN;
    assert_eq!(well_known, Prefix::new(PREFIX));
    let private = Ipv4Addr::new(10, 0, 0, 1);
    assert_eq!(well_known.v4_of(well_known.v6_of(private)), None);
    assert_eq!(well_known.v4_of(well_known.v6_of(PEER)), Some(PEER));
    let own = Prefix::new("2001:db8:64::".parse().unwrap());
    assert_eq!(own.v4_of(own.v6_of(private)), Some(private));
    assert_eq!(own.v4_of(CLIENT), None);
}

#[test]
fn a_host_that_is_forgotten_gets_its_address_again() {
    let mut nat = translator(Filtering::AddressAndPort);
    let frame = udp_frame(v6(CLIENT, under(PEER)), (4000, 53), b"q");
    let first = nat.outward(&frame).unwrap();
    let mut other = translator(Filtering::AddressAndPort);
    other
        .outward(&udp_frame(v6(OTHER, under(PEER)), (1, 2), b"q"))
        .unwrap();
    assert_eq!(other.outward(&frame).unwrap()[26..30], first[26..30]);
}
