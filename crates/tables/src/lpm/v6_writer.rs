//! The writer of an IPv6 table: a change builds the nodes that it touches anew beside the old ones and
//! publishes them by one store, so that a lookup meets the table before or after the change.

use super::runs::Runs;
use super::v6::{
    Builder, DIRECT_LEN, FANOUT, LEAF, Lpm6, NO_VALUE, Node, STRIDE, Short, Step, bits_at,
    direct_index, leaf_runs, sorted,
};
use super::{LpmError, MAX_VALUES, Prefix6, mask6};
use crate::quiescent::{Domain, Limbo};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Leaves that a table has room for beside each spare node.
const LEAVES_A_NODE: usize = 4;
/// Items after the last run, so that a reader that breaks its contract still reads inside of the arrays.
const SLACK: usize = FANOUT;

/// The one writer of an [`Lpm6`]: keeps the prefixes themselves, so that removing one brings back the next
/// shorter one.
///
/// A change takes time linear in the prefixes that the changed one covers (those of up to 18 bits: in the
/// 2^18 words that it covers at most). Readers report quiescent states to the writer's [`Domain`]; one that
/// does not may get the value of a prefix that was never there, but nothing worse.
///
/// ```
/// use tables::lpm::{Lpm6Writer, Prefix6};
/// use tables::quiescent::Domain;
///
/// let net = |text: &str, len| Prefix6::masked(text.parse().unwrap(), len);
/// let mut writer = Lpm6Writer::new(1000, Domain::new(2));
/// let table = writer.table(); // given to the workers
/// writer.insert(net("2001:db8::", 32), 1)?;
/// writer.insert(net("2001:db8:7::", 48), 2)?;
/// assert_eq!(table.lookup("2001:db8:7::1".parse().unwrap()), Some(2));
/// assert_eq!(writer.remove(net("2001:db8:7::", 48))?, Some(2));
/// assert_eq!(table.lookup("2001:db8:7::1".parse().unwrap()), Some(1));
/// # Ok::<(), tables::lpm::LpmError>(())
/// ```
#[derive(Debug)]
pub struct Lpm6Writer {
    table: Arc<Lpm6>,
    prefixes: BTreeMap<Prefix6, u32>,
    /// Prefixes of each length, so that a search for a covering prefix skips the absent lengths.
    lengths: [usize; 129],
    nodes: Runs,
    leaves: Runs,
    limbo: Limbo<Run>,
    domain: Domain,
}

/// A run of nodes or leaves.
#[derive(Clone, Copy, Debug)]
enum Run {
    Nodes(u32, usize),
    Leaves(u32, usize),
}

/// What a change has built and what it will replace.
#[derive(Default)]
struct Change {
    fresh: Vec<Run>,
    stale: Vec<Run>,
}

/// Where a node's number is told: in a direct word, or in a node.
#[derive(Clone, Copy)]
enum Parent {
    Direct(usize),
    Node(u32),
}

/// A node on the way to a prefix.
#[derive(Clone, Copy)]
struct Stop {
    parent: Parent,
    node: u32,
    /// Bits of the address before this node's six.
    offset: u32,
}

impl Lpm6Writer {
    /// Makes an empty table with room for `spare_nodes` nodes (40 bytes each, leaves included). A prefix that
    /// covers nothing and lies below others takes one or two; a lone one, one for six bits beyond 18; a
    /// change builds up to 64 neighbours of a node anew, which wait for a grace period.
    pub fn new(spare_nodes: u32, domain: Domain) -> Self {
        Self::of(Vec::new(), spare_nodes, domain)
    }

    /// Makes a table of `prefixes` with `spare_nodes` (see [`new`](Self::new)) beyond theirs; of equal
    /// prefixes the last one counts.
    ///
    /// # Errors
    /// If a value does not fit 24 bits.
    pub fn build(
        prefixes: &[(Prefix6, u32)],
        spare_nodes: u32,
        domain: Domain,
    ) -> Result<Self, LpmError> {
        Ok(Self::of(sorted(prefixes)?, spare_nodes, domain))
    }

