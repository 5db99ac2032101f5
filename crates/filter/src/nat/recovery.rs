//! Mappings that outlived their process: what connections use is the truth, the rest is made anew from it.

use alloc::vec::Vec;

use hashbrown::HashMap;
use tables::memory::{Memory, Source};
use tables::port_allocator::{AddressPorts, PortLease};
use tables::slots::SlotMemory;
use wire::Instant;

use super::mapping::{DYING, Endpoint, Entry, Nat, NatSizes, NatWorker};

/// The memory of the tables of NAT.
#[derive(Debug)]
pub struct NatMemory {
    pub(super) inner: SlotMemory<u64>,
    pub(super) outer: SlotMemory<u64>,
    pub(super) permits: SlotMemory<u64>,
    pub(super) addresses: SlotMemory<u64>,
    pub(super) ports: [Memory<AddressPorts>; 3],
}

impl NatMemory {
    /// Takes the memory from a source.
    ///
    /// # Errors
    /// As [`Source::take`].
    pub fn from_source<S: Source>(source: &mut S, sizes: &NatSizes) -> Result<Self, S::Error> {
        Ok(Self {
            inner: SlotMemory::from_source(source, "nat inner", sizes.mappings)?,
            outer: SlotMemory::from_source(source, "nat outer", sizes.mappings)?,
            permits: SlotMemory::from_source(source, "nat permits", sizes.permits)?,
            addresses: SlotMemory::from_source(source, "nat addresses", sizes.addresses * 4)?,
            ports: [
                source.take("nat ports tcp", sizes.addresses)?,
                source.take("nat ports udp", sizes.addresses)?,
                source.take("nat ports icmp", sizes.addresses)?,
            ],
        })
    }

    /// Bytes that the tables take of a segment.
    pub fn segment_bytes(sizes: &NatSizes) -> usize {
        let maps = [
            sizes.mappings,
            sizes.mappings,
            sizes.permits,
            sizes.addresses * 4,
        ];
        let maps = maps.map(SlotMemory::<u64>::segment_bytes);
        let ports = (sizes.addresses * size_of::<AddressPorts>()).next_multiple_of(4096);
        maps.iter().sum::<usize>() + 3 * ports
    }
}

/// What the recovery of the mappings found and set right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NatRepairs {
    /// Mappings that are there now.
    pub mappings: usize,
    /// Of these, mappings whose number of uses was wrong.
    pub counts_corrected: usize,
    /// Of these, mappings that connections use and that were not there.
    pub restored: usize,
    /// Mappings that were half made or half removed, and are gone now.
    pub removed: usize,
}

/// The mappings that connections use: inner endpoint to outer endpoint and number of uses.
#[derive(Debug, Default)]
pub(crate) struct Uses(HashMap<u64, (Endpoint, u16), foldhash::fast::RandomState>);

impl Uses {
    /// Counts a use of a mapping; false if the inner endpoint is mapped to another outer one already.
    pub(crate) fn add(&mut self, inner: Endpoint, outer: Endpoint) -> bool {
        let (known, uses) = self.0.entry(inner.key()).or_insert((outer, 0));
        let same = *known == outer && *uses < DYING - 1;
        if same {
            *uses += 1;
        }
        same
    }
}

impl Nat {
    /// Makes the tables what `uses` asks for, before the first worker joins: each mapping with its number of uses,
    /// both of its records or none, each port in use that has a mapping and no other. A mapping that nobody uses
    /// keeps its port for the rest of its quarantine. Returns what was done, and the inner endpoints whose outer
    /// one belongs to somebody else: their connections are to be ended. Takes time linear in the tables; killed
    /// and begun again, it ends in the same state.
    pub(crate) fn repair(&self, mut uses: Uses, now: Instant) -> (NatRepairs, Vec<Endpoint>) {
        let mut repairs = NatRepairs::default();
        let Some(mut worker) = self.join() else {
            return (repairs, Vec::new());
        };
        for slot in 0..self.inner.slots() {
            self.repair_inner(&mut worker, slot, &mut uses, now, &mut repairs);
        }
        let mut lost = Vec::new();
        for (inner, (outer, count)) in uses.0 {
            let inner = Endpoint::from_key(inner);
            if self.restore(&mut worker, inner, outer, count) {
                repairs.restored += 1;
                repairs.mappings += 1;
            } else {
                lost.push(inner);
            }
        }
        for slot in 0..self.outer.slots() {
            self.repair_outer(&mut worker, slot, &mut repairs);
        }
        // Frees what was removed: there is no other worker to wait for.
        self.maintain(&mut worker, 0, now);
        (repairs, lost)
    }

