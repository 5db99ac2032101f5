//! Sets and maps, named and anonymous, and their elements.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::super::ast::{
    DataAst, DynOp, Element as ElementAst, Expr, ExprKind, SetAst, Stmt, StmtKind, TableAst,
    TypeAst,
};
use super::super::datatype::DataType;
use super::super::span::{LangError, Span};
use super::value::{check_width, unsupported};
use super::{DataKind, Lower, Lowered, Scope, SetTypes, table_name};
use crate::rules::dynamic::{DynamicOptions, DynamicSet, ELEMENTS_DEFAULT};
use crate::rules::program::{Action, ElementOp, Object, SetId};
use crate::rules::set::{Data, Element, Set};
use crate::rules::state::Quota;

impl Lower<'_> {
    pub(super) fn named_set(&mut self, at: usize, table: &TableAst, set: &SetAst) -> Lowered<()> {
        let scope = Scope::new(at, table.family);
        let types = self.set_types_of(&scope, set)?;
        check_width(&types.key, set.name.span)?;
        let name = format!("{} {}", table_name(table), set.name.text);
        let filled = set.dynamic || self.is_filled(at, &set.name.text);
        let made = if filled {
            self.dynamic_set(set, &types, name)?
        } else {
            self.fixed_set(&scope, set, &types, name)?
        };
        let id = self.new_set(made, types);
        self.sets.insert((at, set.name.text.clone()), id);
        Ok(())
    }

    /// True if rules of the table add to, or delete from, the set.
    fn is_filled(&self, at: usize, name: &str) -> bool {
        fn fills(stmts: &[Stmt], name: &str) -> bool {
            stmts.iter().any(|stmt| match &stmt.kind {
                StmtKind::Dynset { set, .. } => set.text == name,
                StmtKind::Verdict(super::super::ast::VerdictAst::Block { rules, .. }) => {
                    rules.iter().any(|rule| fills(&rule.stmts, name))
                }
                _ => false,
            })
        }
        let rules = self
            .model
            .tables
            .get(at)
            .into_iter()
            .flat_map(|table| &table.chains)
            .flat_map(|chain| &chain.rules);
        rules.into_iter().any(|rule| fills(&rule.stmts, name))
    }

    fn set_types_of(&mut self, scope: &Scope, set: &SetAst) -> Lowered<SetTypes> {
        let key = match &set.key {
            Some(key) => self.types_named(scope, key, set.name.span)?,
            None => Vec::new(),
        };
        let data = match &set.data {
            None if set.is_map => {
                return Err(
                    LangError::new(set.name.span, "the map does not say what it gives")
                        .remedy("write `type key : data`"),
                );
            }
            None => DataKind::Nothing,
            Some(DataAst::Verdict) => DataKind::Verdict,
            Some(DataAst::Object(kind)) => DataKind::Object(kind.clone()),
            Some(DataAst::Type(data)) => {
                DataKind::Values(self.types_named(scope, data, set.name.span)?)
            }
        };
        Ok(SetTypes { key, data })
    }

    fn types_named(&self, scope: &Scope, types: &TypeAst, span: Span) -> Lowered<Vec<DataType>> {
        match types {
            TypeAst::Names(names) => names
                .iter()
                .map(|name| {
                    DataType::from_name(&name.text).ok_or_else(|| {
                        LangError::new(name.span, format!("there is no type `{}`", name.text))
                            .remedy("use ipv4_addr, ipv6_addr, inet_service, inet_proto, mark, ifname, ether_addr, ...")
                    })
                })
                .collect(),
            TypeAst::Of(expr) => {
                let types = self.types_of(scope, expr);
                if types.is_empty() {
                    return Err(LangError::new(span, "typeof of something that has no type").remedy("name a property of the packet"));
                }
                Ok(types)
            }
        }
    }

    fn dynamic_set(&mut self, set: &SetAst, types: &SetTypes, name: String) -> Lowered<Set> {
        if set.interval {
            return Err(LangError::new(
                set.name.span,
                format!(
                    "the set `{}` has intervals and is filled by packets",
                    set.name.text
                ),
            )
            .remedy("remove `flags interval`, or fill the set from outside"));
        }
        match &types.data {
            DataKind::Nothing => {}
            DataKind::Values(values) if values.len() == 1 => {}
            _ => {
                return Err(LangError::new(
                    set.name.span,
                    "packets cannot add verdicts, objects or concatenated data to a map",
                )
                .remedy("use a map of one value, or a set"));
            }
        }
        if let Some(element) = set.elements.first() {
            return Err(LangError::new(
                element.key.span,
                format!(
                    "the set `{}` is filled by packets and has elements",
                    set.name.text
                ),
            )
            .remedy("move these elements to a second set"));
        }
        let ops = self.element_ops(&set.stmts)?;
        let dynamic = self.new_dynamic(set.size, set.timeout_ms, &types.key);
        Ok(Set::dynamic(name, widths(&types.key), ops, dynamic))
    }

    pub(super) fn new_dynamic(
        &self,
        size: Option<u64>,
        timeout_ms: Option<u64>,
        types: &[DataType],
    ) -> DynamicSet {
        let options = DynamicOptions {
            elements: size.unwrap_or(ELEMENTS_DEFAULT),
            timeout_ns: timeout_ms.map(|ms| ms.saturating_mul(1_000_000)),
            workers: self.options.workers,
            hash_key: self.options.hash_key,
        };
        DynamicSet::new(&options, &widths(types))
    }

    /// Compiles the stateful statements of elements that packets add.
    pub(super) fn element_ops(&mut self, stmts: &[Stmt]) -> Lowered<Vec<ElementOp>> {
        let mut ops = Vec::new();
        let (mut limits, mut quotas) = (0, 0);
        for stmt in stmts {
            ops.push(match &stmt.kind {
                StmtKind::Counter { .. } => ElementOp::Counter,
                StmtKind::Limit(limit) => {
                    limits += 1;
                    ElementOp::Limit(super::statement::limit(limit))
                }
                StmtKind::Quota(quota) => {
                    quotas += 1;
                    ElementOp::Quota {
                        bytes: quota.bytes,
                        over: quota.over,
                    }
                }
                StmtKind::ConnLimit { .. } => return Err(unsupported(stmt.span, "ct count")),
                _ => return Err(unsupported(stmt.span, "this statement on an element")),
            });
        }
        if limits > 1 || quotas > 1 {
            let span = stmts.first().map(|stmt| stmt.span).unwrap_or_default();
            return Err(
                LangError::new(span, "an element has two limits or two quotas")
                    .remedy("use a second set"),
            );
        }
        Ok(ops)
    }

    fn fixed_set(
        &mut self,
        scope: &Scope,
        set: &SetAst,
        types: &SetTypes,
        name: String,
    ) -> Lowered<Set> {
        let mut elements = Vec::new();
        let timeout_ms = set.timeout_ms;
        for element in &set.elements {
            for mut lowered in self.element(scope, element, &types.key, &types.data)? {
                if lowered.timeout_ns.is_none() {
                    lowered.timeout_ns = timeout_ms.map(|ms| ms.saturating_mul(1_000_000));
                }
                if lowered.counter.is_none()
                    && set
                        .stmts
                        .iter()
                        .any(|stmt| matches!(stmt.kind, StmtKind::Counter { .. }))
                {
                    lowered.counter = Some(self.new_counter(0, 0));
                }
                elements.push(lowered);
            }
        }
        let elements = disjoint(elements, set.name.span)?;
        Ok(Set::fixed(name, widths(&types.key), elements))
    }

    /// Compiles `{ ... }` in a rule.
    pub(super) fn anonymous_set(
        &mut self,
        scope: &Scope,
        elements: &[ElementAst],
        key: &[DataType],
        data: &DataKind,
        span: Span,
    ) -> Lowered<SetId> {
        check_width(key, span)?;
        let mut lowered = Vec::new();
        for element in elements {
            lowered.extend(self.element(scope, element, key, data)?);
        }
        let set = Set::fixed(String::new(), widths(key), disjoint(lowered, span)?);
        Ok(self.new_set(
            set,
            SetTypes {
                key: key.to_vec(),
                data: data.clone(),
            },
        ))
    }

    /// Makes a set of ranges, e.g. of the interfaces that a wildcard means.
    pub(super) fn set_of_ranges(
        &mut self,
        ranges: &[(u128, u128)],
        data_type: DataType,
        span: Span,
    ) -> Lowered<SetId> {
        let elements = ranges
            .iter()
            .map(|range| Element {
                key: Vec::from([*range]),
                ..Element::default()
            })
            .collect();
        let set = Set::fixed(
            String::new(),
            Vec::from([data_type.bits()]),
            disjoint(elements, span)?,
        );
        Ok(self.new_set(
            set,
            SetTypes {
                key: Vec::from([data_type]),
                data: DataKind::Nothing,
            },
        ))
    }

    fn element(
        &mut self,
        scope: &Scope,
        element: &ElementAst,
        types: &[DataType],
        data: &DataKind,
    ) -> Lowered<Vec<Element>> {
        let span = element.key.span;
        let keys = self.element_keys(&element.key, types)?;
        let data = match (&element.data, data) {
            (None, DataKind::Nothing) => Data::None,
            (Some(expr), DataKind::Verdict) => Data::Action(self.data_verdict(scope, expr)?),
            (Some(expr), DataKind::Values(types)) => Data::Values(self.data_values(expr, types)?),
            (Some(expr), DataKind::Object(kind)) => {
                Data::Object(self.data_object(scope, expr, kind)?)
            }
            (None, _) => {
                return Err(LangError::new(span, "an element of a map without data")
                    .remedy("write `key : data`"));
            }
            (Some(expr), DataKind::Nothing) => {
                return Err(LangError::new(expr.span, "an element of a set with data")
                    .remedy("declare a map, or use vmap"));
            }
        };
        let timeout = element.expires_ms.or(element.timeout_ms);
        let mut made = Element {
            key: Vec::new(),
            data,
            timeout_ns: timeout.map(|ms| ms.saturating_mul(1_000_000)),
            counter: None,
            objects: Vec::new(),
            text: self.sources.text(span).into(),
        };
        if let Some(comment) = &element.comment {
            made.text = format!("{} \"{comment}\"", made.text);
        }
        for stmt in &element.stmts {
            match &stmt.kind {
                StmtKind::Counter { packets, bytes } => {
                    made.counter = Some(self.new_counter(*packets, *bytes))
                }
                StmtKind::Limit(limit) => {
                    let limit = self.new_limit(limit);
                    made.objects.push(Object::Limit(limit));
                }
                StmtKind::Quota(quota) => {
                    self.parts
                        .shared
                        .quotas
                        .push(Quota::new(quota.bytes, quota.used, quota.over));
                    made.objects
                        .push(Object::Quota(self.parts.shared.quotas.len() as u32 - 1));
                }
                StmtKind::ConnLimit { .. } => return Err(unsupported(stmt.span, "ct count")),
                _ => return Err(unsupported(stmt.span, "this statement on an element")),
            }
        }
        Ok(keys
            .into_iter()
            .map(|key| Element {
                key,
                ..made.clone()
            })
            .collect())
    }

    /// The ranges of a key, part by part; several keys if a part means several values.
    fn element_keys(&mut self, key: &Expr, types: &[DataType]) -> Lowered<Vec<Vec<(u128, u128)>>> {
        let parts: Vec<&Expr> = match &key.kind {
            ExprKind::Any => return Ok(Vec::from([Vec::new()])),
            ExprKind::Concat(parts) => parts.iter().collect(),
            _ => Vec::from([key]),
        };
        if parts.len() != types.len() {
            return Err(LangError::new(
                key.span,
                format!(
                    "an element of {} parts in a set of {}",
                    parts.len(),
                    types.len()
                ),
            )
            .remedy("join the parts with dots, one for each of the type"));
        }
        let mut keys: Vec<Vec<(u128, u128)>> = Vec::from([Vec::new()]);
        for (part, data_type) in parts.iter().zip(types) {
            let values = match &part.kind {
                ExprKind::Any => Vec::from([(0, data_type.max())]),
                ExprKind::List(_) if data_type.is_bitmask() => {
                    let mask = self.constant(part, *data_type)?;
                    Vec::from([(mask, mask)])
                }
                // Flags joined by operators are one value.
                _ => self.constants(part, *data_type)?,
            };
            keys = keys
                .iter()
                .flat_map(|key| {
                    values
                        .iter()
                        .map(move |value| key.iter().copied().chain([*value]).collect())
                })
                .collect();
        }
        Ok(keys)
    }

    fn data_values(&mut self, expr: &Expr, types: &[DataType]) -> Lowered<Vec<(u128, u128)>> {
        let parts: Vec<&Expr> = match &expr.kind {
            ExprKind::Concat(parts) => parts.iter().collect(),
            _ => Vec::from([expr]),
        };
        if parts.len() != types.len() {
            return Err(LangError::new(
                expr.span,
                format!("data of {} parts in a map of {}", parts.len(), types.len()),
            )
            .remedy("write as many parts as the map's type has"));
        }
        let mut values = Vec::new();
        for (part, data_type) in parts.iter().zip(types) {
            match self.constants(part, *data_type)?.as_slice() {
                [range] => values.push(*range),
                _ => {
                    return Err(
                        LangError::new(part.span, "the data of an element is one value")
                            .remedy("write one value or range"),
                    );
                }
            }
        }
        Ok(values)
    }

    fn data_verdict(&mut self, scope: &Scope, expr: &Expr) -> Lowered<Action> {
        match &expr.kind {
            ExprKind::Verdict(verdict) => self.action(scope, verdict, expr.span),
            _ => Err(LangError::new(expr.span, "a verdict is expected here")
                .remedy("write accept, drop, jump, goto, return or continue")),
        }
    }

    fn data_object(&mut self, scope: &Scope, expr: &Expr, kind: &str) -> Lowered<Object> {
        let (ExprKind::Word(name) | ExprKind::Str(name)) = &expr.kind else {
            return Err(LangError::new(
                expr.span,
                format!("the name of a {kind} is expected here"),
            )
            .remedy("write it in quotation marks"));
        };
        self.object_named(scope, kind, name, expr.span)
    }

    pub(super) fn object_named(
        &mut self,
        scope: &Scope,
        kind: &str,
        name: &str,
        span: Span,
    ) -> Lowered<Object> {
        let found = self.objects.iter().find(|((table, known, object), _)| {
            *table == scope.table && *known == kind && object == name
        });
        found.map(|(_, object)| *object).ok_or_else(|| {
            LangError::new(span, format!("there is no {kind} `{name}` in this table"))
                .remedy("declare it in the table")
        })
    }

    /// Compiles `add @set { ... }` and `meter`.
    pub(super) fn dynset_target(
        &mut self,
        scope: &Scope,
        name: &str,
        span: Span,
        op: DynOp,
    ) -> Lowered<SetId> {
        let Some(set) = self.set_named(scope, name) else {
            return Err(
                LangError::new(span, format!("there is no set `{name}` in this table"))
                    .remedy("declare it, with `flags dynamic`"),
            );
        };
        let is_dynamic = self
            .parts
            .sets
            .get(set.0 as usize)
            .is_some_and(|set| set.as_dynamic().is_some());
        if !is_dynamic {
            return Err(LangError::new(
                span,
                format!("packets cannot {} to the set `{name}`", op.name()),
            )
            .remedy("declare it with `flags dynamic`"));
        }
        Ok(set)
    }
}

