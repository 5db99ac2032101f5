//! The cache as user space fills it: which Data is in it, the names above them, and what goes when it is full.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use wire::ndn::{Data, DecodeError, NameRef, types};

use crate::memory::Arrays;
use crate::shared::Memory;
use crate::shared::hash::{self, NameWords};
use crate::shared::insert::{Entry, Inserted, insert, remove};
use crate::shared::layout::{
    COMPONENTS_MAX, DATA_BYTES_MAX, Facts, NAME_AT, NAME_BYTES_MAX, NAME_WORDS, NONE,
};
use crate::shared::lookup::find;
use crate::shared::reply::fold;

/// Entries that the replacement policy passes over because they were asked for since it last came by.
const SECOND_CHANCES: u32 = 4;

/// Why a Data packet is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is not Data.
    #[error("not a Data packet: {0}")]
    Malformed(#[from] DecodeError),
    /// It is longer than what a frame carries.
    #[error(
        "the packet has {0} bytes, and the kernel's cache takes {DATA_BYTES_MAX}; the node's store still has it"
    )]
    TooLong(usize),
    /// Its name is too long, too deep, or has a digest for a component.
    #[error(
        "the name has more than {NAME_BYTES_MAX} bytes or {COMPONENTS_MAX} components, or a digest for one; the node's store still has it"
    )]
    Name,
    /// Another writer was at work, or the hash table is full in this place.
    #[error("the entry's place in the hash table was busy or full; offer the packet again later")]
    Busy,
}

/// What became of a packet that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// It is new.
    Added,
    /// It replaced one of the same name.
    Replaced,
}

/// Fills a cache's memory. The only writer of the links between names; readers are at work meanwhile.
#[derive(Debug)]
pub struct Cache {
    memory: Arc<Arrays>,
    free_data: Vec<u32>,
    free_prefixes: Vec<u32>,
    /// Slots of Data with the number of their use, oldest first (CS-5); those of removed packets stay for a while.
    ages: VecDeque<(u32, u32)>,
    /// How often each slot of Data was freed.
    uses: Vec<u32>,
    /// Packets in the cache.
    packets: usize,
    /// Slots of prefix nodes by the value of their name.
    prefixes: HashMap<Arc<[u8]>, u32>,
    /// Their names by slot, from the first prefix slot on.
    prefix_names: Vec<Option<Arc<[u8]>>>,
    evicted: u64,
}

impl Cache {
    /// Fills this memory, which must be empty.
    pub fn new(memory: Arrays) -> Self {
        let data = memory.config().data_slots;
        let prefixes = memory.config().prefix_slots;
        Self {
            free_data: (1..=data).rev().collect(),
            free_prefixes: (data + 1..=data + prefixes).rev().collect(),
            ages: VecDeque::new(),
            uses: vec![0; data as usize + 1],
            packets: 0,
            prefixes: HashMap::new(),
            prefix_names: vec![None; prefixes as usize],
            evicted: 0,
            memory: Arc::new(memory),
        }
    }

    /// Returns the memory, for readers.
    pub fn memory(&self) -> &Arrays {
        &self.memory
    }

    /// Shares the memory with readers in other threads.
    pub fn share(&self) -> Arc<Arrays> {
        Arc::clone(&self.memory)
    }

    /// True if nothing is left of packets or prefixes that were taken out: every slot free, no bucket locked.
    pub fn is_clean(&self) -> bool {
        let config = self.memory.config();
        let last = config.data_slots + config.prefix_slots;
        let free = |slot| {
            self.memory
                .node(slot)
                .is_some_and(|node| node.facts.load() == 0 && node.generation.load() & 1 == 0)
        };
        let empty = |index| {
            self.memory.bucket(index).is_some_and(|bucket| {
                bucket.lock.load() == 0 && bucket.entries.iter().all(|entry| entry.load() == 0)
            })
        };
        (1..=last).all(free) && (0..=config.bucket_mask).all(empty) && self.prefixes.is_empty()
    }

