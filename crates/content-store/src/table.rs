//! The lookup table: buckets of one cache line over the names of packets and the prefixes of inner nodes.
//!
//! A slot is a word: 32 bits of tag and a [`Node`]. A node stays in its slot for life, so that a reader that
//! walks a bucket's slots finds every node that was there throughout, without a lock or a version. Writers of
//! a bucket take its lock (CS-4); buckets that overflow are chained to buckets of a pool.

use crate::hash::{PrefixHash, RUN, next_bucket};
use crate::node::Node;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::lock_bit;
use tables::memory::{Memory, Pages, Plain, prefetch};

/// Slots of a bucket.
#[cfg(not(any(loom, shuttle)))]
const WAYS: usize = 7;
#[cfg(any(loom, shuttle))]
const WAYS: usize = 2;
/// Bit of the control word; its high half is the number of the next bucket.
const LOCK: u64 = 1;
/// Buckets that a chain may have.
const CHAIN_MAX: usize = 64;

/// One bucket: the control word and the slots.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Bucket {
    control: AtomicU64,
    slots: [AtomicU64; WAYS],
}

// SAFETY: atomic integers that fill the alignment: every pattern of bits is valid.
unsafe impl Plain for Bucket {
    fn zeroed() -> Self {
        Self {
            control: Plain::zeroed(),
            slots: Plain::zeroed(),
        }
    }
}

/// The buckets of a store.
#[derive(Debug)]
pub(crate) struct Table {
    buckets: Memory<Bucket>,
    /// Buckets that hashes choose from, in runs; the rest is the pool for chains.
    primary: usize,
    /// Buckets of the pool that are in chains.
    chained: AtomicU64,
    /// Buckets that were in chains and are not: a lock bit, and in the high half the first of them.
    spare: AtomicU64,
}

/// No slot is free and no bucket can be chained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableFull;

/// A locked chain of buckets.
pub(crate) struct Locked<'a> {
    table: &'a Table,
    first: &'a Bucket,
}

/// A slot of a locked chain.
#[derive(Clone, Copy)]
pub(crate) struct Slot<'a>(&'a AtomicU64);

impl Table {
    /// Makes a table for `nodes` nodes at a load of 0.6, with one bucket in twelve for chains.
    pub(crate) fn new(nodes: usize, pages: Pages) -> Self {
        let primary = (nodes * 5 / 3).div_ceil(WAYS).max(1);
        let primary = primary.next_multiple_of(RUN as usize);
        // A few more, since a small table fills less evenly.
        let chains = primary / 12 + (RUN as usize / 4).max(2);
        Self {
            buckets: Memory::zeroed(primary + chains, pages),
            primary,
            chained: AtomicU64::new(0),
            spare: AtomicU64::new(0),
        }
    }

    /// Bytes of all buckets.
    pub(crate) fn bytes(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>()
    }

    pub(crate) fn has_huge_pages(&self) -> bool {
        self.buckets.has_huge_pages()
    }

    #[inline(always)]
    fn bucket(&self, part: u32) -> &Bucket {
        let runs = (self.primary / RUN as usize) as u64;
        let run = (u64::from(part / RUN) * u64::from(RUN) * runs) >> 32;
        let at = run as usize * RUN as usize + (part % RUN) as usize;
        match self.buckets.get(at) {
            Some(bucket) => bucket,
            None => &self.buckets[0],
        }
    }

    #[inline(always)]
    fn next(&self, control: u64) -> Option<&Bucket> {
        match (control >> 32) as usize {
            0 => None,
            at => self.buckets.get(at),
        }
    }

    /// Asks for the line of the bucket.
    #[inline(always)]
    pub(crate) fn prefetch(&self, part: u32) {
        prefetch(self.bucket(part));
    }

    /// Asks for the line of the bucket in which the next name of a run lies.
    #[inline(always)]
    pub(crate) fn prefetch_after(&self, part: u32) {
        prefetch(self.bucket(next_bucket(part)));
    }

