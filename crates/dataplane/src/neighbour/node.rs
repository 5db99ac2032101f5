//! `resolve`: ARP, neighbour discovery, and packets whose next hop's MAC address is not known or not sure.

use core::time::Duration;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use graph::{Context, EdgeId, Node, Outlets, Snapshot};
use io::{Batch, Frame, PortId, WorkerId};
use wire::{DropReason, Instant, LayoutFlags, MacAddr};

use super::machine::{Action, Due, Heard, Machine};
use super::message::{Arp, Discovery};
use super::table::{Key, State, Table};
use super::waiting::Waiting;
use crate::forwarding::{Forwarding, Interface};
use crate::nodes::cause::Cause;
use crate::nodes::{ip4, ip6};
use crate::packet;
use crate::plan::{InterfaceId, Link};
use crate::prefix::Prefix;

const TX: EdgeId = EdgeId(0);
const BRIDGE: EdgeId = EdgeId(1);
const ERROR: EdgeId = EdgeId(2);
const EDGES: &[&str] = &["tx", "bridge", "error"];

/// How often a worker with waiting packets looks whether another worker got the answer.
const RECHECK: Duration = Duration::from_millis(1);
/// The same where there is no other worker: only for packets that waited too long.
const RECHECK_ALONE: Duration = Duration::from_secs(1);
/// One in so many of a pool's frames may wait for answers.
const WAITING_SHARE: usize = 8;

/// Takes ARP packets, neighbour discovery messages, and packets with the id of their outgoing interface
/// in the mark.
#[derive(Debug)]
pub struct Resolve {
    forwarding: Arc<Forwarding>,
    machine: Machine,
    waiting: Waiting,
    /// Other workers share the table, so that answers may come without this node seeing them.
    shared: bool,
    recheck_at: Option<Instant>,
    /// This worker tells the links about the node's addresses when a configuration comes into force.
    announces: bool,
    announce_at: Option<Instant>,
}

impl Resolve {
    /// Makes the node of one worker of `workers`, whose pool has `pool_frames` frames.
    pub fn new(
        forwarding: Arc<Forwarding>,
        table: Arc<Table>,
        worker: WorkerId,
        workers: u16,
        pool_frames: usize,
    ) -> Self {
        Self {
            forwarding,
            machine: Machine::new(table, worker),
            waiting: Waiting::new((pool_frames / WAITING_SHARE).max(1)),
            shared: workers > 1,
            recheck_at: None,
            announces: worker == WorkerId(0),
            announce_at: (worker == WorkerId(0)).then_some(Instant::ZERO),
        }
    }

    fn take(&mut self, cx: &mut Context<'_>, frame: Frame, out: &mut Outlets) {
        let flags = frame.layout.flags;
        if flags.contains(LayoutFlags::ARP) {
            self.arp(cx, frame, out);
        } else if is_discovery(&frame) && !frame.flags.contains(io::FrameFlags::LOCAL) {
            self.discovery(cx, frame, out);
        } else {
            self.packet(cx, frame, out);
        }
    }

    /// A packet that wants to go to a neighbour.
    fn packet(&mut self, cx: &mut Context<'_>, mut frame: Frame, out: &mut Outlets) {
        let interface = InterfaceId(frame.mark as u16);
        let key = if frame.layout.flags.contains(LayoutFlags::IPV4) {
            ip4::next_hop_key(&self.forwarding, &frame, interface)
        } else {
            ip6::next_hop_key(&self.forwarding, &frame, interface)
        };
        let Some(key) = key else {
            // The route changed since the packet was routed.
            out.drop(frame, DropReason::NoRoute);
            return;
        };
        match self.machine.resolve(&key, cx.now) {
            Action::Send(mac) => Self::send(&self.forwarding, frame, interface, mac, out),
            Action::Wait { ask } => {
                match self.waiting.push(&key, frame, cx.now) {
                    Some(gone) => out.drop(gone, DropReason::NeighbourQueueFull),
                    None => self.machine.table().note_waiting(&key, 1),
                }
                if ask {
                    self.ask(cx, &key, None, out);
                }
            }
            Action::Unreachable => {
                frame.mark = Cause::HostUnreachable.mark(0);
                out.push(ERROR, frame);
            }
            Action::RateLimited => out.drop(frame, DropReason::RateLimited),
            Action::TableFull => out.drop(frame, DropReason::NeighbourTableFull),
        }
    }

