//! What the forwarder asks of a content store, and a small store for tests and small nodes.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Bound;
use core::time::Duration;

use wire::Instant;
use wire::ndn::{Data, Interest, NameRef};

/// Figures and switches of a content store, as CsInfo reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreInfo {
    /// Packets that it holds at most.
    pub capacity: u64,
    /// New packets are admitted.
    pub admit: bool,
    /// Lookups are answered.
    pub serve: bool,
    /// Packets that it holds.
    pub packets: u64,
    /// Lookups that found a packet.
    pub hits: u64,
    /// Lookups that found none.
    pub misses: u64,
    /// Its slower part, if it has one.
    pub disk: Option<DiskInfo>,
}

/// Figures of the part of a content store that is on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskInfo {
    /// Bytes of the file when it is full.
    pub file_bytes: u64,
    /// Bytes of memory of its index.
    pub index_bytes: u64,
    /// Packets that were there at the start.
    pub recovered: u64,
    /// Packets written.
    pub written: u64,
    /// Packets not written, as the disk was behind or the index full.
    pub dropped: u64,
    /// Reads that found their packet.
    pub found: u64,
    /// Reads that did not.
    pub lost: u64,
    /// Operations on the file that failed.
    pub failed: u64,
}

impl DiskInfo {
    /// All figures, in the order of the fields.
    pub(crate) const fn values(&self) -> [u64; 8] {
        [
            self.file_bytes,
            self.index_bytes,
            self.recovered,
            self.written,
            self.dropped,
            self.found,
            self.lost,
            self.failed,
        ]
    }

    /// The place of a figure, by its number in [`values`](Self::values).
    pub(crate) const fn place(&mut self, number: u32) -> Option<&mut u64> {
        Some(match number {
            0 => &mut self.file_bytes,
            1 => &mut self.index_bytes,
            2 => &mut self.recovered,
            3 => &mut self.written,
            4 => &mut self.dropped,
            5 => &mut self.found,
            6 => &mut self.lost,
            7 => &mut self.failed,
            _ => return None,
        })
    }
}

/// A content store as the forwarder sees it: one worker's access.
pub trait ContentStore {
    /// What the store keeps of a name from one step of a lookup to the next.
    type Ahead: Copy + core::fmt::Debug;

