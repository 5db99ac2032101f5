//! What the node that gives up on a packet tells `icmp-error`: why, and one number.

use wire::DropReason;

/// Why a packet cannot go on and its sender is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// The TTL or hop limit is used up.
    TtlExceeded = 1,
    /// No route.
    NoRoute = 2,
    /// The next hop does not answer.
    HostUnreachable = 3,
    /// Too long for the next link, and not to be fragmented; the number is the MTU.
    TooBig = 4,
    /// Nothing listens on the port.
    PortUnreachable = 5,
    /// The protocol is not known here; for IPv6 the number is the offset of the next-header field.
    ProtocolUnknown = 6,
    /// The source address is not valid beyond its link (IPv6).
    BeyondScope = 7,
    /// The other fragments did not come in time.
    ReassemblyTimeout = 8,
}

impl Cause {
    /// Packs the cause and a number for [`io::Frame::mark`].
    pub const fn mark(self, number: u16) -> u32 {
        (self as u32) << 16 | number as u32
    }

    /// Reads a mark.
    pub const fn from_mark(mark: u32) -> (Self, u16) {
        let cause = match mark >> 16 {
            1 => Self::TtlExceeded,
            2 => Self::NoRoute,
            4 => Self::TooBig,
            5 => Self::PortUnreachable,
            6 => Self::ProtocolUnknown,
            7 => Self::BeyondScope,
            8 => Self::ReassemblyTimeout,
            _ => Self::HostUnreachable,
        };
        (cause, mark as u16)
    }

    /// Returns the reason under which the packet is counted.
    pub const fn drop_reason(self) -> DropReason {
        match self {
            Self::TtlExceeded => DropReason::TtlExceeded,
            Self::NoRoute => DropReason::NoRoute,
            Self::HostUnreachable => DropReason::NeighbourUnresolved,
            Self::TooBig => DropReason::FragmentationNeeded,
            Self::PortUnreachable => DropReason::PortUnreachable,
            Self::ProtocolUnknown => DropReason::ProtocolUnknown,
            Self::BeyondScope => DropReason::LinkLocalForward,
            Self::ReassemblyTimeout => DropReason::ReassemblyTimeout,
        }
    }

    /// Returns type and code of the ICMP message (RFC 792, RFC 1812 5.2.7).
    pub const fn icmp4(self) -> (u8, u8) {
        match self {
            Self::TtlExceeded => (11, 0),
            Self::ReassemblyTimeout => (11, 1),
            Self::NoRoute | Self::BeyondScope => (3, 0),
            Self::HostUnreachable => (3, 1),
            Self::ProtocolUnknown => (3, 2),
            Self::PortUnreachable => (3, 3),
            Self::TooBig => (3, 4),
        }
    }

    /// Returns type and code of the ICMPv6 message (RFC 4443 3).
    pub const fn icmp6(self) -> (u8, u8) {
        match self {
            Self::NoRoute => (1, 0),
            Self::BeyondScope => (1, 2),
            Self::HostUnreachable => (1, 3),
            Self::PortUnreachable => (1, 4),
            Self::TooBig => (2, 0),
            Self::TtlExceeded => (3, 0),
            Self::ReassemblyTimeout => (3, 1),
            Self::ProtocolUnknown => (4, 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_come_back() {
        for cause in [
            Cause::TtlExceeded,
            Cause::NoRoute,
            Cause::HostUnreachable,
            Cause::TooBig,
            Cause::PortUnreachable,
            Cause::ProtocolUnknown,
            Cause::BeyondScope,
            Cause::ReassemblyTimeout,
        ] {
            assert_eq!(Cause::from_mark(cause.mark(1400)), (cause, 1400));
        }
    }
}
