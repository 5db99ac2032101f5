//! The firewall in the packet graph: what leaves is masqueraded, what was not asked for is dropped.

use wire::{DropReason, FlowKey, checksum, parse};

use crate::frames::to_node4;
use crate::packets::{echo_request, ethernet, ipv4, udp};
use crate::rig::{Rig, node_mac, peer_mac};

const GATEWAY: &str = r#"
[[port]]
name = "lan"
driver = "mem"
addresses = ["10.0.0.1/24"]
[[port]]
name = "wan"
driver = "mem"
mtu = 1300
addresses = ["198.51.100.1/24"]
[[neighbour]]
address = "10.0.0.2"
mac = "02:00:00:00:00:02"
port = "lan"
[[neighbour]]
address = "198.51.100.9"
mac = "02:00:00:00:01:02"
port = "wan"
[firewall]
inside = "lan"
"#;

const CLIENT: [u8; 4] = [10, 0, 0, 2];
const GATE: [u8; 4] = [198, 51, 100, 1];
const SERVER: [u8; 4] = [198, 51, 100, 9];

/// A frame from the station outside.
fn from_outside(packet: &[u8]) -> Vec<u8> {
    ethernet(node_mac(1).0, peer_mac(1).0, 0x0800, packet)
}

/// A UDP packet with a right checksum from one host to another, ports 12345 and 53 (or as given).
fn datagram(
    from: [u8; 4],
    to: [u8; 4],
    ports: Option<(u16, u16)>,
    data: usize,
    ttl: u8,
) -> Vec<u8> {
    let mut payload = udp(data);
    if let Some((source, destination)) = ports {
        payload[..2].copy_from_slice(&source.to_be_bytes());
        payload[2..4].copy_from_slice(&destination.to_be_bytes());
    }
    let mut frame = to_node4(&ipv4(from, to, 17, ttl, 0x4000, &[], &payload));
    let layout = parse(&frame).expect("a datagram");
    checksum::fill_transport(&layout, &mut frame);
    frame[14..].to_vec()
}

fn key(frame: &[u8]) -> FlowKey {
    let layout = parse(frame).expect("the node sends what parses");
    let state = checksum::verify_transport(&layout, frame);
    assert_ne!(state, checksum::TransportChecksum::Bad);
    FlowKey::from_layout(&layout, frame).expect("IP")
}

fn dropped(rig: &Rig, reason: DropReason) -> u64 {
    let drops = rig.drops();
    drops
        .iter()
        .filter(|(name, _)| *name == reason.name())
        .map(|(_, count)| count)
        .sum()
}

#[test]
fn a_client_reaches_a_server_through_masquerade_and_nobody_comes_in() {
    let mut rig = Rig::new(GATEWAY);
    let out = rig.exchange(0, &to_node4(&datagram(CLIENT, SERVER, None, 32, 64)));
    let [sent] = &out[1][..] else {
        panic!("one frame leaves by the wan port: {out:?}")
    };
    assert_eq!(key(sent).source_ip(), std::net::IpAddr::from(GATE));
    let port = key(sent).source_port;
    let answer = datagram(SERVER, GATE, Some((53, port)), 8, 64);
    let back = rig.exchange(1, &from_outside(&answer));
    let [answer] = &back[0][..] else {
        panic!("one frame reaches the client: {back:?}")
    };
    assert_eq!(key(answer).destination_ip(), std::net::IpAddr::from(CLIENT));
    assert_eq!(key(answer).destination_port, 12345);
    // From another port of the server: not asked for.
    let stray = datagram(SERVER, GATE, Some((54, port)), 8, 64);
    rig.exchange(1, &from_outside(&stray));
    assert_eq!(dropped(&rig, DropReason::FirewallRule), 1);
    rig.finish();
}

#[test]
fn an_error_about_a_translated_packet_reaches_the_client_with_its_own_packet() {
    let mut rig = Rig::new(GATEWAY);
    // TTL 1: the node sees the packet translated, and tells the client about it as it was.
    for packet in [
        datagram(CLIENT, SERVER, None, 32, 1),
        datagram(CLIENT, SERVER, None, 1400, 64),
    ] {
        let out = rig.exchange(0, &to_node4(&packet));
        let [error] = &out[0][..] else {
            panic!("one ICMP error: {out:?}")
        };
        assert_eq!(key(error).destination_ip(), std::net::IpAddr::from(CLIENT));
        let quoted = FlowKey::from_icmp_quote(&parse(error).expect("ICMP"), error);
        assert_eq!(quoted.map(|key| key.source_ip()), Some(CLIENT.into()));
        assert_eq!(quoted.map(|key| key.source_port), Some(12345));
    }
    rig.finish();
}

#[test]
fn the_gateway_answers_pings_from_inside_only() {
    let mut rig = Rig::new(GATEWAY);
    let ping = |from, to| ipv4(from, to, 1, 64, 0, &[], &echo_request(16));
    let out = rig.exchange(0, &to_node4(&ping(CLIENT, [10, 0, 0, 1])));
    assert_eq!(out[0].len(), 1, "an echo reply");
    let out = rig.exchange(1, &from_outside(&ping(SERVER, GATE)));
    assert_eq!((out[0].len(), out[1].len()), (0, 0));
    assert_eq!(dropped(&rig, DropReason::FirewallRule), 1);
    rig.finish();
}