    /// The first node of the hash's first bucket with its tag that is an inner node or is not; it may be another
    /// name's.
    #[inline(always)]
    pub(crate) fn candidate(&self, hash: PrefixHash, is_inner: bool) -> Node {
        let tag = hash.tag();
        for slot in &self.bucket(hash.bucket_part()).slots {
            // Acquire: as in `find_from`.
            let word = slot.load(Ordering::Acquire);
            let node = Node(word as u32);
            if (word >> 32) as u32 == tag && !node.is_none() && node.is_inner() == is_inner {
                return node;
            }
        }
        Node::NONE
    }

    /// The first node with the hash's tag that `is_wanted`.
    #[inline]
    pub(crate) fn find(
        &self,
        hash: PrefixHash,
        is_wanted: impl FnMut(Node) -> bool,
    ) -> Option<Node> {
        let bucket = self.bucket(hash.bucket_part());
        self.find_from(bucket, hash.tag(), is_wanted)
            .map(|(_, node)| node)
    }

    #[inline]
    fn find_from<'a>(
        &'a self,
        mut bucket: &'a Bucket,
        tag: u32,
        mut is_wanted: impl FnMut(Node) -> bool,
    ) -> Option<(&'a AtomicU64, Node)> {
        for _ in 0..CHAIN_MAX {
            for slot in &bucket.slots {
                // Acquire: pairs with the release in `Slot::set`: the node's words and bytes are there.
                let word = slot.load(Ordering::Acquire);
                let node = Node(word as u32);
                if (word >> 32) as u32 == tag && !node.is_none() && is_wanted(node) {
                    return Some((slot, node));
                }
            }
            // Acquire: pairs with the release in `Locked::chain`.
            bucket = self.next(bucket.control.load(Ordering::Acquire))?;
        }
        None
    }

    /// Locks the hash's bucket against writers.
    #[inline]
    pub(crate) fn lock(&self, part: u32) -> Locked<'_> {
        let first = self.bucket(part);
        lock_bit(&first.control, LOCK);
        Locked { table: self, first }
    }
}

impl<'a> Locked<'a> {
    /// As [`Table::find`], with the slot.
    pub(crate) fn find(
        &self,
        tag: u32,
        is_wanted: impl FnMut(Node) -> bool,
    ) -> Option<(Slot<'a>, Node)> {
        let found = self.table.find_from(self.first, tag, is_wanted);
        found.map(|(slot, node)| (Slot(slot), node))
    }

