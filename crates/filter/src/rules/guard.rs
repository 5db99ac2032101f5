//! Which tests of a rule a classifier can make for it.
//!
//! A rule's guard is what its leading steps that only look say about single fields. It may accept more than the
//! rule does (the rule's own test then stays), never less. Fields that the chain, or one that it calls, writes
//! are left out: their value may have changed by the time the rule's turn comes.

use alloc::vec;
use alloc::vec::Vec;

use super::classify::{Classes, Classifier, DIMENSIONS_MAX, Ranges, merged};
use super::field::{CtKey, Field, MetaKey};
use super::program::{Action, ChainId, Key, Op, Operator, Rule, SetId, Test, Value};
use super::set::{Data, Set};
use super::{Chain, Ruleset};

/// Elements of a set that are taken into a classifier.
const ELEMENTS_MAX: usize = 1024;
/// Ranges that a test may fall into.
const RANGES_MAX: usize = 4096;
/// Rules that must test a field which changes from packet to packet before it is classified by: from then on no
/// verdict of the chain may be replayed for a flow.
const PER_PACKET_MIN: usize = 32;
/// Rules from which on a classifier pays.
pub(super) const RULES_MIN: usize = 5;

/// What one step says of one field.
struct Guard {
    field: Field,
    ranges: Ranges,
    /// The ranges say it all: the step need not run.
    exact: bool,
}

/// Makes the classifiers of all chains, and the rest of each rule that is left to run.
pub(super) fn classify(ruleset: &mut Ruleset) {
    let written: Vec<Vec<Field>> = (0..ruleset.chains.len())
        .map(|at| written_by(ruleset, at))
        .collect();
    let mut chains = core::mem::take(&mut ruleset.chains);
    for (chain, written) in chains.iter_mut().zip(&written) {
        classify_chain(chain, &ruleset.sets, written);
    }
    ruleset.chains = chains;
}

fn classify_chain(chain: &mut Chain, sets: &[Set], written: &[Field]) {
    for rule in &mut chain.rules {
        rule.rest = (0..rule.ops.len() as u16).collect();
        for (at, op) in rule.ops.iter().enumerate() {
            if is_per_packet(op, sets) {
                rule.per_packet |= 1 << at.min(63);
            }
        }
    }
    if chain.rules.len() < RULES_MIN {
        return;
    }
    let guards: Vec<Vec<(u16, Guard)>> = chain
        .rules
        .iter()
        .map(|rule| guards_of(rule, sets, written))
        .collect();
    let fields = best_fields(&guards);
    if fields.is_empty() {
        return;
    }
    let mut dimensions: Vec<(u16, Vec<Option<Ranges>>)> = fields
        .iter()
        .map(|field| (field.bits(), vec![None; chain.rules.len()]))
        .collect();
    for (at, (rule, guards)) in chain.rules.iter_mut().zip(guards).enumerate() {
        for (op, guard) in guards {
            let Some(dimension) = fields.iter().position(|field| *field == guard.field) else {
                continue;
            };
            let Some(slot) = dimensions
                .get_mut(dimension)
                .and_then(|(_, rules)| rules.get_mut(at))
            else {
                continue;
            };
            *slot = Some(match slot.take() {
                Some(before) => intersect(&before, &guard.ranges),
                None => guard.ranges,
            });
            if guard.exact {
                rule.rest.retain(|step| *step != op);
            }
        }
    }
    let per_packet = fields.iter().any(|field| !field.is_of_flow());
    chain.classifier = Some(Classifier {
        per_packet,
        fields,
        classes: Classes::new(&dimensions, chain.rules.len()),
    });
}

/// True if what a step does may differ from packet to packet of a flow, or leaves something behind.
fn is_per_packet(op: &Op, sets: &[Set]) -> bool {
    let is_fixed = |set: &SetId| {
        sets.get(set.0 as usize)
            .is_some_and(|set| set.as_dynamic().is_none() && !set.has_state())
    };
    match op {
        // Whether addresses are translated is settled with the connection; other bits come and go.
        Op::Test(
            Value::Field(Field::Ct {
                key: CtKey::Status, ..
            }),
            Test::Any(mask) | Test::NoneOf(mask),
        ) => mask & !0x31 != 0,
        Op::Test(value, _) => !value.is_of_flow(),
        Op::Lookup { key, set, .. } | Op::Vmap { key, set } => !key.is_of_flow() || !is_fixed(set),
        Op::Action(_) | Op::Reject(_) | Op::Offload | Op::Nat(_) => false,
        _ => true,
    }
}

