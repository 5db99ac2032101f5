//! IPv4: one word for each of the 2^24 first three bytes, and groups of 256 words for longer prefixes
//! (DIR-24-8). One memory access for most lookups, two at most. One writer changes the table in place while
//! others read it.

use super::{LpmError, MAX_VALUES, NO_ROUTE, Prefix4, STAGE, mask4};
use crate::memory::{Memory, Pages, prefetch};
use crate::quiescent::{Domain, Limbo};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU32, Ordering};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

const FIRST_LEN: u8 = 24;
const FIRST_SLOTS: usize = 1 << FIRST_LEN;
const GROUP_SLOTS: usize = 1 << (32 - FIRST_LEN);

/// One word of the table: bit 31 tells a group, bits 24..30 the length of the prefix that wrote the word
/// plus one (zero: no route), bits 0..24 the value or the group's number.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry(u32);

impl Entry {
    const NONE: Self = Self(0);

    fn route(len: u8, value: u32) -> Self {
        Self((u32::from(len) + 1) << 24 | value)
    }
    fn group(index: u32) -> Self {
        Self(1 << 31 | index)
    }
    fn as_group(self) -> Option<usize> {
        (self.0 >> 31 == 1).then_some((self.0 & (MAX_VALUES - 1)) as usize)
    }
    /// Length of the prefix that wrote this word plus one; zero without a route.
    fn depth(self) -> u8 {
        (self.0 >> 24) as u8 & 0x7f
    }
    fn value(self) -> Option<u32> {
        (self.depth() != 0).then_some(self.0 & (MAX_VALUES - 1))
    }
}

/// The IPv4 table that workers read. Made and changed by an [`Lpm4Writer`].
///
/// A worker that reads while the writer changes the table reports quiescent states to the writer's
/// [`Domain`]; one that does not may get the value of a prefix that was never there, but nothing worse.
#[derive(Debug)]
pub struct Lpm4 {
    first: Memory<AtomicU32>,
    groups: Memory<AtomicU32>,
}

impl Lpm4 {
    /// Returns the value of the longest prefix that covers `address`.
    #[inline]
    pub fn lookup(&self, address: Ipv4Addr) -> Option<u32> {
        let address = u32::from(address);
        self.finish(address, self.first_entry(address)).value()
    }

    /// Looks `addresses` (host order) up with their memory accesses overlapped, and writes each value, or
    /// [`NO_ROUTE`], to the same place of `values`. Stops at the shorter of the two.
    pub fn lookup_batch(&self, addresses: &[u32], values: &mut [u32]) {
        for (addresses, values) in addresses.chunks(STAGE).zip(values.chunks_mut(STAGE)) {
            for &address in addresses {
                prefetch(&self.first[(address >> 8) as usize]);
            }
            let mut entries = [Entry::NONE; STAGE];
            for (entry, &address) in entries.iter_mut().zip(addresses) {
                *entry = self.first_entry(address);
                if let Some(group) = entry.as_group() {
                    prefetch(&self.groups[group * GROUP_SLOTS + (address & 0xff) as usize]);
                }
            }
            for ((value, &entry), &address) in values.iter_mut().zip(&entries).zip(addresses) {
                *value = self.finish(address, entry).value().unwrap_or(NO_ROUTE);
            }
        }
    }

    #[inline]
    fn first_entry(&self, address: u32) -> Entry {
        // Acquire: pairs with the release store in `Lpm4Writer::set_first`: the words of a group come
        // before the entry that tells of it.
        Entry(self.first[(address >> 8) as usize].load(Ordering::Acquire))
    }

    #[inline]
    fn finish(&self, address: u32, entry: Entry) -> Entry {
        match entry.as_group() {
            // Relaxed: the word is the whole message.
            Some(group) => Entry(
                self.groups[group * GROUP_SLOTS + (address & 0xff) as usize]
                    .load(Ordering::Relaxed),
            ),
            None => entry,
        }
    }
}

