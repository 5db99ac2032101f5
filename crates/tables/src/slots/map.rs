//! The map that threads and processes share.

use super::word::{State, Word};
use super::worker::SlotWorker;
use crate::memory::{Memory, Pages, Plain, Source, begins_with, prefetch};
use crate::quiescent::{Domain, Epoch};
use crate::signature::{Keyed, Session4, Session6, SessionKey};
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use alloc::format;
use alloc::vec::Vec;
use core::fmt::Debug;

/// Slots in a bucket: their words fill a cache line.
#[cfg(not(loom))]
const WAYS: usize = 8;
/// A small bucket keeps loom's search small.
#[cfg(loom)]
const WAYS: usize = 2;
/// Keys that a batched find keeps in flight.
const STAGE: usize = 32;
/// Words of a value at most.
pub(crate) const VALUE_WORDS_MAX: usize = 16;

/// A bucket's words: one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub struct SlotLine([AtomicU64; WAYS]);

// SAFETY: an array of atomic integers that fills its alignment: every pattern of bits is valid.
unsafe impl Plain for SlotLine {
    fn zeroed() -> Self {
        Self(Plain::zeroed())
    }
}

/// What a [`SlotMap`] can be keyed by.
pub trait SlotKey: Copy + Eq + Debug + Send + Sync + 'static {
    /// The key as words.
    type Words: Copy + AsRef<[u64]>;
    /// The record: the key's words, then the value's.
    type Record: Plain + Debug + AsRef<[AtomicU64]>;

    /// Returns the key as words.
    fn words(&self) -> Self::Words;
    /// Makes a key from its words.
    fn from_key_words(words: &[u64]) -> Option<Self>;
}

macro_rules! slot_key_of_session {
    ($session:ty) => {
        impl SlotKey for $session {
            type Words = <Self as SessionKey>::Words;
            type Record = <Self as SessionKey>::Record;

            #[inline(always)]
            fn words(&self) -> Self::Words {
                self.to_words()
            }
            fn from_key_words(words: &[u64]) -> Option<Self> {
                Self::from_words(words)
            }
        }
    };
}
slot_key_of_session!(Session4);
slot_key_of_session!(Session6);

/// One word, such as an address or a port: a record of 16 bytes with one word of value.
impl SlotKey for u64 {
    type Words = [u64; 1];
    type Record = [AtomicU64; 2];

    #[inline(always)]
    fn words(&self) -> [u64; 1] {
        [*self]
    }
    fn from_key_words(words: &[u64]) -> Option<Self> {
        words.first().copied()
    }
}

/// Names one record: its slot and the generation of it. Never names another one later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotRef {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl SlotRef {
    /// Returns the slot's number.
    pub fn slot(self) -> usize {
        self.slot as usize
    }

    /// Packs the reference into a word that is not zero, for a record that points at another.
    pub fn to_word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot + 1)
    }

    /// Unpacks what [`to_word`](Self::to_word) packed.
    pub fn from_word(word: u64) -> Option<Self> {
        let slot = (word as u32).checked_sub(1)?;
        Some(Self {
            slot,
            generation: (word >> 32) as u32,
        })
    }
}

/// Why a record was not inserted; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InsertError {
    /// The key has a record, this one.
    #[error("key has a record already")]
    Exists(SlotRef),
    /// Both buckets of the key are full (of slots that wait for their grace period, perhaps).
    #[error("no free slot in both buckets of the key; make the map larger or expire sooner")]
    Full,
}

/// The memory of a map: zeroed when new; from a segment when processes share it.
#[derive(Debug)]
pub struct SlotMemory<K: SlotKey> {
    /// The buckets.
    pub lines: Memory<SlotLine>,
    /// Eight records a bucket.
    pub records: Memory<K::Record>,
}

impl<K: SlotKey> SlotMemory<K> {
    /// Number of buckets for `records` at a load of 0.625: a million keys are first refused at 0.72, so
    /// that the rest is for removed records that wait for their grace period.
    pub fn buckets_for(records: usize) -> usize {
        (records.saturating_mul(8) / 5).div_ceil(WAYS).max(1)
    }

    /// Number of records of `buckets`.
    pub fn records_in(buckets: usize) -> usize {
        buckets * WAYS
    }

