//! Commands: `add`, `create`, `insert`, `delete`, `flush`, `list` and blocks.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::super::ast::{
    ChainAst, Command, CommandKind, Element, Name, RulePosition, TableAst, TableRef,
};
use super::super::lexer::Tok;
use super::super::span::{LangError, Span};
use super::{Parse, Parser};
use crate::packet::Family;

const OBJECTS: [&str; 8] = [
    "counter",
    "quota",
    "limit",
    "ct",
    "synproxy",
    "flowtable",
    "secmark",
    "tunnel",
];

impl Parser<'_> {
    pub(super) fn commands(&mut self) -> Parse<Vec<Command>> {
        let mut commands = Vec::new();
        loop {
            self.skip_separators();
            if matches!(self.peek(), Tok::End) {
                return Ok(commands);
            }
            if self.common()? {
                continue;
            }
            let start = self.span();
            let kind = self.command()?;
            let span = start.to(self.last_span());
            commands.push(Command { kind, span });
            if self.is_punct("}") {
                return Err(
                    LangError::new(self.span(), "a closing brace without an opening one")
                        .remedy("remove it"),
                );
            }
            self.end_statement()?;
        }
    }

    fn command(&mut self) -> Parse<CommandKind> {
        let word = self.word_at(0).unwrap_or_default().to_string();
        match word.as_str() {
            "add" | "create" | "insert" | "replace" | "delete" | "destroy" | "flush" | "rename" => {
                self.advance()
            }
            "list" | "reset" | "monitor" | "export" | "describe" => {
                while !self.at_separator() {
                    self.advance();
                }
                return Ok(CommandKind::List(word));
            }
            _ => return self.add(false),
        }
        match word.as_str() {
            "add" => self.add(false),
            "create" => self.add(true),
            "insert" | "replace" => {
                self.eat_word("rule");
                self.rule_command(&word)
            }
            "delete" | "destroy" => self.delete(word == "destroy"),
            "flush" => self.flush(),
            _ => {
                self.expect_word("chain")?;
                let table = self.table_ref()?;
                let chain = self.name("the name of a chain")?;
                let to = self.name("the new name")?;
                Ok(CommandKind::RenameChain { table, chain, to })
            }
        }
    }

    pub(super) fn family(&mut self) -> Option<Family> {
        let word = self.word_at(0)?;
        let family = Family::ALL
            .into_iter()
            .find(|family| family.name() == word)?;
        self.advance();
        Some(family)
    }

    fn table_ref(&mut self) -> Parse<TableRef> {
        let family = self.family().unwrap_or(Family::Ip);
        let name = self.name("the name of a table")?;
        Ok(TableRef { family, name })
    }

    fn empty_table(table: TableRef) -> TableAst {
        TableAst {
            family: table.family,
            name: table.name,
            dormant: false,
            chains: Vec::new(),
            sets: Vec::new(),
            objects: Vec::new(),
            comment: None,
            handle: 0,
        }
    }

    fn add(&mut self, create: bool) -> Parse<CommandKind> {
        let word = self.word_at(0).unwrap_or_default().to_string();
        match word.as_str() {
            "table" => {
                self.advance();
                let mut table = Self::empty_table(self.table_ref()?);
                if self.is_punct("{") {
                    self.table_block(&mut table)?;
                }
                Ok(CommandKind::Table {
                    table: Box::new(table),
                    create,
                })
            }
            "chain" => {
                self.advance();
                let mut table = Self::empty_table(self.table_ref()?);
                let mut chain = ChainAst {
                    name: self.name("the name of a chain")?,
                    ..ChainAst::default()
                };
                if self.is_punct("{") {
                    self.chain_block(&mut chain)?;
                }
                table.chains.push(chain);
                Ok(CommandKind::Table {
                    table: Box::new(table),
                    create,
                })
            }
            "set" | "map" => {
                self.advance();
                let mut table = Self::empty_table(self.table_ref()?);
                let name = self.name("the name of a set")?;
                let set = self.set_block(name, word == "map")?;
                table.sets.push(set);
                Ok(CommandKind::Table {
                    table: Box::new(table),
                    create,
                })
            }
            "element" => {
                self.advance();
                let (table, set, elements) = self.elements_command()?;
                Ok(CommandKind::AddElements {
                    table,
                    set,
                    elements,
                })
            }
            "rule" => {
                self.advance();
                self.rule_command("add")
            }
            _ if OBJECTS.contains(&word.as_str()) => {
                let kind = self.object_keyword()?;
                let mut table = Self::empty_table(self.table_ref()?);
                let name = self.name("the name of the object")?;
                let object = self.object(&kind, name)?;
                table.objects.push(object);
                Ok(CommandKind::Table {
                    table: Box::new(table),
                    create,
                })
            }
            _ if Family::ALL.iter().any(|family| family.name() == word)
                || matches!(self.peek_at(1), Tok::Word(_)) =>
            {
                self.rule_command("add")
            }
            _ => Err(self.unexpected("a command")),
        }
    }

    fn elements_command(&mut self) -> Parse<(TableRef, Name, Vec<Element>)> {
        let table = self.table_ref()?;
        let set = self.name("the name of a set")?;
        let elements = self.elements_value()?;
        Ok((table, set, elements))
    }

    fn rule_command(&mut self, word: &str) -> Parse<CommandKind> {
        let table = self.table_ref()?;
        let chain = self.name("the name of a chain")?;
        let before = word == "insert";
        let mut position = if before {
            RulePosition::Start
        } else {
            RulePosition::End
        };
        if self.eat_word("handle") || self.eat_word("position") {
            let handle = self.number("a handle")?;
            position = match word {
                "insert" => RulePosition::BeforeHandle(handle),
                "replace" => RulePosition::Replace(handle),
                _ => RulePosition::AfterHandle(handle),
            };
        } else if self.eat_word("index") {
            let index = self.number("an index")?;
            position = if before {
                RulePosition::BeforeIndex(index)
            } else {
                RulePosition::AfterIndex(index)
            };
        } else if word == "replace" {
            return Err(self.unexpected("`handle` and the rule's handle"));
        }
        let rule = Box::new(self.rule()?);
        Ok(CommandKind::Rule {
            table,
            chain,
            position,
            rule,
        })
    }

    fn handle(&mut self) -> Parse<Option<u64>> {
        if self.eat_word("handle") {
            return Ok(Some(self.number("a handle")?));
        }
        Ok(None)
    }

    fn delete(&mut self, destroy: bool) -> Parse<CommandKind> {
        let what = self.word_at(0).unwrap_or_default().to_string();
        let span = self.span();
        if OBJECTS.contains(&what.as_str()) {
            let what = self.object_keyword()?;
            let table = self.table_ref()?;
            let name = Some(self.name("the name of the object")?);
            return Ok(CommandKind::Delete {
                what,
                table,
                name,
                destroy,
            });
        }
        self.advance();
        match what.as_str() {
            "rule" => {
                let table = self.table_ref()?;
                let chain = self.name("the name of a chain")?;
                let handle = self
                    .handle()?
                    .ok_or_else(|| self.unexpected("`handle` and the rule's handle"))?;
                Ok(CommandKind::DeleteRule {
                    table,
                    chain,
                    handle,
                    destroy,
                })
            }
            "element" => {
                let (table, set, elements) = self.elements_command()?;
                Ok(CommandKind::DeleteElements {
                    table,
                    set,
                    elements,
                    destroy,
                })
            }
            "table" => {
                let table = self.table_ref()?;
                Ok(CommandKind::Delete {
                    what,
                    table,
                    name: None,
                    destroy,
                })
            }
            "chain" | "set" | "map" | "meter" => {
                let table = self.table_ref()?;
                let name = Some(self.name("a name")?);
                if self.is_punct("{") {
                    self.skip_block(span)?;
                }
                Ok(CommandKind::Delete {
                    what,
                    table,
                    name,
                    destroy,
                })
            }
            _ => Err(
                LangError::new(span, format!("`{what}` is nothing that can be deleted"))
                    .remedy("delete a table, chain, rule, set, map, element or object"),
            ),
        }
    }

    /// Skips a block that repeats what is deleted anyway.
    fn skip_block(&mut self, span: Span) -> Parse<()> {
        let mut depth = 0_usize;
        loop {
            if self.is_punct("{") {
                depth += 1;
            } else if self.is_punct("}") {
                depth -= 1;
            } else if matches!(self.peek(), Tok::End) {
                return Err(
                    LangError::new(span, "a block that does not end").remedy("close it with `}`")
                );
            }
            self.advance();
            if depth == 0 {
                return Ok(());
            }
        }
    }

    fn flush(&mut self) -> Parse<CommandKind> {
        let span = self.span();
        let what = self.word_at(0).unwrap_or_default().to_string();
        self.advance();
        match what.as_str() {
            "ruleset" => Ok(CommandKind::FlushRuleset(self.family())),
            "table" => Ok(CommandKind::FlushTable(self.table_ref()?)),
            "chain" => Ok(CommandKind::FlushChain(
                self.table_ref()?,
                self.name("the name of a chain")?,
            )),
            "set" | "map" | "meter" => Ok(CommandKind::FlushSet(
                self.table_ref()?,
                self.name("the name of a set")?,
            )),
            _ => Err(LangError::new(span, "nothing that can be flushed")
                .remedy("flush the ruleset, a table, a chain, a set, a map or a meter")),
        }
    }
}
