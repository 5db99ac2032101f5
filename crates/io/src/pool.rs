//! The memory that frames live in, and each worker's private stock of free frames (IO-1).

use core::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use crate::batch::Batch;
use crate::frame::Frame;
use crate::ids::{FrameIdx, PortId};

/// Size of a huge page, bytes (x86-64 and aarch64 with 4 KiB base pages).
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Room that drivers leave in front of a received frame, for headers that the node prepends, bytes.
pub const HEADROOM_BYTES: u16 = 256;

/// Bytes at the start of each slot that are not the frame's: with the feature `dpdk` a slot is an object of
/// a DPDK mempool, which begins with the object's header and the `rte_mbuf` (64 and 128 bytes). So a frame
/// is an mbuf without a copy, whatever driver received it.
pub(crate) const PREFIX_BYTES: u16 = if cfg!(feature = "dpdk") { 192 } else { 0 };

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
    /// Transparent huge pages, for at least half of the region.
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
/// that drivers register it once and a frame can leave by any port without a copy. All workers read it for
/// every frame: it is in lines of its own, so that no neighbour in memory that one worker writes takes them
/// from the others.
#[derive(Debug)]
#[repr(align(128))]
pub struct Region {
    base: NonNull<u8>,
    bytes: usize,
    frames: u32,
    frame_bytes: u32,
    /// Reserved huge pages: known at once.
    huge: bool,
    /// Somebody else made the mapping, and keeps it.
    borrowed: bool,
    /// The pages in force, known when the memory is filled in.
    pages: OnceLock<PageKind>,
    filler: Mutex<Option<JoinHandle<std::io::Result<()>>>>,
}

// SAFETY: the region is plain mapped memory; who may touch which slot is decided by `Frame` tokens.
unsafe impl Send for Region {}
// SAFETY: as above: a shared `Region` gives out addresses and sizes only.
unsafe impl Sync for Region {}

impl Region {
    /// Maps a region of `frames` slots of `frame_bytes` (a power of two from 2048 to 32768) and fills it
    /// in.
    ///
    /// # Errors
    /// Impossible sizes, no huge pages where they are required, or no memory.
    pub fn new(frames: u32, frame_bytes: u32, huge: HugePages) -> Result<Arc<Self>, RegionError> {
        let region = Self::start(frames, frame_bytes, huge)?;
        region.wait_filled()?;
        Ok(region)
    }

    /// As [`Region::new`], but leaves it to a thread to fill the memory in: see
    /// [`Region::wait_filled`].
    fn start(frames: u32, frame_bytes: u32, huge: HugePages) -> Result<Arc<Self>, RegionError> {
        if frames == 0 || !frame_bytes.is_power_of_two() || !(2048..=32768).contains(&frame_bytes) {
            return Err(RegionError::Geometry {
                frames,
                frame_bytes,
            });
        }
        let bytes = (frames as usize * frame_bytes as usize).next_multiple_of(HUGE_PAGE_BYTES);
        let (base, huge) = match huge {
            HugePages::Never => (map(bytes, 0)?, false),
            HugePages::Require => {
                let base = map(bytes, libc::MAP_HUGETLB)
                    .map_err(|_| RegionError::NoHugePages { bytes })?;
                (base, true)
            }
            HugePages::Auto => match map(bytes, libc::MAP_HUGETLB) {
                Ok(base) => (base, true),
                Err(_) => (map_transparent(bytes)?, false),
            },
        };
        keep_from_children(base, bytes);
        Ok(Arc::new(Self {
            base,
            bytes,
            frames,
            frame_bytes,
            huge,
            borrowed: false,
            pages: OnceLock::new(),
            filler: Mutex::new(start_to_fill(base, bytes)),
        }))
    }

    /// Makes a region of memory in huge pages that somebody else has mapped: DPDK, for several processes.
    ///
    /// # Safety
    /// `frames * frame_bytes` bytes from `base`, which are aligned to `frame_bytes`, stay mapped, readable
    /// and writable for the rest of the process, and who uses which slot is decided by `Frame` tokens alone.
    #[cfg(feature = "dpdk")]
    pub(crate) unsafe fn borrowed(base: NonNull<u8>, frames: u32, frame_bytes: u32) -> Arc<Self> {
        Arc::new(Self {
            base,
            bytes: frames as usize * frame_bytes as usize,
            frames,
            frame_bytes,
            huge: true,
            borrowed: true,
            pages: OnceLock::new(),
            filler: Mutex::new(None),
        })
    }