    /// Returns the number of packets.
    pub fn len(&self) -> usize {
        self.packets
    }

    /// Returns for how many packets there is room.
    pub fn capacity(&self) -> usize {
        self.memory.config().data_slots as usize
    }

    /// True without any packet.
    pub fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// Returns how many packets gave way to others.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Stores a Data packet, which is fresh from `now_ns` ([`crate::monotonic_ns`]) for its FreshnessPeriod. When the
    /// cache is full, the oldest packet goes that was not asked for lately.
    ///
    /// # Errors
    /// Why it is not taken; the cache is then as before.
    pub fn insert(&mut self, packet: &[u8], now_ns: u64) -> Result<Stored, Refusal> {
        let data = Data::parse(packet)?;
        let fresh_until_ns = match data.meta.freshness_ms {
            0 => 0,
            ms => now_ns.saturating_add(ms.saturating_mul(1_000_000)),
        };
        let stored = self.insert_if(packet, &data, fresh_until_ns, || true)?;
        stored.ok_or(Refusal::Busy)
    }

    /// Stores a packet that was parsed and is fresh until then (ns; 0: never), in two steps: it gets its place, and
    /// answers nothing yet; if `is_current` then says that it is still the one of its name, and its name was not
    /// withdrawn since before that was asked, it answers. Else it is taken out.
    pub(crate) fn insert_if(
        &mut self,
        packet: &[u8],
        data: &Data<'_>,
        fresh_until_ns: u64,
        is_current: impl FnOnce() -> bool,
    ) -> Result<Option<Stored>, Refusal> {
        if packet.len() > DATA_BYTES_MAX {
            return Err(Refusal::TooLong(packet.len()));
        }
        if !is_cacheable(&data.name) {
            return Err(Refusal::Name);
        }
        let name = data.name.value();
        let name_offset = name.as_ptr() as usize - packet.as_ptr() as usize;
        let data_at = NAME_AT - name_offset;
        let facts = Facts::data(name.len(), data_at, packet.len(), sum(packet));
        let entry = Entry {
            hash: hash_of(&self.memory, name),
            facts: facts.idle(),
            fresh_until_ns,
        };
        let words = packet_words(packet, data_at);
        let slot = match find(&*self.memory, entry.hash) {
            NONE => self.free_slot()?,
            // It is overwritten where it is, and no slot is needed.
            existing => existing,
        };
        let mut inserted = self.write(slot, &entry, &words);
        if inserted == Inserted::Full && self.make_room(entry.hash) {
            inserted = self.write(slot, &entry, &words);
        }
        match inserted {
            Inserted::Added => {
                self.grow_older(slot);
                self.packets += 1;
                self.link(slot, &data.name);
                Ok(self.serve(slot, facts, is_current).then_some(Stored::Added))
            }
            Inserted::Replaced(slot) => Ok(self
                .serve(slot, facts, is_current)
                .then_some(Stored::Replaced)),
            Inserted::Full | Inserted::Busy => {
                if find(&*self.memory, entry.hash) == NONE {
                    self.free_data.push(slot);
                }
                Err(Refusal::Busy)
            }
        }
    }

    /// Lets a packet that is in its place answer if it is still the one; else takes it out.
    fn serve(&mut self, slot: u32, facts: Facts, is_current: impl FnOnce() -> bool) -> bool {
        let Some(node) = self.memory.node(slot) else {
            return false;
        };
        // Who withdraws the name from here on finds the place.
        fence(Ordering::SeqCst);
        let withdrawals = node.withdrawals.load();
        fence(Ordering::SeqCst);
        let is_current = is_current();
        if is_current {
            node.facts.store(facts.served(withdrawals).0);
        } else {
            self.remove_slot(slot);
        }
        is_current
    }

