//! The disk tier (CS-11): what memory evicts goes to a log in a file, whose index is in memory.
//!
//! Workers copy evicted packets into a block; a thread writes full blocks. Other threads read; a worker asks for a
//! packet and takes the answer later, so that it never waits for a disk. What was written is found again after a
//! crash; each record has a checksum, so that a packet is whole or not there.

mod erased;
mod index;
mod log;
mod threads;

use crate::hash::NameHash;
use erased::{Erased, Position};
use index::{Index, Place};
use log::{
    GRAIN_BYTES, Geometry, Kind, RECORD_BYTES_MAX, Record, SEGMENT_HEADER_BYTES, record_bytes,
};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::JoinHandle;
use wire::ndn::{NameRef, PACKET_BYTES_MAX};

/// Bytes that go to the file at once.
const BLOCK_BYTES: usize = 256 << 10;
/// Blocks that may wait for the log's thread.
const BLOCKS: usize = 16;
/// Segments at least: one is written, the others are kept.
const SEGMENTS_MIN: u64 = 4;
/// Bytes of a segment in large files.
const SEGMENT_BYTES: u64 = 8 << 20;
/// Reads that a worker may have under way.
pub(crate) const READS_MAX: usize = 64;

/// How a disk tier is made.
#[derive(Clone, Debug)]
pub struct DiskConfig {
    /// The file; made if it is not there. One process uses it at a time.
    pub path: PathBuf,
    /// Bytes of the file: the oldest eighth of a percent to a quarter is overwritten at once.
    pub bytes: u64,
    /// Packets that the index has room for, at 23 bytes of memory each.
    pub packets: usize,
    /// Threads that read.
    pub readers: usize,
    /// The Unix time of [`Instant`](wire::Instant) 0 in nanoseconds, so that freshness outlives the process.
    pub epoch_unix_ns: u64,
}

impl DiskConfig {
    /// Makes the configuration of a file of so many bytes of packets of about 1 KiB and more, with one reader.
    pub fn new(path: PathBuf, bytes: u64, epoch_unix_ns: u64) -> Self {
        Self {
            path,
            bytes,
            packets: usize::try_from(bytes / 1024).unwrap_or(usize::MAX),
            readers: 1,
            epoch_unix_ns,
        }
    }
}

/// Why there is no disk tier.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// Too few bytes, or more than places can name.
    #[error("a disk tier of {0} bytes; give 1 MiB to 8 TiB")]
    Bytes(u64),
    /// No packet, or too many.
    #[error("a disk tier for {0} packets; give 1 to 4294967296")]
    Packets(usize),
    /// No reader, or too many.
    #[error("a disk tier with {0} reading threads; give 1 to 64")]
    Readers(usize),
    /// The file cannot be used.
    #[error("cannot use the disk tier's file {}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process has it.
    #[error("the disk tier's file {} is in use by another process; give each node its own", .0.display())]
    InUse(PathBuf),
    /// The device is too small.
    #[error("the disk tier's device {} has {has} bytes, {wanted} are asked for", path.display())]
    Small {
        /// Which device.
        path: PathBuf,
        /// Its bytes.
        has: u64,
        /// The bytes of the configuration.
        wanted: u64,
    },
    /// Something else is there, which would be overwritten.
    #[error("{} holds something that is no disk tier, which is not overwritten", .0.display())]
    Foreign(PathBuf),
    /// The store has one already.
    #[error("the content store has a disk tier already")]
    Attached,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident;)+) => {
        /// What a disk tier has done since it was opened, and what it takes.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct DiskStats {
            $($(#[$doc])* pub $field: u64,)+
            /// Bytes of the index in memory.
            pub index_bytes: u64,
            /// Bytes of the file when it is full.
            pub file_bytes: u64,
        }

        #[derive(Debug, Default)]
        struct Counters { $($field: AtomicU64,)+ }

        impl Counters {
            fn load(&self) -> DiskStats {
                DiskStats {
                    $($field: self.$field.load(Ordering::Relaxed),)+
                    index_bytes: 0,
                    file_bytes: 0,
                }
            }
        }
    };
}

