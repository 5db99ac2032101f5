//! Address translation statements.

use alloc::format;

use super::super::ast::{Expr, ExprKind, NatAst, StmtKind};
use super::super::datatype::DataType;
use super::super::span::{LangError, Span};
use super::value::is_constant;
use super::{DataKind, Lower, Lowered, Scope};
use crate::packet::Family;
use crate::rules::program::{Nat, NatSource, Value};
use crate::verdict::{NatFlags, NatKind};

impl Lower<'_> {
    pub(super) fn nat(&mut self, scope: &mut Scope, stmt: &StmtKind, span: Span) -> Lowered<()> {
        let StmtKind::Nat {
            kind,
            family,
            address,
            port,
            flags,
            prefix,
            with_port,
        } = stmt
        else {
            return Ok(());
        };
        if !matches!(scope.family, Family::Ip | Family::Ip6 | Family::Inet) {
            return Err(LangError::new(
                span,
                format!("`{}` is not possible in this table", kind.name()),
            )
            .remedy("use an ip, ip6 or inet table"));
        }
        let ipv6 = self.nat_is_ipv6(scope, *family, address.as_ref());
        if address.is_some() && scope.family == Family::Inet {
            self.need_l3(scope, if ipv6 { 0x86dd } else { 0x0800 }, span, kind.name())?;
        }
        let address_type = if ipv6 {
            DataType::Ipv6Addr
        } else {
            DataType::Ipv4Addr
        };
        let mut nat = Nat {
            kind: match kind {
                NatAst::Snat => NatKind::Source,
                NatAst::Dnat => NatKind::Destination,
                NatAst::Masquerade => NatKind::Masquerade,
                NatAst::Redirect => NatKind::Redirect,
            },
            flags: NatFlags::empty(),
            ipv6,
            address: None,
            port: None,
        };
        for flag in flags {
            nat.flags |= match flag.as_str() {
                "random" => NatFlags::RANDOM,
                "fully-random" => NatFlags::FULLY_RANDOM,
                _ => NatFlags::PERSISTENT,
            };
        }
        if *prefix {
            nat.flags |= NatFlags::NETMAP;
        }
        if let Some(address) = address {
            self.nat_address(scope, &mut nat, address, address_type, *with_port)?;
        }
        if let Some(port) = port {
            nat.port = Some(self.nat_source(scope, port, DataType::InetService)?);
        }
        if nat.address.is_none() && nat.port.is_none() && matches!(kind, NatAst::Dnat) {
            return Err(LangError::new(span, "dnat without a destination")
                .remedy("write `dnat to address`"));
        }
        self.boxed_nat(scope, nat);
        Ok(())
    }

    fn nat_is_ipv6(&self, scope: &Scope, family: Option<Family>, address: Option<&Expr>) -> bool {
        match (family, scope.family) {
            (Some(family), _) => family == Family::Ip6,
            (None, Family::Ip) => false,
            (None, Family::Ip6) => true,
            _ if scope.l3.is_some() => scope.l3 == Some(0x86dd),
            _ => address.is_some_and(|address| self.looks_ipv6(scope, address)),
        }
    }

    fn looks_ipv6(&self, scope: &Scope, expr: &Expr) -> bool {
        match &expr.kind {
            ExprKind::Word(word) => word.contains(':'),
            ExprKind::Prefix(base, _) | ExprKind::Range(base, _) => self.looks_ipv6(scope, base),
            ExprKind::Map(_, map) => match &map.kind {
                ExprKind::Set(elements) => elements.iter().any(|element| {
                    element.data.as_ref().is_some_and(|data| match &data.kind {
                        ExprKind::Concat(parts) => parts
                            .first()
                            .is_some_and(|part| self.looks_ipv6(scope, part)),
                        _ => self.looks_ipv6(scope, data),
                    })
                }),
                _ => self.types_of(scope, expr).first() == Some(&DataType::Ipv6Addr),
            },
            _ => false,
        }
    }

    fn nat_address(
        &mut self,
        scope: &mut Scope,
        nat: &mut Nat,
        address: &Expr,
        data_type: DataType,
        with_port: bool,
    ) -> Lowered<()> {
        // A map may give address and port at once.
        if let ExprKind::Map(key, map) = &address.kind {
            let pair = with_port || self.gives_pair(scope, address, map);
            let mut wanted = alloc::vec![data_type];
            if pair {
                wanted.push(DataType::InetService);
            }
            let (key, set, _) = self.map(scope, key, map, &DataKind::Values(wanted))?;
            if pair {
                nat.port = Some(NatSource::Map {
                    key: key.clone(),
                    set,
                    part: 1,
                });
            }
            nat.address = Some(NatSource::Map { key, set, part: 0 });
            return Ok(());
        }
        // `to 10.0.0.1 . 80`
        if let ExprKind::Concat(parts) = &address.kind
            && let [host, port] = parts.as_slice()
        {
            nat.address = Some(self.nat_source(scope, host, data_type)?);
            nat.port = Some(self.nat_source(scope, port, DataType::InetService)?);
            return Ok(());
        }
        nat.address = Some(self.nat_source(scope, address, data_type)?);
        Ok(())
    }

    fn gives_pair(&self, scope: &Scope, address: &Expr, map: &Expr) -> bool {
        match &map.kind {
            ExprKind::Set(elements) => elements.iter().any(|element| {
                element.data.as_ref().is_some_and(
                    |data| matches!(&data.kind, ExprKind::Concat(parts) if parts.len() == 2),
                )
            }),
            _ => self.types_of(scope, address).len() == 2,
        }
    }

    fn nat_source(
        &mut self,
        scope: &mut Scope,
        expr: &Expr,
        data_type: DataType,
    ) -> Lowered<NatSource> {
        if let ExprKind::Map(key, map) = &expr.kind {
            let (key, set, _) =
                self.map(scope, key, map, &DataKind::Values(alloc::vec![data_type]))?;
            return Ok(NatSource::Map { key, set, part: 0 });
        }
        if is_constant(expr) {
            return match self.constants(expr, data_type)?.as_slice() {
                [(low, high)] => Ok(NatSource::Range(Value::Const(*low), Value::Const(*high))),
                _ => Err(LangError::new(expr.span, "several ranges to translate to")
                    .remedy("use one range, or a map with numgen")),
            };
        }
        if let ExprKind::Range(low, high) = &expr.kind {
            return Ok(NatSource::Range(
                self.value(scope, low, data_type)?,
                self.value(scope, high, data_type)?,
            ));
        }
        let value = self.value(scope, expr, data_type)?;
        Ok(NatSource::Range(value.clone(), value))
    }
}
