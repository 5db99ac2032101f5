//! One worker with links inside this process, and a clock of the test's.

mod bridge;
mod firewall;
mod forwarding;
mod frames;
mod link;
#[path = "../support/packets.rs"]
mod packets;
mod reassembly;
mod rig;
