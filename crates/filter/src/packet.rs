//! What rules may look at: the frame, its layout and interfaces, marks, the time, and the view of its connection.
//!
//! This and [`crate::verdict`] are the interface between the rule engine and connection tracking: tracking fills
//! a [`Packet`], asks the rules of a hook, and does what the verdict and the [`Effects`] say.
//!
//! [`Effects`]: crate::verdict::Effects

use wire::{FlowKey, Instant, Layout, LayoutFlags};

/// A place on a packet's way where chains may be attached, as in nftables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Hook {
    /// As the frame comes in, before reassembly and connection tracking.
    Ingress,
    /// Before the decision between local delivery and forwarding.
    Prerouting,
    /// On the way to the node itself.
    Input,
    /// On the way through the node.
    Forward,
    /// From the node itself.
    Output,
    /// After routing, before the frame leaves.
    Postrouting,
    /// As the frame goes out, after everything else.
    Egress,
}

impl Hook {
    /// All hooks, in the order of a packet's way.
    pub const ALL: [Self; 7] = [
        Self::Ingress,
        Self::Prerouting,
        Self::Input,
        Self::Forward,
        Self::Output,
        Self::Postrouting,
        Self::Egress,
    ];

    /// Returns the name that nft uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Prerouting => "prerouting",
            Self::Input => "input",
            Self::Forward => "forward",
            Self::Output => "output",
            Self::Postrouting => "postrouting",
            Self::Egress => "egress",
        }
    }
}

/// The family of a table, as in nftables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Family {
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
    /// IPv4 and IPv6.
    Inet,
    /// ARP.
    Arp,
    /// Frames that cross a bridge.
    Bridge,
    /// Frames of one device.
    Netdev,
}

impl Family {
    /// All families.
    pub const ALL: [Self; 6] = [
        Self::Ip,
        Self::Ip6,
        Self::Inet,
        Self::Arp,
        Self::Bridge,
        Self::Netdev,
    ];

    /// Returns the name that nft uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
            Self::Inet => "inet",
            Self::Arp => "arp",
            Self::Bridge => "bridge",
            Self::Netdev => "netdev",
        }
    }

    /// Returns the family in whose chains a packet at a layer-3 hook is judged, `None` for neither IP nor ARP.
    pub const fn of(layout: &Layout) -> Option<Self> {
        if layout.flags.contains(LayoutFlags::IPV4) {
            Some(Self::Ip)
        } else if layout.flags.contains(LayoutFlags::IPV6) {
            Some(Self::Ip6)
        } else if layout.flags.contains(LayoutFlags::ARP) {
            Some(Self::Arp)
        } else {
            None
        }
    }
}

/// An interface as rules know it: a dense number that a ruleset was compiled with (names are interned then).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceId(pub u16);

impl InterfaceId {
    /// No interface: `oif` before routing, `iif` of what the node sends. Its name is empty, its index 0.
    pub const NONE: Self = Self(0);
}

/// To whom a frame was addressed (`meta pkttype`), with the kernel's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketType {
    /// To this node.
    #[default]
    Host = 0,
    /// To all.
    Broadcast = 1,
    /// To a group.
    Multicast = 2,
    /// To another station.
    Other = 3,
}

impl PacketType {
    /// Reads the type off the destination address of a frame that the node accepted as its own.
    pub const fn of(layout: &Layout) -> Self {
        if layout.flags.contains(LayoutFlags::L2_BROADCAST) {
            Self::Broadcast
        } else if layout.flags.contains(LayoutFlags::L2_GROUP) {
            Self::Multicast
        } else {
            Self::Host
        }
    }
}

bitflags::bitflags! {
    /// State of a packet with regard to its connection (`ct state`), with nft's numbers; one bit is set.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CtState: u8 {
        /// Belongs to no connection and cannot start one.
        const INVALID = 1;
        /// Belongs to a connection that has seen packets in both directions.
        const ESTABLISHED = 2;
        /// Starts a connection that another one expects, or is an ICMP error of one.
        const RELATED = 4;
        /// Starts a connection, or belongs to one that has seen packets in one direction only.
        const NEW = 8;
        /// Was exempted from tracking.
        const UNTRACKED = 64;
    }
}

bitflags::bitflags! {
    /// Status of a connection (`ct status`), with the kernel's numbers.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CtStatus: u32 {
        /// Another connection expected this one.
        const EXPECTED = 1;
        /// Packets were seen in the reply direction.
        const SEEN_REPLY = 2;
        /// Must not be evicted early.
        const ASSURED = 4;
        /// Its first packet has left the node.
        const CONFIRMED = 8;
        /// The source is translated.
        const SNAT = 16;
        /// The destination is translated.
        const DNAT = 32;
        /// Is being removed.
        const DYING = 512;
        /// A rule attached a helper to it.
        const HELPER = 8192;
    }
}

/// Direction of a packet within its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum CtDirection {
    /// As the first packet.
    #[default]
    Original = 0,
    /// The other one.
    Reply = 1,
}

impl CtDirection {
    /// Returns the other direction.
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Self::Original => Self::Reply,
            Self::Reply => Self::Original,
        }
    }
}

/// A connection-tracking helper (an ALG) by number; which protocol it is, the tracker's table says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HelperId(pub u16);

impl HelperId {
    /// No helper.
    pub const NONE: Self = Self(0);
}

