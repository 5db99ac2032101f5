//! Segments in memory that something else shares between processes, such as a memzone of DPDK (LF-2).

use core::ptr::NonNull;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::{
    Access, HUGE_PAGE_BYTES, Mapping, PAGE_BYTES, RESERVED_BYTES, Segment, SegmentError, system,
    word,
};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

/// Memory that several processes have mapped, at any address of each.
#[derive(Clone, Copy, Debug)]
pub struct SharedMemory {
    start: NonNull<u8>,
    bytes: usize,
}

impl SharedMemory {
    /// Names the memory: `bytes` from `start`, aligned to a page of 4 KiB.
    ///
    /// # Safety
    /// The memory stays mapped for the rest of the process, readable and writable, and nobody changes it
    /// but through segments.
    pub unsafe fn new(start: NonNull<u8>, bytes: usize) -> Self {
        Self { start, bytes }
    }
}

impl Segment {
    /// Makes a segment in shared memory, with this process as owner. The file `lock`, made if it is not
    /// there, tells others whether the owner lives.
    ///
    /// # Errors
    /// If a living owner holds the lock, the memory is too small, or the system refuses.
    pub fn create_in(memory: SharedMemory, lock: &Path, layout: u64) -> Result<Self, SegmentError> {
        let before = Self::unchecked_in(memory, lock)?;
        before.lock()?;
        // SAFETY: `bytes` from `start` are mapped and writable; no segment in them has a living owner, and
        // this process has just become it.
        unsafe { memory.start.write_bytes(0, memory.bytes) };
        let file = before.file;
        Self::initialised(mapping(memory, lock)?, file, lock.to_owned(), layout)
    }

    /// Attaches to the segment of a living owner in shared memory, with the same file `lock`.
    ///
    /// # Errors
    /// As [`Segment::attach`].
    pub fn attach_in(memory: SharedMemory, lock: &Path, layout: u64) -> Result<Self, SegmentError> {
        let segment = Self::open_in(memory, lock, layout)?;
        match segment.lock_is_held() {
            true => Ok(segment),
            false => Err(SegmentError::Stale {
                owner: segment.owner(),
            }),
        }
    }

    /// Takes over the segment of a dead owner in shared memory: as [`Segment::recover`].
    ///
    /// # Errors
    /// As [`Segment::recover`].
    pub fn recover_in(
        memory: SharedMemory,
        lock: &Path,
        layout: u64,
    ) -> Result<Self, SegmentError> {
        Self::open_in(memory, lock, layout)?.take_over()
    }

    fn open_in(memory: SharedMemory, lock: &Path, layout: u64) -> Result<Self, SegmentError> {
        let segment = Self::unchecked_in(memory, lock)?;
        segment.check_header(layout)?;
        segment.check_directory()?;
        Ok(segment)
    }

    fn unchecked_in(memory: SharedMemory, lock: &Path) -> Result<Self, SegmentError> {
        Ok(Self {
            mapping: Arc::new(mapping(memory, lock)?),
            file: Some(lock_file(lock)?),
            path: lock.to_owned(),
            access: Access::ReadWrite,
            is_owner: false,
        })
    }

    /// Becomes the owner of a segment whose owner is dead.
    pub(super) fn take_over(mut self) -> Result<Self, SegmentError> {
        self.lock()?;
        self.is_owner = true;
        self.header(word::OWNER)
            .store(u64::from(std::process::id()), Ordering::Relaxed);
        // Release: pairs with the acquire load in `generation`: who sees it sees the new owner.
        self.header(word::GENERATION)
            .fetch_add(1, Ordering::Release);
        Ok(self)
    }
}

fn lock_file(lock: &Path) -> Result<File, SegmentError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(lock)
        .map_err(system("open", lock))
}

fn mapping(memory: SharedMemory, lock: &Path) -> Result<Mapping, SegmentError> {
    let foreign = |reason| SegmentError::Foreign {
        path: lock.to_owned(),
        reason,
    };
    if memory.bytes < RESERVED_BYTES {
        return Err(foreign("its memory is smaller than a header"));
    }
    if !memory.start.as_ptr().addr().is_multiple_of(PAGE_BYTES) {
        return Err(foreign("its memory does not begin at a page"));
    }
    let huge = memory.start.as_ptr().addr().is_multiple_of(HUGE_PAGE_BYTES);
    // SAFETY: who made the `SharedMemory` vouches for it, for the rest of the process.
    Ok(unsafe { Mapping::borrowed(memory.start, memory.bytes, huge) })
}
