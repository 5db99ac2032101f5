//! What the programs about the content store share: the workload of CS-8, our store and its opponents behind
//! one interface.

pub mod decoded;
pub mod hit_ratio;
pub mod latency;
pub mod limit;
pub mod names;
pub mod svg;
pub mod throughput;
pub mod workload;

mod crates;
mod global_lock;
mod ordered_set;
mod ours;
mod paper;
mod plain_trie;

pub use crates::{DashMapCache, MokaCache, PapayaCache, QuickCache};
pub use global_lock::GlobalLock;
pub use ordered_set::OrderedSet;
pub use ours::{Ours, store_config};
pub use paper::PaperDesign;
pub use plain_trie::PlainTrie;

use workload::Block;

/// Names that a batched lookup or insertion takes at once.
pub const BATCH: usize = 32;

/// Makes an opponent by its short name: paper, set, trie, quick, moka, dashmap, papaya.
///
/// # Errors
/// There is none of that name.
pub fn opponent(name: &str, capacity: usize) -> anyhow::Result<Box<dyn Cache>> {
    Ok(match name {
        "paper" => Box::new(PaperDesign::new(capacity)),
        "set" => Box::new(OrderedSet::new(capacity)),
        "trie" => Box::new(PlainTrie::new(capacity)),
        "quick" => Box::new(QuickCache::new(capacity)),
        "moka" => Box::new(MokaCache::new(capacity)),
        "dashmap" => Box::new(DashMapCache::new(capacity)),
        "papaya" => Box::new(PapayaCache::new(capacity)),
        other => anyhow::bail!(
            "no opponent `{other}`; there are paper, set, trie, quick, moka, dashmap and papaya"
        ),
    })
}

/// A cache that threads share.
pub trait Cache: Sync {
    /// What tables call it.
    fn name(&self) -> &'static str;
    /// A thread's access to it.
    fn access(&self) -> Box<dyn Access + '_>;
    /// True if it can find a block by a prefix of its name.
    fn finds_prefixes(&self) -> bool {
        true
    }
    /// Packets that it holds, where it knows.
    fn len(&self) -> usize;
    /// True when it holds none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A thread's access to a cache. A lookup reads the first word of the content, so that it pays for the payload.
pub trait Access {
    /// Finds a block by its name; returns the first word of its content, or `None`.
    fn get(&mut self, name: &[u8]) -> Option<u64>;
    /// Finds any block below a name.
    fn get_prefix(&mut self, name: &[u8]) -> Option<u64>;
    /// Stores a copy of a block, evicting another if there is no room.
    fn insert(&mut self, block: &Block<'_>);
    /// Finds blocks; returns how many are there. One after the other, where the cache has no better way.
    fn get_batch(&mut self, names: &[&[u8]]) -> usize {
        names
            .iter()
            .filter(|name| self.get(name).is_some_and(|word| word != u64::MAX))
            .count()
    }
    /// Stores blocks. One after the other, where the cache has no better way.
    fn insert_batch(&mut self, blocks: &[Block<'_>]) {
        for block in blocks {
            self.insert(block);
        }
    }
}
