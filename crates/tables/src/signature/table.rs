//! The default signature table: two places a session, a filter that spares most misses the second, and
//! growth by splitting one bucket at a time.
//!
//! A lane's low 31 bits are the signature (zero: empty). The top bits of a bucket's 16 lanes are a filter:
//! bit `f` is set while a session whose primary bucket this is, and whose signature ends in `f`, lies
//! elsewhere. The second bucket is a function of primary bucket and `f` alone (of a few more signature bits
//! in tables that grow more than fourfold), so that a removal can tell whether the bit may be cleared.

use super::bucket::{Bucket, LANES};
use super::conflict::ConflictList;
use super::functions::SignatureFunction;
use super::key::SessionKey;
use super::records::{Place, Records};
use crate::memory::{Memory, Pages};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub(super) const TAG: u32 = u32::MAX >> 1;
pub(super) const FILTER: u32 = 1 << 31;
/// Sessions for each lane at which [`Shape::for_sessions`] sizes a table.
const DESIGN_LOAD: f64 = 0.82;
/// Sessions for each lane at which a table that may grow splits a bucket: lower than the design load, as
/// buckets that were not split yet are up to twice as full as the others.
pub(super) const GROWTH_LOAD: f64 = 0.62;

/// Sizes of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Buckets at start (16 sessions each at most).
    pub buckets: u32,
    /// Buckets that the table may grow to; memory for them is reserved, not filled.
    pub buckets_max: u32,
    /// Records for sessions that fit neither of their buckets.
    pub pool: u32,
    /// Sessions that a primary bucket takes before the emptier of two is chosen: more of them save misses
    /// a line, fewer save overflow.
    pub primary_fill: u32,
}

impl Shape {
    /// Sizes a table that does not grow for `sessions`: load 0.82, hence 4.9 index bytes a session.
    pub fn for_sessions(sessions: u32) -> Self {
        let lanes = f64::from(sessions) / DESIGN_LOAD;
        let buckets = ((lanes / LANES as f64) as u32 + 1).min(u32::MAX / 32);
        Self {
            buckets,
            buckets_max: buckets,
            pool: sessions / 2048 + 16,
            primary_fill: 13,
        }
    }

    /// Sizes a table for `sessions` that may grow to `sessions_max`: load 0.62 at most, hence 6.5 index
    /// bytes a session.
    pub fn growing(sessions: u32, sessions_max: u32) -> Self {
        let last = Self::for_sessions(sessions_max.max(sessions));
        let first = f64::from(Self::for_sessions(sessions).buckets);
        let stretch = DESIGN_LOAD / GROWTH_LOAD;
        Self {
            buckets: (first * stretch) as u32,
            buckets_max: (f64::from(last.buckets) * stretch) as u32,
            pool: sessions_max / 256 + 64,
            primary_fill: 10,
        }
    }

    /// Number of records: 16 a bucket, and the pool.
    pub fn records(&self) -> usize {
        self.buckets_max as usize * LANES + self.pool as usize
    }
}

/// The memory of a table: zeroed when new; from a segment when sessions are to outlive the process.
#[derive(Debug)]
pub struct TableMemory<K: SessionKey> {
    /// One word: the number of buckets in use (zero: new).
    pub header: Memory<AtomicU64>,
    /// `buckets_max` buckets.
    pub buckets: Memory<Bucket>,
    /// `Shape::records` records.
    pub records: Memory<K::Record>,
    /// `pool` rounded up to a power of two (at least one).
    pub conflict_heads: Memory<AtomicU32>,
    /// `pool` entries.
    pub conflict_entries: Memory<AtomicU64>,
}

impl<K: SessionKey> TableMemory<K> {
    /// Takes memory for `shape`.
    pub fn new(shape: Shape, pages: Pages) -> Self {
        let pool = shape.pool as usize;
        Self {
            header: Memory::heap(1),
            buckets: Memory::zeroed(shape.buckets_max as usize, pages),
            records: Memory::zeroed(shape.records(), pages),
            conflict_heads: Memory::heap(ConflictList::heads_len(pool)),
            conflict_entries: Memory::heap(pool),
        }
    }