/// The one writer of an [`Lpm4`]: keeps the prefixes themselves, so that removing one brings back the next
/// shorter one.
///
/// ```
/// use tables::lpm::{Lpm4Writer, Prefix4};
/// use tables::quiescent::Domain;
///
/// let mut writer = Lpm4Writer::new(256, Domain::new(2));
/// writer.insert(Prefix4::new([10, 0, 0, 0].into(), 8)?, 1)?;
/// writer.insert(Prefix4::new([10, 1, 2, 128].into(), 25)?, 2)?;
/// let table = writer.table(); // given to the workers
/// assert_eq!(table.lookup([10, 1, 2, 200].into()), Some(2));
/// assert_eq!(table.lookup([10, 1, 2, 3].into()), Some(1));
/// assert_eq!(table.lookup([11, 0, 0, 1].into()), None);
/// # Ok::<(), tables::lpm::LpmError>(())
/// ```
#[derive(Debug)]
pub struct Lpm4Writer {
    table: Arc<Lpm4>,
    prefixes: BTreeMap<Prefix4, u32>,
    /// Prefixes of each length, so that a search for a covering prefix skips the absent lengths.
    lengths: [usize; 33],
    free_groups: Vec<u32>,
    limbo: Limbo<u32>,
    domain: Domain,
}

impl Lpm4Writer {
    /// Makes an empty table with room for prefixes longer than 24 bits in `groups` different /24s
    /// (1 KiB each; at most 2^24). The first table takes 64 MiB of address space; pages that no prefix
    /// touches are never filled. Readers report to `domain`.
    pub fn new(groups: u32, domain: Domain) -> Self {
        let groups = groups.min(MAX_VALUES);
        let table = Lpm4 {
            first: Memory::zeroed(FIRST_SLOTS, Pages::Huge),
            groups: Memory::zeroed(groups as usize * GROUP_SLOTS, Pages::Huge),
        };
        Self {
            table: Arc::new(table),
            prefixes: BTreeMap::new(),
            lengths: [0; 33],
            free_groups: (0..groups).rev().collect(),
            limbo: Limbo::with_capacity(64),
            domain,
        }
    }

    /// Makes a table of `prefixes`; of equal prefixes the last one counts. Groups are as many as are
    /// needed, and `spare_groups` more.
    ///
    /// # Errors
    /// If a value does not fit 24 bits.
    pub fn build(
        prefixes: &[(Prefix4, u32)],
        spare_groups: u32,
        domain: Domain,
    ) -> Result<Self, LpmError> {
        let mut sorted: Vec<_> = prefixes.to_vec();
        // Short ones first (the order of `Prefix4`), so that longer ones overwrite; stable, so that of
        // equal ones the last overwrites.
        sorted.sort_by_key(|&(prefix, _)| prefix);
        let mut long: Vec<u32> = sorted
            .iter()
            .filter(|(prefix, _)| prefix.len > FIRST_LEN)
            .map(|(prefix, _)| prefix.address >> 8)
            .collect();
        long.sort_unstable();
        long.dedup();
        let needed = u32::try_from(long.len()).unwrap_or(MAX_VALUES);
        let mut writer = Self::new(needed.saturating_add(spare_groups), domain);
        for &(prefix, value) in &sorted {
            check_value(value)?;
            writer.write(prefix, value)?;
        }
        sorted.reverse();
        sorted.dedup_by_key(|&mut (prefix, _)| prefix);
        for (prefix, _) in &sorted {
            writer.lengths[usize::from(prefix.len)] += 1;
        }
        sorted.reverse();
        writer.prefixes = sorted.into_iter().collect();
        Ok(writer)
    }

    /// Returns the table for readers.
    pub fn table(&self) -> Arc<Lpm4> {
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
    pub fn get(&self, prefix: Prefix4) -> Option<u32> {
        self.prefixes.get(&prefix).copied()
    }

    /// Iterates over the prefixes, short ones first.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix4, u32)> + '_ {
        self.prefixes
            .iter()
            .map(|(&prefix, &value)| (prefix, value))
    }

    /// Sets the value of `prefix` and returns the one that it had. Readers see, address by address,
    /// either the old or the new value.
    ///
    /// # Errors
    /// If the value does not fit 24 bits, or groups are out; the table is as before.
    pub fn insert(&mut self, prefix: Prefix4, value: u32) -> Result<Option<u32>, LpmError> {
        check_value(value)?;
        self.reclaim();
        self.write(prefix, value)?;
        let old = self.prefixes.insert(prefix, value);
        if old.is_none() {
            self.lengths[usize::from(prefix.len)] += 1;
        }
        Ok(old)
    }

