//! The nodes of the packet graph.
//!
//! ```text
//!  routed port -> eth-input -> ip4-forward -> tx, bridge-output, resolve, local, ip4-fragment, icmp-error
//!                           -> ip6-forward -> ...
//!                           -> resolve (ARP)
//!  bridged port -> bridge-NAME -> tx, eth-input (for the node itself)
//!  local, icmp-error, ip4-fragment -> ip4-output, ip6-output -> tx, bridge-output, resolve
//! ```

mod adjacency;
pub mod cause;
pub mod eth_input;
pub mod fragment;
pub mod icmp_error;
pub mod ip4;
pub mod ip6;
pub mod link;
pub mod local;
pub mod verdict;
