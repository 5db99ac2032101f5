//! Connections that others expect: shared by all workers, like the connections, since the expected one may come to
//! another worker. Of fixed size; each lives for a time or until its connection comes, and one connection may expect a
//! few only. They lie in the memory of the tables: the next process, and others beside this one, expect them as well.

use core::sync::atomic::{AtomicU64, Ordering};

use tables::flow_map::{FlowError, FlowMap};
use tables::memory::{Memory, Source};
use tables::quiescent::Domain;
use tables::signature::{Keyed, Session6};
use tables::slots::{SlotMemory, SlotRef, SlotRepairs, SlotWorker};
use wire::FlowKey;

use crate::nat::mapping::{Endpoint, PortSpace};
use crate::track::counted::Counted;
use crate::track::key::{ConnectionKey, unmapped};
use crate::track::timeout::Tick;

/// Connections that one connection may expect at a time.
pub const PER_MASTER: u64 = 16;

/// Ticks of [`Tick`] that an expectation waits for its connection: 60 s.
const WAIT_TICKS: u32 = 450;

/// Slots that a sweep looks at, at least: a small table is gone over often.
const SWEEP_MIN: usize = 64;

/// What is expected, and by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// When it is given up.
    pub deadline: Tick,
    /// The connection that expects it, and whether that is IPv4.
    pub master: SlotRef,
    /// The master is in the table for IPv4.
    pub is_ipv4: bool,
    /// The master's reply direction advertised the endpoint.
    pub by_reply: bool,
    /// The port that the advertiser waits at.
    pub port: u16,
    /// It uses a mapping, of the advertiser's own endpoint.
    pub is_mapped: bool,
    /// The advertiser's own address, if it is IPv4.
    pub address: u32,
}

impl Expectation {
    fn words(&self) -> [u64; 3] {
        let flags = u64::from(self.is_ipv4)
            | u64::from(self.by_reply) << 1
            | u64::from(self.is_mapped) << 2;
        let first = u64::from(self.deadline.0) << 32 | u64::from(self.port) << 16 | flags;
        [first, self.master.to_word(), u64::from(self.address)]
    }

    fn from_words([first, master, address]: [u64; 3]) -> Option<Self> {
        Some(Self {
            deadline: Tick((first >> 32) as u32),
            master: SlotRef::from_word(master)?,
            is_ipv4: first & 1 != 0,
            by_reply: first & 2 != 0,
            port: (first >> 16) as u16,
            is_mapped: first & 4 != 0,
            address: address as u32,
        })
    }

    /// The inner endpoint whose mapping it uses.
    pub fn mapping(&self, protocol: u8) -> Option<Endpoint> {
        Some(Endpoint {
            address: self.address,
            port: self.port,
            space: PortSpace::of(protocol).filter(|_| self.is_mapped)?,
        })
    }

    /// What the master is counted by: its reference, and its table.
    fn counted_by(&self) -> u64 {
        self.master.to_word() ^ u64::from(self.is_ipv4) << 63
    }
}

/// An expectation in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// What is expected.
    pub expectation: Expectation,
    place: SlotRef,
    word: u64,
}

/// What became of an expectation that was to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It was added.
    New,
    /// It was there already, and waits anew.
    Known,
    /// Another connection expects this one.
    Taken,
    /// The master expects as many as it may, or the table is full.
    Full,
}

/// The memory of [`Expectations`].
#[derive(Debug)]
pub struct ExpectationMemory {
    map: SlotMemory<Session6>,
    masters: SlotMemory<u64>,
    count: Memory<AtomicU64>,
}

impl ExpectationMemory {
    /// Takes the memory of `size` expectations from a source.
    ///
    /// # Errors
    /// As [`Source::take`].
    pub fn from_source<S: Source>(source: &mut S, size: usize) -> Result<Self, S::Error> {
        Ok(Self {
            map: SlotMemory::from_source(source, "expected", size)?,
            masters: SlotMemory::from_source(source, "expecting", size)?,
            count: source.take("expected number", 1)?,
        })
    }

    /// Bytes that this takes of a segment.
    pub fn segment_bytes(size: usize) -> usize {
        SlotMemory::<Session6>::segment_bytes(size) + SlotMemory::<u64>::segment_bytes(size) + 4096
    }
}

