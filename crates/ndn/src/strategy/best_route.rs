//! `/localhost/nfd/strategy/best-route/v=5`: the cheapest next hop; retransmissions try the others.

use wire::ndn::lp::NackReason;

use super::{Context, Strategy, Suppression, Verdict, nack};
use crate::face::FaceId;

/// Sends a new Interest to the cheapest next hop, and one that comes again to the cheapest that was not used,
/// then to the one used longest ago.
#[derive(Clone, Copy, Debug, Default)]
pub struct BestRoute {
    /// When an Interest that comes again is not sent.
    pub suppression: Suppression,
}

impl Strategy for BestRoute {
    fn interest(&mut self, cx: &mut Context<'_>, ingress: FaceId) {
        match self.suppression.for_entry(cx) {
            Verdict::Suppress => {}
            Verdict::New => match cx.first_eligible(ingress, false) {
                Some(face) => cx.send(face),
                None => cx.no_route(ingress),
            },
            Verdict::Forward => {
                let face = cx.first_eligible(ingress, true);
                if let Some(face) = face.or_else(|| cx.earliest_used(ingress)) {
                    cx.send(face);
                }
            }
        }
    }

    fn nack(&mut self, cx: &mut Context<'_>, _: FaceId, _: NackReason) {
        nack::process(cx);
    }
}
