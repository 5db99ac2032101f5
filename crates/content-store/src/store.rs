//! The store: what all workers share.

use crate::arena::Arena;
use crate::config::{Config, ConfigError, UnsolicitedPolicy};
use crate::evict::{Policy, Queues};
use crate::hash::{NameHash, PrefixHash};
use crate::rules::{Rule, Rules};
use crate::slab::Slab;
use crate::stats::{Counters, Stats};
use crate::sync::SpinLock;
use crate::sync::atomic::Ordering;
use crate::sync::unmodelled::AtomicU64;
use crate::table::Table;
use crate::worker::{Local, Worker};
use alloc::sync::Arc;
use alloc::vec::Vec;
use tables::quiescent::Domain;
use wire::ndn::NameRef;

/// An NDN content store that all workers of a node share. Clones are handles of the same store.
///
/// Control-plane calls are here; lookups and insertions are those of a [`Worker`].
#[derive(Clone, Debug)]
pub struct ContentStore {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) arena: Arena,
    pub(crate) slab: Slab,
    pub(crate) table: Table,
    pub(crate) queues: Queues,
    pub(crate) rules: Rules,
    pub(crate) counters: Counters,
    pub(crate) domain: Domain,
    pub(crate) hash: NameHash,
    /// Packets, and bytes by class, but for what the workers have not added yet (as signed numbers).
    pub(crate) packets: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) capacity_packets: AtomicU64,
    pub(crate) capacity_bytes: AtomicU64,
    pub(crate) flags: AtomicU64,
    /// What a worker may count for itself before it adds it to the numbers above.
    pub(crate) slack: i64,
    /// Of workers that left: what waited for its grace period, and their magazines.
    pub(crate) left: SpinLock<Vec<Local>>,
    max_packets: u64,
    #[cfg(all(feature = "std", not(any(loom, shuttle))))]
    pub(crate) disk: std::sync::OnceLock<crate::disk::DiskTier>,
}

pub(crate) mod flags {
    pub(crate) const ADMIT: u64 = 1;
    pub(crate) const SERVE: u64 = 2;
    pub(crate) const UNSOLICITED_SHIFT: u32 = 2;
}

