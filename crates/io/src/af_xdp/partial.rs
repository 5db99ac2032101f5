//! Checksums that the sender's kernel left to a device that is not there.
//!
//! A kernel that sends over a virtual link (veth) does not compute TCP and UDP checksums as long as
//! that link's transmit checksum offload is on: it puts the sum of the pseudo-header in the field and
//! notes in the skb where the rest is to be added (`CHECKSUM_PARTIAL`). AF_XDP hands over the bytes
//! without that note. Such a frame is known by its field: it equals the folded sum of the
//! pseudo-header, which a finished checksum does once in 65,536 frames, and then finishing it again
//! changes nothing.

/// EtherTypes and protocols looked for.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: [u16; 2] = [0x8100, 0x88a8];
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Finishes the TCP or UDP checksum of an Ethernet frame if only its pseudo-header part is there; tells
/// whether it did. Looks through up to two VLAN tags; leaves fragments and IPv6 packets with extension
/// headers alone (senders finish those themselves).
#[inline]
pub(super) fn finish_partial(frame: &mut [u8]) -> bool {
    let Some((transport, field, pseudo)) = locate(frame) else {
        return false;
    };
    let Some(segment) = frame.get_mut(transport.clone()) else {
        return false;
    };
    let Some(stored) = segment.get(field..field + 2) else {
        return false;
    };
    if stored != pseudo.to_be_bytes() {
        return false;
    }
    finish(segment, field);
    true
}

/// Computes the checksum over a segment whose field holds the pseudo-header's sum.
#[cold]
fn finish(segment: &mut [u8], field: usize) {
    // For UDP zero means "none" (RFC 768); for TCP both zeros are equal.
    let checksum = wire::checksum::Sum::of(segment).udp_checksum();
    if let Some(to) = segment.get_mut(field..field + 2) {
        to.copy_from_slice(&checksum.to_be_bytes());
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(
        *bytes.get(at..at + 2)?.first_chunk::<2>()?,
    ))
}

/// Adds the 16-bit words of `N` bytes.
#[inline]
fn words<const N: usize>(bytes: &[u8; N]) -> u32 {
    let mut sum = 0;
    for word in bytes.as_chunks::<2>().0 {
        sum += u32::from(u16::from_be_bytes(*word));
    }
    sum
}

/// Finds the transport segment, the checksum field in it, and the folded sum of the pseudo-header
/// (RFC 9293, 3.1; RFC 768; RFC 8200, 8.1).
#[inline]
fn locate(frame: &[u8]) -> Option<(core::ops::Range<usize>, usize, u16)> {
    let mut at = 12;
    let mut ethertype = u16_at(frame, at)?;
    for _ in 0..2 {
        if VLAN.contains(&ethertype) {
            at += 4;
            ethertype = u16_at(frame, at)?;
        }
    }
    let ip = at + 2;
    let (protocol, transport, addresses) = match ethertype {
        IPV4 => {
            let header = frame.get(ip..)?.first_chunk::<20>()?;
            let header_bytes = usize::from(header[0] & 0x0f) * 4;
            let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
            if header_bytes < 20 || fragment != 0 {
                return None;
            }
            let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
            let addresses = words(header.last_chunk::<8>()?);
            (header[9], ip + header_bytes..ip + total, addresses)
        }
        IPV6 => {
            let header = frame.get(ip..)?.first_chunk::<40>()?;
            let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
            let addresses = words(header.last_chunk::<32>()?);
            (header[6], ip + 40..ip + 40 + payload, addresses)
        }
        _ => return None,
    };
    let field = match protocol {
        TCP => 16,
        UDP => 6,
        _ => return None,
    };
    let length = transport.end.checked_sub(transport.start)?;
    let mut sum = addresses + u32::from(protocol) + length as u32;
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    Some((transport, field, sum as u16))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame around a transport segment, its checksum field holding the pseudo-header's sum.
    fn partial(version: u8, tag: &[u8], protocol: u8, segment: &[u8], field: usize) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        frame.extend(tag);
        let length = segment.len() as u16;
        if version == 4 {
            frame.extend([0x08, 0x00, 0x45, 0]);
            frame.extend((20 + length).to_be_bytes());
            frame.extend([
                0, 1, 0x40, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 203, 0, 113, 9,
            ]);
        } else {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(length.to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 1]);
            frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 2]);
        }
        let start = frame.len();
        frame.extend(segment);
        let (_, _, pseudo) = locate(&frame).expect("is TCP or UDP");
        frame[start + field..start + field + 2].copy_from_slice(&pseudo.to_be_bytes());
        frame.extend([0xaa; 6]); // padding of the wire, not part of the packet
        frame
    }

    /// Checks a transport checksum the slow way.
    fn is_right(frame: &[u8]) -> bool {
        let (transport, _, pseudo) = locate(frame).expect("is TCP or UDP");
        let mut sum = u64::from(pseudo);
        for pair in frame[transport].chunks(2) {
            sum += u64::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum == 0xffff
    }

    #[test]
    fn unfinished_checksums_are_finished_and_right_ones_stay() {
        let segment: Vec<u8> = (0..1461u32).map(|i| (i * 7 + 3) as u8).collect();
        for version in [4, 6] {
            for (protocol, field) in [(TCP, 16), (UDP, 6)] {
                for tag in [
                    &[][..],
                    &[0x81, 0, 0, 5],
                    &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6],
                ] {
                    for length in [20, 21, 100, 1461] {
                        let mut frame = partial(version, tag, protocol, &segment[..length], field);
                        assert!(finish_partial(&mut frame));
                        assert!(is_right(&frame), "IPv{version} {protocol} {length}");
                        let finished = frame.clone();
                        finish_partial(&mut frame);
                        assert_eq!(frame, finished, "finishing twice changes nothing");
                    }
                }
            }
        }
    }

    #[test]
    fn a_wrong_checksum_is_not_blessed() {
        let mut frame = partial(4, &[], TCP, &[7; 40], 16);
        finish_partial(&mut frame);
        frame[60] ^= 0x10;
        let corrupt = frame.clone();
        assert!(!finish_partial(&mut frame));
        assert_eq!(frame, corrupt);
    }

    #[test]
    fn fragments_and_other_protocols_are_left_alone() {
        let mut fragment = partial(4, &[], UDP, &[7; 40], 6);
        fragment[20] = 0x20; // more fragments
        assert!(!finish_partial(&mut fragment));
        let mut icmp = partial(4, &[], UDP, &[7; 40], 6);
        icmp[23] = 1;
        assert!(!finish_partial(&mut icmp));
    }

    #[test]
    fn cut_and_lying_frames_are_no_panic() {
        for version in [4, 6] {
            let whole = partial(version, &[], TCP, &[7; 40], 16);
            for length in 0..whole.len() {
                finish_partial(&mut whole[..length].to_vec());
            }
            for at in 0..whole.len() {
                for value in [0, 0x0f, 0xff] {
                    let mut lying = whole.clone();
                    lying[at] = value;
                    finish_partial(&mut lying);
                }
            }
        }
    }
}