counters! {
    /// Packets found in the file when it was opened.
    recovered;
    /// Segments whose end was torn, or whose records were damaged: what followed was cut.
    cut;
    /// Packets written.
    written;
    /// Packets not written, as the log's thread was behind.
    dropped;
    /// Packets given up as the index had no slot.
    crowded_out;
    /// Reads that found the packet.
    found;
    /// Reads that did not: overwritten meanwhile, or damaged.
    lost;
    /// Operations on the file that failed.
    failed;
}

/// The block that is filled now.
#[derive(Debug)]
struct Open {
    bytes: Vec<u8>,
    /// Blocks that the log's thread was given.
    given: u64,
}

/// What all threads share.
#[derive(Debug)]
pub(crate) struct Shared {
    file: File,
    geometry: Geometry,
    /// The sequence number of each segment now; 0 is none.
    sequences: Vec<AtomicU64>,
    index: Index,
    hash: NameHash,
    counters: Counters,
    erased: Erased,
    open: Mutex<Open>,
    free: Mutex<Vec<Vec<u8>>>,
    epoch_unix_ns: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the log's thread does.
enum Job {
    Write(Vec<u8>),
    /// Notes what was erased.
    Note,
    /// Tells when all that came before is on the disk.
    Sync(Sender<io::Result<()>>),
}

/// A packet to read.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) name: Vec<u8>,
    buffer: Vec<u8>,
    /// What was found, in the buffer.
    record: Option<Record>,
    /// Where it lay.
    at: Position,
    done: Option<Sender<Read>>,
    /// Told when the read has ended.
    waker: Option<Waker>,
}

impl Read {
    /// The packet that was found, and where its name lies in it.
    pub(crate) fn packet(&self) -> Option<(&[u8], &[u8])> {
        let record = self.record.as_ref()?;
        Some((
            self.buffer.get(record.packet.clone())?,
            self.buffer.get(record.name.clone())?,
        ))
    }
    pub(crate) fn fresh_until_unix_ns(&self) -> u64 {
        self.record
            .as_ref()
            .map_or(0, |record| record.fresh_until_unix_ns)
    }
}

/// An open disk tier. Closes when dropped: what was evicted before is written, not synchronised.
#[derive(Debug)]
pub(crate) struct DiskTier {
    shared: Arc<Shared>,
    /// Taken when it closes.
    to_log: Option<SyncSender<Job>>,
    to_readers: Option<SyncSender<Read>>,
    threads: Vec<JoinHandle<()>>,
}

impl DiskTier {
    /// Opens the file, finds what it holds, and starts the threads.
    pub(crate) fn open(config: &DiskConfig, hash: NameHash) -> Result<Self, DiskError> {
        if !(1 << 20..=8 << 40).contains(&config.bytes) {
            return Err(DiskError::Bytes(config.bytes));
        }
        if config.packets == 0 || config.packets as u64 > 1 << 32 {
            return Err(DiskError::Packets(config.packets));
        }
        if config.readers == 0 || config.readers > 64 {
            return Err(DiskError::Readers(config.readers));
        }
        let failed = |source| DiskError::File {
            path: config.path.clone(),
            source,
        };
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.open(&config.path).map_err(failed)?;
        file.try_lock().map_err(|error| match error {
            std::fs::TryLockError::WouldBlock => DiskError::InUse(config.path.clone()),
            std::fs::TryLockError::Error(source) => failed(source),
        })?;
        let kind = file.metadata().map_err(failed)?.file_type();
        if kind.is_block_device() {
            let has = (&file).seek(SeekFrom::End(0)).map_err(failed)?;
            if has < config.bytes {
                return Err(DiskError::Small {
                    path: config.path.clone(),
                    has,
                    wanted: config.bytes,
                });
            }
        }
        let largest = config.bytes / SEGMENTS_MIN / 4096 * 4096;
        let segment_bytes = SEGMENT_BYTES.min(largest);
        let geometry = Geometry {
            segment_bytes,
            segments: config.bytes / segment_bytes,
        };
        if is_foreign(&file, geometry).map_err(failed)? {
            return Err(DiskError::Foreign(config.path.clone()));
        }
        // Blocks are not larger than what a segment has room for.
        let block_bytes = BLOCK_BYTES.min(segment_bytes as usize - SEGMENT_HEADER_BYTES);
        let shared = Arc::new(Shared {
            file,
            geometry,
            sequences: (0..geometry.segments).map(|_| AtomicU64::new(0)).collect(),
            index: Index::new(config.packets),
            hash,
            counters: Counters::default(),
            erased: Erased::default(),
            open: Mutex::new(Open {
                bytes: Vec::with_capacity(block_bytes),
                given: 0,
            }),
            free: Mutex::new(
                (1..BLOCKS)
                    .map(|_| Vec::with_capacity(block_bytes))
                    .collect(),
            ),
            epoch_unix_ns: config.epoch_unix_ns,
        });
        let newest = shared.recover().map_err(failed)?;
        let (to_log, jobs) = sync_channel(BLOCKS + 16);
        let (to_readers, reads) = sync_channel(READS_MAX * 16);
        let threads = threads::start(&shared, newest, jobs, reads, config.readers);
        Ok(Self {
            shared,
            to_log: Some(to_log),
            to_readers: Some(to_readers),
            threads: threads.map_err(failed)?,
        })
    }

