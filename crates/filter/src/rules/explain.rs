//! Explanations: what a packet met, rule by rule, as lines of text.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::program::Action;
use super::{Ruleset, Step};
use crate::verdict::{RuleId, Verdict};

impl Ruleset {
    /// Says in words what a [`Recorder`](super::Recorder) saw: chains, the rules that were tried, with their source
    /// lines, set elements that matched, and who decided.
    pub fn explain(&self, steps: &[Step]) -> Vec<String> {
        let mut lines = Vec::new();
        for step in steps {
            lines.push(match step {
                Step::Chain(chain) => match self.chain(*chain) {
                    Some(chain) => format!("chain {} {}", chain.table, chain.name),
                    None => String::from("chain ?"),
                },
                Step::Rule(rule) => format!("  {}", self.rule_line(*rule)),
                Step::Lookup(set, element) => {
                    let set = self.set(*set);
                    let name = set.map_or("?", |set| set.name.as_str());
                    let name = if name.is_empty() {
                        "anonymous set"
                    } else {
                        name
                    };
                    match element {
                        Some(at) => {
                            let text = set
                                .and_then(|set| set.element(*at))
                                .map_or("one that packets added", |element| element.text.as_str());
                            format!("    {name}: element {text}")
                        }
                        None => format!("    {name}: no element"),
                    }
                }
                Step::Mismatch(_) => String::from("    does not match"),
                Step::Action(action) => format!("    {}", self.action_text(*action)),
                Step::Verdict(verdict, rule) => {
                    let by = match *rule {
                        RuleId::POLICY => String::from("the policy of the chain"),
                        rule => self.rule_line(rule),
                    };
                    format!("verdict {} by {by}", verdict_text(verdict))
                }
            });
        }
        lines
    }

    fn rule_line(&self, rule: RuleId) -> String {
        match self.rule(rule) {
            Some(info) if info.line > 0 => format!("{}:{}: {}", info.file, info.line, info.text),
            Some(info) => format!("handle {}: {}", info.handle, info.text),
            None => String::from("an unknown rule"),
        }
    }

    fn action_text(&self, action: Action) -> String {
        let name = |chain| self.chain(chain).map_or("?", |chain| chain.name.as_str());
        match action {
            Action::Accept => String::from("accept"),
            Action::Drop => String::from("drop"),
            Action::Return => String::from("return"),
            Action::Continue => String::from("continue"),
            Action::Jump(chain) => format!("jump {}", name(chain)),
            Action::Goto(chain) => format!("goto {}", name(chain)),
        }
    }
}

fn verdict_text(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Accept => String::from("accept"),
        Verdict::Drop => String::from("drop"),
        Verdict::Reject(reject) => format!("reject ({reject:?})"),
        Verdict::Nat(request) => format!("translate ({:?})", request.kind),
        Verdict::Synproxy(_) => String::from("synproxy"),
        Verdict::Forward(_) => String::from("forward"),
    }
}
