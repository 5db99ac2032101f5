//! The result of one validating pass: where each header of a frame starts, and what was found.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::bytes::chunk;

bitflags::bitflags! {
    /// What the validating pass found.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct LayoutFlags: u16 {
        /// The network header is IPv4.
        const IPV4 = 1 << 0;
        /// The network header is IPv6.
        const IPV6 = 1 << 1;
        /// The packet is ARP for IPv4 over Ethernet.
        const ARP = 1 << 2;
        /// The transport header is present and validated.
        const TRANSPORT = 1 << 3;
        /// The packet is a fragment (first or later).
        const FRAGMENT = 1 << 4;
        /// The packet is a fragment that does not carry the transport header.
        const LATER_FRAGMENT = 1 << 5;
        /// IPv4 options or IPv6 extension headers are present.
        const OPTIONS = 1 << 6;
        /// IPv4 "don't fragment" is set (always set for IPv6).
        const DONT_FRAGMENT = 1 << 7;
        /// The destination MAC address is a group address.
        const L2_GROUP = 1 << 8;
        /// The destination MAC address is the broadcast address.
        const L2_BROADCAST = 1 << 9;
        /// The destination IP address is multicast (or limited broadcast).
        const L3_GROUP = 1 << 10;
        /// An ICMP error message (it quotes another packet).
        const ICMP_ERROR = 1 << 11;
    }
}

/// Offsets (bytes from the start of the frame) and the facts that later stages ask for.
///
/// Filled once by the validating pass and carried with the frame; an offset of zero means "absent".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// What was found.
    pub flags: LayoutFlags,
    /// EtherType after the last VLAN tag, host order.
    pub ether_type: u16,
    /// Outer VLAN tag control information, host order, if `vlan_tags >= 1`.
    pub outer_tci: u16,
    /// Inner VLAN tag control information, host order, if `vlan_tags == 2`.
    pub inner_tci: u16,
    /// Offset of the network header.
    pub network: u16,
    /// Offset of the transport header (after options and extension headers).
    pub transport: u16,
    /// Offset of the transport payload.
    pub payload: u16,
    /// Offset one past the last byte of the packet; what follows is Ethernet padding.
    pub end: u16,
    /// IP protocol number of the transport header (last next-header for IPv6).
    pub protocol: u8,
    /// Number of VLAN tags, 0 to 2.
    pub vlan_tags: u8,
}

// A frame's metadata embeds the layout and must fit a cache line.
const _: () = assert!(core::mem::size_of::<Layout>() <= 24);

impl Layout {
    /// Returns the VLAN identifier of the outer tag, `None` without a tag; 0 means "priority only".
    #[inline]
    pub const fn vlan_id(&self) -> Option<u16> {
        if self.vlan_tags == 0 {
            None
        } else {
            Some(self.outer_tci & crate::vlan::ID_MASK)
        }
    }
    /// Returns the length of the packet from the network header on, without padding, bytes.
    #[inline]
    pub const fn packet_bytes(&self) -> u16 {
        self.end.saturating_sub(self.network)
    }
    /// Returns the packet from the network header on, without Ethernet padding.
    #[inline]
    pub fn packet<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame
            .get(self.network.into()..self.end.into())
            .unwrap_or_default()
    }
    /// Returns what follows the transport header. For UDP, this is cut at the UDP length.
    #[inline]
    pub fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        let mut end = usize::from(self.end);
        let is_udp = self.protocol == crate::numbers::ip_protocol::UDP;
        if is_udp && self.flags.contains(LayoutFlags::TRANSPORT) {
            let length_at = usize::from(self.transport) + crate::udp::LENGTH;
            let length = chunk::<2>(frame, length_at).map_or(0, |l| u16::from_be_bytes(*l));
            end = end.min(usize::from(self.transport) + usize::from(length));
        }
        frame.get(self.payload.into()..end).unwrap_or_default()
    }
    /// Returns the source and destination of an IPv4 packet, `None` for any other.
    #[inline]
    pub fn ipv4_addresses(&self, frame: &[u8]) -> Option<(Ipv4Addr, Ipv4Addr)> {
        if !self.flags.contains(LayoutFlags::IPV4) {
            return None;
        }
        let network = usize::from(self.network);
        let source = *chunk(frame, network + crate::ipv4::SOURCE)?;
        let destination = *chunk(frame, network + crate::ipv4::DESTINATION)?;
        Some((
            Ipv4Addr::from_octets(source),
            Ipv4Addr::from_octets(destination),
        ))
    }
    /// Returns the source and destination of an IPv6 packet, `None` for any other.
    #[inline]
    pub fn ipv6_addresses(&self, frame: &[u8]) -> Option<(Ipv6Addr, Ipv6Addr)> {
        if !self.flags.contains(LayoutFlags::IPV6) {
            return None;
        }
        let network = usize::from(self.network);
        let source = *chunk(frame, network + crate::ipv6::SOURCE)?;
        let destination = *chunk(frame, network + crate::ipv6::DESTINATION)?;
        Some((
            Ipv6Addr::from_octets(source),
            Ipv6Addr::from_octets(destination),
        ))
    }
}
