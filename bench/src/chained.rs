//! The paper's point of comparison (TL-7): a chained hash table of sessions with as many heads as sessions.

use tables::memory::prefetch;
use tables::signature::{Keyed, Session4, SessionKey};

/// A session's block, 64 bytes: key, link, and room for state.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Block {
    key: [u64; 2],
    /// Next block of the chain, plus one.
    next: u64,
    state: [u64; 5],
}

/// Heads of 8 bytes, blocks of 64.
#[derive(Debug)]
pub struct Chained {
    heads: Vec<u64>,
    blocks: Vec<Block>,
    hash: Keyed,
}

impl Chained {
    /// Makes a table with one head a session.
    pub fn new(sessions: usize, hash: Keyed) -> Self {
        Self {
            heads: vec![0; sessions.max(1)],
            blocks: Vec::with_capacity(sessions),
            hash,
        }
    }

    /// Adds a session that is not there.
    pub fn add(&mut self, key: &Session4) {
        let head = self.head(&key.to_words());
        self.blocks.push(Block {
            key: key.to_words(),
            next: self.heads[head],
            state: [0; 5],
        });
        self.heads[head] = self.blocks.len() as u64;
    }

    /// Finds a session's block.
    #[inline]
    pub fn find(&self, key: &Session4) -> Option<u64> {
        let words = key.to_words();
        self.walk(self.heads[self.head(&words)], &words)
    }

    /// Finds a batch of up to 32 with the first two accesses overlapped.
    pub fn find_batch(&self, keys: &[Session4], found: &mut [Option<u64>]) {
        let mut heads = [0_usize; 32];
        let mut first = [0_u64; 32];
        for (head, key) in heads.iter_mut().zip(keys) {
            *head = self.head(&key.to_words());
            prefetch(&self.heads[*head]);
        }
        for ((first, &head), _) in first.iter_mut().zip(&heads).zip(keys) {
            *first = self.heads[head];
            if let Some(at) = first.checked_sub(1) {
                prefetch(&self.blocks[at as usize]);
            }
        }
        for ((found, &first), key) in found.iter_mut().zip(&first).zip(keys) {
            *found = self.walk(first, &key.to_words());
        }
    }

    #[inline(always)]
    fn walk(&self, mut at: u64, words: &[u64; 2]) -> Option<u64> {
        while let Some(index) = at.checked_sub(1) {
            let block = &self.blocks[index as usize];
            if block.key == *words {
                return Some(index + (block.state[0] & 1));
            }
            at = block.next;
        }
        None
    }

    #[inline(always)]
    fn head(&self, words: &[u64; 2]) -> usize {
        let hash = self.hash.hash_words(words) >> 32;
        ((hash * self.heads.len() as u64) >> 32) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_added() {
        let session = |port| Session4 {
            source_port: port,
            ..Session4::default()
        };
        let mut table = Chained::new(100, Keyed::new([1, 2, 3, 4]));
        (0..100).for_each(|port| table.add(&session(port)));
        let keys: Vec<_> = (90..110).map(session).collect();
        let mut found = vec![None; keys.len()];
        table.find_batch(&keys, &mut found);
        for (key, found) in keys.iter().zip(found) {
            assert_eq!(found, table.find(key));
            assert_eq!(found.is_some(), key.source_port < 100);
        }
    }
}
