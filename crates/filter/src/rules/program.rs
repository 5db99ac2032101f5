//! The compiled form of rules: values, tests and statements, without text.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::field::Field;
use crate::packet::{Family, HelperId, Hook, InterfaceId};
use crate::verdict::{NatFlags, NatKind, Reject, RuleId, Synproxy};

/// A chain of a ruleset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChainId(pub u32);

/// A set or map of a ruleset, anonymous ones included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SetId(pub u32);

/// Operators on numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Operator {
    And,
    Or,
    Xor,
    Shl,
    Shr,
}

impl Operator {
    /// Applies the operator; a shift by more than the width gives zero.
    pub const fn apply(self, left: u128, right: u128) -> u128 {
        match self {
            Self::And => left & right,
            Self::Or => left | right,
            Self::Xor => left ^ right,
            Self::Shl if right < 128 => left << right,
            Self::Shr if right < 128 => left >> right,
            Self::Shl | Self::Shr => 0,
        }
    }
}

/// A number that is computed from the packet.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Always the same.
    Const(u128),
    /// A field.
    Field(Field),
    /// Two numbers combined.
    Binary(Operator, Box<(Value, Value)>),
    /// The data that a map gives.
    Map(Box<Key>, SetId),
    /// A hash of a key (`jhash`), reduced and moved.
    Hash {
        /// What is hashed.
        key: Box<Key>,
        /// Values.
        modulus: u32,
        /// Seed.
        seed: u32,
        /// Added.
        offset: u32,
    },
    /// A hash of the flow that is the same both ways (`symhash`).
    FlowHash {
        /// Values.
        modulus: u32,
        /// Added.
        offset: u32,
    },
    /// Counts up (`numgen inc`).
    Count {
        /// Which generator.
        generator: u32,
        /// Values.
        modulus: u32,
        /// Added.
        offset: u32,
    },
    /// Drawn at random (`numgen random`).
    Draw {
        /// Values.
        modulus: u32,
        /// Added.
        offset: u32,
    },
}

/// A key of a set: one number, or a concatenation.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// The numbers, with their widths in bits.
    pub parts: Vec<(Value, u16)>,
}

impl Key {
    /// True if all packets of one direction of a flow have the same key.
    pub fn is_of_flow(&self) -> bool {
        self.parts.iter().all(|(value, _)| value.is_of_flow())
    }
}

/// How a number is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// It lies in this range, ends included.
    In(u128, u128),
    /// It does not.
    NotIn(u128, u128),
    /// Some of these bits are set.
    Any(u128),
    /// None of these bits is set.
    NoneOf(u128),
}

impl Test {
    /// Applies the test.
    #[inline]
    pub const fn holds(self, value: u128) -> bool {
        match self {
            Self::In(low, high) => low <= value && value <= high,
            Self::NotIn(low, high) => value < low || high < value,
            Self::Any(mask) => value & mask != 0,
            Self::NoneOf(mask) => value & mask == 0,
        }
    }
}

/// Where control goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The packet passes this base chain.
    Accept,
    /// The packet is dropped.
    Drop,
    /// Back to the calling chain, or to the policy.
    Return,
    /// On with the next statement.
    Continue,
    /// To another chain, and back.
    Jump(ChainId),
    /// To another chain, and back to the caller of this one.
    Goto(ChainId),
}

/// How a rule rejects, before the packet's family is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectWith {
    /// The same for every packet.
    Fixed(Reject),
    /// A code for each family.
    ByFamily {
        /// For IPv4.
        icmp: u8,
        /// For IPv6.
        icmpv6: u8,
    },
}

/// One end of a translation: constants, computed numbers, or what a map gives.
#[derive(Clone, Debug, PartialEq)]
pub enum NatSource {
    /// A range of numbers, each computed.
    Range(Value, Value),
    /// Part `part` of the data of a map.
    Map {
        /// The key.
        key: Key,
        /// The map.
        set: SetId,
        /// Which part of its data.
        part: u8,
    },
}

/// A translation, compiled.
#[derive(Clone, Debug, PartialEq)]
pub struct Nat {
    /// Which end.
    pub kind: NatKind,
    /// How to choose.
    pub flags: NatFlags,
    /// Addresses are IPv6 (else IPv4).
    pub ipv6: bool,
    /// The address.
    pub address: Option<NatSource>,
    /// The port.
    pub port: Option<NatSource>,
}

/// A named or anonymous object that a statement uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Object {
    /// A counter.
    Counter(u32),
    /// A limit.
    Limit(u32),
    /// A quota.
    Quota(u32),
    /// A connection-tracking helper.
    Helper {
        /// Which one.
        helper: HelperId,
        /// The IP protocol that it inspects: others are left alone.
        protocol: u8,
    },
    /// What a SYN proxy announces: index of the ruleset's list.
    Synproxy(u32),
}

/// What a dynamic set statement does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// Adds if absent.
    Add,
    /// Adds, or refreshes the timeout.
    Refresh,
    /// Removes.
    Remove,
}

/// A stateful statement of a set's element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementOp {
    /// Counts.
    Counter,
    /// Limits.
    Limit(super::state::Limit),
    /// A quota of bytes.
    Quota {
        /// Bytes.
        bytes: u64,
        /// Matches above, not below.
        over: bool,
    },
}