    pub(crate) fn epoch_unix_ns(&self) -> u64 {
        self.shared.epoch_unix_ns
    }

    pub(crate) fn stats(&self) -> DiskStats {
        DiskStats {
            index_bytes: self.shared.index.bytes() as u64,
            file_bytes: self.shared.geometry.segments * self.shared.geometry.segment_bytes,
            ..self.shared.counters.load()
        }
    }

    /// Copies a packet into the block that is filled now; never waits for the disk. A packet that finds no room is
    /// not on disk afterwards, nor is an older one of its name.
    pub(crate) fn append(
        &self,
        packet: &[u8],
        name_at: usize,
        name: &[u8],
        fresh_until_unix_ns: u64,
    ) {
        let mut open = lock(&self.shared.open);
        if self.make_room(&mut open, packet.len()) {
            let out = &mut open.bytes;
            Record::write(out, packet, name_at, name.len(), fresh_until_unix_ns);
            return;
        }
        drop(open);
        self.shared.counters.dropped.fetch_add(1, Ordering::Relaxed);
        self.shared.index.remove(self.shared.hash.hash(name));
    }

    /// True if the next packet finds room, whatever its size.
    pub(crate) fn has_room(&self) -> bool {
        self.make_room(&mut lock(&self.shared.open), PACKET_BYTES_MAX)
    }

    /// Makes room for a record in the block that is filled now; false if the disk is behind.
    fn make_room(&self, open: &mut Open, bytes: usize) -> bool {
        open.bytes.len() + record_bytes(bytes) <= open.bytes.capacity() || self.hand_over(open)
    }

    /// Gives the block to the log's thread and takes an empty one; false if there is none.
    fn hand_over(&self, open: &mut Open) -> bool {
        let Some(empty) = lock(&self.shared.free).pop() else {
            return false;
        };
        let full = core::mem::replace(&mut open.bytes, empty);
        match self
            .to_log
            .as_ref()
            .map(|log| log.try_send(Job::Write(full)))
        {
            Some(Ok(())) => {
                open.given += 1;
                true
            }
            Some(Err(
                TrySendError::Full(Job::Write(full)) | TrySendError::Disconnected(Job::Write(full)),
            )) => {
                let empty = core::mem::replace(&mut open.bytes, full);
                lock(&self.shared.free).push(empty);
                false
            }
            _ => false,
        }
    }

    /// Erases the packet of a name, also in the log: in this run and the next.
    pub(crate) fn erase_name(&self, name: &[u8]) {
        self.shared.index.remove(self.shared.hash.hash(name));
        let mut open = lock(&self.shared.open);
        if self.make_room(&mut open, name.len()) {
            Record::write_erased(&mut open.bytes, Kind::ErasedName, name);
        } else {
            self.shared.erased.add(name, open.given + 1);
        }
    }

