//! Counters that one worker writes and anyone reads: plain relaxed atomics, no lock, no read-modify-write.

use core::sync::atomic::{AtomicU64, Ordering};

use wire::DropReason;

/// A counter with one writer, its worker. Readers may see it a little late, never torn.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`; only the owner calls this, which is why it needs no locked instruction.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        let value = self.0.load(Ordering::Relaxed).wrapping_add(n);
        self.0.store(value, Ordering::Relaxed);
    }

    /// Replaces the value; only the owner calls this.
    #[inline]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Returns the value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// An edge's counter.
#[derive(Debug)]
pub struct EdgeCounters {
    /// The edge's name.
    pub name: &'static str,
    /// The node that it leads to.
    pub to: String,
    /// Frames that went along it.
    pub pkts: Counter,
}

/// What a node did.
#[derive(Debug)]
pub struct NodeCounters {
    /// The node's name.
    pub name: String,
    /// Frames that it was given.
    pub pkts: Counter,
    /// Calls, each with 1 to 64 frames.
    pub batches: Counter,
    /// Frames of the calls that were timed (one call in 64).
    pub timed_pkts: Counter,
    /// Time of the calls that were timed, nanoseconds.
    pub timed_ns: Counter,
    /// Frames that ended their way here.
    pub consumed_pkts: Counter,
    /// Its edges.
    pub edges: Vec<EdgeCounters>,
    drops: [Counter; DropReason::COUNT],
}

impl NodeCounters {
    pub(crate) fn new(name: &str, edges: Vec<EdgeCounters>) -> Self {
        Self {
            name: name.into(),
            pkts: Counter::default(),
            batches: Counter::default(),
            timed_pkts: Counter::default(),
            timed_ns: Counter::default(),
            consumed_pkts: Counter::default(),
            edges,
            drops: core::array::from_fn(|_| Counter::default()),
        }
    }

    pub(crate) fn count_drop(&self, reason: DropReason, pkts: u64) {
        self.drops[reason as usize].add(pkts);
    }

    /// Returns how many frames the node dropped for a reason.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize].get()
    }

    /// Returns the reasons for which the node dropped frames, with their numbers.
    pub fn all_drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL
            .iter()
            .map(|&reason| (reason, self.drops(reason)))
            .filter(|&(_, pkts)| pkts > 0)
    }

    /// Returns how many frames the node dropped.
    pub fn dropped_pkts(&self) -> u64 {
        self.drops.iter().map(Counter::get).sum()
    }
}
