//! The threads of a disk tier: one writes the log, others read packets.

use super::log::{GRAIN_BYTES, Kind, RECORD_BYTES_MAX, Record, SEGMENT_HEADER_BYTES, record_bytes};
use super::{Job, Read, Shared, lock, read_up_to};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use wire::ndn::NameRef;

/// Starts them; they end when the other ends of their channels go.
pub(super) fn start(
    shared: &Arc<Shared>,
    (segment, sequence): (u64, u64),
    jobs: Receiver<Job>,
    reads: Receiver<Read>,
    readers: usize,
) -> io::Result<Vec<JoinHandle<()>>> {
    let mut log = Log {
        shared: shared.clone(),
        segment,
        sequence,
        // Never on: what lies behind a torn record would be taken for later than what replaces it.
        at: shared.geometry.segment_bytes,
        blocks: 0,
    };
    let writer = thread::Builder::new().name("cs-disk-log".into());
    let mut threads = vec![writer.spawn(move || {
        while let Ok(job) = jobs.recv() {
            log.run(job);
        }
    })?];
    let reads = Arc::new(Mutex::new(reads));
    for number in 0..readers {
        let (shared, reads) = (shared.clone(), reads.clone());
        let reader = thread::Builder::new().name(format!("cs-disk-read{number}"));
        threads.push(reader.spawn(move || {
            loop {
                // The one that waits holds the lock; the others wait for it.
                let next = lock(&reads).recv();
                match next {
                    Ok(read) => shared.serve(read),
                    Err(_) => return,
                }
            }
        })?);
    }
    Ok(threads)
}

/// The end of the log.
struct Log {
    shared: Arc<Shared>,
    segment: u64,
    sequence: u64,
    /// Where the next block goes, in the segment.
    at: u64,
    /// Blocks that came.
    blocks: u64,
}

impl Log {
    fn run(&mut self, job: Job) {
        match job {
            Job::Write(mut block) => {
                if !block.is_empty() && self.write(&mut block).is_err() {
                    self.shared.counters.failed.fetch_add(1, Ordering::Relaxed);
                }
                block.clear();
                {
                    let mut free = lock(&self.shared.free);
                    if free.len() < free.capacity() {
                        free.push(block);
                    }
                }
                self.blocks += 1;
                self.note_erased();
            }
            Job::Note => self.note_erased(),
            Job::Sync(done) => {
                // Who asked may have gone.
                let _ = done.send(self.shared.file.sync_data());
            }
        }
    }

    /// Notes which prefixes were erased. What cannot be noted holds for all that the log has until it can.
    fn note_erased(&mut self) {
        for prefix in self.shared.erased.due(self.blocks) {
            let mut block = Vec::with_capacity(record_bytes(prefix.len()));
            Record::write_erased(&mut block, Kind::ErasedPrefix, &prefix);
            if self.write(&mut block).is_err() {
                self.shared.counters.failed.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Writes a block of records and puts them into the index.
    fn write(&mut self, block: &mut [u8]) -> io::Result<()> {
        let geometry = self.shared.geometry;
        if self.at + block.len() as u64 > geometry.segment_bytes {
            self.next_segment()?;
        }
        let mut records = 0;
        let mut at = 0;
        while let Some(rest) = block.get_mut(at..).filter(|rest| !rest.is_empty()) {
            let Some(record) = Record::seal(rest, self.sequence) else {
                break;
            };
            at += record.bytes;
        }
        let offset = self.segment * geometry.segment_bytes + self.at;
        let end = self.at + block.len() as u64;
        // After a failed write the segment is left.
        self.at = geometry.segment_bytes;
        self.shared.file.write_all_at(block, offset)?;
        self.at = end;
        let mut at = 0;
        while let Some(rest) = block.get(at..).filter(|rest| !rest.is_empty()) {
            let Some(record) = Record::lengths(rest) else {
                break;
            };
            let name = rest.get(record.name.clone()).unwrap_or_default();
            let place = (offset + at as u64, self.sequence);
            self.shared.take_in(record.kind, name, place, self.blocks);
            records += u64::from(record.kind == Kind::Packet);
            at += record.bytes;
        }
        self.shared
            .counters
            .written
            .fetch_add(records, Ordering::Relaxed);
        Ok(())
    }

    /// Goes on to the next segment, whose records are forgotten first.
    fn next_segment(&mut self) -> io::Result<()> {
        let geometry = self.shared.geometry;
        self.segment = (self.segment + 1) % geometry.segments;
        self.sequence += 1;
        // Release: pairs with the acquire in `is_current`: who reads an overwritten record meets another number.
        if let Some(word) = self.shared.sequences.get(self.segment as usize) {
            word.store(self.sequence, Ordering::Release);
        }
        self.shared
            .erased
            .forget_before((self.sequence + 1).saturating_sub(geometry.segments));
        self.at = geometry.segment_bytes;
        let start = self.segment * geometry.segment_bytes;
        self.shared
            .file
            .write_all_at(&geometry.header(self.sequence), start)?;
        self.at = SEGMENT_HEADER_BYTES as u64;
        Ok(())
    }
}

impl Shared {
    /// Reads the packet that is asked for, and sends the answer.
    fn serve(&self, mut read: Read) {
        read.record = self.read_packet(&mut read);
        let counter = match read.record {
            Some(_) => &self.counters.found,
            None => &self.counters.lost,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if let Some(done) = read.done.take() {
            let waker = read.waker.take();
            // The worker may have gone.
            let _ = done.send(read);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn read_packet(&self, read: &mut Read) -> Option<Record> {
        let hash = self.hash.hash(&read.name);
        let place = self.place(hash)?;
        let offset = place.grain() * GRAIN_BYTES;
        let segment = offset / self.geometry.segment_bytes;
        let end = (segment + 1) * self.geometry.segment_bytes;
        let sequence = self
            .sequences
            .get(segment as usize)?
            .load(Ordering::Acquire);
        let most = (end - offset).min(RECORD_BYTES_MAX as u64) as usize;
        let len = match read_up_to(&self.file, read.buffer.get_mut(..most)?, offset) {
            Ok(len) => len,
            Err(_) => {
                self.counters.failed.fetch_add(1, Ordering::Relaxed);
                return None;
            }
        };
        let record = Record::read(read.buffer.get(..len)?, sequence)?;
        let is_it = record.kind == Kind::Packet
            && read.buffer.get(record.name.clone()) == Some(&read.name[..]);
        read.at = (sequence, offset % self.geometry.segment_bytes);
        let name = NameRef::new(&read.name).unwrap_or_default();
        if is_it && self.erased.covers(name, read.at) {
            self.index.remove(hash);
            return None;
        }
        is_it.then_some(record)
    }
}