    /// Bytes that a map for about `records` records takes of a segment.
    pub fn segment_bytes(records: usize) -> usize {
        let buckets = Self::buckets_for(records);
        let lines = buckets * size_of::<SlotLine>();
        let records = Self::records_in(buckets) * size_of::<K::Record>();
        lines.next_multiple_of(4096) + records.next_multiple_of(4096)
    }

    /// Takes memory for about `records` records from a source, under `name` and a suffix.
    ///
    /// # Errors
    /// As [`Source::take`].
    pub fn from_source<S: Source>(
        source: &mut S,
        name: &str,
        records: usize,
    ) -> Result<Self, S::Error> {
        let buckets = Self::buckets_for(records);
        Ok(Self {
            lines: source.take(&format!("{name} lines"), buckets)?,
            records: source.take(&format!("{name} records"), Self::records_in(buckets))?,
        })
    }

    /// Takes memory for about `records` records (load 0.625).
    pub fn new(records: usize, pages: Pages) -> Self {
        let buckets = Self::buckets_for(records);
        Self {
            lines: Memory::zeroed(buckets, pages),
            records: Memory::zeroed(Self::records_in(buckets), pages),
        }
    }
}

/// What [`SlotMap::recover`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotRepairs {
    /// Live records: all kept.
    pub live: usize,
    /// Slots of inserts that were not finished; freed.
    pub unfinished: usize,
    /// Removed records whose grace period nobody waits for any more; freed.
    pub dead: usize,
    /// Slots whose word is no state, or whose record is not one of their bucket; freed.
    pub torn: usize,
}

/// Slots that were neither free nor live at some moment; see [`SlotMap::find_leaks`].
#[derive(Debug)]
pub struct Leaks {
    seen: Vec<(u32, Word)>,
    epoch: Epoch,
}

/// What a key's lookup needs.
#[derive(Clone, Copy, Default)]
struct Place {
    buckets: [u32; 2],
    tag: u32,
}

impl Place {
    /// The slot of the lowest bit of what [`SlotMap::matches`] gave.
    #[inline(always)]
    fn slot_of(self, matches: u32) -> Option<u32> {
        let bit = matches.trailing_zeros();
        let ways = WAYS as u32;
        (matches != 0).then(|| self.buckets[(bit / ways) as usize % 2] * ways + bit % ways)
    }
}

/// A map from keys to records of words, shared by threads or processes.
#[derive(Debug)]
pub struct SlotMap<K: SlotKey> {
    lines: Memory<SlotLine>,
    records: Memory<K::Record>,
    hash: Keyed,
    domain: Domain,
    /// What a freed slot's generation goes up by: 1, but 0 in the model of what goes wrong then.
    #[cfg(any(loom, shuttle))]
    generation_step: u32,
}

impl<K: SlotKey> SlotMap<K> {
    pub(crate) const KEY_WORDS: usize = size_of::<K::Words>() / size_of::<u64>();

    /// Makes an empty map for about `records` records (it has 1.6 times as many slots); asks for huge pages.
    /// Workers report their quiescent states to `domain`.
    pub fn new(records: usize, hash: Keyed, domain: Domain) -> Self {
        Self::with_memory(SlotMemory::new(records, Pages::Huge), hash, domain)
    }

    /// Makes a map of zeroed `memory`, or attaches to one that others use. `hash` and `domain` are the
    /// same for all who share it.
    ///
    /// # Panics
    /// If there are not eight records a bucket, no bucket, or more than 2^27 buckets.
    pub fn with_memory(memory: SlotMemory<K>, hash: Keyed, domain: Domain) -> Self {
        let buckets = memory.lines.len();
        assert!(
            buckets > 0 && buckets <= 1 << 27 && memory.records.len() == buckets * WAYS,
            "slot memory of another shape"
        );
        Self {
            lines: memory.lines,
            records: memory.records,
            hash,
            domain,
            #[cfg(any(loom, shuttle))]
            generation_step: 1,
        }
    }

    /// The variant without generations, which the models show to fail (LF-7).
    #[cfg(any(loom, shuttle))]
    #[must_use]
    pub fn without_generations(mut self) -> Self {
        self.generation_step = 0;
        self
    }

