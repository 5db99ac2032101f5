//! The worker's side: a node of the packet graph that runs a TCP/IP host and serves its applications' lanes.

mod command;
mod sink;
mod tcp;
mod udp;

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use graph::{Context, Node, Outlets, Snapshot, Spread};
use io::wait::PollSet;
use io::{BATCH_MAX, Batch, Frame, FrameFlags, WorkerId};
use stack::{Event, ListenerHandle, Stack, TcpHandle, UdpHandle};
use wire::{Instant, LayoutFlags};

use crate::area::{Area, Lane, wait};
use sink::Sink;

/// Frames that one call sends at most, before the worker looks at its queues again.
const TURN_PKTS: usize = 4 * BATCH_MAX;

/// Where a host's frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// To its own port: one edge, `out`.
    Port,
    /// To a node that routes them: edges `ip4` and `ip6`, with their layout. What comes in may have any MAC address.
    Router,
}

/// An application's area as a node is told of it.
#[derive(Debug)]
pub(crate) struct Attached {
    /// Differs for each attachment of a node.
    pub(crate) id: u64,
    pub(crate) area: Arc<Area>,
    /// By worker: where another process knocks for a worker that sleeps; empty within the process.
    pub(crate) bells: Vec<UnixDatagram>,
}

/// All attachments of a node: published like a configuration, so that workers take no lock for them.
#[derive(Debug, Default)]
pub(crate) struct Attachments(pub(crate) Vec<Arc<Attached>>);

/// Counters of one worker's host.
#[derive(Debug, Default)]
pub(crate) struct HostCounters {
    /// Connections that are not over yet.
    pub(crate) connections: AtomicU64,
}

/// What a slot is to the worker.
#[derive(Debug)]
struct Socket {
    kind: Kind,
    /// The last command that was done.
    answered: u64,
    /// The application is done with it: it goes when all is sent.
    is_closing: bool,
    /// FIN follows what the transmit ring holds.
    is_finishing: bool,
    /// Whom to wake: worker and slot.
    wakes: (usize, usize),
    /// A received datagram for which the ring had no room.
    kept: Option<(std::net::SocketAddr, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Vacant,
    Tcp(TcpHandle),
    Listener(ListenerHandle),
    Udp(UdpHandle),
}

/// A lane with what the worker alone knows of it.
#[derive(Debug)]
struct WorkerLane {
    attached: Arc<Attached>,
    sockets: Vec<Socket>,
    /// Listeners that found no free slot.
    starved: Vec<usize>,
    /// Where to look for a free slot first.
    hint: usize,
    /// The application is gone: the lane goes when all its sockets have.
    is_gone: bool,
}

/// Where a handle's socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    lane: usize,
    slot: usize,
}

/// Runs a host on one worker of a node.
pub struct HostNode {
    exit: Exit,
    worker: usize,
    stack: Stack,
    lanes: Vec<Option<WorkerLane>>,
    /// Places by the index in handles of each kind.
    tcp: Vec<Option<Place>>,
    listeners: Vec<Option<Place>>,
    udp: Vec<Option<Place>>,
    /// Sockets that go once what they sent has left the stack.
    leaving: VecDeque<Place>,
    spread: Option<Spread>,
    workers: u16,
    /// Something waits for room in the transmit queues or for frames.
    has_more: bool,
    counters: Arc<HostCounters>,
    scratch: Vec<u8>,
}

impl core::fmt::Debug for HostNode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("HostNode")
            .field("exit", &self.exit)
            .field("stack", &self.stack)
            .finish_non_exhaustive()
    }
}

impl HostNode {
    /// Makes the node of one worker of `workers`. With several, `spread` says which has a flow.
    pub(crate) fn new(
        exit: Exit,
        stack: Stack,
        worker: WorkerId,
        workers: u16,
        spread: Option<Spread>,
        counters: Arc<HostCounters>,
    ) -> Self {
        Self {
            exit,
            worker: worker.index(),
            stack,
            lanes: Vec::new(),
            tcp: Vec::new(),
            listeners: Vec::new(),
            udp: Vec::new(),
            leaving: VecDeque::new(),
            spread,
            workers,
            has_more: false,
            counters,
            scratch: Vec::new(),
        }
    }

