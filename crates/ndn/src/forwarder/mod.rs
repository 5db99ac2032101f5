//! One worker's forwarder: packets in, packets out, by the pipelines of the NFD developer's guide.

mod actions;
mod control;
mod data;
mod input;
mod interest;
mod nack;
mod outgoing;
mod reads;
mod timers;

use alloc::vec::Vec;
use core::time::Duration;

use tables::wheel::Wheel;
use wire::ndn::PACKET_BYTES_MAX;
use wire::ndn::lp::LpHeader;
use wire::ndn::name::Name;
use wire::{DropReason, Instant};

use crate::dead_nonce::DeadNonces;
use crate::face::{FaceId, Faces};
use crate::fib::Fib;
use crate::partition::Partition;
use crate::pit::{Pit, PitId, PitToken};
use crate::rng::Rng;
use crate::store::ContentStore;
use crate::strategy::{Action, Measurements, StrategyChoice};

pub use input::Incoming;

/// Which Data that nobody asked for is cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UnsolicitedPolicy {
    /// None: it is how caches are poisoned.
    #[default]
    DropAll,
    /// From applications on this machine.
    AdmitLocal,
    /// From other machines.
    AdmitNetwork,
    /// All.
    AdmitAll,
}

/// Sizes and choices of a forwarder.
#[derive(Clone, Debug)]
pub struct ForwarderConfig {
    /// Faces beside the reserved ones.
    pub faces: usize,
    /// Pending Interests.
    pub pit_entries: usize,
    /// Prefixes in the FIB.
    pub fib_prefixes: usize,
    /// Strategy choices beside that of `/`.
    pub strategy_choices: usize,
    /// Pairs of prefix and face that strategies measure.
    pub measurements: usize,
    /// Nonces that are remembered after their Interests left the PIT.
    pub dead_nonces: usize,
    /// The longest lifetime that an Interest gets here.
    pub lifetime_max: Duration,
    /// Data that nobody asked for.
    pub unsolicited: UnsolicitedPolicy,
    /// Names of the producer regions that this node is in: a forwarding hint that leads here has done its
    /// work.
    pub regions: Vec<Name>,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for ForwarderConfig {
    fn default() -> Self {
        Self {
            faces: 1024,
            pit_entries: 65_536,
            fib_prefixes: 65_536,
            strategy_choices: 1024,
            measurements: 4096,
            dead_nonces: 262_144,
            lifetime_max: Duration::from_secs(3600),
            unsolicited: UnsolicitedPolicy::DropAll,
            regions: Vec::new(),
            seed: 0,
        }
    }
}

/// A network packet that leaves.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// By which face.
    pub face: FaceId,
    /// What the link header is to say.
    pub header: LpHeader<'a>,
    /// The Interest or Data.
    pub packet: &'a [u8],
}

/// Data for the worker that holds pending CanBePrefix Interests for prefixes of its name.
#[derive(Clone, Copy, Debug)]
pub struct Handoff<'a> {
    /// The face that the Data came from.
    pub ingress: FaceId,
    /// Its link header.
    pub header: LpHeader<'a>,
    /// The Data.
    pub packet: &'a [u8],
    /// Someone asked for the Data and it is cached; else whoever asked for it caches it.
    pub is_solicited: bool,
}

/// A route that the self-learning strategy found, or lost.
#[derive(Clone, Copy, Debug)]
pub struct Learned<'a> {
    /// The face.
    pub face: FaceId,
    /// The prefix announcement, a Data packet; `None` if the route of `name` is lost.
    pub announcement: Option<&'a [u8]>,
    /// The Data or Interest.
    pub packet: &'a [u8],
}

