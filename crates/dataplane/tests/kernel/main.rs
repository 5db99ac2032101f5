//! The node between real kernels, in network namespaces.

mod bridge;
mod bridging;
#[expect(dead_code, reason = "devices of DPDK are for tests/dpdk.rs")]
mod common;
mod host;
mod hosting;
mod link;
mod linux;
#[path = "../support/packets.rs"]
mod packets;
mod router;
mod routing;
mod sockets;
mod tcpdump;
