//! The boundary between applications and workers: one memory an attachment, with one lane a worker.
//!
//! ```text
//! application threads                     lane (shared memory)                      worker
//! write, send_to  --bytes-->  [ transmit ring of the slot ]  --bytes-->  send buffer of the stack
//! read, recv_from <--bytes--  [ receive ring of the slot  ]  <--bytes--  receive buffer of the stack
//! accept          <--slots--  [ receive ring of a listener]  <--slots--  connections to accept
//! connect, set .. --command-> [ mailbox of the slot       ]  --answer->
//!                 --bits--->  dirty: slots to look at; the worker's sleep flag; its doorbell
//!                 <--bits---  ready: slots with tasks to wake; a futex word a slot, one a lane
//!                 <--bits-->  free: slots that both take
//! ```
//!
//! Everything is bounded and lies at offsets: a lane works the same in a process's own memory and in a memory
//! segment that another process maps. The worker takes no lock and never waits: what does not fit a ring stays in
//! the stack, whose window closes. An application that writes nonsense breaks its own sockets only: every position
//! is checked, every slot number is looked up in the worker's own table.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crossbeam_utils::CachePadded;
use tables::memory::Memory;
use tables::ready::{READY_MAX, ReadySet};
use tables::ring::ByteRing;
use tables::segment::{Segment, SegmentError};
use tables::sleep::SleepFlag;

use crate::futex;

/// Changes with the layout of what follows.
pub(crate) const LAYOUT: u64 = 0x736f_636b_0001;
/// Words of a slot: three groups of two cache lines.
const SLOT_WORDS: usize = 48;
/// The most workers of an area.
pub(crate) const WORKERS_MAX: u16 = 32;

/// Words of a slot. The application writes the first group, the worker the second, both the third.
pub(crate) mod word {
    pub(crate) const TX_TAIL: usize = 0;
    pub(crate) const RX_HEAD: usize = 1;
    pub(crate) const COMMAND: usize = 2;
    pub(crate) const OPERATION: usize = 3;
    pub(crate) const ARGUMENTS: usize = 4;
    pub(crate) const TX_HEAD: usize = 16;
    pub(crate) const RX_TAIL: usize = 17;
    pub(crate) const ANSWERED: usize = 18;
    pub(crate) const RESULT: usize = 19;
    pub(crate) const STATUS: usize = 20;
    /// Three words.
    pub(crate) const LOCAL: usize = 21;
    /// Three words.
    pub(crate) const PEER: usize = 24;
    /// Who waits for what: bits of [`wait`](super::wait).
    pub(crate) const WAITS: usize = 32;
    /// How the connection failed; who reads it clears it.
    pub(crate) const ERROR: usize = 33;
    /// The worker waits for room in the receive ring.
    pub(crate) const ROOM: usize = 34;
}

/// Bits of the word `WAITS`: set by who is about to wait, cleared by the worker that wakes.
pub(crate) mod wait {
    pub(crate) const READ: u64 = 1;
    pub(crate) const WRITE: u64 = 2;
    pub(crate) const ANSWER: u64 = 4;
    /// Threads.
    pub(crate) const THREADS: u64 = READ | WRITE | ANSWER;
    /// Tasks.
    pub(crate) const READ_TASK: u64 = 8;
    pub(crate) const WRITE_TASK: u64 = 16;
    pub(crate) const READERS: u64 = READ | READ_TASK;
    pub(crate) const WRITERS: u64 = WRITE | WRITE_TASK;
    pub(crate) const ALL: u64 = READERS | WRITERS | ANSWER;
}

/// Bits of the word `STATUS`, written by the worker.
pub(crate) mod status {
    /// The connection was established.
    pub(crate) const CONNECTED: u64 = 1;
    /// No more will be received.
    pub(crate) const END: u64 = 2;
    /// Nothing more can be sent.
    pub(crate) const BROKEN: u64 = 4;
    /// The operation that opens failed, or is still going on, until this or `CONNECTED` is set.
    pub(crate) const FAILED: u64 = 8;
}

/// How much an area holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) workers: u16,
    /// Sockets of a worker.
    pub(crate) sockets: u32,
    /// Bytes of a ring; a power of two.
    pub(crate) ring_bytes: u32,
}

impl Shape {
    /// Brings sizes into their ranges.
    pub(crate) fn new(workers: u16, sockets: u32, ring_bytes: u32) -> Self {
        Self {
            workers: workers.clamp(1, WORKERS_MAX),
            sockets: sockets.clamp(1, READY_MAX as u32),
            ring_bytes: ring_bytes.clamp(4096, 1 << 26).next_power_of_two(),
        }
    }