    /// Serves an area from now on.
    pub(crate) fn attach(&mut self, attached: &Arc<Attached>) {
        let Some(lane) = attached.area.lanes.get(self.worker) else {
            return;
        };
        let sockets = (0..lane.sockets()).map(|_| Socket::vacant()).collect();
        let lane = WorkerLane {
            attached: Arc::clone(attached),
            sockets,
            starved: Vec::new(),
            hint: 0,
            is_gone: false,
        };
        match self.lanes.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(lane),
            None => self.lanes.push(Some(lane)),
        }
    }

    /// Returns the shared part of a lane.
    fn area(&self, lane: usize) -> Option<&Arc<Attached>> {
        Some(&self.lanes.get(lane)?.as_ref()?.attached)
    }

    fn socket(&mut self, place: Place) -> Option<&mut Socket> {
        self.lanes
            .get_mut(place.lane)?
            .as_mut()?
            .sockets
            .get_mut(place.slot)
    }

    /// Looks at the slots that applications poked.
    fn serve_lanes(&mut self, now: Instant) -> u32 {
        let mut served = 0;
        for lane in 0..self.lanes.len() {
            let Some(attached) = self.area(lane) else {
                continue;
            };
            let shared = &attached.area.lanes[self.worker];
            if !shared.dirty.may_have() {
                continue;
            }
            let attached = Arc::clone(attached);
            attached.area.lanes[self.worker].dirty.take(|slot| {
                served += 1;
                self.serve(&attached, Place { lane, slot }, now);
            });
        }
        served
    }

    /// Looks at one slot: its command, what it sends, and room for what it receives.
    fn serve(&mut self, attached: &Attached, place: Place, now: Instant) {
        let lane = &attached.area.lanes[self.worker];
        if place.slot >= lane.sockets() {
            return;
        }
        let is_gone = self.lanes[place.lane]
            .as_ref()
            .is_none_or(|lane| lane.is_gone);
        if !is_gone {
            self.take_command(attached, place, now);
        }
        let Some(socket) = self.socket(place) else {
            return;
        };
        match socket.kind {
            Kind::Vacant => {}
            Kind::Tcp(handle) => {
                self.pump_out(lane, attached, place, handle, now);
                self.pump_in(lane, attached, place, handle, now);
            }
            Kind::Listener(handle) => self.accept(attached, place, handle, now),
            Kind::Udp(handle) => {
                self.send_datagrams(attached, place, handle);
                self.receive_datagrams(attached, place, handle);
            }
        }
    }

    /// Acts on what the stack tells, then sends what is to be sent.
    fn advance(&mut self, cx: &mut Context<'_>, out: &mut Outlets) -> u32 {
        while let Some(event) = self.stack.poll_event() {
            self.on_event(event, cx.now);
        }
        if cx.held_pkts > 0 {
            self.has_more = true;
            return 0;
        }
        let mut sink = Sink::new(cx.pool, out, TURN_PKTS, self.exit);
        let is_done = self.stack.poll_transmit(cx.now, &mut sink);
        let sent = sink.finish();
        // Sending makes room.
        while let Some(event) = self.stack.poll_event() {
            self.on_event(event, cx.now);
            self.has_more = true;
        }
        self.has_more |= !is_done;
        if is_done {
            self.let_go(cx.now);
            if self.lanes.iter().flatten().any(|lane| lane.is_gone) {
                self.forget_lanes();
            }
        }
        let connections = self.stack.usage().connections as u64;
        self.counters
            .connections
            .store(connections, Ordering::Relaxed);
        sent
    }

    fn on_event(&mut self, event: Event, now: Instant) {
        let place = match event {
            Event::Tcp(handle, _) => find(&self.tcp, handle.to_u64()),
            Event::Listener(handle, _) => find(&self.listeners, handle.to_u64()),
            Event::Udp(handle, _) => find(&self.udp, handle.to_u64()),
            Event::AddressesChanged => None,
        };
        let Some(place) = place else { return };
        let Some(attached) = self.area(place.lane).map(Arc::clone) else {
            return;
        };
        let lane = &attached.area.lanes[self.worker];
        let kind = self
            .socket(place)
            .map_or(Kind::Vacant, |socket| socket.kind);
        match (event, kind) {
            (Event::Tcp(handle, ready), Kind::Tcp(ours)) if handle == ours => {
                self.on_tcp(lane, &attached, place, handle, ready, now);
            }
            (Event::Listener(handle, _), Kind::Listener(ours)) if handle == ours => {
                self.accept(&attached, place, handle, now);
            }
            (Event::Udp(handle, _), Kind::Udp(ours)) if handle == ours => {
                self.send_datagrams(&attached, place, handle);
                self.receive_datagrams(&attached, place, handle);
            }
            _ => {}
        }
    }

    /// Ends the sockets whose last datagram has left.
    fn let_go(&mut self, now: Instant) {
        while let Some(place) = self.leaving.pop_front() {
            let Some(attached) = self.area(place.lane).map(Arc::clone) else {
                continue;
            };
            if let Some(Kind::Udp(handle)) = self.socket(place).map(|socket| socket.kind) {
                // A stale handle is gone already.
                let _ = self.stack.udp_close(now, handle);
                forget(&mut self.udp, handle.to_u64());
            }
            self.release(&attached, place, now);
        }
    }

    /// Gives a slot back.
    fn release(&mut self, attached: &Attached, place: Place, now: Instant) {
        if let Some(socket) = self.socket(place) {
            *socket = Socket::vacant();
        }
        attached.area.lanes[self.worker].slot(place.slot).release();
        let Some(Some(lane)) = self.lanes.get_mut(place.lane) else {
            return;
        };
        lane.hint = place.slot;
        if let Some(slot) = lane.starved.pop() {
            let place = Place { slot, ..place };
            if let Some(Kind::Listener(handle)) = self.socket(place).map(|socket| socket.kind) {
                self.accept(attached, place, handle, now);
            }
        }
    }

    /// Wakes who waits at a socket.
    fn wake(&self, attached: &Attached, place: Place, bits: u64) {
        let wakes = self
            .lanes
            .get(place.lane)
            .and_then(|lane| Some(lane.as_ref()?.sockets.get(place.slot)?.wakes));
        let Some((worker, slot)) = wakes else { return };
        // As the application said it: it may be nonsense.
        let lane = attached.area.lanes.get(worker);
        if let Some(lane) = lane.filter(|lane| slot < lane.sockets()) {
            lane.slot(slot).wake(bits);
        }
    }

    /// Takes the attachments in force: new ones are served, those that are gone are ended.
    fn set_attachments(&mut self, attachments: &Attachments, now: Instant) {
        for at in 0..self.lanes.len() {
            let is_gone = self
                .area(at)
                .is_some_and(|ours| !attachments.0.iter().any(|other| other.id == ours.id));
            if is_gone {
                self.abandon(at, now);
            }
        }
        for attached in &attachments.0 {
            let is_known = (0..self.lanes.len())
                .any(|at| self.area(at).is_some_and(|ours| ours.id == attached.id));
            if !is_known {
                self.attach(attached);
            }
        }
    }

    /// Closes the sockets of an application that is gone, as a kernel does when a process ends: what it wrote is
    /// still sent.
    fn abandon(&mut self, at: usize, now: Instant) {
        let Some(Some(lane)) = self.lanes.get_mut(at) else {
            return;
        };
        if core::mem::replace(&mut lane.is_gone, true) {
            return;
        }
        let attached = Arc::clone(&lane.attached);
        let slots = lane.sockets.len();
        for slot in 0..slots {
            let place = Place { lane: at, slot };
            let is_open = |socket: &mut Socket| socket.kind != Kind::Vacant && !socket.is_closing;
            if self.socket(place).is_some_and(is_open) {
                self.close(&attached, place, now);
                self.serve(&attached, place, now);
            }
        }
        self.has_more = true;
    }

    /// Lets go of lanes whose applications are gone, once their last socket is.
    fn forget_lanes(&mut self) {
        for lane in &mut self.lanes {
            let is_done = lane.as_ref().is_some_and(|lane| {
                lane.is_gone
                    && lane
                        .sockets
                        .iter()
                        .all(|socket| socket.kind == Kind::Vacant)
            });
            if is_done && let Some(lane) = lane.take() {
                lane.attached.area.lanes[self.worker].end();
            }
        }
    }

    /// Ends the sockets of an application at once: the worker stops.
    fn detach(&mut self, at: usize, now: Instant) {
        let Some(mut lane) = self.lanes.get_mut(at).and_then(Option::take) else {
            return;
        };
        for socket in &mut lane.sockets {
            // Stale handles are gone already.
            let _ = match core::mem::replace(&mut socket.kind, Kind::Vacant) {
                Kind::Vacant => Ok(()),
                Kind::Tcp(handle) => {
                    forget(&mut self.tcp, handle.to_u64());
                    self.stack.tcp_close(now, handle)
                }
                Kind::Listener(handle) => {
                    forget(&mut self.listeners, handle.to_u64());
                    self.stack.tcp_close_listener(now, handle)
                }
                Kind::Udp(handle) => {
                    forget(&mut self.udp, handle.to_u64());
                    self.stack.udp_close(now, handle)
                }
            };
        }
        lane.attached.area.lanes[self.worker].end();
        self.leaving.retain(|place| place.lane != at);
        self.has_more = true;
    }

    /// Leaves in the batch what this worker's host is to see; neighbours' answers go to all.
    fn spread(&self, cx: &mut Context<'_>, batch: &mut Batch, out: &mut Outlets) {
        let Some(spread) = &self.spread else { return };
        for _ in 0..batch.len() {
            let Some(mut frame) = batch.drain_front(1).next() else {
                break;
            };
            if frame.flags.contains(FrameFlags::HANDED_OFF) {
                let _ = batch.push(frame);
                continue;
            }
            if concerns_all(&frame) {
                self.tell_others(&frame, cx, out);
                let _ = batch.push(frame);
                continue;
            }
            match spread.worker(&mut frame) {
                worker if worker == cx.worker => {
                    // As many enter as left.
                    let _ = batch.push(frame);
                }
                worker => out.hand_off(worker, frame),
            }
        }
    }

    fn tell_others(&self, frame: &Frame, cx: &mut Context<'_>, out: &mut Outlets) {
        for worker in (0..self.workers)
            .map(WorkerId)
            .filter(|id| *id != cx.worker)
        {
            let Some(mut copy) = cx.pool.alloc() else {
                return;
            };
            copy.rx_port = frame.rx_port;
            if copy.fill(frame.data()) {
                out.hand_off(worker, copy);
            } else {
                out.consume(copy);
            }
        }
    }
}