/// Where a forwarder puts what it makes.
pub trait Sink {
    /// A packet leaves.
    fn send(&mut self, outgoing: Outgoing<'_>);

    /// Data is for another worker too: call its [`Forwarder::input_handoff`] with a copy.
    fn hand_off(&mut self, worker: usize, handoff: Handoff<'_>);

    /// A route was learned: management decides.
    fn learned(&mut self, learned: Learned<'_>) {
        let _ = learned;
    }
}

/// What passed a forwarder.
#[derive(Clone, Debug)]
pub struct ForwarderCounters {
    /// Interests received.
    pub in_interests: u64,
    /// Data received.
    pub in_data: u64,
    /// Nacks received.
    pub in_nacks: u64,
    /// Interests sent.
    pub out_interests: u64,
    /// Data sent.
    pub out_data: u64,
    /// Nacks sent.
    pub out_nacks: u64,
    /// Pending Interests that Data came for.
    pub satisfied: u64,
    /// Pending Interests that ended without Data.
    pub unsatisfied: u64,
    /// Interests that the content store answered.
    pub store_hits: u64,
    /// Interests that it did not.
    pub store_misses: u64,
    /// Reads from the content store's slower place that Interests waited for.
    pub store_reads: u64,
    /// Data handed to other workers.
    pub handoffs: u64,
    drops: [u64; DropReason::COUNT],
}

impl Default for ForwarderCounters {
    fn default() -> Self {
        Self {
            in_interests: 0,
            in_data: 0,
            in_nacks: 0,
            out_interests: 0,
            out_data: 0,
            out_nacks: 0,
            satisfied: 0,
            unsatisfied: 0,
            store_hits: 0,
            store_misses: 0,
            store_reads: 0,
            handoffs: 0,
            drops: [0; DropReason::COUNT],
        }
    }
}

impl ForwarderCounters {
    /// Returns how many packets were dropped for a reason.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.drops.get(reason as usize).copied().unwrap_or(0)
    }

    /// Adds what passed another worker.
    pub fn add(&mut self, other: &Self) {
        self.in_interests += other.in_interests;
        self.in_data += other.in_data;
        self.in_nacks += other.in_nacks;
        self.out_interests += other.out_interests;
        self.out_data += other.out_data;
        self.out_nacks += other.out_nacks;
        self.satisfied += other.satisfied;
        self.unsatisfied += other.unsatisfied;
        self.store_hits += other.store_hits;
        self.store_misses += other.store_misses;
        self.store_reads += other.store_reads;
        self.handoffs += other.handoffs;
        for (count, more) in self.drops.iter_mut().zip(&other.drops) {
            *count += more;
        }
    }

    fn drop(&mut self, reason: DropReason) {
        if let Some(count) = self.drops.get_mut(reason as usize) {
            *count += 1;
        }
    }
}

/// Buffers that are used again for each packet.
#[derive(Debug, Default)]
struct Scratch {
    matched: Vec<PitId>,
    actions: Vec<Action>,
    downstreams: Vec<(FaceId, PitToken)>,
    packet: Vec<u8>,
}

/// One worker's forwarder.
#[derive(Debug)]
pub struct Forwarder<C> {
    worker: usize,
    partition: Partition,
    config: ForwarderConfig,
    faces: Faces,
    fib: Fib,
    choice: StrategyChoice,
    measurements: Measurements,
    pit: Pit,
    dead: DeadNonces,
    store: C,
    wheel: Wheel,
    rng: Rng,
    counters: ForwarderCounters,
    scratch: Scratch,
}

/// Ticks of the PIT's timers.
const TICK: Duration = Duration::from_millis(1);

impl<C: ContentStore> Forwarder<C> {
    /// Makes the forwarder of one worker of a partition; takes its memory.
    ///
    /// Management's prefix `/localhost/nfd` leads to the internal face from the start.
    pub fn new(
        worker: usize,
        partition: Partition,
        config: ForwarderConfig,
        store: C,
        now: Instant,
    ) -> Self {
        let hasher = partition.hasher();
        let mut fib = Fib::new(config.fib_prefixes.saturating_add(2), hasher);
        if let Ok(management) = "/localhost/nfd".parse::<Name>() {
            // An empty table has room.
            let _ = fib.add(management.as_ref(), FaceId::INTERNAL, 0);
        }
        Self {
            worker,
            faces: Faces::new(config.faces, now),
            fib,
            choice: StrategyChoice::new(config.strategy_choices, hasher),
            measurements: Measurements::new(config.measurements),
            pit: Pit::new(config.pit_entries),
            dead: DeadNonces::new(config.dead_nonces),
            store,
            wheel: Wheel::new(TICK.as_nanos() as u64, config.pit_entries + 1, now.as_ns()),
            rng: Rng::new(config.seed ^ (worker as u64) << 56),
            counters: ForwarderCounters::default(),
            scratch: Scratch {
                packet: alloc::vec![0; PACKET_BYTES_MAX + 16],
                ..Scratch::default()
            },
            partition,
            config,
        }
    }

    /// Returns the faces.
    pub const fn faces(&self) -> &Faces {
        &self.faces
    }

    /// Returns the FIB.
    pub const fn fib(&self) -> &Fib {
        &self.fib
    }

    /// Returns the PIT.
    pub const fn pit(&self) -> &Pit {
        &self.pit
    }

    /// Returns the strategy choices.
    pub const fn choice(&self) -> &StrategyChoice {
        &self.choice
    }

    /// Returns the content store.
    pub const fn store(&self) -> &C {
        &self.store
    }

    /// Returns the content store to change it.
    pub const fn store_mut(&mut self) -> &mut C {
        &mut self.store
    }

    /// Returns what passed.
    pub const fn counters(&self) -> &ForwarderCounters {
        &self.counters
    }

    /// Returns how names are spread over workers.
    pub const fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Returns the figures of ForwarderStatus: entries of name tree, FIB, PIT, measurements and content store.
    pub fn table_sizes(&self) -> [u64; 4] {
        [
            self.fib.len() as u64,
            self.pit.len() as u64,
            self.measurements.len() as u64,
            self.store.info().packets,
        ]
    }
}
