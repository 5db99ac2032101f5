//! Selectors and computed values, and the tests that they depend on.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::super::ast::{BinOp, Expr, ExprKind};
use super::super::datatype::DataType;
use super::super::selector::{CT, EXTHDR, FibResultAst, META, Selector, TCP_OPTIONS};
use super::super::span::{LangError, Span};
use super::constant::is_bit_operator;
use super::{DataKind, Lower, Lowered, Scope};
use crate::packet::Family;
use crate::rules::field::{Base, CtKey, FibResult, Field, MetaKey, RtKey};
use crate::rules::key::{KEY_BYTES_MAX, KEY_PARTS_MAX};
use crate::rules::program::{Key, Op, Operator, SetId, Test, Value};

/// Returns the operator of the compiled form.
pub(super) const fn operator(op: BinOp) -> Operator {
    match op {
        BinOp::And => Operator::And,
        BinOp::Or => Operator::Or,
        BinOp::Xor => Operator::Xor,
        BinOp::Shl => Operator::Shl,
        BinOp::Shr => Operator::Shr,
    }
}

fn conflict(span: Span, what: &str) -> LangError {
    LangError::new(
        span,
        format!("`{what}` contradicts the protocol of the table or of an earlier match"),
    )
    .remedy("remove one of the two matches, or use an inet table")
}