/// One step of a rule.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Goes on if a number passes a test.
    Test(Value, Test),
    /// Goes on if a key is in a set (or is not).
    Lookup {
        /// The key.
        key: Key,
        /// The set.
        set: SetId,
        /// It must not be there.
        negate: bool,
    },
    /// Uses an object; limits and quotas may end the rule.
    Object(Object),
    /// Uses the object that a map gives.
    ObjectMap {
        /// The key.
        key: Key,
        /// The map.
        set: SetId,
    },
    /// Leaves a log record: index of the ruleset's list.
    Log(u32),
    /// Decides.
    Action(Action),
    /// Decides by a map.
    Vmap {
        /// The key.
        key: Key,
        /// The map.
        set: SetId,
    },
    /// Rejects.
    Reject(RejectWith),
    /// Translates.
    Nat(Box<Nat>),
    /// Writes a field.
    Store(Field, Value),
    /// Takes the packet out of tracking.
    Notrack,
    /// Lets the connection bypass the rules.
    Offload,
    /// Sends the frame out elsewhere.
    Forward(InterfaceId),
    /// Sends a copy elsewhere.
    Copy(InterfaceId),
    /// Adds to, or removes from, a set.
    Update {
        /// What is done.
        update: Update,
        /// The set.
        set: SetId,
        /// The key.
        key: Key,
        /// Data, for maps.
        data: Option<Value>,
        /// Time to live, nanoseconds; `None` for the set's.
        timeout_ns: Option<u64>,
        /// What is done with the element.
        ops: Vec<ElementOp>,
    },
}

impl Op {
    /// True if the step only looks, so that its order among others that only look does not matter.
    pub fn is_pure(&self) -> bool {
        match self {
            Self::Test(value, _) => value.is_pure(),
            Self::Lookup { key, .. } => key.parts.iter().all(|(value, _)| value.is_pure()),
            _ => false,
        }
    }
}

impl Value {
    /// True if all packets of one direction of a flow give the same number.
    pub fn is_of_flow(&self) -> bool {
        match self {
            Self::Const(_) | Self::FlowHash { .. } => true,
            Self::Field(field) => field.is_of_flow(),
            Self::Binary(_, sides) => sides.0.is_of_flow() && sides.1.is_of_flow(),
            Self::Hash { key, .. } => key.is_of_flow(),
            Self::Map(..) | Self::Count { .. } | Self::Draw { .. } => false,
        }
    }

    /// True if computing it changes nothing.
    pub fn is_pure(&self) -> bool {
        match self {
            Self::Const(_) | Self::Field(_) | Self::FlowHash { .. } => true,
            Self::Binary(_, sides) => sides.0.is_pure() && sides.1.is_pure(),
            Self::Map(key, _) => key.parts.iter().all(|(value, _)| value.is_pure()),
            Self::Hash { key, .. } => key.parts.iter().all(|(value, _)| value.is_pure()),
            Self::Count { .. } | Self::Draw { .. } => false,
        }
    }
}

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its number in the ruleset.
    pub id: RuleId,
    /// Its steps.
    pub ops: Vec<Op>,
    /// The steps that are left when the classifier has found the rule.
    pub(super) rest: Vec<u16>,
    /// Which of the first 64 steps make the verdict one for this packet only (the last bit: any later one).
    pub(super) per_packet: u64,
}

impl Rule {
    /// Makes a rule of its steps.
    pub fn new(id: RuleId, ops: Vec<Op>) -> Self {
        Self {
            id,
            ops,
            rest: Vec::new(),
            per_packet: 0,
        }
    }
}

/// What attaches a chain to a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseChain {
    /// The chain.
    pub chain: ChainId,
    /// Family of its table.
    pub family: Family,
    /// The hook.
    pub hook: Hook,
    /// Its place among the chains of the hook: lower is earlier. Connection tracking sits at -200.
    pub priority: i32,
    /// What the chain is for.
    pub kind: ChainKind,
    /// What happens to packets that no rule decides about: they are dropped.
    pub policy_drop: bool,
    /// The devices it is attached to (ingress and egress), empty for all.
    pub devices: Vec<InterfaceId>,
}

/// Types of base chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChainKind {
    /// Judges every packet.
    Filter,
    /// Translates: is asked for the first packet of a connection only.
    Nat,
    /// Judges packets that the node sends, and has them routed anew if a mark changed.
    Route,
}

/// Where a rule came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleInfo {
    /// Table, `family name`.
    pub table: String,
    /// Chain.
    pub chain: String,
    /// Handle within the table.
    pub handle: u64,
    /// File.
    pub file: String,
    /// Line, from 1; 0 if unknown.
    pub line: u32,
    /// The rule as text.
    pub text: String,
    /// Comment.
    pub comment: Option<String>,
    /// Its first anonymous counter.
    pub counter: Option<u32>,
}

/// A log statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogInfo {
    /// Prefix of each line.
    pub prefix: String,
    /// Syslog level (8 is audit).
    pub level: u8,
    /// Netlink group, if it goes there.
    pub group: Option<u16>,
    /// Bytes of the packet that are logged; 0 for all.
    pub snaplen_bytes: u32,
    /// Packets that are collected first.
    pub queue_threshold: u16,
    /// Flags, by name.
    pub flags: Vec<String>,
}

/// A named object: what it is called.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectInfo {
    /// Table, `family name`.
    pub table: String,
    /// Its name.
    pub name: String,
    /// What it is.
    pub object: Object,
}

/// SYN proxy options by index.
pub type SynproxyList = Vec<Synproxy>;
