//! Fields: the scalar properties of a packet, how they are read, and how some are written.
//!
//! A field that a packet has not (a port of a fragment, an option that is not there) reads as `None`: the rule
//! that asks does not match, as in the kernel.

use wire::{FlowKey, LayoutFlags, ip_protocol};

use super::interface::Interfaces;
use super::options;
use crate::packet::{AddressType, CtDirection, CtState, Family, FibQuery, InterfaceId, Packet};
use crate::verdict::{Changes, Effects};

/// From where the offset of a payload field counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Base {
    /// The Ethernet header.
    Link,
    /// The outer VLAN tag and the EtherType after it.
    Vlan,
    /// The network header.
    Network,
    /// The transport header.
    Transport,
    /// What follows the transport header.
    Inner,
}

/// Keys of `meta`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are nft's own")]
pub enum MetaKey {
    Length,
    Protocol,
    NfProto,
    L4Proto,
    Priority,
    Random,
    Mark,
    Iif,
    Oif,
    IifName,
    OifName,
    IifType,
    OifType,
    IifGroup,
    OifGroup,
    IbrName,
    ObrName,
    SkUid,
    SkGid,
    Cgroup,
    RtClassId,
    PktType,
    Cpu,
    NfTrace,
    IpSec,
    Time,
    Day,
    Hour,
}

/// Keys of `ct`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are nft's own")]
pub enum CtKey {
    State,
    Direction,
    Status,
    Mark,
    Expiration,
    Helper,
    Label,
    L3Proto,
    Protocol,
    Source,
    Destination,
    SourcePort,
    DestinationPort,
    Packets,
    Bytes,
    AvgPkt,
    Zone,
    Id,
    Event,
}

/// IPv6 extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ExtHeader {
    HopByHop,
    Routing,
    Fragment,
    Destination,
    Mobility,
}

/// What a `fib` field gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FibResult {
    /// The interface of the route.
    Interface,
    /// Whether there is a route.
    Exists,
    /// The kind of the address.
    Type,
}

/// What an `rt` field gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RtKey {
    /// The largest TCP segment that the route takes.
    Mss,
    /// The next hop.
    NextHop,
}

/// A scalar property of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    /// Bits of a header.
    Payload {
        /// From where the offset counts.
        base: Base,
        /// Offset, bits.
        offset: u16,
        /// Width, bits: 1 to 128.
        bits: u16,
    },
    /// A meta key.
    Meta(MetaKey),
    /// A key of the connection.
    Ct {
        /// Which.
        key: CtKey,
        /// Of which direction; `None` for the connection or the packet's direction.
        direction: Option<CtDirection>,
    },
    /// Bits of an IPv6 extension header.
    ExtHdr {
        /// Which.
        header: ExtHeader,
        /// Offset, bits.
        offset: u16,
        /// Width, bits.
        bits: u16,
    },
    /// Whether an extension header is there: 1 or 0.
    ExtHdrExists(ExtHeader),
    /// Bits of a TCP option.
    TcpOption {
        /// Kind of the option.
        kind: u8,
        /// Offset from its start, bits.
        offset: u16,
        /// Width, bits.
        bits: u16,
    },
    /// Whether a TCP option is there: 1 or 0.
    TcpOptionExists(u8),
    /// A route lookup.
    Fib {
        /// Looks up the source, not the destination.
        source: bool,
        /// With the packet's mark.
        mark: bool,
        /// Only routes by the incoming interface count.
        iif: bool,
        /// Only routes by the outgoing interface count.
        oif: bool,
        /// What it gives.
        result: FibResult,
    },
    /// A property of the packet's route.
    Rt(RtKey),
}

