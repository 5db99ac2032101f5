//! Sketches with stated error: count-min (a row of counters a worker, merged on read) and heavy hitters
//! (space-saving).

use crate::memory::{Memory, Pages};
use crate::signature::Keyed;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::marker::PhantomData;

/// A count-min sketch (Cormode and Muthukrishnan 2005) with one copy of the counters a worker.
///
/// With width `w` and depth `d`, an estimate is never below the true count, and above it by more than
/// `e / w` of all that was counted with probability at most `exp(-d)` (for keys that do not know the hash
/// key). Memory: `8 w d` bytes a worker.
#[derive(Clone, Debug)]
pub struct CountMin {
    words: Arc<Memory<AtomicU64>>,
    hash: Keyed,
    width: usize,
    depth: usize,
    workers: usize,
}

impl CountMin {
    /// Makes a sketch whose estimates are above the true count by more than `error` of the whole with
    /// probability at most `failure` (both between 0 and 1, not included).
    pub fn new(error: f64, failure: f64, workers: usize, hash: Keyed) -> Self {
        let width = (core::f64::consts::E / error.clamp(1e-8, 0.99)) as usize + 1;
        let mut depth = 1;
        let mut miss = 1.0 / core::f64::consts::E;
        while miss > failure && depth < 16 {
            depth += 1;
            miss /= core::f64::consts::E;
        }
        let words = Memory::zeroed(width * depth * workers, Pages::Huge);
        Self::with_memory(words, width, depth, workers, hash)
    }

    /// Makes a sketch of zeroed `memory`, or attaches to one that others use.
    ///
    /// # Panics
    /// If `memory` has not `width * depth * workers` words, or one of them is zero.
    pub fn with_memory(
        memory: Memory<AtomicU64>,
        width: usize,
        depth: usize,
        workers: usize,
        hash: Keyed,
    ) -> Self {
        assert!(width > 0 && depth > 0, "a sketch needs a counter");
        assert_eq!(
            memory.len(),
            width * depth * workers,
            "sketch memory of another shape"
        );
        Self {
            words: Arc::new(memory),
            hash,
            width,
            depth,
            workers,
        }
    }

    /// Counters in a row, and rows.
    pub fn shape(&self) -> (usize, usize) {
        (self.width, self.depth)
    }

    /// The writing handle of `worker`. The caller makes one a worker; a second one would lose counts.
    pub fn writer(&self, worker: usize) -> Option<CountMinWriter> {
        (worker < self.workers).then(|| CountMinWriter {
            sketch: self.clone(),
            worker,
            not_sync: PhantomData,
        })
    }

    /// Estimates what was counted for `key` by all workers together.
    pub fn estimate(&self, key: u64) -> u64 {
        self.cells(key)
            .map(|cell| {
                (0..self.workers)
                    .map(|worker| self.cell(worker, cell).load(Ordering::Relaxed))
                    .fold(0, u64::wrapping_add)
            })
            .min()
            .unwrap_or(0)
    }

    /// Halves every counter of `worker`'s copy (to forget old traffic); by its writer's thread only.
    fn halve(&self, worker: usize) {
        for cell in 0..self.width * self.depth {
            let word = self.cell(worker, cell);
            word.store(word.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
        }
    }

    /// One cell of each row for a key: rows from the two halves of one hash (Kirsch and Mitzenmacher).
    #[inline]
    fn cells(&self, key: u64) -> impl Iterator<Item = usize> + use<> {
        let hash = self.hash.hash_words(&[key]);
        let (start, step) = (hash as u32, (hash >> 32) as u32 | 1);
        let (width, depth) = (self.width, self.depth);
        (0..depth).map(move |row| {
            let spread = start.wrapping_add(step.wrapping_mul(row as u32));
            let column = (u64::from(spread) * width as u64) >> 32;
            row * width + column as usize
        })
    }

    #[inline(always)]
    fn cell(&self, worker: usize, cell: usize) -> &AtomicU64 {
        &self.words[worker * self.width * self.depth + cell]
    }
}

/// Counts into one worker's copy of a [`CountMin`].
#[derive(Debug)]
pub struct CountMinWriter {
    sketch: CountMin,
    worker: usize,
    /// `add` is a load and a store.
    not_sync: PhantomData<Cell<()>>,
}

impl CountMinWriter {
    /// Counts `n` for `key`.
    #[inline]
    pub fn add(&self, key: u64, n: u64) {
        for cell in self.sketch.cells(key) {
            let word = self.sketch.cell(self.worker, cell);
            // Relaxed, and no locked instruction: nobody else writes this copy.
            word.store(
                word.load(Ordering::Relaxed).wrapping_add(n),
                Ordering::Relaxed,
            );
        }
    }

