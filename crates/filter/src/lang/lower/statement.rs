//! Statements of rules.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::super::ast::{
    DynOp, Element, Expr, ExprKind, LimitAst, LogAst, ObjectRef, RejectAst, RelOp, Stmt, StmtKind,
    SynproxyAst, VerdictAst,
};
use super::super::datatype::DataType;
use super::super::selector::Selector;
use super::super::span::{LangError, Span};
use super::constant::single;
use super::set::widths;
use super::value::{check_key, unsupported};
use super::{DataKind, Lower, Lowered, Scope, SetTypes};
use crate::packet::{Family, InterfaceId};
use crate::rules::field::{CtKey, Field, MetaKey};
use crate::rules::program::{
    Action, ChainId, Key, LogInfo, Object, Op, RejectWith, Test, Update, Value,
};
use crate::rules::set::Set;
use crate::rules::state::{Limit, Quota};
use crate::verdict::{Reject, Synproxy};

impl Lower<'_> {
    pub(super) fn statement(&mut self, scope: &mut Scope, stmt: &Stmt) -> Lowered<()> {
        let span = stmt.span;
        match &stmt.kind {
            StmtKind::Match { left, op, right } => self.relation(scope, left, *op, right)?,
            StmtKind::Verdict(verdict) => {
                let action = self.action(scope, verdict, span)?;
                scope.ops.push(Op::Action(action));
            }
            StmtKind::Vmap { key, map } => {
                let (key, set, _) = self.map(scope, key, map, &DataKind::Verdict)?;
                scope.ops.push(Op::Vmap { key, set });
            }
            StmtKind::Counter { packets, bytes } => {
                let counter = self.new_counter(*packets, *bytes);
                scope.counter.get_or_insert(counter);
                scope.ops.push(Op::Object(Object::Counter(counter)));
            }
            StmtKind::Limit(limit) => {
                let limit = self.new_limit(limit);
                scope.ops.push(Op::Object(Object::Limit(limit)));
            }
            StmtKind::Quota(quota) => {
                self.parts
                    .shared
                    .quotas
                    .push(Quota::new(quota.bytes, quota.used, quota.over));
                scope.ops.push(Op::Object(Object::Quota(
                    self.parts.shared.quotas.len() as u32 - 1,
                )));
            }
            StmtKind::CounterRef(object) => self.object_ref(scope, object, "counter", span)?,
            StmtKind::LimitRef(object) => self.object_ref(scope, object, "limit", span)?,
            StmtKind::QuotaRef(object) => self.object_ref(scope, object, "quota", span)?,
            StmtKind::SynproxyRef(object) => self.object_ref(scope, object, "synproxy", span)?,
            StmtKind::CtObject { kind, object } if kind == "helper" => {
                self.object_ref(scope, object, "ct helper", span)?
            }
            StmtKind::CtObject { kind, .. } => {
                return Err(unsupported(span, &format!("ct {kind} set")));
            }
            StmtKind::ConnLimit { .. } => {
                return Err(LangError::new(span, "`ct count` is not supported")
                    .remedy("limit connections a source in the node's guard, or new connections with a dynamic set and `limit`"));
            }
            StmtKind::Last => return Err(unsupported(span, "last")),
            StmtKind::Log(log) => {
                let log = self.new_log(log_info(log));
                scope.ops.push(Op::Log(log));
            }
            StmtKind::Reject(reject) => self.reject(scope, reject, span)?,
            StmtKind::Nat { .. } => self.nat(scope, &stmt.kind, span)?,
            StmtKind::Mangle { target, value } => self.mangle(scope, target, value, span)?,
            StmtKind::Dynset { op, set, element } => {
                let id = self.dynset_target(scope, &set.text, set.span, *op)?;
                self.update(scope, *op, id, element)?;
            }
            StmtKind::Meter {
                name,
                size,
                element,
            } => {
                let (_, types) =
                    self.key(&mut Scope::new(scope.table, scope.family), &element.key)?;
                let dynamic = self.new_dynamic(*size, element.timeout_ms, &types);
                let set = Set::dynamic(
                    format!("meter {}", name.text),
                    widths(&types),
                    Vec::new(),
                    dynamic,
                );
                let id = self.new_set(
                    set,
                    SetTypes {
                        key: types,
                        data: DataKind::Nothing,
                    },
                );
                let op = if element.timeout_ms.is_some() {
                    DynOp::Update
                } else {
                    DynOp::Add
                };
                self.update(scope, op, id, element)?;
            }
            StmtKind::Notrack => scope.ops.push(Op::Notrack),
            StmtKind::Synproxy(options) => {
                let options = self.new_synproxy(options);
                scope.ops.push(Op::Object(Object::Synproxy(options)));
            }
            StmtKind::Flow(name) => {
                if !self
                    .flowtables
                    .iter()
                    .any(|(table, known)| *table == scope.table && *known == name.text)
                {
                    return Err(LangError::new(
                        name.span,
                        format!("there is no flowtable `{}` in this table", name.text),
                    )
                    .remedy("declare it in the table"));
                }
                scope.ops.push(Op::Offload);
            }
            StmtKind::Queue => return Err(unsupported(span, "queue")),
            StmtKind::Tproxy => return Err(unsupported(span, "tproxy")),
            StmtKind::Fwd(to) => {
                let to = self.device(scope, to, "fwd")?;
                scope.ops.push(Op::Forward(to));
            }
            StmtKind::Dup(to, None) => {
                let to = match to {
                    Some(to) => self.device(scope, to, "dup")?,
                    None => InterfaceId::NONE,
                };
                scope.ops.push(Op::Copy(to));
            }
            StmtKind::Dup(_, Some(_)) => return Err(unsupported(span, "dup to an address")),
        }
        Ok(())
    }

    fn device(&mut self, scope: &Scope, to: &Expr, what: &str) -> Lowered<InterfaceId> {
        if scope.family != Family::Netdev {
            return Err(LangError::new(
                to.span,
                format!("`{what}` to a device is only for netdev tables"),
            )
            .remedy("use a netdev table"));
        }
        let id = self.constant(to, DataType::IfIndex)?;
        Ok(InterfaceId(id as u16))
    }

    pub(super) fn action(
        &mut self,
        scope: &Scope,
        verdict: &VerdictAst,
        span: Span,
    ) -> Lowered<Action> {
        Ok(match verdict {
            VerdictAst::Accept => Action::Accept,
            VerdictAst::Drop => Action::Drop,
            VerdictAst::Return => Action::Return,
            VerdictAst::Continue => Action::Continue,
            VerdictAst::Jump(chain) => {
                Action::Jump(self.chain_named(scope, &chain.text, chain.span)?)
            }
            VerdictAst::Goto(chain) => {
                Action::Goto(self.chain_named(scope, &chain.text, chain.span)?)
            }
            VerdictAst::Block { goto, rules } => {
                let Some(table) = self.model.tables.get(scope.table) else {
                    return Err(LangError::new(span, "a block outside a table")
                        .remedy("put it into a chain"));
                };
                let name = format!("__chain{}", self.parts.chains.len());
                let id = self.new_chain(table, &name);
                self.rules(scope.table, table, &name, id, rules);
                if *goto {
                    Action::Goto(id)
                } else {
                    Action::Jump(id)
                }
            }
        })
    }

    fn chain_named(&self, scope: &Scope, name: &str, span: Span) -> Lowered<ChainId> {
        let Some(id) = self.chains.get(&(scope.table, name.to_string())) else {
            return Err(
                LangError::new(span, format!("there is no chain `{name}` in this table"))
                    .remedy("declare the chain, or check its name"),
            );
        };
        let table = self.model.tables.get(scope.table);
        let chain =
            table.and_then(|table| table.chains.iter().find(|chain| chain.name.text == name));
        if chain.is_some_and(|chain| chain.base.is_some()) {
            return Err(LangError::new(
                span,
                format!("`{name}` is a base chain: rules cannot jump to it"),
            )
            .remedy("move its rules to a chain without a hook, and jump to that"));
        }
        Ok(*id)
    }

    fn object_ref(
        &mut self,
        scope: &mut Scope,
        object: &ObjectRef,
        kind: &str,
        span: Span,
    ) -> Lowered<()> {
        match object {
            ObjectRef::Name(name) => {
                let object = self.object_named(scope, kind, &name.text, span)?;
                scope.ops.push(Op::Object(object));
            }
            ObjectRef::Map(expr) => {
                let ExprKind::Map(key, map) = &expr.kind else {
                    return Err(LangError::new(expr.span, "a map is expected here")
                        .remedy("write `key map { ... }`"));
                };
                let (key, set, _) =
                    self.map(scope, key, map, &DataKind::Object(kind.to_string()))?;
                scope.ops.push(Op::ObjectMap { key, set });
            }
        }
        Ok(())
    }

    /// Compiles a comparison.
    fn relation(&mut self, scope: &mut Scope, left: &Expr, op: RelOp, right: &Expr) -> Lowered<()> {
        let negate = match op {
            RelOp::Implicit | RelOp::Eq => Some(false),
            RelOp::Ne => Some(true),
            _ => None,
        };
        let in_set = |negate: Option<bool>| {
            negate.ok_or_else(|| {
                LangError::new(right.span, "a set is compared with `==` or `!=` only")
                    .remedy("use `!=`, or leave the operator out")
            })
        };
        match &right.kind {
            ExprKind::SetRef(name) => {
                let negate = in_set(negate)?;
                let (key, types) = self.key(scope, left)?;
                let Some(set) = self.set_named(scope, name) else {
                    return Err(LangError::new(
                        right.span,
                        format!("there is no set `{name}` in this table"),
                    )
                    .remedy("declare it in the table"));
                };
                let known = self
                    .set_types
                    .get(set.0 as usize)
                    .cloned()
                    .unwrap_or_default();
                check_key(&known.key, &types, right.span)?;
                scope.ops.push(Op::Lookup { key, set, negate });
            }
            ExprKind::Set(elements) => {
                let negate = in_set(negate)?;
                let (key, types) = self.key(scope, left)?;
                let set =
                    self.anonymous_set(scope, elements, &types, &DataKind::Nothing, right.span)?;
                scope.ops.push(Op::Lookup { key, set, negate });
            }
            ExprKind::Concat(_) => {
                let negate = in_set(negate)?;
                let (key, types) = self.key(scope, left)?;
                let element = super::super::ast::Element {
                    key: right.clone(),
                    data: None,
                    timeout_ms: None,
                    expires_ms: None,
                    stmts: Vec::new(),
                    comment: None,
                };
                let set =
                    self.anonymous_set(scope, &[element], &types, &DataKind::Nothing, right.span)?;
                scope.ops.push(Op::Lookup { key, set, negate });
            }
            _ => self.comparison(scope, left, op, right)?,
        }
        Ok(())
    }

    /// Compares one number with constants.
    fn comparison(
        &mut self,
        scope: &mut Scope,
        left: &Expr,
        op: RelOp,
        right: &Expr,
    ) -> Lowered<()> {
        let types = self.types_of(scope, left);
        let [data_type] = types.as_slice() else {
            return Err(
                LangError::new(left.span, "a concatenation is compared with one value")
                    .remedy("compare it with a set"),
            );
        };
        let data_type = *data_type;
        let value = self.value(scope, left, data_type)?;
        let ranges = self.constants(right, data_type)?;
        let is_flags = data_type.is_bitmask();
        let is_binary = matches!(left.kind, ExprKind::Binary(..));
        if matches!(right.kind, ExprKind::List(_)) && !is_flags {
            return Err(LangError::new(right.span, "several values without braces")
                .remedy("write them as a set: `{ a, b }`"));
        }
        let mask = || ranges.iter().fold(0, |mask, range| mask | range.0);
        let one = || match ranges.as_slice() {
            [(low, high)] if low == high => Ok(*low),
            _ => Err(LangError::new(right.span, "one value is expected here")
                .remedy("use a set in braces, with `==` or `!=`")),
        };
        let test = match op {
            RelOp::Implicit if is_flags && ranges.iter().all(|range| range.0 != 0) => {
                Test::Any(mask())
            }
            RelOp::Not => Test::NoneOf(mask()),
            RelOp::Implicit | RelOp::Eq | RelOp::Ne => {
                let is_ne = op == RelOp::Ne;
                let ranges = if is_flags {
                    Vec::from([single(mask())])
                } else {
                    ranges.clone()
                };
                match ranges.as_slice() {
                    [(low, high)] if is_ne => Test::NotIn(*low, *high),
                    [(low, high)] => Test::In(*low, *high),
                    _ => {
                        let set = self.set_of_ranges(&ranges, data_type, right.span)?;
                        let key = Key {
                            parts: Vec::from([(value, data_type.bits())]),
                        };
                        scope.ops.push(Op::Lookup {
                            key,
                            set,
                            negate: is_ne,
                        });
                        return Ok(());
                    }
                }
            }
            RelOp::Lt => below(one()?),
            RelOp::Le => Test::In(0, one()?),
            RelOp::Gt => above(one()?),
            RelOp::Ge => Test::In(one()?, u128::MAX),
        };
        if let (ExprKind::Selector(selector), Test::In(low, high)) = (&left.kind, test)
            && low == high
            && !is_binary
        {
            Self::learn(scope, selector, low);
        }
        scope.ops.push(Op::Test(value, test));
        Ok(())
    }

    fn reject(&mut self, scope: &mut Scope, reject: &RejectAst, span: Span) -> Lowered<()> {
        if matches!(scope.family, Family::Netdev | Family::Arp) {
            return Err(
                LangError::new(span, "reject is not possible in this table").remedy("use drop")
            );
        }
        let by_family = |icmp, icmpv6| RejectWith::ByFamily { icmp, icmpv6 };
        let with = match reject {
            RejectAst::Default => match scope.l3 {
                Some(0x0800) => RejectWith::Fixed(Reject::Icmp(3)),
                Some(0x86dd) => RejectWith::Fixed(Reject::Icmpv6(4)),
                _ => by_family(3, 4),
            },
            RejectAst::TcpReset => {
                if scope.l4 != Some(wire::ip_protocol::TCP) {
                    let is_tcp = Test::In(6, 6);
                    scope.ops.push(Op::Test(
                        Value::Field(Field::Meta(MetaKey::L4Proto)),
                        is_tcp,
                    ));
                }
                RejectWith::Fixed(Reject::TcpReset)
            }
            RejectAst::Icmp(code) => {
                let code = self.constant(code, DataType::IcmpCode)?;
                self.need_l3(scope, 0x0800, span, "reject with icmp")?;
                RejectWith::Fixed(Reject::Icmp(code as u8))
            }
            RejectAst::Icmpv6(code) => {
                let code = self.constant(code, DataType::Icmpv6Code)?;
                self.need_l3(scope, 0x86dd, span, "reject with icmpv6")?;
                RejectWith::Fixed(Reject::Icmpv6(code as u8))
            }
            RejectAst::Icmpx(code) => match self.constant(code, DataType::IcmpxCode)? {
                0 => by_family(0, 0),
                1 => by_family(3, 4),
                2 => by_family(1, 3),
                3 => by_family(13, 1),
                _ => {
                    return Err(LangError::new(span, "no such icmpx code").remedy(
                        "use no-route, port-unreachable, host-unreachable or admin-prohibited",
                    ));
                }
            },
        };
        scope.ops.push(Op::Reject(with));
        Ok(())
    }

    fn mangle(
        &mut self,
        scope: &mut Scope,
        target: &Selector,
        value: &Expr,
        span: Span,
    ) -> Lowered<()> {
        let data_type = target.data_type();
        let field = self.field(scope, target, span)?;
        let value = self.value(scope, value, data_type)?;
        let writable = match field {
            Field::Payload { bits, .. } => bits <= 128,
            Field::TcpOption { .. } => true,
            Field::Meta(key) => matches!(
                key,
                MetaKey::Mark | MetaKey::Priority | MetaKey::NfTrace | MetaKey::PktType
            ),
            Field::Ct { key, .. } => {
                matches!(key, CtKey::Mark | CtKey::Label | CtKey::Zone | CtKey::Event)
            }
            _ => false,
        };
        if !writable {
            return Err(
                LangError::new(span, "this property of the packet cannot be set")
                    .remedy("set a header field, a TCP option, a mark, priority, label or zone"),
            );
        }
        scope.ops.push(Op::Store(field, value));
        Ok(())
    }

    fn update(
        &mut self,
        scope: &mut Scope,
        op: DynOp,
        set: crate::rules::program::SetId,
        element: &Element,
    ) -> Lowered<()> {
        let (key, types) = self.key(scope, &element.key)?;
        let known = self
            .set_types
            .get(set.0 as usize)
            .cloned()
            .unwrap_or_default();
        check_key(&known.key, &types, element.key.span)?;
        let data = match (&element.data, &known.data) {
            (Some(data), DataKind::Values(types)) => match types.first() {
                Some(data_type) => Some(self.value(scope, data, *data_type)?),
                None => None,
            },
            (None, DataKind::Nothing) => None,
            (None, _) if op == DynOp::Delete => None,
            _ => {
                return Err(LangError::new(
                    element.key.span,
                    "the element's data does not fit the set or map",
                )
                .remedy("give data to maps, none to sets"));
            }
        };
        let ops = self.element_ops(&element.stmts)?;
        scope.ops.push(Op::Update {
            update: match op {
                DynOp::Add => Update::Add,
                DynOp::Update => Update::Refresh,
                DynOp::Delete => Update::Remove,
            },
            set,
            key,
            data,
            timeout_ns: element.timeout_ms.map(|ms| ms.saturating_mul(1_000_000)),
            ops,
        });
        Ok(())
    }

    pub(super) fn new_limit(&mut self, ast: &LimitAst) -> u32 {
        self.parts
            .shared
            .limits
            .push((limit(ast), Default::default()));
        self.parts.shared.limits.len() as u32 - 1
    }

    pub(super) fn new_synproxy(&mut self, options: &SynproxyAst) -> u32 {
        self.parts.synproxies.push(Synproxy {
            mss: options.mss,
            window_scale: options.wscale,
            timestamps: options.timestamp,
            sack: options.sack_perm,
        });
        self.parts.synproxies.len() as u32 - 1
    }

    pub(super) fn boxed_nat(&mut self, scope: &mut Scope, nat: crate::rules::program::Nat) {
        scope.ops.push(Op::Nat(Box::new(nat)));
    }
}

/// Compiles a limit.
pub(super) fn limit(ast: &LimitAst) -> Limit {
    let unit_ns = ast.per_s.saturating_mul(1_000_000_000);
    if ast.bytes {
        Limit::bytes(ast.rate, unit_ns, ast.burst.unwrap_or(0), ast.over)
    } else {
        Limit::packets(ast.rate, unit_ns, ast.burst, ast.over)
    }
}

/// Below a number: never, if the number is zero.
const fn below(number: u128) -> Test {
    match number.checked_sub(1) {
        Some(last) => Test::In(0, last),
        None => Test::Any(0),
    }
}

/// Above a number.
const fn above(number: u128) -> Test {
    match number.checked_add(1) {
        Some(first) => Test::In(first, u128::MAX),
        None => Test::Any(0),
    }
}

fn log_info(log: &LogAst) -> LogInfo {
    LogInfo {
        prefix: log.prefix.clone().unwrap_or_default(),
        level: log.level.unwrap_or(4),
        group: log.group,
        snaplen_bytes: log.snaplen.unwrap_or(0),
        queue_threshold: log.queue_threshold.unwrap_or(0),
        flags: log.flags.clone(),
    }
}
