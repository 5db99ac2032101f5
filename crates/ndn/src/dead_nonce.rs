//! The dead nonce list: nonces of Interests that left the PIT, so that one that loops is still known.

use alloc::collections::VecDeque;
use core::time::Duration;

use hashbrown::HashTable;
use wire::Instant;

/// How long a nonce is remembered, as in NFD.
pub const LIFETIME: Duration = Duration::from_secs(6);

/// Hashes of name and nonce, sized at start; when it is full the oldest leaves early.
#[derive(Debug)]
pub struct DeadNonces {
    queue: VecDeque<(u64, Instant)>,
    table: HashTable<u64>,
    capacity: usize,
}

impl DeadNonces {
    /// Makes room for `capacity` nonces.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self {
            queue: VecDeque::with_capacity(capacity),
            table: HashTable::with_capacity(capacity),
            capacity,
        }
    }

    /// Remembers a hash until [`LIFETIME`] from now; O(1).
    pub fn add(&mut self, hash: u64, now: Instant) {
        // Two leave for one that comes, so that the list shrinks when load falls.
        for _ in 0..2 {
            let is_due = |&(_, expiry): &(u64, Instant)| expiry <= now;
            if self.queue.front().is_some_and(is_due) || self.queue.len() >= self.capacity {
                self.drop_oldest();
            }
        }
        if self.queue.len() < self.capacity {
            self.queue.push_back((hash, now + LIFETIME));
            self.table.insert_unique(hash, hash, |&hash| hash);
        }
    }

    /// True if the hash was added less than [`LIFETIME`] ago, and perhaps a little longer: an entry leaves when
    /// others come.
    pub fn has(&self, hash: u64, now: Instant) -> bool {
        if self.table.find(hash, |&known| known == hash).is_none() {
            return false;
        }
        // A list that saw nothing new for long is all due.
        self.queue.back().is_some_and(|&(_, expiry)| expiry > now)
    }

    /// Returns how many hashes are remembered.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// True if nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    fn drop_oldest(&mut self) {
        if let Some((hash, _)) = self.queue.pop_front()
            && let Ok(entry) = self.table.find_entry(hash, |&known| known == hash)
        {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_the_oldest_and_the_old() {
        let at = |secs| Instant::ZERO + Duration::from_secs(secs);
        let mut list = DeadNonces::new(3);
        for hash in 1..=4 {
            list.add(hash, at(0));
        }
        assert!(!list.has(1, at(1)) && list.has(2, at(1)) && list.has(4, at(1)));
        assert_eq!(list.len(), 3);
        list.add(5, at(7));
        list.add(6, at(7));
        assert!(!list.has(2, at(7)) && list.has(5, at(7)) && !list.has(5, at(14)));
        // One hash twice stays until both are gone.
        let mut list = DeadNonces::new(2);
        list.add(9, at(0));
        list.add(9, at(0));
        list.add(8, at(0));
        assert!(list.has(9, at(1)) && list.has(8, at(1)));
    }
}
