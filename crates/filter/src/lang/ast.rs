//! The syntax tree: what the text says, with places, before types are known.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::selector::Selector;
use super::span::Span;
use crate::packet::{Family, Hook};

/// A name with its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Name {
    /// The name.
    pub text: String,
    /// Where it stands.
    pub span: Span,
}

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// Where it stands.
    pub span: Span,
}

/// Binary operators on bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinOp {
    /// `&`
    And,
    /// `|`
    Or,
    /// `^`
    Xor,
    /// `<<`
    Shl,
    /// `>>`
    Shr,
}

impl BinOp {
    /// Returns the operator as nft writes it.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::And => "&",
            Self::Or => "|",
            Self::Xor => "^",
            Self::Shl => "<<",
            Self::Shr => ">>",
        }
    }
}

/// Kinds of expressions.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// An unquoted word: a constant's name, an address, a time, an interface.
    Word(String),
    /// A number.
    Num(u64),
    /// A quoted string.
    Str(String),
    /// A property of the packet.
    Selector(Selector),
    /// `@name`.
    SetRef(String),
    /// `{ ... }`.
    Set(Vec<Element>),
    /// `a . b`.
    Concat(Vec<Expr>),
    /// `a-b`.
    Range(Box<Expr>, Box<Expr>),
    /// `a/len`.
    Prefix(Box<Expr>, u64),
    /// `a, b` outside braces: flags.
    List(Vec<Expr>),
    /// `a op b`.
    Binary(BinOp, Box<Expr>, Box<Expr>),
    /// `key map { ... }`.
    Map(Box<Expr>, Box<Expr>),
    /// `*` in a set: what no other element matches.
    Any,
    /// A verdict, as data of a map.
    Verdict(VerdictAst),
}

/// An element of a set or map.
#[derive(Clone, Debug, PartialEq)]
pub struct Element {
    /// The key.
    pub key: Expr,
    /// The data, for maps.
    pub data: Option<Expr>,
    /// Time to live, milliseconds.
    pub timeout_ms: Option<u64>,
    /// Rest of the time to live, milliseconds.
    pub expires_ms: Option<u64>,
    /// Stateful statements (counter, limit, quota).
    pub stmts: Vec<Stmt>,
    /// Comment.
    pub comment: Option<String>,
}

/// A verdict as written.
#[derive(Clone, Debug, PartialEq)]
pub enum VerdictAst {
    /// `accept`
    Accept,
    /// `drop`
    Drop,
    /// `return`
    Return,
    /// `continue`
    Continue,
    /// `jump chain`
    Jump(Name),
    /// `goto chain`
    Goto(Name),
    /// `jump { ... }` or `goto { ... }`: an anonymous chain.
    Block {
        /// It is a goto.
        goto: bool,
        /// The rules.
        rules: Vec<RuleAst>,
    },
}

/// How two sides of a match are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelOp {
    /// Nothing written: equality, membership, or "any of these flags".
    Implicit,
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `!`: none of these flags.
    Not,
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Stmt {
    /// What it is.
    pub kind: StmtKind,
    /// Where it stands.
    pub span: Span,
}

/// A reference to a named object: by name, or by a map that gives one.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectRef {
    /// `name "x"`.
    Name(Name),
    /// `name ip saddr map { ... }`.
    Map(Box<Expr>),
}

/// A limit as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitAst {
    /// Packets or bytes.
    pub rate: u64,
    /// Length of the unit, seconds.
    pub per_s: u64,
    /// Bytes are counted, not packets.
    pub bytes: bool,
    /// The burst, `None` for the default.
    pub burst: Option<u64>,
    /// Matches above the rate, not below.
    pub over: bool,
}

/// A quota as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaAst {
    /// Bytes.
    pub bytes: u64,
    /// Bytes already used.
    pub used: u64,
    /// Matches above the quota, not below.
    pub over: bool,
}

/// A log statement as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogAst {
    /// Prefix of each line.
    pub prefix: Option<String>,
    /// Syslog level, 0 to 8 (audit).
    pub level: Option<u8>,
    /// Netlink group.
    pub group: Option<u16>,
    /// Bytes of the packet that are logged.
    pub snaplen: Option<u32>,
    /// Packets that are collected before they are sent.
    pub queue_threshold: Option<u16>,
    /// Flags by name (`tcp sequence`, `all`, ...).
    pub flags: Vec<String>,
}

