//! `icmp-error`: tells the sender why its packet went no further (RFC 1812 4.3, RFC 4443 2.4 and 3), where
//! that is allowed, and drops the packet.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use graph::{Context, EdgeId, Node, Outlets, Snapshot};
use io::{Batch, Frame, FrameFlags};
use wire::checksum::{self, Sum};
use wire::{Instant, LayoutFlags};

use super::cause::Cause;
use crate::forwarding::{Forwarding, Interface, Route};
use crate::packet::{self, ETHERNET_BYTES, IPV4_BYTES, IPV6_BYTES};
use crate::rate::TokenBucket;

const IP4: EdgeId = EdgeId(0);
const IP6: EdgeId = EdgeId(1);
const EDGES: &[&str] = &["ip4", "ip6"];

/// Header of an ICMP error: type, code, checksum and four bytes that depend on the type.
const ICMP_BYTES: usize = 8;
/// Longest ICMP error (RFC 1812 4.3.2.3), bytes.
const IPV4_ERROR_MAX_BYTES: usize = 576;
/// Longest ICMPv6 error (RFC 4443 2.4 c): the least MTU, bytes.
const IPV6_ERROR_MAX_BYTES: usize = 1280;
const TTL: u8 = 64;
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
        if !may_answer4(&self.forwarding, layout.flags, &source, &destination)
            || !self.allowed(cx.now)
        {
            return None;
        }
        let interface = self.receiving_interface(packet)?;
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
            .min(IPV4_ERROR_MAX_BYTES - IPV4_BYTES - ICMP_BYTES)];
        let total = IPV4_BYTES + ICMP_BYTES + quote.len();
        let mut error = cx.pool.alloc()?;
        if !error.set_len(ETHERNET_BYTES + total) {
            cx.pool.free(error);
            return None;
        }
        let (header, rest) = error.data_mut()[ETHERNET_BYTES..].split_at_mut(IPV4_BYTES);
        header.copy_from_slice(&[
            0x45,
            TOS_NETWORK_CONTROL,
            0,
            0,
            0,
            0,
            0,
            0,
            TTL,
            1,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ]);
        packet::put_be16(header, 2, total as u16);
        packet::put_be16(header, 4, self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        header[12..16].copy_from_slice(&own.octets());
        header[16..20].copy_from_slice(&source);
        packet::set_ipv4_checksum(header);
        let (kind, code) = cause.icmp4();
        rest[..ICMP_BYTES].copy_from_slice(&[kind, code, 0, 0, 0, 0, 0, 0]);
        if cause == Cause::TooBig {
            packet::put_be16(rest, 6, number);
        }
        rest[ICMP_BYTES..].copy_from_slice(quote);
        let sum = checksum::checksum(rest);
        packet::put_be16(rest, 2, sum);
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
        if !may_answer6(packet, cause, &source, &destination) || !self.allowed(cx.now) {
            return None;
        }
        let interface = self.receiving_interface(packet)?;
        let id = self.forwarding.interface_of(packet.rx_port)?;
        let own = if destination[0] != 0xff && self.forwarding.is_local6(&destination, id) {
            Ipv6Addr::from(destination)
        } else {
            interface.source6(source.into())?
        };
        let quote = data.get(network..usize::from(layout.end))?;
        let quote = &quote[..quote
            .len()
            .min(IPV6_ERROR_MAX_BYTES - IPV6_BYTES - ICMP_BYTES)];
        let length = (ICMP_BYTES + quote.len()) as u16;
        let mut error = cx.pool.alloc()?;
        if !error.set_len(ETHERNET_BYTES + IPV6_BYTES + usize::from(length)) {
            cx.pool.free(error);
            return None;
        }
        let (header, rest) = error.data_mut()[ETHERNET_BYTES..].split_at_mut(IPV6_BYTES);
        header[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 0, 58, TTL]);
        packet::put_be16(header, 4, length);
        header[8..24].copy_from_slice(&own.octets());
        header[24..40].copy_from_slice(&source);
        let (kind, code) = cause.icmp6();
        rest[..ICMP_BYTES].copy_from_slice(&[kind, code, 0, 0, 0, 0, 0, 0]);
        if matches!(cause, Cause::TooBig | Cause::ProtocolUnknown) {
            packet::put_be16(rest, 6, number);
        }
        rest[ICMP_BYTES..].copy_from_slice(quote);
        let sum = Sum::of(rest)
            .add_ipv6(own)
            .add_ipv6(source.into())
            .add_u16(length)
            .add_u16(58)
            .checksum();
        packet::put_be16(rest, 2, sum);
        finish(&mut error, packet, LayoutFlags::IPV6, IPV6_BYTES, 58);
        Some(error)
    }

    fn receiving_interface(&self, packet: &Frame) -> Option<&Interface> {
        let id = self.forwarding.interface_of(packet.rx_port)?;
        self.forwarding.interface(id)
    }
}

/// Fills the layout of an error that starts with an Ethernet header yet to be written.
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

/// RFC 1812 4.3.2.7: no error about an error, a later fragment, a broadcast or multicast packet, or a
/// source that does not name one host.
fn may_answer4(
    forwarding: &Forwarding,
    flags: LayoutFlags,
    source: &[u8; 4],
    destination: &[u8; 4],
) -> bool {
    let never = LayoutFlags::ICMP_ERROR
        | LayoutFlags::LATER_FRAGMENT
        | LayoutFlags::L2_GROUP
        | LayoutFlags::L3_GROUP;
    let one_host = |address: &[u8; 4]| {
        !matches!(address[0], 0 | 127 | 224..=239)
            && *address != [255; 4]
            && !matches!(forwarding.route4(address), Some(Route::Broadcast(_)))
    };
    !flags.intersects(never) && one_host(source) && one_host(destination)
}

/// RFC 4443 2.4 e: no error about an error or a redirect, a group destination (except packet too big and
/// an option or header that says so), or a source that does not name one node.
fn may_answer6(packet: &Frame, cause: Cause, source: &[u8; 16], destination: &[u8; 16]) -> bool {
    let flags = packet.layout.flags;
    let to_group = flags.contains(LayoutFlags::L2_GROUP) || destination[0] == 0xff;
    let redirect = packet.layout.protocol == 58
        && packet.data().get(usize::from(packet.layout.transport)) == Some(&137);
    let never = LayoutFlags::ICMP_ERROR | LayoutFlags::LATER_FRAGMENT;
    !flags.intersects(never)
        && !redirect
        && (!to_group || cause == Cause::TooBig)
        && source[0] != 0xff
        && *source != [0; 16]
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
