//! Packets that are not TCP segments: sent to a sink or the host's queue, in fragments where they exceed the MTU.

use alloc::vec::Vec;
use core::net::IpAddr;

use wire::{Addresses, DropReason, MacAddr, ether_type, ethernet, ip_protocol, ipv4, ipv6};

use super::neighbour::Resolved;
use super::queue::Slot;
use crate::sink::TxSink;
use crate::stack::Stack;

/// The router alert option (RFC 2113), in every IGMP message.
const ROUTER_ALERT_V4: [u8; 4] = [148, 4, 0, 0];
/// Hop-by-hop header with the router alert option (RFC 2711), in every MLD message; next header ICMPv6.
const ROUTER_ALERT_V6: [u8; 8] = [ip_protocol::ICMPV6, 0, 5, 2, 0, 0, 1, 0];

/// The IP header of a packet to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    pub(crate) addresses: Addresses,
    pub(crate) protocol: u8,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    pub(crate) router_alert: bool,
}

impl Outgoing {
    pub(crate) fn destination(&self) -> IpAddr {
        match self.addresses {
            Addresses::V4 { destination, .. } => destination.into(),
            Addresses::V6 { destination, .. } => destination.into(),
        }
    }
}

/// Which part of a datagram a frame carries.
#[derive(Clone, Copy, Debug)]
struct Piece<'a> {
    bytes: &'a [u8],
    offset: usize,
    more: bool,
    is_fragment: bool,
    identification: u32,
}

impl Stack {
    /// Sends a packet; false when the sink is full (then nothing or a part of it was sent).
    ///
    /// Where the neighbour is not known yet, the packet waits for it, or is dropped when too many wait.
    pub(crate) fn send_transport<S: TxSink>(
        &mut self,
        outgoing: &Outgoing,
        bytes: &[u8],
        now_ns: u64,
        sink: &mut S,
    ) -> bool {
        let destination = outgoing.destination();
        let group = match destination {
            IpAddr::V4(ip) if ip.is_multicast() => Some(MacAddr::from_ipv4_multicast(ip)),
            IpAddr::V4(ip) if self.addressing.is_broadcast(ip) => Some(MacAddr::BROADCAST),
            IpAddr::V6(ip) if ip.is_multicast() => Some(MacAddr::from_ipv6_multicast(ip)),
            _ => None,
        };
        if let Some(mac) = group {
            return self.send_pieces(outgoing, mac, bytes, sink);
        }
        let next_hop = self
            .addressing
            .choose(destination, None)
            .map(|choice| choice.next_hop);
        let Some(next_hop) = next_hop else {
            self.drop_frame(DropReason::NoRoute);
            return true;
        };
        let Some(index) = self.neighbours.index(next_hop, now_ns) else {
            self.drop_frame(DropReason::NeighbourTableFull);
            return true;
        };
        match self.neighbours.resolve(index, now_ns) {
            Resolved::Mac(mac) => self.send_pieces(outgoing, mac, bytes, sink),
            Resolved::Wait => {
                let mut held = Held(Vec::new(), Vec::new());
                self.send_pieces(outgoing, MacAddr::ZERO, bytes, &mut held);
                for frame in held.0 {
                    if !self.neighbours.wait_frame(index, frame) {
                        self.drop_frame(DropReason::NeighbourQueueFull);
                    }
                }
                true
            }
            Resolved::Failed => {
                self.drop_frame(DropReason::NeighbourUnresolved);
                true
            }
        }
    }

    /// Queues a packet of the host itself to a known MAC address.
    pub(crate) fn queue_packet(&mut self, outgoing: &Outgoing, mac: MacAddr, bytes: &[u8]) {
        let source_mac = self.mac;
        let piece = Piece {
            bytes,
            offset: 0,
            more: false,
            is_fragment: false,
            identification: 0,
        };
        emit_piece(
            outgoing,
            source_mac,
            mac,
            &piece,
            &mut Slot::new(&mut self.queue),
        );
    }

    /// Queues a packet of the host itself, by route.
    pub(crate) fn queue_routed(&mut self, outgoing: &Outgoing, bytes: &[u8], now_ns: u64) {
        let mut held = Held(Vec::new(), Vec::new());
        self.send_transport(outgoing, bytes, now_ns, &mut held);
        for frame in held.0 {
            self.queue.push(frame);
        }
    }

