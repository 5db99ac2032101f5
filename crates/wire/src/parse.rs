//! The validating pass: one walk over the headers of a frame, which fills a [`Layout`].
//!
//! What it promises when it returns a layout: every offset lies within the frame, in the order
//! `network <= transport <= payload <= end`; the IPv4 header checksum is right; no length field
//! contradicts another; a fragment could be part of a datagram of at most 65,535 bytes.
//! What it leaves to others: transport checksums ([`crate::checksum`]), addresses that may not send
//! or be forwarded to ([`crate::address`]), and what the options of IPv6 and TCP say.

use crate::bytes::{be16, chunk};
use crate::numbers::{ether_type, ip_protocol};
use crate::{
    DropReason, Layout, LayoutFlags, arp, checksum, ethernet, icmpv4, icmpv6, ipv4, ipv6, tcp, udp,
    vlan,
};

/// The most IPv6 extension headers that one packet may carry; a longer chain is dropped, as it costs
/// the receiver time and no sender has a use for it (RFC 8504 5.3 allows the limit).
pub const EXTENSION_HEADERS_MAX: usize = 8;

/// Validates the Ethernet header and the VLAN tags only: all that a bridge asks for.
///
/// Fills the L2 fields of the layout; `network` is the offset of what follows the last tag and `end`
/// is the length of the frame, padding included.
///
/// # Errors
/// [`DropReason::EthernetTruncated`], [`DropReason::EthernetSource`] (the source is a group address),
/// [`DropReason::VlanTruncated`], [`DropReason::VlanDepth`], [`DropReason::FrameTooLong`] (over 65,535 bytes).
#[inline]
pub fn parse_l2(frame: &[u8]) -> Result<Layout, DropReason> {
    let Some(header) = frame.first_chunk::<{ ethernet::HEADER_BYTES }>() else {
        return Err(DropReason::EthernetTruncated);
    };
    let Ok(end) = u16::try_from(frame.len()) else {
        return Err(DropReason::FrameTooLong);
    };
    let mut flags = LayoutFlags::empty();
    // The group bits of both addresses are rare: one test for both keeps the common path short.
    if (header[0] | header[6]) & 1 != 0 {
        if header[6] & 1 != 0 {
            return Err(DropReason::EthernetSource);
        }
        flags |= LayoutFlags::L2_GROUP;
        if header.first_chunk::<6>() == Some(&[0xff; 6]) {
            flags |= LayoutFlags::L2_BROADCAST;
        }
    }
    let mut layout = Layout {
        flags,
        ether_type: be16!(header, ethernet::ETHER_TYPE),
        network: ethernet::HEADER_BYTES as u16,
        end,
        ..Layout::default()
    };
    if vlan::is_tag(layout.ether_type) {
        parse_vlan(frame, &mut layout)?;
    }
    Ok(layout)
}

/// Validates a frame and says where its headers are.
///
/// Frames of other EtherTypes, and packets of other IP protocols than ICMP, ICMPv6, UDP and TCP, pass:
/// the caller decides what to do with them. For these, `transport == payload` and
/// [`LayoutFlags::TRANSPORT`] is clear. About 10 ns for IPv4 with UDP; no allocation, no panic.
///
/// # Errors
/// The reason why the frame must be dropped; see each reason's text.
#[inline]
pub fn parse(frame: &[u8]) -> Result<Layout, DropReason> {
    let layout = parse_l2(frame)?;
    match layout.ether_type {
        ether_type::IPV4 => parse_ipv4(frame, layout),
        ether_type::IPV6 => parse_ipv6(frame, layout),
        ether_type::ARP => parse_arp(frame, layout),
        _ => parse_other(layout),
    }
}

#[cold]
fn parse_vlan(frame: &[u8], layout: &mut Layout) -> Result<(), DropReason> {
    let mut at = ethernet::HEADER_BYTES;
    for depth in 1..=2 {
        let Some(tag) = chunk::<{ vlan::TAG_BYTES }>(frame, at) else {
            return Err(DropReason::VlanTruncated);
        };
        let tci = be16!(tag, vlan::TCI);
        if depth == 1 {
            layout.outer_tci = tci;
        } else {
            layout.inner_tci = tci;
        }
        layout.vlan_tags = depth;
        layout.ether_type = be16!(tag, vlan::ETHER_TYPE);
        at += vlan::TAG_BYTES;
        layout.network = at as u16;
        if !vlan::is_tag(layout.ether_type) {
            return Ok(());
        }
    }
    Err(DropReason::VlanDepth)
}

