//! TCP (RFC 9293).

/// Offset of the checksum.
pub const CHECKSUM: usize = 16;
