//! Tables that several processes use at the same time (LF-2).
//!
//! Beside the tables' memory they share what their workers agree on: the epochs of reclamation of each table, and how
//! many outer addresses have numbers. A process joins by places of its own. When one dies, what it had done stays as it
//! is, its places are freed by another ([`Shared::evict`]), and a slot that it was just filling is lost.

use core::ops::Range;
use core::sync::atomic::AtomicU32;

use tables::flow_map::FlowMap;
use tables::memory::{Memory, Source};
use tables::quiescent::{Domain, EpochWord};
use tables::signature::Keyed;

use super::config::TrackPolicy;
use super::proxy::Handshakes;
use super::recovery::SharedMemory;
use super::shared::Shared;
use crate::alg::expectation::Expectations;
use crate::nat::mapping::{Nat, NatDomains};
use crate::track::counted::Counted;
use crate::track::timeout::Limits;
use wire::Instant;

/// The tables that have epochs, by the names of these.
const EPOCHS: [&str; 9] = [
    "ipv4 epochs",
    "ipv6 epochs",
    "sources epochs",
    "nat inner epochs",
    "nat outer epochs",
    "nat permits epochs",
    "nat addresses epochs",
    "expected epochs",
    "expecting epochs",
];

/// What processes agree on that use the tables at the same time.
#[derive(Debug)]
pub struct Coordination {
    epochs: [Memory<EpochWord>; EPOCHS.len()],
    next_address: Memory<AtomicU32>,
}

impl Coordination {
    /// Takes the memory from a source, for as many participants, workers of all processes.
    ///
    /// # Errors
    /// As [`Source::take`].
    pub fn from_source<S: Source>(source: &mut S, participants: usize) -> Result<Self, S::Error> {
        let [a, b, c, d, e, f, g, h, i] = EPOCHS;
        let mut take = |name| source.take(name, participants + 1);
        Ok(Self {
            epochs: [
                take(a)?,
                take(b)?,
                take(c)?,
                take(d)?,
                take(e)?,
                take(f)?,
                take(g)?,
                take(h)?,
                take(i)?,
            ],
            next_address: source.take("nat next address", 1)?,
        })
    }

    /// Bytes that this takes of a segment.
    pub fn segment_bytes(participants: usize) -> usize {
        let epochs = ((participants + 1) * size_of::<EpochWord>()).next_multiple_of(4096);
        EPOCHS.len() * epochs + 4096
    }
}

impl Shared {
    /// Uses tables beside other processes, by `places` among all participants, which nobody living has: those that a
    /// dead process left there are freed. The tables' `key` is the same for all; so is the clock of `now`.
    pub fn beside_others(
        policy: TrackPolicy,
        key: [u64; 4],
        memory: SharedMemory,
        coordination: Coordination,
        places: Range<usize>,
        now: Instant,
    ) -> Self {
        let hash = Keyed::new(key);
        let domains = coordination.epochs.map(Domain::with_memory);
        let own = domains.each_ref().map(|all| {
            let own = all.section(places.clone());
            own.evict_section();
            own
        });
        let [
            flows4,
            flows6,
            sources,
            inner,
            outer,
            permits,
            addresses,
            expected,
            expecting,
        ] = own;
        let domains_of_nat = NatDomains {
            inner,
            outer,
            permits,
            addresses,
        };
        let handshakes = Handshakes::new(key);
        // Clients that another process sent cookies to may be about to answer.
        handshakes.note(now);
        Self {
            flows4: FlowMap::with_memory(memory.flows4, hash, flows4),
            flows6: FlowMap::with_memory(memory.flows6, hash, flows6),
            nat: Nat::beside_others(
                memory.nat,
                policy.nat,
                hash,
                domains_of_nat,
                coordination.next_address,
            ),
            sources: Counted::with_memory(memory.sources, hash, sources),
            expectations: Expectations::with_memory(
                memory.expectations,
                hash,
                [expected, expecting],
            ),
            policy,
            limits: Limits::new(&policy.timeouts),
            hash,
            handshakes,
            domains: domains.into(),
        }
    }

    /// Frees the places of a process that is dead: what was removed is waited for no longer on its behalf.
    pub fn evict(&self, places: Range<usize>) {
        for domain in &self.domains {
            domain.section(places.clone()).evict_section();
        }
    }
}

#[cfg(test)]
mod tests;
