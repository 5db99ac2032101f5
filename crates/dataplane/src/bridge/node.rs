//! `bridge-NAME`: learns and forwards what a bridge's ports receive; `bridge-output`: what the node itself
//! sends over bridges.

use std::sync::Arc;

use graph::{Context, EdgeId, Node, Outlets, Snapshot};
use io::{BATCH_MAX, Batch, Frame, Pool, PortId};
use wire::{DropReason, MacAddr};

use super::table::{StationTable, Tick};
use crate::forwarding::Forwarding;
use crate::packet::{self, ETHERNET_BYTES};
use crate::plan::BridgeId;

const TX: EdgeId = EdgeId(0);
const HOST: EdgeId = EdgeId(1);
const BRIDGE_EDGES: &[&str] = &["tx", "host"];
const OUTPUT_EDGES: &[&str] = &["tx"];

/// What a frame may be longer than the MTU: the Ethernet header and one VLAN tag (as Linux), bytes.
const FRAME_OVERHEAD_BYTES: usize = ETHERNET_BYTES + 4;

/// Where a bridge sends a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// One port.
    Port(PortId),
    /// Every port but the one it came from, and the node itself if it is on the bridge.
    Flood,
    /// The node itself.
    Host,
    /// Nowhere.
    Drop(DropReason),
}

/// The input node of a bridge's ports.
#[derive(Debug)]
pub struct Bridge {
    name: String,
    id: BridgeId,
    forwarding: Arc<Forwarding>,
    stations: Arc<StationTable>,
    /// The node's own MAC address on the bridge, if it has addresses there.
    host: Option<MacAddr>,
}

impl Bridge {
    /// Makes the node of the bridge `id` called `name`, over its table of stations.
    pub fn new(
        id: BridgeId,
        name: &str,
        forwarding: Arc<Forwarding>,
        stations: Arc<StationTable>,
    ) -> Self {
        Self {
            name: format!("bridge-{name}"),
            id,
            host: host_mac(&forwarding, id),
            forwarding,
            stations,
        }
    }

    /// Decides by the two addresses: IEEE 802.1D 7.7 and 7.8.
    #[inline]
    fn target(&self, from: PortId, header: &[u8; 12], tick: Tick) -> Target {
        let [to @ .., _, _, _, _, _, _] = *header;
        let [_, _, _, _, _, _, source @ ..] = *header;
        let (to, source) = (MacAddr(to), MacAddr(source));
        if source.is_group() {
            return Target::Drop(DropReason::EthernetSource);
        }
        if to.is_bridge_reserved() {
            return Target::Drop(DropReason::BridgeReserved);
        }
        // Who uses the node's own address does not get its frames.
        if self.host != Some(source) {
            self.stations.learn(source, from, tick);
        }
        if to.is_group() {
            return Target::Flood;
        }
        if self.host == Some(to) {
            return Target::Host;
        }
        match self.stations.lookup(to, tick) {
            Some(port) if port == from => Target::Drop(DropReason::BridgeSamePort),
            Some(port) => Target::Port(port),
            None => Target::Flood,
        }
    }

    fn send(&self, cx: &mut Context<'_>, mut frame: Frame, target: Target, out: &mut Outlets) {
        match target {
            Target::Port(port) => {
                if fits(&self.forwarding, port, &frame) {
                    frame.tx_port = port;
                    out.push(TX, frame);
                } else {
                    out.drop(frame, DropReason::FrameTooLong);
                }
            }
            Target::Flood => {
                if self.host.is_some()
                    && is_group(&frame)
                    && let Some(copy) = copy_of(cx.pool, &frame)
                {
                    out.push(HOST, copy);
                }
                flood(&self.forwarding, self.id, cx.pool, frame, Some(()), out);
            }
            Target::Host => out.push(HOST, frame),
            Target::Drop(reason) => out.drop(frame, reason),
        }
    }
}

fn host_mac(forwarding: &Forwarding, id: BridgeId) -> Option<MacAddr> {
    let interface = forwarding.interface(forwarding.bridge(id)?.interface)?;
    (!interface.v4.is_empty() || interface.has_v6()).then_some(interface.mac)
}

fn is_group(frame: &Frame) -> bool {
    frame.data().first().is_some_and(|first| first & 1 == 1)
}

#[inline]
fn fits(forwarding: &Forwarding, port: PortId, frame: &Frame) -> bool {
    forwarding
        .ports()
        .get(port.index())
        .is_some_and(|port| frame.len() <= usize::from(port.mtu) + FRAME_OVERHEAD_BYTES)
}

/// Copies a frame into one of the pool's.
fn copy_of(pool: &mut Pool, frame: &Frame) -> Option<Frame> {
    let mut copy = pool.alloc()?;
    if !copy.fill(frame.data()) {
        pool.free(copy);
        return None;
    }
    copy.timestamp_ns = frame.timestamp_ns;
    copy.flow_hash = frame.flow_hash;
    copy.flags = frame.flags;
    copy.rx_port = frame.rx_port;
    copy.layout = frame.layout;
    Some(copy)
}