    /// Removes `prefix` and returns its value; its addresses fall to the next shorter prefix.
    pub fn remove(&mut self, prefix: Prefix4) -> Option<u32> {
        let old = self.prefixes.remove(&prefix)?;
        self.lengths[usize::from(prefix.len)] -= 1;
        self.reclaim();
        let heir = self.covering(prefix);
        let gone = prefix.len + 1;
        if prefix.len > FIRST_LEN {
            let slot = (prefix.address >> 8) as usize;
            if let Some(group) = self.first(slot).as_group() {
                self.fill_group(
                    group,
                    group_range(prefix),
                    |entry| entry.depth() == gone,
                    heir,
                );
                self.collapse(slot, group);
            }
        } else {
            self.fill_first(prefix, |entry| entry.depth() == gone, heir);
        }
        Some(old)
    }

    /// Brings groups whose grace period has passed back into use, and returns how many still wait.
    pub fn reclaim(&mut self) -> usize {
        while let Some(group) = self.limbo.pop(&self.domain) {
            self.free_groups.push(group);
        }
        self.limbo.len()
    }

    fn covering(&self, prefix: Prefix4) -> Entry {
        (0..prefix.len)
            .rev()
            .filter(|&len| self.lengths[usize::from(len)] > 0)
            .find_map(|len| {
                let address = prefix.address & mask4(len);
                self.get(Prefix4 { len, address })
                    .map(|value| Entry::route(len, value))
            })
            .unwrap_or(Entry::NONE)
    }

    fn write(&mut self, prefix: Prefix4, value: u32) -> Result<(), LpmError> {
        let entry = Entry::route(prefix.len, value);
        let covers = |old: Entry| old.depth() <= entry.depth();
        if prefix.len <= FIRST_LEN {
            self.fill_first(prefix, covers, entry);
            return Ok(());
        }
        let slot = (prefix.address >> 8) as usize;
        if let Some(group) = self.first(slot).as_group() {
            self.fill_group(group, group_range(prefix), covers, entry);
            return Ok(());
        }
        let group = self.free_groups.pop().ok_or(LpmError::GroupsFull)?;
        let old = self.first(slot);
        self.fill_group(group as usize, 0..GROUP_SLOTS, |_| true, old);
        self.fill_group(group as usize, group_range(prefix), covers, entry);
        self.set_first(slot, Entry::group(group));
        Ok(())
    }

    /// Writes `entry` to what `prefix` (of at most 24 bits) covers and `wanted` picks, groups included.
    fn fill_first(&self, prefix: Prefix4, wanted: impl Fn(Entry) -> bool + Copy, entry: Entry) {
        let start = (prefix.address >> 8) as usize;
        for slot in start..start + (1 << (FIRST_LEN - prefix.len)) {
            let old = self.first(slot);
            match old.as_group() {
                Some(group) => self.fill_group(group, 0..GROUP_SLOTS, wanted, entry),
                None if wanted(old) => self.set_first(slot, entry),
                None => {}
            }
        }
    }

    fn fill_group(
        &self,
        group: usize,
        range: core::ops::Range<usize>,
        wanted: impl Fn(Entry) -> bool,
        entry: Entry,
    ) {
        let words = &self.table.groups[group * GROUP_SLOTS..(group + 1) * GROUP_SLOTS];
        for word in &words[range] {
            // Relaxed: we are the only writer, and a word is a whole message to readers.
            if wanted(Entry(word.load(Ordering::Relaxed))) {
                word.store(entry.0, Ordering::Relaxed);
            }
        }
    }

    /// Gives a group back in which no prefix longer than 24 bits is left.
    fn collapse(&mut self, slot: usize, group: usize) {
        let words = &self.table.groups[group * GROUP_SLOTS..(group + 1) * GROUP_SLOTS];
        let first = Entry(words[0].load(Ordering::Relaxed));
        let longest = words
            .iter()
            .map(|word| Entry(word.load(Ordering::Relaxed)).depth())
            .max();
        if longest.is_some_and(|depth| depth <= FIRST_LEN + 1) {
            self.set_first(slot, first);
            let epoch = self.domain.begin();
            self.limbo.push(epoch, group as u32);
        }
    }

    fn first(&self, slot: usize) -> Entry {
        // Relaxed: we are the only writer.
        Entry(self.table.first[slot].load(Ordering::Relaxed))
    }

