//! A worker's place in the store: its free memory, what waits for its grace period, its counters.

use crate::arena::Place;
use crate::children::{CHUNK_CLASS, CHUNKS_NEEDED, Chunks};
use crate::config::Refusal;
use crate::evict::{Context, Runs};
use crate::hash::PrefixHash;
use crate::lookup::Ahead;
use crate::node::{Node, Packet};
use crate::slab::{Magazines, class_bytes};
use crate::stats::Counter;
use crate::store::Shared;
use crate::sync::atomic::Ordering;
use crate::sync::unmodelled::AtomicU64;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ops::Deref;
use tables::quiescent::{Epoch, Participant};
use wire::ndn::NameRef;

/// Places that share a grace period.
#[cfg(not(any(loom, shuttle)))]
const GRACE_BATCH: usize = 16;
#[cfg(any(loom, shuttle))]
const GRACE_BATCH: usize = 1;
/// Places that may wait before the worker stops evicting to free memory: others have not reported.
const LIMBO_MAX: usize = 4096;
/// Evictions that one allocation may cause: when sizes change, a page of another class must become empty.
const EVICTIONS_MAX: usize = 512;
/// Evictions after which the free places of other classes are given back, so that their pages can be empty.
const EVICTIONS_BEFORE_EMPTYING: usize = 8;
/// Components of a name at most.
pub(crate) const COMPONENTS_MAX: usize = 256;

/// A thread's access to the store.
///
/// Views of packets borrow the worker; [`quiescent`](Self::quiescent) and all that changes the store need it
/// alone, so that no view outlives the moment when its memory may be reused. A worker that holds views for
/// long keeps evicted memory from being reused: report once a burst, and go [`offline`](Self::offline)
/// before sleeping.
#[derive(Debug)]
pub struct Worker {
    pub(crate) shared: Arc<Shared>,
    participant: Participant,
    number: usize,
    pub(crate) local: RefCell<Local>,
    pub(crate) ahead: Ahead,
    #[cfg(all(feature = "std", not(any(loom, shuttle))))]
    pub(crate) reads: Option<Box<crate::disk::Reads>>,
}

/// What a worker owns.
#[derive(Debug)]
pub(crate) struct Local {
    magazines: Magazines,
    pub(crate) chunks: Chunks,
    pub(crate) runs: Runs,
    pub(crate) trail: Box<Trail>,
    /// Unlinked, but no grace period begun.
    unlinked: Vec<(Place, u8)>,
    /// Waits for the grace period.
    limbo: VecDeque<(Epoch, Place, u8)>,
    /// The last grace period known to have passed.
    passed: Option<Epoch>,
    /// A packet and the one that follows it by name, which it has yet to be told: its header is on its way.
    /// Both were in the store since the last quiescent state.
    follows: (Node, Node),
    packets: i64,
    bytes: i64,
    /// Takes memory back at once: the variant that the models show to fail.
    #[cfg(any(loom, shuttle))]
    without_grace: bool,
}

/// The prefixes of a name: where each ends, and its hash, by components.
#[derive(Debug)]
pub(crate) struct Trail {
    pub(crate) hashes: [PrefixHash; COMPONENTS_MAX + 1],
    pub(crate) ends: [u16; COMPONENTS_MAX + 1],
    pub(crate) len: usize,
}

impl Trail {
    /// Notes the prefixes of a name of at most [`COMPONENTS_MAX`] components.
    pub(crate) fn fill(&mut self, shared: &Shared, name: NameRef<'_>) {
        self.len = shared.hash.hash_prefixes(name, &mut self.hashes);
        let ends = core::iter::once(0).chain(name.components().map(|component| component.end));
        for (to, end) in self.ends.iter_mut().zip(ends) {
            *to = end as u16;
        }
    }
}

impl Local {
    fn new() -> Self {
        Self {
            magazines: Magazines::new(),
            chunks: Chunks {
                stash: Vec::with_capacity(CHUNKS_NEEDED),
                freed: Vec::with_capacity(CHUNKS_NEEDED),
            },
            runs: Runs::default(),
            trail: Box::new(Trail {
                hashes: [PrefixHash::default(); COMPONENTS_MAX + 1],
                ends: [0; COMPONENTS_MAX + 1],
                len: 0,
            }),
            unlinked: Vec::with_capacity(2 * GRACE_BATCH),
            limbo: VecDeque::with_capacity(2 * LIMBO_MAX),
            passed: None,
            follows: (Node::NONE, Node::NONE),
            packets: 0,
            bytes: 0,
            #[cfg(any(loom, shuttle))]
            without_grace: false,
        }
    }

    /// Begins a grace period for what was unlinked.
    fn begin_grace(&mut self, shared: &Shared) {
        if self.unlinked.is_empty() {
            return;
        }
        let epoch = shared.domain.begin();
        for (place, class) in self.unlinked.drain(..) {
            self.limbo.push_back((epoch, place, class));
        }
    }