    /// Waits until the kernel has given every page. Memory may be used before that: pages that are not
    /// there yet come when they are touched.
    ///
    /// # Errors
    /// The kernel has no memory left.
    pub fn wait_filled(&self) -> Result<(), RegionError> {
        let mut filler = self.filler.lock().unwrap_or_else(PoisonError::into_inner);
        let filled = match filler.take().map(JoinHandle::join) {
            Some(Ok(filled)) => filled,
            // Filled before; or on first use, which it is even if the thread died.
            None | Some(Err(_)) => Ok(()),
        };
        match filled {
            // Before Linux 5.14 the pages come when they are first used.
            Err(source) if source.kind() != std::io::ErrorKind::InvalidInput => {
                Err(RegionError::Map {
                    bytes: self.bytes,
                    source,
                })
            }
            _ => Ok(()),
        }
    }

    /// Cuts private pools of `each` frames off the region, one a worker.
    ///
    /// Call it once for a region: a second call would hand out the same frames again, so it is only
    /// called where the region has just been made.
    pub(crate) fn pools(self: &Arc<Self>, workers: u16, each: u32) -> Vec<Pool> {
        (0..u32::from(workers.max(1)))
            .map(|w| {
                let mut pool = self.empty_pool(w, each);
                pool.free.extend((w * each..(w + 1) * each).rev());
                pool
            })
            .collect()
    }

