//! The keys of connections: the flow keys of [`wire`], in the words of [`tables`].

use tables::signature::{Session4, Session6};
use tables::slots::SlotKey;
use wire::FlowKey;

/// First 96 bits of an IPv4-mapped address (RFC 4291 2.5.5.2).
const MAPPED: u128 = 0xffff_0000_0000;

/// A key of one address family.
pub trait ConnectionKey: SlotKey {
    /// Makes the key of a flow of this family.
    fn from_flow(flow: &FlowKey) -> Self;
    /// Returns the flow.
    fn to_flow(&self) -> FlowKey;
    /// Folds the source to the 64 bits that limits count by: an IPv4 address, or an IPv6 /64.
    fn source_id(&self) -> u64;
}

/// Returns whether a flow is IPv4's.
#[inline]
pub const fn is_ipv4(flow: &FlowKey) -> bool {
    matches!(u128::from_be_bytes(flow.source) >> 32, 0xffff)
        && matches!(u128::from_be_bytes(flow.destination) >> 32, 0xffff)
}

/// Returns an IPv4 address as flow keys hold it.
#[inline]
pub const fn mapped(address: u32) -> [u8; 16] {
    (MAPPED | address as u128).to_be_bytes()
}

/// Returns the IPv4 address in a mapped one.
#[inline]
pub const fn unmapped(address: [u8; 16]) -> u32 {
    u128::from_be_bytes(address) as u32
}

impl ConnectionKey for Session4 {
    #[inline]
    fn from_flow(flow: &FlowKey) -> Self {
        Self {
            source: unmapped(flow.source),
            destination: unmapped(flow.destination),
            source_port: flow.source_port,
            destination_port: flow.destination_port,
            protocol: flow.protocol,
        }
    }

    #[inline]
    fn to_flow(&self) -> FlowKey {
        FlowKey {
            source: mapped(self.source),
            destination: mapped(self.destination),
            source_port: self.source_port,
            destination_port: self.destination_port,
            protocol: self.protocol,
        }
    }

    fn source_id(&self) -> u64 {
        u64::from(self.source)
    }
}

impl ConnectionKey for Session6 {
    #[inline]
    fn from_flow(flow: &FlowKey) -> Self {
        Self {
            source: u128::from_be_bytes(flow.source),
            destination: u128::from_be_bytes(flow.destination),
            source_port: flow.source_port,
            destination_port: flow.destination_port,
            protocol: flow.protocol,
        }
    }

    #[inline]
    fn to_flow(&self) -> FlowKey {
        FlowKey {
            source: self.source.to_be_bytes(),
            destination: self.destination.to_be_bytes(),
            source_port: self.source_port,
            destination_port: self.destination_port,
            protocol: self.protocol,
        }
    }

    fn source_id(&self) -> u64 {
        // The host part says nothing of who it is.
        (self.source >> 64) as u64 | 1 << 63
    }
}
