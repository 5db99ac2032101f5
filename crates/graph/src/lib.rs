//! Nodes, workers and the hybrid interrupt/polling engine of the Tidegate data plane.
#![forbid(unsafe_code)]

pub mod node;

pub use node::{Context, EdgeId, Node, Outlets};