    /// Sends an IP packet to a neighbour.
    fn send(
        forwarding: &Forwarding,
        mut frame: Frame,
        interface: InterfaceId,
        mac: MacAddr,
        out: &mut Outlets,
    ) {
        let Some(from) = forwarding.interface(interface) else {
            out.drop(frame, DropReason::PortDown);
            return;
        };
        let v4 = frame.layout.flags.contains(LayoutFlags::IPV4);
        let ether_type = if v4 { 0x0800 } else { 0x86dd };
        packet::set_ethernet(&mut frame, mac, from.mac, ether_type);
        Self::transmit(frame, from, out);
    }

    fn transmit(mut frame: Frame, interface: &Interface, out: &mut Outlets) {
        match interface.link {
            Link::Port(port) => {
                frame.tx_port = port;
                out.push(TX, frame);
            }
            Link::Bridge(bridge) => {
                frame.mark = u32::from(bridge.0);
                out.push(BRIDGE, frame);
            }
        }
    }

    /// Asks for a neighbour's MAC address: everyone, or the neighbour itself.
    fn ask(&mut self, cx: &mut Context<'_>, key: &Key, one: Option<MacAddr>, out: &mut Outlets) {
        let Some(interface) = self.forwarding.interface(key.interface) else {
            return;
        };
        let Some(mut frame) = cx.pool.alloc() else {
            return; // the timer asks again
        };
        frame.rx_port = first_port(&self.forwarding, interface);
        let written = match key.as_v4() {
            Some(target) => ask_arp(&mut frame, interface, target, one),
            None => ask_discovery(&mut frame, interface, key.address.into(), one),
        };
        if written {
            Self::transmit(frame, interface, out);
        } else {
            cx.pool.free(frame);
        }
    }

    /// Sends what waits for a neighbour on its way.
    fn release(&mut self, key: &Key, now: Instant, out: &mut Outlets) {
        let mac = self
            .machine
            .table()
            .get(key, now)
            .filter(|entry| entry.state.is_usable())
            .map(|entry| entry.mac);
        let forwarding = &self.forwarding;
        let mut released = 0;
        self.waiting.release(key, |mut frame| {
            released += 1;
            match mac {
                Some(mac) => Self::send(forwarding, frame, key.interface, mac, out),
                None => {
                    frame.mark = Cause::HostUnreachable.mark(0);
                    out.push(ERROR, frame);
                }
            }
        });
        if released > 0 {
            self.machine.table().note_waiting(key, -released);
        }
    }

    fn arp(&mut self, cx: &mut Context<'_>, mut frame: Frame, out: &mut Outlets) {
        let Some(id) = self.forwarding.interface_of(frame.rx_port) else {
            out.drop(frame, DropReason::PortDown);
            return;
        };
        let (Some(arp), Some(interface)) = (Arp::read(&frame), self.forwarding.interface(id))
        else {
            out.drop(frame, DropReason::ArpMalformed);
            return;
        };
        let own = |address: [u8; 4]| interface.v4.iter().any(|(a, _)| a.octets() == address);
        let for_us = own(arp.target);
        // RFC 5227 2.1.1: a probe has no sender address, and nothing is learnt from it. Who claims an
        // address of the node's, a group's or this host's is not believed.
        let sender = Ipv4Addr::from(arp.sender);
        let believable = !sender.is_unspecified()
            && !sender.is_multicast()
            && !sender.is_broadcast()
            && !sender.is_loopback()
            && !own(arp.sender)
            && on_link4(interface, sender);
        let mac = interface.mac;
        let from_us = own(arp.sender);
        let key = Key::v4(id, arp.sender);
        if believable {
            let how = Heard {
                solicited: !arp.request
                    && for_us
                    && !frame.layout.flags.contains(LayoutFlags::L2_GROUP),
                overrides: true,
                creates: arp.request && for_us,
            };
            if self.machine.heard(&key, arp.sender_mac, how, cx.now) {
                self.release(&key, cx.now, out);
            }
        }
        if !(arp.request && for_us) || from_us {
            out.consume(frame);
            return;
        }
        let reply = Arp {
            request: false,
            sender_mac: mac,
            sender: arp.target,
            target_mac: arp.sender_mac,
            target: arp.sender,
        };
        if reply.write(&mut frame, arp.sender_mac)
            && let Some(interface) = self.forwarding.interface(id)
        {
            Self::transmit(frame, interface, out);
        } else {
            out.drop(frame, DropReason::ArpMalformed);
        }
    }

