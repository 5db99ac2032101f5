//! The Internet checksum (RFC 1071): full, in parts, by difference (RFC 1624), and over a [`Layout`].
//!
//! Checksums are host-order integers as they stand in the header field (the complement of the sum).
//! Sums are [`Sum`]: they add in any order and are folded once, at the end.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::bytes::{be32, chunk, chunk_mut};
use crate::numbers::ip_protocol;
use crate::{Layout, LayoutFlags, icmpv4, ipv4, ipv6, tcp, udp};

/// A one's complement sum of 16-bit words that is not folded yet.
///
/// Holds 2^32 words of any length before it could overflow: far more than any packet has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a sum does nothing until it is finished and written or compared"]
pub struct Sum(u64);

impl Sum {
    /// The empty sum.
    pub const ZERO: Self = Self(0);

    /// Sums `bytes` as big-endian words; an odd last byte is padded with a zero byte (RFC 1071 4.1).
    ///
    /// Reads eight bytes at a time; the alignment of the data does not matter.
    #[inline]
    pub fn of(bytes: &[u8]) -> Self {
        Self(u64::from(sum_bytes(bytes)))
    }
    /// Adds another sum. The bytes that each sum covers must start at an even offset of the whole.
    #[inline]
    pub const fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
    /// Adds the bytes, which start at an even offset of what is summed.
    #[inline]
    pub fn add_bytes(self, bytes: &[u8]) -> Self {
        self.add(Self::of(bytes))
    }
    /// Adds one 16-bit word.
    #[inline]
    pub const fn add_u16(self, word: u16) -> Self {
        Self(self.0 + word as u64)
    }
    /// Adds a 32-bit field: two words, which the folding brings together (2^16 is one, modulo 2^16 - 1).
    #[inline]
    pub const fn add_u32(self, field: u32) -> Self {
        Self(self.0 + field as u64)
    }
    /// Adds an IPv4 address.
    #[inline]
    pub const fn add_ipv4(self, address: Ipv4Addr) -> Self {
        self.add_u32(address.to_bits())
    }
    /// Adds an IPv6 address.
    #[inline]
    pub const fn add_ipv6(self, address: Ipv6Addr) -> Self {
        let bits = address.to_bits();
        self.add_u32((bits >> 96) as u32)
            .add_u32((bits >> 64) as u32)
            .add_u32((bits >> 32) as u32)
            .add_u32(bits as u32)
    }
    /// Folds the sum to 16 bits: 0xffff for the sum of a header with a right checksum.
    #[inline]
    pub const fn fold(self) -> u16 {
        // Twice, as the first fold may carry; the sums that packets make have at most 48 bits.
        let sum = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        ((sum & 0xffff) + (sum >> 16)) as u16
    }
    /// Returns the checksum: the complement of the folded sum.
    #[inline]
    pub const fn checksum(self) -> u16 {
        !self.fold()
    }
    /// Returns the checksum for a UDP header, where zero means "none" and 0xffff stands for zero (RFC 768).
    #[inline]
    pub const fn udp_checksum(self) -> u16 {
        nonzero(self.checksum())
    }
    /// Says whether the sum covers its own checksum and that checksum is right.
    #[inline]
    pub const fn is_valid(self) -> bool {
        self.fold() == 0xffff
    }
}

/// Computes the checksum of `bytes`; 0 if `bytes` holds its own, right, checksum.
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    Sum::of(bytes).checksum()
}

/// Checks an IPv4 header without options in straight-line code.
#[inline]
pub fn is_valid_20(header: &[u8; 20]) -> bool {
    fold_native(sum_20(header)) == 0xffff
}

/// Computes the checksum of an IPv4 header without options whose checksum field is taken as zero.
#[inline]
pub fn ipv4_header_20(header: &[u8; 20]) -> u16 {
    let mut header = *header;
    header[ipv4::CHECKSUM] = 0;
    header[ipv4::CHECKSUM + 1] = 0;
    !u16::from_be_bytes(fold_native(sum_20(&header)).to_ne_bytes())
}

/// Sums the pseudo-header of TCP and UDP over IPv4 (RFC 9293 3.1); `length` is that of header and data, bytes.
#[inline]
pub const fn pseudo_header_ipv4(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: u8,
    length: u16,
) -> Sum {
    Sum::ZERO
        .add_ipv4(source)
        .add_ipv4(destination)
        .add_u16(protocol as u16)
        .add_u16(length)
}

