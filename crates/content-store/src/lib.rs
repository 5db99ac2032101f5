#![doc = include_str!("../README.md")]
#![cfg_attr(not(any(feature = "std", loom, shuttle, test)), no_std)]

extern crate alloc;

#[expect(
    unsafe_code,
    reason = "packets are bytes among the words of one memory"
)]
mod arena;
mod children;
mod config;
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
mod disk;
mod evict;
mod hash;
mod insert;
#[expect(unsafe_code, reason = "reads and writes digests in the arena")]
mod lookup;
#[expect(unsafe_code, reason = "reads and writes packets in the arena")]
mod node;
mod remove;
mod rules;
mod slab;
mod stats;
mod store;
#[expect(unsafe_code, reason = "a spin lock holds the value that it guards")]
mod sync;
#[expect(
    unsafe_code,
    reason = "says that a cache line of atomics is plain memory"
)]
mod table;
mod tier;
mod trie;
mod worker;

pub use config::{Config, ConfigError, Origin, Refusal, UnsolicitedPolicy};
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
pub use disk::{DiskConfig, DiskError, DiskStats};
pub use evict::Policy;
pub use hash::{NameHash, PrefixHash};
pub use insert::{Inserted, NewData};
pub use lookup::{Hit, Query};
pub use rules::{RULES_MAX, Rule};
pub use stats::Stats;
pub use store::ContentStore;
pub use tables::memory::Pages;
pub use worker::Worker;
