//! The ruleset as a tree: what commands have made of it so far.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::ast::{
    ChainAst, Command, CommandKind, Element, ExprKind, Name, ObjectAst, RuleAst, RulePosition,
    SetAst, TableAst, TableRef,
};
use super::span::LangError;
use crate::packet::Family;

type Apply = Result<(), LangError>;

/// Tables, with chains, rules, sets and objects, in the order in which they were added.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    /// The tables.
    pub tables: Vec<TableAst>,
    next_handle: u64,
}

impl Model {
    /// Applies commands, all or none.
    ///
    /// # Errors
    /// The first command that the ruleset does not allow, e.g. a rule in a chain that is not there.
    pub fn apply(&mut self, commands: &[Command]) -> Apply {
        let mut next = self.clone();
        for command in commands {
            next.command(command)?;
        }
        *self = next;
        Ok(())
    }

    fn handle(&mut self) -> u64 {
        self.next_handle += 1;
        self.next_handle
    }

    fn command(&mut self, command: &Command) -> Apply {
        match &command.kind {
            CommandKind::Table { table, create } => self.add_table(table, *create),
            CommandKind::Rule {
                table,
                chain,
                position,
                rule,
            } => {
                let mut rule = (**rule).clone();
                rule.handle = self.handle();
                insert_rule(self.chain(table, chain)?, *position, rule, chain)
            }
            CommandKind::AddElements {
                table,
                set,
                elements,
            } => {
                let set = self.set(table, set)?;
                add_elements(set, elements.clone());
                Ok(())
            }
            CommandKind::DeleteElements {
                table,
                set,
                elements,
                destroy,
            } => {
                let set = self.set(table, set)?;
                delete_elements(set, elements, *destroy)
            }
            CommandKind::FlushRuleset(family) => {
                self.tables
                    .retain(|table| family.is_some_and(|family| family != table.family));
                Ok(())
            }
            CommandKind::FlushTable(table) => {
                let table = self.table(table)?;
                table
                    .chains
                    .iter_mut()
                    .for_each(|chain| chain.rules.clear());
                Ok(())
            }
            CommandKind::FlushChain(table, chain) => {
                self.chain(table, chain)?.rules.clear();
                Ok(())
            }
            CommandKind::FlushSet(table, set) => {
                self.set(table, set)?.elements.clear();
                Ok(())
            }
            CommandKind::Delete {
                what,
                table,
                name,
                destroy,
            } => self.delete(what, table, name.as_ref(), *destroy),
            CommandKind::DeleteRule {
                table,
                chain,
                handle,
                destroy,
            } => {
                let found = self.chain(table, chain)?;
                let before = found.rules.len();
                found.rules.retain(|rule| rule.handle != *handle);
                if found.rules.len() == before && !destroy {
                    return Err(LangError::new(
                        command.span,
                        format!("no rule has the handle {handle}"),
                    )
                    .remedy("list the chain with handles first"));
                }
                Ok(())
            }
            CommandKind::RenameChain { table, chain, to } => {
                self.chain(table, chain)?.name = to.clone();
                Ok(())
            }
            CommandKind::List(_) => Ok(()),
        }
    }

    /// Finds a table.
    pub fn find(&self, family: Family, name: &str) -> Option<&TableAst> {
        self.tables
            .iter()
            .find(|table| table.family == family && table.name.text == name)
    }

    fn table(&mut self, table: &TableRef) -> Result<&mut TableAst, LangError> {
        let found = self
            .tables
            .iter_mut()
            .find(|known| known.family == table.family && known.name.text == table.name.text);
        found.ok_or_else(|| {
            LangError::new(
                table.name.span,
                format!(
                    "there is no table `{} {}`",
                    table.family.name(),
                    table.name.text
                ),
            )
            .remedy(format!(
                "add it first: `add table {} {}`",
                table.family.name(),
                table.name.text
            ))
        })
    }

