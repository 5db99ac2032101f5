//! Watching an evaluation, by the same code as the fast path: a tracer that does nothing compiles to nothing.

use alloc::vec::Vec;

use super::program::{Action, ChainId, SetId};
use crate::verdict::{RuleId, Verdict};

/// Sees the steps of an evaluation.
pub trait Tracer {
    /// A chain starts.
    fn chain(&mut self, chain: ChainId);
    /// A rule's tests start.
    fn rule(&mut self, rule: RuleId);
    /// A set was asked for a key; `element` is what matched (`u32::MAX` for one that packets added).
    fn lookup(&mut self, set: SetId, element: Option<u32>);
    /// Step `op` of the rule ended it: it did not match.
    fn mismatch(&mut self, op: u16);
    /// A rule sent control somewhere.
    fn action(&mut self, action: Action);
    /// The base chain is done.
    fn verdict(&mut self, verdict: &Verdict, rule: RuleId);
}

/// Watches nothing: the fast path.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTrace;

impl Tracer for NoTrace {
    #[inline(always)]
    fn chain(&mut self, _chain: ChainId) {}
    #[inline(always)]
    fn rule(&mut self, _rule: RuleId) {}
    #[inline(always)]
    fn lookup(&mut self, _set: SetId, _element: Option<u32>) {}
    #[inline(always)]
    fn mismatch(&mut self, _op: u16) {}
    #[inline(always)]
    fn action(&mut self, _action: Action) {}
    #[inline(always)]
    fn verdict(&mut self, _verdict: &Verdict, _rule: RuleId) {}
}

/// A step that a [`Recorder`] kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A chain starts.
    Chain(ChainId),
    /// A rule's tests start.
    Rule(RuleId),
    /// A set was asked.
    Lookup(SetId, Option<u32>),
    /// The rule did not match.
    Mismatch(u16),
    /// Control went somewhere.
    Action(Action),
    /// The base chain is done; [`RuleId::POLICY`] if its policy decided.
    Verdict(Verdict, RuleId),
}

/// Steps that a recorder keeps at most.
pub const STEPS_MAX: usize = 65_536;

/// Keeps the steps, for explanations (control side: allocates).
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    /// The steps, in order.
    pub steps: Vec<Step>,
}

impl Recorder {
    fn push(&mut self, step: Step) {
        if self.steps.len() < STEPS_MAX {
            self.steps.push(step);
        }
    }
}

impl Tracer for Recorder {
    fn chain(&mut self, chain: ChainId) {
        self.push(Step::Chain(chain));
    }
    fn rule(&mut self, rule: RuleId) {
        self.push(Step::Rule(rule));
    }
    fn lookup(&mut self, set: SetId, element: Option<u32>) {
        self.push(Step::Lookup(set, element));
    }
    fn mismatch(&mut self, op: u16) {
        self.push(Step::Mismatch(op));
    }
    fn action(&mut self, action: Action) {
        self.push(Step::Action(action));
    }
    fn verdict(&mut self, verdict: &Verdict, rule: RuleId) {
        self.push(Step::Verdict(*verdict, rule));
    }
}
