//! Memory mappings: anonymous ones with huge pages, and mapped files. Linux only.

use core::ptr::NonNull;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A mapping that is removed when dropped, unless somebody else made it.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// What `mmap` gave; of length 0 if somebody else did the mapping.
    base: NonNull<u8>,
    base_len: usize,
    /// The part that is used, inside of `base..base + base_len`.
    start: NonNull<u8>,
    len: usize,
    huge: bool,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: `&Mapping` gives an address only; whoever uses the memory upholds `Plain`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` zeroed bytes, aligned to 2 MiB, and asks for transparent huge pages.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        let base_len = len
            .checked_next_multiple_of(HUGE_PAGE_BYTES)
            .and_then(|len| len.checked_add(HUGE_PAGE_BYTES))
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let base = map(base_len, libc::PROT_READ | libc::PROT_WRITE, flags, -1)?;
        let skip = base.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: `skip` is below 2 MiB, which `base_len` exceeds.
        let start = unsafe { base.add(skip) };
        // SAFETY: the range lies inside of the mapping; the advice changes its page size only.
        let advised = unsafe {
            libc::madvise(
                start.as_ptr().cast(),
                base_len - HUGE_PAGE_BYTES,
                libc::MADV_HUGEPAGE,
            )
        };
        Ok(Self {
            base,
            base_len,
            start,
            len,
            huge: advised == 0,
        })
    }

    /// Maps the first `len` bytes of a file, shared. `huge` tells that the file lies in hugetlbfs.
    pub(crate) fn file(
        file: BorrowedFd<'_>,
        len: usize,
        writable: bool,
        huge: bool,
    ) -> io::Result<Self> {
        let protection = if writable {
            libc::PROT_READ | libc::PROT_WRITE
        } else {
            libc::PROT_READ
        };
        let base = map(len, protection, libc::MAP_SHARED, file.as_raw_fd())?;
        Ok(Self {
            base,
            base_len: len,
            start: base,
            len,
            huge,
        })
    }

    /// Refers to memory that somebody else has mapped.
    ///
    /// # Safety
    /// `len` bytes from `start` stay mapped, readable and writable while the result or a copy of its count
    /// exists.
    pub(crate) unsafe fn borrowed(start: NonNull<u8>, len: usize, huge: bool) -> Self {
        Self {
            base: start,
            base_len: 0,
            start,
            len,
            huge,
        }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn has_huge_pages(&self) -> bool {
        self.huge
    }
}

fn map(len: usize, protection: i32, flags: i32, fd: i32) -> io::Result<NonNull<u8>> {
    // SAFETY: a new mapping at an address that the kernel chooses touches no memory that is in use.
    let base = unsafe { libc::mmap(core::ptr::null_mut(), len, protection, flags, fd, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast::<u8>()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.base_len == 0 {
            return;
        }
        // SAFETY: the range is the one that `mmap` gave; no `Memory` is left, as each holds a count.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.base_len) };
    }
}
