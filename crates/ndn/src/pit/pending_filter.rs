//! Which prefixes have pending Interests on some worker: what Data is compared with before anyone is asked.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, Ordering, fence};

use crate::hash::{DEPTH_MAX, Depths};

/// Counters of pending CanBePrefix Interests by the hash of their names, shared by all workers.
///
/// A Data packet asks it about each prefix of its name: zero says that no worker waits for that prefix. It is
/// the one thing that workers share on the packet path, and only CanBePrefix Interests write to it.
#[derive(Debug)]
pub struct PendingFilter {
    counters: Box<[AtomicU32]>,
    /// How many are pending of so many components: prefixes of other lengths need not be hashed.
    by_depth: [AtomicU32; DEPTH_MAX + 1],
    mask: usize,
}

impl PendingFilter {
    /// Makes `counters` counters (rounded up to a power of two): as many as CanBePrefix Interests are
    /// pending keep false alarms rare.
    pub fn new(counters: usize) -> Self {
        let size = counters.clamp(1, 1 << 28).next_power_of_two();
        Self {
            counters: (0..size).map(|_| AtomicU32::new(0)).collect(),
            by_depth: core::array::from_fn(|_| AtomicU32::new(0)),
            mask: size - 1,
        }
    }

    /// Says that one more Interest is pending for the prefix of `depth` components. Call before the content store is
    /// searched.
    pub fn add(&self, hash: u64, depth: usize) {
        if let Some(counter) = self.by_depth.get(depth) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(counter) = self.counter(hash) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        // SeqCst, partner `settle`: either the search of the content store that follows finds the Data, or
        // the worker that stored it reads this count.
        fence(Ordering::SeqCst);
    }

    /// Says that one less is pending.
    pub fn remove(&self, hash: u64, depth: usize) {
        let counters = [self.counter(hash), self.by_depth.get(depth)];
        for counter in counters.into_iter().flatten() {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns of how many components the pending prefixes are, under the same condition as
    /// [`may_have`](Self::may_have).
    #[inline]
    pub fn depths(&self) -> Depths {
        let counts = self.by_depth.iter();
        Depths::of_counts(counts.map(|counter| counter.load(Ordering::Relaxed)))
    }

    /// Orders the storing of Data before the reads of [`may_have`](Self::may_have): call in between.
    pub fn settle(&self) {
        // SeqCst, partner `add`.
        fence(Ordering::SeqCst);
    }

    /// True if an Interest may be pending for the prefix; never false, after [`settle`](Self::settle), if one
    /// is whose worker searched the content store before the Data was stored there.
    pub fn may_have(&self, hash: u64) -> bool {
        self.counter(hash)
            .is_some_and(|counter| counter.load(Ordering::Relaxed) > 0)
    }

    fn counter(&self, hash: u64) -> Option<&AtomicU32> {
        self.counters.get(hash as usize & self.mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        let filter = PendingFilter::new(3);
        assert!(!filter.may_have(5));
        filter.add(5, 1);
        filter.add(5, 1);
        filter.remove(5, 1);
        assert!(filter.depths().has(1) && !filter.depths().has(2));
        assert!(filter.may_have(5) && filter.may_have(1) && !filter.may_have(2));
        filter.remove(5, 1);
        assert!(!filter.may_have(5) && filter.depths() == Depths::default());
    }
}
