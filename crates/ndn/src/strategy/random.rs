//! `/localhost/nfd/strategy/random/v=1`: one next hop by lot.

use wire::ndn::lp::NackReason;

use super::{Context, Strategy, nack};
use crate::face::FaceId;

/// Sends each Interest to an eligible next hop drawn at random.
#[derive(Clone, Copy, Debug, Default)]
pub struct Random;

impl Strategy for Random {
    fn interest(&mut self, cx: &mut Context<'_>, ingress: FaceId) {
        let eligible = |hop: &&crate::fib::NextHop| cx.is_eligible(ingress, hop, false);
        let count = cx.next_hops.iter().filter(eligible).count();
        let drawn = cx.rng.below(count as u64) as usize;
        let eligible = |hop: &&crate::fib::NextHop| cx.is_eligible(ingress, hop, false);
        let face = cx
            .next_hops
            .iter()
            .filter(eligible)
            .nth(drawn)
            .map(|hop| hop.face);
        match face {
            Some(face) => cx.send(face),
            None => cx.no_route(ingress),
        }
    }

    fn nack(&mut self, cx: &mut Context<'_>, _: FaceId, _: NackReason) {
        nack::process(cx);
    }
}
