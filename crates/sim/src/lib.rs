//! Deterministic simulator of the Tidegate data plane: virtual clock, seeded faults, checkers.
//!
//! The workers are those of the product ([`graph::Worker`]), without their threads and clocks: a seed
//! chooses who steps next and how far virtual time goes in between, links lose, delay and damage packets
//! by the same engine that impairs real traffic ([`graph::fault`]), and to block is to let time pass. A run
//! is a function of commit, seed and scenario. Interleavings are those of batch boundaries; finer ones are
//! the job of the loom models in `tables`.
//!
//! ```
//! use sim::{Faults, World};
//! use std::time::Duration;
//!
//! let mut world = World::new(7);
//! let (left, left_port) = world.link(Faults::default());
//! let (right, right_port) = world.link(Faults::default());
//! world.worker(vec![left_port, right_port], |ports| sim::patch(ports), Default::default());
//! world.send(left, vec![2; 60]);
//! world.run_for(Duration::from_millis(1));
//! assert_eq!(world.received(right).len(), 1);
//! world.finish(); // every frame is home, every counter adds up
//! ```
#![forbid(unsafe_code)]

mod host;
mod link;
mod network;
mod replay;
mod world;

pub use graph::fault::{Faults, Random};
pub use host::{Delivered, Family, Host, HostConfig, IcmpError, Probe};
pub use link::HostId;
pub use network::Network;
pub use replay::replayable;
pub use world::{Plan, Port, World, patch, port_mac};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
