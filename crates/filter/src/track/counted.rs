//! Counts by key that go up and down: connections of a source, connections that open a mapping to an address.

use core::sync::atomic::Ordering;

use tables::quiescent::Domain;
use tables::signature::Keyed;
use tables::slots::{InsertError, SlotMap, SlotMemory, SlotWorker};

/// Counts of keys, shared by all workers; a key whose count falls to zero is forgotten.
#[derive(Debug)]
pub struct Counted {
    map: SlotMap<u64>,
}

/// Why a count was not raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountError {
    /// The count is at its limit.
    Limit,
    /// There is no room for another key.
    Full,
}

impl Counted {
    /// Takes over memory that no process uses any more, and forgets all counts.
    pub fn cleared(memory: SlotMemory<u64>, hash: Keyed, workers: usize) -> Self {
        Self {
            map: SlotMap::cleared(memory, hash, Domain::new(workers)),
        }
    }

    /// Uses memory beside other processes, with what they have counted.
    pub fn with_memory(memory: SlotMemory<u64>, hash: Keyed, domain: Domain) -> Self {
        Self {
            map: SlotMap::with_memory(memory, hash, domain),
        }
    }

    /// Joins as a worker, or `None` if there are as many already as there may be.
    pub fn join(&self) -> Option<SlotWorker> {
        self.map.join()
    }

    /// Raises the count of a key by one, to `limit` at most; returns the new count.
    ///
    /// # Errors
    /// If the count is at the limit, or the table is full.
    pub fn raise(&self, worker: &mut SlotWorker, key: u64, limit: u64) -> Result<u64, CountError> {
        // A key whose last count was taken back is away in a moment: few attempts are enough.
        for _ in 0..8 {
            let found = match self.map.find(&key) {
                Some(found) => found,
                None if limit == 0 => return Err(CountError::Limit),
                None => match self.map.insert(worker, &key, &[1]) {
                    Ok(_) => return Ok(1),
                    Err(InsertError::Exists(found)) => found,
                    Err(_) => return Err(CountError::Full),
                },
            };
            let Some(word) = self.map.values(found).and_then(|words| words.first()) else {
                continue;
            };
            let more = |count: u64| (count > 0 && count < limit).then_some(count + 1);
            // Relaxed: the word is the whole state.
            match word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
                Ok(before) => return Ok(before + 1),
                Err(0) => {}
                Err(_) => return Err(CountError::Limit),
            }
        }
        Err(CountError::Full)
    }

    /// Lowers the count of a key by one.
    pub fn lower(&self, worker: &mut SlotWorker, key: u64) {
        let Some(found) = self.map.find(&key) else {
            return;
        };
        let Some(word) = self.map.values(found).and_then(|words| words.first()) else {
            return;
        };
        let less = |count: u64| count.checked_sub(1);
        if word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) == Ok(1) {
            self.map.remove_ref(worker, found);
        }
    }

    /// The count of a key.
    pub fn get(&self, key: u64) -> u64 {
        let found = self.map.find(&key);
        found
            .and_then(|found| self.map.values(found)?.first())
            .map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Reports that the worker holds nothing and frees what has passed its grace period: once a loop.
    pub fn reclaim(&self, worker: &mut SlotWorker) {
        worker.quiescent();
        self.map.reclaim(worker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_up_to_the_limit_and_down_to_nothing() {
        let memory = SlotMemory::new(100, tables::memory::Pages::Normal);
        let counted = Counted::cleared(memory, Keyed::new([1, 2, 3, 4]), 1);
        let mut worker = counted.join().unwrap();
        assert_eq!(counted.raise(&mut worker, 7, 0), Err(CountError::Limit));
        assert_eq!(counted.raise(&mut worker, 7, 2), Ok(1));
        assert_eq!(counted.raise(&mut worker, 7, 2), Ok(2));
        assert_eq!(counted.raise(&mut worker, 7, 2), Err(CountError::Limit));
        assert_eq!(counted.get(7), 2);
        for _ in 0..3 {
            counted.lower(&mut worker, 7);
        }
        assert_eq!(counted.get(7), 0);
        for round in 0..1000 {
            assert_eq!(counted.raise(&mut worker, round, 1), Ok(1));
            counted.lower(&mut worker, round);
            counted.reclaim(&mut worker);
        }
    }
}
