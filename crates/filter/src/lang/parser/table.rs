//! Blocks of tables and chains.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::super::ast::{BaseAst, ChainAst, ExprKind, RuleAst, StmtKind, TableAst, VerdictAst};
use super::super::lexer::Tok;
use super::super::span::LangError;
use super::{Parse, Parser};
use crate::packet::Hook;

impl Parser<'_> {
    /// Reads `{ item; item ... }`: a scope of its own for defines.
    pub(super) fn block(&mut self, mut item: impl FnMut(&mut Self) -> Parse<()>) -> Parse<()> {
        self.expect_punct("{")?;
        self.scopes.push(Default::default());
        loop {
            self.skip_separators();
            if self.eat_punct("}") {
                break;
            }
            if self.common()? {
                continue;
            }
            item(self)?;
            self.end_statement()?;
        }
        self.scopes.pop();
        Ok(())
    }

    pub(super) fn table_block(&mut self, table: &mut TableAst) -> Parse<()> {
        self.block(|parser| parser.table_item(table))
    }

    fn table_item(&mut self, table: &mut TableAst) -> Parse<()> {
        let word = self.word_at(0).unwrap_or_default().to_string();
        match word.as_str() {
            "comment" => {
                self.advance();
                table.comment = Some(self.string("a comment")?);
            }
            "flags" => {
                self.advance();
                loop {
                    let flag = self.name("a flag")?;
                    match flag.text.as_str() {
                        "dormant" => table.dormant = true,
                        "owner" | "persist" => {}
                        other => {
                            return Err(LangError::new(
                                flag.span,
                                format!("a table has no flag `{other}`"),
                            )
                            .remedy("use `dormant`, or remove the flag"));
                        }
                    }
                    if !self.eat_punct(",") {
                        break;
                    }
                }
            }
            "chain" => {
                self.advance();
                let mut chain = ChainAst {
                    name: self.name("the name of a chain")?,
                    ..ChainAst::default()
                };
                self.chain_block(&mut chain)?;
                table.chains.push(chain);
            }
            "set" | "map" => {
                self.advance();
                let name = self.name("the name of a set")?;
                let set = self.set_block(name, word == "map")?;
                table.sets.push(set);
            }
            "counter" | "quota" | "limit" | "ct" | "synproxy" | "flowtable" | "secmark" => {
                let kind = self.object_keyword()?;
                let name = self.name("the name of the object")?;
                let object = self.object(&kind, name)?;
                table.objects.push(object);
            }
            _ => return Err(self.unexpected("a chain, set, map or object")),
        }
        Ok(())
    }

    pub(super) fn chain_block(&mut self, chain: &mut ChainAst) -> Parse<()> {
        self.block(|parser| parser.chain_item(chain))
    }

    fn chain_item(&mut self, chain: &mut ChainAst) -> Parse<()> {
        match self.word_at(0).unwrap_or_default() {
            "type" => {
                chain.base = Some(self.base_chain()?);
                if let (Some(base), Some(drop)) = (&mut chain.base, chain.policy) {
                    base.policy_drop = drop;
                }
            }
            "policy" => {
                self.advance();
                let policy = self.name("`accept` or `drop`")?;
                let drop = match policy.text.as_str() {
                    "accept" => false,
                    "drop" => true,
                    other => {
                        return Err(
                            LangError::new(policy.span, format!("`{other}` is no policy"))
                                .remedy("use `accept` or `drop`"),
                        );
                    }
                };
                chain.policy = Some(drop);
                if let Some(base) = &mut chain.base {
                    base.policy_drop = drop;
                }
            }
            "comment" => {
                self.advance();
                chain.comment = Some(self.string("a comment")?);
            }
            "flags" => {
                self.advance();
                let flag = self.name("a flag")?;
                if flag.text == "offload" {
                    return Err(LangError::new(
                        flag.span,
                        "offloading a chain to hardware is not supported",
                    )
                    .remedy("remove `flags offload`: the chain runs in software"));
                }
            }
            "device" | "devices" if chain.base.is_some() => {
                let devices = self.devices()?;
                if let Some(base) = &mut chain.base {
                    base.devices.extend(devices);
                }
            }
            _ => {
                let rule = self.rule()?;
                chain.rules.push(rule);
            }
        }
        Ok(())
    }

    /// `type filter hook input [device x] priority 0`.
    fn base_chain(&mut self) -> Parse<BaseAst> {
        self.expect_word("type")?;
        let kind = self.name("`filter`, `nat` or `route`")?;
        if !["filter", "nat", "route"].contains(&kind.text.as_str()) {
            return Err(
                LangError::new(kind.span, format!("`{}` is no type of chain", kind.text))
                    .remedy("use `filter`, `nat` or `route`"),
            );
        }
        self.expect_word("hook")?;
        let hook_name = self.name("a hook")?;
        let Some(hook) = Hook::ALL
            .into_iter()
            .find(|hook| hook.name() == hook_name.text)
        else {
            return Err(
                LangError::new(hook_name.span, format!("`{}` is no hook", hook_name.text)).remedy(
                    "use ingress, prerouting, input, forward, output, postrouting or egress",
                ),
            );
        };
        let mut devices = Vec::new();
        if self.is_word("device") || self.is_word("devices") {
            devices = self.devices()?;
        }
        let mut priority = 0;
        self.eat_punct(";");
        self.skip_newlines();
        if self.is_word("priority") {
            priority = self.priority()?;
        }
        Ok(BaseAst {
            kind: kind.text,
            hook,
            priority,
            devices,
            policy_drop: false,
        })
    }

    pub(super) fn devices(&mut self) -> Parse<Vec<String>> {
        let several = self.is_word("devices");
        self.advance();
        if several {
            self.eat_punct("=");
        }
        let value = self.list_expr()?;
        let mut devices = Vec::new();
        let mut pending = Vec::from([value]);
        while let Some(expr) = pending.pop() {
            match expr.kind {
                ExprKind::Word(name) | ExprKind::Str(name) => devices.push(name),
                ExprKind::Set(elements) => {
                    pending.extend(elements.into_iter().map(|element| element.key))
                }
                ExprKind::List(list) => pending.extend(list),
                _ => {
                    return Err(LangError::new(expr.span, "this is no name of a device")
                        .remedy("write an interface's name"));
                }
            }
        }
        devices.reverse();
        Ok(devices)
    }

    /// `priority 0`, `priority filter + 10`.
    pub(super) fn priority(&mut self) -> Parse<i32> {
        self.expect_word("priority")?;
        let span = self.span();
        let mut sign = 1;
        if self.eat_punct("-") {
            sign = -1;
        }
        let base: i64 = if matches!(self.peek(), Tok::Num(_)) {
            self.number("a priority")? as i64 * sign
        } else {
            let value = if self.is_punct("$") {
                let value = self.variable()?;
                match value.kind {
                    ExprKind::Num(number) => return Ok(number as i32),
                    ExprKind::Word(word) | ExprKind::Str(word) => word,
                    _ => String::new(),
                }
            } else {
                self.string("a priority")?
            };
            match priority_by_name(&value) {
                Some(priority) => priority,
                None => {
                    return Err(
                        LangError::new(span, format!("`{value}` is no priority")).remedy(
                            "use a number, or raw, mangle, dstnat, filter, security, srcnat, out",
                        ),
                    );
                }
            }
        };
        let mut priority = base;
        if self.eat_punct("-") {
            priority -= self.number("a number")? as i64;
        } else if let Tok::Word(word) = self.peek().clone() {
            // `filter + 10`: the lexer has no `+`, so that this is one word only without spaces.
            if let Some(rest) = word.strip_prefix('+') {
                priority += rest.parse::<i64>().unwrap_or(0);
                self.advance();
            }
        }
        if self.eat_punct("+") {
            priority += self.number("a number")? as i64;
        }
        i32::try_from(priority)
            .map_err(|_| LangError::new(span, "the priority is out of range").remedy("use 32 bits"))
    }

    pub(super) fn rule(&mut self) -> Parse<RuleAst> {
        let start = self.span();
        let mut stmts = Vec::new();
        let mut comment = None;
        while !self.at_separator() {
            if self.is_word("comment") {
                self.advance();
                comment = Some(self.string("a comment")?);
                continue;
            }
            if self.is_word("handle") && !stmts.is_empty() {
                self.advance();
                self.number("a handle")?;
                continue;
            }
            let stmt = self.statement()?;
            stmts.push(stmt);
        }
        if stmts.is_empty() {
            return Err(self.unexpected("a statement"));
        }
        let span = start.to(self.last_span());
        Ok(RuleAst {
            stmts,
            comment,
            span,
            handle: 0,
        })
    }

    /// `{ rule; rule }` after `jump` or `goto`.
    pub(super) fn anonymous_chain(&mut self, goto: bool) -> Parse<StmtKind> {
        let mut chain = ChainAst::default();
        self.deeper(|parser| parser.chain_block(&mut chain))?;
        Ok(StmtKind::Verdict(VerdictAst::Block {
            goto,
            rules: chain.rules,
        }))
    }
}

/// Priorities by name; `srcnat-5` is read too.
fn priority_by_name(name: &str) -> Option<i64> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let split = name.find(['-', '+']).unwrap_or(name.len());
    let (name, offset) = name.split_at(split);
    let base = match name {
        "raw" => -300,
        "mangle" => -150,
        "dstnat" => -100,
        "filter" => 0,
        "security" => 50,
        "srcnat" => 100,
        "out" => 100,
        _ => return None,
    };
    let offset: i64 = if offset.is_empty() {
        0
    } else {
        offset.strip_prefix('+').unwrap_or(offset).parse().ok()?
    };
    Some(base + offset)
}
