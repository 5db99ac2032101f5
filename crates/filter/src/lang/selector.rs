//! Selectors: the properties of a packet that rules can name, in one registry.

use alloc::boxed::Box;
use alloc::string::String;

use super::ast::Expr;
use super::datatype::DataType;
use crate::packet::{CtDirection, Family};
use crate::rules::field::{Base, CtKey, ExtHeader, MetaKey};

/// One field of a protocol's header.
#[derive(Debug, PartialEq, Eq)]
pub struct FieldSpec {
    /// nft's name.
    pub name: &'static str,
    /// Offset from the start of the header, bits.
    pub offset: u16,
    /// Width, bits.
    pub bits: u16,
    /// Type.
    pub data_type: DataType,
}

/// A protocol whose header rules can look into.
#[derive(Debug, PartialEq, Eq)]
pub struct ProtocolSpec {
    /// nft's name.
    pub name: &'static str,
    /// From where offsets count.
    pub base: Base,
    /// IP protocol number, for transport protocols.
    pub protocol: Option<u8>,
    /// EtherType, for network protocols.
    pub ether_type: Option<u16>,
    /// Fields.
    pub fields: &'static [FieldSpec],
}

const fn field(name: &'static str, offset: u16, bits: u16, data_type: DataType) -> FieldSpec {
    FieldSpec {
        name,
        offset,
        bits,
        data_type,
    }
}
const fn int(name: &'static str, offset: u16, bits: u16) -> FieldSpec {
    field(name, offset, bits, DataType::Integer(bits))
}
const fn port(name: &'static str, offset: u16) -> FieldSpec {
    field(name, offset, 16, DataType::InetService)
}
const fn network(
    name: &'static str,
    ether_type: u16,
    fields: &'static [FieldSpec],
) -> ProtocolSpec {
    ProtocolSpec {
        name,
        base: Base::Network,
        protocol: None,
        ether_type: Some(ether_type),
        fields,
    }
}
const fn transport(name: &'static str, protocol: u8, fields: &'static [FieldSpec]) -> ProtocolSpec {
    ProtocolSpec {
        name,
        base: Base::Transport,
        protocol: Some(protocol),
        ether_type: None,
        fields,
    }
}

