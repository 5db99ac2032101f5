//! The Tidegate node: configuration to packet graph, forwarding, snapshots.
#![forbid(unsafe_code)]

pub mod fib;
pub mod plan;
pub mod prefix;

pub use plan::{Plan, PlanError, Problem};
