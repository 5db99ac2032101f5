//! What the engine answers itself: TCP resets and ICMP errors.

use core::net::{Ipv4Addr, Ipv6Addr};

use wire::tcp::Flags;
use wire::{
    Addresses, Layout, LayoutFlags, ether_type, icmpv4, icmpv6, ip_protocol, ipv4, ipv6, tcp,
};

use super::item::{Environment, Item};
use super::worker::{Worker, segment_of};
use crate::verdict::Reject;

/// Bytes before the network header of an emission.
pub(super) const ETHERNET_BYTES: usize = 14;

impl Worker {
    /// Tells the sender of a packet that it is rejected.
    pub(super) fn answer_reject(&mut self, env: &Environment<'_>, item: &Item<'_>, reject: Reject) {
        match reject {
            Reject::TcpReset => self.answer_reset(item),
            Reject::Icmp(code) if item.layout.flags.contains(LayoutFlags::IPV4) => {
                self.answer_unreachable(env, item, code);
            }
            Reject::Icmpv6(code) if item.layout.flags.contains(LayoutFlags::IPV6) => {
                self.answer_unreachable6(env, item, code);
            }
            Reject::Icmp(_) | Reject::Icmpv6(_) => {}
        }
    }

    /// RFC 9293 3.10.7.1: a reset for a segment of no connection; none for a reset.
    pub(super) fn answer_reset(&mut self, item: &Item<'_>) {
        let Some(segment) = segment_of(item) else {
            return;
        };
        if segment.flags.contains(Flags::RST) {
            return;
        }
        let (flags, sequence, acknowledgement) = match segment.ack_if_set() {
            Some(ack) => (Flags::RST, ack, 0),
            None => (Flags::RST | Flags::ACK, 0, segment.end()),
        };
        let reply = SegmentOut {
            flags,
            sequence,
            acknowledgement,
            window: 0,
            options: &[],
        };
        self.outbox.push(item.way_back(), item.iif, |buffer| {
            write_segment_back(buffer, &item.layout, item.frame, &reply)
        });
    }

    /// Sends ICMP destination unreachable with a code (13: administratively prohibited).
    pub(super) fn answer_unreachable(&mut self, env: &Environment<'_>, item: &Item<'_>, code: u8) {
        if !icmpv4::may_answer(&item.layout, item.frame) {
            return;
        }
        let own = env.interface(item.iif).v4;
        self.outbox.push(item.way_back(), item.iif, |buffer| {
            let (source, destination) = item.layout.ipv4_addresses(item.frame)?;
            let own = own.map_or(destination, Ipv4Addr::from_bits);
            let quote = item.layout.packet(item.frame);
            let room = icmpv4::ERROR_BYTES_MAX - ipv4::HEADER_BYTES - icmpv4::HEADER_BYTES;
            let quote = quote.get(..quote.len().min(room))?;
            let message_bytes = icmpv4::HEADER_BYTES + quote.len();
            let header = ipv4::Repr::new(own, source, ip_protocol::ICMP, message_bytes as u16);
            let packet = ethernet(buffer, ether_type::IPV4)?;
            let (head, message) = packet.split_at_mut_checked(ipv4::HEADER_BYTES)?;
            let message = message.get_mut(..message_bytes)?;
            header.emit(head).ok()?;
            message
                .get_mut(icmpv4::HEADER_BYTES..)?
                .copy_from_slice(quote);
            let error = icmpv4::Repr::DestinationUnreachable { code, mtu: 0 };
            error.emit(message).ok()?;
            Some(ETHERNET_BYTES + ipv4::HEADER_BYTES + message_bytes)
        });
    }

