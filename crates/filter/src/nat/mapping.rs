//! Endpoint-independent mappings: every inner endpoint (address, port, protocol) has one outer endpoint, whomever
//! it talks to (RFC 4787 REQ-1, RFC 5382 REQ-1), and no outer endpoint has two inner ones (REQ-3, REQ-7).
//!
//! A mapping is two records of 16 bytes in shared lock-free maps: inner to outer, with the number of connections
//! that use it, and outer to inner. The one word of value holds all of it, so that it changes by one
//! compare-and-swap. When the last connection ends, the mapping stays for the quarantine (RFC 6888 REQ-8: 120 s);
//! only then is its port given out again. The same inner endpoint may use it again at any time.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tables::memory::{Memory, Private};
use tables::port_allocator::{PortAllocator, PortLease};
use tables::quiescent::Domain;
use tables::signature::Keyed;
use tables::slots::{InsertError, SlotMap, SlotRef, SlotRepairs, SlotWorker};
use wire::{Instant, ip_protocol};

use crate::track::counted::Counted;

use super::cgn::{self, BlockEvent, Subscribers};
use super::recovery::NatMemory;

/// The use count of a mapping that is being removed.
pub(super) const DYING: u16 = u16::MAX;
/// Connections that may use one mapping.
const USES_MAX: u16 = DYING - 1;

/// A protocol with ports of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PortSpace {
    /// TCP.
    Tcp = 0,
    /// UDP.
    Udp = 1,
    /// ICMP queries: the identifier is the port.
    Icmp = 2,
}

impl PortSpace {
    /// All spaces.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Icmp];

    /// Returns the space of an IP protocol, if it has one.
    pub const fn of(protocol: u8) -> Option<Self> {
        match protocol {
            ip_protocol::TCP => Some(Self::Tcp),
            ip_protocol::UDP => Some(Self::Udp),
            ip_protocol::ICMP | ip_protocol::ICMPV6 => Some(Self::Icmp),
            _ => None,
        }
    }
}

/// An IPv4 endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Address, host order.
    pub address: u32,
    /// Port or identifier.
    pub port: u16,
    /// Protocol.
    pub space: PortSpace,
}

impl Endpoint {
    pub(super) const fn key(self) -> u64 {
        (self.space as u64 + 1) << 48 | (self.port as u64) << 32 | self.address as u64
    }

    pub(super) const fn from_key(key: u64) -> Self {
        Self {
            address: key as u32,
            port: (key >> 32) as u16,
            space: match key >> 48 {
                1 => PortSpace::Tcp,
                2 => PortSpace::Udp,
                _ => PortSpace::Icmp,
            },
        }
    }
}

/// Which packets from outside may use a mapping (RFC 4787 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Filtering {
    /// Anyone's.
    EndpointIndependent,
    /// From addresses that the inner endpoint has a connection with.
    Address,
    /// From endpoints that it has a connection with: the most careful, and the default.
    #[default]
    AddressAndPort,
}

/// Which port a new mapping gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PortChoice {
    /// The inner one if it is free, else one of the same parity and range (RFC 4787 REQ-4).
    #[default]
    Preserve,
    /// One drawn at random (RFC 6056), of the same parity and range; the mapping stays what it is for all peers.
    Random,
}

/// How mappings are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NatPolicy {
    /// Which packets from outside may use a mapping.
    pub filtering: Filtering,
    /// Which port a new mapping gets, unless the rule says so itself.
    pub ports: PortChoice,
    /// How long the port of a mapping that nobody uses is kept from others, seconds (RFC 6888 REQ-8: 120).
    pub quarantine_s: u16,
    /// Hosts inside reach each other by their outer endpoints (RFC 4787 REQ-9).
    pub hairpin: bool,
    /// Mappings of one inner address (RFC 6888 REQ-4); 0 is no limit.
    pub mappings_per_host: u16,
}

impl Default for NatPolicy {
    fn default() -> Self {
        Self {
            filtering: Filtering::AddressAndPort,
            ports: PortChoice::Preserve,
            quarantine_s: 120,
            hairpin: true,
            mappings_per_host: 0,
        }
    }
}