/// The expectations of all connections.
#[derive(Debug)]
pub struct Expectations {
    map: FlowMap<Session6>,
    masters: Counted,
    /// So that packets cost nothing more as long as nothing is expected. Never too low: it goes up before, and down
    /// after.
    count: Memory<AtomicU64>,
}

/// A worker's handles.
#[derive(Debug)]
pub struct ExpectationWorker {
    map: SlotWorker,
    masters: SlotWorker,
    sweep: usize,
}

impl ExpectationWorker {
    pub(crate) fn handles(&self) -> [&SlotWorker; 2] {
        [&self.map, &self.masters]
    }
}

impl Expectations {
    /// Takes over memory that no process uses any more, or that is new; `recount` belongs to it.
    pub fn recover(memory: ExpectationMemory, hash: Keyed, workers: usize) -> (Self, SlotRepairs) {
        let (map, repairs) = FlowMap::recover(memory.map, hash, Domain::new(workers));
        let expectations = Self {
            map,
            masters: Counted::cleared(memory.masters, hash, workers),
            count: memory.count,
        };
        expectations.counter(|count| count.store(0, Ordering::Relaxed));
        (expectations, repairs)
    }

    /// Uses memory beside other processes; the domains are those of the expectations and of the counts.
    pub fn with_memory(memory: ExpectationMemory, hash: Keyed, domains: [Domain; 2]) -> Self {
        let [map, masters] = domains;
        Self {
            map: FlowMap::with_memory(memory.map, hash, map),
            masters: Counted::with_memory(memory.masters, hash, masters),
            count: memory.count,
        }
    }

    /// Counts what was taken over, without those that `keeps` gives up. Returns how many these were.
    pub(crate) fn recount(&self, mut keeps: impl FnMut(&FlowKey, &Expectation) -> bool) -> usize {
        let Some(mut worker) = self.join() else {
            return 0;
        };
        let mut given_up = 0;
        for slot in 0..self.map.slots() {
            let Some(place) = self.map.connection_at(slot) else {
                continue;
            };
            let known = self.read(place).zip(self.map.original_key(place));
            let is_kept = known.is_some_and(|(found, key)| {
                let by = found.expectation.counted_by();
                keeps(&key.to_flow(), &found.expectation)
                    && self
                        .masters
                        .raise(&mut worker.masters, by, PER_MASTER)
                        .is_ok()
            });
            if is_kept {
                self.counter(|count| count.fetch_add(1, Ordering::Relaxed));
            } else {
                self.map.remove(&mut worker.map, place);
                given_up += 1;
            }
        }
        worker.map.quiescent();
        self.map.reclaim(&mut worker.map);
        given_up
    }

    /// Gives up those that `keeps` does not want; their masters' counts go with them.
    pub(crate) fn retain(&self, mut keeps: impl FnMut(&FlowKey, &Expectation) -> bool) {
        let Some(mut worker) = self.join() else {
            return;
        };
        for slot in 0..self.map.slots() {
            let Some(place) = self.map.connection_at(slot) else {
                continue;
            };
            if let Some((found, key)) = self.read(place).zip(self.map.original_key(place))
                && !keeps(&key.to_flow(), &found.expectation)
            {
                self.take(&mut worker, &found);
            }
        }
    }

    fn counter<T>(&self, what: impl FnOnce(&AtomicU64) -> T) -> Option<T> {
        self.count.first().map(what)
    }

    /// Joins as a worker, or `None` if there are as many already as there may be.
    pub fn join(&self) -> Option<ExpectationWorker> {
        Some(ExpectationWorker {
            map: self.map.join()?,
            masters: self.masters.join()?,
            sweep: 0,
        })
    }

    /// Number of expectations.
    pub fn count(&self) -> usize {
        // Relaxed: a hint; who added one sends its message afterwards, and what answers that comes later.
        let count = self.counter(|count| count.load(Ordering::Relaxed));
        count.unwrap_or(0) as usize
    }