    /// Makes the pool over the `part`th `each` frames without any of them in it.
    pub(crate) fn empty_pool(self: &Arc<Self>, part: u32, each: u32) -> Pool {
        let first = part * each;
        Pool {
            region: Arc::clone(self),
            own_base: self.base.as_ptr() as usize + first as usize * self.frame_bytes as usize,
            own_bytes: each as usize * self.frame_bytes as usize,
            first,
            shift: self.frame_bytes.trailing_zeros(),
            free: Vec::with_capacity(each as usize),
            strays: Vec::with_capacity(STRAYS_RESERVED.min(self.frames as usize)),
            exhausted: 0,
            foreign: 0,
        }
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
    /// Returns the longest frame that fits behind [`HEADROOM_BYTES`] in a slot, bytes.
    pub fn room_bytes(&self) -> u32 {
        self.frame_bytes - u32::from(PREFIX_BYTES) - u32::from(HEADROOM_BYTES)
    }
    /// Returns the pages that the kernel gave; waits until it has.
    pub fn pages(&self) -> PageKind {
        *self.pages.get_or_init(|| {
            // What is missing after a failure is not huge.
            let _ = self.wait_filled();
            if self.huge {
                PageKind::Huge
            } else if huge_bytes(self.base) >= self.bytes / 2 {
                PageKind::Transparent
            } else {
                PageKind::Normal
            }
        })
    }
    /// Tells whether the region is made of reserved huge pages.
    pub(crate) fn is_huge(&self) -> bool {
        self.huge
    }

    /// Returns the index of the slot that holds the address; `None` if it is not in this region.
    #[inline]
    pub fn index_of(&self, slot: NonNull<u8>) -> Option<FrameIdx> {
        let bytes = (slot.as_ptr() as usize).wrapping_sub(self.base.as_ptr() as usize);
        let index = bytes >> self.frame_bytes.trailing_zeros();
        (index < self.frames as usize).then_some(FrameIdx(index as u32))
    }

    /// Tells whether the frame is a slot of this region.
    #[inline]
    pub fn contains(&self, frame: &Frame) -> bool {
        self.index_of(frame.slot()).is_some()
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
        let offset = idx.index() * self.frame_bytes as usize + usize::from(PREFIX_BYTES);
        // SAFETY: `offset` is inside the mapping by the assertion.
        let slot = unsafe { self.base.add(offset) };
        let capacity = self.frame_bytes as u16 - PREFIX_BYTES;
        // SAFETY: `capacity` bytes follow; unique by this function's contract.
        unsafe { Frame::new(slot, capacity, HEADROOM_BYTES) }
    }

    /// Makes the handle of a slot that came back from the kernel with a received frame in it.
    ///
    /// # Safety
    /// As [`Region::frame_at`]; and `idx` is less than [`Region::frames`], and `len` bytes from `offset`,
    /// which counts from the first byte of the slot and is at least [`PREFIX_BYTES`], are in the slot.
    #[inline]
    pub(crate) unsafe fn received_at(
        &self,
        idx: FrameIdx,
        offset: u16,
        len: u16,
        rx_port: PortId,
    ) -> Frame {
        let start = (idx.index() << self.frame_bytes.trailing_zeros()) + usize::from(PREFIX_BYTES);
        // SAFETY: the slot is inside the mapping by this function's contract.
        let slot = unsafe { self.base.add(start) };
        let (capacity, offset) = (
            self.frame_bytes as u16 - PREFIX_BYTES,
            offset - PREFIX_BYTES,
        );
        // SAFETY: the range is in the slot, and the handle is unique, by this function's contract.
        unsafe { Frame::received(slot, capacity, offset, len, rx_port) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // The filler must not outlive the mapping.
        let _ = self.wait_filled();
        if self.borrowed {
            return;
        }
        // SAFETY: this is the mapping that `map` made, and the last owner is gone; pools with frames
        // outstanding leak their share of the `Arc`, so none can reach it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Maps zeroed anonymous memory; the pages are not there yet.
fn map(bytes: usize, flags: libc::c_int) -> Result<NonNull<u8>, RegionError> {
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
    let address = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
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

/// Maps memory aligned to huge pages and asks the kernel for transparent ones.
fn map_transparent(bytes: usize) -> Result<NonNull<u8>, RegionError> {
    let spare = bytes + HUGE_PAGE_BYTES;
    let start = map(spare, libc::MAP_NORESERVE)?;
    let skip = start.align_offset(HUGE_PAGE_BYTES);
    // SAFETY: `skip` is less than a huge page, by which the mapping is longer than `bytes`.
    let base = unsafe { start.add(skip) };
    // SAFETY: as above.
    let end = unsafe { base.add(bytes) };
    unmap(start, skip);
    unmap(end, HUGE_PAGE_BYTES - skip);
    // SAFETY: advises on exactly the part that is left.
    unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
    Ok(base)
}

/// Makes the kernel give every page of a mapping, on a thread of its own: that takes it milliseconds,
/// which the start of a node has better use for. Returns `None` if the pages are left to first use.
fn start_to_fill(base: NonNull<u8>, bytes: usize) -> Option<JoinHandle<std::io::Result<()>>> {
    let base = base.as_ptr() as usize;
    std::thread::Builder::new()
        .name("filler".into())
        .spawn(move || {
            (0..bytes)
                .step_by(HUGE_PAGE_BYTES)
                .try_for_each(|from| fill(base + from))
        })
        .ok()
}

/// Makes the kernel give the pages of one huge page's range.
fn fill(address: usize) -> std::io::Result<()> {
    // In small steps: a step keeps other threads from mapping memory.
    let address = core::ptr::without_provenance_mut::<libc::c_void>(address);
    // SAFETY: the region that started the filler waits for it before it unmaps this range; the call
    // changes no content.
    let filled = unsafe { libc::madvise(address, HUGE_PAGE_BYTES, libc::MADV_POPULATE_WRITE) };
    if filled == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Leaves the memory out of what a child process inherits: a kernel that has it pinned for AF_XDP would
/// copy all of it at every fork.
fn keep_from_children(base: NonNull<u8>, bytes: usize) {
    // SAFETY: advises on exactly our mapping; where it fails, forks are slower.
    unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_DONTFORK) };
}

/// Unmaps part of a mapping of our own, to which nothing refers; nothing if `bytes` is zero.
fn unmap(start: NonNull<u8>, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the callers pass whole pages of a mapping that they have just made.
        unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
    }
}

/// Returns how many bytes of the mapping around an address are transparent huge pages; 0 where the kernel
/// does not tell.
fn huge_bytes(address: NonNull<u8>) -> usize {
    let address = address.as_ptr() as usize;
    let Ok(text) = std::fs::read_to_string("/proc/self/smaps") else {
        return 0;
    };
    let is_range_of_it = |line: &&str| {
        let range = line.split_whitespace().next().unwrap_or_default();
        let Some((from, to)) = range.split_once('-') else {
            return false;
        };
        let number = |hex| usize::from_str_radix(hex, 16).ok();
        number(from)
            .zip(number(to))
            .is_some_and(|(from, to)| (from..to).contains(&address))
    };
    text.lines()
        .skip_while(|line| !is_range_of_it(line))
        .find_map(|line| line.strip_prefix("AnonHugePages:"))
        .and_then(|size| size.trim().strip_suffix("kB"))
        .and_then(|kib| kib.trim().parse::<usize>().ok())
        .map_or(0, |kib| kib * 1024)
}

/// Strays that a pool has room for without allocating, frames.
const STRAYS_RESERVED: usize = 1024;

/// One worker's private stock of free frames: a slice of a [`Region`], last in first out.
#[derive(Debug)]
pub struct Pool {
    region: Arc<Region>,
    /// Address of the first own slot, and the bytes that the own slots take: one subtraction and one
    /// comparison tell own frames from strays and from frames of other regions.
    own_base: usize,
    own_bytes: usize,
    /// Index of the first own slot.
    first: u32,
    /// Binary logarithm of the slot size.
    shift: u32,
    free: Vec<u32>,
    strays: Vec<Frame>,
    exhausted: u64,
    foreign: u64,
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
        let pools = Self::split_early(frames_per_worker, workers, frame_bytes, huge)?;
        if let Some(pool) = pools.first() {
            pool.region.wait_filled()?;
        }
        Ok(pools)
    }

    /// As [`Pool::split`], but returns while the kernel still fills the memory in, so that ports can be
    /// opened meanwhile: see [`Region::wait_filled`].
    ///
    /// # Errors
    /// As [`Region::new`].
    pub fn split_early(
        frames_per_worker: u32,
        workers: u16,
        frame_bytes: u32,
        huge: HugePages,
    ) -> Result<Vec<Self>, RegionError> {
        let frames = frames_per_worker.saturating_mul(u32::from(workers.max(1)));
        Ok(Region::start(frames, frame_bytes, huge)?.pools(workers, frames_per_worker))
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
    /// [`Pool::take_strays`] sends it home; a frame of another region cannot be kept by this pool: it is
    /// counted ([`Pool::foreign`]) and its memory is not reused.
    #[inline]
    pub fn free(&mut self, frame: Frame) {
        let bytes = (frame.slot().as_ptr() as usize).wrapping_sub(self.own_base);
        if bytes < self.own_bytes {
            // `bytes < own_bytes <= 2^32 slots`, by the geometry that the region was made with.
            self.free.push(self.first + (bytes >> self.shift) as u32);
        } else {
            self.free_other(frame);
        }
    }

    /// Keeps a stray, or counts a frame of another region.
    #[cold]
    fn free_other(&mut self, frame: Frame) {
        if self.region.contains(&frame) {
            self.strays.push(frame);
        } else {
            self.foreign += 1;
        }
    }

    /// Takes back every frame of a batch.
    #[inline]
    pub fn free_batch(&mut self, batch: &mut Batch) {
        for frame in batch.drain() {
            self.free(frame);
        }
    }

    /// Appends up to `n` free frames to `batch`, as many as there are and fit; returns how many. What is
    /// missing is not counted as exhaustion.
    #[inline]
    pub fn alloc_batch(&mut self, n: usize, batch: &mut Batch) -> usize {
        let n = n.min(batch.room()).min(self.free.len());
        for _ in 0..n {
            let Some(frame) = self.alloc() else { break };
            if let Err(frame) = batch.push(frame) {
                self.free(frame);
                break;
            }
        }
        n
    }

    /// Takes the frames that belong to other workers' pools.
    pub fn take_strays(&mut self) -> std::vec::Drain<'_, Frame> {
        self.strays.drain(..)
    }

    /// Returns how many frames of other workers' pools wait to be sent home.
    pub fn strays(&self) -> usize {
        self.strays.len()
    }

    /// Tells whether the frame is one of this pool's own.
    #[inline]
    pub fn owns(&self, frame: &Frame) -> bool {
        (frame.slot().as_ptr() as usize).wrapping_sub(self.own_base) < self.own_bytes
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
        self.own_bytes >> self.shift
    }
    /// Returns how often [`Pool::alloc`] found nothing.
    pub fn exhausted(&self) -> u64 {
        self.exhausted
    }
    /// Returns how many frames of other regions were handed to [`Pool::free`] and are lost. Not zero: a
    /// driver or a node mixed up two regions.
    pub fn foreign(&self) -> u64 {
        self.foreign
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.free.len() != self.capacity() || !self.strays.is_empty() {
            // Frames are still out: keep the mapping for the rest of the process.
            core::mem::forget(Arc::clone(&self.region));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_last_in_first_out() {
        let mut pool = Pool::new(4, 2048, HugePages::Never).unwrap();
        let a = pool.alloc().unwrap();
        let b = pool.alloc().unwrap();
        let b_slot = b.slot();
        pool.free(a);
        pool.free(b);
        let again = pool.alloc().unwrap();
        assert_eq!(again.slot(), b_slot);
        pool.free(again);
        assert_eq!((pool.available(), pool.capacity()), (4, 4));
    }

    #[test]
    fn an_empty_pool_counts_and_gives_none() {
        let mut pool = Pool::new(1, 4096, HugePages::Never).unwrap();
        let only = pool.alloc().unwrap();
        assert!(pool.alloc().is_none());
        assert_eq!(pool.exhausted(), 1);
        pool.free(only);
        assert!(pool.alloc().map(|f| pool.free(f)).is_some());
    }

    #[test]
    fn another_workers_frame_is_a_stray_and_goes_home() {
        let mut pools = Pool::split(4, 2, 2048, HugePages::Never).unwrap();
        let mut second = pools.pop().unwrap();
        let mut first = pools.pop().unwrap();
        let frame = first.alloc().unwrap();
        assert!(first.owns(&frame) && !second.owns(&frame));
        assert!(second.region().contains(&frame));
        second.free(frame);
        assert_eq!((second.available(), second.strays()), (4, 1));
        for stray in second.take_strays() {
            first.free(stray);
        }
        assert_eq!((first.available(), second.strays()), (4, 0));
    }

    #[test]
    fn a_frame_of_another_region_is_counted_and_never_handed_out() {
        let mut ours = Pool::new(2, 2048, HugePages::Never).unwrap();
        let mut theirs = Pool::new(2, 2048, HugePages::Never).unwrap();
        let foreign = theirs.alloc().unwrap();
        assert_eq!(ours.region().index_of(foreign.slot()), None);
        ours.free(foreign);
        assert_eq!((ours.foreign(), ours.available(), ours.strays()), (1, 2, 0));
        assert_eq!(theirs.available(), 1);
    }

    #[test]
    fn impossible_sizes_are_refused_with_a_remedy() {
        for (frames, bytes) in [(0, 2048), (1, 1024), (1, 3000), (1, 65536)] {
            let refused = Region::new(frames, bytes, HugePages::Never).unwrap_err();
            assert!(refused.to_string().contains("power of two"));
        }
    }

    #[test]
    fn a_region_is_zeroed_aligned_and_honest_about_its_pages() {
        let region = Region::new(4096, 2048, HugePages::Auto).unwrap();
        assert_eq!(region.is_huge(), region.pages() == PageKind::Huge);
        assert_eq!(region.base().as_ptr() as usize % HUGE_PAGE_BYTES, 0);
        match region.pages() {
            PageKind::Huge => {}
            PageKind::Transparent => assert!(huge_bytes(region.base()) >= region.bytes() / 2),
            PageKind::Normal => assert!(huge_bytes(region.base()) < region.bytes() / 2),
        }
        let mut pool = Pool::new(4, 2048, HugePages::Auto).unwrap();
        let mut frame = pool.alloc().unwrap();
        assert!(frame.set_range(0, 2048));
        assert!(frame.data().iter().all(|byte| *byte == 0));
        pool.free(frame);
    }

    #[test]
    fn memory_can_be_used_while_it_is_filled_in() {
        let mut pools = Pool::split_early(8192, 1, 2048, HugePages::Auto).unwrap();
        let mut pool = pools.remove(0);
        let mut frame = pool.alloc().unwrap();
        assert!(frame.fill(b"early"));
        pool.region().wait_filled().unwrap();
        pool.region().wait_filled().unwrap();
        assert_eq!(frame.data(), b"early");
        pool.free(frame);
    }

    #[test]
    fn a_batch_is_filled_as_far_as_the_pool_goes() {
        let mut pool = Pool::new(10, 2048, HugePages::Auto).unwrap();
        let mut batch = Batch::new();
        assert_eq!(pool.alloc_batch(64, &mut batch), 10);
        assert_eq!((batch.len(), pool.exhausted()), (10, 0));
        pool.free_batch(&mut batch);
        assert_eq!(pool.available(), 10);
    }
}
