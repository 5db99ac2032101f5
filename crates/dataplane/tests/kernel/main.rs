//! The node between real kernels, in network namespaces.

mod bridge;
mod common;
mod link;
mod linux;
#[path = "../support/packets.rs"]
mod packets;
mod router;
mod sockets;
mod tcpdump;
