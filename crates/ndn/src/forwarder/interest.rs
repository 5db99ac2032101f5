//! The incoming Interest pipeline (NFD developer's guide 4.2).

use core::time::Duration;

use wire::ndn::lp::{LpHeader, NackReason};
use wire::ndn::{Interest, NameRef};
use wire::{DropReason, Instant};

use super::input::Hashes;
use super::{Forwarder, Outgoing, Sink};
use crate::face::{FaceId, LinkType};
use crate::hash::{PrefixHashes, with_nonce};
use crate::pit::{InRecord, PitId, PitToken};
use crate::store::ContentStore;
use crate::strategy::{Context, NameScope, Strategy};

/// What was found out about an Interest on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival<'a> {
    pub(super) now: Instant,
    pub(super) ingress: FaceId,
    pub(super) header: LpHeader<'a>,
    pub(super) interest: Interest<'a>,
    /// The hash of the name without implicit digest.
    pub(super) whole: u64,
    pub(super) nonce: [u8; 4],
    /// After this hop.
    pub(super) hop_limit: Option<u8>,
    pub(super) scope: NameScope,
    /// The forwarding hint led here: strip it.
    pub(super) strip_hint: bool,
}

impl<C: ContentStore> Forwarder<C> {
    pub(super) fn interest(
        &mut self,
        now: Instant,
        ingress: FaceId,
        header: &LpHeader<'_>,
        interest: &Interest<'_>,
        hashes: Hashes<C::Ahead>,
        sink: &mut impl Sink,
    ) -> Result<(), DropReason> {
        self.counters.in_interests += 1;
        let face = self.faces.get_mut(ingress).ok_or(DropReason::NdnFaceDown)?;
        face.counters.in_interests += 1;
        face.last_used = now;
        let (is_local, link_type) = (face.is_local(), face.config.link_type);
        let local_fields = face.config.local_fields;
        let hop_limit = match interest.hop_limit {
            Some(0) => return Err(DropReason::NdnHopLimit),
            limit => limit.map(|limit| limit - 1),
        };
        let scope = NameScope::of(interest.name);
        if scope == NameScope::Localhost && !is_local {
            return Err(DropReason::NdnScope);
        }
        let arrival = Arrival {
            now,
            ingress,
            header: *header,
            interest: *interest,
            whole: hashes.whole,
            nonce: interest.nonce.unwrap_or_else(|| self.rng.nonce()),
            hop_limit,
            scope,
            strip_hint: self.is_in_region(interest),
        };
        if self.is_dead(&arrival) {
            return self.looped(&arrival, link_type, sink);
        }
        let known = self.pit.find(interest, arrival.whole);
        if known.is_some_and(|id| self.is_duplicate(id, &arrival, link_type)) {
            return self.looped(&arrival, link_type, sink);
        }
        let pending = known.filter(|&id| self.pit.in_records(id).next().is_some());
        let id = match pending {
            Some(id) => id,
            None => match self.answer_or_insert(&arrival, known, &hashes.stored, sink)? {
                Some(id) => id,
                None => return Ok(()),
            },
        };
        self.wait(&arrival, id)?;
        let chosen = header.next_hop_face.filter(|_| local_fields);
        if let Some(face) = chosen.and_then(|face| u32::try_from(face).ok()) {
            return self.send_interest(&arrival, id, FaceId(face), false, false, sink);
        }
        if self.waits_for_store(&arrival, id, pending.is_none()) {
            return Ok(());
        }
        let prefixes = hashes.prefixes;
        let prefixes = prefixes.unwrap_or_else(|| self.prefixes_of_interest(interest));
        self.ask_strategy(&arrival, id, &prefixes, sink)
    }