/// A type that we do not know, or an IEEE 802.3 length: the payload is opaque.
#[cold]
fn parse_other(mut layout: Layout) -> Result<Layout, DropReason> {
    if layout.ether_type <= ethernet::LENGTH_MAX {
        let end = layout.network.saturating_add(layout.ether_type);
        if end > layout.end {
            return Err(DropReason::EthernetTruncated);
        }
        layout.end = end;
    }
    layout.transport = layout.network;
    layout.payload = layout.network;
    Ok(layout)
}

#[cold]
fn parse_arp(frame: &[u8], mut layout: Layout) -> Result<Layout, DropReason> {
    let Some(packet) = chunk::<{ arp::PACKET_BYTES }>(frame, layout.network.into()) else {
        return Err(DropReason::ArpMalformed);
    };
    if packet.first_chunk::<6>() != Some(&arp::ETHERNET_IPV4) {
        return Err(DropReason::ArpMalformed);
    }
    layout.flags |= LayoutFlags::ARP;
    layout.end = layout.network + arp::PACKET_BYTES as u16;
    layout.transport = layout.end;
    layout.payload = layout.end;
    Ok(layout)
}

#[inline]
fn parse_ipv4(frame: &[u8], mut layout: Layout) -> Result<Layout, DropReason> {
    let network = usize::from(layout.network);
    let Some(header) = chunk::<{ ipv4::HEADER_BYTES }>(frame, network) else {
        return Err(DropReason::Ipv4Truncated);
    };
    layout.flags |= LayoutFlags::IPV4;
    let total = usize::from(be16!(header, ipv4::TOTAL_LENGTH));
    let header_bytes = if header[0] == 0x45 {
        if !checksum::is_valid_20(header) {
            return Err(DropReason::Ipv4Checksum);
        }
        ipv4::HEADER_BYTES
    } else {
        layout.flags |= LayoutFlags::OPTIONS;
        parse_ipv4_options(frame, network, header[0])?
    };
    let end = network + total;
    if total < header_bytes || end > frame.len() {
        return Err(DropReason::Ipv4TotalLength);
    }
    layout.protocol = header[ipv4::PROTOCOL];
    layout.transport = (network + header_bytes) as u16;
    layout.payload = layout.transport;
    layout.end = end as u16;
    if header[ipv4::DESTINATION] >= 224 {
        let group = header[ipv4::DESTINATION] < 240
            || header.last_chunk::<4>() == Some(&[255, 255, 255, 255]);
        layout.flags.set(LayoutFlags::L3_GROUP, group);
    }
    let fragment = be16!(header, ipv4::FLAGS_FRAGMENT);
    if fragment & ipv4::DONT_FRAGMENT != 0 {
        layout.flags |= LayoutFlags::DONT_FRAGMENT;
    }
    if fragment & (ipv4::MORE_FRAGMENTS | ipv4::FRAGMENT_OFFSET_MASK) != 0 {
        let offset_bytes = usize::from(fragment & ipv4::FRAGMENT_OFFSET_MASK) * 8;
        let more = fragment & ipv4::MORE_FRAGMENTS != 0;
        check_fragment(&mut layout, offset_bytes, more, header_bytes)?;
        return parse_fragment_transport(frame, layout);
    }
    parse_transport(frame, layout)
}

/// Checks version, header length, options and checksum of a header that does not start with 0x45.
#[cold]
fn parse_ipv4_options(frame: &[u8], network: usize, first: u8) -> Result<usize, DropReason> {
    if first >> 4 != 4 {
        return Err(DropReason::Ipv4Version);
    }
    let header_bytes = usize::from(first & 0xf) * 4;
    let header = frame
        .get(network..)
        .and_then(|rest| rest.get(..header_bytes));
    let Some((_, options)) = header.and_then(<[u8]>::split_first_chunk::<{ ipv4::HEADER_BYTES }>)
    else {
        return Err(DropReason::Ipv4HeaderLength);
    };
    if checksum::checksum(header.unwrap_or_default()) != 0 {
        return Err(DropReason::Ipv4Checksum);
    }
    if ipv4::Options::new(options).any(|option| option.is_err()) {
        return Err(DropReason::Ipv4Options);
    }
    Ok(header_bytes)
}

