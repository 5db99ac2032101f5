//! Frames of packets, and packets of frames.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::tcp::{self, Flags, View};
use wire::{
    Addresses, MacAddr, ether_type, ethernet, icmpv4, icmpv6, ip_protocol, ipv4, ipv6, udp,
};

use crate::syntax::Opt;

/// MAC address of the stack.
pub(crate) const LOCAL_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
/// MAC address of the peer.
pub(crate) const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

/// A segment as it is on the wire.
#[derive(Clone, Debug, Default)]
pub(crate) struct WireSegment {
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: Flags,
    pub(crate) window: u16,
    pub(crate) urgent: u16,
    pub(crate) options: Vec<Opt>,
    pub(crate) payload: Vec<u8>,
}

/// What the stack sent.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    Tcp(WireSegment),
    Udp(u16, u16, Vec<u8>),
    Icmp(u8, u8),
}

/// A packet that the stack sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    /// When, ns.
    pub(crate) at: u64,
    pub(crate) ecn: u8,
    pub(crate) seen: Seen,
}

/// The two ends, as seen by who sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
}

impl Ends {
    fn addresses(self) -> Addresses {
        match (self.from, self.to) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Addresses::V4 {
                source,
                destination,
            },
            (from, to) => Addresses::V6 {
                source: as_v6(from),
                destination: as_v6(to),
            },
        }
    }
    pub(crate) const fn swap(self) -> Self {
        Self {
            from: self.to,
            to: self.from,
        }
    }
}

const fn as_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::to_ipv6_mapped(&address),
        IpAddr::V6(address) => address,
    }
}

/// Writes a segment; `None` if its options do not fit.
pub(crate) fn segment(segment: &WireSegment, ends: Ends, ecn: u8) -> Option<Vec<u8>> {
    let bytes = segment_bytes(segment, ends)?;
    Some(frame(&bytes, ends, ip_protocol::TCP, ecn))
}

fn segment_bytes(segment: &WireSegment, ends: Ends) -> Option<Vec<u8>> {
    let mut blob = Vec::new();
    segment
        .options
        .iter()
        .for_each(|option| option.write(&mut blob));
    if blob.len() > tcp::OPTIONS_BYTES_MAX {
        return None;
    }
    blob.resize(blob.len().next_multiple_of(4), 0);
    let repr = tcp::Repr {
        source_port: segment.source_port,
        destination_port: segment.destination_port,
        sequence: segment.seq,
        acknowledgement: segment.ack,
        flags: segment.flags,
        window: segment.window,
        urgent: segment.urgent,
        // Room for the options, which may be of any shape.
        options: &vec![tcp::TcpOption::NoOperation; blob.len()],
    };
    let mut bytes = vec![0; repr.bytes() + segment.payload.len()];
    bytes[repr.bytes()..].copy_from_slice(&segment.payload);
    repr.emit(&mut bytes, &ends.addresses()).ok()?;
    bytes[tcp::HEADER_BYTES..tcp::HEADER_BYTES + blob.len()].copy_from_slice(&blob);
    bytes[16..18].fill(0);
    let sum = ends
        .addresses()
        .pseudo_header(ip_protocol::TCP, bytes.len() as u16)
        .add_bytes(&bytes);
    bytes[16..18].copy_from_slice(&sum.checksum().to_be_bytes());
    Some(bytes)
}

/// Writes a datagram.
pub(crate) fn datagram(ports: (u16, u16), payload: &[u8], ends: Ends) -> Option<Vec<u8>> {
    let bytes = datagram_bytes(ports, payload, ends)?;
    Some(frame(&bytes, ends, ip_protocol::UDP, 0))
}

fn datagram_bytes(ports: (u16, u16), payload: &[u8], ends: Ends) -> Option<Vec<u8>> {
    let mut bytes = vec![0; udp::HEADER_BYTES + payload.len()];
    bytes[udp::HEADER_BYTES..].copy_from_slice(payload);
    let repr = udp::Repr {
        source_port: ports.0,
        destination_port: ports.1,
    };
    repr.emit(&mut bytes, &ends.addresses()).ok()?;
    Some(bytes)
}

/// What an ICMP error quotes.
pub(crate) enum Quoted<'a> {
    Tcp(&'a WireSegment),
    Udp(u16, u16),
}

