//! Per-core counters: a row of words a worker, written by plain stores, summed by whoever asks, also from
//! another process when the words lie in a memory segment.

use crate::memory::Memory;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use core::cell::Cell;
use core::marker::PhantomData;
use crossbeam_utils::CachePadded;

/// Counters of one line.
const LINE: usize = 8;

/// One padded line of counters: rows of different workers never share a line (nor a pair of lines that a
/// prefetcher takes together).
pub type CounterLine = CachePadded<[AtomicU64; LINE]>;

/// `counters` words for each of `workers`; the first word of a row tells whether the row is claimed.
#[derive(Clone, Debug)]
pub struct Counters {
    lines: Arc<Memory<CounterLine>>,
    workers: usize,
    counters: usize,
}

impl Counters {
    /// Number of lines that `workers` rows of `counters` take, for a memory segment.
    pub const fn lines(workers: usize, counters: usize) -> usize {
        workers * (counters + 1).div_ceil(LINE)
    }

    /// Makes zeroed counters on the heap.
    pub fn new(workers: usize, counters: usize) -> Self {
        Self::with_memory(
            Memory::heap(Self::lines(workers, counters)),
            workers,
            counters,
        )
    }

    /// Makes counters of (or attaches to those in) `memory`.
    ///
    /// # Panics
    /// If `memory` has not [`Counters::lines`] lines.
    pub fn with_memory(memory: Memory<CounterLine>, workers: usize, counters: usize) -> Self {
        assert_eq!(
            memory.len(),
            Self::lines(workers, counters),
            "counter memory of another shape"
        );
        Self {
            lines: Arc::new(memory),
            workers,
            counters,
        }
    }

    /// Number of rows.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Number of counters in a row.
    pub fn len(&self) -> usize {
        self.counters
    }

    /// True without counters.
    pub fn is_empty(&self) -> bool {
        self.counters == 0
    }

    /// Claims the row of `worker`, or `None` if there is none or somebody has it. What the row counted
    /// before stays: a worker that comes back continues.
    pub fn row(&self, worker: usize) -> Option<CounterRow> {
        if worker >= self.workers {
            return None;
        }
        // Acquire: pairs with the release store in `release` (and the drop of a row): the new owner
        // starts from the sums that the old one left.
        self.word(worker, 0)
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| CounterRow {
                counters: self.clone(),
                worker,
                not_sync: PhantomData,
            })
    }

    /// Gives the row of a worker that died back (recovery only).
    pub fn release(&self, worker: usize) {
        if worker < self.workers {
            // Release: pairs with the acquire exchange in `row`.
            self.word(worker, 0).store(0, Ordering::Release);
        }
    }

    /// Reads one counter of one worker; zero outside.
    pub fn get(&self, worker: usize, counter: usize) -> u64 {
        if worker >= self.workers || counter >= self.counters {
            return 0;
        }
        // Relaxed: each counter is exact at some moment of the call; counters are not read together.
        self.word(worker, counter + 1).load(Ordering::Relaxed)
    }

    /// Sums one counter over the workers (wrapping).
    pub fn sum(&self, counter: usize) -> u64 {
        (0..self.workers).fold(0, |sum, worker| sum.wrapping_add(self.get(worker, counter)))
    }

    #[inline(always)]
    fn word(&self, worker: usize, word: usize) -> &AtomicU64 {
        let row_lines = (self.counters + 1).div_ceil(LINE);
        &self.lines[worker * row_lines + word / LINE][word % LINE]
    }
}

/// The one writer of a row; gives it back when dropped.
#[derive(Debug)]
pub struct CounterRow {
    counters: Counters,
    worker: usize,
    /// `add` is a load and a store: two threads in one row would lose counts.
    not_sync: PhantomData<Cell<()>>,
}

impl CounterRow {
    /// Adds `n` to a counter (wrapping); a counter that does not exist is ignored.
    #[inline]
    pub fn add(&self, counter: usize, n: u64) {
        if counter < self.counters.counters {
            let word = self.counters.word(self.worker, counter + 1);
            // Relaxed, and no locked instruction: nobody else writes this word.
            word.store(
                word.load(Ordering::Relaxed).wrapping_add(n),
                Ordering::Relaxed,
            );
        }
    }
}

impl Drop for CounterRow {
    fn drop(&mut self) {
        self.counters.release(self.worker);
    }
}

/// Reads the counters of another process.
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
#[derive(Clone, Debug)]
pub struct CountersReader(Counters);

#[cfg(all(feature = "std", not(any(loom, shuttle))))]
impl CountersReader {
    /// Views counters in a segment that may be attached read-only.
    ///
    /// # Panics
    /// If the object has not [`Counters::lines`] lines.
    pub fn new(
        lines: crate::segment::ReadOnly<CounterLine>,
        workers: usize,
        counters: usize,
    ) -> Self {
        Self(Counters::with_memory(
            lines.into_memory(),
            workers,
            counters,
        ))
    }

    /// Reads one counter of one worker; zero outside.
    pub fn get(&self, worker: usize, counter: usize) -> u64 {
        self.0.get(worker, counter)
    }

    /// Sums one counter over the workers (wrapping).
    pub fn sum(&self, counter: usize) -> u64 {
        self.0.sum(counter)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn another_mapping_reads_the_sums() {
        use crate::segment::{Access, Segment};
        use std::os::fd::AsRawFd;
        let owner = Segment::memfd("counters", 1 << 16, 1).unwrap();
        let lines = owner.reserve("counters", Counters::lines(2, 3)).unwrap();
        let counters = Counters::with_memory(lines, 2, 3);
        counters.row(0).unwrap().add(2, 4);
        counters.row(1).unwrap().add(2, 5);
        let path = format!("/proc/self/fd/{}", owner.file().unwrap().as_raw_fd());
        let other = Segment::attach(path.as_ref(), 1, Access::ReadOnly).unwrap();
        let reader = CountersReader::new(other.view("counters").unwrap(), 2, 3);
        assert_eq!((reader.sum(2), reader.get(1, 2), reader.sum(7)), (9, 5, 0));
    }

    #[test]
    fn rows_add_up_and_are_claimed_once() {
        let counters = Counters::new(2, 9);
        let a = counters.row(0).unwrap();
        assert!(counters.row(0).is_none());
        assert!(counters.row(2).is_none());
        let reader = counters.clone();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let b = counters.row(1).unwrap();
                (0..1000).for_each(|_| b.add(8, 2));
            });
            let mut last = 0;
            for _ in 0..1000 {
                let sum = reader.sum(8);
                assert!(sum >= last, "a sum went back");
                last = sum;
            }
        });
        a.add(8, 5);
        a.add(0, 1);
        a.add(9, 1);
        assert_eq!(
            (counters.sum(8), counters.sum(0), counters.sum(9)),
            (2005, 1, 0)
        );
        drop(a);
        let a = counters.row(0).unwrap();
        a.add(8, 1);
        assert_eq!((counters.get(0, 8), counters.get(7, 0)), (6, 0));
    }
}
