//! Counters: one line a worker, written by it alone, summed by who asks.

use crate::sync::atomic::Ordering;
use crate::sync::unmodelled::AtomicU64;
use alloc::vec::Vec;
use crossbeam_utils::CachePadded;

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident $variant:ident;)+) => {
        /// What a store has done since it was made, and what it holds.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $field: u64,)+
            /// Packets now.
            pub packets: u64,
            /// Bytes of packets, headers, inner nodes and chunks now, by size class.
            pub bytes: u64,
            /// Packets at most.
            pub capacity_packets: u64,
            /// Bytes at most.
            pub capacity_bytes: u64,
            /// Inner nodes of the trie now.
            pub prefixes: u64,
            /// Chunks of children now.
            pub chunks: u64,
        }

        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Counter { $($variant,)+ #[doc(hidden)] Prefixes, Chunks, Count }

        impl Counters {
            pub(crate) fn sum(&self) -> Stats {
                Stats {
                    $($field: self.total(Counter::$variant),)+
                    prefixes: self.total(Counter::Prefixes),
                    chunks: self.total(Counter::Chunks),
                    ..Stats::default()
                }
            }
        }
    };
}

counters! {
    /// Lookups that found a packet.
    hits Hit;
    /// Lookups that did not.
    misses Miss;
    /// Packets stored under a name that had none.
    inserted Inserted;
    /// Packets stored in place of one of the same name.
    replaced Replaced;
    /// Packets not stored, for whatever reason.
    refused Refused;
    /// Packets that made room.
    evicted Evicted;
    /// Packets erased by prefix.
    erased Erased;
    /// Implicit digests computed.
    digests Digest;
    /// Inner nodes that a search for fresh packets entered in vain (their bounds were lowered then).
    vain_visits Vain;
}

/// The counters of all workers.
#[derive(Debug)]
pub(crate) struct Counters {
    lines: Vec<CachePadded<[AtomicU64; Counter::Count as usize]>>,
}

impl Counters {
    pub(crate) fn new(workers: usize) -> Self {
        let line = || CachePadded::new(core::array::from_fn(|_| AtomicU64::new(0)));
        Self {
            lines: (0..workers).map(|_| line()).collect(),
        }
    }

    /// Adds to a counter of a worker, who alone writes it.
    #[inline]
    pub(crate) fn add(&self, worker: usize, counter: Counter, change: i64) {
        if let Some(value) = self
            .lines
            .get(worker)
            .and_then(|line| line.get(counter as usize))
        {
            let old = value.load(Ordering::Relaxed);
            value.store(old.wrapping_add(change as u64), Ordering::Relaxed);
        }
    }

    fn total(&self, counter: Counter) -> u64 {
        let values = self
            .lines
            .iter()
            .filter_map(|line| line.get(counter as usize));
        values.fold(0, |sum, value| {
            sum.wrapping_add(value.load(Ordering::Relaxed))
        })
    }
}