impl Field {
    /// Returns the width, bits.
    pub const fn bits(self) -> u16 {
        match self {
            Self::Payload { bits, .. }
            | Self::ExtHdr { bits, .. }
            | Self::TcpOption { bits, .. } => bits,
            Self::ExtHdrExists(_) | Self::TcpOptionExists(_) => 1,
            Self::Meta(key) => match key {
                MetaKey::NfProto | MetaKey::L4Proto | MetaKey::PktType | MetaKey::Day => 8,
                MetaKey::Protocol | MetaKey::IifType | MetaKey::OifType => 16,
                MetaKey::Iif | MetaKey::Oif | MetaKey::IifName | MetaKey::OifName => 16,
                MetaKey::IbrName | MetaKey::ObrName => 16,
                MetaKey::NfTrace | MetaKey::IpSec => 1,
                MetaKey::Time => 64,
                _ => 32,
            },
            Self::Ct { key, .. } => match key {
                CtKey::State | CtKey::Direction | CtKey::L3Proto | CtKey::Protocol => 8,
                CtKey::Source | CtKey::Destination | CtKey::Label => 128,
                CtKey::SourcePort | CtKey::DestinationPort | CtKey::Zone | CtKey::Helper => 16,
                CtKey::Packets | CtKey::Bytes | CtKey::AvgPkt => 64,
                _ => 32,
            },
            Self::Fib { result, .. } => match result {
                FibResult::Interface => 16,
                FibResult::Exists => 1,
                FibResult::Type => 8,
            },
            Self::Rt(RtKey::Mss) => 16,
            Self::Rt(RtKey::NextHop) => 128,
        }
    }

    /// True if reading costs no more than a few loads, so that a classifier may read it for every packet.
    pub const fn is_cheap(self) -> bool {
        matches!(self, Self::Payload { .. } | Self::Meta(_) | Self::Ct { .. })
    }

    /// True if all packets of one direction of a flow share the value, while the connection stays in its state.
    pub const fn is_of_flow(self) -> bool {
        match self {
            Self::Payload { base, offset, bits } => match base {
                Base::Link | Base::Vlan => true,
                // Version, protocol and addresses, of either family; ports; ICMP type and code.
                Base::Network => {
                    (offset == 0 && bits == 4)
                        || offset == 72
                        || offset == 48 && bits == 8
                        || offset >= 64 && bits >= 32
                }
                Base::Transport => {
                    offset < 32 && offset + bits <= 32 && bits <= 16 && offset != 16 + 8
                }
                Base::Inner => false,
            },
            Self::Meta(key) => !matches!(
                key,
                MetaKey::Length
                    | MetaKey::Random
                    | MetaKey::Priority
                    | MetaKey::Time
                    | MetaKey::Day
                    | MetaKey::Hour
                    | MetaKey::Cpu
                    | MetaKey::PktType
            ),
            Self::Ct { key, .. } => !matches!(
                key,
                CtKey::Expiration | CtKey::Packets | CtKey::Bytes | CtKey::AvgPkt | CtKey::Status
            ),
            _ => false,
        }
    }

    /// Reads the field; `None` if the packet has it not. No allocation, no panic.
    #[inline]
    pub fn load(self, packet: &Packet<'_>, interfaces: &Interfaces) -> Option<u128> {
        match self {
            Self::Payload { base, offset, bits } => payload(packet, base, offset, bits),
            Self::Meta(key) => meta(packet, interfaces, key),
            Self::Ct { key, direction } => ct(packet, key, direction),
            Self::ExtHdr {
                header,
                offset,
                bits,
            } => {
                let start = options::extension_header(packet, header)?;
                bits_at(
                    packet.frame,
                    start * 8 + usize::from(offset),
                    bits,
                    packet.layout.end.into(),
                )
            }
            Self::ExtHdrExists(header) => {
                is_ipv6(packet).then(|| options::extension_header(packet, header).is_some().into())
            }
            Self::TcpOption { kind, offset, bits } => {
                let (start, end) = options::tcp_option(packet, kind)?;
                bits_at(packet.frame, start * 8 + usize::from(offset), bits, end)
            }
            Self::TcpOptionExists(kind) => {
                is_tcp(packet).then(|| options::tcp_option(packet, kind).is_some().into())
            }
            Self::Fib {
                source,
                mark,
                iif,
                oif,
                result,
            } => {
                let interface = if iif {
                    Some(packet.iif)
                } else if oif {
                    Some(packet.oif)
                } else {
                    None
                };
                fib(packet, source, mark, interface, result)
            }
            Self::Rt(key) => rt(packet, key),
        }
    }