/// How a packet is rejected, as written.
#[derive(Clone, Debug, PartialEq)]
pub enum RejectAst {
    /// `reject`
    Default,
    /// `with tcp reset`
    TcpReset,
    /// `with icmp X`
    Icmp(Expr),
    /// `with icmpv6 X`
    Icmpv6(Expr),
    /// `with icmpx X`
    Icmpx(Expr),
}

/// Which end is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatAst {
    /// `snat`
    Snat,
    /// `dnat`
    Dnat,
    /// `masquerade`
    Masquerade,
    /// `redirect`
    Redirect,
}

impl NatAst {
    /// Returns the keyword.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Snat => "snat",
            Self::Dnat => "dnat",
            Self::Masquerade => "masquerade",
            Self::Redirect => "redirect",
        }
    }
}

/// What a dynamic set statement does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DynOp {
    /// Adds if absent.
    Add,
    /// Adds, or refreshes the timeout.
    Update,
    /// Removes.
    Delete,
}

impl DynOp {
    /// Returns the keyword.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// What the SYN proxy announces, as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SynproxyAst {
    /// Maximum segment size.
    pub mss: u16,
    /// Window scale.
    pub wscale: Option<u8>,
    /// Timestamps.
    pub timestamp: bool,
    /// Selective acknowledgements.
    pub sack_perm: bool,
}

/// Kinds of statements.
#[derive(Clone, Debug, PartialEq)]
pub enum StmtKind {
    /// A comparison.
    Match {
        /// Left side.
        left: Expr,
        /// Comparison.
        op: RelOp,
        /// Right side.
        right: Expr,
    },
    /// A verdict.
    Verdict(VerdictAst),
    /// `key vmap { ... }`.
    Vmap {
        /// The key.
        key: Expr,
        /// The map.
        map: Expr,
    },
    /// `counter`, with the values to start from.
    Counter {
        /// Packets.
        packets: u64,
        /// Bytes.
        bytes: u64,
    },
    /// `counter name x`.
    CounterRef(ObjectRef),
    /// `quota`.
    Quota(QuotaAst),
    /// `quota name x`.
    QuotaRef(ObjectRef),
    /// `limit`.
    Limit(LimitAst),
    /// `limit name x`.
    LimitRef(ObjectRef),
    /// `ct count`.
    ConnLimit {
        /// Connections.
        count: u32,
        /// Matches above.
        over: bool,
    },
    /// `last`: remembers when it was reached.
    Last,
    /// `log`.
    Log(LogAst),
    /// `reject`.
    Reject(RejectAst),
    /// Address translation.
    Nat {
        /// Which end.
        kind: NatAst,
        /// `ip` or `ip6`, if written.
        family: Option<Family>,
        /// The address.
        address: Option<Expr>,
        /// The port.
        port: Option<Expr>,
        /// Flags by name.
        flags: Vec<String>,
        /// `prefix to`.
        prefix: bool,
        /// `addr . port to`, `interval to`: the map gives both.
        with_port: bool,
    },
    /// `selector set value`.
    Mangle {
        /// What is written.
        target: Selector,
        /// The value.
        value: Expr,
    },
    /// `ct helper set`, `ct timeout set`, `ct expectation set`: attaches an object.
    CtObject {
        /// `helper`, `timeout` or `expectation`.
        kind: String,
        /// Which.
        object: ObjectRef,
    },
    /// `add @set { ... }` and the like.
    Dynset {
        /// What is done.
        op: DynOp,
        /// The set.
        set: Name,
        /// The element.
        element: Box<Element>,
    },
    /// `meter name { ... }`: an anonymous dynamic set.
    Meter {
        /// Its name.
        name: Name,
        /// Most elements.
        size: Option<u64>,
        /// The element.
        element: Box<Element>,
    },
    /// `notrack`.
    Notrack,
    /// `synproxy`.
    Synproxy(SynproxyAst),
    /// `synproxy name x`.
    SynproxyRef(ObjectRef),
    /// `flow add @x`.
    Flow(Name),
    /// `queue`.
    Queue,
    /// `fwd to x`.
    Fwd(Expr),
    /// `dup to x`.
    Dup(Option<Expr>, Option<Expr>),
    /// `tproxy`.
    Tproxy,
}

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleAst {
    /// Statements, in order.
    pub stmts: Vec<Stmt>,
    /// Comment.
    pub comment: Option<String>,
    /// Where it stands.
    pub span: Span,
    /// Its handle, unique in its table; 0 before it is given.
    pub handle: u64,
}