    /// Takes over a map that no process uses any more: keeps every live record, frees what was half
    /// inserted or removed. An insert is committed when it returned; one that did not goes either way.
    pub fn recover(memory: SlotMemory<K>, hash: Keyed, domain: Domain) -> (Self, SlotRepairs) {
        let map = Self::with_memory(memory, hash, domain);
        let mut repairs = SlotRepairs::default();
        for slot in 0..map.slots() as u32 {
            let word = map.load(slot);
            let belongs = || {
                let place = map.key_at(slot).map(|key| map.place(&key));
                place.is_some_and(|place| {
                    place.tag == word.tag() && place.buckets.contains(&(slot / WAYS as u32))
                })
            };
            match word.state() {
                Some(State::Free) => continue,
                Some(State::Live) if belongs() => {
                    repairs.live += 1;
                    continue;
                }
                Some(State::Claimed | State::Tentative | State::Aborted) => repairs.unfinished += 1,
                Some(State::Dead) => repairs.dead += 1,
                Some(State::Live) | None => repairs.torn += 1,
            }
            map.swap(slot, word, word.freed(1));
        }
        (map, repairs)
    }

    /// Takes over the memory of a map that no process uses any more, and forgets all records: for what is
    /// made anew from other tables.
    pub fn cleared(memory: SlotMemory<K>, hash: Keyed, domain: Domain) -> Self {
        let map = Self::with_memory(memory, hash, domain);
        for slot in 0..map.slots() as u32 {
            let word = map.load(slot);
            if !word.is(State::Free) {
                map.swap(slot, word, word.freed(1));
            }
        }
        map
    }

    /// Joins as a worker, or `None` if the domain has no free place.
    pub fn join(&self) -> Option<SlotWorker> {
        SlotWorker::join(&self.domain, 1024)
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.records.len()
    }

    /// Counts the live records: a pass over the map.
    pub fn count(&self) -> usize {
        (0..self.slots() as u32)
            .filter(|&slot| self.load(slot).is(State::Live))
            .count()
    }

    /// Finds the record of a key.
    #[inline]
    pub fn find(&self, key: &K) -> Option<SlotRef> {
        self.find_at(self.place(key), &key.words())
    }

    /// Finds `keys` with their memory accesses overlapped and writes what [`find`](Self::find) would give
    /// to the same place of `found`. Stops at the shorter of the two.
    pub fn find_batch(&self, keys: &[K], found: &mut [Option<SlotRef>]) {
        for (keys, found) in keys.chunks(STAGE).zip(found.chunks_mut(STAGE)) {
            let mut places = [Place::default(); STAGE];
            for (place, key) in places.iter_mut().zip(keys) {
                *place = self.place(key);
                for bucket in place.buckets {
                    prefetch(&self.lines[bucket as usize]);
                }
            }
            let mut matches = [0; STAGE];
            for ((matches, place), _) in matches.iter_mut().zip(&places).zip(keys) {
                *matches = self.matches(*place);
                if let Some(slot) = place.slot_of(*matches) {
                    prefetch(&self.records[slot as usize]);
                }
            }
            let places = places.iter().zip(&matches);
            for ((found, (place, &matches)), key) in found.iter_mut().zip(places).zip(keys) {
                *found = self.check(*place, matches, &key.words());
            }
        }
    }

    /// Copies the value of a key's record, as it was at one moment, into `value` (as many words as it
    /// takes), if the key has a record.
    pub fn read(&self, key: &K, value: &mut [u64]) -> Option<SlotRef> {
        loop {
            let found = self.find(key)?;
            if self.read_ref(found, value) {
                return Some(found);
            }
            // Removed meanwhile: perhaps inserted again.
        }
    }

    /// Copies the value of a record unless it is gone. Words that others change in place are each of some
    /// moment.
    pub fn read_ref(&self, wanted: SlotRef, value: &mut [u64]) -> bool {
        let Some(values) = self.values(wanted) else {
            return false;
        };
        for (to, from) in value.iter_mut().zip(values) {
            *to = from.load(Ordering::Relaxed);
        }
        self.is_still(wanted)
    }

    /// The value words of a record, for changes in place, unless it is gone. Good until the caller's
    /// worker reports a quiescent state; a change after another worker's removal is lost.
    #[inline]
    pub fn values(&self, wanted: SlotRef) -> Option<&[AtomicU64]> {
        let word = self.load_checked(wanted.slot)?;
        (word.is(State::Live) && word.generation() == wanted.generation)
            .then(|| &self.record(wanted.slot)[Self::KEY_WORDS..])
    }

