//! General caches and maps of the Rust ecosystem, each with what it has: no prefix match, no batches. All use one
//! hash (foldhash); the maps get a FIFO queue for eviction.

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use foldhash::fast::FixedState;

use super::workload::{Block, content_word};
use super::{Access, Cache};

type Key = Box<[u8]>;
type Value = Arc<[u8]>;

macro_rules! access {
    ($cache:ident, $access:ident, $name:literal) => {
        impl Cache for $cache {
            fn name(&self) -> &'static str {
                $name
            }
            fn access(&self) -> Box<dyn Access + '_> {
                Box::new($access(self))
            }
            fn finds_prefixes(&self) -> bool {
                false
            }
            fn len(&self) -> usize {
                self.count()
            }
        }

        struct $access<'a>(&'a $cache);

        impl Access for $access<'_> {
            fn get(&mut self, name: &[u8]) -> Option<u64> {
                self.0.find(name)
            }
            fn get_prefix(&mut self, _: &[u8]) -> Option<u64> {
                None
            }
            fn insert(&mut self, block: &Block<'_>) {
                self.0.put(block);
            }
        }
    };
}

/// quick_cache: S3-FIFO in shards under locks.
#[derive(Debug)]
pub struct QuickCache(quick_cache::sync::Cache<Key, Value, quick_cache::UnitWeighter, FixedState>);

impl QuickCache {
    /// Makes a cache of `capacity` packets.
    pub fn new(capacity: usize) -> Self {
        Self(quick_cache::sync::Cache::with(
            capacity,
            capacity as u64,
            quick_cache::UnitWeighter,
            FixedState::default(),
            quick_cache::sync::DefaultLifecycle::default(),
        ))
    }
    fn find(&self, name: &[u8]) -> Option<u64> {
        self.0
            .get(name)
            .map(|packet| content_word(&packet, name.len()))
    }
    fn put(&self, block: &Block<'_>) {
        self.0.insert(block.name.into(), block.packet.into());
    }
    fn count(&self) -> usize {
        self.0.len()
    }
}
access!(QuickCache, QuickAccess, "quick_cache");

/// moka: W-TinyLFU.
#[derive(Debug)]
pub struct MokaCache(moka::sync::Cache<Key, Value, FixedState>);

impl MokaCache {
    /// Makes a cache of `capacity` packets.
    pub fn new(capacity: usize) -> Self {
        let builder = moka::sync::Cache::builder().max_capacity(capacity as u64);
        Self(builder.build_with_hasher(FixedState::default()))
    }
    fn find(&self, name: &[u8]) -> Option<u64> {
        self.0
            .get(name)
            .map(|packet| content_word(&packet, name.len()))
    }
    fn put(&self, block: &Block<'_>) {
        self.0.insert(block.name.into(), block.packet.into());
    }
    fn count(&self) -> usize {
        self.0.entry_count() as usize
    }
}
access!(MokaCache, MokaAccess, "moka");

/// dashmap, with a queue.
#[derive(Debug)]
pub struct DashMapCache {
    map: dashmap::DashMap<Key, Value, FixedState>,
    queue: ArrayQueue<Key>,
}

impl DashMapCache {
    /// Makes a map with a queue of `capacity` packets.
    pub fn new(capacity: usize) -> Self {
        Self {
            map: dashmap::DashMap::with_capacity_and_hasher(capacity, FixedState::default()),
            queue: ArrayQueue::new(capacity),
        }
    }
    fn find(&self, name: &[u8]) -> Option<u64> {
        self.map
            .get(name)
            .map(|packet| content_word(&packet, name.len()))
    }
    fn put(&self, block: &Block<'_>) {
        if self
            .map
            .insert(block.name.into(), block.packet.into())
            .is_none()
            && let Some(oldest) = self.queue.force_push(block.name.into())
        {
            self.map.remove(&oldest);
        }
    }
    fn count(&self) -> usize {
        self.map.len()
    }
}
access!(DashMapCache, DashMapAccess, "dashmap + queue");

/// papaya, with a queue.
#[derive(Debug)]
pub struct PapayaCache {
    map: papaya::HashMap<Key, Value, FixedState>,
    queue: ArrayQueue<Key>,
}

impl PapayaCache {
    /// Makes a map with a queue of `capacity` packets.
    pub fn new(capacity: usize) -> Self {
        Self {
            map: papaya::HashMap::with_capacity_and_hasher(capacity, FixedState::default()),
            queue: ArrayQueue::new(capacity),
        }
    }
    fn find(&self, name: &[u8]) -> Option<u64> {
        self.map
            .pin()
            .get(name)
            .map(|packet| content_word(packet, name.len()))
    }
    fn put(&self, block: &Block<'_>) {
        let map = self.map.pin();
        if map.insert(block.name.into(), block.packet.into()).is_none()
            && let Some(oldest) = self.queue.force_push(block.name.into())
        {
            map.remove(&oldest);
        }
    }
    fn count(&self) -> usize {
        self.map.len()
    }
}
access!(PapayaCache, PapayaAccess, "papaya + queue");
