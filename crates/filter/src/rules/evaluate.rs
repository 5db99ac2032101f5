//! Running a base chain over a packet: first match wins, statements act in order, nothing allocates.

use arrayvec::ArrayVec;
use core::sync::atomic::AtomicU64;
use tables::counters::CounterRow;
use tables::slots::SlotWorker;
use wire::FlowKey;

use super::key::{KEY_PARTS_MAX, PackedKey};
use super::program::{
    Action, ChainId, Key, Nat, NatSource, Object, Op, RejectWith, Rule, SetId, Update, Value,
};
use super::set::{Data, Element, Set};
use super::trace::Tracer;
use super::{Chain, Ruleset};
use crate::packet::{CtState, Family, Packet};
use crate::verdict::{Changes, Effects, LogRecord, NatRequest, Reject, RuleId, Verdict};

/// Calls within calls, as the kernel; a ruleset that needs more does not compile.
pub const DEPTH_MAX: usize = 16;

/// Dynamic sets of one ruleset at most.
pub const DYNAMIC_SETS_MAX: usize = 64;

/// What a worker brings to evaluations: its counters and its places in the sets that packets fill.
#[derive(Debug)]
pub struct RuleWorker {
    pub(super) counters: CounterRow,
    /// By set.
    pub(super) sets: alloc::vec::Vec<Option<SlotWorker>>,
    pub(super) swept: usize,
}

/// How a rule or chain ended.
enum End {
    /// On with the next rule.
    Next,
    /// Back to the caller.
    Return,
    /// A base chain's verdict.
    Verdict(Verdict),
}

/// Chooses the rules of a chain that are tried.
trait Walk {
    const CLASSIFIED: bool;
}

/// By the classifier.
#[derive(Debug)]
struct Classified;
impl Walk for Classified {
    const CLASSIFIED: bool = true;
}

/// One after another, with all their tests: the reference.
#[derive(Debug)]
struct OneByOne;
impl Walk for OneByOne {
    const CLASSIFIED: bool = false;
}

struct Run<'r, 'p, 'f, T> {
    ruleset: &'r Ruleset,
    packet: &'p mut Packet<'f>,
    effects: &'p mut Effects,
    worker: &'p mut RuleWorker,
    tracer: &'p mut T,
    bytes: u64,
}

impl Ruleset {
    /// Runs a base chain over a packet.
    ///
    /// The verdict is the chain's: [`Verdict::Accept`] sends the packet on to the next chain of the hook. Cost:
    /// a few nanoseconds a field that the chain's rules test, and the rules that remain; no allocation.
    pub fn evaluate<T: Tracer>(
        &self,
        chain: ChainId,
        packet: &mut Packet<'_>,
        effects: &mut Effects,
        worker: &mut RuleWorker,
        tracer: &mut T,
    ) -> Verdict {
        self.run::<Classified, T>(chain, packet, effects, worker, tracer)
    }

    /// Does what [`evaluate`](Self::evaluate) does, rule by rule without classifiers: the reference that tests
    /// compare with.
    pub fn evaluate_one_by_one<T: Tracer>(
        &self,
        chain: ChainId,
        packet: &mut Packet<'_>,
        effects: &mut Effects,
        worker: &mut RuleWorker,
        tracer: &mut T,
    ) -> Verdict {
        self.run::<OneByOne, T>(chain, packet, effects, worker, tracer)
    }

    fn run<W: Walk, T: Tracer>(
        &self,
        chain: ChainId,
        packet: &mut Packet<'_>,
        effects: &mut Effects,
        worker: &mut RuleWorker,
        tracer: &mut T,
    ) -> Verdict {
        let bytes = u64::from(packet.layout.packet_bytes());
        let policy_drop = self.policy_drop(chain);
        let mut run = Run {
            ruleset: self,
            packet,
            effects,
            worker,
            tracer,
            bytes,
        };
        let verdict = match run.chain::<W>(chain, 0) {
            End::Verdict(verdict) => verdict,
            End::Next | End::Return => {
                run.effects.rule = Some(RuleId::POLICY);
                if policy_drop {
                    Verdict::Drop
                } else {
                    Verdict::Accept
                }
            }
        };
        let rule = effects.rule.unwrap_or(RuleId::POLICY);
        tracer.verdict(&verdict, rule);
        verdict
    }
}