    /// The key of a record, unless it is gone.
    pub fn key(&self, wanted: SlotRef) -> Option<K> {
        self.values(wanted)?;
        let key = self.key_at(wanted.slot)?;
        self.is_still(wanted).then_some(key)
    }

    /// Inserts a record with `value` (zeros where it ends). Of several that insert one key, one wins.
    ///
    /// # Errors
    /// If the key has a record, or its buckets are full.
    pub fn insert(
        &self,
        worker: &mut SlotWorker,
        key: &K,
        value: &[u64],
    ) -> Result<SlotRef, InsertError> {
        loop {
            let claim = self.claim(key, value)?;
            match self.settle(worker, claim) {
                Settled::Won(ours) => return Ok(ours),
                Settled::Lost(winner) => return Err(InsertError::Exists(winner)),
                Settled::Again => {}
            }
        }
    }

    /// First half of an insert: claims a slot and writes the record, which nobody sees yet.
    pub(crate) fn claim(&self, key: &K, value: &[u64]) -> Result<Claim, InsertError> {
        let place = self.place(key);
        let words = key.words();
        if let Some(found) = self.find_at(place, &words) {
            return Err(InsertError::Exists(found));
        }
        let slot = self.claim_slot(place).ok_or(InsertError::Full)?;
        let record = self.record(slot);
        // Relaxed: published by the release swap to tentative.
        for (word, &value) in record.iter().zip(words.as_ref()) {
            word.store(value, Ordering::Relaxed);
        }
        for (at, word) in record[Self::KEY_WORDS..].iter().enumerate() {
            word.store(value.get(at).copied().unwrap_or(0), Ordering::Relaxed);
        }
        Ok(Claim {
            slot,
            word: self.load(slot),
            place,
        })
    }

    /// Second half of an insert: publishes the record as tentative and settles which one is the key's.
    pub(crate) fn settle(&self, worker: &mut SlotWorker, claim: Claim) -> Settled {
        let Claim { slot, word, place } = claim;
        // A claimed slot is its claimer's: nobody else changes the word.
        let tentative = word.to(State::Tentative);
        self.swap(slot, word, tentative);
        let mut key = [0; VALUE_WORDS_MAX];
        for (to, from) in key.iter_mut().zip(&self.record(slot)[..Self::KEY_WORDS]) {
            *to = from.load(Ordering::Relaxed);
        }
        let settled = self.settle_key(place, &key[..Self::KEY_WORDS], (slot, tentative));
        match settled {
            Settled::Won(_) => settled,
            Settled::Lost(_) | Settled::Again => {
                let aborted = tentative.to(State::Aborted);
                // In this order: a rival may abort ours at any moment until we do.
                if self.swap(slot, tentative, aborted) || self.load(slot) == aborted {
                    self.retire(worker, slot, aborted);
                    settled
                } else {
                    // The winner that we saw was removed, and somebody made ours live before we aborted
                    // it: it is the key's record, or was.
                    Settled::Won(reference(slot, tentative))
                }
            }
        }
    }

    /// Writes the value words of a record that was claimed but not published.
    pub(crate) fn write_claimed(&self, claim: &Claim, value: impl Iterator<Item = u64>) {
        for (word, value) in self.record(claim.slot)[Self::KEY_WORDS..].iter().zip(value) {
            // Relaxed: published by the release swap to tentative.
            word.store(value, Ordering::Relaxed);
        }
    }

    /// The live record in a slot: its reference and value words, as [`values`](Self::values) gives them.
    pub fn live_at(&self, slot: usize) -> Option<(SlotRef, &[AtomicU64])> {
        let slot = slot as u32;
        let word = self.load_checked(slot)?;
        word.is(State::Live)
            .then(|| (reference(slot, word), &self.record(slot)[Self::KEY_WORDS..]))
    }

    /// True if the record will never be live (again): not even if its insert still goes on.
    pub(crate) fn is_gone(&self, wanted: SlotRef) -> bool {
        self.load_checked(wanted.slot).is_none_or(|word| {
            let passing = [State::Claimed, State::Tentative, State::Live];
            word.generation() != wanted.generation || !passing.iter().any(|&state| word.is(state))
        })
    }

    /// Asks for the cache lines that tell where a key's record is: the first step of a lookup or an insert to come.
    #[inline]
    pub fn prefetch_key(&self, key: &K) {
        for bucket in self.place(key).buckets {
            prefetch(&self.lines[bucket as usize]);
        }
    }