    fn discovery(&mut self, cx: &mut Context<'_>, mut frame: Frame, out: &mut Outlets) {
        let Some(id) = self.forwarding.interface_of(frame.rx_port) else {
            out.drop(frame, DropReason::PortDown);
            return;
        };
        let (Some(message), Some(interface)) =
            (Discovery::read(&frame), self.forwarding.interface(id))
        else {
            out.drop(frame, DropReason::NeighbourDiscovery);
            return;
        };
        let mac = interface.mac;
        let for_us = owns6(interface, &message.target);
        let told = if message.solicitation {
            message.source
        } else {
            message.target
        };
        let believable = !told.is_unspecified() && !owns6(interface, &told);
        let key = Key::new(id, told.octets());
        if believable && message.mac.is_none() && message.solicited {
            self.machine.confirmed(&key, cx.now);
        }
        if let Some(heard) = message.mac.filter(|_| believable) {
            let how = Heard {
                solicited: message.solicited,
                overrides: message.overrides || message.solicitation,
                creates: message.solicitation && for_us,
            };
            if self.machine.heard(&key, heard, how, cx.now) {
                self.release(&key, cx.now, out);
            }
        }
        if !message.solicitation || !for_us {
            out.consume(frame);
            return;
        }
        // RFC 4861 7.2.4: who looks for duplicates is answered by all nodes' group.
        let nobody = message.source.is_unspecified();
        let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        let destination = if nobody { all_nodes } else { message.source };
        let to = if nobody {
            MacAddr::from_ipv6_multicast(all_nodes)
        } else {
            message.mac.unwrap_or_else(|| source_mac(&frame))
        };
        let reply = Discovery {
            solicitation: false,
            source: message.target,
            destination,
            target: message.target,
            mac: Some(mac),
            solicited: !nobody,
            overrides: true,
        };
        if to != MacAddr::ZERO
            && reply.write(&mut frame, to, mac)
            && let Some(interface) = self.forwarding.interface(id)
        {
            Self::transmit(frame, interface, out);
        } else {
            out.drop(frame, DropReason::NeighbourDiscovery);
        }
    }

    /// Tells every link about the node's addresses: gratuitous ARP (RFC 5227 3), unsolicited
    /// advertisements (RFC 4861 7.2.6).
    fn announce(&self, cx: &mut Context<'_>, out: &mut Outlets) {
        for interface in self.forwarding.interfaces() {
            let v4 = interface.v4.iter().map(|&(address, _)| Some(address));
            let v6 = interface.v6.iter().map(|&(address, _)| address);
            let mut send = |write: &dyn Fn(&mut Frame) -> bool| {
                let Some(mut frame) = cx.pool.alloc() else {
                    return;
                };
                frame.rx_port = first_port(&self.forwarding, interface);
                if write(&mut frame) {
                    Self::transmit(frame, interface, out);
                } else {
                    cx.pool.free(frame);
                }
            };
            for address in v4.flatten() {
                let arp = Arp {
                    request: true,
                    sender_mac: interface.mac,
                    sender: address.octets(),
                    target_mac: MacAddr::ZERO,
                    target: address.octets(),
                };
                send(&|frame| arp.write(frame, MacAddr::BROADCAST));
            }
            let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
            for address in v6 {
                let advertisement = Discovery {
                    solicitation: false,
                    source: address,
                    destination: all_nodes,
                    target: address,
                    mac: Some(interface.mac),
                    solicited: false,
                    overrides: true,
                };
                let to = MacAddr::from_ipv6_multicast(all_nodes);
                send(&|frame| advertisement.write(frame, to, interface.mac));
            }
        }
    }

    /// Looks for waiting packets that can go since another worker got the answer, or waited too long.
    fn recheck(&mut self, now: Instant, out: &mut Outlets) {
        loop {
            let table = self.machine.table();
            let found = self.waiting.find(now, |key| {
                let entry = table.get(key, now);
                entry.is_none_or(|entry| entry.state != State::Incomplete)
            });
            match found {
                Some(key) => self.release(&key, now, out),
                None => return,
            }
        }
    }

    fn note_recheck(&mut self, now: Instant) {
        let after = if self.shared { RECHECK } else { RECHECK_ALONE };
        self.recheck_at = (!self.waiting.is_empty()).then(|| now + after);
    }
}

