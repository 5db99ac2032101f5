//! Sets, maps, elements and named objects.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::super::ast::{
    DataAst, Element, Expr, ExprKind, LimitAst, Name, ObjectAst, ObjectKind, QuotaAst, SetAst,
    Stmt, StmtKind, SynproxyAst, TypeAst, VerdictAst,
};
use super::super::lexer::{Tok, parse_time};
use super::super::span::LangError;
use super::{Parse, Parser};

impl Parser<'_> {
    pub(super) fn set_block(&mut self, name: Name, is_map: bool) -> Parse<SetAst> {
        let mut set = SetAst {
            name,
            key: None,
            data: None,
            is_map,
            constant: false,
            interval: false,
            dynamic: false,
            timeout: false,
            timeout_ms: None,
            gc_ms: None,
            size: None,
            auto_merge: false,
            policy: None,
            stmts: Vec::new(),
            elements: Vec::new(),
            comment: None,
            handle: 0,
        };
        self.block(|parser| parser.set_item(&mut set))?;
        if set.key.is_none() {
            return Err(LangError::new(
                set.name.span,
                format!("the set `{}` has no type", set.name.text),
            )
            .remedy("write `type ...` or `typeof ...` first"));
        }
        Ok(set)
    }

    fn set_item(&mut self, set: &mut SetAst) -> Parse<()> {
        let word = self.word_at(0).unwrap_or_default().to_string();
        match word.as_str() {
            "type" => {
                self.advance();
                set.key = Some(TypeAst::Names(self.type_names()?));
                if self.eat_punct(":") {
                    set.data = Some(self.type_data()?);
                }
            }
            "typeof" => {
                self.advance();
                set.key = Some(TypeAst::Of(self.typeof_expr()?));
                if self.eat_punct(":") {
                    self.eat_word("interval");
                    set.data = Some(if self.eat_word("verdict") {
                        DataAst::Verdict
                    } else {
                        DataAst::Type(TypeAst::Of(self.typeof_expr()?))
                    });
                }
            }
            "flags" => {
                self.advance();
                self.set_flags(set)?;
            }
            "timeout" => {
                self.advance();
                set.timeout = true;
                set.timeout_ms = Some(self.time()?);
            }
            "gc-interval" => {
                self.advance();
                set.gc_ms = Some(self.time()?);
            }
            "size" => {
                self.advance();
                set.size = Some(self.number("a size")?);
            }
            "policy" => {
                self.advance();
                set.policy = Some(self.string("`memory` or `performance`")?);
            }
            "auto-merge" => {
                self.advance();
                set.auto_merge = true;
            }
            "comment" => {
                self.advance();
                set.comment = Some(self.string("a comment")?);
            }
            "elements" => {
                self.advance();
                self.expect_punct("=")?;
                set.elements = self.elements_value()?;
            }
            "counter" | "limit" | "quota" | "ct" | "last" => {
                let stmt = self.statement()?;
                set.stmts.push(stmt);
            }
            _ => return Err(self.unexpected("a property of the set")),
        }
        Ok(())
    }

    fn set_flags(&mut self, set: &mut SetAst) -> Parse<()> {
        loop {
            let flag = self.name("a flag")?;
            match flag.text.as_str() {
                "constant" => set.constant = true,
                "interval" => set.interval = true,
                "dynamic" => set.dynamic = true,
                "timeout" => set.timeout = true,
                other => {
                    return Err(
                        LangError::new(flag.span, format!("a set has no flag `{other}`"))
                            .remedy("use constant, interval, timeout or dynamic"),
                    );
                }
            }
            if !self.eat_punct(",") {
                return Ok(());
            }
            self.skip_newlines();
        }
    }

    fn type_names(&mut self) -> Parse<Vec<Name>> {
        let mut names = Vec::new();
        loop {
            names.push(self.name("the name of a type")?);
            if !self.eat_punct(".") {
                return Ok(names);
            }
        }
    }

    fn type_data(&mut self) -> Parse<DataAst> {
        self.eat_word("interval");
        match self.word_at(0).unwrap_or_default() {
            "verdict" => {
                self.advance();
                Ok(DataAst::Verdict)
            }
            "counter" | "quota" | "limit" | "ct" | "synproxy" | "secmark" => {
                Ok(DataAst::Object(self.object_keyword()?))
            }
            _ => Ok(DataAst::Type(TypeAst::Names(self.type_names()?))),
        }
    }

    /// A time: `1h30m`, or a number of seconds.
    pub(super) fn time(&mut self) -> Parse<u64> {
        let span = self.span();
        match self.peek().clone() {
            Tok::Num(seconds) => {
                self.advance();
                Ok(seconds.saturating_mul(1000))
            }
            Tok::Word(word) | Tok::Str(word) => match parse_time(&word) {
                Some(ms) => {
                    self.advance();
                    Ok(ms)
                }
                None => Err(LangError::new(span, format!("`{word}` is no time"))
                    .remedy("write it as 1d2h3m4s")),
            },
            Tok::Punct("$") => match self.variable()?.kind {
                ExprKind::Num(seconds) => Ok(seconds.saturating_mul(1000)),
                ExprKind::Word(word) | ExprKind::Str(word) => parse_time(&word).ok_or_else(|| {
                    LangError::new(span, format!("`{word}` is no time"))
                        .remedy("write it as 1d2h3m4s")
                }),
                _ => Err(LangError::new(span, "the variable holds no time")
                    .remedy("define it as 1d2h3m4s")),
            },
            _ => Err(self.unexpected("a time")),
        }
    }

    /// `{ ... }`, or a variable that holds a set.
    pub(super) fn elements_value(&mut self) -> Parse<Vec<Element>> {
        let value = self.set_or_variable()?;
        match value.kind {
            ExprKind::Set(elements) => Ok(elements),
            _ => Ok(Vec::from([plain(value)])),
        }
    }

    fn set_or_variable(&mut self) -> Parse<Expr> {
        if self.is_punct("$") {
            return self.variable();
        }
        self.set_expr()
    }

    /// `{ element, ... }`.
    pub(super) fn set_expr(&mut self) -> Parse<Expr> {
        let start = self.span();
        self.expect_punct("{")?;
        let mut elements = Vec::new();
        loop {
            self.skip_newlines();
            if self.eat_punct("}") {
                break;
            }
            let element = self.deeper(Self::element)?;
            match element.key.kind {
                // A variable that holds a set is joined in.
                ExprKind::Set(inner) if element.data.is_none() => elements.extend(inner),
                _ => elements.push(element),
            }
            self.skip_newlines();
            if self.eat_punct(",") {
                continue;
            }
            if !self.is_punct("}") {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
        let span = start.to(self.last_span());
        Ok(Expr {
            kind: ExprKind::Set(elements),
            span,
        })
    }

    /// `key [timeout t] [counter] [comment "x"] [: data]`.
    pub(super) fn element(&mut self) -> Parse<Element> {
        let key = if self.is_punct("*") {
            let span = self.span();
            self.advance();
            Expr {
                kind: ExprKind::Any,
                span,
            }
        } else {
            self.concat_expr()?
        };
        let mut element = plain(key);
        self.element_options(&mut element)?;
        if self.eat_punct(":") {
            self.skip_newlines();
            element.data = Some(self.data_expr()?);
            self.element_options(&mut element)?;
        }
        Ok(element)
    }

    pub(super) fn element_options(&mut self, element: &mut Element) -> Parse<()> {
        loop {
            let word = self.word_at(0).unwrap_or_default().to_string();
            match word.as_str() {
                "timeout" => {
                    self.advance();
                    element.timeout_ms = Some(self.time()?);
                }
                "expires" => {
                    self.advance();
                    element.expires_ms = Some(self.time()?);
                }
                "comment" => {
                    self.advance();
                    element.comment = Some(self.string("a comment")?);
                }
                "counter" | "limit" | "quota" | "ct" | "last" => {
                    let stmt = self.statement()?;
                    element.stmts.push(stmt);
                }
                _ => return Ok(()),
            }
        }
    }

    /// Data of a map: a verdict, or a value.
    fn data_expr(&mut self) -> Parse<Expr> {
        let start = self.span();
        match self.verdict()? {
            Some(verdict) => Ok(Expr {
                kind: ExprKind::Verdict(verdict),
                span: start.to(self.last_span()),
            }),
            None => self.with_class_ids(Self::concat_expr),
        }
    }

    /// `accept`, `drop`, `return`, `continue`, `jump x`, `goto x`, if one stands here.
    pub(super) fn verdict(&mut self) -> Parse<Option<VerdictAst>> {
        let word = self.word_at(0).unwrap_or_default().to_string();
        let verdict = match word.as_str() {
            "accept" => VerdictAst::Accept,
            "drop" => VerdictAst::Drop,
            "return" => VerdictAst::Return,
            "continue" => VerdictAst::Continue,
            "jump" | "goto" => {
                self.advance();
                let goto = word == "goto";
                if self.is_punct("{") {
                    return match self.anonymous_chain(goto)? {
                        StmtKind::Verdict(verdict) => Ok(Some(verdict)),
                        _ => Ok(None),
                    };
                }
                let chain = self.name("the name of a chain")?;
                return Ok(Some(if goto {
                    VerdictAst::Goto(chain)
                } else {
                    VerdictAst::Jump(chain)
                }));
            }
            _ => return Ok(None),
        };
        self.advance();
        Ok(Some(verdict))
    }

    /// The keyword of an object; `ct helper` and the like are two words.
    pub(super) fn object_keyword(&mut self) -> Parse<String> {
        let first = self.string("the kind of an object")?;
        if first != "ct" {
            return Ok(first);
        }
        let second = self.name("helper, timeout or expectation")?;
        if !["helper", "timeout", "expectation"].contains(&second.text.as_str()) {
            return Err(
                LangError::new(second.span, format!("`ct {}` is no object", second.text))
                    .remedy("use `ct helper`, `ct timeout` or `ct expectation`"),
            );
        }
        Ok(format!("ct {}", second.text))
    }

    pub(super) fn object(&mut self, kind: &str, name: Name) -> Parse<ObjectAst> {
        let mut object = ObjectAst {
            name,
            kind: empty_object(kind),
            comment: None,
            handle: 0,
        };
        let braces = self.eat_punct("{");
        loop {
            if braces {
                self.skip_separators();
                if self.eat_punct("}") {
                    break;
                }
            } else if self.at_separator() {
                break;
            }
            if self.eat_word("comment") {
                object.comment = Some(self.string("a comment")?);
            } else {
                self.object_item(&mut object.kind)?;
            }
            if braces {
                self.end_statement()?;
            }
        }
        Ok(object)
    }

    fn object_item(&mut self, kind: &mut ObjectKind) -> Parse<()> {
        match kind {
            ObjectKind::Counter { packets, bytes } => {
                self.expect_word("packets")?;
                *packets = self.number("a number")?;
                self.expect_word("bytes")?;
                *bytes = self.number("a number")?;
            }
            ObjectKind::Quota(quota) => *quota = self.quota_body()?,
            ObjectKind::Limit(limit) => *limit = self.limit_body()?,
            ObjectKind::Synproxy(options) => {
                self.synproxy_item(options)?;
                // As the kernel's tool writes it: several on one line.
                self.synproxy_items(options)?;
            }
            ObjectKind::Secmark(context) => *context = self.string("a security context")?,
            ObjectKind::Helper {
                kind,
                protocol,
                l3proto,
            } => {
                if self.eat_word("type") {
                    *kind = self.string("the type of a helper")?;
                    self.expect_word("protocol")?;
                    *protocol = self.string("a protocol")?;
                } else {
                    self.expect_word("l3proto")?;
                    *l3proto = Some(self.string("a family")?);
                }
            }
            ObjectKind::Flowtable {
                priority,
                devices,
                flags,
            } => {
                if self.eat_word("hook") {
                    self.name("a hook")?;
                    *priority = self.priority()?;
                } else if self.is_word("devices") || self.is_word("device") {
                    *devices = self.devices()?;
                } else if self.eat_word("flags") {
                    flags.push(self.string("a flag")?);
                } else {
                    self.expect_word("counter")?;
                    flags.push("counter".to_string());
                }
            }
            ObjectKind::Timeout {
                protocol,
                l3proto,
                policy,
            } => {
                if self.eat_word("protocol") {
                    *protocol = self.string("a protocol")?;
                } else if self.eat_word("l3proto") {
                    *l3proto = Some(self.string("a family")?);
                } else {
                    self.expect_word("policy")?;
                    self.expect_punct("=")?;
                    self.expect_punct("{")?;
                    while !self.eat_punct("}") {
                        self.skip_newlines();
                        let state = self.string("a state")?;
                        self.expect_punct(":")?;
                        policy.push((state, self.time()? / 1000));
                        self.skip_newlines();
                        self.eat_punct(",");
                        self.skip_newlines();
                    }
                }
            }
            ObjectKind::Expectation {
                protocol,
                dport,
                timeout_ms,
                size,
                l3proto,
            } => {
                let key = self.name("a property of the expectation")?;
                match key.text.as_str() {
                    "protocol" => *protocol = self.string("a protocol")?,
                    "dport" => *dport = self.number_in("a port")?,
                    "timeout" => *timeout_ms = self.time()?,
                    "size" => *size = self.number_in("a size")?,
                    "l3proto" => *l3proto = Some(self.string("a family")?),
                    _ => {
                        return Err(LangError::new(key.span, "no property of an expectation")
                            .remedy("remove it"));
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn synproxy_items(&mut self, options: &mut SynproxyAst) -> Parse<()> {
        while ["mss", "wscale", "timestamp", "sack-perm"]
            .iter()
            .any(|word| self.is_word(word))
        {
            self.synproxy_item(options)?;
        }
        Ok(())
    }

    fn synproxy_item(&mut self, options: &mut SynproxyAst) -> Parse<()> {
        let word = self.name("mss, wscale, timestamp or sack-perm")?;
        match word.text.as_str() {
            "mss" => options.mss = self.number_in("an MSS")?,
            "wscale" => options.wscale = Some(self.number_in("a window scale")?),
            "timestamp" => options.timestamp = true,
            "sack-perm" => options.sack_perm = true,
            other => {
                return Err(
                    LangError::new(word.span, format!("synproxy has no option `{other}`"))
                        .remedy("use mss, wscale, timestamp or sack-perm"),
                );
            }
        }
        Ok(())
    }
}

/// An element without data and options.
pub(super) fn plain(key: Expr) -> Element {
    Element {
        key,
        data: None,
        timeout_ms: None,
        expires_ms: None,
        stmts: Vec::<Stmt>::new(),
        comment: None,
    }
}

fn empty_object(kind: &str) -> ObjectKind {
    match kind {
        "counter" => ObjectKind::Counter {
            packets: 0,
            bytes: 0,
        },
        "quota" => ObjectKind::Quota(QuotaAst::default()),
        "limit" => ObjectKind::Limit(LimitAst::default()),
        "synproxy" => ObjectKind::Synproxy(SynproxyAst::default()),
        "flowtable" => ObjectKind::Flowtable {
            priority: 0,
            devices: Vec::new(),
            flags: Vec::new(),
        },
        "ct helper" => ObjectKind::Helper {
            kind: String::new(),
            protocol: String::new(),
            l3proto: None,
        },
        "ct timeout" => ObjectKind::Timeout {
            protocol: String::new(),
            l3proto: None,
            policy: Vec::new(),
        },
        "ct expectation" => ObjectKind::Expectation {
            protocol: String::new(),
            dport: 0,
            timeout_ms: 0,
            size: 0,
            l3proto: None,
        },
        _ => ObjectKind::Secmark(String::new()),
    }
}
