//! `local`: what is addressed to the node itself: answers echo requests, sorts out neighbour discovery,
//! and refuses what nobody here listens to.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use graph::{Context, EdgeId, Node, Outlets, Snapshot};
use io::{Batch, Frame, FrameFlags};
use socket::service::HostService;
use wire::checksum::{self, TransportChecksum};
use wire::ndp::solicited_node;
use wire::{DropReason, Layout, LayoutFlags, MacAddr, icmpv4, ipv6};

use super::cause::Cause;
use super::verdict::{Verdict, judge};
use crate::forwarding::{Forwarding, Route};
use crate::packet::{self, IPV6_BYTES};

const IP4: EdgeId = EdgeId(0);
const IP6: EdgeId = EdgeId(1);
const ERROR: EdgeId = EdgeId(2);
const DISCOVERY: EdgeId = EdgeId(3);
const REASSEMBLE: EdgeId = EdgeId(4);
const HOST: EdgeId = EdgeId(5);
const EDGES: &[&str] = &["ip4", "ip6", "error", "discovery", "reassemble"];
const EDGES_WITH_HOST: &[&str] = &["ip4", "ip6", "error", "discovery", "reassemble", "host"];

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const NO_NEXT_HEADER: u8 = 59;
const ECHO_REQUEST: u8 = 8;
const ECHO_REQUEST6: u8 = 128;
const ECHO_REPLY6: u8 = 129;
/// TTL and hop limit of what the node sends.
const TTL: u8 = 64;

/// Takes packets to the node's own addresses, and to groups.
#[derive(Debug)]
pub struct Local {
    forwarding: Arc<Forwarding>,
    /// The host that takes TCP and UDP to its addresses.
    host: Option<Arc<HostService>>,
}

impl Local {
    /// Makes the node.
    pub fn new(forwarding: Arc<Forwarding>, host: Option<Arc<HostService>>) -> Self {
        Self { forwarding, host }
    }

    /// Tells whether a packet is for the host: TCP, UDP, or an error that quotes them, to one of its addresses.
    fn is_for_host(&self, layout: &Layout, destination: IpAddr) -> bool {
        let Some(host) = &self.host else {
            return false;
        };
        let is_transport = matches!(layout.protocol, TCP | UDP);
        (is_transport || layout.flags.contains(LayoutFlags::ICMP_ERROR)) && host.has(destination)
    }

    fn deliver(&self, frame: &mut Frame) -> Verdict {
        let layout = frame.layout;
        if checksum::verify_transport(&layout, frame.data()) == TransportChecksum::Bad
            && !frame.flags.contains(FrameFlags::CHECKSUM_GOOD)
        {
            return Verdict::drop(DropReason::TransportChecksum);
        }
        if layout.flags.contains(LayoutFlags::IPV4) {
            self.deliver4(frame)
        } else {
            self.deliver6(frame)
        }
    }

    fn deliver4(&self, frame: &mut Frame) -> Verdict {
        let layout = frame.layout;
        let network = usize::from(layout.network);
        let Some(&[s0, s1, s2, s3, destination @ ..]) =
            packet::bytes::<8>(frame.data(), network + 12)
        else {
            return Verdict::drop(DropReason::Ipv4Truncated);
        };
        // A packet from the node's own address that comes from outside is forged, or goes in circles.
        if self.forwarding.is_local4(&[s0, s1, s2, s3]) {
            return Verdict::drop(DropReason::Ipv4Source);
        }
        let to_one = self.forwarding.route4(&destination) == Some(Route::Local);
        if to_one && self.is_for_host(&layout, destination.into()) {
            return Verdict::edge(HOST);
        }
        if layout.flags.contains(LayoutFlags::FRAGMENT) {
            // What asks everyone for an answer does not come in fragments.
            return match to_one {
                true => Verdict::edge(REASSEMBLE),
                false => Verdict::drop(DropReason::RateLimited),
            };
        }
        match layout.protocol {
            ICMP => {
                let kind = frame.data().get(usize::from(layout.transport)).copied();
                match kind {
                    // RFC 1122 3.2.2.6 lets a host ignore an echo request to a group or broadcast.
                    Some(ECHO_REQUEST) if to_one => self.echo_reply4(frame),
                    Some(ECHO_REQUEST) => Verdict::drop(DropReason::RateLimited),
                    // Answers and errors for programs of the node: there are none that ask.
                    _ => Verdict::CONSUME,
                }
            }
            UDP | TCP => self.refuse(frame, to_one),
            _ => {
                frame.mark = Cause::ProtocolUnknown.mark(0);
                Verdict::edge(ERROR)
            }
        }
    }

    /// Nobody listens on any port, as there is no host. TCP gets the same ICMP error as UDP: RFC 1122 4.2.3.9 makes clients
    /// give up on it.
    fn refuse(&self, frame: &mut Frame, to_one: bool) -> Verdict {
        if !to_one {
            return Verdict::drop(DropReason::PortUnreachable);
        }
        frame.mark = Cause::PortUnreachable.mark(0);
        Verdict::edge(ERROR)
    }

