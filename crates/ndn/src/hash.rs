//! Keyed hashes of names and of all their prefixes in one pass.

use core::hash::Hasher;

use siphasher::sip::SipHasher13;
use wire::ndn::NameRef;

/// Prefixes of a name that tables look at: deeper ones are not in any table, as in NFD.
pub const DEPTH_MAX: usize = 32;

/// A keyed hash function for names (SipHash-1-3): who does not know the key cannot make names collide.
#[derive(Clone, Copy, Debug)]
pub struct NameHasher {
    key: [u64; 2],
}

/// The hashes of a name's prefixes of 0 to [`DEPTH_MAX`] components, and of the whole name.
#[derive(Clone, Copy, Debug)]
pub struct PrefixHashes {
    hashes: [u64; DEPTH_MAX + 1],
    ends: [u16; DEPTH_MAX + 1],
    depth: usize,
    whole: u64,
}

impl NameHasher {
    /// Makes a hash function from 128 random bits.
    pub const fn new(key: [u64; 2]) -> Self {
        Self { key }
    }

    /// Hashes a whole name.
    pub fn hash(&self, name: NameRef<'_>) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.key[0], self.key[1]);
        hasher.write(name.value());
        hasher.finish()
    }

    /// Hashes a name and its prefixes; O(length).
    pub fn prefixes(&self, name: NameRef<'_>) -> PrefixHashes {
        let mut hasher = SipHasher13::new_with_keys(self.key[0], self.key[1]);
        let mut out = PrefixHashes {
            hashes: [0; DEPTH_MAX + 1],
            ends: [0; DEPTH_MAX + 1],
            depth: 0,
            whole: 0,
        };
        out.hashes[0] = hasher.finish();
        out.whole = out.hashes[0];
        let mut hashed = 0;
        let places = out.hashes.iter_mut().zip(&mut out.ends).skip(1);
        for (component, (hash, end)) in name.components().zip(places) {
            hasher.write(component.bytes);
            *hash = hasher.finish();
            *end = component.end as u16;
            out.whole = *hash;
            out.depth += 1;
            hashed = component.end;
        }
        if let Some(rest) = name.value().get(hashed..).filter(|rest| !rest.is_empty()) {
            hasher.write(rest);
            out.whole = hasher.finish();
        }
        out
    }

    /// Hashes a name together with a nonce.
    pub fn with_nonce(&self, name: NameRef<'_>, nonce: [u8; 4]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.key[0], self.key[1]);
        hasher.write(name.value());
        hasher.write(&nonce);
        hasher.finish()
    }
}

impl PrefixHashes {
    /// Returns the hash of the whole name.
    pub const fn whole(&self) -> u64 {
        self.whole
    }

    /// Returns the length of the longest prefix that was hashed, in components.
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// Walks the prefixes from the longest of at most `depth` components down: component count, hash and end.
    pub fn longest_first(&self, depth: usize) -> impl Iterator<Item = (usize, u64, usize)> + '_ {
        let count = self.depth.min(depth) + 1;
        let hashes = self.hashes.iter().zip(&self.ends).take(count).enumerate();
        hashes
            .rev()
            .map(|(depth, (&hash, &end))| (depth, hash, usize::from(end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ndn::name::Name;

    #[test]
    fn each_prefix_hashes_as_it_does_alone() {
        let hasher = NameHasher::new([1, 2]);
        let name: Name = "/a/bb/ccc/dddd".parse().unwrap();
        let hashes = hasher.prefixes(name.as_ref());
        assert_eq!(hashes.whole(), hasher.hash(name.as_ref()));
        for (depth, hash, end) in hashes.longest_first(DEPTH_MAX) {
            let prefix = name.as_ref().prefix(depth);
            assert_eq!(hash, hasher.hash(prefix), "{prefix}");
            assert_eq!(end, prefix.value().len());
        }
        assert_eq!(hashes.longest_first(2).count(), 3);
        let deep = (0..40).fold(Name::new(), |name, n| name.with_segment(n));
        let hashes = hasher.prefixes(deep.as_ref());
        assert_eq!(hashes.depth(), DEPTH_MAX);
        assert_eq!(hashes.whole(), hasher.hash(deep.as_ref()));
    }
}
