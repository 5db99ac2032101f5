//! A compiled ruleset as the engine's rules.

use alloc::sync::Arc;

use super::rules::{Rules, Stage};
use crate::packet::{Family, Hook, InterfaceId, Packet};
use crate::rules::program::{BaseChain, ChainKind};
use crate::rules::{NoTrace, RuleWorker, Ruleset};
use crate::verdict::{Effects, Verdict};

/// Where connection tracking sits among the chains of prerouting.
const TRACKING: i32 = -200;
/// Where destinations are translated, at prerouting.
const DESTINATION_NAT: i32 = -100;
/// Where sources are translated, at postrouting.
const SOURCE_NAT: i32 = 100;

/// A worker's use of a [`Ruleset`].
#[derive(Debug)]
pub struct CompiledRules {
    ruleset: Arc<Ruleset>,
    worker: RuleWorker,
    epoch: u32,
}

impl CompiledRules {
    /// Makes worker `number`'s use of a ruleset; `None` if that worker has one already. `epoch` is the number of
    /// ruleset and routes in force, see [`Rules::epoch`].
    pub fn new(ruleset: Arc<Ruleset>, number: usize, epoch: u32) -> Option<Self> {
        Some(Self {
            worker: ruleset.worker(number)?,
            ruleset,
            epoch,
        })
    }
}

/// The stage in which a base chain is asked.
fn stage_of(base: &BaseChain) -> Stage {
    match (base.hook, base.kind) {
        (_, ChainKind::Nat) => Stage::Nat,
        (Hook::Prerouting, _) if base.priority < TRACKING => Stage::Raw,
        (Hook::Prerouting, _) if base.priority > DESTINATION_NAT => Stage::Late,
        (Hook::Postrouting, _) if base.priority > SOURCE_NAT => Stage::Late,
        _ => Stage::Filter,
    }
}

impl Rules for CompiledRules {
    fn epoch(&self) -> u32 {
        self.epoch
    }

    fn has(&self, stage: Stage, hook: Hook) -> bool {
        self.ruleset
            .all_base_chains()
            .iter()
            .any(|base| base.hook == hook && stage_of(base) == stage)
    }

    fn judge(&mut self, stage: Stage, packet: &mut Packet<'_>, effects: &mut Effects) -> Verdict {
        let Some(family) = Family::of(&packet.layout) else {
            return Verdict::Accept;
        };
        let ruleset = Arc::clone(&self.ruleset);
        for base in ruleset.base_chains(family, packet.hook, InterfaceId::NONE) {
            if stage_of(base) != stage {
                continue;
            }
            let worker = &mut self.worker;
            let verdict = ruleset.evaluate(base.chain, packet, effects, worker, &mut NoTrace);
            if verdict != Verdict::Accept {
                return verdict;
            }
        }
        Verdict::Accept
    }
}
