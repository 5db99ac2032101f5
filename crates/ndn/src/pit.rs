//! The pending Interest table: who waits for which Data, and whom it was asked from.

mod pending_filter;
mod records;

use alloc::vec::Vec;
use core::time::Duration;

use hashbrown::HashTable;
use tables::memory::prefetch;
use tables::wheel::TimerId;
use wire::Instant;
use wire::ndn::lp::NackReason;
use wire::ndn::{Interest, NameRef};

use crate::face::FaceId;

pub use pending_filter::PendingFilter;
use records::{List, Pool, Record};

/// Names a PIT entry while it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PitId(pub(crate) u32);

/// Bytes of Interest packets that an entry keeps room for when it is free.
const KEPT_BYTES: usize = 512;

/// Opaque bytes that a downstream wants back with the Data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PitToken {
    bytes: [u8; 32],
    len: u8,
}

impl PitToken {
    /// Copies a token of at most 32 bytes; a longer one is as none.
    pub fn new(token: Option<&[u8]>) -> Self {
        let mut out = Self::default();
        if let Some(token) = token
            && let Some(place) = out.bytes.get_mut(..token.len())
        {
            place.copy_from_slice(token);
            out.len = token.len() as u8;
        }
        out
    }

    /// Returns the token, if there is one.
    pub fn get(&self) -> Option<&[u8]> {
        self.bytes
            .get(..usize::from(self.len))
            .filter(|token| !token.is_empty())
    }
}

/// A downstream: a face that an Interest came from.
#[derive(Clone, Copy, Debug)]
pub struct InRecord {
    /// The face.
    pub face: FaceId,
    /// Nonce of its last Interest.
    pub nonce: [u8; 4],
    /// When its last Interest came.
    pub last_renewed: Instant,
    /// When it stops waiting.
    pub expiry: Instant,
    /// What it wants back.
    pub token: PitToken,
    /// Its Interest said that it is not for discovery.
    pub non_discovery: bool,
}

/// An upstream: a face that an Interest was sent to.
#[derive(Clone, Copy, Debug)]
pub struct OutRecord {
    /// The face.
    pub face: FaceId,
    /// Nonce of the last Interest.
    pub nonce: [u8; 4],
    /// When the last Interest was sent.
    pub last_renewed: Instant,
    /// When it is no longer waited for.
    pub expiry: Instant,
    /// The Nack that came back.
    pub nack: Option<NackReason>,
    /// The Interest said that it is not for discovery.
    pub non_discovery: bool,
    /// Retransmissions to this face sooner than this are suppressed; zero is the initial interval.
    pub suppression: Duration,
}

impl OutRecord {
    /// True while an answer may come.
    pub fn is_pending(&self, now: Instant) -> bool {
        self.expiry >= now && self.nack.is_none()
    }
}

impl Record for InRecord {
    fn face(&self) -> FaceId {
        self.face
    }
}

impl Record for OutRecord {
    fn face(&self) -> FaceId {
        self.face
    }
}

/// A pending Interest.
#[derive(Debug)]
pub struct PitEntry {
    hash: u64,
    /// The Interest packet that made the entry.
    packet: Vec<u8>,
    /// Where the name's value is in it.
    name_at: (u16, u16),
    name_len: u32,
    can_be_prefix: bool,
    must_be_fresh: bool,
    /// The name ends with an implicit digest.
    has_digest: bool,
    ins: List,
    outs: List,
    /// When the entry is to leave.
    pub(crate) timer: Option<TimerId>,
    /// Data came.
    pub(crate) is_satisfied: bool,
    /// The content store reads from its slower place: who asks meanwhile waits for that.
    pub(crate) is_reading: bool,
    /// FreshnessPeriod of the Data that came (ms).
    pub(crate) freshness_ms: u64,
    /// Retransmissions of the entry sooner than this are suppressed; zero is the initial interval.
    pub(crate) suppression: Duration,
    /// Under which key a strategy measures.
    pub(crate) measure_key: u64,
}

impl PitEntry {
    /// Returns the hash of the name without implicit digest.
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the Interest's name.
    pub fn name(&self) -> NameRef<'_> {
        let value = self
            .packet
            .get(usize::from(self.name_at.0)..usize::from(self.name_at.1));
        NameRef::new(value.unwrap_or_default()).unwrap_or_default()
    }

    fn name_value(&self) -> &[u8] {
        self.packet
            .get(usize::from(self.name_at.0)..usize::from(self.name_at.1))
            .unwrap_or_default()
    }

    /// Returns the number of the name's components.
    pub const fn name_len(&self) -> usize {
        self.name_len as usize
    }

    /// Returns the Interest packet that made the entry.
    pub fn packet(&self) -> &[u8] {
        &self.packet
    }

    /// True if a name that this Interest's is a prefix of satisfies it.
    pub const fn can_be_prefix(&self) -> bool {
        self.can_be_prefix
    }

    /// True if only fresh Data satisfies it from caches.
    pub const fn must_be_fresh(&self) -> bool {
        self.must_be_fresh
    }

    /// True if the entry is to be found by prefixes of Data names.
    const fn is_by_prefix(&self) -> bool {
        self.can_be_prefix && !self.has_digest
    }
}