/// All protocols.
pub const PROTOCOLS: &[ProtocolSpec] = &[
    ProtocolSpec {
        name: "ether",
        base: Base::Link,
        protocol: None,
        ether_type: None,
        fields: &[
            field("daddr", 0, 48, DataType::EtherAddr),
            field("saddr", 48, 48, DataType::EtherAddr),
            field("type", 96, 16, DataType::EtherType),
        ],
    },
    ProtocolSpec {
        name: "vlan",
        base: Base::Vlan,
        protocol: None,
        ether_type: None,
        fields: &[
            int("pcp", 0, 3),
            int("cfi", 3, 1),
            int("dei", 3, 1),
            int("id", 4, 12),
            field("type", 16, 16, DataType::EtherType),
        ],
    },
    network(
        "arp",
        0x0806,
        &[
            int("htype", 0, 16),
            field("ptype", 16, 16, DataType::EtherType),
            int("hlen", 32, 8),
            int("plen", 40, 8),
            field("operation", 48, 16, DataType::ArpOp),
            field("saddr ether", 64, 48, DataType::EtherAddr),
            field("saddr ip", 112, 32, DataType::Ipv4Addr),
            field("daddr ether", 144, 48, DataType::EtherAddr),
            field("daddr ip", 192, 32, DataType::Ipv4Addr),
        ],
    ),
    network(
        "ip",
        0x0800,
        &[
            int("version", 0, 4),
            int("hdrlength", 4, 4),
            field("dscp", 8, 6, DataType::Dscp),
            field("ecn", 14, 2, DataType::Ecn),
            int("length", 16, 16),
            int("id", 32, 16),
            int("frag-off", 48, 16),
            int("ttl", 64, 8),
            field("protocol", 72, 8, DataType::InetProto),
            int("checksum", 80, 16),
            field("saddr", 96, 32, DataType::Ipv4Addr),
            field("daddr", 128, 32, DataType::Ipv4Addr),
        ],
    ),
    network(
        "ip6",
        0x86dd,
        &[
            int("version", 0, 4),
            field("dscp", 4, 6, DataType::Dscp),
            field("ecn", 10, 2, DataType::Ecn),
            int("flowlabel", 12, 20),
            int("length", 32, 16),
            field("nexthdr", 48, 8, DataType::InetProto),
            int("hoplimit", 56, 8),
            field("saddr", 64, 128, DataType::Ipv6Addr),
            field("daddr", 192, 128, DataType::Ipv6Addr),
        ],
    ),
    transport(
        "icmp",
        1,
        &[
            field("type", 0, 8, DataType::IcmpType),
            field("code", 8, 8, DataType::IcmpCode),
            int("checksum", 16, 16),
            int("id", 32, 16),
            int("sequence", 48, 16),
            int("gateway", 32, 32),
            int("mtu", 48, 16),
        ],
    ),
    transport(
        "icmpv6",
        58,
        &[
            field("type", 0, 8, DataType::Icmpv6Type),
            field("code", 8, 8, DataType::Icmpv6Code),
            int("checksum", 16, 16),
            int("parameter-problem", 32, 32),
            int("packet-too-big", 32, 32),
            int("mtu", 32, 32),
            int("id", 32, 16),
            int("sequence", 48, 16),
            int("max-delay", 32, 16),
        ],
    ),
    transport(
        "igmp",
        2,
        &[
            field("type", 0, 8, DataType::IgmpType),
            int("mrt", 8, 8),
            int("checksum", 16, 16),
            field("group", 32, 32, DataType::Ipv4Addr),
        ],
    ),
    transport(
        "udp",
        17,
        &[
            port("sport", 0),
            port("dport", 16),
            int("length", 32, 16),
            int("checksum", 48, 16),
        ],
    ),
    transport(
        "udplite",
        136,
        &[
            port("sport", 0),
            port("dport", 16),
            int("csumcov", 32, 16),
            int("checksum", 48, 16),
        ],
    ),
    transport(
        "tcp",
        6,
        &[
            port("sport", 0),
            port("dport", 16),
            int("sequence", 32, 32),
            int("ackseq", 64, 32),
            int("doff", 96, 4),
            int("reserved", 100, 4),
            field("flags", 104, 8, DataType::TcpFlag),
            int("window", 112, 16),
            int("checksum", 128, 16),
            int("urgptr", 144, 16),
        ],
    ),
    transport(
        "sctp",
        132,
        &[
            port("sport", 0),
            port("dport", 16),
            int("vtag", 32, 32),
            int("checksum", 64, 32),
        ],
    ),
    transport(
        "dccp",
        33,
        &[
            port("sport", 0),
            port("dport", 16),
            field("type", 67, 4, DataType::DccpType),
        ],
    ),
    transport("esp", 50, &[int("spi", 0, 32), int("sequence", 32, 32)]),
    transport(
        "ah",
        51,
        &[
            int("nexthdr", 0, 8),
            int("hdrlength", 8, 8),
            int("reserved", 16, 16),
            int("spi", 32, 32),
            int("sequence", 64, 32),
        ],
    ),
    transport(
        "comp",
        108,
        &[
            field("nexthdr", 0, 8, DataType::InetProto),
            int("flags", 8, 8),
            int("cpi", 16, 16),
        ],
    ),
    transport(
        "gre",
        47,
        &[
            int("flags", 0, 5),
            int("version", 13, 3),
            field("protocol", 16, 16, DataType::EtherType),
        ],
    ),
    ProtocolSpec {
        name: "th",
        base: Base::Transport,
        protocol: None,
        ether_type: None,
        fields: &[port("sport", 0), port("dport", 16)],
    },
];

