//! The firewall's rules, and what they do to packets.

use serde::{Deserialize, Serialize};

/// A rule in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleInfo {
    /// Its table: family and name.
    pub table: String,
    /// Its chain.
    pub chain: String,
    /// Its handle.
    pub handle: u64,
    /// Its file.
    pub file: String,
    /// Its line, from 1.
    pub line: u32,
    /// The rule.
    pub text: String,
    /// Packets that its counter has seen; none without a counter.
    pub pkts: Option<u64>,
    /// Bytes that its counter has seen.
    pub bytes: Option<u64>,
}

/// The rule that decided something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleReference {
    /// Its file.
    pub file: String,
    /// Its line, from 1; 0 for a policy.
    pub line: u32,
    /// The rule; `policy` for a policy.
    pub text: String,
}

/// A connection, as an explained packet meets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionState {
    /// Tuple of the original direction.
    pub original: String,
    /// Tuple of the reply direction, as it is expected.
    pub reply: String,
    /// Where it stands: `new`, `established`, or a state of TCP.
    pub state: String,
    /// Time until it ends without packets, milliseconds.
    pub expires_ms: u32,
}

/// What the base chains of a hook said of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookInfo {
    /// The hook.
    pub hook: String,
    /// Which of its chains: `raw`, `filter`, `nat`, or `late` (after the translation).
    pub stage: String,
    /// The packet at this hook.
    pub packet: String,
    /// State of the packet (`ct state`).
    pub state: String,
    /// Port or bridge that it is to leave by, once that is known.
    pub oif: Option<String>,
    /// Chains, rules, set elements and actions, step by step.
    pub steps: Vec<String>,
    /// The verdict.
    pub verdict: String,
    /// Whose it is; none if no chain had a say.
    pub rule: Option<RuleReference>,
}

/// What became of a packet, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketExplanation {
    /// Its number, from 1.
    pub number: u64,
    /// Port or bridge that it came by.
    pub iif: String,
    /// The packet.
    pub packet: String,
    /// Its connection before it came.
    pub before: Option<ConnectionState>,
    /// The hooks, in order.
    pub hooks: Vec<HookInfo>,
    /// Its connection afterwards.
    pub after: Option<ConnectionState>,
    /// `accept`, `drop`, or `consumed` (answered, or waiting for other fragments).
    pub fate: String,
    /// Why it was dropped.
    pub drop_reason: Option<String>,
    /// The packet as it goes on.
    pub leaves_as: Option<String>,
    /// Packets that the node sends because of it.
    pub sent: Vec<String>,
}

/// One difference between two rulesets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleChange {
    /// The new ruleset has it, the old one does not (else the other way round).
    pub added: bool,
    /// Where: a table, chain or set.
    pub place: String,
    /// What: a rule, an element, a property.
    pub text: String,
    /// File.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
}

/// What became of a flow under one ruleset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowOutcome {
    /// `accept`, `drop` or `consumed`.
    pub fate: String,
    /// The packet as it goes on.
    pub leaves_as: Option<String>,
    /// The rule responsible.
    pub rule: Option<RuleReference>,
}

/// A flow that two rulesets treat differently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowChange {
    /// The flow: its first packet that differs.
    pub flow: String,
    /// Port or bridge that the packet came by.
    pub iif: String,
    /// Number of that packet in the capture, from 1.
    pub packet: u64,
    /// Packets of the flow that differ.
    pub differing_pkts: u64,
    /// Under the old rules.
    pub old: FlowOutcome,
    /// Under the new rules.
    pub new: FlowOutcome,
}

/// A trial of rules by a capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialReport {
    /// Packets of the capture.
    pub pkts: u64,
    /// Packets that no firewall judges: not IP, damaged, cut short.
    pub unjudged_pkts: u64,
    /// Flows of the capture.
    pub flows: u64,
    /// Flows that change.
    pub changes: Vec<FlowChange>,
}

/// A live connection that other rules would not let start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeniedConnection {
    /// Tuple of the original direction.
    pub connection: String,
    /// Where it stands.
    pub state: String,
    /// The rule responsible.
    pub rule: Option<RuleReference>,
    /// It was ended.
    #[serde(default)]
    pub ended: bool,
}