/// The pending Interest table, sized at start.
#[derive(Debug)]
pub struct Pit {
    entries: Vec<PitEntry>,
    free: Vec<u32>,
    table: HashTable<u32>,
    ins: Pool<InRecord>,
    outs: Pool<OutRecord>,
    /// Bytes of packets longer than [`KEPT_BYTES`], and how many there may be.
    long_bytes: usize,
    long_bytes_max: usize,
}

/// The table or its records are full; the Interest is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PitFull;

impl Pit {
    /// Makes room for `capacity` entries with four records each on average.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, 1 << 28);
        Self {
            entries: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            table: HashTable::with_capacity(capacity),
            ins: Pool::new(2 * capacity),
            outs: Pool::new(2 * capacity),
            long_bytes: 0,
            long_bytes_max: (capacity * KEPT_BYTES).max(1 << 20),
        }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True if nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Finds the entry of an Interest: same name, CanBePrefix and MustBeFresh. `hash` is that of the name
    /// without implicit digest.
    #[inline]
    pub fn find(&self, interest: &Interest<'_>, hash: u64) -> Option<PitId> {
        let same = |&index: &u32| {
            self.entries.get(index as usize).is_some_and(|entry| {
                entry.hash == hash
                    && entry.can_be_prefix == interest.can_be_prefix
                    && entry.must_be_fresh == interest.must_be_fresh
                    && entry.name_value() == interest.name.value()
            })
        };
        self.table.find(hash, same).map(|&index| PitId(index))
    }

    /// Asks for the memory of the entries at `hash`, so that it is there when they are looked for.
    #[inline]
    pub fn look_ahead(&self, hash: u64) {
        let ask = |&index: &u32| {
            if let Some(entry) = self.entries.get(index as usize) {
                prefetch(entry);
            }
            false
        };
        let _ = self.table.find(hash, ask);
    }

    /// Adds an entry for an Interest that has none.
    ///
    /// # Errors
    /// [`PitFull`].
    pub fn insert(
        &mut self,
        interest: &Interest<'_>,
        hash: u64,
        filter: &PendingFilter,
    ) -> Result<PitId, PitFull> {
        let length = interest.bytes.len();
        let long = if length > KEPT_BYTES { length } else { 0 };
        if self.long_bytes + long > self.long_bytes_max {
            return Err(PitFull);
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.entries.len() < self.entries.capacity() => {
                self.entries.push(PitEntry::blank());
                (self.entries.len() - 1) as u32
            }
            None => return Err(PitFull),
        };
        let Some(entry) = self.entries.get_mut(index as usize) else {
            return Err(PitFull);
        };
        self.long_bytes += long;
        entry.set(interest, hash);
        if entry.is_by_prefix() {
            filter.add(hash, entry.name_len());
        }
        let entries = &self.entries;
        let hash_of = |&index: &u32| entries.get(index as usize).map_or(0, |entry| entry.hash);
        self.table.insert_unique(hash, index, hash_of);
        Ok(PitId(index))
    }

    /// Removes an entry with its records.
    pub fn remove(&mut self, id: PitId, filter: &PendingFilter) {
        let Some(entry) = self.entries.get_mut(id.0 as usize) else {
            return;
        };
        let Ok(place) = self.table.find_entry(entry.hash, |&index| index == id.0) else {
            return;
        };
        place.remove();
        if entry.is_by_prefix() {
            filter.remove(entry.hash, entry.name_len());
        }
        self.ins.clear(&mut entry.ins);
        self.outs.clear(&mut entry.outs);
        if entry.packet.len() > KEPT_BYTES {
            self.long_bytes -= entry.packet.len();
            entry.packet = Vec::new();
        }
        self.free.push(id.0);
    }

    /// Returns an entry.
    #[inline]
    pub fn get(&self, id: PitId) -> Option<&PitEntry> {
        self.entries.get(id.0 as usize)
    }

    /// Returns an entry to change it.
    #[inline]
    pub fn get_mut(&mut self, id: PitId) -> Option<&mut PitEntry> {
        self.entries.get_mut(id.0 as usize)
    }

    /// Adds to `out` the entries at `hash` that Data named `name` satisfies, where `prefix` is the prefix of
    /// the name that `hash` belongs to.
    #[inline]
    pub fn matches_at(
        &self,
        hash: u64,
        prefix: &[u8],
        name: &NameRef<'_>,
        digest: &mut dyn FnMut() -> [u8; 32],
        out: &mut Vec<PitId>,
    ) {
        let is_whole = prefix.len() == name.value().len();
        for &index in self.table.iter_hash(hash) {
            let Some(entry) = self.entries.get(index as usize) else {
                continue;
            };
            if entry.hash != hash {
                continue;
            }
            let own = entry.name_value();
            let fits = match (entry.has_digest, is_whole) {
                (true, true) => {
                    own.len() == prefix.len() + 34
                        && own.starts_with(prefix)
                        && own.ends_with(&digest())
                }
                (true, false) => false,
                (false, whole) => (whole || entry.can_be_prefix) && own == prefix,
            };
            if fits {
                out.push(PitId(index));
            }
        }
    }