/// Tells whether every worker's host must see a frame: answers of neighbours, and what routers tell.
fn concerns_all(frame: &Frame) -> bool {
    const ARP_REPLY: [u8; 2] = [0, 2];
    let data = frame.data();
    let Ok(layout) = wire::parse(data) else {
        return false;
    };
    if layout.flags.contains(LayoutFlags::ARP) {
        let at = usize::from(layout.network) + 6;
        return data.get(at..at + 2) == Some(&ARP_REPLY);
    }
    layout.protocol == wire::ip_protocol::ICMPV6
        && layout.flags.contains(LayoutFlags::TRANSPORT)
        && matches!(data.get(usize::from(layout.transport)), Some(134 | 136))
}

impl Socket {
    const fn vacant() -> Self {
        Self {
            kind: Kind::Vacant,
            answered: 0,
            is_closing: false,
            is_finishing: false,
            wakes: (0, 0),
            kept: None,
        }
    }
}

/// Finds a handle's place.
fn find(places: &[Option<Place>], handle: u64) -> Option<Place> {
    *places.get(handle as u32 as usize)?
}

fn remember(places: &mut Vec<Option<Place>>, handle: u64, place: Place) {
    let index = handle as u32 as usize;
    if places.len() <= index {
        places.resize(index + 1, None);
    }
    places[index] = Some(place);
}

