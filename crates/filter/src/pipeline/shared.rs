//! What all workers share.

use tables::flow_map::FlowMap;
use tables::quiescent::Domain;
use tables::signature::{Keyed, Session4, Session6};
use tables::slots::{SlotMemory, SlotRepairs, SlotWorker};

use super::config::{Sizes, TrackPolicy};
use crate::nat::mapping::Nat;
use crate::track::counted::Counted;
use crate::track::key::ConnectionKey;
use crate::track::timeout::Limits;

/// Connections, mappings, counts: shared by threads, or, in memory segments, by processes.
#[derive(Debug)]
pub struct Shared {
    pub(crate) flows4: FlowMap<Session4>,
    pub(crate) flows6: FlowMap<Session6>,
    pub(crate) nat: Nat,
    pub(crate) sources: Counted,
    pub(crate) policy: TrackPolicy,
    pub(crate) limits: Limits,
    pub(crate) hash: Keyed,
}

/// A worker could not join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("as many workers as the tables were made for have joined; raise `Sizes::workers`")]
pub struct Join;

impl Shared {
    /// Makes empty tables. `key` is random, drawn once a boot.
    pub fn new(sizes: &Sizes, policy: TrackPolicy, key: [u64; 4]) -> Self {
        let hash = Keyed::new(key);
        let domain = || Domain::new(sizes.workers);
        let nat = Nat::new(&sizes.nat, policy.nat, hash, sizes.workers);
        Self {
            flows4: FlowMap::new(sizes.connections4, hash, domain()),
            flows6: FlowMap::new(sizes.connections6, hash, domain()),
            nat,
            sources: Counted::new(sizes.sources, hash, sizes.workers),
            policy,
            limits: Limits::new(&policy.timeouts),
            hash,
        }
    }

    /// Takes over connections that lie in `flows4` and `flows6` (memory segments that outlived a process). The other
    /// tables start empty: connections go on, translated ones by what their records hold, but their mappings, ports
    /// and counts are not known to the new tables, so that a new connection may be given a port in use.
    pub fn recover(
        sizes: &Sizes,
        policy: TrackPolicy,
        key: [u64; 4],
        flows4: SlotMemory<Session4>,
        flows6: SlotMemory<Session6>,
    ) -> (Self, [SlotRepairs; 2]) {
        let hash = Keyed::new(key);
        let domain = || Domain::new(sizes.workers);
        let (flows4, repairs4) = FlowMap::recover(flows4, hash, domain());
        let (flows6, repairs6) = FlowMap::recover(flows6, hash, domain());
        let shared = Self {
            flows4,
            flows6,
            nat: Nat::new(&sizes.nat, policy.nat, hash, sizes.workers),
            sources: Counted::new(sizes.sources, hash, sizes.workers),
            policy,
            limits: Limits::new(&policy.timeouts),
            hash,
        };
        (shared, [repairs4, repairs6])
    }

    /// Uses tables of connections in memory that the caller chose: zeroed segments, say.
    pub fn with_memory(
        sizes: &Sizes,
        policy: TrackPolicy,
        key: [u64; 4],
        flows4: SlotMemory<Session4>,
        flows6: SlotMemory<Session6>,
    ) -> Self {
        let hash = Keyed::new(key);
        let domain = || Domain::new(sizes.workers);
        Self {
            flows4: FlowMap::with_memory(flows4, hash, domain()),
            flows6: FlowMap::with_memory(flows6, hash, domain()),
            nat: Nat::new(&sizes.nat, policy.nat, hash, sizes.workers),
            sources: Counted::new(sizes.sources, hash, sizes.workers),
            policy,
            limits: Limits::new(&policy.timeouts),
            hash,
        }
    }

    /// Gives NAT a plan for subscribers' ports.
    #[must_use]
    pub fn with_subscribers(mut self, subscribers: crate::nat::cgn::Subscribers) -> Self {
        self.nat = self.nat.with_subscribers(subscribers);
        self
    }

    /// Number of connections of both families: a pass over the tables.
    pub fn connections(&self) -> usize {
        (self.flows4.records() + self.flows6.records()) / 2
    }

    /// Slots of the largest table: what sweeps are divided by.
    pub fn slots(&self) -> usize {
        self.flows4
            .slots()
            .max(self.flows6.slots())
            .max(self.nat.slots())
    }

    /// The mappings.
    pub fn nat(&self) -> &Nat {
        &self.nat
    }
}

/// A worker's handles of the two connection tables.
#[derive(Debug)]
pub(crate) struct FlowHandles {
    pub(crate) v4: SlotWorker,
    pub(crate) v6: SlotWorker,
}

/// The table of one family, and the worker's handle of it.
pub(crate) trait Table: ConnectionKey {
    fn flows(shared: &Shared) -> &FlowMap<Self>;
    fn handle(handles: &mut FlowHandles) -> &mut SlotWorker;
}

impl Table for Session4 {
    fn flows(shared: &Shared) -> &FlowMap<Self> {
        &shared.flows4
    }
    fn handle(handles: &mut FlowHandles) -> &mut SlotWorker {
        &mut handles.v4
    }
}

impl Table for Session6 {
    fn flows(shared: &Shared) -> &FlowMap<Self> {
        &shared.flows6
    }
    fn handle(handles: &mut FlowHandles) -> &mut SlotWorker {
        &mut handles.v6
    }
}
