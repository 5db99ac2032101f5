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

// How this file is made fast: the parts below return a few numbers each, which stay in registers, and the
// layout is put together once, at the end. A layout that goes through memory between functions is
// written two bytes at a time and copied sixteen at a time, which stalls the processor for longer than all
// the rest takes. What is rare is out of line.

/// What the Ethernet header and the VLAN tags say.
#[derive(Clone, Copy)]
struct Link {
    flags: LayoutFlags,
    ether_type: u16,
    outer_tci: u16,
    inner_tci: u16,
    network: u16,
    vlan_tags: u8,
}

/// What follows the Ethernet header, from the network header on.
#[derive(Clone, Copy)]
struct Packet {
    flags: LayoutFlags,
    transport: u16,
    payload: u16,
    end: u16,
    protocol: u8,
}

/// What the fragment fields or the extension headers say of the transport header.
#[derive(Clone, Copy)]
struct Chain {
    flags: LayoutFlags,
    transport: u16,
    protocol: u8,
}

/// Validates the Ethernet header and the VLAN tags only: all that a bridge asks for.
///
/// Fills the L2 fields of the layout; `network` is the offset of what follows the last tag and `end`
/// is the length of the frame, padding included.
///
/// # Errors
/// [`DropReason::EthernetTruncated`], [`DropReason::EthernetSource`] (the source is a group address),
/// [`DropReason::VlanTruncated`], [`DropReason::VlanDepth`], [`DropReason::FrameTooLong`] (over 65,535 bytes).
#[inline(always)]
pub fn parse_l2(frame: &[u8]) -> Result<Layout, DropReason> {
    let link = link(frame)?;
    let end = frame.len() as u16;
    Ok(layout(
        link,
        Packet {
            flags: link.flags,
            transport: 0,
            payload: 0,
            end,
            protocol: 0,
        },
    ))
}

/// Validates a frame and says where its headers are.
///
/// Frames of other EtherTypes, and packets of other IP protocols than ICMP, ICMPv6, UDP and TCP, pass:
/// the caller decides what to do with them. For these, `transport == payload` and
/// [`LayoutFlags::TRANSPORT`] is clear. No allocation, no panic.
///
/// # Errors
/// The reason why the frame must be dropped; see each reason's text.
#[inline(always)]
pub fn parse(frame: &[u8]) -> Result<Layout, DropReason> {
    let link = link(frame)?;
    let packet = match link.ether_type {
        ether_type::IPV4 => ipv4_packet(frame, link)?,
        ether_type::IPV6 => ipv6_packet(frame, link)?,
        ether_type::ARP => arp_packet(frame, link)?,
        _ => other_packet(frame, link)?,
    };
    Ok(layout(link, packet))
}

#[inline(always)]
fn layout(link: Link, packet: Packet) -> Layout {
    Layout {
        flags: packet.flags,
        ether_type: link.ether_type,
        outer_tci: link.outer_tci,
        inner_tci: link.inner_tci,
        network: link.network,
        transport: packet.transport,
        payload: packet.payload,
        end: packet.end,
        protocol: packet.protocol,
        vlan_tags: link.vlan_tags,
    }
}

#[inline(always)]
fn link(frame: &[u8]) -> Result<Link, DropReason> {
    let Some(header) = frame.first_chunk::<{ ethernet::HEADER_BYTES }>() else {
        return Err(DropReason::EthernetTruncated);
    };
    if frame.len() > usize::from(u16::MAX) {
        return Err(DropReason::FrameTooLong);
    }
    // The group bits of both addresses are rare: one test for both keeps the common path short.
    let mut flags = LayoutFlags::empty();
    if (header[ethernet::DESTINATION] | header[ethernet::SOURCE]) & 1 != 0 {
        flags = group_flags(header)?;
    }
    let ether_type = be16!(header, ethernet::ETHER_TYPE);
    if vlan::is_tag(ether_type) {
        return tagged_link(frame, flags);
    }
    let network = ethernet::HEADER_BYTES as u16;
    Ok(Link {
        flags,
        ether_type,
        outer_tci: 0,
        inner_tci: 0,
        network,
        vlan_tags: 0,
    })
}

#[cold]
fn group_flags(header: &[u8; ethernet::HEADER_BYTES]) -> Result<LayoutFlags, DropReason> {
    if header[ethernet::SOURCE] & 1 != 0 {
        return Err(DropReason::EthernetSource);
    }
    if header.first_chunk::<6>() == Some(&[0xff; 6]) {
        return Ok(LayoutFlags::L2_GROUP | LayoutFlags::L2_BROADCAST);
    }
    Ok(LayoutFlags::L2_GROUP)
}

