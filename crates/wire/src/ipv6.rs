//! IPv6 and its extension headers (RFC 8200).

use crate::Layout;
use crate::bytes::chunk_mut;
use crate::numbers::ip_protocol;

/// Offset of the payload length (extension headers included).
pub const PAYLOAD_LENGTH: usize = 4;
/// Offset of the next header.
pub const NEXT_HEADER: usize = 6;
/// Offset of the hop limit.
pub const HOP_LIMIT: usize = 7;
/// Offset of the source address.
pub const SOURCE: usize = 8;
/// Offset of the destination address.
pub const DESTINATION: usize = 24;
/// Length of the fixed header.
pub const HEADER_BYTES: usize = 40;

/// Decrements the hop limit of a packet that is forwarded (RFC 8200 3).
///
/// Returns false, and changes nothing, if it is 0 or 1: the packet has expired.
#[inline]
pub fn decrement_hop_limit(layout: &Layout, frame: &mut [u8]) -> bool {
    match chunk_mut::<HEADER_BYTES>(frame, layout.network.into()) {
        Some(header) if header[HOP_LIMIT] > 1 => {
            header[HOP_LIMIT] -= 1;
            true
        }
        _ => false,
    }
}

/// Says whether the number is that of an extension header that the validating pass walks over.
///
/// ESP is none (what it holds is encrypted), nor are mobility (135), HIP (139) and Shim6 (140).
#[inline]
pub const fn is_extension_header(protocol: u8) -> bool {
    matches!(
        protocol,
        ip_protocol::HOP_BY_HOP
            | ip_protocol::ROUTING
            | ip_protocol::FRAGMENT
            | ip_protocol::AUTHENTICATION
            | ip_protocol::DESTINATION_OPTIONS
    )
}

/// Returns the length of an extension header from its second byte.
#[inline]
pub(crate) const fn extension_header_bytes(protocol: u8, length: u8) -> usize {
    match protocol {
        ip_protocol::FRAGMENT => 8,
        ip_protocol::AUTHENTICATION => (length as usize + 2) * 4,
        _ => (length as usize + 1) * 8,
    }
}

/// Says whether a routing header with segments left hides the final destination.
pub(crate) fn has_segments_left(layout: &Layout, frame: &[u8]) -> bool {
    ExtensionHeaders::new(layout, frame).any(|header| {
        header.protocol == ip_protocol::ROUTING && header.bytes.get(3).is_some_and(|left| *left > 0)
    })
}

/// One extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtensionHeader<'a> {
    /// Which header it is ([`ip_protocol`]).
    pub protocol: u8,
    /// Offset of the header from the start of the frame.
    pub offset: usize,
    /// The whole header, its next-header and length bytes included.
    pub bytes: &'a [u8],
}

/// Walks the extension headers of a frame that passed validation; stops early, never panics, on any other.
#[derive(Clone, Debug)]
pub struct ExtensionHeaders<'a> {
    frame: &'a [u8],
    protocol: u8,
    at: usize,
    end: usize,
}

impl<'a> ExtensionHeaders<'a> {
    /// Starts at the first extension header; yields nothing for a layout that is not IPv6.
    pub fn new(layout: &Layout, frame: &'a [u8]) -> Self {
        let network = usize::from(layout.network);
        let is_ipv6 = layout.flags.contains(crate::LayoutFlags::IPV6);
        Self {
            frame,
            protocol: frame
                .get(network + NEXT_HEADER)
                .copied()
                .unwrap_or(ip_protocol::NO_NEXT_HEADER),
            at: network + HEADER_BYTES,
            end: if is_ipv6 { layout.transport.into() } else { 0 },
        }
    }
}

impl<'a> Iterator for ExtensionHeaders<'a> {
    type Item = ExtensionHeader<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.frame.get(self.at..self.end)?;
        let &[next, length, ..] = rest else {
            return None;
        };
        if !is_extension_header(self.protocol) {
            return None;
        }
        let bytes = rest.get(..extension_header_bytes(self.protocol, length))?;
        let header = ExtensionHeader {
            protocol: self.protocol,
            offset: self.at,
            bytes,
        };
        self.protocol = next;
        self.at += bytes.len();
        Some(header)
    }
}
