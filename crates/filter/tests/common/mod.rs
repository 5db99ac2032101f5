//! Packets for the tests of this crate.

use std::net::IpAddr;

use filter::packet::{CtState, CtView, Hook, InterfaceId, Packet};
use wire::{Layout, ip_protocol};

/// What a test packet is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    /// Source port, or ICMP type.
    pub(crate) sport: u16,
    /// Destination port, or ICMP code.
    pub(crate) dport: u16,
    pub(crate) flags: u8,
    pub(crate) dscp: u8,
    pub(crate) ttl: u8,
    pub(crate) payload_bytes: usize,
    pub(crate) iif: u16,
    pub(crate) oif: u16,
    pub(crate) mark: u32,
    pub(crate) state: CtState,
    pub(crate) ct_mark: u32,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            source: "10.0.0.1".parse().unwrap(),
            destination: "192.168.1.1".parse().unwrap(),
            protocol: ip_protocol::TCP,
            sport: 40_000,
            dport: 80,
            flags: 2,
            dscp: 0,
            ttl: 64,
            payload_bytes: 10,
            iif: 1,
            oif: 2,
            mark: 0,
            state: CtState::NEW,
            ct_mark: 0,
        }
    }
}

impl Spec {
    /// Builds the frame, with right checksums.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let transport = self.transport();
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                frame.extend([0x08, 0x00]);
                let total = (20 + transport.len()) as u16;
                let mut header = vec![0x45, self.dscp << 2];
                header.extend(total.to_be_bytes());
                header.extend([0, 1, 0x40, 0, self.ttl, self.protocol, 0, 0]);
                header.extend(source.octets());
                header.extend(destination.octets());
                let sum = wire::checksum::checksum(&header);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                frame.extend(header);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                frame.extend([0x86, 0xdd, 0x60 | self.dscp >> 2, self.dscp << 6, 0, 0]);
                frame.extend((transport.len() as u16).to_be_bytes());
                frame.extend([self.protocol, self.ttl]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
            }
            _ => panic!("mixed families"),
        }
        frame.extend(transport);
        let layout = wire::parse(&frame).expect("a valid test packet");
        let _ = wire::checksum::fill_transport(&layout, &mut frame);
        frame
    }

    fn transport(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self.protocol {
            ip_protocol::TCP => {
                out.extend(self.sport.to_be_bytes());
                out.extend(self.dport.to_be_bytes());
                out.extend([
                    0, 0, 0, 1, 0, 0, 0, 0, 0x60, self.flags, 0x20, 0, 0, 0, 0, 0,
                ]);
                out.extend([2, 4, 0x05, 0xb4]);
            }
            ip_protocol::UDP => {
                out.extend(self.sport.to_be_bytes());
                out.extend(self.dport.to_be_bytes());
                out.extend(((8 + self.payload_bytes) as u16).to_be_bytes());
                out.extend([0, 0]);
            }
            ip_protocol::ICMP | ip_protocol::ICMPV6 => {
                out.extend([self.sport as u8, self.dport as u8, 0, 0, 0, 1, 0, 2]);
            }
            _ => out.extend([0; 8]),
        }
        out.resize(out.len() + self.payload_bytes, 0x5a);
        out
    }

    /// Makes the packet at a hook.
    pub(crate) fn packet<'a>(&self, frame: &'a mut [u8], hook: Hook) -> Packet<'a> {
        let layout: Layout = wire::parse(frame).expect("a valid test packet");
        let mut packet = Packet::new(frame, layout, hook);
        packet.iif = InterfaceId(self.iif);
        packet.oif = match hook {
            Hook::Prerouting | Hook::Input | Hook::Ingress => InterfaceId::NONE,
            _ => InterfaceId(self.oif),
        };
        packet.mark = self.mark;
        packet.now = wire::Instant::from_ns(1_000_000_000);
        packet.ct = CtView {
            state: self.state,
            tracked: self
                .state
                .intersects(CtState::NEW | CtState::ESTABLISHED | CtState::RELATED),
            mark: self.ct_mark,
            ..CtView::default()
        };
        packet
    }
}
