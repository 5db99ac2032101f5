//! `ip6-forward` and `ip6-output`: routes IPv6 packets (RFC 8200, RFC 4291), received ones and the
//! node's own.

use std::net::Ipv6Addr;
use std::sync::Arc;

use graph::{Context, EdgeId, Node, Outlets, Snapshot};
use io::{Batch, Frame};
use wire::{DropReason, Instant, LayoutFlags};

use super::adjacency::{Adjacency, Ways};
use super::cause::Cause;
use super::verdict::{Verdict, judge};
use crate::forwarding::{Forwarding, NextHop, Route};
use crate::neighbour::table::{Key, Table};
use crate::packet::{self, IPV6_BYTES};
use crate::plan::InterfaceId;

const TX: EdgeId = EdgeId(0);
const BRIDGE: EdgeId = EdgeId(1);
const RESOLVE: EdgeId = EdgeId(2);
const ERROR: EdgeId = EdgeId(3);
const LOCAL: EdgeId = EdgeId(4);
const FORWARD_EDGES: &[&str] = &["tx", "bridge", "resolve", "error", "local"];
const OUTPUT_EDGES: &[&str] = &["tx", "bridge", "resolve", "error"];

const ETHER_TYPE: u16 = 0x86dd;
const WAYS: Ways = Ways {
    tx: Verdict::edge(TX),
    bridge: Verdict::edge(BRIDGE),
    resolve: Verdict::edge(RESOLVE),
};

/// Routes IPv6 packets that were received.
#[derive(Debug)]
pub struct Ip6Forward(Router);

/// Routes IPv6 packets that the node made.
#[derive(Debug)]
pub struct Ip6Output(Router);

/// What both have in common.
#[derive(Debug)]
struct Router {
    forwarding: Arc<Forwarding>,
    neighbours: Arc<Table>,
}

/// What an address says about where its packets may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// Anywhere.
    Global,
    /// This link only (RFC 4291 2.5.6).
    LinkLocal,
    /// A group (RFC 4291 2.7).
    Multicast,
    /// No interface may have it on a link: unspecified, loopback, IPv4-mapped.
    Never,
}

fn scope(address: &[u8; 16]) -> Scope {
    match address {
        [0xff, ..] => Scope::Multicast,
        [0xfe, second, ..] if second & 0xc0 == 0x80 => Scope::LinkLocal,
        [0, ..] => {
            let address = Ipv6Addr::from(*address);
            let never = address.is_unspecified()
                || address.is_loopback()
                || address.to_ipv4_mapped().is_some();
            if never { Scope::Never } else { Scope::Global }
        }
        _ => Scope::Global,
    }
}

impl Ip6Forward {
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
        let network = usize::from(layout.network);
        let data = frame.data();
        let (Some(&hop_limit), Some(&source), Some(&destination)) = (
            data.get(network + 7),
            packet::bytes::<16>(data, network + 8),
            packet::bytes::<16>(data, network + 24),
        ) else {
            return Verdict::drop(DropReason::Ipv6Truncated);
        };
        let (from, to) = (scope(&source), scope(&destination));
        if from != Scope::Global || to != Scope::Global {
            return self.scoped(frame, &source, &destination);
        }
        let (first, count) = match self.0.forwarding.route6(&destination) {
            Some(Route::Forward { first, count }) => (first, count),
            other => return self.not_forwarded(frame, other),
        };
        if layout.flags.contains(LayoutFlags::L2_GROUP) {
            return Verdict::drop(DropReason::LinkLocalForward);
        }
        if hop_limit <= 1 {
            frame.mark = Cause::TtlExceeded.mark(0);
            return Verdict::edge(ERROR);
        }
        let secret = self.0.forwarding.flow_secret();
        let index = Route::choose(first, count, || packet::flow_hash(frame, secret));
        let Some(hop) = self.0.forwarding.next_hop(index) else {
            return Verdict::drop(DropReason::NoRoute);
        };
        self.0.send(frame, hop, destination, true, now)
    }

    /// Packets whose source or destination is not a plain unicast address.
    #[cold]
    fn scoped(&self, frame: &mut Frame, source: &[u8; 16], destination: &[u8; 16]) -> Verdict {
        let Some(interface) = self.0.forwarding.interface_of(frame.rx_port) else {
            return Verdict::drop(DropReason::PortDown);
        };
        match scope(source) {
            Scope::Multicast => return Verdict::drop(DropReason::Ipv6Source),
            // Only duplicate address detection has no source, and it goes to a group (RFC 4862 5.4.2).
            Scope::Never if *source != [0; 16] || destination[0] != 0xff => {
                return Verdict::drop(DropReason::Ipv6Source);
            }
            _ => {}
        }
        match scope(destination) {
            // Reserved and interface-local groups never appear on a link (RFC 4291 2.7).
            Scope::Multicast if destination[1] & 0xf <= 1 => {
                Verdict::drop(DropReason::LinkLocalForward)
            }
            Scope::Multicast => Verdict::edge(LOCAL),
            Scope::Never => Verdict::drop(DropReason::LinkLocalForward),
            _ if self.0.forwarding.is_local6(destination, interface) => Verdict::edge(LOCAL),
            Scope::LinkLocal => Verdict::drop(DropReason::LinkLocalForward),
            Scope::Global => {
                // A link-local source may not be seen elsewhere (RFC 4443 3.1, code 2).
                frame.mark = Cause::BeyondScope.mark(0);
                Verdict::edge(ERROR)
            }
        }
    }

    #[cold]
    fn not_forwarded(&self, frame: &mut Frame, route: Option<Route>) -> Verdict {
        match route {
            Some(Route::Local) => Verdict::edge(LOCAL),
            Some(Route::Blackhole) => Verdict::drop(DropReason::RouteBlackhole),
            _ => {
                frame.mark = Cause::NoRoute.mark(0);
                Verdict::edge(ERROR)
            }
        }
    }
}

