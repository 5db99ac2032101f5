//! Fragments of datagrams for the node, fragment by fragment.

use wire::checksum;

use crate::frames::{to_node4, to_node6};
use crate::packets::{echo_request, ipv4, ipv6, udp};
use crate::rig::Rig;

const NODE: &str = r#"
[[port]]
name = "lan"
driver = "mem"
addresses = ["10.0.0.1/24", "2001:db8::1/64"]
[[neighbour]]
address = "10.0.0.2"
mac = "02:00:00:00:00:02"
port = "lan"
[[neighbour]]
address = "2001:db8::2"
mac = "02:00:00:00:00:02"
port = "lan"
"#;

const MORE: u16 = 0x2000;

fn six(last: u8) -> [u8; 16] {
    core::array::from_fn(|i| match i {
        0 => 0x20,
        1 => 1,
        2 => 0x0d,
        3 => 0xb8,
        15 => last,
        _ => 0,
    })
}

/// The frames of a datagram to the node in fragments of `step` bytes of data.
fn fragments4(protocol: u8, datagram: &[u8], step: usize) -> Vec<Vec<u8>> {
    let last = datagram.len().div_ceil(step) - 1;
    let fragment = |(at, data): (usize, &[u8])| {
        let field = (at * step / 8) as u16 | if at == last { 0 } else { MORE };
        to_node4(&ipv4(
            [10, 0, 0, 2],
            [10, 0, 0, 1],
            protocol,
            64,
            field,
            &[],
            data,
        ))
    };
    datagram.chunks(step).enumerate().map(fragment).collect()
}

fn fragments6(protocol: u8, datagram: &[u8], step: usize) -> Vec<Vec<u8>> {
    let last = datagram.len().div_ceil(step) - 1;
    let fragment = |(at, data): (usize, &[u8])| {
        let field = (at * step) as u16 | u16::from(at != last);
        let mut payload = vec![protocol, 0];
        payload.extend(field.to_be_bytes());
        payload.extend([0, 0, 0, 7]);
        payload.extend(data);
        to_node6(&ipv6(six(2), six(1), 44, 64, &payload))
    };
    datagram.chunks(step).enumerate().map(fragment).collect()
}

