//! What changes from one ruleset to another, object by object and rule by rule.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::ast::{ChainAst, SetAst, TableAst};
use super::model::Model;
use super::print;
use super::span::Span;

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// It is in the new ruleset only (else in the old one only).
    pub added: bool,
    /// Where: `table inet filter`, `chain inet filter input`, `set inet filter admins`.
    pub place: String,
    /// What: a rule, an element, a property.
    pub text: String,
    /// Where it stands in its file.
    pub span: Span,
}

/// Compares two rulesets; the longest common sequences of rules stay, what is left is removed or added.
pub fn diff(old: &Model, new: &Model) -> Vec<Change> {
    let mut changes = Vec::new();
    let same = |a: &TableAst, b: &TableAst| a.family == b.family && a.name.text == b.name.text;
    for table in &old.tables {
        if !new.tables.iter().any(|other| same(table, other)) {
            changes.push(change(
                false,
                &table_place(table),
                "the whole table",
                table.name.span,
            ));
        }
    }
    for table in &new.tables {
        match old.tables.iter().find(|other| same(table, other)) {
            Some(other) => tables(other, table, &mut changes),
            None => changes.push(change(
                true,
                &table_place(table),
                &print::table(table),
                table.name.span,
            )),
        }
    }
    changes
}

fn table_place(table: &TableAst) -> String {
    format!("table {} {}", table.family.name(), table.name.text)
}

fn change(added: bool, place: &str, text: &str, span: Span) -> Change {
    Change {
        added,
        place: place.into(),
        text: text.into(),
        span,
    }
}

fn tables(old: &TableAst, new: &TableAst, changes: &mut Vec<Change>) {
    let place =
        |what: &str, name: &str| format!("{what} {} {} {name}", new.family.name(), new.name.text);
    for chain in &old.chains {
        if !new
            .chains
            .iter()
            .any(|other| other.name.text == chain.name.text)
        {
            changes.push(change(
                false,
                &place("chain", &chain.name.text),
                "the whole chain",
                chain.name.span,
            ));
        }
    }
    for chain in &new.chains {
        let empty = ChainAst::default();
        let before = old
            .chains
            .iter()
            .find(|other| other.name.text == chain.name.text);
        let at = place("chain", &chain.name.text);
        if before.is_none() {
            changes.push(change(true, &at, "the whole chain", chain.name.span));
        }
        let before = before.unwrap_or(&empty);
        if before.base != chain.base {
            for (added, base, span) in [
                (false, &before.base, before.name.span),
                (true, &chain.base, chain.name.span),
            ] {
                if let Some(base) = base {
                    let policy = if base.policy_drop { "drop" } else { "accept" };
                    let text = format!(
                        "type {} hook {} priority {} policy {policy}",
                        base.kind,
                        base.hook.name(),
                        base.priority
                    );
                    changes.push(change(added, &at, &text, span));
                }
            }
        }
        let lines = |chain: &ChainAst| {
            chain
                .rules
                .iter()
                .map(|rule| (print::rule(rule), rule.span))
                .collect::<Vec<_>>()
        };
        sequences(&lines(before), &lines(chain), &at, changes);
    }
    sets(&old.sets, &new.sets, place, changes);
    let object = |list: &TableAst| {
        list.objects
            .iter()
            .map(|object| (print::object(object), object.name.span))
            .collect::<Vec<_>>()
    };
    sequences(&object(old), &object(new), &table_place(new), changes);
}