    /// Asks for the record of a key, or for the one that an insert would write: the second step, once the lines of
    /// [`prefetch_key`](Self::prefetch_key) have come.
    #[inline]
    pub fn prefetch_record(&self, key: &K) {
        let place = self.place(key);
        let known = place.slot_of(self.matches(place));
        if let Some(slot) = known.or_else(|| self.free_slots(place).next()) {
            prefetch(&self.records[slot as usize]);
        }
    }

    pub(crate) fn prefetch(&self, wanted: SlotRef) {
        if (wanted.slot as usize) < self.slots() {
            prefetch(&self.lines[wanted.slot as usize / WAYS]);
            prefetch(&self.records[wanted.slot as usize]);
        }
    }

    /// Gives back a claimed slot whose record was never published.
    pub(crate) fn abandon(&self, claim: Claim) {
        self.swap(claim.slot, claim.word, self.freed(claim.word));
    }

    /// Removes the record of a key and returns which it was; of several that remove it, one wins.
    pub fn remove(&self, worker: &mut SlotWorker, key: &K) -> Option<SlotRef> {
        loop {
            let found = self.find(key)?;
            if self.remove_ref(worker, found) {
                return Some(found);
            }
        }
    }

    /// Removes a record unless it is gone; true for the one who removed it.
    pub fn remove_ref(&self, worker: &mut SlotWorker, wanted: SlotRef) -> bool {
        let Some(word) = self.load_checked(wanted.slot) else {
            return false;
        };
        let is_it = word.is(State::Live) && word.generation() == wanted.generation;
        if !is_it || !self.swap(wanted.slot, word, word.to(State::Dead)) {
            return false;
        }
        self.retire(worker, wanted.slot, word.to(State::Dead));
        true
    }

    /// Goes over `slots` and removes the live records that `expired` says (by their value words); returns
    /// how many. A worker calls this with a share of the slots a loop.
    pub fn sweep(
        &self,
        worker: &mut SlotWorker,
        slots: core::ops::Range<usize>,
        mut expired: impl FnMut(SlotRef, &[AtomicU64]) -> bool,
    ) -> usize {
        let mut removed = 0;
        for slot in slots.start..slots.end.min(self.slots()) {
            let slot = slot as u32;
            let word = self.load(slot);
            if !word.is(State::Live) {
                continue;
            }
            let found = reference(slot, word);
            if expired(found, &self.record(slot)[Self::KEY_WORDS..]) {
                removed += usize::from(self.remove_ref(worker, found));
            }
        }
        removed
    }

    /// Frees the slots that `worker` removed from this map and whose grace period has passed.
    pub fn reclaim(&self, worker: &mut SlotWorker) {
        while let Some((slot, word)) = worker.pop_retired() {
            // Fails if a scavenger was faster.
            self.swap(slot, word, self.freed(word));
        }
    }

    /// First half of a search for slots that a killed process left claimed, tentative or dead: notes them
    /// and begins a grace period. For a supervisor, after [`Domain::evict`].
    pub fn find_leaks(&self) -> Leaks {
        let seen = (0..self.slots() as u32)
            .map(|slot| (slot, self.load(slot)))
            .filter(|(_, word)| !word.is(State::Free) && !word.is(State::Live))
            .collect();
        Leaks {
            seen,
            epoch: self.domain.begin(),
        }
    }

    /// Second half: once the grace period has passed, an insert that was going on has ended; slots that
    /// did not change are leaked, and freed. Returns how many, or the leaks while it is too early.
    ///
    /// # Errors
    /// Gives the leaks back if the grace period has not passed.
    pub fn free_leaks(&self, leaks: Leaks) -> Result<usize, Leaks> {
        if !self.domain.has_passed(leaks.epoch) {
            return Err(leaks);
        }
        let freed = leaks
            .seen
            .iter()
            .filter(|&&(slot, word)| self.swap(slot, word, self.freed(word)));
        Ok(freed.count())
    }