/// What rules see of a packet's connection. Rules may change `mark`, `zone`, `label` and `helper`; the
/// [`Effects`](crate::verdict::Effects) say which of them were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CtView {
    /// State of the packet. [`CtState::UNTRACKED`] after `notrack`; [`CtState::INVALID`] without connection.
    pub state: CtState,
    /// There is a connection: what follows is meaningful.
    pub tracked: bool,
    /// Direction of the packet.
    pub direction: CtDirection,
    /// Status of the connection.
    pub status: CtStatus,
    /// Tuple of the original direction, before translation.
    pub original: FlowKey,
    /// Tuple of the reply direction, as it is expected to come back.
    pub reply: FlowKey,
    /// The connection's mark.
    pub mark: u32,
    /// Zone of the tuple space.
    pub zone: u16,
    /// Its helper.
    pub helper: HelperId,
    /// Its labels.
    pub label: u128,
    /// Identifier of the connection.
    pub id: u32,
    /// Time until it expires, milliseconds.
    pub expires_ms: u32,
    /// Packets in the original and the reply direction, if counted.
    pub packets: [u64; 2],
    /// Bytes in the original and the reply direction, if counted.
    pub bytes: [u64; 2],
}

/// What a route lookup says of an address (`fib ... type`), with the kernel's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AddressType {
    /// No route.
    #[default]
    Unspecified = 0,
    /// Reached through a gateway or directly.
    Unicast = 1,
    /// An address of the node.
    Local = 2,
    /// A broadcast address of an attached network.
    Broadcast = 3,
    /// An anycast address.
    Anycast = 4,
    /// A group.
    Multicast = 5,
    /// Discarded silently.
    Blackhole = 6,
    /// Refused as unreachable.
    Unreachable = 7,
    /// Refused as prohibited.
    Prohibit = 8,
}

/// The question of a `fib` expression. Addresses as in [`FlowKey`] (IPv4 mapped).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FibQuery {
    /// The address that is looked up as a destination.
    pub address: [u8; 16],
    /// The packet's mark, if the lookup is to respect it.
    pub mark: Option<u32>,
    /// The only interface that counts (`. iif` or `. oif`).
    pub interface: Option<InterfaceId>,
}

/// The answer of a route lookup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FibAnswer {
    /// Kind of the route.
    pub kind: AddressType,
    /// Interface the route leaves by; [`InterfaceId::NONE`] without a route.
    pub interface: InterfaceId,
    /// Maximum transmission unit of the route, bytes; 0 if unknown (`rt mtu`).
    pub mtu: u16,
    /// Next hop, IPv4 mapped; the address itself if attached (`rt nexthop`).
    pub next_hop: [u8; 16],
}

/// Route lookups for `fib` and `rt` expressions: the node's FIB, or a table of a test or an offline trace.
pub trait Fib {
    /// Answers one lookup. Is called on the data path: no allocation, no lock.
    fn lookup(&self, query: &FibQuery) -> FibAnswer;
}

/// A FIB without routes.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRoutes;

impl Fib for NoRoutes {
    fn lookup(&self, _query: &FibQuery) -> FibAnswer {
        FibAnswer::default()
    }
}

/// One packet at one hook: all that rules may read, and what they may change in place (the frame by payload
/// statements, marks, priority, and the connection's mark and label).
pub struct Packet<'a> {
    /// The frame, from the Ethernet header on.
    pub frame: &'a mut [u8],
    /// Where its headers are. Rules that write the payload keep lengths and checksums right.
    pub layout: Layout,
    /// The hook at which it is judged.
    pub hook: Hook,
    /// Interface it came by, [`InterfaceId::NONE`] if the node sends it.
    pub iif: InterfaceId,
    /// Interface it leaves by, [`InterfaceId::NONE`] before routing and at input.
    pub oif: InterfaceId,
    /// To whom the frame was addressed.
    pub packet_type: PacketType,
    /// The packet's mark.
    pub mark: u32,
    /// The packet's queueing priority.
    pub priority: u32,
    /// Number of the worker (`meta cpu`).
    pub worker: u16,
    /// A random word, new for each packet (`numgen random`).
    pub random: u32,
    /// Monotonic time.
    pub now: Instant,
    /// Wall clock, nanoseconds since 1970 UTC (`meta time`, `day`, `hour`).
    pub unix_ns: u64,
    /// The connection.
    pub ct: CtView,
    /// The node's routes.
    pub fib: &'a dyn Fib,
}

impl Packet<'_> {
    /// Makes a packet of a frame at a hook, with everything else unknown, zero or none.
    pub fn new<'a>(frame: &'a mut [u8], layout: Layout, hook: Hook) -> Packet<'a> {
        Packet {
            packet_type: PacketType::of(&layout),
            frame,
            layout,
            hook,
            iif: InterfaceId::NONE,
            oif: InterfaceId::NONE,
            mark: 0,
            priority: 0,
            worker: 0,
            random: 0,
            now: Instant::ZERO,
            unix_ns: 0,
            ct: CtView {
                state: CtState::INVALID,
                ..CtView::default()
            },
            fib: &NoRoutes,
        }
    }
}

impl core::fmt::Debug for Packet<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Packet")
            .field("hook", &self.hook)
            .field("layout", &self.layout)
            .field("iif", &self.iif)
            .field("oif", &self.oif)
            .field("mark", &self.mark)
            .field("ct", &self.ct)
            .finish_non_exhaustive()
    }
}
