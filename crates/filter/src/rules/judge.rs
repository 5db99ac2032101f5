//! A ruleset as the engine asks it: by stage and hook, chain after chain in order of priority.

use super::program::{ChainId, ChainKind};
use super::trace::{NoTrace, Tracer};
use super::{RuleWorker, Ruleset};
use crate::packet::{Family, Hook, Packet};
use crate::pipeline::{Rules, Stage};
use crate::verdict::{Effects, Verdict};

/// Priority of connection tracking: chains below it see no connection.
const TRACKING: i32 = -200;
/// Priority at which destinations are translated, at prerouting and output.
const DESTINATION_NAT: i32 = -100;
/// Priority at which sources are translated, at postrouting.
const SOURCE_NAT: i32 = 100;

/// One worker's view of a ruleset. With another tracer than [`NoTrace`] it explains what it does, by the same code.
#[derive(Debug)]
pub struct Judge<'a, T = NoTrace> {
    /// The rules.
    pub ruleset: &'a Ruleset,
    /// The worker's part.
    pub worker: &'a mut RuleWorker,
    /// Sees the steps.
    pub tracer: T,
    /// Number of what is in force, see [`Rules::epoch`].
    pub epoch: u32,
}

impl<T: Tracer> Rules for Judge<'_, T> {
    fn epoch(&self) -> u32 {
        self.epoch
    }

    fn has(&self, stage: Stage, hook: Hook) -> bool {
        self.ruleset.has_chains(stage, hook)
    }

    fn judge(&mut self, stage: Stage, packet: &mut Packet<'_>, effects: &mut Effects) -> Verdict {
        let hook = packet.hook;
        let family = match hook {
            Hook::Ingress | Hook::Egress => Some(Family::Netdev),
            _ => Family::of(&packet.layout),
        };
        let Some(family) = family else {
            return Verdict::Accept;
        };
        let device = if hook == Hook::Egress {
            packet.oif
        } else {
            packet.iif
        };
        for (chain, devices) in self.ruleset.walks.chains(stage, hook, family) {
            if !devices.is_empty() && !devices.contains(&device) {
                continue;
            }
            let verdict =
                self.ruleset
                    .evaluate(*chain, packet, effects, self.worker, &mut self.tracer);
            match verdict {
                Verdict::Accept => {}
                // The chains after this one may still drop the packet.
                Verdict::Synproxy(options) => effects.synproxy = Some(options),
                end => return end,
            }
        }
        Verdict::Accept
    }
}

impl Ruleset {
    /// Tells whether any base chain of a stage is attached at a hook.
    pub fn has_chains(&self, stage: Stage, hook: Hook) -> bool {
        [Family::Ip, Family::Ip6, Family::Netdev]
            .into_iter()
            .any(|family| !self.walks.chains(stage, hook, family).is_empty())
    }
}

/// Chains by stage, hook and family, so that nothing is searched for a packet.
#[derive(Debug, Default)]
pub(super) struct Walks {
    lists: alloc::vec::Vec<alloc::vec::Vec<(ChainId, alloc::vec::Vec<crate::packet::InterfaceId>)>>,
}

const FAMILIES: [Family; 5] = [
    Family::Ip,
    Family::Ip6,
    Family::Netdev,
    Family::Arp,
    Family::Bridge,
];
const STAGES: [Stage; 4] = [Stage::Raw, Stage::Filter, Stage::Nat, Stage::Late];

impl Walks {
    pub(super) fn new(base: &[super::program::BaseChain]) -> Self {
        let mut lists = alloc::vec::Vec::new();
        for stage in STAGES {
            for hook in Hook::ALL {
                for family in FAMILIES {
                    let chains = base.iter().filter(|chain| {
                        let is_family = chain.family == family
                            || (chain.family == Family::Inet
                                && matches!(family, Family::Ip | Family::Ip6 | Family::Netdev));
                        chain.hook == hook && is_family && stage_of(chain) == stage
                    });
                    lists.push(
                        chains
                            .map(|chain| (chain.chain, chain.devices.clone()))
                            .collect(),
                    );
                }
            }
        }
        Self { lists }
    }

    fn chains(
        &self,
        stage: Stage,
        hook: Hook,
        family: Family,
    ) -> &[(ChainId, alloc::vec::Vec<crate::packet::InterfaceId>)] {
        let family = FAMILIES
            .iter()
            .position(|known| *known == family)
            .unwrap_or(0);
        let stage = STAGES.iter().position(|known| *known == stage).unwrap_or(0);
        let at = (stage * Hook::ALL.len() + hook as usize) * FAMILIES.len() + family;
        self.lists
            .get(at)
            .map(alloc::vec::Vec::as_slice)
            .unwrap_or_default()
    }
}

fn stage_of(chain: &super::program::BaseChain) -> Stage {
    match (chain.kind, chain.hook) {
        (ChainKind::Nat, _) => Stage::Nat,
        (_, Hook::Prerouting | Hook::Output) if chain.priority < TRACKING => Stage::Raw,
        (_, Hook::Prerouting | Hook::Output) if chain.priority > DESTINATION_NAT => Stage::Late,
        (_, Hook::Postrouting) if chain.priority > SOURCE_NAT => Stage::Late,
        _ => Stage::Filter,
    }
}
