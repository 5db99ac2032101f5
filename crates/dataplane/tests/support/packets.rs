//! Packets for the tests, written out.

use wire::checksum;

/// An Ethernet frame.
pub(crate) fn ethernet(to: [u8; 6], from: [u8; 6], kind: u16, payload: &[u8]) -> Vec<u8> {
    [&to[..], &from[..], &kind.to_be_bytes()[..], payload].concat()
}

/// An IPv4 packet with a right header checksum; `field` is flags and fragment offset.
pub(crate) fn ipv4(
    from: [u8; 4],
    to: [u8; 4],
    protocol: u8,
    ttl: u8,
    field: u16,
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let header = 20 + options.len();
    let total = (header + payload.len()) as u16;
    let mut packet = vec![0x40 | (header / 4) as u8, 0];
    packet.extend(total.to_be_bytes());
    packet.extend([0x12, 0x34]);
    packet.extend(field.to_be_bytes());
    packet.extend([ttl, protocol, 0, 0]);
    packet.extend(from);
    packet.extend(to);
    packet.extend(options);
    let sum = checksum::checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

/// An IPv6 packet.
pub(crate) fn ipv6(from: [u8; 16], to: [u8; 16], next: u8, hops: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, hops]);
    packet.extend(from);
    packet.extend(to);
    packet.extend(payload);
    packet
}

/// A UDP datagram without a checksum, with `data` bytes of data.
pub(crate) fn udp(data: usize) -> Vec<u8> {
    let mut datagram = vec![0x30, 0x39, 0x00, 0x35];
    datagram.extend((8 + data as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend((0..data).map(|i| i as u8));
    datagram
}

/// An echo request.
pub(crate) fn echo_request(data: usize) -> Vec<u8> {
    let mut message = vec![8, 0, 0, 0, 0x12, 0x34, 0, 1];
    message.extend((0..data).map(|i| i as u8));
    let sum = checksum::checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}
