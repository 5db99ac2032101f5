//! `ip4-forward` and `ip4-output`: routes IPv4 packets (RFC 1812 5.2 and 5.3), received ones and the
//! node's own.

use std::net::Ipv4Addr;
use std::sync::Arc;

use graph::{Context, EdgeId, Node, Outlets, Snapshot};
use io::{Batch, Frame};
use wire::{DropReason, Instant, LayoutFlags};

use super::cause::Cause;
use super::verdict::{Verdict, judge};
use crate::forwarding::{Forwarding, NextHop, Route};
use crate::neighbour::table::{Key, Table};
use crate::packet::{self, IPV4_BYTES};
use crate::plan::{InterfaceId, Link};

const TX: EdgeId = EdgeId(0);
const BRIDGE: EdgeId = EdgeId(1);
const RESOLVE: EdgeId = EdgeId(2);
const ERROR: EdgeId = EdgeId(3);
const FRAGMENT: EdgeId = EdgeId(4);
const LOCAL: EdgeId = EdgeId(5);
const FORWARD_EDGES: &[&str] = &["tx", "bridge", "resolve", "error", "fragment", "local"];
const OUTPUT_EDGES: &[&str] = &["tx", "bridge", "resolve", "error", "fragment"];

const ETHER_TYPE: u16 = 0x0800;

/// Routes IPv4 packets that were received.
#[derive(Debug)]
pub struct Ip4Forward(Router);

/// Routes IPv4 packets that the node made.
#[derive(Debug)]
pub struct Ip4Output(Router);

/// What both have in common.
#[derive(Debug)]
struct Router {
    forwarding: Arc<Forwarding>,
    neighbours: Arc<Table>,
}

impl Ip4Forward {
    /// Makes the node.
    pub fn new(forwarding: Arc<Forwarding>, neighbours: Arc<Table>) -> Self {
        Self(Router {
            forwarding,
            neighbours,
        })
    }

    #[inline]
    fn forward(&self, frame: &mut Frame, now: Instant) -> Verdict {
        let layout = frame.layout;
        let Some(header) =
            packet::bytes::<IPV4_BYTES>(frame.data(), usize::from(layout.network)).copied()
        else {
            return Verdict::Drop(DropReason::Ipv4Truncated);
        };
        let [.., s0, s1, _, _, d0, d1, d2, d3] = header;
        // RFC 1812 5.3.7. The first test lets no ordinary source through to the second.
        if (s0.wrapping_sub(1) >= 223 || s0 == 127) && is_no_source(&header) {
            return Verdict::Drop(DropReason::Ipv4Source);
        }
        if layout.flags.contains(LayoutFlags::OPTIONS) && has_source_route(frame) {
            return Verdict::Drop(DropReason::Ipv4Options);
        }
        if (d0.wrapping_sub(1) >= 223 || d0 == 127)
            && let Some(verdict) = beyond_unicast(frame, d0)
        {
            return verdict;
        }
        let destination = [d0, d1, d2, d3];
        let (first, count) = match self.0.forwarding.route4(&destination) {
            Some(Route::Forward { first, count }) => (first, count),
            Some(Route::Local) => return Verdict::Edge(LOCAL),
            other => return self.not_forwarded(frame, other),
        };
        // RFC 1812 5.3.4: what came as a link-layer broadcast goes no further. RFC 3927 7: nor does what
        // has a link-local address.
        let link_local =
            u16::from_be_bytes([s0, s1]) == 0xa9fe || u16::from_be_bytes([d0, d1]) == 0xa9fe;
        if layout.flags.contains(LayoutFlags::L2_GROUP) || link_local {
            return Verdict::Drop(DropReason::LinkLocalForward);
        }
        if header[8] <= 1 {
            frame.mark = Cause::TtlExceeded.mark(0);
            return Verdict::Edge(ERROR);
        }
        let hash = if count > 1 {
            packet::flow_hash(frame)
        } else {
            0
        };
        let Some(hop) = self.0.forwarding.next_hop(first, count, hash) else {
            return Verdict::Drop(DropReason::NoRoute);
        };
        self.0.send(frame, hop, destination, true, now)
    }

    #[cold]
    fn not_forwarded(&self, frame: &mut Frame, route: Option<Route>) -> Verdict {
        match route {
            Some(Route::Blackhole) => Verdict::Drop(DropReason::RouteBlackhole),
            // A broadcast to the link that it came from is for the node too; a directed broadcast to
            // another link is not forwarded (RFC 2644).
            Some(Route::Broadcast(interface))
                if self.0.forwarding.interface_of(frame.rx_port) == Some(interface) =>
            {
                Verdict::Edge(LOCAL)
            }
            Some(Route::Broadcast(_)) => Verdict::Drop(DropReason::LinkLocalForward),
            _ => {
                frame.mark = Cause::NoRoute.mark(0);
                Verdict::Edge(ERROR)
            }
        }
    }
}

impl Ip4Output {
    /// Makes the node.
    pub fn new(forwarding: Arc<Forwarding>, neighbours: Arc<Table>) -> Self {
        Self(Router {
            forwarding,
            neighbours,
        })
    }

    fn output(&self, frame: &mut Frame, now: Instant) -> Verdict {
        let network = usize::from(frame.layout.network);
        let Some(&destination) = packet::bytes::<4>(frame.data(), network + 16) else {
            return Verdict::Drop(DropReason::Ipv4Truncated);
        };
        match self.0.forwarding.route4(&destination) {
            Some(Route::Forward { first, count }) => {
                let hash = if count > 1 {
                    packet::flow_hash(frame)
                } else {
                    0
                };
                match self.0.forwarding.next_hop(first, count, hash) {
                    Some(hop) => self.0.send(frame, hop, destination, false, now),
                    None => Verdict::Drop(DropReason::NoRoute),
                }
            }
            Some(Route::Blackhole) => Verdict::Drop(DropReason::RouteBlackhole),
            // The node does not talk to itself, nor does it broadcast.
            _ => Verdict::Drop(DropReason::NoRoute),
        }
    }
}

