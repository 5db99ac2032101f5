//! IPv4 (RFC 791).

use core::net::Ipv4Addr;

use crate::bytes::be16;
use crate::emit::BufferTooShort;
use crate::{DropReason, checksum};

/// Offset of the type of service (DSCP and ECN).
pub const TOS: usize = 1;
/// Offset of the total length.
pub const TOTAL_LENGTH: usize = 2;
/// Offset of the identification.
pub const IDENTIFICATION: usize = 4;
/// Offset of the flags and the fragment offset.
pub const FLAGS_FRAGMENT: usize = 6;
/// Offset of the time to live.
pub const TTL: usize = 8;
/// Offset of the protocol.
pub const PROTOCOL: usize = 9;
/// Offset of the header checksum.
pub const CHECKSUM: usize = 10;
/// Offset of the source address.
pub const SOURCE: usize = 12;
/// Offset of the destination address.
pub const DESTINATION: usize = 16;
/// Length of the header without options.
pub const HEADER_BYTES: usize = 20;
/// Length of the longest options.
pub const OPTIONS_BYTES_MAX: usize = 40;
/// "Don't fragment", in the word at [`FLAGS_FRAGMENT`].
pub const DONT_FRAGMENT: u16 = 0x4000;
/// "More fragments", in the word at [`FLAGS_FRAGMENT`].
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// The fragment offset, in units of eight bytes, in the word at [`FLAGS_FRAGMENT`].
pub const FRAGMENT_OFFSET_MASK: u16 = 0x1fff;

/// Decrements the TTL of a packet that is forwarded, and updates the header checksum (RFC 1812 5.3.1).
///
/// Returns false, and changes nothing, if the TTL is 0 or 1: the packet has expired.
#[inline(always)]
pub const fn decrement_ttl(header: &mut [u8; HEADER_BYTES]) -> bool {
    if header[TTL] <= 1 {
        return false;
    }
    header[TTL] -= 1;
    // RFC 1624 equation 3 for a word that falls by 0x0100: the checksum rises by as much, and the carry
    // goes round; 0xffff, which no sum of a header has, turns into its other form, zero.
    let sum = be16!(header, CHECKSUM) as u32 + 0x0100;
    let sum = sum + (sum >= 0xffff) as u32;
    header[CHECKSUM] = (sum >> 8) as u8;
    header[CHECKSUM + 1] = sum as u8;
    true
}

/// A packet whose header is whole and whose length fields fit the bytes; the checksum is not checked.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; HEADER_BYTES],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Checks version and lengths; `bytes` may be longer than the packet (Ethernet padding).
    ///
    /// # Errors
    /// [`DropReason::Ipv4Truncated`], [`DropReason::Ipv4Version`], [`DropReason::Ipv4HeaderLength`],
    /// [`DropReason::Ipv4TotalLength`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let header = bytes
            .first_chunk::<HEADER_BYTES>()
            .ok_or(DropReason::Ipv4Truncated)?;
        if header[0] >> 4 != 4 {
            return Err(DropReason::Ipv4Version);
        }
        let header_bytes = usize::from(header[0] & 0xf) * 4;
        let options = bytes
            .get(HEADER_BYTES..header_bytes)
            .ok_or(DropReason::Ipv4HeaderLength)?;
        let total = usize::from(be16!(header, TOTAL_LENGTH));
        let payload = bytes
            .get(header_bytes..total)
            .ok_or(DropReason::Ipv4TotalLength)?;
        Ok(Self {
            header,
            options,
            payload,
        })
    }
    /// Returns the type of service: DSCP in the upper six bits, ECN in the lower two.
    pub const fn tos(&self) -> u8 {
        self.header[TOS]
    }
    /// Returns the identification that the fragments of one datagram share.
    pub const fn identification(&self) -> u16 {
        be16!(self.header, IDENTIFICATION)
    }
    /// Says whether routers may not fragment the packet.
    pub const fn dont_fragment(&self) -> bool {
        be16!(self.header, FLAGS_FRAGMENT) & DONT_FRAGMENT != 0
    }
    /// Says whether more fragments of the datagram follow this one.
    pub const fn more_fragments(&self) -> bool {
        be16!(self.header, FLAGS_FRAGMENT) & MORE_FRAGMENTS != 0
    }
    /// Returns where the payload belongs in the whole datagram, bytes.
    pub const fn fragment_offset_bytes(&self) -> u16 {
        (be16!(self.header, FLAGS_FRAGMENT) & FRAGMENT_OFFSET_MASK) << 3
    }
    /// Returns the time to live.
    pub const fn ttl(&self) -> u8 {
        self.header[TTL]
    }
    /// Returns the IP protocol number of the payload.
    pub const fn protocol(&self) -> u8 {
        self.header[PROTOCOL]
    }
    /// Returns the header checksum as it stands.
    pub const fn checksum(&self) -> u16 {
        be16!(self.header, CHECKSUM)
    }
    /// Returns the source address.
    pub const fn source(&self) -> Ipv4Addr {
        let h = self.header;
        Ipv4Addr::new(h[SOURCE], h[SOURCE + 1], h[SOURCE + 2], h[SOURCE + 3])
    }
    /// Returns the destination address.
    pub const fn destination(&self) -> Ipv4Addr {
        let h = self.header;
        Ipv4Addr::new(
            h[DESTINATION],
            h[DESTINATION + 1],
            h[DESTINATION + 2],
            h[DESTINATION + 3],
        )
    }
    /// Walks the options.
    pub const fn options(&self) -> Options<'a> {
        Options::new(self.options)
    }
    /// Returns the options as they stand, a multiple of four bytes.
    pub const fn options_bytes(&self) -> &'a [u8] {
        self.options
    }
    /// Returns what follows the header, up to the total length.
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
    /// Says whether the header checksum is right.
    pub fn checksum_is_valid(&self) -> bool {
        let fixed = checksum::Sum::of(self.header);
        fixed.add_bytes(self.options).is_valid()
    }
}

