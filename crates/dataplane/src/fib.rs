//! Longest-prefix match: a multibit trie with a first stride of 16 bits and strides of 8 bits after
//! it, leaves pushed down (as DIR-24-8, but small where the table is small).
//!
//! `tables::lpm` has tables for full Internet routing: built for a million prefixes that change one by one,
//! they take 64 MiB for IPv4 whatever is in them. This one is for the routes of a configuration file,
//! built anew at each reload: smaller, and faster as long as it stays in the caches.
//!
//! A lookup in a v4 table reads at most three words; in a v6 table one, and one more for each 8 bits
//! of the longest prefix on its path beyond 16. A table of a handful of routes is one array of
//! 256 KiB, of which traffic touches only the lines of its destinations.

use crate::prefix::Prefix;
use std::net::IpAddr;

/// Entries of the root: one for each value of the first 16 bits.
const ROOT: usize = 1 << 16;
/// Entries of a node below the root.
const NODE: usize = 256;
/// Marks an entry that points to a node; the rest of it is the node's number.
const POINTER: u32 = 1 << 31;

/// What a lookup yields: a number that the caller gave at build time, below 2^31 - 1.
pub type Value = u32;

/// A longest-prefix-match table over addresses of `BYTES` bytes; built once, then only read.
#[derive(Clone)]
pub struct Fib<const BYTES: usize> {
    /// 0: no route; else the value plus one, or a pointer.
    root: Box<[u32]>,
    nodes: Vec<u32>,
    prefixes: usize,
}

/// An IPv4 table.
pub type Fib4 = Fib<4>;
/// An IPv6 table.
pub type Fib6 = Fib<16>;

impl<const BYTES: usize> core::fmt::Debug for Fib<BYTES> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Fib")
            .field("address_bytes", &BYTES)
            .field("prefixes", &self.prefixes)
            .field("memory_bytes", &self.memory_bytes())
            .finish()
    }
}

impl<const BYTES: usize> Fib<BYTES> {
    /// Builds the table; of two equal prefixes the later one wins. Bits after a prefix's length are
    /// ignored. O(prefixes x the width of the stride they end in).
    pub fn build(routes: impl IntoIterator<Item = ([u8; BYTES], u8, Value)>) -> Self {
        const { assert!(BYTES >= 2, "the root takes two bytes") };
        let mut routes: Vec<_> = routes.into_iter().collect();
        // Shorter first: a longer prefix then overwrites the leaves of the shorter ones that hold it.
        routes.sort_by_key(|&(_, length, _)| length);
        let mut fib = Self {
            root: vec![0; ROOT].into_boxed_slice(),
            nodes: Vec::new(),
            prefixes: routes.len(),
        };
        for (address, length, value) in routes {
            fib.insert(&address, usize::from(length).min(BYTES * 8), value + 1);
        }
        fib
    }

    fn insert(&mut self, address: &[u8; BYTES], length: usize, entry: u32) {
        let first = usize::from(u16::from_be_bytes([address[0], address[1]]));
        if length <= 16 {
            let span = 1 << (16 - length);
            let start = first & !(span - 1);
            self.root[start..start + span].fill(entry);
            return;
        }
        let mut node = {
            let slot = self.root[first];
            let (slot, node) = Self::descend(&mut self.nodes, slot);
            self.root[first] = slot;
            node
        };
        let mut depth = 16;
        for &byte in &address[2..] {
            let at = node * NODE + usize::from(byte);
            if length <= depth + 8 {
                let span = 1 << (depth + 8 - length);
                let start = node * NODE + (usize::from(byte) & !(span - 1));
                self.nodes[start..start + span].fill(entry);
                return;
            }
            let here = self.nodes[at];
            let (slot, child) = Self::descend(&mut self.nodes, here);
            self.nodes[at] = slot;
            node = child;
            depth += 8;
        }
    }

    /// Returns the entry that points to the node below `entry`, and the node; makes it, filled with
    /// what `entry` said, if there is none.
    fn descend(nodes: &mut Vec<u32>, entry: u32) -> (u32, usize) {
        if entry & POINTER != 0 {
            return (entry, (entry & !POINTER) as usize);
        }
        let node = nodes.len() / NODE;
        nodes.resize(nodes.len() + NODE, entry);
        (POINTER | node as u32, node)
    }