    /// Writes the field and repairs checksums; false if the packet has it not or it cannot be written.
    pub fn store(self, packet: &mut Packet<'_>, effects: &mut Effects, value: u128) -> bool {
        match self {
            Self::Payload { base, offset, bits } => {
                let Some(start) = payload_start(packet, base) else {
                    return false;
                };
                let stored = write_bits(packet, start * 8 + usize::from(offset), bits, value);
                if stored {
                    effects.changes |= Changes::FRAME;
                }
                stored
            }
            Self::TcpOption { kind, offset, bits } => {
                let Some((start, end)) = options::tcp_option(packet, kind) else {
                    return false;
                };
                let at = start * 8 + usize::from(offset);
                if at + usize::from(bits) > end * 8 {
                    return false;
                }
                // The MSS is only ever made smaller, as the kernel does.
                if kind == options::MSS
                    && offset == 16
                    && bits_at(packet.frame, at, bits, end).is_none_or(|old| old <= value)
                {
                    return true;
                }
                let stored = write_bits(packet, at, bits, value);
                if stored {
                    effects.changes |= Changes::FRAME;
                }
                stored
            }
            Self::Meta(MetaKey::Mark) => {
                packet.mark = value as u32;
                effects.changes |= Changes::MARK;
                true
            }
            Self::Meta(MetaKey::Priority) => {
                packet.priority = value as u32;
                effects.changes |= Changes::PRIORITY;
                true
            }
            Self::Meta(MetaKey::NfTrace) => {
                effects.changes.set(Changes::TRACE, value != 0);
                true
            }
            Self::Meta(MetaKey::PktType) => {
                packet.packet_type = match value {
                    0 => crate::packet::PacketType::Host,
                    1 => crate::packet::PacketType::Broadcast,
                    2 => crate::packet::PacketType::Multicast,
                    _ => crate::packet::PacketType::Other,
                };
                true
            }
            Self::Ct { key, .. } => store_ct(packet, effects, key, value),
            _ => false,
        }
    }
}

fn store_ct(packet: &mut Packet<'_>, effects: &mut Effects, key: CtKey, value: u128) -> bool {
    // Without a connection (untracked, invalid) there is nothing to write to; the kernel ignores the write.
    let tracked = packet.ct.tracked;
    match key {
        CtKey::Mark if tracked => {
            packet.ct.mark = value as u32;
            effects.changes |= Changes::CT_MARK;
        }
        CtKey::Label if tracked => {
            packet.ct.label = value;
            effects.changes |= Changes::CT_LABEL;
        }
        CtKey::Zone => {
            packet.ct.zone = value as u16;
            effects.changes |= Changes::CT_ZONE;
        }
        CtKey::Mark | CtKey::Label | CtKey::Event => {}
        _ => return false,
    }
    true
}

fn is_ipv6(packet: &Packet<'_>) -> bool {
    packet.layout.flags.contains(LayoutFlags::IPV6)
}

fn is_ip(packet: &Packet<'_>) -> bool {
    packet
        .layout
        .flags
        .intersects(LayoutFlags::IPV4.union(LayoutFlags::IPV6))
}

fn is_tcp(packet: &Packet<'_>) -> bool {
    packet.layout.protocol == ip_protocol::TCP
        && packet.layout.flags.contains(LayoutFlags::TRANSPORT)
}

/// Byte at which a base starts, if the packet has it.
#[inline]
fn payload_start(packet: &Packet<'_>, base: Base) -> Option<usize> {
    let layout = &packet.layout;
    match base {
        Base::Link => Some(0),
        Base::Vlan => (layout.vlan_tags > 0).then_some(wire::ethernet::HEADER_BYTES),
        Base::Network => Some(layout.network.into()),
        Base::Transport => (is_ip(packet) && !layout.flags.contains(LayoutFlags::LATER_FRAGMENT))
            .then(|| layout.transport.into()),
        Base::Inner => layout
            .flags
            .contains(LayoutFlags::TRANSPORT)
            .then(|| layout.payload.into()),
    }
}