impl Ip6Output {
    /// Makes the node.
    pub fn new(forwarding: Arc<Forwarding>, neighbours: Arc<Table>) -> Self {
        Self(Router {
            forwarding,
            neighbours,
        })
    }

    fn output(&self, frame: &mut Frame, now: Instant) -> Verdict {
        let network = usize::from(frame.layout.network);
        let Some(&destination) = packet::bytes::<16>(frame.data(), network + 24) else {
            return Verdict::drop(DropReason::Ipv6Truncated);
        };
        if scope(&destination) == Scope::LinkLocal {
            // An answer goes back over the interface that the question came in by.
            return match self.0.forwarding.interface_of(frame.rx_port) {
                Some(interface) => {
                    let hop = NextHop {
                        interface,
                        gateway: None,
                    };
                    self.0.send(frame, &hop, destination, false, now)
                }
                None => Verdict::drop(DropReason::NoRoute),
            };
        }
        match self.0.forwarding.route6(&destination) {
            Some(Route::Forward { first, count }) => {
                let secret = self.0.forwarding.flow_secret();
                let index = Route::choose(first, count, || packet::flow_hash(frame, secret));
                match self.0.forwarding.next_hop(index) {
                    Some(hop) => self.0.send(frame, hop, destination, false, now),
                    None => Verdict::drop(DropReason::NoRoute),
                }
            }
            Some(Route::Blackhole) => Verdict::drop(DropReason::RouteBlackhole),
            _ => Verdict::drop(DropReason::NoRoute),
        }
    }
}

impl Router {
    #[inline]
    fn send(
        &self,
        frame: &mut Frame,
        hop: &NextHop,
        destination: [u8; 16],
        forwarded: bool,
        now: Instant,
    ) -> Verdict {
        let key = Key::new(hop.interface, hop.gateway.unwrap_or(destination));
        let found = Adjacency::look_up(&self.forwarding, &self.neighbours, &key, ETHER_TYPE, now);
        let Some(adjacency) = found else {
            return Verdict::drop(DropReason::PortDown);
        };
        let layout = frame.layout;
        if layout.end - layout.network > adjacency.mtu {
            // RFC 4443 3.2; an IPv6 link carries at least 1280 bytes, whatever the port was told.
            frame.mark = Cause::TooBig.mark(adjacency.mtu.max(1280));
            return Verdict::edge(ERROR);
        }
        if forwarded
            && let Some(header) =
                packet::bytes_mut::<IPV6_BYTES>(frame.data_mut(), layout.network.into())
        {
            header[7] = header[7].wrapping_sub(1);
        }
        adjacency.send(frame, &WAYS)
    }
}

/// Finds the next hop of an IPv6 packet anew, for the slow path.
pub(crate) fn next_hop_key(
    forwarding: &Forwarding,
    frame: &Frame,
    interface: InterfaceId,
) -> Option<Key> {
    let network = usize::from(frame.layout.network);
    let destination = packet::bytes::<16>(frame.data(), network + 24)?;
    if scope(destination) == Scope::LinkLocal {
        return Some(Key::new(interface, *destination));
    }
    let Some(Route::Forward { first, count }) = forwarding.route6(destination) else {
        return None;
    };
    let secret = forwarding.flow_secret();
    let index = Route::choose(first, count, || packet::flow_hash(frame, secret));
    let hop = forwarding
        .next_hop(index)
        .filter(|hop| hop.interface == interface)?;
    Some(Key::new(interface, hop.gateway.unwrap_or(*destination)))
}

impl Node for Ip6Forward {
    fn name(&self) -> &str {
        "ip6-forward"
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

impl Node for Ip6Output {
    fn name(&self) -> &str {
        "ip6-output"
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
