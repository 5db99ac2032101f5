//! Hashes of names: one pass over a name's bytes gives the hash of every prefix.
//!
//! A hash has 128 bits. The low half chooses bucket and tag; a prefix node is known by all 128 (its name is
//! not stored), a packet by its name, byte for byte.

use core::hash::Hasher;
use siphasher::sip128::{Hasher128, SipHasher13};
use wire::ndn::NameRef;

/// Buckets that names share which differ in the low bits of their last byte only: a segment after the other of one
/// file lies in a bucket after the other, which a reader of them asks for in advance. All but these bits of a name
/// decide which buckets; its keyed hash also rotates them.
#[cfg(not(any(loom, shuttle)))]
pub(crate) const RUN: u32 = 64;
#[cfg(any(loom, shuttle))]
pub(crate) const RUN: u32 = 2;
/// Sets the four runs of one name with all last bytes apart.
const RUN_STRIDE: u32 = 0x9e37_79c0;
const ODD: u32 = 0x85eb_ca6b;

/// The hash of a name or of a prefix of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PrefixHash {
    /// Chooses bucket (high 32 bits) and tag (low 32 bits).
    pub low: u64,
    /// Tells prefix nodes apart whose low halves are equal.
    pub high: u64,
}

impl PrefixHash {
    pub(crate) const fn bucket_part(self) -> u32 {
        (self.low >> 32) as u32
    }
    pub(crate) const fn tag(self) -> u32 {
        self.low as u32
    }

    /// The hash of a name whose last byte follows what was hashed.
    #[inline(always)]
    const fn then(self, last: u8) -> Self {
        let last = last as u32;
        let part = self.bucket_part();
        let run = part.wrapping_add((last / 64).wrapping_mul(RUN_STRIDE)) & !(RUN - 1);
        let part = run | part.wrapping_add(last) & (RUN - 1);
        let tag = self.tag().wrapping_add(last.wrapping_mul(ODD));
        Self {
            low: (part as u64) << 32 | tag as u64,
            high: self.high.wrapping_add(last as u64),
        }
    }
}

/// A hash function for names, with its key.
#[derive(Clone, Copy, Debug)]
pub enum NameHash {
    /// SipHash-1-3 with 128 bits of output under a secret key of 128 bits: who does not know the key cannot
    /// choose names that share a bucket (the default).
    Keyed([u64; 2]),
    /// Folded multiplications from a secret seed of 128 bits: faster, without a proof that nobody can find
    /// names that share a bucket.
    Fast([u64; 2]),
}

impl NameHash {
    /// Hashes a whole name (its TLV-VALUE).
    #[inline]
    pub fn hash(&self, name: &[u8]) -> PrefixHash {
        let (last, stem) = match name.split_last() {
            Some((last, stem)) => (Some(*last), stem),
            None => (None, name),
        };
        let hash = match self {
            Self::Keyed([a, b]) => {
                let hash = SipHasher13::new_with_keys(*a, *b).hash(stem);
                PrefixHash {
                    low: hash.h1,
                    high: hash.h2,
                }
            }
            Self::Fast(seed) => Fold::new(*seed).advance(stem, &mut 0, stem.len()),
        };
        last.map_or(hash, |last| hash.then(last))
    }

    /// Hashes a name and its prefix of `prefix_bytes`.
    #[inline]
    pub fn hash_with_prefix(&self, name: &[u8], prefix_bytes: usize) -> (PrefixHash, PrefixHash) {
        let mut hashes = [PrefixHash::default(); 2];
        self.hash_ends(
            name,
            [prefix_bytes.min(name.len()), name.len()].into_iter(),
            &mut hashes,
        );
        let [prefix, whole] = hashes;
        (whole, prefix)
    }

    /// Writes the hash of each prefix of `name`, from that of no component to the whole name, to `hashes`
    /// until it is full; returns how many there are. One pass: O(bytes of the name).
    pub fn hash_prefixes(&self, name: NameRef<'_>, hashes: &mut [PrefixHash]) -> usize {
        let ends = core::iter::once(0).chain(name.components().map(|component| component.end));
        self.hash_ends(name.value(), ends, hashes)
    }

    /// Hashes the prefixes of `bytes` that end at `ends`, which grow.
    #[inline]
    fn hash_ends(
        &self,
        bytes: &[u8],
        ends: impl Iterator<Item = usize>,
        hashes: &mut [PrefixHash],
    ) -> usize {
        let mut at = 0;
        let mut count = 0;
        match self {
            Self::Keyed([a, b]) => {
                let mut hasher = SipHasher13::new_with_keys(*a, *b);
                for (end, hash) in ends.zip(hashes) {
                    let stem = end.saturating_sub(1);
                    hasher.write(bytes.get(at..stem).unwrap_or_default());
                    *hash = with_last(sip_end(&hasher), bytes, end);
                    (at, count) = (stem, count + 1);
                }
            }
            Self::Fast(seed) => {
                let mut fold = Fold::new(*seed);
                for (end, hash) in ends.zip(hashes) {
                    let stem = fold.advance(bytes, &mut at, end.saturating_sub(1));
                    *hash = with_last(stem, bytes, end);
                    count += 1;
                }
            }
        }
        count
    }
}

