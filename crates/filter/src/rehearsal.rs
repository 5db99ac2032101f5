//! Packets through the engine with everything written down: what explanations, and trials of rules before they are in
//! force, are made from. The code is the data path's own; the tables are the rehearsal's.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use wire::{FlowKey, Instant, Layout};

use crate::nat::mapping::NatSizes;
use crate::packet::{CtDirection, CtState, Fib, Hook, InterfaceId, Packet};
use crate::pipeline::{
    Connection, Environment, Fate, InterfaceFacts, Item, Join, Rules, Shared, Sizes, Stage,
    TrackPolicy, Worker,
};
use crate::rules::{Judge, Recorder, RuleWorker, Ruleset};
use crate::verdict::{Effects, RuleId, Verdict};

/// Connections that a rehearsal can hold, of each family.
const CONNECTIONS: usize = 1 << 16;

/// One question to the rules: the base chains of a stage at a hook.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The hook.
    pub hook: Hook,
    /// Which of its chains.
    pub stage: Stage,
    /// Interface the packet came by.
    pub iif: InterfaceId,
    /// Interface it is to leave by, [`InterfaceId::NONE`] before routing.
    pub oif: InterfaceId,
    /// The packet as it was at the hook.
    pub key: Option<FlowKey>,
    /// State of the packet.
    pub state: CtState,
    /// What was done, in lines; those of deeper steps are indented.
    pub lines: Vec<String>,
    /// What the rules said.
    pub verdict: Verdict,
    /// The rule that said so; [`RuleId::POLICY`] for a policy, `None` if no chain had anything to say.
    pub rule: Option<RuleId>,
}

/// What became of one packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// As it came; `None` if it is not IP.
    pub before: Option<FlowKey>,
    /// As it goes on; `None` if it does not.
    pub after: Option<FlowKey>,
    /// The connection before it came, and its direction in it.
    pub known: Option<(Connection, CtDirection)>,
    /// The connection after it.
    pub connection: Option<(Connection, CtDirection)>,
    /// What the rules were asked.
    pub questions: Vec<Question>,
    /// Its end.
    pub fate: Fate,
    /// What the engine sent because of it: frames.
    pub sent: Vec<Vec<u8>>,
}

impl Account {
    /// The question whose answer decided: the one that ended the packet's way, or the last that a rule answered.
    pub fn decisive(&self) -> Option<&Question> {
        let ended = self
            .questions
            .iter()
            .find(|question| matches!(question.verdict, Verdict::Drop | Verdict::Reject(_)));
        ended.or_else(|| {
            let answered =
                |question: &&Question| question.rule.is_some_and(|r| r != RuleId::POLICY);
            self.questions.iter().rev().find(answered)
        })
    }

    /// The translation that rules chose for the connection with this packet.
    pub fn translations(&self) -> impl Iterator<Item = &Question> {
        let is_nat = |question: &&Question| matches!(question.verdict, Verdict::Nat(_));
        self.questions.iter().filter(is_nat)
    }
}

/// An engine of its own for a ruleset.
#[derive(Debug)]
pub struct Rehearsal {
    engine: Worker,
    ruleset: Arc<Ruleset>,
    worker: RuleWorker,
}

impl Rehearsal {
    /// Makes an empty one. The ruleset's first worker must not be taken.
    ///
    /// # Errors
    /// If it is.
    pub fn new(ruleset: Arc<Ruleset>, policy: TrackPolicy) -> Result<Self, Join> {
        let sizes = Sizes {
            connections4: CONNECTIONS,
            connections6: CONNECTIONS / 4,
            sources: 1 << 10,
            expectations: 1 << 10,
            nat: NatSizes {
                mappings: CONNECTIONS,
                addresses: 64,
                permits: CONNECTIONS,
            },
            workers: 1,
        };
        // The same keys for each: rehearsals of two rulesets choose alike.
        let shared = Arc::new(Shared::new(&sizes, policy, [11, 13, 17, 19]));
        let worker = ruleset.worker(0).ok_or(Join)?;
        Ok(Self {
            engine: Worker::new(shared, 0, 23)?,
            ruleset,
            worker,
        })
    }