impl<'r, T: Tracer> Run<'r, '_, '_, T> {
    fn chain<W: Walk>(&mut self, id: ChainId, depth: usize) -> End {
        let ruleset = self.ruleset;
        let Some(chain) = ruleset.chains.get(id.0 as usize) else {
            return End::Return;
        };
        // Compilation refuses deeper calls.
        if depth > DEPTH_MAX {
            return End::Verdict(Verdict::Drop);
        }
        self.tracer.chain(id);
        let end = match &chain.classifier {
            Some(classifier) if W::CLASSIFIED => {
                if classifier.per_packet {
                    self.effects.changes |= Changes::PER_PACKET;
                }
                let mut values = [None; super::classify::DIMENSIONS_MAX];
                for (value, field) in values.iter_mut().zip(&classifier.fields) {
                    *value = field.load(self.packet, &ruleset.interfaces);
                }
                let mut end = End::Next;
                classifier.classes.candidates(&values, |at| {
                    let Some(rule) = chain.rules.get(at as usize) else {
                        return false;
                    };
                    end = self.steps::<W>(rule, rule.rest.iter().copied(), depth);
                    matches!(end, End::Next)
                });
                end
            }
            _ => self.all_rules::<W>(chain, depth),
        };
        match end {
            End::Verdict(_) => end,
            End::Next | End::Return => End::Return,
        }
    }

    fn all_rules<W: Walk>(&mut self, chain: &Chain, depth: usize) -> End {
        for rule in &chain.rules {
            let end = self.steps::<W>(rule, 0..rule.ops.len() as u16, depth);
            if !matches!(end, End::Next) {
                return end;
            }
        }
        End::Next
    }

    #[inline]
    fn steps<W: Walk>(
        &mut self,
        rule: &Rule,
        steps: impl Iterator<Item = u16>,
        depth: usize,
    ) -> End {
        self.tracer.rule(rule.id);
        for step in steps {
            let Some(op) = rule.ops.get(usize::from(step)) else {
                continue;
            };
            if (rule.per_packet >> step.min(63)) & 1 != 0 {
                self.effects.changes |= Changes::PER_PACKET;
            }
            match self.step(rule, op) {
                Step::Go => {}
                Step::Mismatch => {
                    self.tracer.mismatch(step);
                    return End::Next;
                }
                Step::Verdict(verdict) => {
                    self.effects.rule = Some(rule.id);
                    return End::Verdict(verdict);
                }
                Step::Action(action) => {
                    self.tracer.action(action);
                    match action {
                        Action::Continue => {}
                        Action::Accept | Action::Drop => {
                            self.effects.rule = Some(rule.id);
                            let drop = action == Action::Drop;
                            return End::Verdict(if drop {
                                Verdict::Drop
                            } else {
                                Verdict::Accept
                            });
                        }
                        Action::Return => return End::Return,
                        Action::Jump(chain) => {
                            if let End::Verdict(verdict) = self.chain::<W>(chain, depth + 1) {
                                return End::Verdict(verdict);
                            }
                        }
                        Action::Goto(chain) => return self.chain::<W>(chain, depth + 1),
                    }
                }
            }
        }
        End::Next
    }

    #[inline]
    fn step(&mut self, rule: &Rule, op: &Op) -> Step {
        match op {
            Op::Test(value, test) => match self.value(value) {
                Some(value) if test.holds(value) => Step::Go,
                _ => Step::Mismatch,
            },
            Op::Lookup { key, set, negate } => match self.lookup(key, *set) {
                Some(Found::Yes(matches)) if !negate => go(matches),
                Some(Found::No) if *negate => Step::Go,
                _ => Step::Mismatch,
            },
            Op::Object(object) => self.object(*object),
            Op::Action(action) => Step::Action(*action),
            Op::Vmap { key, set } => match self.element(key, *set) {
                Some(Element {
                    data: Data::Action(action),
                    ..
                }) => Step::Action(*action),
                _ => Step::Mismatch,
            },
            Op::Log(statement) => {
                let record = LogRecord {
                    rule: rule.id,
                    statement: *statement,
                };
                if self.effects.logs.try_push(record).is_err() {
                    self.effects.logs_lost = self.effects.logs_lost.saturating_add(1);
                }
                Step::Go
            }
            _ => self.rare_step(rule, op),
        }
    }