/// What a mapping is made from.
#[derive(Clone, Copy, Debug)]
pub struct MappingRequest {
    /// The inner endpoint.
    pub inner: Endpoint,
    /// First outer address.
    pub first: u32,
    /// Last outer address. Of several, an inner address always gets the same one ("paired", REQ-2).
    pub last: u32,
    /// The rule's ports.
    pub ports: Option<(u16, u16)>,
    /// The rule wants a random port.
    pub random: bool,
}

/// A mapping that is used once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The outer endpoint.
    pub outer: Endpoint,
    /// The mapping was made just now.
    pub is_new: bool,
}

/// Why there is no mapping (RFC 6888 REQ-11: the packet is dropped, its sender told, nothing destroyed).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MappingError {
    /// No free port on the outer address.
    #[error("no free port on the outer address; give the pool more addresses")]
    Ports,
    /// The table of mappings is full.
    #[error("the table of mappings is full; make it larger")]
    Table,
    /// More outer addresses than the node was made for.
    #[error("no room for another outer address; raise the number of outer addresses")]
    Addresses,
    /// The inner address has as many mappings as it may have.
    #[error("the host has as many mappings as it may have")]
    HostLimit,
    /// The mapping is being removed at this very moment.
    #[error("the mapping is just being removed")]
    Busy,
}

/// What both directions' records say: an endpoint and a count.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) address: u32,
    pub(super) port: u16,
    pub(super) low: u16,
}

impl Entry {
    pub(super) const fn to_word(self) -> u64 {
        (self.address as u64) << 32 | (self.port as u64) << 16 | self.low as u64
    }
    pub(super) const fn from_word(word: u64) -> Self {
        Self {
            address: (word >> 32) as u32,
            port: (word >> 16) as u16,
            low: word as u16,
        }
    }
}

/// Sizes of the shared tables of NAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NatSizes {
    /// Mappings.
    pub mappings: usize,
    /// Outer addresses (48 KiB each).
    pub addresses: usize,
    /// Remote addresses that mappings are open to, for [`Filtering::Address`].
    pub permits: usize,
}

impl Default for NatSizes {
    fn default() -> Self {
        Self {
            mappings: 1 << 16,
            addresses: 16,
            permits: 1 << 16,
        }
    }
}

/// Mappings and ports, shared by all workers.
#[derive(Debug)]
pub struct Nat {
    /// Inner to outer; low bits count uses.
    pub(super) inner: SlotMap<u64>,
    /// Outer to inner; low bits are the second of the last release.
    pub(super) outer: SlotMap<u64>,
    /// Hashes of (outer endpoint, remote address), counted.
    permits: Counted,
    /// Outer addresses, numbered.
    addresses: SlotMap<u64>,
    next_address: Memory<AtomicU32>,
    pub(super) ports: [PortAllocator; 3],
    address_limit: u32,
    hash: Keyed,
    policy: NatPolicy,
    subscribers: Option<Subscribers>,
}

/// Who uses the tables of NAT, where that is several processes.
#[derive(Debug)]
pub(crate) struct NatDomains {
    pub(crate) inner: Domain,
    pub(crate) outer: Domain,
    pub(crate) permits: Domain,
    pub(crate) addresses: Domain,
}

/// A worker's handles; one a worker.
#[derive(Debug)]
pub struct NatWorker {
    pub(super) inner: SlotWorker,
    pub(super) outer: SlotWorker,
    permits: SlotWorker,
    addresses: SlotWorker,
    pub(super) blocks: Option<(SlotWorker, SlotWorker)>,
    sweep: usize,
    /// Port blocks that were given out or came back: what RFC 6888 REQ-13 wants logged.
    pub events: alloc::vec::Vec<BlockEvent>,
    /// Events that found no room, as nobody had taken the earlier ones.
    pub events_lost: u64,
}

