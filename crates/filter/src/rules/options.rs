//! Finding TCP options and IPv6 extension headers of a validated packet.

use wire::{LayoutFlags, ip_protocol, ipv6, tcp};

use super::field::ExtHeader;
use crate::packet::Packet;

/// Kind of the maximum segment size option.
pub(super) const MSS: u8 = 2;

/// Returns start and end of a TCP option, bytes from the start of the frame.
pub(super) fn tcp_option(packet: &Packet<'_>, wanted: u8) -> Option<(usize, usize)> {
    let layout = &packet.layout;
    if layout.protocol != ip_protocol::TCP || !layout.flags.contains(LayoutFlags::TRANSPORT) {
        return None;
    }
    let end = usize::from(layout.payload);
    let mut at = usize::from(layout.transport) + tcp::HEADER_BYTES;
    // At most forty bytes of options: the loop is bounded.
    while at < end {
        let kind = *packet.frame.get(at)?;
        let length = match kind {
            0 | 1 => 1,
            _ => usize::from(*packet.frame.get(at + 1)?),
        };
        if length == 0 || at + length > end || (kind > 1 && length < 2) {
            return None;
        }
        if kind == wanted {
            return Some((at, at + length));
        }
        if kind == 0 {
            return None;
        }
        at += length;
    }
    None
}

/// Returns the start of an IPv6 extension header, bytes from the start of the frame.
pub(super) fn extension_header(packet: &Packet<'_>, wanted: ExtHeader) -> Option<usize> {
    let layout = &packet.layout;
    if !layout.flags.contains(LayoutFlags::IPV6) {
        return None;
    }
    let wanted = match wanted {
        ExtHeader::HopByHop => ip_protocol::HOP_BY_HOP,
        ExtHeader::Routing => ip_protocol::ROUTING,
        ExtHeader::Fragment => ip_protocol::FRAGMENT,
        ExtHeader::Destination => ip_protocol::DESTINATION_OPTIONS,
        ExtHeader::Mobility => 135,
    };
    let network = usize::from(layout.network);
    let mut protocol = *packet.frame.get(network + ipv6::NEXT_HEADER)?;
    let mut at = network + ipv6::HEADER_BYTES;
    for _ in 0..=wire::parse::EXTENSION_HEADERS_MAX {
        if protocol == wanted && at < usize::from(layout.end) {
            return Some(at);
        }
        if !ipv6::is_extension_header(protocol) {
            return None;
        }
        let length = *packet.frame.get(at + 1)?;
        let next = *packet.frame.get(at)?;
        at += ipv6::extension_header_bytes(protocol, length);
        protocol = next;
    }
    None
}
