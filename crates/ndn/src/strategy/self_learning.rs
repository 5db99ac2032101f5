//! `/localhost/nfd/strategy/self-learning/v=1`: flood where no route is known, and learn routes from prefix
//! announcements that come back.

use wire::ndn::lp::NackReason;

use super::{Action, Context, Strategy};
use crate::face::{FaceId, FaceScope, LinkType};

/// Floods discovery Interests, follows learned routes with non-discovery Interests.
#[derive(Clone, Copy, Debug, Default)]
pub struct SelfLearning;

impl SelfLearning {
    /// Sends to all faces to other machines.
    fn flood(cx: &mut Context<'_>, ingress: FaceId) {
        let Some(from) = cx.faces.get(ingress) else {
            return;
        };
        for face in cx.faces.iter() {
            let goes_back = face.id == ingress && face.config.link_type != LinkType::AdHoc;
            let is_local = face.config.scope == FaceScope::Local;
            if !(goes_back || is_local || cx.scope.forbids(from, face)) {
                cx.actions.push(Action::Send {
                    face: face.id,
                    is_probe: false,
                    non_discovery: false,
                });
            }
        }
    }

    fn follow(cx: &mut Context<'_>, ingress: FaceId) {
        for hop in cx.next_hops {
            if cx.is_eligible(ingress, hop, false) {
                cx.actions.push(Action::Send {
                    face: hop.face,
                    is_probe: false,
                    non_discovery: true,
                });
            }
        }
    }
}

impl Strategy for SelfLearning {
    fn interest(&mut self, cx: &mut Context<'_>, ingress: FaceId) {
        match (cx.non_discovery, cx.next_hops.is_empty()) {
            (true, true) => cx.no_route(ingress),
            (false, true) => Self::flood(cx, ingress),
            (_, false) => Self::follow(cx, ingress),
        }
    }

    fn data(&mut self, cx: &mut Context<'_>, ingress: FaceId) {
        let record = cx.pit.out_record(cx.entry, ingress);
        if record.is_some_and(|record| !record.non_discovery) {
            cx.actions.push(Action::Learn(ingress));
        }
    }

    fn nack(&mut self, cx: &mut Context<'_>, ingress: FaceId, reason: NackReason) {
        if reason == NackReason::NoRoute {
            cx.actions.push(Action::NackAll(reason));
            cx.actions.push(Action::Unlearn(ingress));
        }
    }
}