    fn of(sorted: Vec<(Prefix6, u32)>, spare_nodes: u32, domain: Domain) -> Self {
        let spare = spare_nodes as usize;
        let spare_leaves = spare.saturating_mul(LEAVES_A_NODE);
        let (table, nodes, leaves) = Lpm6::of(&sorted, spare + SLACK, spare_leaves + SLACK);
        let mut lengths = [0; 129];
        for (prefix, _) in &sorted {
            lengths[usize::from(prefix.len)] += 1;
        }
        Self {
            nodes: Runs::new(nodes, nodes + spare),
            leaves: Runs::new(leaves, leaves + spare_leaves),
            table: Arc::new(table),
            prefixes: sorted.into_iter().collect(),
            lengths,
            limbo: Limbo::with_capacity(64),
            domain,
        }
    }

    /// Returns the table for readers.
    pub fn table(&self) -> Arc<Lpm6> {
        Arc::clone(&self.table)
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// True without prefixes.
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// Returns the value of exactly this prefix.
    pub fn get(&self, prefix: Prefix6) -> Option<u32> {
        self.prefixes.get(&prefix).copied()
    }

    /// Iterates over the prefixes by address, short ones first.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix6, u32)> + '_ {
        self.prefixes
            .iter()
            .map(|(&prefix, &value)| (prefix, value))
    }

    /// Number of nodes in use, those that wait for their grace period included.
    pub fn nodes_in_use(&self) -> usize {
        self.nodes.in_use()
    }

    /// Sets the value of `prefix` and returns the one that it had. A lookup sees the table before or after
    /// (for prefixes of up to 18 bits: address by address).
    ///
    /// # Errors
    /// If the value does not fit 24 bits, or nodes are out; the table is as before.
    pub fn insert(&mut self, prefix: Prefix6, value: u32) -> Result<Option<u32>, LpmError> {
        if value >= MAX_VALUES {
            return Err(LpmError::Value(value));
        }
        let old = self.prefixes.insert(prefix, value);
        self.lengths[usize::from(prefix.len)] += usize::from(old.is_none());
        let done = self.write(prefix);
        if done.is_err() {
            self.lengths[usize::from(prefix.len)] -= usize::from(old.is_none());
            match old {
                Some(old) => self.prefixes.insert(prefix, old),
                None => self.prefixes.remove(&prefix),
            };
        }
        done.map(|()| old)
    }

    /// Removes `prefix` and returns its value, if it was there; its addresses fall to the next shorter prefix.
    ///
    /// # Errors
    /// If nodes are out (what it covers is built anew); the table is as before.
    pub fn remove(&mut self, prefix: Prefix6) -> Result<Option<u32>, LpmError> {
        let Some(old) = self.prefixes.remove(&prefix) else {
            return Ok(None);
        };
        self.lengths[usize::from(prefix.len)] -= 1;
        let done = self.write(prefix);
        if done.is_err() {
            self.lengths[usize::from(prefix.len)] += 1;
            self.prefixes.insert(prefix, old);
        }
        done.map(|()| Some(old))
    }

    /// Brings nodes and leaves whose grace period has passed back into use, and returns how many runs of
    /// them still wait.
    pub fn reclaim(&mut self) -> usize {
        while let Some(run) = self.limbo.pop(&self.domain) {
            self.give(run);
        }
        self.limbo.len()
    }

    /// Brings the table in line with the prefixes where `prefix` changed.
    fn write(&mut self, prefix: Prefix6) -> Result<(), LpmError> {
        self.reclaim();
        if u32::from(prefix.len) <= DIRECT_LEN {
            self.write_short(prefix);
        } else {
            let mut change = Change::default();
            match self.write_long(prefix, &mut change) {
                Ok(()) => {
                    let epoch = self.domain.begin();
                    for run in change.stale {
                        self.limbo.push(epoch, run);
                    }
                }
                Err(error) => {
                    // Nobody has seen them.
                    change.fresh.into_iter().for_each(|run| self.give(run));
                    return Err(error);
                }
            }
        }
        // Relaxed: a number for people.
        let len = self.prefixes.len() as u64;
        self.table.len.store(len, Ordering::Relaxed);
        Ok(())
    }

    /// Sets the words of a prefix of up to 18 bits to what covers them now.
    fn write_short(&self, prefix: Prefix6) {
        let heir = (0..=prefix.len)
            .rev()
            .filter(|&len| self.lengths[usize::from(len)] > 0)
            .find_map(|len| {
                let value = self.get(Prefix6 {
                    address: prefix.address & mask6(len),
                    len,
                })?;
                Some(Short::new(len, value))
            })
            .unwrap_or_default();
        let start = direct_index(prefix.address);
        for slot in start..start + (1 << (DIRECT_LEN - u32::from(prefix.len))) {
            // Relaxed: we are the only writer, and a word is a whole message.
            let old = Short(self.table.short[slot].load(Ordering::Relaxed));
            if old.depth() > prefix.len + 1 {
                continue;
            }
            self.table.short[slot].store(heir.0, Ordering::Relaxed);
            let direct = &self.table.direct[slot];
            if direct.load(Ordering::Relaxed) & LEAF != 0 {
                direct.store(LEAF | heir.leaf(), Ordering::Relaxed);
            }
        }
    }

