//! Measures our driver `dpdk` beside testpmd over the same devices:
//! `cargo run --release -p tidegate-bench --features dpdk -- dpdk_forward` (root; Debian package `dpdk-dev`).
//!
//! One core, 64 B, bursts of 64, in turns A B, B A, ...: our forwarder that touches nothing against testpmd's
//! `io`, and the node's router (a worker with its packet graph) against testpmd's `macswap`.
//!
//! - net_null: frames from nowhere to nowhere. The router's frames get their headers anew, in its own time.
//! - net_ring: one burst that circles; headers as above.
//! - net_vhost: virtio-user in another process on the other core sends 1,024 flows and takes what comes back
//!   (testpmd's `flowgen`). Here the router's worker also runs under the hybrid policy, at full load beside
//!   polling, and with a peer that sends nothing, which shows what an idle worker costs.
//! - net_af_xdp: between two veth ports, with the generator of `io_xdp_forward`.
//!
//! testpmd and this program get huge pages: what is missing is reserved and given back.

#[cfg(feature = "dpdk")]
mod measure;

/// Runs the program, if it has DPDK in it.
pub(crate) fn main() -> anyhow::Result<()> {
    #[cfg(feature = "dpdk")]
    return measure::main();
    #[cfg(not(feature = "dpdk"))]
    anyhow::bail!(
        "dpdk_forward needs DPDK in it (`cargo run --release -p tidegate-bench --features dpdk`, with libdpdk-dev)"
    );
}
