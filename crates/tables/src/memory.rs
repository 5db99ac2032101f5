//! Zeroed memory for shared structures: from the heap, from an anonymous mapping with huge pages, or from
//! a memory segment.

use crate::sync::atomic::{AtomicU64, Ordering};
use core::fmt;
use core::ops::Deref;

#[cfg(all(feature = "std", not(any(loom, shuttle))))]
use crate::mapping::{HUGE_PAGE_BYTES, Mapping};
#[cfg(not(any(loom, shuttle)))]
use alloc::alloc::{alloc_zeroed, dealloc, handle_alloc_error};
#[cfg(any(loom, shuttle))]
use alloc::boxed::Box;
#[cfg(not(any(loom, shuttle)))]
use core::alloc::Layout;
#[cfg(not(any(loom, shuttle)))]
use core::ptr::NonNull;

/// Types that may lie in memory shared by threads and processes.
///
/// # Safety
/// All bits zero and every other pattern of bits is a valid value; the type holds no pointer, has no
/// destructor, and is changed through atomics only. `zeroed` gives the value whose bits are all zero.
pub unsafe trait Plain: Send + Sync + Sized + 'static {
    /// Makes the value whose bits are all zero (the model checkers cannot make one from memory).
    fn zeroed() -> Self;
}

// SAFETY: an atomic integer: every pattern of bits is valid.
unsafe impl Plain for crate::sync::atomic::AtomicU16 {
    fn zeroed() -> Self {
        Self::new(0)
    }
}

// SAFETY: an atomic integer: every pattern of bits is valid.
unsafe impl Plain for crate::sync::atomic::AtomicU32 {
    fn zeroed() -> Self {
        Self::new(0)
    }
}

// SAFETY: an atomic integer: every pattern of bits is valid.
unsafe impl Plain for AtomicU64 {
    fn zeroed() -> Self {
        Self::new(0)
    }
}

// SAFETY: an atomic integer in a transparent wrapper; unknown patterns of bits are handled as "asleep".
unsafe impl Plain for crate::sleep::SleepFlag {
    fn zeroed() -> Self {
        Self::new()
    }
}

// SAFETY: an array of plain values is plain.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {
    fn zeroed() -> Self {
        core::array::from_fn(|_| T::zeroed())
    }
}

// SAFETY: padding apart, a padded plain value is plain; nobody reads the padding.
unsafe impl<T: Plain> Plain for crossbeam_utils::CachePadded<T> {
    fn zeroed() -> Self {
        Self::new(T::zeroed())
    }
}

/// Which pages to ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// What the allocator gives.
    #[default]
    Normal,
    /// Transparent huge pages of 2 MiB by `madvise`; [`Memory::has_huge_pages`] tells if they were
    /// granted. Without the `std` feature, and for less than one such page, this is `Normal`.
    Huge,
}

#[cfg(not(any(loom, shuttle)))]
enum Backing {
    Heap(Layout),
    #[cfg(feature = "std")]
    Mapped(alloc::sync::Arc<Mapping>),
}

/// An array of plain values, zeroed when made, never moved, freed with its last handle.
pub struct Memory<T: Plain> {
    #[cfg(not(any(loom, shuttle)))]
    start: NonNull<T>,
    #[cfg(not(any(loom, shuttle)))]
    len: usize,
    #[cfg(not(any(loom, shuttle)))]
    backing: Backing,
    #[cfg(any(loom, shuttle))]
    values: Box<[T]>,
}

#[cfg(not(any(loom, shuttle)))]
// SAFETY: the memory is owned by (or counted for) the handle and `T: Plain` is `Send + Sync`.
unsafe impl<T: Plain> Send for Memory<T> {}
#[cfg(not(any(loom, shuttle)))]
// SAFETY: as above; shared access gives `&T` only.
unsafe impl<T: Plain> Sync for Memory<T> {}

#[cfg(not(any(loom, shuttle)))]
impl<T: Plain> Memory<T> {
    /// Takes `len` zeroed values from the heap, aligned to a cache line at least.
    ///
    /// # Panics
    /// If the size overflows; aborts through the allocator's handler when memory is out.
    pub fn heap(len: usize) -> Self {
        let layout = Layout::array::<T>(len.max(1))
            .and_then(|layout| layout.align_to(64))
            .expect("size of a table overflows");
        assert!(layout.size() > 0, "tables of zero-sized values");
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start.cast::<T>()) else {
            handle_alloc_error(layout)
        };
        Self {
            start,
            len,
            backing: Backing::Heap(layout),
        }
    }

    /// Takes `len` zeroed values; with [`Pages::Huge`], from a mapping that asks for huge pages. What would not fill one
    /// comes from the heap: the first touch of a huge page zeroes 2 MiB.
    ///
    /// # Panics
    /// As [`Memory::heap`].
    pub fn zeroed(len: usize, pages: Pages) -> Self {
        #[cfg(feature = "std")]
        if pages == Pages::Huge
            && let Some(bytes) = size_of::<T>().checked_mul(len)
            && bytes >= HUGE_PAGE_BYTES
            && let Ok(mapping) = Mapping::anonymous(bytes)
        {
            return Self::mapped(alloc::sync::Arc::new(mapping), 0, len);
        }
        let _ = pages;
        Self::heap(len)
    }

    /// Views `len` values at `offset_bytes` of a writable mapping.
    ///
    /// # Panics
    /// If the values do not fit, or the place is not aligned for `T`.
    #[cfg(feature = "std")]
    pub(crate) fn mapped(
        mapping: alloc::sync::Arc<Mapping>,
        offset_bytes: usize,
        len: usize,
    ) -> Self {
        let fits = size_of::<T>()
            .checked_mul(len)
            .and_then(|bytes| bytes.checked_add(offset_bytes))
            .is_some_and(|end| end <= mapping.len());
        assert!(fits, "values outside of the mapping");
        // SAFETY: `offset_bytes` is inside the mapping, as checked.
        let start = unsafe { mapping.start().add(offset_bytes) }.cast::<T>();
        assert!(start.is_aligned(), "values not aligned in the mapping");
        Self {
            start,
            len,
            backing: Backing::Mapped(mapping),
        }
    }

    /// True when huge pages were asked for and granted.
    pub fn has_huge_pages(&self) -> bool {
        match &self.backing {
            Backing::Heap(_) => false,
            #[cfg(feature = "std")]
            Backing::Mapped(mapping) => mapping.has_huge_pages(),
        }
    }
}

