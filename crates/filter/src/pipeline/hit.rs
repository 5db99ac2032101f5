//! Packets of connections that are known: the path that nearly all packets take.

use tables::flow_map::Flow;
use wire::tcp::{ACKNOWLEDGEMENT, Flags, SEQUENCE};
use wire::{DropReason, FlowKey, LayoutFlags, ip_protocol};

use super::inspect::Passage;
use super::item::{Fate, Item};
use super::rules::{Rules, Stage};
use super::shared::Table;
use super::walk::{Route, Walk};
use super::worker::{Worker, direction_of, record_of, segment_of};
use crate::nat::rewrite::{rewrite, set_tcp_number};
use crate::packet::{CtDirection, CtState, CtStatus, CtView, InterfaceId};
use crate::track::record::{Life, Own, Record};
use crate::track::tcp::{Outcome, Segment, TcpFlags, TcpState};
use crate::track::timeout::{self, Class};
use crate::verdict::Changes;

/// Interfaces whose verdicts can be noted for replay.
const REPLAY_INTERFACES: u16 = 1 << 12;

/// What the TCP state says of a segment.
enum Judged {
    /// It belongs to the connection.
    Valid(Class, bool),
    /// It may pass, but proves nothing.
    Pass,
    /// It starts another connection in place of this one.
    Reopen,
    /// It does not belong.
    Invalid,
}

impl Worker {
    /// Judges a packet of a connection; `None` if the connection is over: the packet may start another.
    #[inline]
    pub(super) fn hit<R: Rules, K: Table>(
        &mut self,
        walk: &mut Walk<'_, R>,
        item: &mut Item<'_>,
        key: &FlowKey,
        flow: Flow,
    ) -> Option<Fate> {
        let record = record_of::<K>(walk.shared, flow.connection)?;
        let word = record.life_word();
        let life = Life::from_word(word);
        let now = walk.env.now;
        if life.deadline <= walk.tick {
            self.end::<K>(walk.shared, flow.connection, word, now);
            return None;
        }
        if life.own & (Own::PROXIED | Own::SHIFTED) == Own::PROXIED {
            return self.opening::<R, K>(walk, item, key, flow, &record);
        }
        let direction = direction_of(flow.direction);
        let (class, valid, open) = if key.protocol == ip_protocol::TCP {
            match judge_tcp(&record, &life, direction, item) {
                Judged::Valid(class, open) => (class, true, open),
                Judged::Pass => (life.class, false, false),
                Judged::Reopen => {
                    self.end::<K>(walk.shared, flow.connection, word, now);
                    return None;
                }
                Judged::Invalid => return Some(self.invalid(walk, item, key, &life)),
            }
        } else {
            (class_of(key.protocol, &life, direction), true, false)
        };
        let refresh = valid
            && (direction == CtDirection::Original
                || key.protocol == ip_protocol::TCP
                || walk.shared.policy.inbound_refresh);
        let deadline = walk.tick.after(walk.shared.limits.of(class));
        let mut status = life.status;
        let alive = record.update_life(|life| {
            if valid {
                life.class = class;
                let answered = life.status.contains(CtStatus::SEEN_REPLY);
                if direction == CtDirection::Reply {
                    life.status |= CtStatus::SEEN_REPLY;
                } else if open || answered && key.protocol != ip_protocol::TCP {
                    life.status |= CtStatus::ASSURED;
                }
            }
            if refresh {
                life.deadline = deadline;
            }
            status = life.status;
        });
        if !alive {
            return None;
        }
        self.tally.hits += 1;
        let life = Life { status, ..life };
        let token = replay_token(walk.rules.epoch(), item.iif);
        let established = status.contains(CtStatus::SEEN_REPLY);
        if established && token != 0 && record.replay(direction as usize) == token {
            self.tally.replays += 1;
            return self.send_on::<K, R>(walk, item, flow, &record, &life);
        }
        self.hit_by_rules::<R, K>(walk, item, key, flow, &record, &life, token)
    }

    /// Translates a packet whose verdict is known and lets it go on.
    #[inline]
    fn send_on<K: Table, R: Rules>(
        &mut self,
        walk: &Walk<'_, R>,
        item: &mut Item<'_>,
        flow: Flow,
        record: &Record<'_>,
        life: &Life,
    ) -> Option<Fate> {
        let direction = direction_of(flow.direction);
        if life.status.intersects(CtStatus::SNAT | CtStatus::DNAT) {
            let target = target_of::<K, R>(walk, flow)?;
            if !rewrite(item.frame, &item.layout, &target) {
                return Some(Fate::Drop(DropReason::TransportTruncated));
            }
        }
        if life.own.contains(Own::SHIFTED) {
            shift_numbers(item, record, life, direction);
        }
        Some(Fate::Accept)
    }

