//! What can be wrong with the bytes of an NDN packet.

use core::fmt;

use crate::DropReason;

/// Says why bytes are not the NDN element that they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end inside an element, or a TLV-LENGTH runs past its parent.
    Truncated,
    /// A variable-size number is not in its shortest form.
    NotShortest,
    /// A TLV-TYPE is zero or more than 2^32 - 1.
    TypeRange,
    /// A name component's type is not in 1..=65535.
    ComponentType,
    /// A digest component's value is not 32 bytes.
    DigestLength,
    /// A name has no component where it needs one.
    EmptyName,
    /// A non-negative integer is not 1, 2, 4 or 8 bytes, or out of the range that its element allows.
    Integer,
    /// An element of fixed size has another size.
    ElementLength,
    /// An element that must be there is missing.
    Missing,
    /// A critical element is unknown, repeated or out of order.
    Critical,
    /// The outermost element is of another type than expected.
    WrongType,
    /// The packet is longer than [`PACKET_BYTES_MAX`](super::PACKET_BYTES_MAX).
    TooLong,
    /// Bytes follow the element that should be the last.
    Trailing,
}

impl DecodeError {
    /// Returns why a packet with this fault is dropped.
    pub const fn drop_reason(self) -> DropReason {
        match self {
            Self::TooLong => DropReason::NdnTooLong,
            _ => DropReason::NdnMalformed,
        }
    }

    /// Returns a lowercase fragment that says what is wrong.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Truncated => "element runs past its parent or the packet",
            Self::NotShortest => "variable-size number is not in its shortest form",
            Self::TypeRange => "TLV-TYPE is not in 1..=4294967295",
            Self::ComponentType => "name component type is not in 1..=65535",
            Self::DigestLength => "digest component is not 32 bytes",
            Self::EmptyName => "name has no component",
            Self::Integer => "integer is not 1, 2, 4 or 8 bytes or out of range",
            Self::ElementLength => "element has the wrong size",
            Self::Missing => "required element is missing",
            Self::Critical => "critical element is unknown, repeated or out of order",
            Self::WrongType => "outermost element has another type",
            Self::TooLong => "packet is longer than 8800 bytes",
            Self::Trailing => "bytes follow the packet",
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for DecodeError {}
