//! The incoming Data pipeline (NFD developer's guide 4.3).

use alloc::vec::Vec;

use wire::ndn::Data;
use wire::ndn::lp::LpHeader;
use wire::{DropReason, Instant};

use super::{Forwarder, Handoff, Learned, Outgoing, Sink, UnsolicitedPolicy};
use crate::dead_nonce;
use crate::face::{FaceId, LinkType};
use crate::hash::{DEPTH_MAX, PrefixHashes, with_nonce};
use crate::pit::PitId;
use crate::store::ContentStore;
use crate::strategy::{Action, Context, NameScope, Strategy};

/// Data on its way.
#[derive(Clone, Copy, Debug)]
struct Arrival<'a> {
    now: Instant,
    ingress: FaceId,
    header: LpHeader<'a>,
    data: Data<'a>,
    /// The hash of the name.
    whole: u64,
    scope: NameScope,
}

impl<C: ContentStore> Forwarder<C> {
    pub(super) fn data(
        &mut self,
        now: Instant,
        ingress: FaceId,
        header: &LpHeader<'_>,
        data: &Data<'_>,
        whole: u64,
        sink: &mut impl Sink,
    ) -> Result<(), DropReason> {
        self.counters.in_data += 1;
        let face = self.faces.get_mut(ingress).ok_or(DropReason::NdnFaceDown)?;
        face.counters.in_data += 1;
        face.last_used = now;
        let is_local = face.is_local();
        let scope = NameScope::of(data.name);
        if scope == NameScope::Localhost && !is_local {
            return Err(DropReason::NdnScope);
        }
        // Local fields of a face that may not set them mean nothing.
        let no_cache = header.no_cache && face.config.local_fields;
        let arrival = Arrival {
            now,
            ingress,
            header: LpHeader {
                no_cache,
                ..*header
            },
            data: *data,
            whole,
            scope,
        };
        let hashes = self.prefixes_of_data(data);
        let mut others = self.collect_matches(&arrival, &hashes);
        let is_solicited = !self.scratch.matched.is_empty();
        if is_solicited {
            self.cache(&arrival);
            if self.partition.workers() > 1 {
                self.partition.pending().settle();
                others = self.other_owners(&arrival);
            }
            self.satisfy(&arrival, &hashes, sink);
        }
        self.hand_off(&arrival, others, is_solicited, sink);
        if is_solicited || others != 0 {
            return Ok(());
        }
        let admit = match self.config.unsolicited {
            UnsolicitedPolicy::DropAll => false,
            UnsolicitedPolicy::AdmitLocal => is_local,
            UnsolicitedPolicy::AdmitNetwork => !is_local,
            UnsolicitedPolicy::AdmitAll => true,
        };
        if admit {
            self.cache(&arrival);
            return Ok(());
        }
        Err(DropReason::NdnUnsolicited)
    }

    /// Takes Data that another worker handed over because Interests for prefixes of its name wait here.
    ///
    /// # Errors
    /// Why it was dropped; it is counted already. That nobody waits any more is no drop.
    pub fn input_handoff(
        &mut self,
        now: Instant,
        handoff: &Handoff<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), DropReason> {
        let parsed = Data::parse(handoff.packet);
        let data = parsed.map_err(|error| error.drop_reason())?;
        let arrival = Arrival {
            now,
            ingress: handoff.ingress,
            header: handoff.header,
            data,
            whole: self.partition.hasher().hash(data.name),
            scope: NameScope::of(data.name),
        };
        let hashes = self.prefixes_of_data(&data);
        self.collect_matches(&arrival, &hashes);
        if self.scratch.matched.is_empty() {
            return Ok(());
        }
        if !handoff.is_solicited {
            // Whoever waits on other workers and searched the store before this moment is told now.
            self.cache(&arrival);
            self.partition.pending().settle();
            let mut others = self.other_owners(&arrival);
            let exact = self.partition.owner(arrival.whole);
            if exact != self.worker {
                others |= 1 << exact;
            }
            self.hand_off(&arrival, others, true, sink);
        }
        self.satisfy(&arrival, &hashes, sink);
        Ok(())
    }