/// The fields that most rules test.
fn best_fields(guards: &[Vec<(u16, Guard)>]) -> Vec<Field> {
    let mut counts: Vec<(Field, usize)> = Vec::new();
    for (_, guard) in guards.iter().flatten() {
        match counts.iter_mut().find(|(field, _)| *field == guard.field) {
            Some((_, count)) => *count += 1,
            None => counts.push((guard.field, 1)),
        }
    }
    counts.sort_by_key(|(_, count)| core::cmp::Reverse(*count));
    counts.retain(|(field, count)| field.is_of_flow() || *count >= PER_PACKET_MIN);
    counts
        .into_iter()
        .take(DIMENSIONS_MAX)
        .map(|(field, _)| field)
        .collect()
}

fn guards_of(rule: &Rule, sets: &[Set], written: &[Field]) -> Vec<(u16, Guard)> {
    let mut guards = Vec::new();
    for (at, op) in rule.ops.iter().enumerate() {
        match op {
            Op::Test(value, test) => {
                if let Some(guard) = guard_of_test(value, *test) {
                    guards.push((at as u16, guard));
                }
            }
            Op::Lookup { key, set, negate } => {
                guards_of_lookup(key, *set, *negate, sets, |guard| {
                    guards.push((at as u16, guard))
                })
            }
            // A verdict map that has nothing for the packet ends the rule.
            Op::Vmap { key, set } => {
                guards_of_lookup(key, *set, false, sets, |guard| {
                    guards.push((
                        at as u16,
                        Guard {
                            exact: false,
                            ..guard
                        },
                    ))
                });
            }
            _ => {}
        }
        if !op.is_pure() {
            break;
        }
    }
    guards.retain(|(_, guard)| {
        guard.field.is_cheap() && !written.iter().any(|field| overlap(*field, guard.field))
    });
    guards
}

fn max_of(bits: u16) -> u128 {
    if bits >= 128 {
        u128::MAX
    } else {
        (1 << bits) - 1
    }
}

fn guard_of_test(value: &Value, test: Test) -> Option<Guard> {
    match value {
        Value::Field(field) => {
            let ranges = ranges_of_test(test, *field)?;
            Some(Guard {
                field: *field,
                ranges,
                exact: true,
            })
        }
        Value::Binary(..) => {
            let field = single_field(value)?;
            let bits = field.bits();
            if bits <= 16 {
                let ranges = enumerate(bits, |number| {
                    compute(value, number).is_some_and(|result| test.holds(result))
                })?;
                return Some(Guard {
                    field,
                    ranges,
                    exact: true,
                });
            }
            prefix_guard(value, test, field)
        }
        _ => None,
    }
}

/// `field & prefix-mask == value` is a range.
fn prefix_guard(value: &Value, test: Test, field: Field) -> Option<Guard> {
    let Value::Binary(Operator::And, sides) = value else {
        return None;
    };
    let (Value::Field(_), Value::Const(mask)) = (&sides.0, &sides.1) else {
        return None;
    };
    let max = max_of(field.bits());
    let host = max & !mask;
    let is_prefix = (host & host.wrapping_add(1)) == 0 && mask & !max == 0;
    match test {
        Test::In(low, high) if is_prefix && low == high => {
            let ranges = if low & host == 0 && low <= max {
                vec![(low, low | host)]
            } else {
                Vec::new()
            };
            Some(Guard {
                field,
                ranges,
                exact: true,
            })
        }
        _ => None,
    }
}

fn ranges_of_test(test: Test, field: Field) -> Option<Ranges> {
    let max = max_of(field.bits());
    match test {
        Test::In(low, high) if low <= high => Some(vec![(low.min(max), high.min(max))])
            .filter(|_| low <= max)
            .or(Some(Vec::new())),
        Test::In(..) => Some(Vec::new()),
        Test::NotIn(low, high) => Some(complement(&[(low, high)], max)),
        Test::Any(_) | Test::NoneOf(_) if field.bits() <= 16 => {
            enumerate(field.bits(), |number| test.holds(number))
        }
        _ => None,
    }
}

/// The ranges of numbers of up to 16 bits that a test accepts.
fn enumerate(bits: u16, accepts: impl Fn(u128) -> bool) -> Option<Ranges> {
    let mut ranges: Ranges = Vec::new();
    for number in 0..=max_of(bits) {
        if !accepts(number) {
            continue;
        }
        match ranges.last_mut() {
            Some(last) if last.1 + 1 == number => last.1 = number,
            _ => ranges.push((number, number)),
        }
    }
    (ranges.len() <= RANGES_MAX).then_some(ranges)
}

fn complement(ranges: &[(u128, u128)], max: u128) -> Ranges {
    let mut gaps = Vec::new();
    let mut next = Some(0);
    for (low, high) in merged(ranges) {
        if let Some(start) = next
            && start < low
        {
            gaps.push((start, (low - 1).min(max)));
        }
        next = high.checked_add(1).filter(|next| *next <= max);
    }
    if let Some(start) = next {
        gaps.push((start, max));
    }
    gaps
}