    /// Answers from the content store, or returns the entry in which the Interest is to wait.
    fn answer_or_insert(
        &mut self,
        arrival: &Arrival<'_>,
        known: Option<PitId>,
        stored: &C::Ahead,
        sink: &mut impl Sink,
    ) -> Result<Option<PitId>, DropReason> {
        let interest = &arrival.interest;
        // Where Data may come in on another worker at the same time, who waits must be known before the
        // store is searched: see `PendingFilter`.
        let insert_first = interest.can_be_prefix && self.partition.workers() > 1;
        let mut id = known;
        if insert_first && id.is_none() {
            id = Some(self.insert_pending(arrival)?);
        }
        if self.answer_from_store(arrival, stored, sink) {
            if insert_first
                && known.is_none()
                && let Some(id) = id
            {
                self.pit.remove(id, self.partition.pending());
            }
            return Ok(None);
        }
        match id {
            Some(id) => Ok(Some(id)),
            None => self.insert_pending(arrival).map(Some),
        }
    }

    fn insert_pending(&mut self, arrival: &Arrival<'_>) -> Result<PitId, DropReason> {
        let pending = self.partition.pending();
        self.pit
            .insert(&arrival.interest, arrival.whole, pending)
            .map_err(|_| DropReason::NdnPitFull)
    }

    fn answer_from_store(
        &mut self,
        arrival: &Arrival<'_>,
        stored: &C::Ahead,
        sink: &mut impl Sink,
    ) -> bool {
        let Some(face) = self.faces.get_mut(arrival.ingress) else {
            return false;
        };
        let source = u64::from(FaceId::CONTENT_STORE.0);
        let header = LpHeader {
            pit_token: arrival.header.pit_token,
            incoming_face: face.config.local_fields.then_some(source),
            ..LpHeader::default()
        };
        let send = |packet: &[u8]| {
            sink.send(Outgoing {
                face: arrival.ingress,
                header,
                packet,
            });
        };
        let found = self
            .store
            .find(&arrival.interest, stored, arrival.now, send);
        if found.is_some() {
            face.counters.out_data += 1;
            self.counters.out_data += 1;
            self.counters.store_hits += 1;
        } else {
            self.counters.store_misses += 1;
        }
        found.is_some()
    }

    /// Notes the downstream and when the entry ends.
    fn wait(&mut self, arrival: &Arrival<'_>, id: PitId) -> Result<(), DropReason> {
        let lifetime = Duration::from_millis(arrival.interest.lifetime_ms);
        let expiry = arrival.now + lifetime.min(self.config.lifetime_max);
        let record = InRecord {
            face: arrival.ingress,
            nonce: arrival.nonce,
            last_renewed: arrival.now,
            expiry,
            token: PitToken::new(arrival.header.pit_token),
            non_discovery: arrival.header.non_discovery,
        };
        if let Some(before) = self.pit.in_record(id, arrival.ingress) {
            self.bury_replaced(arrival, before.nonce);
        }
        let latest = self.pit.in_records(id).map(|record| record.expiry).max();
        let ends = latest.map_or(expiry, |latest| latest.max(expiry));
        if self.pit.put_in(id, record).is_err() || !self.set_timer(id, ends) {
            if self.pit.in_records(id).next().is_none() {
                self.pit.remove(id, self.partition.pending());
            }
            return Err(DropReason::NdnPitFull);
        }
        if let Some(entry) = self.pit.get_mut(id) {
            entry.is_satisfied = false;
        }
        Ok(())
    }

    /// Remembers a nonce that another takes the place of in a record, so that its Interest is still known when
    /// it comes back. (NFD forgets it: there an Interest can circle while others for its name are pending.)
    pub(super) fn bury_replaced(&mut self, arrival: &Arrival<'_>, nonce: [u8; 4]) {
        if nonce != arrival.nonce {
            self.dead.add(with_nonce(arrival.whole, nonce), arrival.now);
        }
    }

