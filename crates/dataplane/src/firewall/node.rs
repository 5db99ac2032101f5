//! `firewall`: guards, tracks and translates what comes in and what the node sends.

use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use filter::packet::InterfaceId;
use filter::pipeline::{
    BATCH_MAX, Environment, Fate, InterfaceFacts, Item, Rules, Stateful, Way, Worker,
};
use filter::rules::{Judge, NoTrace, RuleWorker};
use graph::{Context, EdgeId, GraphError, Node, Outlets, Snapshot};
use io::{Batch, Frame, FrameFlags, PortId, WorkerId};
use wire::{Instant, LayoutFlags};

use super::hub::Hub;
use super::nat64::Translator;
use super::nptv6::Nptv6;
use super::report::Tally;
use super::routes::{Routes, facts};
use super::together::Member;
use super::{FileRules, Firewall, interface_id};
use crate::forwarding::Forwarding;

const IP4: EdgeId = EdgeId(0);
const IP6: EdgeId = EdgeId(1);
const OUT4: EdgeId = EdgeId(2);
const OUT6: EdgeId = EdgeId(3);
const EDGES: &[&str] = &["ip4", "ip6", "out4", "out6"];

/// How often a worker looks for connections that are over.
const SWEEP: Duration = Duration::from_millis(100);
/// Parts in which the tables are swept: all of them within 10 s.
const SWEEP_PARTS: usize = 100;

/// The firewall of one worker.
#[derive(Debug)]
pub struct FirewallNode {
    engine: Worker,
    worker: WorkerId,
    tallies: Arc<[Tally]>,
    hub: Arc<Hub>,
    rules: InForce,
    nat64: Option<Translator>,
    nptv6: Option<Nptv6>,
    forwarding: Arc<Forwarding>,
    member: Option<Member>,
    interfaces: Vec<InterfaceFacts>,
    sweep_at: Instant,
    sweep_slots: usize,
}

/// What says which packets pass.
#[derive(Debug)]
enum InForce {
    /// Connections from one side.
    Stateful(Stateful),
    /// The rules of a file, and this worker's part of them.
    File {
        rules: Arc<FileRules>,
        worker: RuleWorker,
        epoch: u32,
    },
}

type Frames = ArrayVec<Frame, BATCH_MAX>;

impl FirewallNode {
    /// Makes the node of a worker.
    ///
    /// # Errors
    /// If the tables were made for fewer workers.
    pub fn new(
        firewall: &Firewall,
        forwarding: Arc<Forwarding>,
        worker: WorkerId,
    ) -> Result<Self, GraphError> {
        let seed = forwarding.generation ^ u64::from(worker.0) << 32 ^ 0x7469_6465;
        let mut engine =
            Worker::new(Arc::clone(&firewall.tables), worker.0, seed).map_err(|_| {
                GraphError::TooManyNodes {
                    nodes: usize::from(worker.0),
                }
            })?;
        if let Some(guard) = &firewall.guard {
            engine.guard = guard.join(worker.index());
            set_guard(&mut engine, &forwarding);
        }
        let member = firewall.member.clone();
        let epoch = Firewall::epoch(member.as_ref(), forwarding.generation);
        let rules = match of_file(&forwarding, worker, epoch)? {
            Some(rules) => rules,
            None => InForce::Stateful(Stateful {
                inside: firewall.inside,
                masquerade: firewall.masquerade,
                random: false,
                epoch,
            }),
        };
        let full = || GraphError::TooManyNodes {
            nodes: usize::from(worker.0),
        };
        let nat64 = match &firewall.nat64 {
            Some(shared) => Some(Translator::join(shared).ok_or_else(full)?),
            None => None,
        };
        Ok(Self {
            engine,
            nat64,
            nptv6: firewall.nptv6,
            worker,
            tallies: Arc::clone(&firewall.tallies),
            hub: Arc::clone(&firewall.hub),
            rules,
            interfaces: facts(&forwarding),
            sweep_slots: firewall.tables.slots() / SWEEP_PARTS + 1,
            forwarding,
            member,
            sweep_at: Instant::ZERO,
        })
    }

