//! The flow map of NAT and stateful inspection (LF-4): connections found by either direction's key, on the
//! lock-free [`SlotMap`].
//!
//! A connection is a record in the slot of its original key; the reply key has a record that points at it by
//! slot and generation. The reply's record goes in first and counts only while the original's is live, so that
//! a connection appears, and disappears, in both directions at once.
//!
//! # Refresh and expiry
//! The first of the caller's words is the connection's deadline. A packet moves it by [`FlowMap::touch`],
//! expiry replaces the very value that it judged by [`EXPIRED`], both by compare-and-swap on that one word: of
//! a refresh and an expiry that race, one wins and both know which. From then on no lookup finds the
//! connection, and whoever meets what is left of it (an insert, another sweep, recovery) takes it away.

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
/// Which value word the deadline is.
const DEADLINE: usize = 1;

/// The deadline of a connection that expired: not to be used as one.
pub const EXPIRED: u64 = u64::MAX;
/// The deadline of a connection that does not expire by time.
pub const NEVER: u64 = u64::MAX - 1;

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
/// let deadline = 30;
/// let connection = flows.insert(&mut worker, &out, Some(&back), &[deadline, 7])?;
/// let found = flows.find(&back).unwrap();
/// assert_eq!((found.connection, found.direction), (connection, Direction::Reply));
/// assert!(flows.touch(connection, 60));
/// assert_eq!(flows.expire_until(&mut worker, 0..flows.slots(), 59), 0);
/// assert_eq!(flows.expire_until(&mut worker, 0..flows.slots(), 60), 2);
/// assert!(!flows.touch(connection, 90));
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
    /// in both directions, unless it had expired; a reply record whose connection is not there is removed, and
    /// both count as dead.
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
        self.find_stages(keys, flows, false);
    }

    /// [`find_batch`](Self::find_batch), and has the other direction's record of every connection brought
    /// into the caches meanwhile: for who needs [`pair`](Self::pair) next.
    pub fn find_batch_pairs(&self, keys: &[K], flows: &mut [Option<Flow>]) {
        self.find_stages(keys, flows, true);
    }

    #[inline(always)]
    fn find_stages(&self, keys: &[K], flows: &mut [Option<Flow>], pairs: bool) {
        const STAGE: usize = 32;
        for (keys, flows) in keys.chunks(STAGE).zip(flows.chunks_mut(STAGE)) {
            let mut found = [None; STAGE];
            self.slots.find_batch(keys, &mut found);
            let found = &found[..keys.len()];
            for &record in found.iter().flatten() {
                if let Some(values) = self.slots.values(record)
                    && let link = values[0].load(Ordering::Relaxed)
                    && (pairs || link & IS_REPLY != 0)
                    && let Some(peer) = unpack(link)
                {
                    self.slots.prefetch(peer);
                }
            }
            for (flow, found) in flows.iter_mut().zip(found) {
                *flow = found.and_then(|record| self.resolve(record));
            }
        }
    }

    /// See [`SlotMap::prefetch_key`].
    #[inline]
    pub fn prefetch_key(&self, key: &K) {
        self.slots.prefetch_key(key);
    }

    /// See [`SlotMap::prefetch_record`].
    #[inline]
    pub fn prefetch_record(&self, key: &K) {
        self.slots.prefetch_record(key);
    }

    /// The caller's words of a connection (five for [`Session4`](crate::signature::Session4), ten for
    /// [`Session6`](crate::signature::Session6)), for changes in place, unless it is gone. The first one is the
    /// deadline, which only [`touch`](Self::touch) may change. Good until the caller's worker reports a
    /// quiescent state.
    #[inline]
    pub fn values(&self, connection: SlotRef) -> Option<&[AtomicU64]> {
        self.slots.values(connection)?.get(1..)
    }

    /// The connection whose original record lies in a slot, if there is one: how a pass over the map finds each
    /// connection once. One that expired and is still to be removed is none.
    pub fn connection_at(&self, slot: usize) -> Option<SlotRef> {
        let (found, values) = self.slots.live_at(slot)?;
        let is_original = values.first()?.load(Ordering::Relaxed) & IS_REPLY == 0;
        (is_original && self.is_valid(found)).then_some(found)
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

    /// Moves the deadline of a connection that a packet of this burst found; false if it is gone or has
    /// expired: the packet belongs to none. Of a refresh and an expiry that race, one wins. A deadline that
    /// is there already is not written, so that a coarse clock keeps the line unshared.
    #[inline]
    pub fn touch(&self, connection: SlotRef, deadline: u64) -> bool {
        let values = self.slots.values(connection);
        let Some(word) = values.and_then(|values| values.get(DEADLINE)) else {
            return false;
        };
        let deadline = deadline.min(NEVER);
        // Relaxed: the word is the whole state; who reads other words of the record checks the slot's word.
        let mut seen = word.load(Ordering::Relaxed);
        while seen != EXPIRED && seen != deadline {
            match word.compare_exchange_weak(seen, deadline, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        seen != EXPIRED
    }

    /// Inserts a connection with `value` (zeros where it ends), whose first word is the deadline. Of several
    /// that insert one original key, one wins; of several with one reply key, one wins. A connection that
    /// expired is in nobody's way.
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
                        self.clear_away(worker, found);
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
            let words = core::iter::once(peer.map_or(0, SlotRef::to_word))
                .chain(value.first().map(|&deadline| deadline.min(NEVER)))
                .chain(value.iter().skip(1).copied());
            self.slots.write_claimed(&claim, words);
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

    /// Goes over a share of the slots and removes the connections whose deadline is at or before `now`;
    /// returns how many records went. See [`expire`](Self::expire).
    pub fn expire_until(&self, worker: &mut SlotWorker, slots: Range<usize>, now: u64) -> usize {
        self.expire(worker, slots, |_, values| {
            values
                .first()
                .is_some_and(|deadline| deadline.load(Ordering::Relaxed) <= now)
        })
    }

    /// Goes over a share of the slots and removes the connections that `expired` says (by the caller's
    /// words), and what a killed process left; returns how many records went. A connection that a packet
    /// refreshes by [`touch`](Self::touch) while `expired` looks at it stays; one whose expiry was decided
    /// first is not refreshed any more.
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
                removed += usize::from(self.clear_away(worker, found));
                continue;
            }
            // Before the caller's look: a refresh after this load makes the swap below fail.
            let seen = values
                .get(DEADLINE)
                .map(|word| word.load(Ordering::Relaxed));
            let decided = seen == Some(EXPIRED)
                || expired(found, &values[DEADLINE..]) && Self::decide(values, seen);
            if decided && self.remove(worker, found) {
                removed += 1 + usize::from(peer != 0);
            }
        }
        removed
    }

    /// Ends one connection whose deadline was `judged` to have come, unless it was refreshed since; true for the
    /// one who removed it: for callers that give back what the connection held.
    pub fn expire_one(&self, worker: &mut SlotWorker, connection: SlotRef, judged: u64) -> bool {
        let Some(values) = self.slots.values(connection) else {
            return false;
        };
        (judged == EXPIRED || Self::decide(values, Some(judged))) && self.remove(worker, connection)
    }

    /// Marks a connection expired unless its deadline moved since it was `seen`.
    fn decide(values: &[AtomicU64], seen: Option<u64>) -> bool {
        let Some((word, seen)) = values.get(DEADLINE).zip(seen) else {
            // Keys of one word have no room for a deadline.
            return true;
        };
        // Relaxed: as in `touch`.
        word.compare_exchange(seen, EXPIRED, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
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
                    if !self.clear_away(worker, found) {
                        return Err(FlowError::ReplyTaken);
                    }
                }
            }
        }
    }

    #[inline]
    fn resolve(&self, record: SlotRef) -> Option<Flow> {
        let word = self.slots.values(record)?[0].load(Ordering::Relaxed);
        let (connection, direction) = if word & IS_REPLY == 0 {
            (record, Direction::Original)
        } else {
            // The word is this record's if the record is still there.
            let original = self.slots.is_still(record).then(|| unpack(word))??;
            (original, Direction::Reply)
        };
        self.is_valid(connection).then_some(Flow {
            connection,
            direction,
        })
    }

    /// True while a connection is there and has not expired.
    #[inline]
    fn is_valid(&self, connection: SlotRef) -> bool {
        let Some(values) = self.slots.values(connection) else {
            return false;
        };
        let deadline = values.get(DEADLINE);
        let expired = deadline.is_some_and(|word| word.load(Ordering::Relaxed) == EXPIRED);
        !expired && self.slots.is_still(connection)
    }

    /// Removes a record that belongs to no connection any more: one that expired, or a reply record whose
    /// connection is gone for good or expired. False if it is not such a one.
    fn clear_away(&self, worker: &mut SlotWorker, record: SlotRef) -> bool {
        let Some(values) = self.slots.values(record) else {
            // Gone meanwhile: as good as removed.
            return true;
        };
        let word = values[0].load(Ordering::Relaxed);
        if word & IS_REPLY == 0 {
            return self.has_expired(record) && {
                self.remove(worker, record);
                true
            };
        }
        let is_orphan = unpack(word)
            .is_none_or(|original| self.slots.is_gone(original) || self.has_expired(original));
        is_orphan && {
            self.slots.remove_ref(worker, record);
            true
        }
    }

    /// True if a connection expired and is still to be removed.
    fn has_expired(&self, connection: SlotRef) -> bool {
        let deadline = self
            .slots
            .values(connection)
            .and_then(|values| values.get(DEADLINE));
        deadline.is_some_and(|word| word.load(Ordering::Relaxed) == EXPIRED)
            && self.slots.is_still(connection)
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
        (self.copy(found, value) && self.0.is_valid(found)).then_some(key)
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
