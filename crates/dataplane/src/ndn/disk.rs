//! The content store's disk tier: synchronised now and then, and given what is in memory before the node ends.

use std::time::Duration;

use content_store::ContentStore;
use control::config::NdnConfig;
use wire::Instant;

/// Packets that are moved in one go.
const SPILL_BATCH: usize = 4096;

/// The disk tier of the content store, which is synchronised now and then.
#[derive(Debug)]
pub(super) struct DiskSync {
    store: ContentStore,
    every: Duration,
    pub(super) due: Instant,
}

/// When the disk tier is to be synchronised, and how often.
pub(super) fn disk_sync(ndn: &NdnConfig, store: &ContentStore, now: Instant) -> Option<DiskSync> {
    let every = Duration::from_secs(ndn.cache_disk_sync_s.into());
    let is_asked = ndn.cache_disk.is_some() && !every.is_zero();
    is_asked.then(|| DiskSync {
        store: store.clone(),
        every,
        due: now + every,
    })
}

impl DiskSync {
    /// Synchronises, if it is time.
    pub(super) fn poll(&mut self, now: Instant) {
        if self.due > now {
            return;
        }
        self.due = now + self.every;
        if let Err(error) = self.store.sync_disk() {
            tracing::warn!(%error, "the content store's disk tier cannot be synchronised");
        }
    }
}

/// Memory that goes to the disk tier before the node ends.
#[derive(Debug)]
pub(super) struct LastSpill {
    store: ContentStore,
    time: Duration,
}

/// What is to be done before the node ends, if anything.
pub(super) fn last_spill(ndn: &NdnConfig, store: &ContentStore) -> Option<LastSpill> {
    let time = Duration::from_secs(ndn.cache_disk_stop_s.into());
    (ndn.cache_disk.is_some() && !time.is_zero()).then(|| LastSpill {
        store: store.clone(),
        time,
    })
}

impl LastSpill {
    /// Writes what is in memory until time is up.
    pub(super) fn run(self) {
        let begin = io::cpu::now();
        // The workers left their places.
        let Some(mut worker) = self.store.join() else {
            tracing::warn!(
                "the content store has no place from which its memory could go to the disk"
            );
            return;
        };
        let mut count = 0;
        // What was on its way is on the disk when this returns, so that there is room for more.
        let mut result = self.store.sync_disk();
        let mut is_synced = true;
        while result.is_ok() {
            let now = io::cpu::now();
            let moved = worker.move_to_disk(SPILL_BATCH, now);
            count += moved;
            if (moved == 0 && is_synced) || now.saturating_since(begin) >= self.time {
                break;
            }
            is_synced = moved == 0;
            if is_synced {
                result = self.store.sync_disk();
            }
        }
        drop(worker);
        let result = result.and_then(|()| self.store.sync_disk());
        let left = self.store.stats().packets;
        match result {
            Ok(()) if left == 0 => tracing::info!(packets = count, "memory is on the disk tier"),
            Ok(()) => tracing::warn!(
                packets = count,
                left,
                "not all of memory went to the disk tier in time; write a larger `cache_disk_stop_s` under [ndn]"
            ),
            Err(error) => tracing::warn!(
                %error,
                packets = count,
                left,
                "memory cannot be written to the disk tier; see to room on the disk of `cache_disk`"
            ),
        }
    }
}
