//! What a network card would do and a software driver must: finish checksums.

use wire::checksum::Sum;

use crate::frame::{Frame, FrameFlags};

/// Finishes the transport checksum of a frame that carries only the pseudo-header's sum, and clears
/// [`FrameFlags::CHECKSUM_PARTIAL`]. Every driver calls it before a frame leaves. A frame without the
/// flag is left alone; so is one whose headers cannot be followed.
#[inline]
pub fn finish_checksum(frame: &mut Frame) {
    if frame.flags.contains(FrameFlags::CHECKSUM_PARTIAL) {
        finish(frame);
    }
}

/// What a card needs to know to finish a checksum itself.
#[cfg(feature = "dpdk")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partial {
    /// TCP, else UDP.
    pub(crate) tcp: bool,
    /// IPv4, else IPv6.
    pub(crate) ipv4: bool,
    /// Bytes before the network header.
    pub(crate) l2_bytes: u8,
    /// Bytes of the network header with options or extension headers.
    pub(crate) l3_bytes: u16,
    /// Bytes of the transport header with options.
    pub(crate) l4_bytes: u8,
}

/// Says where the checksum is that a frame with [`FrameFlags::CHECKSUM_PARTIAL`] lacks; `None` if its
/// headers cannot be followed.
#[cfg(feature = "dpdk")]
#[cold]
pub(crate) fn partial(frame: &Frame) -> Option<Partial> {
    let (ether_type, network) = network(frame.data())?;
    let (start, _, field) = transport(frame.data())?;
    let tcp = field == start + 16;
    let l4_bytes = match tcp {
        true => (frame.data().get(start + 12)? >> 4) * 4,
        false => 8,
    };
    Some(Partial {
        tcp,
        l4_bytes,
        ipv4: ether_type == 0x0800,
        l2_bytes: u8::try_from(network).ok()?,
        l3_bytes: u16::try_from(start - network).ok()?,
    })
}

#[cold]
fn finish(frame: &mut Frame) {
    frame.flags.remove(FrameFlags::CHECKSUM_PARTIAL);
    if let Some((start, end, field)) = transport(frame.data()) {
        complete(frame.data_mut(), start, end, field);
    }
}

/// Writes the checksum of `start..end` to `field`, which holds the sum of the pseudo-header; tells
/// whether these are inside the frame.
pub(crate) fn complete(bytes: &mut [u8], start: usize, end: usize, field: usize) -> bool {
    let Some(covered) = bytes.get(start..end) else {
        return false;
    };
    if field < start || field + 2 > end {
        return false;
    }
    // The field holds the pseudo-header's sum, not its complement, so that summing over it includes it. For
    // UDP zero means "none" (RFC 768); for TCP both zeros are equal.
    let checksum = Sum::of(covered).udp_checksum();
    if let Some(to) = bytes.get_mut(field..field + 2) {
        to.copy_from_slice(&checksum.to_be_bytes());
    }
    true
}

/// Finds where the transport header starts, where the packet ends, and where the checksum is (TCP and
/// UDP over IPv4 and IPv6, unfragmented, behind up to two VLAN tags).
fn transport(bytes: &[u8]) -> Option<(usize, usize, usize)> {
    let (ether_type, network) = network(bytes)?;
    let (protocol, start, end) = match ether_type {
        0x0800 => {
            let header = usize::from(*bytes.get(network)? & 0x0f) * 4;
            let total = usize::from(be16(bytes, network + 2)?);
            (*bytes.get(network + 9)?, network + header, network + total)
        }
        0x86dd => {
            let end = network + 40 + usize::from(be16(bytes, network + 4)?);
            let (protocol, start) = ipv6_transport(bytes, network)?;
            (protocol, start, end)
        }
        _ => return None,
    };
    let field = match protocol {
        6 => start + 16,
        17 => start + 6,
        _ => return None,
    };
    (end <= bytes.len() && field + 2 <= end).then_some((start, end, field))
}

