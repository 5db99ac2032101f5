//! Translation between IPv6 and IPv4 headers (RFC 7915), for NAT64 (RFC 6146): whole packets, fragments, ICMP queries,
//! and ICMP errors with what they quote. Stateless: who is called what is an argument.
//!
//! Left out: a packet that may be fragmented and is too long for the IPv6 side is not cut (the next hop's "packet too
//! big" goes back instead), and fragments of ICMP have a checksum that cannot be made right: they are refused.

use core::net::{Ipv4Addr, Ipv6Addr};

use wire::checksum::{
    TransportChecksum, fill_transport, update_bytes, update_udp, verify_transport,
};
use wire::ipv6::{FRAGMENT_HEADER_BYTES, FragmentHeader};
use wire::{Layout, icmpv4, icmpv6, ip_protocol, ipv4, ipv6, tcp, udp};

/// Bytes that an IPv6 header is longer than an IPv4 header.
const GROWTH: u32 = (ipv6::HEADER_BYTES - ipv4::HEADER_BYTES) as u32;
/// The least MTU of an IPv6 link (RFC 8200 5).
const MTU_MIN: u32 = 1280;

/// A prefix of 96 bits, under which IPv4 addresses are IPv6 addresses (RFC 6052 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix(u128);

impl Prefix {
    /// 64:ff9b::/96.
    pub const WELL_KNOWN: Self = Self(0x64_ff9b << 96);

    /// Takes the upper 96 bits.
    pub const fn new(address: Ipv6Addr) -> Self {
        Self(address.to_bits() & !(u32::MAX as u128))
    }

    /// The IPv4 address in one of the prefix, if it may be there: under the well-known prefix, only global ones may
    /// (RFC 6052 3.1).
    pub fn v4_of(&self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        let bits = address.to_bits();
        if bits & !u128::from(u32::MAX) != self.0 {
            return None;
        }
        let inner = Ipv4Addr::from_bits(bits as u32);
        let is_local = inner.is_private()
            || inner.is_loopback()
            || inner.is_link_local()
            || inner.is_unspecified()
            || inner.octets()[0] == 100 && inner.octets()[1] & 0xc0 == 64;
        (*self != Self::WELL_KNOWN || !is_local).then_some(inner)
    }

    /// Puts an IPv4 address under the prefix.
    pub fn v6_of(&self, address: Ipv4Addr) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.0 | u128::from(address.to_bits()))
    }
}

/// Translates an IPv6 frame; `name` says what an address is called in IPv4, `identification` is for a packet that may
/// be fragmented later. Returns the length of the frame in `to`, `None` if the packet cannot be translated (RFC 7915 5).
pub fn to_ipv4(
    frame: &[u8],
    layout: &Layout,
    to: &mut [u8],
    identification: u16,
    name: &dyn Fn(Ipv6Addr) -> Option<Ipv4Addr>,
) -> Option<usize> {
    let (source, destination) = layout.ipv6_addresses(frame)?;
    let fragment = FragmentHeader::find(layout, frame).map(|(header, _)| header);
    let part = fragment.filter(|header| header.more || header.offset_bytes != 0);
    let header = frame
        .get(layout.network.into()..)?
        .first_chunk::<{ ipv6::HEADER_BYTES }>()?;
    let body = frame.get(layout.transport.into()..layout.end.into())?;
    let is_icmp = layout.protocol == ip_protocol::ICMPV6;
    if is_icmp && (part.is_some() || verify_transport(layout, frame) != TransportChecksum::Good) {
        return None;
    }
    let (source, destination) = (name(source)?, name(destination)?);
    let start = usize::from(layout.network) + ipv4::HEADER_BYTES;
    let (head, rest) = to.split_at_mut_checked(start)?;
    let written = if is_icmp {
        icmp_to_v4(body, rest, name)?
    } else {
        rest.get_mut(..body.len())?.copy_from_slice(body);
        body.len()
    };
    let total = ipv4::HEADER_BYTES + written;
    let emitted = ipv4::Repr {
        ttl: header[ipv6::HOP_LIMIT],
        tos: traffic_class(header),
        // RFC 7915 5.1: what fits any IPv6 link may be fragmented on the other side.
        dont_fragment: fragment.is_none() && total > MTU_MIN as usize - GROWTH as usize,
        identification: fragment.map_or(identification, |header| header.identification as u16),
        more_fragments: part.is_some_and(|header| header.more),
        fragment_offset_bytes: part.map_or(0, |header| header.offset_bytes),
        ..ipv4::Repr::new(
            source,
            destination,
            protocol_to_v4(layout.protocol),
            u16::try_from(written).ok()?,
        )
    };
    emitted.emit(head.get_mut(layout.network.into()..)?).ok()?;
    ethernet(frame, layout, head, wire::ether_type::IPV4)?;
    let frame = to.get_mut(..start + written)?;
    let changed = wire::parse(frame).ok()?;
    if is_icmp {
        fill_transport(&changed, frame);
    } else if part.is_none_or(|header| header.offset_bytes == 0) {
        let mut old = [0; 32];
        old.copy_from_slice(&header[ipv6::SOURCE..]);
        let mut new = [0; 32];
        new[..4].copy_from_slice(&source.octets());
        new[4..8].copy_from_slice(&destination.octets());
        mend(frame.get_mut(start..)?, layout.protocol, &old, &new);
    }
    Some(start + written)
}