    /// The rules.
    pub fn ruleset(&self) -> &Arc<Ruleset> {
        &self.ruleset
    }

    /// The connections.
    pub fn shared(&self) -> &Arc<Shared> {
        self.engine.shared()
    }

    /// Lets one frame through, which is translated in place.
    pub fn pass(
        &mut self,
        frame: &mut [u8],
        layout: Layout,
        iif: InterfaceId,
        around: &Surroundings<'_>,
    ) -> Account {
        let before = FlowKey::from_layout(&layout, frame);
        let now = around.now;
        self.engine.maintain(now, 0);
        let look =
            |engine: &Worker| before.and_then(|key| engine.shared().connection_of(&key, now));
        let known = look(&self.engine);
        let env = Environment {
            now,
            unix_ns: around.unix_ns,
            fib: around.fib,
            interfaces: around.interfaces,
        };
        let mut rules = Questioned {
            ruleset: &self.ruleset,
            worker: &mut self.worker,
            questions: Vec::new(),
        };
        let mut fates = [Fate::Consumed];
        let mut items = [Item {
            frame: &mut *frame,
            layout,
            iif,
            mark: 0,
        }];
        self.engine
            .process(&env, &mut rules, &mut items, &mut fates);
        let questions = rules.questions;
        let [fate] = fates;
        let outbox = &mut self.engine.outbox;
        let sent = outbox.emissions().iter().map(|sent| sent.frame().to_vec());
        let sent = sent.collect();
        outbox.clear();
        let after = (fate == Fate::Accept)
            .then(|| FlowKey::from_layout(&layout, frame))
            .flatten();
        let connection = look(&self.engine);
        self.engine.maintain(now, 0);
        Account {
            before,
            after,
            known,
            connection,
            questions,
            fate,
            sent,
        }
    }
}

/// What surrounds a packet.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// Monotonic time; never goes back.
    pub now: Instant,
    /// Wall clock, nanoseconds since 1970 UTC.
    pub unix_ns: u64,
    /// Routes.
    pub fib: &'a dyn Fib,
    /// Interfaces, by id.
    pub interfaces: &'a [InterfaceFacts],
}

impl core::fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Surroundings")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

/// Rules that write down what they are asked.
struct Questioned<'a> {
    ruleset: &'a Ruleset,
    worker: &'a mut RuleWorker,
    questions: Vec<Question>,
}

impl Questioned<'_> {
    fn judge(&mut self) -> Judge<'_, Recorder> {
        Judge {
            ruleset: self.ruleset,
            worker: self.worker,
            tracer: Recorder::default(),
            // No verdict is replayed under this number: every packet meets the rules.
            epoch: 0,
        }
    }
}

impl Rules for Questioned<'_> {
    fn epoch(&self) -> u32 {
        0
    }

    fn has(&self, stage: Stage, hook: Hook) -> bool {
        self.ruleset.has_chains(stage, hook)
    }

    fn judge(&mut self, stage: Stage, packet: &mut Packet<'_>, effects: &mut Effects) -> Verdict {
        let (hook, iif, oif) = (packet.hook, packet.iif, packet.oif);
        let key = FlowKey::from_layout(&packet.layout, packet.frame);
        let state = packet.ct.state;
        let mut judge = self.judge();
        let verdict = judge.judge(stage, packet, effects);
        let steps = judge.tracer.steps;
        let rule = steps.iter().rev().find_map(|step| match step {
            crate::rules::Step::Verdict(_, rule) => Some(*rule),
            _ => None,
        });
        self.questions.push(Question {
            hook,
            stage,
            iif,
            oif,
            key,
            state,
            lines: self.ruleset.explain(&steps),
            verdict,
            rule,
        });
        verdict
    }
}
