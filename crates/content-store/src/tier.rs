//! How the store and its workers use the disk tier.

use crate::node::Packet;
use crate::worker::Writer;
use wire::ndn::NameRef;

#[cfg(not(all(feature = "std", not(any(loom, shuttle)))))]
impl Writer<'_> {
    /// There is no disk tier in this build.
    pub(crate) fn spill(&self, _: Packet<'_>) {}
    /// There is no disk tier in this build.
    pub(crate) fn erase_on_disk(&self, _: Packet<'_>) {}
    /// There is no disk tier in this build.
    pub(crate) fn erase_below_on_disk(&self, _: NameRef<'_>) {}
}

#[cfg(all(feature = "std", not(any(loom, shuttle))))]
mod with_disk {
    use super::*;
    use crate::disk::{DiskConfig, DiskError, DiskStats, DiskTier, Reads};
    use crate::insert::NewData;
    use crate::store::ContentStore;
    use crate::worker::Worker;
    use std::boxed::Box;
    use std::task::Waker;
    use wire::Instant;

    const NS_PER_MS: u64 = 1_000_000;

    impl ContentStore {
        /// Gives the store a disk tier: packets that are evicted from now on go to a file, and what is in it already
        /// can be read ([`Worker::read_disk`]). Reads the file first: O(its bytes).
        ///
        /// # Errors
        /// [`DiskError`] says what is out of range, or why the file cannot be used.
        pub fn open_disk(&self, config: &DiskConfig) -> Result<(), DiskError> {
            if self.shared.disk.get().is_some() {
                return Err(DiskError::Attached);
            }
            let tier = DiskTier::open(config, self.shared.hash)?;
            self.shared.disk.set(tier).map_err(|_| DiskError::Attached)
        }

        /// Waits until all packets that were evicted before are on the disk.
        ///
        /// # Errors
        /// The file could not be synchronised. Without a disk tier nothing is done.
        pub fn sync_disk(&self) -> std::io::Result<()> {
            self.shared.disk.get().map_or(Ok(()), DiskTier::sync)
        }

        /// Returns what the disk tier has done, if there is one.
        pub fn disk_stats(&self) -> Option<DiskStats> {
            self.shared.disk.get().map(DiskTier::stats)
        }
    }

    impl Worker {
        /// Evicts packets to the disk tier as far as it takes them at once, the coldest first, `limit` at most; returns
        /// how many. Before a process ends: call it until the store is empty or time is up, and wait in between
        /// ([`ContentStore::sync_disk`]), since 0 also says that the disk is behind. Without a tier nothing is done.
        pub fn move_to_disk(&mut self, limit: usize, now: Instant) -> usize {
            let shared = self.shared.clone();
            let Some(tier) = shared.disk.get() else {
                return 0;
            };
            let mut writer = self.writer();
            let mut count = 0;
            while count < limit && tier.has_room() && writer.evict(now.as_ns()).is_ok() {
                count += 1;
                writer.settle();
            }
            count
        }

        /// Starts to read the packet of exactly this name from the disk, after a lookup missed it; true if a read is
        /// under way, whose end [`poll_disk`](Self::poll_disk) tells. Never waits; at most 64 reads are under way.
        pub fn read_disk(&mut self, name: NameRef<'_>) -> bool {
            let Some(tier) = self.shared.disk.get() else {
                return false;
            };
            let number = self.shared.hash.hash(name.value()).high;
            let reads = self.reads.get_or_insert_with(|| Box::new(Reads::new()));
            reads.start(tier, name.value(), number)
        }

        /// Has `waker` woken whenever a read has ended, by the thread that read: who sleeps then calls
        /// [`poll_disk`](Self::poll_disk).
        pub fn wake_after_reads(&mut self, waker: Waker) {
            let reads = self.reads.get_or_insert_with(|| Box::new(Reads::new()));
            reads.waker = Some(waker);
        }

        /// Takes the reads that have ended: puts each packet into memory again and tells of it, or that it is not
        /// there any more (overwritten or damaged); returns how many. Never waits.
        pub fn poll_disk(
            &mut self,
            now: Instant,
            mut found: impl FnMut(NameRef<'_>, Option<&[u8]>),
        ) -> usize {
            let Some(mut reads) = self.reads.take() else {
                return 0;
            };
            let epoch = self.shared.disk.get().map_or(0, DiskTier::epoch_unix_ns);
            let mut count = 0;
            while let Some(read) = reads.finished() {
                let name = NameRef::new(&read.name).unwrap_or_default();
                let is_erased = self
                    .shared
                    .disk
                    .get()
                    .is_some_and(|tier| tier.is_erased(name, &read));
                let kept = read.packet().filter(|_| !is_erased);
                let packet = kept.map(|(packet, name)| {
                    let now_unix = epoch.saturating_add(now.as_ns());
                    let left = read.fresh_until_unix_ns().saturating_sub(now_unix);
                    let name = NameRef::new(name).unwrap_or_default();
                    // A newer one may have come meanwhile. A refusal is counted; the packet is there all the same.
                    if self
                        .reader()
                        .find_exact(self.shared.hash.hash(name.value()), name.value())
                        .is_none()
                    {
                        let _ = self.insert(&NewData::new(packet, name, left / NS_PER_MS), now);
                    }
                    packet
                });
                found(name, packet);
                let number = self.shared.hash.hash(&read.name).high;
                reads.give_back(read, number);
                count += 1;
            }
            self.reads = Some(reads);
            count
        }

        /// Returns how many reads are under way.
        pub fn disk_reads(&self) -> usize {
            self.reads.as_ref().map_or(0, |reads| reads.pending.len())
        }
    }

    impl Writer<'_> {
        /// Copies a packet that is evicted to the disk tier, if there is one.
        #[inline]
        pub(crate) fn spill(&self, packet: Packet<'_>) {
            if let Some(tier) = self.shared.disk.get() {
                let lengths = packet.lengths();
                let fresh = match packet.fresh_until_ns() {
                    0 => 0,
                    ns => tier.epoch_unix_ns().saturating_add(ns),
                };
                let bytes = packet.bytes(0, lengths.packet);
                tier.append(bytes, lengths.name_at, packet.name(), fresh);
            }
        }

        /// Erases the packet of a packet's name on disk.
        pub(crate) fn erase_on_disk(&self, packet: Packet<'_>) {
            if let Some(tier) = self.shared.disk.get() {
                tier.erase_name(packet.name());
            }
        }

        /// Erases on disk all that is below a prefix.
        pub(crate) fn erase_below_on_disk(&self, prefix: NameRef<'_>) {
            if let Some(tier) = self.shared.disk.get() {
                tier.erase_prefix(prefix.value());
            }
        }
    }
}
