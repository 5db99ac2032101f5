//! ARP for IPv4 over Ethernet (RFC 826).

/// Length of the packet.
pub const PACKET_BYTES: usize = 28;
/// The first six bytes of every packet: hardware Ethernet, protocol IPv4, address lengths 6 and 4.
pub const ETHERNET_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];
