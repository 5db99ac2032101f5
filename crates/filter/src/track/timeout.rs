//! How long a connection lives without packets.

use core::time::Duration;

use super::tcp::TcpState;

/// Time in steps of 2^27 ns (134 ms): what the deadline of a connection counts, so that it is written a few
/// times a second at most, however many packets come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tick(pub u32);

const TICK_SHIFT: u32 = 27;

impl Tick {
    /// Returns the tick of a moment.
    #[inline]
    pub const fn of(now: wire::Instant) -> Self {
        Self((now.as_ns() >> TICK_SHIFT) as u32)
    }

    /// Ticks since `earlier`; 0 if that lies ahead (another worker's clock was a little faster).
    #[inline]
    pub const fn since(self, earlier: Self) -> u32 {
        let ticks = self.0.wrapping_sub(earlier.0);
        if ticks > u32::MAX / 2 { 0 } else { ticks }
    }
}

impl Tick {
    /// Returns the tick `ticks` later.
    #[inline]
    #[must_use]
    pub const fn after(self, ticks: u32) -> Self {
        Self(self.0.saturating_add(ticks))
    }
}

/// Returns a duration in ticks, rounded up, at least one.
const fn ticks(duration: Duration) -> u32 {
    let ticks = duration.as_nanos().div_ceil(1 << TICK_SHIFT);
    if ticks == 0 {
        1
    } else if ticks > u32::MAX as u128 / 4 {
        u32::MAX / 4
    } else {
        ticks as u32
    }
}

/// Returns ticks as milliseconds.
pub(crate) const fn as_ms(ticks: u32) -> u32 {
    let ms = ((ticks as u64) << TICK_SHIFT) / 1_000_000;
    if ms > u32::MAX as u64 {
        u32::MAX
    } else {
        ms as u32
    }
}

/// What a connection's timeout depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    /// Another protocol, known by addresses.
    #[default]
    Other = 0,
    /// UDP, one direction seen.
    UdpOneWay = 1,
    /// UDP, both directions seen.
    Udp = 2,
    /// An ICMP query.
    Icmp = 3,
    /// TCP that is not open yet.
    TcpOpening = 4,
    /// TCP that is open, or half closed.
    TcpOpen = 5,
    /// TCP that is closed by both sides, or reset.
    TcpClosing = 6,
    /// A DNS question that has its answer.
    Answered = 7,
}

impl Class {
    pub(crate) const fn from_bits(bits: u8) -> Self {
        match bits {
            1 => Self::UdpOneWay,
            2 => Self::Udp,
            3 => Self::Icmp,
            4 => Self::TcpOpening,
            5 => Self::TcpOpen,
            6 => Self::TcpClosing,
            7 => Self::Answered,
            _ => Self::Other,
        }
    }

    /// Returns the class of a TCP state. One FIN does not end a connection: the other side may go on sending
    /// for as long as it likes (RFC 6146 3.5.2.2).
    pub const fn of_tcp(state: TcpState) -> Self {
        match state {
            TcpState::None | TcpState::SynSent | TcpState::SynSent2 | TcpState::SynReceived => {
                Self::TcpOpening
            }
            TcpState::Established | TcpState::FinWait => Self::TcpOpen,
            TcpState::LastAck | TcpState::TimeWait | TcpState::Closed => Self::TcpClosing,
        }
    }
}

/// Timeouts of all classes. The defaults are what the RFCs ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Other protocols (default 10 min).
    pub other: Duration,
    /// UDP, one direction seen (RFC 4787 REQ-5: never under 2 min; default 2 min, of which NAT mappings make 5).
    pub udp_one_way: Duration,
    /// UDP (RFC 4787 REQ-5: default 5 min).
    pub udp: Duration,
    /// ICMP queries (RFC 5508 REQ-2: at least 60 s).
    pub icmp: Duration,
    /// TCP that is opening (RFC 5382 REQ-5: at least 4 min).
    pub tcp_opening: Duration,
    /// TCP that is open (RFC 5382 REQ-5: at least 2 h 4 min).
    pub tcp_open: Duration,
    /// TCP after both FINs, or a reset (RFC 7857 2: 4 min).
    pub tcp_closing: Duration,
    /// A DNS question that has its answer (default 1 s); used where the DNS helper is attached.
    pub answered: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            other: Duration::from_secs(600),
            udp_one_way: Duration::from_secs(120),
            udp: Duration::from_secs(300),
            icmp: Duration::from_secs(60),
            tcp_opening: Duration::from_secs(240),
            tcp_open: Duration::from_secs(7440),
            tcp_closing: Duration::from_secs(240),
            answered: Duration::from_secs(1),
        }
    }
}

/// The timeouts in ticks, by class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits([u32; 8]);

impl Limits {
    pub(crate) const fn new(timeouts: &Timeouts) -> Self {
        Self([
            ticks(timeouts.other),
            ticks(timeouts.udp_one_way),
            ticks(timeouts.udp),
            ticks(timeouts.icmp),
            ticks(timeouts.tcp_opening),
            ticks(timeouts.tcp_open),
            ticks(timeouts.tcp_closing),
            ticks(timeouts.answered),
        ])
    }

    #[inline]
    pub(crate) const fn of(&self, class: Class) -> u32 {
        self.0[class as usize & 7]
    }
}
