//! The incoming Nack pipeline (NFD developer's guide 4.4).

use wire::ndn::Interest;
use wire::ndn::lp::{LpHeader, NackReason};
use wire::{DropReason, Instant};

use super::{Forwarder, Learned, Sink};
use crate::face::{FaceId, LinkType};
use crate::store::ContentStore;
use crate::strategy::{Action, Context, NameScope, Strategy};

impl<C: ContentStore> Forwarder<C> {
    pub(super) fn nack(
        &mut self,
        now: Instant,
        ingress: FaceId,
        header: &LpHeader<'_>,
        interest: &Interest<'_>,
        whole: u64,
        sink: &mut impl Sink,
    ) -> Result<(), DropReason> {
        self.counters.in_nacks += 1;
        let face = self.faces.get_mut(ingress).ok_or(DropReason::NdnFaceDown)?;
        face.counters.in_nacks += 1;
        face.last_used = now;
        if face.config.link_type != LinkType::PointToPoint {
            return Err(DropReason::NdnNackUnmatched);
        }
        let reason = header.nack.unwrap_or(NackReason::None);
        let (stem, _) = interest.name.split_implicit_digest();
        let id = self.pit.find(interest, whole);
        let id = id.ok_or(DropReason::NdnNackUnmatched)?;
        let record = self.pit.out_record_mut(id, ingress);
        let record = record
            .filter(|record| interest.nonce == Some(record.nonce))
            .ok_or(DropReason::NdnNackUnmatched)?;
        record.nack = Some(reason);
        let mut actions = core::mem::take(&mut self.scratch.actions);
        actions.clear();
        let depth = interest.name.len();
        let hashes = self.partition.hasher().prefixes(stem, self.choice.depths());
        let strategy = self.choice.lookup(stem.value(), &hashes, depth);
        let mut cx = Context {
            now,
            faces: &self.faces,
            pit: &mut self.pit,
            entry: id,
            scope: NameScope::of(stem),
            next_hops: &[],
            non_discovery: header.non_discovery,
            measurements: &mut self.measurements,
            rng: &mut self.rng,
            actions: &mut actions,
        };
        strategy.nack(&mut cx, ingress, reason);
        for action in &actions {
            match *action {
                Action::Nack(face, reason) => self.nack_downstream(id, face, reason, sink),
                Action::NackAll(reason) => self.nack_downstreams(id, reason, sink),
                Action::Unlearn(face) => sink.learned(Learned {
                    face,
                    announcement: None,
                    packet: interest.bytes,
                }),
                Action::Reject => self.expire(id),
                Action::Send { .. } | Action::Linger(_) | Action::Learn(_) => {}
            }
        }
        self.scratch.actions = actions;
        let is_waiting = self
            .pit
            .out_records(id)
            .any(|record| record.is_pending(now));
        if !is_waiting {
            self.finalize(id, now);
        }
        Ok(())
    }
}