    /// Returns the value of the longest prefix that holds `address`.
    #[inline]
    pub fn lookup(&self, address: &[u8; BYTES]) -> Option<Value> {
        let first = usize::from(u16::from_be_bytes([address[0], address[1]]));
        let mut entry = self.root.get(first).copied().unwrap_or(0);
        for &byte in &address[2..] {
            if entry & POINTER == 0 {
                break;
            }
            let at = (entry & !POINTER) as usize * NODE + usize::from(byte);
            entry = self.nodes.get(at).copied().unwrap_or(0);
        }
        entry.checked_sub(1)
    }

    /// Returns how many prefixes the table was built from.
    pub fn prefixes(&self) -> usize {
        self.prefixes
    }

    /// Returns the memory that the table takes, bytes.
    pub fn memory_bytes(&self) -> usize {
        (self.root.len() + self.nodes.len()) * size_of::<u32>()
    }
}

/// Builds the tables of both families from one list.
pub fn build_both(routes: &[(Prefix, Value)]) -> (Fib4, Fib6) {
    let v4 = routes.iter().filter_map(|&(p, value)| match p.address {
        IpAddr::V4(a) => Some((a.octets(), p.length, value)),
        IpAddr::V6(_) => None,
    });
    let v6 = routes.iter().filter_map(|&(p, value)| match p.address {
        IpAddr::V6(a) => Some((a.octets(), p.length, value)),
        IpAddr::V4(_) => None,
    });
    (Fib4::build(v4), Fib6::build(v6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive<const B: usize>(routes: &[([u8; B], u8, Value)], address: &[u8; B]) -> Option<Value> {
        let covers = |prefix: &[u8; B], length: u8| {
            (0..usize::from(length))
                .all(|bit| (prefix[bit / 8] ^ address[bit / 8]) & (0x80 >> (bit % 8)) == 0)
        };
        let mut best: Option<(u8, Value)> = None;
        for &(prefix, length, value) in routes {
            if covers(&prefix, length) && best.is_none_or(|(l, _)| length >= l) {
                best = Some((length, value));
            }
        }
        best.map(|(_, value)| value)
    }

    #[test]
    fn the_longest_prefix_wins() {
        let fib = Fib4::build([
            ([0, 0, 0, 0], 0, 1),
            ([10, 0, 0, 0], 8, 2),
            ([10, 1, 0, 0], 16, 3),
            ([10, 1, 2, 0], 24, 4),
            ([10, 1, 2, 3], 32, 5),
            ([10, 1, 2, 128], 25, 6),
        ]);
        for (address, value) in [
            ([9, 9, 9, 9], 1),
            ([10, 200, 0, 1], 2),
            ([10, 1, 9, 9], 3),
            ([10, 1, 2, 4], 4),
            ([10, 1, 2, 3], 5),
            ([10, 1, 2, 200], 6),
        ] {
            assert_eq!(fib.lookup(&address), Some(value), "{address:?}");
        }
        assert_eq!(Fib4::build([]).lookup(&[1, 2, 3, 4]), None);
    }

    proptest! {
        /// Against a linear search, with addresses taken near the prefixes so that they meet.
        #[test]
        fn v4_agrees_with_a_linear_search(
            routes in prop::collection::vec((any::<[u8; 4]>(), 0u8..=32, 0u32..1000), 0..60),
            probes in prop::collection::vec((any::<prop::sample::Index>(), any::<u32>(), 0u32..32), 1..60),
        ) {
            let fib = Fib4::build(routes.iter().copied());
            for (index, noise, shift) in probes {
                let base = if routes.is_empty() { [0; 4] } else { routes[index.index(routes.len())].0 };
                let address = (u32::from_be_bytes(base) ^ (noise >> shift)).to_be_bytes();
                prop_assert_eq!(fib.lookup(&address), naive(&routes, &address));
            }
        }

        #[test]
        fn v6_agrees_with_a_linear_search(
            routes in prop::collection::vec((any::<[u8; 16]>(), 0u8..=128, 0u32..1000), 0..40),
            probes in prop::collection::vec((any::<prop::sample::Index>(), any::<u128>(), 0u32..128), 1..60),
        ) {
            let fib = Fib6::build(routes.iter().copied());
            for (index, noise, shift) in probes {
                let base = if routes.is_empty() { [0; 16] } else { routes[index.index(routes.len())].0 };
                let address = (u128::from_be_bytes(base) ^ (noise >> shift)).to_be_bytes();
                prop_assert_eq!(fib.lookup(&address), naive(&routes, &address));
            }
        }
    }
}
