//! `icmp-error`: tells the sender why its packet went no further (RFC 1812 4.3, RFC 4443 2.4 and 3), where
//! that is allowed, and drops the packet.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use graph::{Context, EdgeId, Node, Outlets, Snapshot};
use io::{Batch, Frame, FrameFlags};
use wire::{Instant, LayoutFlags, MacAddr, ether_type, icmpv4, icmpv6, ip_protocol, ipv4, ipv6};

use super::cause::Cause;
use crate::forwarding::{Forwarding, Interface, Route};
use crate::packet::{self, ETHERNET_BYTES, IPV4_BYTES, IPV6_BYTES};
use crate::rate::TokenBucket;

const IP4: EdgeId = EdgeId(0);
const IP6: EdgeId = EdgeId(1);
const EDGES: &[&str] = &["ip4", "ip6"];

const ICMP_BYTES: usize = icmpv4::HEADER_BYTES;
/// Network control precedence, as RFC 1812 4.3.2.5 asks for ICMP errors.
const TOS_NETWORK_CONTROL: u8 = 0xc0;

/// Errors that a worker may send in a second, and at once (Linux: `icmp_msgs_per_sec`, `icmp_msgs_burst`).
const ERRORS_PER_S: u32 = 1000;
const ERRORS_BURST: u32 = 50;

/// Takes packets with a [`Cause`] in their mark; drops each, after an ICMP error about it was sent where
/// the rules allow. The error is a frame of its own, so that the packet is counted and captured as it was.
#[derive(Debug)]
pub struct IcmpError {
    forwarding: Arc<Forwarding>,
    limit: TokenBucket,
    next_id: u16,
}

impl IcmpError {
    /// Makes the node.
    pub fn new(forwarding: Arc<Forwarding>) -> Self {
        Self {
            forwarding,
            limit: TokenBucket::new(ERRORS_PER_S, ERRORS_BURST),
            next_id: 1,
        }
    }

    fn answer(&mut self, cx: &mut Context<'_>, packet: &Frame, out: &mut Outlets) {
        let (cause, number) = Cause::from_mark(packet.mark);
        let v4 = packet.layout.flags.contains(LayoutFlags::IPV4);
        let error = if v4 {
            self.answer4(cx, packet, cause, number)
        } else {
            self.answer6(cx, packet, cause, number)
        };
        if let Some(error) = error {
            out.push(if v4 { IP4 } else { IP6 }, error);
        }
    }

    fn allowed(&mut self, now: Instant) -> bool {
        self.limit.take(now)
    }

    fn answer4(
        &mut self,
        cx: &mut Context<'_>,
        packet: &Frame,
        cause: Cause,
        number: u16,
    ) -> Option<Frame> {
        let layout = &packet.layout;
        let network = usize::from(layout.network);
        let data = packet.data();
        let source = *packet::bytes::<4>(data, network + 12)?;
        let destination = *packet::bytes::<4>(data, network + 16)?;
        if !may_answer4(&self.forwarding, packet, &source, &destination) || !self.allowed(cx.now) {
            return None;
        }
        let interface = self.receiving_interface(packet)?;
        let own_mac = interface.mac;
        let own = match self.forwarding.route4(&destination) {
            Some(Route::Local) => Ipv4Addr::from(destination),
            _ => interface.source4(source.into()).or_else(|| {
                self.forwarding
                    .interfaces()
                    .iter()
                    .find_map(|i| i.v4.first())
                    .map(|a| a.0)
            })?,
        };
        let quote = data.get(network..usize::from(layout.end))?;
        let quote = &quote[..quote
            .len()
            .min(icmpv4::ERROR_BYTES_MAX - IPV4_BYTES - ICMP_BYTES)];
        let message_bytes = ICMP_BYTES + quote.len();
        let mut error = cx.pool.alloc()?;
        if !error.set_len(ETHERNET_BYTES + IPV4_BYTES + message_bytes) {
            cx.pool.free(error);
            return None;
        }
        let header = ipv4::Repr {
            tos: TOS_NETWORK_CONTROL,
            identification: self.next_id,
            ..ipv4::Repr::new(own, source.into(), ip_protocol::ICMP, message_bytes as u16)
        };
        self.next_id = self.next_id.wrapping_add(1);
        let (kind, code) = cause.icmp4();
        let rest = if cause == Cause::TooBig {
            number.into()
        } else {
            0
        };
        let (head, message) = error.data_mut()[ETHERNET_BYTES..].split_at_mut(IPV4_BYTES);
        message[ICMP_BYTES..].copy_from_slice(quote);
        let written = header.emit(head).is_ok()
            && icmpv4::Repr::Other { kind, code, rest }
                .emit(message)
                .is_ok();
        debug_assert!(written, "the frame was made long enough for both headers");
        begin(&mut error, packet, own_mac, ether_type::IPV4);
        finish(&mut error, packet, LayoutFlags::IPV4, IPV4_BYTES, 1);
        Some(error)
    }

