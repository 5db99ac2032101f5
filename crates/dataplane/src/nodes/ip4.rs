//! `ip4-forward` and `ip4-output`: routes IPv4 packets (RFC 1812 5.2 and 5.3), received ones and the
//! node's own.

use std::net::Ipv4Addr;
use std::sync::Arc;

use graph::{Context, EdgeId, Node, Outlets, Snapshot};
use io::{Batch, Frame};
use wire::{DropReason, Instant, Layout, LayoutFlags};

use super::adjacency::{Adjacencies, Adjacency, Ways};
use super::cause::Cause;
use super::verdict::{Verdict, judge};
use crate::forwarding::{Forwarding, Route};
use crate::neighbour::table::{Key, Table};
use crate::packet::{self, IPV4_BYTES};
use crate::plan::InterfaceId;

const TX: EdgeId = EdgeId(0);
const BRIDGE: EdgeId = EdgeId(1);
const RESOLVE: EdgeId = EdgeId(2);
const ERROR: EdgeId = EdgeId(3);
const FRAGMENT: EdgeId = EdgeId(4);
const LOCAL: EdgeId = EdgeId(5);
const FORWARD_EDGES: &[&str] = &["tx", "bridge", "resolve", "error", "fragment", "local"];
const OUTPUT_EDGES: &[&str] = &["tx", "bridge", "resolve", "error", "fragment"];

const WAYS: Ways = Ways {
    tx: Verdict::edge(TX),
    bridge: Verdict::edge(BRIDGE),
    resolve: Verdict::edge(RESOLVE),
};

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
    adjacencies: Adjacencies,
}

impl Router {
    fn new(forwarding: Arc<Forwarding>, neighbours: Arc<Table>) -> Self {
        Self {
            forwarding,
            neighbours,
            adjacencies: Adjacencies::new(),
        }
    }

    /// Returns the way by one of a route's next hops.
    #[inline]
    fn adjacency(
        &mut self,
        frame: &Frame,
        (first, count): (u32, u32),
        destination: u32,
        now: Instant,
    ) -> Option<&Adjacency> {
        let secret = self.forwarding.flow_secret();
        let index = Route::choose(first, count, || packet::flow_hash(frame, secret));
        self.adjacencies
            .get4(&self.forwarding, &self.neighbours, index, destination, now)
    }
}

impl Ip4Forward {
    /// Makes the node.
    pub fn new(forwarding: Arc<Forwarding>, neighbours: Arc<Table>) -> Self {
        Self(Router::new(forwarding, neighbours))
    }

    #[inline]
    fn forward(&mut self, frame: &mut Frame, now: Instant) -> Verdict {
        let layout = frame.layout;
        let header = packet::bytes::<IPV4_BYTES>(frame.data(), usize::from(layout.network));
        let Some(header) = header else {
            return Verdict::drop(DropReason::Ipv4Truncated);
        };
        let source = packet::be32(header, 12);
        let destination = packet::be32(header, 16);
        let ttl = header[8];
        // One test lets nearly all packets past the checks that few need.
        let odd =
            layout.flags.intersects(ODD_FLAGS) || is_odd(source) || is_odd(destination) || ttl <= 1;
        if odd && let Some(verdict) = judge_odd(frame, source, destination) {
            return verdict;
        }
        let hops = match self.0.forwarding.route4(&destination.to_be_bytes()) {
            Some(Route::Forward { first, count }) => (first, count),
            other => return self.not_forwarded(frame, other),
        };
        if odd && let Some(verdict) = judge_odd_forward(frame, source, destination, ttl) {
            return verdict;
        }
        let Some(adjacency) = self.0.adjacency(frame, hops, destination, now) else {
            return Verdict::drop(DropReason::PortDown);
        };
        if layout.end - layout.network > adjacency.mtu {
            return too_long(frame, adjacency.mtu);
        }
        adjacency.forward4(frame, &WAYS)
    }

    #[cold]
    fn not_forwarded(&self, frame: &mut Frame, route: Option<Route>) -> Verdict {
        match route {
            Some(Route::Local) => Verdict::edge(LOCAL),
            Some(Route::Blackhole) => Verdict::drop(DropReason::RouteBlackhole),
            // A broadcast to the link that it came from is for the node too; a directed broadcast to
            // another link is not forwarded (RFC 2644).
            Some(Route::Broadcast(interface))
                if self.0.forwarding.interface_of(frame.rx_port) == Some(interface) =>
            {
                Verdict::edge(LOCAL)
            }
            Some(Route::Broadcast(_)) => Verdict::drop(DropReason::LinkLocalForward),
            _ => {
                frame.mark = Cause::NoRoute.mark(0);
                Verdict::edge(ERROR)
            }
        }
    }
}

impl Ip4Output {
    /// Makes the node.
    pub fn new(forwarding: Arc<Forwarding>, neighbours: Arc<Table>) -> Self {
        Self(Router::new(forwarding, neighbours))
    }