    /// Asks the rules about a packet of a connection, hook by hook, and translates it on the way.
    #[expect(
        clippy::too_many_arguments,
        reason = "what the fast path has looked up already"
    )]
    fn hit_by_rules<R: Rules, K: Table>(
        &mut self,
        walk: &mut Walk<'_, R>,
        item: &mut Item<'_>,
        key: &FlowKey,
        flow: Flow,
        record: &Record<'_>,
        life: &Life,
        token: u32,
    ) -> Option<Fate> {
        self.begin_walk();
        let direction = direction_of(flow.direction);
        let mut ct = view_of::<K, R>(walk, flow, record, life)?;
        let verdict = self.ask_first(walk, Stage::Filter, item, &key.destination, &mut ct);
        if let Some(fate) = self.ended_by(walk, item, key, verdict) {
            return Some(fate);
        }
        let translated = life.status.intersects(CtStatus::SNAT | CtStatus::DNAT);
        let target = if translated {
            target_of::<K, R>(walk, flow)?
        } else {
            *key
        };
        let middle = halfway(key, &target);
        if middle != *key && !rewrite(item.frame, &item.layout, &middle) {
            return Some(Fate::Drop(DropReason::TransportTruncated));
        }
        let routed = walk.route(item, middle.destination) != Route::None;
        if let Some(fate) = self.onward(walk, item, key, middle.destination, &mut ct) {
            return Some(fate);
        }
        self.store_changes(record, &ct);
        // What has no way keeps its sender, who is told by the node.
        if routed && target != middle && !rewrite(item.frame, &item.layout, &target) {
            return Some(Fate::Drop(DropReason::TransportTruncated));
        }
        if routed && life.status.contains(CtStatus::HELPER) && !life.own.contains(Own::PROXIED) {
            let passage = Passage {
                key,
                target: &target,
                connection: flow.connection,
                record,
                life: *life,
                direction,
            };
            return Some(self.inspect::<R, K>(walk, item, &passage));
        }
        if life.own.contains(Own::SHIFTED) {
            shift_numbers(item, record, life, direction);
        }
        let once = Changes::PER_PACKET
            | Changes::FRAME
            | Changes::MARK
            | Changes::PRIORITY
            | Changes::TRACE;
        let plain = self.effects.logs.is_empty() && self.effects.copies.is_empty();
        if routed
            && token != 0
            && plain
            && life.status.contains(CtStatus::SEEN_REPLY)
            && !self.effects.changes.intersects(once)
        {
            record.set_replay(direction as usize, token);
        }
        Some(Fate::Accept)
    }

    /// Stores what rules changed of a connection.
    pub(super) fn store_changes(&mut self, record: &Record<'_>, ct: &CtView) {
        if self.effects.changes.contains(Changes::CT_MARK) {
            record.set_mark(ct.mark);
        }
    }

    /// Judges a packet that its connection disowns: the rules see it as invalid, and it is never let out
    /// untranslated.
    fn invalid<R: Rules>(
        &mut self,
        walk: &mut Walk<'_, R>,
        item: &mut Item<'_>,
        key: &FlowKey,
        life: &Life,
    ) -> Fate {
        let fate = self.stateless(walk, item, key, CtState::INVALID);
        let translated = life.status.intersects(CtStatus::SNAT | CtStatus::DNAT);
        if translated && fate == Fate::Accept {
            return Fate::Drop(DropReason::CtInvalid);
        }
        fate
    }
}

/// What a noted verdict was noted under: ruleset and interface; 0 if it cannot be noted.
#[inline]
const fn replay_token(epoch: u32, iif: InterfaceId) -> u32 {
    if iif.0 >= REPLAY_INTERFACES || epoch & 0xf_ffff == 0 {
        0
    } else {
        epoch << 12 | iif.0 as u32
    }
}

/// What a packet of this direction is rewritten to: the reverse of the other direction's key.
#[inline]
pub(super) fn target_of<K: Table, R>(walk: &Walk<'_, R>, flow: Flow) -> Option<FlowKey> {
    let flows = K::flows(walk.shared);
    let other = match direction_of(flow.direction) {
        CtDirection::Original => flows.reply_key(flow.connection)?,
        CtDirection::Reply => flows.original_key(flow.connection)?,
    };
    Some(other.to_flow().reversed())
}

/// The packet between prerouting and postrouting: its destination is translated, its source not yet.
pub(super) fn halfway(key: &FlowKey, target: &FlowKey) -> FlowKey {
    let is_icmp = matches!(key.protocol, ip_protocol::ICMP | ip_protocol::ICMPV6);
    FlowKey {
        destination: target.destination,
        destination_port: target.destination_port,
        source_port: if is_icmp && target.destination != key.destination {
            target.source_port
        } else {
            key.source_port
        },
        ..*key
    }
}