    pub(super) fn fits(&self, shape: Shape) -> bool {
        let pool = shape.pool as usize;
        self.header.len() == 1
            && self.buckets.len() == shape.buckets_max as usize
            && self.records.len() == shape.records()
            && self.conflict_heads.len() == ConflictList::heads_len(pool)
            && self.conflict_entries.len() == pool
    }
}

/// Why a session was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// The session is in the table already, at this place; nothing was changed.
    #[error("session is in the table already")]
    Exists(Place),
    /// Both buckets and the pool are full; nothing was changed.
    #[error("no free slot in both buckets and none in the pool; grow the table")]
    Full,
}

/// How many sessions lie where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Sessions in all.
    pub sessions: usize,
    /// Of these, in their second bucket.
    pub second: usize,
    /// Of these, in the conflict list: the overflow.
    pub conflicts: usize,
    /// Filter bits set: of `16 x buckets`, the part of misses that reads a second line.
    pub filter_bits: usize,
    /// Sessions in the fullest bucket.
    pub fullest: usize,
}

/// Counts what a find touches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probes {
    /// Bucket lines compared.
    pub buckets: u32,
    /// Records compared; beyond one a hit and zero a miss, a signature misled.
    pub records: u32,
}

/// Where a session belongs.
#[derive(Clone, Copy, Default)]
pub(super) struct Home {
    /// Its bucket before any growth: names its chain of conflicts, and never changes.
    pub(super) root: u32,
    pub(super) primary: u32,
    pub(super) tag: u32,
}

impl Home {
    #[inline(always)]
    pub(super) fn filter_bit(self) -> usize {
        self.tag as usize % LANES
    }
}

/// Sessions by signature. One owner adds and removes; finds may run on many threads while nobody does.
///
/// ```
/// use tables::signature::{Keyed, Session4, Shape, SignatureTable};
///
/// let boot_key = [1, 2, 3, 4]; // random bits
/// let mut table = SignatureTable::<Session4, _>::new(Shape::for_sessions(1000), Keyed::new(boot_key));
/// let session = Session4 { source: 1, destination: 2, source_port: 3, destination_port: 4, protocol: 6 };
/// let place = table.add(&session)?;
/// table.hot(place)[0].store(42, std::sync::atomic::Ordering::Relaxed);
/// assert_eq!(table.find(&session), Some(place));
/// assert_eq!(table.remove(&session), Some(place));
/// assert_eq!(table.find(&session), None);
/// # Ok::<(), tables::signature::AddError>(())
/// ```
#[derive(Debug)]
pub struct SignatureTable<K: SessionKey, F> {
    pub(super) function: F,
    pub(super) shape: Shape,
    /// Buckets in use.
    pub(super) count: u32,
    /// `shape.buckets << level <= count < shape.buckets << (level + 1)`.
    pub(super) level: u32,
    /// Signature bits beyond the filter's that choose the second bucket: a table that grows manyfold has
    /// more second buckets than 16 a root.
    spread: u32,
    pub(super) header: Memory<AtomicU64>,
    pub(super) buckets: Memory<Bucket>,
    pub(super) records: Records<K>,
    pub(super) conflicts: ConflictList,
    pub(super) sessions: usize,
}

impl<K: SessionKey, F: SignatureFunction> SignatureTable<K, F> {
    /// Makes an empty table; asks for huge pages.
    pub fn new(shape: Shape, function: F) -> Self {
        Self::with_pages(shape, function, Pages::Huge)
    }

    /// Makes an empty table on chosen pages.
    pub fn with_pages(shape: Shape, function: F, pages: Pages) -> Self {
        let shape = sane(shape);
        Self::assemble(shape, function, TableMemory::new(shape, pages))
    }

    pub(super) fn assemble(shape: Shape, function: F, memory: TableMemory<K>) -> Self {
        let stored = u32::try_from(memory.header[0].load(Ordering::Relaxed)).unwrap_or(0);
        let count = stored.clamp(shape.buckets, shape.buckets_max);
        memory.header[0].store(u64::from(count), Ordering::Relaxed);
        Self {
            function,
            shape,
            count,
            level: (count / shape.buckets).ilog2(),
            spread: (shape.buckets_max / shape.buckets)
                .ilog2()
                .saturating_sub(2)
                .min(8),
            header: memory.header,
            buckets: memory.buckets,
            records: Records(memory.records),
            conflicts: ConflictList::new(memory.conflict_heads, memory.conflict_entries),
            sessions: 0,
        }
    }

