//! Rewrites addresses and ports of a packet in place, and mends its checksums by difference (RFC 1624).

use wire::checksum::{update_bytes, update_u16, update_u32, update_udp};
use wire::{FlowKey, Layout, LayoutFlags, icmpv4, ip_protocol, ipv4, ipv6, tcp, udp};

use crate::track::key::unmapped;

/// Writes `to` into a packet: addresses, and, unless it is a later fragment, ports or the ICMP identifier of TCP,
/// UDP and ICMP queries. The packet is of the same family. Returns false, and may have changed the addresses,
/// if the frame is shorter than its layout says.
#[inline]
pub fn rewrite(frame: &mut [u8], layout: &Layout, to: &FlowKey) -> bool {
    if layout.flags.contains(LayoutFlags::IPV4) {
        rewrite4(frame, layout, to).is_some()
    } else {
        rewrite6(frame, layout, to).is_some()
    }
}

#[inline]
fn rewrite4(frame: &mut [u8], layout: &Layout, to: &FlowKey) -> Option<()> {
    let header = frame
        .get_mut(layout.network.into()..)?
        .first_chunk_mut::<{ ipv4::HEADER_BYTES }>()?;
    let mut old = [0; 8];
    old.copy_from_slice(&header[ipv4::SOURCE..]);
    let addresses = u64::from(unmapped(to.source)) << 32 | u64::from(unmapped(to.destination));
    let new = addresses.to_be_bytes();
    if old != new {
        header[ipv4::SOURCE..].copy_from_slice(&new);
        let at = ipv4::CHECKSUM;
        let sum = update_bytes(u16::from_be_bytes([header[at], header[at + 1]]), &old, &new);
        header[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    // ICMP for IPv4 has no pseudo-header.
    let covered = layout.protocol != ip_protocol::ICMP;
    transport(frame, layout, to, |sum| {
        if covered {
            update_bytes(sum, &old, &new)
        } else {
            sum
        }
    })
}

fn rewrite6(frame: &mut [u8], layout: &Layout, to: &FlowKey) -> Option<()> {
    let header = frame
        .get_mut(layout.network.into()..)?
        .first_chunk_mut::<{ ipv6::HEADER_BYTES }>()?;
    let mut old = [0; 32];
    old.copy_from_slice(&header[ipv6::SOURCE..]);
    let mut new = [0; 32];
    new[..16].copy_from_slice(&to.source);
    new[16..].copy_from_slice(&to.destination);
    header[ipv6::SOURCE..].copy_from_slice(&new);
    transport(frame, layout, to, |sum| update_bytes(sum, &old, &new))
}

/// Writes ports or identifier, and mends the checksum, of which `addresses` makes up for the pseudo-header.
#[inline]
fn transport(
    frame: &mut [u8],
    layout: &Layout,
    to: &FlowKey,
    addresses: impl Fn(u16) -> u16,
) -> Option<()> {
    if !layout.flags.contains(LayoutFlags::TRANSPORT) {
        return Some(());
    }
    let segment = frame.get_mut(layout.transport.into()..)?;
    let ports = u32::from(to.source_port) << 16 | u32::from(to.destination_port);
    match layout.protocol {
        ip_protocol::TCP => {
            let header = segment.first_chunk_mut::<{ tcp::HEADER_BYTES }>()?;
            let old = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
            header[..4].copy_from_slice(&ports.to_be_bytes());
            let at = tcp::CHECKSUM;
            let sum = u16::from_be_bytes([header[at], header[at + 1]]);
            let sum = update_u32(addresses(sum), old, ports);
            header[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        ip_protocol::UDP => {
            let header = segment.first_chunk_mut::<{ udp::HEADER_BYTES }>()?;
            let old = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
            header[..4].copy_from_slice(&ports.to_be_bytes());
            let at = udp::CHECKSUM;
            let before = u16::from_be_bytes([header[at], header[at + 1]]);
            let after = update_u32(addresses(before), old, ports);
            header[at..at + 2].copy_from_slice(&update_udp(before, after).to_be_bytes());
        }
        _ => {
            let header = segment.first_chunk_mut::<{ icmpv4::HEADER_BYTES }>()?;
            let at = icmpv4::CHECKSUM;
            let mut sum = addresses(u16::from_be_bytes([header[at], header[at + 1]]));
            if is_query(layout.protocol, header[0]) {
                let old = u16::from_be_bytes([header[4], header[5]]);
                header[4..6].copy_from_slice(&to.source_port.to_be_bytes());
                sum = update_u16(sum, old, to.source_port);
            }
            header[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }
    Some(())
}

/// Tells whether an ICMP message has an identifier that maps: queries and their replies.
pub const fn is_query(protocol: u8, kind: u8) -> bool {
    match protocol {
        ip_protocol::ICMP => matches!(kind, 0 | 8 | 13..=18),
        ip_protocol::ICMPV6 => matches!(kind, 128 | 129),
        _ => false,
    }
}

/// Sets the TCP number at `field` (bytes into the header: sequence or acknowledgement) to `new`.
pub fn set_tcp_number(frame: &mut [u8], layout: &Layout, field: usize, new: u32) -> Option<()> {
    let header = frame
        .get_mut(layout.transport.into()..)?
        .first_chunk_mut::<{ tcp::HEADER_BYTES }>()?;
    let bytes: &mut [u8] = header.get_mut(field..field + 4)?;
    let old = u32::from_be_bytes(*bytes.first_chunk()?);
    bytes.copy_from_slice(&new.to_be_bytes());
    let at = tcp::CHECKSUM;
    let sum = update_u32(u16::from_be_bytes([header[at], header[at + 1]]), old, new);
    header[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    Some(())
}

/// Adds to the timestamps of a segment (RFC 7323 3.2), if it has any.
pub fn shift_timestamps(frame: &mut [u8], layout: &Layout, value: u32, echo: u32) -> Option<()> {
    let header = frame.get_mut(layout.transport.into()..layout.payload.into())?;
    let (fixed, options) = header.split_first_chunk_mut::<{ tcp::HEADER_BYTES }>()?;
    let at = timestamps_at(options)?;
    let place = options.get_mut(at..)?.first_chunk_mut::<8>()?;
    let old = *place;
    let word = |at: usize| u32::from_be_bytes([old[at], old[at + 1], old[at + 2], old[at + 3]]);
    place[..4].copy_from_slice(&word(0).wrapping_add(value).to_be_bytes());
    place[4..].copy_from_slice(&word(4).wrapping_add(echo).to_be_bytes());
    // At an odd offset, the bytes of a number count in the other halves of their words.
    let turned = |bytes: [u8; 8]| {
        let turn = if at % 2 == 1 { 8 } else { 0 };
        u64::from_be_bytes(bytes).rotate_right(turn).to_be_bytes()
    };
    let sum = u16::from_be_bytes([fixed[tcp::CHECKSUM], fixed[tcp::CHECKSUM + 1]]);
    let sum = update_bytes(sum, &turned(old), &turned(*place));
    fixed[tcp::CHECKSUM..tcp::CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
    Some(())
}

/// Finds the numbers of the timestamp option (kind 8).
fn timestamps_at(options: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let [kind, rest @ ..] = options.get(at..)? {
        match (kind, rest.first()) {
            (0, _) | (_, None) => return None,
            (1, _) => at += 1,
            (8, Some(10)) => return Some(at + 2),
            (_, Some(&length)) => at += usize::from(length).max(2),
        }
    }
    None
}

/// Sets the window of a segment, as it stands in the header.
pub fn set_window(frame: &mut [u8], layout: &Layout, new: u16) -> Option<()> {
    let header = frame
        .get_mut(layout.transport.into()..)?
        .first_chunk_mut::<{ tcp::HEADER_BYTES }>()?;
    let old = u16::from_be_bytes([header[tcp::WINDOW], header[tcp::WINDOW + 1]]);
    header[tcp::WINDOW..tcp::WINDOW + 2].copy_from_slice(&new.to_be_bytes());
    let at = tcp::CHECKSUM;
    let sum = update_u16(u16::from_be_bytes([header[at], header[at + 1]]), old, new);
    header[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Sample, samples};
    use alloc::vec::Vec;
    use proptest::prelude::*;
    use wire::checksum::{TransportChecksum, verify_transport};
    use wire::parse;

    #[test]
    fn row_45_a_udp_checksum_of_zero_stays_and_none_becomes_zero() {
        let Sample { mut frame, .. } = Sample::udp4(1000, 53, b"data");
        let layout = parse(&frame).unwrap();
        let at = usize::from(layout.transport) + udp::CHECKSUM;
        frame[at..at + 2].fill(0);
        let mut to = FlowKey::from_layout(&layout, &frame).unwrap();
        to.source_port = 77;
        assert!(rewrite(&mut frame, &layout, &to));
        assert_eq!(frame[at..at + 2], [0, 0]);
        // Over all source ports, some sum would be zero: it is written as 0xffff, and valid.
        let Sample { mut frame, .. } = Sample::udp4(1000, 53, b"data");
        let mut ones = 0;
        for port in 0..=u16::MAX {
            to.source_port = port;
            assert!(rewrite(&mut frame, &layout, &to));
            let sum = u16::from_be_bytes([frame[at], frame[at + 1]]);
            assert_ne!(sum, 0);
            if sum == 0xffff {
                ones += 1;
                let state = verify_transport(&layout, &frame);
                assert_eq!(state, TransportChecksum::Good);
            }
        }
        assert!(ones >= 1);
    }

    proptest! {
        #[test]
        fn what_is_rewritten_reads_back_with_right_checksums(
            source: [u8; 16], destination: [u8; 16], ports: (u16, u16), payload: Vec<u8>,
        ) {
            for Sample { mut frame, is_ipv4 } in samples(&payload) {
                let layout = parse(&frame).unwrap();
                let before = FlowKey::from_layout(&layout, &frame).unwrap();
                let original = frame.clone();
                let mut to = before;
                to.source = source;
                to.destination = destination;
                if is_ipv4 {
                    to.source = crate::track::key::mapped(unmapped(source));
                    to.destination = crate::track::key::mapped(unmapped(destination));
                }
                to.source_port = ports.0;
                if matches!(before.protocol, 6 | 17) {
                    to.destination_port = ports.1;
                }
                prop_assert!(rewrite(&mut frame, &layout, &to));
                let again = parse(&frame).unwrap();
                prop_assert_eq!(FlowKey::from_layout(&again, &frame), Some(to));
                prop_assert_eq!(verify_transport(&again, &frame), TransportChecksum::Good);
                prop_assert!(rewrite(&mut frame, &layout, &before));
                prop_assert_eq!(frame, original);
            }
        }
    }
}