/// The hash of `bytes[..end]` of that of all but its last byte.
#[inline(always)]
fn with_last(stem: PrefixHash, bytes: &[u8], end: usize) -> PrefixHash {
    match end.checked_sub(1).and_then(|last| bytes.get(last)) {
        Some(last) => stem.then(*last),
        None => stem,
    }
}

/// The bucket of the next name of a run.
#[inline(always)]
pub(crate) const fn next_bucket(part: u32) -> u32 {
    part & !(RUN - 1) | part.wrapping_add(1) & (RUN - 1)
}

#[inline]
fn sip_end(hasher: &SipHasher13) -> PrefixHash {
    let hash = hasher.finish128();
    PrefixHash {
        low: hash.h1,
        high: hash.h2,
    }
}

/// Two lanes of folded multiplications over the words of a name.
#[derive(Clone, Copy)]
struct Fold {
    low: u64,
    high: u64,
}

const ODD_LOW: u64 = 0x9e37_79b9_7f4a_7c15;
const ODD_HIGH: u64 = 0xc2b2_ae3d_27d4_eb4f;

impl Fold {
    #[inline]
    fn new([a, b]: [u64; 2]) -> Self {
        Self { low: a, high: b }
    }

    #[inline]
    fn absorb(&mut self, word: u64) {
        self.low = fold(self.low ^ word, ODD_LOW).wrapping_add(self.high);
        self.high = fold(self.high.wrapping_add(word), ODD_HIGH) ^ word.rotate_left(23);
    }

    /// Absorbs whole words up to `end`, of which `at` bytes were absorbed, and returns the hash of
    /// `bytes[..end]`.
    #[inline]
    fn advance(&mut self, bytes: &[u8], at: &mut usize, end: usize) -> PrefixHash {
        let (words, tail) = bytes.get(*at..end).unwrap_or_default().as_chunks::<8>();
        for word in words {
            self.absorb(u64::from_le_bytes(*word));
        }
        *at += 8 * words.len();
        self.end(tail, end)
    }

    #[inline]
    fn end(&self, tail: &[u8], len: usize) -> PrefixHash {
        let mut last = 0;
        for (at, byte) in tail.iter().enumerate() {
            last |= u64::from(*byte) << (8 * at);
        }
        let mut copy = *self;
        copy.absorb(last);
        copy.absorb(len as u64);
        PrefixHash {
            low: fold(copy.low ^ ODD_HIGH, copy.high | 1),
            high: fold(copy.high ^ ODD_LOW, copy.low | 1),
        }
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn name(components: usize) -> Vec<u8> {
        (0..components)
            .flat_map(|at| {
                let len = at % 11;
                let mut bytes = alloc::vec![8, len as u8];
                bytes.extend((0..len).map(|byte| (byte * 7 + at) as u8));
                bytes
            })
            .collect()
    }

    #[test]
    fn every_prefix_hashes_as_if_alone() {
        for hash in [NameHash::Keyed([1, 2]), NameHash::Fast([3, 4])] {
            let bytes = name(40);
            let view = NameRef::new(&bytes).unwrap();
            let mut hashes = [PrefixHash::default(); 64];
            assert_eq!(hash.hash_prefixes(view, &mut hashes), 41);
            for count in 0..=40 {
                let prefix = view.prefix(count);
                assert_eq!(hashes[count], hash.hash(prefix.value()), "{count}");
                let both = hash.hash_with_prefix(&bytes, prefix.value().len());
                assert_eq!(both, (hashes[40], hashes[count]));
                assert!(!hashes[..count].contains(&hashes[count]));
            }
        }
    }

    /// Segments in order lie in buckets in order; no two of one stem have one bucket, tag and high half.
    #[test]
    fn segments_lie_side_by_side() {
        for hash in [NameHash::Keyed([1, 2]), NameHash::Fast([3, 4])] {
            let mut seen = alloc::collections::BTreeSet::new();
            for at in 0..=255_u8 {
                let this = hash.hash(&[8, 1, b'f', 50, 1, at]);
                assert!(seen.insert((this.low, this.high)));
                if at % 64 < 63 {
                    let next = hash.hash(&[8, 1, b'f', 50, 1, at + 1]).bucket_part();
                    assert_eq!(next, next_bucket(this.bucket_part()));
                }
            }
        }
    }

    #[test]
    fn keys_and_functions_differ_and_buckets_are_even() {
        for make in [NameHash::Keyed, NameHash::Fast] {
            assert_ne!(
                make([1, 2]).hash(b"\x08\x01a"),
                make([1, 3]).hash(b"\x08\x01a")
            );
            let mut counts = [0_u32; 256];
            let mut tags = [0_u32; 256];
            for at in 0..65_536_u32 {
                let mut bytes = *b"\x08\x04....\x32\x02..";
                bytes[2..6].copy_from_slice(&at.to_be_bytes());
                bytes[8..10].copy_from_slice(&(at as u16 % 16).to_be_bytes());
                let hash = make([5, 6]).hash(&bytes);
                counts[(hash.low >> 56) as usize] += 1;
                tags[(hash.low & 255) as usize] += 1;
            }
            for counts in [counts, tags] {
                // 256 degrees of freedom: chi-square is below 400 but once in 10^8.
                let chi: f64 = counts
                    .iter()
                    .map(|n| (f64::from(*n) - 256.0).powi(2) / 256.0)
                    .sum();
                assert!(chi < 400.0, "{chi}");
            }
        }
    }
}
