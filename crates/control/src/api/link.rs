//! Impaired links.

use serde::{Deserialize, Serialize};

/// A link with faults between two ports of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkInfo {
    /// Its name in the configuration.
    pub name: String,
    /// Its two directions.
    pub directions: [LinkDirection; 2],
}

/// What a link did to the packets that one of its ports received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkDirection {
    /// The port that receives.
    pub from: String,
    /// The port that sends.
    pub to: String,
    /// Packets that came.
    pub offered_pkts: u64,
    /// Packets that left, duplicates among them.
    pub delivered_pkts: u64,
    /// Packets on the link now.
    pub in_flight_pkts: u64,
    /// Packets lost because the link was to lose them.
    pub dropped_pkts: u64,
    /// Packets lost because the link was full.
    pub overflowed_pkts: u64,
    /// Packets lost because they were longer than the link's MTU.
    pub too_long_pkts: u64,
    /// Packets added.
    pub duplicated_pkts: u64,
    /// Packets changed.
    pub corrupted_pkts: u64,
    /// Packets held back, so that others may overtake them.
    pub reordered_pkts: u64,
}
