//! IPv6: a table of the first 18 bits, then nodes of 6 bits whose children and leaves are found by counting
//! bits (poptrie; Asai and Ohara, SIGCOMM 2015). Immutable: an update builds the next snapshot.

use super::{LpmError, MAX_VALUES, NO_ROUTE, Prefix6, STAGE};
use crate::memory::{Memory, Pages, prefetch};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

const DIRECT_LEN: u32 = 18;
const STRIDE: u32 = 6;
const FANOUT: usize = 1 << STRIDE;
/// Bit of a direct word that tells a value (or no route) in place of a node.
const LEAF: u32 = 1 << 31;
/// Value bits of a leaf without a route.
const NO_VALUE: u32 = MAX_VALUES;

/// Which children are nodes, where runs of equal leaves start, and where both arrays are
/// (nodes in the low half of the last word, leaves in the high half).
type Words = [AtomicU64; 3];

/// A node as it is built.
#[derive(Clone, Copy, Default)]
struct Node {
    children: u64,
    leaf_runs: u64,
    first_child: u32,
    first_leaf: u32,
}

impl Node {
    #[inline(always)]
    fn load(words: &Words) -> Self {
        // Relaxed: the table is immutable after `build`, and was handed over as a whole.
        let bases = words[2].load(Ordering::Relaxed);
        Self {
            children: words[0].load(Ordering::Relaxed),
            leaf_runs: words[1].load(Ordering::Relaxed),
            first_child: bases as u32,
            first_leaf: (bases >> 32) as u32,
        }
    }

    fn store(self, words: &Words) {
        let bases = u64::from(self.first_leaf) << 32 | u64::from(self.first_child);
        // Relaxed: nobody else has the table yet.
        words[0].store(self.children, Ordering::Relaxed);
        words[1].store(self.leaf_runs, Ordering::Relaxed);
        words[2].store(bases, Ordering::Relaxed);
    }

    /// Goes to the child for 6 bits of the address: a node's number, or a leaf's.
    #[inline(always)]
    fn step(self, bits: u32) -> Step {
        let upto = u64::MAX >> (63 - bits);
        if self.children >> bits & 1 == 1 {
            Step::Node(self.first_child + (self.children & upto).count_ones() - 1)
        } else {
            Step::Leaf(self.first_leaf + (self.leaf_runs & upto).count_ones() - 1)
        }
    }
}

enum Step {
    Node(u32),
    Leaf(u32),
}

/// An IPv6 table: at most 4 dependent accesses for a /36, 6 for a /48, 8 for a /64.
///
/// ```
/// use tables::lpm::{Lpm6, Prefix6};
///
/// let net = |text: &str, len| Prefix6::masked(text.parse().unwrap(), len);
/// let table = Lpm6::build(&[(net("2001:db8::", 32), 1), (net("2001:db8:7::", 48), 2)])?;
/// assert_eq!(table.lookup("2001:db8:7::1".parse().unwrap()), Some(2));
/// assert_eq!(table.lookup("2001:db8:8::1".parse().unwrap()), Some(1));
/// assert_eq!(table.lookup("2001:db9::1".parse().unwrap()), None);
/// # Ok::<(), tables::lpm::LpmError>(())
/// ```
#[derive(Debug)]
pub struct Lpm6 {
    direct: Memory<AtomicU32>,
    nodes: Memory<Words>,
    leaves: Memory<AtomicU32>,
    len: usize,
}

