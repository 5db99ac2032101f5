//! Link-layer addresses of neighbours: ARP (RFC 826, RFC 1122 2.3.2) and IPv6 neighbour discovery
//! (RFC 4861), one state machine for both.
//!
//! - [`table`]: what is known, shared by all workers; the forwarding nodes only read it.
//! - [`machine`]: the state machine, without packets, clock or sockets; one a worker.
//! - [`waiting`]: packets that wait for an answer; bounded, private to a worker.
//! - [`message`]: the packets of both protocols.
//! - [`node`]: puts the four together as the node `resolve`.

pub mod machine;
pub mod message;
pub mod node;
pub mod table;
pub mod waiting;

pub use node::Resolve;
pub use table::{Key, Table};
