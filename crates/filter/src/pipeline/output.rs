//! What the node sends: answers to connections that ended here, and ICMP errors about packets on their way.

use tables::signature::{Session4, Session6};
use wire::{DropReason, FlowKey};

use super::hit::target_of;
use super::item::{Fate, Item};
use super::rules::{Rules, Stage};
use super::shared::Table;
use super::walk::{Route, Walk};
use super::worker::{Kind, Worker, direction_of, record_of};
use crate::nat::rewrite::rewrite;
use crate::packet::{CtState, CtStatus, CtView, Hook};
use crate::track::key::is_ipv4;
use crate::verdict::Verdict;

impl Worker {
    /// Judges one packet of the node.
    pub(super) fn one_output<R: Rules>(
        &mut self,
        walk: &mut Walk<'_, R>,
        item: &mut Item<'_>,
        kind: Kind,
        key: &FlowKey,
    ) -> Fate {
        let mut ct = CtView {
            original: *key,
            reply: key.reversed(),
            ..CtView::default()
        };
        let mut target = None;
        match kind {
            Kind::Other | Kind::LaterFragment => return Fate::Accept,
            Kind::Error => {
                self.translate_own_error(walk, item);
                ct.state = CtState::RELATED;
            }
            Kind::Flow => {
                ct.state = CtState::NEW;
                target = if is_ipv4(key) {
                    answer_of::<R, Session4>(walk, key, &mut ct)
                } else {
                    answer_of::<R, Session6>(walk, key, &mut ct)
                };
            }
            Kind::Untracked | Kind::Odd => ct.state = CtState::UNTRACKED,
        }
        let fate = self.output_by_rules(walk, item, key, &mut ct);
        if let Some(target) = target
            && fate == Fate::Accept
            && !rewrite(item.frame, &item.layout, &target)
        {
            return Fate::Drop(DropReason::TransportTruncated);
        }
        fate
    }

    /// Asks the output and postrouting chains.
    fn output_by_rules<R: Rules>(
        &mut self,
        walk: &mut Walk<'_, R>,
        item: &mut Item<'_>,
        key: &FlowKey,
        ct: &mut CtView,
    ) -> Fate {
        self.begin_walk();
        let Route::Forward(oif) = walk.route(item, key.destination) else {
            return Fate::Accept;
        };
        for hook in [Hook::Output, Hook::Postrouting] {
            let verdict = self.ask(walk, Stage::Filter, hook, item, oif, ct);
            if matches!(verdict, Verdict::Drop | Verdict::Reject(_)) {
                return Fate::Drop(DropReason::FirewallRule);
            }
        }
        Fate::Accept
    }
}

/// Finds the connection that a packet of the node answers, notes the answer, and returns what the packet is to look
/// like if the connection was redirected here.
fn answer_of<R: Rules, K: Table>(
    walk: &Walk<'_, R>,
    key: &FlowKey,
    ct: &mut CtView,
) -> Option<FlowKey> {
    let flow = K::flows(walk.shared).find(&K::from_flow(key))?;
    let record = record_of::<K>(walk.shared, flow.connection)?;
    let mut status = CtStatus::empty();
    record.update_life(|life| {
        life.status |= CtStatus::SEEN_REPLY;
        status = life.status;
    });
    ct.state = CtState::ESTABLISHED;
    ct.tracked = true;
    ct.direction = direction_of(flow.direction);
    ct.status = status;
    status
        .intersects(CtStatus::SNAT | CtStatus::DNAT)
        .then(|| target_of::<K, R>(walk, flow))?
}
