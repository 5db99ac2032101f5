//! A packet's way through the hooks, as far as hits, misses and packets without connection share it.

use wire::{DropReason, FlowKey, LayoutFlags, ip_protocol};

use super::item::{Environment, Fate, Item};
use super::rules::{Rules, Stage};
use super::shared::Shared;
use super::worker::Worker;
use crate::nat::rewrite::rewrite;
use crate::packet::{
    AddressType, CtState, CtView, FibQuery, Hook, InterfaceId, Packet, PacketType,
};
use crate::track::timeout::Tick;
use crate::verdict::{Changes, Verdict};

/// What stays the same over a call.
pub(super) struct Walk<'a, R> {
    pub(super) env: &'a Environment<'a>,
    pub(super) rules: &'a mut R,
    pub(super) shared: &'a Shared,
    pub(super) tick: Tick,
    /// The hook where the packets begin: prerouting, or output for the node's own.
    pub(super) first: Hook,
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// To the node.
    Local,
    /// Out by an interface.
    Forward(InterfaceId),
    /// Nowhere: the node will say why.
    None,
}

impl<R: Rules> Walk<'_, R> {
    /// Tells whether the packets are the node's own.
    pub(super) fn is_own(&self) -> bool {
        self.first == Hook::Output
    }

    /// Looks up where an address lies.
    pub(super) fn route(&self, item: &Item<'_>, destination: [u8; 16]) -> Route {
        match self.found(item, destination) {
            // The node does not talk to itself.
            Route::Local if self.is_own() => Route::None,
            route => route,
        }
    }

    fn found(&self, item: &Item<'_>, destination: [u8; 16]) -> Route {
        if item.layout.flags.contains(LayoutFlags::L3_GROUP) {
            return Route::Local;
        }
        let answer = self.env.fib.lookup(&FibQuery {
            address: destination,
            mark: (item.mark != 0).then_some(item.mark),
            interface: None,
        });
        match answer.kind {
            AddressType::Local
            | AddressType::Broadcast
            | AddressType::Anycast
            | AddressType::Multicast => Route::Local,
            AddressType::Unicast => Route::Forward(answer.interface),
            _ => Route::None,
        }
    }
}

impl Worker {
    /// Asks the chains of a stage at a hook.
    pub(super) fn ask<R: Rules>(
        &mut self,
        walk: &mut Walk<'_, R>,
        stage: Stage,
        hook: Hook,
        item: &mut Item<'_>,
        oif: InterfaceId,
        ct: &mut CtView,
    ) -> Verdict {
        if !walk.rules.has(stage, hook) {
            return Verdict::Accept;
        }
        let random = self.random();
        let mut packet = Packet {
            packet_type: PacketType::of(&item.layout),
            frame: item.frame,
            layout: item.layout,
            hook,
            iif: item.iif,
            oif,
            mark: item.mark,
            priority: 0,
            worker: self.index,
            random,
            now: walk.env.now,
            unix_ns: walk.env.unix_ns,
            ct: *ct,
            fib: walk.env.fib,
        };
        let logs = self.effects.logs.len();
        let verdict = walk.rules.judge(stage, &mut packet, &mut self.effects);
        if self.effects.logs.len() > logs {
            self.log(logs, &packet);
        }
        item.mark = packet.mark;
        *ct = packet.ct;
        verdict
    }

    /// Asks the chains of a stage at a packet's first hook: at output, the way out is known already.
    pub(super) fn ask_first<R: Rules>(
        &mut self,
        walk: &mut Walk<'_, R>,
        stage: Stage,
        item: &mut Item<'_>,
        destination: &[u8; 16],
        ct: &mut CtView,
    ) -> Verdict {
        let hook = walk.first;
        if !walk.rules.has(stage, hook) {
            return Verdict::Accept;
        }
        let oif = if walk.is_own()
            && let Route::Forward(oif) = walk.route(item, *destination)
        {
            oif
        } else {
            InterfaceId::NONE
        };
        self.ask(walk, stage, hook, item, oif, ct)
    }

    /// Starts a packet's walk: forgets what the last one left.
    pub(super) fn begin_walk(&mut self) {
        self.tally.logs += self.effects.logs.len() as u64;
        self.tally.logs_lost += u64::from(self.effects.logs_lost);
        self.effects.clear();
    }