/// Sums the pseudo-header of all transports over IPv6 (RFC 8200 8.1); `length` is that of header and data, bytes.
#[inline]
pub const fn pseudo_header_ipv6(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    protocol: u8,
    length: u32,
) -> Sum {
    Sum::ZERO
        .add_ipv6(source)
        .add_ipv6(destination)
        .add_u16(protocol as u16)
        .add_u32(length)
}

/// Returns the checksum after one 16-bit word of what it covers changed from `old` to `new`.
///
/// RFC 1624 equation 3, `~(~HC + ~m + m')`, which, unlike RFC 1141, never turns a right checksum into
/// the wrong one of 0x0000 and 0xffff.
#[inline]
pub const fn update_u16(checksum: u16, old: u16, new: u16) -> u16 {
    Sum((!checksum) as u64 + (!old) as u64 + new as u64).checksum()
}

/// Returns the checksum after an aligned 32-bit field changed (an IPv4 address, a sequence number).
#[inline]
pub const fn update_u32(checksum: u16, old: u32, new: u32) -> u16 {
    Sum((!checksum) as u64)
        .add_u32(!old)
        .add_u32(new)
        .checksum()
}

/// Returns the checksum after the bytes `old`, at an even offset, became `new` (an IPv6 address).
#[inline]
pub fn update_bytes<const N: usize>(checksum: u16, old: &[u8; N], new: &[u8; N]) -> u16 {
    const { assert!(N.is_multiple_of(2), "the words that change are whole") };
    // The complement of a sum of words is the sum of their complements (RFC 1071 2). In straight-line code: the bytes
    // are few, and their number is known.
    let mut sum = u64::from(!checksum);
    let ((old, old_rest), (new, new_rest)) = (old.as_chunks::<4>(), new.as_chunks::<4>());
    for word in old {
        sum += u64::from(!u32::from_be_bytes(*word));
    }
    for word in new {
        sum += u64::from(u32::from_be_bytes(*word));
    }
    if let ([a, b], [c, d]) = (old_rest, new_rest) {
        sum += u64::from(!u16::from_be_bytes([*a, *b])) + u64::from(u16::from_be_bytes([*c, *d]));
    }
    Sum(sum).checksum()
}

/// Keeps the rule of UDP after an update: a checksum that was zero (absent) stays so, one that
/// became zero turns into 0xffff (RFC 768; RFC 3022 4.1).
#[inline]
pub const fn update_udp(before: u16, after: u16) -> u16 {
    if before == 0 { 0 } else { nonzero(after) }
}

/// What can be said about the transport checksum of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransportChecksum {
    /// It is right.
    Good,
    /// It is wrong; or it is zero in UDP over IPv6, which forbids that (RFC 8200 8.1).
    Bad,
    /// There is nothing to check: UDP over IPv4 without a checksum, a fragment, a routing header with
    /// segments left (the final destination is not in the header), or a protocol that we do not know.
    Absent,
}

/// Checks the checksum of TCP, UDP, ICMP or ICMPv6.
#[inline]
pub fn verify_transport(layout: &Layout, frame: &[u8]) -> TransportChecksum {
    let Some((sum, segment)) = pseudo_header(layout, frame) else {
        return TransportChecksum::Absent;
    };
    let is_udp = layout.protocol == ip_protocol::UDP;
    if is_udp && chunk::<2>(segment, udp::CHECKSUM) == Some(&[0, 0]) {
        return if layout.flags.contains(LayoutFlags::IPV4) {
            TransportChecksum::Absent
        } else {
            TransportChecksum::Bad
        };
    }
    if sum.add_bytes(segment).is_valid() {
        TransportChecksum::Good
    } else {
        TransportChecksum::Bad
    }
}

/// Computes and writes the checksum of TCP, UDP, ICMP or ICMPv6.
///
/// Returns false, and writes nothing, where [`verify_transport`] says that there is none to check;
/// but gives UDP over IPv4 a checksum, whether it had one or not.
#[inline]
pub fn fill_transport(layout: &Layout, frame: &mut [u8]) -> bool {
    let field = match layout.protocol {
        ip_protocol::UDP => udp::CHECKSUM,
        ip_protocol::TCP => tcp::CHECKSUM,
        _ => icmpv4::CHECKSUM,
    };
    let at = usize::from(layout.transport) + field;
    if pseudo_header(layout, frame).is_none() {
        return false;
    }
    let Some(target) = chunk_mut::<2>(frame, at) else {
        return false;
    };
    *target = [0, 0];
    let Some((sum, segment)) = pseudo_header(layout, frame) else {
        return false;
    };
    let sum = sum.add_bytes(segment);
    let checksum = match layout.protocol {
        ip_protocol::UDP => sum.udp_checksum(),
        _ => sum.checksum(),
    };
    if let Some(target) = chunk_mut::<2>(frame, at) {
        *target = checksum.to_be_bytes();
    }
    true
}

