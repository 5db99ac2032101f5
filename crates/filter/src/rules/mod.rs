//! Rules at work: a compiled ruleset, evaluated by workers.
//!
//! A [`Ruleset`] is a snapshot: it never changes, but for the state of its limits, quotas, generators and of the
//! sets that packets fill, which all workers share. Each worker has a [`RuleWorker`] with its own counters.

mod classify;
pub mod dynamic;
pub mod evaluate;
mod explain;
pub mod field;
mod guard;
pub mod interface;
pub mod judge;
pub mod key;
mod options;
pub mod program;
pub mod set;
pub mod state;
pub mod trace;

use alloc::string::String;
use alloc::vec::Vec;

use tables::counters::Counters;
use wire::{FlowSecret, Instant};

pub use evaluate::{DEPTH_MAX, RuleWorker};
pub use interface::{Interface, Interfaces};
pub use judge::Judge;
use program::{BaseChain, ChainId, LogInfo, ObjectInfo, Rule, RuleInfo, SetId, SynproxyList};
use set::Set;
use state::Shared;
pub use trace::{NoTrace, Recorder, Step, Tracer};

use crate::packet::{Family, Hook, InterfaceId};
use crate::verdict::RuleId;

/// A chain, compiled.
#[derive(Debug, Default)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// Its table, `family name`.
    pub table: String,
    /// Its rules, in order.
    pub rules: Vec<Rule>,
    classifier: Option<classify::Classifier>,
}

impl Chain {
    /// Makes a chain of rules.
    pub fn new(table: String, name: String, rules: Vec<Rule>) -> Self {
        Self {
            name,
            table,
            rules,
            classifier: None,
        }
    }
}

/// What a ruleset is made of. [`Ruleset::new`] checks and indexes it.
#[derive(Debug, Default)]
pub struct Parts {
    /// Chains.
    pub chains: Vec<Chain>,
    /// Base chains.
    pub base: Vec<BaseChain>,
    /// Sets.
    pub sets: Vec<Set>,
    /// Where rules come from, by [`RuleId`].
    pub rules: Vec<RuleInfo>,
    /// Log statements.
    pub logs: Vec<LogInfo>,
    /// Named objects.
    pub objects: Vec<ObjectInfo>,
    /// SYN proxy options.
    pub synproxies: SynproxyList,
    /// Shared state.
    pub shared: Shared,
    /// Number of counters.
    pub counters: usize,
    /// Packets and bytes that counters start from.
    pub counter_starts: Vec<(u32, u64, u64)>,
    /// Interfaces.
    pub interfaces: Interfaces,
    /// Workers that will evaluate.
    pub workers: usize,
    /// When the ruleset is loaded.
    pub loaded_at: Instant,
    /// Key of flow hashes.
    pub flow_secret: [u64; 8],
}

/// A compiled ruleset.
#[derive(Debug)]
pub struct Ruleset {
    chains: Vec<Chain>,
    base: Vec<BaseChain>,
    walks: judge::Walks,
    sets: Vec<Set>,
    rules: Vec<RuleInfo>,
    logs: Vec<LogInfo>,
    objects: Vec<ObjectInfo>,
    synproxies: SynproxyList,
    shared: Shared,
    counters: Counters,
    counter_starts: Vec<(u32, u64, u64)>,
    interfaces: Interfaces,
    loaded_at: Instant,
    flow_secret: FlowSecret,
}

/// Why chains cannot call each other as they do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// A chain calls itself, by way of others or not.
    #[error("the chain `{0}` calls itself")]
    Loop(String),
    /// Calls are nested too deep.
    #[error("calls from the chain `{0}` are nested deeper than {DEPTH_MAX}")]
    Depth(String),
}

impl Ruleset {
    /// Makes a ruleset: checks calls and builds the classifiers.
    ///
    /// # Errors
    /// If chains call each other in a circle or too deep.
    pub fn new(parts: Parts) -> Result<Self, CallError> {
        let mut base = parts.base;
        base.sort_by_key(|chain| (chain.hook, chain.priority));
        let mut random = [0_u8; 64];
        for (bytes, word) in random.chunks_mut(8).zip(parts.flow_secret) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        let mut ruleset = Self {
            chains: parts.chains,
            walks: judge::Walks::new(&base),
            base,
            sets: parts.sets,
            rules: parts.rules,
            logs: parts.logs,
            objects: parts.objects,
            synproxies: parts.synproxies,
            shared: parts.shared,
            counters: Counters::new(parts.workers.max(1), parts.counters * 2),
            counter_starts: parts.counter_starts,
            interfaces: parts.interfaces,
            loaded_at: parts.loaded_at,
            flow_secret: FlowSecret::new(random),
        };
        ruleset.check_calls()?;
        guard::classify(&mut ruleset);
        Ok(ruleset)
    }

    /// Refuses circles and depth (as the kernel, which counts a goto as a call here).
    fn check_calls(&self) -> Result<(), CallError> {
        let calls: Vec<Vec<usize>> = self
            .chains
            .iter()
            .map(|chain| self.calls_of(chain))
            .collect();
        let mut depths = alloc::vec![None; self.chains.len()];
        for at in 0..self.chains.len() {
            let depth = self.depth_of(at, &calls, &mut depths, 0)?;
            if depth > DEPTH_MAX {
                return Err(CallError::Depth(self.chain_name(at)));
            }
        }
        Ok(())
    }

    fn chain_name(&self, at: usize) -> String {
        self.chains
            .get(at)
            .map(|chain| chain.name.clone())
            .unwrap_or_default()
    }

