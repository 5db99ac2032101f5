//! Frames from the station of port 0 to the node.

use wire::checksum;

use crate::packets::ethernet;
use crate::rig::{node_mac, peer_mac};

/// An IPv4 frame from the station of port 0 to the node's port 0.
pub(crate) fn to_node4(packet: &[u8]) -> Vec<u8> {
    ethernet(node_mac(0).0, peer_mac(0).0, 0x0800, packet)
}

/// An IPv6 frame from the station of port 0 to the node's port 0, with the transport checksum filled in.
pub(crate) fn to_node6(packet: &[u8]) -> Vec<u8> {
    let mut frame = ethernet(node_mac(0).0, peer_mac(0).0, 0x86dd, packet);
    if let Ok(layout) = wire::parse(&frame) {
        checksum::fill_transport(&layout, &mut frame);
    }
    frame
}

/// An ARP packet in a frame: operation 1 asks, 2 answers.
pub(crate) fn arp(
    to: [u8; 6],
    operation: u8,
    sender: ([u8; 6], [u8; 4]),
    target: ([u8; 6], [u8; 4]),
) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, operation];
    packet.extend(sender.0);
    packet.extend(sender.1);
    packet.extend(target.0);
    packet.extend(target.1);
    ethernet(to, sender.0, 0x0806, &packet)
}