/// An ICMPv6 echo request with its checksum.
fn echo_request6(data: usize) -> Vec<u8> {
    let mut message = echo_request(data);
    message[0] = 128;
    message[2..4].fill(0);
    let length = message.len() as u32;
    let sum = checksum::pseudo_header_ipv6(six(2).into(), six(1).into(), 58, length);
    let sum = sum.add_bytes(&message).checksum();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// Puts the data of reply frames together, whose fragments must be in order; returns also the headers.
fn join(frames: &[Vec<u8>], header: usize) -> Vec<u8> {
    frames
        .iter()
        .flat_map(|frame| frame[14 + header..].to_vec())
        .collect()
}

#[test]
fn a_ping_in_fragments_is_answered_in_fragments_whatever_their_order() {
    let mut rig = Rig::new(NODE);
    let request = echo_request(4000);
    let mut frames = fragments4(1, &request, 1480);
    frames.reverse();
    let mut sent = Vec::new();
    for (number, frame) in frames.iter().enumerate() {
        sent = rig.exchange(0, frame).remove(0);
        assert_eq!(
            sent.is_empty(),
            number < 2,
            "only the last one makes it whole"
        );
    }
    assert_eq!(sent.len(), 3);
    let mut reply = join(&sent, 20);
    assert_eq!(reply.len(), request.len());
    assert_eq!(checksum::checksum(&reply), 0, "the checksum is right");
    assert_eq!(reply[0], 0);
    reply[0] = 8;
    reply[2..4].copy_from_slice(&request[2..4]);
    assert_eq!(reply, request);
    for frame in &sent {
        let layout = wire::parse(frame).expect("a right header and checksum");
        let addresses = layout.ipv4_addresses(frame).expect("IPv4");
        assert_eq!(addresses, ([10, 0, 0, 1].into(), [10, 0, 0, 2].into()));
    }

    let request = echo_request6(3000);
    let frames = fragments6(58, &request, 1448);
    let mut sent = Vec::new();
    for frame in &frames {
        assert!(sent.is_empty());
        sent = rig.exchange(0, frame).remove(0);
    }
    let reply = join(&sent, 48);
    let sum = checksum::pseudo_header_ipv6(six(1).into(), six(2).into(), 58, reply.len() as u32);
    assert!(sum.add_bytes(&reply).is_valid());
    assert_eq!((reply[0], &reply[4..]), (129, &request[4..]));
    assert_eq!(rig.drops(), []);
    rig.finish();
}

#[test]
fn a_fragment_that_waits_in_vain_is_reported() {
    let mut rig = Rig::new(NODE);
    for frames in [
        fragments4(1, &echo_request(2000), 1480),
        fragments6(58, &echo_request6(2000), 1448),
    ] {
        rig.exchange(0, &frames[0]);
        rig.wait(59);
        assert!(rig.received(0).is_empty());
        rig.wait(2);
        let told = rig.received(0);
        assert_eq!(told.len(), 1);
        let kind = if told[0][12] == 8 { 34 } else { 54 };
        let wanted = if kind == 34 { [11, 1] } else { [3, 1] };
        assert_eq!(told[0][kind..kind + 2], wanted);
        // Without the start there is nothing to quote.
        rig.exchange(0, &frames[1]);
        rig.wait(61);
        assert!(rig.received(0).is_empty());
    }
    assert_eq!(
        rig.node("icmp-error")
            .drops(wire::DropReason::ReassemblyTimeout),
        2
    );
    assert_eq!(
        rig.node("reassemble")
            .drops(wire::DropReason::ReassemblyTimeout),
        2
    );
    rig.finish();
}

#[test]
fn what_is_wrong_with_fragments_is_counted() {
    let mut rig = Rig::new(NODE);
    let mut damaged = echo_request(2000);
    damaged[1000] ^= 1;
    let mut datagram = udp(2000);
    datagram[6..8].fill(0); // no checksum
    for frame in fragments4(1, &damaged, 1480) {
        assert!(rig.exchange(0, &frame)[0].is_empty());
    }
    let ping = fragments4(1, &echo_request(2000), 1480);
    for frame in [&ping[0], &ping[0]] {
        assert!(rig.exchange(0, frame)[0].is_empty());
    }
    // 8 bytes that are there already, but not alone.
    let overlap = ipv4([10, 0, 0, 2], [10, 0, 0, 1], 1, 64, 184, &[], &[0; 536]);
    assert!(rig.exchange(0, &to_node4(&overlap))[0].is_empty());
    let mut told = Vec::new();
    for frame in fragments4(17, &datagram, 1480) {
        told = rig.exchange(0, &frame).remove(0);
    }
    assert_eq!(told.len(), 1);
    assert_eq!(
        told[0][34..36],
        [3, 3],
        "port unreachable, quoting the first fragment"
    );
    let mut drops = rig.drops();
    drops.sort_unstable();
    let wanted = [
        ("port_unreachable", 1),
        ("port_unreachable", 1),
        ("reassembly_duplicate", 1),
        ("reassembly_overlap", 2),
        ("transport_checksum", 2),
    ];
    assert_eq!(drops, wanted);
    rig.finish();
}

#[test]
fn incomplete_datagrams_never_hold_more_than_their_share() {
    let mut rig = Rig::new(NODE);
    for number in 0..400_u16 {
        let mut packet = ipv4(
            [10, 0, 0, 2],
            [10, 0, 0, 1],
            1,
            64,
            10 | MORE,
            &[],
            &[1; 64],
        );
        packet[4..6].copy_from_slice(&number.to_be_bytes());
        packet[10..12].fill(0);
        let sum = checksum::checksum(&packet[..20]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        rig.exchange(0, &to_node4(&packet));
    }
    let full = rig
        .node("reassemble")
        .drops(wire::DropReason::ReassemblyFull);
    assert_eq!(full, 400 - 32);
    rig.end();
}