#[cold]
fn tagged_link(frame: &[u8], flags: LayoutFlags) -> Result<Link, DropReason> {
    let read = |at| match chunk::<{ vlan::TAG_BYTES }>(frame, at) {
        Some(tag) => Ok((be16!(tag, vlan::TCI), be16!(tag, vlan::ETHER_TYPE))),
        None => Err(DropReason::VlanTruncated),
    };
    let mut at = ethernet::HEADER_BYTES;
    let (outer_tci, mut ether_type) = read(at)?;
    let (mut inner_tci, mut vlan_tags) = (0, 1);
    at += vlan::TAG_BYTES;
    if vlan::is_tag(ether_type) {
        (inner_tci, ether_type) = read(at)?;
        vlan_tags = 2;
        at += vlan::TAG_BYTES;
    }
    if vlan::is_tag(ether_type) {
        return Err(DropReason::VlanDepth);
    }
    Ok(Link {
        flags,
        ether_type,
        outer_tci,
        inner_tci,
        network: at as u16,
        vlan_tags,
    })
}

/// A type that we do not know, or an IEEE 802.3 length: the payload is opaque.
#[cold]
fn other_packet(frame: &[u8], link: Link) -> Result<Packet, DropReason> {
    let mut end = frame.len() as u16;
    if link.ether_type <= ethernet::LENGTH_MAX {
        let said = link.network.saturating_add(link.ether_type);
        if said > end {
            return Err(DropReason::EthernetTruncated);
        }
        end = said;
    }
    let (transport, payload) = (link.network, link.network);
    Ok(Packet {
        flags: link.flags,
        transport,
        payload,
        end,
        protocol: 0,
    })
}

#[cold]
fn arp_packet(frame: &[u8], link: Link) -> Result<Packet, DropReason> {
    let Some(packet) = chunk::<{ arp::PACKET_BYTES }>(frame, link.network.into()) else {
        return Err(DropReason::ArpMalformed);
    };
    if packet.first_chunk::<6>() != Some(&arp::ETHERNET_IPV4) {
        return Err(DropReason::ArpMalformed);
    }
    let end = link.network + arp::PACKET_BYTES as u16;
    let flags = link.flags | LayoutFlags::ARP;
    Ok(Packet {
        flags,
        transport: end,
        payload: end,
        end,
        protocol: 0,
    })
}

#[inline(always)]
fn ipv4_packet(frame: &[u8], link: Link) -> Result<Packet, DropReason> {
    let network = usize::from(link.network);
    let Some(header) = chunk::<{ ipv4::HEADER_BYTES }>(frame, network) else {
        return Err(DropReason::Ipv4Truncated);
    };
    let mut flags = link.flags | LayoutFlags::IPV4;
    let mut header_bytes = ipv4::HEADER_BYTES;
    if header[0] != 0x45 {
        header_bytes = ipv4_options(frame, network, header[0])?;
        flags |= LayoutFlags::OPTIONS;
    } else if !checksum::is_valid_20(header) {
        return Err(DropReason::Ipv4Checksum);
    }
    let total = usize::from(be16!(header, ipv4::TOTAL_LENGTH));
    let end = network + total;
    if total < header_bytes || end > frame.len() {
        return Err(DropReason::Ipv4TotalLength);
    }
    if header[ipv4::DESTINATION] >= 224 && is_ipv4_group(header) {
        flags |= LayoutFlags::L3_GROUP;
    }
    let fragment = be16!(header, ipv4::FLAGS_FRAGMENT);
    if fragment & ipv4::DONT_FRAGMENT != 0 {
        flags |= LayoutFlags::DONT_FRAGMENT;
    }
    let protocol = header[ipv4::PROTOCOL];
    if fragment & (ipv4::MORE_FRAGMENTS | ipv4::FRAGMENT_OFFSET_MASK) != 0 {
        let offset_bytes = usize::from(fragment & ipv4::FRAGMENT_OFFSET_MASK) * 8;
        let more = fragment & ipv4::MORE_FRAGMENTS != 0;
        let data_bytes = total - header_bytes;
        flags |= fragment_flags(protocol, offset_bytes, more, data_bytes, header_bytes)?;
    }
    transport(frame, network + header_bytes, end, protocol, flags)
}