fn intersect(left: &[(u128, u128)], right: &[(u128, u128)]) -> Ranges {
    let mut both = Vec::new();
    for (low, high) in merged(left) {
        for (other_low, other_high) in merged(right) {
            let (low, high) = (low.max(other_low), high.min(other_high));
            if low <= high {
                both.push((low, high));
            }
        }
    }
    both
}

/// The one field that a computed number depends on.
fn single_field(value: &Value) -> Option<Field> {
    match value {
        Value::Field(field) => Some(*field),
        Value::Binary(_, sides) => match (single_field(&sides.0), &sides.1) {
            (Some(field), Value::Const(_)) => Some(field),
            _ => None,
        },
        _ => None,
    }
}

fn compute(value: &Value, number: u128) -> Option<u128> {
    match value {
        Value::Field(_) => Some(number),
        Value::Const(constant) => Some(*constant),
        Value::Binary(operator, sides) => {
            Some(operator.apply(compute(&sides.0, number)?, compute(&sides.1, number)?))
        }
        _ => None,
    }
}

/// What a lookup in a set that does not change says of each part of its key.
fn guards_of_lookup(
    key: &Key,
    set: SetId,
    negate: bool,
    sets: &[Set],
    mut push: impl FnMut(Guard),
) {
    let Some(set) = sets.get(set.0 as usize) else {
        return;
    };
    let usable = set.as_dynamic().is_none() && !set.has_state() && !set.matches_all();
    if !usable || set.elements.len() > ELEMENTS_MAX {
        return;
    }
    let is_single = key.parts.len() == 1;
    if negate && !is_single {
        return;
    }
    let is_map = set
        .elements
        .iter()
        .any(|element| element.data != Data::None);
    for (part, (value, _)) in key.parts.iter().enumerate() {
        let Value::Field(field) = value else {
            continue;
        };
        let ranges: Ranges = set
            .elements
            .iter()
            .filter_map(|element| element.key.get(part).copied())
            .collect();
        let ranges = if negate {
            complement(&ranges, max_of(field.bits()))
        } else {
            merged(&ranges)
        };
        push(Guard {
            field: *field,
            ranges,
            exact: is_single && !is_map,
        });
    }
}

/// Fields that a chain, or one that it calls, writes.
fn written_by(ruleset: &Ruleset, chain: usize) -> Vec<Field> {
    let mut seen = vec![false; ruleset.chains.len()];
    let mut pending = vec![chain];
    let mut written = Vec::new();
    while let Some(at) = pending.pop() {
        let Some(place) = seen.get_mut(at) else {
            continue;
        };
        if core::mem::replace(place, true) {
            continue;
        }
        for op in ruleset
            .chains
            .get(at)
            .iter()
            .flat_map(|chain| &chain.rules)
            .flat_map(|rule| &rule.ops)
        {
            match op {
                Op::Store(field, _) => written.push(*field),
                Op::Notrack => {
                    written.push(Field::Ct {
                        key: CtKey::State,
                        direction: None,
                    });
                }
                Op::Action(action) => pending.extend(target(*action)),
                Op::Vmap { set, .. } => {
                    let set = ruleset.sets.get(set.0 as usize);
                    pending.extend(set.iter().flat_map(|set| &set.elements).filter_map(
                        |element| match element.data {
                            Data::Action(action) => target(action),
                            _ => None,
                        },
                    ));
                }
                _ => {}
            }
        }
    }
    written
}

pub(super) fn target(action: Action) -> Option<usize> {
    match action {
        Action::Jump(ChainId(chain)) | Action::Goto(ChainId(chain)) => Some(chain as usize),
        _ => None,
    }
}

/// True if writing one field may change the other.
fn overlap(written: Field, read: Field) -> bool {
    match (written, read) {
        (
            Field::Payload { base, offset, bits },
            Field::Payload {
                base: other,
                offset: at,
                bits: width,
            },
        ) => base != other || (offset < at + width && at < offset + bits),
        // Raw writes may hit anything behind the headers, and checksums change with any write.
        (Field::Payload { .. }, Field::TcpOption { .. } | Field::ExtHdr { .. }) => true,
        (
            Field::Payload {
                base: super::field::Base::Link | super::field::Base::Vlan,
                ..
            },
            Field::Meta(MetaKey::Protocol),
        ) => true,
        (Field::Ct { key, .. }, Field::Ct { key: other, .. }) => {
            key == other || other == CtKey::State
        }
        _ => written == read,
    }
}