    /// Erases all packets below a prefix. Never waits for the disk.
    pub(crate) fn erase_prefix(&self, prefix: &[u8]) {
        let mut open = lock(&self.shared.open);
        let unwritten = u64::from(!open.bytes.is_empty());
        // Within the lock: what is appended later is written later.
        self.shared.erased.add(prefix, open.given + unwritten);
        if unwritten > 0 {
            self.hand_over(&mut open);
        }
        drop(open);
        if let Some(log) = &self.to_log {
            // If there is no room for it, a block that waits does as well.
            let _ = log.try_send(Job::Note);
        }
    }

    /// True if what was read has been erased since.
    pub(crate) fn is_erased(&self, name: NameRef<'_>, read: &Read) -> bool {
        self.shared.erased.covers(name, read.at)
    }

    /// Waits until all that was evicted before is on the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        let log = self.to_log.as_ref().ok_or_else(closed)?;
        let (done, wait) = channel();
        {
            let mut open = lock(&self.shared.open);
            // A block more than there are otherwise; the thread gives back one after the other.
            let empty = Vec::with_capacity(open.bytes.capacity());
            let full = core::mem::replace(&mut open.bytes, empty);
            // Within the lock, so that no later block is before this one.
            log.send(Job::Write(full)).map_err(|_| closed())?;
            open.given += 1;
        }
        log.send(Job::Sync(done)).map_err(|_| closed())?;
        wait.recv().map_err(|_| closed())?
    }

    /// Starts to read the packet of a name into `read`, which comes back through its channel; gives it back if the name
    /// is not on disk or too many reads wait.
    pub(crate) fn read(
        &self,
        name: &[u8],
        mut read: Read,
        done: &Sender<Read>,
        waker: Option<&Waker>,
    ) -> Option<Read> {
        if self.shared.place(self.shared.hash.hash(name)).is_none() {
            return Some(read);
        }
        read.name.clear();
        read.name.extend_from_slice(name);
        read.done = Some(done.clone());
        read.waker = waker.cloned();
        let Some(readers) = &self.to_readers else {
            return Some(read);
        };
        match readers.try_send(read) {
            Ok(()) => None,
            Err(TrySendError::Full(read) | TrySendError::Disconnected(read)) => Some(read),
        }
    }

    /// A buffer for a read.
    pub(crate) fn new_read() -> Read {
        Read {
            name: Vec::with_capacity(256),
            buffer: vec![0; RECORD_BYTES_MAX],
            record: None,
            at: (0, 0),
            done: None,
            waker: None,
        }
    }
}