    /// Adds an expectation of connections that look like `key`, whose source port (and, if it is zero, address) is
    /// anyone's. Its deadline is set.
    pub fn add(
        &self,
        worker: &mut ExpectationWorker,
        key: &FlowKey,
        mut expectation: Expectation,
        now: Tick,
    ) -> Added {
        expectation.deadline = now.after(WAIT_TICKS);
        let key = Session6::from_flow(key);
        let by = expectation.counted_by();
        if let Some(flow) = self.map.find(&key) {
            return self.refresh(flow.connection, &expectation);
        }
        if self
            .masters
            .raise(&mut worker.masters, by, PER_MASTER)
            .is_err()
        {
            return Added::Full;
        }
        self.counter(|count| count.fetch_add(1, Ordering::Relaxed));
        let added = self
            .map
            .insert(&mut worker.map, &key, None, &expectation.words());
        let added = match added {
            Ok(_) => return Added::New,
            Err(FlowError::Exists(flow)) => self.refresh(flow.connection, &expectation),
            Err(_) => Added::Full,
        };
        self.counter(|count| count.fetch_sub(1, Ordering::Relaxed));
        self.masters.lower(&mut worker.masters, by);
        added
    }

    fn refresh(&self, place: SlotRef, wanted: &Expectation) -> Added {
        let known = self.read(place);
        let same = known.is_some_and(|known| {
            let known = Expectation {
                deadline: wanted.deadline,
                ..known.expectation
            };
            known == *wanted
        });
        if same && self.map.touch(place, wanted.words()[0]) {
            Added::Known
        } else {
            Added::Taken
        }
    }

    /// Finds who expects a packet.
    pub fn find(&self, key: &FlowKey, now: Tick) -> Option<Found> {
        let exact = FlowKey {
            source_port: 0,
            ..*key
        };
        let anyone = FlowKey {
            source: [0; 16],
            ..exact
        };
        [exact, anyone].iter().find_map(|key| {
            let flow = self.map.find(&Session6::from_flow(key))?;
            self.read(flow.connection)
                .filter(|found| found.expectation.deadline > now)
        })
    }

    fn read(&self, place: SlotRef) -> Option<Found> {
        let values = self.map.values(place)?;
        let words = values.first_chunk::<3>()?;
        let words = core::array::from_fn(|at| words[at].load(Ordering::Relaxed));
        Some(Found {
            expectation: Expectation::from_words(words)?,
            place,
            word: words[0],
        })
    }

    /// Takes an expectation out: its connection has come. False if another packet was faster.
    pub fn take(&self, worker: &mut ExpectationWorker, found: &Found) -> bool {
        if !self
            .map
            .expire_one(&mut worker.map, found.place, found.word)
        {
            return false;
        }
        self.counter(|count| count.fetch_sub(1, Ordering::Relaxed));
        let by = found.expectation.counted_by();
        self.masters.lower(&mut worker.masters, by);
        true
    }

    /// Frees what nobody holds any more, and gives up what waited long enough, in at least `slots` slots: once a
    /// loop. What used a mapping is handed to `release`.
    pub fn maintain(
        &self,
        worker: &mut ExpectationWorker,
        slots: usize,
        now: Tick,
        mut release: impl FnMut(Endpoint),
    ) {
        worker.map.quiescent();
        self.map.reclaim(&mut worker.map);
        self.masters.reclaim(&mut worker.masters);
        if slots == 0 || self.count() == 0 {
            return;
        }
        let end = (worker.sweep + slots.max(SWEEP_MIN)).min(self.map.slots());
        for slot in worker.sweep..end {
            let found = self.map.connection_at(slot);
            let Some(found) = found.and_then(|place| self.read(place)) else {
                continue;
            };
            if found.expectation.deadline > now {
                continue;
            }
            let protocol = self.map.original_key(found.place).map(|key| key.protocol);
            if self.take(worker, &found)
                && let Some(inner) = protocol.and_then(|p| found.expectation.mapping(p))
            {
                release(inner);
            }
        }
        worker.sweep = if end == self.map.slots() { 0 } else { end };
    }

    /// Shows each expectation with what it waits for.
    pub fn each(&self, mut see: impl FnMut(&FlowKey, &Expectation)) {
        for slot in 0..self.map.slots() {
            let Some(place) = self.map.connection_at(slot) else {
                continue;
            };
            if let Some((found, key)) = self.read(place).zip(self.map.original_key(place)) {
                see(&key.to_flow(), &found.expectation);
            }
        }
    }
}

/// Returns an advertiser's address as an expectation keeps it.
pub(crate) const fn kept(address: [u8; 16]) -> u32 {
    unmapped(address)
}
