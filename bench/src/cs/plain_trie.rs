//! The plain trie of the paper's comparison: a node a component, children by hash, under one lock; first in,
//! first out.

use std::collections::VecDeque;
use std::sync::{PoisonError, RwLock};

use hashbrown::HashMap;
use wire::ndn::NameRef;

use super::workload::{Block, content_word};
use super::{Access, Cache};

#[derive(Debug, Default)]
struct Node {
    children: HashMap<Box<[u8]>, Node, foldhash::fast::FixedState>,
    packet: Option<Box<[u8]>>,
}

impl Node {
    fn find(&self, name: &[u8]) -> Option<&Self> {
        let name = NameRef::new(name).ok()?;
        name.components()
            .try_fold(self, |node, component| node.children.get(component.bytes))
    }

    fn any(&self) -> Option<&[u8]> {
        match &self.packet {
            Some(packet) => Some(packet),
            None => self.children.values().find_map(Self::any),
        }
    }

    /// Removes a packet and the nodes that it leaves empty; true if this one is.
    fn remove(&mut self, name: &[u8]) -> bool {
        let first = wire::ndn::Component::read(name)
            .ok()
            .map(|component| component.bytes);
        match first {
            None => self.packet = None,
            Some(first) => {
                let is_empty = self
                    .children
                    .get_mut(first)
                    .is_some_and(|child| child.remove(&name[first.len()..]));
                if is_empty {
                    self.children.remove(first);
                }
            }
        }
        self.packet.is_none() && self.children.is_empty()
    }
}

#[derive(Debug, Default)]
struct Trie {
    root: Node,
    queue: VecDeque<Box<[u8]>>,
    packets: usize,
}

/// A trie under a reader-writer lock.
#[derive(Debug)]
pub struct PlainTrie {
    trie: RwLock<Trie>,
    capacity: usize,
}

impl PlainTrie {
    /// Makes a trie of `capacity` packets at most.
    pub fn new(capacity: usize) -> Self {
        Self {
            trie: RwLock::default(),
            capacity,
        }
    }
}

impl Cache for PlainTrie {
    fn name(&self) -> &'static str {
        "plain trie"
    }
    fn access(&self) -> Box<dyn Access + '_> {
        Box::new(TrieAccess(self))
    }
    fn len(&self) -> usize {
        self.trie
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .packets
    }
}

struct TrieAccess<'a>(&'a PlainTrie);

impl Access for TrieAccess<'_> {
    fn get(&mut self, name: &[u8]) -> Option<u64> {
        let trie = self.0.trie.read().unwrap_or_else(PoisonError::into_inner);
        let packet = trie.root.find(name)?.packet.as_ref()?;
        Some(content_word(packet, name.len()))
    }

    fn get_prefix(&mut self, name: &[u8]) -> Option<u64> {
        let trie = self.0.trie.read().unwrap_or_else(PoisonError::into_inner);
        let packet = trie.root.find(name)?.any()?;
        Some(content_word(packet, Block::of(packet).name.len()))
    }

    fn insert(&mut self, block: &Block<'_>) {
        let mut trie = self.0.trie.write().unwrap_or_else(PoisonError::into_inner);
        let trie = &mut *trie;
        if trie.packets >= self.0.capacity
            && let Some(oldest) = trie.queue.pop_front()
        {
            trie.root.remove(&oldest);
            trie.packets -= 1;
        }
        let Ok(name) = NameRef::new(block.name) else {
            return;
        };
        let mut node = &mut trie.root;
        for component in name.components() {
            node = node.children.entry(component.bytes.into()).or_default();
        }
        if node.packet.replace(block.packet.into()).is_none() {
            trie.packets += 1;
            trie.queue.push_back(block.name.into());
        }
    }
}