    /// Settles which record of a key is live; `ours` is tentative when this begins.
    fn settle_key(&self, place: Place, key: &[u64], ours: (u32, Word)) -> Settled {
        let outcome = |(slot, word): (u32, Word)| {
            if slot == ours.0 && word.generation() == ours.1.generation() {
                Settled::Won(reference(slot, word))
            } else {
                Settled::Lost(reference(slot, word))
            }
        };
        let mut target = ours;
        loop {
            // SeqCst fence: pairs with itself in other inserts. The target was tentative before our scan;
            // if the scan misses another tentative record, the scan that would make that one live begins
            // after its own fence, and sees the target.
            fence(Ordering::SeqCst);
            match self.scan(place, key, target) {
                Scan::Live(slot, word) => return outcome((slot, word)),
                Scan::Lower(slot, word) => {
                    target = (slot, word);
                    continue;
                }
                Scan::Changed => {}
                Scan::Clear => {
                    if self.swap(target.0, target.1, target.1.to(State::Live)) {
                        return outcome(target);
                    }
                }
            }
            let now = self.load(target.0);
            if now == target.1 {
                continue;
            }
            if now != target.1.to(State::Aborted) {
                // Somebody made it live (and perhaps removed it since): it was the key's record.
                return outcome(target);
            }
            match self.rivals(place, key).next() {
                Some((slot, word)) if word.is(State::Live) => return outcome((slot, word)),
                Some(rival) => target = rival,
                // All are gone: whoever won over ours had lost to a record that was removed before.
                None => return Settled::Again,
            }
        }
    }

    /// Looks for what keeps `target` from being made live, and aborts tentative records after it.
    fn scan(&self, place: Place, key: &[u64], target: (u32, Word)) -> Scan {
        for (slot, word) in self.rivals(place, key) {
            if word.is(State::Live) {
                return Scan::Live(slot, word);
            }
            if slot < target.0 {
                return Scan::Lower(slot, word);
            }
            if slot > target.0 && !self.swap(slot, word, word.to(State::Aborted)) {
                return Scan::Changed;
            }
        }
        Scan::Clear
    }

    /// Live and tentative records of a key, lowest slot first.
    fn rivals(&self, place: Place, key: &[u64]) -> impl Iterator<Item = (u32, Word)> {
        let mut buckets = place.buckets;
        buckets.sort_unstable();
        let second = (buckets[0] != buckets[1]).then_some(buckets[1]);
        [buckets[0]]
            .into_iter()
            .chain(second)
            .flat_map(|bucket| (bucket * WAYS as u32..).take(WAYS))
            .map(|slot| (slot, self.load(slot)))
            .filter(move |&(slot, word)| {
                word.tag() == place.tag
                    && (word.is(State::Live) || word.is(State::Tentative))
                    && self.key_is(slot, key)
                    && self.load(slot).generation() == word.generation()
            })
    }

    fn retire(&self, worker: &mut SlotWorker, slot: u32, word: Word) {
        worker.retire(slot, word, self.domain.begin());
    }

    /// Slots of a key's buckets that are free now, those of the emptier one first.
    fn free_slots(&self, place: Place) -> impl Iterator<Item = u32> {
        let free_in = |bucket: u32| {
            (bucket * WAYS as u32..)
                .take(WAYS)
                .filter(|&slot| self.load(slot).is(State::Free))
                .count()
        };
        let [first, second] = place.buckets;
        let order = if free_in(second) > free_in(first) {
            [second, first]
        } else {
            [first, second]
        };
        order
            .into_iter()
            .flat_map(|bucket| (bucket * WAYS as u32..).take(WAYS))
            .filter(|&slot| self.load(slot).is(State::Free))
    }

    fn claim_slot(&self, place: Place) -> Option<u32> {
        for slot in self.free_slots(place) {
            let word = self.load(slot);
            if word.is(State::Free) && self.swap(slot, word, word.claimed(place.tag)) {
                // Release fence: pairs with the acquire fence in `is_still`: a reader that sees any
                // of the record's new words sees the claim as well.
                fence(Ordering::Release);
                return Some(slot);
            }
        }
        None
    }

    #[inline]
    fn find_at(&self, place: Place, key: &K::Words) -> Option<SlotRef> {
        self.check(place, self.matches(place), key)
    }

    /// The record of a key among the slots of `matches`.
    #[inline(always)]
    fn check(&self, place: Place, mut matches: u32, key: &K::Words) -> Option<SlotRef> {
        while let Some(slot) = place.slot_of(matches) {
            let word = self.load(slot);
            if word.is_live_with(place.tag) && begins_with(self.record(slot), key.as_ref()) {
                let found = reference(slot, word);
                if self.is_still(found) {
                    return Some(found);
                }
            }
            matches &= matches - 1;
        }
        None
    }