    /// Finds an entry that waits for the content store to read the packet `name`, which has the hash `hash`.
    pub fn find_reading(&self, hash: u64, name: NameRef<'_>) -> Option<PitId> {
        let is_one = |&index: &u32| {
            self.entries.get(index as usize).is_some_and(|entry| {
                entry.is_reading
                    && entry.hash == hash
                    && entry.name().split_implicit_digest().0 == name
            })
        };
        self.table.find(hash, is_one).map(|&index| PitId(index))
    }

    /// Walks the downstreams of an entry.
    pub fn in_records(&self, id: PitId) -> impl Iterator<Item = &InRecord> {
        let list = self.get(id).map(|entry| &entry.ins);
        self.ins.iter(list)
    }

    /// Walks the upstreams of an entry.
    pub fn out_records(&self, id: PitId) -> impl Iterator<Item = &OutRecord> {
        let list = self.get(id).map(|entry| &entry.outs);
        self.outs.iter(list)
    }

    /// Returns a downstream of an entry.
    pub fn in_record(&self, id: PitId, face: FaceId) -> Option<&InRecord> {
        self.in_records(id).find(|record| record.face == face)
    }

    /// Returns the face of some downstream of an entry.
    pub fn any_downstream(&self, id: PitId) -> Option<FaceId> {
        self.in_records(id).next().map(|record| record.face)
    }

    /// Returns an upstream of an entry.
    pub fn out_record(&self, id: PitId, face: FaceId) -> Option<&OutRecord> {
        self.out_records(id).find(|record| record.face == face)
    }

    /// Returns an upstream of an entry to change it.
    pub fn out_record_mut(&mut self, id: PitId, face: FaceId) -> Option<&mut OutRecord> {
        let entry = self.entries.get(id.0 as usize)?;
        self.outs.find_mut(&entry.outs, face)
    }

    /// Adds a downstream, or takes the place of the one of the same face.
    ///
    /// # Errors
    /// [`PitFull`].
    pub fn put_in(&mut self, id: PitId, record: InRecord) -> Result<(), PitFull> {
        let entry = self.entries.get_mut(id.0 as usize).ok_or(PitFull)?;
        self.ins.put(&mut entry.ins, record).ok_or(PitFull)
    }

    /// Adds an upstream, or renews the one of the same face, which keeps its suppression interval.
    ///
    /// # Errors
    /// [`PitFull`].
    pub fn put_out(&mut self, id: PitId, mut record: OutRecord) -> Result<(), PitFull> {
        if let Some(known) = self.out_record(id, record.face) {
            record.suppression = known.suppression;
        }
        let entry = self.entries.get_mut(id.0 as usize).ok_or(PitFull)?;
        self.outs.put(&mut entry.outs, record).ok_or(PitFull)
    }

    /// Removes a downstream.
    pub fn take_in(&mut self, id: PitId, face: FaceId) -> Option<InRecord> {
        let entry = self.entries.get_mut(id.0 as usize)?;
        self.ins.take(&mut entry.ins, face)
    }

    /// Removes an upstream.
    pub fn take_out(&mut self, id: PitId, face: FaceId) -> Option<OutRecord> {
        let entry = self.entries.get_mut(id.0 as usize)?;
        self.outs.take(&mut entry.outs, face)
    }

    /// Removes all downstreams.
    pub fn clear_in(&mut self, id: PitId) {
        if let Some(entry) = self.entries.get_mut(id.0 as usize) {
            self.ins.clear(&mut entry.ins);
        }
    }

    /// Walks all entries that are pending; O(capacity).
    pub fn ids(&self) -> impl Iterator<Item = PitId> + '_ {
        self.table.iter().map(|&index| PitId(index))
    }
}

impl PitEntry {
    fn blank() -> Self {
        Self {
            hash: 0,
            packet: Vec::new(),
            name_at: (0, 0),
            name_len: 0,
            can_be_prefix: false,
            must_be_fresh: false,
            has_digest: false,
            ins: List::default(),
            outs: List::default(),
            timer: None,
            is_satisfied: false,
            is_reading: false,
            freshness_ms: 0,
            suppression: Duration::ZERO,
            measure_key: 0,
        }
    }

    fn set(&mut self, interest: &Interest<'_>, hash: u64) {
        self.hash = hash;
        self.packet.clear();
        self.packet.extend_from_slice(interest.bytes);
        let (start, end) = interest.name_range();
        self.name_at = (start as u16, end as u16);
        self.name_len = interest.name.len() as u32;
        self.can_be_prefix = interest.can_be_prefix;
        self.must_be_fresh = interest.must_be_fresh;
        self.has_digest = interest.name.split_implicit_digest().1.is_some();
        self.timer = None;
        self.is_satisfied = false;
        self.is_reading = false;
        self.freshness_ms = 0;
        self.suppression = Duration::ZERO;
        self.measure_key = 0;
    }
}
