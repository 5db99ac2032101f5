//! ICMP for IPv4 (RFC 792), and which packets an ICMP error may answer (RFC 1122 3.2.2, RFC 1812 4.3.2.7).

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::bytes::{be16, be32, chunk};
use crate::checksum::Sum;
use crate::emit::{Addresses, BufferTooShort, length_u16};
use crate::{DropReason, Layout, LayoutFlags, address, checksum, ip_protocol, ipv4};

/// Offset of the type.
pub const TYPE: usize = 0;
/// Offset of the code.
pub const CODE: usize = 1;
/// Offset of the checksum.
pub const CHECKSUM: usize = 2;
/// Offset of the four bytes whose meaning depends on the type.
pub const REST: usize = 4;
/// Length of the header.
pub const HEADER_BYTES: usize = 8;
/// The longest error message, IPv4 header included (RFC 1812 4.3.2.3).
pub const ERROR_BYTES_MAX: usize = 576;

/// Says whether this type is an error message, which quotes a packet and is never answered by another.
#[inline]
pub const fn is_error(kind: u8) -> bool {
    matches!(kind, 3 | 4 | 5 | 11 | 12)
}

/// Says whether a router or host may answer the packet with an ICMP error.
///
/// No error answers an ICMP error, a later fragment, a packet to a group (MAC or IP address), or one
/// whose source does not name a single host.
pub fn may_answer(layout: &Layout, frame: &[u8]) -> bool {
    let forbidden = LayoutFlags::ICMP_ERROR
        | LayoutFlags::LATER_FRAGMENT
        | LayoutFlags::L2_GROUP
        | LayoutFlags::L3_GROUP;
    match layout.ipv4_addresses(frame) {
        Some((source, _)) => {
            !layout.flags.intersects(forbidden)
                && !source.is_unspecified()
                && !address::is_martian_source_ipv4(source)
        }
        None => false,
    }
}

/// A message of ICMP or of ICMPv6 whose header is whole; the checksum is not checked.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; HEADER_BYTES],
    message: &'a [u8],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Checks that the header is whole; `message` ends with the packet.
    ///
    /// # Errors
    /// [`DropReason::TransportTruncated`].
    pub const fn new(message: &'a [u8]) -> Result<Self, DropReason> {
        match message.split_first_chunk() {
            Some((header, payload)) => Ok(Self {
                header,
                message,
                payload,
            }),
            None => Err(DropReason::TransportTruncated),
        }
    }
    /// Returns the type.
    pub const fn kind(&self) -> u8 {
        self.header[TYPE]
    }
    /// Returns the code.
    pub const fn code(&self) -> u8 {
        self.header[CODE]
    }
    /// Returns the four bytes whose meaning depends on the type, as one number.
    pub const fn rest(&self) -> u32 {
        be32!(self.header, REST)
    }
    /// Returns what follows the first eight bytes: of an echo what is to be returned, of an error the quoted
    /// packet.
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
    /// Says whether the checksum of an ICMP message is right.
    pub fn checksum_is_valid(&self) -> bool {
        Sum::of(self.message).is_valid()
    }
    /// Says whether the checksum of an ICMPv6 message between these addresses is right: it covers them, too
    /// (RFC 4443 2.3).
    pub fn checksum_is_valid_between(&self, source: Ipv6Addr, destination: Ipv6Addr) -> bool {
        let Ok(length) = length_u16(self.message) else {
            return false;
        };
        let addresses = Addresses::V6 {
            source,
            destination,
        };
        addresses
            .pseudo_header(ip_protocol::ICMPV6, length)
            .add_bytes(self.message)
            .is_valid()
    }
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repr {
    /// Type 8: return what follows.
    EchoRequest {
        /// Which conversation.
        identifier: u16,
        /// Which request of it.
        sequence: u16,
    },
    /// Type 0: the answer.
    EchoReply {
        /// As in the request.
        identifier: u16,
        /// As in the request.
        sequence: u16,
    },
    /// Type 3: the packet could not be delivered.
    DestinationUnreachable {
        /// Why: 0 network, 1 host, 2 protocol, 3 port, 4 fragmentation needed, 13 prohibited.
        code: u8,
        /// With code 4, the MTU of the next hop, bytes (RFC 1191 4); otherwise 0.
        mtu: u16,
    },
    /// Type 5: there is a better first hop.
    Redirect {
        /// For what: 0 network, 1 host.
        code: u8,
        /// The better first hop.
        gateway: Ipv4Addr,
    },
    /// Type 11: the packet was too long under way.
    TimeExceeded {
        /// Where: 0 in transit, 1 in reassembly.
        code: u8,
    },
    /// Type 12: a header field is wrong.
    ParameterProblem {
        /// 0 if the pointer counts.
        code: u8,
        /// Offset of the wrong byte in the quoted packet.
        pointer: u8,
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
        let (high, low) = ((rest >> 16) as u16, rest as u16);
        match view.kind() {
            0 => Self::EchoReply {
                identifier: high,
                sequence: low,
            },
            3 => Self::DestinationUnreachable { code, mtu: low },
            5 => Self::Redirect {
                code,
                gateway: Ipv4Addr::from_bits(rest),
            },
            8 => Self::EchoRequest {
                identifier: high,
                sequence: low,
            },
            11 => Self::TimeExceeded { code },
            12 => Self::ParameterProblem {
                code,
                pointer: view.header[REST],
            },
            kind => Self::Other { kind, code, rest },
        }
    }
    /// Returns type, code and the four bytes that follow the checksum.
    const fn fields(&self) -> (u8, u8, u32) {
        match *self {
            Self::EchoReply {
                identifier,
                sequence,
            } => (0, 0, (identifier as u32) << 16 | sequence as u32),
            Self::DestinationUnreachable { code, mtu } => (3, code, mtu as u32),
            Self::Redirect { code, gateway } => (5, code, gateway.to_bits()),
            Self::EchoRequest {
                identifier,
                sequence,
            } => (8, 0, (identifier as u32) << 16 | sequence as u32),
            Self::TimeExceeded { code } => (11, code, 0),
            Self::ParameterProblem { code, pointer } => (12, code, (pointer as u32) << 24),
            Self::Other { kind, code, rest } => (kind, code, rest),
        }
    }
    /// Writes the header before the data, which stands in `message` from [`HEADER_BYTES`] on, and the
    /// checksum over both. Returns the length of the message.
    ///
    /// # Errors
    /// [`BufferTooShort`]: no room for the header.
    pub fn emit(&self, message: &mut [u8]) -> Result<usize, BufferTooShort> {
        let (kind, code, rest) = self.fields();
        emit_with(message, kind, code, rest, Sum::ZERO)
    }
}