    fn write(&self, slot: u32, entry: &Entry, words: &[u64]) -> Inserted {
        insert(&*self.memory, slot, entry, |slot| {
            if let Some(slab) = self.memory.slab(slot) {
                for (to, from) in slab.words.iter().zip(words) {
                    to.store(*from);
                }
            }
        })
    }

    /// Removes the packet of this name; false if there is none.
    pub fn remove(&mut self, name: &NameRef<'_>) -> bool {
        if !is_cacheable(name) {
            return false;
        }
        let slot = find(&*self.memory, hash_of(&self.memory, name.value()));
        slot != NONE && self.has_name(slot, name.value()) && self.remove_slot(slot)
    }

    /// Removes the packets whose names start with this one; returns how many.
    pub fn remove_prefix(&mut self, name: &NameRef<'_>) -> usize {
        let mut removed = usize::from(self.remove(name));
        let Some(&root) = self.prefixes.get(name.value()) else {
            return removed;
        };
        let mut slots = Vec::new();
        let mut open = vec![root];
        while let Some(at) = open.pop() {
            let Some(node) = self.memory.node(at) else {
                continue;
            };
            if self.is_taken(at) {
                slots.push(at);
            }
            let mut child = node.first_child();
            while child != NONE {
                open.push(child);
                child = self.memory.node(child).map_or(NONE, |node| node.next());
            }
        }
        for slot in slots {
            removed += usize::from(self.remove_slot(slot));
        }
        removed
    }

    /// Removes all packets.
    pub fn clear(&mut self) {
        for (slot, used) in std::mem::take(&mut self.ages) {
            if self.uses[slot as usize] == used && !self.remove_slot(slot) {
                self.ages.push_back((slot, used));
            }
        }
    }

    /// True if a packet has the slot, whether it answers or not.
    fn is_taken(&self, slot: u32) -> bool {
        let node = self.memory.node(slot);
        node.is_some_and(|node| Facts(node.facts.load()).has_packet())
    }

    /// Returns the name (TLV-VALUE) of the packet in a slot, whether it answers or not.
    pub(crate) fn name_of(&self, slot: u32) -> Option<Vec<u8>> {
        if !self.is_taken(slot) {
            return None;
        }
        let facts = Facts(self.memory.node(slot)?.facts.load());
        let words = &self.memory.slab(slot)?.words[NAME_AT / 8..];
        let bytes = words.iter().flat_map(|word| word.load().to_le_bytes());
        Some(bytes.take(facts.name_bytes()).collect())
    }

    /// True if the packet was asked for since its slot was filled or the replacement policy looked.
    pub(crate) fn was_touched(&self, slot: u32) -> bool {
        let node = self.memory.node(slot);
        node.is_some_and(|node| node.touched.load() != 0)
    }

    fn has_name(&self, slot: u32, name: &[u8]) -> bool {
        let (Some(node), Some(slab)) = (self.memory.node(slot), self.memory.slab(slot)) else {
            return false;
        };
        let words = name_words(name);
        let stored = &slab.words[NAME_AT / 8..];
        Facts(node.facts.load()).name_bytes() == name.len()
            && (0..name.len().div_ceil(8)).all(|index| {
                stored[index].load() & hash::word_mask(name.len(), index * 8) == words[index]
            })
    }

    /// Takes a packet out and frees its slot.
    fn remove_slot(&mut self, slot: u32) -> bool {
        let Some(node) = self.memory.node(slot) else {
            return false;
        };
        if !self.is_taken(slot) || !remove(&*self.memory, node.hash.load(), slot) {
            return false;
        }
        self.unlink(slot);
        self.uses[slot as usize] = self.uses[slot as usize].wrapping_add(1);
        self.free_data.push(slot);
        self.packets -= 1;
        true
    }