/// Finds a protocol.
pub fn protocol(name: &str) -> Option<&'static ProtocolSpec> {
    PROTOCOLS.iter().find(|protocol| protocol.name == name)
}

/// Meta keys by name, their type, and whether the word `meta` may be left out.
pub const META: &[(&str, MetaKey, DataType, bool)] = &[
    ("length", MetaKey::Length, DataType::Integer(32), false),
    ("protocol", MetaKey::Protocol, DataType::EtherType, false),
    ("nfproto", MetaKey::NfProto, DataType::NfProto, false),
    ("l4proto", MetaKey::L4Proto, DataType::InetProto, false),
    ("priority", MetaKey::Priority, DataType::ClassId, false),
    ("random", MetaKey::Random, DataType::Integer(32), false),
    ("mark", MetaKey::Mark, DataType::Mark, true),
    ("iif", MetaKey::Iif, DataType::IfIndex, true),
    ("oif", MetaKey::Oif, DataType::IfIndex, true),
    ("iifname", MetaKey::IifName, DataType::IfName, true),
    ("oifname", MetaKey::OifName, DataType::IfName, true),
    ("iiftype", MetaKey::IifType, DataType::IfType, true),
    ("oiftype", MetaKey::OifType, DataType::IfType, true),
    ("iifgroup", MetaKey::IifGroup, DataType::DevGroup, true),
    ("oifgroup", MetaKey::OifGroup, DataType::DevGroup, true),
    ("ibrname", MetaKey::IbrName, DataType::IfName, true),
    ("obrname", MetaKey::ObrName, DataType::IfName, true),
    ("ibriport", MetaKey::IbrName, DataType::IfName, true),
    ("obriport", MetaKey::ObrName, DataType::IfName, true),
    ("sdifname", MetaKey::IifName, DataType::IfName, false),
    ("skuid", MetaKey::SkUid, DataType::Uid, true),
    ("skgid", MetaKey::SkGid, DataType::Gid, true),
    ("cgroup", MetaKey::Cgroup, DataType::Integer(32), true),
    ("rtclassid", MetaKey::RtClassId, DataType::Realm, true),
    ("pkttype", MetaKey::PktType, DataType::PktType, true),
    ("cpu", MetaKey::Cpu, DataType::Integer(32), true),
    ("nftrace", MetaKey::NfTrace, DataType::Integer(1), true),
    ("ipsec", MetaKey::IpSec, DataType::Boolean, true),
    ("secpath", MetaKey::IpSec, DataType::Boolean, true),
    ("time", MetaKey::Time, DataType::Time, true),
    ("day", MetaKey::Day, DataType::Day, true),
    ("hour", MetaKey::Hour, DataType::Hour, true),
];

/// Connection-tracking keys by name, and their type.
pub const CT: &[(&str, CtKey, DataType)] = &[
    ("state", CtKey::State, DataType::CtState),
    ("direction", CtKey::Direction, DataType::CtDir),
    ("status", CtKey::Status, DataType::CtStatus),
    ("mark", CtKey::Mark, DataType::Mark),
    ("expiration", CtKey::Expiration, DataType::Duration),
    ("helper", CtKey::Helper, DataType::Helper),
    ("label", CtKey::Label, DataType::CtLabel),
    ("l3proto", CtKey::L3Proto, DataType::NfProto),
    ("protocol", CtKey::Protocol, DataType::InetProto),
    ("saddr", CtKey::Source, DataType::Integer(128)),
    ("daddr", CtKey::Destination, DataType::Integer(128)),
    ("proto-src", CtKey::SourcePort, DataType::InetService),
    ("proto-dst", CtKey::DestinationPort, DataType::InetService),
    ("packets", CtKey::Packets, DataType::Integer(64)),
    ("bytes", CtKey::Bytes, DataType::Integer(64)),
    ("avgpkt", CtKey::AvgPkt, DataType::Integer(64)),
    ("zone", CtKey::Zone, DataType::Integer(16)),
    ("id", CtKey::Id, DataType::Integer(32)),
    ("event", CtKey::Event, DataType::CtEvent),
];

