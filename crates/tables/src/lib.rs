#![doc = include_str!("../README.md")]
#![cfg_attr(not(any(feature = "std", loom, shuttle, test)), no_std)]

extern crate alloc;

pub mod counter_table;
pub mod counters;
pub mod flow_map;
pub mod lpm;
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
#[expect(unsafe_code, reason = "mmap and madvise")]
mod mapping;
#[expect(
    unsafe_code,
    reason = "views zeroed memory as arrays of atomics; prefetch"
)]
pub mod memory;
#[expect(unsafe_code, reason = "bitmaps of atomics are plain memory")]
pub mod port_allocator;
pub mod quiescent;
pub mod ready;
#[expect(
    unsafe_code,
    reason = "rings move values through shared slots; loom models them"
)]
pub mod ring;
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
#[expect(
    unsafe_code,
    reason = "words of mapped files; memfd, linkat, statfs and locks"
)]
pub mod segment;
#[expect(
    unsafe_code,
    reason = "compares 16 signatures by vectors, beside a scalar twin"
)]
pub mod signature;
pub mod sketch;
pub mod sleep;
pub mod slots;
mod sync;
pub mod token_bucket;
pub mod wheel;