/// Translates an IPv4 frame; `name` says what an address is called in IPv6. Returns the length of the frame in `to`,
/// `None` if the packet cannot be translated (RFC 7915 4).
pub fn to_ipv6(
    frame: &[u8],
    layout: &Layout,
    to: &mut [u8],
    name: &dyn Fn(Ipv4Addr) -> Option<Ipv6Addr>,
) -> Option<usize> {
    let view = ipv4::View::new(layout.packet(frame)).ok()?;
    let is_part = view.more_fragments() || view.fragment_offset_bytes() != 0;
    let is_first = view.fragment_offset_bytes() == 0;
    let is_icmp = layout.protocol == ip_protocol::ICMP;
    if is_icmp && (is_part || verify_transport(layout, frame) != TransportChecksum::Good) {
        return None;
    }
    let body = view.payload();
    let has_no_sum = layout.protocol == ip_protocol::UDP
        && is_first
        && body.get(udp::CHECKSUM..udp::CHECKSUM + 2) == Some(&[0, 0]);
    // RFC 7915 4.5: without the rest, its sum cannot be made.
    if has_no_sum && is_part {
        return None;
    }
    let (source, destination) = (name(view.source())?, name(view.destination())?);
    let extra = if is_part { FRAGMENT_HEADER_BYTES } else { 0 };
    let start = usize::from(layout.network) + ipv6::HEADER_BYTES + extra;
    let (head, rest) = to.split_at_mut_checked(start)?;
    let written = if is_icmp {
        icmp_to_v6(body, rest, name)?
    } else {
        rest.get_mut(..body.len())?.copy_from_slice(body);
        body.len()
    };
    let protocol = protocol_to_v6(layout.protocol);
    let headers = head.get_mut(layout.network.into()..)?;
    let emitted = ipv6::Repr {
        hop_limit: view.ttl(),
        traffic_class: view.tos(),
        ..ipv6::Repr::new(
            source,
            destination,
            if is_part {
                ip_protocol::FRAGMENT
            } else {
                protocol
            },
            u16::try_from(extra + written).ok()?,
        )
    };
    emitted.emit(headers).ok()?;
    if is_part {
        let part = FragmentHeader {
            next_header: protocol,
            offset_bytes: view.fragment_offset_bytes(),
            more: view.more_fragments(),
            identification: view.identification().into(),
        };
        part.emit(headers.get_mut(ipv6::HEADER_BYTES..)?).ok()?;
    }
    ethernet(frame, layout, head, wire::ether_type::IPV6)?;
    let (old, mut new) = (pseudo4(view.source(), view.destination()), [0; 32]);
    new[..16].copy_from_slice(&source.octets());
    new[16..].copy_from_slice(&destination.octets());
    let frame = to.get_mut(..start + written)?;
    if is_icmp || has_no_sum {
        let changed = wire::parse(frame).ok()?;
        fill_transport(&changed, frame);
    } else if is_first {
        mend(frame.get_mut(start..)?, layout.protocol, &old, &new);
    }
    Some(start + written)
}

/// Copies what lies before the network header, with another EtherType.
fn ethernet(frame: &[u8], layout: &Layout, to: &mut [u8], kind: u16) -> Option<()> {
    let network = usize::from(layout.network);
    let before = to.get_mut(..network)?;
    before.copy_from_slice(frame.get(..network)?);
    before
        .last_chunk_mut::<2>()?
        .copy_from_slice(&kind.to_be_bytes());
    Some(())
}

const fn traffic_class(header: &[u8; ipv6::HEADER_BYTES]) -> u8 {
    header[0] << 4 | header[1] >> 4
}

const fn protocol_to_v4(protocol: u8) -> u8 {
    match protocol {
        ip_protocol::ICMPV6 => ip_protocol::ICMP,
        other => other,
    }
}

const fn protocol_to_v6(protocol: u8) -> u8 {
    match protocol {
        ip_protocol::ICMP => ip_protocol::ICMPV6,
        other => other,
    }
}