/// Writes an ARP request for `target`.
fn ask_arp(
    frame: &mut Frame,
    interface: &Interface,
    target: [u8; 4],
    one: Option<MacAddr>,
) -> bool {
    let Some(sender) = interface.source4(target.into()) else {
        return false;
    };
    let request = Arp {
        request: true,
        sender_mac: interface.mac,
        sender: sender.octets(),
        target_mac: MacAddr::ZERO,
        target,
    };
    request.write(frame, one.unwrap_or(MacAddr::BROADCAST))
}

/// Writes a neighbour solicitation for `target`.
fn ask_discovery(
    frame: &mut Frame,
    interface: &Interface,
    target: Ipv6Addr,
    one: Option<MacAddr>,
) -> bool {
    let Some(source) = interface.source6(target) else {
        return false;
    };
    let group = wire::ndp::solicited_node(target);
    let solicitation = Discovery {
        solicitation: true,
        source,
        destination: if one.is_some() { target } else { group },
        target,
        mac: Some(interface.mac),
        solicited: false,
        overrides: false,
    };
    let to = one.unwrap_or(MacAddr::from_ipv6_multicast(group));
    solicitation.write(frame, to, interface.mac)
}

/// Tells whether a frame is a neighbour solicitation or advertisement.
fn is_discovery(frame: &Frame) -> bool {
    let layout = &frame.layout;
    layout.flags.contains(LayoutFlags::IPV6)
        && layout.protocol == 58
        && !layout.flags.contains(LayoutFlags::FRAGMENT)
        && matches!(
            frame.data().get(usize::from(layout.transport)),
            Some(135 | 136)
        )
}

fn on_link4(interface: &Interface, address: Ipv4Addr) -> bool {
    let holds =
        |&(own, length): &(Ipv4Addr, u8)| Prefix::new(own.into(), length).contains(&address.into());
    interface.v4.iter().any(holds)
}

fn owns6(interface: &Interface, address: &Ipv6Addr) -> bool {
    interface.has_link_local(address) || interface.v6.iter().any(|(own, _)| own == address)
}

fn source_mac(frame: &Frame) -> MacAddr {
    packet::bytes::<6>(frame.data(), 6)
        .copied()
        .map_or(MacAddr::ZERO, MacAddr)
}

/// Returns a port of the interface, so that what the node makes has a place it could have come from.
fn first_port(forwarding: &Forwarding, interface: &Interface) -> PortId {
    match interface.link {
        Link::Port(port) => port,
        Link::Bridge(bridge) => forwarding
            .bridge(bridge)
            .and_then(|bridge| bridge.ports.first().copied())
            .unwrap_or_default(),
    }
}

impl Node for Resolve {
    fn name(&self) -> &str {
        "resolve"
    }

    fn edges(&self) -> &[&'static str] {
        EDGES
    }

    fn process(&mut self, cx: &mut Context<'_>, batch: &mut Batch, out: &mut Outlets) {
        for frame in batch.drain() {
            self.take(cx, frame, out);
        }
        self.note_recheck(cx.now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let timers = [
            self.machine.poll_timeout(),
            self.recheck_at,
            self.announce_at,
        ];
        timers.into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, cx: &mut Context<'_>, out: &mut Outlets) {
        while let Some(due) = self.machine.next_due(cx.now) {
            match due {
                Due::AskAll(key) => self.ask(cx, &key, None, out),
                Due::AskOne(key, mac) => self.ask(cx, &key, Some(mac), out),
                Due::Failed(key) => self.release(&key, cx.now, out),
            }
        }
        if self.announce_at.is_some_and(|at| at <= cx.now) {
            self.announce_at = None;
            self.announce(cx, out);
        }
        self.recheck(cx.now, out);
        self.note_recheck(cx.now);
    }

    fn stop(&mut self, _cx: &mut Context<'_>, out: &mut Outlets) {
        while let Some(key) = self.waiting.any() {
            self.waiting
                .release(&key, |frame| out.drop(frame, DropReason::Shutdown));
        }
    }

    fn reload(&mut self, cx: &mut Context<'_>, snapshot: &Snapshot, out: &mut Outlets) {
        if crate::adopt(&mut self.forwarding, snapshot) && self.announces {
            self.announce(cx, out);
        }
    }
}
