//! ICMP and ICMPv6: echoes answered, errors handed to the sockets that they are about (RFC 1122 3.2.2, RFC 4443, RFC 5927),
//! errors sent for what nobody takes.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use wire::{Addresses, DropReason, FlowKey, LayoutFlags, icmpv4, icmpv6, ip_protocol};

use super::output::Outgoing;
use crate::error::Error;
use crate::rx::Rx;
use crate::stack::{Limit, Stack};
use crate::tcp::seq::Seq;
use crate::tcp::sessions::{Found, Key};
use crate::tcp::state::State;
use crate::tcp::tcb::Flag;

/// What an ICMP error says of the packet that it quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Complaint {
    /// It cannot be delivered; `hard`: not even later.
    Unreachable { error: Error, hard: bool },
    /// It exceeds the MTU of a link of the path.
    TooBig { mtu: u16 },
}

impl Stack {
    pub(crate) fn receive_icmp(&mut self, rx: &Rx<'_>, now_ns: u64) -> Result<(), DropReason> {
        let is_v4 = rx.layout.flags.contains(LayoutFlags::IPV4);
        let wanted = if is_v4 {
            ip_protocol::ICMP
        } else {
            ip_protocol::ICMPV6
        };
        if rx.layout.protocol != wanted || !rx.layout.flags.contains(LayoutFlags::TRANSPORT) {
            return Err(DropReason::ProtocolUnknown);
        }
        if !is_v4 && let Some(message) = wire::ndp::Message::validate(&rx.layout, rx.frame) {
            return self.receive_ndp(rx, &message?, now_ns);
        }
        if rx.layout.flags.contains(LayoutFlags::ICMP_ERROR) {
            self.receive_icmp_error(rx, is_v4, now_ns);
            return Ok(());
        }
        let transport = usize::from(rx.layout.transport);
        let message = rx
            .frame
            .get(transport..usize::from(rx.layout.end))
            .unwrap_or_default();
        if is_v4 {
            self.receive_icmpv4(rx, message, now_ns)
        } else {
            self.receive_icmpv6(rx, message, now_ns)
        }
    }

    fn receive_icmpv4(
        &mut self,
        rx: &Rx<'_>,
        message: &[u8],
        now_ns: u64,
    ) -> Result<(), DropReason> {
        let view = icmpv4::View::new(message)?;
        let icmpv4::Repr::EchoRequest {
            identifier,
            sequence,
        } = icmpv4::Repr::parse(&view)
        else {
            return Err(DropReason::ProtocolUnknown);
        };
        let Some(addresses) = self.answer_addresses(rx) else {
            return Err(DropReason::NotForUs);
        };
        if !self.may_answer(Limit::Icmp, now_ns) {
            return Err(DropReason::RateLimited);
        }
        let mut reply = with_header(view.payload());
        if (icmpv4::Repr::EchoReply {
            identifier,
            sequence,
        })
        .emit(&mut reply)
        .is_ok()
        {
            self.answer_icmp(addresses, ip_protocol::ICMP, &reply, now_ns);
        }
        Ok(())
    }

    fn receive_icmpv6(
        &mut self,
        rx: &Rx<'_>,
        message: &[u8],
        now_ns: u64,
    ) -> Result<(), DropReason> {
        let view = icmpv6::View::new(message)?;
        if (130..=132).contains(&view.kind()) || view.kind() == 143 {
            return self.receive_mld(rx, message, now_ns);
        }
        let icmpv6::Repr::EchoRequest {
            identifier,
            sequence,
        } = icmpv6::Repr::parse(&view)
        else {
            return Err(DropReason::ProtocolUnknown);
        };
        let Some(addresses) = self.answer_addresses(rx) else {
            return Err(DropReason::NotForUs);
        };
        if !self.may_answer(Limit::Icmp, now_ns) {
            return Err(DropReason::RateLimited);
        }
        let mut reply = with_header(view.payload());
        let Addresses::V6 {
            source,
            destination,
        } = addresses
        else {
            return Err(DropReason::NotForUs);
        };
        if (icmpv6::Repr::EchoReply {
            identifier,
            sequence,
        })
        .emit(&mut reply, source, destination)
        .is_ok()
        {
            self.answer_icmp(addresses, ip_protocol::ICMPV6, &reply, now_ns);
        }
        Ok(())
    }