/// Follows up to two VLAN tags; returns the EtherType and where the network header starts.
pub(crate) fn network(bytes: &[u8]) -> Option<(u16, usize)> {
    let mut at = 12;
    for _ in 0..3 {
        let ether_type = be16(bytes, at)?;
        if !matches!(ether_type, 0x8100 | 0x88a8) {
            return Some((ether_type, at + 2));
        }
        at += 4;
    }
    None
}

/// Walks IPv6 extension headers; returns the transport protocol and where its header starts.
pub(crate) fn ipv6_transport(bytes: &[u8], network: usize) -> Option<(u8, usize)> {
    let mut next = *bytes.get(network + 6)?;
    let mut at = network + 40;
    for _ in 0..8 {
        match next {
            // Hop-by-hop, routing, destination options (RFC 8200 4).
            0 | 43 | 60 => {
                next = *bytes.get(at)?;
                at += 8 + usize::from(*bytes.get(at + 1)?) * 8;
            }
            _ => return Some((next, at)),
        }
    }
    None
}

/// Reads a big-endian 16-bit word.
pub(crate) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|b| u16::from_be_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HugePages, Pool};

    /// The obvious way: word by word, folding at each step.
    fn naive(bytes: &[u8]) -> u16 {
        let mut total = 0_u32;
        for pair in bytes.chunks(2) {
            total += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
            total = (total & 0xffff) + (total >> 16);
        }
        total as u16
    }

    /// UDP over IPv4, with the pseudo-header's sum in the checksum field.
    fn partial_udp(payload: &[u8], tag: bool) -> Vec<u8> {
        let udp_len = 8 + payload.len();
        let mut bytes = vec![2; 12];
        if tag {
            bytes.extend([0x81, 0, 0, 5]);
        }
        bytes.extend([8, 0]);
        bytes.extend([0x45, 0]);
        bytes.extend(((20 + udp_len) as u16).to_be_bytes());
        bytes.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let mut pseudo = vec![10, 0, 0, 1, 10, 0, 0, 2, 0, 17];
        pseudo.extend((udp_len as u16).to_be_bytes());
        bytes.extend([0x12, 0x34, 0, 53]);
        bytes.extend((udp_len as u16).to_be_bytes());
        bytes.extend(naive(&pseudo).to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn a_partial_checksum_is_finished_once_and_verifies() {
        let mut pool = Pool::new(1, 2048, HugePages::Never).unwrap();
        for (payload, tag) in [(&b"odd"[..], false), (b"even", true), (b"", false)] {
            let mut frame = pool.alloc().unwrap();
            // Ethernet padding after the packet must not count.
            let mut bytes = partial_udp(payload, tag);
            bytes.extend([0xee; 7]);
            frame.fill(&bytes);
            frame.flags = FrameFlags::CHECKSUM_PARTIAL;
            finish_checksum(&mut frame);
            assert_eq!(frame.flags, FrameFlags::empty());
            let start = if tag { 38 } else { 34 };
            let udp_len = 8 + payload.len();
            let mut covered = vec![10, 0, 0, 1, 10, 0, 0, 2, 0, 17];
            covered.extend((udp_len as u16).to_be_bytes());
            covered.extend(&frame.data()[start..start + udp_len]);
            assert_eq!(naive(&covered), 0xffff);
            let finished = frame.data().to_vec();
            finish_checksum(&mut frame);
            assert_eq!(frame.data(), finished);
            pool.free(frame);
        }
    }

    #[test]
    fn bytes_that_make_no_sense_are_left_alone() {
        let mut pool = Pool::new(1, 2048, HugePages::Never).unwrap();
        let whole = partial_udp(b"payload", true);
        for len in 0..whole.len() {
            let mut frame = pool.alloc().unwrap();
            frame.fill(&whole[..len]);
            frame.flags = FrameFlags::CHECKSUM_PARTIAL;
            finish_checksum(&mut frame);
            assert_eq!(frame.data(), &whole[..len]);
            pool.free(frame);
        }
    }
}
