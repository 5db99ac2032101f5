//! `reassemble`: gathers the fragments of datagrams for the node, and does with the whole what `local` does
//! with a packet: answers echo requests, and refuses what nobody here listens to.

use graph::{Context, EdgeId, Node, Outlets};
use io::{Batch, Frame, FrameFlags};
use wire::checksum::{self, Sum};
use wire::{DropReason, Instant, LayoutFlags, MacAddr, ip_protocol, ipv4, ipv6};

use super::table::{Added, Fragment, Fragments, Key};
use crate::nodes::cause::Cause;
use crate::packet::{self, IPV4_BYTES, IPV6_BYTES};
use crate::prefix::mapped;

const IP4: EdgeId = EdgeId(0);
const IP6: EdgeId = EdgeId(1);
const ERROR: EdgeId = EdgeId(2);
const EDGES: &[&str] = &["ip4", "ip6", "error"];

/// One in so many of a pool's frames may wait for the rest of a datagram.
const WAITING_SHARE: usize = 8;
const ECHO_REQUEST: u8 = 8;
const ECHO_REQUEST6: u8 = 128;
const ECHO_REPLY6: u8 = 129;
/// TTL and hop limit of what the node sends.
const TTL: u8 = 64;
/// Room for the fragments of one datagram, in their order.
type Row = Vec<Fragment>;

/// Takes fragments to the node's own unicast addresses.
#[derive(Debug)]
pub struct Reassemble {
    fragments: Fragments,
    row: Row,
}

/// What a fragment says about itself.
struct Piece {
    key: Key,
    offset: u16,
    more: bool,
    protocol: u8,
    start: u16,
}

impl Piece {
    fn read(frame: &Frame) -> Option<Self> {
        let layout = &frame.layout;
        let data = frame.data();
        if layout.flags.contains(LayoutFlags::IPV4) {
            let view = ipv4::View::new(layout.packet(data)).ok()?;
            let start = layout.end - view.payload().len() as u16; // a packet is at most 65,535 bytes
            return Some(Self {
                key: Key {
                    source: mapped(&view.source().into()),
                    destination: mapped(&view.destination().into()),
                    identification: view.identification().into(),
                    protocol: view.protocol(),
                },
                offset: view.fragment_offset_bytes(),
                more: view.more_fragments(),
                protocol: view.protocol(),
                start,
            });
        }
        let (source, destination) = layout.ipv6_addresses(data)?;
        let (header, at) = ipv6::FragmentHeader::find(layout, data)?;
        Some(Self {
            key: Key {
                source: source.octets(),
                destination: destination.octets(),
                identification: header.identification,
                protocol: 0,
            },
            offset: header.offset_bytes,
            more: header.more,
            protocol: header.next_header,
            start: at as u16 + ipv6::FRAGMENT_HEADER_BYTES as u16, // inside of the frame
        })
    }
}

impl Reassemble {
    /// Makes the node of a worker whose pool has `pool_frames` frames.
    pub fn new(pool_frames: usize) -> Self {
        Self {
            fragments: Fragments::new((pool_frames / WAITING_SHARE).max(1)),
            row: Vec::with_capacity(super::table::FRAGMENTS_MAX),
        }
    }

    fn take(&mut self, frame: Frame, now: Instant, out: &mut Outlets) {
        let Some(piece) = Piece::read(&frame) else {
            out.drop(frame, DropReason::FragmentMalformed);
            return;
        };
        let fragment = Fragment {
            offset: piece.offset,
            start: piece.start,
            bytes: frame.layout.end.saturating_sub(piece.start),
            frame,
        };
        let drop = |frame: Frame, reason| out.drop(frame, reason);
        let added = self
            .fragments
            .add(&piece.key, fragment, piece.more, now, drop);
        if added == Added::Whole {
            let row = &mut self.row;
            self.fragments
                .take(&piece.key, |fragment| row.push(fragment));
            whole(&mut self.row, piece.protocol, out);
        }
    }
}