    /// Returns the addresses of an answer: the packet's own in reverse, one of ours where it went to a group.
    fn answer_addresses(&self, rx: &Rx<'_>) -> Option<Addresses> {
        let (peer, to) = Self::ends(rx);
        let local = if self.addressing.is_ours(to) {
            to
        } else {
            self.addressing.choose(peer, None)?.source
        };
        match (local, peer) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some(Addresses::V4 {
                source,
                destination,
            }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Some(Addresses::V6 {
                source,
                destination,
            }),
            _ => None,
        }
    }

    fn answer_icmp(&mut self, addresses: Addresses, protocol: u8, message: &[u8], now_ns: u64) {
        let outgoing = Outgoing {
            addresses,
            protocol,
            ttl: 64,
            tos: 0,
            router_alert: false,
        };
        self.queue_routed(&outgoing, message, now_ns);
    }

    /// Sends "destination unreachable: port" for a datagram that nobody takes (RFC 1122 4.1.3.1).
    pub(crate) fn answer_port_unreachable(&mut self, rx: &Rx<'_>, now_ns: u64) {
        self.answer_unreachable(rx, 3, 4, now_ns);
    }

    /// Sends "destination unreachable: protocol", or "parameter problem: next header" (RFC 1122 3.2.2.1, RFC 8200 4).
    pub(crate) fn answer_unknown_protocol(&mut self, rx: &Rx<'_>, now_ns: u64) {
        self.answer_unreachable(rx, 2, u8::MAX, now_ns);
    }

    fn answer_unreachable(&mut self, rx: &Rx<'_>, code_v4: u8, code_v6: u8, now_ns: u64) {
        let is_v4 = rx.layout.flags.contains(LayoutFlags::IPV4);
        let may = if is_v4 {
            icmpv4::may_answer(&rx.layout, rx.frame)
        } else {
            icmpv6::may_answer(&rx.layout, rx.frame, false)
        };
        let Some(addresses) = self.answer_addresses(rx) else {
            return;
        };
        if !may || !self.may_answer(Limit::Icmp, now_ns) {
            return;
        }
        let quote = rx.layout.packet(rx.frame);
        match addresses {
            Addresses::V4 { .. } => {
                let most =
                    icmpv4::ERROR_BYTES_MAX - wire::ipv4::HEADER_BYTES - icmpv4::HEADER_BYTES;
                let mut message = with_header(quote.get(..most).unwrap_or(quote));
                let repr = icmpv4::Repr::DestinationUnreachable {
                    code: code_v4,
                    mtu: 0,
                };
                if repr.emit(&mut message).is_ok() {
                    self.answer_icmp(addresses, ip_protocol::ICMP, &message, now_ns);
                }
            }
            Addresses::V6 {
                source,
                destination,
            } => {
                let most =
                    icmpv6::ERROR_BYTES_MAX - wire::ipv6::HEADER_BYTES - icmpv6::HEADER_BYTES;
                let mut message = with_header(quote.get(..most).unwrap_or(quote));
                let repr = match code_v6 {
                    u8::MAX => icmpv6::Repr::ParameterProblem {
                        code: 1,
                        pointer: 6,
                    },
                    code => icmpv6::Repr::DestinationUnreachable { code },
                };
                if repr.emit(&mut message, source, destination).is_ok() {
                    self.answer_icmp(addresses, ip_protocol::ICMPV6, &message, now_ns);
                }
            }
        }
    }

    /// Hands an error to the socket whose packet it quotes.
    fn receive_icmp_error(&mut self, rx: &Rx<'_>, is_v4: bool, now_ns: u64) {
        let Some(flow) = FlowKey::from_icmp_quote(&rx.layout, rx.frame) else {
            return;
        };
        let message = rx
            .frame
            .get(usize::from(rx.layout.transport)..usize::from(rx.layout.end))
            .unwrap_or_default();
        let complaint = if is_v4 {
            complaint_v4(message)
        } else {
            complaint_v6(message)
        };
        let Some(complaint) = complaint else { return };
        let (local, peer) = (flow.source_ip(), flow.destination_ip());
        if !self.addressing.is_ours(local) {
            return;
        }
        match flow.protocol {
            ip_protocol::UDP => {
                let local = SocketAddr::new(local, flow.source_port);
                let peer = SocketAddr::new(peer, flow.destination_port);
                match complaint {
                    Complaint::Unreachable { error, .. } => self.udp_error(local, peer, error),
                    Complaint::TooBig { mtu } => {
                        self.paths.set(peer.ip(), mtu, now_ns);
                    }
                }
            }
            ip_protocol::TCP => {
                let Some(key) = Key::new(peer, flow.destination_port, local, flow.source_port)
                else {
                    return;
                };
                let seq = quoted_sequence(message, is_v4);
                self.tcp_error(&key, seq, complaint, now_ns);
            }
            _ => {}
        }
    }

