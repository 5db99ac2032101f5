//! NAT64 (RFC 6146): IPv6 hosts reach IPv4 servers under a [`Prefix`].
//!
//! Two steps, each of which is there already or simple: a packet's headers are translated between the families
//! ([`siit`]), for which each IPv6 host has an IPv4 address that never leaves the node; from there on it is a
//! packet like others, whose source rules translate to an outer address. So the binding and session tables of RFC 6146 3.1,
//! their timers, filtering and hairpinning are those of connections and mappings of IPv4.
//!
//! A host's address follows from its IPv6 address unless another host has it already: after a restart, hosts find
//! their connections again.

use core::net::{Ipv4Addr, Ipv6Addr};

use tables::flow_map::{Direction, FlowError, FlowMap};
use tables::quiescent::Domain;
use tables::signature::{Keyed, Session6};
use tables::slots::{SlotMemory, SlotWorker};
use wire::{Instant, Layout};

use super::siit::{self, Prefix};
use crate::track::key::mapped;
use crate::track::timeout::Tick;

/// Hosts that are known at a time, at most.
const HOSTS_MAX: usize = 1 << 16;
/// Addresses that are tried for a host.
const TRIES: u32 = 64;
/// How long a host is known after its last packet, in ticks: longer than any of its connections lives (2 h 4 min).
const KEEP_TICKS: u32 = 60_000;
/// In how many steps deadlines go on, so that they are seldom written: 69 s.
const STEP_TICKS: u32 = 512;
/// The hash of all nodes alike: see the module.
const HASH: [u64; 4] = [0x6e61_7436, 0x34c1_1e47, 0x2545_f491, 0x4f6c_dd1d];

/// IPv4 addresses that stand for IPv6 hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    first: u32,
    /// The bits that tell hosts.
    mask: u32,
}

impl Pool {
    /// Takes the prefix of `len` bits that an address lies in.
    pub const fn new(address: Ipv4Addr, len: u8) -> Self {
        let mask = if len >= 32 { 0 } else { u32::MAX >> len };
        Self {
            first: address.to_bits() & !mask,
            mask,
        }
    }

    const fn contains(&self, address: Ipv4Addr) -> bool {
        address.to_bits() & !self.mask == self.first
    }
}

/// A translator, shared by all workers.
#[derive(Debug)]
pub struct Nat64 {
    prefix: Prefix,
    pool: Pool,
    /// IPv6 hosts one way, their IPv4 addresses the other.
    hosts: FlowMap<Session6>,
    hash: Keyed,
}

/// A worker's part.
#[derive(Debug)]
pub struct Nat64Worker {
    hosts: SlotWorker,
    sweep: usize,
    identification: u16,
}

impl Nat64 {
    /// Makes a translator for up to `workers` workers.
    pub fn new(prefix: Prefix, pool: Pool, workers: usize) -> Self {
        let hosts = (pool.mask as usize).saturating_add(1).min(HOSTS_MAX);
        let hash = Keyed::new(HASH);
        let memory = SlotMemory::new(2 * hosts, tables::memory::Pages::Normal);
        Self {
            prefix,
            pool,
            hosts: FlowMap::with_memory(memory, hash, Domain::new(workers)),
            hash,
        }
    }

    /// Joins as a worker, or `None` if there are as many already as there may be.
    pub fn join(&self) -> Option<Nat64Worker> {
        Some(Nat64Worker {
            hosts: self.hosts.join()?,
            sweep: 0,
            identification: 1,
        })
    }

    /// Number of hosts that are known.
    pub fn hosts(&self) -> usize {
        self.hosts.records() / 2
    }

    /// The IPv4 host that an IPv6 packet is for.
    pub fn server(&self, layout: &Layout, frame: &[u8]) -> Option<Ipv4Addr> {
        let (_, destination) = layout.ipv6_addresses(frame)?;
        self.prefix.v4_of(destination)
    }

    /// Tells whether an IPv4 packet is for an IPv6 host.
    pub fn is_inward(&self, layout: &Layout, frame: &[u8]) -> bool {
        layout
            .ipv4_addresses(frame)
            .is_some_and(|(_, destination)| self.pool.contains(destination))
    }

