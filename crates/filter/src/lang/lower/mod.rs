//! From the tree to the compiled ruleset: names are resolved, types checked, dependencies added.

mod constant;
mod nat;
mod set;
mod statement;
mod value;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use hashbrown::HashMap;
use wire::{Instant, ip_protocol};

use super::ast::{ChainAst, ObjectKind, RuleAst, TableAst};
use super::datatype::DataType;
use super::model::Model;
use super::span::{LangError, SourceMap, Span};
use crate::alg::Helper;
use crate::packet::{Family, Hook};
use crate::rules::program::{
    BaseChain, ChainId, ChainKind, LogInfo, Object, ObjectInfo, Op, Rule, RuleInfo, SetId,
};
use crate::rules::{Chain, Interfaces, Parts, Ruleset, set::Set, state::Quota};
use crate::verdict::RuleId;

pub(super) type Lowered<T> = Result<T, LangError>;

/// What a ruleset is compiled for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The node's interfaces. Names that rules mention are added.
    pub interfaces: Interfaces,
    /// Workers that will evaluate the ruleset.
    pub workers: usize,
    /// When it is loaded, on the workers' clock.
    pub loaded_at: Instant,
    /// Randomness for the hashes of sets and flows.
    pub hash_key: [u64; 4],
    /// A rule that names an interface by index (`iif`) which is not there is an error, as in the kernel.
    pub require_interfaces: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            interfaces: Interfaces::default(),
            workers: 1,
            loaded_at: Instant::ZERO,
            hash_key: [0x7469_6465, 0x6761_7465, 0x6669_6c74, 0x6572_0000],
            require_interfaces: false,
        }
    }
}

/// Compiles a ruleset.
///
/// # Errors
/// All rules and sets that cannot be compiled: types that do not fit, names that are not there, statements that
/// this node does not support (by name).
pub fn compile(
    model: &Model,
    sources: &SourceMap,
    options: Options,
) -> Result<Ruleset, Vec<LangError>> {
    let mut lower = Lower::new(model, sources, options);
    lower.declare();
    for at in 0..model.tables.len() {
        lower.table(at);
    }
    if !lower.errors.is_empty() {
        return Err(lower.errors);
    }
    let place = model
        .tables
        .first()
        .map(|table| table.name.span)
        .unwrap_or_default();
    Ruleset::new(lower.parts).map_err(|error| {
        Vec::from([LangError::new(place, error.to_string())
            .remedy("remove a jump or goto, so that calls end within 16 levels")])
    })
}

/// Types of a set's key and data.
#[derive(Clone, Debug, Default)]
struct SetTypes {
    key: Vec<DataType>,
    data: DataKind,
}

/// What a map gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum DataKind {
    /// It is a set.
    #[default]
    Nothing,
    Values(Vec<DataType>),
    Verdict,
    Object(String),
}

struct Lower<'a> {
    model: &'a Model,
    sources: &'a SourceMap,
    parts: Parts,
    options: Options,
    /// By table and name.
    chains: HashMap<(usize, String), ChainId, foldhash::fast::FixedState>,
    sets: HashMap<(usize, String), SetId, foldhash::fast::FixedState>,
    objects: HashMap<(usize, &'static str, String), Object, foldhash::fast::FixedState>,
    flowtables: Vec<(usize, String)>,
    set_types: Vec<SetTypes>,
    errors: Vec<LangError>,
}

/// What is known while a rule is compiled.
struct Scope {
    table: usize,
    family: Family,
    /// EtherType that the rule has tested.
    l3: Option<u16>,
    /// IP protocol that the rule has tested.
    l4: Option<u8>,
    ops: Vec<Op>,
    counter: Option<u32>,
}

impl Scope {
    fn new(table: usize, family: Family) -> Self {
        let l3 = match family {
            Family::Ip => Some(0x0800),
            Family::Ip6 => Some(0x86dd),
            Family::Arp => Some(0x0806),
            _ => None,
        };
        Self {
            table,
            family,
            l3,
            l4: None,
            ops: Vec::new(),
            counter: None,
        }
    }
}

