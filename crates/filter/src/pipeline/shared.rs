//! What all workers share.

use alloc::vec::Vec;

use tables::flow_map::FlowMap;
use tables::memory::Private;
use tables::quiescent::Domain;
use tables::signature::{Keyed, Session4, Session6};
use tables::slots::SlotWorker;

use super::config::{Sizes, TrackPolicy};
use super::proxy::Handshakes;
use super::recovery::SharedMemory;
use crate::alg::expectation::Expectations;
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
    pub(crate) expectations: Expectations,
    pub(crate) policy: TrackPolicy,
    pub(crate) limits: Limits,
    pub(crate) hash: Keyed,
    pub(crate) handshakes: Handshakes,
    /// Of each table, who uses it, where these are several processes.
    pub(super) domains: Vec<Domain>,
}

/// A worker could not join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("as many workers as the tables were made for have joined; raise `Sizes::workers`")]
pub struct Join;

impl Shared {
    /// Makes empty tables. `key` is random, drawn once a boot.
    pub fn new(sizes: &Sizes, policy: TrackPolicy, key: [u64; 4]) -> Self {
        let Ok(memory) = SharedMemory::from_source(&mut Private, sizes);
        let flows = |workers| Domain::new(workers);
        let hash = Keyed::new(key);
        let workers = sizes.workers;
        Self {
            flows4: FlowMap::with_memory(memory.flows4, hash, flows(workers)),
            flows6: FlowMap::with_memory(memory.flows6, hash, flows(workers)),
            nat: Nat::with_memory(memory.nat, policy.nat, hash, workers).0,
            sources: Counted::cleared(memory.sources, hash, workers),
            expectations: Expectations::recover(memory.expectations, hash, workers).0,
            policy,
            limits: Limits::new(&policy.timeouts),
            hash,
            handshakes: Handshakes::new(key),
            domains: Vec::new(),
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

    /// The connections that others expect.
    pub fn expectations(&self) -> &Expectations {
        &self.expectations
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
