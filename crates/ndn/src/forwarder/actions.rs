//! Does what strategies decide.

use core::time::Duration;

use wire::ndn::lp::{LpHeader, NackReason};
use wire::{DropReason, Instant};

use super::interest::Arrival;
use super::{Forwarder, Outgoing, Sink};
use crate::face::FaceId;
use crate::pit::{OutRecord, PitId};
use crate::store::ContentStore;
use crate::strategy::Action;

impl<C: ContentStore> Forwarder<C> {
    /// Does what a strategy decided about an Interest. If it decided that nothing is sent, the Interest was
    /// suppressed, or has no route.
    pub(super) fn act_on_interest(
        &mut self,
        arrival: &Arrival<'_>,
        id: PitId,
        actions: &[Action],
        sink: &mut impl Sink,
    ) -> Result<(), DropReason> {
        let mut result = Err(DropReason::NdnSuppressed);
        let mut has_sent = false;
        for action in actions {
            match *action {
                Action::Send {
                    face,
                    is_probe,
                    non_discovery,
                } => {
                    let sent = self.send_interest(arrival, id, face, is_probe, non_discovery, sink);
                    has_sent |= sent.is_ok();
                    result = sent;
                }
                Action::Nack(face, reason) => {
                    self.nack_downstream(id, face, reason, sink);
                    result = Err(DropReason::NdnNoRoute);
                }
                Action::NackAll(reason) => {
                    self.nack_downstreams(id, reason, sink);
                    result = Err(DropReason::NdnNoRoute);
                }
                Action::Reject => self.expire(id),
                Action::Linger(_) | Action::Learn(_) | Action::Unlearn(_) => {}
            }
        }
        if has_sent {
            return Ok(());
        }
        if result == Err(DropReason::NdnSuppressed)
            && !self
                .pit
                .out_records(id)
                .any(|record| record.is_pending(arrival.now))
        {
            return Err(DropReason::NdnNoRoute);
        }
        result
    }

    /// The outgoing Interest pipeline.
    pub(super) fn send_interest(
        &mut self,
        arrival: &Arrival<'_>,
        id: PitId,
        face: FaceId,
        is_probe: bool,
        non_discovery: bool,
        sink: &mut impl Sink,
    ) -> Result<(), DropReason> {
        let from = self.faces.get(arrival.ingress);
        let to = self.faces.get(face).filter(|face| face.is_up);
        let to = to.ok_or(DropReason::NdnFaceDown)?;
        if from.is_some_and(|from| arrival.scope.forbids(from, to)) {
            return Err(DropReason::NdnScope);
        }
        if arrival.hop_limit == Some(0) && !to.is_local() {
            return Err(DropReason::NdnHopLimit);
        }
        let local_fields = to.config.local_fields;
        let nonce = if is_probe {
            self.rng.nonce()
        } else {
            arrival.nonce
        };
        let lifetime = Duration::from_millis(arrival.interest.lifetime_ms);
        let record = OutRecord {
            face,
            nonce,
            last_renewed: arrival.now,
            expiry: arrival.now + lifetime.min(self.config.lifetime_max),
            nack: None,
            non_discovery,
            suppression: Duration::ZERO,
        };
        if let Some(before) = self.pit.out_record(id, face) {
            self.bury_replaced(arrival, before.nonce);
        }
        self.pit
            .put_out(id, record)
            .map_err(|_| DropReason::NdnPitFull)?;
        let out = &mut self.scratch.packet;
        let length = arrival
            .interest
            .encode_forwarded(nonce, arrival.hop_limit, arrival.strip_hint, out)
            .map_err(|_| DropReason::NdnTooLong)?;
        let ingress = u64::from(arrival.ingress.0);
        let header = LpHeader {
            incoming_face: local_fields.then_some(ingress),
            congestion_mark: arrival.header.congestion_mark,
            non_discovery,
            ..LpHeader::default()
        };
        let packet = out.get(..length).unwrap_or_default();
        sink.send(Outgoing {
            face,
            header,
            packet,
        });
        self.counters.out_interests += 1;
        if let Some(face) = self.faces.get_mut(face) {
            face.counters.out_interests += 1;
            face.last_used = arrival.now;
        }
        Ok(())
    }

    /// Lets an entry end at the next timeout, at once unless an Interest renews it.
    pub(super) fn expire(&mut self, id: PitId) {
        self.set_timer(id, Instant::ZERO);
    }

    /// Refuses the Interest of one downstream.
    pub(super) fn nack_downstream(
        &mut self,
        id: PitId,
        face: FaceId,
        reason: NackReason,
        sink: &mut impl Sink,
    ) {
        let Some(record) = self.pit.take_in(id, face) else {
            return;
        };
        let mut packet = core::mem::take(&mut self.scratch.packet);
        let length = self.pit.get(id).and_then(|entry| {
            let interest = wire::ndn::Interest::parse(entry.packet()).ok()?;
            interest
                .encode_forwarded(record.nonce, None, false, &mut packet)
                .ok()
        });
        if let Some(packet) = length.and_then(|length| packet.get(..length)) {
            self.send_nack(face, reason, record.token.get(), packet, sink);
        }
        self.scratch.packet = packet;
    }

    /// Refuses the Interest of all downstreams and gives it up.
    pub(super) fn nack_downstreams(&mut self, id: PitId, reason: NackReason, sink: &mut impl Sink) {
        while let Some(face) = self.pit.any_downstream(id) {
            self.nack_downstream(id, face, reason, sink);
        }
        self.expire(id);
    }
}