/// What makes a chain a base chain.
#[derive(Clone, Debug, PartialEq)]
pub struct BaseAst {
    /// `filter`, `nat` or `route`.
    pub kind: String,
    /// The hook.
    pub hook: Hook,
    /// The priority.
    pub priority: i32,
    /// Devices (netdev tables and the inet ingress hook).
    pub devices: Vec<String>,
    /// The policy drops.
    pub policy_drop: bool,
}

/// A chain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChainAst {
    /// Its name.
    pub name: Name,
    /// What makes it a base chain.
    pub base: Option<BaseAst>,
    /// A policy without hook, to change an existing chain's.
    pub policy: Option<bool>,
    /// Its rules.
    pub rules: Vec<RuleAst>,
    /// Comment.
    pub comment: Option<String>,
    /// Its handle.
    pub handle: u64,
}

/// The type of a set's key or data: by names, or as that of an expression.
#[derive(Clone, Debug, PartialEq)]
pub enum TypeAst {
    /// `type a . b`.
    Names(Vec<Name>),
    /// `typeof expr`.
    Of(Expr),
}

/// What a map gives.
#[derive(Clone, Debug, PartialEq)]
pub enum DataAst {
    /// Values of a type.
    Type(TypeAst),
    /// Verdicts.
    Verdict,
    /// Names of objects (`counter`, `quota`, `limit`, `ct helper`, `synproxy`, ...).
    Object(String),
}

/// A set or map.
#[derive(Clone, Debug, PartialEq)]
pub struct SetAst {
    /// Its name.
    pub name: Name,
    /// Type of the key.
    pub key: Option<TypeAst>,
    /// Type of the data; `None` for sets.
    pub data: Option<DataAst>,
    /// It was declared as a map.
    pub is_map: bool,
    /// `constant`
    pub constant: bool,
    /// `interval`
    pub interval: bool,
    /// `dynamic`
    pub dynamic: bool,
    /// `timeout`
    pub timeout: bool,
    /// Time to live of elements, milliseconds.
    pub timeout_ms: Option<u64>,
    /// Time between collections, milliseconds.
    pub gc_ms: Option<u64>,
    /// Most elements.
    pub size: Option<u64>,
    /// Adjacent intervals are joined.
    pub auto_merge: bool,
    /// `memory` or `performance`.
    pub policy: Option<String>,
    /// Statements that each element gets.
    pub stmts: Vec<Stmt>,
    /// Elements.
    pub elements: Vec<Element>,
    /// Comment.
    pub comment: Option<String>,
    /// Its handle.
    pub handle: u64,
}

/// A named object of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectAst {
    /// Its name.
    pub name: Name,
    /// What it is.
    pub kind: ObjectKind,
    /// Comment.
    pub comment: Option<String>,
    /// Its handle.
    pub handle: u64,
}

/// Kinds of named objects.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectKind {
    /// `counter`
    Counter {
        /// Packets to start from.
        packets: u64,
        /// Bytes to start from.
        bytes: u64,
    },
    /// `quota`
    Quota(QuotaAst),
    /// `limit`
    Limit(LimitAst),
    /// `ct helper`
    Helper {
        /// The helper's type, e.g. `ftp`.
        kind: String,
        /// `tcp` or `udp`.
        protocol: String,
        /// `ip`, `ip6` or `inet`.
        l3proto: Option<String>,
    },
    /// `synproxy`
    Synproxy(SynproxyAst),
    /// `flowtable`
    Flowtable {
        /// The priority.
        priority: i32,
        /// Devices.
        devices: Vec<String>,
        /// `flags offload`, `counter`.
        flags: Vec<String>,
    },
    /// `ct timeout`
    Timeout {
        /// `tcp`, `udp`, ...
        protocol: String,
        /// `ip` or `ip6`.
        l3proto: Option<String>,
        /// State and seconds.
        policy: Vec<(String, u64)>,
    },
    /// `ct expectation`
    Expectation {
        /// `tcp`, `udp`, ...
        protocol: String,
        /// Port.
        dport: u16,
        /// Milliseconds.
        timeout_ms: u64,
        /// Most expectations.
        size: u32,
        /// `ip` or `ip6`.
        l3proto: Option<String>,
    },
    /// `secmark`
    Secmark(String),
}

