//! The link protocol NDNLPv2 of one face: fragmentation, reassembly, reliability, congestion marks.

mod congestion;
mod reassembly;
mod reliability;
mod service;

pub use congestion::CongestionMarker;
pub use reassembly::{Reassembler, ReassemblyConfig};
pub use reliability::{Reliability, ReliabilityConfig};
pub use service::{LinkConfig, LinkCounters, LinkService};
