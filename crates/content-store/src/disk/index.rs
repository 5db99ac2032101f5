//! Which names are on disk and where: 16 bytes a slot, 23 bytes a packet at the load that it is made for. Written by
//! the log's thread (removals by any), read by all; what a reader makes of a half-written slot is refused when the
//! record is read.

use crate::hash::PrefixHash;
use core::sync::atomic::{AtomicU64, Ordering};

/// Slots of a bucket: one cache line.
const WAYS: usize = 4;
/// Buckets that are looked at.
const PROBES: usize = 64;
/// Bits of a place; above it are bits of the segment's sequence number.
const PLACE_BITS: u32 = 40;

/// Where a record begins, in grains, and the segment's sequence number (its low 24 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u64);

impl Place {
    const NONE: Self = Self(0);

    pub(super) const fn new(grain: u64, sequence: u64) -> Self {
        Self(grain | sequence << PLACE_BITS)
    }
    pub(super) const fn grain(self) -> u64 {
        self.0 & ((1 << PLACE_BITS) - 1)
    }
    /// True if the record may be in a segment of this sequence number.
    pub(super) const fn is_of(self, sequence: u64) -> bool {
        self.0 >> PLACE_BITS == sequence << PLACE_BITS >> PLACE_BITS && self.0 != 0
    }
}

#[derive(Debug, Default)]
struct Slot {
    key: AtomicU64,
    place: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([Slot; WAYS]);

#[derive(Debug)]
pub(super) struct Index {
    buckets: Vec<Bucket>,
}

impl Index {
    /// Makes an index for so many packets.
    pub(super) fn new(packets: usize) -> Self {
        let buckets = (packets * 10 / 7).div_ceil(WAYS).max(PROBES);
        Self {
            buckets: (0..buckets).map(|_| Bucket::default()).collect(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>()
    }

    /// A hash's key, and the slots where it may be: a bucket after the other.
    fn slots(&self, hash: PrefixHash) -> (u64, impl Iterator<Item = &Bucket>) {
        // The halves of segments in order differ little: mixed once more.
        let product = u128::from(hash.low ^ 0x9e37_79b9_7f4a_7c15)
            * u128::from(hash.high ^ 0xc2b2_ae3d_27d4_eb4f);
        let mixed = product as u64 ^ (product >> 64) as u64;
        let key = (hash.low ^ hash.high.rotate_left(29)) | 1;
        let len = self.buckets.len();
        let home = ((u128::from(mixed) * len as u128) >> 64) as usize;
        let places = (home..home + PROBES).map(move |at| if at < len { at } else { at - len });
        (key, places.filter_map(|at| self.buckets.get(at)))
    }

    fn slot(&self, hash: PrefixHash) -> Option<&Slot> {
        let (key, buckets) = self.slots(hash);
        for bucket in buckets {
            for slot in &bucket.0 {
                // Acquire: pairs with the release in `insert`.
                match slot.key.load(Ordering::Acquire) {
                    0 => return None,
                    found if found == key => return Some(slot),
                    _ => {}
                }
            }
        }
        None
    }

    /// Where a name may be.
    pub(super) fn find(&self, hash: PrefixHash) -> Option<Place> {
        let place = Place(self.slot(hash)?.place.load(Ordering::Acquire));
        (place != Place::NONE).then_some(place)
    }

    /// Forgets a name.
    pub(super) fn remove(&self, hash: PrefixHash) {
        if let Some(slot) = self.slot(hash) {
            slot.place.store(0, Ordering::Release);
        }
    }

    /// Notes where a name is; `is_current` tells whether a place still holds a record. One thread inserts. False if
    /// the packet of another name was given up for it.
    pub(super) fn insert(
        &self,
        hash: PrefixHash,
        place: Place,
        is_current: impl Fn(Place) -> bool,
    ) -> bool {
        if let Some(slot) = self.slot(hash) {
            slot.place.store(place.0, Ordering::Release);
            return true;
        }
        let (key, buckets) = self.slots(hash);
        let mut first = None;
        let mut taken = None;
        'all: for bucket in buckets {
            for slot in &bucket.0 {
                first = first.or(Some(slot));
                let is_free = slot.key.load(Ordering::Relaxed) == 0
                    || !is_current(Place(slot.place.load(Ordering::Relaxed)));
                if is_free {
                    taken = Some(slot);
                    break 'all;
                }
            }
        }
        if let Some(slot) = taken.or(first) {
            // Between these a reader sees a key without place.
            slot.place.store(0, Ordering::Release);
            slot.key.store(key, Ordering::Release);
            slot.place.store(place.0, Ordering::Release);
        }
        taken.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> PrefixHash {
        crate::hash::NameHash::Keyed([1, 2]).hash(&number.to_be_bytes())
    }

    #[test]
    fn as_many_as_it_is_made_for_fit_and_stale_ones_make_room() {
        let count = 50_000;
        let index = Index::new(count as usize);
        assert!(index.bytes() <= 24 * count as usize);
        for number in 0..count {
            assert!(
                index.insert(hash(number), Place::new(number + 4, 1), |_| true),
                "{number}"
            );
        }
        for number in 0..count {
            assert_eq!(index.find(hash(number)).map(Place::grain), Some(number + 4));
        }
        assert_eq!(index.find(hash(count)), None);
        index.remove(hash(7));
        assert_eq!(index.find(hash(7)), None);
        // All of the first segment went.
        for number in count..2 * count {
            let place = Place::new(number, 2);
            assert!(index.insert(hash(number), place, |place| place.is_of(2)));
        }
        for number in count..2 * count {
            assert_eq!(index.find(hash(number)).map(Place::grain), Some(number));
        }
    }
}