    /// RFC 5927 4.1: only of what is in flight. RFC 1122 4.2.3.9: hard errors end a connection that is being opened.
    fn tcp_error(&mut self, key: &Key, seq: Option<Seq>, complaint: Complaint, now_ns: u64) {
        let session = self.tcp.sessions.find(key);
        let Found::Connection(index) = self.tcp.sessions.get(session) else {
            return;
        };
        let (peer, _) = key.peer();
        let Some((tcb, mut ctx)) = self.tcp.with(index, now_ns) else {
            return;
        };
        let in_flight =
            seq.is_some_and(|seq| seq.at_or_after(tcb.snd_una) && seq.before(tcb.snd_nxt));
        if !in_flight {
            return;
        }
        match complaint {
            Complaint::TooBig { mtu } => {
                let mtu = self.paths.set(peer, mtu, now_ns);
                let header = if peer.is_ipv4() { 40 } else { 60 };
                tcb.on_packet_too_big(mtu, header, &mut ctx);
            }
            Complaint::Unreachable { error, hard } if hard && tcb.state == State::SynSent => {
                tcb.end(Some(error), &mut ctx);
            }
            Complaint::Unreachable { .. } => tcb.flags.insert(Flag::SOFT_ERROR),
        }
        self.tcp.settle(index, now_ns, &mut self.told);
    }
}

fn with_header(data: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(icmpv4::HEADER_BYTES + data.len());
    message.resize(icmpv4::HEADER_BYTES, 0);
    message.extend_from_slice(data);
    message
}

fn complaint_v4(message: &[u8]) -> Option<Complaint> {
    let unreachable = |error, hard| Some(Complaint::Unreachable { error, hard });
    match icmpv4::Repr::parse(&icmpv4::View::new(message).ok()?) {
        icmpv4::Repr::DestinationUnreachable { code, mtu } => match code {
            0 | 5 | 6 | 8 | 11 => unreachable(Error::NetworkUnreachable, false),
            1 | 7 | 12 => unreachable(Error::HostUnreachable, false),
            2 | 3 => unreachable(Error::ConnectionRefused, true),
            // RFC 1191 5: old routers do not tell the MTU; 576 is what every one takes.
            4 => Some(Complaint::TooBig {
                mtu: if mtu == 0 { 576 } else { mtu },
            }),
            9 | 10 | 13 => unreachable(Error::PermissionDenied, true),
            _ => None,
        },
        icmpv4::Repr::TimeExceeded { .. } | icmpv4::Repr::ParameterProblem { .. } => {
            unreachable(Error::HostUnreachable, false)
        }
        _ => None,
    }
}

fn complaint_v6(message: &[u8]) -> Option<Complaint> {
    let unreachable = |error, hard| Some(Complaint::Unreachable { error, hard });
    match icmpv6::Repr::parse(&icmpv6::View::new(message).ok()?) {
        icmpv6::Repr::DestinationUnreachable { code } => match code {
            0 => unreachable(Error::NetworkUnreachable, false),
            1 | 5 | 6 => unreachable(Error::PermissionDenied, true),
            4 => unreachable(Error::ConnectionRefused, true),
            _ => unreachable(Error::HostUnreachable, false),
        },
        icmpv6::Repr::PacketTooBig { mtu } => Some(Complaint::TooBig {
            mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
        }),
        icmpv6::Repr::TimeExceeded { .. } => unreachable(Error::HostUnreachable, false),
        icmpv6::Repr::ParameterProblem { code: 1, .. } => {
            unreachable(Error::ConnectionRefused, true)
        }
        _ => None,
    }
}

/// Reads the sequence number of a quoted segment of ours, which has no options or extension headers before TCP.
fn quoted_sequence(message: &[u8], is_v4: bool) -> Option<Seq> {
    let quote = message.get(icmpv4::HEADER_BYTES..)?;
    let transport = if is_v4 {
        usize::from(quote.first()? & 0xf) * 4
    } else {
        wire::ipv6::HEADER_BYTES
    };
    let bytes = quote
        .get(transport + wire::tcp::SEQUENCE..)?
        .first_chunk::<4>()?;
    Some(Seq(u32::from_be_bytes(*bytes)))
}
