//! Constants: words, numbers, ranges and prefixes as values of a type.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::super::ast::{BinOp, Expr, ExprKind};
use super::super::datatype::{Constant, DataType};
use super::super::span::{LangError, Span};
use super::{Lower, Lowered};
use crate::alg::Helper;
use crate::packet::InterfaceId;

impl Lower<'_> {
    pub(super) fn interface(&mut self, name: &str, span: Span) -> Lowered<InterfaceId> {
        if name.len() > 15 {
            return Err(LangError::new(
                span,
                format!("`{name}` is longer than an interface's name may be"),
            )
            .remedy("use at most 15 characters"));
        }
        self.parts.interfaces.intern(name).ok_or_else(|| {
            LangError::new(span, "more than 65,535 interfaces are named")
                .remedy("use wildcards (`ppp*`) or interface groups")
        })
    }

    /// Returns the ranges that a constant expression means, ends included.
    pub(super) fn constants(
        &mut self,
        expr: &Expr,
        data_type: DataType,
    ) -> Lowered<Vec<(u128, u128)>> {
        match &expr.kind {
            ExprKind::Word(word) => self.word(word, expr.span, data_type, false),
            ExprKind::Str(string) => self.word(string, expr.span, data_type, true),
            ExprKind::Num(number) => self.number(*number, expr.span, data_type),
            ExprKind::Range(low, high) => {
                let (low, high) = (
                    self.constant(low, data_type)?,
                    self.constant(high, data_type)?,
                );
                if low > high {
                    // Hours and days wrap around.
                    if matches!(data_type, DataType::Hour | DataType::Day) {
                        let last = if data_type == DataType::Hour {
                            86_399
                        } else {
                            6
                        };
                        return Ok(vec![(0, high), (low, last)]);
                    }
                    return Err(LangError::new(expr.span, "the range ends before it starts")
                        .remedy("swap its ends"));
                }
                Ok(vec![(low, high)])
            }
            ExprKind::Prefix(base, length) => self.prefix(base, *length, data_type),
            ExprKind::List(list) => {
                let mut all = Vec::new();
                for item in list {
                    all.extend(self.constants(item, data_type)?);
                }
                Ok(all)
            }
            ExprKind::Set(elements) => {
                let mut all = Vec::new();
                for element in elements {
                    all.extend(self.constants(&element.key, data_type)?);
                }
                Ok(all)
            }
            ExprKind::Binary(op, left, right) => {
                let (left, right) = (
                    self.constant(left, data_type)?,
                    self.constant(right, data_type)?,
                );
                let value = super::value::operator(*op).apply(left, right);
                Ok(vec![(value, value)])
            }
            _ => Err(LangError::new(
                expr.span,
                format!("a constant of type {} is expected here", data_type.name()),
            )
            .remedy("write a value; comparing two properties of the packet is not supported")),
        }
    }

    /// Returns the one value of a constant expression; flags in a list are joined.
    pub(super) fn constant(&mut self, expr: &Expr, data_type: DataType) -> Lowered<u128> {
        let ranges = self.constants(expr, data_type)?;
        if matches!(expr.kind, ExprKind::List(_)) && data_type.is_bitmask() {
            return Ok(ranges.iter().fold(0, |mask, range| mask | range.0));
        }
        match ranges.as_slice() {
            [(low, high)] if low == high => Ok(*low),
            _ => Err(
                LangError::new(expr.span, "one value is expected here, not several")
                    .remedy("use a set in braces"),
            ),
        }
    }

    fn number(
        &mut self,
        number: u64,
        span: Span,
        data_type: DataType,
    ) -> Lowered<Vec<(u128, u128)>> {
        let value = match data_type {
            DataType::Time => u128::from(number) * 1_000_000_000,
            DataType::Duration => u128::from(number) * 1000,
            DataType::CtLabel => {
                return Ok(vec![single(1_u128.checked_shl(number as u32).unwrap_or(0))]);
            }
            // 0 is "no interface"; others change from boot to boot.
            DataType::IfIndex if number != 0 => {
                return Err(LangError::new(span, "an interface by number")
                    .remedy("name the interface: numbers change"));
            }
            DataType::IfName => {
                let name = format!("{number}");
                return Ok(vec![single(self.interface(&name, span)?.0.into())]);
            }
            _ => u128::from(number),
        };
        if value > data_type.max() {
            return Err(LangError::new(
                span,
                format!("{number} is too large for type {}", data_type.name()),
            )
            .remedy(format!("use at most {}", data_type.max())));
        }
        Ok(vec![single(value)])
    }

    fn word(
        &mut self,
        word: &str,
        span: Span,
        data_type: DataType,
        quoted: bool,
    ) -> Lowered<Vec<(u128, u128)>> {
        match data_type {
            DataType::IfName => return self.interface_names(word, span),
            DataType::IfIndex => {
                let id = self.interface(word, span)?;
                if self.options.require_interfaces && self.parts.interfaces.get(id).is_none() {
                    return Err(
                        LangError::new(span, format!("there is no interface `{word}`"))
                            .remedy("use iifname or oifname for interfaces that come later"),
                    );
                }
                return Ok(vec![single(id.0.into())]);
            }
            // What is no helper here, no connection has.
            DataType::Helper => {
                let id = Helper::named(word).map_or(u16::MAX, |helper| helper.id().0);
                return Ok(vec![single(id.into())]);
            }
            _ => {}
        }
        match data_type.parse(word) {
            Some(Constant::Value(value)) => Ok(vec![single(value)]),
            Some(Constant::Range(low, high)) => Ok(vec![(low, high)]),
            None => Err(self.no_constant(word, span, data_type, quoted)),
        }
    }

    fn no_constant(&self, word: &str, span: Span, data_type: DataType, quoted: bool) -> LangError {
        let error = LangError::new(
            span,
            format!("`{word}` is no value of type {}", data_type.name()),
        );
        let looks_like_host = word.contains('.') || quoted;
        match data_type {
            DataType::Ipv4Addr | DataType::Ipv6Addr if looks_like_host => {
                error.remedy("write the address: no name service is asked when rules are loaded")
            }
            DataType::Uid | DataType::Gid => {
                error.remedy("write the number: user and group names are not known to the node")
            }
            _ => match data_type.symbols() {
                [] => error.remedy(format!("write a value of type {}", data_type.name())),
                symbols => error.remedy(format!(
                    "use a number, or a name such as {}",
                    symbols
                        .iter()
                        .take(6)
                        .map(|symbol| symbol.0)
                        .collect::<Vec<_>>()
                        .join(", ")
                )),
            },
        }
    }

    /// The interface of a name, or all present ones that a wildcard means.
    fn interface_names(&mut self, word: &str, span: Span) -> Lowered<Vec<(u128, u128)>> {
        let Some(stem) = word.strip_suffix('*') else {
            return Ok(vec![single(self.interface(word, span)?.0.into())]);
        };
        let matching = self.parts.interfaces.iter().filter(|(_, interface)| {
            !interface.name.is_empty() && interface.name.starts_with(stem)
        });
        Ok(matching.map(|(id, _)| single(id.0.into())).collect())
    }

    fn prefix(
        &mut self,
        base: &Expr,
        length: u64,
        data_type: DataType,
    ) -> Lowered<Vec<(u128, u128)>> {
        let bits = u64::from(data_type.bits());
        if length > bits {
            return Err(
                LangError::new(base.span, format!("a prefix of {length} bits in {bits}"))
                    .remedy(format!("use at most {bits}")),
            );
        }
        let value = self.constant(base, data_type)?;
        let host_bits = bits - length;
        let host = if host_bits >= 128 {
            u128::MAX
        } else {
            (1 << host_bits) - 1
        };
        Ok(vec![(value & !host, value | host)])
    }
}

/// A range of one value.
pub(super) const fn single(value: u128) -> (u128, u128) {
    (value, value)
}

/// Folds `a | b` and the like where both are constants already.
pub(super) const fn is_bit_operator(op: BinOp) -> bool {
    matches!(op, BinOp::And | BinOp::Or | BinOp::Xor)
}