    /// The slot of a node.
    pub(crate) fn slot_of(&self, node: Node) -> Option<Slot<'a>> {
        let mut bucket = self.first;
        for _ in 0..CHAIN_MAX {
            for slot in &bucket.slots {
                if slot.load(Ordering::Relaxed) as u32 == node.0 {
                    return Some(Slot(slot));
                }
            }
            bucket = self.table.next(bucket.control.load(Ordering::Relaxed))?;
        }
        None
    }

    /// A free slot; a bucket is chained if there is none.
    pub(crate) fn free(&self) -> Result<Slot<'a>, TableFull> {
        let mut bucket = self.first;
        for _ in 0..CHAIN_MAX {
            for slot in &bucket.slots {
                if slot.load(Ordering::Relaxed) == 0 {
                    return Ok(Slot(slot));
                }
            }
            bucket = match self.table.next(bucket.control.load(Ordering::Relaxed)) {
                Some(next) => next,
                None => self.chain(bucket)?,
            };
        }
        Err(TableFull)
    }

    /// Takes the last bucket of the chain off when it is empty. A reader that is on its way to it finds nothing
    /// there, or nodes of other names when it is chained elsewhere by then, and misses none of this chain.
    pub(crate) fn trim(&self) {
        let mut before = self.first;
        let Some(mut last) = self.table.next(before.control.load(Ordering::Relaxed)) else {
            return;
        };
        while let Some(next) = self.table.next(last.control.load(Ordering::Relaxed)) {
            (before, last) = (last, next);
        }
        let mut slots = last.slots.iter();
        if slots.any(|slot| slot.load(Ordering::Relaxed) != 0) {
            return;
        }
        let control = before.control.load(Ordering::Relaxed);
        // Release: as in `chain`.
        before
            .control
            .store(control & u64::from(u32::MAX), Ordering::Release);
        let spare = &self.table.spare;
        lock_bit(spare, LOCK);
        let first = spare.load(Ordering::Relaxed) >> 32;
        last.control.store(first << 32, Ordering::Relaxed);
        // Release: pairs with the acquire in `lock_bit`. This also unlocks.
        spare.store(control >> 32 << 32, Ordering::Release);
    }

    /// Takes a bucket that was in a chain, if there is one; returns its number.
    fn spare(&self) -> Option<u64> {
        let spare = &self.table.spare;
        if spare.load(Ordering::Relaxed) >> 32 == 0 {
            return None;
        }
        lock_bit(spare, LOCK);
        let word = spare.load(Ordering::Relaxed);
        let bucket = self.table.next(word);
        let after = bucket.map_or(0, |bucket| bucket.control.swap(0, Ordering::Relaxed));
        // Release: as in `trim`.
        spare.store(after >> 32 << 32, Ordering::Release);
        bucket.map(|_| word >> 32)
    }

    fn chain(&self, last: &'a Bucket) -> Result<&'a Bucket, TableFull> {
        if let Some(number) = self.spare() {
            // Release: as below.
            last.control.fetch_or(number << 32, Ordering::Release);
            return self.table.next(number << 32).ok_or(TableFull);
        }
        let pool = self.table.buckets.len() - self.table.primary;
        let taken = self.table.chained.fetch_add(1, Ordering::Relaxed) as usize;
        let bucket = self.table.buckets.get(self.table.primary + taken);
        let Some(bucket) = bucket.filter(|_| taken < pool) else {
            self.table.chained.fetch_sub(1, Ordering::Relaxed);
            return Err(TableFull);
        };
        let number = (self.table.primary + taken) as u64;
        // Release: pairs with the acquire in `find_from`; the bucket is empty. Only we write the high half.
        last.control.fetch_or(number << 32, Ordering::Release);
        Ok(bucket)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Only who holds the lock writes the word. Release: pairs with the acquire in `lock_bit`.
        let word = self.first.control.load(Ordering::Relaxed) & !LOCK;
        self.first.control.store(word, Ordering::Release);
    }
}

impl Slot<'_> {
    /// Publishes a node in the slot.
    pub(crate) fn set(self, tag: u32, node: Node) {
        // Release: pairs with the acquire in `Table::find_from`: who sees the node sees what it holds.
        self.0
            .store(u64::from(tag) << 32 | u64::from(node.0), Ordering::Release);
    }

    pub(crate) fn clear(self) {
        // Release: who reuses the slot's node orders itself by the grace period; nothing pairs with this
        // beyond the bucket's lock.
        self.0.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_chains_until_the_pool_is_out() {
        let table = Table::new(1, Pages::Normal);
        let hash = |tag: u32| PrefixHash {
            low: u64::from(tag),
            high: 0,
        };
        let mut nodes = 0;
        loop {
            let locked = table.lock(0);
            let Ok(slot) = locked.free() else { break };
            nodes += 1;
            slot.set(nodes, Node(nodes));
        }
        assert_eq!(
            nodes as usize,
            (table.buckets.len() - table.primary + 1) * WAYS
        );
        for tag in 1..=nodes {
            assert_eq!(table.find(hash(tag), |_| true), Some(Node(tag)));
            assert_eq!(table.find(hash(tag), |_| false), None);
        }
        let locked = table.lock(0);
        locked.slot_of(Node(9)).unwrap().clear();
        assert!(locked.slot_of(Node(9)).is_none());
        locked.free().unwrap().set(77, Node(9));
        // The last bucket goes when it is empty, and can be chained again.
        for node in nodes + 1 - WAYS as u32..=nodes {
            assert!(locked.free().is_err() || node > nodes + 1 - WAYS as u32);
            locked.slot_of(Node(node)).unwrap().clear();
            locked.trim();
        }
        for node in nodes + 1 - WAYS as u32..=nodes {
            locked.free().unwrap().set(node, Node(node));
        }
        assert!(locked.free().is_err());
        drop(locked);
        assert_eq!(table.find(hash(9), |_| true), None);
        assert_eq!(table.find(hash(77), |_| true), Some(Node(9)));
    }
}
