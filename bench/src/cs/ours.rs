//! Our store.

use content_store::{Config, ContentStore, NameHash, NewData, Policy, Query, Worker};
use wire::Instant;
use wire::ndn::NameRef;

use super::workload::{Block, FRESHNESS_MS, content_word};
use super::{Access, BATCH, Cache};

/// The configuration of a store of so many blocks, with the paper's FIFO.
pub fn store_config(packets: usize, workers: usize) -> Config {
    let mut config = Config::for_packets(packets, workers, NameHash::Keyed([0x1234, 0x5678]));
    config.policy = Policy::Fifo;
    config
}

/// Our store.
#[derive(Debug)]
pub struct Ours {
    /// The store itself.
    pub store: ContentStore,
    name: &'static str,
}

impl Ours {
    /// Makes a store.
    pub fn new(name: &'static str, config: &Config) -> Self {
        let store = ContentStore::new(config).expect("sizes in range");
        Self { store, name }
    }
}

impl Cache for Ours {
    fn name(&self) -> &'static str {
        self.name
    }
    fn access(&self) -> Box<dyn Access + '_> {
        Box::new(OurAccess(
            self.store.join().expect("as many threads as workers"),
        ))
    }
    fn len(&self) -> usize {
        self.store.stats().packets as usize
    }
}

/// A worker.
#[derive(Debug)]
pub(super) struct OurAccess(pub(super) Worker);

const NOW: Instant = Instant::from_ns(1);

fn view(name: &[u8]) -> NameRef<'_> {
    NameRef::new(name).unwrap_or_default()
}

impl Access for OurAccess {
    #[inline]
    fn get(&mut self, name: &[u8]) -> Option<u64> {
        let hit = self.0.lookup(&Query::exact(view(name)), NOW)?;
        Some(content_word(hit.packet(), name.len()))
    }

    fn get_prefix(&mut self, name: &[u8]) -> Option<u64> {
        let hit = self.0.lookup(&Query::prefix(view(name)), NOW)?;
        Some(content_word(hit.packet(), hit.name().len()))
    }

    fn insert(&mut self, block: &Block<'_>) {
        let data = NewData::new(block.packet, view(block.name), FRESHNESS_MS);
        let _ = self.0.insert(&data, NOW);
    }

    fn get_batch(&mut self, names: &[&[u8]]) -> usize {
        let mut found = 0;
        self.0.quiescent();
        for names in names.chunks(BATCH) {
            let mut queries = [Query::exact(NameRef::default()); BATCH];
            for (query, name) in queries.iter_mut().zip(names) {
                query.name = view(name);
            }
            let mut hits = [None; BATCH];
            self.0.lookup_batch(&queries[..names.len()], NOW, &mut hits);
            for (hit, name) in hits.iter().zip(names) {
                let word = hit.map(|hit| content_word(hit.packet(), name.len()));
                found += usize::from(word.is_some_and(|word| word != u64::MAX));
            }
        }
        found
    }

    fn insert_batch(&mut self, blocks: &[Block<'_>]) {
        for blocks in blocks.chunks(BATCH) {
            let mut data = [NewData::new(&[], NameRef::default(), FRESHNESS_MS); BATCH];
            for (data, block) in data.iter_mut().zip(blocks) {
                *data = NewData::new(block.packet, view(block.name), FRESHNESS_MS);
            }
            let mut results = [Ok(content_store::Inserted::New); BATCH];
            self.0
                .insert_batch(&data[..blocks.len()], NOW, &mut results);
        }
    }
}