impl Drop for DiskTier {
    fn drop(&mut self) {
        let last = core::mem::take(&mut lock(&self.shared.open).bytes);
        if let Some(log) = self.to_log.take() {
            // The thread ends after it.
            let _ = log.send(Job::Write(last));
        }
        self.to_readers = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Where a name is, if its segment was not overwritten since.
    fn place(&self, hash: crate::hash::PrefixHash) -> Option<Place> {
        self.index
            .find(hash)
            .filter(|place| self.is_current(*place))
    }

    fn is_current(&self, place: Place) -> bool {
        let segment = place.grain() * GRAIN_BYTES / self.geometry.segment_bytes;
        let sequence = self.sequences.get(segment as usize);
        sequence.is_some_and(|sequence| {
            let sequence = sequence.load(Ordering::Acquire);
            sequence != 0 && place.is_of(sequence)
        })
    }

    /// Puts a record into the index that is the disk's, now that so many blocks are; or takes out of it what the record
    /// erases.
    fn take_in(&self, kind: Kind, name: &[u8], (offset, sequence): (u64, u64), blocks: u64) {
        match kind {
            Kind::Packet => self.note(name, offset, sequence),
            Kind::ErasedName => self.index.remove(self.hash.hash(name)),
            Kind::ErasedPrefix => {
                let at = (sequence, offset % self.geometry.segment_bytes);
                self.erased.noted(name, at, blocks);
            }
        }
    }

    fn note(&self, name: &[u8], offset: u64, sequence: u64) {
        let place = Place::new(offset / GRAIN_BYTES, sequence);
        let is_kept = self
            .index
            .insert(self.hash.hash(name), place, |place| self.is_current(place));
        if !is_kept {
            self.counters.crowded_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Reads all segments, oldest first, into the index; returns the newest and its sequence number.
    fn recover(&self) -> io::Result<(u64, u64)> {
        let mut segments = Vec::new();
        let mut header = [0; SEGMENT_HEADER_BYTES];
        for segment in 0..self.geometry.segments {
            let read = self
                .file
                .read_exact_at(&mut header, segment * self.geometry.segment_bytes);
            match read {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(error),
            }
            if let Some(sequence) = self.geometry.sequence(&header) {
                segments.push((sequence, segment));
            }
        }
        segments.sort_unstable();
        let mut bytes = vec![0; self.geometry.segment_bytes as usize];
        for (sequence, segment) in &segments {
            if let Some(word) = self.sequences.get(*segment as usize) {
                word.store(*sequence, Ordering::Release);
            }
            let start = segment * self.geometry.segment_bytes;
            let len = read_up_to(&self.file, &mut bytes, start)?;
            self.recover_segment(bytes.get(..len).unwrap_or_default(), start, *sequence);
        }
        let (sequence, segment) = segments.pop().unwrap_or((0, self.geometry.segments - 1));
        Ok((segment, sequence))
    }

    fn recover_segment(&self, bytes: &[u8], start: u64, sequence: u64) {
        let mut at = SEGMENT_HEADER_BYTES;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let Some(record) = Record::read(rest, sequence) else {
                // The end, or what an earlier lap left; else a record that was torn or damaged.
                if log::claims_to_be_of(rest, sequence) {
                    self.counters.cut.fetch_add(1, Ordering::Relaxed);
                }
                return;
            };
            let name = rest.get(record.name.clone()).unwrap_or_default();
            let place = (start + at as u64, sequence);
            self.take_in(record.kind, name, place, u64::MAX);
            let is_packet = u64::from(record.kind == Kind::Packet);
            self.counters
                .recovered
                .fetch_add(is_packet, Ordering::Relaxed);
            at += record.bytes;
        }
    }
}

/// True if the file holds something, and no log: neither of its first two segments begins as one does.
fn is_foreign(file: &File, geometry: Geometry) -> io::Result<bool> {
    let mut start = [0; 4096];
    let len = read_up_to(file, &mut start, 0)?;
    let start = start.get(..len).unwrap_or_default();
    if log::is_segment(start) || start.iter().all(|byte| *byte == 0) {
        return Ok(false);
    }
    // The first may be damaged.
    let mut second = [0; SEGMENT_HEADER_BYTES];
    read_up_to(file, &mut second, geometry.segment_bytes)?;
    Ok(!log::is_segment(&second))
}

/// Fills `bytes` from an offset as far as the file goes; returns how many.
fn read_up_to(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut len = 0;
    while let Some(rest) = bytes.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + len as u64) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// A worker's reads.
#[derive(Debug)]
pub(crate) struct Reads {
    done: Sender<Read>,
    finished: Receiver<Read>,
    free: Vec<Read>,
    /// Hashes of the names under way: one read each.
    pub(crate) pending: Vec<u64>,
    pub(crate) waker: Option<Waker>,
}

impl Reads {
    pub(crate) fn new() -> Self {
        let (done, finished) = channel();
        Self {
            done,
            finished,
            free: (0..READS_MAX).map(|_| DiskTier::new_read()).collect(),
            pending: Vec::with_capacity(READS_MAX),
            waker: None,
        }
    }

    /// Starts a read; true if it is under way.
    pub(crate) fn start(&mut self, tier: &DiskTier, name: &[u8], number: u64) -> bool {
        if self.pending.contains(&number) {
            return true;
        }
        let Some(read) = self.free.pop() else {
            return false;
        };
        match tier.read(name, read, &self.done, self.waker.as_ref()) {
            None => {
                self.pending.push(number);
                true
            }
            Some(read) => {
                self.free.push(read);
                false
            }
        }
    }

    /// The next read that has finished, to be given back.
    pub(crate) fn finished(&mut self) -> Option<Read> {
        self.finished.try_recv().ok()
    }

    pub(crate) fn give_back(&mut self, read: Read, number: u64) {
        self.pending.retain(|pending| *pending != number);
        self.free.push(read);
    }
}