fn sets(
    old: &[SetAst],
    new: &[SetAst],
    place: impl Fn(&str, &str) -> String,
    changes: &mut Vec<Change>,
) {
    let head = |set: &SetAst| {
        print::set(&SetAst {
            elements: Vec::new(),
            ..set.clone()
        })
    };
    for set in old {
        if !new.iter().any(|other| other.name.text == set.name.text) {
            changes.push(change(
                false,
                &place("set", &set.name.text),
                "the whole set",
                set.name.span,
            ));
        }
    }
    for set in new {
        let at = place("set", &set.name.text);
        let Some(before) = old.iter().find(|other| other.name.text == set.name.text) else {
            changes.push(change(true, &at, &print::set(set), set.name.span));
            continue;
        };
        if head(before) != head(set) {
            changes.push(change(false, &at, &head(before), before.name.span));
            changes.push(change(true, &at, &head(set), set.name.span));
        }
        // Elements have no order.
        let texts = |set: &SetAst| {
            set.elements
                .iter()
                .map(|e| (print::element(e), e.key.span))
                .collect::<Vec<_>>()
        };
        let (mut before, mut after) = (texts(before), texts(set));
        before.sort_by(|a, b| a.0.cmp(&b.0));
        after.sort_by(|a, b| a.0.cmp(&b.0));
        for (added, these, those) in [(false, &before, &after), (true, &after, &before)] {
            for (text, span) in these {
                if those.binary_search_by(|other| other.0.cmp(text)).is_err() {
                    changes.push(change(added, &at, text, *span));
                }
            }
        }
    }
}

/// Rules of a chain that are compared by the longest common sequence; beyond, only common ends are kept.
const RULES_MAX: usize = 4096;

fn sequences(
    old: &[(String, Span)],
    new: &[(String, Span)],
    place: &str,
    changes: &mut Vec<Change>,
) {
    let same = |a: &(String, Span), b: &(String, Span)| a.0 == b.0;
    let head = old.iter().zip(new).take_while(|(a, b)| same(a, b)).count();
    let (old, new) = (
        old.get(head..).unwrap_or_default(),
        new.get(head..).unwrap_or_default(),
    );
    let tail = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take_while(|(a, b)| same(a, b))
        .count();
    let old = old.get(..old.len() - tail).unwrap_or_default();
    let new = new.get(..new.len() - tail).unwrap_or_default();
    let (rows, columns) = (old.len() + 1, new.len() + 1);
    let mut lengths = vec![
        0_u16;
        if rows <= RULES_MAX && columns <= RULES_MAX {
            rows * columns
        } else {
            0
        }
    ];
    let at = |row: usize, column: usize| row * columns + column;
    if !lengths.is_empty() {
        for row in (0..old.len()).rev() {
            for column in (0..new.len()).rev() {
                lengths[at(row, column)] = if same(&old[row], &new[column]) {
                    lengths[at(row + 1, column + 1)] + 1
                } else {
                    lengths[at(row + 1, column)].max(lengths[at(row, column + 1)])
                };
            }
        }
    }
    let length = |row: usize, column: usize| lengths.get(at(row, column)).copied().unwrap_or(0);
    let (mut row, mut column) = (0, 0);
    while row < old.len() || column < new.len() {
        match (old.get(row), new.get(column)) {
            (Some(a), Some(b)) if same(a, b) => (row, column) = (row + 1, column + 1),
            (Some(a), b) if b.is_none() || length(row + 1, column) >= length(row, column + 1) => {
                changes.push(change(false, place, &a.0, a.1));
                row += 1;
            }
            (_, Some(b)) => {
                changes.push(change(true, place, &b.0, b.1));
                column += 1;
            }
            (Some(_), None) | (None, None) => break,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Memory, Source};
    use super::*;

    fn model(rules: &str, elements: &str) -> Model {
        let mut source = Source::default();
        let text = alloc::format!(
            "table ip t {{ set s {{ type ipv4_addr; elements = {{ {elements} }} }}\nchain c {{ type filter hook input priority 0;\n{rules}\n}} }}"
        );
        source.read("x", &text, &Memory::default()).unwrap();
        source.model
    }

    #[test]
    fn rules_and_elements() {
        let old = model(
            "tcp dport 1 accept\ntcp dport 2 accept\ntcp dport 3 accept",
            "10.0.0.1, 10.0.0.2",
        );
        let new = model(
            "tcp dport 1 accept\ntcp dport 3 accept\ntcp dport 4 drop",
            "10.0.0.2, 10.0.0.3",
        );
        let changes: Vec<(bool, String)> = diff(&old, &new)
            .into_iter()
            .map(|c| (c.added, c.text))
            .collect();
        assert_eq!(
            changes,
            [
                (false, "tcp dport 2 accept".into()),
                (true, "tcp dport 4 drop".into()),
                (false, "10.0.0.1".into()),
                (true, "10.0.0.3".into()),
            ]
        );
        assert!(diff(&old, &old).is_empty());
    }
}