/// IPv6 extension headers by name, with their fields.
pub const EXTHDR: &[(&str, ExtHeader, &[FieldSpec])] = &[
    (
        "hbh",
        ExtHeader::HopByHop,
        &[
            field("nexthdr", 0, 8, DataType::InetProto),
            int("hdrlength", 8, 8),
        ],
    ),
    (
        "rt",
        ExtHeader::Routing,
        &[
            field("nexthdr", 0, 8, DataType::InetProto),
            int("hdrlength", 8, 8),
            int("type", 16, 8),
            int("seg-left", 24, 8),
        ],
    ),
    (
        "frag",
        ExtHeader::Fragment,
        &[
            field("nexthdr", 0, 8, DataType::InetProto),
            int("reserved", 8, 8),
            int("frag-off", 16, 13),
            int("reserved2", 29, 2),
            int("more-fragments", 31, 1),
            int("id", 32, 32),
        ],
    ),
    (
        "dst",
        ExtHeader::Destination,
        &[
            field("nexthdr", 0, 8, DataType::InetProto),
            int("hdrlength", 8, 8),
        ],
    ),
    (
        "mh",
        ExtHeader::Mobility,
        &[
            field("nexthdr", 0, 8, DataType::InetProto),
            int("hdrlength", 8, 8),
            field("type", 16, 8, DataType::MhType),
            int("reserved", 24, 8),
            int("checksum", 32, 16),
        ],
    ),
    (
        "srh",
        ExtHeader::Routing,
        &[
            int("last-entry", 32, 8),
            int("flags", 40, 8),
            int("tag", 48, 16),
        ],
    ),
];

/// TCP options by name: kind, and fields within the option.
pub const TCP_OPTIONS: &[(&str, u8, &[FieldSpec])] = &[
    ("eol", 0, &[int("kind", 0, 8)]),
    ("nop", 1, &[int("kind", 0, 8)]),
    (
        "maxseg",
        2,
        &[int("size", 16, 16), int("kind", 0, 8), int("length", 8, 8)],
    ),
    (
        "mss",
        2,
        &[int("size", 16, 16), int("kind", 0, 8), int("length", 8, 8)],
    ),
    (
        "window",
        3,
        &[int("count", 16, 8), int("kind", 0, 8), int("length", 8, 8)],
    ),
    ("sack-perm", 4, &[int("kind", 0, 8), int("length", 8, 8)]),
    (
        "sack-permitted",
        4,
        &[int("kind", 0, 8), int("length", 8, 8)],
    ),
    (
        "sack",
        5,
        &[
            int("left", 16, 32),
            int("right", 48, 32),
            int("kind", 0, 8),
            int("length", 8, 8),
        ],
    ),
    (
        "timestamp",
        8,
        &[
            int("tsval", 16, 32),
            int("tsecr", 48, 32),
            int("kind", 0, 8),
            int("length", 8, 8),
        ],
    ),
    ("fastopen", 34, &[int("kind", 0, 8), int("length", 8, 8)]),
    ("md5sig", 19, &[int("kind", 0, 8), int("length", 8, 8)]),
    (
        "mptcp",
        30,
        &[
            int("kind", 0, 8),
            int("length", 8, 8),
            int("subtype", 16, 4),
        ],
    ),
];

/// What a `fib` expression gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FibResultAst {
    /// `oif`
    Oif,
    /// `oifname`
    OifName,
    /// `type`
    Type,
}