impl Lpm6 {
    /// Makes a table of `prefixes`; of equal prefixes the last one counts. About half a second a million.
    ///
    /// # Errors
    /// If a value does not fit 24 bits.
    pub fn build(prefixes: &[(Prefix6, u32)]) -> Result<Self, LpmError> {
        if let Some(&(_, value)) = prefixes.iter().find(|(_, value)| *value >= MAX_VALUES) {
            return Err(LpmError::Value(value));
        }
        let mut sorted = prefixes.to_vec();
        // By address, then short before long, so that what nests comes after what it nests in; reversed
        // before the removal of duplicates, so that the last one of the caller's order stays.
        sorted.reverse();
        sorted.sort_by_key(|&(prefix, _)| prefix);
        sorted.dedup_by_key(|&mut (prefix, _)| prefix);
        let mut builder = Builder::default();
        let direct = builder.direct(&sorted);
        Ok(Self {
            direct: copy_words(&direct),
            nodes: {
                let nodes = Memory::zeroed(builder.nodes.len(), Pages::Huge);
                for (words, node) in nodes.iter().zip(&builder.nodes) {
                    node.store(words);
                }
                nodes
            },
            leaves: copy_words(&builder.leaves),
            len: sorted.len(),
        })
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without prefixes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the table.
    pub fn size_bytes(&self) -> usize {
        size_of_val(&*self.direct) + size_of_val(&*self.nodes) + size_of_val(&*self.leaves)
    }

    /// Returns the value of the longest prefix that covers `address`.
    pub fn lookup(&self, address: Ipv6Addr) -> Option<u32> {
        let address = u128::from(address);
        let word = self.direct_word(address);
        if word & LEAF != 0 {
            return as_value(word & !LEAF);
        }
        let mut node = word;
        let mut offset = DIRECT_LEN;
        loop {
            match Node::load(&self.nodes[node as usize]).step(bits_at(address, offset)) {
                Step::Node(next) => node = next,
                Step::Leaf(leaf) => {
                    return as_value(self.leaves[leaf as usize].load(Ordering::Relaxed));
                }
            }
            offset += STRIDE;
        }
    }

    /// Looks `addresses` (host order) up with their memory accesses overlapped, and writes each value, or
    /// [`NO_ROUTE`], to the same place of `values`. Stops at the shorter of the two.
    pub fn lookup_batch(&self, addresses: &[u128], values: &mut [u32]) {
        for (addresses, values) in addresses.chunks(STAGE).zip(values.chunks_mut(STAGE)) {
            self.lookup_stage(addresses, values);
        }
    }

    /// Walks up to [`STAGE`] addresses down the trie level by level.
    fn lookup_stage(&self, addresses: &[u128], values: &mut [u32]) {
        for &address in addresses {
            prefetch(&self.direct[direct_index(address)]);
        }
        // The lookups that are still in the trie: (place in the batch, node).
        let mut walking = [(0_u8, 0_u32); STAGE];
        let mut walkers = 0;
        for (place, (&address, value)) in addresses.iter().zip(values.iter_mut()).enumerate() {
            let word = self.direct_word(address);
            if word & LEAF != 0 {
                *value = as_value(word & !LEAF).unwrap_or(NO_ROUTE);
            } else {
                prefetch(&self.nodes[word as usize]);
                walking[walkers] = (place as u8, word);
                walkers += 1;
            }
        }
        // The lookups that reached a leaf: (place in the batch, leaf).
        let mut landed = [(0_u8, 0_u32); STAGE];
        let mut landings = 0;
        let mut offset = DIRECT_LEN;
        while walkers > 0 {
            let mut still = 0;
            for at in 0..walkers {
                let (place, node) = walking[at];
                let bits = bits_at(addresses[usize::from(place)], offset);
                match Node::load(&self.nodes[node as usize]).step(bits) {
                    Step::Node(next) => {
                        prefetch(&self.nodes[next as usize]);
                        walking[still] = (place, next);
                        still += 1;
                    }
                    Step::Leaf(leaf) => {
                        prefetch(&self.leaves[leaf as usize]);
                        landed[landings] = (place, leaf);
                        landings += 1;
                    }
                }
            }
            walkers = still;
            offset += STRIDE;
        }
        for &(place, leaf) in &landed[..landings] {
            let word = self.leaves[leaf as usize].load(Ordering::Relaxed);
            values[usize::from(place)] = as_value(word).unwrap_or(NO_ROUTE);
        }
    }

    #[inline(always)]
    fn direct_word(&self, address: u128) -> u32 {
        // Relaxed: as in `Node::load`.
        self.direct[direct_index(address)].load(Ordering::Relaxed)
    }
}

#[inline(always)]
fn direct_index(address: u128) -> usize {
    (address >> (128 - DIRECT_LEN)) as usize
}

/// Six bits of the address from bit `offset`; beyond the address, zeros.
#[inline(always)]
fn bits_at(address: u128, offset: u32) -> u32 {
    (address << offset >> (128 - STRIDE)) as u32
}

#[inline(always)]
fn as_value(leaf: u32) -> Option<u32> {
    (leaf < MAX_VALUES).then_some(leaf)
}

fn copy_words(words: &[u32]) -> Memory<AtomicU32> {
    let memory = Memory::<AtomicU32>::zeroed(words.len(), Pages::Huge);
    for (to, &from) in memory.iter().zip(words) {
        to.store(from, Ordering::Relaxed);
    }
    memory
}

#[derive(Default)]
struct Builder {
    nodes: Vec<Node>,
    leaves: Vec<u32>,
}

impl Builder {
    /// Builds everything and returns the direct words. `sorted`: by address, then length.
    fn direct(&mut self, sorted: &[(Prefix6, u32)]) -> Vec<u32> {
        let mut direct = vec![LEAF | NO_VALUE; 1 << DIRECT_LEN];
        let mut rest = sorted;
        while let Some(&(prefix, _)) = rest.first() {
            let slot = direct_index(prefix.address);
            let here = rest.partition_point(|(prefix, _)| direct_index(prefix.address) == slot);
            let (mine, after) = rest.split_at(here);
            rest = after;
            let short = mine.partition_point(|(p, _)| u32::from(p.len) <= DIRECT_LEN);
            for &(prefix, value) in &mine[..short] {
                let span = 1_usize << (DIRECT_LEN - u32::from(prefix.len));
                direct[slot..slot + span].fill(LEAF | value);
            }
            if short < mine.len() {
                let inherited = direct[slot] & !LEAF;
                let node = self.reserve(1);
                self.fill(node, &mine[short..], DIRECT_LEN, inherited);
                direct[slot] = node;
            }
        }
        direct
    }