    fn answer6(
        &mut self,
        cx: &mut Context<'_>,
        packet: &Frame,
        cause: Cause,
        number: u16,
    ) -> Option<Frame> {
        let layout = &packet.layout;
        let network = usize::from(layout.network);
        let data = packet.data();
        let source = *packet::bytes::<16>(data, network + 8)?;
        let destination = *packet::bytes::<16>(data, network + 24)?;
        if !icmpv6::may_answer(layout, data, cause == Cause::TooBig) || !self.allowed(cx.now) {
            return None;
        }
        let interface = self.receiving_interface(packet)?;
        let own_mac = interface.mac;
        let id = self.forwarding.interface_of(packet.rx_port)?;
        let own = if destination[0] != 0xff && self.forwarding.is_local6(&destination, id) {
            Ipv6Addr::from(destination)
        } else {
            interface.source6(source.into())?
        };
        let quote = data.get(network..usize::from(layout.end))?;
        let quote = &quote[..quote
            .len()
            .min(icmpv6::ERROR_BYTES_MAX - IPV6_BYTES - ICMP_BYTES)];
        let length = (ICMP_BYTES + quote.len()) as u16;
        let mut error = cx.pool.alloc()?;
        if !error.set_len(ETHERNET_BYTES + IPV6_BYTES + usize::from(length)) {
            cx.pool.free(error);
            return None;
        }
        let source = source.into();
        let header = ipv6::Repr::new(own, source, ip_protocol::ICMPV6, length);
        let (kind, code) = cause.icmp6();
        let has_number = matches!(cause, Cause::TooBig | Cause::ProtocolUnknown);
        let rest = if has_number { number.into() } else { 0 };
        let (head, message) = error.data_mut()[ETHERNET_BYTES..].split_at_mut(IPV6_BYTES);
        message[ICMP_BYTES..].copy_from_slice(quote);
        let repr = icmpv6::Repr::Other { kind, code, rest };
        let written = header.emit(head).is_ok() && repr.emit(message, own, source).is_ok();
        debug_assert!(written, "the frame was made long enough for both headers");
        begin(&mut error, packet, own_mac, ether_type::IPV6);
        finish(&mut error, packet, LayoutFlags::IPV6, IPV6_BYTES, 58);
        Some(error)
    }

    fn receiving_interface(&self, packet: &Frame) -> Option<&Interface> {
        let id = self.forwarding.interface_of(packet.rx_port)?;
        self.forwarding.interface(id)
    }
}

/// Addresses an error to the station that sent the packet; routing may find another next hop.
fn begin(error: &mut Frame, about: &Frame, own: MacAddr, kind: u16) {
    packet::begin_like(error, about, kind);
    packet::turn_around(error.data_mut(), own);
}

/// Fills the layout of an error.
fn finish(error: &mut Frame, about: &Frame, family: LayoutFlags, header: usize, protocol: u8) {
    error.rx_port = about.rx_port;
    error.flags = FrameFlags::LOCAL;
    error.layout = wire::Layout {
        flags: family | LayoutFlags::TRANSPORT | LayoutFlags::ICMP_ERROR,
        network: ETHERNET_BYTES as u16,
        transport: (ETHERNET_BYTES + header) as u16,
        payload: (ETHERNET_BYTES + header + ICMP_BYTES) as u16,
        end: error.len() as u16,
        protocol,
        ..wire::Layout::default()
    };
}

/// Whether RFC 1812 4.3.2.7 allows an error: beside what the packet itself forbids, neither address may be
/// the broadcast address of an attached network, and the destination must name one host.
fn may_answer4(
    forwarding: &Forwarding,
    packet: &Frame,
    source: &[u8; 4],
    destination: &[u8; 4],
) -> bool {
    let broadcast = |address| matches!(forwarding.route4(address), Some(Route::Broadcast(_)));
    icmpv4::may_answer(&packet.layout, packet.data())
        && source[0] != 0
        && !matches!(destination[0], 0 | 127)
        && !broadcast(source)
        && !broadcast(destination)
}

impl Node for IcmpError {
    fn name(&self) -> &str {
        "icmp-error"
    }

    fn edges(&self) -> &[&'static str] {
        EDGES
    }

    fn process(&mut self, cx: &mut Context<'_>, batch: &mut Batch, out: &mut Outlets) {
        for packet in batch.drain() {
            self.answer(cx, &packet, out);
            let (cause, _) = Cause::from_mark(packet.mark);
            out.drop(packet, cause.drop_reason());
        }
    }

    fn reload(&mut self, _cx: &mut Context<'_>, snapshot: &Snapshot, _out: &mut Outlets) {
        crate::adopt(&mut self.forwarding, snapshot);
    }
}
