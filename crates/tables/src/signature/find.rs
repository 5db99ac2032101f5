//! The batched find: three passes over a batch, so that the memory accesses of its keys overlap, and hardly
//! a branch that depends on what they find: one that is guessed wrong costs as much as a miss that is hidden.

use core::hint::select_unpredictable;

use super::bucket::{Compare, LANES, Portable};
use super::functions::SignatureFunction;
use super::key::SessionKey;
use super::records::Place;
use super::table::{FILTER, Home, Probes, SignatureTable, TAG};
use crate::memory::prefetch;

/// Number of keys that a batched find keeps in flight.
const STAGE: usize = 32;

/// Set beside the lanes that match where the filter tells that the key may lie elsewhere.
const AWAY: u32 = 1 << 16;

impl<K: SessionKey, F: SignatureFunction> SignatureTable<K, F> {
    /// Finds `keys` with their memory accesses overlapped and writes what [`find`](Self::find) would give
    /// to the same place of `places`. Stops at the shorter of the two. From 8 keys on this pays; at 32 the
    /// gain is nearly all there.
    pub fn find_batch(&self, keys: &[K], places: &mut [Option<Place>]) {
        #[cfg(all(target_arch = "x86_64", feature = "std", not(any(loom, shuttle))))]
        {
            use super::bucket::{Avx2, Avx512};
            if let Some(avx512) = Avx512::detect() {
                // SAFETY: `detect` tells that the processor has what the function is compiled for.
                return unsafe { self.find_batch_avx512(avx512, keys, places) };
            }
            if let Some(avx2) = Avx2::detect() {
                // SAFETY: as above.
                return unsafe { self.find_batch_avx2(avx2, keys, places) };
            }
        }
        self.find_batch_with(Portable, keys, places);
    }

