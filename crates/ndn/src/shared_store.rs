//! The content store of this workspace, which all workers of a node share, as the forwarder asks it.

use core::fmt;

use content_store::{NewData, PrefixHash, Query, Worker};
use wire::Instant;
use wire::ndn::{Data, Interest, NameRef};

use crate::store::{ContentStore, DiskInfo, StoreInfo};

/// One worker's access to a [`content_store::ContentStore`].
///
/// Whether unsolicited Data is cached is the forwarder's decision
/// ([`ForwarderConfig::unsolicited`](crate::ForwarderConfig::unsolicited)): what reaches the store was asked for or
/// admitted.
pub struct SharedStore {
    store: content_store::ContentStore,
    worker: Worker,
}

impl fmt::Debug for SharedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedStore")
            .field("info", &self.info())
            .finish_non_exhaustive()
    }
}

impl SharedStore {
    /// Joins a store; `None` if as many workers as it was made for have joined.
    pub fn join(store: &content_store::ContentStore) -> Option<Self> {
        Some(Self {
            store: store.clone(),
            worker: store.join()?,
        })
    }

    /// Returns the store.
    pub const fn store(&self) -> &content_store::ContentStore {
        &self.store
    }

    /// Returns the worker, e.g. to be woken when a read from disk has ended
    /// ([`Worker::wake_after_reads`]).
    pub const fn worker_mut(&mut self) -> &mut Worker {
        &mut self.worker
    }

    /// Says that this worker will not look at the store until [`online`](Self::online): before it sleeps.
    pub fn offline(&mut self) {
        self.worker.offline();
    }

    /// Comes back after [`offline`](Self::offline).
    pub fn online(&mut self) {
        self.worker.online();
    }
}

impl ContentStore for SharedStore {
    type Ahead = PrefixHash;

    #[inline]
    fn look_ahead(&self, name: NameRef<'_>) -> PrefixHash {
        self.worker.look_ahead(name)
    }

    #[inline]
    fn look_closer(&self, ahead: &PrefixHash) -> bool {
        self.worker.look_closer(*ahead)
    }

    #[inline]
    fn find<R>(
        &mut self,
        interest: &Interest<'_>,
        ahead: &PrefixHash,
        now: Instant,
        found: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        let query = Query {
            name: interest.name,
            can_be_prefix: interest.can_be_prefix,
            must_be_fresh: interest.must_be_fresh,
        };
        self.worker
            .lookup_hashed(&query, *ahead, now)
            .map(|hit| found(hit.packet()))
    }

    fn insert(&mut self, data: &Data<'_>, now: Instant) {
        let new = NewData::new(data.bytes, data.name, data.meta.freshness_ms);
        // A refusal is counted by the store; the packet is forwarded all the same.
        let _ = self.worker.insert(&new, now);
    }

    fn erase(&mut self, prefix: NameRef<'_>, limit: u64) -> u64 {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        self.worker.erase(prefix, limit) as u64
    }

    fn configure(&mut self, capacity: Option<u64>, admit: Option<bool>, serve: Option<bool>) {
        if let Some(packets) = capacity {
            let packets = usize::try_from(packets).unwrap_or(usize::MAX);
            let bytes = self.store.stats().capacity_bytes;
            self.store.set_capacity(packets, bytes as usize);
        }
        if let Some(admit) = admit {
            self.store.set_admit(admit);
        }
        if let Some(serve) = serve {
            self.store.set_serve(serve);
        }
    }

    fn info(&self) -> StoreInfo {
        let stats = self.store.stats();
        let (admit, serve) = self.store.admit_and_serve();
        StoreInfo {
            capacity: stats.capacity_packets,
            admit,
            serve,
            packets: stats.packets,
            hits: stats.hits,
            misses: stats.misses,
            disk: self.store.disk_stats().map(|disk| DiskInfo {
                file_bytes: disk.file_bytes,
                index_bytes: disk.index_bytes,
                recovered: disk.recovered,
                written: disk.written,
                dropped: disk.dropped + disk.crowded_out,
                found: disk.found,
                lost: disk.lost,
                failed: disk.failed,
            }),
        }
    }

    fn start_read(&mut self, name: NameRef<'_>) -> bool {
        self.worker.read_disk(name)
    }

    fn poll_reads(&mut self, now: Instant, mut ended: impl FnMut(NameRef<'_>)) {
        self.worker.poll_disk(now, |name, _| ended(name));
    }

    fn quiescent(&mut self) {
        self.worker.quiescent();
    }
}
