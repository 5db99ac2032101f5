//! What rules decide: the verdict of a base chain, and the effects that it leaves beside it.
//!
//! All types are of fixed size; nothing here allocates.

use arrayvec::ArrayVec;

use crate::packet::InterfaceId;

/// Log records that one evaluation may leave; more are counted as lost.
pub const LOGS_MAX: usize = 4;

/// Copies (`dup`) that one evaluation may ask for; more are counted as lost.
pub const COPIES_MAX: usize = 2;

/// Identifies a rule of a compiled ruleset; the ruleset tells its table, chain, handle and source line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u32);

impl RuleId {
    /// No rule: the policy of the chain decided.
    pub const POLICY: Self = Self(u32::MAX);
}

/// The end of one base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet goes on, to the next base chain of the hook.
    Accept,
    /// The packet is dropped without a word.
    Drop,
    /// The packet is dropped and its sender told.
    Reject(Reject),
    /// The connection is to be translated; the packet goes on. Only from chains of type `nat`, which are
    /// asked once a connection.
    Nat(NatRequest),
    /// The connection is to be answered by the node first (SYN proxy).
    Synproxy(Synproxy),
    /// The frame leaves by another interface at once (`fwd`, ingress and egress only).
    Forward(InterfaceId),
}

/// How the sender of a rejected packet is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reject {
    /// By a TCP reset (only for TCP).
    TcpReset,
    /// By ICMP destination unreachable with this code (for IPv4).
    Icmp(u8),
    /// By ICMPv6 destination unreachable with this code (for IPv6).
    Icmpv6(u8),
}

/// Which end of a connection is translated, and where the new address comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NatKind {
    /// The source, to the addresses given.
    Source,
    /// The destination, to the addresses given.
    Destination,
    /// The source, to the primary address of the outgoing interface.
    Masquerade,
    /// The destination, to the primary address of the incoming interface.
    Redirect,
}

bitflags::bitflags! {
    /// How addresses and ports are chosen.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct NatFlags: u8 {
        /// Ports are randomised by a hash.
        const RANDOM = 1;
        /// Ports are drawn at random.
        const FULLY_RANDOM = 2;
        /// A client keeps its address (it depends on the source alone).
        const PERSISTENT = 4;
        /// The prefix is mapped one to one: host bits are kept (`addresses` is an aligned block).
        const NETMAP = 8;
    }
}

/// A translation that a rule asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NatRequest {
    /// Which end, and from where.
    pub kind: NatKind,
    /// How to choose.
    pub flags: NatFlags,
    /// First and last address, IPv4 mapped as in [`wire::FlowKey`]; `None` keeps the address.
    pub addresses: Option<([u8; 16], [u8; 16])>,
    /// First and last port; `None` keeps the port if it can.
    pub ports: Option<(u16, u16)>,
    /// The rule that asked.
    pub rule: RuleId,
}

/// What the SYN proxy announces to the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Synproxy {
    /// Maximum segment size, bytes; 0 if not announced.
    pub mss: u16,
    /// Window scale; `None` if not announced.
    pub window_scale: Option<u8>,
    /// Timestamps are announced.
    pub timestamps: bool,
    /// Selective acknowledgements are announced.
    pub sack: bool,
}

bitflags::bitflags! {
    /// What rules changed or asked for, for the stages around them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Changes: u16 {
        /// Bytes of the frame (checksums are right again).
        const FRAME = 1 << 0;
        /// The packet's mark (`Packet::mark`).
        const MARK = 1 << 1;
        /// The packet's priority.
        const PRIORITY = 1 << 2;
        /// The connection's mark (`Packet::ct.mark`): store it.
        const CT_MARK = 1 << 3;
        /// The connection's labels: store them.
        const CT_LABEL = 1 << 4;
        /// The connection's helper: attach it.
        const CT_HELPER = 1 << 5;
        /// The zone in which the packet is to be tracked.
        const CT_ZONE = 1 << 6;
        /// The packet is not to be tracked (`notrack`).
        const NOTRACK = 1 << 7;
        /// The connection may bypass the rules from now on (`flow add`).
        const OFFLOAD = 1 << 8;
        /// Processing of the packet is traced (`meta nftrace set 1`).
        const TRACE = 1 << 9;
        /// A rule looked at more than the connection, its state and direction, the interfaces and the fields
        /// that all packets of a flow share, or counted, limited, logged or changed something: the next packet
        /// of the flow must be judged anew. Without it, the verdict may be replayed for the flow until the
        /// ruleset changes.
        const PER_PACKET = 1 << 10;
    }
}

/// A statement `log` that a packet reached. The statement's prefix, level and group are in the ruleset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The rule it belongs to.
    pub rule: RuleId,
    /// Which log statement of the ruleset.
    pub statement: u32,
}

/// What an evaluation leaves beside its verdict. Reuse one value a packet over all its hooks.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// What changed.
    pub changes: Changes,
    /// Log records, oldest first.
    pub logs: ArrayVec<LogRecord, LOGS_MAX>,
    /// Log records that did not fit.
    pub logs_lost: u16,
    /// Interfaces that get a copy of the frame (`dup`).
    pub copies: ArrayVec<InterfaceId, COPIES_MAX>,
    /// The connection is to be answered by the node first: what the last `synproxy` statement announces. For the
    /// caller to heed once all chains let the packet pass.
    pub synproxy: Option<Synproxy>,
    /// The rule that decided last; [`RuleId::POLICY`] is the policy.
    pub rule: Option<RuleId>,
}

impl Effects {
    /// Forgets everything, for the next packet.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