    /// Builds anew what a prefix of more than 18 bits changes, and publishes it.
    fn write_long(&mut self, prefix: Prefix6, change: &mut Change) -> Result<(), LpmError> {
        let mut path = self.path(prefix);
        let deepest = path.len();
        // Nodes in which no prefix is left go away: their parent changes in one slot.
        while let Some(stop) = path.last() {
            if self.has_longer(prefix.address, stop.offset) {
                break;
            }
            path.pop();
        }
        let emptied = path.len() < deepest;
        let Some(&stop) = path.last() else {
            return self.write_root(prefix.address, change);
        };
        let slot = bits_at(prefix.address, stop.offset) as usize;
        let end = u32::from(prefix.len).max(stop.offset + 1);
        let span = match (stop.offset + STRIDE).checked_sub(end) {
            Some(bits) if !emptied => slot..slot + (1 << bits),
            _ => slot..slot + 1,
        };
        let old = self.node(stop.node);
        let new = self.changed(old, prefix.address, stop.offset, span, change)?;
        self.replace(stop, new, change)
    }

    /// The nodes from the first one down to where `prefix` ends, or the trie does.
    fn path(&self, prefix: Prefix6) -> Vec<Stop> {
        let slot = direct_index(prefix.address);
        // Relaxed: our own store.
        let word = self.table.direct[slot].load(Ordering::Relaxed);
        let mut path = Vec::new();
        let mut stop = Stop {
            parent: Parent::Direct(slot),
            node: word,
            offset: DIRECT_LEN,
        };
        if word & LEAF != 0 {
            return path;
        }
        path.push(stop);
        while u32::from(prefix.len) > stop.offset + STRIDE {
            let bits = bits_at(prefix.address, stop.offset);
            let Step::Node(child) = self.node(stop.node).step(bits) else {
                break;
            };
            stop = Stop {
                parent: Parent::Node(stop.node),
                node: child,
                offset: stop.offset + STRIDE,
            };
            path.push(stop);
        }
        path
    }

    /// Makes the first node of an address, or takes it away.
    fn write_root(&mut self, address: u128, change: &mut Change) -> Result<(), LpmError> {
        let slot = direct_index(address);
        let word = self.table.direct[slot].load(Ordering::Relaxed);
        if word & LEAF == 0 {
            self.retire_below(word, change);
            change.stale.push(Run::Nodes(word, 1));
        }
        let new = if self.has_longer(address, DIRECT_LEN) {
            let root = self.subtree(address, DIRECT_LEN, NO_VALUE, change)?;
            let at = self.take_nodes(1, change)?;
            root.store(&self.table.nodes[at as usize]);
            at
        } else {
            LEAF | Short(self.table.short[slot].load(Ordering::Relaxed)).leaf()
        };
        // Release: pairs with the acquire load in `Lpm6::direct_word`.
        self.table.direct[slot].store(new, Ordering::Release);
        Ok(())
    }

    /// Makes the successor of a node, in which the slots of `span` follow the prefixes as they are now.
    fn changed(
        &mut self,
        old: Node,
        address: u128,
        offset: u32,
        span: Range<usize>,
        change: &mut Change,
    ) -> Result<Node, LpmError> {
        let base = address & mask6(offset as u8);
        let inherited = self.covering(base, DIRECT_LEN + 1..offset + 1);
        let mut values = [NO_VALUE; FANOUT];
        let mut children: Vec<Node> = Vec::new();
        let mut new = Node::default();
        for (slot, value) in values.iter_mut().enumerate() {
            let here = base | (slot as u128) << (128 - STRIDE) >> offset;
            let step = old.step(slot as u32);
            if !span.contains(&slot) {
                match step {
                    Step::Node(child) => {
                        new.children |= 1 << slot;
                        children.push(self.node(child));
                    }
                    Step::Leaf(leaf) => {
                        *value = self.table.leaves[leaf as usize].load(Ordering::Relaxed);
                    }
                }
                continue;
            }
            *value = match self.covering(here, offset + 1..offset + STRIDE + 1) {
                NO_VALUE => inherited,
                value => value,
            };
            if let Step::Node(child) = step {
                self.retire_below(child, change);
            }
            if self.has_longer(here, offset + STRIDE) {
                new.children |= 1 << slot;
                children.push(self.subtree(here, offset + STRIDE, *value, change)?);
            }
        }
        let mut leaves = Vec::with_capacity(FANOUT);
        new.leaf_runs = leaf_runs(&values, new.children, |value| leaves.push(value));
        new.first_leaf = self.put_leaves(&leaves, change)?;
        new.first_child = self.take_nodes(children.len(), change)?;
        for (at, child) in (new.first_child..).zip(&children) {
            child.store(&self.table.nodes[at as usize]);
        }
        Ok(new)
    }

