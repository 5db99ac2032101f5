//! The firewall: its counters, and what it took over from the node before.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What the firewall has counted, all workers together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FirewallInfo {
    /// Connections in the table.
    pub connections: u64,
    /// Connections that the table was made for.
    pub connections_max: u64,
    /// Port mappings in use or in quarantine.
    pub mappings: u64,
    /// Connections that were opened since the start.
    pub opened: u64,
    /// Connections that ended since the start.
    pub ended: u64,
    /// Packets that belonged to a connection.
    pub hit_pkts: u64,
    /// Of these, packets whose verdict was known from an earlier one.
    pub replayed_pkts: u64,
    /// Packets that fitted no connection.
    pub invalid_pkts: u64,
    /// Connections that were refused because a table was full or no port was free.
    pub refused: u64,
    /// Where connections are kept, if they outlive the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<FirewallState>,
}

/// The file that connections are kept in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirewallState {
    /// The file.
    pub file: PathBuf,
    /// What was taken over from the node before, if anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_over: Option<TakenOver>,
    /// Why what was in the file was not taken over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// What a node took over from the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TakenOver {
    /// Connections.
    pub connections: u64,
    /// Port mappings.
    pub mappings: u64,
    /// Connections that were ended, as their outer port belongs to another mapping.
    pub connections_ended: u64,
    /// Records whose making or removal a kill had interrupted.
    pub unfinished: u64,
    /// Records that made no sense.
    pub torn: u64,
    /// Mappings whose number of users was set right.
    pub counts_corrected: u64,
    /// Mappings that connections use and that were not there.
    pub mappings_restored: u64,
    /// Mappings that were half made or half removed.
    pub mappings_removed: u64,
    /// How long it took, nanoseconds.
    pub took_ns: u64,
}
