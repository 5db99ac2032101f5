//! Keyed hashes of names and of their prefixes.

use core::hash::Hasher;

use siphasher::sip::SipHasher13;
use smallvec::SmallVec;
use wire::ndn::NameRef;

/// Prefixes of a name that tables look at: deeper ones are not in any table, as in NFD.
pub const DEPTH_MAX: usize = 32;

/// A keyed hash function for names (SipHash-1-3): who does not know the key cannot make names collide.
#[derive(Clone, Copy, Debug)]
pub struct NameHasher {
    key: [u64; 2],
}

/// Which prefixes of a name are asked for, by their components: bit `n` for those of `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depths(u64);

/// The hashes of some prefixes of a name of 0 to [`DEPTH_MAX`] components.
#[derive(Clone, Debug, Default)]
pub struct PrefixHashes {
    found: SmallVec<[Prefix; 5]>,
}

#[derive(Clone, Copy, Debug)]
struct Prefix {
    hash: u64,
    end: u16,
    depth: u8,
}

/// Names of up to so many bytes are hashed once a prefix: that is less work than to stop in between.
const SHORT_BYTES: usize = 192;

impl Depths {
    /// All that tables look at.
    pub const ALL: Self = Self((1 << (DEPTH_MAX + 1)) - 1);

    /// Returns the depths at which `counts` is not zero, from 0 on.
    pub fn of_counts(counts: impl IntoIterator<Item = u32>) -> Self {
        let bits = counts.into_iter().take(DEPTH_MAX + 1).enumerate();
        Self(bits.fold(0, |bits, (depth, count)| {
            bits | u64::from(count > 0) << depth
        }))
    }

    /// Returns the depths of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if prefixes of `depth` components are asked for.
    #[inline]
    pub const fn has(self, depth: usize) -> bool {
        depth <= DEPTH_MAX && self.0 >> depth & 1 == 1
    }

    const fn has_beyond(self, depth: usize) -> bool {
        depth < DEPTH_MAX && self.0 >> (depth + 1) != 0
    }
}

impl NameHasher {
    /// Makes a hash function from 128 random bits.
    pub const fn new(key: [u64; 2]) -> Self {
        Self { key }
    }

    fn sip(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.key[0], self.key[1])
    }

    /// Hashes a whole name.
    #[inline]
    pub fn hash(&self, name: NameRef<'_>) -> u64 {
        self.sip().hash(name.value())
    }

    /// Hashes the prefixes of a name that are asked for; O(length).
    pub fn prefixes(&self, name: NameRef<'_>, depths: Depths) -> PrefixHashes {
        let mut out = PrefixHashes::default();
        if depths.has(0) {
            out.push(self.hash(NameRef::EMPTY), 0, 0);
        }
        let is_short = name.value().len() <= SHORT_BYTES;
        let mut hasher = self.sip();
        for (component, depth) in name.components().zip(1..=DEPTH_MAX) {
            if !is_short {
                hasher.write(component.bytes);
            }
            if depths.has(depth) {
                let hash = match name.value().get(..component.end) {
                    Some(prefix) if is_short => self.sip().hash(prefix),
                    _ => hasher.finish(),
                };
                out.push(hash, component.end, depth);
            }
            if !depths.has_beyond(depth) {
                break;
            }
        }
        out
    }
}

/// Returns the hash of a nonce together with the name that has the hash `whole`.
#[inline]
pub const fn with_nonce(whole: u64, nonce: [u8; 4]) -> u64 {
    (whole ^ u32::from_be_bytes(nonce) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl PrefixHashes {
    fn push(&mut self, hash: u64, end: usize, depth: usize) {
        self.found.push(Prefix {
            hash,
            end: end as u16,
            depth: depth as u8,
        });
    }

    /// Walks the prefixes from the longest of at most `depth` components down: component count, hash and end.
    #[inline]
    pub fn longest_first(&self, depth: usize) -> impl Iterator<Item = (usize, u64, usize)> + '_ {
        let each = self.found.iter().rev();
        each.map(|prefix| {
            let depth = usize::from(prefix.depth);
            (depth, prefix.hash, usize::from(prefix.end))
        })
        .skip_while(move |&(longest, ..)| longest > depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;
    use wire::ndn::name::Name;

    #[test]
    fn each_prefix_hashes_as_it_does_alone() {
        let hasher = NameHasher::new([1, 2]);
        let short: Name = "/a/bb/ccc/dddd".parse().unwrap();
        let long = short.clone().with_generic(&[7; SHORT_BYTES]);
        let deep = (0..40).fold(Name::new(), |name, n| name.with_segment(n));
        for name in [short, long, deep] {
            let hashes = hasher.prefixes(name.as_ref(), Depths::ALL);
            for (depth, hash, end) in hashes.longest_first(DEPTH_MAX) {
                let prefix = name.as_ref().prefix(depth);
                assert_eq!(hash, hasher.hash(prefix), "{prefix}");
                assert_eq!(end, prefix.value().len());
            }
            assert_eq!(hashes.longest_first(2).count(), 3);
            let all = name.len().min(DEPTH_MAX) + 1;
            assert_eq!(hashes.longest_first(DEPTH_MAX).count(), all);
            let some = Depths::of_counts([0, 0, 3, 0, 1, 0]);
            let found: Vec<_> = hasher
                .prefixes(name.as_ref(), some)
                .longest_first(DEPTH_MAX)
                .map(|(depth, ..)| depth)
                .collect();
            assert_eq!(found, [4, 2]);
        }
    }

    #[test]
    fn a_nonce_changes_the_hash() {
        assert_ne!(with_nonce(5, [0, 0, 0, 1]), with_nonce(5, [0, 0, 0, 2]));
        assert_ne!(with_nonce(5, [0, 0, 0, 1]), with_nonce(6, [0, 0, 0, 1]));
    }
}