/// Checks version, header length, options and checksum of a header that does not start with 0x45.
#[cold]
fn ipv4_options(frame: &[u8], network: usize, first: u8) -> Result<usize, DropReason> {
    if first >> 4 != 4 {
        return Err(DropReason::Ipv4Version);
    }
    let header_bytes = usize::from(first & 0xf) * 4;
    let header = frame
        .get(network..)
        .and_then(|rest| rest.get(..header_bytes));
    let Some(header) = header else {
        return Err(DropReason::Ipv4HeaderLength);
    };
    let Some((_, options)) = header.split_first_chunk::<{ ipv4::HEADER_BYTES }>() else {
        return Err(DropReason::Ipv4HeaderLength);
    };
    if checksum::checksum(header) != 0 {
        return Err(DropReason::Ipv4Checksum);
    }
    if ipv4::Options::new(options).any(|option| option.is_err()) {
        return Err(DropReason::Ipv4Options);
    }
    Ok(header_bytes)
}

#[cold]
fn is_ipv4_group(header: &[u8; ipv4::HEADER_BYTES]) -> bool {
    header[ipv4::DESTINATION] < 240 || header.last_chunk::<4>() == Some(&[255, 255, 255, 255])
}

/// Checks one packet of a fragmented datagram of which it holds `data_bytes`; `header_bytes` is what the
/// length of the whole datagram counts before the data.
#[cold]
fn fragment_flags(
    protocol: u8,
    offset_bytes: usize,
    more: bool,
    data_bytes: usize,
    header_bytes: usize,
) -> Result<LayoutFlags, DropReason> {
    if data_bytes == 0
        || (more && !data_bytes.is_multiple_of(8))
        || header_bytes + offset_bytes + data_bytes > usize::from(u16::MAX)
    {
        return Err(DropReason::FragmentMalformed);
    }
    if offset_bytes == 0 {
        return Ok(LayoutFlags::FRAGMENT);
    }
    // RFC 1858 3.2.2: a fragment at offset 8 overwrites the TCP flags of the first one.
    if offset_bytes < 16 && protocol == ip_protocol::TCP {
        return Err(DropReason::FragmentTiny);
    }
    Ok(LayoutFlags::FRAGMENT | LayoutFlags::LATER_FRAGMENT)
}

#[inline(always)]
fn ipv6_packet(frame: &[u8], link: Link) -> Result<Packet, DropReason> {
    let network = usize::from(link.network);
    let Some(header) = chunk::<{ ipv6::HEADER_BYTES }>(frame, network) else {
        return Err(DropReason::Ipv6Truncated);
    };
    if header[0] >> 4 != 6 {
        return Err(DropReason::Ipv6Version);
    }
    let mut flags = link.flags | LayoutFlags::IPV6 | LayoutFlags::DONT_FRAGMENT;
    if header[ipv6::DESTINATION] == 0xff {
        flags |= LayoutFlags::L3_GROUP;
    }
    let mut start = network + ipv6::HEADER_BYTES;
    let end = start + usize::from(be16!(header, ipv6::PAYLOAD_LENGTH));
    if end > frame.len() {
        return Err(DropReason::Ipv6Truncated);
    }
    let mut protocol = header[ipv6::NEXT_HEADER];
    if ipv6::is_extension_header(protocol) {
        let chain = extension_headers(frame, start, end, protocol)?;
        flags |= chain.flags;
        start = chain.transport.into();
        protocol = chain.protocol;
    }
    transport(frame, start, end, protocol, flags)
}

/// Walks the chain of extension headers (RFC 8200 4), at most [`EXTENSION_HEADERS_MAX`] of them.
#[cold]
fn extension_headers(
    frame: &[u8],
    chain_start: usize,
    end: usize,
    first: u8,
) -> Result<Chain, DropReason> {
    let mut flags = LayoutFlags::OPTIONS;
    let mut protocol = first;
    let mut start = chain_start;
    for depth in 0..EXTENSION_HEADERS_MAX {
        let is_first_fragment = flags.contains(LayoutFlags::FRAGMENT);
        let rest = frame.get(start..end).unwrap_or_default();
        let bytes = match rest {
            &[_, length, ..] => ipv6::extension_header_bytes(protocol, length),
            _ => usize::MAX,
        };
        let Some(header) = rest.get(..bytes).and_then(|h| h.first_chunk::<4>()) else {
            // RFC 7112: the first fragment holds the whole chain.
            return Err(if is_first_fragment {
                DropReason::FragmentTiny
            } else {
                DropReason::Ipv6ExtensionHeader
            });
        };
        // RFC 8200 4.1: hop-by-hop options only come first, and one fragment header is enough.
        // RFC 4302 2: an authentication header has twelve bytes at least.
        let is_fragment_header = protocol == ip_protocol::FRAGMENT;
        if (protocol == ip_protocol::HOP_BY_HOP && depth != 0)
            || (is_fragment_header && is_first_fragment)
            || (protocol == ip_protocol::AUTHENTICATION && header[1] == 0)
        {
            return Err(DropReason::Ipv6ExtensionHeader);
        }
        protocol = header[0];
        let unfragmented_bytes = start - chain_start;
        start += bytes;
        if is_fragment_header {
            let field = be16!(header, 2);
            let (offset_bytes, more) = (usize::from(field & 0xfff8), field & 1 != 0);
            // RFC 6946: an "atomic" fragment (offset 0, no more to come) is a whole packet.
            if offset_bytes != 0 || more {
                let data_bytes = end.saturating_sub(start);
                flags |=
                    fragment_flags(protocol, offset_bytes, more, data_bytes, unfragmented_bytes)?;
            }
        }
        if flags.contains(LayoutFlags::LATER_FRAGMENT) || !ipv6::is_extension_header(protocol) {
            return Ok(Chain {
                flags,
                transport: start as u16,
                protocol,
            });
        }
    }
    Err(DropReason::Ipv6ExtensionHeader)
}