/// A property of the packet, as a rule names it.
#[derive(Clone, Debug, PartialEq)]
pub enum Selector {
    /// A header's field.
    Payload(&'static ProtocolSpec, &'static FieldSpec),
    /// `@nh,offset,bits`.
    Raw(Base, u16, u16),
    /// A meta key: index into [`META`].
    Meta(usize),
    /// A connection key: index into [`CT`].
    Ct {
        /// Which.
        key: usize,
        /// `original` or `reply`.
        direction: Option<CtDirection>,
        /// `ip` or `ip6`, before addresses.
        family: Option<Family>,
    },
    /// An IPv6 extension header: index into [`EXTHDR`]; without field, whether it is there.
    ExtHdr(usize, Option<&'static FieldSpec>),
    /// A TCP option: index into [`TCP_OPTIONS`]; without field, whether it is there.
    TcpOption(usize, Option<&'static FieldSpec>),
    /// A TCP option by kind: whether it is there.
    TcpOptionKind(u8),
    /// `fib`.
    Fib {
        /// Looks up the source, not the destination.
        source: bool,
        /// `. mark`
        mark: bool,
        /// `. iif`
        iif: bool,
        /// `. oif`
        oif: bool,
        /// What it gives.
        result: FibResultAst,
        /// `exists`/`missing` is asked (`fib ... oif missing` works without the word `check` too).
        check: bool,
    },
    /// `rt mtu`, `rt nexthop`, `rt classid`.
    Rt {
        /// Which.
        key: String,
        /// `ip` or `ip6`.
        family: Option<Family>,
    },
    /// `socket ...`
    Socket(String),
    /// `jhash expr mod n [seed s] [offset o]`, `symhash mod n`.
    Hash {
        /// What is hashed; `None` is the symmetric hash of the flow.
        of: Option<Box<Expr>>,
        /// Values.
        modulus: u32,
        /// Seed.
        seed: u32,
        /// Added.
        offset: u32,
    },
    /// `numgen inc|random mod n [offset o]`.
    Numgen {
        /// Counts up instead of drawing.
        inc: bool,
        /// Values.
        modulus: u32,
        /// Added.
        offset: u32,
    },
    /// A selector that is recognised, to be refused by name: the node has no such thing.
    Unsupported(String),
}

impl Selector {
    /// Returns the type of the value.
    pub fn data_type(&self) -> DataType {
        match self {
            Self::Payload(_, field) => field.data_type,
            Self::Raw(_, _, bits) => DataType::Integer(*bits),
            Self::Meta(key) => META.get(*key).map_or(DataType::Integer(32), |meta| meta.2),
            Self::Ct { key, family, .. } => match (CT.get(*key).map(|ct| ct.1), family) {
                (Some(CtKey::Source | CtKey::Destination), Some(Family::Ip6)) => DataType::Ipv6Addr,
                (Some(CtKey::Source | CtKey::Destination), Some(_)) => DataType::Ipv4Addr,
                _ => CT.get(*key).map_or(DataType::Integer(32), |ct| ct.2),
            },
            Self::ExtHdr(_, field) | Self::TcpOption(_, field) => {
                field.map_or(DataType::Boolean, |field| field.data_type)
            }
            Self::TcpOptionKind(_) => DataType::Boolean,
            Self::Fib { check: true, .. } => DataType::Boolean,
            Self::Fib { result, .. } => match result {
                FibResultAst::Oif => DataType::IfIndex,
                FibResultAst::OifName => DataType::IfName,
                FibResultAst::Type => DataType::FibAddrType,
            },
            Self::Rt { key, family } => match (key.as_str(), family) {
                ("nexthop", Some(Family::Ip6)) => DataType::Ipv6Addr,
                ("nexthop", _) => DataType::Ipv4Addr,
                ("classid", _) => DataType::Realm,
                _ => DataType::Integer(16),
            },
            Self::Socket(_) | Self::Unsupported(_) | Self::Hash { .. } | Self::Numgen { .. } => {
                DataType::Integer(32)
            }
        }
    }
}
