//! Memory segments (LF-2): named memory that threads and processes share, with a checked header and a
//! directory of named objects at offsets. Linux only.
//!
//! # Layout
//! The first page is the header (words of 64 bits), the second to fifth the directory, then the objects,
//! each at a multiple of 4 KiB. Nothing in a segment is a pointer.
//!
//! # Crashes
//! A file has no name until its header is complete, and gets it in one step, so that no half-made segment is
//! ever seen and none is left behind. An object exists from the store of the directory's count on; a process killed before leaves the
//! count as it was, and the next `reserve` takes the same place. The owner holds a lock on the open file
//! (released by the kernel when it dies), so that a dead owner is told from a living one without pids, and
//! one successor wins. What recovery inside of an object means is that object's business
//! ([`SignatureTable::recover`](crate::signature::SignatureTable::recover)).

mod borrowed;
mod error;
mod sys;

pub use borrowed::SharedMemory;
pub use error::SegmentError;

use crate::mapping::Mapping;
use crate::memory::{Memory, Plain, Source};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use sys::{lock_call, memfd_create, page_bytes};

/// "TIDEGATE" in the order of a big-endian reader.
const MAGIC: u64 = u64::from_be_bytes(*b"TIDEGATE");
const VERSION: u64 = 1;
const PAGE_BYTES: usize = 4096;
const ENTRY_WORDS: usize = 8;
const ENTRIES_MAX: usize = 4 * PAGE_BYTES / (ENTRY_WORDS * 8);
/// Header and directory.
const RESERVED_BYTES: usize = 5 * PAGE_BYTES;
const NAME_BYTES: usize = 24;
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Words of the header.
mod word {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 1;
    pub(super) const LAYOUT: usize = 2;
    pub(super) const SIZE: usize = 3;
    pub(super) const CREATED: usize = 4;
    pub(super) const CHECK: usize = 5;
    pub(super) const OWNER: usize = 6;
    pub(super) const GENERATION: usize = 7;
    pub(super) const ENTRIES: usize = 8;
}

/// What a process may do with a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read: the pages are mapped without write permission.
    ReadOnly,
    /// Read and write beside the owner.
    ReadWrite,
}

/// A mapped segment. Objects keep the mapping alive; the name stays until [`remove`](Segment::remove).
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tables::segment::{Access, Segment};
///
/// let owner = Segment::memfd("example", 1 << 20, 0x17)?;
/// let counters = owner.reserve::<AtomicU64>("port counters", 64)?;
/// counters[3].store(5, Ordering::Relaxed);
/// // Another process would open the same file; here, another mapping of it.
/// let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&owner.file().unwrap()));
/// let reader = Segment::attach(path.as_ref(), 0x17, Access::ReadOnly)?;
/// assert_eq!(reader.view::<AtomicU64>("port counters")?.get(3), 5);
/// # Ok::<(), tables::segment::SegmentError>(())
/// ```
#[derive(Debug)]
pub struct Segment {
    mapping: Arc<Mapping>,
    /// Holds the owner's lock; `None` on the heap.
    file: Option<File>,
    path: PathBuf,
    access: Access,
    is_owner: bool,
}

impl Segment {
    /// Bytes of a segment beside its objects, each of which takes whole pages of 4 KiB.
    pub const OVERHEAD_BYTES: usize = RESERVED_BYTES;

    /// Makes a segment without a file, for threads of one process.
    ///
    /// # Errors
    /// If memory is out.
    pub fn heap(size_bytes: usize, layout: u64) -> Result<Self, SegmentError> {
        let path = PathBuf::from("(heap)");
        let size = whole_pages(size_bytes);
        let mapping = Mapping::anonymous(size).map_err(system("map", &path))?;
        Self::initialised(mapping, None, path, layout)
    }

