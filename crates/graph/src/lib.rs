//! Nodes, workers and the hybrid interrupt/polling engine of the Tidegate data plane.
#![forbid(unsafe_code)]

pub mod builder;
pub mod capture;
pub mod counters;
pub mod dispatch;
pub mod expression;
pub mod fault;
pub mod handoff;
pub mod idle;
pub mod mailbox;
pub mod node;
pub mod outlets;
pub mod runner;
pub mod worker;

pub use builder::{GraphBuilder, GraphError, NodeId};
pub use counters::{Counter, EdgeCounters, NodeCounters, PortCounters, WorkerCounters};
pub use dispatch::Graph;
pub use expression::{Expression, ExpressionError};
pub use handoff::{Mesh, Spread, mesh};
pub use idle::{IdleConfig, Mode};
pub use mailbox::{MailboxFull, WorkerHandle};
pub use node::{Context, EdgeId, Node, Snapshot};
pub use outlets::Outlets;
pub use worker::{DrainReport, Next, TxFull, Wake, Worker, WorkerPort, WorkerSetup};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