    fn send_pieces<S: TxSink>(
        &mut self,
        outgoing: &Outgoing,
        mac: MacAddr,
        bytes: &[u8],
        sink: &mut S,
    ) -> bool {
        let alert = if outgoing.router_alert { 8 } else { 0 };
        let (header, extra) = match outgoing.addresses {
            Addresses::V4 { .. } => (ipv4::HEADER_BYTES, 0),
            Addresses::V6 { .. } => (ipv6::HEADER_BYTES, ipv6::FRAGMENT_HEADER_BYTES),
        };
        let mtu = usize::from(self.path_mtu(outgoing.destination()));
        if header + alert + bytes.len() <= mtu {
            let piece = Piece {
                bytes,
                offset: 0,
                more: false,
                is_fragment: false,
                identification: 0,
            };
            return emit_piece(outgoing, self.mac, mac, &piece, sink);
        }
        // RFC 791 3.2, RFC 8200 4.5: all but the last a multiple of eight bytes.
        let most = (mtu - header - extra) & !7;
        let identification = self.tcp.secrets.random() as u32;
        let mut offset = 0;
        for chunk in bytes.chunks(most.max(8)) {
            let more = offset + chunk.len() < bytes.len();
            let piece = Piece {
                bytes: chunk,
                offset,
                more,
                is_fragment: true,
                identification,
            };
            if !emit_piece(outgoing, self.mac, mac, &piece, sink) {
                // The rest would be useless without this one: the receiver lets the datagram time out.
                return offset > 0;
            }
            offset += chunk.len();
        }
        true
    }
}

/// Frames kept for later.
struct Held(Vec<Vec<u8>>, Vec<u8>);

impl TxSink for Held {
    fn reserve(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.1.clear();
        self.1.resize(bytes, 0);
        Some(&mut self.1)
    }
    fn commit(&mut self) {
        self.0.push(core::mem::take(&mut self.1));
    }
}

/// Writes one frame; false if the sink is full.
fn emit_piece<S: TxSink>(
    outgoing: &Outgoing,
    source: MacAddr,
    destination: MacAddr,
    piece: &Piece<'_>,
    sink: &mut S,
) -> bool {
    let (ether_type, header) = match outgoing.addresses {
        Addresses::V4 { .. } => (
            ether_type::IPV4,
            ipv4::HEADER_BYTES + if outgoing.router_alert { 4 } else { 0 },
        ),
        Addresses::V6 { .. } => {
            let extra = if piece.is_fragment || outgoing.router_alert {
                8
            } else {
                0
            };
            (ether_type::IPV6, ipv6::HEADER_BYTES + extra)
        }
    };
    let Some(frame) = sink.reserve(ethernet::HEADER_BYTES + header + piece.bytes.len()) else {
        return false;
    };
    let link = ethernet::Repr {
        destination,
        source,
        ether_type,
    };
    let Some((link_to, packet)) = frame.split_at_mut_checked(ethernet::HEADER_BYTES) else {
        return false;
    };
    let done = link.emit(link_to).is_ok()
        && emit_header(outgoing, piece, packet).is_some()
        && packet.get_mut(header..).is_some_and(|to| {
            to.copy_from_slice(piece.bytes);
            true
        });
    if done {
        sink.commit();
    }
    true
}

fn emit_header(outgoing: &Outgoing, piece: &Piece<'_>, packet: &mut [u8]) -> Option<()> {
    let length = u16::try_from(piece.bytes.len()).ok()?;
    match outgoing.addresses {
        Addresses::V4 {
            source,
            destination,
        } => {
            let mut repr = ipv4::Repr::new(source, destination, outgoing.protocol, length);
            repr.ttl = outgoing.ttl;
            repr.tos = outgoing.tos;
            repr.identification = piece.identification as u16;
            repr.more_fragments = piece.more;
            repr.fragment_offset_bytes = u16::try_from(piece.offset).ok()?;
            if outgoing.router_alert {
                repr.options = &ROUTER_ALERT_V4;
            }
            repr.emit(packet).ok()?;
        }
        Addresses::V6 {
            source,
            destination,
        } => {
            let has_extra = piece.is_fragment || outgoing.router_alert;
            let next = match (piece.is_fragment, outgoing.router_alert) {
                (true, _) => ip_protocol::FRAGMENT,
                (false, true) => ip_protocol::HOP_BY_HOP,
                (false, false) => outgoing.protocol,
            };
            let extra = if has_extra { 8 } else { 0 };
            let mut repr = ipv6::Repr::new(source, destination, next, length + extra);
            repr.hop_limit = outgoing.ttl;
            repr.traffic_class = outgoing.tos;
            repr.emit(packet).ok()?;
            let rest = packet.get_mut(ipv6::HEADER_BYTES..)?;
            if piece.is_fragment {
                let fragment = ipv6::FragmentHeader {
                    next_header: outgoing.protocol,
                    offset_bytes: u16::try_from(piece.offset).ok()?,
                    more: piece.more,
                    identification: piece.identification,
                };
                fragment.emit(rest).ok()?;
            } else if outgoing.router_alert {
                *rest.first_chunk_mut()? = ROUTER_ALERT_V6;
            }
        }
    }
    Some(())
}
