//! IPv4 (RFC 791).

use crate::bytes::chunk_mut;
use crate::{DropReason, Layout, checksum};

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
/// "Don't fragment", in the word at [`FLAGS_FRAGMENT`].
pub const DONT_FRAGMENT: u16 = 0x4000;
/// "More fragments", in the word at [`FLAGS_FRAGMENT`].
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// The fragment offset, in units of eight bytes, in the word at [`FLAGS_FRAGMENT`].
pub const FRAGMENT_OFFSET_MASK: u16 = 0x1fff;

/// Decrements the TTL of a packet that is forwarded, and updates the header checksum (RFC 1812 5.3.1).
///
/// Returns false, and changes nothing, if the TTL is 0 or 1: the packet has expired.
#[inline]
pub fn decrement_ttl(layout: &Layout, frame: &mut [u8]) -> bool {
    let Some(header) = chunk_mut::<HEADER_BYTES>(frame, layout.network.into()) else {
        return false;
    };
    let before = u16::from_be_bytes([header[TTL], header[PROTOCOL]]);
    if header[TTL] <= 1 {
        return false;
    }
    header[TTL] -= 1;
    let old = u16::from_be_bytes([header[CHECKSUM], header[CHECKSUM + 1]]);
    let new = checksum::update_u16(old, before, before - 0x100).to_be_bytes();
    header[CHECKSUM] = new[0];
    header[CHECKSUM + 1] = new[1];
    true
}

/// One option: its kind and its data, without the two bytes of kind and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpOption<'a> {
    /// Copied flag, class and number.
    pub kind: u8,
    /// What follows kind and length.
    pub data: &'a [u8],
}

/// Walks the options of a header (RFC 791 3.1); no-operations are passed over, end-of-list ends the walk.
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
                    if let Some((option, rest)) = self.rest.split_at_checked(length.into()) {
                        self.rest = rest;
                        let data = option.get(2..).unwrap_or_default();
                        return Some(Ok(IpOption { kind, data }));
                    }
                    break;
                }
                _ => break,
            }
        }
        self.rest = &[];
        Some(Err(DropReason::Ipv4Options))
    }
}
