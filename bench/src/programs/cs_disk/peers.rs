//! foyer (memory before a log of blocks) and fjall (an LSM tree with a cache), as the disk tier's opponents.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use bench::cs::workload::{BLOCK_BYTES, Block};
use foyer::{
    BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder,
};
use tokio::runtime::Runtime;

use super::{AT_ONCE, Tiers};

/// Bytes that memory takes of a packet.
const PACKET_BYTES: usize = BLOCK_BYTES + 150;

struct Foyer {
    cache: HybridCache<Vec<u8>, Vec<u8>>,
    runtime: Runtime,
}

pub(super) fn foyer(directory: &Path, memory: usize, packets: usize) -> Result<Box<dyn Tiers>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let bytes = (packets * 2048).next_multiple_of(16 << 20);
    let device = FsDeviceBuilder::new(directory).with_capacity(bytes);
    let device = device.build().context("foyer's device")?;
    let cache = runtime.block_on(
        HybridCacheBuilder::new()
            .memory(memory * PACKET_BYTES)
            .with_weighter(|key: &Vec<u8>, value: &Vec<u8>| key.len() + value.len())
            .storage()
            .with_engine_config(BlockEngineConfig::new(device))
            .build(),
    );
    let cache = cache.context("foyer's cache")?;
    Ok(Box::new(Foyer { cache, runtime }))
}

impl Tiers for Foyer {
    fn insert(&mut self, block: &Block<'_>) -> Result<()> {
        // Some of its work is for the runtime that it is called in.
        let _inside = self.runtime.enter();
        self.cache.insert(block.name.to_vec(), block.packet.to_vec());
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.runtime.block_on(self.cache.storage().wait());
        Ok(())
    }

    fn read(&mut self, name: &[u8]) -> Result<Option<usize>> {
        let name = name.to_vec();
        let entry = self.runtime.block_on(self.cache.get(&name)).context("foyer's read")?;
        Ok(entry.map(|entry| entry.value().len()))
    }

    fn read_many(&mut self, names: &[&[u8]]) -> Result<usize> {
        let names: Arc<[Vec<u8>]> = names.iter().map(|name| name.to_vec()).collect();
        let tasks: Vec<_> = (0..AT_ONCE)
            .map(|task| {
                let (cache, names) = (self.cache.clone(), Arc::clone(&names));
                self.runtime.spawn(async move {
                    let mut found = 0;
                    for name in names.iter().skip(task).step_by(AT_ONCE) {
                        found += usize::from(matches!(cache.get(name).await, Ok(Some(_))));
                    }
                    found
                })
            })
            .collect();
        let mut found = 0;
        for task in tasks {
            found += self.runtime.block_on(task)?;
        }
        Ok(found)
    }

    fn index_bytes(&self) -> Option<u64> {
        None
    }
}

impl Drop for Foyer {
    fn drop(&mut self) {
        // What it still has in memory is not asked for.
        let _ = self.runtime.block_on(self.cache.close());
    }
}

struct Fjall {
    database: ::fjall::Database,
    packets: ::fjall::Keyspace,
}

pub(super) fn fjall(directory: &Path, memory: usize, _: usize) -> Result<Box<dyn Tiers>> {
    let cache = (memory * PACKET_BYTES) as u64;
    let database = ::fjall::Database::builder(directory).cache_size(cache).open()?;
    let packets = database.keyspace("packets", ::fjall::KeyspaceCreateOptions::default)?;
    Ok(Box::new(Fjall { database, packets }))
}

impl Tiers for Fjall {
    fn insert(&mut self, block: &Block<'_>) -> Result<()> {
        self.packets.insert(block.name, block.packet)?;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.database.persist(::fjall::PersistMode::SyncData)?;
        Ok(())
    }

    fn read(&mut self, name: &[u8]) -> Result<Option<usize>> {
        Ok(self.packets.get(name)?.map(|packet| packet.len()))
    }

    fn read_many(&mut self, names: &[&[u8]]) -> Result<usize> {
        let mut found = 0;
        for name in names {
            found += usize::from(self.packets.get(name)?.is_some());
        }
        Ok(found)
    }

    fn index_bytes(&self) -> Option<u64> {
        None
    }
}