    /// Hashes the prefixes of the name that strategy choice and pending CanBePrefix Interests look at now.
    fn prefixes_of_data(&self, data: &Data<'_>) -> PrefixHashes {
        let depths = self.choice.depths().and(self.partition.pending().depths());
        self.partition.hasher().prefixes(data.name, depths)
    }

    /// Collects the entries of this worker that the Data satisfies; returns the other workers that may have
    /// some, a bit each.
    fn collect_matches(&mut self, arrival: &Arrival<'_>, hashes: &PrefixHashes) -> u64 {
        let name = arrival.data.name;
        let mut cached_digest = None;
        let mut digest = || *cached_digest.get_or_insert_with(|| arrival.data.implicit_digest());
        let matched = &mut self.scratch.matched;
        matched.clear();
        self.pit
            .matches_at(arrival.whole, name.value(), &name, &mut digest, matched);
        let pending = self.partition.pending();
        let mut others = 0;
        for (depth, hash, end) in hashes.longest_first(DEPTH_MAX) {
            if depth >= name.len() || depth == 0 || !pending.may_have(hash) {
                continue;
            }
            let owner = self.partition.owner(hash);
            if owner != self.worker {
                others |= 1 << owner;
                continue;
            }
            let prefix = name.value().get(..end).unwrap_or_default();
            self.pit
                .matches_at(hash, prefix, &name, &mut digest, matched);
        }
        others
    }

    /// Returns the other workers that may have pending Interests for prefixes of the name, a bit each.
    fn other_owners(&self, arrival: &Arrival<'_>) -> u64 {
        let pending = self.partition.pending();
        let hasher = self.partition.hasher();
        let hashes = hasher.prefixes(arrival.data.name, pending.depths());
        let mut others = 0;
        for (depth, hash, _) in hashes.longest_first(DEPTH_MAX) {
            let owner = self.partition.owner(hash);
            let is_prefix = depth > 0 && depth < arrival.data.name.len();
            if is_prefix && owner != self.worker && pending.may_have(hash) {
                others |= 1 << owner;
            }
        }
        others
    }

    fn hand_off(
        &mut self,
        arrival: &Arrival<'_>,
        mut workers: u64,
        is_solicited: bool,
        sink: &mut impl Sink,
    ) {
        let handoff = Handoff {
            ingress: arrival.ingress,
            header: arrival.header,
            packet: arrival.data.bytes,
            is_solicited,
        };
        while workers != 0 {
            let worker = workers.trailing_zeros() as usize;
            workers &= workers - 1;
            self.counters.handoffs += 1;
            sink.hand_off(worker, handoff);
        }
    }

    fn cache(&mut self, arrival: &Arrival<'_>) {
        if !arrival.header.no_cache {
            self.store.insert(&arrival.data, arrival.now);
        }
    }

    /// Satisfies the entries that were collected, then sends the Data to all who waited, once each.
    fn satisfy(&mut self, arrival: &Arrival<'_>, hashes: &PrefixHashes, sink: &mut impl Sink) {
        let matched = core::mem::take(&mut self.scratch.matched);
        let mut downstreams = core::mem::take(&mut self.scratch.downstreams);
        downstreams.clear();
        for &id in &matched {
            self.satisfy_entry(arrival, hashes, id, &mut downstreams, sink);
        }
        for (face, token) in &downstreams {
            self.send_data(arrival, *face, token.get(), sink);
        }
        self.scratch.matched = matched;
        self.scratch.downstreams = downstreams;
    }

