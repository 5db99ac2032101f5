//! ICMP errors about translated packets: the quote is translated as well (RFC 5508 4, RFC 7915 for what changes).

use wire::checksum::{
    TransportChecksum, fill_transport, update_bytes, update_u16, update_u32, update_udp,
    verify_transport,
};
use wire::{FlowKey, Layout, LayoutFlags, ip_protocol, ipv4, ipv6, tcp, udp};

use super::rewrite::is_query;
use crate::track::key::unmapped;

/// What an ICMP error of a connection is to look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorTarget {
    /// Addresses of the error itself.
    pub source: [u8; 16],
    /// Where it goes.
    pub destination: [u8; 16],
    /// The quoted packet, as its sender sent it.
    pub quoted: FlowKey,
}

/// Checks an ICMP error's checksum (RFC 5508 REQ-3: a wrong one is dropped). A fragment cannot be checked.
pub fn is_sound(layout: &Layout, frame: &[u8]) -> bool {
    verify_transport(layout, frame) != TransportChecksum::Bad
}

/// Rewrites an ICMP error and the packet that it quotes. Returns false if the quote cannot be translated.
pub fn rewrite_error(frame: &mut [u8], layout: &Layout, to: &ErrorTarget) -> bool {
    let is_v4 = layout.flags.contains(LayoutFlags::IPV4);
    let done = if is_v4 {
        outer4(frame, layout, to).and_then(|()| quote4(frame, layout, &to.quoted))
    } else {
        outer6(frame, layout, to).and_then(|()| quote6(frame, layout, &to.quoted))
    };
    done.is_some() && fill_transport(layout, frame)
}

fn outer4(frame: &mut [u8], layout: &Layout, to: &ErrorTarget) -> Option<()> {
    let header = frame
        .get_mut(layout.network.into()..)?
        .first_chunk_mut::<{ ipv4::HEADER_BYTES }>()?;
    set_addresses4(header, unmapped(to.source), unmapped(to.destination));
    Some(())
}

fn outer6(frame: &mut [u8], layout: &Layout, to: &ErrorTarget) -> Option<()> {
    let header = frame
        .get_mut(layout.network.into()..)?
        .first_chunk_mut::<{ ipv6::HEADER_BYTES }>()?;
    header[ipv6::SOURCE..ipv6::DESTINATION].copy_from_slice(&to.source);
    header[ipv6::DESTINATION..].copy_from_slice(&to.destination);
    Some(())
}

