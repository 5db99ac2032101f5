//! Which of up to 4,096 numbered things want attention: bits that many may set and one takes, in two levels.
//!
//! Unlike a ring of numbers it is never full, coalesces what is said twice, and a writer that dies half-way
//! leaves nothing that others wait for. Position-independent: it lies in any [`Memory`], also of a segment.

use crate::memory::Memory;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Most bits of a set.
pub const READY_MAX: usize = 64 * 64;
/// Where the words of bits begin: the summary has a cache line of its own.
const FIRST: usize = 16;

/// A set of bits. The summary (word 0) has a bit for each word of bits that may have one.
#[derive(Debug)]
pub struct ReadySet {
    words: Memory<AtomicU64>,
}

impl ReadySet {
    /// Returns how many words of memory a set of `bits` bits takes.
    pub const fn words(bits: usize) -> usize {
        FIRST + bits.div_ceil(64)
    }

    /// Makes (or attaches to) a set in `memory`: all zero is the empty set. Bits beyond [`READY_MAX`] are not used.
    pub fn new(memory: Memory<AtomicU64>) -> Self {
        Self { words: memory }
    }

    /// Sets a bit, after what it stands for was published. A number that the set does not have is ignored.
    #[inline]
    pub fn set(&self, number: usize) {
        let (word, bit) = (number / 64, 1 << (number % 64));
        let Some(bits) = self.words.get(FIRST + word).filter(|_| word < 64) else {
            return;
        };
        // Release: pairs with the acquire swap in `take`: who takes the bit sees what was published before.
        // Always a read-modify-write: a plain load could see a bit that has been taken already.
        bits.fetch_or(bit, Ordering::Release);
        // Release: pairs with the acquire swap in `take`: who sees the summary sees the bit.
        self.words[0].fetch_or(1 << word, Ordering::Release);
    }

    /// Tells whether a bit may be set. Before going to sleep, call it after a sequentially consistent fence
    /// ([`SleepFlag::arm`](crate::sleep::SleepFlag::arm) has one).
    #[inline]
    pub fn may_have(&self) -> bool {
        self.words
            .first()
            .is_some_and(|summary| summary.load(Ordering::Relaxed) != 0)
    }

    /// Takes all bits and gives their numbers to `each`, lowest first. One takes at a time.
    #[inline]
    pub fn take(&self, mut each: impl FnMut(usize)) {
        let Some(summary) = self.words.first() else {
            return;
        };
        // Acquire: pairs with the release in `set`.
        let mut words = summary.swap(0, Ordering::Acquire);
        while words != 0 {
            let word = words.trailing_zeros() as usize;
            words &= words - 1;
            let Some(bits) = self.words.get(FIRST + word) else {
                return;
            };
            // Acquire: pairs with the release in `set`.
            let mut bits = bits.swap(0, Ordering::Acquire);
            while bits != 0 {
                each(word * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }

    /// Takes one bit, if there is any: for sets of free places, which many may take from. `from` is where to
    /// look first.
    pub fn take_one(&self, from: usize) -> Option<usize> {
        let words = self.words.len().saturating_sub(FIRST).min(64);
        for step in 0..words {
            let word = (from / 64 + step) % words;
            let place = &self.words[FIRST + word];
            let mut bits = place.load(Ordering::Relaxed);
            while bits != 0 {
                let bit = bits & bits.wrapping_neg();
                // Acquire: pairs with the release in `set`: what the giver wrote is seen.
                match place.compare_exchange_weak(
                    bits,
                    bits & !bit,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => return Some(word * 64 + bit.trailing_zeros() as usize),
                    Err(now) => bits = now,
                }
            }
        }
        None
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn set(bits: usize) -> ReadySet {
        ReadySet::new(Memory::heap(ReadySet::words(bits)))
    }

    proptest! {
        #[test]
        fn behaves_like_a_set(ops in prop::collection::vec((0_u8..4, 0_usize..300), 1..200)) {
            let ready = set(300);
            let mut model = BTreeSet::new();
            for (op, number) in ops {
                match op {
                    0 | 1 => {
                        ready.set(number);
                        model.insert(number);
                    }
                    2 => {
                        let mut taken = Vec::new();
                        ready.take(|number| taken.push(number));
                        prop_assert_eq!(taken, model.iter().copied().collect::<Vec<_>>());
                        model.clear();
                        prop_assert!(!ready.may_have());
                    }
                    _ => match ready.take_one(number) {
                        Some(one) => prop_assert!(model.remove(&one)),
                        None => prop_assert!(model.is_empty()),
                    },
                }
                prop_assert!(model.is_empty() || ready.may_have());
            }
        }
    }

    #[test]
    fn what_it_does_not_have_is_ignored() {
        let ready = set(64);
        ready.set(64);
        ready.set(1 << 20);
        assert!(!ready.may_have());
        assert_eq!(ready.take_one(usize::MAX), None);
        let none = ReadySet::new(Memory::heap(0));
        none.set(0);
        none.take(|_| unreachable!());
        assert!(!none.may_have());
    }
}