    /// Returns what becomes of a packet that a verdict ends; `None` if it goes on. `key` is what it looked like on
    /// the wire: its sender is told about that.
    pub(super) fn ended_by<R: Rules>(
        &mut self,
        walk: &Walk<'_, R>,
        item: &mut Item<'_>,
        key: &FlowKey,
        verdict: Verdict,
    ) -> Option<Fate> {
        match verdict {
            Verdict::Drop => Some(Fate::Drop(DropReason::FirewallRule)),
            Verdict::Reject(reject) => {
                restore(item, key);
                self.answer_reject(walk.env, item, reject);
                Some(Fate::Drop(DropReason::FirewallRule))
            }
            Verdict::Accept | Verdict::Nat(_) | Verdict::Synproxy(_) | Verdict::Forward(_) => None,
        }
    }

    /// Asks the raw chains: `Some` ends the packet's way.
    pub(super) fn raw<R: Rules>(
        &mut self,
        walk: &mut Walk<'_, R>,
        item: &mut Item<'_>,
    ) -> Option<Fate> {
        self.begin_walk();
        let mut ct = CtView {
            state: CtState::UNTRACKED,
            ..CtView::default()
        };
        let key = FlowKey::from_layout(&item.layout, item.frame).unwrap_or_default();
        let verdict = self.ask_first(walk, Stage::Raw, item, &key.destination, &mut ct);
        if let Some(fate) = self.ended_by(walk, item, &key, verdict) {
            return Some(fate);
        }
        if self.effects.changes.contains(Changes::NOTRACK) {
            return Some(self.stateless(walk, item, &key, CtState::UNTRACKED));
        }
        None
    }

    /// Judges a packet that has no connection and makes none.
    pub(super) fn stateless<R: Rules>(
        &mut self,
        walk: &mut Walk<'_, R>,
        item: &mut Item<'_>,
        key: &FlowKey,
        state: CtState,
    ) -> Fate {
        if state == CtState::INVALID {
            self.tally.invalid += 1;
        }
        self.begin_walk();
        let mut ct = CtView {
            state,
            ..CtView::default()
        };
        let verdict = self.ask_first(walk, Stage::Filter, item, &key.destination, &mut ct);
        if let Some(fate) = self.ended_by(walk, item, key, verdict) {
            return fate;
        }
        if let Some(fate) = self.onward(walk, item, key, key.destination, &mut ct) {
            return fate;
        }
        match self.effects.synproxy {
            Some(options)
                if item.layout.protocol == ip_protocol::TCP
                    && !walk.is_own()
                    && matches!(walk.route(item, key.destination), Route::Forward(_)) =>
            {
                self.ask_for_proof(walk, item, key, &options)
            }
            _ => Fate::Accept,
        }
    }

    /// Asks what follows the translation of the destination; `Some` ends the packet's way.
    pub(super) fn onward<R: Rules>(
        &mut self,
        walk: &mut Walk<'_, R>,
        item: &mut Item<'_>,
        key: &FlowKey,
        destination: [u8; 16],
        ct: &mut CtView,
    ) -> Option<Fate> {
        let late = Stage::Late;
        let verdict = self.ask_first(walk, late, item, &destination, ct);
        if let Some(fate) = self.ended_by(walk, item, key, verdict) {
            return Some(fate);
        }
        let route = walk.route(item, destination);
        let (hook, oif) = match route {
            Route::Local => (Hook::Input, InterfaceId::NONE),
            Route::Forward(oif) => (Hook::Forward, oif),
            Route::None => return None,
        };
        if !walk.is_own() {
            let verdict = self.ask(walk, Stage::Filter, hook, item, oif, ct);
            if let Some(fate) = self.ended_by(walk, item, key, verdict) {
                return Some(fate);
            }
        }
        if hook == Hook::Forward {
            for stage in [Stage::Filter, late] {
                let verdict = self.ask(walk, stage, Hook::Postrouting, item, oif, ct);
                if let Some(fate) = self.ended_by(walk, item, key, verdict) {
                    return Some(fate);
                }
            }
        }
        None
    }
}

/// Gives a packet the addresses and ports back that it came with.
pub(super) fn restore(item: &mut Item<'_>, key: &FlowKey) {
    // Of a frame that was translated before: its layout holds.
    let _ = rewrite(item.frame, &item.layout, key);
}