fn forget(places: &mut [Option<Place>], handle: u64) {
    if let Some(place) = places.get_mut(handle as u32 as usize) {
        *place = None;
    }
}

impl Node for HostNode {
    fn name(&self) -> &str {
        "host"
    }

    fn edges(&self) -> &[&'static str] {
        match self.exit {
            Exit::Port => &["out"],
            Exit::Router => &["ip4", "ip6"],
        }
    }

    fn process(&mut self, cx: &mut Context<'_>, batch: &mut Batch, out: &mut Outlets) {
        self.spread(cx, batch, out);
        if self.exit == Exit::Router {
            let mac = self.stack.mac().octets();
            for frame in batch.iter_mut() {
                if let Some(to) = frame.data_mut().first_chunk_mut::<6>() {
                    *to = mac;
                }
            }
        }
        let mut frames = [&[][..]; BATCH_MAX];
        for (to, frame) in frames.iter_mut().zip(batch.iter()) {
            *to = frame.data();
        }
        self.stack
            .input(cx.now, frames.get(..batch.len()).unwrap_or_default());
        for frame in batch.drain() {
            out.consume(frame);
        }
        self.advance(cx, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.stack.poll_timeout()
    }

    fn handle_timeout(&mut self, cx: &mut Context<'_>, out: &mut Outlets) {
        self.stack.handle_timeout(cx.now);
        self.advance(cx, out);
    }

    fn is_polled(&self) -> bool {
        true
    }

    #[inline]
    fn has_work(&self) -> bool {
        let has_dirty = |lane: &WorkerLane| {
            let lanes = &lane.attached.area.lanes;
            lanes
                .get(self.worker)
                .is_some_and(|lane: &Lane| lane.dirty.may_have())
        };
        self.has_more || self.lanes.iter().flatten().any(has_dirty)
    }

    fn work(&mut self, cx: &mut Context<'_>, out: &mut Outlets) -> u32 {
        self.has_more = false;
        let served = self.serve_lanes(cx.now);
        served + self.advance(cx, out)
    }

    fn arm(&mut self, set: &mut PollSet) -> bool {
        for lane in self.lanes.iter().flatten() {
            lane.attached.area.lanes[self.worker].sleep().arm(false);
            if let Some(bell) = lane.attached.bells.get(self.worker) {
                set.add(bell.as_fd());
            }
        }
        self.has_work()
    }

    fn disarm(&mut self) {
        for lane in self.lanes.iter().flatten() {
            lane.attached.area.lanes[self.worker].sleep().disarm();
            if let Some(bell) = lane.attached.bells.get(self.worker) {
                // Empty is the usual answer: nobody knocked.
                while bell.recv(&mut [0; 8]).is_ok() {}
            }
        }
    }

    fn stop(&mut self, cx: &mut Context<'_>, out: &mut Outlets) {
        for lane in 0..self.lanes.len() {
            self.detach(lane, cx.now);
        }
        self.advance(cx, out);
    }

    fn reload(&mut self, cx: &mut Context<'_>, snapshot: &Snapshot, out: &mut Outlets) {
        if let Some(attachments) = snapshot.downcast_ref::<Attachments>() {
            self.set_attachments(attachments, cx.now);
            self.advance(cx, out);
        }
    }
}

/// All who may wait for anything.
const EVERYBODY: u64 = wait::ALL;
