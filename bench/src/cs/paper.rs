//! The paper's design as published (CS-1 to CS-6, algorithms 1 to 3): a chained hash table with a reader-writer
//! lock a slot; every node, inner or not, is in it; trie links by first child and next sibling that no lock
//! guards; a FIFO of atomic tickets. It loses children when two threads link below one node, and forgets
//! siblings when an eviction deletes a parent: as published.
//!
//! Contents lie in buffers that an eviction hands to the next insertion (the paper's data area), so that the copy
//! costs no allocation.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use wire::ndn::NameRef;

use super::workload::{Block, content_word};
use super::{Access, Cache};

/// A node of a hash chain.
#[derive(Debug)]
struct Entry {
    name: Box<[u8]>,
    /// Its place in the arrays of trie links.
    id: u32,
    content: Option<Box<[u8]>>,
    next: Option<Box<Entry>>,
}

/// Trie links of a node; 0 is none.
#[derive(Debug, Default)]
struct Links {
    parent: AtomicU32,
    latest_child: AtomicU32,
    sibling: AtomicU32,
    /// The hash slot that the node is in.
    slot: AtomicU32,
}

/// The paper's store.
#[derive(Debug)]
pub struct PaperDesign {
    slots: Vec<RwLock<Option<Box<Entry>>>>,
    links: Vec<Links>,
    /// Free ids, first in, first out.
    free: crossbeam_queue::ArrayQueue<u32>,
    fifo: Vec<AtomicU32>,
    front: AtomicU64,
    rear: AtomicU64,
    capacity: u64,
}

impl PaperDesign {
    /// Makes a store of `capacity` packets, with room for as many prefixes and a slot a packet.
    pub fn new(capacity: usize) -> Self {
        let ids = 2 * capacity + 1024;
        let free = crossbeam_queue::ArrayQueue::new(ids);
        for id in 1..ids as u32 {
            let _ = free.push(id);
        }
        Self {
            slots: (0..capacity.max(1)).map(|_| RwLock::new(None)).collect(),
            links: (0..ids).map(|_| Links::default()).collect(),
            free,
            fifo: (0..capacity + 64).map(|_| AtomicU32::new(0)).collect(),
            front: AtomicU64::new(0),
            rear: AtomicU64::new(0),
            capacity: capacity as u64,
        }
    }

    fn slot_of(&self, name: &[u8]) -> usize {
        let hash =
            std::hash::BuildHasher::hash_one(&foldhash::fast::FixedState::with_seed(7), name);
        ((u128::from(hash) * self.slots.len() as u128) >> 64) as usize
    }