    /// Publishes the successor of a node: its neighbours are copied beside it, and the parent's word that
    /// tells where they are is the one that changes.
    fn replace(&mut self, stop: Stop, new: Node, change: &mut Change) -> Result<(), LpmError> {
        let old = self.node(stop.node);
        change.stale.push(leaves_of(old));
        change.stale.extend(children_of(old));
        let (first, count) = match stop.parent {
            Parent::Direct(_) => (stop.node, 1),
            Parent::Node(parent) => {
                let parent = self.node(parent);
                (parent.first_child, parent.child_count())
            }
        };
        let copy = self.take_nodes(count, change)?;
        for at in 0..count as u32 {
            let node = match first + at {
                same if same == stop.node => new,
                other => self.node(other),
            };
            node.store(&self.table.nodes[(copy + at) as usize]);
        }
        change.stale.push(Run::Nodes(first, count));
        self.publish(stop.parent, copy);
        Ok(())
    }

    fn publish(&self, parent: Parent, first_child: u32) {
        match parent {
            // Release: pairs with the acquire load in `Lpm6::direct_word`.
            Parent::Direct(slot) => self.table.direct[slot].store(first_child, Ordering::Release),
            Parent::Node(parent) => {
                let moved = Node {
                    first_child,
                    ..self.node(parent)
                };
                // Release: pairs with the acquire load in `Node::load`.
                self.table.nodes[parent as usize][2].store(moved.bases(), Ordering::Release);
            }
        }
    }

    /// Builds the node for the prefixes below `address` that are longer than `offset`, and what is below it.
    fn subtree(
        &mut self,
        address: u128,
        offset: u32,
        inherited: u32,
        change: &mut Change,
    ) -> Result<Node, LpmError> {
        let below: Vec<_> = self
            .range(address, offset)
            .filter(|(prefix, _)| u32::from(prefix.len) > offset)
            .map(|(&prefix, &value)| (prefix, value))
            .collect();
        let mut builder = Builder::default();
        let root = builder.tree(&below, offset, inherited);
        self.install(&builder, root, change)
    }

    /// Copies a built node's leaves and descendants into the table.
    fn install(&mut self, from: &Builder, at: u32, change: &mut Change) -> Result<Node, LpmError> {
        let built = from.nodes[at as usize];
        let first = built.first_leaf as usize;
        let leaves = &from.leaves[first..first + built.leaf_count()];
        let first_leaf = self.put_leaves(leaves, change)?;
        let first_child = self.take_nodes(built.child_count(), change)?;
        for child in 0..built.child_count() as u32 {
            let node = self.install(from, built.first_child + child, change)?;
            node.store(&self.table.nodes[(first_child + child) as usize]);
        }
        Ok(Node {
            first_leaf,
            first_child,
            ..built
        })
    }

    /// Notes that a node's leaves and descendants are replaced.
    fn retire_below(&self, at: u32, change: &mut Change) {
        let node = self.node(at);
        change.stale.push(leaves_of(node));
        change.stale.extend(children_of(node));
        for child in 0..node.child_count() as u32 {
            self.retire_below(node.first_child + child, change);
        }
    }

    /// Prefixes whose first `len` bits are those of `address`, and shorter ones of the same address.
    fn range(&self, address: u128, len: u32) -> impl Iterator<Item = (&Prefix6, &u32)> {
        let mask = mask6(len as u8);
        let first = Prefix6 {
            address: address & mask,
            len: 0,
        };
        let last = Prefix6 {
            address: address | !mask,
            len: 128,
        };
        self.prefixes.range(first..=last)
    }

