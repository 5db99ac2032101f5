//! Hot records in their implied places (TL-3): key words first, then words for the caller.

use super::key::SessionKey;
use crate::memory::{Memory, begins_with, prefetch};
use crate::sync::atomic::{AtomicU64, Ordering};

/// Where a session's hot record is: slot `j` of bucket `i` is record `16 i + j`; conflicts lie after the
/// last bucket's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place(pub(crate) u32);

impl Place {
    /// Returns the record's number.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The records of a table. A record is committed while the last word of its key is not zero.
#[derive(Debug)]
pub(crate) struct Records<K: SessionKey>(pub(crate) Memory<K::Record>);

impl<K: SessionKey> Records<K> {
    pub(crate) const KEY_WORDS: usize = size_of::<K::Words>() / size_of::<u64>();

    #[inline(always)]
    pub(crate) fn words(&self, index: usize) -> &[AtomicU64] {
        self.0[index].as_ref()
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, index: usize) {
        prefetch(&self.0[index]);
    }

    #[inline(always)]
    pub(crate) fn matches(&self, index: usize, key: &K::Words) -> bool {
        begins_with(self.words(index), key.as_ref())
    }

    pub(crate) fn key(&self, index: usize) -> Option<K> {
        let mut words = [0; 8];
        for (to, from) in words.iter_mut().zip(&self.words(index)[..Self::KEY_WORDS]) {
            *to = from.load(Ordering::Relaxed);
        }
        K::from_words(&words[..Self::KEY_WORDS])
    }

    pub(crate) fn hot(&self, index: usize) -> &[AtomicU64] {
        &self.words(index)[Self::KEY_WORDS..]
    }

    /// Writes a record with `hot` for the caller's words (zeros where it ends) and commits it.
    pub(crate) fn commit(&self, index: usize, key: &K::Words, hot: &[AtomicU64]) {
        let words = self.words(index);
        for (at, word) in words[Self::KEY_WORDS..].iter().enumerate() {
            let value = hot.get(at).map_or(0, |word| word.load(Ordering::Relaxed));
            word.store(value, Ordering::Relaxed);
        }
        let (last, first) = key.as_ref().split_last().expect("a key has words");
        for (word, &value) in words.iter().zip(first) {
            word.store(value, Ordering::Relaxed);
        }
        // Release: pairs with the acquire load in `is_committed` (another process after a crash): a
        // record that tells a key has all of it.
        words[Self::KEY_WORDS - 1].store(*last, Ordering::Release);
    }

    pub(crate) fn erase(&self, index: usize) {
        // Release: as in `commit`.
        self.words(index)[Self::KEY_WORDS - 1].store(0, Ordering::Release);
    }

    pub(crate) fn is_committed(&self, index: usize) -> bool {
        // Acquire: pairs with the release stores in `commit` and `erase`.
        self.words(index)[Self::KEY_WORDS - 1].load(Ordering::Acquire) != 0
    }
}