pub(super) fn widths(types: &[DataType]) -> Vec<u16> {
    types.iter().map(|data_type| data_type.bits()).collect()
}

/// Joins overlapping ranges of sets; in maps they must say the same.
fn disjoint(elements: Vec<Element>, span: Span) -> Lowered<Vec<Element>> {
    let is_ranges = elements.iter().all(|element| element.key.len() <= 1)
        && elements
            .iter()
            .any(|element| element.key.first().is_some_and(|range| range.0 != range.1));
    if !is_ranges {
        return Ok(elements);
    }
    let mut elements = elements;
    elements.sort_by_key(|element| element.key.first().copied());
    let mut apart: Vec<Element> = Vec::with_capacity(elements.len());
    for element in elements {
        let overlaps = match (
            apart.last().and_then(|last| last.key.first()),
            element.key.first(),
        ) {
            (Some(last), Some(range)) => range.0 <= last.1,
            _ => false,
        };
        if !overlaps {
            apart.push(element);
            continue;
        }
        let Some(last) = apart.last_mut() else {
            continue;
        };
        let has_state =
            |e: &Element| e.timeout_ns.is_some() || e.counter.is_some() || !e.objects.is_empty();
        if last.data != element.data || has_state(last) || has_state(&element) {
            return Err(LangError::new(
                span,
                format!(
                    "the elements `{}` and `{}` overlap",
                    last.text, element.text
                ),
            )
            .remedy("remove one of them, or make them apart"));
        }
        if let (Some(last), Some(range)) = (last.key.first_mut(), element.key.first()) {
            last.1 = last.1.max(range.1);
        }
    }
    Ok(apart)
}
