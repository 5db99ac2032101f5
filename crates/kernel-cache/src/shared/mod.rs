//! What the kernel's programs and user space share: one source, compiled for BPF and for the host.
//!
//! Nothing here allocates, loops without a bound, or needs a crate. It reaches memory and packets through
//! [`Memory`], [`Packet`] and [`Reply`] only: in the kernel these are map values and the frame of the driver, on the host
//! slices and a vector.

pub mod answer;
pub mod bounded;
pub mod frame;
pub mod hash;
pub mod insert;
pub mod interest;
pub mod layout;
pub mod lookup;
pub mod reply;

use layout::{Bucket, Config, Node, Slab};

/// The cache's memory, as one side maps it. Indices outside give `None`.
pub trait Memory {
    /// Returns the facts that are fixed when the cache is made.
    fn config(&self) -> &Config;
    /// Returns a bucket of the hash table.
    fn bucket(&self, index: u32) -> Option<&Bucket>;
    /// Returns the node of a slot.
    fn node(&self, slot: u32) -> Option<&Node>;
    /// Returns the Data bytes of a slot.
    fn slab(&self, slot: u32) -> Option<&Slab>;
    /// Keeps loads before it from moving behind it, and loads behind it from moving before it.
    fn read_barrier(&self);
    /// Returns `CLOCK_MONOTONIC`, ns.
    fn now_ns(&self) -> u64;
}

/// The frame that a program was given.
pub trait Packet {
    /// Copies `length` bytes (1 to [`frame::WINDOW_BYTES`]) from the start of the frame. False if there are fewer.
    fn load(&self, window: &mut frame::Window, length: usize) -> bool;
    /// Returns the frame's length, bytes.
    fn length(&self) -> usize;
}

/// A frame over which the reply is written.
pub trait Reply: Packet {
    /// Changes the frame's length. False if the frame has no room; it is then unchanged.
    fn resize(&mut self, length: usize) -> bool;
    /// Writes the first `length` bytes (1 to the array's length) of the window to the start of the frame.
    fn store_head(&mut self, window: &frame::Window, length: usize) -> bool;
    /// Writes the first `length` bytes of a link-protocol header to `at`.
    fn store_lp(&mut self, at: usize, lp: &reply::LpHead, length: usize) -> bool;
    /// Writes `length` bytes of a slab, from its byte `from` (below 8), to `at`.
    fn store_slab(&mut self, at: usize, slab: &Slab, from: usize, length: usize) -> bool;
}