    /// Makes a segment in a memory file that has no name but `/proc/PID/fd/FD`; pass the descriptor on.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn memfd(name: &str, size_bytes: usize, layout: u64) -> Result<Self, SegmentError> {
        Self::in_memory_file(name, size_bytes, layout, false)
    }

    /// The same in reserved huge pages (`/proc/sys/vm/nr_hugepages`).
    ///
    /// # Errors
    /// If there are not enough of them, or the system refuses.
    pub fn memfd_huge(name: &str, size_bytes: usize, layout: u64) -> Result<Self, SegmentError> {
        Self::in_memory_file(name, size_bytes, layout, true)
    }

    fn in_memory_file(
        name: &str,
        size_bytes: usize,
        layout: u64,
        huge: bool,
    ) -> Result<Self, SegmentError> {
        let path = PathBuf::from(format!("memfd:{name}"));
        let file = memfd_create(name, huge).map_err(system("create", &path))?;
        Self::create_in_file(file, path, size_bytes, layout)
    }

    /// Makes the segment `path` (in `/dev/shm`, in a mounted hugetlbfs, or on any file system that has unnamed
    /// files) of at least `size_bytes`, readable and writable by this user alone, with this process as owner.
    /// `layout` is any number that changes when the objects' layout does.
    ///
    /// # Errors
    /// If the file exists ([`Segment::recover`] or remove it), there are not enough huge pages, or the system
    /// refuses.
    pub fn create(path: &Path, size_bytes: usize, layout: u64) -> Result<Self, SegmentError> {
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let file = sys::unnamed_file(directory).map_err(system("create a file for", path))?;
        let made = Self::create_in_file(file, path.to_owned(), size_bytes, layout)?;
        if let Some(file) = &made.file {
            sys::link(file, path).map_err(system("create", path))?;
        }
        Ok(made)
    }

    /// Attaches to the segment `path` of a living owner.
    ///
    /// # Errors
    /// If it is foreign, torn, stale, or of another version or layout.
    pub fn attach(path: &Path, layout: u64, access: Access) -> Result<Self, SegmentError> {
        let segment = Self::open(path, layout, access)?;
        if !segment.lock_is_held() {
            return Err(SegmentError::Stale {
                owner: segment.owner(),
            });
        }
        Ok(segment)
    }

    /// Takes over the segment `path` of a dead owner: generation plus one, this process as owner. The
    /// objects are then to be recovered one by one.
    ///
    /// # Errors
    /// If the owner is alive, or as [`attach`](Self::attach).
    pub fn recover(path: &Path, layout: u64) -> Result<Self, SegmentError> {
        Self::open(path, layout, Access::ReadWrite)?.take_over()
    }

    /// Makes room for `len` zeroed items under `name`.
    ///
    /// # Errors
    /// If the name is taken or not valid, the segment is full, or attached read-only. One process reserves.
    pub fn reserve<T: Plain>(&self, name: &str, len: usize) -> Result<Memory<T>, SegmentError> {
        self.check_writable()?;
        let name_words = name_words(name)?;
        let count = self.entries();
        if (0..count).any(|index| self.entry_name(index) == name_words) {
            return Err(SegmentError::Exists(name.to_owned()));
        }
        let start = match count.checked_sub(1) {
            Some(last) => {
                let end = self.entry(last, 3) + self.entry(last, 4) * self.entry(last, 5);
                whole_pages(usize::try_from(end).unwrap_or(usize::MAX / 2))
            }
            None => RESERVED_BYTES,
        };
        let free_bytes = self.mapping.len().saturating_sub(start);
        let wanted_bytes = size_of::<T>().saturating_mul(len);
        if wanted_bytes > free_bytes || count == ENTRIES_MAX || align_of::<T>() > PAGE_BYTES {
            return Err(SegmentError::Full {
                wanted_bytes,
                free_bytes,
            });
        }
        let fields = [start, len, size_of::<T>()].map(|field| field as u64);
        let values = name_words.into_iter().chain(fields);
        for (at, value) in values.enumerate() {
            self.entry_word(count, at).store(value, Ordering::Relaxed);
        }
        // Release: pairs with the acquire load in `entries`: an entry that is counted is complete.
        self.header(word::ENTRIES)
            .store(count as u64 + 1, Ordering::Release);
        Ok(Memory::mapped(Arc::clone(&self.mapping), start, len))
    }

    /// Returns the object `name` for reading and writing.
    ///
    /// # Errors
    /// If there is none, its items are not of the size of `T`, or the segment is attached read-only.
    pub fn lookup<T: Plain>(&self, name: &str) -> Result<Memory<T>, SegmentError> {
        self.check_writable()?;
        self.find(name)
    }

    /// Returns the object `name` for reading.
    ///
    /// # Errors
    /// If there is none, or its items are not of the size of `T`.
    pub fn view<T: Plain>(&self, name: &str) -> Result<ReadOnly<T>, SegmentError> {
        self.find(name).map(ReadOnly)
    }

    /// Returns the names and sizes (bytes) of the objects.
    pub fn objects(&self) -> Vec<(String, u64)> {
        (0..self.entries())
            .map(|index| {
                let bytes: Vec<u8> = self
                    .entry_name(index)
                    .iter()
                    .flat_map(|word| word.to_le_bytes())
                    .filter(|&byte| byte != 0)
                    .collect();
                let name = String::from_utf8_lossy(&bytes).into_owned();
                (name, self.entry(index, 4) * self.entry(index, 5))
            })
            .collect()
    }

    /// How often the segment changed owners: whoever cached anything derived looks again when it moves.
    pub fn generation(&self) -> u64 {
        // Acquire: pairs with the release add in `recover`.
        self.header(word::GENERATION).load(Ordering::Acquire)
    }

    /// Process id of the owner, alive or not.
    pub fn owner(&self) -> u64 {
        self.header(word::OWNER).load(Ordering::Relaxed)
    }

    /// True while the owner's process (or ours, if we own it) has the file open.
    pub fn has_living_owner(&self) -> bool {
        self.is_owner || self.file.is_none() || self.lock_is_held()
    }

    /// Bytes of the segment.
    pub fn size_bytes(&self) -> usize {
        self.mapping.len()
    }

    /// True if the segment lies on huge pages (hugetlbfs, or granted advice on the heap).
    pub fn has_huge_pages(&self) -> bool {
        self.mapping.has_huge_pages()
    }

    /// The file, to pass on; `None` on the heap.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Removes the name; the memory goes when the last process lets go of it.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn remove(&self) -> Result<(), SegmentError> {
        std::fs::remove_file(&self.path).map_err(system("remove", &self.path))
    }

    fn create_in_file(
        file: File,
        path: PathBuf,
        size_bytes: usize,
        layout: u64,
    ) -> Result<Self, SegmentError> {
        let page = page_bytes(&file).map_err(system("stat", &path))?;
        let size = whole_pages(size_bytes.max(RESERVED_BYTES)).next_multiple_of(page);
        let huge = page >= HUGE_PAGE_BYTES;
        let mapping = sys::allocate(&file, size, huge)
            .and_then(|()| Mapping::file(file.as_fd(), size, true, huge));
        let mapping = mapping.map_err(|source| match huge {
            true => SegmentError::HugePages {
                path: path.clone(),
                wanted: size / page,
                page_bytes: page,
                source,
            },
            false => system("map", &path)(source),
        })?;
        Self::initialised(mapping, Some(file), path, layout)
    }

    fn initialised(
        mapping: Mapping,
        file: Option<File>,
        path: PathBuf,
        layout: u64,
    ) -> Result<Self, SegmentError> {
        let size = mapping.len() as u64;
        let segment = Self {
            mapping: Arc::new(mapping),
            file,
            path,
            access: Access::ReadWrite,
            is_owner: true,
        };
        segment.lock()?;
        let created_ns = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos() as u64);
        let fixed = [MAGIC, VERSION, layout, size, created_ns];
        for (at, value) in fixed.into_iter().enumerate() {
            segment.header(at).store(value, Ordering::Relaxed);
        }
        segment
            .header(word::CHECK)
            .store(check_sum(&fixed), Ordering::Relaxed);
        segment
            .header(word::OWNER)
            .store(u64::from(std::process::id()), Ordering::Relaxed);
        // Release: pairs with the acquire load in `generation`.
        segment.header(word::GENERATION).store(1, Ordering::Release);
        Ok(segment)
    }

    fn open(path: &Path, layout: u64, access: Access) -> Result<Self, SegmentError> {
        let writable = access == Access::ReadWrite;
        let file = OpenOptions::new()
            .read(true)
            .write(writable)
            .open(path)
            .map_err(system("open", path))?;
        let metadata = file.metadata().map_err(system("stat", path))?;
        let foreign = |reason| SegmentError::Foreign {
            path: path.to_owned(),
            reason,
        };
        if metadata.uid() != sys::user() {
            return Err(foreign("it belongs to another user"));
        }
        if !metadata.is_file() {
            return Err(foreign("it is not a regular file"));
        }
        let size = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
        if size < RESERVED_BYTES {
            return Err(foreign("it is smaller than a header"));
        }
        let page = page_bytes(&file).map_err(system("stat", path))?;
        let mapping = Mapping::file(file.as_fd(), size, writable, page >= HUGE_PAGE_BYTES)
            .map_err(system("map", path))?;
        let segment = Self {
            mapping: Arc::new(mapping),
            file: Some(file),
            path: path.to_owned(),
            access,
            is_owner: false,
        };
        segment.check_header(layout)?;
        segment.check_directory()?;
        Ok(segment)
    }

    fn check_header(&self, layout: u64) -> Result<(), SegmentError> {
        let fixed: [u64; 5] = core::array::from_fn(|at| self.header(at).load(Ordering::Relaxed));
        if fixed[word::MAGIC] != MAGIC {
            return Err(SegmentError::Foreign {
                path: self.path.clone(),
                reason: "it has no header of a segment",
            });
        }
        if fixed[word::VERSION] != VERSION {
            return Err(SegmentError::Version {
                found: fixed[word::VERSION],
            });
        }
        if self.header(word::CHECK).load(Ordering::Relaxed) != check_sum(&fixed) {
            return Err(SegmentError::Torn("the header's sum is wrong"));
        }
        if fixed[word::SIZE] != self.mapping.len() as u64 {
            return Err(SegmentError::Torn("the file has not the size that it says"));
        }
        if fixed[word::LAYOUT] != layout {
            return Err(SegmentError::Layout {
                found: fixed[word::LAYOUT],
                expected: layout,
            });
        }
        debug_assert_eq!(word::CREATED, 4);
        Ok(())
    }

    fn check_directory(&self) -> Result<(), SegmentError> {
        if self.header(word::ENTRIES).load(Ordering::Relaxed) > ENTRIES_MAX as u64 {
            return Err(SegmentError::Torn("more objects than the directory holds"));
        }
        let mut free_from = RESERVED_BYTES as u64;
        for index in 0..self.entries() {
            let (start, len, item) = (
                self.entry(index, 3),
                self.entry(index, 4),
                self.entry(index, 5),
            );
            let end = len
                .checked_mul(item)
                .and_then(|bytes| bytes.checked_add(start));
            let ordered = start >= free_from && start % PAGE_BYTES as u64 == 0 && item > 0;
            match end {
                Some(end) if ordered && end <= self.mapping.len() as u64 => free_from = end,
                _ => return Err(SegmentError::Torn("an object lies outside of its place")),
            }
        }
        Ok(())
    }

    fn find<T: Plain>(&self, name: &str) -> Result<Memory<T>, SegmentError> {
        let wanted = name_words(name)?;
        let index = (0..self.entries())
            .find(|&index| self.entry_name(index) == wanted)
            .ok_or_else(|| SegmentError::NotFound(name.to_owned()))?;
        let (start, len, item_bytes) = (
            self.entry(index, 3),
            self.entry(index, 4),
            self.entry(index, 5),
        );
        let fits = len
            .checked_mul(item_bytes)
            .and_then(|bytes| bytes.checked_add(start))
            .is_some_and(|end| end <= self.mapping.len() as u64);
        if item_bytes != size_of::<T>() as u64 || !fits || start % PAGE_BYTES as u64 != 0 {
            return Err(SegmentError::Shape {
                name: name.to_owned(),
                len,
                item_bytes,
            });
        }
        Ok(Memory::mapped(
            Arc::clone(&self.mapping),
            start as usize,
            len as usize,
        ))
    }

    fn check_writable(&self) -> Result<(), SegmentError> {
        match self.access {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => Err(SegmentError::ReadOnly),
        }
    }

    /// A word of the first five pages.
    fn at(&self, index: usize) -> &AtomicU64 {
        assert!(
            index < RESERVED_BYTES / 8,
            "word outside of header and directory"
        );
        // SAFETY: the mapping is at least as long as header and directory.
        let place = unsafe { self.mapping.start().cast::<AtomicU64>().add(index) };
        // SAFETY: aligned to 8, inside of the mapping that `self` keeps, and changed by atomics only.
        unsafe { place.as_ref() }
    }

    fn header(&self, at: usize) -> &AtomicU64 {
        self.at(at)
    }

    fn entry_word(&self, index: usize, at: usize) -> &AtomicU64 {
        self.at(PAGE_BYTES / 8 + index * ENTRY_WORDS + at)
    }

    fn entry(&self, index: usize, at: usize) -> u64 {
        self.entry_word(index, at).load(Ordering::Relaxed)
    }

    fn entry_name(&self, index: usize) -> [u64; 3] {
        core::array::from_fn(|at| self.entry(index, at))
    }

    fn entries(&self) -> usize {
        // Acquire: pairs with the release store in `reserve`.
        let count = self.header(word::ENTRIES).load(Ordering::Acquire);
        usize::try_from(count)
            .unwrap_or(ENTRIES_MAX)
            .min(ENTRIES_MAX)
    }

    fn lock(&self) -> Result<(), SegmentError> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        match lock_call(file, libc::F_OFD_SETLK) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(SegmentError::Owned {
                owner: self.owner(),
            }),
            Err(source) => Err(system("lock", &self.path)(source)),
        }
    }

    fn lock_is_held(&self) -> bool {
        self.file.as_ref().is_some_and(|file| {
            lock_call(file, libc::F_OFD_GETLK)
                .is_ok_and(|lock| i32::from(lock.l_type) != libc::F_UNLCK)
        })
    }
}