impl ContentStore {
    /// Makes an empty store and takes all its memory.
    ///
    /// # Errors
    /// [`ConfigError`] names what is out of range.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        config.check()?;
        let slab = Slab::new(config.bytes);
        let slack = config.packets / (8 * config.workers);
        let bytes = slab.bytes() as u64;
        let domain = Domain::new(config.workers);
        let shared = Shared {
            arena: Arena::new(config.bytes, config.pages),
            slab,
            table: Table::new(config.packets + config.prefixes + 16, config.pages),
            queues: Queues::new(
                config.packets,
                config.policy,
                config.ticket_run,
                config.pages,
            ),
            rules: Rules::new(),
            counters: Counters::new(config.workers),
            domain,
            hash: config.hash,
            packets: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            capacity_packets: AtomicU64::new(config.packets as u64),
            capacity_bytes: AtomicU64::new(bytes),
            flags: AtomicU64::new(
                flags::ADMIT
                    | flags::SERVE
                    | config.unsolicited.number() << flags::UNSOLICITED_SHIFT,
            ),
            slack: slack.clamp(1, 16) as i64,
            left: SpinLock::new(Vec::with_capacity(config.workers)),
            max_packets: config.packets as u64,
            #[cfg(all(feature = "std", not(any(loom, shuttle))))]
            disk: std::sync::OnceLock::new(),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Joins as a worker, or `None` if as many as the store was made for have joined.
    pub fn join(&self) -> Option<Worker> {
        Worker::join(self.shared.clone())
    }

    /// Changes the policy while the store runs. Packets in queues that the new policy does not use leave
    /// first.
    pub fn set_policy(&self, policy: Policy) {
        self.shared.queues.set_policy(policy);
    }

    /// Returns the policy.
    pub fn policy(&self) -> Policy {
        self.shared.queues.policy()
    }

    /// Changes how many packets and bytes the store holds, up to what it was made for; returns what is in
    /// force now. Inserts evict until the store is that small; [`Worker::trim`] does it at once.
    pub fn set_capacity(&self, packets: usize, bytes: usize) -> (usize, usize) {
        let packets = (packets as u64).clamp(1, self.shared.max_packets);
        let bytes = (bytes as u64).clamp(1, self.shared.slab.bytes() as u64);
        self.shared
            .capacity_packets
            .store(packets, Ordering::Relaxed);
        self.shared.capacity_bytes.store(bytes, Ordering::Relaxed);
        self.shared.queues.set_capacity(packets as usize);
        (packets as usize, bytes as usize)
    }

    /// Switches admission of new packets on or off.
    pub fn set_admit(&self, admit: bool) {
        self.set_flag(flags::ADMIT, admit);
    }

    /// Switches answers on or off: when off, every lookup misses.
    pub fn set_serve(&self, serve: bool) {
        self.set_flag(flags::SERVE, serve);
    }

    /// Returns whether new packets are admitted, and whether lookups are answered.
    pub fn admit_and_serve(&self) -> (bool, bool) {
        let word = self.shared.flags.load(Ordering::Relaxed);
        (word & flags::ADMIT != 0, word & flags::SERVE != 0)
    }

    /// Changes which unsolicited packets are admitted.
    pub fn set_unsolicited(&self, policy: UnsolicitedPolicy) {
        let word = &self.shared.flags;
        let bits = policy.number() << flags::UNSOLICITED_SHIFT;
        word.fetch_and(!(3 << flags::UNSOLICITED_SHIFT), Ordering::Relaxed);
        word.fetch_or(bits, Ordering::Relaxed);
    }

    fn set_flag(&self, flag: u64, on: bool) {
        if on {
            self.shared.flags.fetch_or(flag, Ordering::Relaxed);
        } else {
            self.shared.flags.fetch_and(!flag, Ordering::Relaxed);
        }
    }

    /// Sets the rule of a prefix for packets that are inserted from now on, or takes it out of force; the
    /// longest prefix with a rule decides. False if there are [`RULES_MAX`](crate::RULES_MAX) already.
    pub fn set_rule(&self, prefix: NameRef<'_>, rule: Option<Rule>) -> bool {
        let hash: PrefixHash = self.shared.hash.hash(prefix.value());
        self.shared.rules.set(hash, prefix.len(), rule)
    }

    /// Sums the workers' counters. What a worker has not added yet (up to 16 packets) is not in `packets` and
    /// `bytes`.
    pub fn stats(&self) -> Stats {
        let signed = |word: &AtomicU64| (word.load(Ordering::Relaxed) as i64).max(0) as u64;
        Stats {
            packets: signed(&self.shared.packets),
            bytes: signed(&self.shared.bytes),
            capacity_packets: self.shared.capacity_packets.load(Ordering::Relaxed),
            capacity_bytes: self.shared.capacity_bytes.load(Ordering::Relaxed),
            ..self.shared.counters.sum()
        }
    }

    /// Bytes of the lookup table, of the queues, and of the arena.
    pub fn memory_bytes(&self) -> [usize; 3] {
        let shared = &self.shared;
        [
            shared.table.bytes(),
            shared.queues.bytes(),
            shared.slab.bytes(),
        ]
    }

    /// Bytes of the arena that belong to no size class: what any size can still take.
    pub fn unclassed_bytes(&self) -> usize {
        self.shared.slab.unclassed_bytes()
    }

    /// True when huge pages were asked for and granted for the table and the packets.
    pub fn has_huge_pages(&self) -> bool {
        self.shared.arena.has_huge_pages() && self.shared.table.has_huge_pages()
    }
}
