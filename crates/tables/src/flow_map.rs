//! The flow map of NAT and stateful inspection (LF-4): connections found by either direction's key, on the
//! lock-free [`SlotMap`].
//!
//! A connection is a record in the slot of its original key; the reply key has a record that points at it by
//! slot and generation. The reply's record goes in first and counts only while the original's is live, so that
//! a connection appears, and disappears, in both directions at once.

use crate::memory::Pages;
use crate::quiescent::Domain;
use crate::signature::Keyed;
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
use crate::slots::SlotLine;
use crate::slots::{
    Claim, InsertError, Leaks, Settled, SlotKey, SlotMap, SlotMemory, SlotRef, SlotRepairs,
    SlotWorker, VALUE_WORDS_MAX,
};
use crate::sync::atomic::{AtomicU64, Ordering};
use core::ops::Range;

/// First value word: the other direction's record, and this bit in a reply's.
const IS_REPLY: u64 = 1 << 31;

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// As the first packet of the connection.
    Original,
    /// Back.
    Reply,
}

/// A connection that a key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The connection: its original record.
    pub connection: SlotRef,
    /// Which of its keys was looked up.
    pub direction: Direction,
}

/// Why a connection was not inserted; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// The original key belongs to a connection, this one.
    #[error("key belongs to a connection already")]
    Exists(Flow),
    /// The reply key belongs to another connection: choose another translation.
    #[error("reply key belongs to another connection")]
    ReplyTaken,
    /// No free slot for one of the keys.
    #[error("no free slot for the connection; make the map larger or expire sooner")]
    Full,
}

/// Connections, shared by threads or processes.
///
/// ```
/// use tables::flow_map::{Direction, FlowMap};
/// use tables::quiescent::Domain;
/// use tables::signature::{Keyed, Session4};
///
/// let flows = FlowMap::<Session4>::new(1000, Keyed::new([1, 2, 3, 4]), Domain::new(2));
/// let mut worker = flows.join().unwrap();
/// let out = Session4 { source: 10, destination: 20, source_port: 1, destination_port: 80, protocol: 6 };
/// let back = Session4 { source: 20, destination: 99, source_port: 80, destination_port: 4000, protocol: 6 };
/// let connection = flows.insert(&mut worker, &out, Some(&back), &[7])?;
/// let found = flows.find(&back).unwrap();
/// assert_eq!((found.connection, found.direction), (connection, Direction::Reply));
/// assert!(flows.remove(&mut worker, connection));
/// assert_eq!(flows.find(&out), None);
/// # Ok::<(), tables::flow_map::FlowError>(())
/// ```
#[derive(Debug)]
pub struct FlowMap<K: SlotKey> {
    slots: SlotMap<K>,
}

impl<K: SlotKey> FlowMap<K> {
    /// Makes an empty map for about `connections` in both directions; asks for huge pages.
    pub fn new(connections: usize, hash: Keyed, domain: Domain) -> Self {
        let memory = SlotMemory::new(connections.saturating_mul(2), Pages::Huge);
        Self::with_memory(memory, hash, domain)
    }

    /// Makes a map of zeroed `memory`, or attaches to one that others use.
    ///
    /// # Panics
    /// As [`SlotMap::with_memory`].
    pub fn with_memory(memory: SlotMemory<K>, hash: Keyed, domain: Domain) -> Self {
        Self {
            slots: SlotMap::with_memory(memory, hash, domain),
        }
    }

    /// Takes over a map that no process uses any more: every connection whose `insert` returned is kept,
    /// in both directions; a reply record whose connection is not there is removed and counted as dead.
    pub fn recover(memory: SlotMemory<K>, hash: Keyed, domain: Domain) -> (Self, SlotRepairs) {
        let (slots, mut repairs) = SlotMap::recover(memory, hash, domain);
        let map = Self { slots };
        if let Some(mut worker) = map.join() {
            let all = 0..map.slots();
            let orphans = map.expire(&mut worker, all, |_, _| false);
            repairs.live -= orphans;
            repairs.dead += orphans;
            worker.quiescent();
            map.reclaim(&mut worker);
        }
        (map, repairs)
    }

    /// Joins as a worker, or `None` if the domain has no free place.
    pub fn join(&self) -> Option<SlotWorker> {
        self.slots.join()
    }

    /// Number of slots: two a connection.
    pub fn slots(&self) -> usize {
        self.slots.slots()
    }

    /// Counts the records of both directions: a pass over the map.
    pub fn records(&self) -> usize {
        self.slots.count()
    }

    /// Finds the connection that a key belongs to.
    #[inline]
    pub fn find(&self, key: &K) -> Option<Flow> {
        self.resolve(self.slots.find(key)?)
    }

    /// Finds `keys` with their memory accesses overlapped and writes what [`find`](Self::find) would give
    /// to the same place of `flows`. Stops at the shorter of the two.
    pub fn find_batch(&self, keys: &[K], flows: &mut [Option<Flow>]) {
        const STAGE: usize = 32;
        for (keys, flows) in keys.chunks(STAGE).zip(flows.chunks_mut(STAGE)) {
            let mut found = [None; STAGE];
            self.slots.find_batch(keys, &mut found);
            for peer in found[..keys.len()]
                .iter()
                .flatten()
                .filter_map(|&record| self.peer(record))
            {
                self.slots.prefetch(peer);
            }
            for (flow, found) in flows.iter_mut().zip(&found) {
                *flow = found.and_then(|record| self.resolve(record));
            }
        }
    }