    fn chain(&mut self, table: &TableRef, chain: &Name) -> Result<&mut ChainAst, LangError> {
        let table = self.table(table)?;
        let found = table
            .chains
            .iter_mut()
            .find(|known| known.name.text == chain.text);
        found.ok_or_else(|| {
            LangError::new(
                chain.span,
                format!("there is no chain `{}` in this table", chain.text),
            )
            .remedy("add it first")
        })
    }

    fn set(&mut self, table: &TableRef, set: &Name) -> Result<&mut SetAst, LangError> {
        let table = self.table(table)?;
        let found = table
            .sets
            .iter_mut()
            .find(|known| known.name.text == set.text);
        found.ok_or_else(|| {
            LangError::new(
                set.span,
                format!("there is no set or map `{}` in this table", set.text),
            )
            .remedy("add it first")
        })
    }

    fn add_table(&mut self, new: &TableAst, create: bool) -> Apply {
        let at = self
            .tables
            .iter()
            .position(|known| known.family == new.family && known.name.text == new.name.text);
        let is_block = !new.chains.is_empty() || !new.sets.is_empty() || !new.objects.is_empty();
        if at.is_some() && create && !is_block {
            return Err(exists("table", &new.name));
        }
        let at = match at {
            Some(at) => at,
            None => {
                let handle = self.handle();
                let empty = TableAst {
                    chains: Vec::new(),
                    sets: Vec::new(),
                    objects: Vec::new(),
                    handle,
                    ..new.clone()
                };
                self.tables.push(empty);
                self.tables.len() - 1
            }
        };
        let mut next = self.next_handle;
        if let Some(table) = self.tables.get_mut(at) {
            table.dormant |= new.dormant;
            if new.comment.is_some() {
                table.comment.clone_from(&new.comment);
            }
            merge(table, new, create, &mut next)?;
        }
        self.next_handle = next;
        Ok(())
    }

    fn delete(
        &mut self,
        what: &str,
        table: &TableRef,
        name: Option<&Name>,
        destroy: bool,
    ) -> Apply {
        let found = self.table(table);
        let (table_name, family) = (table.name.text.clone(), table.family);
        let table = match found {
            Ok(table) => table,
            Err(_) if destroy => return Ok(()),
            Err(error) => return Err(error),
        };
        let Some(name) = name else {
            self.tables
                .retain(|known| known.family != family || known.name.text != table_name);
            return Ok(());
        };
        let before = (table.chains.len(), table.sets.len(), table.objects.len());
        match what {
            "chain" => table.chains.retain(|chain| chain.name.text != name.text),
            "set" | "map" | "meter" => table.sets.retain(|set| set.name.text != name.text),
            _ => table
                .objects
                .retain(|object| object.name.text != name.text || object.kind.name() != what),
        }
        if before == (table.chains.len(), table.sets.len(), table.objects.len()) && !destroy {
            return Err(LangError::new(
                name.span,
                format!("there is no {what} `{}` in this table", name.text),
            )
            .remedy("use `destroy` if it may be absent"));
        }
        Ok(())
    }
}

fn exists(what: &str, name: &Name) -> LangError {
    LangError::new(
        name.span,
        format!("the {what} `{}` exists already", name.text),
    )
    .remedy("use `add` instead of `create`")
}