/// Writes an ICMP error about a packet that the stack sent (`ends` are those of the error).
pub(crate) fn icmp_error(
    kind: &str,
    code: &str,
    mtu: u32,
    quoted: &Quoted<'_>,
    ends: Ends,
) -> Option<Vec<u8>> {
    let inner = ends.swap();
    let (protocol, payload) = match quoted {
        Quoted::Tcp(segment) => (ip_protocol::TCP, segment_bytes(segment, inner)?),
        Quoted::Udp(from, to) => (ip_protocol::UDP, datagram_bytes((*from, *to), &[], inner)?),
    };
    let mut quote = packet(&payload, inner, protocol, 0);
    let (number, body) = match ends.addresses() {
        Addresses::V4 { .. } => {
            let repr = icmp_v4(kind, code, mtu)?;
            // RFC 792: the header and eight bytes more.
            quote.truncate(ipv4::HEADER_BYTES + 8);
            let mut bytes = vec![0; icmpv4::HEADER_BYTES];
            bytes.extend(quote);
            repr.emit(&mut bytes).ok()?;
            (ip_protocol::ICMP, bytes)
        }
        Addresses::V6 {
            source,
            destination,
        } => {
            let repr = icmp_v6(kind, code, mtu)?;
            quote.truncate(1200);
            let mut bytes = vec![0; icmpv4::HEADER_BYTES];
            bytes.extend(quote);
            repr.emit(&mut bytes, source, destination).ok()?;
            (ip_protocol::ICMPV6, bytes)
        }
    };
    Some(frame(&body, ends, number, 0))
}

fn icmp_v4(kind: &str, code: &str, mtu: u32) -> Option<icmpv4::Repr> {
    let code = match (kind, code) {
        ("time_exceeded", _) => return Some(icmpv4::Repr::TimeExceeded { code: 0 }),
        ("source_quench", _) => {
            return Some(icmpv4::Repr::Other {
                kind: 4,
                code: 0,
                rest: 0,
            });
        }
        ("parameter_problem", _) => {
            return Some(icmpv4::Repr::ParameterProblem {
                code: 0,
                pointer: 0,
            });
        }
        ("unreachable", "net_unreachable") => 0,
        ("unreachable", "host_unreachable") => 1,
        ("unreachable", "protocol_unreachable") => 2,
        ("unreachable", "port_unreachable") => 3,
        ("unreachable", "frag_needed") => 4,
        ("unreachable", "source_route_failed") => 5,
        ("unreachable", "net_unknown") => 6,
        ("unreachable", "host_unknown") => 7,
        ("unreachable", "net_prohibited") => 9,
        ("unreachable", "host_prohibited") => 10,
        ("unreachable", "packet_filtered") => 13,
        _ => return None,
    };
    Some(icmpv4::Repr::DestinationUnreachable {
        code,
        mtu: u16::try_from(mtu).ok()?,
    })
}

fn icmp_v6(kind: &str, code: &str, mtu: u32) -> Option<icmpv6::Repr> {
    let code = match (kind, code) {
        ("packet_too_big", _) => return Some(icmpv6::Repr::PacketTooBig { mtu }),
        ("time_exceeded", _) => return Some(icmpv6::Repr::TimeExceeded { code: 0 }),
        ("parameter_problem", _) => {
            return Some(icmpv6::Repr::ParameterProblem {
                code: 1,
                pointer: 0,
            });
        }
        ("unreachable", "no_route") => 0,
        ("unreachable", "prohibited") => 1,
        ("unreachable", "address_unreachable" | "host_unreachable") => 3,
        ("unreachable", "port_unreachable") => 4,
        _ => return None,
    };
    Some(icmpv6::Repr::DestinationUnreachable { code })
}

/// Puts headers before what IP carries; from the peer to the stack.
fn frame(payload: &[u8], ends: Ends, protocol: u8, ecn: u8) -> Vec<u8> {
    let mut bytes = vec![0; ethernet::HEADER_BYTES];
    bytes.extend(packet(payload, ends, protocol, ecn));
    let repr = ethernet::Repr {
        destination: LOCAL_MAC,
        source: PEER_MAC,
        ether_type: match ends.from {
            IpAddr::V4(_) => ether_type::IPV4,
            IpAddr::V6(_) => ether_type::IPV6,
        },
    };
    repr.emit(&mut bytes).expect("there is room for the header");
    bytes
}

fn packet(payload: &[u8], ends: Ends, protocol: u8, ecn: u8) -> Vec<u8> {
    let length = payload.len() as u16;
    let mut bytes;
    match ends.addresses() {
        Addresses::V4 {
            source,
            destination,
        } => {
            bytes = vec![0; ipv4::HEADER_BYTES];
            bytes.extend(payload);
            let mut repr = ipv4::Repr::new(source, destination, protocol, length);
            repr.tos = ecn;
            repr.emit(&mut bytes).expect("there is room for the header");
        }
        Addresses::V6 {
            source,
            destination,
        } => {
            bytes = vec![0; ipv6::HEADER_BYTES];
            bytes.extend(payload);
            let mut repr = ipv6::Repr::new(source, destination, protocol, length);
            repr.traffic_class = ecn;
            repr.emit(&mut bytes).expect("there is room for the header");
        }
    }
    bytes
}

