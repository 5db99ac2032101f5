//! What the builders of all protocols share.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::checksum::{self, Sum};

/// A header does not fit the buffer that it was to be written to; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferTooShort;

impl fmt::Display for BufferTooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the header does not fit the buffer; give the length that `bytes` returns")
    }
}

impl core::error::Error for BufferTooShort {}

/// Source and destination of a packet: what a transport header's checksum needs of the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// An IPv4 packet.
    V4 {
        /// Who sends.
        source: Ipv4Addr,
        /// Who receives.
        destination: Ipv4Addr,
    },
    /// An IPv6 packet.
    V6 {
        /// Who sends.
        source: Ipv6Addr,
        /// Who receives, in the end.
        destination: Ipv6Addr,
    },
}

impl Addresses {
    /// Returns the same with source and destination swapped: those of an answer.
    pub const fn reversed(&self) -> Self {
        match *self {
            Self::V4 {
                source,
                destination,
            } => Self::V4 {
                source: destination,
                destination: source,
            },
            Self::V6 {
                source,
                destination,
            } => Self::V6 {
                source: destination,
                destination: source,
            },
        }
    }

    /// Sums the pseudo-header for a transport header and its data of `length` bytes.
    #[inline]
    pub const fn pseudo_header(&self, protocol: u8, length: u16) -> Sum {
        match *self {
            Self::V4 {
                source,
                destination,
            } => checksum::pseudo_header_ipv4(source, destination, protocol, length),
            Self::V6 {
                source,
                destination,
            } => checksum::pseudo_header_ipv6(source, destination, protocol, length as u32),
        }
    }
}

/// Returns the length of a segment, if a packet can hold it.
pub(crate) fn length_u16(segment: &[u8]) -> Result<u16, BufferTooShort> {
    u16::try_from(segment.len()).map_err(|_| BufferTooShort)
}