    fn rare_step(&mut self, rule: &Rule, op: &Op) -> Step {
        match op {
            Op::ObjectMap { key, set } => match self.element(key, *set) {
                Some(Element {
                    data: Data::Object(object),
                    ..
                }) => self.object(*object),
                _ => Step::Mismatch,
            },
            Op::Reject(with) => self.reject(*with),
            Op::Nat(nat) => match self.nat(nat, rule.id) {
                Some(request) => Step::Verdict(Verdict::Nat(request)),
                None => Step::Mismatch,
            },
            Op::Store(field, value) => match self.value(value) {
                Some(value) if field.store(self.packet, self.effects, value) => Step::Go,
                _ => Step::Mismatch,
            },
            Op::Notrack => {
                // What is tracked already stays so.
                if !self.packet.ct.tracked {
                    self.packet.ct.state = CtState::UNTRACKED;
                    self.effects.changes |= Changes::NOTRACK;
                }
                Step::Go
            }
            Op::Offload => {
                self.effects.changes |= Changes::OFFLOAD;
                Step::Go
            }
            Op::Forward(to) => Step::Verdict(Verdict::Forward(*to)),
            Op::Copy(to) => {
                let _ = self.effects.copies.try_push(*to);
                Step::Go
            }
            Op::Update {
                update,
                set,
                key,
                data,
                timeout_ns,
                ops,
            } => {
                let Some(packed) = self.packed(key) else {
                    return Step::Mismatch;
                };
                let data = match data {
                    Some(data) => match self.value(data) {
                        Some(data) => data,
                        None => return Step::Mismatch,
                    },
                    None => 0,
                };
                go(self.update(*update, *set, &packed, data, *timeout_ns, ops))
            }
            _ => Step::Go,
        }
    }

    fn update(
        &mut self,
        update: Update,
        set: SetId,
        key: &PackedKey,
        data: u128,
        timeout_ns: Option<u64>,
        ops: &[super::program::ElementOp],
    ) -> bool {
        let now_ns = self.packet.now.as_ns();
        let Some(set_ref) = self.ruleset.sets.get(set.0 as usize) else {
            return false;
        };
        let place = self
            .worker
            .sets
            .get_mut(set.0 as usize)
            .and_then(Option::as_mut);
        let Some((dynamic, worker)) = set_ref.as_dynamic().zip(place) else {
            return false;
        };
        if update == Update::Remove {
            dynamic.remove(worker, key);
            return true;
        }
        let refresh = update == Update::Refresh;
        match dynamic.add(worker, key, data, timeout_ns, refresh, now_ns) {
            Some(element) => {
                let ops = if ops.is_empty() {
                    &set_ref.element_ops
                } else {
                    ops
                };
                dynamic.run(element, ops, self.bytes, now_ns)
            }
            None => false,
        }
    }

    fn object(&mut self, object: Object) -> Step {
        match object {
            Object::Counter(counter) => {
                self.worker.counters.add(counter as usize * 2, 1);
                self.worker
                    .counters
                    .add(counter as usize * 2 + 1, self.bytes);
                Step::Go
            }
            Object::Limit(limit) => {
                let now_ns = self.packet.now.as_ns();
                let limit: Option<&(super::state::Limit, AtomicU64)> =
                    self.ruleset.shared.limits.get(limit as usize);
                go(limit.is_none_or(|(limit, bucket)| limit.matches(bucket, now_ns, self.bytes)))
            }
            Object::Quota(quota) => {
                let quota = self.ruleset.shared.quotas.get(quota as usize);
                go(quota.is_none_or(|quota| quota.matches(self.bytes)))
            }
            Object::Helper { helper, protocol } => {
                if self.packet.ct.tracked && self.packet.layout.protocol == protocol {
                    self.packet.ct.helper = helper;
                    self.effects.changes |= Changes::CT_HELPER;
                }
                Step::Go
            }
            Object::Synproxy(options) => {
                if self.packet.layout.protocol != wire::ip_protocol::TCP {
                    return Step::Mismatch;
                }
                match self.ruleset.synproxies.get(options as usize) {
                    Some(options) => Step::Verdict(Verdict::Synproxy(*options)),
                    None => Step::Go,
                }
            }
        }
    }

