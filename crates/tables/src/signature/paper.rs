//! The paper's layout (TL-2 to TL-5): one bucket a session, whole 32-bit signatures, a conflict list a
//! bucket. Kept as the thing to compare with.

use super::bucket::{Bucket, LANES};
use super::conflict::ConflictList;
use super::functions::{KeyHash, SignatureFunction};
use super::key::SessionKey;
use super::records::{Place, Records};
use super::table::{AddError, Probes};
use crate::memory::{Memory, Pages, prefetch};
use crate::sync::atomic::AtomicU64;

const STAGE: usize = 32;

/// Sessions by signature as the paper has it. The interface is that of
/// [`SignatureTable`](super::SignatureTable).
#[derive(Debug)]
pub struct PaperTable<K: SessionKey, F> {
    function: F,
    buckets: Memory<Bucket>,
    records: Records<K>,
    conflicts: ConflictList,
    sessions: usize,
}

impl<K: SessionKey, F: SignatureFunction> PaperTable<K, F> {
    /// Makes an empty table of `buckets` with a pool of `pool` records for conflicts.
    pub fn new(buckets: u32, pool: u32, function: F, pages: Pages) -> Self {
        let buckets = buckets.clamp(1, u32::MAX / 32) as usize;
        let pool = pool as usize;
        Self {
            function,
            buckets: Memory::zeroed(buckets, pages),
            records: Records(Memory::zeroed(buckets * LANES + pool, pages)),
            conflicts: ConflictList::new(
                Memory::heap(ConflictList::heads_len(pool)),
                Memory::heap(pool),
            ),
            sessions: 0,
        }
    }

    /// Number of sessions.
    pub fn len(&self) -> usize {
        self.sessions
    }

    /// True without sessions.
    pub fn is_empty(&self) -> bool {
        self.sessions == 0
    }

    /// Number of sessions in the conflict list.
    pub fn conflicts(&self) -> usize {
        self.conflicts.len()
    }

    /// The caller's words of the record at `place`.
    pub fn hot(&self, place: Place) -> &[AtomicU64] {
        self.records.hot(place.index())
    }

    /// Finds a session.
    #[inline]
    pub fn find(&self, key: &K) -> Option<Place> {
        self.find_counted(key).0
    }

    /// Finds a session and counts what was touched.
    #[inline]
    pub fn find_counted(&self, key: &K) -> (Option<Place>, Probes) {
        let (bucket, signature) = self.home(key);
        let equal = self.buckets[bucket].compare(signature, u32::MAX);
        let mut probes = Probes {
            buckets: 1,
            records: 0,
        };
        let words = key.to_words();
        let place = self.check(bucket, signature, equal, &words, &mut probes.records);
        (place, probes)
    }

    /// Finds `keys` with their memory accesses overlapped. Stops at the shorter of the two.
    pub fn find_batch(&self, keys: &[K], places: &mut [Option<Place>]) {
        for (keys, places) in keys.chunks(STAGE).zip(places.chunks_mut(STAGE)) {
            let mut homes = [(0_usize, 0_u32, 0_u16); STAGE];
            for (home, key) in homes.iter_mut().zip(keys) {
                let (bucket, signature) = self.home(key);
                *home = (bucket, signature, 0);
                prefetch(&self.buckets[bucket]);
            }
            for (home, _) in homes.iter_mut().zip(keys) {
                home.2 = self.buckets[home.0].compare(home.1, u32::MAX);
                if home.2 != 0 {
                    let lane = home.2.trailing_zeros() as usize;
                    self.records.prefetch(home.0 * LANES + lane);
                }
            }
            for ((place, &(bucket, signature, equal)), key) in
                places.iter_mut().zip(&homes).zip(keys)
            {
                *place = self.check(bucket, signature, equal, &key.to_words(), &mut 0);
            }
        }
    }

    /// Adds a session in the first empty slot of its bucket, or in the conflict list.
    ///
    /// # Errors
    /// If the session is there already, or bucket and pool are full.
    pub fn add(&mut self, key: &K) -> Result<Place, AddError> {
        if let Some(place) = self.find(key) {
            return Err(AddError::Exists(place));
        }
        let (bucket, signature) = self.home(key);
        let free = self.buckets[bucket].compare(0, u32::MAX);
        let index = if free != 0 {
            bucket * LANES + free.trailing_zeros() as usize
        } else {
            let entry = self.conflicts.add(bucket as u32, signature);
            self.buckets.len() * LANES + entry.ok_or(AddError::Full)?
        };
        self.records.commit(index, &key.to_words(), &[]);
        if free != 0 {
            self.buckets[bucket].set(index % LANES, signature);
        }
        self.sessions += 1;
        Ok(Place(index as u32))
    }

    /// Removes a session and returns the place that it had.
    pub fn remove(&mut self, key: &K) -> Option<Place> {
        let place = self.find(key)?;
        self.records.erase(place.index());
        match place.index().checked_sub(self.buckets.len() * LANES) {
            Some(entry) => self.conflicts.remove(self.home(key).0 as u32, entry),
            None => self.buckets[place.index() / LANES].set(place.index() % LANES, 0),
        }
        self.sessions -= 1;
        Some(place)
    }

    #[inline(always)]
    fn home(&self, key: &K) -> (usize, u32) {
        let KeyHash { bucket, signature } = self.function.hash(key);
        let bucket = (u64::from(bucket) * self.buckets.len() as u64) >> 32;
        (bucket as usize, signature.max(1))
    }

    #[inline(always)]
    fn check(
        &self,
        bucket: usize,
        signature: u32,
        mut equal: u16,
        words: &K::Words,
        records: &mut u32,
    ) -> Option<Place> {
        while equal != 0 {
            let index = bucket * LANES + equal.trailing_zeros() as usize;
            *records += 1;
            if self.records.matches(index, words) {
                return Some(Place(index as u32));
            }
            equal &= equal - 1;
        }
        for (entry, _) in self
            .conflicts
            .chain(bucket as u32)
            .filter(|&(_, listed)| listed == signature)
        {
            let index = self.buckets.len() * LANES + entry;
            *records += 1;
            if self.records.matches(index, words) {
                return Some(Place(index as u32));
            }
        }
        None
    }
}
