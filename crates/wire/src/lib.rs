//! Packet views over bytes, checksums, flow hashing and drop reasons of the Tidegate data plane.
//!
//! Nothing here allocates, blocks or panics, whatever the bytes.
#![no_std]
#![forbid(unsafe_code)]

pub mod drop_reason;
pub mod layout;
pub mod time;

pub use drop_reason::{DropReason, Severity};
pub use layout::{FlowKey, Layout, LayoutFlags};
pub use time::Instant;
