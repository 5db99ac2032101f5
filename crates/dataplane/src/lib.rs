#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

use std::sync::Arc;

pub mod bridge;
pub mod fib;
pub mod firewall;
pub mod forwarding;
pub mod ndn;
pub mod neighbour;
pub mod nodes;
mod packet;
pub mod plan;
pub mod prefix;
pub mod rate;
pub mod reassembly;
pub mod runtime;
pub mod topology;

pub use forwarding::{Forwarding, PortFacts};
pub use plan::{Plan, PlanError};
pub use runtime::{Capture, Dataplane, ReloadError, StartError};

/// Replaces a node's snapshot by a published one, if it is of the right type; tells whether it was.
fn adopt(forwarding: &mut Arc<Forwarding>, snapshot: &graph::node::Snapshot) -> bool {
    match Arc::clone(snapshot).downcast::<Forwarding>() {
        Ok(published) => {
            *forwarding = published;
            true
        }
        Err(_) => false,
    }
}
