//! Ethernet II frames (IEEE 802.3 3), without preamble and frame check sequence.

/// Offset of the destination address.
pub const DESTINATION: usize = 0;
/// Offset of the source address.
pub const SOURCE: usize = 6;
/// Offset of the EtherType (or length, up to [`LENGTH_MAX`]).
pub const ETHER_TYPE: usize = 12;
/// Length of the header.
pub const HEADER_BYTES: usize = 14;
/// The highest value of the type field that is a length.
pub const LENGTH_MAX: u16 = 1500;