    /// Puts a slot that was filled behind the others.
    fn grow_older(&mut self, slot: u32) {
        if self.ages.len() > 2 * self.uses.len() {
            let uses = &self.uses;
            self.ages
                .retain(|(slot, used)| uses[*slot as usize] == *used);
        }
        self.ages.push_back((slot, self.uses[slot as usize]));
    }

    /// Returns a free slot; makes one free if there is none.
    fn free_slot(&mut self) -> Result<u32, Refusal> {
        if let Some(slot) = self.free_data.pop() {
            return Ok(slot);
        }
        let mut chances = SECOND_CHANCES;
        for _ in 0..self.ages.len() {
            let Some((slot, used)) = self.ages.pop_front() else {
                break;
            };
            if self.uses[slot as usize] != used {
                continue;
            }
            let touched = self
                .memory
                .node(slot)
                .is_some_and(|node| node.touched.load() != 0);
            if touched && chances > 0 {
                chances -= 1;
                if let Some(node) = self.memory.node(slot) {
                    node.touched.store(0);
                }
                self.ages.push_back((slot, used));
                continue;
            }
            if self.remove_slot(slot) {
                self.evicted += 1;
                return self.free_data.pop().ok_or(Refusal::Busy);
            }
            self.ages.push_back((slot, used));
        }
        Err(Refusal::Busy)
    }

    /// Evicts a packet from the first bucket of a hash.
    fn make_room(&mut self, hash: u64) -> bool {
        let mask = self.memory.config().bucket_mask;
        let Some(bucket) = self.memory.bucket(hash::first_bucket(hash, mask)) else {
            return false;
        };
        let slots = bucket.entries.each_ref().map(|entry| entry.load() as u32);
        let evicted = slots.into_iter().any(|slot| self.remove_slot(slot));
        self.evicted += u64::from(evicted);
        evicted
    }
}

/// The names above the packets.
impl Cache {
    /// Puts a packet below the names that are prefixes of its own. Without a free prefix slot the names from there up
    /// do not find it.
    fn link(&mut self, slot: u32, name: &NameRef<'_>) {
        let ends: Vec<usize> = name.components().map(|component| component.end).collect();
        let mut child = slot;
        for &end in ends.iter().rev().skip(1) {
            let prefix = &name.value()[..end];
            if let Some(&parent) = self.prefixes.get(prefix) {
                self.add_child(parent, child);
                return;
            }
            let Some(parent) = self.add_prefix(prefix, child) else {
                return;
            };
            child = parent;
        }
    }

    /// Makes a prefix node with one child.
    fn add_prefix(&mut self, name: &[u8], child: u32) -> Option<u32> {
        let slot = self.free_prefixes.pop()?;
        self.memory.node(slot)?.set_family(NONE, child);
        self.memory.node(slot)?.set_siblings(NONE, NONE);
        let entry = Entry {
            hash: hash::of_prefix(hash_of(&self.memory, name)),
            facts: Facts::PREFIX,
            fresh_until_ns: 0,
        };
        let mut inserted = self.write(slot, &entry, &[]);
        if inserted == Inserted::Full && self.make_room_but(entry.hash, child) {
            inserted = self.write(slot, &entry, &[]);
        }
        if inserted != Inserted::Added {
            self.free_prefixes.push(slot);
            return None;
        }
        let node = self.memory.node(child)?;
        node.set_family(slot, node.first_child());
        let name: Arc<[u8]> = name.into();
        *self.prefix_name(slot) = Some(Arc::clone(&name));
        self.prefixes.insert(name, slot);
        Some(slot)
    }

    /// Evicts a packet from the first bucket of a hash, but not this one.
    fn make_room_but(&mut self, hash: u64, kept: u32) -> bool {
        let mask = self.memory.config().bucket_mask;
        let Some(bucket) = self.memory.bucket(hash::first_bucket(hash, mask)) else {
            return false;
        };
        let slots = bucket.entries.each_ref().map(|entry| entry.load() as u32);
        slots.contains(&kept).then_some(()).is_none() && self.make_room(hash)
    }

