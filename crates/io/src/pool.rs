//! The memory that frames live in, and each worker's private stock of free frames (IO-1).

use core::ptr::NonNull;
use std::sync::Arc;

use crate::batch::Batch;
use crate::frame::Frame;
use crate::ids::FrameIdx;

/// Size of a huge page, bytes (x86-64 and aarch64 with 4 KiB base pages).
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Room that drivers leave in front of a received frame, for headers that the node prepends, bytes.
pub const HEADROOM_BYTES: u16 = 256;

/// Whether to ask for huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Use them where there are any, else normal pages.
    #[default]
    Auto,
    /// Fail without them.
    Require,
    /// Do not use them.
    Never,
}

/// The pages that a region got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Reserved huge pages (hugetlb).
    Huge,
    /// Normal pages that the kernel was asked to merge (transparent huge pages).
    Transparent,
    /// Normal pages.
    Normal,
}

/// Why there is no region.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// The sizes make no sense.
    #[error(
        "a region needs at least one frame of 2048 to 32768 bytes, a power of two; got {frames} of {frame_bytes}"
    )]
    Geometry {
        /// Frames asked for.
        frames: u32,
        /// Bytes a frame asked for.
        frame_bytes: u32,
    },
    /// Huge pages are required and there are not enough.
    #[error(
        "{bytes} bytes of huge pages are not available (write the number of 2 MiB pages to /proc/sys/vm/nr_hugepages)"
    )]
    NoHugePages {
        /// Bytes asked for.
        bytes: usize,
    },
    /// The kernel gave no memory.
    #[error("cannot map {bytes} bytes for frames")]
    Map {
        /// Bytes asked for.
        bytes: usize,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

/// One mapping, cut into frames of equal size. All workers' pools of a node are parts of one region, so
/// that drivers register it once and a frame can leave by any port without a copy.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    bytes: usize,
    frames: u32,
    frame_bytes: u32,
    pages: PageKind,
}

// SAFETY: the region is plain mapped memory; who may touch which slot is decided by `Frame` tokens.
unsafe impl Send for Region {}
// SAFETY: as above: a shared `Region` gives out addresses and sizes only.
unsafe impl Sync for Region {}

impl Region {
    /// Maps a region of `frames` slots of `frame_bytes` (a power of two from 2048 to 32768).
    ///
    /// # Errors
    /// Impossible sizes, no huge pages where they are required, or no memory.
    pub fn new(frames: u32, frame_bytes: u32, huge: HugePages) -> Result<Arc<Self>, RegionError> {
        if frames == 0 || !frame_bytes.is_power_of_two() || !(2048..=32768).contains(&frame_bytes) {
            return Err(RegionError::Geometry {
                frames,
                frame_bytes,
            });
        }
        let bytes = (frames as usize * frame_bytes as usize).next_multiple_of(HUGE_PAGE_BYTES);
        let (base, pages) = match huge {
            HugePages::Never => (map(bytes, 0)?, PageKind::Normal),
            HugePages::Require => {
                let base = map(bytes, libc::MAP_HUGETLB)
                    .map_err(|_| RegionError::NoHugePages { bytes })?;
                (base, PageKind::Huge)
            }
            HugePages::Auto => match map(bytes, libc::MAP_HUGETLB) {
                Ok(base) => (base, PageKind::Huge),
                Err(_) => map_transparent(bytes)?,
            },
        };
        Ok(Arc::new(Self {
            base,
            bytes,
            frames,
            frame_bytes,
            pages,
        }))
    }

    /// Cuts the region into one private pool a worker; each gets the same number of frames.
    ///
    /// Call it once for a region: a second call would hand out the same frames again, so it is only
    /// reachable through [`Pool::split`], which consumes the unsplit region.
    fn pools(self: &Arc<Self>, workers: u16) -> Vec<Pool> {
        let each = self.frames / u32::from(workers.max(1));
        (0..u32::from(workers.max(1)))
            .map(|w| Pool {
                region: Arc::clone(self),
                first: w * each,
                count: each,
                free: (w * each..(w + 1) * each).rev().collect(),
                strays: Vec::new(),
                exhausted: 0,
            })
            .collect()
    }

    /// Returns the address of the first slot, for drivers that register the memory.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }
    /// Returns the mapped size, bytes: the slots, rounded up to whole huge pages.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    /// Returns the number of slots.
    pub fn frames(&self) -> u32 {
        self.frames
    }
    /// Returns the size of a slot, bytes.
    pub fn frame_bytes(&self) -> u32 {
        self.frame_bytes
    }
    /// Returns the pages that the kernel gave.
    pub fn pages(&self) -> PageKind {
        self.pages
    }

    /// Returns the slot's index for an address inside it.
    pub fn index_of(&self, slot: NonNull<u8>) -> FrameIdx {
        let bytes = slot.as_ptr() as usize - self.base.as_ptr() as usize;
        FrameIdx((bytes >> self.frame_bytes.trailing_zeros()) as u32)
    }