    /// Gives the memory back as it is, for another owner.
    pub fn into_memory(self) -> TableMemory<K> {
        let (conflict_heads, conflict_entries) = self.conflicts.into_memory();
        TableMemory {
            header: self.header,
            buckets: self.buckets,
            records: self.records.0,
            conflict_heads,
            conflict_entries,
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

    /// Number of buckets in use.
    pub fn buckets(&self) -> usize {
        self.count as usize
    }

    /// Bytes of the index: buckets in use and conflict list, without the records.
    pub fn index_bytes(&self) -> usize {
        self.count as usize * size_of::<Bucket>()
            + ConflictList::heads_len(self.shape.pool as usize) * size_of::<u32>()
            + self.shape.pool as usize * size_of::<u64>()
    }

    /// The caller's words of the record at `place` (six for IPv4, eleven for IPv6): zero after `add`.
    pub fn hot(&self, place: Place) -> &[AtomicU64] {
        self.records.hot(place.index())
    }

    /// Returns the session at `place`, if there is one.
    pub fn session(&self, place: Place) -> Option<K> {
        (place.index() < self.records.0.len()).then(|| self.records.key(place.index()))?
    }

    /// Finds a session.
    #[inline]
    pub fn find(&self, key: &K) -> Option<Place> {
        let home = self.home(key);
        self.find_at(home, &key.to_words(), &mut Probes::default())
    }

    /// Finds a session and counts what was touched.
    pub fn find_counted(&self, key: &K) -> (Option<Place>, Probes) {
        let mut probes = Probes::default();
        let place = self.find_at(self.home(key), &key.to_words(), &mut probes);
        (place, probes)
    }

    /// Adds a session and returns its place; its hot words are zero.
    ///
    /// # Errors
    /// If the session is there already, or its buckets and the pool are full.
    pub fn add(&mut self, key: &K) -> Result<Place, AddError> {
        let home = self.home(key);
        let words = key.to_words();
        if let Some(place) = self.find_at(home, &words, &mut Probes::default()) {
            return Err(AddError::Exists(place));
        }
        let place = self.place(home, &words, &[]).ok_or(AddError::Full)?;
        self.sessions += 1;
        Ok(place)
    }

    /// Removes a session and returns the place that it had; its hot words can be read until the next
    /// `add`.
    pub fn remove(&mut self, key: &K) -> Option<Place> {
        let home = self.home(key);
        let place = self.find_at(home, &key.to_words(), &mut Probes::default())?;
        self.clear(home, place);
        self.sessions -= 1;
        Some(place)
    }

    /// Iterates over the sessions in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (Place, K)> + '_ {
        let used = 0..self.count as usize * LANES;
        let pool = self.pool_start()..self.records.0.len();
        used.chain(pool).filter_map(|index| {
            self.records
                .key(index)
                .map(|key| (Place(index as u32), key))
        })
    }

    /// Counts where the sessions lie: a pass over the table.
    pub fn occupancy(&self) -> Occupancy {
        let mut occupancy = Occupancy {
            sessions: self.sessions,
            conflicts: self.conflicts.len(),
            ..Occupancy::default()
        };
        for (index, bucket) in self.buckets[..self.count as usize].iter().enumerate() {
            let empty = bucket.compare(0, TAG);
            let filter = (0..LANES).filter(|&lane| bucket.get(lane) & FILTER != 0);
            occupancy.filter_bits += filter.count();
            occupancy.fullest = occupancy.fullest.max(empty.count_zeros() as usize);
            for lane in (0..LANES).filter(|lane| empty >> lane & 1 == 0) {
                let key = self.records.key(index * LANES + lane);
                let away = key.is_some_and(|key| self.home(&key).primary as usize != index);
                occupancy.second += usize::from(away);
            }
        }
        occupancy
    }

    #[inline(always)]
    pub(super) fn home(&self, key: &K) -> Home {
        let hash = self.function.hash(key);
        let tag = hash.signature & TAG;
        let (root, primary) = self.address(hash.bucket);
        Home {
            root,
            primary,
            // Zero means an empty lane.
            tag: if tag == 0 { 1 << 30 } else { tag },
        }
    }

    /// Root and bucket of 32 hash bits. The product's high half chooses the root; the bits below it, top
    /// first, choose among the buckets that the root was split into.
    #[inline(always)]
    fn address(&self, bits: u32) -> (u32, u32) {
        let product = u64::from(bits) * u64::from(self.shape.buckets);
        let root = (product >> 32) as u32;
        if self.count == self.shape.buckets {
            return (root, root);
        }
        let split = (product as u32).reverse_bits() & ((2 << self.level) - 1);
        let fine = u64::from(root) + u64::from(self.shape.buckets) * u64::from(split);
        if fine < u64::from(self.count) {
            return (root, fine as u32);
        }
        let coarse = split & ((1 << self.level) - 1);
        (root, root + self.shape.buckets * coarse)
    }

    /// The second bucket: of the root and the last bits of the signature (the filter bit's, and `spread`
    /// more) alone.
    #[inline(always)]
    pub(super) fn second(&self, home: Home) -> u32 {
        let bits = home.tag & (((LANES as u32) << self.spread) - 1);
        let name = u64::from(home.root) << 32 | u64::from(bits);
        let mixed = (name ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.address((mixed >> 32) as u32).1
    }

    #[inline(always)]
    pub(super) fn find_at(
        &self,
        home: Home,
        words: &K::Words,
        probes: &mut Probes,
    ) -> Option<Place> {
        let bucket = &self.buckets[home.primary as usize];
        let equal = bucket.compare(home.tag, TAG);
        probes.buckets += 1;
        let place = self.check(home.primary, equal, words, &mut probes.records);
        if place.is_some() || bucket.get(home.filter_bit()) & FILTER == 0 {
            return place;
        }
        let second = self.second(home);
        let equal = self.buckets[second as usize].compare(home.tag, TAG);
        probes.buckets += 1;
        self.check(second, equal, words, &mut probes.records)
            .or_else(|| self.find_conflict(home, words, &mut probes.records))
    }

    #[inline(always)]
    fn check(
        &self,
        bucket: u32,
        mut equal: u16,
        words: &K::Words,
        records: &mut u32,
    ) -> Option<Place> {
        while equal != 0 {
            let index = bucket as usize * LANES + equal.trailing_zeros() as usize;
            *records += 1;
            if self.records.matches(index, words) {
                return Some(Place(index as u32));
            }
            equal &= equal - 1;
        }
        None
    }

    pub(super) fn find_conflict(
        &self,
        home: Home,
        words: &K::Words,
        records: &mut u32,
    ) -> Option<Place> {
        for (entry, signature) in self.conflicts.chain(home.root) {
            let index = self.pool_start() + entry;
            if signature == home.tag {
                *records += 1;
                if self.records.matches(index, words) {
                    return Some(Place(index as u32));
                }
            }
        }
        None
    }

    /// Puts a session that is not in the table where it belongs.
    pub(super) fn place(
        &mut self,
        home: Home,
        words: &K::Words,
        hot: &[AtomicU64],
    ) -> Option<Place> {
        if let Some(place) = self.place_in_bucket(home, words, hot) {
            return Some(place);
        }
        let entry = self.conflicts.add(home.root, home.tag)?;
        self.set_filter(home.primary, home.filter_bit());
        let index = self.pool_start() + entry;
        self.records.commit(index, words, hot);
        Some(Place(index as u32))
    }

    pub(super) fn place_in_bucket(
        &self,
        home: Home,
        words: &K::Words,
        hot: &[AtomicU64],
    ) -> Option<Place> {
        let second = self.second(home);
        let free = self.buckets[home.primary as usize].compare(0, TAG);
        if LANES as u32 - free.count_ones() < self.shape.primary_fill {
            let lane = free.trailing_zeros() as usize;
            return Some(self.fill(home.primary, lane, home.tag, words, hot));
        }
        let free_second = self.buckets[second as usize].compare(0, TAG);
        if free != 0 && free_second.count_ones() <= free.count_ones() {
            let lane = free.trailing_zeros() as usize;
            return Some(self.fill(home.primary, lane, home.tag, words, hot));
        }
        // The filter bit first: killed in between, a bit too many costs a line, one too few a session.
        if free_second == 0 {
            return None;
        }
        self.set_filter(home.primary, home.filter_bit());
        let lane = free_second.trailing_zeros() as usize;
        Some(self.fill(second, lane, home.tag, words, hot))
    }

    pub(super) fn fill(
        &self,
        bucket: u32,
        lane: usize,
        tag: u32,
        words: &K::Words,
        hot: &[AtomicU64],
    ) -> Place {
        let index = bucket as usize * LANES + lane;
        self.records.commit(index, words, hot);
        let bucket = &self.buckets[bucket as usize];
        bucket.set(lane, bucket.get(lane) & FILTER | tag);
        Place(index as u32)
    }

    /// Erases a record and its signature.
    pub(super) fn erase(&self, place: Place) {
        self.records.erase(place.index());
        let bucket = &self.buckets[place.index() / LANES];
        let lane = place.index() % LANES;
        bucket.set(lane, bucket.get(lane) & FILTER);
    }

    /// Removes the session at `place` and clears its filter bit if it was the last one.
    pub(super) fn clear(&mut self, home: Home, place: Place) {
        if let Some(entry) = place.index().checked_sub(self.pool_start()) {
            self.records.erase(place.index());
            self.conflicts.remove(home.root, entry);
        } else {
            self.erase(place);
            if place.index() / LANES == home.primary as usize {
                return;
            }
        }
        self.tidy_filter(home);
    }

    /// Clears a filter bit that no session needs.
    pub(super) fn tidy_filter(&self, home: Home) {
        let bucket = &self.buckets[home.primary as usize];
        let lane = home.filter_bit();
        let lanes = bucket.get(lane);
        if lanes & FILTER != 0 && !self.has_away(home) {
            bucket.set(lane, lanes & TAG);
        }
    }

    /// True while a session of the same primary bucket and filter bit lies elsewhere.
    fn has_away(&self, home: Home) -> bool {
        let same = |index: usize| {
            self.records.key(index).is_some_and(|key| {
                let other = self.home(&key);
                other.primary == home.primary && other.filter_bit() == home.filter_bit()
            })
        };
        let conflicts = self.conflicts.chain(home.root);
        (0..1 << self.spread).any(|upper| {
            let tag = home.filter_bit() as u32 | (upper * LANES as u32);
            let second = self.second(Home { tag, ..home });
            let bucket = &self.buckets[second as usize];
            second != home.primary
                && (0..LANES)
                    .filter(|&lane| bucket.get(lane) & TAG != 0)
                    .filter(|&lane| bucket.get(lane) as usize % LANES == home.filter_bit())
                    .any(|lane| same(second as usize * LANES + lane))
        }) || conflicts
            .into_iter()
            .any(|(entry, _)| same(self.pool_start() + entry))
    }

    pub(super) fn set_filter(&self, bucket: u32, filter: usize) {
        let bucket = &self.buckets[bucket as usize];
        bucket.set(filter, bucket.get(filter) | FILTER);
    }

    pub(super) fn pool_start(&self) -> usize {
        self.shape.buckets_max as usize * LANES
    }
}

/// A session's hot words on their way to another place.
pub(super) struct HotCopy([AtomicU64; 16]);

impl HotCopy {
    pub(super) fn of(hot: &[AtomicU64]) -> Self {
        Self(core::array::from_fn(|at| {
            AtomicU64::new(hot.get(at).map_or(0, |word| word.load(Ordering::Relaxed)))
        }))
    }

    pub(super) fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

pub(super) fn sane(shape: Shape) -> Shape {
    let buckets = shape.buckets.clamp(1, u32::MAX / 32);
    Shape {
        buckets,
        buckets_max: shape.buckets_max.clamp(buckets, u32::MAX / 32),
        pool: shape.pool.min(1 << 26),
        primary_fill: shape.primary_fill.min(LANES as u32),
    }
}
