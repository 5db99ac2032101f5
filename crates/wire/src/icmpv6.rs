//! ICMP for IPv6 (RFC 4443). Neighbour discovery has its own module, [`crate::ndp`].

use core::net::Ipv6Addr;

use crate::emit::{Addresses, BufferTooShort, length_u16};
use crate::{Layout, LayoutFlags, address, icmpv4, ip_protocol};

pub use crate::icmpv4::{CHECKSUM, CODE, HEADER_BYTES, REST, TYPE, View};

/// The longest error message, IPv6 header included: the least MTU of IPv6 (RFC 4443 2.4 c).
pub const ERROR_BYTES_MAX: usize = 1280;

/// Says whether this type is an error message, which quotes a packet and is never answered by another.
#[inline]
pub const fn is_error(kind: u8) -> bool {
    kind < 128
}

/// Says whether a router or host may answer the packet with an ICMPv6 error (RFC 4443 2.4 e).
///
/// No error answers an ICMPv6 error or redirect, a packet to a group (MAC or IP address), or one whose
/// source does not name a single node. `to_group_too` lifts the ban on groups, as the RFC does for
/// Packet Too Big and for an unknown option that asks for an answer.
pub fn may_answer(layout: &Layout, frame: &[u8], to_group_too: bool) -> bool {
    let mut forbidden = LayoutFlags::ICMP_ERROR;
    if !to_group_too {
        forbidden |= LayoutFlags::L2_GROUP | LayoutFlags::L3_GROUP;
    }
    let is_redirect = layout.protocol == ip_protocol::ICMPV6
        && layout.flags.contains(LayoutFlags::TRANSPORT)
        && frame.get(usize::from(layout.transport)) == Some(&crate::ndp::REDIRECT);
    match layout.ipv6_addresses(frame) {
        Some((source, _)) => {
            !layout.flags.intersects(forbidden)
                && !is_redirect
                && !source.is_unspecified()
                && !address::is_martian_source_ipv6(source)
        }
        None => false,
    }
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repr {
    /// Type 1: the packet could not be delivered.
    DestinationUnreachable {
        /// Why: 0 no route, 1 prohibited, 3 address, 4 port.
        code: u8,
    },
    /// Type 2: the packet exceeds the MTU of the next link.
    PacketTooBig {
        /// The MTU, bytes.
        mtu: u32,
    },
    /// Type 3: the packet was too long under way.
    TimeExceeded {
        /// Where: 0 in transit, 1 in reassembly.
        code: u8,
    },
    /// Type 4: a header field is wrong.
    ParameterProblem {
        /// 0 wrong field, 1 unknown next header, 2 unknown option.
        code: u8,
        /// Offset of the wrong byte in the quoted packet.
        pointer: u32,
    },
    /// Type 128: return what follows.
    EchoRequest {
        /// Which conversation.
        identifier: u16,
        /// Which request of it.
        sequence: u16,
    },
    /// Type 129: the answer.
    EchoReply {
        /// As in the request.
        identifier: u16,
        /// As in the request.
        sequence: u16,
    },
    /// Any other message.
    Other {
        /// The type.
        kind: u8,
        /// The code.
        code: u8,
        /// The four bytes that follow the checksum.
        rest: u32,
    },
}

impl Repr {
    /// Reads the header.
    pub const fn parse(view: &View<'_>) -> Self {
        let (code, rest) = (view.code(), view.rest());
        let (identifier, sequence) = ((rest >> 16) as u16, rest as u16);
        match view.kind() {
            1 => Self::DestinationUnreachable { code },
            2 => Self::PacketTooBig { mtu: rest },
            3 => Self::TimeExceeded { code },
            4 => Self::ParameterProblem {
                code,
                pointer: rest,
            },
            128 => Self::EchoRequest {
                identifier,
                sequence,
            },
            129 => Self::EchoReply {
                identifier,
                sequence,
            },
            kind => Self::Other { kind, code, rest },
        }
    }
    /// Returns type, code and the four bytes that follow the checksum.
    const fn fields(&self) -> (u8, u8, u32) {
        match *self {
            Self::DestinationUnreachable { code } => (1, code, 0),
            Self::PacketTooBig { mtu } => (2, 0, mtu),
            Self::TimeExceeded { code } => (3, code, 0),
            Self::ParameterProblem { code, pointer } => (4, code, pointer),
            Self::EchoRequest {
                identifier,
                sequence,
            } => (128, 0, (identifier as u32) << 16 | sequence as u32),
            Self::EchoReply {
                identifier,
                sequence,
            } => (129, 0, (identifier as u32) << 16 | sequence as u32),
            Self::Other { kind, code, rest } => (kind, code, rest),
        }
    }
    /// Writes the header before the data, which stands in `message` from [`HEADER_BYTES`] on, and the
    /// checksum over the pseudo-header and both. Returns the length of the message.
    ///
    /// # Errors
    /// [`BufferTooShort`]: no room for the header, or more than 65,535 bytes.
    pub fn emit(
        &self,
        message: &mut [u8],
        source: Ipv6Addr,
        destination: Ipv6Addr,
    ) -> Result<usize, BufferTooShort> {
        let (kind, code, rest) = self.fields();
        let length = length_u16(message)?;
        let addresses = Addresses::V6 {
            source,
            destination,
        };
        let sum = addresses.pseudo_header(ip_protocol::ICMPV6, length);
        icmpv4::emit_with(message, kind, code, rest, sum)
    }
}