impl ObjectKind {
    /// Returns the keyword that declares the kind.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Counter { .. } => "counter",
            Self::Quota(_) => "quota",
            Self::Limit(_) => "limit",
            Self::Helper { .. } => "ct helper",
            Self::Synproxy(_) => "synproxy",
            Self::Flowtable { .. } => "flowtable",
            Self::Timeout { .. } => "ct timeout",
            Self::Expectation { .. } => "ct expectation",
            Self::Secmark(_) => "secmark",
        }
    }
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct TableAst {
    /// Its family.
    pub family: Family,
    /// Its name.
    pub name: Name,
    /// Its chains are not attached.
    pub dormant: bool,
    /// Chains.
    pub chains: Vec<ChainAst>,
    /// Sets and maps.
    pub sets: Vec<SetAst>,
    /// Objects.
    pub objects: Vec<ObjectAst>,
    /// Comment.
    pub comment: Option<String>,
    /// Its handle.
    pub handle: u64,
}

/// Where a rule goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RulePosition {
    /// At the end of the chain.
    End,
    /// At its start.
    Start,
    /// After the rule with this handle.
    AfterHandle(u64),
    /// Before the rule with this handle.
    BeforeHandle(u64),
    /// After the rule at this index.
    AfterIndex(u64),
    /// Before the rule at this index.
    BeforeIndex(u64),
    /// Instead of the rule with this handle.
    Replace(u64),
}

/// Names a table.
#[derive(Clone, Debug, PartialEq)]
pub struct TableRef {
    /// Its family.
    pub family: Family,
    /// Its name.
    pub name: Name,
}

/// A command.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// What is done.
    pub kind: CommandKind,
    /// Where it stands.
    pub span: Span,
}

/// Kinds of commands.
#[derive(Clone, Debug, PartialEq)]
pub enum CommandKind {
    /// Adds a table, or to it.
    Table {
        /// The table, with what is added.
        table: Box<TableAst>,
        /// It must not exist.
        create: bool,
    },
    /// Adds a rule.
    Rule {
        /// The table.
        table: TableRef,
        /// The chain.
        chain: Name,
        /// Where.
        position: RulePosition,
        /// The rule.
        rule: Box<RuleAst>,
    },
    /// Adds elements to a set or map.
    AddElements {
        /// The table.
        table: TableRef,
        /// The set.
        set: Name,
        /// The elements.
        elements: Vec<Element>,
    },
    /// Removes elements.
    DeleteElements {
        /// The table.
        table: TableRef,
        /// The set.
        set: Name,
        /// The elements.
        elements: Vec<Element>,
        /// Absent ones are no error.
        destroy: bool,
    },
    /// Removes all, of one family or of all.
    FlushRuleset(Option<Family>),
    /// Removes the rules of all chains of a table.
    FlushTable(TableRef),
    /// Removes the rules of a chain.
    FlushChain(TableRef, Name),
    /// Removes the elements of a set, map or meter.
    FlushSet(TableRef, Name),
    /// Removes a table, chain, set, map or object.
    Delete {
        /// What: `table`, `chain`, `set`, `map`, `counter`, ...
        what: String,
        /// The table.
        table: TableRef,
        /// The name within the table, `None` for the table itself.
        name: Option<Name>,
        /// If absent, no error.
        destroy: bool,
    },
    /// Removes a rule by its handle.
    DeleteRule {
        /// The table.
        table: TableRef,
        /// The chain.
        chain: Name,
        /// The handle.
        handle: u64,
        /// If absent, no error.
        destroy: bool,
    },
    /// Renames a chain.
    RenameChain {
        /// The table.
        table: TableRef,
        /// The chain.
        chain: Name,
        /// The new name.
        to: Name,
    },
    /// `list`, `reset`, `monitor` and the like: changes no rules.
    List(String),
}
