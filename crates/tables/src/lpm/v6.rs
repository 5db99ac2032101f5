//! IPv6: a table of the first 18 bits, then nodes of 6 bits whose children and leaves are found by counting
//! bits (poptrie; Asai and Ohara, SIGCOMM 2015). [`Lpm6::build`] makes a table that stays as it is,
//! [`Lpm6Writer`](super::Lpm6Writer) one that changes.
//!
//! Prefixes of up to 18 bits lie in an array of their own, which a lookup reads only where no longer one
//! covers the address, so that a change of a default route does not touch the trie.

use super::{LpmError, MAX_VALUES, NO_ROUTE, Prefix6, STAGE};
use crate::memory::{Memory, Pages, prefetch};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

pub(super) const DIRECT_LEN: u32 = 18;
pub(super) const STRIDE: u32 = 6;
pub(super) const FANOUT: usize = 1 << STRIDE;
/// Bit of a direct word that tells a value (or no route) in place of a node.
pub(super) const LEAF: u32 = 1 << 31;
/// Value bits of a leaf without a route.
pub(super) const NO_VALUE: u32 = MAX_VALUES;
/// Bits of an address: no node begins after them.
const ADDRESS_LEN: u32 = 128;

/// Which children are nodes, where runs of equal leaves start, and where both arrays are
/// (nodes in the low half of the last word, leaves in the high half).
pub(super) type Words = [AtomicU64; 3];

/// A node as it is built.
#[derive(Clone, Copy, Default)]
pub(super) struct Node {
    pub(super) children: u64,
    pub(super) leaf_runs: u64,
    pub(super) first_child: u32,
    pub(super) first_leaf: u32,
}

impl Node {
    #[inline(always)]
    pub(super) fn load(words: &Words) -> Self {
        // Acquire: pairs with the release store in `Lpm6Writer::publish`: children come before the word that
        // tells of them. The other words never change while a reader may be here.
        let bases = words[2].load(Ordering::Acquire);
        Self {
            children: words[0].load(Ordering::Relaxed),
            leaf_runs: words[1].load(Ordering::Relaxed),
            first_child: bases as u32,
            first_leaf: (bases >> 32) as u32,
        }
    }

    pub(super) fn store(self, words: &Words) {
        // Relaxed: no reader can come here yet.
        words[0].store(self.children, Ordering::Relaxed);
        words[1].store(self.leaf_runs, Ordering::Relaxed);
        words[2].store(self.bases(), Ordering::Relaxed);
    }

    pub(super) fn bases(self) -> u64 {
        u64::from(self.first_leaf) << 32 | u64::from(self.first_child)
    }

    pub(super) fn child_count(self) -> usize {
        self.children.count_ones() as usize
    }

    pub(super) fn leaf_count(self) -> usize {
        self.leaf_runs.count_ones() as usize
    }

    /// Goes to the child for 6 bits of the address: a node's number, or a leaf's.
    #[inline(always)]
    pub(super) fn step(self, bits: u32) -> Step {
        let upto = u64::MAX >> (63 - bits);
        if self.children >> bits & 1 == 1 {
            Step::Node(self.first_child + (self.children & upto).count_ones() - 1)
        } else {
            Step::Leaf((self.first_leaf + (self.leaf_runs & upto).count_ones()).saturating_sub(1))
        }
    }
}

pub(super) enum Step {
    Node(u32),
    Leaf(u32),
}

/// A prefix of up to 18 bits in the array of such: its length plus one in the top byte, then its value.
#[derive(Clone, Copy, Default)]
pub(super) struct Short(pub(super) u32);

impl Short {
    pub(super) fn new(len: u8, value: u32) -> Self {
        Self((u32::from(len) + 1) << 24 | value)
    }
    /// Length plus one; zero without a prefix.
    pub(super) fn depth(self) -> u8 {
        (self.0 >> 24) as u8
    }
    /// The word as value bits of a leaf.
    pub(super) fn leaf(self) -> u32 {
        match self.depth() {
            0 => NO_VALUE,
            _ => self.0 & (MAX_VALUES - 1),
        }
    }
}