    /// The IPv6 host that an address of the pool stands for.
    pub fn host(&self, address: Ipv4Addr) -> Option<Ipv6Addr> {
        if !self.pool.contains(address) {
            return None;
        }
        let flow = self.hosts.find(&by_v4(address))?;
        let key = self.hosts.original_key(flow.connection)?;
        (flow.direction == Direction::Reply).then(|| Ipv6Addr::from_bits(key.source))
    }

    /// Translates an IPv6 packet to IPv4; returns the length of the frame in `to`, `None` if it cannot be translated.
    /// `own` is the node's address, for what it sends itself.
    pub fn outward(
        &self,
        worker: &mut Nat64Worker,
        frame: &[u8],
        layout: &Layout,
        to: &mut [u8],
        own: Option<Ipv4Addr>,
        now: Instant,
    ) -> Option<usize> {
        let (source, _) = layout.ipv6_addresses(frame)?;
        let named = match own {
            Some(own) => own,
            None => self.address(worker, source, Tick::of(now))?,
        };
        worker.identification = worker.identification.wrapping_add(1);
        siit::to_ipv4(frame, layout, to, worker.identification, &|address| {
            if address == source {
                return Some(named);
            }
            self.prefix.v4_of(address).or_else(|| self.known(address))
        })
    }

    /// Translates an IPv4 packet to IPv6, as [`outward`](Self::outward).
    pub fn inward(&self, frame: &[u8], layout: &Layout, to: &mut [u8]) -> Option<usize> {
        siit::to_ipv6(frame, layout, to, &|address| {
            if self.pool.contains(address) {
                self.host(address)
            } else {
                Some(self.prefix.v6_of(address))
            }
        })
    }

    fn known(&self, host: Ipv6Addr) -> Option<Ipv4Addr> {
        let flow = self.hosts.find(&by_v6(host))?;
        let key = self.hosts.reply_key(flow.connection)?;
        (flow.direction == Direction::Original).then(|| Ipv4Addr::from_bits(key.source as u32))
    }

    /// The address of a host; it gets one if it has none.
    fn address(&self, worker: &mut Nat64Worker, host: Ipv6Addr, now: Tick) -> Option<Ipv4Addr> {
        let key = by_v6(host);
        let deadline = u64::from(now.after(KEEP_TICKS).0 & !(STEP_TICKS - 1)) << 32;
        if let Some(address) = self.known(host) {
            if let Some(flow) = self.hosts.find(&key) {
                self.hosts.touch(flow.connection, deadline);
            }
            return Some(address);
        }
        let bits = host.to_bits();
        let wanted = self.hash.hash_words(&[(bits >> 64) as u64, bits as u64]) as u32;
        for attempt in 0..TRIES.min(self.pool.mask.saturating_add(1)) {
            let number = wanted.wrapping_add(attempt) & self.pool.mask;
            let address = Ipv4Addr::from_bits(self.pool.first | number);
            let reply = by_v4(address);
            match self
                .hosts
                .insert(&mut worker.hosts, &key, Some(&reply), &[deadline])
            {
                Ok(_) => return Some(address),
                Err(FlowError::ReplyTaken) => {}
                // Another worker was faster.
                Err(FlowError::Exists(_)) => return self.known(host),
                Err(_) => return None,
            }
        }
        None
    }

    /// Forgets hosts that were silent, in `slots` slots, and frees what nobody holds any more: once a loop.
    pub fn maintain(&self, worker: &mut Nat64Worker, slots: usize, now: Instant) {
        worker.hosts.quiescent();
        self.hosts.reclaim(&mut worker.hosts);
        let end = (worker.sweep + slots).min(self.hosts.slots());
        let until = u64::from(Tick::of(now).0) << 32;
        self.hosts
            .expire_until(&mut worker.hosts, worker.sweep..end, until);
        worker.sweep = if end == self.hosts.slots() { 0 } else { end };
    }
}

fn by_v6(host: Ipv6Addr) -> Session6 {
    Session6 {
        source: host.to_bits(),
        destination: 0,
        source_port: 0,
        destination_port: 0,
        protocol: 0,
    }
}

fn by_v4(address: Ipv4Addr) -> Session6 {
    by_v6(Ipv6Addr::from_bits(u128::from_be_bytes(mapped(
        address.to_bits(),
    ))))
}