/// Checks one packet of a fragmented datagram; `layout.transport` is the start of the fragment's data
/// and `header_bytes` is what the length of the whole datagram counts before the data.
#[cold]
fn check_fragment(
    layout: &mut Layout,
    offset_bytes: usize,
    more: bool,
    header_bytes: usize,
) -> Result<(), DropReason> {
    layout.flags |= LayoutFlags::FRAGMENT;
    let data_bytes = usize::from(layout.end.saturating_sub(layout.transport));
    if data_bytes == 0
        || (more && !data_bytes.is_multiple_of(8))
        || header_bytes + offset_bytes + data_bytes > usize::from(u16::MAX)
    {
        return Err(DropReason::FragmentMalformed);
    }
    if offset_bytes != 0 {
        // RFC 1858 3.2.2: a fragment at offset 8 overwrites the TCP flags of the first one.
        if offset_bytes < 16 && layout.protocol == ip_protocol::TCP {
            return Err(DropReason::FragmentTiny);
        }
        layout.flags |= LayoutFlags::LATER_FRAGMENT;
    }
    Ok(())
}

/// Parses the transport header of a packet that may be a first fragment, which must hold the whole
/// transport header (RFC 1858 3.2.1, RFC 7112), or a later one, which has none.
#[cold]
fn parse_fragment_transport(frame: &[u8], layout: Layout) -> Result<Layout, DropReason> {
    if layout.flags.contains(LayoutFlags::LATER_FRAGMENT) {
        return Ok(layout);
    }
    match parse_transport(frame, layout) {
        Err(DropReason::TransportTruncated) if layout.flags.contains(LayoutFlags::FRAGMENT) => {
            Err(DropReason::FragmentTiny)
        }
        result => result,
    }
}

#[inline]
fn parse_transport(frame: &[u8], mut layout: Layout) -> Result<Layout, DropReason> {
    let start = usize::from(layout.transport);
    let end = usize::from(layout.end);
    let segment = frame.get(start..end).unwrap_or_default();
    let header_bytes = match layout.protocol {
        ip_protocol::UDP => udp_header_bytes(segment, layout.flags)?,
        ip_protocol::TCP => tcp_header_bytes(segment)?,
        ip_protocol::ICMP if layout.flags.contains(LayoutFlags::IPV4) => {
            let &[kind, ..] = icmp_header(segment)?;
            if icmpv4::is_error(kind) {
                layout.flags |= LayoutFlags::ICMP_ERROR;
            }
            icmpv4::HEADER_BYTES
        }
        ip_protocol::ICMPV6 if layout.flags.contains(LayoutFlags::IPV6) => {
            let &[kind, ..] = icmp_header(segment)?;
            if icmpv6::is_error(kind) {
                layout.flags |= LayoutFlags::ICMP_ERROR;
            }
            icmpv4::HEADER_BYTES
        }
        _ => return Ok(layout),
    };
    layout.flags |= LayoutFlags::TRANSPORT;
    layout.payload = (start + header_bytes) as u16;
    Ok(layout)
}

/// Every ICMP and ICMPv6 message has at least eight bytes (RFC 792; RFC 4443 and all its users).
#[inline]
fn icmp_header(segment: &[u8]) -> Result<&[u8; icmpv4::HEADER_BYTES], DropReason> {
    segment.first_chunk().ok_or(DropReason::TransportTruncated)
}

#[inline]
fn udp_header_bytes(segment: &[u8], flags: LayoutFlags) -> Result<usize, DropReason> {
    let Some(header) = segment.first_chunk::<{ udp::HEADER_BYTES }>() else {
        return Err(DropReason::TransportTruncated);
    };
    let length = usize::from(be16!(header, udp::LENGTH));
    // A shorter length is legal: what follows are UDP options (RFC 9868). A first fragment holds
    // less than the length says.
    if length < udp::HEADER_BYTES
        || (length > segment.len() && !flags.contains(LayoutFlags::FRAGMENT))
    {
        return Err(DropReason::TransportLength);
    }
    Ok(udp::HEADER_BYTES)
}

#[inline]
fn tcp_header_bytes(segment: &[u8]) -> Result<usize, DropReason> {
    let Some(header) = segment.first_chunk::<{ tcp::HEADER_BYTES }>() else {
        return Err(DropReason::TransportTruncated);
    };
    let header_bytes = usize::from(header[tcp::OFFSET_FLAGS] >> 4) * 4;
    if header_bytes < tcp::HEADER_BYTES {
        return Err(DropReason::TransportLength);
    }
    if header_bytes > segment.len() {
        return Err(DropReason::TransportTruncated);
    }
    Ok(header_bytes)
}

