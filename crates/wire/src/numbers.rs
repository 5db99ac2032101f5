//! EtherTypes and IP protocol numbers (IANA) that this node knows by name.

/// EtherTypes.
pub mod ether_type {
    /// Values below are the length of an IEEE 802.3 frame, not a type.
    pub const FIRST: u16 = 0x0600;
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// Address resolution protocol.
    pub const ARP: u16 = 0x0806;
    /// IEEE 802.1Q customer VLAN tag.
    pub const VLAN: u16 = 0x8100;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// IEEE 802.1ad service VLAN tag.
    pub const VLAN_SERVICE: u16 = 0x88a8;
    /// The service tag of equipment older than 802.1ad.
    pub const VLAN_OLD: u16 = 0x9100;
    /// Named data networking.
    pub const NDN: u16 = 0x8624;
}

/// IP protocol numbers, IPv6 extension headers included.
pub mod ip_protocol {
    /// IPv6 hop-by-hop options header.
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// IGMP.
    pub const IGMP: u8 = 2;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// IPv6 routing header.
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header; [`crate::FlowKey`] uses it for every fragment.
    pub const FRAGMENT: u8 = 44;
    /// Encapsulating security payload.
    pub const ESP: u8 = 50;
    /// Authentication header.
    pub const AUTHENTICATION: u8 = 51;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
    /// IPv6 "no next header".
    pub const NO_NEXT_HEADER: u8 = 59;
    /// IPv6 destination options header.
    pub const DESTINATION_OPTIONS: u8 = 60;
    /// SCTP.
    pub const SCTP: u8 = 132;
}