/// The fields of an IPv4 header; header length and checksum follow from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr<'a> {
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// IP protocol number of the payload.
    pub protocol: u8,
    /// Time to live, hops.
    pub ttl: u8,
    /// Type of service: DSCP in the upper six bits, ECN in the lower two.
    pub tos: u8,
    /// The identification that the fragments of one datagram share.
    pub identification: u16,
    /// Routers may not fragment the packet.
    pub dont_fragment: bool,
    /// More fragments of the datagram follow.
    pub more_fragments: bool,
    /// Where the payload belongs in the whole datagram, a multiple of eight bytes.
    pub fragment_offset_bytes: u16,
    /// The options, at most 40 bytes; padded with zeros to a multiple of four.
    pub options: &'a [u8],
    /// Length of the payload, bytes.
    pub payload_bytes: u16,
}

impl<'a> Repr<'a> {
    /// Makes the header of a packet of this node: TTL 64, not a fragment, no options.
    pub const fn new(
        source: Ipv4Addr,
        destination: Ipv4Addr,
        protocol: u8,
        payload_bytes: u16,
    ) -> Self {
        Self {
            source,
            destination,
            protocol,
            ttl: 64,
            tos: 0,
            identification: 0,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset_bytes: 0,
            options: &[],
            payload_bytes,
        }
    }
    /// Reads the fields.
    pub const fn parse(view: &View<'a>) -> Self {
        Self {
            source: view.source(),
            destination: view.destination(),
            protocol: view.protocol(),
            ttl: view.ttl(),
            tos: view.tos(),
            identification: view.identification(),
            dont_fragment: view.dont_fragment(),
            more_fragments: view.more_fragments(),
            fragment_offset_bytes: view.fragment_offset_bytes(),
            options: view.options,
            payload_bytes: view.payload.len() as u16,
        }
    }
    /// Returns the length of the header, options included.
    pub const fn bytes(&self) -> usize {
        HEADER_BYTES + self.options.len().next_multiple_of(4)
    }
    /// Writes the header to the start of `packet`; returns its length.
    ///
    /// # Errors
    /// [`BufferTooShort`]: less than [`Repr::bytes`], options over 40 bytes, or a total over 65,535.
    #[inline]
    pub fn emit(&self, packet: &mut [u8]) -> Result<usize, BufferTooShort> {
        let bytes = self.bytes();
        let total = u16::try_from(bytes + usize::from(self.payload_bytes));
        let total = total.map_err(|_| BufferTooShort)?;
        if self.options.len() > OPTIONS_BYTES_MAX {
            return Err(BufferTooShort);
        }
        let packet = packet.get_mut(..bytes).ok_or(BufferTooShort)?;
        let (header, options) = packet
            .split_first_chunk_mut::<HEADER_BYTES>()
            .ok_or(BufferTooShort)?;
        let mut fragment = self.fragment_offset_bytes >> 3;
        if self.dont_fragment {
            fragment |= DONT_FRAGMENT;
        }
        if self.more_fragments {
            fragment |= MORE_FRAGMENTS;
        }
        *header = [0; HEADER_BYTES];
        header[0] = 0x40 | (bytes / 4) as u8;
        header[TOS] = self.tos;
        header[2..4].copy_from_slice(&total.to_be_bytes());
        header[4..6].copy_from_slice(&self.identification.to_be_bytes());
        header[6..8].copy_from_slice(&fragment.to_be_bytes());
        header[TTL] = self.ttl;
        header[PROTOCOL] = self.protocol;
        header[12..16].copy_from_slice(&self.source.octets());
        header[16..].copy_from_slice(&self.destination.octets());
        let sum = if options.is_empty() {
            checksum::ipv4_header_20(header)
        } else {
            let padded = self.options.iter().copied().chain(core::iter::repeat(0));
            for (to, from) in options.iter_mut().zip(padded) {
                *to = from;
            }
            checksum::Sum::of(header).add_bytes(options).checksum()
        };
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        Ok(bytes)
    }
}