    /// Returns the size of a segment for it; memory is touched on demand.
    pub(crate) fn segment_bytes(self) -> usize {
        const PAGE: usize = 4096;
        let sockets = self.sockets as usize;
        let lane = 2 * sockets * self.ring_bytes as usize
            + sockets * (SLOT_WORDS * 8 + size_of::<CachePadded<AtomicU32>>())
            + 3 * ReadySet::words(sockets) * 8
            + 8 * PAGE;
        (lane + PAGE) * usize::from(self.workers) + 8 * PAGE
    }
}

/// One worker's part of an area.
#[derive(Debug)]
pub(crate) struct Lane {
    slots: Memory<[AtomicU64; SLOT_WORDS]>,
    events: Memory<CachePadded<AtomicU32>>,
    rings: Memory<AtomicU64>,
    /// Slots that the worker is to look at.
    pub(crate) dirty: ReadySet,
    /// Slots whose tasks are to be woken.
    pub(crate) ready: ReadySet,
    /// Slots that nobody uses.
    pub(crate) free: ReadySet,
    /// Whether the worker sleeps, and whether it has ended (an own cache line each).
    sleep: Memory<CachePadded<SleepFlag>>,
    /// The futex word of the thread that wakes tasks, and whether it sleeps; the third: the worker has ended.
    bell: Memory<CachePadded<AtomicU32>>,
    ring_words: usize,
    is_private: bool,
}

/// All lanes of an attachment.
#[derive(Debug)]
pub(crate) struct Area {
    pub(crate) lanes: Vec<Lane>,
}

impl Area {
    /// Makes the lanes in a new segment, or finds them in one that its owner made.
    pub(crate) fn new(
        segment: &Segment,
        shape: Shape,
        is_owner: bool,
    ) -> Result<Self, SegmentError> {
        let lanes = (0..shape.workers)
            .map(|worker| Lane::new(segment, shape, worker, is_owner))
            .collect::<Result<_, _>>()?;
        Ok(Self { lanes })
    }

    /// Makes an area in this process's own memory.
    pub(crate) fn private(shape: Shape) -> Result<Self, SegmentError> {
        let segment = Segment::heap(shape.segment_bytes(), LAYOUT)?;
        Self::new(&segment, shape, true)
    }
}

impl Lane {
    fn new(
        segment: &Segment,
        shape: Shape,
        worker: u16,
        is_owner: bool,
    ) -> Result<Self, SegmentError> {
        fn get<T: tables::memory::Plain>(
            segment: &Segment,
            name: &str,
            len: usize,
            is_owner: bool,
        ) -> Result<Memory<T>, SegmentError> {
            if is_owner {
                return segment.reserve(name, len);
            }
            let found = segment.lookup(name)?;
            if found.len() < len {
                return Err(SegmentError::NotFound(name.to_owned()));
            }
            Ok(found)
        }
        let sockets = shape.sockets as usize;
        let ring_words = shape.ring_bytes as usize / 8;
        let name = |what: &str| format!("{what} {worker}");
        let bits = |what: &str| {
            let memory = get(segment, &name(what), ReadySet::words(sockets), is_owner)?;
            Ok::<_, SegmentError>(ReadySet::new(memory))
        };
        let lane = Self {
            slots: get(segment, &name("slots"), sockets, is_owner)?,
            events: get(segment, &name("events"), sockets, is_owner)?,
            rings: get(segment, &name("rings"), 2 * sockets * ring_words, is_owner)?,
            dirty: bits("dirty")?,
            ready: bits("ready")?,
            free: bits("free")?,
            sleep: get(segment, &name("sleep"), 1, is_owner)?,
            bell: get(segment, &name("bell"), 3, is_owner)?,
            ring_words,
            is_private: segment.file().is_none(),
        };
        if is_owner {
            (0..sockets).for_each(|slot| lane.free.set(slot));
        }
        Ok(lane)
    }

    /// Returns how many slots there are.
    pub(crate) fn sockets(&self) -> usize {
        self.slots.len()
    }