    fn calls_of(&self, chain: &Chain) -> Vec<usize> {
        let mut calls = Vec::new();
        for op in chain.rules.iter().flat_map(|rule| &rule.ops) {
            match op {
                program::Op::Action(action) => calls.extend(guard::target(*action)),
                program::Op::Vmap { set, .. } => {
                    for element in self
                        .sets
                        .get(set.0 as usize)
                        .iter()
                        .flat_map(|set| &set.elements)
                    {
                        if let set::Data::Action(action) = element.data {
                            calls.extend(guard::target(action));
                        }
                    }
                }
                _ => {}
            }
        }
        calls.sort_unstable();
        calls.dedup();
        calls
    }

    fn depth_of(
        &self,
        at: usize,
        calls: &[Vec<usize>],
        depths: &mut [Option<usize>],
        level: usize,
    ) -> Result<usize, CallError> {
        if let Some(Some(depth)) = depths.get(at) {
            return Ok(*depth);
        }
        // A circle never ends, so that it is as deep as there are chains.
        if level > self.chains.len().min(4 * DEPTH_MAX) {
            let circular = level > self.chains.len();
            return Err(if circular {
                CallError::Loop(self.chain_name(at))
            } else {
                CallError::Depth(self.chain_name(at))
            });
        }
        let mut deepest = 0;
        for call in calls.get(at).into_iter().flatten() {
            deepest = deepest.max(1 + self.depth_of(*call, calls, depths, level + 1)?);
        }
        if let Some(place) = depths.get_mut(at) {
            *place = Some(deepest);
        }
        Ok(deepest)
    }

    /// Makes the part of worker `number`; `None` if it is taken or there is no such worker.
    pub fn worker(&self, number: usize) -> Option<RuleWorker> {
        Some(RuleWorker {
            counters: self.counters.row(number)?,
            sets: self
                .sets
                .iter()
                .map(|set| set.as_dynamic().and_then(dynamic::DynamicSet::join))
                .collect(),
            swept: 0,
        })
    }

    /// Tells the sets that packets fill that `worker` holds nothing, and removes expired elements of `slots` slots.
    /// Call it once a loop; returns how many elements expired.
    pub fn maintain(&self, worker: &mut RuleWorker, now: Instant, slots: usize) -> usize {
        let mut removed = 0;
        for (set, place) in self.sets.iter().zip(&mut worker.sets) {
            if let (Some(dynamic), Some(place)) = (set.as_dynamic(), place) {
                let start = worker.swept % dynamic.slots().max(1);
                removed += dynamic.sweep(place, start..start.saturating_add(slots), now.as_ns());
            }
        }
        worker.swept = worker.swept.wrapping_add(slots);
        removed
    }

    /// Returns the base chains of a hook for packets of a family, in order of priority.
    ///
    /// For [`Family::Ip`] and [`Family::Ip6`] these are the family's own and those of `inet` tables; at
    /// [`Hook::Ingress`] and [`Hook::Egress`], ask for [`Family::Netdev`] (chains of `device`, and of `inet` tables
    /// too).
    pub fn base_chains(
        &self,
        family: Family,
        hook: Hook,
        device: InterfaceId,
    ) -> impl Iterator<Item = &BaseChain> {
        self.base.iter().filter(move |base| {
            let is_family = match family {
                Family::Ip | Family::Ip6 | Family::Netdev => {
                    base.family == family || base.family == Family::Inet
                }
                Family::Inet | Family::Arp | Family::Bridge => base.family == family,
            };
            let is_device = base.devices.is_empty() || base.devices.contains(&device);
            is_family && base.hook == hook && is_device
        })
    }

    /// Returns all base chains, sorted by hook and priority.
    pub fn all_base_chains(&self) -> &[BaseChain] {
        &self.base
    }

    /// Returns how many log statements there are.
    pub fn log_statements(&self) -> usize {
        self.logs.len()
    }

    /// Returns the chains.
    pub fn chains(&self) -> &[Chain] {
        &self.chains
    }

    /// Returns a chain.
    pub fn chain(&self, id: ChainId) -> Option<&Chain> {
        self.chains.get(id.0 as usize)
    }

    /// Returns a set.
    pub fn set(&self, id: SetId) -> Option<&Set> {
        self.sets.get(id.0 as usize)
    }

    /// Returns all sets.
    pub fn sets(&self) -> &[Set] {
        &self.sets
    }

    /// Returns where a rule comes from: its table, chain, handle, file and line.
    pub fn rule(&self, id: RuleId) -> Option<&RuleInfo> {
        self.rules.get(id.0 as usize)
    }

    /// Returns all rules.
    pub fn rules(&self) -> &[RuleInfo] {
        &self.rules
    }

    /// Returns a log statement.
    pub fn log(&self, statement: u32) -> Option<&LogInfo> {
        self.logs.get(statement as usize)
    }

    /// Returns the named objects.
    pub fn objects(&self) -> &[ObjectInfo] {
        &self.objects
    }

    /// Returns the interfaces.
    pub fn interfaces(&self) -> &Interfaces {
        &self.interfaces
    }

    /// Returns packets and bytes of a counter, summed over the workers.
    pub fn counter(&self, counter: u32) -> (u64, u64) {
        let start = self
            .counter_starts
            .iter()
            .find(|start| start.0 == counter)
            .map_or((0, 0), |start| (start.1, start.2));
        let sum = |word| self.counters.sum(counter as usize * 2 + word);
        (start.0.wrapping_add(sum(0)), start.1.wrapping_add(sum(1)))
    }

    /// Returns the bytes that a quota has used.
    pub fn quota_used(&self, quota: u32) -> u64 {
        self.shared
            .quotas
            .get(quota as usize)
            .map_or(0, state::Quota::used)
    }

    fn policy_drop(&self, chain: ChainId) -> bool {
        self.base
            .iter()
            .find(|base| base.chain == chain)
            .is_some_and(|base| base.policy_drop)
    }
}