    fn set_first(&self, slot: usize, entry: Entry) {
        // Release: pairs with the acquire load in `Lpm4::first_entry`.
        self.table.first[slot].store(entry.0, Ordering::Release);
    }
}

fn check_value(value: u32) -> Result<(), LpmError> {
    if value < MAX_VALUES {
        Ok(())
    } else {
        Err(LpmError::Value(value))
    }
}

/// The words of its group that a prefix of 25 to 32 bits covers.
fn group_range(prefix: Prefix4) -> core::ops::Range<usize> {
    let start = (prefix.address & 0xff) as usize;
    start..start + (1 << (32 - prefix.len))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn naive(model: &HashMap<Prefix4, u32>, address: u32) -> Option<u32> {
        (0..=32).rev().find_map(|len| {
            let address = address & mask4(len);
            model.get(&Prefix4 { len, address }).copied()
        })
    }

    #[test]
    fn errors_leave_the_table_as_it_was() {
        let mut writer = Lpm4Writer::new(1, Domain::new(1));
        let long = |last| Prefix4::new([10, 0, last, 0].into(), 32).unwrap();
        assert_eq!(
            writer.insert(long(1), 1 << 24),
            Err(LpmError::Value(1 << 24))
        );
        assert_eq!(writer.insert(long(1), 5), Ok(None));
        assert_eq!(writer.insert(long(2), 6), Err(LpmError::GroupsFull));
        assert_eq!(writer.len(), 1);
        let table = writer.table();
        assert_eq!(table.lookup([10, 0, 2, 0].into()), None);
        assert_eq!(table.lookup([10, 0, 1, 0].into()), Some(5));
        assert_eq!(
            Prefix4::new([10, 0, 0, 1].into(), 24),
            Err(LpmError::HostBits)
        );
        assert_eq!(Prefix4::new([0; 4].into(), 33), Err(LpmError::Length(33)));
    }

    #[test]
    fn groups_wait_for_their_readers() {
        let domain = Domain::new(1);
        let reader = domain.join().unwrap();
        let mut writer = Lpm4Writer::new(1, domain);
        let a = Prefix4::new([10, 0, 1, 7].into(), 32).unwrap();
        let b = Prefix4::new([10, 0, 2, 7].into(), 32).unwrap();
        writer.insert(a, 1).unwrap();
        assert_eq!(writer.remove(a), Some(1));
        assert_eq!(writer.insert(b, 2), Err(LpmError::GroupsFull));
        reader.quiescent();
        assert_eq!(writer.insert(b, 2), Ok(None));
    }

    proptest! {
        #![proptest_config(crate::lpm::cases(24))]
        #[test]
        fn agrees_with_a_map_of_prefixes(
            ops in prop::collection::vec((any::<bool>(), 0_u32..1 << 13, 7_u8..33, 0_u32..100), 1..120),
            probes in prop::collection::vec(0_u32..1 << 13, 40),
        ) {
            let spread = |x: u32| x << 20 | (x & 0x1ff) << 1;
            let domain = Domain::new(1);
            let mut writer = Lpm4Writer::new(4096, domain.clone());
            let mut model = HashMap::new();
            for &(insert, address, len, value) in &ops {
                let prefix = Prefix4::masked(spread(address).into(), len);
                if insert {
                    prop_assert_eq!(writer.insert(prefix, value).unwrap(), model.insert(prefix, value));
                } else {
                    prop_assert_eq!(writer.remove(prefix), model.remove(&prefix));
                }
            }
            let list: Vec<_> = model.iter().map(|(&p, &v)| (p, v)).collect();
            let built = Lpm4Writer::build(&list, 0, domain).unwrap();
            let addresses: Vec<u32> = probes.iter().chain(ops.iter().map(|op| &op.1))
                .flat_map(|&x| [spread(x), spread(x) ^ 1, spread(x) ^ 0x80, spread(x) ^ 0x1_0000])
                .collect();
            let mut values = vec![0; addresses.len()];
            writer.table().lookup_batch(&addresses, &mut values);
            for (&address, &value) in addresses.iter().zip(&values) {
                let want = naive(&model, address);
                prop_assert_eq!(value, want.unwrap_or(NO_ROUTE));
                prop_assert_eq!(writer.table().lookup(address.into()), want);
                prop_assert_eq!(built.table().lookup(address.into()), want);
            }
            prop_assert_eq!(writer.len(), model.len());
        }
    }
}
