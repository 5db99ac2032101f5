//! `/localhost/nfd/strategy/multicast/v=5`: all next hops.

use wire::ndn::lp::NackReason;

use super::{Context, Strategy, Suppression, Verdict};
use crate::face::FaceId;
use crate::fib::NextHop;

/// Sends each Interest to all eligible next hops, each with its own suppression.
#[derive(Clone, Copy, Debug, Default)]
pub struct Multicast {
    /// When an Interest that comes again is not sent to a next hop.
    pub suppression: Suppression,
}

impl Strategy for Multicast {
    fn interest(&mut self, cx: &mut Context<'_>, ingress: FaceId) {
        for hop in cx.next_hops {
            let verdict = self.suppression.for_upstream(cx, hop.face);
            if verdict == Verdict::Suppress || !cx.is_eligible(ingress, hop, false) {
                continue;
            }
            cx.send(hop.face);
            if verdict == Verdict::Forward {
                self.suppression.grow(cx, hop.face);
            }
        }
    }

    /// Waits for the others.
    fn nack(&mut self, _: &mut Context<'_>, _: FaceId, _: NackReason) {}

    fn new_next_hop(&mut self, cx: &mut Context<'_>, hop: &NextHop) {
        let is_wanted = cx
            .pit
            .in_records(cx.entry)
            .any(|record| cx.is_eligible(record.face, hop, false));
        if is_wanted {
            cx.send(hop.face);
        }
    }
}
