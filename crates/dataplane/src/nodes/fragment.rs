//! `ip4-fragment`: cuts IPv4 packets that are too long for their next link (RFC 791 3.2).

use graph::{Context, EdgeId, Node, Outlets};
use io::{Batch, Frame, FrameFlags, Pool};
use wire::{DropReason, Layout, LayoutFlags, ether_type};

use crate::packet::{self, ETHERNET_BYTES, IPV4_BYTES};

const OUT: EdgeId = EdgeId(0);
const EDGES: &[&str] = &["out"];

const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;
/// Longest IPv4 header, bytes.
const HEADER_MAX_BYTES: usize = 60;
/// Marks options that every fragment carries (RFC 791 3.1).
const COPIED: u8 = 0x80;

/// Cuts packets to the MTU in their mark. The fragments are frames of the worker's pool; the packet is
/// done with.
#[derive(Debug, Default)]
pub struct Ip4Fragment;

/// An IPv4 header to put before a fragment's data.
struct Header {
    bytes: [u8; HEADER_MAX_BYTES],
    length: usize,
}

impl Header {
    fn of(bytes: &[u8]) -> Self {
        let mut header = Self {
            bytes: [0; HEADER_MAX_BYTES],
            length: bytes.len().min(HEADER_MAX_BYTES),
        };
        header.bytes[..header.length].copy_from_slice(&bytes[..header.length]);
        header
    }

    /// Keeps only the options that later fragments carry.
    fn for_later(&self) -> Self {
        let (fixed, mut options) = self.bytes[..self.length].split_at(IPV4_BYTES);
        let mut later = Self::of(fixed);
        while let [kind, rest @ ..] = options {
            // The validating pass made sure that each option is at least two bytes and fits.
            let length = match kind {
                0 => break,
                1 => 1,
                _ => rest.first().map_or(2, |l| usize::from(*l)).max(2),
            };
            let (option, next) = options.split_at(length.min(options.len()));
            if kind & COPIED != 0 {
                later.bytes[later.length..later.length + option.len()].copy_from_slice(option);
                later.length += option.len();
            }
            options = next;
        }
        later.length = later.length.next_multiple_of(4);
        later.bytes[0] = 0x40 | (later.length / 4) as u8;
        later
    }

    /// Bytes of data beside this header in a packet of `mtu` bytes: a multiple of eight.
    fn room(&self, mtu: usize) -> usize {
        mtu.saturating_sub(self.length) & !7
    }
}

/// Cuts one packet; returns why it could not be, if so.
fn cut(pool: &mut Pool, packet: &Frame, out: &mut Outlets) -> Result<(), DropReason> {
    let layout = packet.layout;
    let (network, start, end) = (
        usize::from(layout.network),
        usize::from(layout.transport),
        usize::from(layout.end),
    );
    let data = packet.data();
    let (Some(header), Some(body)) = (data.get(network..start), data.get(start..end)) else {
        return Err(DropReason::Ipv4HeaderLength);
    };
    if header.len() < IPV4_BYTES {
        return Err(DropReason::Ipv4HeaderLength);
    }
    let mtu = packet.mark as usize;
    let first = Header::of(header);
    let later = first.for_later();
    let (first_room, later_room) = (first.room(mtu), later.room(mtu));
    if first_room == 0 {
        return Err(DropReason::FragmentationNeeded);
    }
    let field = packet::be16(header, 6);
    let rest = body.len().saturating_sub(first_room);
    if pool.available() < 1 + rest.div_ceil(later_room) {
        return Err(DropReason::PoolExhausted);
    }
    let mut at = 0;
    while at < body.len() {
        let (header, room) = if at == 0 {
            (&first, first_room)
        } else {
            (&later, later_room)
        };
        let length = room.min(body.len() - at);
        let last = at + length == body.len();
        let more = if last {
            field & MORE_FRAGMENTS
        } else {
            MORE_FRAGMENTS
        };
        // The offset is in units of eight bytes, and the sum stays within 13 bits, because the validating
        // pass made sure that the datagram ends below 65,536.
        let offset = (field & OFFSET_MASK) + (at / 8) as u16;
        let fragment = emit(pool, packet, header, &body[at..at + length], more | offset)
            .ok_or(DropReason::PoolExhausted)?;
        out.push(OUT, fragment);
        at += length;
    }
    Ok(())
}

fn emit(pool: &mut Pool, of: &Frame, header: &Header, data: &[u8], field: u16) -> Option<Frame> {
    let mut frame = pool.alloc()?;
    let total = header.length + data.len();
    if !frame.set_len(ETHERNET_BYTES + total) {
        pool.free(frame);
        return None;
    }
    packet::begin_like(&mut frame, of, ether_type::IPV4);
    let packet = &mut frame.data_mut()[ETHERNET_BYTES..];
    let (to_header, to_data) = packet.split_at_mut(header.length);
    to_header.copy_from_slice(&header.bytes[..header.length]);
    to_data.copy_from_slice(data);
    packet::put_be16(to_header, 2, total as u16);
    packet::put_be16(to_header, 6, field);
    packet::set_ipv4_checksum(to_header);
    frame.rx_port = of.rx_port;
    frame.timestamp_ns = of.timestamp_ns;
    frame.flags = FrameFlags::LOCAL;
    let transport = (ETHERNET_BYTES + header.length) as u16;
    frame.layout = Layout {
        flags: LayoutFlags::IPV4 | LayoutFlags::FRAGMENT,
        network: ETHERNET_BYTES as u16,
        transport,
        payload: transport,
        end: frame.len() as u16,
        protocol: of.layout.protocol,
        ..Layout::default()
    };
    if field & OFFSET_MASK != 0 {
        frame.layout.flags |= LayoutFlags::LATER_FRAGMENT;
    }
    Some(frame)
}

impl Node for Ip4Fragment {
    fn name(&self) -> &str {
        "ip4-fragment"
    }

    fn edges(&self) -> &[&'static str] {
        EDGES
    }

    fn process(&mut self, cx: &mut Context<'_>, batch: &mut Batch, out: &mut Outlets) {
        for packet in batch.drain() {
            match cut(cx.pool, &packet, out) {
                Ok(()) => out.consume(packet),
                Err(reason) => out.drop(packet, reason),
            }
        }
    }
}