    /// The caller's words of a connection (five for [`Session4`](crate::signature::Session4), ten for
    /// [`Session6`](crate::signature::Session6)), for changes in place, unless it is gone. Good until the
    /// caller's worker reports a quiescent state.
    #[inline]
    pub fn values(&self, connection: SlotRef) -> Option<&[AtomicU64]> {
        self.slots.values(connection)?.get(1..)
    }

    /// The original key of a connection, unless it is gone.
    pub fn original_key(&self, connection: SlotRef) -> Option<K> {
        self.slots.key(connection)
    }

    /// The reply key of a connection, unless it is gone or has none.
    pub fn reply_key(&self, connection: SlotRef) -> Option<K> {
        let peer = self.slots.values(connection)?.first()?;
        self.slots.key(unpack(peer.load(Ordering::Relaxed))?)
    }

    /// The caller's words of both records of a connection, the original's and the reply's (as many again),
    /// for changes in place, unless it is gone or has no reply key. Good until the caller's worker reports a
    /// quiescent state.
    #[inline]
    pub fn pair(&self, connection: SlotRef) -> Option<(&[AtomicU64], &[AtomicU64])> {
        let (link, original) = self.slots.values(connection)?.split_first()?;
        let reply = self
            .slots
            .values(unpack(link.load(Ordering::Relaxed))?)?
            .get(1..)?;
        Some((original, reply))
    }

    /// Inserts a connection with `value` (zeros where it ends). Of several that insert one original key,
    /// one wins; of several with one reply key, one wins.
    ///
    /// # Errors
    /// If one of the keys belongs to a connection, or there is no room.
    pub fn insert(
        &self,
        worker: &mut SlotWorker,
        original: &K,
        reply: Option<&K>,
        value: &[u64],
    ) -> Result<SlotRef, FlowError> {
        self.insert_pair(worker, original, reply, value, &[])
    }