/// Writes both addresses of an IPv4 header and mends its checksum; returns the old and new bytes.
fn set_addresses4(
    header: &mut [u8; ipv4::HEADER_BYTES],
    source: u32,
    destination: u32,
) -> ([u8; 8], [u8; 8]) {
    let mut old = [0; 8];
    old.copy_from_slice(&header[ipv4::SOURCE..]);
    let new = (u64::from(source) << 32 | u64::from(destination)).to_be_bytes();
    header[ipv4::SOURCE..].copy_from_slice(&new);
    let at = ipv4::CHECKSUM;
    let sum = update_bytes(u16::from_be_bytes([header[at], header[at + 1]]), &old, &new);
    header[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    (old, new)
}

fn quote4(frame: &mut [u8], layout: &Layout, to: &FlowKey) -> Option<()> {
    let quote = frame.get_mut(layout.payload.into()..layout.end.into())?;
    let (header, rest) = quote.split_first_chunk_mut::<{ ipv4::HEADER_BYTES }>()?;
    let (old, new) = set_addresses4(header, unmapped(to.source), unmapped(to.destination));
    let options = (usize::from(header[0] & 15) * 4).checked_sub(ipv4::HEADER_BYTES)?;
    let protocol = header[ipv4::PROTOCOL];
    let covered = protocol != ip_protocol::ICMP;
    quoted_transport(rest.get_mut(options..)?, protocol, to, |sum| {
        if covered {
            update_bytes(sum, &old, &new)
        } else {
            sum
        }
    })
}

fn quote6(frame: &mut [u8], layout: &Layout, to: &FlowKey) -> Option<()> {
    let quote = frame.get_mut(layout.payload.into()..layout.end.into())?;
    let (header, mut rest) = quote.split_first_chunk_mut::<{ ipv6::HEADER_BYTES }>()?;
    let mut old = [0; 32];
    old.copy_from_slice(&header[ipv6::SOURCE..]);
    header[ipv6::SOURCE..ipv6::DESTINATION].copy_from_slice(&to.source);
    header[ipv6::DESTINATION..].copy_from_slice(&to.destination);
    let mut new = [0; 32];
    new.copy_from_slice(&header[ipv6::SOURCE..]);
    let mut protocol = header[ipv6::NEXT_HEADER];
    for _ in 0..wire::parse::EXTENSION_HEADERS_MAX {
        if !ipv6::is_extension_header(protocol) {
            break;
        }
        let &[next, length, ..] = &*rest else {
            return None;
        };
        let bytes = match protocol {
            ip_protocol::FRAGMENT => 8,
            ip_protocol::AUTHENTICATION => (usize::from(length) + 2) * 4,
            _ => (usize::from(length) + 1) * 8,
        };
        rest = rest.get_mut(bytes..)?;
        protocol = next;
    }
    quoted_transport(rest, protocol, to, |sum| update_bytes(sum, &old, &new))
}

/// Writes the ports of a quoted packet; its checksum is mended where the quote is long enough to hold it.
fn quoted_transport(
    segment: &mut [u8],
    protocol: u8,
    to: &FlowKey,
    addresses: impl Fn(u16) -> u16,
) -> Option<()> {
    let ports = u32::from(to.source_port) << 16 | u32::from(to.destination_port);
    let checksum_at = match protocol {
        ip_protocol::TCP => tcp::CHECKSUM,
        ip_protocol::UDP => udp::CHECKSUM,
        ip_protocol::ICMP | ip_protocol::ICMPV6 => {
            let header = segment.first_chunk_mut::<8>()?;
            let mut sum = addresses(u16::from_be_bytes([header[2], header[3]]));
            if is_query(protocol, header[0]) {
                let old = u16::from_be_bytes([header[4], header[5]]);
                header[4..6].copy_from_slice(&to.source_port.to_be_bytes());
                sum = update_u16(sum, old, to.source_port);
            }
            header[2..4].copy_from_slice(&sum.to_be_bytes());
            return Some(());
        }
        _ => return Some(()),
    };
    let place = segment.first_chunk_mut::<4>()?;
    let old = u32::from_be_bytes(*place);
    *place = ports.to_be_bytes();
    if let Some(field) = segment
        .get_mut(checksum_at..)
        .and_then(|rest| rest.first_chunk_mut::<2>())
    {
        let before = u16::from_be_bytes(*field);
        let after = update_u32(addresses(before), old, ports);
        let after = if protocol == ip_protocol::UDP {
            update_udp(before, after)
        } else {
            after
        };
        *field = after.to_be_bytes();
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Sample, V4, V6, framed, samples};
    use wire::{Addresses, icmpv4, icmpv6, parse};

    /// An error that quotes `packet`, sent back to its source.
    pub(crate) fn error_about(packet: &[u8], addresses: Addresses) -> alloc::vec::Vec<u8> {
        let quote = &packet[14..];
        match addresses {
            Addresses::V4 { .. } => framed(addresses, 1, 8 + quote.len(), |bytes| {
                bytes[8..].copy_from_slice(quote);
                let error = icmpv4::Repr::DestinationUnreachable { code: 4, mtu: 1400 };
                error.emit(bytes).unwrap();
            }),
            Addresses::V6 {
                source,
                destination,
            } => framed(addresses, 58, 8 + quote.len(), |bytes| {
                bytes[8..].copy_from_slice(quote);
                let error = icmpv6::Repr::PacketTooBig { mtu: 1400 };
                error.emit(bytes, source, destination).unwrap();
            }),
        }
    }

    #[test]
    fn row_39_the_quote_is_what_its_sender_sent() {
        for Sample { frame, is_ipv4 } in samples(b"0123456789") {
            let sent = parse(&frame).unwrap();
            let key = FlowKey::from_layout(&sent, &frame).unwrap();
            // As it looked outside.
            let mut outside = frame.clone();
            let mut outer = key;
            outer.source[15] = 99;
            outer.source_port = 6000;
            assert!(super::super::rewrite::rewrite(&mut outside, &sent, &outer));
            let addresses = if is_ipv4 { V4 } else { V6 }.reversed();
            let mut error = error_about(&outside, addresses);
            let layout = parse(&error).unwrap();
            assert!(is_sound(&layout, &error));
            let to = ErrorTarget {
                source: key.destination,
                destination: key.source,
                quoted: key,
            };
            assert!(rewrite_error(&mut error, &layout, &to));
            let layout = parse(&error).unwrap();
            assert_eq!(verify_transport(&layout, &error), TransportChecksum::Good);
            assert_eq!(layout.payload(&error), &frame[14..], "{is_ipv4}");
            assert_eq!(FlowKey::from_icmp_quote(&layout, &error), Some(key));
        }
    }

    #[test]
    fn row_38_a_wrong_checksum_is_seen() {
        let Sample { frame, .. } = Sample::udp4(9, 9, b"x");
        let mut error = error_about(&frame, V4.reversed());
        error[40] ^= 1;
        assert!(!is_sound(&parse(&error).unwrap(), &error));
    }
}
