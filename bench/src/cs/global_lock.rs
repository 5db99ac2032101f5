//! Our own structure under one lock: what the locks a slot are worth (CS-9).

use std::sync::{Mutex, PoisonError};

use content_store::Config;

use super::ours::OurAccess;
use super::workload::Block;
use super::{Access, Cache};
use content_store::ContentStore;

/// Our store behind a mutex.
#[derive(Debug)]
pub struct GlobalLock {
    store: ContentStore,
    worker: Mutex<OurAccess>,
}

impl GlobalLock {
    /// Makes a store with one worker, which all threads share.
    pub fn new(config: &Config) -> Self {
        let store = ContentStore::new(config).expect("sizes in range");
        let worker = Mutex::new(OurAccess(store.join().expect("first worker")));
        Self { store, worker }
    }
}

impl Cache for GlobalLock {
    fn name(&self) -> &'static str {
        "ours, global lock"
    }
    fn access(&self) -> Box<dyn Access + '_> {
        Box::new(LockedAccess(self))
    }
    fn len(&self) -> usize {
        self.store.stats().packets as usize
    }
}

struct LockedAccess<'a>(&'a GlobalLock);

impl LockedAccess<'_> {
    fn with<R>(&self, f: impl FnOnce(&mut OurAccess) -> R) -> R {
        f(&mut self.0.worker.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Access for LockedAccess<'_> {
    fn get(&mut self, name: &[u8]) -> Option<u64> {
        self.with(|worker| worker.get(name))
    }
    fn get_prefix(&mut self, name: &[u8]) -> Option<u64> {
        self.with(|worker| worker.get_prefix(name))
    }
    fn insert(&mut self, block: &Block<'_>) {
        self.with(|worker| worker.insert(block));
    }
}
