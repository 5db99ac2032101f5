//! ARP for IPv4 over Ethernet (RFC 826).

use core::net::Ipv4Addr;

use crate::bytes::be16;
use crate::emit::BufferTooShort;
use crate::{DropReason, MacAddr};

/// Offset of the operation.
pub const OPERATION: usize = 6;
/// Offset of the sender's MAC address; its IPv4 address follows.
pub const SENDER: usize = 8;
/// Offset of the target's MAC address; its IPv4 address follows.
pub const TARGET: usize = 18;
/// Length of the packet.
pub const PACKET_BYTES: usize = 28;
/// The first six bytes of every packet: hardware Ethernet, protocol IPv4, address lengths 6 and 4.
pub const ETHERNET_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// What an ARP packet asks or says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Who has the target's IPv4 address?
    Request,
    /// The sender has it.
    Reply,
    /// Any other, such as the RARP operations.
    Other(u16),
}

impl From<u16> for Operation {
    fn from(value: u16) -> Self {
        match value {
            1 => Self::Request,
            2 => Self::Reply,
            other => Self::Other(other),
        }
    }
}

impl From<Operation> for u16 {
    fn from(operation: Operation) -> Self {
        match operation {
            Operation::Request => 1,
            Operation::Reply => 2,
            Operation::Other(other) => other,
        }
    }
}

/// A packet that is whole and speaks of IPv4 over Ethernet.
#[derive(Clone, Copy, Debug)]
pub struct View<'a>(&'a [u8; PACKET_BYTES]);

impl<'a> View<'a> {
    /// Checks the length and the six fixed bytes.
    ///
    /// # Errors
    /// [`DropReason::ArpMalformed`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, DropReason> {
        match bytes.first_chunk() {
            Some(packet) if packet.first_chunk() == Some(&ETHERNET_IPV4) => Ok(Self(packet)),
            _ => Err(DropReason::ArpMalformed),
        }
    }
    /// Returns the operation.
    pub fn operation(&self) -> Operation {
        be16!(self.0, OPERATION).into()
    }
    /// Returns the sender's addresses.
    pub const fn sender(&self) -> (MacAddr, Ipv4Addr) {
        self.pair(SENDER)
    }
    /// Returns the target's addresses; a request leaves the first unknown.
    pub const fn target(&self) -> (MacAddr, Ipv4Addr) {
        self.pair(TARGET)
    }

    const fn pair(&self, at: usize) -> (MacAddr, Ipv4Addr) {
        let b = self.0;
        (
            MacAddr([b[at], b[at + 1], b[at + 2], b[at + 3], b[at + 4], b[at + 5]]),
            Ipv4Addr::new(b[at + 6], b[at + 7], b[at + 8], b[at + 9]),
        )
    }
}

/// The fields of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// What the packet asks or says.
    pub operation: Operation,
    /// MAC address of the sender.
    pub sender_mac: MacAddr,
    /// IPv4 address of the sender; 0.0.0.0 in an address probe (RFC 5227).
    pub sender_ip: Ipv4Addr,
    /// MAC address of the target, zero in a request.
    pub target_mac: MacAddr,
    /// IPv4 address of the target.
    pub target_ip: Ipv4Addr,
}

impl Repr {
    /// Reads the fields.
    pub fn parse(view: &View<'_>) -> Self {
        let (sender_mac, sender_ip) = view.sender();
        let (target_mac, target_ip) = view.target();
        Self {
            operation: view.operation(),
            sender_mac,
            sender_ip,
            target_mac,
            target_ip,
        }
    }
    /// Makes the request for the MAC address of `target_ip`.
    pub const fn request(sender_mac: MacAddr, sender_ip: Ipv4Addr, target_ip: Ipv4Addr) -> Self {
        let operation = Operation::Request;
        Self {
            operation,
            sender_mac,
            sender_ip,
            target_mac: MacAddr::ZERO,
            target_ip,
        }
    }
    /// Makes the reply to this request by the station that has the MAC address `mac`.
    #[must_use]
    pub const fn reply(&self, mac: MacAddr) -> Self {
        Self {
            operation: Operation::Reply,
            sender_mac: mac,
            sender_ip: self.target_ip,
            target_mac: self.sender_mac,
            target_ip: self.sender_ip,
        }
    }
    /// Writes the packet to the start of `bytes`; returns its length.
    ///
    /// # Errors
    /// [`BufferTooShort`] for less than [`PACKET_BYTES`].
    pub fn emit(&self, bytes: &mut [u8]) -> Result<usize, BufferTooShort> {
        let packet = bytes
            .first_chunk_mut::<PACKET_BYTES>()
            .ok_or(BufferTooShort)?;
        packet[..6].copy_from_slice(&ETHERNET_IPV4);
        packet[6..8].copy_from_slice(&u16::from(self.operation).to_be_bytes());
        packet[8..14].copy_from_slice(&self.sender_mac.0);
        packet[14..18].copy_from_slice(&self.sender_ip.octets());
        packet[18..24].copy_from_slice(&self.target_mac.0);
        packet[24..].copy_from_slice(&self.target_ip.octets());
        Ok(PACKET_BYTES)
    }
}
