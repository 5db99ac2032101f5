//! UDP (RFC 768).

/// Offset of the length of header and data.
pub const LENGTH: usize = 4;
/// Offset of the checksum.
pub const CHECKSUM: usize = 6;