/// Kinds of options.
pub mod option_kind {
    /// Record route.
    pub const RECORD_ROUTE: u8 = 7;
    /// Internet timestamp.
    pub const TIMESTAMP: u8 = 68;
    /// Loose source and record route.
    pub const LOOSE_SOURCE_ROUTE: u8 = 131;
    /// Strict source and record route.
    pub const STRICT_SOURCE_ROUTE: u8 = 137;
    /// Router alert (RFC 2113).
    pub const ROUTER_ALERT: u8 = 148;
}

/// One option: its kind and its data, without the two bytes of kind and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpOption<'a> {
    /// Copied flag, class and number, see [`option_kind`].
    pub kind: u8,
    /// What follows kind and length.
    pub data: &'a [u8],
}

impl IpOption<'_> {
    /// Says whether every fragment carries the option, and not the first one only.
    pub const fn is_copied(&self) -> bool {
        self.kind & 0x80 != 0
    }
    /// Says whether the sender chooses the route, which routers should refuse (RFC 7126 4.3, 4.4).
    pub const fn is_source_route(&self) -> bool {
        matches!(
            self.kind,
            option_kind::LOOSE_SOURCE_ROUTE | option_kind::STRICT_SOURCE_ROUTE
        )
    }
}

/// Walks the options of a header (RFC 791 3.1); no-operations are passed over, end-of-list ends the walk.
///
/// A length that is less than two or runs past the header yields [`DropReason::Ipv4Options`] once.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    rest: &'a [u8],
}

impl<'a> Options<'a> {
    /// Starts at the first byte after the fixed header; `bytes` ends with the header.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<IpOption<'a>, DropReason>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match *self.rest {
                [] | [0, ..] => return None,
                [1, ref rest @ ..] => self.rest = rest,
                [kind, length, ..] if length >= 2 => {
                    let Some((option, rest)) = self.rest.split_at_checked(length.into()) else {
                        break;
                    };
                    self.rest = rest;
                    let data = option.get(2..).unwrap_or_default();
                    return Some(Ok(IpOption { kind, data }));
                }
                _ => break,
            }
        }
        self.rest = &[];
        Some(Err(DropReason::Ipv4Options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ttl_checksum_agrees_with_a_whole_one_for_every_ttl_and_checksum() {
        for id in 0..=u16::MAX {
            let repr = Repr {
                ttl: id as u8,
                identification: id.wrapping_mul(0x6d2b),
                tos: (id >> 8) as u8,
                ..Repr::new(
                    Ipv4Addr::new(10, 0, 0, 1),
                    Ipv4Addr::new(10, 0, 1, 2),
                    17,
                    40,
                )
            };
            let mut header = [0; HEADER_BYTES];
            repr.emit(&mut header).unwrap();
            let before = header;
            if !decrement_ttl(&mut header) {
                assert!(repr.ttl <= 1 && header == before);
                continue;
            }
            let mut expected = [0; HEADER_BYTES];
            Repr {
                ttl: repr.ttl - 1,
                ..repr
            }
            .emit(&mut expected)
            .unwrap();
            assert_eq!(header, expected);
        }
    }
}