/// Does what the whole datagram asks for; empties the row.
fn whole(row: &mut Row, protocol: u8, out: &mut Outlets) {
    let Some(first) = row.first() else { return };
    let v4 = first.frame.layout.flags.contains(LayoutFlags::IPV4);
    let kind = first.data().first().copied();
    if !is_valid(row, protocol, v4) {
        drop_all(row, DropReason::TransportChecksum, out);
        return;
    }
    match (protocol, kind) {
        (ip_protocol::ICMP, Some(ECHO_REQUEST)) if v4 => {
            for fragment in row.drain(..) {
                out.push(IP4, echo_reply4(fragment));
            }
        }
        (ip_protocol::ICMPV6, Some(ECHO_REQUEST6)) if !v4 => echo_reply6(row, out),
        // RFC 6980 5: neighbour discovery does not come in fragments.
        (ip_protocol::ICMPV6, Some(133..=137)) if !v4 => {
            drop_all(row, DropReason::NeighbourDiscovery, out);
        }
        (ip_protocol::ICMP, _) if v4 => consume_all(row, out),
        (ip_protocol::ICMPV6, _) if !v4 => consume_all(row, out),
        (ip_protocol::TCP | ip_protocol::UDP, _) => {
            refuse(
                row,
                Cause::PortUnreachable.mark(0),
                DropReason::PortUnreachable,
                out,
            );
        }
        _ => {
            // The fragment header names the protocol (RFC 4443 3.4).
            let cause = Cause::ProtocolUnknown.mark(IPV6_BYTES as u16);
            refuse(row, cause, DropReason::ProtocolUnknown, out);
        }
    }
}

/// Tells the sender by an error about the first fragment; the others are dropped for the same reason.
fn refuse(row: &mut Row, mark: u32, reason: DropReason, out: &mut Outlets) {
    for mut fragment in row.drain(..) {
        if fragment.offset == 0 {
            fragment.frame.mark = mark;
            out.push(ERROR, fragment.frame);
        } else {
            out.drop(fragment.frame, reason);
        }
    }
}

fn drop_all(row: &mut Row, reason: DropReason, out: &mut Outlets) {
    row.drain(..)
        .for_each(|fragment| out.drop(fragment.frame, reason));
}

fn consume_all(row: &mut Row, out: &mut Outlets) {
    row.drain(..)
        .for_each(|fragment| out.consume(fragment.frame));
}

/// Checks the transport checksum over all fragments. All but the last have an even length, so that sums of
/// parts are parts of the sum.
fn is_valid(row: &Row, protocol: u8, v4: bool) -> bool {
    let Some(first) = row.first() else {
        return false;
    };
    let length: u32 = row.iter().map(|fragment| u32::from(fragment.bytes)).sum();
    let (layout, data) = (&first.frame.layout, first.frame.data());
    let checked = match protocol {
        ip_protocol::ICMP => v4,
        ip_protocol::ICMPV6 => !v4,
        ip_protocol::TCP => true,
        // RFC 768: a checksum of zero over IPv4 is none.
        ip_protocol::UDP => !v4 || packet::be16(first.data(), 6) != 0,
        _ => false,
    };
    if !checked {
        return true;
    }
    let start = match (layout.ipv4_addresses(data), layout.ipv6_addresses(data)) {
        (Some(_), _) if protocol == ip_protocol::ICMP => Sum::ZERO,
        // A datagram of IPv4 is at most 65,535 bytes.
        (Some((from, to)), _) => checksum::pseudo_header_ipv4(from, to, protocol, length as u16),
        (_, Some((from, to))) => checksum::pseudo_header_ipv6(from, to, protocol, length),
        (None, None) => return false,
    };
    let sum = row
        .iter()
        .fold(start, |sum, fragment| sum.add_bytes(fragment.data()));
    sum.is_valid()
}