    /// The outgoing Data pipeline.
    fn send_data(
        &mut self,
        arrival: &Arrival<'_>,
        face: FaceId,
        pit_token: Option<&[u8]>,
        sink: &mut impl Sink,
    ) {
        let Some(to) = self.faces.get_mut(face).filter(|face| face.is_up) else {
            return;
        };
        if arrival.scope == NameScope::Localhost && !to.is_local() {
            return;
        }
        to.counters.out_data += 1;
        to.last_used = arrival.now;
        self.counters.out_data += 1;
        let ingress = u64::from(arrival.ingress.0);
        let header = LpHeader {
            pit_token,
            incoming_face: to.config.local_fields.then_some(ingress),
            congestion_mark: arrival.header.congestion_mark,
            prefix_announcement: arrival
                .header
                .prefix_announcement
                .filter(|_| !to.is_local()),
            ..LpHeader::default()
        };
        sink.send(Outgoing {
            face,
            header,
            packet: arrival.data.bytes,
        });
    }

    fn satisfy_entry(
        &mut self,
        arrival: &Arrival<'_>,
        hashes: &PrefixHashes,
        id: PitId,
        downstreams: &mut Vec<(FaceId, crate::pit::PitToken)>,
        sink: &mut impl Sink,
    ) {
        let mut actions = core::mem::take(&mut self.scratch.actions);
        actions.clear();
        let depth = self.pit.get(id).map_or(0, |entry| entry.name_len());
        let name = arrival.data.name.value();
        let strategy = self.choice.lookup(name, hashes, depth);
        let mut cx = Context {
            now: arrival.now,
            faces: &self.faces,
            pit: &mut self.pit,
            entry: id,
            scope: arrival.scope,
            next_hops: &[],
            non_discovery: false,
            measurements: &mut self.measurements,
            rng: &mut self.rng,
            actions: &mut actions,
        };
        strategy.data(&mut cx, arrival.ingress);
        for record in self.pit.in_records(id) {
            let goes_back = record.face == arrival.ingress && !self.is_ad_hoc(record.face);
            let is_known = downstreams.iter().any(|(face, _)| *face == record.face);
            if record.expiry > arrival.now && !goes_back && !is_known {
                downstreams.push((record.face, record.token));
            }
        }
        self.pit.clear_in(id);
        let was_satisfied = self.pit.get(id).is_some_and(|entry| entry.is_satisfied);
        if let Some(entry) = self.pit.get_mut(id) {
            entry.is_satisfied = true;
            entry.freshness_ms = arrival.data.meta.freshness_ms;
        }
        if !was_satisfied {
            self.counters.satisfied += 1;
        }
        self.bury_nonce(id, arrival);
        let mut linger = None;
        for action in &actions {
            match *action {
                Action::Linger(time) => linger = Some(time),
                Action::Learn(face) => sink.learned(Learned {
                    face,
                    announcement: arrival.header.prefix_announcement,
                    packet: arrival.data.bytes,
                }),
                _ => {}
            }
        }
        self.scratch.actions = actions;
        match linger {
            Some(time) => {
                self.set_timer(id, arrival.now + time);
            }
            None => self.finalize(id, arrival.now),
        }
    }

    /// Remembers the nonce that the answering upstream got, and forgets the upstream.
    fn bury_nonce(&mut self, id: PitId, arrival: &Arrival<'_>) {
        let Some(record) = self.pit.take_out(id, arrival.ingress) else {
            return;
        };
        let Some(entry) = self.pit.get(id) else {
            return;
        };
        if needs_dead_nonce(entry.must_be_fresh(), arrival.data.meta.freshness_ms) {
            let hash = with_nonce(entry.hash(), record.nonce);
            self.dead.add(hash, arrival.now);
        }
    }

    fn is_ad_hoc(&self, face: FaceId) -> bool {
        let face = self.faces.get(face);
        face.is_some_and(|face| face.config.link_type == LinkType::AdHoc)
    }
}

/// True if an Interest that loops after it was satisfied would not be stopped by the content store.
pub(super) fn needs_dead_nonce(must_be_fresh: bool, freshness_ms: u64) -> bool {
    must_be_fresh && u128::from(freshness_ms) < dead_nonce::LIFETIME.as_millis()
}
