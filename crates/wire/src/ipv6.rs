//! IPv6 and its extension headers (RFC 8200).

use core::net::Ipv6Addr;

use crate::bytes::{be16, be32};
use crate::emit::BufferTooShort;
use crate::numbers::ip_protocol;
use crate::{DropReason, Layout};

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
/// Length of a fragment header.
pub const FRAGMENT_HEADER_BYTES: usize = 8;

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
pub const fn extension_header_bytes(protocol: u8, length: u8) -> usize {
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

/// A packet whose fixed header is whole and whose payload length fits the bytes.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; HEADER_BYTES],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Checks version and length; `bytes` may be longer than the packet (Ethernet padding).
    ///
    /// # Errors
    /// [`DropReason::Ipv6Truncated`], [`DropReason::Ipv6Version`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let (header, rest) = bytes
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or(DropReason::Ipv6Truncated)?;
        if header[0] >> 4 != 6 {
            return Err(DropReason::Ipv6Version);
        }
        let length = usize::from(be16!(header, PAYLOAD_LENGTH));
        let payload = rest.get(..length).ok_or(DropReason::Ipv6Truncated)?;
        Ok(Self { header, payload })
    }
    /// Returns the traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub const fn traffic_class(&self) -> u8 {
        (be16!(self.header, 0) >> 4) as u8
    }
    /// Returns the flow label, 20 bits.
    pub const fn flow_label(&self) -> u32 {
        be32!(self.header, 0) & 0xf_ffff
    }
    /// Returns the number of the first header after the fixed one.
    pub const fn next_header(&self) -> u8 {
        self.header[NEXT_HEADER]
    }
    /// Returns the hop limit.
    pub const fn hop_limit(&self) -> u8 {
        self.header[HOP_LIMIT]
    }
    /// Returns the source address.
    pub fn source(&self) -> Ipv6Addr {
        self.address(SOURCE)
    }
    /// Returns the destination address.
    pub fn destination(&self) -> Ipv6Addr {
        self.address(DESTINATION)
    }
    /// Returns what follows the fixed header: extension headers and transport.
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    fn address(&self, at: usize) -> Ipv6Addr {
        crate::bytes::chunk(self.header, at).map_or(Ipv6Addr::UNSPECIFIED, |octets| {
            Ipv6Addr::from_octets(*octets)
        })
    }
}

/// The fields of the fixed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
    /// Number of the first header in the payload.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Length of the payload, extension headers included, bytes.
    pub payload_bytes: u16,
}

impl Repr {
    /// Makes the header of a packet of this node: hop limit 64, no traffic class, no flow label.
    pub const fn new(
        source: Ipv6Addr,
        destination: Ipv6Addr,
        next_header: u8,
        payload_bytes: u16,
    ) -> Self {
        Self {
            source,
            destination,
            next_header,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            payload_bytes,
        }
    }
    /// Reads the fields.
    pub fn parse(view: &View<'_>) -> Self {
        Self {
            source: view.source(),
            destination: view.destination(),
            next_header: view.next_header(),
            hop_limit: view.hop_limit(),
            traffic_class: view.traffic_class(),
            flow_label: view.flow_label(),
            payload_bytes: view.payload.len() as u16,
        }
    }
    /// Writes the header to the start of `packet`; returns its length.
    ///
    /// # Errors
    /// [`BufferTooShort`] for less than [`HEADER_BYTES`].
    #[inline]
    pub fn emit(&self, packet: &mut [u8]) -> Result<usize, BufferTooShort> {
        let header = packet
            .first_chunk_mut::<HEADER_BYTES>()
            .ok_or(BufferTooShort)?;
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        header[..4].copy_from_slice(&first.to_be_bytes());
        header[4..6].copy_from_slice(&self.payload_bytes.to_be_bytes());
        header[6] = self.next_header;
        header[7] = self.hop_limit;
        header[8..24].copy_from_slice(&self.source.octets());
        header[24..].copy_from_slice(&self.destination.octets());
        Ok(HEADER_BYTES)
    }
}

/// The fragment header (RFC 8200 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentHeader {
    /// Number of the first header of the fragmented part.
    pub next_header: u8,
    /// Where the data belongs in the fragmented part, a multiple of eight bytes.
    pub offset_bytes: u16,
    /// More fragments follow.
    pub more: bool,
    /// The identification that the fragments of one packet share.
    pub identification: u32,
}

impl FragmentHeader {
    /// Reads the fragment header of a frame that passed validation, and its offset in the frame.
    pub fn find(layout: &Layout, frame: &[u8]) -> Option<(Self, usize)> {
        let header = ExtensionHeaders::new(layout, frame)
            .find(|header| header.protocol == ip_protocol::FRAGMENT)?;
        Some((Self::parse(header.bytes.first_chunk()?), header.offset))
    }
    /// Reads the fields.
    pub const fn parse(header: &[u8; FRAGMENT_HEADER_BYTES]) -> Self {
        Self {
            next_header: header[0],
            offset_bytes: be16!(header, 2) & 0xfff8,
            more: header[3] & 1 != 0,
            identification: be32!(header, 4),
        }
    }
    /// Writes the header to the start of `bytes`; returns its length.
    ///
    /// # Errors
    /// [`BufferTooShort`] for less than [`FRAGMENT_HEADER_BYTES`].
    pub fn emit(&self, bytes: &mut [u8]) -> Result<usize, BufferTooShort> {
        let header = bytes
            .first_chunk_mut::<FRAGMENT_HEADER_BYTES>()
            .ok_or(BufferTooShort)?;
        header[0] = self.next_header;
        header[1] = 0;
        let field = self.offset_bytes & 0xfff8 | u16::from(self.more);
        header[2..4].copy_from_slice(&field.to_be_bytes());
        header[4..].copy_from_slice(&self.identification.to_be_bytes());
        Ok(FRAGMENT_HEADER_BYTES)
    }
}

/// One option of a hop-by-hop or destination options header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderOption<'a> {
    /// The kind; its two upper bits say what a node that does not know it does (RFC 8200 4.2).
    pub kind: u8,
    /// What follows kind and length.
    pub data: &'a [u8],
}

/// Walks the options of a hop-by-hop or destination options header (RFC 8200 4.2); padding is passed over.
///
/// A length that runs past the header yields [`DropReason::Ipv6ExtensionHeader`] once.
#[derive(Clone, Debug)]
pub struct HeaderOptions<'a> {
    rest: &'a [u8],
}

impl<'a> HeaderOptions<'a> {
    /// Starts at the third byte of a whole header (`ExtensionHeader::bytes`).
    pub fn new(header: &'a [u8]) -> Self {
        Self {
            rest: header.get(2..).unwrap_or_default(),
        }
    }
}

impl<'a> Iterator for HeaderOptions<'a> {
    type Item = Result<HeaderOption<'a>, DropReason>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match *self.rest {
                [] => return None,
                [0, ref rest @ ..] => self.rest = rest,
                [kind, length, ref rest @ ..] => {
                    let Some((data, rest)) = rest.split_at_checked(length.into()) else {
                        break;
                    };
                    self.rest = rest;
                    if kind != 1 {
                        return Some(Ok(HeaderOption { kind, data }));
                    }
                }
                _ => break,
            }
        }
        self.rest = &[];
        Some(Err(DropReason::Ipv6ExtensionHeader))
    }
}