    /// Looks at one mapping from its inner end.
    fn repair_inner(
        &self,
        worker: &mut NatWorker,
        slot: usize,
        uses: &mut Uses,
        now: Instant,
        repairs: &mut NatRepairs,
    ) {
        let Some((found, [word, ..])) = self.inner.live_at(slot) else {
            return;
        };
        let Some(key) = self.inner.key(found) else {
            return;
        };
        let inner = Endpoint::from_key(key);
        let entry = Entry::from_word(word.load(core::sync::atomic::Ordering::Relaxed));
        let outer = Endpoint {
            address: entry.address,
            port: entry.port,
            space: inner.space,
        };
        let used = match uses.0.get(&key) {
            Some(&(wanted, count)) if wanted == outer => Some(count),
            _ => None,
        };
        let is_whole = self.inner_of(outer) == Some(inner);
        // Without its other record, or marked, it was being removed; connections that use it say what it was.
        let is_over = !is_whole || entry.low == DYING || uses.0.contains_key(&key);
        let Some(count) = used.filter(|_| is_whole).or((!is_over).then_some(0)) else {
            self.inner.remove_ref(&mut worker.inner, found);
            if is_whole {
                self.outer.remove(&mut worker.outer, &outer.key());
            }
            repairs.removed += 1;
            return;
        };
        uses.0.remove(&key);
        repairs.mappings += 1;
        if entry.low != count {
            repairs.counts_corrected += 1;
            if count == 0 {
                self.stamp(inner.space, &entry, now);
            }
            let right = Entry {
                low: count,
                ..entry
            };
            word.store(right.to_word(), core::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Makes both records of a mapping that connections use; false if its outer endpoint is another's.
    fn restore(
        &self,
        worker: &mut NatWorker,
        inner: Endpoint,
        outer: Endpoint,
        count: u16,
    ) -> bool {
        let back = Entry {
            address: inner.address,
            port: inner.port,
            low: 0,
        };
        let owner = self.inner_of(outer);
        let is_there = owner == Some(inner);
        if !is_there {
            // An outer record whose inner one does not point back belongs to nobody.
            if owner.is_some_and(|owner| self.outer_of(owner) == Some(outer)) {
                return false;
            }
            self.outer.remove(&mut worker.outer, &outer.key());
            let made = self
                .outer
                .insert(&mut worker.outer, &outer.key(), &[back.to_word()]);
            if made.is_err() {
                return false;
            }
        }
        let there = Entry {
            address: outer.address,
            port: outer.port,
            low: count,
        };
        let made = self
            .inner
            .insert(&mut worker.inner, &inner.key(), &[there.to_word()]);
        made.is_ok()
    }

    /// Removes an outer record that has no inner one, and notes the port of one that has.
    fn repair_outer(&self, worker: &mut NatWorker, slot: usize, repairs: &mut NatRepairs) {
        let Some((found, [word, ..])) = self.outer.live_at(slot) else {
            return;
        };
        let Some(key) = self.outer.key(found) else {
            return;
        };
        let outer = Endpoint::from_key(key);
        let entry = Entry::from_word(word.load(core::sync::atomic::Ordering::Relaxed));
        let inner = Endpoint {
            address: entry.address,
            port: entry.port,
            space: outer.space,
        };
        if self.outer_of(inner) != Some(outer) {
            self.outer.remove_ref(&mut worker.outer, found);
            repairs.removed += 1;
            return;
        }
        // There are as many addresses as there were: each mapping's has a number.
        if let Ok(address) = self.number(worker, outer.address) {
            self.ports[outer.space as usize].allocate_exact(PortLease {
                address,
                port: outer.port,
            });
        }
    }
}

#[cfg(test)]
impl Nat {
    /// The mappings in use: inner endpoint to number of uses.
    pub(crate) fn uses(&self) -> std::collections::HashMap<Endpoint, u16> {
        let entries = (0..self.inner.slots()).filter_map(|slot| {
            let (found, [word, ..]) = self.inner.live_at(slot)? else {
                return None;
            };
            let uses = Entry::from_word(word.load(core::sync::atomic::Ordering::Relaxed)).low;
            Some((Endpoint::from_key(self.inner.key(found)?), uses))
        });
        entries.filter(|&(_, uses)| uses > 0).collect()
    }

    /// Leaves a mapping as a process does that is killed between the removals of its two records.
    pub(crate) fn forget_inner(&self, inner: Endpoint) {
        if let Some(mut worker) = self.join() {
            self.inner.remove(&mut worker.inner, &inner.key());
        }
    }
}
