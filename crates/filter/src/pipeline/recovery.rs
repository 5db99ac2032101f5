//! Tables that outlive their process: a node that was killed, or upgraded, finds its connections again.
//!
//! A kill leaves every table as the last instruction left it. Connections are the truth: one whose insert returned
//! is kept. All else follows from them and is made anew: how often each mapping is used, mappings that are half
//! made or half removed, which ports are in use, which remote addresses a mapping is open to, how many connections
//! each source has. Connections that helpers expect are kept with those that expect them. Verdicts that were noted for replay are forgotten: the next packet of each connection meets the
//! rules that are in force now.

use alloc::vec::Vec;

use tables::flow_map::FlowMap;
use tables::memory::Source;
use tables::quiescent::Domain;
use tables::signature::{Keyed, Session4, Session6};
use tables::slots::{SlotMemory, SlotRef, SlotRepairs};
use wire::{FlowKey, Instant};

use super::config::{Sizes, TrackPolicy};
use super::proxy::Handshakes;
use super::shared::{FlowHandles, Shared, Table};
use super::worker::{port_of_destination, source_id};
use crate::alg::expectation::{Expectation, ExpectationMemory, Expectations};
use crate::nat::mapping::{Endpoint, Nat, PortSpace};
use crate::nat::recovery::{NatMemory, NatRepairs, Uses};
use crate::track::counted::Counted;
use crate::track::key::unmapped;
use crate::track::record::{Life, Own, Record};
use crate::track::timeout::Limits;

/// Changes when the records in the memory of [`SharedMemory`] mean something else.
pub const LAYOUT_VERSION: u32 = 3;

/// The memory of all tables that workers share.
#[derive(Debug)]
pub struct SharedMemory {
    pub(super) flows4: SlotMemory<Session4>,
    pub(super) flows6: SlotMemory<Session6>,
    pub(super) sources: SlotMemory<u64>,
    pub(super) nat: NatMemory,
    pub(super) expectations: ExpectationMemory,
}

impl SharedMemory {
    /// Takes the memory from a source.
    ///
    /// # Errors
    /// As [`Source::take`].
    pub fn from_source<S: Source>(source: &mut S, sizes: &Sizes) -> Result<Self, S::Error> {
        Ok(Self {
            flows4: SlotMemory::from_source(source, "ipv4", sizes.connections4 * 2)?,
            flows6: SlotMemory::from_source(source, "ipv6", sizes.connections6 * 2)?,
            sources: SlotMemory::from_source(source, "sources", sizes.sources)?,
            nat: NatMemory::from_source(source, &sizes.nat)?,
            expectations: ExpectationMemory::from_source(source, sizes.expectations)?,
        })
    }

    /// Bytes that the tables take of a segment.
    pub fn segment_bytes(sizes: &Sizes) -> usize {
        SlotMemory::<Session4>::segment_bytes(sizes.connections4 * 2)
            + SlotMemory::<Session6>::segment_bytes(sizes.connections6 * 2)
            + SlotMemory::<u64>::segment_bytes(sizes.sources)
            + NatMemory::segment_bytes(&sizes.nat)
            + ExpectationMemory::segment_bytes(sizes.expectations)
    }
}

/// What [`Shared::recover`] found and set right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Connections that go on.
    pub connections: usize,
    /// Connections that were ended, as their outer endpoint belongs to another mapping.
    pub connections_ended: usize,
    /// Slots of all tables that an insert had not finished, or whose record was removed but not yet freed.
    pub unfinished: usize,
    /// Slots of all tables whose contents made no sense.
    pub torn: usize,
    /// Connections that helpers expect and that are waited for still.
    pub expectations: usize,
    /// Mappings.
    pub nat: NatRepairs,
}

impl Recovery {
    /// Number of things that were set right.
    pub fn repairs(&self) -> usize {
        let nat = &self.nat;
        self.connections_ended
            + self.unfinished
            + self.torn
            + nat.counts_corrected
            + nat.restored
            + nat.removed
    }
}