impl Router {
    /// Sends a packet to its next hop: MTU, TTL (of a forwarded one), MAC addresses.
    #[inline]
    fn send(
        &self,
        frame: &mut Frame,
        hop: &NextHop,
        destination: [u8; 4],
        forwarded: bool,
        now: Instant,
    ) -> Verdict {
        let Some(interface) = self.forwarding.interface(hop.interface) else {
            return Verdict::Drop(DropReason::PortDown);
        };
        let layout = frame.layout;
        let too_long = layout.end - layout.network > interface.mtu;
        if too_long && layout.flags.contains(LayoutFlags::DONT_FRAGMENT) {
            frame.mark = Cause::TooBig.mark(interface.mtu);
            return Verdict::Edge(ERROR);
        }
        if forwarded
            && let Some(header) = packet::bytes_mut(frame.data_mut(), layout.network.into())
        {
            packet::decrement_ttl(header);
        }
        if too_long {
            frame.mark = u32::from(interface.mtu);
            return Verdict::Edge(FRAGMENT);
        }
        let key = match hop.gateway {
            Some(gateway) => Key::new(hop.interface, gateway),
            None => Key::v4(hop.interface, destination),
        };
        let Some(mac) = self.neighbours.mac_of(&key, now) else {
            frame.mark = u32::from(hop.interface.0);
            return Verdict::Edge(RESOLVE);
        };
        packet::set_ethernet(frame, mac, interface.mac, ETHER_TYPE);
        match interface.link {
            Link::Port(port) => {
                frame.tx_port = port;
                Verdict::Edge(TX)
            }
            Link::Bridge(bridge) => {
                frame.mark = u32::from(bridge.0);
                Verdict::Edge(BRIDGE)
            }
        }
    }
}

/// Tells whether no host may send from the packet's source.
#[cold]
fn is_no_source(header: &[u8; IPV4_BYTES]) -> bool {
    let source = Ipv4Addr::new(header[12], header[13], header[14], header[15]);
    source.is_unspecified() || wire::address::is_martian_source_ipv4(source)
}

/// Judges destinations that are not plain unicast: groups and the limited broadcast are for the node,
/// networks 0 and 127 for nobody, class E is forwarded as unicast (as Linux does).
#[cold]
fn beyond_unicast(frame: &Frame, first_octet: u8) -> Option<Verdict> {
    if frame.layout.flags.contains(LayoutFlags::L3_GROUP) {
        Some(Verdict::Edge(LOCAL))
    } else if first_octet >= 240 {
        None
    } else {
        Some(Verdict::Drop(DropReason::LinkLocalForward))
    }
}

/// Tells whether a packet wants to choose its own way (RFC 7126 4.3: routers drop such packets).
#[cold]
fn has_source_route(frame: &Frame) -> bool {
    let layout = &frame.layout;
    let start = usize::from(layout.network) + IPV4_BYTES;
    let mut options = frame
        .data()
        .get(start..layout.transport.into())
        .unwrap_or_default();
    while let [kind, rest @ ..] = options {
        match kind {
            0 => return false,
            1 => options = rest,
            0x83 | 0x89 => return true,
            _ => {
                // The validating pass made sure that each option is at least two bytes and fits.
                let length = rest.first().map_or(2, |l| usize::from(*l)).max(2);
                options = options.get(length..).unwrap_or_default();
            }
        }
    }
    false
}

/// Finds the next hop of an IPv4 packet anew, for the slow path.
pub(crate) fn next_hop_key(
    forwarding: &Forwarding,
    frame: &Frame,
    interface: InterfaceId,
) -> Option<Key> {
    let network = usize::from(frame.layout.network);
    let destination = packet::bytes::<4>(frame.data(), network + 16)?;
    let Some(Route::Forward { first, count }) = forwarding.route4(destination) else {
        return None;
    };
    let hash = if count > 1 {
        packet::flow_hash(frame)
    } else {
        0
    };
    let hop = forwarding
        .next_hop(first, count, hash)
        .filter(|hop| hop.interface == interface)?;
    Some(match hop.gateway {
        Some(gateway) => Key::new(interface, gateway),
        None => Key::v4(interface, *destination),
    })
}

impl Node for Ip4Forward {
    fn name(&self) -> &str {
        "ip4-forward"
    }

    fn edges(&self) -> &[&'static str] {
        FORWARD_EDGES
    }

    fn process(&mut self, cx: &mut Context<'_>, batch: &mut Batch, out: &mut Outlets) {
        judge(batch, out, |frame| self.forward(frame, cx.now));
    }

    fn reload(&mut self, _cx: &mut Context<'_>, snapshot: &Snapshot, _out: &mut Outlets) {
        crate::adopt(&mut self.0.forwarding, snapshot);
    }
}

impl Node for Ip4Output {
    fn name(&self) -> &str {
        "ip4-output"
    }

    fn edges(&self) -> &[&'static str] {
        OUTPUT_EDGES
    }

    fn process(&mut self, cx: &mut Context<'_>, batch: &mut Batch, out: &mut Outlets) {
        judge(batch, out, |frame| self.output(frame, cx.now));
    }

    fn reload(&mut self, _cx: &mut Context<'_>, snapshot: &Snapshot, _out: &mut Outlets) {
        crate::adopt(&mut self.0.forwarding, snapshot);
    }
}