impl NatWorker {
    /// The worker's places in all tables.
    pub(crate) fn handles(&self) -> impl Iterator<Item = &SlotWorker> {
        let blocks = self.blocks.iter().flat_map(|(one, other)| [one, other]);
        [&self.inner, &self.outer, &self.permits, &self.addresses]
            .into_iter()
            .chain(blocks)
    }
}

impl Nat {
    /// Makes empty tables for up to `workers` workers.
    pub fn new(sizes: &NatSizes, policy: NatPolicy, hash: Keyed, workers: usize) -> Self {
        let Ok(memory) = NatMemory::from_source(&mut Private, sizes);
        Self::with_memory(memory, policy, hash, workers).0
    }

    /// Makes tables for up to `workers` workers in `memory`: empty ones if it is zeroed. Mappings that are there
    /// are kept, what follows from them and from connections is forgotten: `repair` makes it anew.
    pub fn with_memory(
        memory: NatMemory,
        policy: NatPolicy,
        hash: Keyed,
        workers: usize,
    ) -> (Self, [SlotRepairs; 2]) {
        let domain = || Domain::new(workers);
        let address_limit = memory.ports[0].len() as u32;
        let (inner, inner_repairs) = SlotMap::recover(memory.inner, hash, domain());
        let (outer, outer_repairs) = SlotMap::recover(memory.outer, hash, domain());
        let nat = Self {
            inner,
            outer,
            permits: Counted::cleared(memory.permits, hash, workers),
            addresses: SlotMap::cleared(memory.addresses, hash, domain()),
            next_address: Memory::heap(1),
            ports: memory
                .ports
                .map(|ports| PortAllocator::cleared(ports, 1, u16::MAX)),
            address_limit,
            hash,
            policy,
            subscribers: None,
        };
        (nat, [inner_repairs, outer_repairs])
    }

    /// Uses tables beside other processes, as they are now.
    pub(crate) fn beside_others(
        memory: NatMemory,
        policy: NatPolicy,
        hash: Keyed,
        domains: NatDomains,
        next_address: Memory<AtomicU32>,
    ) -> Self {
        Self {
            address_limit: memory.ports[0].len() as u32,
            inner: SlotMap::with_memory(memory.inner, hash, domains.inner),
            outer: SlotMap::with_memory(memory.outer, hash, domains.outer),
            permits: Counted::with_memory(memory.permits, hash, domains.permits),
            addresses: SlotMap::with_memory(memory.addresses, hash, domains.addresses),
            next_address,
            ports: memory
                .ports
                .map(|ports| PortAllocator::with_memory(ports, 1, u16::MAX)),
            hash,
            policy,
            subscribers: None,
        }
    }

    /// Gives ports to subscribers in blocks; those of mappings that are there already, after a takeover, count.
    #[must_use]
    pub fn with_subscribers(mut self, subscribers: Subscribers) -> Self {
        if let Some(mut handles) = subscribers.join() {
            for slot in 0..self.inner.slots() {
                let Some((found, [word, ..])) = self.inner.live_at(slot) else {
                    continue;
                };
                let entry = Entry::from_word(word.load(Ordering::Relaxed));
                let known = self.inner.key(found).zip(self.number_of(entry.address));
                if let Some((key, index)) = known {
                    let subscriber = Endpoint::from_key(key).address;
                    subscribers.adopt(&mut handles, subscriber, index, entry.port);
                }
            }
            subscribers.reclaim(&mut handles);
        }
        self.subscribers = Some(subscribers);
        self
    }

    /// The policy.
    pub fn policy(&self) -> &NatPolicy {
        &self.policy
    }

    /// Joins as a worker, or `None` if there are as many already as there may be.
    pub fn join(&self) -> Option<NatWorker> {
        let blocks = match &self.subscribers {
            Some(subscribers) => Some(subscribers.join()?),
            None => None,
        };
        Some(NatWorker {
            inner: self.inner.join()?,
            outer: self.outer.join()?,
            permits: self.permits.join()?,
            addresses: self.addresses.join()?,
            blocks,
            sweep: 0,
            events: alloc::vec::Vec::with_capacity(cgn::EVENTS_MAX),
            events_lost: 0,
        })
    }

