//! Nodes, workers and the hybrid interrupt/polling engine of the Tidegate data plane.
#![forbid(unsafe_code)]

pub mod builder;
pub mod capture;
pub mod counters;
pub mod dispatch;
pub mod idle;
pub mod node;
pub mod outlets;

pub use builder::{GraphBuilder, GraphError, NodeId};
pub use counters::{Counter, EdgeCounters, NodeCounters};
pub use dispatch::Graph;
pub use node::{Context, EdgeId, Node, Snapshot};
pub use outlets::Outlets;
