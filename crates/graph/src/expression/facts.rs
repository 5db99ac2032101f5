//! What an expression may ask about a frame, read without trusting any of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::{MacAddr, ether_type, ip_protocol};

use super::Network;

/// Extension headers of IPv6 that are followed.
const EXTENSIONS_MAX: usize = 8;
/// VLAN tags that are looked through.
const TAGS_MAX: usize = 4;

/// What is known of a frame; what it does not hold is `None`.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) frame: &'a [u8],
    /// Source and destination.
    pub(super) macs: Option<(MacAddr, MacAddr)>,
    pub(super) vlans: [u16; TAGS_MAX],
    pub(super) vlan_tags: usize,
    /// After the tags.
    pub(super) ether_type: Option<u16>,
    /// Source and destination; of ARP, sender and target.
    pub(super) addresses: Option<(IpAddr, IpAddr)>,
    pub(super) protocol: Option<u8>,
    /// Source and destination, of TCP, UDP and SCTP; not of later fragments.
    pub(super) ports: Option<(u16, u16)>,
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    take(bytes, at).map(u16::from_be_bytes)
}

impl<'a> Facts<'a> {
    pub(super) fn of(frame: &'a [u8]) -> Self {
        let mut facts = Self {
            frame,
            macs: None,
            vlans: [0; TAGS_MAX],
            vlan_tags: 0,
            ether_type: None,
            addresses: None,
            protocol: None,
            ports: None,
        };
        facts.link();
        facts
    }

    pub(super) fn is_of(&self, network: Network) -> bool {
        let wanted = match network {
            Network::Any => return true,
            Network::Ip => ether_type::IPV4,
            Network::Ip6 => ether_type::IPV6,
            Network::Arp => ether_type::ARP,
        };
        self.ether_type == Some(wanted)
    }

    fn link(&mut self) -> Option<()> {
        let frame = self.frame;
        let (to, from) = (MacAddr(take(frame, 0)?), MacAddr(take(frame, 6)?));
        self.macs = Some((from, to));
        let mut at = 12;
        let mut kind = be16(frame, at)?;
        while matches!(
            kind,
            ether_type::VLAN | ether_type::VLAN_SERVICE | ether_type::VLAN_OLD
        ) && let Some(slot) = self.vlans.get_mut(self.vlan_tags)
        {
            *slot = be16(frame, at + 2)? & 0xfff;
            self.vlan_tags += 1;
            at += 4;
            kind = be16(frame, at)?;
        }
        self.ether_type = Some(kind);
        let packet = frame.get(at + 2..)?;
        match kind {
            ether_type::IPV4 => self.ipv4(packet),
            ether_type::IPV6 => self.ipv6(packet),
            ether_type::ARP => self.arp(packet),
            _ => None,
        }
    }

    fn arp(&mut self, packet: &[u8]) -> Option<()> {
        let sender = Ipv4Addr::from(take::<4>(packet, 14)?);
        let target = Ipv4Addr::from(take::<4>(packet, 24)?);
        self.addresses = Some((sender.into(), target.into()));
        Some(())
    }

    fn ipv4(&mut self, packet: &[u8]) -> Option<()> {
        let header = usize::from(packet.first()? & 0xf) * 4;
        self.protocol = Some(*packet.get(9)?);
        let source = Ipv4Addr::from(take::<4>(packet, 12)?);
        let destination = Ipv4Addr::from(take::<4>(packet, 16)?);
        self.addresses = Some((source.into(), destination.into()));
        let later = be16(packet, 6)? & 0x1fff != 0;
        self.transport(packet.get(header..)?, later)
    }

    fn ipv6(&mut self, packet: &[u8]) -> Option<()> {
        let source = Ipv6Addr::from(take::<16>(packet, 8)?);
        let destination = Ipv6Addr::from(take::<16>(packet, 24)?);
        self.addresses = Some((source.into(), destination.into()));
        let mut next = *packet.get(6)?;
        let mut at = 40;
        let mut later = false;
        for _ in 0..EXTENSIONS_MAX {
            self.protocol = Some(next);
            let length = match next {
                ip_protocol::HOP_BY_HOP
                | ip_protocol::ROUTING
                | ip_protocol::DESTINATION_OPTIONS => (usize::from(*packet.get(at + 1)?) + 1) * 8,
                ip_protocol::FRAGMENT => {
                    later = be16(packet, at + 2)? & 0xfff8 != 0;
                    8
                }
                _ => break,
            };
            next = *packet.get(at)?;
            at += length;
        }
        self.transport(packet.get(at..)?, later)
    }

    fn transport(&mut self, segment: &[u8], later_fragment: bool) -> Option<()> {
        let has_ports = matches!(
            self.protocol?,
            ip_protocol::TCP | ip_protocol::UDP | ip_protocol::SCTP
        );
        if has_ports && !later_fragment {
            self.ports = Some((be16(segment, 0)?, be16(segment, 2)?));
        }
        Some(())
    }
}
