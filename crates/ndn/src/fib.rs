//! The forwarding information base: longest-prefix match over a hash table of names.

use alloc::vec::Vec;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as TableEntry;
use smallvec::SmallVec;
use tables::memory::prefetch;
use wire::ndn::NameRef;
use wire::ndn::name::Name;

use crate::face::FaceId;
use crate::hash::{DEPTH_MAX, Depths, NameHasher, PrefixHashes};

/// A next hop and what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// The face.
    pub face: FaceId,
    /// Lower is better.
    pub cost: u64,
}

/// Next hops by cost, then by face.
pub type NextHops = SmallVec<[NextHop; 2]>;

/// A prefix with its next hops: two cache lines for names of up to 40 bytes.
#[derive(Clone, Debug)]
struct Entry {
    hash: u64,
    name: SmallVec<[u8; 40]>,
    next_hops: NextHops,
}

/// Why a next hop was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FibError {
    /// The table holds as many prefixes as it was made for.
    #[error("fib is full; make it for more prefixes")]
    Full,
    /// The prefix has more than [`DEPTH_MAX`] components.
    #[error("prefix has more than 32 components")]
    TooDeep,
}

/// The forwarding information base. A lookup hashes the prefixes of the name that are as long as some entry is, and
/// looks at them from the longest down: O(components).
#[derive(Debug)]
pub struct Fib {
    table: HashTable<Entry>,
    /// How many prefixes have how many components: lengths that do not occur are not looked up.
    counts: [u32; DEPTH_MAX + 1],
    depths: Depths,
    hasher: NameHasher,
    capacity: usize,
}

impl Fib {
    /// Makes room for `capacity` prefixes.
    pub fn new(capacity: usize, hasher: NameHasher) -> Self {
        Self {
            table: HashTable::with_capacity(capacity),
            counts: [0; DEPTH_MAX + 1],
            depths: Depths::default(),
            hasher,
            capacity,
        }
    }

    /// Returns the number of prefixes.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True if no prefix has a next hop.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Adds a next hop to a prefix, or changes its cost; true if it is new.
    ///
    /// # Errors
    /// [`FibError`].
    pub fn add(&mut self, prefix: NameRef<'_>, face: FaceId, cost: u64) -> Result<bool, FibError> {
        let count = self.counts.get_mut(prefix.len());
        let count = count.ok_or(FibError::TooDeep)?;
        let hash = self.hasher.hash(prefix);
        let is_full = self.table.len() >= self.capacity;
        let same = |entry: &Entry| entry.hash == hash && &*entry.name == prefix.value();
        match self.table.entry(hash, same, |entry| entry.hash) {
            TableEntry::Occupied(mut entry) => {
                let hops = &mut entry.get_mut().next_hops;
                let known = hops.iter().position(|hop| hop.face == face);
                if let Some(at) = known {
                    hops.remove(at);
                }
                let key = |hop: &NextHop| (hop.cost, hop.face);
                let at = hops.partition_point(|hop| key(hop) < (cost, face));
                hops.insert(at, NextHop { face, cost });
                Ok(known.is_none())
            }
            TableEntry::Vacant(_) if is_full => Err(FibError::Full),
            TableEntry::Vacant(place) => {
                let mut next_hops = NextHops::new();
                next_hops.push(NextHop { face, cost });
                place.insert(Entry {
                    hash,
                    name: SmallVec::from_slice(prefix.value()),
                    next_hops,
                });
                *count += 1;
                self.depths = Depths::of_counts(self.counts);
                Ok(true)
            }
        }
    }

    /// Removes a next hop of a prefix; the prefix goes with its last. True if it was there.
    pub fn remove(&mut self, prefix: NameRef<'_>, face: FaceId) -> bool {
        let hash = self.hasher.hash(prefix);
        let same = |entry: &Entry| entry.hash == hash && &*entry.name == prefix.value();
        let Ok(mut entry) = self.table.find_entry(hash, same) else {
            return false;
        };
        let hops = &mut entry.get_mut().next_hops;
        let Some(at) = hops.iter().position(|hop| hop.face == face) else {
            return false;
        };
        hops.remove(at);
        if hops.is_empty() {
            entry.remove();
            if let Some(count) = self.counts.get_mut(prefix.len()) {
                *count -= 1;
            }
            self.depths = Depths::of_counts(self.counts);
        }
        true
    }

    /// Removes a face from all prefixes; O(prefixes).
    pub fn remove_face(&mut self, face: FaceId) {
        let counts = &mut self.counts;
        self.table.retain(|entry| {
            entry.next_hops.retain(|hop| hop.face != face);
            let keep = !entry.next_hops.is_empty();
            if !keep && let Ok(name) = NameRef::new(&entry.name) {
                counts[name.len().min(DEPTH_MAX)] -= 1;
            }
            keep
        });
        self.depths = Depths::of_counts(self.counts);
    }

    /// Returns which prefixes of a name [`lookup`](Self::lookup) needs the hashes of.
    #[inline]
    pub const fn depths(&self) -> Depths {
        self.depths
    }