/// IPv4 addresses as far as a pseudo-header's sum goes.
fn pseudo4(source: Ipv4Addr, destination: Ipv4Addr) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&source.octets());
    bytes[4..8].copy_from_slice(&destination.octets());
    bytes
}

/// Mends the checksum of a TCP segment or UDP datagram whose pseudo-header changed (length and protocol stay).
fn mend(segment: &mut [u8], protocol: u8, old: &[u8; 32], new: &[u8; 32]) {
    let at = match protocol {
        ip_protocol::TCP => tcp::CHECKSUM,
        ip_protocol::UDP => udp::CHECKSUM,
        _ => return,
    };
    let Some(field) = segment.get_mut(at..at + 2) else {
        return;
    };
    let before = u16::from_be_bytes([field[0], field[1]]);
    let mut after = update_bytes(before, old, new);
    if protocol == ip_protocol::UDP {
        after = update_udp(before, after);
    }
    field.copy_from_slice(&after.to_be_bytes());
}

/// Translates an ICMPv6 message but for its checksum (RFC 7915 5.2); returns its length.
fn icmp_to_v4(
    message: &[u8],
    to: &mut [u8],
    name: &dyn Fn(Ipv6Addr) -> Option<Ipv4Addr>,
) -> Option<usize> {
    let header = message.first_chunk::<{ icmpv4::HEADER_BYTES }>()?;
    let word = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let (kind, code, word) = match (header[0], header[1]) {
        (128, _) => (8, 0, word),
        (129, _) => (0, 0, word),
        (1, 1) => (3, 10, 0),
        (1, 4) => (3, 3, 0),
        (1, 0 | 2 | 3) => (3, 1, 0),
        (2, _) => (3, 4, word.saturating_sub(GROWTH).min(0xffff)),
        (3, code) => (11, code, 0),
        (4, 1) => (3, 2, 0),
        (4, 0) => (12, 0, pointer_to_v4(word)? << 24),
        _ => return None,
    };
    let body = message.get(icmpv4::HEADER_BYTES..)?;
    write_icmp(to, kind, code, word, |rest| match kind {
        0 | 8 => copy(rest, body),
        _ => quote_to_v4(body, rest, name),
    })
}

/// Translates an ICMP message but for its checksum (RFC 7915 4.2); returns its length.
fn icmp_to_v6(
    message: &[u8],
    to: &mut [u8],
    name: &dyn Fn(Ipv4Addr) -> Option<Ipv6Addr>,
) -> Option<usize> {
    let header = message.first_chunk::<{ icmpv4::HEADER_BYTES }>()?;
    let word = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let (kind, code, word) = match (header[0], header[1]) {
        (8, _) => (128, 0, word),
        (0, _) => (129, 0, word),
        (3, 2) => (4, 1, 6),
        (3, 3) => (1, 4, 0),
        // A router that does not say how much it takes is asked with the least (RFC 7915 4.2).
        (3, 4) => (2, 0, (word & 0xffff).saturating_add(GROWTH).max(MTU_MIN)),
        (3, 9 | 10 | 13 | 15) => (1, 1, 0),
        (3, 0 | 1 | 5..=8 | 11 | 12) => (1, 0, 0),
        (11, code) => (3, code, 0),
        (12, 0 | 2) => (4, 0, pointer_to_v6(word >> 24)?),
        _ => return None,
    };
    let body = message.get(icmpv4::HEADER_BYTES..)?;
    write_icmp(to, kind, code, word, |rest| match kind {
        128 | 129 => copy(rest, body),
        _ => quote_to_v6(body, rest, name),
    })
}

fn write_icmp(
    to: &mut [u8],
    kind: u8,
    code: u8,
    word: u32,
    body: impl FnOnce(&mut [u8]) -> Option<usize>,
) -> Option<usize> {
    let (header, rest) = to.split_first_chunk_mut::<{ icmpv4::HEADER_BYTES }>()?;
    *header = [kind, code, 0, 0, 0, 0, 0, 0];
    header[4..].copy_from_slice(&word.to_be_bytes());
    Some(icmpv4::HEADER_BYTES + body(rest)?)
}

fn copy(to: &mut [u8], from: &[u8]) -> Option<usize> {
    to.get_mut(..from.len())?.copy_from_slice(from);
    Some(from.len())
}

/// Where the field of an IPv6 header is in an IPv4 header (RFC 7915 5.2, figure 6).
const fn pointer_to_v4(pointer: u32) -> Option<u32> {
    Some(match pointer {
        0 => 0,
        1 => 1,
        4 | 5 => 2,
        6 => 9,
        7 => 8,
        8..=23 => 12,
        24..=39 => 16,
        _ => return None,
    })
}