#[inline]
fn payload(packet: &Packet<'_>, base: Base, offset: u16, bits: u16) -> Option<u128> {
    let start = payload_start(packet, base)?;
    bits_at(
        packet.frame,
        start * 8 + usize::from(offset),
        bits,
        packet.layout.end.into(),
    )
}

/// Reads `bits` bits at bit `at`, if they end before byte `end`.
#[inline]
fn bits_at(frame: &[u8], at: usize, bits: u16, end: usize) -> Option<u128> {
    let (first, skip) = (at / 8, at % 8);
    if skip == 0 {
        match bits {
            8 => return byte_array::<1>(frame, first, end).map(|b| u8::from_be_bytes(b).into()),
            16 => return byte_array::<2>(frame, first, end).map(|b| u16::from_be_bytes(b).into()),
            32 => return byte_array::<4>(frame, first, end).map(|b| u32::from_be_bytes(b).into()),
            128 => return byte_array::<16>(frame, first, end).map(u128::from_be_bytes),
            _ => {}
        }
    }
    let bytes = (skip + usize::from(bits)).div_ceil(8);
    let mut value = 0_u128;
    if bytes > 16 || first + bytes > end {
        return None;
    }
    for byte in frame.get(first..first + bytes)? {
        value = value << 8 | u128::from(*byte);
    }
    value >>= bytes * 8 - skip - usize::from(bits);
    Some(if bits >= 128 {
        value
    } else {
        value & ((1 << bits) - 1)
    })
}

#[inline(always)]
fn byte_array<const N: usize>(frame: &[u8], at: usize, end: usize) -> Option<[u8; N]> {
    if at + N > end {
        return None;
    }
    frame.get(at..)?.first_chunk::<N>().copied()
}

/// Writes bits and repairs the checksums that cover them (RFC 1624). A part of a byte keeps the rest of it.
fn write_bits(packet: &mut Packet<'_>, at: usize, bits: u16, value: u128) -> bool {
    let (first, skip) = (at / 8, at % 8);
    let bytes = (skip + usize::from(bits)).div_ceil(8);
    let end = usize::from(packet.layout.end);
    if bytes == 0 || bytes > 16 || first + bytes > end {
        return false;
    }
    let shift = bytes * 8 - skip - usize::from(bits);
    let mask = if bits >= 128 {
        u128::MAX
    } else {
        (1_u128 << bits) - 1
    } << shift;
    let value = value << shift & mask;
    for index in 0..bytes {
        let byte_shift = (bytes - 1 - index) * 8;
        let (byte_mask, byte_value) = ((mask >> byte_shift) as u8, (value >> byte_shift) as u8);
        let Some(byte) = packet.frame.get_mut(first + index) else {
            return false;
        };
        let (old, new) = (*byte, *byte & !byte_mask | byte_value);
        *byte = new;
        if old != new {
            repair(packet, first + index, old, new);
        }
    }
    true
}