/// Writes header and checksum, which starts from `sum` (ICMPv6 has a pseudo-header).
pub(crate) fn emit_with(
    message: &mut [u8],
    kind: u8,
    code: u8,
    rest: u32,
    sum: Sum,
) -> Result<usize, BufferTooShort> {
    let [a, b, c, d] = rest.to_be_bytes();
    *message.first_chunk_mut().ok_or(BufferTooShort)? = [kind, code, 0, 0, a, b, c, d];
    let checksum = sum.add_bytes(message).checksum().to_be_bytes();
    if let Some(header) = message.first_chunk_mut::<HEADER_BYTES>() {
        header[2..4].copy_from_slice(&checksum);
    }
    Ok(message.len())
}

/// Turns an echo request into its reply, in place: type, addresses, TTL 64, checksums (RFC 1122 3.2.2.6).
///
/// The reply may be fragmented on its way, whatever the request allowed. Returns false, and changes
/// nothing, if the packet is no whole echo request. The MAC addresses are the caller's to set.
pub fn echo_reply_in_place(layout: &Layout, frame: &mut [u8]) -> bool {
    let is_echo = layout
        .flags
        .contains(LayoutFlags::IPV4 | LayoutFlags::TRANSPORT)
        && !layout.flags.contains(LayoutFlags::FRAGMENT)
        && layout.protocol == ip_protocol::ICMP
        && chunk::<2>(frame, layout.transport.into()) == Some(&[8, 0]);
    if !is_echo {
        return false;
    }
    let (network, transport) = (usize::from(layout.network), usize::from(layout.transport));
    let Some((before, message)) = frame.split_at_mut_checked(transport) else {
        return false;
    };
    let header = before.get_mut(network..);
    let split = header.and_then(<[u8]>::split_first_chunk_mut::<{ ipv4::HEADER_BYTES }>);
    let (Some((fixed, options)), Some(message)) =
        (split, message.first_chunk_mut::<HEADER_BYTES>())
    else {
        return false;
    };
    message[TYPE] = 0;
    let sum = checksum::update_u16(be16!(message, CHECKSUM), 0x0800, 0).to_be_bytes();
    message[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum);
    let (source, destination) = fixed[ipv4::SOURCE..].split_at_mut(4);
    source.swap_with_slice(destination);
    fixed[ipv4::TTL] = 64;
    fixed[ipv4::FLAGS_FRAGMENT..ipv4::FLAGS_FRAGMENT + 2].copy_from_slice(&[0, 0]);
    fixed[ipv4::CHECKSUM..ipv4::CHECKSUM + 2].copy_from_slice(&[0, 0]);
    let sum = Sum::of(fixed).add_bytes(options).checksum().to_be_bytes();
    fixed[ipv4::CHECKSUM..ipv4::CHECKSUM + 2].copy_from_slice(&sum);
    true
}
