//! Network-namespace topologies, traffic generator and RFC 2544 tester of Tidegate.
//!
//! Everything here runs against real kernel devices, in network namespaces that vanish with the
//! process ([`netns`]).

pub mod dut;
pub mod links;
pub mod machine;
pub mod need;
mod netlink;
pub mod netns;
pub mod peer;
pub mod rfc2544;
pub mod rig;
#[expect(
    unsafe_code,
    reason = "system calls that libc offers only as foreign functions"
)]
mod sys;
pub mod topology;
pub mod traffic;
pub mod vdev;

pub use io::ethtool::Offload;
pub use links::{Link, LinkCounters, Links, VethEnd};
pub use netns::{Namespace, NetnsError};
pub use topology::{Line, LineOptions, Side};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
