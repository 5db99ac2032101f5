//! The one memory of a store: words that are atomics, and bytes of packets between them.
//!
//! Places are numbers of grains of 16 bytes. What lies at a place is decided by the slab ([`crate::slab`]),
//! which never gives a place to two owners, and by [`crate::quiescent`](tables::quiescent): a place is
//! written as plain bytes only between its allocation and its publication.

use crate::sync::atomic::AtomicU64;
use tables::memory::{Memory, Pages, prefetch};

/// Bytes of a grain.
pub(crate) const GRAIN_BYTES: usize = 16;
const WORDS_PER_GRAIN: usize = GRAIN_BYTES / 8;

/// A place: a number of grains; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place(pub(crate) u32);

impl Place {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Bytes of the arena: a slice, but under a model checker a copy that is read word by word.
#[cfg(not(any(loom, shuttle)))]
pub(crate) type Bytes<'a> = &'a [u8];
/// As above.
#[cfg(any(loom, shuttle))]
pub(crate) type Bytes<'a> = &'a [u8];

#[derive(Debug)]
pub(crate) struct Arena {
    words: Memory<AtomicU64>,
}

impl Arena {
    pub(crate) fn new(bytes: usize, pages: Pages) -> Self {
        Self {
            words: Memory::zeroed(bytes.max(64) / 8, pages),
        }
    }

    pub(crate) fn has_huge_pages(&self) -> bool {
        self.words.has_huge_pages()
    }

    /// A word of what lies at a place. Places come from the slab, so that the word is there; to a reader
    /// that meets a half-changed tree (and starts again) a place may be any number: then it is word 0, which
    /// nobody uses.
    #[inline(always)]
    pub(crate) fn word(&self, place: Place, index: usize) -> &AtomicU64 {
        let at = place.0 as usize * WORDS_PER_GRAIN + index;
        match self.words.get(at) {
            Some(word) => word,
            None => &self.words[0],
        }
    }

    /// Asks for the line of a word.
    #[inline(always)]
    pub(crate) fn prefetch(&self, place: Place, byte: usize) {
        if let Some(word) = self
            .words
            .get(place.0 as usize * WORDS_PER_GRAIN + byte / 8)
        {
            prefetch(word);
        }
    }

    /// The bytes of what lies at a place.
    ///
    /// # Safety
    /// Nobody writes these bytes, by whatever means, during `'a`.
    #[inline(always)]
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) unsafe fn bytes<'a>(&'a self, place: Place, offset: usize, len: usize) -> Bytes<'a> {
        let start = place.0 as usize * GRAIN_BYTES + offset;
        if start + len > self.words.len() * 8 {
            return &[];
        }
        // SAFETY: the sum lies inside of the memory, as checked.
        let start = unsafe { self.words.as_ptr().cast::<u8>().add(start) };
        // SAFETY: `len` initialised bytes (zeroed at first) of memory that lives as long as `self`; nobody
        // writes them meanwhile, as the caller promises.
        unsafe { core::slice::from_raw_parts(start, len) }
    }

    /// Copies bytes to a place.
    ///
    /// # Safety
    /// The caller owns the place: nobody else reads or writes these bytes.
    #[inline(always)]
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) unsafe fn write(&self, place: Place, offset: usize, bytes: &[u8]) {
        let start = place.0 as usize * GRAIN_BYTES + offset;
        if start + bytes.len() > self.words.len() * 8 {
            return;
        }
        // SAFETY: the sum lies inside of the memory, as checked.
        let to = unsafe { self.words.as_ptr().cast::<u8>().add(start) };
        // SAFETY: the words are atomics, so that a shared reference may be written through; the place is
        // the caller's; source and target do not overlap as the caller owns the target.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast_mut(), bytes.len()) };
    }

    /// The bytes, read word by word, so that the model checker sees every read. Leaks the copy (in a model,
    /// which is short-lived and small).
    ///
    /// # Safety
    /// As above; here a breach is a wrong value.
    #[cfg(any(loom, shuttle))]
    pub(crate) unsafe fn bytes<'a>(&'a self, place: Place, offset: usize, len: usize) -> Bytes<'a> {
        use crate::sync::atomic::Ordering;
        let words = offset / 8..(offset + len).div_ceil(8);
        let copy: alloc::vec::Vec<u8> = words
            .flat_map(|at| self.word(place, at).load(Ordering::Relaxed).to_le_bytes())
            .skip(offset % 8)
            .take(len)
            .collect();
        alloc::boxed::Box::leak(copy.into_boxed_slice())
    }

    /// Copies bytes to a place that begins with a word, word by word; what follows them in the last one is cleared.
    ///
    /// # Safety
    /// As above.
    #[cfg(any(loom, shuttle))]
    pub(crate) unsafe fn write(&self, place: Place, offset: usize, bytes: &[u8]) {
        use crate::sync::atomic::Ordering;
        assert!(offset.is_multiple_of(8));
        for (at, bytes) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            self.word(place, offset / 8 + at)
                .store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
    }
}