/// An IPv6 table: at most 4 dependent accesses for a /36, 6 for a /48, 8 for a /64, and one more where only
/// a prefix of up to 18 bits covers the address.
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
    pub(super) direct: Memory<AtomicU32>,
    pub(super) short: Memory<AtomicU32>,
    pub(super) nodes: Memory<Words>,
    pub(super) leaves: Memory<AtomicU32>,
    /// Number of prefixes; a word, as a writer changes it.
    pub(super) len: AtomicU64,
}

impl Lpm6 {
    /// Makes a table of `prefixes`; of equal prefixes the last one counts. About half a second a million.
    ///
    /// # Errors
    /// If a value does not fit 24 bits.
    pub fn build(prefixes: &[(Prefix6, u32)]) -> Result<Self, LpmError> {
        let sorted = sorted(prefixes)?;
        Ok(Self::of(&sorted, 0, 0).0)
    }

    /// Makes a table of sorted prefixes with room for more nodes and leaves; also tells how many there are.
    pub(super) fn of(
        sorted: &[(Prefix6, u32)],
        spare_nodes: usize,
        spare_leaves: usize,
    ) -> (Self, usize, usize) {
        let mut builder = Builder::default();
        let (direct, short) = builder.direct(sorted);
        let (nodes_used, leaves_used) = (builder.nodes.len(), builder.leaves.len());
        let nodes = Memory::zeroed(nodes_used + spare_nodes, Pages::Huge);
        for (words, node) in nodes.iter().zip(&builder.nodes) {
            node.store(words);
        }
        let table = Self {
            direct: copy_words(&direct, 0),
            short: copy_words(&short, 0),
            nodes,
            leaves: copy_words(&builder.leaves, spare_leaves),
            len: AtomicU64::new(sorted.len() as u64),
        };
        (table, nodes_used, leaves_used)
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        // Relaxed: a number for people.
        self.len.load(Ordering::Relaxed) as usize
    }

    /// True without prefixes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the table, spare room of a writer included.
    pub fn size_bytes(&self) -> usize {
        size_of_val(&*self.direct)
            + size_of_val(&*self.short)
            + size_of_val(&*self.nodes)
            + size_of_val(&*self.leaves)
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
        while offset < ADDRESS_LEN {
            match Node::load(&self.nodes[node as usize]).step(bits_at(address, offset)) {
                Step::Node(next) => node = next,
                Step::Leaf(leaf) => return self.leaf_value(address, leaf),
            }
            offset += STRIDE;
        }
        None
    }

    #[inline(always)]
    fn leaf_value(&self, address: u128, leaf: u32) -> Option<u32> {
        // Relaxed: came with the node that tells of it.
        let value = self.leaves[leaf as usize].load(Ordering::Relaxed);
        as_value(value).or_else(|| self.short_value(address))
    }

    /// The value of the longest prefix of up to 18 bits.
    #[cold]
    fn short_value(&self, address: u128) -> Option<u32> {
        // Relaxed: the word is the whole message.
        let word = self.short[direct_index(address)].load(Ordering::Relaxed);
        as_value(Short(word).leaf())
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
        while walkers > 0 && offset < ADDRESS_LEN {
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
            let place = usize::from(place);
            values[place] = self.leaf_value(addresses[place], leaf).unwrap_or(NO_ROUTE);
        }
    }

    #[inline(always)]
    fn direct_word(&self, address: u128) -> u32 {
        // Acquire: pairs with the release store in `Lpm6Writer::publish`.
        self.direct[direct_index(address)].load(Ordering::Acquire)
    }
}

/// Sorts prefixes by address, then short before long, so that what nests comes after what it nests in; of
/// equal ones the last of the caller's stays.
pub(super) fn sorted(prefixes: &[(Prefix6, u32)]) -> Result<Vec<(Prefix6, u32)>, LpmError> {
    if let Some(&(_, value)) = prefixes.iter().find(|(_, value)| *value >= MAX_VALUES) {
        return Err(LpmError::Value(value));
    }
    let mut sorted = prefixes.to_vec();
    // Reversed before the (stable) sort and the removal of duplicates, which keeps the first.
    sorted.reverse();
    sorted.sort_by_key(|&(prefix, _)| prefix);
    sorted.dedup_by_key(|&mut (prefix, _)| prefix);
    Ok(sorted)
}