/// Repairs the checksums after the byte at `at` changed.
fn repair(packet: &mut Packet<'_>, at: usize, old: u8, new: u8) {
    let network = usize::from(packet.layout.network);
    let transport = usize::from(packet.layout.transport);
    let is_ipv4 = packet.layout.flags.contains(LayoutFlags::IPV4);
    if at < network || !is_ip(packet) {
        return;
    }
    let in_network = at < transport;
    if in_network && is_ipv4 {
        update(
            packet,
            network + wire::ipv4::CHECKSUM,
            at - network,
            old,
            new,
            false,
        );
    }
    let addresses = if is_ipv4 {
        network + 12..network + 20
    } else {
        network + 8..network + 40
    };
    if !packet.layout.flags.contains(LayoutFlags::TRANSPORT)
        || packet.layout.flags.contains(LayoutFlags::LATER_FRAGMENT)
    {
        return;
    }
    let covered = if in_network {
        addresses.contains(&at)
    } else {
        true
    };
    // IPv4's ICMP has no pseudo-header.
    let protocol = packet.layout.protocol;
    if !covered || (in_network && protocol == ip_protocol::ICMP) {
        return;
    }
    let offset = match protocol {
        ip_protocol::TCP => wire::tcp::CHECKSUM,
        ip_protocol::UDP => wire::udp::CHECKSUM,
        ip_protocol::ICMP | ip_protocol::ICMPV6 => 2,
        _ => return,
    };
    let parity = if in_network {
        at - network
    } else {
        at - transport
    };
    update(
        packet,
        transport + offset,
        parity,
        old,
        new,
        protocol == ip_protocol::UDP,
    );
}

/// Updates the checksum at `at` after one byte at an offset of this parity changed.
fn update(packet: &mut Packet<'_>, at: usize, parity: usize, old: u8, new: u8, is_udp: bool) {
    let Some(field) = packet
        .frame
        .get_mut(at..)
        .and_then(|rest| rest.first_chunk_mut::<2>())
    else {
        return;
    };
    let word = |byte: u8| {
        if parity.is_multiple_of(2) {
            u16::from(byte) << 8
        } else {
            u16::from(byte)
        }
    };
    let before = u16::from_be_bytes(*field);
    let mut after = wire::checksum::update_u16(before, word(old), word(new));
    if is_udp {
        after = wire::checksum::update_udp(before, after);
    }
    *field = after.to_be_bytes();
}

#[inline]
fn meta(packet: &Packet<'_>, interfaces: &Interfaces, key: MetaKey) -> Option<u128> {
    let layout = &packet.layout;
    Some(match key {
        MetaKey::Length => layout.packet_bytes().into(),
        MetaKey::Protocol => layout.ether_type.into(),
        MetaKey::NfProto => match Family::of(layout) {
            Some(Family::Ip) => 2,
            Some(Family::Ip6) => 10,
            _ => return None,
        },
        MetaKey::L4Proto if is_ip(packet) => layout.protocol.into(),
        MetaKey::L4Proto => return None,
        MetaKey::Priority => packet.priority.into(),
        MetaKey::Random => packet.random.into(),
        MetaKey::Mark => packet.mark.into(),
        MetaKey::Iif | MetaKey::IifName => packet.iif.0.into(),
        MetaKey::Oif | MetaKey::OifName => packet.oif.0.into(),
        MetaKey::IifType => interfaces.get(packet.iif)?.kind.into(),
        MetaKey::OifType => interfaces.get(packet.oif)?.kind.into(),
        MetaKey::IifGroup => interfaces.get(packet.iif)?.group.into(),
        MetaKey::OifGroup => interfaces.get(packet.oif)?.group.into(),
        MetaKey::IbrName => interfaces
            .get(packet.iif)
            .map_or(InterfaceId::NONE, |i| i.bridge)
            .0
            .into(),
        MetaKey::ObrName => interfaces
            .get(packet.oif)
            .map_or(InterfaceId::NONE, |i| i.bridge)
            .0
            .into(),
        // The node owns no sockets of other users, no cgroups and no realms.
        MetaKey::SkUid | MetaKey::SkGid | MetaKey::Cgroup | MetaKey::RtClassId => return None,
        MetaKey::PktType => packet.packet_type as u128,
        MetaKey::Cpu => packet.worker.into(),
        MetaKey::NfTrace | MetaKey::IpSec => 0,
        MetaKey::Time => packet.unix_ns.into(),
        // 1 January 1970 was a Thursday.
        MetaKey::Day => u128::from((packet.unix_ns / 86_400_000_000_000 + 4) % 7),
        MetaKey::Hour => u128::from(packet.unix_ns / 1_000_000_000 % 86_400),
    })
}

