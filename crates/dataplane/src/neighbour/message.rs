//! ARP packets (RFC 826) and neighbour discovery messages (RFC 4861 4.3 and 4.4), read from frames and made
//! into frames; the formats themselves are those of `wire`.

use std::net::{Ipv4Addr, Ipv6Addr};

use io::{Frame, FrameFlags};
use wire::ndp::Message;
use wire::{Layout, LayoutFlags, MacAddr, arp, ether_type, ip_protocol, ipv6, ndp};

use crate::packet::{self, ETHERNET_BYTES, IPV6_BYTES};

/// An ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// It is a request (1); else a reply (2).
    pub request: bool,
    /// The sender's MAC address.
    pub sender_mac: MacAddr,
    /// The sender's address.
    pub sender: [u8; 4],
    /// The target's MAC address, zero in a request.
    pub target_mac: MacAddr,
    /// The target's address.
    pub target: [u8; 4],
}

impl Arp {
    /// Reads a packet that the validating pass took for ARP; `None` for other operations.
    pub fn read(frame: &Frame) -> Option<Self> {
        let packet = frame.data().get(usize::from(frame.layout.network)..)?;
        let repr = arp::Repr::parse(&arp::View::new(packet).ok()?);
        let request = match repr.operation {
            arp::Operation::Request => true,
            arp::Operation::Reply => false,
            arp::Operation::Other(_) => return None,
        };
        Some(Self {
            request,
            sender_mac: repr.sender_mac,
            sender: repr.sender_ip.octets(),
            target_mac: repr.target_mac,
            target: repr.target_ip.octets(),
        })
    }

    /// Makes the frame an Ethernet frame with this packet; tells whether it fits.
    pub fn write(&self, frame: &mut Frame, to: MacAddr) -> bool {
        if !frame.set_len(ETHERNET_BYTES + arp::PACKET_BYTES) {
            return false;
        }
        frame.layout = Layout {
            flags: LayoutFlags::ARP,
            ether_type: ether_type::ARP,
            network: ETHERNET_BYTES as u16,
            end: frame.len() as u16,
            ..Layout::default()
        };
        frame.flags = FrameFlags::LOCAL;
        packet::set_ethernet(frame, to, self.sender_mac, ether_type::ARP);
        let operation = if self.request {
            arp::Operation::Request
        } else {
            arp::Operation::Reply
        };
        let repr = arp::Repr {
            operation,
            sender_mac: self.sender_mac,
            sender_ip: Ipv4Addr::from(self.sender),
            target_mac: self.target_mac,
            target_ip: Ipv4Addr::from(self.target),
        };
        repr.emit(&mut frame.data_mut()[ETHERNET_BYTES..]).is_ok()
    }
}

/// A neighbour solicitation or advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// It is a solicitation; else an advertisement.
    pub solicitation: bool,
    /// The sender's address; unspecified while it looks for duplicates.
    pub source: Ipv6Addr,
    /// Where it was sent.
    pub destination: Ipv6Addr,
    /// The address that it is about.
    pub target: Ipv6Addr,
    /// The MAC address that it tells: the sender's in a solicitation, the target's in an advertisement.
    pub mac: Option<MacAddr>,
    /// It answers a solicitation (advertisement).
    pub solicited: bool,
    /// It may replace a known MAC address (advertisement).
    pub overrides: bool,
}

impl Discovery {
    /// Reads and checks a message whose checksum is right (RFC 4861 7.1); `None` for any other.
    pub fn read(frame: &Frame) -> Option<Self> {
        let (source, destination) = frame.layout.ipv6_addresses(frame.data())?;
        let message = Message::validate(&frame.layout, frame.data())?.ok()?;
        let (solicitation, target, mac, solicited, overrides) = match message {
            Message::NeighbourSolicitation { target, options } => {
                (true, target, options.source_link_layer(), false, false)
            }
            Message::NeighbourAdvertisement {
                target,
                solicited,
                overrides,
                options,
                ..
            } => (
                false,
                target,
                options.target_link_layer(),
                solicited,
                overrides,
            ),
            _ => return None,
        };
        Some(Self {
            solicitation,
            source,
            destination,
            target,
            mac,
            solicited,
            overrides,
        })
    }

    /// Makes the frame an Ethernet frame with this message, from a router; tells whether it fits.
    pub fn write(&self, frame: &mut Frame, to: MacAddr, from: MacAddr) -> bool {
        let message = self.message();
        if !frame.set_len(ETHERNET_BYTES + IPV6_BYTES + message.bytes()) {
            return false;
        }
        let transport = (ETHERNET_BYTES + IPV6_BYTES) as u16;
        frame.layout = Layout {
            flags: LayoutFlags::IPV6 | LayoutFlags::TRANSPORT | LayoutFlags::DONT_FRAGMENT,
            ether_type: ether_type::IPV6,
            network: ETHERNET_BYTES as u16,
            transport,
            payload: transport + 8,
            end: frame.len() as u16,
            protocol: ip_protocol::ICMPV6,
            ..Layout::default()
        };
        frame.flags = FrameFlags::LOCAL;
        packet::set_ethernet(frame, to, from, ether_type::IPV6);
        let (source, destination) = (self.source, self.destination);
        let length = message.bytes() as u16;
        let header = ipv6::Repr {
            hop_limit: ndp::HOP_LIMIT,
            ..ipv6::Repr::new(source, destination, ip_protocol::ICMPV6, length)
        };
        let (head, tail) = frame.data_mut()[ETHERNET_BYTES..].split_at_mut(IPV6_BYTES);
        header.emit(head).is_ok() && message.emit(tail, source, destination).is_ok()
    }

    fn message(&self) -> ndp::Repr {
        if self.solicitation {
            return ndp::Repr::NeighbourSolicitation {
                target: self.target,
                source_mac: self.mac,
            };
        }
        ndp::Repr::NeighbourAdvertisement {
            router: true,
            solicited: self.solicited,
            overrides: self.overrides,
            target: self.target,
            target_mac: self.mac,
        }
    }
}