    /// Takes back what nobody can hold any more.
    fn reclaim(&mut self, shared: &Shared) {
        while let Some(&(epoch, place, class)) = self.limbo.front() {
            if self.passed.is_none_or(|passed| epoch > passed) {
                if !shared.domain.has_passed(epoch) {
                    return;
                }
                self.passed = Some(epoch);
            }
            self.limbo.pop_front();
            self.magazines
                .give(&shared.slab, &shared.arena, usize::from(class), place);
        }
    }

    pub(crate) fn count(&mut self, shared: &Shared, packets: i64, bytes: i64) {
        self.packets += packets;
        self.bytes += bytes;
        if self.packets.abs() >= shared.slack || self.bytes.abs() >= shared.slack * 8192 {
            self.add_counts(shared);
        }
    }

    fn add_counts(&mut self, shared: &Shared) {
        shared
            .packets
            .fetch_add(self.packets as u64, Ordering::Relaxed);
        shared.bytes.fetch_add(self.bytes as u64, Ordering::Relaxed);
        (self.packets, self.bytes) = (0, 0);
    }

    /// Takes a place of a class, if one is free.
    pub(crate) fn take(&mut self, shared: &Shared, class: usize) -> Option<Place> {
        let place = self.magazines.take(&shared.slab, &shared.arena, class)?;
        self.count(shared, 0, class_bytes(class) as i64);
        Some(place)
    }

    /// Asks for the memory that the next packet of a class will be copied to, so that it is there by then.
    #[inline]
    pub(crate) fn prefetch_next(&self, shared: &Shared, class: usize) {
        if let Some(place) = self.magazines.next(class) {
            for byte in (0..class_bytes(class)).step_by(64) {
                shared.arena.prefetch(place, byte);
            }
        }
    }

    /// Gives back a place that nobody else ever knew.
    pub(crate) fn give(&mut self, shared: &Shared, class: usize, place: Place) {
        self.magazines
            .give(&shared.slab, &shared.arena, class, place);
        self.count(shared, 0, -(class_bytes(class) as i64));
    }

    /// Keeps a place that others may still read until they cannot.
    pub(crate) fn retire(&mut self, shared: &Shared, class: usize, place: Place) {
        #[cfg(any(loom, shuttle))]
        if self.without_grace {
            self.give(shared, class, place);
            return;
        }
        self.unlinked.push((place, class as u8));
        self.count(shared, 0, -(class_bytes(class) as i64));
        if self.unlinked.len() >= GRACE_BATCH {
            self.begin_grace(shared);
        }
    }
}

/// What reading needs: the shared structures, and the worker's number for its counters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) shared: &'a Shared,
    number: usize,
}

/// What changing the store needs beside. Whoever has it holds no view of a packet.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    pub(crate) reader: Reader<'a>,
    pub(crate) local: &'a mut Local,
    participant: &'a Participant,
}

impl<'a> Deref for Writer<'a> {
    type Target = Reader<'a>;
    fn deref(&self) -> &Reader<'a> {
        &self.reader
    }
}

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) fn add(&self, counter: Counter, change: i64) {
        self.shared.counters.add(self.number, counter, change);
    }

    /// The packet of a node.
    #[inline(always)]
    pub(crate) fn packet(&self, node: Node) -> Packet<'a> {
        Packet::new(&self.shared.arena, node)
    }
}

impl Worker {
    /// Takes memory back at once from now on, which the models show to fail.
    #[cfg(any(loom, shuttle))]
    pub fn drop_grace_periods(&mut self) {
        self.local.get_mut().without_grace = true;
    }

    #[inline]
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader {
            shared: &self.shared,
            number: self.number,
        }
    }

    #[inline]
    pub(crate) fn writer(&mut self) -> Writer<'_> {
        Writer {
            reader: Reader {
                shared: &self.shared,
                number: self.number,
            },
            local: self.local.get_mut(),
            participant: &self.participant,
        }
    }

    pub(crate) fn join(shared: Arc<Shared>) -> Option<Self> {
        let participant = shared.domain.join()?;
        let local = shared.left.with(Vec::pop).unwrap_or_else(Local::new);
        Some(Self {
            number: participant.index() - 1,
            shared,
            participant,
            local: RefCell::new(local),
            ahead: Ahead::new(),
            #[cfg(all(feature = "std", not(any(loom, shuttle))))]
            reads: None,
        })
    }

    /// Reports that this worker holds no view of a packet: once a burst. Costs two loads and a store.
    #[inline]
    pub fn quiescent(&mut self) {
        self.writer().tell_follows((Node::NONE, Node::NONE));
        self.participant.quiescent();
    }

    /// Reports that this worker will not touch the store until [`online`](Self::online): before it sleeps.
    pub fn offline(&mut self) {
        self.writer().tell_follows((Node::NONE, Node::NONE));
        self.participant.offline();
    }

    /// Comes back after [`offline`](Self::offline).
    pub fn online(&mut self) {
        self.participant.online();
    }

    /// Evicts until the store is within its capacity, `limit` packets at most; returns how many left.
    pub fn trim(&mut self, limit: usize, now: wire::Instant) -> usize {
        let mut writer = self.writer();
        let mut count = 0;
        while count < limit && writer.is_over(0, 0) && writer.evict(now.as_ns()).is_ok() {
            count += 1;
            writer.settle();
        }
        count
    }
}