    /// Judges frames that are all received, or all the node's own.
    fn judge(&mut self, now: Instant, frames: &mut Frames, own: bool, out: &mut Outlets) {
        let mut fates = [Fate::Consumed; BATCH_MAX];
        let mut items = ArrayVec::<Item<'_>, BATCH_MAX>::new();
        for frame in frames.iter_mut() {
            let iif = if own {
                InterfaceId::NONE
            } else {
                let id = self.forwarding.interface_of(frame.rx_port);
                id.map_or(InterfaceId::NONE, interface_id)
            };
            let layout = frame.layout;
            let item = Item {
                frame: frame.data_mut(),
                layout,
                iif,
                mark: 0,
            };
            // There are as many places as frames.
            let _ = items.try_push(item);
        }
        let env = Environment {
            now,
            unix_ns: 0,
            fib: &Routes {
                forwarding: &self.forwarding,
                nat64: self.nat64.as_ref().map(|nat64| &*nat64.shared),
            },
            interfaces: &self.interfaces,
        };
        let engine = &mut self.engine;
        match &mut self.rules {
            InForce::Stateful(rules) => run(engine, own, &env, rules, &mut items, &mut fates),
            InForce::File {
                rules,
                worker,
                epoch,
            } => {
                let mut rules = Judge {
                    ruleset: &rules.ruleset,
                    worker,
                    tracer: NoTrace,
                    epoch: *epoch,
                };
                run(engine, own, &env, &mut rules, &mut items, &mut fates);
            }
        }
        drop(items);
        let (v4, v6) = if own { (OUT4, OUT6) } else { (IP4, IP6) };
        for (mut frame, fate) in frames.drain(..).zip(fates) {
            if let (Fate::Accept, Some(nat64)) = (fate, &mut self.nat64)
                && let Err(reason) = nat64.inward(&mut frame)
            {
                out.drop(frame, reason);
                continue;
            }
            if let (Fate::Accept, Some(nptv6)) = (fate, &self.nptv6)
                && let Err(reason) = nptv6.leave(&mut frame, &self.forwarding)
            {
                out.drop(frame, reason);
                continue;
            }
            match fate {
                Fate::Accept if frame.layout.flags.contains(LayoutFlags::IPV4) => {
                    out.push(v4, frame);
                }
                Fate::Accept => out.push(v6, frame),
                Fate::Drop(reason) => out.drop(frame, reason),
                Fate::Consumed => out.consume(frame),
            }
        }
    }

    /// Sends what the engine wants sent. Without a free frame, it is lost, as if the link had lost it.
    fn send(&mut self, cx: &mut Context<'_>, out: &mut Outlets) {
        for emission in self.engine.outbox.emissions() {
            let Ok(layout) = wire::parse(emission.frame()) else {
                continue;
            };
            let Some(mut frame) = cx.pool.alloc() else {
                break;
            };
            if !frame.fill(emission.frame()) {
                cx.pool.free(frame);
                continue;
            }
            frame.layout = layout;
            frame.rx_port = port_of(&self.forwarding, emission.iif);
            if let Some(nat64) = &mut self.nat64
                && let Err(reason) = nat64.inward(&mut frame)
            {
                out.drop(frame, reason);
                continue;
            }
            if let Some(nptv6) = &self.nptv6
                && let Err(reason) = nptv6.leave(&mut frame, &self.forwarding)
            {
                out.drop(frame, reason);
                continue;
            }
            let layout = frame.layout;
            let is_v4 = layout.flags.contains(LayoutFlags::IPV4);
            let edge = match emission.way {
                Way::Forward | Way::Local if is_v4 => IP4,
                Way::Forward | Way::Local => IP6,
                Way::Output => {
                    frame.flags |= FrameFlags::LOCAL;
                    if is_v4 { OUT4 } else { OUT6 }
                }
            };
            out.push(edge, frame);
        }
        self.engine.outbox.clear();
    }

    /// Says that nothing of the tables is held, and removes what is over in `slots` of their slots.
    fn maintain(&mut self, now: Instant, slots: usize) {
        self.engine.maintain(now, slots);
        if let Some(nat64) = &mut self.nat64 {
            nat64.maintain(now, slots);
        }
        if let Some(tally) = self.tallies.get(self.worker.index()) {
            tally.publish(&self.engine.tally);
        }
        self.hub.collect(&mut self.engine);
        self.engine.watched = self.hub.is_watched();
        if let InForce::File { rules, worker, .. } = &mut self.rules {
            rules.ruleset.maintain(worker, now, slots);
            self.hub.collect_logs(&mut self.engine, rules);
        }
    }
}