#[inline(always)]
pub(super) fn direct_index(address: u128) -> usize {
    (address >> (128 - DIRECT_LEN)) as usize
}

/// Six bits of the address from bit `offset`; beyond the address, zeros.
#[inline(always)]
pub(super) fn bits_at(address: u128, offset: u32) -> u32 {
    (address << offset >> (128 - STRIDE)) as u32
}

#[inline(always)]
fn as_value(leaf: u32) -> Option<u32> {
    (leaf < MAX_VALUES).then_some(leaf)
}

fn copy_words(words: &[u32], spare: usize) -> Memory<AtomicU32> {
    let memory = Memory::<AtomicU32>::zeroed(words.len() + spare, Pages::Huge);
    for (to, &from) in memory.iter().zip(words) {
        to.store(from, Ordering::Relaxed);
    }
    memory
}

/// Nodes and leaves of a (part of a) trie, children of a node and leaves of a node side by side.
#[derive(Default)]
pub(super) struct Builder {
    pub(super) nodes: Vec<Node>,
    pub(super) leaves: Vec<u32>,
}

impl Builder {
    /// Builds everything and returns the direct words and those of short prefixes. `sorted`: by address,
    /// then length.
    fn direct(&mut self, sorted: &[(Prefix6, u32)]) -> (Vec<u32>, Vec<u32>) {
        let mut direct = vec![LEAF; 1 << DIRECT_LEN];
        let mut short = vec![Short::default().0; 1 << DIRECT_LEN];
        let mut rest = sorted;
        while let Some(&(prefix, _)) = rest.first() {
            let slot = direct_index(prefix.address);
            let here = rest.partition_point(|(prefix, _)| direct_index(prefix.address) == slot);
            let (mine, after) = rest.split_at(here);
            rest = after;
            let first_long = mine.partition_point(|(p, _)| u32::from(p.len) <= DIRECT_LEN);
            for &(prefix, value) in &mine[..first_long] {
                let span = 1_usize << (DIRECT_LEN - u32::from(prefix.len));
                short[slot..slot + span].fill(Short::new(prefix.len, value).0);
            }
            if first_long < mine.len() {
                direct[slot] = self.tree(&mine[first_long..], DIRECT_LEN, NO_VALUE);
            }
        }
        for (word, &short) in direct.iter_mut().zip(&short) {
            if *word & LEAF != 0 {
                *word |= Short(short).leaf();
            }
        }
        (direct, short)
    }

    /// Builds a node and what is below it (see [`fill`](Self::fill)) and returns its number.
    pub(super) fn tree(&mut self, sorted: &[(Prefix6, u32)], offset: u32, inherited: u32) -> u32 {
        let node = self.reserve(1);
        self.fill(node, sorted, offset, inherited);
        node
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
        node.leaf_runs = leaf_runs(&slots, node.children, |value| self.leaves.push(value));
        self.nodes[at as usize] = node;
        for (child, (slot, list)) in (first_child..).zip(children) {
            self.fill(child, list, offset + STRIDE, slots[slot]);
        }
    }
}

/// Finds where runs of equal leaves start among the slots that are not children; `leaf` hears their values.
pub(super) fn leaf_runs(slots: &[u32; FANOUT], children: u64, mut leaf: impl FnMut(u32)) -> u64 {
    let (mut runs, mut last) = (0, None);
    for (slot, &value) in slots.iter().enumerate() {
        let is_leaf = children >> slot & 1 == 0;
        if is_leaf && last != Some(value) {
            runs |= 1 << slot;
            leaf(value);
            last = Some(value);
        }
    }
    runs
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
        #![proptest_config(crate::lpm::cases(64))]
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
