//! Shared counters by key (LF-4: the DDoS statistics): found or made by compare-and-swap, then added to
//! without one.

use crate::quiescent::Domain;
use crate::signature::Keyed;
use crate::slots::{InsertError, SlotMap, SlotMemory, SlotRef, SlotWorker};
use crate::sync::atomic::Ordering;

/// Counters by 64-bit key, shared by threads or processes.
///
/// A key that finds no room is not counted, and said so: the caller counts it under "other" (or asks a
/// sketch). Where every packet of many cores hits one key, the line bounces whatever the scheme: use
/// [`Counters`](crate::counters::Counters) for counters that are known beforehand.
#[derive(Debug)]
pub struct CounterTable {
    slots: SlotMap<u64>,
}

impl CounterTable {
    /// Makes a table for about `keys` keys; asks for huge pages.
    pub fn new(keys: usize, hash: Keyed, domain: Domain) -> Self {
        Self {
            slots: SlotMap::new(keys, hash, domain),
        }
    }

    /// Makes a table of zeroed `memory`, or attaches to one that others use.
    pub fn with_memory(memory: SlotMemory<u64>, hash: Keyed, domain: Domain) -> Self {
        Self {
            slots: SlotMap::with_memory(memory, hash, domain),
        }
    }

    /// Joins as a worker, or `None` if the domain has no free place.
    pub fn join(&self) -> Option<SlotWorker> {
        self.slots.join()
    }

    /// The map below: for sweeps, reclamation and batched finds.
    pub fn slots(&self) -> &SlotMap<u64> {
        &self.slots
    }

    /// Adds `n` to the counter of `key`, which is made if it is not there, and returns the sum before;
    /// `None` if there is no room for it. Exact: no count is lost to another worker, except those that
    /// race with the removal of the counter.
    #[inline]
    pub fn add(&self, worker: &mut SlotWorker, key: u64, n: u64) -> Option<u64> {
        loop {
            let found = match self.slots.find(&key) {
                Some(found) => found,
                None => match self.slots.insert(worker, &key, &[0]) {
                    Ok(found) | Err(InsertError::Exists(found)) => found,
                    Err(InsertError::Full) => return None,
                },
            };
            if let Some(before) = self.add_to(found, n) {
                return Some(before);
            }
        }
    }

    /// Adds `n` to a counter that was found before, unless it is gone.
    #[inline]
    pub fn add_to(&self, counter: SlotRef, n: u64) -> Option<u64> {
        // Relaxed: a counter publishes nothing but itself.
        Some(self.slots.values(counter)?[0].fetch_add(n, Ordering::Relaxed))
    }

    /// Reads the counter of `key`; zero if it is not there.
    pub fn get(&self, key: u64) -> u64 {
        let mut value = [0];
        self.slots.read(&key, &mut value).map_or(0, |_| value[0])
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use alloc::sync::Arc;

    #[test]
    fn two_workers_lose_no_count() {
        let table = Arc::new(CounterTable::new(
            64,
            Keyed::new([1, 2, 3, 4]),
            Domain::new(2),
        ));
        let threads = [1_u64, 2].map(|n| {
            let table = Arc::clone(&table);
            std::thread::spawn(move || {
                let mut worker = table.join().unwrap();
                for at in 0..30_000 {
                    assert!(table.add(&mut worker, at % 50, n).is_some());
                    worker.quiescent();
                    table.slots().reclaim(&mut worker);
                }
            })
        });
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert!((0..50).all(|key| table.get(key) == 600 * 3));
        assert_eq!((table.get(50), table.slots().count()), (0, 50));
    }

    #[test]
    fn a_full_table_says_so() {
        let table = CounterTable::new(1, Keyed::new([1, 2, 3, 4]), Domain::new(1));
        let mut worker = table.join().unwrap();
        assert!((0..8).all(|key| table.add(&mut worker, key, 1) == Some(0)));
        assert_eq!(table.add(&mut worker, 8, 1), None);
        assert_eq!(table.add(&mut worker, 7, 1), Some(1));
    }
}
