//! ARP packets (RFC 826) and neighbour discovery messages (RFC 4861 4.3 and 4.4), read and written.

use std::net::Ipv6Addr;

use io::{Frame, FrameFlags};
use wire::checksum::Sum;
use wire::{Layout, LayoutFlags, MacAddr};

use crate::nodes::local::solicited_node;
use crate::packet::{self, ETHERNET_BYTES, IPV6_BYTES};

/// EtherType of ARP.
pub const ETHER_TYPE_ARP: u16 = 0x0806;
/// EtherType of IPv6.
pub const ETHER_TYPE_IPV6: u16 = 0x86dd;
const ARP_BYTES: usize = 28;
const ARP_ETHERNET_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];
/// Type, code, checksum, flags or reserved, target address.
const DISCOVERY_BYTES: usize = 24;
/// A link-layer address option: type, length in units of eight bytes, MAC address.
const OPTION_BYTES: usize = 8;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const OPTION_SOURCE: u8 = 1;
const OPTION_TARGET: u8 = 2;
const FLAG_ROUTER: u8 = 0x80;
const FLAG_SOLICITED: u8 = 0x40;
const FLAG_OVERRIDE: u8 = 0x20;

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
        let start = usize::from(frame.layout.network);
        let p = packet::bytes::<ARP_BYTES>(frame.data(), start)?;
        let request = match p[6..8] {
            [0, 1] => true,
            [0, 2] => false,
            _ => return None,
        };
        Some(Self {
            request,
            sender_mac: MacAddr(*packet::bytes(p, 8)?),
            sender: *packet::bytes(p, 14)?,
            target_mac: MacAddr(*packet::bytes(p, 18)?),
            target: *packet::bytes(p, 24)?,
        })
    }

    /// Makes the frame an Ethernet frame with this packet; tells whether it fits.
    pub fn write(&self, frame: &mut Frame, to: MacAddr) -> bool {
        if !frame.set_len(ETHERNET_BYTES + ARP_BYTES) {
            return false;
        }
        frame.layout = Layout {
            flags: LayoutFlags::ARP,
            ether_type: ETHER_TYPE_ARP,
            network: ETHERNET_BYTES as u16,
            end: frame.len() as u16,
            ..Layout::default()
        };
        frame.flags = FrameFlags::LOCAL;
        packet::set_ethernet(frame, to, self.sender_mac, ETHER_TYPE_ARP);
        let p = &mut frame.data_mut()[ETHERNET_BYTES..];
        p[..6].copy_from_slice(&ARP_ETHERNET_IPV4);
        p[6..8].copy_from_slice(&[0, 2 - u8::from(self.request)]);
        p[8..14].copy_from_slice(&self.sender_mac.0);
        p[14..18].copy_from_slice(&self.sender);
        p[18..24].copy_from_slice(&self.target_mac.0);
        p[24..28].copy_from_slice(&self.target);
        true
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
    /// Reads and checks a message whose checksum and hop limit are right (RFC 4861 7.1).
    pub fn read(frame: &Frame) -> Option<Self> {
        let data = frame.data();
        let network = usize::from(frame.layout.network);
        let message =
            data.get(usize::from(frame.layout.transport)..usize::from(frame.layout.end))?;
        let source = Ipv6Addr::from(*packet::bytes::<16>(data, network + 8)?);
        let destination = Ipv6Addr::from(*packet::bytes::<16>(data, network + 24)?);
        let (fixed, mut options) = message.split_first_chunk::<DISCOVERY_BYTES>()?;
        let solicitation = match fixed[..2] {
            [SOLICITATION, 0] => true,
            [ADVERTISEMENT, 0] => false,
            _ => return None,
        };
        let wanted = if solicitation {
            OPTION_SOURCE
        } else {
            OPTION_TARGET
        };
        let mut mac = None;
        while let [kind, length, ..] = *options {
            let bytes = usize::from(length) * 8;
            let option = options.get(..bytes).filter(|o| !o.is_empty())?;
            if kind == wanted {
                mac = packet::bytes::<6>(option, 2).copied().map(MacAddr);
            }
            options = &options[bytes..];
        }
        let target = Ipv6Addr::from(*packet::bytes::<16>(fixed, 8)?);
        let message = Self {
            solicitation,
            source,
            destination,
            target,
            mac,
            solicited: !solicitation && fixed[4] & FLAG_SOLICITED != 0,
            overrides: !solicitation && fixed[4] & FLAG_OVERRIDE != 0,
        };
        (options.is_empty() && message.is_valid()).then_some(message)
    }

    fn is_valid(&self) -> bool {
        if self.target.is_multicast() {
            return false;
        }
        if !self.solicitation {
            return !(self.destination.is_multicast() && self.solicited);
        }
        // Who has no address yet may not tell a MAC address, and asks the solicited-node group.
        !self.source.is_unspecified()
            || (self.mac.is_none() && self.destination == solicited_node(&self.target))
    }

    /// Makes the frame an Ethernet frame with this message, from a router; tells whether it fits.
    pub fn write(&self, frame: &mut Frame, to: MacAddr, from: MacAddr) -> bool {
        let option = if self.mac.is_some() { OPTION_BYTES } else { 0 };
        let length = DISCOVERY_BYTES + option;
        if !frame.set_len(ETHERNET_BYTES + IPV6_BYTES + length) {
            return false;
        }
        let transport = (ETHERNET_BYTES + IPV6_BYTES) as u16;
        frame.layout = Layout {
            flags: LayoutFlags::IPV6 | LayoutFlags::TRANSPORT | LayoutFlags::DONT_FRAGMENT,
            ether_type: ETHER_TYPE_IPV6,
            network: ETHERNET_BYTES as u16,
            transport,
            payload: transport + 8,
            end: frame.len() as u16,
            protocol: 58,
            ..Layout::default()
        };
        frame.flags = FrameFlags::LOCAL;
        packet::set_ethernet(frame, to, from, ETHER_TYPE_IPV6);
        let packet = &mut frame.data_mut()[ETHERNET_BYTES..];
        let (header, message) = packet.split_at_mut(IPV6_BYTES);
        header[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, length as u8, 58, 255]);
        header[8..24].copy_from_slice(&self.source.octets());
        header[24..].copy_from_slice(&self.destination.octets());
        message.fill(0);
        message[0] = if self.solicitation {
            SOLICITATION
        } else {
            ADVERTISEMENT
        };
        if !self.solicitation {
            message[4] = FLAG_ROUTER
                | if self.solicited { FLAG_SOLICITED } else { 0 }
                | if self.overrides { FLAG_OVERRIDE } else { 0 };
        }
        message[8..24].copy_from_slice(&self.target.octets());
        if let Some(mac) = self.mac {
            message[24] = if self.solicitation {
                OPTION_SOURCE
            } else {
                OPTION_TARGET
            };
            message[25] = 1;
            message[26..32].copy_from_slice(&mac.0);
        }
        let sum = Sum::of(message)
            .add_ipv6(self.source)
            .add_ipv6(self.destination)
            .add_u16(length as u16)
            .add_u16(58)
            .checksum();
        packet::put_be16(message, 2, sum);
        true
    }
}
