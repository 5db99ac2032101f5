//! The verdicts of the redirect program, packet by packet, as the kernel runs it.

use etherparse::{EtherType, Ipv4Header, PacketBuilder};
use io::bpf::{Filter, Map, MapKind, PacketMatch, Program, Rows, redirect_program};

use crate::support::{ready, xdp_socket};

const REDIRECT: u32 = 4;
const PASS: u32 = 2;

/// A loaded program with a socket for queue 0, so that a packet for the node is redirected.
struct Loaded {
    program: Program,
    _sockets: Map,
    _socket: std::os::fd::OwnedFd,
}

/// The layout of a program that several interfaces share.
const SHARED: Rows = Rows {
    row_bits: 6,
    queue_bits: 6,
};
/// The layout of a program for one interface.
const ALONE: Rows = Rows {
    row_bits: 0,
    queue_bits: 0,
};
/// The interface that a test run comes from.
const LOOPBACK: u32 = 1;

fn load(filter: &Filter) -> Loaded {
    load_rows(filter, SHARED, SHARED.key(LOOPBACK, 0))
}

/// Loads the program and puts a socket at `key`.
fn load_rows(filter: &Filter, rows: Rows, key: u32) -> Loaded {
    use std::os::fd::AsRawFd;
    let sockets = Map::create(MapKind::XskMap, "tg_test", 4, rows.entries()).unwrap();
    let socket = xdp_socket().unwrap();
    sockets.set_u32(key, socket.as_raw_fd() as u32).unwrap();
    let insns = redirect_program(sockets.raw_fd(), filter, rows).unwrap();
    let program = Program::load_xdp("tg_test", &insns).unwrap_or_else(|error| panic!("{error}"));
    Loaded {
        program,
        _sockets: sockets,
        _socket: socket,
    }
}

fn build(step: etherparse::PacketBuilderStep<etherparse::UdpHeader>) -> Vec<u8> {
    let mut packet = Vec::new();
    step.write(&mut packet, b"payload").unwrap();
    packet
}

fn link() -> etherparse::PacketBuilderStep<etherparse::Ethernet2Header> {
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
}

const V4: ([u8; 4], [u8; 4]) = ([192, 0, 2, 1], [192, 0, 2, 2]);

fn udp4(port: u16) -> Vec<u8> {
    build(link().ipv4(V4.0, V4.1, 64).udp(999, port))
}

fn udp6(port: u16) -> Vec<u8> {
    build(link().ipv6([1; 16], [2; 16], 64).udp(999, port))
}

fn tagged(port: u16) -> Vec<u8> {
    let one = 1.try_into().unwrap();
    let two = 2.try_into().unwrap();
    let tags = link().double_vlan(one, two);
    build(tags.ipv4(V4.0, V4.1, 64).udp(999, port))
}

fn tcp4(port: u16) -> Vec<u8> {
    let mut packet = Vec::new();
    let step = link().ipv4(V4.0, V4.1, 64).tcp(999, port, 1, 1000);
    step.write(&mut packet, b"payload").unwrap();
    packet
}

/// A UDP datagram whose IPv4 header has options, or that is a later fragment.
fn odd4(port: u16, options: &[u8], fragment_offset: u16) -> Vec<u8> {
    let mut header = Ipv4Header::new(15, 64, etherparse::IpNumber::UDP, V4.0, V4.1).unwrap();
    header.options = options.try_into().unwrap();
    header.fragment_offset = fragment_offset.try_into().unwrap();
    let mut packet = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    header.write(&mut packet).unwrap();
    packet.extend([3, 0xe7]);
    packet.extend(port.to_be_bytes());
    packet.extend([0, 15, 0, 0]);
    packet.extend(b"payload");
    packet
}

fn other(ethertype: EtherType) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    packet.extend(ethertype.0.to_be_bytes());
    packet.extend([0; 46]);
    packet
}

