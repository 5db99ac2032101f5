//! ICMP errors: they belong to the connection of the packet that they quote (RFC 5508 4).

use tables::flow_map::Flow;
use tables::signature::{Session4, Session6};
use wire::{DropReason, FlowKey};

use super::hit::target_of;
use super::item::{Fate, Item};
use super::rules::{Rules, Stage};
use super::shared::Table;
use super::walk::Walk;
use super::worker::{Worker, direction_of, record_of};
use crate::nat::icmp::{ErrorTarget, is_sound, rewrite_error};
use crate::packet::{CtState, CtStatus, CtView};
use crate::track::key::is_ipv4;

/// The connection of an error: what the error must become, if anything.
struct Related {
    view: CtView,
    target: Option<ErrorTarget>,
}

impl Worker {
    /// Judges an ICMP error. It never refreshes, changes or ends its connection (RFC 5508 REQ-6, RFC 5382 REQ-10).
    pub(super) fn error<R: Rules>(&mut self, walk: &mut Walk<'_, R>, item: &mut Item<'_>) -> Fate {
        let key = FlowKey::from_layout(&item.layout, item.frame).unwrap_or_default();
        if !is_sound(&item.layout, item.frame) {
            return Fate::Drop(DropReason::NatError);
        }
        let Some(related) = related_to(walk, item, &key) else {
            return self.error_of_none(walk, item, &key);
        };
        self.begin_walk();
        let mut ct = related.view;
        let verdict = self.ask_first(walk, Stage::Filter, item, &key.destination, &mut ct);
        if let Some(fate) = self.ended_by(walk, item, &key, verdict) {
            return fate;
        }
        if let Some(target) = &related.target
            && !rewrite_error(item.frame, &item.layout, target)
        {
            return Fate::Drop(DropReason::NatError);
        }
        let destination = related.target.map_or(key.destination, |to| to.destination);
        self.onward(walk, item, &key, destination, &mut ct)
            .unwrap_or(Fate::Accept)
    }

    /// An error about nothing that is known: invalid for the rules, and dropped if it is about a mapping's address.
    fn error_of_none<R: Rules>(
        &mut self,
        walk: &mut Walk<'_, R>,
        item: &mut Item<'_>,
        key: &FlowKey,
    ) -> Fate {
        self.stateless(walk, item, key, CtState::INVALID)
    }

    /// Judges an ICMP error that the node itself sends.
    pub(super) fn own_error<R: Rules>(
        &mut self,
        walk: &mut Walk<'_, R>,
        item: &mut Item<'_>,
    ) -> Fate {
        self.translate_own_error(walk, item);
        let key = FlowKey::from_layout(&item.layout, item.frame).unwrap_or_default();
        self.stateless(walk, item, &key, CtState::RELATED)
    }

    /// Translates an ICMP error that the node itself made about a packet on its way: it saw the packet with its
    /// addresses changed.
    fn translate_own_error<R: Rules>(&mut self, walk: &Walk<'_, R>, item: &mut Item<'_>) {
        let Some(key) = FlowKey::from_layout(&item.layout, item.frame) else {
            return;
        };
        if let Some(Related {
            target: Some(target),
            ..
        }) = related_to(walk, item, &key)
        {
            let own = ErrorTarget {
                source: key.source,
                ..target
            };
            let _ = rewrite_error(item.frame, &item.layout, &own);
        }
    }
}

fn related_to<R: Rules>(walk: &Walk<'_, R>, item: &Item<'_>, key: &FlowKey) -> Option<Related> {
    let quoted = FlowKey::from_icmp_quote(&item.layout, item.frame)?;
    if is_ipv4(&quoted) {
        related::<R, Session4>(walk, key, &quoted)
    } else {
        related::<R, Session6>(walk, key, &quoted)
    }
}

fn related<R: Rules, K: Table>(
    walk: &Walk<'_, R>,
    key: &FlowKey,
    quoted: &FlowKey,
) -> Option<Related> {
    let flows = K::flows(walk.shared);
    // The error travels as an answer to the packet that it quotes.
    let way = quoted.reversed();
    let flow: Flow = flows.find(&K::from_flow(&way))?;
    let record = record_of::<K>(walk.shared, flow.connection)?;
    let life = record.life();
    if life.deadline <= walk.tick {
        return None;
    }
    let (mark, zone, helper) = record.labels();
    let view = CtView {
        state: CtState::RELATED,
        tracked: true,
        direction: direction_of(flow.direction),
        status: life.status,
        original: flows.original_key(flow.connection)?.to_flow(),
        reply: flows.reply_key(flow.connection)?.to_flow(),
        mark,
        zone,
        helper,
        ..CtView::default()
    };
    let target = if life.status.intersects(CtStatus::SNAT | CtStatus::DNAT) {
        let to = target_of::<K, R>(walk, flow)?;
        // A router in the middle keeps its address on the way in; on the way out, where the source of packets is
        // translated, it is hidden behind the same address (RFC 5508 REQ-5).
        let source = if to.source == way.source {
            key.source
        } else {
            to.source
        };
        Some(ErrorTarget {
            source,
            destination: to.destination,
            quoted: to.reversed(),
        })
    } else {
        None
    };
    Some(Related { view, target })
}