    /// Slots of both buckets whose word tells a live record of the tag: a bit each, the first bucket's lowest.
    #[inline(always)]
    fn matches(&self, place: Place) -> u32 {
        let [first, second] = place.buckets;
        let wanted = Word::live_with(place.tag);
        let in_line = |bucket: u32| {
            let line = &self.lines[bucket as usize].0;
            let mut matches = 0;
            for (way, word) in line.iter().enumerate() {
                // Relaxed: a hint; `check` loads again.
                matches |= u32::from(word.load(Ordering::Relaxed) as u32 == wanted) << way;
            }
            matches
        };
        in_line(first) | in_line(second) << WAYS
    }

    /// True if the record is still the live one it was: what was read before belongs to it.
    #[inline]
    pub(crate) fn is_still(&self, wanted: SlotRef) -> bool {
        // Acquire fence: pairs with the release fence in `claim_slot`.
        fence(Ordering::Acquire);
        let word = Word(self.word(wanted.slot).load(Ordering::Relaxed));
        word.is(State::Live) && word.generation() == wanted.generation
    }

    #[inline]
    fn key_is(&self, slot: u32, key: &[u64]) -> bool {
        begins_with(self.record(slot), key)
    }

    fn key_at(&self, slot: u32) -> Option<K> {
        let mut words = [0; VALUE_WORDS_MAX];
        for (to, from) in words.iter_mut().zip(&self.record(slot)[..Self::KEY_WORDS]) {
            *to = from.load(Ordering::Relaxed);
        }
        K::from_key_words(&words[..Self::KEY_WORDS])
    }

    #[inline(always)]
    fn place(&self, key: &K) -> Place {
        let hash = self.hash.hash_words(key.words().as_ref());
        let buckets = self.lines.len() as u64;
        let second = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hash >> 29;
        let spread = |bits: u64| (((bits >> 32) * buckets) >> 32) as u32;
        Place {
            buckets: [
                spread(hash),
                spread(second.wrapping_mul(0xd6e8_feb8_6659_fd93)),
            ],
            tag: Word::tag_of(hash),
        }
    }

    #[inline(always)]
    fn record(&self, slot: u32) -> &[AtomicU64] {
        self.records[slot as usize].as_ref()
    }

    #[inline(always)]
    fn word(&self, slot: u32) -> &AtomicU64 {
        &self.lines[slot as usize / WAYS].0[slot as usize % WAYS]
    }

    #[inline(always)]
    fn load(&self, slot: u32) -> Word {
        // Acquire: pairs with the release half of `swap`: a record that is tentative or live is complete.
        Word(self.word(slot).load(Ordering::Acquire))
    }

    fn load_checked(&self, slot: u32) -> Option<Word> {
        ((slot as usize) < self.slots()).then(|| self.load(slot))
    }

    fn swap(&self, slot: u32, from: Word, to: Word) -> bool {
        // AcqRel: the release half pairs with the acquire load in `load`; the acquire half with the release
        // half of the swap before.
        self.word(slot)
            .compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    fn freed(&self, word: Word) -> Word {
        #[cfg(any(loom, shuttle))]
        return word.freed(self.generation_step);
        #[cfg(not(any(loom, shuttle)))]
        word.freed(1)
    }
}

/// How an insert ended.
#[derive(Debug)]
pub(crate) enum Settled {
    /// The record is (or was, until somebody removed it) the key's.
    Won(SlotRef),
    /// Another record is, or was during the insert.
    Lost(SlotRef),
    /// Neither: insert again.
    Again,
}

/// What a scan for rivals found.
enum Scan {
    Live(u32, Word),
    Lower(u32, Word),
    Changed,
    Clear,
}

fn reference(slot: u32, word: Word) -> SlotRef {
    SlotRef {
        slot,
        generation: word.generation(),
    }
}

/// A claimed slot whose record is written.
#[derive(Debug)]
pub(crate) struct Claim {
    slot: u32,
    word: Word,
    place: Place,
}

impl Claim {
    pub(crate) fn reference(&self) -> SlotRef {
        SlotRef {
            slot: self.slot,
            generation: self.word.generation(),
        }
    }
}

impl core::fmt::Debug for Place {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?} tag {:#x}", self.buckets, self.tag)
    }
}