    fn output(&mut self, frame: &mut Frame, now: Instant) -> Verdict {
        let layout = frame.layout;
        let network = usize::from(layout.network);
        let Some(&destination) = packet::bytes::<4>(frame.data(), network + 16) else {
            return Verdict::drop(DropReason::Ipv4Truncated);
        };
        let hops = match self.0.forwarding.route4(&destination) {
            Some(Route::Forward { first, count }) => (first, count),
            Some(Route::Blackhole) => return Verdict::drop(DropReason::RouteBlackhole),
            // The node does not talk to itself, nor does it broadcast.
            _ => return Verdict::drop(DropReason::NoRoute),
        };
        let destination = u32::from_be_bytes(destination);
        let Some(adjacency) = self.0.adjacency(frame, hops, destination, now) else {
            return Verdict::drop(DropReason::PortDown);
        };
        if layout.end - layout.network > adjacency.mtu {
            // An error that is too long for its way back is nothing to tell anyone about.
            if layout.flags.contains(LayoutFlags::DONT_FRAGMENT) {
                return Verdict::drop(DropReason::FragmentationNeeded);
            }
            frame.mark = u32::from(adjacency.mtu);
            return Verdict::edge(FRAGMENT);
        }
        adjacency.send(frame, &WAYS)
    }
}

/// The first half of a link-local address (RFC 3927).
const LINK_LOCAL: u32 = 0xa9fe;
/// What makes a packet one of the few that need a closer look.
const ODD_FLAGS: LayoutFlags = LayoutFlags::OPTIONS
    .union(LayoutFlags::L2_GROUP)
    .union(LayoutFlags::L3_GROUP);

/// Tells whether an address may be one that is not plain unicast, by its first octet: networks 0 and 127,
/// link-local, multicast and beyond.
#[inline]
const fn is_odd(address: u32) -> bool {
    let first = (address >> 24) as u8;
    first.wrapping_sub(1) >= 223 || first == 127 || first == (LINK_LOCAL >> 8) as u8
}

/// Judges an odd packet before it is routed, if that is enough.
#[cold]
fn judge_odd(frame: &Frame, source: u32, destination: u32) -> Option<Verdict> {
    if is_no_source(source) {
        return Some(Verdict::drop(DropReason::Ipv4Source)); // RFC 1812 5.3.7
    }
    if frame.layout.flags.contains(LayoutFlags::OPTIONS) && has_source_route(frame) {
        return Some(Verdict::drop(DropReason::Ipv4Options));
    }
    beyond_unicast(&frame.layout, destination)
}

/// Judges an odd packet that is to be forwarded, if it is not.
#[cold]
fn judge_odd_forward(frame: &mut Frame, source: u32, destination: u32, ttl: u8) -> Option<Verdict> {
    // RFC 1812 5.3.4: what came as a link-layer broadcast goes no further. RFC 3927 7: nor does what has a
    // link-local address.
    let link_local = source >> 16 == LINK_LOCAL || destination >> 16 == LINK_LOCAL;
    if frame.layout.flags.contains(LayoutFlags::L2_GROUP) || link_local {
        return Some(Verdict::drop(DropReason::LinkLocalForward));
    }
    (ttl <= 1).then(|| {
        frame.mark = Cause::TtlExceeded.mark(0);
        Verdict::edge(ERROR)
    })
}

/// Judges a packet to be forwarded that is longer than the next link takes.
#[cold]
fn too_long(frame: &mut Frame, mtu: u16) -> Verdict {
    if frame.layout.flags.contains(LayoutFlags::DONT_FRAGMENT) {
        frame.mark = Cause::TooBig.mark(mtu);
        return Verdict::edge(ERROR);
    }
    let network = usize::from(frame.layout.network);
    if let Some(header) = packet::bytes_mut(frame.data_mut(), network) {
        wire::ipv4::decrement_ttl(header);
    }
    frame.mark = u32::from(mtu);
    Verdict::edge(FRAGMENT)
}

/// Tells whether no host may send from the packet's source.
fn is_no_source(source: u32) -> bool {
    source == 0 || wire::address::is_martian_source_ipv4(Ipv4Addr::from_bits(source))
}

/// Judges destinations that are not plain unicast: groups and the limited broadcast are for the node,
/// networks 0 and 127 for nobody, class E is forwarded as unicast (as Linux does).
fn beyond_unicast(layout: &Layout, destination: u32) -> Option<Verdict> {
    if layout.flags.contains(LayoutFlags::L3_GROUP) {
        Some(Verdict::edge(LOCAL))
    } else if matches!(destination >> 24, 0 | 127) {
        Some(Verdict::drop(DropReason::LinkLocalForward))
    } else {
        None
    }
}

/// Tells whether a packet wants to choose its own way (RFC 7126 4.3: routers drop such packets).
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
    let secret = forwarding.flow_secret();
    let index = Route::choose(first, count, || packet::flow_hash(frame, secret));
    let hop = forwarding
        .next_hop(index)
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
        self.0.adjacencies.start();
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
        self.0.adjacencies.start();
        judge(batch, out, |frame| self.output(frame, cx.now));
    }

    fn reload(&mut self, _cx: &mut Context<'_>, snapshot: &Snapshot, _out: &mut Outlets) {
        crate::adopt(&mut self.0.forwarding, snapshot);
    }
}
