//! NAT for ICMP (RFC 5508, RFC 7857), and ICMP errors about translated packets.

use super::*;
use crate::testing::framed;
use wire::{icmpv4, ip_protocol};

/// An ICMP error of `router` about a packet.
fn error_of(router: Ipv4Addr, to: Ipv4Addr, about: &[u8], code: u8) -> Vec<u8> {
    let quote = &about[14..];
    framed(
        v4(router, to),
        ip_protocol::ICMP,
        8 + quote.len(),
        |bytes| {
            bytes[8..].copy_from_slice(quote);
            let error = icmpv4::Repr::DestinationUnreachable { code, mtu: 1400 };
            error.emit(bytes).unwrap();
        },
    )
}

const ROUTER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

#[test]
fn row_36_a_query_mapping_lives_a_minute() {
    let mut rig = Rig::filtering(Filtering::AddressAndPort);
    rig.ping(HOST, 7, PEER);
    rig.wait(Duration::from_secs(59));
    assert_eq!(rig.worker.shared().connections(), 1);
    rig.wait(Duration::from_secs(3));
    assert_eq!(rig.worker.shared().connections(), 0);
}

#[test]
fn row_37_identifiers_are_mapped_and_replies_delivered() {
    let mut rig = Rig::filtering(Filtering::AddressAndPort);
    let one = rig.ping(HOST, 7, PEER);
    let two = rig.ping(OTHER_HOST, 7, PEER);
    assert_ne!(one.1, two.1);
    for (outer, host) in [(one, HOST), (two, OTHER_HOST)] {
        let reply = framed(v4(PEER, OUTER), ip_protocol::ICMP, 12, |bytes| {
            let reply = icmpv4::Repr::EchoReply {
                identifier: outer.1,
                sequence: 1,
            };
            reply.emit(bytes).unwrap();
        });
        let reply = rig.send(OUTSIDE, reply).unwrap();
        assert_eq!(destination_of(&reply), (host, 7));
    }
}

#[test]
fn row_15_16_29_39_an_error_reaches_the_sender_with_its_own_packet() {
    let mut rig = Rig::filtering(Filtering::AddressAndPort);
    // Something else has port 5000, so that the port is translated too.
    rig.out((OTHER_HOST, 5000), (PEER, 53));
    let sent = udp_frame(v4(HOST, PEER), (5000, 53), b"0123456789");
    let outside = rig.send(INSIDE, sent.clone()).unwrap();
    let error = error_of(ROUTER, OUTER, &outside, 4);
    let inside = rig.send(OUTSIDE, error).unwrap();
    assert_eq!(destination_of(&inside).0, HOST);
    assert_eq!(source_of(&inside).0, ROUTER);
    let layout = parse(&inside).unwrap();
    assert_eq!(layout.payload(&inside), &sent[14..]);
    // The MTU is untouched, and the mapping too.
    assert_eq!(inside[40..42], 1400_u16.to_be_bytes());
    assert_eq!(rig.back((PEER, 53), source_of(&outside)), Ok((HOST, 5000)));
}

#[test]
fn row_38_and_40_wrong_or_unknown_errors_are_dropped() {
    let mut rig = Rig::filtering(Filtering::AddressAndPort);
    let sent = udp_frame(v4(HOST, PEER), (5000, 53), b"0123456789");
    let outside = rig.send(INSIDE, sent).unwrap();
    let mut bad = error_of(ROUTER, OUTER, &outside, 3);
    bad[60] ^= 1;
    let fate = rig.send(OUTSIDE, bad);
    assert_eq!(fate, Err(Fate::Drop(DropReason::NatError)));
    let unknown = udp_frame(v4(OUTER, PEER), (5999, 53), b"never sent");
    let fate = rig.send(OUTSIDE, error_of(ROUTER, OUTER, &unknown, 3));
    assert_eq!(fate, Err(Fate::Drop(DropReason::FirewallRule)));
}

#[test]
fn row_41_an_error_from_inside_leaves_with_the_outer_source() {
    let mut rig = Rig::filtering(Filtering::AddressAndPort);
    let outer = rig.out((HOST, 5000), (PEER, 53));
    let answer = udp_frame(v4(PEER, OUTER), (53, outer.1), b"answer");
    let inside = rig.send(OUTSIDE, answer.clone()).unwrap();
    let inner_router = Ipv4Addr::new(10, 0, 0, 77);
    let error = rig
        .send(INSIDE, error_of(inner_router, PEER, &inside, 3))
        .unwrap();
    assert_eq!(source_of(&error).0, OUTER);
    let layout = parse(&error).unwrap();
    assert_eq!(layout.payload(&error), &answer[14..]);
}

#[test]
fn row_42_an_error_about_a_query_changes_nothing() {
    let mut rig = Rig::filtering(Filtering::AddressAndPort);
    let query = rig
        .send(INSIDE, echo_frame(v4(HOST, PEER), 7, b"x"))
        .unwrap();
    rig.wait(Duration::from_secs(50));
    let error = rig
        .send(OUTSIDE, error_of(ROUTER, OUTER, &query, 1))
        .unwrap();
    assert_eq!(destination_of(&error).0, HOST);
    assert_eq!(rig.worker.shared().connections(), 1);
    rig.wait(Duration::from_secs(12));
    assert_eq!(rig.worker.shared().connections(), 0);
}

#[test]
fn row_16_the_nodes_own_error_goes_to_the_host_inside() {
    let mut rig = Rig::filtering(Filtering::AddressAndPort);
    rig.out((OTHER_HOST, 5000), (PEER, 53));
    let sent = udp_frame(v4(HOST, PEER), (5000, 53), b"0123456789");
    let outside = rig.send(INSIDE, sent.clone()).unwrap();
    // The node saw the translated packet, and would tell its own outer address.
    let error = error_of(Ipv4Addr::new(10, 0, 0, 254), OUTER, &outside, 4);
    let error = rig.send(InterfaceId::NONE, error).unwrap();
    assert_eq!(destination_of(&error).0, HOST);
    assert_eq!(source_of(&error).0, Ipv4Addr::new(10, 0, 0, 254));
    assert_eq!(parse(&error).unwrap().payload(&error), &sent[14..]);
}

#[test]
fn row_43_an_error_about_a_hairpin() {
    let mut rig = Rig::filtering(Filtering::EndpointIndependent);
    let server = rig.out((HOST, 5000), (PEER, 53));
    let sent = udp_frame(v4(OTHER_HOST, OUTER), (6000, server.1), b"0123456789");
    let turned = rig.send(INSIDE, sent.clone()).unwrap();
    let error = rig.send(INSIDE, error_of(HOST, OUTER, &turned, 3)).unwrap();
    assert_eq!(destination_of(&error).0, OTHER_HOST);
    assert_eq!(source_of(&error).0, OUTER);
    assert_eq!(parse(&error).unwrap().payload(&error), &sent[14..]);
}