/// What rules see of a connection.
fn view_of<K: Table, R>(
    walk: &Walk<'_, R>,
    flow: Flow,
    record: &Record<'_>,
    life: &Life,
) -> Option<CtView> {
    let flows = K::flows(walk.shared);
    let (mark, zone, helper) = record.labels();
    let state = if life.status.contains(CtStatus::SEEN_REPLY) {
        CtState::ESTABLISHED
    } else if life.status.contains(CtStatus::EXPECTED) {
        CtState::RELATED
    } else {
        CtState::NEW
    };
    Some(CtView {
        state,
        tracked: true,
        direction: direction_of(flow.direction),
        status: life.status,
        original: flows.original_key(flow.connection)?.to_flow(),
        reply: flows.reply_key(flow.connection)?.to_flow(),
        mark,
        zone,
        helper,
        label: 0,
        id: flow.connection.slot() as u32,
        expires_ms: timeout::as_ms(life.deadline.since(walk.tick)),
        packets: [0; 2],
        bytes: [0; 2],
    })
}

/// The timeout class of a packet that is not TCP.
#[inline]
fn class_of(protocol: u8, life: &Life, direction: CtDirection) -> Class {
    match protocol {
        ip_protocol::UDP => {
            let answered =
                direction == CtDirection::Reply || life.status.contains(CtStatus::SEEN_REPLY);
            if life.class == Class::Answered && direction == CtDirection::Reply {
                Class::Answered
            } else if answered {
                Class::Udp
            } else {
                Class::UdpOneWay
            }
        }
        ip_protocol::ICMP | ip_protocol::ICMPV6 => Class::Icmp,
        _ => Class::Other,
    }
}

#[inline]
fn judge_tcp(record: &Record<'_>, life: &Life, direction: CtDirection, item: &Item<'_>) -> Judged {
    let Some(mut segment) = segment_of(item) else {
        return Judged::Invalid;
    };
    if life.own.contains(Own::SHIFTED) {
        unshift_acknowledgement(&mut segment, record, life, direction);
    }
    let fragment = item.layout.flags.contains(LayoutFlags::FRAGMENT);
    let (outcome, tcp) = record.judge_tcp(|tcp| {
        if fragment {
            // How much data the whole segment has is not known here.
            tcp.flags |= TcpFlags::LIBERAL;
        }
        tcp.judge(direction, &segment)
    });
    match outcome {
        Outcome::Valid => {
            Judged::Valid(Class::of_tcp(tcp.state), tcp.state >= TcpState::Established)
        }
        Outcome::Pass => Judged::Pass,
        Outcome::Reopen => Judged::Reopen,
        Outcome::Invalid(_) => Judged::Invalid,
    }
}

fn unshift_acknowledgement(
    segment: &mut Segment,
    record: &Record<'_>,
    life: &Life,
    direction: CtDirection,
) {
    if life.own.contains(Own::PROXIED) {
        if direction == CtDirection::Original && segment.flags.contains(Flags::ACK) {
            let by = record.proxied().sequence;
            segment.acknowledgement = segment.acknowledgement.wrapping_sub(by);
            segment.sack = segment.sack.map(|edge| edge.wrapping_sub(by));
        }
        return;
    }
    let other = record.shift(direction.reversed() as usize);
    if segment.flags.contains(Flags::ACK) {
        segment.acknowledgement = other.unshift(segment.acknowledgement);
        segment.sack = segment.sack.map(|edge| other.unshift(edge));
    }
}

/// Writes the shifted sequence number and the unshifted acknowledgement into a segment.
pub(super) fn shift_numbers(
    item: &mut Item<'_>,
    record: &Record<'_>,
    life: &Life,
    direction: CtDirection,
) {
    if life.own.contains(Own::PROXIED) {
        super::proxy::translate(item, record, direction);
        return;
    }
    let Some(segment) = segment_of(item) else {
        return;
    };
    let own = record.shift(direction as usize);
    let other = record.shift(direction.reversed() as usize);
    let sequence = segment
        .sequence
        .wrapping_add(own.offset_at(segment.sequence));
    if sequence != segment.sequence {
        let _ = set_tcp_number(item.frame, &item.layout, SEQUENCE, sequence);
    }
    if segment.flags.contains(Flags::ACK) {
        let ack = other.unshift(segment.acknowledgement);
        if ack != segment.acknowledgement {
            let _ = set_tcp_number(item.frame, &item.layout, ACKNOWLEDGEMENT, ack);
            crate::alg::sack::shift_blocks(item.frame, &item.layout, |edge| other.unshift(edge));
        }
    }
}