impl Shared {
    /// Takes over tables that no process uses any more, with the `sizes` and the `key` that they were made with;
    /// `now` is on the clock that their process had. Takes time linear in the tables.
    pub fn recover(
        sizes: &Sizes,
        policy: TrackPolicy,
        key: [u64; 4],
        memory: SharedMemory,
        now: Instant,
    ) -> (Self, Recovery) {
        let hash = Keyed::new(key);
        let domain = || Domain::new(sizes.workers);
        let (flows4, repairs4) = FlowMap::recover(memory.flows4, hash, domain());
        let (flows6, repairs6) = FlowMap::recover(memory.flows6, hash, domain());
        let (nat, repairs_nat) = Nat::with_memory(memory.nat, policy.nat, hash, sizes.workers);
        let (expectations, repairs_expected) =
            Expectations::recover(memory.expectations, hash, sizes.workers);
        let shared = Self {
            flows4,
            flows6,
            nat,
            sources: Counted::cleared(memory.sources, hash, sizes.workers),
            expectations,
            policy,
            limits: Limits::new(&policy.timeouts),
            hash,
            handshakes: Handshakes::new(key),
            domains: Vec::new(),
        };
        // Clients that the last node sent cookies to may be about to answer.
        shared.handshakes.note(now);
        let mut recovery = Recovery::default();
        let repairs = [repairs4, repairs6, repairs_expected];
        for repairs in repairs.iter().chain(&repairs_nat) {
            let SlotRepairs {
                unfinished,
                dead,
                torn,
                ..
            } = repairs;
            recovery.unfinished += unfinished + dead;
            recovery.torn += torn;
        }
        shared.rebuild(&mut recovery, now);
        recovery.connections = shared.connections();
        recovery.expectations = shared.expectations.count();
        (shared, recovery)
    }

    /// Makes mappings, ports, permits and counts what the connections ask for.
    fn rebuild(&self, recovery: &mut Recovery, now: Instant) {
        let handles = (self.flows4.join(), self.flows6.join());
        let (Some(v4), Some(v6)) = handles else {
            return;
        };
        let mut handles = FlowHandles { v4, v6 };
        let mut uses = Uses::default();
        self.collect::<Session4>(&mut handles, &mut uses, recovery);
        self.collect::<Session6>(&mut handles, &mut uses, recovery);
        self.expectations.recount(|key, expectation| {
            let master = expectation.master;
            let is_there = if expectation.is_ipv4 {
                self.look::<Session4>(master).is_some()
            } else {
                self.look::<Session6>(master).is_some()
            };
            let mapping = mapping_of(key, expectation);
            is_there && mapping.is_none_or(|(inner, outer)| uses.add(inner, outer))
        });
        let (repairs, lost) = self.nat.repair(uses, now);
        recovery.nat = repairs;
        if !lost.is_empty() {
            self.expectations.retain(|key, expectation| {
                let mapping = mapping_of(key, expectation);
                mapping.is_none_or(|(inner, _)| !lost.contains(&inner))
            });
            // Their connections cannot be told from another host's on the outside.
            self.end_of::<Session4>(&mut handles, &lost, recovery);
            self.end_of::<Session6>(&mut handles, &lost, recovery);
        }
        self.recount(recovery);
        handles.v4.quiescent();
        handles.v6.quiescent();
        self.flows4.reclaim(&mut handles.v4);
        self.flows6.reclaim(&mut handles.v6);
    }

    /// Goes over one family's connections: which mappings they use; forgets what was noted for replay.
    fn collect<K: Table>(
        &self,
        handles: &mut FlowHandles,
        uses: &mut Uses,
        recovery: &mut Recovery,
    ) {
        for connection in self.each::<K>() {
            let Some((record, original, reply)) = self.look::<K>(connection) else {
                // A connection always has both keys.
                K::flows(self).remove(K::handle(handles), connection);
                recovery.torn += 1;
                continue;
            };
            record.set_replay(0, 0);
            record.set_replay(1, 0);
            let all_ours = mappings_of(&record.life(), &original, &reply)
                .into_iter()
                .flatten()
                .all(|(inner, outer)| uses.add(inner, outer));
            if !all_ours {
                K::flows(self).remove(K::handle(handles), connection);
                recovery.connections_ended += 1;
            }
        }
    }