/// Makes a fragment of an echo request the same fragment of the reply.
fn echo_reply4(mut fragment: Fragment) -> Frame {
    let network = usize::from(fragment.frame.layout.network);
    let transport = usize::from(fragment.start);
    if fragment.offset == 0 {
        reply_type(&mut fragment, 0);
    }
    let data = fragment.frame.data_mut();
    if let Some(header) = data.get_mut(network..transport)
        && header.len() >= IPV4_BYTES
    {
        let (source, destination) = header[12..20].split_at_mut(4);
        source.swap_with_slice(destination);
        header[8] = TTL;
        header[6] &= 0x3f; // it may be fragmented further
        packet::set_ipv4_checksum(header);
    }
    finish(fragment.frame)
}

fn echo_reply6(row: &mut Row, out: &mut Outlets) {
    for mut fragment in row.drain(..) {
        let network = usize::from(fragment.frame.layout.network);
        // Other extension headers would have to be judged before they are sent back.
        if usize::from(fragment.start) != network + IPV6_BYTES + ipv6::FRAGMENT_HEADER_BYTES {
            out.drop(fragment.frame, DropReason::Ipv6ExtensionHeader);
            continue;
        }
        if fragment.offset == 0 {
            // The pseudo-header is the same in both directions.
            reply_type(&mut fragment, ECHO_REPLY6);
        }
        let data = fragment.frame.data_mut();
        if let Some(header) = packet::bytes_mut::<IPV6_BYTES>(data, network) {
            let (source, destination) = header[8..].split_at_mut(16);
            source.swap_with_slice(destination);
            header[7] = TTL;
        }
        out.push(IP6, finish(fragment.frame));
    }
}

/// Changes the type of an ICMP message, and its checksum by the difference (RFC 1624).
fn reply_type(fragment: &mut Fragment, kind: u8) {
    let transport = usize::from(fragment.start);
    let data = fragment.frame.data_mut();
    if let Some([old, code, high, low]) = packet::bytes_mut::<4>(data, transport) {
        let sum = u16::from_be_bytes([*high, *low]);
        let was = u16::from_be_bytes([*old, *code]);
        let is = u16::from_be_bytes([kind, *code]);
        *old = kind;
        [*high, *low] = checksum::update_u16(sum, was, is).to_be_bytes();
    }
}

fn finish(mut frame: Frame) -> Frame {
    // The request came to this MAC address.
    let own = packet::bytes::<6>(frame.data(), 0).map_or(MacAddr::ZERO, |own| MacAddr(*own));
    packet::turn_around(frame.data_mut(), own);
    frame.layout.flags -= LayoutFlags::DONT_FRAGMENT
        | LayoutFlags::L2_GROUP
        | LayoutFlags::L2_BROADCAST
        | LayoutFlags::L3_GROUP;
    frame.flags |= FrameFlags::LOCAL;
    frame
}

impl Node for Reassemble {
    fn name(&self) -> &str {
        "reassemble"
    }

    fn edges(&self) -> &[&'static str] {
        EDGES
    }

    fn process(&mut self, cx: &mut Context<'_>, batch: &mut Batch, out: &mut Outlets) {
        for frame in batch.drain() {
            self.take(frame, cx.now, out);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.fragments.poll_timeout()
    }

    fn handle_timeout(&mut self, cx: &mut Context<'_>, out: &mut Outlets) {
        self.fragments.expire(cx.now, |mut fragment, is_start| {
            if is_start {
                // RFC 1122 3.3.2, RFC 8200 4.5: the sender is told, if the start is there to quote.
                fragment.frame.mark = Cause::ReassemblyTimeout.mark(0);
                out.push(ERROR, fragment.frame);
            } else {
                out.drop(fragment.frame, DropReason::ReassemblyTimeout);
            }
        });
    }

    fn stop(&mut self, _cx: &mut Context<'_>, out: &mut Outlets) {
        self.fragments
            .clear(|frame| out.drop(frame, DropReason::Shutdown));
    }
}