    fn deliver6(&self, frame: &mut Frame) -> Verdict {
        let layout = frame.layout;
        let network = usize::from(layout.network);
        let data = frame.data();
        let (Some(&hop_limit), Some(source), Some(destination)) = (
            data.get(network + 7),
            packet::bytes::<16>(data, network + 8),
            packet::bytes::<16>(data, network + 24),
        ) else {
            return Verdict::drop(DropReason::Ipv6Truncated);
        };
        let Some(interface) = self.forwarding.interface_of(frame.rx_port) else {
            return Verdict::drop(DropReason::PortDown);
        };
        if self.forwarding.is_local6(source, interface) {
            return Verdict::drop(DropReason::Ipv6Source);
        }
        let to_one = destination[0] != 0xff;
        if !to_one && !self.is_member(destination, frame) {
            return Verdict::drop(DropReason::NotForUs);
        }
        if to_one && self.is_for_host(&layout, (*destination).into()) {
            return Verdict::edge(HOST);
        }
        if layout.flags.contains(LayoutFlags::FRAGMENT) {
            return match to_one {
                true => Verdict::edge(REASSEMBLE),
                false => Verdict::drop(DropReason::RateLimited),
            };
        }
        match layout.protocol {
            ICMPV6 => match data.get(usize::from(layout.transport)).copied() {
                Some(ECHO_REQUEST6) => self.echo_reply6(frame, to_one),
                // RFC 4861 6.1 and 7.1: only a neighbour can send a hop limit of 255.
                Some(133..=137) if hop_limit != 255 => {
                    Verdict::drop(DropReason::NeighbourDiscovery)
                }
                Some(135 | 136) => Verdict::edge(DISCOVERY),
                _ => Verdict::CONSUME,
            },
            UDP | TCP => self.refuse(frame, to_one),
            NO_NEXT_HEADER => Verdict::CONSUME,
            _ => {
                frame.mark = Cause::ProtocolUnknown.mark(next_header_offset(frame));
                Verdict::edge(ERROR)
            }
        }
    }

    /// Tells whether the node is in the group: all nodes, all routers, the solicited-node groups of its
    /// addresses (RFC 4291 2.8).
    fn is_member(&self, group: &[u8; 16], frame: &Frame) -> bool {
        let interface = self
            .forwarding
            .interface_of(frame.rx_port)
            .and_then(|id| self.forwarding.interface(id))
            .filter(|interface| interface.has_v6());
        let Some(interface) = interface else {
            return false;
        };
        let group6 = Ipv6Addr::from(*group);
        let everyone = [
            Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
            Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2),
        ];
        everyone.contains(&group6)
            || interface
                .v6
                .iter()
                .map(|(address, _)| address)
                .chain([&interface.link_local])
                .any(|address| solicited_node(*address) == group6)
    }

    fn echo_reply6(&self, frame: &mut Frame, to_one: bool) -> Verdict {
        let layout = frame.layout;
        let network = usize::from(layout.network);
        let interface = self
            .forwarding
            .interface_of(frame.rx_port)
            .and_then(|id| self.forwarding.interface(id));
        // Extension headers would have to be judged before they are sent back.
        if usize::from(layout.transport) != network + IPV6_BYTES {
            return Verdict::drop(DropReason::Ipv6ExtensionHeader);
        }
        let data = frame.data_mut();
        let Some(&source) = packet::bytes::<16>(data, network + 8) else {
            return Verdict::drop(DropReason::Ipv6Truncated);
        };
        if source == [0; 16] {
            return Verdict::drop(DropReason::Ipv6Source);
        }
        let own = match packet::bytes::<16>(data, network + 24) {
            Some(&own) if to_one => own,
            // A request to a group is answered from a unicast address (RFC 4443 4.2).
            _ => match interface.and_then(|i| i.source6(source.into())) {
                Some(own) => own.octets(),
                None => return Verdict::drop(DropReason::NotForUs),
            },
        };
        data[network + 7] = TTL;
        data[network + 8..network + 24].copy_from_slice(&own);
        data[network + 24..network + 40].copy_from_slice(&source);
        data[usize::from(layout.transport)] = ECHO_REPLY6;
        checksum::fill_transport(&layout, data);
        packet::turn_around(data, interface.map_or(MacAddr::ZERO, |i| i.mac));
        frame.layout.flags -=
            LayoutFlags::L2_GROUP | LayoutFlags::L2_BROADCAST | LayoutFlags::L3_GROUP;
        frame.flags |= FrameFlags::LOCAL;
        Verdict::edge(IP6)
    }

    /// Turns a checked echo request into its reply, in place.
    fn echo_reply4(&self, frame: &mut Frame) -> Verdict {
        let layout = frame.layout;
        if !icmpv4::echo_reply_in_place(&layout, frame.data_mut()) {
            return Verdict::CONSUME;
        }
        let port = self.forwarding.ports().get(frame.rx_port.index());
        packet::turn_around(frame.data_mut(), port.map_or(MacAddr::ZERO, |p| p.host_mac));
        frame.layout.flags -= LayoutFlags::DONT_FRAGMENT;
        frame.flags |= FrameFlags::LOCAL;
        Verdict::edge(IP4)
    }
}

/// Returns the offset from the IPv6 header of the field that named the transport (RFC 4443 3.4).
fn next_header_offset(frame: &Frame) -> u16 {
    // The field is the first byte of the last extension header, if there is one.
    match ipv6::ExtensionHeaders::new(&frame.layout, frame.data()).last() {
        Some(header) => header.offset as u16 - frame.layout.network,
        None => ipv6::NEXT_HEADER as u16,
    }
}

impl Node for Local {
    fn name(&self) -> &str {
        "local"
    }

    fn edges(&self) -> &[&'static str] {
        match self.host {
            Some(_) => EDGES_WITH_HOST,
            None => EDGES,
        }
    }

    fn process(&mut self, _cx: &mut Context<'_>, batch: &mut Batch, out: &mut Outlets) {
        judge(batch, out, |frame| self.deliver(frame));
    }

    fn reload(&mut self, _cx: &mut Context<'_>, snapshot: &Snapshot, _out: &mut Outlets) {
        crate::adopt(&mut self.forwarding, snapshot);
    }
}