    /// True if a prefix longer than `len` has the first `len` bits of `address`. The deepest nodes ask for
    /// more bits than an address has.
    fn has_longer(&self, address: u128, len: u32) -> bool {
        len < 128
            && self
                .range(address, len)
                .any(|(prefix, _)| u32::from(prefix.len) > len)
    }

    /// The value of the longest prefix of a length in `lengths` that covers `address`, as leaf bits.
    fn covering(&self, address: u128, lengths: Range<u32>) -> u32 {
        lengths
            .rev()
            .filter(|&len| len <= 128 && self.lengths[len as usize] > 0)
            .find_map(|len| {
                let len = len as u8;
                self.get(Prefix6 {
                    address: address & mask6(len),
                    len,
                })
            })
            .unwrap_or(NO_VALUE)
    }

    fn node(&self, at: u32) -> Node {
        Node::load(&self.table.nodes[at as usize])
    }

    fn take_nodes(&mut self, count: usize, change: &mut Change) -> Result<u32, LpmError> {
        let start = self.nodes.take(count).ok_or(LpmError::NodesFull)?;
        change.fresh.push(Run::Nodes(start, count));
        Ok(start)
    }

    fn put_leaves(&mut self, values: &[u32], change: &mut Change) -> Result<u32, LpmError> {
        let start = self.leaves.take(values.len()).ok_or(LpmError::NodesFull)?;
        change.fresh.push(Run::Leaves(start, values.len()));
        for (word, &value) in self.table.leaves[start as usize..].iter().zip(values) {
            // Relaxed: no reader can come here yet.
            word.store(value, Ordering::Relaxed);
        }
        Ok(start)
    }

    fn give(&mut self, run: Run) {
        match run {
            Run::Nodes(start, len) => self.nodes.give(start, len),
            Run::Leaves(start, len) => self.leaves.give(start, len),
        }
    }
}

fn leaves_of(node: Node) -> Run {
    Run::Leaves(node.first_leaf, node.leaf_count())
}