    /// Makes the handle of a slot that a driver gave to the kernel and got back.
    ///
    /// # Safety
    /// `idx` is a slot of this region whose `Frame` the caller consumed before (with
    /// [`Region::index_of`] and [`core::mem::forget`] or by letting it go), and it does so once.
    ///
    /// # Panics
    /// If `idx` is not a slot of this region.
    pub unsafe fn frame_at(&self, idx: FrameIdx) -> Frame {
        assert!(idx.0 < self.frames, "slot {idx} of {}", self.frames);
        let offset = idx.index() * self.frame_bytes as usize;
        // SAFETY: `offset` is inside the mapping by the assertion.
        let slot = unsafe { self.base.add(offset) };
        // SAFETY: `frame_bytes` bytes follow; unique by this function's contract.
        unsafe { Frame::new(slot, self.frame_bytes as u16, HEADROOM_BYTES) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `map` made, and the last owner is gone; pools with frames
        // outstanding leak their share of the `Arc`, so none can reach it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Maps zeroed anonymous memory.
fn map(bytes: usize, extra_flags: libc::c_int) -> Result<NonNull<u8>, RegionError> {
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
    let address = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE | extra_flags,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(RegionError::Map {
            bytes,
            source: std::io::Error::last_os_error(),
        });
    }
    NonNull::new(address.cast()).ok_or_else(|| RegionError::Map {
        bytes,
        source: std::io::ErrorKind::AddrInUse.into(),
    })
}

/// Maps normal memory aligned to huge pages and asks the kernel to merge it.
fn map_transparent(bytes: usize) -> Result<(NonNull<u8>, PageKind), RegionError> {
    let base = map(bytes, 0)?;
    // SAFETY: advises on exactly the mapping just made.
    let advised = unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
    Ok((
        base,
        if advised == 0 {
            PageKind::Transparent
        } else {
            PageKind::Normal
        },
    ))
}

/// One worker's private stock of free frames: a slice of a [`Region`], last in first out.
#[derive(Debug)]
pub struct Pool {
    region: Arc<Region>,
    first: u32,
    count: u32,
    free: Vec<u32>,
    strays: Vec<Frame>,
    exhausted: u64,
}

impl Pool {
    /// Maps a region of `frames_per_worker * workers` slots and cuts it into one pool a worker.
    ///
    /// # Errors
    /// As [`Region::new`].
    pub fn split(
        frames_per_worker: u32,
        workers: u16,
        frame_bytes: u32,
        huge: HugePages,
    ) -> Result<Vec<Self>, RegionError> {
        let frames = frames_per_worker.saturating_mul(u32::from(workers.max(1)));
        Ok(Region::new(frames, frame_bytes, huge)?.pools(workers))
    }

    /// Makes one pool over a region of its own.
    ///
    /// # Errors
    /// As [`Region::new`].
    pub fn new(frames: u32, frame_bytes: u32, huge: HugePages) -> Result<Self, RegionError> {
        let mut pools = Self::split(frames, 1, frame_bytes, huge)?;
        pools.pop().ok_or(RegionError::Geometry {
            frames,
            frame_bytes,
        })
    }

    /// Takes a free frame, empty, with [`HEADROOM_BYTES`] before its data; `None` (counted) if the
    /// pool is empty.
    #[inline]
    pub fn alloc(&mut self) -> Option<Frame> {
        let Some(index) = self.free.pop() else {
            self.exhausted += 1;
            return None;
        };
        // SAFETY: an index on the free list has no `Frame`; popping it makes this the only one.
        Some(unsafe { self.region.frame_at(FrameIdx(index)) })
    }

    /// Takes a frame back. A frame of another worker's pool is kept as a stray until
    /// [`Pool::take_strays`] sends it home.
    #[inline]
    pub fn free(&mut self, frame: Frame) {
        let index = self.region.index_of(frame.slot()).0;
        if index.wrapping_sub(self.first) < self.count {
            self.free.push(index);
        } else {
            self.strays.push(frame);
        }
    }

    /// Takes back every frame of a batch.
    pub fn free_batch(&mut self, batch: &mut Batch) {
        for frame in batch.drain() {
            self.free(frame);
        }
    }

    /// Takes the frames that belong to other workers' pools.
    pub fn take_strays(&mut self) -> std::vec::Drain<'_, Frame> {
        self.strays.drain(..)
    }

    /// Tells whether the frame is one of this pool's own.
    pub fn owns(&self, frame: &Frame) -> bool {
        self.region
            .index_of(frame.slot())
            .0
            .wrapping_sub(self.first)
            < self.count
    }

    /// Returns the region that the frames live in.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }
    /// Returns how many frames are free.
    pub fn available(&self) -> usize {
        self.free.len()
    }
    /// Returns how many frames are the pool's own, free or not.
    pub fn capacity(&self) -> usize {
        self.count as usize
    }
    /// Returns how often [`Pool::alloc`] found nothing.
    pub fn exhausted(&self) -> u64 {
        self.exhausted
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.free.len() != self.count as usize || !self.strays.is_empty() {
            // Frames are still out: keep the mapping for the rest of the process.
            core::mem::forget(Arc::clone(&self.region));
        }
    }
}