    fn reject(&self, with: RejectWith) -> Step {
        Step::Verdict(match (with, Family::of(&self.packet.layout)) {
            (RejectWith::Fixed(reject), _) => Verdict::Reject(reject),
            (RejectWith::ByFamily { icmp, .. }, Some(Family::Ip)) => {
                Verdict::Reject(Reject::Icmp(icmp))
            }
            (RejectWith::ByFamily { icmpv6, .. }, Some(Family::Ip6)) => {
                Verdict::Reject(Reject::Icmpv6(icmpv6))
            }
            _ => Verdict::Drop,
        })
    }

    fn nat(&mut self, nat: &Nat, rule: RuleId) -> Option<NatRequest> {
        let address = |value: u128| {
            let mapped = if nat.ipv6 {
                value
            } else {
                value & 0xffff_ffff | 0xffff << 32
            };
            mapped.to_be_bytes()
        };
        let addresses = match &nat.address {
            Some(source) => {
                let (low, high) = self.nat_source(source)?;
                Some((address(low), address(high)))
            }
            None => None,
        };
        let ports = match &nat.port {
            Some(source) => {
                let (low, high) = self.nat_source(source)?;
                Some((low as u16, high as u16))
            }
            None => None,
        };
        Some(NatRequest {
            kind: nat.kind,
            flags: nat.flags,
            addresses,
            ports,
            rule,
        })
    }

    fn nat_source(&mut self, source: &NatSource) -> Option<(u128, u128)> {
        match source {
            NatSource::Range(low, high) => Some((self.value(low)?, self.value(high)?)),
            NatSource::Map { key, set, part } => match self.element(key, *set)? {
                Element {
                    data: Data::Values(values),
                    ..
                } => values.get(usize::from(*part)).copied(),
                _ => None,
            },
        }
    }

    #[inline]
    fn value(&mut self, value: &Value) -> Option<u128> {
        match value {
            Value::Field(field) => field.load(self.packet, &self.ruleset.interfaces),
            Value::Const(constant) => Some(*constant),
            Value::Binary(operator, sides) => {
                let left = self.value(&sides.0)?;
                let right = self.value(&sides.1)?;
                Some(operator.apply(left, right))
            }
            _ => self.rare_value(value),
        }
    }

    fn rare_value(&mut self, value: &Value) -> Option<u128> {
        let reduce =
            |hash: u32, modulus: u32| ((u64::from(hash) * u64::from(modulus)) >> 32) as u32;
        let number = match value {
            Value::Map(key, set) => {
                let dynamic = self
                    .ruleset
                    .sets
                    .get(set.0 as usize)
                    .and_then(|set| set.as_dynamic());
                if let Some(dynamic) = dynamic {
                    let packed = self.packed(key)?;
                    let element = dynamic.find(&packed, self.packet.now.as_ns())?;
                    return dynamic.data(element);
                }
                return match self.element(key, *set)? {
                    Element {
                        data: Data::Values(values),
                        ..
                    } => values.first().map(|range| range.0),
                    _ => None,
                };
            }
            Value::Hash {
                key,
                modulus,
                seed,
                offset,
            } => {
                let packed = self.packed(key)?;
                let hash = tables::signature::Keyed::new([u64::from(*seed), 1, 2, 3])
                    .hash_words(&packed.words());
                reduce(hash as u32, *modulus).wrapping_add(*offset)
            }
            Value::FlowHash { modulus, offset } => {
                let key = FlowKey::from_layout(&self.packet.layout, self.packet.frame)?;
                let secret = &self.ruleset.flow_secret;
                reduce(wire::flow_hash(&key, secret) as u32, *modulus).wrapping_add(*offset)
            }
            Value::Count {
                generator,
                modulus,
                offset,
            } => self
                .ruleset
                .shared
                .next(*generator, *modulus)
                .wrapping_add(*offset),
            Value::Draw { modulus, offset } => {
                // Stirred, so that several draws for one packet differ.
                self.packet.random =
                    self.packet.random.wrapping_mul(0x9e37_79b1).rotate_left(15) ^ 0x85eb_ca6b;
                reduce(self.packet.random, *modulus).wrapping_add(*offset)
            }
            Value::Field(_) | Value::Const(_) | Value::Binary(..) => return None,
        };
        Some(number.into())
    }