fn merge(table: &mut TableAst, new: &TableAst, create: bool, next_handle: &mut u64) -> Apply {
    let mut handle = || {
        *next_handle += 1;
        *next_handle
    };
    for chain in &new.chains {
        let at = table
            .chains
            .iter()
            .position(|known| known.name.text == chain.name.text);
        if at.is_some() && create {
            return Err(exists("chain", &chain.name));
        }
        let at = at.unwrap_or_else(|| {
            table.chains.push(ChainAst {
                rules: Vec::new(),
                handle: handle(),
                ..chain.clone()
            });
            table.chains.len() - 1
        });
        let Some(known) = table.chains.get_mut(at) else {
            continue;
        };
        if known.base.is_none() {
            known.base.clone_from(&chain.base);
        }
        if let (Some(base), Some(drop)) = (&mut known.base, chain.policy) {
            base.policy_drop = drop;
        }
        for rule in &chain.rules {
            known.rules.push(RuleAst {
                handle: handle(),
                ..rule.clone()
            });
        }
    }
    for set in &new.sets {
        match table
            .sets
            .iter_mut()
            .find(|known| known.name.text == set.name.text)
        {
            Some(_) if create => return Err(exists("set", &set.name)),
            Some(known) => add_elements(known, set.elements.clone()),
            None => table.sets.push(SetAst {
                handle: handle(),
                ..set.clone()
            }),
        }
    }
    for object in &new.objects {
        let known = table.objects.iter().any(|known| {
            known.name.text == object.name.text && known.kind.name() == object.kind.name()
        });
        match known {
            true if create => return Err(exists(object.kind.name(), &object.name)),
            true => {}
            false => table.objects.push(ObjectAst {
                handle: handle(),
                ..object.clone()
            }),
        }
    }
    Ok(())
}

fn insert_rule(chain: &mut ChainAst, position: RulePosition, rule: RuleAst, name: &Name) -> Apply {
    let by_handle = |chain: &ChainAst, handle: u64| {
        chain
            .rules
            .iter()
            .position(|known| known.handle == handle)
            .ok_or_else(|| {
                LangError::new(
                    name.span,
                    format!("no rule of `{}` has the handle {handle}", name.text),
                )
                .remedy("list the chain with handles first")
            })
    };
    let by_index = |chain: &ChainAst, index: u64| {
        usize::try_from(index)
            .ok()
            .filter(|index| *index < chain.rules.len())
            .ok_or_else(|| {
                LangError::new(
                    name.span,
                    format!("`{}` has no rule number {index}", name.text),
                )
                .remedy("use a smaller index")
            })
    };
    let at = match position {
        RulePosition::End => chain.rules.len(),
        RulePosition::Start => 0,
        RulePosition::AfterHandle(handle) => by_handle(chain, handle)? + 1,
        RulePosition::BeforeHandle(handle) => by_handle(chain, handle)?,
        RulePosition::AfterIndex(index) => by_index(chain, index)? + 1,
        RulePosition::BeforeIndex(index) => by_index(chain, index)?,
        RulePosition::Replace(handle) => {
            let at = by_handle(chain, handle)?;
            chain.rules.remove(at);
            at
        }
    };
    chain.rules.insert(at, rule);
    Ok(())
}

/// Adds elements; one of the same key stays as it is.
fn add_elements(set: &mut SetAst, elements: Vec<Element>) {
    // Large sets come in one piece: only what is added later is compared.
    if set.elements.is_empty() {
        set.elements = elements;
        return;
    }
    let mut known: hashbrown::HashSet<String, foldhash::fast::FixedState> =
        set.elements.iter().map(key_text).collect();
    for element in elements {
        if known.insert(key_text(&element)) {
            set.elements.push(element);
        }
    }
}

fn delete_elements(set: &mut SetAst, elements: &[Element], destroy: bool) -> Apply {
    for element in elements {
        let before = set.elements.len();
        let key = key_text(element);
        set.elements.retain(|known| key_text(known) != key);
        if set.elements.len() == before && !destroy {
            return Err(LangError::new(
                element.key.span,
                format!("the set `{}` has no such element", set.name.text),
            )
            .remedy("use `destroy` if it may be absent"));
        }
    }
    Ok(())
}

/// A key as text, to tell whether two are the same.
fn key_text(element: &Element) -> String {
    match &element.key.kind {
        ExprKind::Word(word) | ExprKind::Str(word) => word.to_string(),
        _ => super::print::expr(&element.key),
    }
}