/// Reads the transport header, if there is one that we know, and finishes the packet.
#[inline(always)]
fn transport(
    frame: &[u8],
    start: usize,
    end: usize,
    protocol: u8,
    mut flags: LayoutFlags,
) -> Result<Packet, DropReason> {
    let mut header_bytes = 0;
    if !flags.contains(LayoutFlags::LATER_FRAGMENT) {
        let segment = frame.get(start..end).unwrap_or_default();
        let found = match protocol {
            ip_protocol::UDP => udp_header(segment, flags),
            ip_protocol::TCP => tcp_header(segment),
            _ => icmp_header(segment, protocol, flags),
        };
        let header = match found {
            Ok(header) => header,
            // RFC 1858 3.2.1 and RFC 7112: the first fragment holds the whole transport header.
            Err(DropReason::TransportTruncated) if flags.contains(LayoutFlags::FRAGMENT) => {
                return Err(DropReason::FragmentTiny);
            }
            Err(reason) => return Err(reason),
        };
        flags |= header.flags;
        header_bytes = header.bytes;
    }
    Ok(Packet {
        flags,
        transport: start as u16,
        payload: start as u16 + header_bytes,
        end: end as u16,
        protocol,
    })
}

/// A transport header: its length, and what it adds to the flags of the layout.
#[derive(Clone, Copy)]
struct TransportHeader {
    flags: LayoutFlags,
    bytes: u16,
}

#[inline(always)]
fn udp_header(segment: &[u8], flags: LayoutFlags) -> Result<TransportHeader, DropReason> {
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
    Ok(TransportHeader {
        flags: LayoutFlags::TRANSPORT,
        bytes: udp::HEADER_BYTES as u16,
    })
}

#[inline(always)]
fn tcp_header(segment: &[u8]) -> Result<TransportHeader, DropReason> {
    let Some(header) = segment.first_chunk::<{ tcp::HEADER_BYTES }>() else {
        return Err(DropReason::TransportTruncated);
    };
    let bytes = usize::from(header[tcp::OFFSET_FLAGS] >> 4) * 4;
    if bytes < tcp::HEADER_BYTES {
        return Err(DropReason::TransportLength);
    }
    if bytes > segment.len() {
        return Err(DropReason::TransportTruncated);
    }
    Ok(TransportHeader {
        flags: LayoutFlags::TRANSPORT,
        bytes: bytes as u16,
    })
}

/// Reads an ICMP header in its own IP version; any other protocol is opaque.
///
/// Every ICMP and ICMPv6 message has at least eight bytes (RFC 792; RFC 4443 and all its users).
#[inline(never)]
fn icmp_header(
    segment: &[u8],
    protocol: u8,
    flags: LayoutFlags,
) -> Result<TransportHeader, DropReason> {
    let is_icmp = protocol == ip_protocol::ICMP && flags.contains(LayoutFlags::IPV4);
    let is_icmpv6 = protocol == ip_protocol::ICMPV6 && flags.contains(LayoutFlags::IPV6);
    if !is_icmp && !is_icmpv6 {
        return Ok(TransportHeader {
            flags: LayoutFlags::empty(),
            bytes: 0,
        });
    }
    let Some(&[kind, ..]) = segment.first_chunk::<{ icmpv4::HEADER_BYTES }>() else {
        return Err(DropReason::TransportTruncated);
    };
    let mut found = LayoutFlags::TRANSPORT;
    found.set(
        LayoutFlags::ICMP_ERROR,
        if is_icmp {
            icmpv4::is_error(kind)
        } else {
            icmpv6::is_error(kind)
        },
    );
    Ok(TransportHeader {
        flags: found,
        bytes: icmpv4::HEADER_BYTES as u16,
    })
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