    /// Ends the connections that use one of these inner endpoints.
    fn end_of<K: Table>(
        &self,
        handles: &mut FlowHandles,
        lost: &[Endpoint],
        recovery: &mut Recovery,
    ) {
        for connection in self.each::<K>() {
            let is_lost = self
                .look::<K>(connection)
                .is_some_and(|(record, original, reply)| {
                    mappings_of(&record.life(), &original, &reply)
                        .into_iter()
                        .flatten()
                        .any(|(inner, _)| lost.contains(&inner))
                });
            if is_lost && K::flows(self).remove(K::handle(handles), connection) {
                recovery.connections_ended += 1;
            }
        }
    }

    /// Counts connections for their sources, and remote addresses for mappings.
    fn recount(&self, recovery: &mut Recovery) {
        let (Some(mut sources), Some(mut nat)) = (self.sources.join(), self.nat.join()) else {
            return;
        };
        let mut count = |life: Life, original: &FlowKey, reply: &FlowKey| {
            if life.own.contains(Own::COUNTED) {
                // As many sources were counted before: there is room.
                let raised = self
                    .sources
                    .raise(&mut sources, source_id(original), u64::MAX);
                recovery.torn += usize::from(raised.is_err());
            }
            if life.own.contains(Own::MAPPED)
                && let Some((_, outer)) = mappings_of(&life, original, reply)[0]
            {
                self.nat.permit(&mut nat, outer, unmapped(reply.source));
            }
        };
        for connection in self.each::<Session4>() {
            if let Some((record, original, reply)) = self.look::<Session4>(connection) {
                count(record.life(), &original, &reply);
            }
        }
        for connection in self.each::<Session6>() {
            if let Some((record, original, reply)) = self.look::<Session6>(connection) {
                count(record.life(), &original, &reply);
            }
        }
    }

    /// The connections of a family.
    pub(crate) fn each<K: Table>(&self) -> impl Iterator<Item = SlotRef> {
        let flows = K::flows(self);
        (0..flows.slots()).filter_map(|slot| flows.connection_at(slot))
    }

    /// A connection's words and keys.
    pub(crate) fn look<K: Table>(
        &self,
        connection: SlotRef,
    ) -> Option<(Record<'_>, FlowKey, FlowKey)> {
        let flows = K::flows(self);
        let record = Record::new(flows.pair(connection)?)?;
        let original = flows.original_key(connection)?.to_flow();
        let reply = flows.reply_key(connection)?.to_flow();
        Some((record, original, reply))
    }
}

/// The mapping that an expectation uses, as (inner, outer).
fn mapping_of(key: &FlowKey, expectation: &Expectation) -> Option<(Endpoint, Endpoint)> {
    let inner = expectation.mapping(key.protocol)?;
    let outer = Endpoint {
        address: unmapped(key.destination),
        port: key.destination_port,
        ..inner
    };
    Some((inner, outer))
}

/// The mappings that a connection uses, as (inner, outer): of its source, of its destination.
pub(super) fn mappings_of(
    life: &Life,
    original: &FlowKey,
    reply: &FlowKey,
) -> [Option<(Endpoint, Endpoint)>; 2] {
    let Some(space) = PortSpace::of(original.protocol) else {
        return [None; 2];
    };
    let endpoint = |address, port| Endpoint {
        address: unmapped(address),
        port,
        space,
    };
    let source = life.own.contains(Own::MAPPED).then(|| {
        (
            endpoint(original.source, original.source_port),
            endpoint(reply.destination, port_of_destination(reply)),
        )
    });
    let destination = life.own.contains(Own::MAPPED_DESTINATION).then(|| {
        (
            endpoint(reply.source, reply.source_port),
            endpoint(original.destination, port_of_destination(original)),
        )
    });
    [source, destination]
}

#[cfg(test)]
mod kill;
#[cfg(test)]
pub(super) mod tests;
