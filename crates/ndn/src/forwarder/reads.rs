//! Interests that wait until the content store has read a packet from its slower place, e.g. a disk.

use alloc::vec::Vec;

use wire::ndn::lp::LpHeader;
use wire::ndn::name::Name;
use wire::ndn::{Interest, NameRef};
use wire::{DropReason, Instant};

use super::interest::Arrival;
use super::{Forwarder, Outgoing, Sink};
use crate::face::FaceId;
use crate::pit::PitId;
use crate::store::ContentStore;
use crate::strategy::NameScope;

impl<C: ContentStore> Forwarder<C> {
    /// True if the Interest waits for the content store to read its packet, and is not to be forwarded for now. A read
    /// is started if the store was asked just now.
    pub(super) fn waits_for_store(
        &mut self,
        arrival: &Arrival<'_>,
        id: PitId,
        was_asked: bool,
    ) -> bool {
        if !was_asked {
            return self.pit.get(id).is_some_and(|entry| entry.is_reading);
        }
        let (stem, _) = arrival.interest.name.split_implicit_digest();
        let is_reading = self.store.start_read(stem);
        if is_reading && let Some(entry) = self.pit.get_mut(id) {
            entry.is_reading = true;
            self.counters.store_reads += 1;
            // It is counted when the read ends.
            self.counters.store_misses -= 1;
        }
        is_reading
    }

    /// Goes on with the Interests that waited for the content store and whose packets it has read, or has not found: call
    /// it when reads may have ended.
    pub fn handle_reads(&mut self, now: Instant, sink: &mut impl Sink) {
        let mut ended: Vec<Name> = Vec::new();
        self.store
            .poll_reads(now, |name| ended.push(Name::from(name)));
        for name in ended {
            let whole = self.partition.hasher().hash(name.as_ref());
            // One entry for each CanBePrefix, MustBeFresh and digest.
            while let Some(id) = self.pit.find_reading(whole, name.as_ref()) {
                self.read_ended(now, id, sink);
            }
        }
    }

    fn read_ended(&mut self, now: Instant, id: PitId, sink: &mut impl Sink) {
        let Some(entry) = self.pit.get_mut(id) else {
            return;
        };
        entry.is_reading = false;
        let (packet, whole) = (entry.packet().to_vec(), entry.hash());
        let Ok(interest) = Interest::parse(&packet) else {
            return;
        };
        let ahead = self.store.look_ahead(interest.name);
        let data = self
            .store
            .find(&interest, &ahead, now, |packet| packet.to_vec());
        match data {
            Some(data) => {
                self.counters.store_hits += 1;
                self.answer_downstreams(now, id, &interest, &data, sink);
            }
            None => {
                self.counters.store_misses += 1;
                if let Err(reason) = self.forward_after_read(now, id, whole, &interest, sink) {
                    self.counters.drop(reason);
                }
            }
        }
    }

    /// Sends a cached packet to all who wait for it.
    fn answer_downstreams(
        &mut self,
        now: Instant,
        id: PitId,
        interest: &Interest<'_>,
        data: &[u8],
        sink: &mut impl Sink,
    ) {
        let scope = NameScope::of(interest.name);
        for record in self.pit.in_records(id) {
            let to = self.faces.get_mut(record.face).filter(|face| face.is_up);
            let Some(to) = to.filter(|_| record.expiry > now) else {
                continue;
            };
            if scope == NameScope::Localhost && !to.is_local() {
                continue;
            }
            to.counters.out_data += 1;
            to.last_used = now;
            self.counters.out_data += 1;
            let source = u64::from(FaceId::CONTENT_STORE.0);
            let header = LpHeader {
                pit_token: record.token.get(),
                incoming_face: to.config.local_fields.then_some(source),
                ..LpHeader::default()
            };
            sink.send(Outgoing {
                face: record.face,
                header,
                packet: data,
            });
        }
        self.pit.clear_in(id);
        if let Some(entry) = self.pit.get_mut(id) {
            entry.is_satisfied = true;
        }
        self.finalize(id, now);
    }

    /// Forwards an Interest whose packet was not there, as one from the downstream that came last.
    fn forward_after_read(
        &mut self,
        now: Instant,
        id: PitId,
        whole: u64,
        interest: &Interest<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), DropReason> {
        let Some(record) = self.pit.in_records(id).next().copied() else {
            return Ok(());
        };
        let stem: NameRef<'_> = interest.name.split_implicit_digest().0;
        let arrival = Arrival {
            now,
            ingress: record.face,
            header: LpHeader {
                non_discovery: record.non_discovery,
                ..LpHeader::default()
            },
            interest: *interest,
            whole,
            nonce: record.nonce,
            hop_limit: interest.hop_limit.map(|limit| limit.saturating_sub(1)),
            scope: NameScope::of(stem),
            strip_hint: self.is_in_region(interest),
        };
        let prefixes = self.prefixes_of_interest(interest);
        self.ask_strategy(&arrival, id, &prefixes, sink)
    }
}