#[cfg(any(loom, shuttle))]
impl<T: Plain> Memory<T> {
    /// Takes `len` zeroed values from the heap.
    pub fn heap(len: usize) -> Self {
        Self {
            values: (0..len).map(|_| T::zeroed()).collect(),
        }
    }

    /// Takes `len` zeroed values from the heap.
    pub fn zeroed(len: usize, _pages: Pages) -> Self {
        Self::heap(len)
    }

    /// False under a model checker.
    pub fn has_huge_pages(&self) -> bool {
        false
    }
}

impl<T: Plain> Deref for Memory<T> {
    type Target = [T];

    #[cfg(not(any(loom, shuttle)))]
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `start` points at `len` values (zeroed, hence valid, as `T: Plain`) that live as long
        // as the backing does; other threads and processes change them through atomics only.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    #[cfg(any(loom, shuttle))]
    fn deref(&self) -> &[T] {
        &self.values
    }
}

#[cfg(not(any(loom, shuttle)))]
impl<T: Plain> Drop for Memory<T> {
    fn drop(&mut self) {
        match &self.backing {
            Backing::Heap(layout) => {
                // SAFETY: `start` came from `alloc_zeroed` with this layout and is freed once.
                unsafe { dealloc(self.start.as_ptr().cast::<u8>(), *layout) }
            }
            #[cfg(feature = "std")]
            Backing::Mapped(_) => {}
        }
    }
}

impl<T: Plain> fmt::Debug for Memory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("len", &self.len())
            .field("huge_pages", &self.has_huge_pages())
            .finish_non_exhaustive()
    }
}

/// Where the tables of an engine take their memory: the heap, or a
/// [`Segment`](crate::segment::Segment), where they may be from before.
pub trait Source {
    /// Why there is no memory.
    type Error;

    /// Gives `len` values under a name: zeroed, or as they were left under this name.
    ///
    /// # Errors
    /// There is no room, or what lies under the name has another shape.
    fn take<T: Plain>(&mut self, name: &str, len: usize) -> Result<Memory<T>, Self::Error>;
}

/// Memory of this process alone, zeroed; in huge pages where the system grants them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Private;

impl Source for Private {
    type Error = core::convert::Infallible;

    fn take<T: Plain>(&mut self, _name: &str, len: usize) -> Result<Memory<T>, Self::Error> {
        Ok(Memory::zeroed(len, Pages::Huge))
    }
}

/// True if `words` begins with `wanted`. No early exit and no zipped iterators: inlined and unrolled where the
/// lengths are known, which takes a third off a lookup.
#[inline(always)]
pub(crate) fn begins_with(words: &[AtomicU64], wanted: &[u64]) -> bool {
    let mut differ = 0;
    for at in 0..wanted.len() {
        // Relaxed: who shares the words with writers checks a word of state around this.
        differ |= words[at].load(Ordering::Relaxed) ^ wanted[at];
    }
    differ == 0
}

/// Asks the processor to load the line of `value` (a hint; nothing on targets without one).
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    prefetch_at(core::ptr::from_ref(value));
}

/// Asks the processor to load the line at `place`, which need not be valid.
#[inline(always)]
pub(crate) fn prefetch_at<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of x86-64, and a prefetch of any address has no effect but on caches.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        // SAFETY: `prfm` has no effect but on caches.
        unsafe {
            core::arch::asm!("prfm pldl1keep, [{0}]", in(reg) place, options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = place;
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_and_aligned() {
        for pages in [Pages::Normal, Pages::Huge] {
            let memory = Memory::<AtomicU64>::zeroed(1000, pages);
            assert_eq!(memory.len(), 1000);
            assert_eq!(memory.as_ptr().addr() % 64, 0);
            assert!(memory.iter().all(|v| v.load(Ordering::Relaxed) == 0));
            memory[999].store(7, Ordering::Relaxed);
            assert_eq!(memory[999].load(Ordering::Relaxed), 7);
        }
        assert!(Memory::<AtomicU64>::heap(0).is_empty());
    }

    #[cfg(feature = "std")]
    #[test]
    fn less_than_a_huge_page_comes_from_the_heap() {
        let words = HUGE_PAGE_BYTES / 8;
        let small = Memory::<AtomicU64>::zeroed(words - 1, Pages::Huge);
        assert!(matches!(small.backing, Backing::Heap(_)));
        let large = Memory::<AtomicU64>::zeroed(words, Pages::Huge);
        assert!(matches!(large.backing, Backing::Mapped(_)));
        assert_eq!(large.as_ptr().addr() % HUGE_PAGE_BYTES, 0);
        assert_eq!(large[words - 1].load(Ordering::Relaxed), 0);
    }
}