/// Where the field of an IPv4 header is in an IPv6 header (RFC 7915 4.2, figure 3).
const fn pointer_to_v6(pointer: u32) -> Option<u32> {
    Some(match pointer {
        0 => 0,
        1 => 1,
        2 | 3 => 4,
        8 => 7,
        9 => 6,
        12..=15 => 8,
        16..=19 => 24,
        _ => return None,
    })
}

/// Translates the start of a packet that an ICMPv6 error quotes.
fn quote_to_v4(
    quote: &[u8],
    to: &mut [u8],
    name: &dyn Fn(Ipv6Addr) -> Option<Ipv4Addr>,
) -> Option<usize> {
    let (header, rest) = quote.split_first_chunk::<{ ipv6::HEADER_BYTES }>()?;
    let protocol = header[ipv6::NEXT_HEADER];
    // Of a fragment, only the router of the first hop could have quoted more.
    if ipv6::is_extension_header(protocol) {
        return None;
    }
    let address = |at: usize| {
        let octets: [u8; 16] = *header.get(at..)?.first_chunk()?;
        name(octets.into())
    };
    let (source, destination) = (address(ipv6::SOURCE)?, address(ipv6::DESTINATION)?);
    let payload = u16::from_be_bytes([header[4], header[5]]);
    let (head, body) = to.split_at_mut_checked(ipv4::HEADER_BYTES)?;
    // No more than any host quotes (RFC 1812 4.3.2.3).
    let room = icmpv4::ERROR_BYTES_MAX - 2 * ipv4::HEADER_BYTES - icmpv4::HEADER_BYTES;
    let rest = rest.get(..rest.len().min(room))?;
    copy(body, rest)?;
    let emitted = ipv4::Repr {
        ttl: header[ipv6::HOP_LIMIT],
        tos: traffic_class(header),
        dont_fragment: true,
        ..ipv4::Repr::new(source, destination, protocol_to_v4(protocol), payload)
    };
    emitted.emit(head).ok()?;
    let mut old = [0; 32];
    old.copy_from_slice(&header[ipv6::SOURCE..]);
    quoted_body(
        body,
        protocol,
        &old,
        &pseudo4(source, destination),
        [(128, 8), (129, 0)],
    );
    Some(ipv4::HEADER_BYTES + rest.len())
}

/// Translates the start of a packet that an ICMP error quotes.
fn quote_to_v6(
    quote: &[u8],
    to: &mut [u8],
    name: &dyn Fn(Ipv4Addr) -> Option<Ipv6Addr>,
) -> Option<usize> {
    let header = quote.first_chunk::<{ ipv4::HEADER_BYTES }>()?;
    let rest = quote.get(usize::from(header[0] & 15) * 4..)?;
    let address = |at: usize| {
        let octets: [u8; 4] = *header.get(at..)?.first_chunk()?;
        Some((Ipv4Addr::from(octets), name(octets.into())?))
    };
    let (source4, source) = address(ipv4::SOURCE)?;
    let (destination4, destination) = address(ipv4::DESTINATION)?;
    let total = u16::from_be_bytes([header[2], header[3]]);
    let payload = total.saturating_sub(u16::from(header[0] & 15) * 4);
    let protocol = header[ipv4::PROTOCOL];
    let (head, body) = to.split_at_mut_checked(ipv6::HEADER_BYTES)?;
    let room = icmpv6::ERROR_BYTES_MAX - 2 * ipv6::HEADER_BYTES - icmpv4::HEADER_BYTES;
    let rest = rest.get(..rest.len().min(room))?;
    copy(body, rest)?;
    let emitted = ipv6::Repr {
        hop_limit: header[ipv4::TTL],
        traffic_class: header[ipv4::TOS],
        ..ipv6::Repr::new(source, destination, protocol_to_v6(protocol), payload)
    };
    emitted.emit(head).ok()?;
    let mut new = [0; 32];
    new[..16].copy_from_slice(&source.octets());
    new[16..].copy_from_slice(&destination.octets());
    let old = pseudo4(source4, destination4);
    quoted_body(body, protocol, &old, &new, [(8, 128), (0, 129)]);
    Some(ipv6::HEADER_BYTES + rest.len())
}

/// Makes the start of a quoted segment or message what its sender sent.
fn quoted_body(
    body: &mut [u8],
    protocol: u8,
    old: &[u8; 32],
    new: &[u8; 32],
    kinds: [(u8, u8); 2],
) {
    mend(body, protocol, old, new);
    if matches!(protocol, ip_protocol::ICMP | ip_protocol::ICMPV6)
        && let Some(kind) = body.first_mut()
        && let Some((_, to)) = kinds.iter().find(|(from, _)| from == kind)
    {
        *kind = *to;
    }
}