/// Reads what the stack sent: TCP, UDP and ICMP; `None` for neighbour discovery, routers and groups.
pub(crate) fn read(frame: &[u8], at: u64) -> Option<Sent> {
    let packet = frame.get(ethernet::HEADER_BYTES..)?;
    let (header_bytes, protocol, ecn, total) = match packet.first()? >> 4 {
        4 => {
            let total = u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]);
            (20, *packet.get(9)?, packet.get(1)? & 3, usize::from(total))
        }
        _ => {
            let length = u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?]);
            let class = packet.get(1)? >> 4;
            (40, *packet.get(6)?, class & 3, 40 + usize::from(length))
        }
    };
    let payload = packet.get(header_bytes..total)?;
    let seen = match protocol {
        ip_protocol::TCP => Seen::Tcp(read_segment(payload)?),
        ip_protocol::UDP => {
            let view = udp::View::new(payload).ok()?;
            let data = view.payload().to_vec();
            Seen::Udp(view.source_port(), view.destination_port(), data)
        }
        ip_protocol::ICMP => Seen::Icmp(*payload.first()?, *payload.get(1)?),
        // Neighbour discovery and multicast listener reports are no business of scripts.
        ip_protocol::ICMPV6 if *payload.first()? < 128 => {
            Seen::Icmp(*payload.first()?, *payload.get(1)?)
        }
        _ => return None,
    };
    Some(Sent { at, ecn, seen })
}

fn read_segment(bytes: &[u8]) -> Option<WireSegment> {
    let view = View::new(bytes).ok()?;
    let header_bytes = bytes.len() - view.payload().len();
    let mut options = Vec::new();
    let mut rest = bytes.get(tcp::HEADER_BYTES..header_bytes)?;
    while let Some((option, after)) = Opt::read(rest) {
        options.push(option);
        rest = after;
    }
    Some(WireSegment {
        source_port: view.source_port(),
        destination_port: view.destination_port(),
        seq: view.sequence(),
        ack: view.acknowledgement(),
        flags: view.flags(),
        window: view.window(),
        urgent: view.urgent(),
        options,
        payload: view.payload().to_vec(),
    })
}

impl Opt {
    fn write(&self, to: &mut Vec<u8>) {
        let mut put = |kind: u8, data: &[u8]| {
            to.extend([kind, data.len() as u8 + 2]);
            to.extend(data);
        };
        match self {
            Self::Nop => to.push(1),
            Self::End => to.push(0),
            Self::Mss(mss) => put(2, &mss.to_be_bytes()),
            Self::Scale(shift) => put(3, &[*shift]),
            Self::SackOk => put(4, &[]),
            Self::Sack(blocks) => {
                let data: Vec<u8> = blocks
                    .iter()
                    .flat_map(|(start, end)| [start.to_be_bytes(), end.to_be_bytes()])
                    .flatten()
                    .collect();
                put(5, &data);
            }
            Self::Stamps(value, echo) => {
                put(8, &[value.to_be_bytes(), echo.to_be_bytes()].concat());
            }
            Self::FastOpen(cookie) => put(34, cookie),
            Self::FastOpenExperimental(cookie) => {
                put(254, &[&[0xf9, 0x89], cookie.as_slice()].concat());
            }
            Self::Other(kind, data) => put(*kind, data),
        }
    }

    /// Reads one option; `None` at the end. Padding with zeros at the very end does not count as options.
    fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (&kind, after) = bytes.split_first()?;
        match kind {
            0 => return None,
            1 => return Some((Self::Nop, after)),
            _ => {}
        }
        let (&length, after) = after.split_first()?;
        let (data, rest) = after.split_at_checked(usize::from(length).checked_sub(2)?)?;
        let word = |at: usize| {
            data.get(at..at + 4)
                .and_then(|bytes| bytes.first_chunk().copied())
                .map(u32::from_be_bytes)
        };
        let option = match (kind, data) {
            (2, &[a, b]) => Self::Mss(u16::from_be_bytes([a, b])),
            (3, &[shift]) => Self::Scale(shift),
            (4, []) => Self::SackOk,
            (5, _) => Self::Sack(
                (0..data.len() / 8)
                    .filter_map(|n| Some((word(n * 8)?, word(n * 8 + 4)?)))
                    .collect(),
            ),
            (8, _) if data.len() == 8 => Self::Stamps(word(0)?, word(4)?),
            (34, _) => Self::FastOpen(data.to_vec()),
            (254, [0xf9, 0x89, cookie @ ..]) => Self::FastOpenExperimental(cookie.to_vec()),
            _ => Self::Other(kind, data.to_vec()),
        };
        Some((option, rest))
    }
}
