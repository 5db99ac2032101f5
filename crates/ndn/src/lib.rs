#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod dead_nonce;
pub mod face;
pub mod face_uri;
pub mod fib;
pub mod forwarder;
pub mod hash;
pub mod link;
pub mod mgmt;
pub mod partition;
pub mod pit;
pub mod rib;
mod rng;
pub mod shared_store;
pub mod store;
pub mod strategy;

pub use face::{Face, FaceConfig, FaceCounters, FaceId, FaceScope, Faces, LinkType, Persistency};
pub use face_uri::{FaceUri, FaceUriError};
pub use fib::{Fib, NextHop};
pub use forwarder::{
    Forwarder, ForwarderConfig, ForwarderCounters, Handoff, Incoming, Learned, Outgoing, Sink,
    UnsolicitedPolicy,
};
pub use hash::NameHasher;
pub use partition::Partition;
pub use rng::Rng;
pub use store::{ContentStore, DiskInfo, MemoryStore, StoreInfo};