    /// Asks for the memory that [`lookup`](Self::lookup) will need, so that it is there by then.
    #[inline]
    pub fn look_ahead(&self, hashes: &PrefixHashes) {
        if let Some((_, hash, _)) = hashes.longest_first(DEPTH_MAX).next() {
            let ask = |entry: &Entry| {
                prefetch(entry);
                prefetch(&entry.next_hops);
                false
            };
            let _ = self.table.find(hash, ask);
        }
    }

    /// Finds the longest prefix of a name that has next hops: its length in components, its hash, and the
    /// next hops, cheapest first.
    #[inline]
    pub fn lookup(
        &self,
        name: NameRef<'_>,
        hashes: &PrefixHashes,
    ) -> Option<(usize, u64, &NextHops)> {
        for (depth, hash, end) in hashes.longest_first(DEPTH_MAX) {
            if !self.depths.has(depth) {
                continue;
            }
            let prefix = name.value().get(..end)?;
            let same = |entry: &Entry| entry.hash == hash && &*entry.name == prefix;
            if let Some(entry) = self.table.find(hash, same) {
                return Some((depth, hash, &entry.next_hops));
            }
        }
        None
    }

    /// Returns the next hops of exactly this prefix.
    pub fn get(&self, prefix: NameRef<'_>) -> Option<&NextHops> {
        let hash = self.hasher.hash(prefix);
        let same = |entry: &Entry| entry.hash == hash && &*entry.name == prefix.value();
        self.table.find(hash, same).map(|entry| &entry.next_hops)
    }

    /// Copies all entries in canonical order; O(prefixes log prefixes).
    pub fn entries(&self) -> Vec<(Name, NextHops)> {
        let mut all: Vec<_> = self
            .table
            .iter()
            .filter_map(|entry| {
                Some((Name::from_value(&entry.name).ok()?, entry.next_hops.clone()))
            })
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::string::String;

    fn name(uri: &str) -> Name {
        uri.parse().unwrap()
    }

    #[test]
    fn full_and_too_deep_are_refused() {
        let mut fib = Fib::new(1, NameHasher::new([1, 2]));
        assert_eq!(fib.add(name("/a").as_ref(), FaceId(256), 5), Ok(true));
        assert_eq!(fib.add(name("/a").as_ref(), FaceId(257), 1), Ok(true));
        assert_eq!(fib.add(name("/a").as_ref(), FaceId(257), 9), Ok(false));
        assert_eq!(
            fib.add(name("/b").as_ref(), FaceId(256), 5),
            Err(FibError::Full)
        );
        let deep = (0..33).fold(Name::new(), |name, n| name.with_segment(n));
        assert_eq!(
            fib.add(deep.as_ref(), FaceId(256), 5),
            Err(FibError::TooDeep)
        );
        let hops = fib.get(name("/a").as_ref()).unwrap();
        let costs: Vec<_> = hops.iter().map(|hop| (hop.face.0, hop.cost)).collect();
        assert_eq!(costs, [(256, 5), (257, 9)]);
        fib.remove_face(FaceId(256));
        fib.remove_face(FaceId(257));
        assert!(fib.is_empty() && fib.depths() == Depths::default());
    }

    proptest! {
        #[test]
        fn finds_what_a_sorted_map_finds(
            ops in proptest::collection::vec((any::<bool>(), "(/[ab]){0,4}", 256..259_u32, 0..3_u64), 1..60),
            asked in proptest::collection::vec("(/[ab]){1,6}", 1..10),
        ) {
            let hasher = NameHasher::new([3, 4]);
            let mut fib = Fib::new(64, hasher);
            let mut model: BTreeMap<String, BTreeMap<u32, u64>> = BTreeMap::new();
            for (add, uri, face, cost) in ops {
                let prefix = name(&uri);
                if add {
                    fib.add(prefix.as_ref(), FaceId(face), cost).unwrap();
                    model.entry(uri).or_default().insert(face, cost);
                } else {
                    let there = model.get_mut(&uri).is_some_and(|hops| hops.remove(&face).is_some());
                    model.retain(|_, hops| !hops.is_empty());
                    prop_assert_eq!(fib.remove(prefix.as_ref(), FaceId(face)), there);
                }
            }
            prop_assert_eq!(fib.len(), model.len());
            for uri in asked {
                let full = name(&uri);
                let hashes = hasher.prefixes(full.as_ref(), fib.depths());
                let found = fib.lookup(full.as_ref(), &hashes);
                let expected = (0..=full.len()).rev().find_map(|depth| {
                    let prefix = uri.split_inclusive('/').take(depth + 1).collect::<String>();
                    let prefix = if depth == 0 { "" } else { prefix.trim_end_matches('/') };
                    model.get(prefix).map(|hops| (depth, hops.clone()))
                });
                let found = found.map(|(depth, _, hops)| {
                    (depth, hops.iter().map(|hop| (hop.face.0, hop.cost)).collect())
                });
                prop_assert_eq!(found, expected);
            }
        }
    }
}