    #[cfg(all(target_arch = "x86_64", feature = "std", not(any(loom, shuttle))))]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn find_batch_avx2(&self, avx2: super::bucket::Avx2, keys: &[K], places: &mut [Option<Place>]) {
        self.find_batch_with(avx2, keys, places);
    }

    #[cfg(all(target_arch = "x86_64", feature = "std", not(any(loom, shuttle))))]
    #[target_feature(enable = "avx512f,bmi1,bmi2")]
    fn find_batch_avx512(
        &self,
        avx512: super::bucket::Avx512,
        keys: &[K],
        places: &mut [Option<Place>],
    ) {
        self.find_batch_with(avx512, keys, places);
    }

    #[inline(always)]
    fn find_batch_with<C: Compare>(&self, compare: C, keys: &[K], places: &mut [Option<Place>]) {
        for (keys, places) in keys.chunks(STAGE).zip(places.chunks_mut(STAGE)) {
            let count = keys.len().min(places.len());
            self.find_stage(compare, &keys[..count], &mut places[..count]);
        }
    }

    /// Finds up to `STAGE` keys; both slices are of one length.
    #[expect(
        clippy::needless_range_loop,
        reason = "zipped iterators of five arrays are not inlined here and cost as much as all else"
    )]
    #[inline(always)]
    fn find_stage<C: Compare>(&self, compare: C, keys: &[K], places: &mut [Option<Place>]) {
        let count = keys.len().min(STAGE);
        let mut homes = [Home::default(); STAGE];
        for at in 0..count {
            homes[at] = self.home(&keys[at]);
            prefetch(&self.buckets[homes[at].primary as usize]);
        }
        // The record that may be each key's, and what else there is to look at.
        let mut records = [0_u32; STAGE];
        let mut others = [0_u32; STAGE];
        let mut waiting = [0_u8; STAGE];
        let mut waiters = 0;
        for at in 0..count {
            let home = homes[at];
            let bucket = &self.buckets[home.primary as usize];
            let equal = u32::from(compare.compare(bucket, home.tag, TAG));
            let away = bucket.get(home.filter_bit()) / FILTER;
            records[at] = self.candidate(home.primary, equal);
            others[at] = equal | (away * AWAY);
            waiting[waiters % STAGE] = at as u8;
            waiters += usize::from(others[at] == AWAY);
        }
        let mut seconds = [0_u32; STAGE];
        for turn in 0..waiters.min(STAGE) {
            seconds[turn] = self.second(homes[usize::from(waiting[turn]) % STAGE]);
            prefetch(&self.buckets[seconds[turn] as usize]);
        }
        for turn in 0..waiters.min(STAGE) {
            let at = usize::from(waiting[turn]) % STAGE;
            let bucket = &self.buckets[seconds[turn] as usize];
            let equal = u32::from(compare.compare(bucket, homes[at].tag, TAG));
            records[at] = self.candidate(seconds[turn], equal);
            others[at] = equal | AWAY;
        }
        waiters = 0;
        for at in 0..count {
            let record = records[at];
            let equal = self.records.matches(record as usize, &keys[at].to_words());
            places[at] = equal.then_some(Place(record));
            waiting[waiters % STAGE] = at as u8;
            waiters += usize::from(!equal & (others[at] != 0));
        }
        for turn in 0..waiters.min(STAGE) {
            let at = usize::from(waiting[turn]) % STAGE;
            let words = keys[at].to_words();
            places[at] = match others[at] {
                // Both buckets are done.
                AWAY => self.find_conflict(homes[at], &words, &mut 0),
                _ => self.find_at(homes[at], &words, &mut Probes::default()),
            };
        }
    }

    /// The record of the first of the lanes that match, and its line on the way. The last record if no lane
    /// does, so that comparing it needs no branch: whatever record holds the key is the right one.
    #[inline(always)]
    fn candidate(&self, bucket: u32, equal: u32) -> u32 {
        let last = (self.records.0.len() - 1) as u32;
        let lane = (equal | 1 << (LANES - 1)).trailing_zeros();
        let record = select_unpredictable(equal != 0, bucket * LANES as u32 + lane, last);
        self.records.prefetch(record as usize);
        record
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::{Keyed, Session4, Shape};
    use super::*;
    use crate::memory::Pages;
    use alloc::vec::Vec;

    /// Full buckets, sessions in their second bucket and in the conflict list, and misses of all kinds.
    #[test]
    fn every_compare_finds_what_find_does() {
        let shape = Shape {
            buckets: 61,
            buckets_max: 61,
            pool: 200,
            primary_fill: 13,
        };
        let hash = Keyed::new([1, 2, 3, 4]);
        let mut table = SignatureTable::<Session4, _>::with_pages(shape, hash, Pages::Normal);
        let session = |n: u32| Session4 {
            source: n,
            ..Session4::default()
        };
        for n in 0..1000 {
            table.add(&session(n)).unwrap();
        }
        let occupancy = table.occupancy();
        assert!(
            occupancy.second > 50 && occupancy.conflicts > 10,
            "{occupancy:?}"
        );
        let keys: Vec<Session4> = (500..1501).map(session).collect();
        let expected: Vec<Option<Place>> = keys.iter().map(|key| table.find(key)).collect();
        assert_eq!(expected.iter().flatten().count(), 500);
        type Find<'a> = &'a dyn Fn(&[Session4], &mut [Option<Place>]);
        let check = |find: Find<'_>| {
            for batch in [1, 7, 8, 32, 33, 1001] {
                let mut places = alloc::vec![Some(Place(7)); keys.len()];
                for (keys, places) in keys.chunks(batch).zip(places.chunks_mut(batch)) {
                    find(keys, places);
                }
                assert_eq!(places, expected, "batches of {batch}");
            }
        };
        check(&|keys, places| table.find_batch(keys, places));
        check(&|keys, places| table.find_batch_with(Portable, keys, places));
        #[cfg(all(target_arch = "x86_64", feature = "std"))]
        {
            use super::super::bucket::{Avx2, Avx512};
            if let Some(avx2) = Avx2::detect() {
                // SAFETY: the processor has AVX2.
                check(&|keys, places| unsafe { table.find_batch_avx2(avx2, keys, places) });
            }
            if let Some(avx512) = Avx512::detect() {
                // SAFETY: the processor has AVX-512F.
                check(&|keys, places| unsafe { table.find_batch_avx512(avx512, keys, places) });
            }
        }
    }
}