    /// Inserts as [`insert`](Self::insert), with `reply_value` in the caller's words of the reply's record.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn insert_pair(
        &self,
        worker: &mut SlotWorker,
        original: &K,
        reply: Option<&K>,
        value: &[u64],
        reply_value: &[u64],
    ) -> Result<SlotRef, FlowError> {
        let reply = reply.filter(|&reply| reply != original);
        loop {
            let claim = match self.slots.claim(original, &[]) {
                Ok(claim) => claim,
                Err(InsertError::Exists(found)) => match self.resolve(found) {
                    Some(flow) => return Err(FlowError::Exists(flow)),
                    None => {
                        self.drop_orphan(worker, found);
                        continue;
                    }
                },
                Err(InsertError::Full) => return Err(FlowError::Full),
            };
            let peer =
                match reply.map(|reply| self.insert_reply(worker, reply, &claim, reply_value)) {
                    None => None,
                    Some(Ok(peer)) => Some(peer),
                    Some(Err(error)) => {
                        self.slots.abandon(claim);
                        return Err(error);
                    }
                };
            let words = core::iter::once(peer.map_or(0, SlotRef::to_word));
            self.slots
                .write_claimed(&claim, words.chain(value.iter().copied()));
            let settled = self.slots.settle(worker, claim);
            if let Settled::Won(ours) = settled {
                return Ok(ours);
            }
            if let Some(peer) = peer {
                self.slots.remove_ref(worker, peer);
            }
            if let Settled::Lost(winner) = settled
                && let Some(flow) = self.resolve(winner)
            {
                return Err(FlowError::Exists(flow));
            }
        }
    }

    /// Removes a connection in both directions; true for the one who removed it.
    pub fn remove(&self, worker: &mut SlotWorker, connection: SlotRef) -> bool {
        let peer = self
            .slots
            .values(connection)
            .and_then(|values| values.first())
            .map_or(0, |word| word.load(Ordering::Relaxed));
        if peer & IS_REPLY != 0 || !self.slots.remove_ref(worker, connection) {
            return false;
        }
        if let Some(peer) = unpack(peer) {
            // May be gone already: whoever met it without its connection removed it.
            self.slots.remove_ref(worker, peer);
        }
        true
    }

    /// Goes over a share of the slots and removes the connections that `expired` says (by the caller's
    /// words), and reply records that a killed process left; returns how many records went. A packet that
    /// refreshes a connection after `expired` looked is too late, and makes a new one.
    pub fn expire(
        &self,
        worker: &mut SlotWorker,
        slots: Range<usize>,
        mut expired: impl FnMut(SlotRef, &[AtomicU64]) -> bool,
    ) -> usize {
        let mut removed = 0;
        for slot in slots.start..slots.end.min(self.slots()) {
            let Some((found, values)) = self.slots.live_at(slot) else {
                continue;
            };
            let peer = values[0].load(Ordering::Relaxed);
            if peer & IS_REPLY != 0 {
                removed += usize::from(self.drop_orphan(worker, found));
            } else if expired(found, &values[1..]) && self.remove(worker, found) {
                removed += 1 + usize::from(peer != 0);
            }
        }
        removed
    }

    /// Frees the slots that `worker` removed and whose grace period has passed: once a loop, after
    /// [`SlotWorker::quiescent`].
    pub fn reclaim(&self, worker: &mut SlotWorker) {
        self.slots.reclaim(worker);
    }

    /// See [`SlotMap::find_leaks`].
    pub fn find_leaks(&self) -> Leaks {
        self.slots.find_leaks()
    }

    /// See [`SlotMap::free_leaks`].
    ///
    /// # Errors
    /// Gives the leaks back if the grace period has not passed.
    pub fn free_leaks(&self, leaks: Leaks) -> Result<usize, Leaks> {
        self.slots.free_leaks(leaks)
    }

    fn insert_reply(
        &self,
        worker: &mut SlotWorker,
        reply: &K,
        claim: &Claim,
        value: &[u64],
    ) -> Result<SlotRef, FlowError> {
        let mut words = [0; VALUE_WORDS_MAX];
        words[0] = claim.reference().to_word() | IS_REPLY;
        for (to, from) in words[1..].iter_mut().zip(value) {
            *to = *from;
        }
        loop {
            match self.slots.insert(worker, reply, &words) {
                Ok(peer) => return Ok(peer),
                Err(InsertError::Full) => return Err(FlowError::Full),
                Err(InsertError::Exists(found)) => {
                    if !self.drop_orphan(worker, found) {
                        return Err(FlowError::ReplyTaken);
                    }
                }
            }
        }
    }

    fn resolve(&self, record: SlotRef) -> Option<Flow> {
        let word = self.slots.values(record)?[0].load(Ordering::Relaxed);
        // The word is this record's if the record is still there.
        self.slots.values(record)?;
        if word & IS_REPLY == 0 {
            return Some(Flow {
                connection: record,
                direction: Direction::Original,
            });
        }
        let connection = unpack(word)?;
        self.slots.values(connection)?;
        Some(Flow {
            connection,
            direction: Direction::Reply,
        })
    }

    /// The record of the other direction: whoever finds one mostly needs both.
    fn peer(&self, record: SlotRef) -> Option<SlotRef> {
        unpack(self.slots.values(record)?.first()?.load(Ordering::Relaxed))
    }

    /// Removes a reply record whose connection is gone for good; false if it is not one.
    fn drop_orphan(&self, worker: &mut SlotWorker, record: SlotRef) -> bool {
        let Some(values) = self.slots.values(record) else {
            // Gone meanwhile: as good as removed.
            return true;
        };
        let word = values[0].load(Ordering::Relaxed);
        let is_orphan = word & IS_REPLY != 0
            && unpack(word).is_none_or(|original| self.slots.is_gone(original));
        is_orphan && {
            self.slots.remove_ref(worker, record);
            true
        }
    }
}

/// Reads the flow map of another process: lookups and copies, which write nothing.
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
#[derive(Debug)]
pub struct FlowReader<K: SlotKey>(FlowMap<K>);

#[cfg(all(feature = "std", not(any(loom, shuttle))))]
impl<K: SlotKey> FlowReader<K> {
    /// Views a flow map in a segment that may be attached read-only; `hash` is its writers'.
    ///
    /// # Panics
    /// As [`SlotMap::with_memory`].
    pub fn new(
        lines: crate::segment::ReadOnly<SlotLine>,
        records: crate::segment::ReadOnly<K::Record>,
        hash: Keyed,
    ) -> Self {
        let memory = SlotMemory {
            lines: lines.into_memory(),
            records: records.into_memory(),
        };
        Self(FlowMap::with_memory(memory, hash, Domain::new(0)))
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.0.slots()
    }

    /// Copies the caller's words of the connection that a key belongs to, as they were at one moment; words
    /// that its workers change in place are each of some moment.
    pub fn read(&self, key: &K, value: &mut [u64]) -> Option<Flow> {
        let flow = self.0.find(key)?;
        self.copy(flow.connection, value).then_some(flow)
    }

    /// Copies the original key and the caller's words of the connection in a slot, if there is one.
    pub fn read_slot(&self, slot: usize, value: &mut [u64]) -> Option<K> {
        let (found, values) = self.0.slots.live_at(slot)?;
        if values[0].load(Ordering::Relaxed) & IS_REPLY != 0 {
            return None;
        }
        let key = self.0.slots.key(found)?;
        self.copy(found, value).then_some(key)
    }

    fn copy(&self, connection: SlotRef, value: &mut [u64]) -> bool {
        let Some(values) = self.0.values(connection) else {
            return false;
        };
        for (to, from) in value.iter_mut().zip(values) {
            *to = from.load(Ordering::Relaxed);
        }
        self.0.slots.is_still(connection)
    }
}

fn unpack(word: u64) -> Option<SlotRef> {
    SlotRef::from_word(word & !IS_REPLY)
}