/// Returns the sum of the pseudo-header and the bytes that the transport checksum covers beside it.
fn pseudo_header<'a>(layout: &Layout, frame: &'a [u8]) -> Option<(Sum, &'a [u8])> {
    if layout.flags.contains(LayoutFlags::FRAGMENT)
        || !layout.flags.contains(LayoutFlags::TRANSPORT)
    {
        return None;
    }
    let mut segment = frame.get(usize::from(layout.transport)..usize::from(layout.end))?;
    if layout.protocol == ip_protocol::UDP {
        // The UDP checksum covers the UDP length; UDP options follow (RFC 9868 5).
        let length = u16::from_be_bytes(*chunk::<2>(segment, udp::LENGTH)?);
        segment = segment.get(..usize::from(length))?;
    }
    let network = usize::from(layout.network);
    let protocol = u16::from(layout.protocol);
    let sum = if layout.flags.contains(LayoutFlags::IPV4) {
        if layout.protocol == ip_protocol::ICMP {
            return Some((Sum::ZERO, segment));
        }
        // Both addresses lie side by side.
        let ends = chunk::<8>(frame, network + ipv4::SOURCE)?;
        Sum::ZERO.add_u32(be32!(ends, 0)).add_u32(be32!(ends, 4))
    } else {
        if layout.flags.contains(LayoutFlags::OPTIONS) && ipv6::has_segments_left(layout, frame) {
            return None;
        }
        Sum::of(chunk::<32>(frame, network + ipv6::SOURCE)?)
    };
    Some((sum.add_u16(protocol).add_u32(segment.len() as u32), segment))
}

const fn nonzero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// Sums words in the machine's byte order: the one's complement sum does not depend on it (RFC 1071 2).
#[inline]
fn sum_bytes(bytes: &[u8]) -> u16 {
    // Two chains of additions with carry, which the processor runs side by side: one instruction for eight bytes.
    let mut sums = [0u64; 2];
    let (blocks, rest) = bytes.as_chunks::<128>();
    for block in blocks {
        if let ([low, high], _) = block.as_chunks::<64>() {
            sums[0] = add_words(sums[0], low);
            sums[1] = add_words(sums[1], high);
        }
    }
    let (blocks, rest) = rest.as_chunks::<32>();
    for block in blocks {
        sums[0] = add_words(sums[0], block);
    }
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        sums[1] = add_words(sums[1], word);
    }
    // The tail in halves: bytes gathered in a buffer would be read back before they are stored.
    let mut tail = 0;
    let (words, rest) = rest.as_chunks::<4>();
    for word in words {
        tail += u64::from(u32::from_ne_bytes(*word));
    }
    let (words, rest) = rest.as_chunks::<2>();
    for word in words {
        tail += u64::from(u16::from_ne_bytes(*word));
    }
    if let [last] = rest {
        tail += u64::from(u16::from_ne_bytes([*last, 0]));
    }
    let (sum, carry) = sums[0].overflowing_add(sums[1]);
    let sum = (sum & 0xffff_ffff) + (sum >> 32) + u64::from(carry) + tail;
    u16::from_be_bytes(fold_native(sum).to_ne_bytes())
}

/// Adds the 64-bit words of a block, the carry of each to the next and the last one to the sum (RFC 1071 2).
#[inline(always)]
fn add_words<const N: usize>(mut sum: u64, block: &[u8; N]) -> u64 {
    let mut carry = false;
    let (words, _) = block.as_chunks::<8>();
    for word in words {
        (sum, carry) = sum.carrying_add(u64::from_ne_bytes(*word), carry);
    }
    // A sum that carried is at most 2^64 - 2: the carry fits.
    sum.wrapping_add(u64::from(carry))
}

/// Sums the five 32-bit words of a header, in the machine's byte order.
#[inline(always)]
fn sum_20(header: &[u8; 20]) -> u64 {
    let (words, _) = header.as_chunks::<4>();
    words
        .iter()
        .map(|word| u64::from(u32::from_ne_bytes(*word)))
        .sum()
}

