//! Fragmentation: one network packet as several link packets (NDNLPv2, "fragmentation and reassembly").

use core::fmt;

use super::{LpHeader, types};
use crate::emit::BufferTooShort;
use crate::ndn::tlv::{element_bytes, number_bytes};

/// The most fragments that a packet may be cut into, as in NFD.
const FRAGMENTS_MAX: usize = 400;

/// A packet cannot be cut into fragments that fit the MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnfitMtu;

impl fmt::Display for UnfitMtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the MTU leaves no room for fragments; 128 bytes or more do")
    }
}

impl core::error::Error for UnfitMtu {}

/// Cuts a network packet into link packets of at most the MTU.
///
/// The header fields go with the first fragment. A packet that fits goes as it is, without a sequence.
#[derive(Clone, Copy, Debug)]
pub struct Fragments<'a> {
    header: LpHeader<'a>,
    packet: &'a [u8],
    /// Bytes of the packet in the first fragment, and in each other one but the last.
    first: usize,
    each: usize,
    count: usize,
    index: usize,
    sequence: u64,
}

impl<'a> Fragments<'a> {
    /// Plans the fragments of `packet`; `reserved` bytes of the MTU stay free in each (for a TxSequence
    /// and acks). The fragments get the sequences `sequence`, `sequence + 1`, ...
    ///
    /// # Errors
    /// [`UnfitMtu`] if the header leaves no room, or more than 400 fragments would be needed.
    pub fn new(
        header: LpHeader<'a>,
        packet: &'a [u8],
        mtu: usize,
        reserved: usize,
        sequence: u64,
    ) -> Result<Self, UnfitMtu> {
        let fields = header.fields_bytes();
        let whole = if fields == 0 && reserved == 0 {
            packet.len()
        } else {
            let value = fields + element_bytes(types::FRAGMENT, packet.len());
            element_bytes(types::LP_PACKET, value + reserved)
        };
        let mut plan = Self {
            header,
            packet,
            first: packet.len(),
            each: packet.len(),
            count: 1,
            index: 0,
            sequence,
        };
        if whole <= mtu {
            return Ok(plan);
        }
        let lengths = number_bytes(mtu as u64);
        // LpPacket and Fragment headers, Sequence, FragIndex and FragCount of two bytes each.
        let overhead = 1 + lengths + 1 + lengths + 10 + 4 + 4 + reserved;
        plan.each = mtu
            .checked_sub(overhead)
            .filter(|&n| n > 0)
            .ok_or(UnfitMtu)?;
        plan.first = plan.each.checked_sub(fields).ok_or(UnfitMtu)?;
        let rest = packet.len().saturating_sub(plan.first);
        plan.count = 1 + rest.div_ceil(plan.each);
        if plan.count > FRAGMENTS_MAX {
            return Err(UnfitMtu);
        }
        Ok(plan)
    }

    /// Returns the number of fragments.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Returns the header and the bytes of the next fragment.
    pub fn next_parts(&mut self) -> Option<(LpHeader<'a>, &'a [u8])> {
        if self.index >= self.count {
            return None;
        }
        if self.count == 1 {
            self.index = 1;
            return Some((self.header, self.packet));
        }
        let (start, length) = match self.index {
            0 => (0, self.first),
            index => (self.first + (index - 1) * self.each, self.each),
        };
        let end = (start + length).min(self.packet.len());
        let header = LpHeader {
            sequence: Some(self.sequence.wrapping_add(self.index as u64)),
            frag_index: self.index as u64,
            frag_count: Some(self.count as u64),
            ..if self.index == 0 {
                self.header
            } else {
                LpHeader::default()
            }
        };
        self.index += 1;
        Some((header, self.packet.get(start..end).unwrap_or_default()))
    }

    /// Writes the next fragment to the start of `out`; `None` after the last.
    ///
    /// # Errors
    /// [`BufferTooShort`]: give as many bytes as the MTU.
    pub fn next_into(&mut self, out: &mut [u8]) -> Option<Result<usize, BufferTooShort>> {
        let (header, part) = self.next_parts()?;
        Some(header.encode(&[], part, out))
    }
}