    fn reserve(&mut self, count: usize) -> u32 {
        let first = self.nodes.len();
        self.nodes.resize(first + count, Node::default());
        u32::try_from(first).unwrap_or(u32::MAX)
    }

    /// Builds the node `at` for bits `offset..offset + 6` from prefixes that are longer than `offset` and
    /// equal before it; `inherited` is the value of the longest prefix above.
    fn fill(&mut self, at: u32, sorted: &[(Prefix6, u32)], offset: u32, inherited: u32) {
        let mut slots = [inherited; FANOUT];
        let mut children: Vec<(usize, &[(Prefix6, u32)])> = Vec::new();
        let mut rest = sorted;
        while let Some(&(prefix, _)) = rest.first() {
            let slot = bits_at(prefix.address, offset) as usize;
            let here = rest.partition_point(|(p, _)| bits_at(p.address, offset) as usize == slot);
            let (mine, after) = rest.split_at(here);
            rest = after;
            let short = mine.partition_point(|(p, _)| {
                // Within a slot, those that end in this node come first: they have the slot's lowest
                // address, and sort before longer ones.
                u32::from(p.len) <= offset + STRIDE
            });
            for &(prefix, value) in &mine[..short] {
                let span = 1_usize << (offset + STRIDE - u32::from(prefix.len));
                slots[slot..slot + span].fill(value);
            }
            if short < mine.len() {
                children.push((slot, &mine[short..]));
            }
        }
        let first_child = self.reserve(children.len());
        let mut node = Node {
            first_child,
            first_leaf: u32::try_from(self.leaves.len()).unwrap_or(u32::MAX),
            ..Node::default()
        };
        for &(slot, _) in &children {
            node.children |= 1 << slot;
        }
        let mut last = None;
        for (slot, &value) in slots.iter().enumerate() {
            let is_leaf = node.children >> slot & 1 == 0;
            if is_leaf && last != Some(value) {
                node.leaf_runs |= 1 << slot;
                self.leaves.push(value);
                last = Some(value);
            }
        }
        self.nodes[at as usize] = node;
        for (child, (slot, list)) in (first_child..).zip(children) {
            self.fill(child, list, offset + STRIDE, slots[slot]);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::mask6;
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn naive(model: &HashMap<Prefix6, u32>, address: u128) -> Option<u32> {
        (0..=128).rev().find_map(|len| {
            let address = address & mask6(len);
            model.get(&Prefix6 { address, len }).copied()
        })
    }

    #[test]
    fn empty_and_default_route() {
        let empty = Lpm6::build(&[]).unwrap();
        assert!(empty.is_empty());
        assert_eq!(empty.lookup(Ipv6Addr::LOCALHOST), None);
        let default = Prefix6::new(Ipv6Addr::UNSPECIFIED, 0).unwrap();
        let host = Prefix6::new(Ipv6Addr::LOCALHOST, 128).unwrap();
        let table = Lpm6::build(&[(default, 1), (default, 3), (host, 2)]).unwrap();
        assert_eq!(table.len(), 2);
        assert_eq!(table.lookup(Ipv6Addr::LOCALHOST), Some(2));
        assert_eq!(table.lookup(2_u128.into()), Some(3));
        assert_eq!(
            Lpm6::build(&[(default, MAX_VALUES)]).err(),
            Some(LpmError::Value(MAX_VALUES))
        );
        assert_eq!(
            Prefix6::new(Ipv6Addr::LOCALHOST, 127),
            Err(LpmError::HostBits)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn agrees_with_a_map_of_prefixes(
            routes in prop::collection::vec((any::<[u8; 4]>(), 0_u8..129, 0_u32..50), 0..150),
            probes in prop::collection::vec(any::<[u8; 4]>(), 40),
        ) {
            // Few distinct bits, spread over the address, so that prefixes nest.
            let spread = |x: [u8; 4]| {
                u128::from(x[0] & 3) << 110 | u128::from(x[1] & 7) << 80
                    | u128::from(x[2] & 7) << 43 | u128::from(x[3] & 7)
            };
            let list: Vec<_> = routes.iter()
                .map(|&(x, len, value)| (Prefix6::masked(spread(x).into(), len), value))
                .collect();
            let model: HashMap<_, _> = list.iter().copied().collect();
            let table = Lpm6::build(&list).unwrap();
            prop_assert_eq!(table.len(), model.len());
            let addresses: Vec<u128> = probes.iter().chain(routes.iter().map(|r| &r.0))
                .flat_map(|&x| [spread(x), spread(x) ^ 1 << 60, spread(x) ^ 8])
                .collect();
            let mut values = vec![0; addresses.len()];
            table.lookup_batch(&addresses, &mut values);
            for (&address, &value) in addresses.iter().zip(&values) {
                let want = naive(&model, address);
                prop_assert_eq!(value, want.unwrap_or(NO_ROUTE));
                prop_assert_eq!(table.lookup(address.into()), want);
            }
        }
    }
}