impl<'a> Lower<'a> {
    fn new(model: &'a Model, sources: &'a SourceMap, options: Options) -> Self {
        let parts = Parts {
            interfaces: options.interfaces.clone(),
            workers: options.workers,
            loaded_at: options.loaded_at,
            flow_secret: core::array::from_fn(|at| {
                options.hash_key[at % 4].rotate_left(at as u32 * 7 + 1)
            }),
            ..Parts::default()
        };
        Self {
            model,
            sources,
            parts,
            options,
            chains: HashMap::default(),
            sets: HashMap::default(),
            objects: HashMap::default(),
            flowtables: Vec::new(),
            set_types: Vec::new(),
            errors: Vec::new(),
        }
    }

    fn note<T>(&mut self, result: Lowered<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.errors.push(error);
                None
            }
        }
    }

    /// Gives numbers to chains, objects and sets, so that rules may name what comes later.
    fn declare(&mut self) {
        let model = self.model;
        for (at, table) in model.tables.iter().enumerate() {
            for chain in &table.chains {
                let id = self.new_chain(table, &chain.name.text);
                self.chains.insert((at, chain.name.text.clone()), id);
            }
            for object in &table.objects {
                let lowered = self.object(at, table, object);
                self.note(lowered);
            }
        }
        for (at, table) in model.tables.iter().enumerate() {
            for set in &table.sets {
                let lowered = self.named_set(at, table, set);
                self.note(lowered);
            }
        }
    }

    fn new_chain(&mut self, table: &TableAst, name: &str) -> ChainId {
        let id = ChainId(self.parts.chains.len() as u32);
        self.parts
            .chains
            .push(Chain::new(table_name(table), name.to_string(), Vec::new()));
        id
    }

    fn object(
        &mut self,
        at: usize,
        table: &TableAst,
        object: &super::ast::ObjectAst,
    ) -> Lowered<()> {
        let kind = object.kind.name();
        let made = match &object.kind {
            ObjectKind::Counter { packets, bytes } => {
                Object::Counter(self.new_counter(*packets, *bytes))
            }
            ObjectKind::Limit(limit) => Object::Limit(self.new_limit(limit)),
            ObjectKind::Quota(quota) => {
                self.parts
                    .shared
                    .quotas
                    .push(Quota::new(quota.bytes, quota.used, quota.over));
                Object::Quota(self.parts.shared.quotas.len() as u32 - 1)
            }
            ObjectKind::Synproxy(options) => Object::Synproxy(self.new_synproxy(options)),
            ObjectKind::Helper { kind, protocol, .. } => {
                new_helper(object.name.span, kind, protocol)?
            }
            ObjectKind::Flowtable { .. } => {
                self.flowtables.push((at, object.name.text.clone()));
                return Ok(());
            }
            ObjectKind::Timeout { .. }
            | ObjectKind::Expectation { .. }
            | ObjectKind::Secmark(_) => {
                return Err(LangError::new(object.name.span, format!("`{kind}` objects are not supported"))
                    .remedy("remove the object and the rules that use it; timeouts are set in the node's configuration"));
            }
        };
        self.objects
            .insert((at, kind, object.name.text.clone()), made);
        self.parts.objects.push(ObjectInfo {
            table: table_name(table),
            name: object.name.text.clone(),
            object: made,
        });
        Ok(())
    }

    fn new_counter(&mut self, packets: u64, bytes: u64) -> u32 {
        let counter = self.parts.counters as u32;
        self.parts.counters += 1;
        if packets != 0 || bytes != 0 {
            self.parts.counter_starts.push((counter, packets, bytes));
        }
        counter
    }

    fn new_log(&mut self, log: LogInfo) -> u32 {
        self.parts.logs.push(log);
        self.parts.logs.len() as u32 - 1
    }

    fn new_set(&mut self, set: Set, types: SetTypes) -> SetId {
        self.parts.sets.push(set);
        self.set_types.push(types);
        SetId(self.parts.sets.len() as u32 - 1)
    }

    fn table(&mut self, at: usize) {
        let Some(table) = self.model.tables.get(at) else {
            return;
        };
        for chain in &table.chains {
            let Some(id) = self.chains.get(&(at, chain.name.text.clone())).copied() else {
                continue;
            };
            if !table.dormant {
                let base = self.base_chain(table, chain, id);
                self.note(base);
            }
            self.rules(at, table, &chain.name.text, id, &chain.rules);
        }
    }

    fn rules(&mut self, at: usize, table: &TableAst, chain: &str, id: ChainId, rules: &[RuleAst]) {
        for rule in rules {
            let mut scope = Scope::new(at, table.family);
            let lowered = rule
                .stmts
                .iter()
                .try_for_each(|stmt| self.statement(&mut scope, stmt));
            if self.note(lowered).is_none() {
                continue;
            }
            let number = RuleId(self.parts.rules.len() as u32);
            let place = self.sources.place(rule.span);
            let text = self.sources.text(rule.span);
            let text = if text.is_empty() {
                super::print::rule(rule)
            } else {
                squeeze(text)
            };
            self.parts.rules.push(RuleInfo {
                table: table_name(table),
                chain: chain.to_string(),
                handle: rule.handle,
                file: place.file,
                line: place.line,
                text,
                comment: rule.comment.clone(),
                counter: scope.counter,
            });
            if let Some(chain) = self.parts.chains.get_mut(id.0 as usize) {
                chain.rules.push(Rule::new(number, scope.ops));
            }
        }
    }

    fn base_chain(&mut self, table: &TableAst, chain: &ChainAst, id: ChainId) -> Lowered<()> {
        let Some(base) = &chain.base else {
            return Ok(());
        };
        let span = chain.name.span;
        let at_device =
            table.family == Family::Netdev || matches!(base.hook, Hook::Ingress | Hook::Egress);
        let allowed = match (table.family, base.hook) {
            (Family::Netdev, Hook::Ingress | Hook::Egress) | (Family::Inet, Hook::Ingress) => true,
            (Family::Netdev, _) | (_, Hook::Ingress | Hook::Egress) => false,
            (Family::Arp, hook) => matches!(hook, Hook::Input | Hook::Output),
            _ => true,
        };
        if !allowed {
            return Err(LangError::new(
                span,
                format!(
                    "a chain of a {} table cannot be at {}",
                    table.family.name(),
                    base.hook.name()
                ),
            )
            .remedy("use ingress and egress in netdev tables, input and output in arp tables"));
        }
        if at_device && base.devices.is_empty() {
            return Err(LangError::new(span, "the chain names no device")
                .remedy("add `device \"name\"` or `devices = { ... }`"));
        }
        let kind = match base.kind.as_str() {
            "nat" => ChainKind::Nat,
            "route" => ChainKind::Route,
            _ => ChainKind::Filter,
        };
        let is_ip = matches!(table.family, Family::Ip | Family::Ip6 | Family::Inet);
        if kind == ChainKind::Nat && (!is_ip || base.hook == Hook::Forward || at_device) {
            return Err(LangError::new(span, "a chain of type nat cannot be here")
                .remedy("put it at prerouting, input, output or postrouting of an ip, ip6 or inet table"));
        }
        if kind == ChainKind::Nat && base.priority <= -200 {
            return Err(LangError::new(
                span,
                "a chain of type nat comes before connection tracking",
            )
            .remedy("give it a priority above -200"));
        }
        if kind == ChainKind::Route && base.hook != Hook::Output {
            return Err(
                LangError::new(span, "a chain of type route is only at output")
                    .remedy("use type filter"),
            );
        }
        let mut devices = Vec::new();
        for device in &base.devices {
            devices.push(self.interface(device, span)?);
        }
        self.parts.base.push(BaseChain {
            chain: id,
            family: table.family,
            hook: base.hook,
            priority: base.priority,
            kind,
            policy_drop: base.policy_drop,
            devices,
        });
        Ok(())
    }
}

/// A helper object: which protocol is inspected, as libnftables calls it.
fn new_helper(span: Span, kind: &str, protocol: &str) -> Lowered<Object> {
    let names = || Helper::ALL.map(Helper::name).join(", ");
    let helper = Helper::named(kind).ok_or_else(|| {
        LangError::new(span, format!("the helper `{kind}` is not supported")).remedy(format!(
            "remove the object and the rules that use it; there are {}",
            names()
        ))
    })?;
    let wanted = match helper.protocol() {
        ip_protocol::TCP => "tcp",
        _ => "udp",
    };
    if protocol != wanted {
        return Err(LangError::new(
            span,
            format!("the helper `{kind}` does not inspect {protocol}"),
        )
        .remedy(format!("write `protocol {wanted}`")));
    }
    Ok(Object::Helper {
        helper: helper.id(),
        protocol: helper.protocol(),
    })
}

/// `family name`.
fn table_name(table: &TableAst) -> String {
    format!("{} {}", table.family.name(), table.name.text)
}

/// A rule's text on one line.
fn squeeze(text: &str) -> String {
    let mut out = String::new();
    for word in text.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    out
}