    /// Returns a slot; a number from the other side must be checked before.
    #[inline]
    pub(crate) fn slot(&self, slot: usize) -> Slot<'_> {
        Slot { lane: self, slot }
    }

    /// Worker: returns the flag that tells whether it sleeps.
    pub(crate) fn sleep(&self) -> &SleepFlag {
        &self.sleep[0]
    }

    /// Application: tells that a slot is to be looked at; true if the worker must be woken by its doorbell.
    #[inline]
    pub(crate) fn poke(&self, slot: usize) -> bool {
        self.dirty.set(slot);
        self.sleep().must_wake()
    }

    /// Worker: wakes the thread that wakes tasks.
    fn ring(&self) {
        // SeqCst: pairs with the fence in `wait_for_tasks`: it sees the bit, or we see that it sleeps.
        fence(Ordering::SeqCst);
        if self.bell[1].load(Ordering::Relaxed) != 0 {
            self.bell[0].fetch_add(1, Ordering::Release);
            futex::wake(&self.bell[0], self.is_private);
        }
    }

    /// Wakes that thread whatever it does: its process is about to end.
    pub(crate) fn ring_anyway(&self) {
        self.bell[0].fetch_add(1, Ordering::Release);
        futex::wake(&self.bell[0], self.is_private);
    }

    /// Application: waits, on behalf of all lanes (this is the first), until tasks are to be woken.
    pub(crate) fn wait_for_tasks(&self, area: &Area) {
        let seen = self.bell[0].load(Ordering::Acquire);
        self.bell[1].store(1, Ordering::Relaxed);
        // SeqCst: pairs with the fence in `ring`.
        fence(Ordering::SeqCst);
        if !area.lanes.iter().any(|lane| lane.ready.may_have()) && !self.has_ended() {
            futex::wait(&self.bell[0], self.is_private, seen, None);
        }
        self.bell[1].store(0, Ordering::Relaxed);
    }

    /// Worker: it serves this lane no more; wakes all who wait.
    pub(crate) fn end(&self) {
        self.bell[2].store(1, Ordering::Release);
        for event in self.events.iter() {
            event.fetch_add(1, Ordering::Release);
            futex::wake(event, self.is_private);
        }
        (0..self.sockets()).for_each(|slot| self.ready.set(slot));
        self.ring_anyway();
    }

    /// Tells whether the worker serves this lane no more.
    pub(crate) fn has_ended(&self) -> bool {
        self.bell[2].load(Ordering::Acquire) != 0
    }
}

/// One socket's place in a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'a> {
    lane: &'a Lane,
    slot: usize,
}

impl<'a> Slot<'a> {
    #[inline]
    pub(crate) fn word(&self, word: usize) -> &'a AtomicU64 {
        &self.lane.slots[self.slot][word]
    }

    /// Reads a word that the other side wrote.
    #[inline]
    pub(crate) fn get(&self, word: usize) -> u64 {
        self.word(word).load(Ordering::Acquire)
    }

    /// Writes a word of this side.
    #[inline]
    pub(crate) fn put(&self, word: usize, value: u64) {
        self.word(word).store(value, Ordering::Release);
    }

    /// Returns the ring from the application to the worker.
    #[inline]
    pub(crate) fn transmit(&self) -> ByteRing<'a> {
        self.ring(0, word::TX_HEAD, word::TX_TAIL)
    }

    /// Returns the ring from the worker to the application.
    #[inline]
    pub(crate) fn receive(&self) -> ByteRing<'a> {
        self.ring(1, word::RX_HEAD, word::RX_TAIL)
    }

    fn ring(&self, which: usize, head: usize, tail: usize) -> ByteRing<'a> {
        let start = (2 * self.slot + which) * self.lane.ring_words;
        let words = &self.lane.rings[start..start + self.lane.ring_words];
        ByteRing::new(self.word(head), self.word(tail), words)
    }

    /// Worker: after publishing, wakes who waits for one of `bits`.
    #[inline]
    pub(crate) fn wake(&self, bits: u64) {
        // SeqCst: pairs with the fence in `prepare`: either we see that somebody waits, or it sees what we did.
        fence(Ordering::SeqCst);
        let waits = self.word(word::WAITS).load(Ordering::Relaxed) & bits;
        if waits != 0 {
            self.wake_now(waits);
        }
    }

    #[cold]
    fn wake_now(&self, waits: u64) {
        self.word(word::WAITS).fetch_and(!waits, Ordering::Relaxed);
        if waits & wait::THREADS != 0 {
            let event = &self.lane.events[self.slot];
            event.fetch_add(1, Ordering::Release);
            futex::wake(event, self.lane.is_private);
        }
        if waits & !wait::THREADS != 0 {
            self.lane.ready.set(self.slot);
            self.lane.ring();
        }
    }

    /// Application: announces a wait for one of `bits`; then the caller looks once more, and waits with what this
    /// returned.
    pub(crate) fn prepare(&self, bits: u64) -> u32 {
        let seen = self.lane.events[self.slot].load(Ordering::Acquire);
        self.word(word::WAITS).fetch_or(bits, Ordering::Relaxed);
        // SeqCst: pairs with the fence in `wake`.
        fence(Ordering::SeqCst);
        seen
    }

    /// Application: blocks until woken, or for so long. May return early.
    pub(crate) fn block(&self, seen: u32, timeout: Option<core::time::Duration>) {
        futex::wait(
            &self.lane.events[self.slot],
            self.lane.is_private,
            seen,
            timeout,
        );
    }

    /// Worker: makes the slot as new and gives it back.
    pub(crate) fn release(&self) {
        for word in &self.lane.slots[self.slot] {
            word.store(0, Ordering::Relaxed);
        }
        self.lane.free.set(self.slot);
    }
}