    /// Halves this worker's counters.
    pub fn halve(&self) {
        self.sketch.halve(self.worker);
    }
}

/// A key that may be heavy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeavyHitter {
    /// The key.
    pub key: u64,
    /// Counted: the true count or more.
    pub count: u64,
    /// At most this much of `count` is other keys'.
    pub error: u64,
}

/// The keys that make most of a stream (space-saving; Metwally, Agrawal and El Abbadi 2005), for one worker.
///
/// With `capacity` entries and `N` counted in all: every key with more than `N / capacity` is there, and no
/// count is too high by more than `N / capacity`. Merge workers' lists by adding counts and errors of equal
/// keys. A heap by count and an open-addressed index: O(log capacity) an addition, nothing allocated.
#[derive(Debug)]
pub struct HeavyHitters {
    /// A min-heap by count.
    heap: Vec<HeavyHitter>,
    /// Heap position plus one of the key that hashes (or was pushed) here.
    index: Vec<u32>,
    hash: Keyed,
    capacity: usize,
}

impl HeavyHitters {
    /// Makes an empty list of `capacity` (between 1 and 2^24) entries.
    pub fn new(capacity: usize, hash: Keyed) -> Self {
        let capacity = capacity.clamp(1, 1 << 24);
        Self {
            heap: Vec::with_capacity(capacity),
            index: vec![0; (capacity * 2).next_power_of_two()],
            hash,
            capacity,
        }
    }

    /// Counts `n` for `key`.
    pub fn add(&mut self, key: u64, n: u64) {
        let slot = self.find(key);
        let at = match self.index[slot].checked_sub(1) {
            Some(at) => {
                let at = at as usize;
                self.heap[at].count = self.heap[at].count.saturating_add(n);
                at
            }
            None if self.heap.len() < self.capacity => {
                self.heap.push(HeavyHitter {
                    key,
                    count: n,
                    error: 0,
                });
                self.index[slot] = self.heap.len() as u32;
                return self.sift_up(self.heap.len() - 1);
            }
            None => {
                let least = self.heap[0];
                self.forget(self.find(least.key));
                self.heap[0] = HeavyHitter {
                    key,
                    count: least.count.saturating_add(n),
                    error: least.count,
                };
                let slot = self.find(key);
                self.index[slot] = 1;
                0
            }
        };
        self.sift_down(at);
    }

    /// Returns the entry of `key`, if it may be heavy.
    pub fn get(&self, key: u64) -> Option<HeavyHitter> {
        let at = self.index[self.find(key)].checked_sub(1)?;
        Some(self.heap[at as usize])
    }

