//! Packet views over bytes, checksums, flow hashing and drop reasons of the Tidegate data plane.
//!
//! Nothing here allocates, blocks or panics, whatever the bytes. Start at [`parse()`]: one pass over a frame
//! gives a [`Layout`], from which [`FlowKey`], the [`checksum`] functions and the views of each
//! protocol's module find their bytes. The README has an example and the limits.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(test)]
extern crate std;

/// The example of the README is run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[derive(Debug)]
pub struct ReadmeDoctests;

pub mod address;
pub mod arp;
mod bytes;
pub mod checksum;
pub mod drop_reason;
pub mod emit;
pub mod ethernet;
pub mod flow;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod layout;
pub mod mac;
pub mod ndn;
pub mod ndp;
pub mod numbers;
pub mod parse;
pub mod tcp;
pub mod time;
pub mod toeplitz;
pub mod udp;
pub mod vlan;

pub use drop_reason::{DropReason, Severity};
pub use emit::{Addresses, BufferTooShort};
pub use flow::{FlowKey, FlowSecret, flow_hash};
pub use layout::{Layout, LayoutFlags};
pub use mac::MacAddr;
pub use numbers::{ether_type, ip_protocol};
pub use parse::{parse, parse_l2};
pub use time::Instant;
pub use toeplitz::Toeplitz;
