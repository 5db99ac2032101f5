//! Links between a host outside and a port of the node, in virtual time.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use std::collections::VecDeque;

use graph::fault::{Faults, Impairment};
use io::{Arm, Batch, Capabilities, Interrupt, Pool, PortId, Queue, QueueStats};
use wire::Instant;

/// A host outside the node, at the far end of one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostId(pub(crate) usize);

/// Packets that the port's receive ring holds.
const RING_PKTS: usize = 256;

/// Both directions of a link.
#[derive(Debug)]
pub(crate) struct Link {
    now: Instant,
    to_node: Impairment<Vec<u8>>,
    to_host: Impairment<Vec<u8>>,
    /// The port's receive ring.
    ring: VecDeque<Vec<u8>>,
    pub(crate) received: Vec<Vec<u8>>,
    pub(crate) ring_full: u64,
}

impl Link {
    pub(crate) fn new(faults: Faults, seed: u64) -> Self {
        Self {
            now: Instant::ZERO,
            to_node: Impairment::new(faults, seed),
            to_host: Impairment::new(faults, seed ^ 1),
            ring: VecDeque::new(),
            received: Vec::new(),
            ring_full: 0,
        }
    }

    pub(crate) fn set_faults(&mut self, faults: Faults) {
        self.to_node.set_faults(faults);
        self.to_host.set_faults(faults);
    }

    /// The host sends.
    pub(crate) fn send(&mut self, bytes: Vec<u8>) {
        // Lost packets are in the link's statistics.
        let _ = self.to_node.offer(self.now, bytes, |b| Some(b.clone()));
        self.advance(self.now);
    }

    /// Moves what has arrived by `now`.
    pub(crate) fn advance(&mut self, now: Instant) {
        self.now = now;
        while let Some(bytes) = self.to_node.poll(now) {
            if self.ring.len() < RING_PKTS {
                self.ring.push_back(bytes);
            } else {
                self.ring_full += 1;
            }
        }
        while let Some(bytes) = self.to_host.poll(now) {
            self.received.push(bytes);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        [self.to_node.poll_timeout(), self.to_host.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    pub(crate) fn has_interrupt(&self) -> bool {
        !self.ring.is_empty()
    }

    /// Packets lost or on their way, and packets added: what a conservation check has to know.
    pub(crate) fn balance(&self) -> Balance {
        let (to_node, to_host) = (self.to_node.stats(), self.to_host.stats());
        Balance {
            offered_by_host: to_node.offered,
            lost_to_node: to_node.dropped + to_node.overflowed + to_node.too_long + self.ring_full,
            added_to_node: to_node.duplicated,
            offered_by_node: to_host.offered,
            under_way: (self.to_node.in_flight() + self.to_host.in_flight() + self.ring.len())
                as u64,
        }
    }
}

/// What a link did to packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Balance {
    pub(crate) offered_by_host: u64,
    pub(crate) lost_to_node: u64,
    pub(crate) added_to_node: u64,
    pub(crate) offered_by_node: u64,
    pub(crate) under_way: u64,
}

/// A link, as the host's side and the node's queue share it. The simulation has one thread: the lock is
/// never waited for.
pub(crate) type SharedLink = Arc<Mutex<Link>>;

pub(crate) fn lock(link: &SharedLink) -> MutexGuard<'_, Link> {
    link.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The node's end: a driver.
#[derive(Debug)]
pub(crate) struct SimQueue {
    port: PortId,
    link: SharedLink,
    /// Something to be armed; nobody waits for it.
    fd: File,
    capabilities: Capabilities,
    stats: QueueStats,
}

impl SimQueue {
    pub(crate) fn new(port: PortId, link: SharedLink) -> Self {
        Self {
            port,
            link,
            fd: File::open("/dev/null").expect("/dev/null is there"),
            capabilities: Capabilities {
                driver: "sim",
                mode: "virtual time".into(),
                interrupt: Interrupt::Level,
                max_frame_bytes: 1792,
                zero_copy: false,
                rss: false,
                offloads: io::Offloads::empty(),
                refused: Vec::new(),
            },
            stats: QueueStats::default(),
        }
    }
}

impl Queue for SimQueue {
    fn rx(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let mut link = lock(&self.link);
        let mut received = 0;
        while !batch.is_full() && !link.ring.is_empty() {
            let Some(mut frame) = pool.alloc() else { break };
            let bytes = link.ring.pop_front().unwrap_or_default();
            if !frame.fill(&bytes) {
                self.stats.rx_invalid_pkts += 1;
                pool.free(frame);
                continue;
            }
            frame.rx_port = self.port;
            self.stats.rx_pkts += 1;
            self.stats.rx_bytes += bytes.len() as u64;
            received += 1;
            // The batch is not full.
            let _ = batch.push(frame);
        }
        received
    }

    fn tx(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let mut link = lock(&self.link);
        let now = link.now;
        let sent = batch.len();
        for frame in batch.drain() {
            self.stats.tx_pkts += 1;
            self.stats.tx_bytes += frame.len() as u64;
            let _ = link
                .to_host
                .offer(now, frame.data().to_vec(), |b| Some(b.clone()));
            pool.free(frame);
        }
        sent
    }

    fn arm(&mut self) -> Arm<'_> {
        if lock(&self.link).has_interrupt() {
            Arm::Ready
        } else {
            Arm::Armed(self.fd.as_fd())
        }
    }

    fn disarm(&mut self) {}

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }

    fn close(&mut self, _pool: &mut Pool) -> usize {
        0
    }
}