#[inline]
fn ct(packet: &Packet<'_>, key: CtKey, direction: Option<CtDirection>) -> Option<u128> {
    let ct = &packet.ct;
    if key == CtKey::State {
        let state = if ct.state.is_empty() {
            CtState::INVALID
        } else {
            ct.state
        };
        return Some(state.bits().into());
    }
    if !ct.tracked {
        return None;
    }
    let tuple = |direction: Option<CtDirection>| match direction {
        Some(CtDirection::Reply) => &ct.reply,
        _ => &ct.original,
    };
    let sum = |pair: [u64; 2]| match direction {
        Some(direction) => pair[direction as usize & 1].into(),
        None => u128::from(pair[0]) + u128::from(pair[1]),
    };
    Some(match key {
        CtKey::State => return None,
        CtKey::Direction => ct.direction as u128,
        CtKey::Status => ct.status.bits().into(),
        CtKey::Mark => ct.mark.into(),
        CtKey::Expiration => ct.expires_ms.into(),
        CtKey::Helper => ct.helper.0.into(),
        CtKey::Label => ct.label,
        CtKey::L3Proto => match Family::of(&packet.layout)? {
            Family::Ip => 2,
            _ => 10,
        },
        CtKey::Protocol => tuple(direction).protocol.into(),
        CtKey::Source => address(packet, tuple(direction).source),
        CtKey::Destination => address(packet, tuple(direction).destination),
        CtKey::SourcePort => tuple(direction).source_port.into(),
        CtKey::DestinationPort => tuple(direction).destination_port.into(),
        CtKey::Packets => sum(ct.packets),
        CtKey::Bytes => sum(ct.bytes),
        CtKey::AvgPkt => sum(ct.bytes).checked_div(sum(ct.packets)).unwrap_or(0),
        CtKey::Zone => ct.zone.into(),
        CtKey::Id => ct.id.into(),
        CtKey::Event => return None,
    })
}

/// An address as a number: of 32 bits if the packet is IPv4.
fn address(packet: &Packet<'_>, address: [u8; 16]) -> u128 {
    let number = u128::from_be_bytes(address);
    if packet.layout.flags.contains(LayoutFlags::IPV4) {
        number & 0xffff_ffff
    } else {
        number
    }
}

fn fib(
    packet: &Packet<'_>,
    source: bool,
    mark: bool,
    interface: Option<InterfaceId>,
    result: FibResult,
) -> Option<u128> {
    let key = FlowKey::from_layout(&packet.layout, packet.frame)?;
    let address = if source { key.source } else { key.destination };
    let query = FibQuery {
        address,
        mark: mark.then_some(packet.mark),
        interface,
    };
    let answer = packet.fib.lookup(&query);
    let found = !matches!(answer.kind, AddressType::Unspecified)
        && interface.is_none_or(|wanted| wanted == answer.interface);
    Some(match result {
        FibResult::Interface if found => answer.interface.0.into(),
        FibResult::Interface => 0,
        FibResult::Exists => (found && answer.interface != InterfaceId::NONE).into(),
        FibResult::Type if found => answer.kind as u128,
        FibResult::Type => 0,
    })
}

fn rt(packet: &Packet<'_>, key: RtKey) -> Option<u128> {
    let flow = FlowKey::from_layout(&packet.layout, packet.frame)?;
    let route = |address| {
        packet.fib.lookup(&FibQuery {
            address,
            mark: None,
            interface: None,
        })
    };
    match key {
        RtKey::NextHop => Some(address(packet, route(flow.destination).next_hop)),
        RtKey::Mss => {
            // As the kernel: the smaller of the routes there and back, less the headers.
            let headers = if is_ipv6(packet) { 60 } else { 40 };
            let (there, back) = (route(flow.destination).mtu, route(flow.source).mtu);
            let mtu = match (there, back) {
                (0, mtu) | (mtu, 0) => mtu,
                (there, back) => there.min(back),
            };
            (mtu > headers).then(|| (mtu - headers).into())
        }
    }
}