    fn prefix_name(&mut self, slot: u32) -> &mut Option<Arc<[u8]>> {
        let first = self.memory.config().data_slots + 1;
        &mut self.prefix_names[(slot - first) as usize]
    }

    fn add_child(&self, parent: u32, child: u32) {
        let (Some(above), Some(node)) = (self.memory.node(parent), self.memory.node(child)) else {
            return;
        };
        let next = above.first_child();
        node.set_siblings(next, NONE);
        node.set_family(parent, node.first_child());
        if let Some(next) = self.memory.node(next).filter(|_| next != NONE) {
            next.set_siblings(next.next(), child);
        }
        above.set_family(above.parent(), child);
    }

    /// Takes a node out of its parent's children, and the parent too if it has no other.
    fn unlink(&mut self, slot: u32) {
        let mut at = slot;
        while let Some(node) = self.memory.node(at) {
            let (parent, next, previous) = (node.parent(), node.next(), node.previous());
            if let Some(node) = self.memory.node(next).filter(|_| next != NONE) {
                node.set_siblings(node.next(), previous);
            }
            if let Some(node) = self.memory.node(previous).filter(|_| previous != NONE) {
                node.set_siblings(next, node.previous());
            }
            node.set_family(NONE, NONE);
            node.set_siblings(NONE, NONE);
            let Some(above) = self.memory.node(parent).filter(|_| parent != NONE) else {
                return;
            };
            if above.first_child() == at {
                above.set_family(above.parent(), next);
            }
            if above.first_child() != NONE {
                return;
            }
            // Nobody else writes prefix nodes, but their bucket may be busy: then it stays, without children.
            if !remove(&*self.memory, above.hash.load(), parent) {
                return;
            }
            if let Some(name) = self.prefix_name(parent).take() {
                self.prefixes.remove(&name);
            }
            self.free_prefixes.push(parent);
            at = parent;
        }
    }
}

/// True of names that the kernel's program looks up.
pub(crate) fn is_cacheable(name: &NameRef<'_>) -> bool {
    let mut components = 0;
    for component in name.components() {
        components += 1;
        if matches!(
            component.component_type,
            types::IMPLICIT_DIGEST | types::PARAMETERS_DIGEST
        ) {
            return false;
        }
    }
    (1..=COMPONENTS_MAX).contains(&components) && name.value().len() <= NAME_BYTES_MAX
}

/// Returns a name's words; it has at most [`NAME_BYTES_MAX`] bytes.
pub(crate) fn name_words(name: &[u8]) -> NameWords {
    let mut words = [0; NAME_WORDS];
    for (word, bytes) in words.iter_mut().zip(name.chunks(8)) {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(padded);
    }
    words
}

/// Hashes a name as the kernel's program does.
pub(crate) fn hash_of(memory: &Arrays, name: &[u8]) -> u64 {
    let words = name_words(name);
    let mut hash = hash::start(memory.config().seed, name.len());
    for word in &words[..name.len().div_ceil(8)] {
        hash = hash::step(hash, *word);
    }
    hash::finish(hash)
}

/// Returns a packet's words as they lie in a slab, from its first word.
fn packet_words(packet: &[u8], data_at: usize) -> Vec<u64> {
    let mut bytes = vec![0; data_at];
    bytes.extend(packet);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
        .chunks_exact(8)
        .map(|chunk| {
            chunk
                .iter()
                .rev()
                .fold(0, |word, byte| word << 8 | u64::from(*byte))
        })
        .collect()
}

/// Returns the folded one's complement sum of a packet's little-endian 16-bit words.
fn sum(packet: &[u8]) -> u16 {
    let sum = packet
        .chunks(2)
        .map(|pair| u64::from(pair[0]) | u64::from(*pair.get(1).unwrap_or(&0)) << 8)
        .sum();
    fold(sum) as u16
}