/// An object of a segment that is attached for reading, or is to be read only.
#[derive(Debug)]
pub struct ReadOnly<T: Plain>(Memory<T>);

impl<T: Plain> ReadOnly<T> {
    /// Number of items.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True without items.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The memory, which the caller only loads from.
    pub(crate) fn into_memory(self) -> Memory<T> {
        self.0
    }
}

impl ReadOnly<AtomicU64> {
    /// Reads a word; zero outside.
    pub fn get(&self, index: usize) -> u64 {
        // Acquire: pairs with whatever release store the writer published the word by.
        self.0
            .get(index)
            .map_or(0, |word| word.load(Ordering::Acquire))
    }
}

fn system<'a>(
    doing: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> SegmentError + use<'a> {
    let path = path.to_owned();
    move |source| SegmentError::System {
        doing,
        path,
        source,
    }
}

fn whole_pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_BYTES)
}

/// FNV-1a over words: tells a torn header, no protection against malice.
fn check_sum(words: &[u64]) -> u64 {
    words.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &word| {
        (sum ^ word)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(29)
    })
}

fn name_words(name: &str) -> Result<[u64; 3], SegmentError> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.len() > NAME_BYTES || bytes.contains(&0) {
        return Err(SegmentError::Name(name.to_owned()));
    }
    let mut padded = [0; NAME_BYTES];
    padded[..bytes.len()].copy_from_slice(bytes);
    Ok(core::array::from_fn(|at| {
        let word: [u8; 8] = core::array::from_fn(|byte| padded[at * 8 + byte]);
        u64::from_le_bytes(word)
    }))
}

impl Source for &Segment {
    type Error = SegmentError;

    /// Reserves the object, or looks it up if it is there.
    fn take<T: Plain>(&mut self, name: &str, len: usize) -> Result<Memory<T>, SegmentError> {
        let found = match self.lookup::<T>(name) {
            Err(SegmentError::NotFound(_)) => return self.reserve(name, len),
            found => found?,
        };
        if found.len() != len {
            return Err(SegmentError::Shape {
                name: name.to_owned(),
                len: found.len() as u64,
                item_bytes: size_of::<T>() as u64,
            });
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests;