#[test]
fn each_rule_matches_what_it_says_and_nothing_else() {
    if !ready("each_rule_matches_what_it_says_and_nothing_else") {
        return;
    }
    use PacketMatch::{EtherType as Ether, IpProtocol, TcpDestination, UdpDestination};
    let ndn = EtherType(0x8624);
    let cases: &[(PacketMatch, Vec<u8>, bool)] = &[
        (UdpDestination(6363), udp4(6363), true),
        (UdpDestination(6363), udp6(6363), true),
        (UdpDestination(6363), tagged(6363), true),
        (UdpDestination(6363), odd4(6363, &[1; 8], 0), true),
        (UdpDestination(6363), odd4(6363, &[], 100), false),
        (UdpDestination(6363), udp4(6364), false),
        (UdpDestination(6363), tcp4(6363), false),
        (UdpDestination(6363), other(EtherType::ARP), false),
        (TcpDestination(80), tcp4(80), true),
        (TcpDestination(80), udp4(80), false),
        (IpProtocol(17), udp6(1), true),
        (IpProtocol(17), odd4(1, &[], 100), true),
        (IpProtocol(17), tcp4(1), false),
        (Ether(0x8624), other(ndn), true),
        (Ether(0x0806), other(EtherType::ARP), true),
        (Ether(0x0800), tagged(1), true),
        (Ether(0x0806), udp4(1), false),
    ];
    for (rule, packet, matches) in cases {
        let only = load(&Filter::Only(vec![*rule]));
        let expected = if *matches { REDIRECT } else { PASS };
        let verdict = only.program.run_once(packet).unwrap();
        assert_eq!(verdict, expected, "only {rule:?}: {packet:02x?}");
        let except = load(&Filter::Except(vec![*rule]));
        let expected = if *matches { PASS } else { REDIRECT };
        let verdict = except.program.run_once(packet).unwrap();
        assert_eq!(verdict, expected, "except {rule:?}: {packet:02x?}");
    }
}

#[test]
fn everything_and_nothing() {
    if !ready("everything_and_nothing") {
        return;
    }
    for packet in [udp4(1), tcp4(2), other(EtherType::ARP), vec![0; 14]] {
        let run = |filter| load(&filter).program.run_once(&packet).unwrap();
        assert_eq!(run(Filter::Everything), REDIRECT);
        assert_eq!(run(Filter::Only(Vec::new())), PASS);
        assert_eq!(run(Filter::Except(Vec::new())), REDIRECT);
    }
}

#[test]
fn each_interface_has_its_own_row() {
    if !ready("each_interface_has_its_own_row") {
        return;
    }
    let run = |rows, key| {
        let loaded = load_rows(&Filter::Everything, rows, key);
        loaded.program.run_once(&udp4(1)).unwrap()
    };
    assert_eq!(run(ALONE, 0), REDIRECT);
    assert_eq!(run(SHARED, SHARED.key(LOOPBACK, 0)), REDIRECT);
    assert_eq!(
        run(SHARED, SHARED.key(LOOPBACK + 64, 0)),
        REDIRECT,
        "the same row"
    );
    assert_eq!(run(SHARED, SHARED.key(LOOPBACK, 1)), PASS, "another queue");
    assert_eq!(
        run(SHARED, SHARED.key(LOOPBACK + 1, 0)),
        PASS,
        "another row"
    );
    assert_eq!(SHARED.key(63, 63), SHARED.entries() - 1);
}

#[test]
fn many_rules_of_all_kinds_pass_the_verifier() {
    if !ready("many_rules_of_all_kinds_pass_the_verifier") {
        return;
    }
    let mut rules = Vec::new();
    for i in 0..40 {
        rules.push(PacketMatch::EtherType(0x9000 + i));
        rules.push(PacketMatch::IpProtocol(100 + i as u8));
        rules.push(PacketMatch::TcpDestination(1000 + i));
        rules.push(PacketMatch::UdpDestination(2000 + i));
    }
    let loaded = load(&Filter::Only(rules));
    assert_eq!(loaded.program.run_once(&udp6(2039)).unwrap(), REDIRECT);
    assert_eq!(loaded.program.run_once(&tcp4(1000)).unwrap(), REDIRECT);
    assert_eq!(loaded.program.run_once(&tcp4(2000)).unwrap(), PASS);
    for cut in 14..60 {
        loaded
            .program
            .run_once(&tagged(2000)[..cut.min(53)])
            .unwrap();
    }
}