impl Writer<'_> {
    /// Reports a quiescent state and takes back memory.
    #[inline]
    pub(crate) fn settle(&mut self) {
        self.tell_follows((Node::NONE, Node::NONE));
        self.participant.quiescent();
        self.local.reclaim(self.reader.shared);
    }

    /// Tells the packet of the last insertion's neighbourhood what follows it, and keeps this pair for the next
    /// time, when the header of its first will have arrived.
    #[inline]
    pub(crate) fn tell_follows(&mut self, next: (Node, Node)) {
        let arena = &self.reader.shared.arena;
        if !next.0.is_none() {
            arena.prefetch(next.0.place(), 0);
        }
        let (packet, successor) = core::mem::replace(&mut self.local.follows, next);
        if !packet.is_none() {
            Packet::new(arena, packet).offer_successor(successor);
        }
    }

    /// As [`settle`](Self::settle), for all that was unlinked so far.
    pub(crate) fn settle_all(&mut self) {
        self.local.begin_grace(self.reader.shared);
        self.settle();
    }

    /// Packets and bytes that the store holds, as far as this worker knows.
    pub(crate) fn held(&mut self) -> (i64, i64) {
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed) as i64;
        (
            word(&self.shared.packets) + self.local.packets,
            word(&self.shared.bytes) + self.local.bytes,
        )
    }

    /// Takes a place of a class, evicting packets until there is one.
    pub(crate) fn allocate(&mut self, class: usize, now_ns: u64) -> Result<Place, Refusal> {
        for evictions in 0..EVICTIONS_MAX {
            if let Some(place) = self.local.take(self.reader.shared, class) {
                return Ok(place);
            }
            self.settle_all();
            if evictions > EVICTIONS_BEFORE_EMPTYING {
                let shared = self.reader.shared;
                self.local.magazines.empty(&shared.slab, &shared.arena);
            }
            if let Some(place) = self.local.take(self.reader.shared, class) {
                return Ok(place);
            }
            if self.local.limbo.len() >= LIMBO_MAX {
                break;
            }
            self.evict(now_ns)?;
        }
        Err(Refusal::NoMemory)
    }

    /// Stashes the chunks that an insertion may need.
    pub(crate) fn stash_chunks(&mut self, now_ns: u64) -> Result<(), Refusal> {
        while self.local.chunks.stash.len() < CHUNKS_NEEDED {
            let place = self.allocate(CHUNK_CLASS, now_ns)?;
            self.local.chunks.stash.push(place);
        }
        Ok(())
    }

    /// Retires the chunks that a removal freed.
    pub(crate) fn retire_chunks(&mut self) {
        let local = &mut *self.local;
        while let Some(place) = local.chunks.freed.pop() {
            local.retire(self.reader.shared, CHUNK_CLASS, place);
            self.reader.add(Counter::Chunks, -1);
        }
    }

    /// Evicts one packet.
    pub(crate) fn evict(&mut self, now_ns: u64) -> Result<(), Refusal> {
        let shared = self.reader.shared;
        for _ in 0..EVICTIONS_MAX {
            let mut context = Context {
                arena: &shared.arena,
                runs: &mut self.local.runs,
                now_ns,
            };
            let victim = shared
                .queues
                .victim(&mut context)
                .ok_or(Refusal::NoVictim)?;
            if self.take_out(victim.node) {
                self.spill(victim);
                self.finish_locked(victim);
                self.add(Counter::Evicted, 1);
                return Ok(());
            }
            // Somebody else removes it, and waits for the lock.
            victim.unlock(0, 0);
        }
        Err(Refusal::NoVictim)
    }

    /// True when the store would be over its capacity with so much more.
    pub(crate) fn is_over(&mut self, packets: i64, bytes: i64) -> bool {
        let (held_packets, held_bytes) = self.held();
        let capacity =
            |word: &AtomicU64| i64::try_from(word.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
        held_packets + packets > capacity(&self.shared.capacity_packets)
            || held_bytes + bytes > capacity(&self.shared.capacity_bytes)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.writer().settle_all();
        let mut local = self.local.replace(Local::new());
        local.add_counts(&self.shared);
        for place in local.chunks.stash.drain(..) {
            local
                .magazines
                .give(&self.shared.slab, &self.shared.arena, CHUNK_CLASS, place);
            self.shared
                .bytes
                .fetch_sub(class_bytes(CHUNK_CLASS) as u64, Ordering::Relaxed);
        }
        local.magazines.empty(&self.shared.slab, &self.shared.arena);
        if !local.limbo.is_empty() {
            // The next worker that joins waits for it.
            self.shared.left.with(|left| left.push(local));
        }
    }
}