    /// Sends ICMPv6 destination unreachable with a code (1: administratively prohibited).
    pub(super) fn answer_unreachable6(&mut self, env: &Environment<'_>, item: &Item<'_>, code: u8) {
        if !icmpv6::may_answer(&item.layout, item.frame, false) {
            return;
        }
        let own = env.interface(item.iif).v6;
        self.outbox.push(item.way_back(), item.iif, |buffer| {
            let (source, destination) = item.layout.ipv6_addresses(item.frame)?;
            let own = own.map_or(destination, Ipv6Addr::from_bits);
            let quote = item.layout.packet(item.frame);
            let room = icmpv6::ERROR_BYTES_MAX - ipv6::HEADER_BYTES - icmpv6::HEADER_BYTES;
            let quote = quote.get(..quote.len().min(room))?;
            let message_bytes = icmpv6::HEADER_BYTES + quote.len();
            let header = ipv6::Repr::new(own, source, ip_protocol::ICMPV6, message_bytes as u16);
            let packet = ethernet(buffer, ether_type::IPV6)?;
            let (head, message) = packet.split_at_mut_checked(ipv6::HEADER_BYTES)?;
            let message = message.get_mut(..message_bytes)?;
            header.emit(head).ok()?;
            message
                .get_mut(icmpv6::HEADER_BYTES..)?
                .copy_from_slice(quote);
            let error = icmpv6::Repr::DestinationUnreachable { code };
            error.emit(message, own, source).ok()?;
            Some(ETHERNET_BYTES + ipv6::HEADER_BYTES + message_bytes)
        });
    }
}

/// A segment that the engine sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentOut<'a> {
    pub(super) flags: Flags,
    pub(super) sequence: u32,
    pub(super) acknowledgement: u32,
    pub(super) window: u16,
    pub(super) options: &'a [tcp::TcpOption<'a>],
}

/// Writes a segment from the receiver of a packet to its sender; returns the frame's length.
pub(super) fn write_segment_back(
    buffer: &mut [u8],
    layout: &Layout,
    frame: &[u8],
    segment: &SegmentOut<'_>,
) -> Option<usize> {
    let addresses = addresses_of(layout, frame)?;
    let ports = frame
        .get(usize::from(layout.transport)..)?
        .first_chunk::<4>()?;
    let [a, b, c, d] = *ports;
    let ports = (u16::from_be_bytes([c, d]), u16::from_be_bytes([a, b]));
    write_segment(buffer, &addresses.reversed(), ports, segment)
}

/// Writes a segment without data; returns the frame's length.
pub(super) fn write_segment(
    buffer: &mut [u8],
    addresses: &Addresses,
    (source_port, destination_port): (u16, u16),
    segment: &SegmentOut<'_>,
) -> Option<usize> {
    let repr = tcp::Repr {
        source_port,
        destination_port,
        sequence: segment.sequence,
        acknowledgement: segment.acknowledgement,
        flags: segment.flags,
        window: segment.window,
        urgent: 0,
        options: segment.options,
    };
    let bytes = repr.bytes();
    let header_bytes = match *addresses {
        Addresses::V4 {
            source,
            destination,
        } => {
            let mut header = ipv4::Repr::new(source, destination, ip_protocol::TCP, bytes as u16);
            header.dont_fragment = true;
            header.emit(ethernet(buffer, ether_type::IPV4)?).ok()?
        }
        Addresses::V6 {
            source,
            destination,
        } => {
            let header = ipv6::Repr::new(source, destination, ip_protocol::TCP, bytes as u16);
            header.emit(ethernet(buffer, ether_type::IPV6)?).ok()?
        }
    };
    let start = ETHERNET_BYTES + header_bytes;
    repr.emit(buffer.get_mut(start..start + bytes)?, addresses)
        .ok()?;
    Some(start + bytes)
}

/// The addresses of a packet.
pub(super) fn addresses_of(layout: &Layout, frame: &[u8]) -> Option<Addresses> {
    if let Some((source, destination)) = layout.ipv4_addresses(frame) {
        return Some(Addresses::V4 {
            source,
            destination,
        });
    }
    let (source, destination) = layout.ipv6_addresses(frame)?;
    Some(Addresses::V6 {
        source,
        destination,
    })
}

/// Writes an Ethernet header whose addresses are still to come; returns what follows it.
pub(super) fn ethernet(buffer: &mut [u8], kind: u16) -> Option<&mut [u8]> {
    let (header, rest) = buffer.split_first_chunk_mut::<ETHERNET_BYTES>()?;
    *header = [0; ETHERNET_BYTES];
    header[12..].copy_from_slice(&kind.to_be_bytes());
    Some(rest)
}