    /// Iterates over the entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = HeavyHitter> + '_ {
        self.heap.iter().copied()
    }

    /// Halves every count (to forget old traffic).
    pub fn halve(&mut self) {
        for entry in &mut self.heap {
            entry.count /= 2;
            entry.error /= 2;
        }
    }

    /// The index slot of `key`, or the free one where it would go.
    fn find(&self, key: u64) -> usize {
        let mask = self.index.len() - 1;
        let mut slot = self.home(key);
        while let Some(at) = self.index[slot].checked_sub(1) {
            if self.heap[at as usize].key == key {
                break;
            }
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn home(&self, key: u64) -> usize {
        self.hash.hash_words(&[key]) as usize & (self.index.len() - 1)
    }

    /// Empties an index slot and closes the gap behind it.
    fn forget(&mut self, mut gap: usize) {
        let mask = self.index.len() - 1;
        let mut slot = gap;
        self.index[gap] = 0;
        loop {
            slot = (slot + 1) & mask;
            let Some(at) = self.index[slot].checked_sub(1) else {
                return;
            };
            let home = self.home(self.heap[at as usize].key);
            // Whoever is at or past its home seen from the gap may move into it.
            if slot.wrapping_sub(home) & mask >= slot.wrapping_sub(gap) & mask {
                self.index[gap] = self.index[slot];
                self.index[slot] = 0;
                gap = slot;
            }
        }
    }

    fn sift_up(&mut self, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.heap[parent].count <= self.heap[at].count {
                return;
            }
            self.swap(parent, at);
            at = parent;
        }
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let children = 2 * at + 1..(2 * at + 3).min(self.heap.len());
            let least = children.min_by_key(|&child| self.heap[child].count);
            match least {
                Some(child) if self.heap[child].count < self.heap[at].count => {
                    self.swap(child, at);
                    at = child;
                }
                _ => return,
            }
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        let (slot_a, slot_b) = (self.find(self.heap[a].key), self.find(self.heap[b].key));
        self.heap.swap(a, b);
        self.index.swap(slot_a, slot_b);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const HASH: Keyed = Keyed::new([11, 22, 33, 44]);

    #[test]
    fn estimates_keep_their_bound() {
        let (error, failure) = (0.001, 0.01);
        let sketch = CountMin::new(error, failure, 2, HASH);
        let writers = [sketch.writer(0).unwrap(), sketch.writer(1).unwrap()];
        assert!(sketch.writer(2).is_none());
        let mut truth: HashMap<u64, u64> = HashMap::new();
        let mut total = 0;
        for at in 0..200_000_u64 {
            // About Zipf: key k with weight 1/k.
            let key = 20_000 / (1 + at.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 20_000);
            writers[(at % 2) as usize].add(key, 1 + at % 3);
            *truth.entry(key).or_default() += 1 + at % 3;
            total += 1 + at % 3;
        }
        let slack = (error * total as f64) as u64;
        let wrong = (0..20_000)
            .filter(|key| {
                let count = truth.get(key).copied().unwrap_or(0);
                let estimate = sketch.estimate(*key);
                assert!(estimate >= count, "an estimate below the count");
                estimate > count + slack
            })
            .count();
        assert!(
            wrong as f64 <= failure * 20_000.0,
            "{wrong} of 20000 above the bound"
        );
        writers[0].halve();
        writers[1].halve();
        assert!(sketch.estimate(1) <= (truth[&1] + slack) / 2 + 1);
    }

    proptest! {
        #[test]
        fn heavy_hitters_keep_their_bound(
            capacity in 1_usize..20,
            stream in prop::collection::vec((0_u64..40, 1_u64..5), 1..500),
        ) {
            let mut list = HeavyHitters::new(capacity, HASH);
            let mut truth: HashMap<u64, u64> = HashMap::new();
            let mut total = 0;
            for (key, n) in stream {
                // A few keys are heavy.
                let key = if key > 25 { key % 3 } else { key };
                list.add(key, n);
                *truth.entry(key).or_default() += n;
                total += n;
                prop_assert!(list.iter().count() <= capacity);
            }
            let bound = total / capacity as u64;
            for (&key, &count) in &truth {
                match list.get(key) {
                    Some(entry) => {
                        prop_assert!(entry.count >= count && entry.count - entry.error <= count);
                        prop_assert!(entry.error <= bound);
                    }
                    None => prop_assert!(count <= bound),
                }
            }
        }
    }
}
