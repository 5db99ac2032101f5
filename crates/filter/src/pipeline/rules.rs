//! What the engine asks of rules.

use crate::packet::{CtState, Hook, Packet};
use crate::verdict::{Effects, NatFlags, NatKind, NatRequest, RuleId, Verdict};

/// Which chains of a hook are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Those before connection tracking (priority below -200).
    Raw,
    /// The others, but those of type `nat`, with a priority before the translation of their hook (prerouting and output:
    /// -100, postrouting: 100).
    Filter,
    /// Those of type `nat`: once a connection, with its first packet.
    Nat,
    /// Those of prerouting, output and postrouting with a priority after the translation. At prerouting and output, they
    /// see the translated destination; at postrouting, the source is translated after them.
    Late,
}

/// A set of rules, as the engine walks it.
pub trait Rules {
    /// Number of what is in force, never 0 and never one that was in force before: verdicts that were noted under
    /// another number are not replayed. Grows with the ruleset and with the routes.
    fn epoch(&self) -> u32;

    /// Tells whether any chain is attached there, so that an empty hook costs nothing.
    fn has(&self, stage: Stage, hook: Hook) -> bool;

    /// Judges a packet at its hook.
    fn judge(&mut self, stage: Stage, packet: &mut Packet<'_>, effects: &mut Effects) -> Verdict;
}

/// The smallest firewall: what belongs to a connection passes, connections may be opened from `inside` only, and are
/// masqueraded when they leave by another interface, if that is wanted. What `tidegate` does without a ruleset, and
/// what benches measure when rules are not the question.
#[derive(Clone, Copy, Debug)]
pub struct Stateful {
    /// The interface that connections may come from.
    pub inside: crate::packet::InterfaceId,
    /// Their source is translated to the outgoing interface's address.
    pub masquerade: bool,
    /// Ports are drawn at random.
    pub random: bool,
    /// Number of the routes in force.
    pub epoch: u32,
}

impl Rules for Stateful {
    fn epoch(&self) -> u32 {
        self.epoch
    }

    fn has(&self, stage: Stage, hook: Hook) -> bool {
        match stage {
            Stage::Raw | Stage::Late => false,
            Stage::Filter => matches!(hook, Hook::Forward | Hook::Input),
            Stage::Nat => self.masquerade && hook == Hook::Postrouting,
        }
    }

    fn judge(&mut self, stage: Stage, packet: &mut Packet<'_>, _effects: &mut Effects) -> Verdict {
        let inside = packet.iif == self.inside;
        match stage {
            Stage::Raw | Stage::Late => Verdict::Accept,
            Stage::Nat if inside && packet.oif != self.inside => Verdict::Nat(NatRequest {
                kind: NatKind::Masquerade,
                flags: if self.random {
                    NatFlags::FULLY_RANDOM
                } else {
                    NatFlags::empty()
                },
                addresses: None,
                ports: None,
                rule: RuleId::POLICY,
            }),
            Stage::Nat => Verdict::Accept,
            Stage::Filter => {
                let known = CtState::ESTABLISHED | CtState::RELATED;
                let open = packet.ct.state.intersects(known)
                    // Neighbour discovery and the like; nothing else is exempted here.
                    || packet.ct.state == CtState::UNTRACKED && packet.hook == Hook::Input
                    || packet.ct.state == CtState::NEW
                        && (inside || packet.ct.status.contains(crate::packet::CtStatus::DNAT));
                if open { Verdict::Accept } else { Verdict::Drop }
            }
        }
    }
}
