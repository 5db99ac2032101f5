//! The conflict list (TL-4): sessions whose buckets are full, as chains of pool entries.

use crate::memory::Memory;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Ends a chain.
const NIL: u32 = 0;

/// Chains of (signature, next); entry `i` has record `first_record + i`. One owner; all loads and stores
/// are relaxed, as readers in other processes check the record.
#[derive(Debug)]
pub(crate) struct ConflictList {
    /// First entry of each chain, plus one.
    heads: Memory<AtomicU32>,
    /// Signature in the high half, next entry plus one in the low half.
    entries: Memory<AtomicU64>,
    free: u32,
    len: usize,
}

impl ConflictList {
    /// Words of `heads` for a pool of `pool` entries.
    pub(crate) fn heads_len(pool: usize) -> usize {
        pool.next_power_of_two()
    }

    /// Makes an empty list; what the memory held is forgotten.
    pub(crate) fn new(heads: Memory<AtomicU32>, entries: Memory<AtomicU64>) -> Self {
        let mut list = Self {
            heads,
            entries,
            free: NIL,
            len: 0,
        };
        list.reset(|_| None);
        list
    }

    /// Rebuilds chains and free list; `held` gives chain and signature of the entries in use.
    pub(crate) fn reset(&mut self, held: impl Fn(usize) -> Option<(u32, u32)>) {
        for head in self.heads.iter() {
            head.store(NIL, Ordering::Relaxed);
        }
        self.free = NIL;
        self.len = 0;
        for index in (0..self.entries.len()).rev() {
            match held(index) {
                Some((chain, signature)) => self.link(chain, index as u32 + 1, signature),
                None => {
                    self.entries[index].store(u64::from(self.free), Ordering::Relaxed);
                    self.free = index as u32 + 1;
                }
            }
        }
    }

    pub(crate) fn into_memory(self) -> (Memory<AtomicU32>, Memory<AtomicU64>) {
        (self.heads, self.entries)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Takes an entry into a chain and returns its index; `None` when the pool is out.
    pub(crate) fn add(&mut self, chain: u32, signature: u32) -> Option<usize> {
        let taken = self.free;
        let index = taken.checked_sub(1)? as usize;
        self.free = self.entries[index].load(Ordering::Relaxed) as u32;
        self.link(chain, taken, signature);
        Some(index)
    }

    /// Gives the entry `index` of a chain back to the pool.
    pub(crate) fn remove(&mut self, chain: u32, index: usize) {
        let wanted = index as u32 + 1;
        let next = self.entries[index].load(Ordering::Relaxed) as u32;
        let head = &self.heads[self.head(chain)];
        if head.load(Ordering::Relaxed) == wanted {
            head.store(next, Ordering::Relaxed);
        } else {
            let mut at = head.load(Ordering::Relaxed);
            while let Some(previous) = at.checked_sub(1) {
                let entry = &self.entries[previous as usize];
                let word = entry.load(Ordering::Relaxed);
                at = word as u32;
                if at == wanted {
                    entry.store(word & !0xffff_ffff | u64::from(next), Ordering::Relaxed);
                    break;
                }
            }
        }
        self.entries[index].store(u64::from(self.free), Ordering::Relaxed);
        self.free = wanted;
        self.len -= 1;
    }

    /// Iterates over the entries of a chain: index and signature.
    pub(crate) fn chain(&self, chain: u32) -> impl Iterator<Item = (usize, u32)> + '_ {
        let mut at = match self.len {
            // Most tables have no conflict at all: do not touch the heads' line.
            0 => NIL,
            _ => self.heads[self.head(chain)].load(Ordering::Relaxed),
        };
        core::iter::from_fn(move || {
            let index = at.checked_sub(1)? as usize;
            let word = self.entries.get(index)?.load(Ordering::Relaxed);
            at = word as u32;
            Some((index, (word >> 32) as u32))
        })
    }

    fn head(&self, chain: u32) -> usize {
        chain as usize & (self.heads.len() - 1)
    }

    fn link(&mut self, chain: u32, entry: u32, signature: u32) {
        let head = &self.heads[self.head(chain)];
        let word = u64::from(signature) << 32 | u64::from(head.load(Ordering::Relaxed));
        self.entries[entry as usize - 1].store(word, Ordering::Relaxed);
        head.store(entry, Ordering::Relaxed);
        self.len += 1;
    }
}