#[inline(always)]
const fn fold_native(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// RFC 1071 as it reads: word by word.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn rfc_1071_example() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::of(&bytes).fold(), 0xddf2);
        assert_eq!(checksum(&bytes), !0xddf2);
        assert_eq!(checksum(&[]), 0xffff);
    }

    #[test]
    fn all_ones_carry_through_every_lane() {
        let bytes = [0xff; 4096];
        for length in 0..bytes.len() {
            assert_eq!(
                checksum(&bytes[..length]),
                naive(&bytes[..length]),
                "{length}"
            );
        }
    }

    #[test]
    fn any_bytes_at_any_place() {
        let mut state = 1_u32;
        let bytes: Vec<u8> = core::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Many bytes of ones, so that carries run.
            if state >> 31 == 0 {
                0xff
            } else {
                (state >> 20) as u8
            }
        })
        .take(1600)
        .collect();
        for start in 0..9 {
            for end in start..bytes.len() {
                let part = &bytes[start..end];
                assert_eq!(checksum(part), naive(part), "{start}..{end}");
            }
        }
    }

    #[test]
    fn rfc_1624_example_and_corner() {
        // RFC 1624 4: HC = 0xDD2F, m = 0x5555, m' = 0x3285 gives 0x0000, where RFC 1141 gave 0xFFFF.
        assert_eq!(update_u16(0xdd2f, 0x5555, 0x3285), 0x0000);
        assert_eq!(
            update_udp(0xdd2f, update_u16(0xdd2f, 0x5555, 0x3285)),
            0xffff
        );
        assert_eq!(update_udp(0, 0x1234), 0);
        // A change from 0xffff to 0xffff, and from 0 to 0, changes nothing.
        for same in [0, 0xffff, 0x1234] {
            assert_eq!(update_u16(0x4321, same, same), 0x4321);
        }
    }

    #[test]
    fn updates_equal_recomputing() {
        let mut header: Vec<u8> = (0u8..40).map(|i| i.wrapping_mul(37) | 1).collect();
        for seed in 0..=u16::MAX {
            let old_sum = checksum(&header);
            let old: [u8; 16] = header[8..24].try_into().unwrap();
            let mut new = old;
            for (i, byte) in new.iter_mut().enumerate() {
                *byte = (seed >> (i % 9)) as u8 ^ (i as u8).wrapping_mul(seed as u8);
            }
            if seed % 7 == 0 {
                new = [0xff; 16];
            } else if seed % 11 == 0 {
                new = [0; 16];
            }
            header[8..24].copy_from_slice(&new);
            let full = checksum(&header);
            assert_eq!(update_bytes(old_sum, &old, &new), full);
            let mut steps = old_sum;
            for i in 0..4 {
                let word = |b: &[u8; 16]| u32::from_be_bytes(*chunk(b, i * 4).unwrap());
                steps = update_u32(steps, word(&old), word(&new));
            }
            assert_eq!(steps, full);
        }
    }

    #[test]
    fn ipv4_header_in_straight_line() {
        let mut header: [u8; 20] = core::array::from_fn(|i| (i * 31) as u8);
        for i in 0..=255 {
            header[4] = i;
            let sum = ipv4_header_20(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            assert!(is_valid_20(&header));
            assert_eq!(naive(&header), 0);
            header[9] ^= 0x40;
            assert!(!is_valid_20(&header));
        }
    }

    #[test]
    fn pseudo_headers_equal_their_bytes() {
        let (a, b) = (
            Ipv4Addr::new(192, 0, 2, 255),
            Ipv4Addr::new(255, 254, 253, 1),
        );
        let bytes = [&a.octets()[..], &b.octets(), &[0, 17, 0x12, 0x34]].concat();
        assert_eq!(
            pseudo_header_ipv4(a, b, 17, 0x1234).checksum(),
            naive(&bytes)
        );
        let (a, b) = (
            a.to_ipv6_mapped(),
            Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 1, 2, 3, 4, 0xfffe),
        );
        let bytes = [
            &a.octets()[..],
            &b.octets(),
            &[0, 1, 0x12, 0x34, 0, 0, 0, 6],
        ]
        .concat();
        assert_eq!(
            pseudo_header_ipv6(a, b, 6, 0x1_1234).checksum(),
            naive(&bytes)
        );
    }
}
