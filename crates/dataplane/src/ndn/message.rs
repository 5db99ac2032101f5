//! What workers and the manager of the forwarder tell each other.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};

use io::{Doorbell, PortId};
use ndn::mgmt::FaceChange;
use ndn::{FaceConfig, FaceCounters, FaceId, ForwarderCounters, NextHop};
use tables::ring::{Consumer, Producer, spsc};
use wire::ndn::name::Name;
use wire::{DropReason, Instant};

use super::websocket::WebStream;

/// Packets that wait between two workers, each way.
const RING_PKTS: usize = 1024;
/// Events that wait for the manager.
pub(super) const EVENTS_MAX: usize = 4096;

/// What the manager tells a worker.
#[derive(Debug)]
pub(super) enum Command {
    /// There is a face now.
    AddFace {
        face: FaceId,
        config: FaceConfig,
        transport: NewTransport,
        /// From whom its packets come, on a link without connections.
        peer: Option<Peer>,
        /// Link packets that came before the face was there.
        first: Vec<Vec<u8>>,
    },
    RemoveFace(FaceId),
    UpdateFace(FaceId, FaceChange),
    AddNextHop(Name, NextHop),
    RemoveNextHop(Name, FaceId),
    SetStrategy(Name, Name),
    UnsetStrategy(Name),
    /// A packet of management's.
    Input(Vec<u8>),
    /// Management asks for figures.
    Report(SyncSender<Report>),
}

/// How a worker reaches the other end of a face.
#[derive(Debug)]
pub(super) enum NewTransport {
    /// Through another worker.
    Elsewhere(usize),
    /// A connected stream, without blocking.
    Stream(OwnedFd),
    /// An open WebSocket.
    WebSocket(Box<WebStream>),
    /// From one of the worker's UDP sockets.
    Udp(usize, SocketAddr),
    /// From a UDP socket of its own.
    Group(OwnedFd, SocketAddr),
    /// From a port.
    Ethernet(PortId, [u8; 6]),
}

/// What a worker tells the manager.
#[derive(Debug)]
pub(super) enum Event {
    /// A link packet with a management Interest.
    Interest(Vec<u8>),
    /// A datagram or frame of a peer that has no face.
    NewPeer(Peer, Vec<u8>),
    /// The stream of a face ended.
    Closed(FaceId),
    /// The self-learning strategy found a route, or lost one.
    Learned {
        face: FaceId,
        announcement: Option<Vec<u8>>,
        packet: Vec<u8>,
    },
}

/// Who sent something, on a link without connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Peer {
    /// To a UDP socket, by its index.
    Udp(usize, SocketAddr),
    /// To a port.
    Ethernet(PortId, [u8; 6]),
}

/// A worker's figures.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) counters: ForwarderCounters,
    /// Link packets dropped before they reached the forwarder, and packets dropped after they left it.
    pub(super) link_drops: Vec<(DropReason, u64)>,
    /// Entries of FIB, PIT, measurements and content store.
    pub(super) tables: [u64; 4],
    pub(super) faces: Vec<(FaceId, FaceCounters, Instant)>,
}

/// What a packet between two workers is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// A network packet with its link fields, for the owner of its name.
    Input,
    /// As it came from the link, for the owner of the link's state.
    Receive,
    /// A network packet with its link fields, for the owner of the face's transport.
    Send,
    /// Data for pending CanBePrefix Interests.
    Data { is_solicited: bool },
}

/// A packet between two workers.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) purpose: For,
    pub(super) face: FaceId,
    pub(super) bytes: Vec<u8>,
}

/// The way to another worker. Buffers go round, so that the steady state does not allocate.
#[derive(Debug)]
pub(super) struct Outbox {
    to: Producer<Message>,
    empty: Consumer<Vec<u8>>,
    ears: Arc<Ears>,
    is_used: bool,
}

/// What comes from another worker.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) from: Consumer<Message>,
    empty: Producer<Vec<u8>>,
}

impl Outbox {
    /// Returns a buffer to fill.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        let mut buffer = self.empty.pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    /// Sends a packet; false if the ring is full.
    pub(super) fn push(&mut self, message: Message) -> bool {
        self.is_used = true;
        self.to.push(message).is_ok()
    }

    /// Wakes the other worker, if anything was sent since the last call.
    pub(super) fn flush(&mut self) {
        if core::mem::take(&mut self.is_used) {
            self.ears.call();
        }
    }
}

impl Inbox {
    /// Gives a buffer back.
    pub(super) fn give_back(&mut self, buffer: Vec<u8>) {
        // Without room it is freed.
        let _ = self.empty.push(buffer);
    }
}

/// Makes the ways between `workers` workers: for each its outboxes and inboxes, by worker, without its own.
pub(super) fn mesh(ears: &[Arc<Ears>]) -> Vec<(Vec<Option<Outbox>>, Vec<Inbox>)> {
    let mut out: Vec<(Vec<Option<Outbox>>, Vec<Inbox>)> =
        ears.iter().map(|_| (Vec::new(), Vec::new())).collect();
    for from in 0..ears.len() {
        for (to, ears) in ears.iter().enumerate() {
            if from == to {
                out[from].0.push(None);
                continue;
            }
            let (to_other, from_other) = spsc(RING_PKTS);
            let (give, empty) = spsc(RING_PKTS);
            out[from].0.push(Some(Outbox {
                to: to_other,
                empty,
                ears: Arc::clone(ears),
                is_used: false,
            }));
            out[to].1.push(Inbox {
                from: from_other,
                empty: give,
            });
        }
    }
    out
}

/// How a worker is told that something waits for it.
#[derive(Debug)]
pub(super) struct Ears {
    pub(super) bell: Doorbell,
    pending: AtomicBool,
}

impl Ears {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            bell: Doorbell::new()?,
            pending: AtomicBool::new(false),
        })
    }

    /// Says that something waits. Call it after it has been put there.
    pub(super) fn call(&self) {
        // Release, partner `take`: who sees the flag sees what waits.
        self.pending.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Tells whether something waits.
    pub(super) fn is_called(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    /// Tells whether something waits, and forgets it: look for it after this.
    pub(super) fn take(&self) -> bool {
        // Acquire, partner `call`.
        self.is_called() && self.pending.swap(false, Ordering::AcqRel)
    }
}

impl std::task::Wake for Ears {
    fn wake(self: Arc<Self>) {
        self.call();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.call();
    }
}

/// A worker's way to the manager.
#[derive(Clone, Debug)]
pub(super) struct ToManager {
    pub(super) events: SyncSender<Event>,
    pub(super) bell: Arc<Doorbell>,
}

impl ToManager {
    /// Tells it something; false if it has too much to do.
    pub(super) fn send(&self, event: Event) -> bool {
        let sent = self.events.try_send(event).is_ok();
        self.bell.ring();
        sent
    }
}

/// The manager's way to a worker.
#[derive(Debug)]
pub(super) struct ToWorker {
    pub(super) commands: std::sync::mpsc::Sender<Command>,
    pub(super) ears: Arc<Ears>,
}

impl ToWorker {
    pub(super) fn send(&self, command: Command) {
        // A worker that has ended needs no commands.
        let _ = self.commands.send(command);
        self.ears.call();
    }
}

/// A worker's commands.
pub(super) type Commands = Receiver<Command>;