impl Lower<'_> {
    /// Returns the type of each part of an expression that looks at the packet.
    pub(super) fn types_of(&self, scope: &Scope, expr: &Expr) -> Vec<DataType> {
        match &expr.kind {
            ExprKind::Selector(selector) => vec![self.selector_type(scope, selector)],
            ExprKind::Concat(parts) => parts
                .iter()
                .flat_map(|part| self.types_of(scope, part))
                .collect(),
            ExprKind::Binary(_, left, right) => {
                let left = self.types_of(scope, left);
                if left.is_empty() {
                    self.types_of(scope, right)
                } else {
                    left
                }
            }
            ExprKind::Map(_, map) => match &map.kind {
                ExprKind::SetRef(name) => match self
                    .set_named(scope, name)
                    .and_then(|id| self.set_types.get(id.0 as usize))
                {
                    Some(types) => match &types.data {
                        DataKind::Values(values) => values.clone(),
                        _ => Vec::new(),
                    },
                    None => Vec::new(),
                },
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    fn selector_type(&self, scope: &Scope, selector: &Selector) -> DataType {
        if let Selector::Ct {
            key, family: None, ..
        } = selector
            && matches!(
                CT.get(*key),
                Some((_, CtKey::Source | CtKey::Destination, _))
            )
        {
            let is_v6 = scope.family == Family::Ip6
                || (scope.family != Family::Ip && scope.l3 == Some(0x86dd));
            return if is_v6 {
                DataType::Ipv6Addr
            } else {
                DataType::Ipv4Addr
            };
        }
        if let Selector::Rt { key, family: None } = selector
            && key == "nexthop"
            && scope.l3 == Some(0x86dd)
        {
            return DataType::Ipv6Addr;
        }
        selector.data_type()
    }

    pub(super) fn set_named(&self, scope: &Scope, name: &str) -> Option<SetId> {
        self.sets.get(&(scope.table, name.into())).copied()
    }

    /// Compiles the key of a set: one value or a concatenation.
    pub(super) fn key(&mut self, scope: &mut Scope, expr: &Expr) -> Lowered<(Key, Vec<DataType>)> {
        let types = self.types_of(scope, expr);
        let parts: Vec<&Expr> = match &expr.kind {
            ExprKind::Concat(parts) => parts.iter().collect(),
            _ => vec![expr],
        };
        let mut key = Key { parts: Vec::new() };
        for (part, data_type) in parts.iter().zip(&types) {
            let value = self.value(scope, part, *data_type)?;
            key.parts.push((value, data_type.bits()));
        }
        check_width(&types, expr.span)?;
        if key.parts.is_empty() || key.parts.len() != types.len() {
            return Err(LangError::new(expr.span, "the type of this key is unknown")
                .remedy("start it with a property of the packet"));
        }
        Ok((key, types))
    }

    /// Compiles a value of a type, and the tests that its selectors depend on.
    pub(super) fn value(
        &mut self,
        scope: &mut Scope,
        expr: &Expr,
        data_type: DataType,
    ) -> Lowered<Value> {
        match &expr.kind {
            ExprKind::Selector(selector) => self.selector(scope, selector, expr.span),
            ExprKind::Binary(op, left, right) if !is_constant(expr) => {
                let left_value = self.value(scope, left, data_type)?;
                let right_type = if is_bit_operator(*op) {
                    data_type
                } else {
                    DataType::Integer(32)
                };
                let right_value = self.value(scope, right, right_type)?;
                let combined = Value::Binary(operator(*op), Box::new((left_value, right_value)));
                // What is shifted out is gone.
                if *op == BinOp::Shl {
                    return Ok(Value::Binary(
                        Operator::And,
                        Box::new((combined, Value::Const(data_type.max()))),
                    ));
                }
                Ok(combined)
            }
            ExprKind::Map(key, map) => {
                let (key, set, _) =
                    self.map(scope, key, map, &DataKind::Values(vec![data_type]))?;
                Ok(Value::Map(Box::new(key), set))
            }
            _ => Ok(Value::Const(self.constant(expr, data_type)?)),
        }
    }

    /// Compiles `key map m`: the key, the map, and what it gives.
    pub(super) fn map(
        &mut self,
        scope: &mut Scope,
        key: &Expr,
        map: &Expr,
        wanted: &DataKind,
    ) -> Lowered<(Key, SetId, DataKind)> {
        let (key, types) = self.key(scope, key)?;
        let set = match &map.kind {
            ExprKind::SetRef(name) => match self.set_named(scope, name) {
                Some(set) => set,
                None => {
                    return Err(LangError::new(
                        map.span,
                        format!("there is no map `{name}` in this table"),
                    )
                    .remedy("declare the map in the table"));
                }
            },
            ExprKind::Set(elements) => {
                self.anonymous_set(scope, elements, &types, wanted, map.span)?
            }
            _ => {
                return Err(LangError::new(map.span, "a map is expected here")
                    .remedy("write `{ key : data }` or `@name`"));
            }
        };
        let found = self
            .set_types
            .get(set.0 as usize)
            .cloned()
            .unwrap_or_default();
        check_key(&found.key, &types, map.span)?;
        let fits = match (&found.data, wanted) {
            (DataKind::Values(found), DataKind::Values(wanted)) => {
                found.len() >= wanted.len()
                    && found
                        .iter()
                        .zip(wanted)
                        .all(|(a, b)| a.bits() == b.bits() || b.bits() >= a.bits())
            }
            (found, wanted) => found == wanted,
        };
        if !fits {
            return Err(
                LangError::new(map.span, "the map gives something of another type")
                    .remedy("use a map of the type that is needed here"),
            );
        }
        Ok((key, set, found.data))
    }

    fn test(scope: &mut Scope, field: Field, value: u128) {
        scope
            .ops
            .push(Op::Test(Value::Field(field), Test::In(value, value)));
    }

    /// Adds the test that the packet is of a network protocol, unless it is known.
    pub(super) fn need_l3(
        &mut self,
        scope: &mut Scope,
        ether_type: u16,
        span: Span,
        what: &str,
    ) -> Lowered<()> {
        if scope.l3 == Some(ether_type) {
            return Ok(());
        }
        if matches!(scope.family, Family::Ip | Family::Ip6 | Family::Arp)
            || (scope.l3.is_some() && scope.l3 != Some(0x8100))
        {
            return Err(conflict(span, what));
        }
        let by_family = scope.family == Family::Inet && ether_type != 0x0806;
        if by_family {
            let nfproto = if ether_type == 0x0800 { 2 } else { 10 };
            Self::test(scope, Field::Meta(MetaKey::NfProto), nfproto);
        } else {
            Self::test(scope, Field::Meta(MetaKey::Protocol), ether_type.into());
        }
        scope.l3 = Some(ether_type);
        Ok(())
    }

    fn need_l4(&mut self, scope: &mut Scope, protocol: u8) {
        if scope.l4 != Some(protocol) {
            Self::test(scope, Field::Meta(MetaKey::L4Proto), protocol.into());
            scope.l4 = Some(protocol);
        }
    }

    fn selector(&mut self, scope: &mut Scope, selector: &Selector, span: Span) -> Lowered<Value> {
        match selector {
            Selector::Hash {
                of: Some(of),
                modulus,
                seed,
                offset,
            } => {
                let (key, _) = self.key(scope, of)?;
                Ok(Value::Hash {
                    key: Box::new(key),
                    modulus: *modulus,
                    seed: *seed,
                    offset: *offset,
                })
            }
            Selector::Hash {
                of: None,
                modulus,
                offset,
                ..
            } => Ok(Value::FlowHash {
                modulus: *modulus,
                offset: *offset,
            }),
            Selector::Numgen {
                inc: true,
                modulus,
                offset,
            } => {
                self.parts.shared.generators.push(Default::default());
                let generator = self.parts.shared.generators.len() as u32 - 1;
                Ok(Value::Count {
                    generator,
                    modulus: *modulus,
                    offset: *offset,
                })
            }
            Selector::Numgen {
                modulus, offset, ..
            } => Ok(Value::Draw {
                modulus: *modulus,
                offset: *offset,
            }),
            _ => Ok(Value::Field(self.field(scope, selector, span)?)),
        }
    }

    /// Compiles a selector that is a field, and adds the tests that it depends on.
    pub(super) fn field(
        &mut self,
        scope: &mut Scope,
        selector: &Selector,
        span: Span,
    ) -> Lowered<Field> {
        match selector {
            Selector::Payload(protocol, field) => {
                let what = format!("{} {}", protocol.name, field.name);
                match protocol.base {
                    // Frames of other links have no Ethernet header. At device hooks and bridges all have.
                    Base::Link
                        if matches!(scope.family, Family::Ip | Family::Ip6 | Family::Inet) =>
                    {
                        Self::test(scope, Field::Meta(MetaKey::IifType), 1);
                    }
                    _ => {}
                }
                if let Some(ether_type) = protocol.ether_type {
                    self.need_l3(scope, ether_type, span, &what)?;
                }
                if let Some(protocol) = protocol.protocol {
                    self.need_l4(scope, protocol);
                }
                Ok(Field::Payload {
                    base: protocol.base,
                    offset: field.offset,
                    bits: field.bits,
                })
            }
            Selector::Raw(base, offset, bits) => Ok(Field::Payload {
                base: *base,
                offset: *offset,
                bits: *bits,
            }),
            Selector::Meta(key) => Ok(Field::Meta(
                META.get(*key).map_or(MetaKey::Mark, |meta| meta.1),
            )),
            Selector::Ct {
                key,
                direction,
                family,
            } => {
                let key = CT.get(*key).map_or(CtKey::State, |ct| ct.1);
                let is_address = matches!(key, CtKey::Source | CtKey::Destination);
                if is_address && scope.family == Family::Inet {
                    let is_v6 = *family == Some(Family::Ip6)
                        || (family.is_none() && scope.l3 == Some(0x86dd));
                    self.need_l3(
                        scope,
                        if is_v6 { 0x86dd } else { 0x0800 },
                        span,
                        "ct address",
                    )?;
                }
                Ok(Field::Ct {
                    key,
                    direction: *direction,
                })
            }
            Selector::ExtHdr(header, field) => {
                let header = EXTHDR
                    .get(*header)
                    .map_or(crate::rules::field::ExtHeader::HopByHop, |header| header.1);
                Ok(match field {
                    Some(field) => Field::ExtHdr {
                        header,
                        offset: field.offset,
                        bits: field.bits,
                    },
                    None => Field::ExtHdrExists(header),
                })
            }
            Selector::TcpOption(option, field) => {
                let kind = TCP_OPTIONS.get(*option).map_or(0, |option| option.1);
                Ok(match field {
                    Some(field) => Field::TcpOption {
                        kind,
                        offset: field.offset,
                        bits: field.bits,
                    },
                    None => Field::TcpOptionExists(kind),
                })
            }
            Selector::TcpOptionKind(kind) => Ok(Field::TcpOptionExists(*kind)),
            Selector::Fib {
                source,
                mark,
                iif,
                oif,
                result,
                check,
            } => Ok(Field::Fib {
                source: *source,
                mark: *mark,
                iif: *iif,
                oif: *oif,
                result: match result {
                    FibResultAst::Type => FibResult::Type,
                    _ if *check => FibResult::Exists,
                    _ => FibResult::Interface,
                },
            }),
            Selector::Rt { key, .. } if key == "mtu" => Ok(Field::Rt(RtKey::Mss)),
            Selector::Rt { key, .. } if key == "nexthop" => Ok(Field::Rt(RtKey::NextHop)),
            Selector::Rt { key, .. } => Err(unsupported(span, &format!("rt {key}"))),
            Selector::Socket(key) => Err(unsupported(span, &format!("socket {key}"))),
            Selector::Unsupported(what) => Err(unsupported(span, what)),
            Selector::Hash { .. } | Selector::Numgen { .. } => Err(LangError::new(
                span,
                "a computed number cannot be used here",
            )
            .remedy("use a field of the packet")),
        }
    }

    /// Remembers what a match says about protocols, so that later fields need no test of their own.
    pub(super) fn learn(scope: &mut Scope, selector: &Selector, value: u128) {
        match selector {
            Selector::Meta(key) => match META.get(*key).map(|meta| meta.1) {
                Some(MetaKey::L4Proto) => scope.l4 = u8::try_from(value).ok(),
                Some(MetaKey::NfProto) => {
                    scope.l3 = match value {
                        2 => Some(0x0800),
                        10 => Some(0x86dd),
                        _ => scope.l3,
                    };
                }
                Some(MetaKey::Protocol) => scope.l3 = u16::try_from(value).ok(),
                _ => {}
            },
            Selector::Payload(protocol, field) => match (protocol.name, field.name) {
                ("ip", "protocol") | ("ip6", "nexthdr") => scope.l4 = u8::try_from(value).ok(),
                ("ether", "type") if scope.l3.is_none() => scope.l3 = u16::try_from(value).ok(),
                ("vlan", "type") => scope.l3 = u16::try_from(value).ok(),
                _ => {}
            },
            _ => {}
        }
    }
}

pub(super) fn unsupported(span: Span, what: &str) -> LangError {
    LangError::new(span, format!("`{what}` is not supported"))
        .remedy("remove the rule, or match by other properties of the packet")
}

/// True if an expression has no part that looks at the packet.
pub(super) fn is_constant(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Selector(_) | ExprKind::Map(..) | ExprKind::SetRef(_) => false,
        ExprKind::Binary(_, left, right) => is_constant(left) && is_constant(right),
        ExprKind::Concat(parts) | ExprKind::List(parts) => parts.iter().all(is_constant),
        _ => true,
    }
}

pub(super) fn check_width(types: &[DataType], span: Span) -> Lowered<()> {
    let bytes: usize = types
        .iter()
        .map(|data_type| usize::from(data_type.bits().div_ceil(8)))
        .sum();
    if bytes > KEY_BYTES_MAX || types.len() > KEY_PARTS_MAX {
        return Err(LangError::new(
            span,
            format!("a concatenation of {} parts and {bytes} bytes", types.len()),
        )
        .remedy(format!(
            "use at most {KEY_PARTS_MAX} parts and {KEY_BYTES_MAX} bytes"
        )));
    }
    Ok(())
}

/// Checks that a key fits a set.
pub(super) fn check_key(set: &[DataType], key: &[DataType], span: Span) -> Lowered<()> {
    let fits = set.len() == key.len()
        && set.iter().zip(key).all(|(set, key)| {
            let integer =
                matches!(set, DataType::Integer(_)) || matches!(key, DataType::Integer(_));
            set == key || integer || set.bits() == key.bits()
        });
    if fits {
        return Ok(());
    }
    let names = |types: &[DataType]| {
        types
            .iter()
            .map(|data_type| data_type.name())
            .collect::<Vec<_>>()
            .join(" . ")
    };
    Err(LangError::new(
        span,
        format!(
            "the set is of type {}, the key of type {}",
            names(set),
            names(key)
        ),
    )
    .remedy("use a set of the key's type"))
}