    /// Lets the strategy of the name decide, and does what it says.
    pub(super) fn ask_strategy(
        &mut self,
        arrival: &Arrival<'_>,
        id: PitId,
        hashes: &PrefixHashes,
        sink: &mut impl Sink,
    ) -> Result<(), DropReason> {
        let (stem, _) = arrival.interest.name.split_implicit_digest();
        let hint = &arrival.interest.forwarding_hint;
        let mut route = None;
        if hint.is_empty() || arrival.strip_hint {
            route = self.fib.lookup(stem, hashes);
        } else {
            // The first delegation with a route decides.
            let hasher = self.partition.hasher();
            for name in hint.names() {
                let hashes = hasher.prefixes(name, self.fib.depths());
                route = self.fib.lookup(name, &hashes).filter(|found| found.0 > 0);
                if route.is_some() {
                    break;
                }
            }
            if route.is_none() {
                let hashes = hasher.prefixes(NameRef::EMPTY, self.fib.depths());
                route = self.fib.lookup(NameRef::EMPTY, &hashes);
            }
        }
        let (key, next_hops) = match route {
            Some((_, key, hops)) => (key, hops.as_slice()),
            None => (0, &[][..]),
        };
        if let Some(entry) = self.pit.get_mut(id) {
            entry.measure_key = key;
        }
        let depth = arrival.interest.name.len();
        let strategy = self.choice.lookup(stem.value(), hashes, depth);
        let mut actions = core::mem::take(&mut self.scratch.actions);
        actions.clear();
        let mut cx = Context {
            now: arrival.now,
            faces: &self.faces,
            pit: &mut self.pit,
            entry: id,
            scope: arrival.scope,
            next_hops,
            non_discovery: arrival.header.non_discovery,
            measurements: &mut self.measurements,
            rng: &mut self.rng,
            actions: &mut actions,
        };
        strategy.interest(&mut cx, arrival.ingress);
        let result = self.act_on_interest(arrival, id, &actions, sink);
        self.scratch.actions = actions;
        result
    }

    /// The Interest loop pipeline: refuses a duplicate on a point-to-point face, else drops it.
    fn looped(
        &mut self,
        arrival: &Arrival<'_>,
        link_type: LinkType,
        sink: &mut impl Sink,
    ) -> Result<(), DropReason> {
        if link_type == LinkType::PointToPoint {
            self.send_nack(
                arrival.ingress,
                NackReason::Duplicate,
                arrival.header.pit_token,
                arrival.interest.bytes,
                sink,
            );
        }
        Err(DropReason::NdnLoop)
    }

    /// True if the nonce was seen in an Interest that is no longer pending.
    fn is_dead(&self, arrival: &Arrival<'_>) -> bool {
        if self.dead.is_empty() || arrival.interest.nonce.is_none() {
            return false;
        }
        self.dead
            .has(with_nonce(arrival.whole, arrival.nonce), arrival.now)
    }

    /// True if the nonce is that of a pending Interest; the same nonce from the same point-to-point face is
    /// a retransmission.
    fn is_duplicate(&self, id: PitId, arrival: &Arrival<'_>, link_type: LinkType) -> bool {
        let own = self.pit.in_record(id, arrival.ingress);
        if link_type == LinkType::PointToPoint
            && own.is_some_and(|record| record.nonce == arrival.nonce)
        {
            return false;
        }
        let mut downstreams = self.pit.in_records(id);
        let mut upstreams = self.pit.out_records(id);
        downstreams.any(|record| record.nonce == arrival.nonce)
            || upstreams.any(|record| record.nonce == arrival.nonce)
    }

    /// True if a delegation of the forwarding hint is a prefix of a region that this node is in.
    pub(super) fn is_in_region(&self, interest: &Interest<'_>) -> bool {
        !interest.forwarding_hint.is_empty()
            && interest.forwarding_hint.names().any(|delegation| {
                let mut regions = self.config.regions.iter();
                regions.any(|region| delegation.is_prefix_of(&region.as_ref()))
            })
    }
}
