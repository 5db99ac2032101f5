//! Learning bridges (IEEE 802.1D): transparent to VLANs, no spanning tree.

pub mod node;
pub mod table;

pub use node::{Bridge, BridgeOutput};
pub use table::StationTable;