/// Sends a frame out of every port of a bridge but the one that received it (if it was `received`); the
/// last port gets the frame itself, the others copies. Ports that a copy was wanting for are left out;
/// the pool counts that.
fn flood(
    forwarding: &Forwarding,
    bridge: BridgeId,
    pool: &mut Pool,
    mut frame: Frame,
    received: Option<()>,
    out: &mut Outlets,
) {
    let ports = forwarding
        .bridge(bridge)
        .map_or(&[][..], |bridge| &bridge.ports);
    let from = received.map(|()| frame.rx_port);
    let mut others = ports.iter().copied().filter(|port| Some(*port) != from);
    let Some(mut last) = others.next() else {
        out.drop(frame, DropReason::BridgeNoPort);
        return;
    };
    for port in others {
        if fits(forwarding, last, &frame)
            && let Some(mut copy) = copy_of(pool, &frame)
        {
            copy.tx_port = last;
            out.push(TX, copy);
        }
        last = port;
    }
    if fits(forwarding, last, &frame) {
        frame.tx_port = last;
        out.push(TX, frame);
    } else {
        out.drop(frame, DropReason::FrameTooLong);
    }
}

impl Node for Bridge {
    fn name(&self) -> &str {
        &self.name
    }

    fn edges(&self) -> &[&'static str] {
        BRIDGE_EDGES
    }

    fn process(&mut self, cx: &mut Context<'_>, batch: &mut Batch, out: &mut Outlets) {
        let tick = Tick::at(cx.now);
        let mut targets = [Target::Flood; BATCH_MAX];
        // Neighbouring frames often go the same way: the last decision is kept.
        let mut last: Option<(PortId, [u8; 12], Target)> = None;
        let mut one_port = true;
        let mut longest = 0;
        for (frame, target) in batch.iter_mut().zip(&mut targets) {
            *target = match packet::bytes::<12>(frame.data(), 0) {
                Some(header) if frame.len() >= ETHERNET_BYTES => match last {
                    Some((port, same, target)) if port == frame.rx_port && same == *header => {
                        target
                    }
                    _ => {
                        let target = self.target(frame.rx_port, header, tick);
                        last = Some((frame.rx_port, *header, target));
                        target
                    }
                },
                _ => Target::Drop(DropReason::EthernetTruncated),
            };
            longest = longest.max(frame.len());
            match *target {
                Target::Port(port) => frame.tx_port = port,
                _ => one_port = false,
            }
        }
        if one_port && self.fits_all(&targets[..batch.len()], longest) {
            out.push_rest(TX, batch);
            return;
        }
        for (frame, target) in batch.drain().zip(targets) {
            self.send(cx, frame, target, out);
        }
    }

    fn reload(&mut self, _cx: &mut Context<'_>, snapshot: &Snapshot, _out: &mut Outlets) {
        if crate::adopt(&mut self.forwarding, snapshot)
            && let Some(bridge) = self.forwarding.bridge(self.id)
        {
            self.stations.set_ageing(bridge.ageing_s);
            self.host = host_mac(&self.forwarding, self.id);
        }
    }
}

impl Bridge {
    /// Tells whether a frame of `longest` bytes fits the MTU of each target port.
    #[inline]
    fn fits_all(&self, targets: &[Target], longest: usize) -> bool {
        let mut checked = None;
        targets.iter().all(|target| {
            if checked == Some(*target) {
                return true;
            }
            checked = Some(*target);
            let Target::Port(port) = *target else {
                return false;
            };
            self.forwarding
                .ports()
                .get(port.index())
                .is_some_and(|port| longest <= usize::from(port.mtu) + FRAME_OVERHEAD_BYTES)
        })
    }
}

/// Sends the node's own frames, with the bridge's id in their mark, to the station's port.
#[derive(Debug)]
pub struct BridgeOutput {
    forwarding: Arc<Forwarding>,
    stations: Vec<Arc<StationTable>>,
}

impl BridgeOutput {
    /// Makes the node over the tables of all bridges, by id.
    pub fn new(forwarding: Arc<Forwarding>, stations: Vec<Arc<StationTable>>) -> Self {
        Self {
            forwarding,
            stations,
        }
    }
}

impl Node for BridgeOutput {
    fn name(&self) -> &str {
        "bridge-output"
    }

    fn edges(&self) -> &[&'static str] {
        OUTPUT_EDGES
    }

    fn process(&mut self, cx: &mut Context<'_>, batch: &mut Batch, out: &mut Outlets) {
        let tick = Tick::at(cx.now);
        for mut frame in batch.drain() {
            let id = BridgeId(frame.mark as u16);
            let to = packet::bytes::<6>(frame.data(), 0).copied().map(MacAddr);
            let (Some(stations), Some(to)) = (self.stations.get(id.index()), to) else {
                out.drop(frame, DropReason::PortDown);
                continue;
            };
            match stations.lookup(to, tick) {
                Some(port) if !to.is_group() => {
                    if fits(&self.forwarding, port, &frame) {
                        frame.tx_port = port;
                        out.push(TX, frame);
                    } else {
                        out.drop(frame, DropReason::FrameTooLong);
                    }
                }
                _ => flood(&self.forwarding, id, cx.pool, frame, None, out),
            }
        }
    }

    fn reload(&mut self, _cx: &mut Context<'_>, snapshot: &Snapshot, _out: &mut Outlets) {
        crate::adopt(&mut self.forwarding, snapshot);
    }
}