    fn find<'a>(mut chain: Option<&'a Entry>, name: &[u8]) -> Option<&'a Entry> {
        while let Some(entry) = chain {
            if *entry.name == *name {
                return Some(entry);
            }
            chain = entry.next.as_deref();
        }
        None
    }

    /// The id of a name's node, which is made without content if it is not there.
    fn node(&self, name: NameRef<'_>) -> u32 {
        let slot = self.slot_of(name.value());
        {
            let chain = self.slots[slot]
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            if let Some(entry) = Self::find(chain.as_deref(), name.value()) {
                return entry.id;
            }
        }
        self.add(name, slot, None).0
    }

    /// Adds a node (or its content, if the name has a node without), then links it below its parent. Returns its
    /// id, and whether the content is new.
    fn add(&self, name: NameRef<'_>, slot: usize, mut content: Option<Box<[u8]>>) -> (u32, bool) {
        let id;
        {
            let mut chain = self.slots[slot]
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            let mut at = chain.as_deref_mut();
            while let Some(entry) = at {
                if *entry.name == *name.value() {
                    let is_new = content.is_some() && entry.content.is_none();
                    if content.is_some() {
                        entry.content = content.take();
                    }
                    return (entry.id, is_new);
                }
                at = entry.next.as_deref_mut();
            }
            let Some(fresh) = self.free.pop() else {
                return (0, false);
            };
            id = fresh;
            let links = &self.links[id as usize];
            links.latest_child.store(0, Ordering::Relaxed);
            links.slot.store(slot as u32, Ordering::Relaxed);
            let entry = Entry {
                name: name.value().into(),
                id,
                content,
                next: chain.take(),
            };
            *chain = Some(Box::new(entry));
        }
        if let Some(parent) = name.parent() {
            let parent = self.node(parent);
            let links = &self.links[id as usize];
            links.parent.store(parent, Ordering::Relaxed);
            // Lines 8 and 9 of algorithm 1: no lock.
            let above = &self.links[parent as usize].latest_child;
            links
                .sibling
                .store(above.load(Ordering::Acquire), Ordering::Relaxed);
            above.store(id, Ordering::Release);
        }
        (id, true)
    }

    /// Takes a node out of its chain; gives its id back.
    fn remove(&self, id: u32) -> Option<Box<[u8]>> {
        let slot = self.links[id as usize].slot.load(Ordering::Relaxed) as usize;
        let mut chain = self.slots[slot]
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let mut at = &mut *chain;
        while at.as_ref().is_some_and(|entry| entry.id != id) {
            at = &mut at.as_mut()?.next;
        }
        let entry = at.take()?;
        let Entry { content, next, .. } = *entry;
        *at = next;
        drop(chain);
        let _ = self.free.push(id);
        content
    }

    /// Algorithm 3. Returns the content's buffer.
    fn evict(&self) -> Option<Box<[u8]>> {
        let at = self.front.fetch_add(1, Ordering::Relaxed) as usize % self.fifo.len();
        let id = self.fifo[at].swap(0, Ordering::AcqRel);
        if id == 0 {
            return None;
        }
        let content = self.remove(id);
        let parent = self.links[id as usize].parent.load(Ordering::Relaxed);
        if parent != 0
            && self.links[parent as usize]
                .latest_child
                .load(Ordering::Acquire)
                == id
        {
            self.remove(parent);
        }
        content
    }

    /// Depth-first search below a node. As links may lead to nodes that were reused, it is bounded.
    fn search(&self, id: u32, budget: &mut u32) -> Option<u64> {
        let mut child = self.links[id as usize].latest_child.load(Ordering::Acquire);
        while child != 0 && *budget > 0 {
            *budget -= 1;
            let slot = self.links[child as usize].slot.load(Ordering::Relaxed) as usize;
            {
                let chain = self.slots[slot]
                    .read()
                    .unwrap_or_else(PoisonError::into_inner);
                let mut at = chain.as_deref();
                while let Some(entry) = at {
                    if entry.id == child
                        && let Some(content) = &entry.content
                    {
                        return Some(content_word(content, entry.name.len()));
                    }
                    at = entry.next.as_deref();
                }
            }
            if let Some(word) = self.search(child, budget) {
                return Some(word);
            }
            child = self.links[child as usize].sibling.load(Ordering::Relaxed);
        }
        None
    }
}

impl Cache for PaperDesign {
    fn name(&self) -> &'static str {
        "the paper's design"
    }
    fn access(&self) -> Box<dyn Access + '_> {
        Box::new(PaperAccess(self))
    }
    fn len(&self) -> usize {
        (self.rear.load(Ordering::Relaxed) - self.front.load(Ordering::Relaxed)) as usize
    }
}

struct PaperAccess<'a>(&'a PaperDesign);

impl Access for PaperAccess<'_> {
    fn get(&mut self, name: &[u8]) -> Option<u64> {
        let slot = self.0.slot_of(name);
        let chain = self.0.slots[slot]
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let entry = PaperDesign::find(chain.as_deref(), name)?;
        entry
            .content
            .as_ref()
            .map(|content| content_word(content, name.len()))
    }

    fn get_prefix(&mut self, name: &[u8]) -> Option<u64> {
        let slot = self.0.slot_of(name);
        let id = {
            let chain = self.0.slots[slot]
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            let entry = PaperDesign::find(chain.as_deref(), name)?;
            if let Some(content) = &entry.content {
                return Some(content_word(content, name.len()));
            }
            entry.id
        };
        self.0.search(id, &mut 10_000)
    }

    fn insert(&mut self, block: &Block<'_>) {
        let store = self.0;
        let rear = store.rear.load(Ordering::Relaxed);
        let is_full = rear.wrapping_sub(store.front.load(Ordering::Relaxed)) >= store.capacity;
        let buffer = if is_full { store.evict() } else { None };
        let content = match buffer {
            Some(mut buffer) if buffer.len() == block.packet.len() => {
                buffer.copy_from_slice(block.packet);
                buffer
            }
            _ => block.packet.into(),
        };
        let Ok(name) = NameRef::new(block.name) else {
            return;
        };
        let slot = store.slot_of(block.name);
        let (id, is_new) = store.add(name, slot, Some(content));
        if is_new {
            let at = store.rear.fetch_add(1, Ordering::Relaxed) as usize % store.fifo.len();
            store.fifo[at].store(id, Ordering::Release);
        }
    }
}