/// A port of an interface.
fn port_of(forwarding: &Forwarding, interface: InterfaceId) -> PortId {
    let ports = forwarding.ports();
    let found = ports
        .iter()
        .position(|port| interface_id(port.interface) == interface);
    PortId(found.unwrap_or(0) as u16)
}

/// The rules of the snapshot's file, for one worker; `None` if it has none.
fn of_file(
    forwarding: &Forwarding,
    worker: WorkerId,
    epoch: u32,
) -> Result<Option<InForce>, GraphError> {
    let Some(rules) = &forwarding.rules else {
        return Ok(None);
    };
    let part = rules.ruleset.worker(usize::from(worker.0));
    let part = part.ok_or(GraphError::TooManyNodes {
        nodes: usize::from(worker.0),
    })?;
    Ok(Some(InForce::File {
        rules: Arc::clone(rules),
        worker: part,
        epoch,
    }))
}

/// Puts the snapshot's thresholds and blocklists in force.
fn set_guard(engine: &mut Worker, forwarding: &Forwarding) {
    if let (Some(guard), Some(settings)) = (&mut engine.guard, &forwarding.guard) {
        guard.set_policy(settings.policy);
        guard.set_blocklist(settings.blocklist.clone());
    }
}

/// Judges packets that came in, or the node's own.
fn run<R: Rules>(
    engine: &mut Worker,
    own: bool,
    env: &Environment<'_>,
    rules: &mut R,
    items: &mut [Item<'_>],
    fates: &mut [Fate],
) {
    if own {
        engine.output(env, rules, items, fates);
    } else {
        engine.process(env, rules, items, fates);
    }
}

impl Node for FirewallNode {
    fn name(&self) -> &str {
        "firewall"
    }

    fn edges(&self) -> &[&'static str] {
        EDGES
    }

    fn process(&mut self, cx: &mut Context<'_>, batch: &mut Batch, out: &mut Outlets) {
        let (mut received, mut own) = (Frames::new(), Frames::new());
        for mut frame in batch.drain() {
            let is_own = frame.flags.contains(FrameFlags::LOCAL);
            if let Some(nat64) = &mut self.nat64 {
                let own = is_own.then_some((&*self.forwarding, self.interfaces.as_slice()));
                if let Err(reason) = nat64.outward(&mut frame, own, cx.now) {
                    out.drop(frame, reason);
                    continue;
                }
            }
            if let Some(nptv6) = self.nptv6.filter(|_| !is_own) {
                let iif = self.forwarding.interface_of(frame.rx_port);
                let iif = iif.map_or(InterfaceId::NONE, interface_id);
                if let Err(reason) = nptv6.enter(&mut frame, iif, &self.forwarding) {
                    out.drop(frame, reason);
                    continue;
                }
            }
            let kind = if is_own { &mut own } else { &mut received };
            if let Err(full) = kind.try_push(frame) {
                // A batch has no more frames than this has places.
                out.consume(full.element());
            }
        }
        if !received.is_empty() {
            self.judge(cx.now, &mut received, false, out);
        }
        if !own.is_empty() {
            self.judge(cx.now, &mut own, true, out);
        }
        self.send(cx, out);
        // Nothing of the tables is held any more.
        self.maintain(cx.now, 0);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.sweep_at)
    }

    fn handle_timeout(&mut self, cx: &mut Context<'_>, out: &mut Outlets) {
        if cx.now >= self.sweep_at {
            self.sweep_at = cx.now + SWEEP;
            self.maintain(cx.now, self.sweep_slots);
            self.send(cx, out);
        }
    }

    fn reload(&mut self, _cx: &mut Context<'_>, snapshot: &Snapshot, _out: &mut Outlets) {
        if crate::adopt(&mut self.forwarding, snapshot) {
            self.interfaces = facts(&self.forwarding);
            set_guard(&mut self.engine, &self.forwarding);
            let epoch = Firewall::epoch(self.member.as_ref(), self.forwarding.generation);
            match of_file(&self.forwarding, self.worker, epoch) {
                Ok(Some(rules)) => self.rules = rules,
                // The same rules over other routes: the ruleset's one part of this worker is ours already.
                _ => match &mut self.rules {
                    InForce::Stateful(rules) => rules.epoch = epoch,
                    InForce::File { epoch: known, .. } => *known = epoch,
                },
            }
        }
    }
}
