//! Statements of rules.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::super::ast::{
    DynOp, Expr, ExprKind, LimitAst, LogAst, NatAst, ObjectRef, QuotaAst, RejectAst, RelOp, Stmt,
    StmtKind, SynproxyAst,
};
use super::super::lexer::Tok;
use super::super::span::LangError;
use super::object::plain;
use super::{Parse, Parser};
use crate::packet::Family;

impl Parser<'_> {
    pub(super) fn statement(&mut self) -> Parse<Stmt> {
        let start = self.span();
        let kind = self.deeper(Self::statement_kind)?;
        let span = start.to(self.last_span());
        Ok(Stmt { kind, span })
    }

    fn statement_kind(&mut self) -> Parse<StmtKind> {
        if let Some(verdict) = self.verdict()? {
            return Ok(StmtKind::Verdict(verdict));
        }
        let word = self.word_at(0).unwrap_or_default().to_string();
        let next_is = |parser: &Self, wanted: &[&str]| {
            parser.word_at(1).is_some_and(|next| wanted.contains(&next))
        };
        match word.as_str() {
            "counter" => self.counter(),
            "quota" => {
                self.advance();
                match self.object_ref()? {
                    Some(object) => Ok(StmtKind::QuotaRef(object)),
                    None => Ok(StmtKind::Quota(self.quota_body()?)),
                }
            }
            "limit" => {
                self.advance();
                match self.object_ref()? {
                    Some(object) => Ok(StmtKind::LimitRef(object)),
                    None => Ok(StmtKind::Limit(self.limit_body()?)),
                }
            }
            "last" => {
                self.advance();
                if self.eat_word("used") && !self.eat_word("never") {
                    self.time()?;
                }
                Ok(StmtKind::Last)
            }
            "log" => self.log(),
            "reject" => self.reject(),
            "snat" | "dnat" | "masquerade" | "redirect" => self.nat(&word),
            "notrack" => {
                self.advance();
                Ok(StmtKind::Notrack)
            }
            "synproxy" => self.synproxy(),
            "flow" if next_is(self, &["add", "offload"]) => {
                self.advance();
                self.advance();
                self.eat_punct("@");
                Ok(StmtKind::Flow(self.name("the name of a flowtable")?))
            }
            "meter" => self.meter(),
            "add" | "update" | "delete" if matches!(self.peek_at(1), Tok::Punct("@")) => {
                self.dynset(&word)
            }
            "set" if next_is(self, &["add", "update", "delete"]) => self.dynset_old(),
            "queue" => self.queue(),
            "fwd" => {
                self.advance();
                let _ = self.family();
                self.eat_word("to");
                let to = self.concat_expr()?;
                if self.eat_word("device") {
                    return Ok(StmtKind::Fwd(self.concat_expr()?));
                }
                Ok(StmtKind::Fwd(to))
            }
            "dup" => self.dup(),
            "tproxy" => {
                while !self.at_separator() && !self.is_word("accept") {
                    self.advance();
                }
                Ok(StmtKind::Tproxy)
            }
            "ct" if next_is(self, &["count"]) => {
                self.advance();
                self.advance();
                let over = self.eat_word("over");
                if !over {
                    self.eat_word("until");
                }
                Ok(StmtKind::ConnLimit {
                    count: self.number_in("a number of connections")?,
                    over,
                })
            }
            "ct" if next_is(self, &["helper", "timeout", "expectation"])
                && self.word_at(2) == Some("set") =>
            {
                self.advance();
                let kind = self.string("the kind of an object")?;
                self.advance();
                let object = match self.peek() {
                    Tok::Str(_) => ObjectRef::Name(self.name("the name of an object")?),
                    _ => self.object_value()?,
                };
                Ok(StmtKind::CtObject { kind, object })
            }
            _ => self.expression_statement(),
        }
    }

    /// A match, a verdict map, or a write to a selector.
    fn expression_statement(&mut self) -> Parse<StmtKind> {
        let left = self.concat_expr()?;
        if self.eat_word("vmap") {
            let map = self.rhs_primary()?;
            return Ok(StmtKind::Vmap { key: left, map });
        }
        if self.is_word("set") {
            if let ExprKind::Selector(target) = left.kind {
                self.advance();
                let value = self.with_class_ids(Self::rhs)?;
                return Ok(StmtKind::Mangle { target, value });
            }
            return Err(LangError::new(left.span, "this cannot be set")
                .remedy("set a header field, a mark or a key"));
        }
        let op = match self.peek() {
            Tok::Punct("==") => RelOp::Eq,
            Tok::Punct("!=") => RelOp::Ne,
            Tok::Punct("<") => RelOp::Lt,
            Tok::Punct("<=") => RelOp::Le,
            Tok::Punct(">") => RelOp::Gt,
            Tok::Punct(">=") => RelOp::Ge,
            Tok::Punct("!") => RelOp::Not,
            Tok::Word(word) => match word.as_str() {
                "eq" => RelOp::Eq,
                "ne" | "neq" => RelOp::Ne,
                "lt" => RelOp::Lt,
                "le" => RelOp::Le,
                "gt" => RelOp::Gt,
                "ge" => RelOp::Ge,
                _ => RelOp::Implicit,
            },
            _ => RelOp::Implicit,
        };
        if op != RelOp::Implicit {
            self.advance();
        }
        if !is_selecting(&left) {
            return Err(LangError::new(
                left.span,
                "this is no statement, nor a property of the packet",
            )
            .remedy("check the keyword's spelling; see nft(8) for the statements"));
        }
        let right = self.rhs()?;
        // `tcp flags syn / syn,ack`: the flags among those after the slash.
        if self.eat_punct("/") {
            let mask = self.rhs()?;
            let span = left.span;
            let masked = ExprKind::Binary(
                super::super::ast::BinOp::And,
                Box::new(left),
                Box::new(mask),
            );
            let op = if op == RelOp::Implicit { RelOp::Eq } else { op };
            return Ok(StmtKind::Match {
                left: Expr { kind: masked, span },
                op,
                right,
            });
        }
        Ok(StmtKind::Match { left, op, right })
    }

    fn counter(&mut self) -> Parse<StmtKind> {
        self.advance();
        if let Some(object) = self.object_ref()? {
            return Ok(StmtKind::CounterRef(object));
        }
        let (mut packets, mut bytes) = (0, 0);
        if self.eat_word("packets") {
            packets = self.number("a number")?;
            if self.eat_word("bytes") {
                bytes = self.number("a number")?;
            }
        }
        Ok(StmtKind::Counter { packets, bytes })
    }

    /// `name x` or `name key map { ... }`, if it stands here.
    fn object_ref(&mut self) -> Parse<Option<ObjectRef>> {
        if self.eat_word("name") {
            return Ok(Some(self.object_value()?));
        }
        Ok(None)
    }

    fn object_value(&mut self) -> Parse<ObjectRef> {
        match self.peek() {
            Tok::Str(_) => Ok(ObjectRef::Name(self.name("the name of an object")?)),
            _ => {
                let value = self.concat_expr()?;
                match value.kind {
                    ExprKind::Map(..) => Ok(ObjectRef::Map(Box::new(value))),
                    ExprKind::Word(text) | ExprKind::Str(text) => {
                        Ok(ObjectRef::Name(super::super::ast::Name {
                            text,
                            span: value.span,
                        }))
                    }
                    _ => Err(LangError::new(value.span, "this names no object")
                        .remedy("write its name, or a map")),
                }
            }
        }
    }

    /// `[over|until] 10 mbytes [used 1 bytes]`.
    pub(super) fn quota_body(&mut self) -> Parse<QuotaAst> {
        let over = self.eat_word("over");
        if !over {
            self.eat_word("until");
        }
        let bytes = self.bytes()?;
        let used = if self.eat_word("used") {
            self.bytes()?
        } else {
            0
        };
        Ok(QuotaAst { bytes, used, over })
    }

    fn bytes(&mut self) -> Parse<u64> {
        let number = self.number("a number of bytes")?;
        let unit = self.name("bytes, kbytes or mbytes")?;
        match byte_scale(&unit.text) {
            Some(scale) => Ok(number.saturating_mul(scale)),
            None => Err(
                LangError::new(unit.span, format!("`{}` is no unit of bytes", unit.text))
                    .remedy("use bytes, kbytes or mbytes"),
            ),
        }
    }

    /// `rate [over|until] 10/second [burst 5 packets]`.
    pub(super) fn limit_body(&mut self) -> Parse<LimitAst> {
        self.expect_word("rate")?;
        let over = self.eat_word("over");
        if !over {
            self.eat_word("until");
        }
        let mut limit = LimitAst {
            over,
            ..LimitAst::default()
        };
        let rate = self.number("a rate")?;
        let span = self.span();
        let unit = if self.eat_punct("/") {
            limit.rate = rate;
            self.string("a unit of time")?
        } else {
            let text = self.string("`/` and a unit of time, or a unit of bytes")?;
            let (scale, time) = match text.split_once('/') {
                Some((scale, time)) => (scale.to_string(), time.to_string()),
                None => {
                    self.expect_punct("/")?;
                    (text, self.string("a unit of time")?)
                }
            };
            let Some(scale) = byte_scale(&scale) else {
                return Err(
                    LangError::new(span, format!("`{scale}` is no unit of bytes"))
                        .remedy("use bytes, kbytes or mbytes"),
                );
            };
            limit.bytes = true;
            limit.rate = rate.saturating_mul(scale);
            time
        };
        limit.per_s = match unit.as_str() {
            "second" => 1,
            "minute" => 60,
            "hour" => 3600,
            "day" => 86_400,
            "week" => 604_800,
            _ => {
                return Err(LangError::new(span, format!("`{unit}` is no unit of time"))
                    .remedy("use second, minute, hour, day or week"));
            }
        };
        if limit.rate == 0 {
            return Err(
                LangError::new(span, "a limit of zero").remedy("use `drop`, or a rate above zero")
            );
        }
        if self.eat_word("burst") {
            let number = self.number("a burst")?;
            let unit = self.name("packets or bytes")?;
            limit.burst = Some(match (unit.text.as_str(), byte_scale(&unit.text)) {
                ("packets", _) if !limit.bytes => number,
                (_, Some(scale)) if limit.bytes => number.saturating_mul(scale),
                _ => {
                    return Err(LangError::new(
                        unit.span,
                        "the burst has another unit than the rate",
                    )
                    .remedy("use packets for a rate of packets, bytes for a rate of bytes"));
                }
            });
        }
        Ok(limit)
    }

    fn log(&mut self) -> Parse<StmtKind> {
        self.advance();
        let mut log = LogAst::default();
        loop {
            let word = self.word_at(0).unwrap_or_default().to_string();
            match word.as_str() {
                "prefix" => {
                    self.advance();
                    log.prefix = Some(self.string("a prefix")?);
                }
                "level" => {
                    self.advance();
                    let level = self.name("a level")?;
                    const LEVELS: [&str; 9] = [
                        "emerg", "alert", "crit", "err", "warn", "notice", "info", "debug", "audit",
                    ];
                    let name = if level.text == "warning" {
                        "warn"
                    } else {
                        level.text.as_str()
                    };
                    let Some(number) = LEVELS.iter().position(|known| *known == name) else {
                        return Err(LangError::new(
                            level.span,
                            format!("`{}` is no level", level.text),
                        )
                        .remedy(
                            "use emerg, alert, crit, err, warn, notice, info, debug or audit",
                        ));
                    };
                    log.level = Some(number as u8);
                }
                "group" => {
                    self.advance();
                    log.group = Some(self.number_in("a group")?);
                }
                "snaplen" => {
                    self.advance();
                    log.snaplen = Some(self.number_in("a length")?);
                }
                "queue-threshold" => {
                    self.advance();
                    log.queue_threshold = Some(self.number_in("a threshold")?);
                }
                "flags" => {
                    self.advance();
                    self.log_flags(&mut log.flags)?;
                }
                _ => return Ok(StmtKind::Log(log)),
            }
        }
    }

    fn log_flags(&mut self, flags: &mut Vec<String>) -> Parse<()> {
        let first = self.name("a log flag")?;
        match first.text.as_str() {
            "all" | "skuid" | "ether" => flags.push(first.text),
            "tcp" | "ip" => loop {
                let flag = self.string("a log flag")?;
                flags.push(format!("{} {flag}", first.text));
                if !self.eat_punct(",") {
                    break;
                }
            },
            other => {
                return Err(
                    LangError::new(first.span, format!("`{other}` is no log flag"))
                        .remedy("use `tcp sequence,options`, `ip options`, skuid, ether or all"),
                );
            }
        }
        Ok(())
    }

    fn reject(&mut self) -> Parse<StmtKind> {
        self.advance();
        if !self.eat_word("with") {
            return Ok(StmtKind::Reject(RejectAst::Default));
        }
        let kind = self.name("`tcp reset`, icmp, icmpv6 or icmpx")?;
        if kind.text == "tcp" {
            self.expect_word("reset")?;
            return Ok(StmtKind::Reject(RejectAst::TcpReset));
        }
        self.eat_word("type");
        self.eat_word("code");
        let code = self.concat_expr()?;
        Ok(StmtKind::Reject(match kind.text.as_str() {
            "icmp" => RejectAst::Icmp(code),
            "icmpv6" => RejectAst::Icmpv6(code),
            "icmpx" => RejectAst::Icmpx(code),
            other => {
                return Err(
                    LangError::new(kind.span, format!("cannot reject with `{other}`"))
                        .remedy("use `tcp reset`, icmp, icmpv6 or icmpx"),
                );
            }
        }))
    }

    fn nat(&mut self, word: &str) -> Parse<StmtKind> {
        let kind = match word {
            "snat" => NatAst::Snat,
            "dnat" => NatAst::Dnat,
            "masquerade" => NatAst::Masquerade,
            _ => NatAst::Redirect,
        };
        self.advance();
        // `snat ip saddr map ...` starts with a selector, not with a family.
        let is_family = self
            .word_at(1)
            .is_some_and(|next| ["to", "prefix", "addr", "interval"].contains(&next));
        let family = if is_family { self.family() } else { None };
        let (mut prefix, mut with_port) = (false, false);
        if self.eat_word("prefix") {
            prefix = true;
        } else if self.eat_word("interval") {
        } else if self.is_word("addr") {
            self.advance();
            self.expect_punct(".")?;
            self.expect_word("port")?;
            with_port = true;
        }
        let to = self.eat_word("to");
        let (mut address, mut port) = (None, None);
        let ends = |parser: &Self| {
            parser.at_separator()
                || ["random", "fully-random", "persistent", "comment"]
                    .iter()
                    .any(|flag| parser.is_word(flag))
        };
        if self.is_punct(":") {
            self.advance();
            port = Some(self.nat_port()?);
        } else if matches!(kind, NatAst::Masquerade | NatAst::Redirect) && to {
            port = Some(self.nat_port()?);
        } else if matches!(kind, NatAst::Snat | NatAst::Dnat) && !ends(self) {
            address = Some(self.nat_address()?);
            if self.eat_punct(":") {
                port = Some(self.nat_port()?);
            }
        }
        let mut flags = Vec::new();
        loop {
            let flag = self.word_at(0).unwrap_or_default().to_string();
            if !["random", "fully-random", "persistent"].contains(&flag.as_str()) {
                break;
            }
            self.advance();
            flags.push(flag);
            self.eat_punct(",");
        }
        Ok(StmtKind::Nat {
            kind,
            family,
            address,
            port,
            flags,
            prefix,
            with_port,
        })
    }

    fn nat_address(&mut self) -> Parse<Expr> {
        // `[v6]:port`
        if self.eat_punct("[") {
            let inner = self.concat_expr()?;
            self.expect_punct("]")?;
            if self.eat_punct("-") {
                self.expect_punct("[")?;
                let to = self.concat_expr()?;
                self.expect_punct("]")?;
                let span = inner.span.to(to.span);
                return Ok(Expr {
                    kind: ExprKind::Range(Box::new(inner), Box::new(to)),
                    span,
                });
            }
            return Ok(inner);
        }
        self.concat_expr()
    }

    fn nat_port(&mut self) -> Parse<Expr> {
        self.eat_punct(":");
        self.concat_expr()
    }

    fn synproxy(&mut self) -> Parse<StmtKind> {
        self.advance();
        if let Some(object) = self.object_ref()? {
            return Ok(StmtKind::SynproxyRef(object));
        }
        let mut options = SynproxyAst::default();
        self.synproxy_items(&mut options)?;
        Ok(StmtKind::Synproxy(options))
    }

    fn dynset(&mut self, word: &str) -> Parse<StmtKind> {
        let op = match word {
            "add" => DynOp::Add,
            "update" => DynOp::Update,
            _ => DynOp::Delete,
        };
        self.advance();
        self.expect_punct("@")?;
        let set = self.name("the name of a set")?;
        self.expect_punct("{")?;
        self.skip_newlines();
        let element = self.element()?;
        self.skip_newlines();
        self.expect_punct("}")?;
        Ok(StmtKind::Dynset {
            op,
            set,
            element: Box::new(element),
        })
    }

    /// `set add key @name`, the older form.
    fn dynset_old(&mut self) -> Parse<StmtKind> {
        self.advance();
        let op = match self.word_at(0) {
            Some("add") => DynOp::Add,
            Some("update") => DynOp::Update,
            _ => DynOp::Delete,
        };
        self.advance();
        let mut element = plain(self.concat_expr()?);
        self.element_options(&mut element)?;
        self.expect_punct("@")?;
        let set = self.name("the name of a set")?;
        Ok(StmtKind::Dynset {
            op,
            set,
            element: Box::new(element),
        })
    }

    /// `meter name [size n] { key statements }`.
    fn meter(&mut self) -> Parse<StmtKind> {
        self.advance();
        let name = self.name("the name of a meter")?;
        let size = if self.eat_word("size") {
            Some(self.number("a size")?)
        } else {
            None
        };
        self.expect_punct("{")?;
        self.skip_newlines();
        let element = self.element()?;
        self.skip_newlines();
        self.expect_punct("}")?;
        Ok(StmtKind::Meter {
            name,
            size,
            element: Box::new(element),
        })
    }

    fn queue(&mut self) -> Parse<StmtKind> {
        self.advance();
        while !self.at_separator() && !self.is_word("comment") {
            self.advance();
        }
        Ok(StmtKind::Queue)
    }

    fn dup(&mut self) -> Parse<StmtKind> {
        self.advance();
        self.expect_word("to")?;
        let to = self.concat_expr()?;
        let device = if self.eat_word("device") {
            Some(self.concat_expr()?)
        } else {
            None
        };
        Ok(StmtKind::Dup(Some(to), device))
    }
}

fn byte_scale(unit: &str) -> Option<u64> {
    match unit {
        "bytes" => Some(1),
        "kbytes" => Some(1 << 10),
        "mbytes" => Some(1 << 20),
        _ => None,
    }
}

/// True if an expression looks at the packet.
fn is_selecting(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Selector(_) => true,
        ExprKind::Concat(parts) => parts.iter().any(is_selecting),
        ExprKind::Binary(_, left, right) => is_selecting(left) || is_selecting(right),
        ExprKind::Map(key, _) => is_selecting(key),
        _ => false,
    }
}

/// The families that may stand before an address.
pub(super) const fn is_ip(family: Family) -> bool {
    matches!(family, Family::Ip | Family::Ip6)
}