#[inline]
fn parse_ipv6(frame: &[u8], mut layout: Layout) -> Result<Layout, DropReason> {
    let network = usize::from(layout.network);
    let Some(header) = chunk::<{ ipv6::HEADER_BYTES }>(frame, network) else {
        return Err(DropReason::Ipv6Truncated);
    };
    if header[0] >> 4 != 6 {
        return Err(DropReason::Ipv6Version);
    }
    layout.flags |= LayoutFlags::IPV6 | LayoutFlags::DONT_FRAGMENT;
    layout
        .flags
        .set(LayoutFlags::L3_GROUP, header[ipv6::DESTINATION] == 0xff);
    let transport = network + ipv6::HEADER_BYTES;
    let end = transport + usize::from(be16!(header, ipv6::PAYLOAD_LENGTH));
    if end > frame.len() {
        return Err(DropReason::Ipv6Truncated);
    }
    layout.protocol = header[ipv6::NEXT_HEADER];
    layout.transport = transport as u16;
    layout.payload = layout.transport;
    layout.end = end as u16;
    if ipv6::is_extension_header(layout.protocol) {
        return parse_extension_headers(frame, layout);
    }
    parse_transport(frame, layout)
}

/// Walks the chain of extension headers (RFC 8200 4), at most [`EXTENSION_HEADERS_MAX`] of them.
#[cold]
fn parse_extension_headers(frame: &[u8], mut layout: Layout) -> Result<Layout, DropReason> {
    layout.flags |= LayoutFlags::OPTIONS;
    let end = usize::from(layout.end);
    let chain_start = usize::from(layout.transport);
    for depth in 0..EXTENSION_HEADERS_MAX {
        let start = usize::from(layout.transport);
        let rest = frame.get(start..end).unwrap_or_default();
        let is_first_fragment = layout.flags.contains(LayoutFlags::FRAGMENT);
        let bytes = match rest {
            &[_, length, ..] => ipv6::extension_header_bytes(layout.protocol, length),
            _ => usize::MAX,
        };
        let Some(header) = rest.get(..bytes).and_then(|h| h.first_chunk::<4>()) else {
            return Err(if is_first_fragment {
                DropReason::FragmentTiny
            } else {
                DropReason::Ipv6ExtensionHeader
            });
        };
        // RFC 8200 4.1: hop-by-hop options only come first, and one fragment header is enough.
        let is_fragment_header = layout.protocol == ip_protocol::FRAGMENT;
        if (layout.protocol == ip_protocol::HOP_BY_HOP && depth != 0)
            || (is_fragment_header && is_first_fragment)
        {
            return Err(DropReason::Ipv6ExtensionHeader);
        }
        layout.protocol = header[0];
        layout.transport = (start + bytes) as u16;
        layout.payload = layout.transport;
        if is_fragment_header {
            let field = be16!(header, 2);
            let (offset_bytes, more) = (usize::from(field & 0xfff8), field & 1 != 0);
            // RFC 6946: an "atomic" fragment (offset 0, no more to come) is a whole packet.
            if offset_bytes != 0 || more {
                check_fragment(&mut layout, offset_bytes, more, start - chain_start)?;
            }
        }
        if layout.flags.contains(LayoutFlags::LATER_FRAGMENT)
            || !ipv6::is_extension_header(layout.protocol)
        {
            return parse_fragment_transport(frame, layout);
        }
    }
    Err(DropReason::Ipv6ExtensionHeader)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlowKey;
    use std::string::ToString;

    /// UDP from 192.0.2.1:1111 to 198.51.100.2:53 with four bytes of data and Ethernet padding.
    const UDP: [u8; 60] = {
        let mut frame = [0; 60];
        let bytes = [
            2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, // Ethernet
            0x45, 0, 0, 32, 0, 1, 0x40, 0, 64, 17, 0x4e, 0x95, 192, 0, 2, 1, 198, 51, 100,
            2, //
            0x04, 0x57, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4,
        ];
        let (head, _) = frame.split_at_mut(bytes.len());
        head.copy_from_slice(&bytes);
        frame
    };

    #[test]
    fn a_plain_datagram() {
        let layout = parse(&UDP).unwrap();
        assert_eq!(
            layout,
            Layout {
                flags: LayoutFlags::IPV4 | LayoutFlags::TRANSPORT | LayoutFlags::DONT_FRAGMENT,
                ether_type: 0x0800,
                network: 14,
                transport: 34,
                payload: 42,
                end: 46,
                protocol: 17,
                ..Layout::default()
            }
        );
        assert_eq!(layout.payload(&UDP), [1, 2, 3, 4]);
        let key = FlowKey::from_layout(&layout, &UDP).unwrap();
        assert_eq!(
            (key.source_port, key.destination_port, key.protocol),
            (1111, 53, 17)
        );
        assert_eq!(key.source_ip().to_string(), "192.0.2.1");
        assert_eq!(key.reversed().reversed(), key);
    }
}
