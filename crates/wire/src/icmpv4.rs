//! ICMP for IPv4 (RFC 792).

/// Offset of the checksum.
pub const CHECKSUM: usize = 2;
