//! Frames for tests.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use wire::tcp::{Flags, TcpOption};
use wire::{Addresses, icmpv4, icmpv6, ip_protocol, ipv4, ipv6, tcp, udp};

/// A frame, and its family.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) frame: Vec<u8>,
    pub(crate) is_ipv4: bool,
}

pub(crate) const CLIENT4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const SERVER4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const CLIENT6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 1);
const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 2, 0, 0, 0, 7);

const ETHERNET4: [u8; 14] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
const ETHERNET6: [u8; 14] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd];

/// Puts a transport segment of `bytes` bytes, written by `emit`, into an Ethernet frame.
pub(crate) fn framed(
    addresses: Addresses,
    protocol: u8,
    bytes: usize,
    emit: impl FnOnce(&mut [u8]),
) -> Vec<u8> {
    match addresses {
        Addresses::V4 {
            source,
            destination,
        } => {
            let mut frame = vec![0; 34 + bytes];
            frame[..14].copy_from_slice(&ETHERNET4);
            let header = ipv4::Repr::new(source, destination, protocol, bytes as u16);
            header.emit(&mut frame[14..]).unwrap();
            emit(&mut frame[34..]);
            frame
        }
        Addresses::V6 {
            source,
            destination,
        } => {
            let mut frame = vec![0; 54 + bytes];
            frame[..14].copy_from_slice(&ETHERNET6);
            let header = ipv6::Repr::new(source, destination, protocol, bytes as u16);
            header.emit(&mut frame[14..]).unwrap();
            emit(&mut frame[54..]);
            frame
        }
    }
}

pub(crate) const V4: Addresses = Addresses::V4 {
    source: CLIENT4,
    destination: SERVER4,
};
pub(crate) const V6: Addresses = Addresses::V6 {
    source: CLIENT6,
    destination: SERVER6,
};

/// A UDP datagram.
pub(crate) fn udp_frame(addresses: Addresses, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    framed(addresses, ip_protocol::UDP, 8 + payload.len(), |bytes| {
        bytes[8..].copy_from_slice(payload);
        let header = udp::Repr {
            source_port: ports.0,
            destination_port: ports.1,
        };
        header.emit(bytes, &addresses).unwrap();
    })
}

/// What a TCP frame of a test says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpFrame<'a> {
    pub(crate) addresses: Addresses,
    pub(crate) ports: (u16, u16),
    pub(crate) flags: Flags,
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    pub(crate) window: u16,
    pub(crate) options: &'a [TcpOption<'a>],
    pub(crate) payload: &'a [u8],
}

impl TcpFrame<'_> {
    pub(crate) const fn new(addresses: Addresses, ports: (u16, u16), flags: Flags) -> Self {
        Self {
            addresses,
            ports,
            flags,
            sequence: 0,
            acknowledgement: 0,
            window: 1000,
            options: &[],
            payload: &[],
        }
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let header = tcp::Repr {
            source_port: self.ports.0,
            destination_port: self.ports.1,
            sequence: self.sequence,
            acknowledgement: self.acknowledgement,
            flags: self.flags,
            window: self.window,
            urgent: 0,
            options: self.options,
        };
        let start = header.bytes();
        framed(
            self.addresses,
            ip_protocol::TCP,
            start + self.payload.len(),
            |bytes| {
                bytes[start..].copy_from_slice(self.payload);
                header.emit(bytes, &self.addresses).unwrap();
            },
        )
    }
}

/// An ICMP or ICMPv6 echo request.
pub(crate) fn echo_frame(addresses: Addresses, identifier: u16, payload: &[u8]) -> Vec<u8> {
    match addresses {
        Addresses::V4 { .. } => framed(addresses, ip_protocol::ICMP, 8 + payload.len(), |bytes| {
            bytes[8..].copy_from_slice(payload);
            let message = icmpv4::Repr::EchoRequest {
                identifier,
                sequence: 1,
            };
            message.emit(bytes).unwrap();
        }),
        Addresses::V6 {
            source,
            destination,
        } => framed(addresses, ip_protocol::ICMPV6, 8 + payload.len(), |bytes| {
            bytes[8..].copy_from_slice(payload);
            let message = icmpv6::Repr::EchoRequest {
                identifier,
                sequence: 1,
            };
            message.emit(bytes, source, destination).unwrap();
        }),
    }
}

impl Sample {
    pub(crate) fn udp4(source_port: u16, destination_port: u16, payload: &[u8]) -> Self {
        Self {
            frame: udp_frame(V4, (source_port, destination_port), payload),
            is_ipv4: true,
        }
    }
}

/// One frame of each protocol and family.
pub(crate) fn samples(payload: &[u8]) -> Vec<Sample> {
    let mut samples = Vec::new();
    for (addresses, is_ipv4) in [(V4, true), (V6, false)] {
        let tcp = TcpFrame {
            payload,
            ..TcpFrame::new(addresses, (4000, 80), Flags::ACK)
        };
        for frame in [
            udp_frame(addresses, (4000, 53), payload),
            tcp.frame(),
            echo_frame(addresses, 4000, payload),
        ] {
            samples.push(Sample { frame, is_ipv4 });
        }
    }
    samples
}