    /// Begins a lookup, or the insertion of Data: asks for the memory that the next step reads.
    fn look_ahead(&self, name: NameRef<'_>) -> Self::Ahead;

    /// Goes a step on: asks for the memory of a packet that may be the one. False if there is none of the name, so
    /// that a lookup of exactly this name will most likely fail.
    fn look_closer(&self, ahead: &Self::Ahead) -> bool;

    /// Gives the packet that answers the Interest, whose name `ahead` is of, to `found` and returns what that returns; `None` if there
    /// is no such packet.
    fn find<R>(
        &mut self,
        interest: &Interest<'_>,
        ahead: &Self::Ahead,
        now: Instant,
        found: impl FnOnce(&[u8]) -> R,
    ) -> Option<R>;

    /// Stores a copy of a packet that may be cached.
    fn insert(&mut self, data: &Data<'_>, now: Instant);

    /// Removes up to `limit` packets at and below `prefix`; returns how many. `u64::MAX` removes them from a slower
    /// place too, where they are not counted.
    fn erase(&mut self, prefix: NameRef<'_>, limit: u64) -> u64;

    /// Changes what is given; `None` leaves as it is.
    fn configure(&mut self, capacity: Option<u64>, admit: Option<bool>, serve: Option<bool>);

    /// Returns figures and switches.
    fn info(&self) -> StoreInfo;

    /// Starts to read the packet of a name that a lookup did not find from a slower place, without waiting for it; true
    /// if a read is under way, whose end [`poll_reads`](Self::poll_reads) tells.
    fn start_read(&mut self, name: NameRef<'_>) -> bool {
        let _ = name;
        false
    }

    /// Tells the names whose reads have ended: what was found is in the store now.
    fn poll_reads(&mut self, now: Instant, ended: impl FnMut(NameRef<'_>)) {
        let _ = (now, ended);
    }

    /// Says that the worker holds no view of a packet: call once a burst.
    fn quiescent(&mut self) {}
}

/// A store in a sorted map with first-in-first-out eviction: complete matches, O(log packets), one worker.
#[derive(Debug)]
pub struct MemoryStore {
    packets: BTreeMap<Vec<u8>, Stored>,
    queue: VecDeque<(u64, Vec<u8>)>,
    next: u64,
    info: StoreInfo,
}

#[derive(Debug)]
struct Stored {
    packet: Vec<u8>,
    fresh_until: Instant,
    number: u64,
}

impl MemoryStore {
    /// Makes a store for `capacity` packets.
    pub fn new(capacity: usize) -> Self {
        Self {
            packets: BTreeMap::new(),
            queue: VecDeque::new(),
            next: 0,
            info: StoreInfo {
                capacity: capacity as u64,
                admit: true,
                serve: true,
                ..StoreInfo::default()
            },
        }
    }

    fn search(&self, interest: &Interest<'_>, now: Instant) -> Option<&Stored> {
        let is_fresh = |stored: &Stored| !interest.must_be_fresh || stored.fresh_until > now;
        let (stem, digest) = interest.name.split_implicit_digest();
        if digest.is_none() && interest.can_be_prefix {
            let from = (Bound::Included(stem.value()), Bound::Unbounded);
            return self
                .packets
                .range::<[u8], _>(from)
                .take_while(|(name, _)| name.starts_with(stem.value()))
                .map(|(_, stored)| stored)
                .find(|stored| is_fresh(stored));
        }
        let stored = self.packets.get(stem.value()).filter(|s| is_fresh(s))?;
        match digest {
            Some(digest) => {
                (*digest == wire::ndn::digest::sha256([&stored.packet[..]])).then_some(stored)
            }
            None => Some(stored),
        }
    }

    fn evict(&mut self) {
        while self.packets.len() as u64 > self.info.capacity {
            let Some((number, name)) = self.queue.pop_front() else {
                return;
            };
            if self.packets.get(&name).is_some_and(|s| s.number == number) {
                self.packets.remove(&name);
            }
        }
    }
}

impl ContentStore for MemoryStore {
    type Ahead = ();

    fn look_ahead(&self, _: NameRef<'_>) {}

    fn look_closer(&self, (): &()) -> bool {
        true
    }

    fn find<R>(
        &mut self,
        interest: &Interest<'_>,
        (): &(),
        now: Instant,
        found: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        if !self.info.serve {
            return None;
        }
        let result = self.search(interest, now).map(|s| found(&s.packet));
        match result {
            Some(_) => self.info.hits += 1,
            None => self.info.misses += 1,
        }
        result
    }

    fn insert(&mut self, data: &Data<'_>, now: Instant) {
        if !self.info.admit || self.info.capacity == 0 {
            return;
        }
        let number = self.next;
        self.next += 1;
        let name = data.name.value().to_vec();
        let fresh_ms = data.meta.freshness_ms.min(u64::MAX / 1_000_000);
        self.queue.push_back((number, name.clone()));
        let stored = Stored {
            packet: data.bytes.to_vec(),
            fresh_until: now + Duration::from_millis(fresh_ms),
            number,
        };
        self.packets.insert(name, stored);
        self.evict();
        // Names that were replaced leave stale places in the queue; it stays short nevertheless.
        if self.queue.len() as u64 > 2 * self.info.capacity + 16 {
            let packets = &self.packets;
            self.queue
                .retain(|(number, name)| packets.get(name).is_some_and(|s| s.number == *number));
        }
    }

    fn erase(&mut self, prefix: NameRef<'_>, limit: u64) -> u64 {
        let from = (Bound::Included(prefix.value()), Bound::Unbounded);
        let names: Vec<_> = self
            .packets
            .range::<[u8], _>(from)
            .map(|(name, _)| name)
            .take_while(|name| name.starts_with(prefix.value()))
            .take(usize::try_from(limit).unwrap_or(usize::MAX))
            .cloned()
            .collect();
        for name in &names {
            self.packets.remove(name);
        }
        names.len() as u64
    }

    fn configure(&mut self, capacity: Option<u64>, admit: Option<bool>, serve: Option<bool>) {
        self.info.capacity = capacity.unwrap_or(self.info.capacity);
        self.info.admit = admit.unwrap_or(self.info.admit);
        self.info.serve = serve.unwrap_or(self.info.serve);
        self.evict();
    }

    fn info(&self) -> StoreInfo {
        StoreInfo {
            packets: self.packets.len() as u64,
            ..self.info
        }
    }
}