    fn packed(&mut self, key: &Key) -> Option<PackedKey> {
        let mut packed = PackedKey::default();
        for (value, bits) in &key.parts {
            let number = self.value(value)?;
            packed.push(number, *bits);
        }
        Some(packed)
    }

    /// Asks a set; `None` if the packet lacks a part of the key.
    #[inline]
    fn lookup(&mut self, key: &Key, id: SetId) -> Option<Found> {
        let set = self.ruleset.sets.get(id.0 as usize)?;
        if let Some(dynamic) = set.as_dynamic() {
            let packed = self.packed(key)?;
            let found = dynamic.find(&packed, self.packet.now.as_ns());
            self.tracer.lookup(id, found.map(|_| u32::MAX));
            return Some(match found {
                Some(element) => Found::Yes(dynamic.run(
                    element,
                    &set.element_ops,
                    self.bytes,
                    self.packet.now.as_ns(),
                )),
                None => Found::No,
            });
        }
        Some(match self.find(set, key, id)? {
            Some(element) => Found::Yes(self.touch(element)),
            None => Found::No,
        })
    }

    /// Finds the element of a set that packets do not fill, if it has not expired; the outer `None` if the packet
    /// lacks a part of the key.
    #[inline]
    fn find(&mut self, set: &'r Set, key: &Key, id: SetId) -> Option<Option<&'r Element>> {
        let mut parts = ArrayVec::<u128, KEY_PARTS_MAX>::new();
        for (value, _) in &key.parts {
            let number = self.value(value)?;
            parts.try_push(number).ok()?;
        }
        let at = set.find(&parts);
        let element = at
            .and_then(|at| set.element(at))
            .filter(|element| self.is_alive(element));
        self.tracer.lookup(id, at.filter(|_| element.is_some()));
        Some(element)
    }

    fn is_alive(&self, element: &Element) -> bool {
        element.timeout_ns.is_none_or(|timeout| {
            self.packet
                .now
                .saturating_since(self.ruleset.loaded_at)
                .as_nanos()
                < u128::from(timeout)
        })
    }

    /// Runs the element's own counter, limits and quotas; false if one of them ends the rule.
    fn touch(&mut self, element: &Element) -> bool {
        if let Some(counter) = element.counter {
            self.object(Object::Counter(counter));
        }
        element
            .objects
            .iter()
            .all(|object| matches!(self.object(*object), Step::Go))
    }

    /// Finds the element of a map that does not change.
    #[inline]
    fn element(&mut self, key: &Key, id: SetId) -> Option<&'r Element> {
        let ruleset = self.ruleset;
        let set = ruleset.sets.get(id.0 as usize)?;
        let element = self.find(set, key, id)??;
        self.touch(element).then_some(element)
    }
}

/// What a set says of a key.
enum Found {
    /// It is there; false if the element's own statements end the rule.
    Yes(bool),
    /// It is not.
    No,
}

/// What follows a step.
enum Step {
    Go,
    Mismatch,
    Action(Action),
    Verdict(Verdict),
}

fn go(matches: bool) -> Step {
    if matches { Step::Go } else { Step::Mismatch }
}