fn children_of(node: Node) -> Option<Run> {
    (node.children != 0).then(|| Run::Nodes(node.first_child, node.child_count()))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::NO_ROUTE;
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::AtomicBool;

    /// Few distinct bits, spread over the address, so that prefixes nest.
    fn spread(x: [u8; 4]) -> u128 {
        u128::from(x[0] & 3) << 110
            | u128::from(x[1] & 7) << 80
            | u128::from(x[2] & 7) << 43
            | u128::from(x[3] & 7)
    }

    proptest! {
        #![proptest_config(crate::lpm::cases(32))]
        #[test]
        fn agrees_with_a_map_of_prefixes(
            start in prop::collection::vec((any::<[u8; 4]>(), 0_u8..129, 0_u32..50), 0..40),
            changes in prop::collection::vec((any::<[u8; 4]>(), 0_u8..129, 0_u32..50, 0_u8..3), 1..80),
        ) {
            let list: Vec<_> = start.iter()
                .map(|&(x, len, value)| (Prefix6::masked(spread(x).into(), len), value))
                .collect();
            let mut model: BTreeMap<_, _> = list.iter().copied().collect();
            let mut writer = Lpm6Writer::build(&list, 4000, Domain::new(1)).unwrap();
            let table = writer.table();
            let mut addresses: Vec<u128> = Vec::new();
            for (x, len, value, kind) in changes {
                let prefix = Prefix6::masked(spread(x).into(), len);
                addresses.extend([spread(x), spread(x) ^ 1 << 60, spread(x) ^ 8, spread(x) ^ 1 << 112]);
                if kind == 0 {
                    // Mostly one that is there.
                    let there = model.range(prefix..).next().map_or(prefix, |(&there, _)| there);
                    prop_assert_eq!(writer.remove(there), Ok(model.remove(&there)));
                } else {
                    prop_assert_eq!(writer.insert(prefix, value), Ok(model.insert(prefix, value)));
                }
                prop_assert_eq!((writer.len(), table.len()), (model.len(), model.len()));
                addresses.drain(..addresses.len().saturating_sub(60));
                let mut values = vec![0; addresses.len()];
                table.lookup_batch(&addresses, &mut values);
                for (&address, &value) in addresses.iter().zip(&values) {
                    let want = (0..=128_u8).rev().find_map(|len| {
                        model.get(&Prefix6 { address: address & mask6(len), len }).copied()
                    });
                    prop_assert_eq!(table.lookup(address.into()), want);
                    prop_assert_eq!(value, want.unwrap_or(NO_ROUTE));
                }
            }
            for prefix in model.into_keys() {
                prop_assert!(writer.remove(prefix).unwrap().is_some());
            }
            prop_assert_eq!(writer.reclaim(), 0);
            prop_assert_eq!((writer.nodes.in_use(), writer.leaves.in_use()), (0, 0), "leaked");
        }
    }

    /// The deepest node stands for the bits 126 and 127, though a node has room for six.
    #[test]
    fn the_last_two_bits() {
        let prefix = |at: u128, len| Prefix6::masked(at.into(), len);
        let mut writer = Lpm6Writer::new(4000, Domain::new(1));
        let table = writer.table();
        for (at, len, value) in [(1, 128, 1), (2, 128, 2), (2, 127, 3), (0, 126, 4)] {
            assert_eq!(writer.insert(prefix(at, len), value), Ok(None));
        }
        let found = |table: &Lpm6| [0, 1, 2, 3, 4_u128].map(|at| table.lookup(at.into()));
        assert_eq!(found(&table), [Some(4), Some(1), Some(2), Some(3), None]);
        assert_eq!(writer.remove(prefix(2, 127)), Ok(Some(3)));
        assert_eq!(writer.remove(prefix(1, 128)), Ok(Some(1)));
        assert_eq!(found(&table), [Some(4), Some(4), Some(2), Some(4), None]);
    }

    #[test]
    fn out_of_nodes_changes_nothing() {
        let prefix = |at: u128, len| Prefix6::masked((at << 64).into(), len);
        let mut writer = Lpm6Writer::new(12, Domain::new(1));
        let table = writer.table();
        let mut count = 0;
        let full = (0..100).find_map(|at| {
            let inserted = writer.insert(prefix(at << 40, 64), at as u32);
            count += u32::from(inserted.is_ok());
            inserted.err()
        });
        assert_eq!(
            (full, writer.len()),
            (Some(LpmError::NodesFull), count as usize)
        );
        assert!(count > 0, "room for none");
        for at in 0..100 {
            let found = table.lookup(prefix(u128::from(at) << 40, 64).address());
            assert_eq!(found, (at < count).then_some(at), "{at}");
        }
        assert_eq!(
            writer.insert(prefix(1, 64), MAX_VALUES),
            Err(LpmError::Value(MAX_VALUES))
        );
        // Short prefixes take no node.
        let default = Prefix6::masked(0.into(), 0);
        assert_eq!(writer.insert(default, 7), Ok(None));
        assert_eq!(table.lookup(u128::MAX.into()), Some(7));
    }

    /// While the writer adds and removes a prefix, and what it covers, a reader never sees the value of
    /// another place, or none.
    #[test]
    fn a_reader_sees_before_or_after() {
        let net = |text: &str, len| Prefix6::masked(text.parse().unwrap(), len);
        let domain = Domain::new(1);
        let mut writer = Lpm6Writer::new(50_000, domain.clone());
        writer.insert(net("2001:db8::", 32), 1).unwrap();
        for at in 0..64_u128 {
            let other = (0x2001_0db8_u128 << 96 | at << 80 | 0xffff << 64).into();
            writer.insert(Prefix6::masked(other, 64), 99).unwrap();
        }
        let table = writer.table();
        let done = Arc::new(AtomicBool::new(false));
        let reader = {
            let done = Arc::clone(&done);
            std::thread::spawn(move || {
                let worker = domain.join().unwrap();
                let (mut seen, mut rounds) = ([0_u64; 4], 0_u64);
                let address = "2001:db8:7::1".parse().unwrap();
                while !done.load(Ordering::Relaxed) || rounds < 1000 {
                    let value = table.lookup(address).expect("the /32 is always there");
                    assert!((1..=3).contains(&value), "{value}");
                    seen[value as usize] += 1;
                    rounds += 1;
                    worker.quiescent();
                }
                rounds
            })
        };
        for _ in 0..500 {
            for (prefix, value) in [
                (net("2001:db8:7::", 48), 2),
                (net("2001:db8:7::", 64), 3),
                (net("2001:db8::", 40), 1),
            ] {
                while writer.insert(prefix, value) == Err(LpmError::NodesFull) {
                    std::thread::yield_now();
                }
            }
            for prefix in [
                net("2001:db8:7::", 64),
                net("2001:db8::", 40),
                net("2001:db8:7::", 48),
            ] {
                while writer.remove(prefix) == Err(LpmError::NodesFull) {
                    std::thread::yield_now();
                }
            }
        }
        done.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() >= 1000);
    }
}