    /// Slots of the table of mappings.
    pub fn slots(&self) -> usize {
        self.inner.slots()
    }

    /// Number of mappings: a pass over the table.
    pub fn mappings(&self) -> usize {
        self.inner.count()
    }

    /// Number of outer ports in use: a pass over their bits.
    pub fn ports_in_use(&self) -> usize {
        self.ports.iter().map(PortAllocator::in_use).sum()
    }

    /// Uses the mapping of an inner endpoint, or makes one; to be given back by [`release`](Self::release).
    ///
    /// # Errors
    /// If there is none and none can be made.
    pub fn acquire(
        &self,
        worker: &mut NatWorker,
        request: &MappingRequest,
        random: u32,
        now: Instant,
    ) -> Result<Mapped, MappingError> {
        let key = request.inner.key();
        for _ in 0..4 {
            if let Some(found) = self.inner.find(&key) {
                match self.use_again(found, request.inner.space) {
                    Some(outer) => {
                        return Ok(Mapped {
                            outer,
                            is_new: false,
                        });
                    }
                    None => continue,
                }
            }
            let outer = self.draw_port(worker, request, random, now)?;
            match self.publish(worker, request.inner, outer) {
                Ok(true) => {
                    return Ok(Mapped {
                        outer,
                        is_new: true,
                    });
                }
                Ok(false) => self.give_back(worker, request.inner.address, outer, now),
                Err(error) => {
                    self.give_back(worker, request.inner.address, outer, now);
                    return Err(error);
                }
            }
        }
        Err(MappingError::Busy)
    }

    /// Returns the mapping of an inner endpoint without using it.
    pub fn outer_of(&self, inner: Endpoint) -> Option<Endpoint> {
        let found = self.inner.find(&inner.key())?;
        let entry = Entry::from_word(self.word(&self.inner, found)?.load(Ordering::Relaxed));
        (entry.low != DYING).then_some(Endpoint {
            address: entry.address,
            port: entry.port,
            space: inner.space,
        })
    }

    /// Asks for the cache lines that the next lookups of an inner and an outer endpoint need.
    #[inline]
    pub(crate) fn prefetch_endpoints(&self, inner: Endpoint, outer: Endpoint) {
        self.inner.prefetch_key(&inner.key());
        self.outer.prefetch_key(&outer.key());
    }

    /// Asks for the record of an inner endpoint's mapping, once those lines have come.
    #[inline]
    pub(crate) fn prefetch_mapping(&self, inner: Endpoint) {
        self.inner.prefetch_record(&inner.key());
    }

    /// Returns whose mapping an outer endpoint is.
    pub fn inner_of(&self, outer: Endpoint) -> Option<Endpoint> {
        let found = self.outer.find(&outer.key())?;
        let entry = Entry::from_word(self.word(&self.outer, found)?.load(Ordering::Relaxed));
        Some(Endpoint {
            address: entry.address,
            port: entry.port,
            space: outer.space,
        })
    }

