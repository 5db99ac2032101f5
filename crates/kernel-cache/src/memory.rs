//! The cache's arrays in user space: the kernel's maps, or anonymous memory of the same layout.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use crate::shared::Memory;
use crate::shared::layout::{Bucket, Config, Node, Slab};

/// How many entries a cache has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Data packets, at least 1.
    pub data: u32,
    /// Names above them that CanBePrefix finds.
    pub prefixes: u32,
}

impl Sizes {
    /// Returns sizes for `data` packets, with as many prefixes.
    pub fn of(data: u32) -> Self {
        Self {
            data,
            prefixes: data,
        }
    }

    /// Returns sizes for at most `data` packets, in at most so many bytes of memory.
    pub fn within(data: u32, bytes: u64) -> Self {
        let mut data = data.max(1);
        while data > 1 && Self::of(data).bytes() > bytes {
            // A step of a hundredth is near enough.
            data -= (data / 100).max(1);
        }
        Self::of(data)
    }

    /// Bytes of memory of a cache of these sizes.
    pub fn bytes(self) -> u64 {
        let all = |count: u32, size: usize| u64::from(count) * size as u64;
        all(self.buckets(), size_of::<Bucket>())
            + all(self.nodes(), size_of::<Node>())
            + all(self.slabs(), size_of::<Slab>())
    }

    /// Number of buckets: on average at most 4 of the 7 entries of each are taken.
    pub(crate) fn buckets(self) -> u32 {
        let entries = self.data.max(1).saturating_add(self.prefixes);
        entries.div_ceil(4).next_power_of_two()
    }

    /// Number of nodes, with the one of slot 0.
    pub(crate) fn nodes(self) -> u32 {
        1 + self.data + self.prefixes
    }

    /// Number of slabs, with the one of slot 0.
    pub(crate) fn slabs(self) -> u32 {
        1 + self.data
    }

    /// Returns the facts of a cache of these sizes, with a hash secret of its own.
    pub(crate) fn config(self) -> Config {
        Config {
            seed: RandomState::new().build_hasher().finish(),
            bucket_mask: self.buckets() - 1,
            data_slots: self.data,
            prefix_slots: self.prefixes,
            weakly_ordered: u32::from(cfg!(not(target_arch = "x86_64"))),
        }
    }
}

/// An array of shared values in mapped memory.
#[derive(Debug)]
pub(crate) struct Array<T> {
    start: NonNull<T>,
    length: usize,
    _values: PhantomData<T>,
}

// SAFETY: the array is memory of this process; only `T: Sync` values are given out, by shared references.
unsafe impl<T: Sync> Send for Array<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Array<T> {}

/// Types that are plain words: valid for any bytes, changed only through atomics.
///
/// # Safety
/// The type consists of [`crate::shared::bounded::Word`]s alone.
pub(crate) unsafe trait Words {}
// SAFETY: a lock word and entries.
unsafe impl Words for Bucket {}
// SAFETY: eight words.
unsafe impl Words for Node {}
// SAFETY: words.
unsafe impl Words for Slab {}

impl<T: Words> Array<T> {
    /// Maps `length` values of a map, or zeroed memory.
    pub(crate) fn new(map: Option<BorrowedFd<'_>>, length: u32) -> io::Result<Self> {
        let length = length as usize;
        let (flags, fd) = match map {
            Some(map) => (libc::MAP_SHARED, map.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        };
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length * size_of::<T>(),
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                fd,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(address.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self {
            start,
            length,
            _values: PhantomData,
        })
    }
}

impl<T> Array<T> {
    fn get(&self, index: u32) -> Option<&T> {
        if index as usize >= self.length {
            return None;
        }
        // SAFETY: inside the mapping.
        let value = unsafe { self.start.add(index as usize) };
        // SAFETY: the mapping lives as long as `self`, begins at a page and has values whose size is a multiple of
        // their alignment; any bytes are a `T` (trait `Words`), and all changes are atomic.
        let value = unsafe { value.as_ref() };
        Some(value)
    }
}

impl<T> Drop for Array<T> {
    fn drop(&mut self) {
        // SAFETY: unmaps what `new` mapped; references to it borrow `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length * size_of::<T>()) };
    }
}

/// The cache's memory as user space has it.
#[derive(Debug)]
pub struct Arrays {
    pub(crate) config: Config,
    pub(crate) buckets: Array<Bucket>,
    pub(crate) nodes: Array<Node>,
    pub(crate) slabs: Array<Slab>,
}

impl Arrays {
    /// Makes a cache's memory in this process alone: what a kernel's program does, measured or tested without it.
    ///
    /// # Errors
    /// No memory.
    pub fn private(sizes: Sizes) -> io::Result<Self> {
        Ok(Self {
            config: sizes.config(),
            buckets: Array::new(None, sizes.buckets())?,
            nodes: Array::new(None, sizes.nodes())?,
            slabs: Array::new(None, sizes.slabs())?,
        })
    }
}

impl Memory for Arrays {
    fn config(&self) -> &Config {
        &self.config
    }
    fn bucket(&self, index: u32) -> Option<&Bucket> {
        self.buckets.get(index)
    }
    fn node(&self, slot: u32) -> Option<&Node> {
        self.nodes.get(slot)
    }
    fn slab(&self, slot: u32) -> Option<&Slab> {
        self.slabs.get(slot)
    }
    fn read_barrier(&self) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
    }
    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }
}

/// Returns the clock by which the kernel's program judges freshness: `CLOCK_MONOTONIC`, ns.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one `timespec`; this clock exists on every kernel.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
