//! Expressions: selectors, constants, sets, ranges, concatenations, operators.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use super::super::ast::{BinOp, Expr, ExprKind};
use super::super::lexer::Tok;
use super::super::selector::{
    CT, EXTHDR, FibResultAst, META, ProtocolSpec, Selector, TCP_OPTIONS, protocol,
};
use super::super::span::{LangError, Span};
use super::statement::is_ip;
use super::{Parse, Parser};
use crate::packet::{CtDirection, Family};
use crate::rules::field::Base;

impl Parser<'_> {
    /// The right side of a match: like any expression, but a list of flags too.
    pub(super) fn rhs(&mut self) -> Parse<Expr> {
        self.list_expr()
    }

    /// `a, b, c`.
    pub(super) fn list_expr(&mut self) -> Parse<Expr> {
        let first = self.concat_expr()?;
        if !self.is_punct(",") {
            return Ok(first);
        }
        let start = first.span;
        let mut list = vec![first];
        while self.eat_punct(",") {
            self.skip_newlines();
            list.push(self.concat_expr()?);
        }
        let span = start.to(self.last_span());
        Ok(Expr {
            kind: ExprKind::List(list),
            span,
        })
    }

    /// `a . b`.
    pub(super) fn concat_expr(&mut self) -> Parse<Expr> {
        let first = self.deeper(Self::map_expr)?;
        if !self.is_punct(".") {
            return Ok(first);
        }
        let start = first.span;
        let mut parts = vec![first];
        while self.eat_punct(".") {
            self.skip_newlines();
            parts.push(self.deeper(Self::binary_or)?);
        }
        let span = start.to(self.last_span());
        let concat = Expr {
            kind: ExprKind::Concat(parts),
            span,
        };
        self.map_tail(concat)
    }

    fn map_expr(&mut self) -> Parse<Expr> {
        let key = self.binary_or()?;
        self.map_tail(key)
    }

    fn map_tail(&mut self, key: Expr) -> Parse<Expr> {
        if !self.eat_word("map") {
            return Ok(key);
        }
        let map = self.rhs_primary()?;
        let span = key.span.to(map.span);
        Ok(Expr {
            kind: ExprKind::Map(Box::new(key), Box::new(map)),
            span,
        })
    }

    fn binary_level(
        &mut self,
        operators: &[(&str, &str, BinOp)],
        next: fn(&mut Self) -> Parse<Expr>,
    ) -> Parse<Expr> {
        let mut left = next(self)?;
        loop {
            let found = operators.iter().find(|(symbol, word, _)| {
                self.is_punct(symbol)
                    || (self.is_word(word) && !matches!(self.peek_at(1), Tok::Newline | Tok::End))
            });
            let Some((_, _, op)) = found else {
                return Ok(left);
            };
            self.advance();
            let right = next(self)?;
            let span = left.span.to(right.span);
            left = Expr {
                kind: ExprKind::Binary(*op, Box::new(left), Box::new(right)),
                span,
            };
        }
    }

    fn binary_or(&mut self) -> Parse<Expr> {
        self.binary_level(&[("|", "or", BinOp::Or)], Self::binary_xor)
    }

    fn binary_xor(&mut self) -> Parse<Expr> {
        self.binary_level(&[("^", "xor", BinOp::Xor)], Self::binary_and)
    }

    fn binary_and(&mut self) -> Parse<Expr> {
        self.binary_level(&[("&", "and", BinOp::And)], Self::binary_shift)
    }

    fn binary_shift(&mut self) -> Parse<Expr> {
        self.binary_level(
            &[("<<", "lshift", BinOp::Shl), (">>", "rshift", BinOp::Shr)],
            Self::range_expr,
        )
    }

    /// `a`, `a/len` or `a-b`.
    fn range_expr(&mut self) -> Parse<Expr> {
        let first = self.prefix_expr()?;
        if !self.is_punct("-") {
            return Ok(first);
        }
        self.advance();
        let last = self.prefix_expr()?;
        let span = first.span.to(last.span);
        Ok(Expr {
            kind: ExprKind::Range(Box::new(first), Box::new(last)),
            span,
        })
    }

    fn prefix_expr(&mut self) -> Parse<Expr> {
        let base = self.rhs_primary()?;
        let is_length = matches!(self.peek_at(1), Tok::Num(_) | Tok::Punct("$"));
        let is_constant = !matches!(base.kind, ExprKind::Selector(_) | ExprKind::Set(_));
        if self.is_punct("/") && is_length && is_constant {
            self.advance();
            let length = self.number("a prefix length")?;
            let span = base.span.to(self.last_span());
            return Ok(Expr {
                kind: ExprKind::Prefix(Box::new(base), length),
                span,
            });
        }
        Ok(base)
    }

    pub(super) fn rhs_primary(&mut self) -> Parse<Expr> {
        let span = self.span();
        let kind = match self.peek().clone() {
            Tok::Punct("{") => return self.deeper(Self::set_expr),
            Tok::Punct("(") => {
                self.advance();
                let inner = self.deeper(Self::list_expr)?;
                self.expect_punct(")")?;
                return Ok(inner);
            }
            Tok::Punct("$") => return self.variable(),
            Tok::Punct("@") => return self.at_expr(),
            Tok::Punct("*") => ExprKind::Any,
            Tok::Num(major) if self.is_class_id() => {
                self.advance();
                self.advance();
                let minor = self.number("the minor number of a class")?;
                // The halves of a class are written in hexadecimal, without prefix.
                return Ok(Expr {
                    kind: ExprKind::Word(format!("{major}:{minor}")),
                    span: span.to(self.last_span()),
                });
            }
            Tok::Num(number) => ExprKind::Num(number),
            Tok::Str(string) => ExprKind::Str(string),
            Tok::Word(word) => return self.word_expr(&word, span),
            _ => return Err(self.unexpected("an expression")),
        };
        self.advance();
        Ok(Expr { kind, span })
    }

    /// `1:11` in one piece, as a class of traffic control is written. Ports and verdicts are spaced or named.
    fn is_class_id(&self) -> bool {
        let close = |ahead: usize| {
            self.tokens
                .get(self.at + ahead)
                .is_some_and(|token| !token.spaced)
        };
        matches!(self.peek_at(1), Tok::Punct(":"))
            && matches!(self.peek_at(2), Tok::Num(_))
            && close(1)
            && close(2)
            && self.class_ids
    }

    /// `@set`, or `@nh,offset,bits`.
    fn at_expr(&mut self) -> Parse<Expr> {
        let start = self.span();
        self.advance();
        let name = self.name("the name of a set")?;
        let base = match name.text.as_str() {
            "ll" => Some(Base::Link),
            "nh" => Some(Base::Network),
            "th" => Some(Base::Transport),
            "ih" => Some(Base::Inner),
            _ => None,
        };
        if let (Some(base), true) = (base, self.is_punct(",")) {
            self.advance();
            let offset = self.number_in("an offset")?;
            self.expect_punct(",")?;
            let bits: u16 = self.number_in("a width")?;
            let span = start.to(self.last_span());
            if bits == 0 || bits > 128 {
                return Err(
                    LangError::new(span, "a raw field has 1 to 128 bits").remedy("split it")
                );
            }
            return Ok(Expr {
                kind: ExprKind::Selector(Selector::Raw(base, offset, bits)),
                span,
            });
        }
        let span = start.to(name.span);
        Ok(Expr {
            kind: ExprKind::SetRef(name.text),
            span,
        })
    }

    fn word_expr(&mut self, word: &str, start: Span) -> Parse<Expr> {
        let selector = self.selector(word)?;
        let kind = match selector {
            Some(selector) => ExprKind::Selector(selector),
            None => {
                self.advance();
                ExprKind::Word(word.to_string())
            }
        };
        Ok(Expr {
            kind,
            span: start.to(self.last_span()),
        })
    }

    /// Reads a selector if `word`, the next token, starts one; consumes nothing otherwise.
    fn selector(&mut self, word: &str) -> Parse<Option<Selector>> {
        let next = self.word_at(1).unwrap_or_default().to_string();
        if word == "meta" {
            self.advance();
            let key = self.name("a meta key")?;
            return match META.iter().position(|meta| meta.0 == key.text) {
                Some(index) => Ok(Some(Selector::Meta(index))),
                None => Err(
                    LangError::new(key.span, format!("`{}` is no meta key", key.text))
                        .remedy("see META EXPRESSIONS in nft(8)"),
                ),
            };
        }
        let is_value = next.is_empty() && (word == "rt" || word == "ct" || word == "fib");
        match word {
            "ct" if !is_value => return self.ct_selector().map(Some),
            "fib" => return self.fib_selector().map(Some),
            "rt" if ["classid", "nexthop", "mtu", "ipsec", "ip", "ip6"]
                .contains(&next.as_str()) =>
            {
                return self.rt_selector().map(Some);
            }
            "tcp" if next == "option" => return self.tcp_option().map(Some),
            "ip" if next == "option" => return self.unsupported("ip option", 3).map(Some),
            "socket" if !next.is_empty() => {
                self.advance();
                let key = self.string("a socket key")?;
                if key == "cgroupv2" && self.eat_word("level") {
                    self.number("a level")?;
                }
                return Ok(Some(Selector::Socket(key)));
            }
            "osf" => return self.unsupported("osf", 2).map(Some),
            "ipsec" if next == "in" || next == "out" => {
                return self.unsupported("ipsec", 3).map(Some);
            }
            "exthdr" => {
                self.advance();
                let header = self.name("an extension header")?;
                return self.exthdr(&header.text, header.span, true).map(Some);
            }
            "jhash" => return self.hash(true).map(Some),
            "symhash" => return self.hash(false).map(Some),
            "numgen" => return self.numgen().map(Some),
            _ => {}
        }
        if let Some(spec) = protocol(word)
            && self.is_field(spec, &next)
        {
            self.advance();
            return self.payload(spec).map(Some);
        }
        if let Some((_, _, fields)) = EXTHDR.iter().find(|(name, ..)| *name == word)
            && (fields.iter().any(|field| field.name == next)
                || next == "exists"
                || next == "missing")
        {
            let span = self.span();
            self.advance();
            return self.exthdr(word, span, false).map(Some);
        }
        if let Some(index) = META.iter().position(|meta| meta.0 == word && meta.3) {
            self.advance();
            return Ok(Some(Selector::Meta(index)));
        }
        Ok(None)
    }

    /// True if `next` is a field of the protocol. Values such as `ip` or `tcp` are followed by something else.
    fn is_field(&self, spec: &ProtocolSpec, next: &str) -> bool {
        spec.fields.iter().any(|field| {
            field.name == next || field.name.starts_with(&format!("{next} ")) && !next.is_empty()
        })
    }

    fn payload(&mut self, spec: &'static ProtocolSpec) -> Parse<Selector> {
        let name = self.name("a field")?;
        let mut wanted = name.text.clone();
        if spec.name == "arp" && (wanted == "saddr" || wanted == "daddr") {
            let kind = self.string("`ip` or `ether`")?;
            wanted = format!("{wanted} {kind}");
        }
        match spec.fields.iter().find(|field| field.name == wanted) {
            Some(field) => Ok(Selector::Payload(spec, field)),
            None => Err(LangError::new(
                name.span,
                format!("`{}` has no field `{wanted}`", spec.name),
            )
            .remedy("see PAYLOAD EXPRESSIONS in nft(8)")),
        }
    }

    fn exthdr(&mut self, name: &str, span: Span, explicit: bool) -> Parse<Selector> {
        let Some(index) = EXTHDR.iter().position(|header| header.0 == name) else {
            return Err(
                LangError::new(span, format!("`{name}` is no extension header"))
                    .remedy("use hbh, rt, frag, dst, mh or srh"),
            );
        };
        if explicit {
            return Ok(Selector::ExtHdr(index, None));
        }
        let wanted = self.word_at(0).unwrap_or_default();
        let field = EXTHDR
            .get(index)
            .and_then(|header| header.2.iter().find(|field| field.name == wanted));
        if field.is_some() {
            self.advance();
        }
        Ok(Selector::ExtHdr(index, field))
    }

    fn tcp_option(&mut self) -> Parse<Selector> {
        self.advance();
        self.advance();
        if let Tok::Num(_) = self.peek() {
            return Ok(Selector::TcpOptionKind(self.number_in("an option kind")?));
        }
        let name = self.name("a TCP option")?;
        let Some(index) = TCP_OPTIONS.iter().position(|option| option.0 == name.text) else {
            return Err(
                LangError::new(name.span, format!("`{}` is no TCP option", name.text)).remedy(
                    "use maxseg, window, sack-perm, sack, timestamp, or the option's number",
                ),
            );
        };
        let wanted = self.word_at(0).unwrap_or_default();
        let field = TCP_OPTIONS
            .get(index)
            .and_then(|option| option.2.iter().find(|field| field.name == wanted));
        if field.is_some() {
            self.advance();
        }
        Ok(Selector::TcpOption(index, field))
    }

    /// Recognises something that this node has not, so that the error can name it.
    fn unsupported(&mut self, name: &str, words: usize) -> Parse<Selector> {
        for _ in 0..words {
            if self.at_separator() {
                break;
            }
            self.advance();
        }
        Ok(Selector::Unsupported(name.to_string()))
    }

    fn ct_selector(&mut self) -> Parse<Selector> {
        self.advance();
        let mut direction = None;
        if self.is_word("original") || self.is_word("reply") {
            direction = Some(if self.is_word("reply") {
                CtDirection::Reply
            } else {
                CtDirection::Original
            });
            self.advance();
        }
        let mut family = None;
        if self
            .word_at(1)
            .is_some_and(|next| next == "saddr" || next == "daddr")
        {
            family = self.family().filter(|family| is_ip(*family));
        }
        let key = self.name("a ct key")?;
        let name = if key.text == "proto" {
            "protocol"
        } else {
            key.text.as_str()
        };
        match CT.iter().position(|ct| ct.0 == name) {
            Some(key) => Ok(Selector::Ct {
                key,
                direction,
                family,
            }),
            None if name == "secmark" => Ok(Selector::Unsupported("ct secmark".to_string())),
            None => Err(LangError::new(key.span, format!("`{name}` is no ct key"))
                .remedy("see CONNTRACK EXPRESSIONS in nft(8)")),
        }
    }

    fn fib_selector(&mut self) -> Parse<Selector> {
        self.advance();
        let (mut source, mut mark, mut iif, mut oif) = (false, false, false, false);
        let mut address = false;
        loop {
            let flag = self.name("saddr, daddr, mark, iif or oif")?;
            match flag.text.as_str() {
                "saddr" => (source, address) = (true, true),
                "daddr" => address = true,
                "mark" => mark = true,
                "iif" => iif = true,
                "oif" => oif = true,
                other => {
                    return Err(LangError::new(
                        flag.span,
                        format!("`{other}` is no part of a fib key"),
                    )
                    .remedy("use saddr, daddr, mark, iif and oif, joined by dots"));
                }
            }
            if !self.eat_punct(".") {
                break;
            }
        }
        if !address {
            return Err(
                LangError::new(self.last_span(), "the fib key has no address")
                    .remedy("add saddr or daddr"),
            );
        }
        self.eat_word("check");
        let result = self.name("oif, oifname or type")?;
        let result = match result.text.as_str() {
            "oif" => FibResultAst::Oif,
            "oifname" => FibResultAst::OifName,
            "type" => FibResultAst::Type,
            other => {
                return Err(
                    LangError::new(result.span, format!("fib gives no `{other}`"))
                        .remedy("ask for oif, oifname or type"),
                );
            }
        };
        let check = result != FibResultAst::Type
            && (self.exists_follows(0)
                || (matches!(self.peek(), Tok::Punct("==" | "!=")) && self.exists_follows(1)));
        Ok(Selector::Fib {
            source,
            mark,
            iif,
            oif,
            result,
            check,
        })
    }

    fn exists_follows(&self, ahead: usize) -> bool {
        self.word_at(ahead)
            .is_some_and(|word| ["exists", "missing", "true", "false"].contains(&word))
    }

    fn rt_selector(&mut self) -> Parse<Selector> {
        self.advance();
        let family: Option<Family> = self.family();
        let key: String = self.string("mtu, nexthop or classid")?;
        Ok(Selector::Rt { key, family })
    }

    fn hash(&mut self, of_expr: bool) -> Parse<Selector> {
        self.advance();
        let of = if of_expr {
            Some(Box::new(self.concat_expr()?))
        } else {
            None
        };
        let modulus = self.modulus()?;
        let (mut seed, mut offset) = (0, 0);
        loop {
            if self.eat_word("seed") {
                seed = self.number_in("a seed")?;
            } else if self.eat_word("offset") {
                offset = self.number_in("an offset")?;
            } else {
                return Ok(Selector::Hash {
                    of,
                    modulus,
                    seed,
                    offset,
                });
            }
        }
    }

    fn modulus(&mut self) -> Parse<u32> {
        self.expect_word("mod")?;
        let span = self.span();
        match self.number_in("a modulus")? {
            0 => Err(LangError::new(span, "a modulus of zero").remedy("use one above zero")),
            modulus => Ok(modulus),
        }
    }

    fn numgen(&mut self) -> Parse<Selector> {
        self.advance();
        let kind = self.name("`inc` or `random`")?;
        let inc = match kind.text.as_str() {
            "inc" => true,
            "random" => false,
            _ => {
                return Err(LangError::new(kind.span, "no kind of number generator")
                    .remedy("use `inc` or `random`"));
            }
        };
        let modulus = self.modulus()?;
        let offset = if self.eat_word("offset") {
            self.number_in("an offset")?
        } else {
            0
        };
        Ok(Selector::Numgen {
            inc,
            modulus,
            offset,
        })
    }

    /// The expression of `typeof`, whose selectors need no values.
    pub(super) fn typeof_expr(&mut self) -> Parse<Expr> {
        let mut parts: Vec<Expr> = Vec::new();
        loop {
            parts.push(self.binary_or()?);
            if !self.eat_punct(".") {
                break;
            }
        }
        if parts.len() == 1
            && let Some(only) = parts.pop()
        {
            return Ok(only);
        }
        let span = parts
            .first()
            .map(|part| part.span)
            .unwrap_or_default()
            .to(self.last_span());
        Ok(Expr {
            kind: ExprKind::Concat(parts),
            span,
        })
    }
}
