//! The result of one validating pass: where each header of a frame starts, and the flow it belongs to.

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

/// One direction of a conversation: addresses, ports, protocol. IPv4 addresses are stored as
/// IPv4-mapped IPv6 addresses (RFC 4291 2.5.5.2), so that one key type serves both families.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    /// Source address, network order.
    pub source: [u8; 16],
    /// Destination address, network order.
    pub destination: [u8; 16],
    /// Source port, or ICMP identifier, host order; 0 where there is none.
    pub source_port: u16,
    /// Destination port, or ICMP type and code, host order; 0 where there is none.
    pub destination_port: u16,
    /// IP protocol number.
    pub protocol: u8,
}
