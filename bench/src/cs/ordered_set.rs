//! NFD's design: an ordered set of full names, which answers every kind of match in O(log n) pointer steps,
//! under one lock; first in, first out.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{PoisonError, RwLock};

use super::workload::{Block, content_word};
use super::{Access, Cache};

#[derive(Debug, Default)]
struct Set {
    packets: BTreeMap<Box<[u8]>, Box<[u8]>>,
    queue: VecDeque<Box<[u8]>>,
}

/// An ordered set under a reader-writer lock.
#[derive(Debug)]
pub struct OrderedSet {
    set: RwLock<Set>,
    capacity: usize,
}

impl OrderedSet {
    /// Makes a set of `capacity` packets at most.
    pub fn new(capacity: usize) -> Self {
        Self {
            set: RwLock::default(),
            capacity,
        }
    }
}

impl Cache for OrderedSet {
    fn name(&self) -> &'static str {
        "ordered set"
    }
    fn access(&self) -> Box<dyn Access + '_> {
        Box::new(SetAccess(self))
    }
    fn len(&self) -> usize {
        self.set
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .packets
            .len()
    }
}

struct SetAccess<'a>(&'a OrderedSet);

impl Access for SetAccess<'_> {
    fn get(&mut self, name: &[u8]) -> Option<u64> {
        let set = self.0.set.read().unwrap_or_else(PoisonError::into_inner);
        set.packets
            .get(name)
            .map(|packet| content_word(packet, name.len()))
    }

    fn get_prefix(&mut self, name: &[u8]) -> Option<u64> {
        let set = self.0.set.read().unwrap_or_else(PoisonError::into_inner);
        let mut range = set
            .packets
            .range::<[u8], _>((Bound::Included(name), Bound::Unbounded));
        let (key, packet) = range.next()?;
        key.starts_with(name)
            .then(|| content_word(packet, key.len()))
    }

    fn insert(&mut self, block: &Block<'_>) {
        let mut set = self.0.set.write().unwrap_or_else(PoisonError::into_inner);
        if set.packets.len() >= self.0.capacity
            && let Some(oldest) = set.queue.pop_front()
        {
            set.packets.remove(&oldest);
        }
        if set
            .packets
            .insert(block.name.into(), block.packet.into())
            .is_none()
        {
            set.queue.push_back(block.name.into());
        }
    }
}