    /// Ends one use of a mapping.
    pub fn release(&self, inner: Endpoint, now: Instant) {
        let Some(found) = self.inner.find(&inner.key()) else {
            return;
        };
        let Some(word) = self.word(&self.inner, found) else {
            return;
        };
        let mut old = word.load(Ordering::Relaxed);
        loop {
            let entry = Entry::from_word(old);
            if entry.low == 0 || entry.low == DYING {
                return;
            }
            if entry.low == 1 {
                // Before the count says so: who sees no use sees since when.
                self.stamp(inner.space, &entry, now);
            }
            let new = Entry {
                low: entry.low - 1,
                ..entry
            };
            // AcqRel: the release half pairs with the acquire half in `end_unused`, which reads the stamp.
            match word.compare_exchange_weak(
                old,
                new.to_word(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// Takes a new mapping back that no packet has left by: its port needs no quarantine, so that flows that are
    /// refused for another reason take no ports away.
    pub fn cancel(&self, worker: &mut NatWorker, inner: Endpoint, now: Instant) {
        let found = self.inner.find(&inner.key());
        let word = found.and_then(|found| self.word(&self.inner, found));
        let (Some(found), Some(word)) = (found, word) else {
            return;
        };
        let end = |word: u64| {
            let entry = Entry::from_word(word);
            let dying = Entry {
                low: DYING,
                ..entry
            };
            (entry.low == 1).then(|| dying.to_word())
        };
        // Relaxed: the word is the whole state; who loses has used the mapping.
        match word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end) {
            Ok(before) => {
                let entry = Entry::from_word(before);
                let outer = Endpoint {
                    address: entry.address,
                    port: entry.port,
                    space: inner.space,
                };
                if self.inner.remove_ref(&mut worker.inner, found) {
                    self.outer.remove(&mut worker.outer, &outer.key());
                    self.give_back(worker, inner.address, outer, now);
                }
            }
            Err(_) => self.release(inner, now),
        }
    }

    /// Lets a remote address use a mapping from now on, until [`forbid`](Self::forbid) was called as often.
    pub fn permit(&self, worker: &mut NatWorker, outer: Endpoint, remote: u32) {
        if self.policy.filtering != Filtering::Address {
            return;
        }
        let key = self.permit_key(outer, remote);
        // Without room, the address is treated as one that nobody talked to.
        let _ = self.permits.raise(&mut worker.permits, key, u64::MAX);
    }

    /// Takes back one [`permit`](Self::permit).
    pub fn forbid(&self, worker: &mut NatWorker, outer: Endpoint, remote: u32) {
        if self.policy.filtering != Filtering::Address {
            return;
        }
        let key = self.permit_key(outer, remote);
        self.permits.lower(&mut worker.permits, key);
    }

    /// Tells whose mapping a packet from outside may use, if any.
    pub fn admit(&self, outer: Endpoint, remote: u32) -> Option<Endpoint> {
        let inner = self.inner_of(outer)?;
        let used = self.inner.find(&inner.key()).is_some_and(|found| {
            self.word(&self.inner, found).is_some_and(|word| {
                let low = Entry::from_word(word.load(Ordering::Relaxed)).low;
                low != 0 && low != DYING
            })
        });
        let allowed = match self.policy.filtering {
            Filtering::EndpointIndependent => true,
            Filtering::Address => self.permits.get(self.permit_key(outer, remote)) > 0,
            Filtering::AddressAndPort => false,
        };
        (used && allowed).then_some(inner)
    }

    /// Reports that the worker holds nothing, frees what has passed its grace period, and ends mappings whose
    /// quarantine is over, in `slots` slots: once a loop.
    pub fn maintain(&self, worker: &mut NatWorker, slots: usize, now: Instant) {
        for handle in [&worker.inner, &worker.outer, &worker.addresses] {
            handle.quiescent();
        }
        self.inner.reclaim(&mut worker.inner);
        self.outer.reclaim(&mut worker.outer);
        self.permits.reclaim(&mut worker.permits);
        self.addresses.reclaim(&mut worker.addresses);
        if let (Some(subscribers), Some(handles)) = (&self.subscribers, &mut worker.blocks) {
            subscribers.reclaim(handles);
        }
        let total = self.inner.slots();
        let end = (worker.sweep + slots).min(total);
        for slot in worker.sweep..end {
            self.end_unused(worker, slot, now);
        }
        worker.sweep = if end == total { 0 } else { end };
    }

    /// Ends the mapping in a slot if nobody uses it and its quarantine is over.
    fn end_unused(&self, worker: &mut NatWorker, slot: usize, now: Instant) {
        let Some((found, [word, ..])) = self.inner.live_at(slot) else {
            return;
        };
        // Acquire: pairs with the release half of the swap in `release`.
        let old = word.load(Ordering::Acquire);
        let entry = Entry::from_word(old);
        if entry.low != 0 {
            return;
        }
        let Some(key) = self.inner.key(found) else {
            return;
        };
        let outer = Endpoint {
            address: entry.address,
            port: entry.port,
            space: Endpoint::from_key(key).space,
        };
        let idle = self.outer.find(&outer.key()).and_then(|outer| {
            let stamp = Entry::from_word(self.word(&self.outer, outer)?.load(Ordering::Relaxed));
            Some(seconds(now).wrapping_sub(stamp.low))
        });
        if idle.is_some_and(|idle| idle < self.policy.quarantine_s) {
            return;
        }
        let dying = Entry {
            low: DYING,
            ..entry
        };
        // Relaxed: who loses this swap has used the mapping again.
        let ours =
            word.compare_exchange(old, dying.to_word(), Ordering::Relaxed, Ordering::Relaxed);
        if ours.is_ok() && self.inner.remove_ref(&mut worker.inner, found) {
            self.outer.remove(&mut worker.outer, &outer.key());
            self.give_back(worker, key as u32, outer, now);
        }
    }

    /// Counts one more use of a mapping; `None` if it is being removed, or was.
    fn use_again(&self, found: SlotRef, space: PortSpace) -> Option<Endpoint> {
        let word = self.word(&self.inner, found)?;
        let more = |word: u64| {
            let entry = Entry::from_word(word);
            (entry.low < USES_MAX).then(|| {
                Entry {
                    low: entry.low + 1,
                    ..entry
                }
                .to_word()
            })
        };
        let before = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        let entry = Entry::from_word(before.ok()?);
        Some(Endpoint {
            address: entry.address,
            port: entry.port,
            space,
        })
    }

    /// Draws a port for an inner endpoint: by the rule's range, the subscriber's blocks, or the policy.
    fn draw_port(
        &self,
        worker: &mut NatWorker,
        request: &MappingRequest,
        random: u32,
        now: Instant,
    ) -> Result<Endpoint, MappingError> {
        let inner = request.inner;
        let planned = self.subscribers.as_ref();
        let address = match planned.and_then(|plan| plan.address_of(inner.address)) {
            None => self.paired(inner.address, request.first, request.last),
            Some(address) => {
                let address = address?;
                let is_offered = (request.first..=request.last).contains(&address);
                is_offered
                    .then_some(address)
                    .ok_or(MappingError::Addresses)?
            }
        };
        let index = self.number(worker, address)?;
        let space = inner.space;
        let allocator = &self.ports[space as usize];
        let endpoint = |lease: PortLease| Endpoint {
            address,
            port: lease.port,
            space,
        };
        if let Some(subscribers) = &self.subscribers {
            let drawn =
                subscribers.draw(worker, allocator, inner, (address, index), random, now)?;
            return Ok(endpoint(drawn));
        }
        let own_range = match (request.ports, inner.space, inner.port) {
            (Some(ports), ..) => ports,
            (None, PortSpace::Icmp, _) => (1, u16::MAX),
            (None, _, 0..=1023) => (1, 1023),
            (None, ..) => (1024, u16::MAX),
        };
        let in_range = (own_range.0..=own_range.1).contains(&inner.port);
        let preserve = !request.random && self.policy.ports == PortChoice::Preserve;
        let lease = PortLease {
            address: index,
            port: inner.port,
        };
        if preserve && in_range && allocator.allocate_exact(lease) {
            return Ok(endpoint(lease));
        }
        let span = u32::from(own_range.1.saturating_sub(own_range.0)) + 1;
        let start = own_range.0 + (random % span) as u16;
        let range = own_range.0..=own_range.1;
        // RFC 4787 4.2.2: RTP and RTCP keep their parity while there is a choice.
        let parity = (space == PortSpace::Udp).then_some(inner.port & 1);
        allocator
            .allocate_in_range(index, range.clone(), start, parity)
            .or_else(|| allocator.allocate_in_range(index, range, start, None))
            .map(endpoint)
            .ok_or(MappingError::Ports)
    }

    /// Publishes a new mapping with one use; false if another worker has made one meanwhile.
    fn publish(
        &self,
        worker: &mut NatWorker,
        inner: Endpoint,
        outer: Endpoint,
    ) -> Result<bool, MappingError> {
        let back = Entry {
            address: inner.address,
            port: inner.port,
            low: 0,
        };
        // The port is ours alone: a record that is still there is one that its remover takes away.
        if self
            .outer
            .insert(&mut worker.outer, &outer.key(), &[back.to_word()])
            .is_err()
        {
            return Err(MappingError::Table);
        }
        let there = Entry {
            address: outer.address,
            port: outer.port,
            low: 1,
        };
        let key = inner.key();
        match self
            .inner
            .insert(&mut worker.inner, &key, &[there.to_word()])
        {
            Ok(_) => Ok(true),
            Err(error) => {
                self.outer.remove(&mut worker.outer, &outer.key());
                match error {
                    InsertError::Exists(_) => Ok(false),
                    _ => Err(MappingError::Table),
                }
            }
        }
    }

    fn give_back(&self, worker: &mut NatWorker, host: u32, outer: Endpoint, now: Instant) {
        let Some(index) = self.number_of(outer.address) else {
            return;
        };
        self.ports[outer.space as usize].release(PortLease {
            address: index,
            port: outer.port,
        });
        if let Some(subscribers) = &self.subscribers {
            subscribers.give_back(worker, host, index, outer, now);
        }
    }

    /// Chooses the outer address of an inner one: always the same of a pool (RFC 4787 REQ-2).
    fn paired(&self, inner: u32, first: u32, last: u32) -> u32 {
        match last.checked_sub(first) {
            None | Some(0) => first,
            Some(more) => {
                let hash = self.hash.hash_words(&[u64::from(inner), 0x9a1d]) >> 32;
                first + ((hash * (u64::from(more) + 1)) >> 32) as u32
            }
        }
    }

    /// Numbers an outer address: the first time it is asked for.
    pub(super) fn number(&self, worker: &mut NatWorker, address: u32) -> Result<u32, MappingError> {
        if let Some(index) = self.number_of(address) {
            return Ok(index);
        }
        let take = |next: u32| (next < self.address_limit).then_some(next + 1);
        let index = self.next_address[0]
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .map_err(|_| MappingError::Addresses)?;
        let key = u64::from(address);
        match self
            .addresses
            .insert(&mut worker.addresses, &key, &[u64::from(index)])
        {
            Ok(_) => Ok(index),
            // Another worker was faster; the number that we took stays unused.
            Err(_) => self.number_of(address).ok_or(MappingError::Addresses),
        }
    }

    fn number_of(&self, address: u32) -> Option<u32> {
        let found = self.addresses.find(&u64::from(address))?;
        let word = self.word(&self.addresses, found)?;
        Some(word.load(Ordering::Relaxed) as u32)
    }

    /// Notes since when a mapping is unused.
    pub(super) fn stamp(&self, space: PortSpace, outer: &Entry, now: Instant) {
        let outer = Endpoint {
            address: outer.address,
            port: outer.port,
            space,
        };
        let word = self
            .outer
            .find(&outer.key())
            .and_then(|found| self.word(&self.outer, found));
        if let Some(word) = word {
            let old = Entry::from_word(word.load(Ordering::Relaxed));
            let new = Entry {
                low: seconds(now),
                ..old
            };
            // Relaxed: published by the swap of the count that follows.
            word.store(new.to_word(), Ordering::Relaxed);
        }
    }

    pub(super) fn word<'a>(&self, map: &'a SlotMap<u64>, found: SlotRef) -> Option<&'a AtomicU64> {
        map.values(found)?.first()
    }

    fn permit_key(&self, outer: Endpoint, remote: u32) -> u64 {
        self.hash.hash_words(&[outer.key(), u64::from(remote)])
    }
}

/// Seconds, as far as 16 bits count them.
fn seconds(now: Instant) -> u16 {
    (now.as_ns() / 1_000_000_000) as u16
}
